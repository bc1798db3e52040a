"""The control-plane front door: results by key, durable, and never judged by their truth."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from mainstay import Conflict, MainstayWarning, ResultNotKept, UsageError
from mainstay.core.codec.canonical import fingerprint
from mainstay.core.idempotency.record import Begin, reduce
from mainstay.profiles.control_plane import (
    Hit,
    IdempotencyManager,
    RetryCategory,
    RetryManager,
)
from mainstay.profiles.control_plane.idempotency import RecordsByKey
from mainstay.testing import virtual_time

KEY = IdempotencyManager.compute_idempotency_key


@pytest.mark.req("CP-08")
@pytest.mark.parametrize("value", [None, 0, "", [], {}, False, {"a": [1]}, b"x"])
def test_a_recorded_result_is_a_hit_whatever_it_is(value):
    """It comes back as itself, with its metadata; before that there is none."""

    async def main():
        manager = IdempotencyManager()
        assert await manager.check_idempotency("k") is None
        await manager.record_result("k", value, {"by": "test"})
        return await manager.check_idempotency("k")

    hit = asyncio.run(main())
    assert type(hit) is Hit
    assert (type(hit.value), hit.value, hit.metadata) == (type(value), value, {"by": "test"})


@pytest.mark.req("CP-06.record", "CP-06.clear")
def test_what_was_recorded_first_stays_until_it_is_cleared():
    """A second result does not overwrite the first."""

    async def main():
        manager = IdempotencyManager()
        await manager.record_result("k", 1)
        await manager.record_result("k", 2)
        first = (await manager.check_idempotency("k")).value
        await manager.clear_idempotency("k")
        return first, await manager.check_idempotency("k")

    assert asyncio.run(main()) == (1, None)


@pytest.mark.req("CP-06.key")
def test_a_key_is_the_same_in_any_order_and_process():
    """Dictionaries at any depth, another hash seed; and another for anything that differs."""
    params = {"b": [1, {"y": 2, "x": 1}], "a": "é"}
    again = {"a": "é", "b": [1, {"x": 1, "y": 2}]}
    assert KEY("op", "t", "c", params) == KEY("op", "t", "c", again)
    program = (
        "from mainstay.profiles.control_plane import IdempotencyManager as M\n"
        "print(M.compute_idempotency_key('op', 't', 'c', {'b': [1, {'y': 2, 'x': 1}], 'a': 'é'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == KEY("op", "t", "c", params)
    others = {KEY("op"), KEY("op", "t"), KEY("op", None, "t"), KEY("op2"), KEY("op", "t", "c", {})}
    assert len(others) == 5
    assert KEY("op", None, None, None) == KEY("op", "", "", {})


@pytest.mark.req("CP-13")
def test_what_a_crash_has_cut_off_is_resumed():
    """As the document has it: the operation is declared idempotent, and runs again."""
    manager = RetryManager(sinks=[])
    begun = Begin("ghost", fingerprint({}), lease=0.01, max_attempts=3)
    manager.engine.store.transact(
        "records", RecordsByKey.place("k"), lambda value, now: reduce(value, begun, now)
    )

    async def put():
        return "put"

    assert (
        asyncio.run(
            manager.execute_with_retry(RetryCategory.KV_PUT, "put", put, idempotency_key="k")
        )
        == "put"
    )


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("sqlite", marks=pytest.mark.req("CP-07.sqlite")),
        pytest.param("nats", marks=pytest.mark.req("CP-07.nats")),
    ],
)
def test_a_result_survives_a_kill(kind, tmp_path, request):
    """Recorded by a process that is killed at once, found by another."""
    path = f"sqlite:///{tmp_path}/kept.db"
    url = path if kind == "sqlite" else request.getfixturevalue("nats_url")
    key = KEY("op", kind, str(tmp_path))
    program = (
        "import asyncio, os, signal, sys\n"
        "from mainstay.profiles.control_plane import IdempotencyManager\n"
        "manager = IdempotencyManager(sys.argv[1])\n"
        "asyncio.run(manager.record_result(sys.argv[2], {'paid': 5}))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, url, key], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    manager = IdempotencyManager(url)
    assert asyncio.run(manager.check_idempotency(key)).value == {"paid": 5}
    manager.close()


def test_an_empty_key_is_refused():
    """With what makes one."""
    for key in ("", "  ", None):
        with pytest.raises(UsageError, match="compute_idempotency_key"):
            asyncio.run(IdempotencyManager().check_idempotency(key))


@pytest.mark.req("CP-06.record")
def test_a_result_by_hand_does_not_cross_a_call_that_is_under_way():
    """The call will record its own; whoever died at it has left nothing to wait for."""
    manager = RetryManager(sinks=[])
    results = manager.idempotency_manager

    async def work():
        with pytest.raises(Conflict) as caught:
            await results.record_result("k", "by hand")
        assert 0.0 < caught.value.retry_after <= 30.0
        assert await results.check_idempotency("k") is None
        return "made"

    call = manager.execute_with_retry(RetryCategory.KV_PUT, "put", work, idempotency_key="k")
    assert asyncio.run(call) == "made"
    assert asyncio.run(results.check_idempotency("k")) == Hit("made")


def test_a_result_is_forgotten_when_its_time_is_over():
    """And may then be recorded anew."""
    with virtual_time() as time:
        manager = IdempotencyManager(ttl=60.0)
        asyncio.run(manager.record_result("k", 1))
        time.advance(59.0)
        assert asyncio.run(manager.check_idempotency("k")) == Hit(1)
        time.advance(2.0)
        assert asyncio.run(manager.check_idempotency("k")) is None
        asyncio.run(manager.record_result("k", 2))
        assert asyncio.run(manager.check_idempotency("k")) == Hit(2)


@pytest.mark.parametrize("result", [object(), "x" * 2000], ids=["no data", "too large"])
def test_a_result_that_cannot_be_kept_is_recorded_as_done(result):
    """Whoever asks for it learns that it was done; it is not to be done again."""
    manager = IdempotencyManager()
    manager.records.max_result = 1000
    with pytest.warns(MainstayWarning, match="the result of 'k' is not kept"):
        asyncio.run(manager.record_result("k", result))
    with pytest.raises(ResultNotKept, match="record_result was done"):
        asyncio.run(manager.check_idempotency("k"))
    assert manager.records.counts()["not_kept"] == 1


def test_a_result_that_the_store_refuses_is_recorded_as_done(tmp_path):
    """Its limit was not known."""
    manager = IdempotencyManager(f"sqlite:///{tmp_path}/a.db")
    manager.store.max_value = None
    connect = manager.store._connect

    def limited():
        connection = connect()
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2000)
        return connection

    manager.store._connect = limited
    with pytest.warns(MainstayWarning, match="is not kept: the value is too large for sqlite"):
        asyncio.run(manager.record_result("k", "x" * 3000, {"by": "me"}))
    with pytest.raises(ResultNotKept):
        asyncio.run(manager.check_idempotency("k"))
    manager.close()


def test_a_call_of_the_manager_whose_result_is_not_kept_is_found_by_hand():
    """And is not made again."""
    runs = []

    async def work():
        runs.append(1)
        return "x" * 2000

    async def main():
        manager, category = RetryManager(max_result=1000, sinks=[]), RetryCategory.KV_PUT
        with pytest.warns(MainstayWarning, match="not kept"):
            await manager.execute_with_retry(category, "put", work, idempotency_key="k")
        with pytest.raises(ResultNotKept):
            await manager.execute_with_retry(category, "put", work, idempotency_key="k")
        with pytest.raises(ResultNotKept):
            await manager.idempotency_manager.check_idempotency("k")

    asyncio.run(main())
    assert len(runs) == 1
