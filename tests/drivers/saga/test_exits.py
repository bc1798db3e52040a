"""Steps that end their run: SystemExit, Ctrl+C, a cancellation that nobody asked for.

No such run ends by itself, so each counts as one whose process was killed; and the process that
recovers sagas outlives them all.
"""

import asyncio
import threading

import pytest
import trio

from mainstay import Engine, RetryPolicy, Saga, SagaStep, StoreUnavailable
from mainstay.drivers.saga.records import SPACE
from mainstay.stores.memory import MemoryStore
from mainstay.testing import ProcessDied, run_saga, virtual_time

ONCE = RetryPolicy(max_attempts=1)
ENDS = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]


def raising(error, calls, name="b"):
    def act():
        calls.append(name)
        raise error

    return act


def araising(error, calls, name="b"):
    async def act():
        calls.append(name)
        raise error

    return act


def of(action, undo=None, *, name="s", **options):
    """A saga whose second step is the action; with `undo`, the action fails, and that undoes a."""
    steps = [SagaStep("a", lambda: 1, undo or (lambda: 2), policy=ONCE)]
    return Saga(name, [*steps, SagaStep("b", action, policy=ONCE)], **options)


def fails():
    raise ValueError("closed")


def recover(engine):
    return engine.sagas.recover()


def recover_on_asyncio(engine):
    return asyncio.run(engine.sagas.arecover())


def recover_on_trio(engine):
    return trio.run(engine.sagas.arecover)


def released(engine):
    """Waits for what is written in the background."""
    engine.sagas._parts.records._late.flush()


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("is_undo", [False, True])
def test_a_step_that_ends_its_run_again_and_again_counts_as_failed(error, is_undo):
    """Before, its saga never ended, and nobody was told; a Ctrl+C still ends its process."""
    calls, store = [], MemoryStore()
    ends = raising(error, calls)
    saga = of(fails, ends, max_recoveries=3) if is_undo else of(ends, max_recoveries=3)
    with Engine(store, sinks=[]) as engine:
        with pytest.raises(type(error)):
            engine.sagas.run(saga, id="1")
        for number in range(6):
            released(engine)
            found = recover(engine)
            assert found.failed == (number < 3)
        assert calls == ["b"] * 4
        view = engine.sagas.get("s", "1")
        assert (view.state, view.recoveries) == ("stuck" if is_undo else "compensated", 4)
        assert [item.kind for item in engine.inbox] == ["stuck_saga"] * is_undo


@pytest.mark.parametrize("recovers", [recover, recover_on_asyncio, recover_on_trio])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_undo", [False, True])
def test_a_recovery_goes_on_beside_a_step_that_exits(caplog, recovers, is_async, is_undo):
    """It is reported; the other sagas are recovered, by this call and by the next ones."""
    calls, store = [], MemoryStore()
    ends = (araising if is_async else raising)(SystemExit(3), calls)
    saga = of(fails, ends, max_recoveries=1) if is_undo else of(ends, max_recoveries=1)
    other = of(lambda: 5, name="other")
    before = Engine(store, sinks=[])
    for each in (of(raising(SystemExit(3), [])), of(raising(SystemExit(3), []), name="other")):
        with pytest.raises(SystemExit):
            before.sagas.run(each, id="1")
    released(before)
    with Engine(store, sinks=[]) as engine:
        engine.sagas.register(saga, other)
        found = recovers(engine)
        assert (found.failed, found.succeeded) == (1, 1)
        assert "the saga s/1 could not be recovered: SystemExit: 3" in caplog.text
        for _ in range(3):
            released(engine)
            recovers(engine)
        assert engine.sagas.get("s", "1").state == ("stuck" if is_undo else "compensated")


def test_a_step_of_a_group_that_exits(caplog):
    """The others keep their results; the one that exits counts as failed in the end."""
    calls, store = [], MemoryStore()
    group = [
        SagaStep("a", lambda: calls.append("a"), lambda: calls.append("-a")),
        SagaStep("b", raising(SystemExit(3), calls)),
    ]
    with Engine(store, sinks=[]) as engine:
        with pytest.raises(SystemExit):
            engine.sagas.run(Saga("s", [group], max_recoveries=2), id="1")
        for _ in range(4):
            released(engine)
            recover(engine)
        assert sorted(calls) == ["-a", "a", "b", "b", "b"]
        assert engine.sagas.get("s", "1").state == "compensated"


def test_progress_counts_again():
    """A saga that is interrupted now and then, and goes on, is not undone for that."""
    store, left = MemoryStore(), ["a", "b", "c"] * 2

    def act(name):
        if name in left:
            left.remove(name)
            raise KeyboardInterrupt

    steps = [SagaStep(name, lambda name=name: act(name)) for name in "abc"]
    saga = Saga("s", steps, max_recoveries=2)
    with Engine(store, sinks=[]) as engine:
        for _ in range(6):
            with pytest.raises(KeyboardInterrupt):
                engine.sagas.run(saga, id="1")
            released(engine)
        assert set(engine.sagas.run(saga, id="1").results) == {"a", "b", "c"}
        assert engine.sagas.get("s", "1").recoveries == 6


def test_watch_outlives_a_step_that_exits():
    """Before, `mainstay sagas recover --watch` ended with it, at each start."""
    store, calls = MemoryStore(), []
    saga = of(raising(SystemExit(3), calls), max_recoveries=2)
    stop, failed = threading.Event(), []
    with virtual_time(), Engine(store, sinks=[]) as engine:
        with pytest.raises(SystemExit):
            engine.sagas.run(saga, id="1")
        released(engine)

        def progress(found):
            failed.append(found.failed)
            released(engine)
            if found.compensated:
                stop.set()

        assert engine.sagas.watch(stop, every=1.0, progress=progress).compensated == 1
        assert calls == ["b"] * 3
        assert failed == [1, 1, 0]


def test_watch_counts_the_last_saga_though_no_other_is_there_to_begin():
    """It ends after the look that began it: its end was counted at the next saga, or never."""
    stop, goes_on, ended = threading.Event(), threading.Event(), []

    def hangs():
        if not calls:
            calls.append("b")
            raise SystemExit(3)
        goes_on.wait(30.0)

    def progress(found):
        ended.append(found.succeeded)
        stop.set()

    calls = []
    with Engine(MemoryStore(), sinks=[]) as engine:
        with pytest.raises(SystemExit):
            engine.sagas.run(of(hangs), id="1")
        released(engine)
        removal = engine.sagas._parts.records._removal
        later = [(0.1, goes_on.set), (0.3, removal.flush), (5.0, stop.set)]
        timers = [threading.Timer(*each) for each in later]
        for each in timers:
            each.start()
        assert engine.sagas.watch(stop, every=0.5, progress=progress).succeeded == 1
        assert ended == [1]
        assert timers[-1].is_alive(), "counted only when the watch was stopped"
        timers[-1].cancel()


def test_what_only_the_store_failed_in_is_not_counted():
    """An outage is no sign that a step ends its processes."""
    store, calls = Flaky(), []

    def act():
        calls.append("a")
        store.failures = 3 if len(calls) < 5 else 0

    saga = Saga("s", [SagaStep("a", act, policy=ONCE)], max_recoveries=1)
    with virtual_time(), Engine(store, sinks=[]) as engine:
        for _ in range(4):
            with pytest.raises(StoreUnavailable):
                engine.sagas.run(saga, id="1")
            released(engine)
        assert engine.sagas.run(saga, id="1").saga == "s"
        assert (calls, engine.sagas.get("s", "1").recoveries) == (["a"] * 5, 0)


class Flaky(MemoryStore):
    """Refuses some writes to records."""

    failures = 0

    def transact(self, space, key, decide):
        if space == SPACE and self.failures > 0:
            self.failures -= 1
            raise StoreUnavailable("memory://", "write", "down")
        return super().transact(space, key, decide)


def test_a_recovery_in_which_a_test_ends_the_process():
    """What is neither a failure nor an exit is raised: the process has ended for the test."""
    saga = of(raising(ProcessDied("a test"), []))
    with Engine(MemoryStore(), sinks=[]) as engine:
        with pytest.raises(ProcessDied):
            engine.sagas.run(saga, id="1")
        released(engine)
        for recovers in (recover, recover_on_asyncio, recover_on_trio):
            with pytest.raises(ProcessDied):
                recovers(engine)
            released(engine)


def test_a_process_that_dies_in_a_recovery():
    """`run_saga` goes on with the next process, as before."""
    steps = [SagaStep(name, lambda: 5, lambda: None) for name in "ab"]
    trace = run_saga(Saga("s", steps), crash_at=[1, 2, 3, 4, 5])
    assert trace.state == "succeeded"
