"""Clocks that are set by a day: on SQLite the machine's, on a server the server's.

The programs run under libfaketime. A server in Go reads the clock without the C library, so that of
NATS is tested by what its clients make of its answers (tests/stores/nats).
"""

import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest

from mainstay import Conflict, Engine
from mainstay.core.base.change import Change
from mainstay.core.idempotency.record import Begin, Done, Renew, Run, reduce
from tests.crash.faults.clock import Clock
from tests.servers import postgres
from tests.servers.valkey import start_valkey

DAY = 86_400
WORKER = """
import sys, mainstay
store, key, what, lease = sys.argv[1:]
def work():
    print("began", flush=True)
    sys.stdin.readline()
    return "done"
with mainstay.Engine(store, sinks=[], audit=False) as engine:
    options = {"lease": float(lease), "wait": 60.0, "on_conflict": what}
    try:
        operation = engine.operation("op", key=key, idempotency="idempotent", **options)
        print(operation.call(work), flush=True)
    except mainstay.Conflict:
        print("conflict", flush=True)
"""


class Workers:
    """Programs that make one keyed call each, on a clock that can be set."""

    def __init__(self, folder, clock):
        self.store = f"sqlite:///{folder}/kept.db"
        self.clock = clock
        self.started = []
        Engine(self.store, sinks=[], audit=False).close()

    def start(self, what="wait", lease=2.0):
        """A program; its function waits for a line of its input."""
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, self.store, "k", what, str(lease)],
            env={**os.environ, **self.clock.environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(worker)
        return worker

    def end(self):
        for worker in self.started:
            worker.kill()
            worker.communicate()


@pytest.fixture
def workers(tmp_path):
    workers = Workers(tmp_path, Clock(tmp_path))
    yield workers
    workers.end()


def said(worker):
    """The next line that a program prints; the fixture's end ends one that hangs."""
    return worker.stdout.readline().strip()


def goes_on(worker):
    worker.stdin.write("\n")
    worker.stdin.flush()


def test_sqlite_a_killed_owners_key_is_free_after_its_lease_though_the_clock_was_set_back(workers):
    """A day back: the next program waits for the lease, and not for the day."""
    first = workers.start()
    assert said(first) == "began"
    first.kill()
    workers.clock.set(-DAY)
    second = workers.start()
    assert said(second) == "began"
    goes_on(second)
    assert said(second) == "done"


def test_sqlite_a_live_owners_key_is_not_taken_though_the_clock_was_set_ahead(workers):
    """Also by a program that starts after that: the uptime of the machine is in the record."""
    first = workers.start(lease=600.0)
    assert said(first) == "began"
    workers.clock.set(DAY)
    assert said(workers.start("raise", lease=600.0)) == "conflict"
    goes_on(first)
    assert said(first) == "done"
    assert said(workers.start(lease=600.0)) == "done"


def test_sqlite_an_outcome_is_still_there_when_the_clock_was_set_ahead(workers):
    """Its time is a day: the clock says that it has passed, the uptime that it has not."""
    first = workers.start()
    assert said(first) == "began"
    goes_on(first)
    assert said(first) == "done"
    workers.clock.set(2 * DAY)
    assert said(workers.start()) == "done"


PURGER = """
import sys, mainstay
from mainstay.stores.open import open_store
store, key, what = sys.argv[1:]
def work():
    if what == "fail":
        raise ValueError("failed")
    print("ran", flush=True)
    return object() if what == "not kept" else "done"
with mainstay.Engine(store, sinks=[], audit=False) as engine:
    try:
        engine.operation("op", key=key, idempotency="idempotent").call(work)
    except mainstay.ResultNotKept:
        print("not kept", flush=True)
    purging = engine.records.purging
    if what == "purge":
        purging.purge_if_due()
        purging._purge(1e18)
    print(purging.purged, flush=True)
"""


def purger(workers, key, what="done"):
    """What a program prints that makes a keyed call, and perhaps purges the store."""
    command = [sys.executable, "-W", "ignore", "-c", PURGER, workers.store, key, what]
    env = {**os.environ, **workers.clock.environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split("\n")[:-2]


@pytest.mark.parametrize("what", ["done", "not kept"])
def test_sqlite_what_a_read_replays_is_not_purged_by_a_program_that_starts_after_a_jump(
    workers, what
):
    """It has not seen the jump; the record has the uptime. Before, a payment was made twice."""
    assert purger(workers, "p", what) == ["ran"]
    workers.clock.set(2 * DAY)
    assert purger(workers, "q", "purge") == ["ran"]
    assert purger(workers, "p") == (["not kept"] if what == "not kept" else [])
    workers.clock.set(0)
    assert purger(workers, "p") == (["not kept"] if what == "not kept" else [])


def test_sqlite_what_has_no_uptime_is_kept_too_if_a_purge_had_read_the_clocks(workers):
    """A saga that has ended: the reading of the earlier purge shows the jump."""
    with Engine(workers.store, sinks=[], audit=False, purge=None) as engine:
        soon = lambda value, now: (Change(b"x", now + DAY), None)  # noqa: E731
        engine.store.transact("sagas", "s", soon)
    assert purger(workers, "p", "purge") == ["ran"]
    workers.clock.set(2 * DAY)
    assert purger(workers, "q", "purge") == ["ran"]
    with Engine(workers.store, sinks=[], audit=False, purge=None) as engine:
        assert engine.store.read("sagas", "s")[0] == b"x"


# --- servers --------------------------------------------------------------------------------------


@pytest.fixture
def folder():
    """A folder that the user of a server may enter."""
    with tempfile.TemporaryDirectory(prefix="clocks-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(params=["valkey", "postgres"])
def server(request, folder, monkeypatch):
    """A server on a clock that can be set, and the clock."""
    clock = Clock(folder)
    if request.param == "valkey":
        with monkeypatch.context() as patched:
            for name, value in clock.environment.items():
                patched.setenv(name, value)
            server = start_valkey(folder)
    else:
        plain = postgres._environment()
        monkeypatch.setattr(postgres, "_environment", lambda: plain | clock.environment)
        server = postgres.start_postgres()
    yield server, clock
    clock.set(0)
    server.kill()


def step(engine, key, command):
    """A step of a process that knows nothing but the store's clock."""
    address = f'[null,"op","{key}"]'
    return engine.store.transact("records", address, lambda value, now: reduce(value, command, now))


def fingerprint_of(engine, key):
    """What the record of a call of `int` without arguments has."""
    engine.operation("op", key=f"{key} probe", idempotency="idempotent").call(int)
    from mainstay.core.idempotency.record import decode

    return decode(engine.store.read("records", f'[null,"op","{key} probe"]')[0]).fingerprint


def test_a_servers_clock_set_back_does_not_keep_a_dead_owners_key_for_a_day(server):
    """The lease begins again when the next call finds it, and is over after its length."""
    server, clock = server
    with Engine(server.url, sinks=[], audit=False) as engine:
        key = uuid.uuid4().hex
        payload = fingerprint_of(engine, key)
        assert isinstance(step(engine, key, Begin("dead", payload, 1.0, 3)), Run)
        clock.set(-DAY)
        assert (
            engine.operation("op", key=key, idempotency="idempotent", lease=1.0, wait=60.0).call(
                int
            )
            == 0
        )


def test_a_servers_clock_set_ahead_does_not_cost_a_live_owner_its_lease(server):
    """For a process that has used the store before: it knows by how much the clock was set."""
    server, clock = server
    with Engine(server.url, sinks=[], audit=False) as engine:
        key = uuid.uuid4().hex
        payload = fingerprint_of(engine, key)
        assert isinstance(step(engine, key, Begin("live", payload, 600.0, 3)), Run)
        keyed = engine.operation("op", key=key, idempotency="idempotent", on_conflict="raise")
        with pytest.raises(Conflict):
            keyed.call(int)
        clock.set(DAY)
        with pytest.raises(Conflict) as caught:
            keyed.call(int)
        assert 0.0 < caught.value.retry_after <= 600.0
        assert step(engine, key, Renew("live", 1, 600.0)) == Done()
        with pytest.raises(Conflict):
            keyed.call(int)


def test_purging_after_a_servers_clock_was_set_ahead_costs_no_record(server):
    """Outcomes that would have been kept are kept; they are there when it is set right again."""
    server, clock = server
    with Engine(server.url, sinks=[], audit=False) as engine:
        key = uuid.uuid4().hex
        ran = []
        assert engine.operation("op", key=key, idempotency="idempotent").call(ran.append, 1) is None
        engine.store.purge()
        clock.set(2 * DAY)
        assert engine.store.purge() == 0
        engine.operation("op", key=key, idempotency="idempotent").call(ran.append, 1)
        clock.set(0)
        engine.operation("op", key=key, idempotency="idempotent").call(ran.append, 1)
        assert ran == [1]
