"""A store that is away: a keyed call waits for it as configured, and no longer."""

import asyncio
import threading

import pytest
import trio

from mainstay import CallCancelled, Engine, PolicyError, RetryPolicy, StoreUnavailable, deadline
from mainstay.core.idempotency.record import Begin, Release, Renew, Settle
from mainstay.drivers.idempotency.keyed_call import SPACE
from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time
from tests.servers.valkey import start_valkey

POLICY = RetryPolicy(name="work", max_attempts=3, deadline=None)


class AwayFor(MemoryStore):
    """Is away for some virtual seconds from the first step of a kind; reads fail meanwhile too."""

    locks = True

    def __init__(self, seconds, kind=Begin):
        super().__init__()
        self.seconds, self.kind, self.until, self.tried = seconds, kind, None, []

    def transact(self, space, key, decide):
        self._check(type(decide.__closure__[0].cell_contents), "write")
        return super().transact(space, key, decide)

    def read(self, space, key):
        self._check(Begin, "read")
        return super().read(space, key)

    def _check(self, kind, what):
        now = self.clock.monotonic()
        if kind is self.kind:
            self.until = now + self.seconds if self.until is None else self.until
        if self.until is not None and now < self.until:
            self.tried.append(now)
            raise StoreUnavailable(self.url, what, "it is away")


@pytest.fixture
def time():
    with virtual_time(start=0.0) as time:
        yield time


@pytest.fixture(params=["sync", "asyncio", "trio"])
def call(request, time):
    """Calls a keyed operation in one of the three ways."""

    def call(operation, function):
        async def coloured():
            return function()

        async def main():
            return await operation.acall(coloured)

        if request.param == "sync":
            return operation.call(function)
        if request.param == "asyncio":
            return asyncio.run(main())
        return trio.run(main, clock=time.trio_clock())

    return call


def engine_on(store, time, **options):
    store.clock = time
    policies = options.pop("policies", [POLICY])
    return Engine(store, policies=policies, operations={"*": "work"}, sinks=[], **options)


def counted(*outcomes):
    left = list(outcomes)

    def function():
        function.calls += 1
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    function.calls = 0
    return function


@pytest.mark.parametrize("kind", [Begin, Settle])
def test_a_store_that_comes_back_in_time_is_waited_for(call, time, kind):
    """The call runs once and is recorded, as if nothing had been."""
    engine, function = engine_on(AwayFor(20.0, kind), time, store_wait=30.0), counted("done")
    operation = engine.operation("work", key="k", lease=60.0)
    assert call(operation, function) == "done"
    assert 20.0 <= time.elapsed <= 21.0
    assert call(operation, function) == "done"
    assert function.calls == 1


def test_the_step_that_counts_an_attempt_waits_as_well(call, time):
    """A retry is not lost because the store was away before it."""
    engine = engine_on(AwayFor(5.0, Renew), time, store_wait=30.0)
    function = counted(ConnectionError("reset"), "done")
    assert call(engine.operation("work", key="k", lease=60.0), function) == "done"
    assert function.calls == 2
    assert time.elapsed >= 5.0


@pytest.mark.parametrize("kind", [Begin, Settle])
def test_one_that_stays_away_is_told_of_when_the_time_is_over(call, time, kind):
    """To the moment, with how long it was waited for."""
    engine, function = engine_on(AwayFor(3600.0, kind), time, store_wait=10.0), counted("done")
    with pytest.raises(StoreUnavailable, match="it is away") as caught:
        call(engine.operation("work", key="k", lease=60.0), function)
    assert time.elapsed == 10.0
    assert "waited 10 s for the store, as store_wait and deadline allow" in caught.value.__notes__
    assert function.calls == (kind is Settle)


def test_the_pauses_grow_to_a_second(time):
    """So that a store that comes back is not met by a crowd, nor long after."""
    engine = engine_on(AwayFor(3600.0), time, store_wait=60.0)
    with pytest.raises(StoreUnavailable):
        engine.operation("work", key="k").call(int)
    assert 0.05 <= time.sleeps[0] <= 0.1
    assert max(time.sleeps) <= 1.0
    assert 60 <= len(engine.store.tried) <= 130


def test_without_the_setting_a_step_is_tried_three_times(call, time):
    """Within a fifth of a second; a reading that fails is raised at once."""
    store = AwayFor(3600.0, Settle)
    with pytest.raises(StoreUnavailable):
        call(engine_on(store, time).operation("work", key="k"), counted("done"))
    assert (len(store.tried), time.elapsed) == (3, 0.2)
    with pytest.raises(StoreUnavailable):
        call(engine_on(store, time).operation("work", key="k"), counted("done"))
    assert len(store.tried) == 4


def test_an_operation_may_say_otherwise_than_its_engine(call, time):
    """In either direction."""
    engine = engine_on(AwayFor(3600.0), time, store_wait=10.0)
    with pytest.raises(StoreUnavailable):
        call(engine.operation("work", key="k", store_wait=2.0), counted("done"))
    assert time.elapsed == 2.0
    with pytest.raises(StoreUnavailable):
        call(engine.operation("work", key="k", store_wait=0.0), counted("done"))
    assert time.elapsed == 2.0


def test_no_wait_passes_the_deadline(call, time):
    """Neither the policy's nor that of whoever calls; the last try has a moment of its own."""
    policies = [POLICY.replace(deadline=4.0)]
    engine = engine_on(AwayFor(3600.0), time, store_wait=60.0, policies=policies)
    with pytest.raises(StoreUnavailable):
        call(engine.operation("work", key="k"), counted("done"))
    assert 3.9 <= time.elapsed <= 4.0
    before = time.elapsed
    with deadline.within(3.0), pytest.raises(StoreUnavailable):
        engine.operation("work", key="k").call(counted("done"))
    assert 2.9 <= time.elapsed - before <= 3.0
    engine.close()  # which ends the thread that offers what is left


def test_giving_up_a_claim_waits_for_nobody(call, time):
    """The caller has a failure of its own to hear of; the lease ends the claim."""
    engine = engine_on(AwayFor(3600.0, Release), time, store_wait=60.0)
    with pytest.raises(ConnectionError, match="reset"):
        call(engine.operation("work", key="k"), counted(*[ConnectionError("reset")] * 3))
    assert time.elapsed < 1.0


@pytest.mark.parametrize(("kind", "told"), [(Begin, CallCancelled), (Settle, StoreUnavailable)])
def test_a_cancel_event_ends_the_wait(call, time, kind, told):
    """Where nothing has run it is a cancellation; what has run cannot be recorded."""
    cancel = threading.Event()
    store = AwayFor(3600.0, kind)
    engine = engine_on(store, time, store_wait=60.0)
    check = store._check

    def cancelled_later(*args):
        if time.monotonic() > 5.0:
            cancel.set()
        check(*args)

    store._check = cancelled_later
    with pytest.raises(told):
        call(engine.operation("work", key="k", cancel=cancel), counted("done"))
    assert 5.0 < time.elapsed < 10.0


class Unheard(AwayFor):
    """Takes every claim, and its reply is lost."""

    def transact(self, space, key, decide):
        answer = MemoryStore.transact(self, space, key, decide)
        if type(decide.__closure__[0].cell_contents) is Begin:
            raise StoreUnavailable(self.url, "write", "the reply was lost")
        return answer

    def read(self, space, key):
        return MemoryStore.read(self, space, key)


def test_a_task_cancelled_while_it_waits_gives_up_its_claim(time):
    """The store may have heard the step though nobody was told."""
    engine = engine_on(Unheard(0.0), time, store_wait=60.0)

    async def work():
        return "done"

    async def main():
        async with asyncio.timeout(2.0):
            await engine.operation("work", key="k").acall(work)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert time.elapsed == 2.0
    for thread in threading.enumerate():
        if thread.name == "mainstay-release":
            thread.join(60)
    assert engine.store.scan(SPACE) == []


@pytest.mark.parametrize("wrong", [-1.0, float("inf"), "soon", None])
def test_what_is_no_time_is_refused(wrong):
    """By the engine and, but for None, by the operation."""
    with pytest.raises(PolicyError, match="store_wait"):
        Engine(store_wait=wrong)
    if wrong is not None:
        with Engine() as engine, pytest.raises(PolicyError, match="store_wait"):
            engine.operation("work", key="k", store_wait=wrong)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_real_server_that_is_stopped_and_started_again_is_waited_for(tmp_path, is_async):
    """The call that came while it was down runs when it is up, and is replayed afterwards."""
    server = start_valkey(tmp_path)
    try:
        with Engine(f"{server.url}?timeout=1", sinks=[], store_wait=60.0) as engine:
            operation = engine.operation("work", key="k")
            assert engine.operation("work", key="first").call(counted("up")) == "up"
            server.stop()
            with pytest.raises(StoreUnavailable):
                engine.operation("work", key="k", store_wait=0.0).call(counted("down"))
            timer = threading.Timer(0.5, server.start)
            timer.start()
            function = counted("done")

            async def coloured():
                return function()

            started = operation.acall(coloured) if is_async else None
            assert (asyncio.run(started) if is_async else operation.call(function)) == "done"
            timer.join()
            again = operation.acall(coloured) if is_async else None
            assert (asyncio.run(again) if is_async else operation.call(function)) == "done"
            assert function.calls == 1
    finally:
        server.kill()
