"""Stores on servers: a forked child opens its own connections, however it was forked."""

from __future__ import annotations

import os

import pytest

from tests.crash.forks import lines, run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

PROGRAM = """
import asyncio
from mainstay.core.base.change import Change
from mainstay.stores.open import open_store
store = open_store(sys.argv[2])

def put(key, data):
    store.transact("forked", key, lambda value, now: (Change(data), None))

put("parent", b"1")
async def aput(key, data):
    await store.atransact("forked", key, lambda value, now: (Change(data), None))
    return await store.aread("forked", key)

def work():
    if number % 2:
        assert asyncio.run(aput("async", b"2"))[0] == b"2"
    put("child", b"2")
    assert store.read("forked", "parent")[0] == b"1"
    store.close()
def idle():
    store.close()
for number in range(3):
    assert reap(in_child(idle, end=sys.exit, fork={fork})) == 0
    assert reap(in_child(work, end=sys.exit, fork={fork})) == 0
    put("parent", b"1")  # on the connection that the children have inherited and not ended
assert store.read("forked", "child")[0] == b"2"
store.close()
"""


WAYS = [
    (server, fork)
    for server in ("valkey_url", "postgres_url", "nats_url")
    for fork in ("os.fork", "fork_in_c")
]


@pytest.mark.parametrize(("server", "fork"), WAYS)
def test_a_child_neither_uses_nor_closes_the_connections_of_its_parent(
    tmp_path, request, server, fork
):
    """Parent and children write in turn; a child that only closes the store changes nothing."""
    run(PROGRAM.format(fork=fork), tmp_path, request.getfixturevalue(server))
    assert lines(tmp_path, "errors") == []


UNDER_WAY = """
from mainstay.core.idempotency.record import decode
engine = Engine(sys.argv[2], sinks=[], audit=False, purge=None)
options = {"lease": 1.5, "idempotency": "idempotent", "on_conflict": "raise"}
began, ends = threading.Event(), threading.Event()

def long():
    note("effects", "long")
    began.set()
    assert ends.wait(60.0)
    return "of the parent"

def pay(function):
    try:
        return engine.operation("pay", key="k", **options).call(function)
    except Exception as error:
        return type(error).__name__

def work():
    note("children", pay(lambda: note("effects", "child")))
    own = engine.operation("other", key=f"o-{os.getpid()}", **options)
    note("children", own.call(lambda: "own"))
    if IS_CLOSED:
        engine.close()

caller = threading.Thread(target=lambda: note("parents", pay(long)))
caller.start()
began.wait()
time.sleep(2.0)  # a renewal is made meanwhile
for _ in range(3):
    assert reap(in_child(work, fork=fork_in_c)) == 0
    time.sleep(0.7)
ends.set()
caller.join()
note("parents", pay(lambda: note("effects", "again")))
engine.close()
"""


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_call_that_is_under_way_in_the_parent_is_left_to_it(tmp_path, nats_url, is_closed):
    """A child of C code neither ends nor releases it, nor does the parent's lease run out."""
    url = f"{nats_url}?bucket={tmp_path.name.replace('.', '-')}"
    run(UNDER_WAY.replace("IS_CLOSED", str(is_closed)), tmp_path, url)
    assert lines(tmp_path, "errors") == []
    assert lines(tmp_path, "children") == ["Conflict", "own"] * 3
    assert lines(tmp_path, "effects") == ["long"]
    assert lines(tmp_path, "parents") == ["of the parent"] * 2


HELD = """
engine = Engine(sys.argv[2], sinks=[], audit=False, purge=None)
store = engine.store
store.read("forked", "first")
held, ends = threading.Event(), threading.Event()

def hold():
    with store._guard:
        held.set()
        ends.wait(60.0)

holder = threading.Thread(target=hold)
holder.start()
held.wait()
children = [in_child(work, fork=fork_in_c) for work in (
    store.close, lambda: store.read("forked", "first"), lambda: store.scan("forked"),
)]
late = time.monotonic() + 20.0
codes = {}
while len(codes) < len(children) and time.monotonic() < late:
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid:
        codes[pid] = status
    time.sleep(0.01)
for pid in children:
    if pid not in codes:
        os.kill(pid, 9)
note("codes", sorted(codes.values()))
ends.set()
holder.join()
engine.close()
"""


def test_no_use_waits_for_a_lock_that_a_thread_of_the_parent_has(tmp_path, nats_url):
    """That thread is not there: the lock is made anew first, also to close the store."""
    run(HELD, tmp_path, nats_url)
    assert lines(tmp_path, "errors") == []
    assert lines(tmp_path, "codes") == ["[0, 0, 0]"]
