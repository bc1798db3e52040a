"""The lease of a run is looked at before each attempt of a stage."""

import asyncio

import pytest
import trio

from mainstay import Backoff, Engine, Jitter, LeaseLost, RetryPolicy
from mainstay.core.pipeline.commands import Take
from mainstay.core.pipeline.record import decode, reduce
from mainstay.drivers.idempotency.lease_renewal import LEASE_RENEWAL
from mainstay.drivers.pipeline.records import RUNS
from mainstay.profiles.pipelines import Governance, Pipeline, Stage
from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time
from tests.processes import wait_until

LEASE = 30.0
PATIENT = RetryPolicy(
    max_attempts=5,
    retry_on=ConnectionError,
    backoff=Backoff.exponential(1.0, max_delay=4.0),
    jitter=Jitter.full(),
)


class Late(MemoryStore):
    """A store whose next answers about runs come late: `delay` is called before each of them."""

    def __init__(self):
        super().__init__()
        self.delays = []

    def transact(self, space, key, decide):
        reply = super().transact(space, key, decide)
        if space == RUNS and self.delays:
            self.delays.pop()()
        return reply


def engine_of(store):
    return Engine(store, sinks=[])


def taken(value, now):
    """Another process goes on with the run."""
    return reduce(value, Take("another", decode(value).shape, 300.0, 5), now)


@pytest.fixture(params=["sync", "asyncio", "trio"])
def run(request, tmp_path):
    """Runs a pipeline of some stages, in one of three ways; False if it lost its run."""

    def run(engine, *functions, lease=LEASE, **options):
        given = {"idempotency": "idempotent", "policy": PATIENT, **options}
        several = [Stage(each.__name__, coloured(each), **given) for each in functions]
        pipeline = Pipeline(
            "p", several, engine=engine, lease=lease, max_parallel=len(several),
            ledgers=tmp_path, telemetry=tmp_path / "telemetry.json",
        )  # fmt: skip
        try:
            if request.param == "sync":
                pipeline.run(run_id="r")
            elif request.param == "asyncio":
                asyncio.run(pipeline.arun(run_id="r"))
            else:
                trio.run(lambda: pipeline.arun(run_id="r"))
        except LeaseLost:
            return False
        return True

    def coloured(function):
        async def awaited(ctx):
            return function(ctx)

        awaited.__name__ = function.__name__
        return function if request.param == "sync" else awaited

    return run


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("passes", ["advance", "suspend"])
def test_a_retry_after_the_run_was_taken_over_is_not_made(run, passes, others):
    """Another process may execute the stage by now; beside other stages too."""
    attempts, store = [], MemoryStore()

    def load(ctx):
        attempts.append(1)
        getattr(time, passes)(LEASE + 1.0)
        store.transact(RUNS, "p/r", taken)
        raise ConnectionRefusedError("down")

    def poll(ctx):
        return "done"

    with virtual_time() as time, engine_of(store) as engine:
        assert not run(engine, load, *[poll][:others])
        assert attempts == [1]
        assert decode(store.read(RUNS, "p/r")[0]).owner == "another"


def test_a_retry_after_the_lease_is_made_with_a_new_one_if_nobody_came(run):
    """The run is renewed, and goes on."""
    attempts, store = [], MemoryStore()

    def load(ctx):
        attempts.append(decode(store.read(RUNS, "p/r")[0]).lease_until - time.wall())
        time.advance(LEASE + 1.0)
        if len(attempts) < 3:
            raise ConnectionRefusedError("down")

    with virtual_time() as time, engine_of(store) as engine:
        assert run(engine, load)
    assert attempts == [LEASE, LEASE, LEASE]


@pytest.mark.parametrize(("times", "ends"), [(1, True), (9, False)])
def test_a_renewal_that_is_answered_after_its_lease_is_none(run, times, ends):
    """The look is repeated; if the store is never in time, the run is left to others."""
    attempts, store = [], Late()

    def load(ctx):
        attempts.append(1)
        if len(attempts) == 1:
            time.advance(LEASE + 1.0)
            store.delays += [lambda: time.advance(LEASE + 1.0)] * times
            raise ConnectionRefusedError("down")

    with virtual_time() as time, engine_of(store) as engine:
        assert run(engine, load) == ends
    assert len(attempts) == (2 if ends else 1)


@pytest.mark.parametrize("passes", ["advance", "suspend"])
def test_the_first_renewal_counts_from_when_the_claim_was_sent(run, passes):
    """The answer took most of the lease: another third of it would be after its end."""
    store, long = Late(), 300.0

    def left():
        return decode(store.read(RUNS, "p/r")[0]).lease_until - time.wall()

    def load(ctx):
        wait_until(lambda: left() > 290.0, "a renewal", 15.0)

    with virtual_time() as time, engine_of(store) as engine:
        store.delays.append(lambda: getattr(time, passes)(250.0))
        assert run(engine, load, lease=long)


def test_a_gate_that_waits_for_longer_than_the_lease_lets_no_attempt_begin(tmp_path):
    """The look follows the gate: nothing else is between it and the function."""
    ran, store = [], MemoryStore()

    def governance(dataset, ctx):
        time.advance(LEASE + 1.0)
        store.transact(RUNS, "p/r", taken)

    with virtual_time() as time, engine_of(store) as engine:
        stage = Stage("load", lambda: ran.append(1), idempotency="idempotent", datasets="users")
        pipeline = Pipeline(
            "p", [stage], engine=engine, governance=Governance(check=governance), lease=LEASE,
            ledgers=tmp_path, telemetry=tmp_path / "telemetry.json",
        )  # fmt: skip
        with pytest.raises(LeaseLost):
            pipeline.run(run_id="r")
    assert ran == []


def test_a_stage_with_a_key_has_the_lease_of_its_key(run):
    """No other process executes it, whoever has the run: its key is not left in doubt."""
    attempts, store = [], MemoryStore()

    def load(ctx):
        attempts.append(1)
        if len(attempts) == 1:
            time.advance(LEASE + 1.0)
            store.transact(RUNS, "p/r", taken)
            raise ConnectionRefusedError("down")

    with virtual_time() as time, engine_of(store) as engine:
        assert not run(engine, load, idempotency="keyed", idempotency_key="k")
        assert attempts == [1, 1]
        assert list(engine.inbox) == []


def test_a_child_that_was_forked_in_a_stage_makes_no_further_attempt(run):
    """Nor does it go on with the run: that is its parent's."""
    attempts = []

    def load(ctx):
        attempts.append(1)
        for lease in LEASE_RENEWAL._queues[LEASE + 11.0]:
            lease.home = object()  # from here on it is another process's
        raise ConnectionRefusedError("down")

    with virtual_time(), engine_of(MemoryStore()) as engine:
        assert not run(engine, load, lease=LEASE + 11.0)
    assert attempts == [1]
