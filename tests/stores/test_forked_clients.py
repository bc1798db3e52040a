"""Stores on servers: a forked child opens its own connections, however it was forked."""

from __future__ import annotations

import os

import pytest

from tests.crash.forks import lines, run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

PROGRAM = """
import ctypes
from mainstay.core.base.change import Change
from mainstay.stores.open import open_store
store = open_store(sys.argv[2])

def put(key, data):
    store.transact("forked", key, lambda value, now: (Change(data), None))

put("parent", b"1")
def work():
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
    for fork in ("os.fork", "ctypes.PyDLL(None).fork")
]
WAYS.remove(("nats_url", "ctypes.PyDLL(None).fork"))
"""Its store has a thread: if that waits for the interpreter's lock, a child forked in C hangs."""


@pytest.mark.parametrize(("server", "fork"), WAYS)
def test_a_child_neither_uses_nor_closes_the_connections_of_its_parent(
    tmp_path, request, server, fork
):
    """Parent and children write in turn; a child that only closes the store changes nothing."""
    run(PROGRAM.format(fork=fork), tmp_path, request.getfixturevalue(server))
    assert lines(tmp_path, "errors") == []
