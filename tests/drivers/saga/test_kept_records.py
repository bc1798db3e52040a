"""A saga decides on the record that it has written itself: on SQLite, if it is still what is there.

Between two writes others may change the record, and a reply may be lost: nothing of either is
overwritten, or decided upon as it was before.
"""

import pytest

from mainstay import (
    Backoff,
    CallCancelled,
    Engine,
    LeaseLost,
    RetryPolicy,
    Saga,
    SagaStep,
    StoreUnavailable,
)
from mainstay.core.base.change import DROP
from mainstay.core.saga.commands import Take
from mainstay.core.saga.record import reduce
from mainstay.core.saga.state import decode
from mainstay.drivers.saga.records import SPACE
from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time

NAMES = ("a", "b", "c")


@pytest.fixture(params=["NORMAL", "FULL"])
def engine(tmp_path, request):
    url = f"sqlite:///{tmp_path}/kept.db?synchronous={request.param}"
    with Engine(url, sinks=[], audit=False) as engine:
        yield engine


def saga_of(does):
    """A saga of three steps, each of which calls `does` with its number."""
    done = []

    def step(number):
        return SagaStep(NAMES[number], lambda: does(number) or number, lambda: done.append(number))

    return Saga("t", [step(number) for number in range(len(NAMES))]), done


def record(engine):
    return decode(engine.store.read(SPACE, "t/1")[0])


def marks(engine):
    return [(each.what.value, each.step) for each in record(engine).log]


FORWARD = [(mark, step) for step in range(len(NAMES)) for mark in ("started", "done")]


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_a_cancellation_in_a_step_is_not_overwritten(engine, at):
    """It changes the record in between: the end of the step finds it, and no step begins."""
    saga, undone = saga_of(
        lambda number: number == at and engine.sagas.cancel("t", "1", why="a mistake") and None
    )
    with pytest.raises(CallCancelled):
        engine.sagas.run(saga, id="1")
    assert record(engine).cancel == "a mistake"
    assert undone == list(range(at, -1, -1))


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_a_saga_that_was_taken_over_in_a_step_is_not_written(engine, at):
    """The record is the other process's from then on, byte by byte."""
    left = []

    def take(value, now):
        found = decode(value)
        return reduce(value, Take("another", found.shape, 300.0), now + 1000.0)

    def does(number):
        if number == at:
            engine.store.transact(SPACE, "t/1", take)
            left.append(engine.store.read(SPACE, "t/1")[0])

    saga, undone = saga_of(does)
    with pytest.raises(LeaseLost):
        engine.sagas.run(saga, id="1")
    assert record(engine).owner == "another"
    assert (left, undone) == ([engine.store.read(SPACE, "t/1")[0]], [])


@pytest.mark.parametrize("at", range(len(NAMES)))
def test_a_saga_whose_record_is_gone_is_lost(engine, at):
    """A person has removed it, or the file: it is not written anew, and no step begins."""
    begun = []

    def does(number):
        begun.append(number)
        if number == at:
            engine.store.transact(SPACE, "t/1", lambda _value, _now: (DROP, None))

    saga, undone = saga_of(does)
    with pytest.raises(LeaseLost):
        engine.sagas.run(saga, id="1")
    assert engine.store.read(SPACE, "t/1")[0] is None
    assert (begun, undone) == (list(range(at + 1)), [])


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("at", range(len(NAMES)))
def test_a_write_whose_reply_is_lost_is_made_once(engine, monkeypatch, at, is_written):
    """The write is offered again with what was kept before it, which is no more what is there."""
    real, counted = engine.store.transact, []

    def transact(space, *args):
        if space != SPACE:
            return real(space, *args)
        counted.append(space)
        is_lost = len(counted) == at + 1
        reply = real(space, *args) if is_written or not is_lost else None
        if is_lost:
            raise StoreUnavailable(engine.store.url, "write", "the connection was lost")
        return reply

    monkeypatch.setattr(engine.store, "transact", transact)
    saga, undone = saga_of(lambda _number: None)
    with virtual_time():
        assert dict(engine.sagas.run(saga, id="1").results) == {"a": 0, "b": 1, "c": 2}
    assert len(counted) == len(NAMES) + 1
    assert (marks(engine), undone) == (FORWARD, [])
    assert (record(engine).writes, record(engine).epoch) == (len(NAMES), 1)


def test_a_renewal_without_a_record_is_none():
    """A lease that may be over is renewed before the next attempt: what is gone has none."""
    attempts, store = [], MemoryStore()
    patient = RetryPolicy(max_attempts=5, retry_on=Exception, backoff=Backoff.constant(1.0))

    def lose():
        attempts.append(1)
        time.advance(31.0)
        store.transact(SPACE, "t/1", lambda _value, _now: (DROP, None))
        raise OSError("down")

    with virtual_time() as time, Engine(store, sinks=[]) as engine:
        with pytest.raises(LeaseLost):
            engine.sagas.run(Saga("t", [SagaStep("a", lose, policy=patient)]), id="1")
        assert attempts == [1]
