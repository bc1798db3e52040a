"""A fork inside a keyed function, or a step: the claim stays the parent's, however its child ends.

An event loop that a child ends is of no more use to its parent, so that the awaited ways are shown
without a fork: a lease says that it is another process's.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from mainstay import Engine, LeaseLost, Saga, SagaStep
from mainstay.core.idempotency.record import RecordState, decode
from mainstay.drivers.idempotency.lease_renewal import LEASE_RENEWAL
from mainstay.drivers.saga.records import SagaRecords
from tests.crash.forks import lines, run

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

PROGRAM = """
parent = os.getpid()
engine = Engine(url, sinks=[])

def other():
    with Engine(url, sinks=[]) as another:
        pay = another.operation("pay", key="k", idempotency="idempotent", on_conflict="raise")
        try:
            return pay.call(lambda: "executed")
        except Exception as error:
            return type(error).__name__

def work():
    note("effects", os.getpid())
    pid = os.fork()
    if pid == 0:
        END
    os.waitpid(pid, 0)
    note("meanwhile", other())
    return "parent"

pay = engine.operation("pay", key="k", idempotency="idempotent")
try:
    got = pay.call(work)
except BaseException as error:
    got = f"{type(error).__name__} {' '.join(getattr(error, '__notes__', ()))}"
note("parents" if os.getpid() == parent else "childs", got)
if os.getpid() != parent:
    os._exit(0)
note("afterwards", other())
engine.close()
"""


@forks
@pytest.mark.parametrize(
    ("end", "got"),
    [
        ("sys.exit(0)", "SystemExit"),
        ("raise ValueError('of the child')", "LeaseLost"),
        ("raise ConnectionResetError('of the child, and tried again')", "LeaseLost"),
        ("return 'child'", "LeaseLost"),
    ],
)
def test_a_child_that_was_forked_in_a_call_neither_ends_nor_releases_it(tmp_path, end, got):
    """The child ended its parent's claim: the call was executed twice, or had two outcomes."""
    run(PROGRAM.replace("END", end), tmp_path)
    assert len(lines(tmp_path, "effects")) == 1
    assert lines(tmp_path, "meanwhile") == ["Conflict"]
    assert lines(tmp_path, "parents") == ["parent"]
    assert lines(tmp_path, "afterwards") == ["parent"]
    (child,) = lines(tmp_path, "childs")
    assert child.startswith(got)
    assert ("forked while the call was under way" in child) == (got == "LeaseLost")


def url_at(server, folder):
    """The line of a program that names a place of its own on a server."""
    bucket = folder.name.replace(".", "-")
    name = f"bucket={bucket}" if server.startswith("nats") else f"prefix={bucket}:"
    return f"url = {f'{server}?{name}'!r}\n"


@forks
@pytest.mark.parametrize(
    ("end", "got"),
    [("raise ValueError('of the child')", "LeaseLost"), ("return 'child'", "LeaseLost")],
)
@pytest.mark.parametrize("server", ["valkey_url", "nats_url"])
def test_a_child_that_c_code_has_forked_in_a_call_leaves_it_to_its_parent(
    tmp_path, request, server, end, got
):
    """No hook has run: the child notices by its process number, before it records anything."""
    program = PROGRAM.replace("os.fork()", "fork_in_c()").replace("END", end)
    run(url_at(request.getfixturevalue(server), tmp_path) + program, tmp_path)
    assert len(lines(tmp_path, "effects")) == 1
    assert lines(tmp_path, "meanwhile") == ["Conflict"]
    assert lines(tmp_path, "parents") == ["parent"]
    assert lines(tmp_path, "afterwards") == ["parent"]
    (child,) = lines(tmp_path, "childs")
    assert child.startswith(got)
    assert "forked while the call was under way" in child


@forks
@pytest.mark.parametrize("server", ["valkey_url", "nats_url"])
@pytest.mark.parametrize(
    ("end", "got"), [("sys.exit(0)", "SystemExit"), ("return 'child'", "LeaseLost")]
)
def test_a_child_that_c_code_has_forked_in_a_step_leaves_the_saga(
    tmp_path, request, server, end, got
):
    """Nor does it go on with the next step, on a store with a thread or without."""
    program = STEPS.replace("os.fork()", "fork_in_c()").replace("END", end)
    run(url_at(request.getfixturevalue(server), tmp_path) + program, tmp_path)
    assert [line.split()[0] for line in lines(tmp_path, "effects")] == ["first", "second"]
    assert lines(tmp_path, "parents") == ["ended"]
    (child,) = lines(tmp_path, "childs")
    assert child.startswith(got)


MEMORY = """
engine = Engine("memory://", sinks=[], audit=False, purge=None)
options = {"lease": 0.6, "idempotency": "idempotent", "wait": 60.0}

began, ends = threading.Event(), threading.Event()

def kept():
    began.set()
    ends.wait(3.0)
    note("effects", "long")
    return "kept"

def work():
    long = engine.operation("long", key="k", **options)
    others = [threading.Thread(target=long.call, args=(kept,)) for _ in range(2)]
    others[0].start()
    began.wait()
    others[1].start()
    for each in others:
        each.join()

engine.operation("first", key="k", lease=600.0).call(int)  # the thread that renews is started
assert reap(in_child(work, fork=fork_in_c)) == 0
engine.close()
"""


@forks
def test_a_child_that_c_code_has_forked_renews_its_leases(tmp_path):
    """By a thread of its own: its parent's seems to be there, and another call took over."""
    run(MEMORY, tmp_path)
    assert lines(tmp_path, "errors") == []
    assert lines(tmp_path, "effects") == ["long"]


STEPS = """
from mainstay import Saga, SagaStep
parent = os.getpid()
engine = Engine(url, sinks=[], audit=False)

def first():
    note("effects", f"first {os.getpid()}")
    pid = os.fork()
    if pid == 0:
        END
    os.waitpid(pid, 0)
    note("meanwhile", engine.store.scan('sagas'))
    return "first"

def second():
    note("effects", f"second {os.getpid()}")
    return "second"

saga = Saga("s", [SagaStep("first", first, first), SagaStep("second", second)])
try:
    engine.sagas.run(saga, id='s-1')
    got = "ended"
except BaseException as error:
    got = f"{type(error).__name__} {' '.join(getattr(error, '__notes__', ()))}"
note("parents" if os.getpid() == parent else "childs", got)
if os.getpid() != parent:
    engine.close()
    os._exit(0)
engine.close()
"""


@forks
@pytest.mark.parametrize(
    ("end", "got"), [("sys.exit(0)", "SystemExit"), ("return 'child'", "LeaseLost")]
)
def test_a_child_that_was_forked_in_a_step_neither_writes_nor_goes_on(tmp_path, end, got):
    """It released the lease of its parent's saga, or ran the next step beside it."""
    run(STEPS.replace("END", end), tmp_path)
    assert [line.split()[0] for line in lines(tmp_path, "effects")] == ["first", "second"]
    assert lines(tmp_path, "parents") == ["ended"]
    (child,) = lines(tmp_path, "childs")
    assert child.startswith(got)
    (meanwhile,) = lines(tmp_path, "meanwhile")
    assert "lease_until" in meanwhile


# --- without a fork -------------------------------------------------------------------------------

LEASE = 41.0


def in_a_child(end):
    """From here on, what has a lease of that length is another process's; then ends so."""
    for lease in LEASE_RENEWAL._queues[LEASE]:
        lease.home = object()
    if end is None:
        return "child"
    raise end


@pytest.fixture
def engine():
    with Engine(sinks=[]) as made:
        yield made


ENDS = [None, ValueError("of the child"), ConnectionResetError("of the child"), SystemExit(0)]


@pytest.mark.parametrize("end", ENDS, ids=repr)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_of_another_process_is_left_alone(engine, end, is_async):
    """Nothing is written, whatever the function comes to: the parent's record still runs."""

    async def awaited():
        return in_a_child(end)

    operation = engine.operation("pay", key="k", idempotency="idempotent", lease=LEASE)
    with pytest.raises((LeaseLost, SystemExit)) as raised:
        if is_async:
            asyncio.run(operation.acall(awaited))
        else:
            operation.call(lambda: in_a_child(end))
    assert isinstance(raised.value, SystemExit) == isinstance(end, SystemExit)
    ((_, record),) = engine.store.scan("records")
    assert decode(record).state is RecordState.RUNNING


@pytest.mark.parametrize("end", [None, SystemExit(0)], ids=repr)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_saga_of_another_process_is_left_alone(engine, end, is_async, monkeypatch):
    """No further step, and no release."""
    ran = []

    async def awaited():
        return in_a_child(end)

    monkeypatch.setattr(SagaRecords, "release", lambda *_: ran.append("release"))
    first = awaited if is_async else lambda: in_a_child(end)
    second = SagaStep("second", lambda: ran.append("second"))
    saga = Saga("s", [SagaStep("first", first), second], lease=LEASE)
    with pytest.raises((LeaseLost, SystemExit)):
        if is_async:
            asyncio.run(engine.sagas.arun(saga, id="s-1"))
        else:
            engine.sagas.run(saga, id="s-1")
    assert ran == []
