"""Escalation at the front doors: what is given up, and what is damaged, reaches a person."""

from __future__ import annotations

import asyncio
import errno
import logging
from http import HTTPStatus

import pytest

from mainstay import (
    AuditLog,
    Backoff,
    BreakerSettings,
    CircuitOpenError,
    CommandFailed,
    Engine,
    PolicyError,
    RetryPolicy,
    StoredValueError,
    context,
    events,
    read_log,
)
from mainstay.core.base.change import Change
from mainstay.core.codec.canonical import canonical
from mainstay.errors import RetryError
from mainstay.profiles.agents import file_operation, files, read_file, run_tool, write_file
from mainstay.profiles.control_plane import IdempotencyManager, RetryCategory, RetryManager
from mainstay.stores.memory import MemoryStore
from mainstay.testing import scripted, virtual_time

AT_ONCE = RetryPolicy(name="at once", max_attempts=2, backoff=Backoff.constant(0.0))


def busy(*_, **__):
    raise OSError(errno.EBUSY, "busy")


def an_engine(**more):
    return Engine(policies=[AT_ONCE], default="at once", sinks=[], **more)


# --- one key, or one argument ---------------------------------------------------------------------


@pytest.mark.req("UVS-2", "AG-01.exhausted", "IT-041-11")
@pytest.mark.parametrize("written", ["true", "false", None])
def test_one_key_of_the_configuration_brings_exhausted_calls_to_the_inbox(tmp_path, written):
    """`inbox.escalate`; without it, only operations that ask for it escalate."""
    inbox = "" if written is None else f"inbox:\n  escalate: {written}\n"
    file = tmp_path / "mainstay.yml"
    file.write_text(f"{inbox}retry:\n  policies:\n    standard:\n      initialDelayMs: 0\n")
    with Engine.from_config(file, env={}) as engine:
        for name in ("network", "network", "file"):
            engine.run(name, scripted(*[ConnectionError("down")] * 3))
        engine.run("final", scripted(ValueError("no")))
        found = {(item.kind, item.operation, item.times) for item in engine.inbox}
    wanted = {("exhausted", "network", 2), ("exhausted", "file", 1)}
    assert found == (wanted if written == "true" else set())


def test_an_operation_chooses_otherwise_than_its_engine():
    """By each of the three ways to name one."""
    for is_usual in (True, False):
        with an_engine(escalate=is_usual) as engine:
            engine.operation("a", escalate=not is_usual).run(scripted(*[ConnectionError()] * 2))
            protected = engine.protect("b", escalate=not is_usual)(busy)
            keyed = engine.idempotent(operation="c", escalate=not is_usual)(busy)
            for function in (protected, keyed):
                with pytest.raises(OSError, match="busy"):
                    function()
            assert {item.operation for item in engine.inbox} == (
                set() if is_usual else {"a", "b", "c"}
            )


@pytest.mark.req("UVS-2", "IT-041-11")
@pytest.mark.parametrize("door", ["tool", "read", "write", "operation"])
@pytest.mark.parametrize("escalate", [None, False])
def test_the_agents_front_door_escalates_by_default(tmp_path, monkeypatch, door, escalate):
    """A tool and a file operation on an engine that are given up become an item each."""
    monkeypatch.setattr("pathlib.Path.read_bytes", busy)
    monkeypatch.setattr(files, "replace_file", busy)
    more = {} if escalate is None else {"escalate": escalate}
    with an_engine() as engine:
        ways = {
            "tool": lambda: run_tool(["sh", "-c", "exit 3"], engine=engine, **more),
            "read": lambda: read_file(tmp_path / "note", engine=engine, **more),
            "write": lambda: write_file(tmp_path / "note", b"x", engine=engine, **more),
            "operation": lambda: file_operation(busy, "a", engine=engine, mode="b", **more),
        }
        with pytest.raises((OSError, CommandFailed)):
            ways[door]()
        name = "sh" if door == "tool" else "file"
        wanted = [("exhausted", name, 2)] if escalate is None else []
        assert [(item.kind, item.operation, item.attempts) for item in engine.inbox] == wanted


def test_the_control_plane_escalates_if_it_is_asked_to():
    """Its manager takes what an engine takes, and its inbox carries a decision out."""

    async def work():
        raise ConnectionError("down")

    async def main(manager):
        with pytest.raises(RetryError):
            await manager.execute_with_retry(RetryCategory.KV_GET, "get", work)

    with virtual_time():
        manager = RetryManager(escalate=True, sinks=[])
        asyncio.run(main(manager))
        manager.engine._escalation.flush()
        (item,) = manager.engine.inbox
        manager.engine.operators.add("ann", secret="correct horse")
        manager.engine.inbox.act(item.id, "retry", by="ann", proof="correct horse", why="back")
        assert manager.engine.inbox.get(item.id).status not in ("open", "decided")


# --- what reaches every door ----------------------------------------------------------------------


def test_policies_circuit_log_and_audit_reach_the_operations_on_files(tmp_path, caplog):
    """`operationPolicies: {file: ...}` leads to the policy, as the document has it."""
    file = tmp_path / "mainstay.yml"
    url = f"sqlite:///{tmp_path}/app.db"
    file.write_text(
        f"store: {url}\n"
        "circuitBreaker: {failureThreshold: 3, openDurationMs: 30000}\n"
        "retry:\n"
        "  policies: {files: {maxAttempts: 3, initialDelayMs: 0, logLevel: 20}}\n"
        "  operationPolicies: {file: files}\n"
    )
    caplog.set_level(logging.INFO, "mainstay")
    with Engine.from_config(file, env={}) as engine:
        with pytest.raises(OSError, match="busy"):
            file_operation(busy, engine=engine)
        with pytest.raises(CircuitOpenError):
            read_file(tmp_path / "note", engine=engine)
        assert engine.breaker("file").state.value == "open"
    levels = [
        (each.levelname, each.mainstay["policy"])
        for each in caplog.records
        if each.mainstay["event_type"] == "retry_attempt"
    ]
    assert levels == [("INFO", "files")] * 2
    kept = [each.event for each in read_log(url)]
    (over,) = [each for each in kept if isinstance(each, events.RetryExhausted)]
    assert (over.operation, over.total_attempts) == ("file", 3)
    assert any(isinstance(each, events.InboxRaised) for each in kept)


def test_without_an_engine_the_functions_work_as_before(tmp_path):
    """Under STANDARD, or the policy that is given."""
    write_file(tmp_path / "note", b"x")
    assert read_file(tmp_path / "note") == b"x"
    assert file_operation(int, "7") == 7
    assert file_operation(dict, engine="diesel") == {"engine": "diesel"}
    with an_engine() as engine:
        write_file(tmp_path / "note", b"y", engine=engine, operation="disk")
        assert read_file(tmp_path / "note", engine=engine, operation="disk") == b"y"
        assert file_operation(int, "11", engine=engine, base=2) == 3


def test_the_log_level_reaches_the_control_plane(caplog):
    """For every category; a level that does not exist is refused with the manager."""
    caplog.set_level(logging.INFO, "mainstay")

    async def main():
        manager = RetryManager(log_level=logging.INFO)
        work = scripted(ConnectionError("down"), "up")
        await manager.execute_with_retry(RetryCategory.KV_GET, "get", work)

    with virtual_time():
        asyncio.run(main())
    assert [each.levelname for each in caplog.records] == ["INFO", "INFO"]
    with pytest.raises(PolicyError, match="log_level"):
        RetryManager(log_level="LOUD")


# --- a damaged record -----------------------------------------------------------------------------


DAMAGES = (b'{"state":', b'{"state":"succeeded"}', b"\xff\xfe", b"[]")


@pytest.mark.req("AG-01.corrupted")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_gives_the_error_and_an_item(damage, is_async):
    """Nothing is run; a person learns of it, once for each key, and the error has the item's id."""
    ran = []

    async def work():
        ran.append(1)

    with an_engine() as engine:
        address = canonical([None, "work", "k"]).decode()
        engine.store.transact("records", address, lambda *_: (Change(damage), None))
        operation = engine.operation("work", key="k")
        for _ in range(2):
            with pytest.raises(StoredValueError, match="damaged") as caught:
                if is_async:
                    asyncio.run(operation.acall(work))
                else:
                    operation.call(lambda: ran.append(1))
        (item,) = engine.inbox
        assert (item.kind, item.severity, item.times) == ("corrupted_state", "critical", 2)
        assert item.id == caught.value.item_id
        assert "work with key 'k': its record is damaged" in item.text
    assert ran == []


def test_an_outcome_that_nothing_can_read_is_a_damaged_record():
    """The record around it is whole; its outcome is not."""
    with an_engine() as engine:
        operation = engine.operation("work", key="k")
        operation.call(lambda: "done")
        ((address, value),) = engine.store.scan("records")
        broken = value.replace(b'{"v":1,"value":"done"}', b'{"x":"done"}')
        assert broken != value
        engine.store.transact("records", address, lambda *_: (Change(broken), None))
        with pytest.raises(StoredValueError, match="cannot be read"):
            operation.call(lambda: "again")
        assert [item.kind for item in engine.inbox] == ["corrupted_state"]


def test_a_result_whose_class_is_gone_is_no_damage():
    """Another process may have the class: nobody is asked to mend the record."""
    with an_engine() as engine:
        operation = engine.operation("work", key="k")
        operation.call(lambda: HTTPStatus.OK)
        ((address, value),) = engine.store.scan("records")
        gone = value.replace(b"HTTPStatus", b"HTTPStates")
        assert gone != value
        engine.store.transact("records", address, lambda *_: (Change(gone), None))
        with pytest.raises(StoredValueError, match="HTTPStates") as caught:
            operation.call(lambda: "again")
        assert not caught.value.is_damaged
        assert list(engine.inbox) == []


def test_the_error_comes_also_if_there_can_be_no_item(caplog):
    """A store that takes no item costs the item; the report has the reason."""

    class NoInbox(MemoryStore):
        def transact(self, space, key, decide, *more):
            if space == "inbox":
                raise ConnectionError("gone")
            return super().transact(space, key, decide, *more)

    with an_engine(store=NoInbox()) as engine:
        address = canonical([None, "work", "k"]).decode()
        engine.store.transact("records", address, lambda *_: (Change(b"{"), None))
        with pytest.raises(StoredValueError) as caught:
            engine.operation("work", key="k").call(int)
    assert caught.value.item_id is None
    assert "no item could be put into the inbox" in caplog.text


def test_a_damaged_record_of_an_inner_call_is_one_item():
    """The error that passes an outer keyed call has its item already."""
    with an_engine() as engine:
        address = canonical([None, "inner", "k"]).decode()
        engine.store.transact("records", address, lambda *_: (Change(b"{"), None))

        def outer():
            return engine.operation("inner", key="k").call(int)

        with pytest.raises(StoredValueError):
            engine.operation("outer", key="o").call(outer)
        assert [item.operation for item in engine.inbox] == ["inner"]


# --- direct calls of the idempotency manager ------------------------------------------------------


@pytest.mark.req("CP-09")
def test_direct_calls_of_the_idempotency_manager_are_events():
    """A hit and a record, with key, category and context; what finds or changes nothing is none."""
    seen = []

    async def main():
        manager = IdempotencyManager(sinks=[seen.append])
        with context(tenant_id="t", correlation_id="c", trace_id="x", category="RETRY_KV_PUT"):
            await manager.check_idempotency("k")
            await manager.record_result("k", 7)
            await manager.record_result("k", 8)
            await manager.check_idempotency("k")

    asyncio.run(main())
    assert [(each.action, each.operation) for each in seen] == [
        ("record", "record_result"),
        ("hit", "check_idempotency"),
    ]
    for each in seen:
        assert (each.idempotency_key, each.retry_category) == ("k", "RETRY_KV_PUT")
        assert (each.tenant_id, each.correlation_id, each.trace_id) == ("t", "c", "x")
        assert each.timestamp


@pytest.mark.req("CP-09")
def test_the_managers_direct_calls_are_in_the_audit_of_its_engine(tmp_path):
    """`RetryManager.idempotency_manager` writes to the log of the manager, and to its stream."""
    url = f"sqlite:///{tmp_path}/app.db"
    manager = RetryManager(url, sinks=[])

    async def main():
        await manager.idempotency_manager.record_result("k", None)
        await manager.idempotency_manager.check_idempotency("k")

    asyncio.run(main())
    assert len(manager.audit_stream.filter(event_type="idempotency")) == 2
    manager.close()
    kept = [each.event for each in read_log(url) if isinstance(each.event, events.Idempotency)]
    assert [each.action for each in kept] == ["record", "hit"]


@pytest.mark.req("CP-09")
def test_a_manager_of_its_own_may_have_an_audit_log(tmp_path):
    """Without an engine: the log is one of its sinks."""
    url = f"sqlite:///{tmp_path}/app.db"
    log = AuditLog(url)
    manager = IdempotencyManager(url, sinks=[log])
    asyncio.run(manager.record_result("k", 7))
    manager.close()
    log.close()
    assert [each.event.event_type for each in read_log(url)] == ["idempotency"]


@pytest.mark.req("AG-01.corrupted")
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_manager_finds_a_damaged_record_and_asks_for_a_person(damage):
    """The error of the library, and an item."""
    store = MemoryStore()
    manager = IdempotencyManager(store)
    address = canonical(["control_plane", "k"]).decode()
    store.transact("records", address, lambda *_: (Change(damage), None))
    with pytest.raises(StoredValueError):
        asyncio.run(manager.check_idempotency("k"))
    with pytest.raises(StoredValueError):
        asyncio.run(manager.record_result("k", 7))
    (item,) = manager.records.inbox
    assert (item.kind, item.times) == ("corrupted_state", 2)


def test_breaker_settings_reach_a_tool():
    """A circuit of the engine opens for a tool as for any operation."""
    with an_engine(breaker=BreakerSettings(failure_threshold=2)) as engine:
        with pytest.raises(CommandFailed):
            run_tool(["sh", "-c", "exit 3"], engine=engine)
        with pytest.raises(CircuitOpenError):
            run_tool(["sh", "-c", "exit 0"], engine=engine)
