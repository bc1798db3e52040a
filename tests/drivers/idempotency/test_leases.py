"""A keyed call and its lease: nothing starts without one, and a call learns that it is over."""

import asyncio
import sqlite3
import threading
import time

import pytest
import trio

import mainstay
from mainstay import Backoff, Engine, RetryPolicy, carry, lease
from mainstay.core.codec.arguments import bound_arguments
from mainstay.core.codec.canonical import canonical, fingerprint
from mainstay.core.idempotency.record import Begin, Busy, RecordState, Renew, Settle, decode, reduce
from mainstay.drivers.idempotency import driver
from mainstay.errors import (
    CallCancelled,
    LeaseLost,
    OutcomeUnknown,
    PolicyError,
    StoreUnavailable,
)
from mainstay.events import LeaseExpired
from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time
from tests.processes import at_some_speed

SOON = 30.0
BRIEF = 0.15, 1.5, 8.0
"""Leases that a test waits out: the first that the machine is quick enough to begin a call in."""
SWIFT = RetryPolicy(
    name="swift", max_attempts=3, backoff=Backoff.constant(0.001), retry_on=(ConnectionError,)
)


class Watched(MemoryStore):
    """Notes the commands of calls, takes its time for some, and loses replies."""

    def __init__(self):
        super().__init__()
        self.commands, self.late, self.lost, self.fails = [], {}, [], ()
        self.takes_over, self.stands_still = None, "sleep"

    def transact(self, space, key, decide):
        command = decide.__closure__[0].cell_contents if decide.__closure__ else None
        kind = type(command)
        self.commands.append(kind)
        if kind in self.fails:
            raise StoreUnavailable(self.url, "write", "it is away")
        answer = super().transact(space, key, decide)
        if self.late.get(kind):
            getattr(mainstay.runtime.clock.current, self.stands_still)(self.late[kind].pop(0))
            if self.takes_over is not None:
                self.takes_over()
        if kind in self.lost:
            self.lost.remove(kind)
            raise StoreUnavailable(self.url, "write", "the reply was lost")
        return answer

    def count(self, kind):
        return self.commands.count(kind)


@pytest.fixture
def store():
    return Watched()


@pytest.fixture
def heard():
    return []


@pytest.fixture
def engine(store, heard):
    with Engine(store, policies=[SWIFT], default="swift", sinks=[heard.append]) as engine:
        yield engine


@pytest.fixture(params=["sync", "asyncio", "trio"])
def call(request):
    """Calls a plain function of no arguments as a keyed one, in one of three ways."""

    def call(operation, function):
        async def coloured():
            return function()

        if request.param == "sync":
            return operation.call(function)
        if request.param == "asyncio":
            return asyncio.run(operation.acall(coloured))
        return trio.run(operation.acall, coloured)

    return call


@pytest.fixture(params=["sleep", "suspend"])
def stands_still(request, store):
    """How a process misses the end of a lease: it stands still itself, or its machine sleeps."""
    store.stands_still = request.param
    return request.param


def wait_until(condition):
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


def record_of(engine, operation="work", key="k"):
    value, _ = engine.store.read("records", canonical([None, operation, key]).decode())
    return None if value is None else decode(value)


def taken_by_another(store, function, key="k"):
    """Another process begins the call, whose lease is over, and ends it."""
    address = canonical([None, "work", key]).decode()
    payload = fingerprint(bound_arguments(function, (), {}))

    def step(command):
        return MemoryStore.transact(
            store, "records", address, lambda v, n, command=command: reduce(v, command, n)
        )

    def take():
        store.takes_over = None
        end = time.monotonic() + 30.0
        while isinstance(step(Begin("other", payload, 30.0, 9)), Busy):
            # to the store the lease lasts a little longer than the call may count on
            assert time.monotonic() < end, "the lease does not end"
            time.sleep(0.002)
        step(Settle("other", 2, RecordState.SUCCEEDED, b'{"v":1,"value":"other"}', None))

    return take


# --- nothing starts without a lease ---------------------------------------------------------------


def test_a_claim_that_took_as_long_as_its_lease_is_made_again_before_the_function_runs(
    store, engine, call, stands_still
):
    """The reply came late: by then another process may have taken over."""
    seen = []
    with virtual_time():
        store.late[Begin] = [31.0]
        operation = engine.operation("work", key="k", lease=30.0)
        assert call(operation, lambda: seen.append(lease.remaining()) or "done") == "done"
    assert store.count(Begin) == 2
    assert seen == [30.0]


@pytest.mark.parametrize("sinks", [[], [[].append]])
def test_a_process_that_stood_still_after_its_claim_claims_again(
    store, call, sinks, monkeypatch, stands_still
):
    """Stopped between the answer to its claim and the function, for longer than the lease."""
    seen, stops, enclosures = [], [31.0], driver.enclosures

    def looked_late(depth):
        if stops:
            getattr(mainstay.runtime.clock.current, stands_still)(stops.pop())
        return enclosures(depth + 1)

    monkeypatch.setattr(driver, "enclosures", looked_late)
    with virtual_time(), Engine(store, policies=[SWIFT], default="swift", sinks=sinks) as engine:
        operation = engine.operation("work", key="k", lease=30.0)
        assert call(operation, lambda: seen.append(lease.remaining()) or "done") == "done"
    assert seen == [30.0]
    assert store.count(Begin) + store.count(Renew) == 2


def test_what_another_process_has_taken_over_meanwhile_is_replayed(
    store, engine, call, stands_still
):
    """The function does not run twice."""
    ran = []

    def work():
        ran.append(1)

    with virtual_time():
        store.late[Begin] = [31.0]
        store.takes_over = taken_by_another(store, work)
        assert call(engine.operation("work", key="k", lease=30.0), work) == "other"
    assert ran == []


def test_a_store_that_is_slower_than_the_lease_runs_nothing(store, engine, call, stands_still):
    """The call gives up after three claims, and leaves none."""
    ran = []
    with virtual_time():
        store.late[Begin] = [31.0] * 9
        with pytest.raises(LeaseLost) as caught:
            call(engine.operation("work", key="k", lease=30.0), lambda: ran.append(1))
    assert "it did not run" in caught.value.__notes__[0]
    assert (ran, store.count(Begin), record_of(engine)) == ([], 3, None)


def test_a_further_attempt_whose_counting_took_too_long_is_counted_again(
    store, engine, call, stands_still
):
    """Once in the record; and it starts with a whole lease."""
    seen = []

    def work():
        seen.append((record_of(engine).attempts, lease.remaining()))
        if len(seen) == 1:
            raise ConnectionError("again")

    with virtual_time():
        store.late[Renew] = [31.0]
        call(engine.operation("work", key="k", lease=30.0), work)
    assert seen == [(1, 30.0), (2, 30.0)]
    assert store.count(Renew) == 2


def test_a_further_attempt_is_not_made_if_counting_it_always_takes_too_long(
    store, engine, call, stands_still
):
    """The lease may be another's by then."""
    ran = []

    def work():
        ran.append(1)
        raise ConnectionError("again")

    with virtual_time():
        store.late[Renew] = [31.0] * 9
        with pytest.raises(LeaseLost):
            call(engine.operation("work", key="k", lease=30.0), work)
    assert ran == [1]


def test_a_reply_that_was_lost_does_not_count_an_attempt_twice(store, engine, call):
    """The command has the number of the attempt."""
    seen, store.lost = [], [Renew, Renew]

    def work():
        seen.append(record_of(engine).attempts)
        if len(seen) < 3:
            raise ConnectionError("again")

    call(engine.operation("work", key="k", store_wait=5.0), work)
    assert seen == [1, 2, 3]


# --- a call learns that its lease is over ---------------------------------------------------------


def test_outside_a_keyed_call_nothing_can_be_lost(call):
    """A function that looks at its lease works without a key too."""
    assert lease.is_held()
    assert lease.remaining() is None


def test_a_call_holds_its_lease_while_it_is_renewed(store, engine, call):
    """For as long as it runs, whatever the length of the lease."""

    def check(seconds):
        renewed = store.count(Renew)

        def work():
            # a lease that was not renewed is over by then
            wait_until(lambda: store.count(Renew) >= renewed + 5)
            wait_until(lambda: lease.is_held() and lease.remaining() > 0.0)
            return "held"

        assert call(engine.operation("work", key=f"k{seconds}", lease=seconds), work) == "held"
        assert lease.is_held()

    at_some_speed(check, 0.3, 3.0, 15.0)


def test_a_call_whose_machine_slept_for_longer_than_its_lease_does_not_hold_it(
    store, engine, call, heard
):
    """Its clock of waits stood still meanwhile; its outcome is not recorded over another's."""
    with virtual_time() as time:

        def work():
            assert lease.is_held()
            time.suspend(31.0)
            assert (lease.is_held(), lease.remaining()) == (False, 0.0)
            taken_by_another(store, work)()
            return "mine"

        with pytest.raises(LeaseLost):
            call(engine.operation("work", key="k", lease=30.0), work)
        assert call(engine.operation("work", key="k", lease=30.0), work) == "other"


def test_a_lease_that_ran_out_while_the_machine_slept_is_reported_when_it_wakes(
    store, engine, heard, machine
):
    """Not when the renewal would have been due in time awake."""

    def work():
        machine.sleep(7200.0)
        wait_until(lambda: any(isinstance(each, LeaseExpired) for each in heard))
        wait_until(lease.is_held)  # nobody has come, so it is renewed
        return "done"

    assert engine.operation("work", key="k", lease=3600.0).call(work) == "done"


def test_a_call_whose_lease_runs_out_learns_of_it(store, engine, call, heard):
    """By asking, by an event, and by a count; and holds it again if nobody has come."""

    def work():
        store.fails = (Renew,)
        wait_until(lambda: not lease.is_held())
        assert lease.remaining() == 0.0
        wait_until(lambda: any(isinstance(each, LeaseExpired) for each in heard))
        store.fails = ()
        wait_until(lease.is_held)
        return "done"

    with mainstay.context(tenant_id="t1"):
        assert call(engine.operation("work", key="k", lease=1.5), work) == "done"
    (event,) = [each for each in heard if isinstance(each, LeaseExpired)]
    assert (event.operation, event.idempotency_key, event.tenant_id) == ("work", "k", "t1")
    assert (event.lease, event.taken) == (1.5, False)
    assert engine.records.counts()["expired"] == 1
    assert engine.health().counts["leases_lost"] == 1


def test_a_call_whose_key_was_taken_learns_of_it(store, engine, call, heard):
    """It is over for good, and its result is not recorded."""

    def check(seconds):
        key, lost, events = f"k{seconds}", engine.records.counts()["lost"], len(heard)

        def work():
            store.fails = (Renew,)
            wait_until(lambda: not lease.is_held())
            taken_by_another(store, work, key)()
            store.fails = ()
            wait_until(lambda: store.count(Renew) and len(heard) > events)
            return "mine"

        with pytest.raises(LeaseLost):
            call(engine.operation("work", key=key, lease=seconds), work)
        assert engine.records.counts()["lost"] == lost + 1

    at_some_speed(check, *BRIEF)


def test_tasks_and_threads_inside_a_call_see_its_lease(engine):
    """And that it is over, if they outlive the call."""
    seen, after = [], []

    async def stray(end):
        await end.wait()
        after.append(lease.is_held())

    async def work(end, tasks):
        tasks.append(asyncio.create_task(stray(end)))
        seen.append(await asyncio.gather(_held(), asyncio.to_thread(lease.is_held)))
        thread = threading.Thread(target=carry(lambda: seen.append(lease.remaining() > 0.0)))
        thread.start()
        await asyncio.to_thread(thread.join)

    async def main():
        end, tasks = asyncio.Event(), []
        await engine.operation("work", key="k", lease=5.0).acall(_with(work, end, tasks))
        end.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert seen == [[True, True], True]
    assert after == [False]


async def _held():
    return lease.is_held()


def _with(function, *args):
    async def work():
        return await function(*args)

    return work


def test_a_call_inside_another_has_its_own_lease(store, engine, call):
    """And the outer one's is seen again afterwards."""

    def inner():
        return round(lease.remaining())

    def outer():
        return engine.operation("inner", key="i", lease=50.0).call(inner), round(lease.remaining())

    assert call(engine.operation("work", key="k", lease=100.0), outer) == (50, 100)


def test_a_call_in_a_transaction_of_the_callers_has_no_lease(tmp_path):
    """Nobody else sees its record before the commit."""
    with Engine(f"sqlite:///{tmp_path}/kept.db", sinks=[]) as engine:
        connection = sqlite3.connect(tmp_path / "kept.db")
        operation = engine.operation("work", key="k", lease=0.05, connection=connection)
        assert operation.call(lambda: (lease.is_held(), lease.remaining())) == (True, None)
        connection.rollback()
        connection.close()


def test_a_coroutine_closed_in_another_context_ends_quietly(engine):
    """Its context variable cannot be put back there."""
    reached = []

    async def work():
        reached.append(1)
        await asyncio.sleep(SOON)

    async def main():
        made = engine.operation("work", key="k", idempotency="idempotent").acall(work)
        asyncio.get_running_loop()
        made.send(None)
        import contextvars

        contextvars.copy_context().run(made.close)

    asyncio.run(main())
    assert reached == [1]
    wait_until(lambda: record_of(engine) is None)


# --- a function that is cancelled -----------------------------------------------------------------


def losing(store):
    """No renewal reaches the store any more."""
    store.fails = (Renew,)


def cancelled_with(engine, seconds, **options):
    """An operation whose function is cancelled when its lease runs out."""
    key = f"k{seconds}"
    return engine.operation("work", key=key, lease=seconds, on_lease_lost="cancel", **options)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_an_async_function_is_cancelled_when_its_lease_runs_out(store, engine, loop):
    """The call raises LeaseLost; its task goes on, and is not cancelled itself."""

    def check(seconds):
        ended = []

        async def work():
            losing(store)
            try:
                await (asyncio if loop == "asyncio" else trio).sleep(SOON)
            finally:
                ended.append(1)

        async def main():
            operation = cancelled_with(engine, seconds)
            with pytest.raises(LeaseLost):
                await operation.acall(work)
            await (asyncio if loop == "asyncio" else trio).sleep(0)
            return "went on"

        assert (asyncio.run(main()) if loop == "asyncio" else trio.run(main)) == "went on"
        assert ended == [1]

    at_some_speed(check, *BRIEF)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_function_that_was_cancelled_is_in_doubt_where_a_crash_is(store, engine, loop):
    """Half of it may have been done: a second call does not run it, and a person must look."""

    def check(seconds):
        runs = []

        async def work():
            runs.append(1)
            losing(store)
            await (asyncio if loop == "asyncio" else trio).sleep(SOON)

        async def main():
            operation = cancelled_with(engine, seconds, on_crash="unknown")
            with pytest.raises(LeaseLost):
                await operation.acall(work)
            with pytest.raises(OutcomeUnknown):
                await operation.acall(work)

        asyncio.run(main()) if loop == "asyncio" else trio.run(main)
        assert runs == [1]

    at_some_speed(check, *BRIEF)


def test_a_lease_that_runs_out_twice_cancels_a_function_once(store, engine):
    """Its cleanup may take longer than a renewal, which is granted again meanwhile."""

    async def work():
        losing(store)
        try:
            await asyncio.sleep(SOON)
        finally:
            store.fails = ()
            while not lease.is_held():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            losing(store)
            while lease.is_held():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)

    def check(seconds):
        async def main():
            with pytest.raises(LeaseLost):
                await cancelled_with(engine, seconds).acall(work)
            return asyncio.current_task().cancelling()

        assert asyncio.run(main()) == 0

    at_some_speed(check, *BRIEF)


def test_a_cancellation_of_the_callers_own_stays_one(store, engine):
    """Also if the lease has run out as well."""

    async def work():
        await asyncio.sleep(SOON)

    async def main():
        operation = engine.operation("work", key="k", lease=5.0, on_lease_lost="cancel")
        task = asyncio.create_task(operation.acall(work))
        while not store.count(Begin):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@pytest.mark.parametrize("has_event", [False, True])
def test_a_waiting_function_ends_when_its_lease_runs_out(store, engine, has_event):
    """A cancel event of its own is set: the waits of its retries end, and those inside."""

    def work():
        losing(store)
        raise ConnectionError("again")

    slow = SWIFT.replace(name="slow", backoff=Backoff.constant(SOON))

    def check(seconds):
        cancel = threading.Event() if has_event else None
        operation = cancelled_with(engine, seconds, cancel=cancel, policy=slow)
        with pytest.raises(LeaseLost) as caught:
            operation.call(work)
        assert isinstance(caught.value.__cause__, CallCancelled)
        assert cancel is None or not cancel.is_set()

    at_some_speed(check, *BRIEF)


def test_the_callers_own_cancel_event_still_ends_a_wait(engine):
    """As CallCancelled."""
    cancel = threading.Event()

    def work():
        threading.Timer(0.05, cancel.set).start()
        raise ConnectionError("again")

    slow = SWIFT.replace(name="slow", backoff=Backoff.constant(SOON))
    operation = engine.operation(
        "work", key="k", on_lease_lost="cancel", cancel=cancel, policy=slow
    )
    with pytest.raises(CallCancelled):
        operation.call(work)


def test_a_function_whose_lease_holds_is_left_alone(engine, call):
    """The option costs nothing but where it is needed."""
    operation = engine.operation("work", key="k", on_lease_lost="cancel")
    assert call(operation, lambda: "done") == "done"


def test_what_is_no_choice_is_refused(engine):
    """With the choices that there are."""
    with pytest.raises(PolicyError, match="on_lease_lost"):
        engine.operation("work", key="k", on_lease_lost="ignore")
