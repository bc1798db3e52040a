"""Sagas that are cut off: cancelled, interrupted, past a deadline, or by what cannot be read."""

import asyncio
import threading
from dataclasses import dataclass

import pytest
import trio

from mainstay import (
    CallCancelled,
    Engine,
    RetryPolicy,
    Saga,
    SagaStep,
    SagaStuckError,
    StoreUnavailable,
    context,
    deadline,
)
from mainstay.drivers.idempotency import groups
from mainstay.drivers.saga.records import OPEN_SAGAS
from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time

ONCE = RetryPolicy(max_attempts=1)


def run_sync(engine, saga, **options):
    return engine.sagas.run(saga, **options)


def run_asyncio(engine, saga, **options):
    return asyncio.run(engine.sagas.arun(saga, **options))


def run_trio(engine, saga, **options):
    async def main():
        return await engine.sagas.arun(saga, **options)

    return trio.run(main)


@pytest.fixture(params=[run_sync, run_asyncio, run_trio])
def run(request):
    return request.param


@pytest.fixture
def engine():
    with Engine(sinks=[]) as made:
        yield made


class Ended(BaseException):
    """What ends a process or a task, and is no failure of a step."""


def ends():
    raise Ended


async def aends():
    raise Ended


def given_up(store, saga, given=None, run=run_sync):
    """A saga whose process has given it up in its step."""
    engine = Engine(store, sinks=[])
    with pytest.raises(Ended):
        run(engine, saga, input=given, id="1")
    engine.sagas.close()


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [ends, aends])
def test_what_ends_a_step_of_a_group_is_raised_once_the_others_have_ended(run, action):
    """Before, the saga hung for ever, and its lease was renewed."""
    if run is run_sync and action is aends:
        action = ends
    store, other = MemoryStore(), []
    group = [SagaStep("a", action), SagaStep("b", lambda: other.append("b"))]
    given_up(store, Saga("order", [group]), run=run)
    with Engine(store, sinks=[]) as engine:
        group = [SagaStep("a", lambda: 5), SagaStep("b", lambda: other.append("again"))]
        engine.sagas.register(Saga("order", [group]))
        assert engine.sagas.recover().succeeded == 1
        assert other == ["b"]


def test_ctrl_c_waits_for_the_steps_of_a_group(engine, monkeypatch):
    """Nothing of the saga runs when the lease is given up; a second Ctrl+C does not wait."""

    class Interrupted(groups.SimpleQueue):
        left = 1

        def get(self):
            if self.left:
                self.left -= 1
                raise KeyboardInterrupt
            return super().get()

    monkeypatch.setattr(groups, "SimpleQueue", Interrupted)
    ended = []
    group = [SagaStep(name, lambda name=name: ended.append(name)) for name in "abc"]
    with pytest.raises(KeyboardInterrupt):
        engine.sagas.run(Saga("order", [group]), id="1")
    assert sorted(ended) == ["a", "b", "c"]
    assert engine.sagas.get("order", "1").state == "running"
    Interrupted.left = 2
    with pytest.raises(KeyboardInterrupt):
        engine.sagas.run(Saga("order", [group]), id="2")


# --- cancellation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_group", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_compensation_waits_for_the_thread_of_a_cancelled_step(engine, is_group, fails):
    """A thread cannot be cancelled; its effect must not come after the compensation."""
    happened, begun, goes_on = [], threading.Event(), threading.Event()

    def slow():
        begun.set()
        assert goes_on.wait(30.0)
        happened.append("a")
        if fails:
            raise TimeoutError

    step = SagaStep("a", slow, lambda: happened.append("-a"), policy=ONCE)
    steps = [[step, SagaStep("b", lambda: 5)]] if is_group else [step]

    async def main():
        task = asyncio.ensure_future(engine.sagas.arun(Saga("order", steps), id="1"))
        await asyncio.to_thread(begun.wait, 30.0)
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert happened == ["a", "-a"]
    assert engine.sagas.get("order", "1").state == "compensated"


@pytest.mark.parametrize("is_group", [False, True])
def test_a_cancelled_task_goes_on_behind_the_pivot(engine, is_group):
    """Before, every saga that a shutdown cancelled there was a matter for a person."""
    happened = []

    async def main():
        began = asyncio.Event()

        async def ship():
            began.set()
            for _ in range(20):
                await asyncio.sleep(0)
            happened.append("ship")

        later = SagaStep("ship", ship)
        group = [later, SagaStep("mail", lambda: happened.append("mail"))]
        saga = Saga("order", [SagaStep("pay", lambda: 5, pivot=True), group if is_group else later])
        task = asyncio.ensure_future(engine.sagas.arun(saga, id="1"))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert "ship" in happened
    assert engine.sagas.get("order", "1").state == "succeeded"


def test_a_cancelled_scope_goes_on_behind_the_pivot(engine):
    """The same under trio."""

    async def main():
        async def ship():
            scope.cancel()
            await trio.lowlevel.checkpoint()

        saga = Saga("order", [SagaStep("pay", lambda: 5, pivot=True), SagaStep("ship", ship)])
        with trio.CancelScope() as scope:
            await engine.sagas.arun(saga, id="1")

    trio.run(main)
    assert engine.sagas.get("order", "1").state == "succeeded"


def test_cancel_in_the_last_step(engine, run):
    """What `cancel` has accepted is carried out: the saga does not succeed."""
    undone = []

    def last(ctx):
        assert engine.sagas.cancel(ctx.saga, ctx.saga_id, why="withdrawn") == ""

    saga = Saga("order", [SagaStep("a", last, lambda: undone.append("a"))])
    with pytest.raises(CallCancelled):
        run(engine, saga, id="1")
    assert undone == ["a"]
    assert engine.sagas.get(saga, "1").state == "compensated"


def test_cancel_in_the_pivot(engine, run):
    """A pivot that was begun cannot be taken back, so the cancellation is refused."""
    answers = []

    def pay(ctx):
        answers.append(engine.sagas.cancel(ctx.saga, ctx.saga_id, why="withdrawn"))

    saga = Saga("order", [SagaStep("pay", pay, pivot=True), SagaStep("ship", lambda: 5)])
    run(engine, saga, id="1")
    assert answers == ["its pivot was begun: once it is done, the saga only goes forward"]


# --- deadlines ------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["saga", "caller", "cancel event"])
def test_behind_the_pivot_nothing_of_the_caller_counts(engine, run, which):
    """Neither a deadline nor a cancel event takes the patience away; before, the saga was stuck."""
    cancel, failures = threading.Event(), [ConnectionRefusedError()]

    with virtual_time() as time:

        def ship():
            time.advance(10.0)
            if which == "cancel event":
                cancel.set()
            if failures:
                raise failures.pop()

        steps = [SagaStep("pay", lambda: 5, pivot=True), SagaStep("ship", ship)]
        saga = Saga("order", steps, deadline=5.0 if which == "saga" else None)
        with context(cancel=cancel), deadline.within(5.0 if which == "caller" else 500.0):
            run(engine, saga, id="1")
            assert deadline.remaining() is not None
    assert not failures
    assert engine.sagas.get(saga, "1").state == "succeeded"


# --- what cannot be read --------------------------------------------------------------------------


class Unshowable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(("is_pivot", "state"), [(False, "compensated"), (True, "stuck")])
def test_an_exception_without_a_text(engine, run, is_pivot, state):
    """Before, the saga stayed as it was, and its step ran again in each recovery."""

    def fail():
        raise Unshowable

    first = SagaStep("a", lambda: 5, lambda: None, pivot=is_pivot)
    saga = Saga("order", [first, SagaStep("b", fail, policy=ONCE)])
    with pytest.raises(SagaStuckError if is_pivot else Unshowable):
        run(engine, saga, id="1")
    assert engine.sagas.get(saga, "1").state == state


@pytest.mark.parametrize("how", ["run", "arun", "resume"])
def test_a_changed_definition_has_an_item_whatever_finds_it(how):
    """The error names an item: there is one, also where no recovery has run."""
    store, changed = MemoryStore(), Saga("order", [SagaStep("b", lambda: 5)])
    given_up(store, Saga("order", [SagaStep("a", ends)]))
    with Engine(store, sinks=[]) as engine:
        engine.sagas.register(changed)
        if how == "resume":
            assert not engine.sagas.resume("order/1")
        else:
            with pytest.raises(SagaStuckError) as caught:
                (run_sync if how == "run" else run_asyncio)(engine, changed, id="1")
        (item,) = engine.inbox
        assert "part 1 was 'a' and is 'b'" in item.text
        assert how == "resume" or item.id in str(caught.value)


@dataclass
class Order:
    number: int


def test_an_input_that_cannot_be_rebuilt_here(monkeypatch):
    """The saga is left as it is, with an item; each look counts as no recovery."""
    store = MemoryStore()
    given_up(store, Saga("order", [SagaStep("a", ends)]), Order(5))
    with Engine(store, sinks=[]) as engine:
        saga = Saga("order", [SagaStep("a", lambda ctx: ctx.input.number)], max_recoveries=1)
        engine.sagas.register(saga)
        monkeypatch.delitem(globals(), "Order")
        for _ in range(3):
            assert engine.sagas.recover().failed == 1
        (item,) = engine.inbox
        assert "cannot be rebuilt where it is recovered" in item.text
        assert engine.sagas.get("order", "1").recoveries == 0
        monkeypatch.undo()
        assert engine.sagas.recover().succeeded == 1
        assert engine.sagas.run(saga, Order(5), id="1").results["a"] == 5


def test_watch_outlives_a_store_that_is_unavailable(caplog):
    """It looks again; before, one failure ended the process that recovers."""
    stop, looks = threading.Event(), []

    class Away(MemoryStore):
        def scan(self, space, after, limit):
            looks.append(space)
            if len(looks) == 1:
                raise StoreUnavailable("memory://", "scan", "down")
            stop.set()
            return super().scan(space, after, limit)

    with virtual_time(), Engine(Away(), sinks=[]) as engine:
        assert engine.sagas.watch(stop).recovered == 0
    assert looks == [OPEN_SAGAS, OPEN_SAGAS]
    assert "sagas could not be recovered" in caplog.text
