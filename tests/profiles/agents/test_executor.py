"""The agent front door: RetryExecutor on an engine with agent/config.yml."""

import asyncio
import errno
import logging
import subprocess
import sys
import threading

import pytest

from mainstay import (
    CallCancelled,
    CircuitBreaker,
    CircuitOpenError,
    CommandFailed,
    ConfigWarning,
    Engine,
    MainstayWarning,
    PolicyError,
    PolicyNotFoundWarning,
)
from mainstay.profiles.agents import (
    AGGRESSIVE,
    NO_RETRY,
    CircuitOpenException,
    PolicyRegistry,
    RetryExecutor,
    RetryOptions,
)
from mainstay.profiles.agents import CircuitBreaker as CircuitsByType
from mainstay.testing import scripted, virtual_time

CONFIG = """
retry:
  defaultPolicy: usual
  policies:
    usual: {maxAttempts: 2, backoff: constant, initialDelayMs: 0}
    patient: {maxAttempts: 4, backoff: linear, initialDelayMs: 10, maxDelayMs: 50}
    once: {maxAttempts: 1}
  operationPolicies: {network: patient, file: usual, permission: once}
  circuitBreaker: {enabled: true, failureThreshold: 6, openDurationMs: 30000, halfOpenProbes: 1}
"""


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    """The user's own state folder, in a folder without a configuration."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.fixture
def configured(state):
    folder = state / "work" / "agent"
    folder.mkdir()
    (folder / "config.yml").write_text(CONFIG, encoding="utf-8")


def taking(*outcomes):
    """An operation of a token with these outcomes; `tokens` has those it got."""
    play, tokens = scripted(*outcomes), []

    def operation(token):
        tokens.append(token)
        return play()

    operation.tokens = tokens
    return operation


def down(count):
    return [ConnectionError("down")] * count


# --- policies and configuration -------------------------------------------------------------------


@pytest.mark.req("FR-041-11", "FR-041-21", "FR-041-24", "IT-041-01", "IT-041-04", "UVS-1")
@pytest.mark.parametrize(("kind", "attempts"), [("network", 5), ("file", 3), ("permission", 1)])
def test_without_a_configuration_the_documents_values_hold(kind, attempts):
    """Aggressive for the network, standard for files, one attempt for permissions."""
    with RetryExecutor(escalate=False) as executor, virtual_time():
        assert executor.execute(taking(*down(attempts - 1), "page"), kind) == "page"
        operation = taking(*down(9))
        result = executor.run(operation, kind)
        assert (result.success, result.attempts, len(operation.tokens)) == (
            False, attempts, attempts,
        )  # fmt: skip


@pytest.mark.usefixtures("configured")
@pytest.mark.req("FR-041-66", "IT-041-02", "IT-041-04")
@pytest.mark.parametrize(("kind", "attempts"), [("network", 4), ("file", 2), ("permission", 1)])
def test_agent_config_yml_is_found_and_used(kind, attempts):
    """From the working directory; its policies, its types, its circuit."""
    with RetryExecutor(escalate=False) as executor, virtual_time():
        assert executor.run(taking(*down(9)), kind).attempts == attempts
        assert executor.engine.breaker(kind).settings.failure_threshold == 6


@pytest.mark.req("AG-01.invalid", "NFR-041-20")
def test_a_wrong_configuration_is_warned_of_and_the_default_holds(state, caplog):
    """All problems in one warning; an operation that it maps is called once."""
    file = state / "wrong.yml"
    file.write_text(CONFIG.replace("maxAttempts: 4", "maxAttempts: 0"), encoding="utf-8")
    with pytest.warns(ConfigWarning, match="maxAttempts"):
        executor = RetryExecutor(options=RetryOptions(config=file, escalate=False))
    with executor, virtual_time():
        assert executor.run(taking(*down(9)), "network").attempts == 1
        with pytest.warns(PolicyNotFoundWarning, match="'tea'"):
            assert executor.run(taking(*down(9)), "tea").attempts == 3


def test_options_name_file_store_seed_and_overrides(state):
    """What is given comes before what is found."""
    file = state / "mine.yml"
    file.write_text(CONFIG, encoding="utf-8")
    options = RetryOptions(
        config=file, store=f"sqlite:///{state}/mine.db", seed=7,
        overrides=("retry.policies.patient.maxAttempts=7",),
    )  # fmt: skip
    with RetryExecutor(options=options) as executor:
        assert executor.engine.policies.of("network").max_attempts == 7
        assert executor.engine.store.url.endswith("mine.db")
        assert executor.escalate
        assert executor.engine.escalate, "also for calls that are made on it directly"


@pytest.mark.req("FR-041-19")
def test_a_registry_of_ones_own_decides():
    """Anything with `get_policy`."""
    mine = PolicyRegistry([NO_RETRY, AGGRESSIVE], {"network": "noRetry", "file": "aggressive"})
    with RetryExecutor(registry=mine, escalate=False) as executor, virtual_time():
        assert executor.run(taking(*down(9)), "network").attempts == 1
        assert executor.run(taking(*down(9)), "file").attempts == 5


# --- the token ------------------------------------------------------------------------------------


@pytest.mark.req("FR-041-34", "IT-041-15", "UVS-6", "AG-03.cancel-wait")
def test_the_token_is_handed_to_every_attempt_and_ends_the_wait():
    """One object for all attempts; once it is set, no attempt follows."""
    token = threading.Event()

    def cancel(given):
        assert given is token
        given.set()
        raise ConnectionError("down")

    with RetryExecutor(escalate=False) as executor:
        with pytest.raises(CallCancelled) as caught:
            executor.execute(cancel, "network", token)
        assert caught.value.attempts == 1
        operation = taking(*down(2), "page")
        with virtual_time():
            assert executor.execute(operation, "network", threading.Event()) == "page"
        assert len(set(map(id, operation.tokens))) == 1
        assert executor.execute(lambda given: given.is_set(), "file") is False


@pytest.mark.req("FR-041-34", "IT-041-15")
def test_an_async_operation_is_awaited_with_its_token():
    """`await executor.execute(...)`: retried, given the token, and ended by it."""
    token, seen = threading.Event(), []

    async def fetch(given):
        seen.append(given)
        if len(seen) < 3:
            raise ConnectionError("down")
        return "page"

    async def cancel(given):
        given.set()
        raise ConnectionError("down")

    async def main():
        with RetryExecutor(escalate=False) as executor:
            assert await executor.execute(fetch, "network", token) == "page"
            assert await executor.execute_async(fetch, "network", token) == "page"
            with pytest.raises(CallCancelled):
                await executor.execute(cancel, "network", token)

    with virtual_time():
        asyncio.run(main())
    assert seen == [token] * 4


# --- circuits -------------------------------------------------------------------------------------


@pytest.mark.req("FR-041-55", "UVS-4", "UVS-5", "IT-041-05", "AG-01.loop")
def test_an_open_circuit_refuses_its_type_and_no_other():
    """After five failures in a row the operation is not called until a probe is let through."""
    with virtual_time() as time, RetryExecutor(escalate=False) as executor:
        with pytest.raises(ConnectionError):
            executor.execute(taking(*down(5)), "network")
        refused = taking("page")
        for execute in (executor.execute, executor.execute_async):
            with pytest.raises(CircuitOpenException) as caught:
                result = execute(refused, "network")
                if asyncio.iscoroutine(result):
                    asyncio.run(result)
            assert (caught.value.operation_name, refused.tokens) == ("network", [])
            assert caught.value.retry_after > 0
        assert executor.circuit_breaker.is_open("network")
        assert executor.execute(taking("text"), "file") == "text"
        time.advance(31.0)
        assert executor.execute(refused, "network") == "page"
        assert not executor.circuit_breaker.is_open("network")


@pytest.mark.req("FR-041-65", "IT-041-05")
def test_an_open_circuit_outlives_the_process(state):
    """It is in the user's own store."""
    with RetryExecutor(escalate=False) as executor, pytest.raises(ConnectionError):
        executor.execute(taking(*down(5)), "network")
    with RetryExecutor(escalate=False) as executor, pytest.raises(CircuitOpenException):
        executor.execute(taking("page"), "network")


def test_a_circuit_inside_an_operation_is_not_taken_for_the_executors():
    """Its error passes as it is."""
    inner = CircuitBreaker("search", failure_threshold=1)
    inner.force_open()

    @inner
    def search():
        return "found"

    executor = RetryExecutor(escalate=False)
    with executor, virtual_time(), pytest.raises(CircuitOpenError) as caught:
        executor.execute(lambda token: search(), "permission")
    assert type(caught.value) is CircuitOpenError


@pytest.mark.parametrize("is_async", [False, True])
def test_circuits_of_ones_own_see_every_attempt(is_async):
    """Anything with the three methods; a refusal is final, a cancellation is not recorded."""
    breaker = CircuitsByType()
    calls = []

    def run(operation, kind):
        if not is_async:
            return executor.execute(operation, kind)

        async def awaited(token):
            return operation(token)

        return asyncio.run(executor.execute_async(awaited, kind))

    def fail(token):
        calls.append(1)
        raise ConnectionError("down")

    def stop(token):
        raise KeyboardInterrupt

    engine = Engine(policies=[AGGRESSIVE], operations={"*": "aggressive"}, sinks=[])
    executor = RetryExecutor(engine, circuit_breaker=breaker, escalate=False)
    with engine, virtual_time():
        assert executor.circuit_breaker is breaker
        with pytest.raises(ConnectionError):
            run(fail, "network")
        assert breaker.is_open("network")
        with pytest.raises(CircuitOpenException, match="network"):
            run(fail, "network")
        assert len(calls) == 5
        assert run(lambda token: "text", "file") == "text"
        with pytest.raises(KeyboardInterrupt):
            run(stop, "file")
        assert breaker.circuits["file"].snapshot().failure_count == 0


# --- tools and files ------------------------------------------------------------------------------


@pytest.mark.req("AG-04", "UVS-3")
def test_files_that_are_locked_are_tried_again_and_forbidden_ones_are_not(state, monkeypatch):
    """By the type "file", on the engine: three attempts, or one."""
    path, attempts = state / "note", []
    path.write_bytes(b"here")

    def failing(error):
        def read(_):
            attempts.append(1)
            if len(attempts) < 3:
                raise error
            return b"here"

        return read

    with RetryExecutor(escalate=False) as executor, virtual_time():
        executor.write_file(state / "note", b"written")
        assert executor.read_file(path) == b"written"
        for code in (errno.EAGAIN, errno.EBUSY, errno.ETXTBSY):
            attempts.clear()
            monkeypatch.setattr("pathlib.Path.read_bytes", failing(OSError(code, "busy")))
            assert executor.read_file(path) == b"here"
        for error in (PermissionError(errno.EACCES, "no"), FileNotFoundError(errno.ENOENT, "no")):
            attempts.clear()
            monkeypatch.setattr("pathlib.Path.read_bytes", failing(error))
            with pytest.raises(type(error)):
                executor.read_file(path)
            assert len(attempts) == 1


@pytest.mark.req("AG-03.policy")
def test_a_tool_runs_as_an_operation_of_the_engine(state):
    """Flaky once, then done; one that fails for good becomes an item."""
    script = f"test -e {state}/flag && echo done || {{ touch {state}/flag; exit 75; }}"
    with RetryExecutor() as executor:
        done = executor.run_tool(["sh", "-c", script], operation="file")
        assert (done.text, done.attempts) == ("done\n", 2)
        with pytest.raises(CommandFailed):
            executor.run_tool(["sh", "-c", "exit 75"], operation="file")
        assert [item.operation for item in executor.engine.inbox] == ["file"]


# --- escalation -----------------------------------------------------------------------------------


@pytest.mark.req("UVS-2", "IT-041-11", "AG-01.exhausted", "AG-08.person")
def test_what_is_given_up_is_shown_by_the_command_line():
    """In the store of `mainstay exec`, by default; sync and async."""

    async def fail(token):
        raise ConnectionError("no route")

    with RetryExecutor() as executor, virtual_time():
        with pytest.raises(ConnectionError):
            executor.execute(taking(*down(3)), "file")
        with pytest.raises(ConnectionError):
            asyncio.run(executor.execute(fail, "network"))
    shown = subprocess.run(
        [sys.executable, "-m", "mainstay", "inbox"], capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert "file" in shown.stdout, shown.stderr
    assert "network" in shown.stdout


def test_a_store_that_forgets_is_warned_of():
    """Unless nothing is escalated."""
    with Engine(sinks=[]) as engine:
        with pytest.warns(MainstayWarning, match=r"memory://.*lost with this process"):
            RetryExecutor(engine)
        RetryExecutor(engine, escalate=False)
    with pytest.warns(MainstayWarning, match="sqlite:///agent.db"):
        RetryExecutor(options=RetryOptions(store="memory://")).close()


def test_a_key_is_carried_out_once_across_restarts():
    """The second process gets the result of the first."""
    for operation in (taking("sent"), taking(RuntimeError("must not be called"))):
        with RetryExecutor() as executor:
            assert executor.execute(operation, "network", key="session-1:7") == "sent"


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.req("NFR-041-21", "NFR-041-22", "IT-041-14", "FR-041-31", "FR-041-33", "FR-041-47")
def test_the_log_is_in_the_documents_words(caplog):
    """What succeeded, is retried and failed; the levels are those of every engine."""
    executor = RetryExecutor(options=RetryOptions(escalate=False, seed=7))
    with caplog.at_level(logging.DEBUG, logger="mainstay"), virtual_time(), executor:
        executor.execute(taking(*down(1), "page"), "file")
        executor.run(taking(*down(1)), "permission")
    lines = [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "mainstay"]
    (retry,) = [line for line in lines if line[1].startswith("Retry ")]
    assert retry[1].startswith("Retry 1/3 for file, delay ")
    assert retry[1].endswith("ms")
    assert 90 <= int(retry[1].split()[-1].removesuffix("ms")) <= 110
    assert ("INFO", "Operation file succeeded on attempt 2") in lines
    assert ("ERROR", "Operation permission failed permanently after 1 attempts") in lines


# --- misuse ---------------------------------------------------------------------------------------


def test_every_wrong_argument_is_named_at_once():
    """One error with all problems."""
    with pytest.raises(PolicyError) as caught:
        RetryExecutor("sqlite:///x.db", registry={}, circuit_breaker=3, options={"seed": 1})
    assert [problem.field for problem in caught.value.problems] == [
        "engine", "registry", "circuit_breaker", "options",
    ]  # fmt: skip
