"""What steps emit: the outbox has it exactly if the saga's record has the end of the step."""

import asyncio

import pytest
import trio

from mainstay import CompensationFailedError, Engine, RetryPolicy, Saga, SagaExecutor, SagaStep
from mainstay.errors import StoreUnavailable, UsageError
from tests.servers.databases import outbox_place, postgres_place, sqlite_place

__all__ = ["outbox_place", "postgres_place", "sqlite_place"]
ONCE = RetryPolicy(max_attempts=1)
REFUSE_ON_SQLITE = (
    """CREATE TRIGGER refuse BEFORE INSERT ON mainstay_outbox
    WHEN NEW.topic = 'order.cancelled.v1' BEGIN SELECT RAISE(ABORT, 'full'); END""",
    "DROP TRIGGER refuse",
)
REFUSE_ON_POSTGRESQL = (
    """ALTER TABLE mainstay_outbox ADD CONSTRAINT refuse
    CHECK (topic <> 'order.cancelled.v1')""",
    "ALTER TABLE mainstay_outbox DROP CONSTRAINT refuse",
)
TWICE = RetryPolicy(max_attempts=2, retry_on=(OSError,))


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


def opened(place, **options):
    return Engine(place.url, **{"sinks": [], "audit": False, **options})


def emitting(topic, fail=None, *, is_async=False):
    """An action that emits, and then fails as often as the list has errors."""
    errors = list(fail or ())

    def act(ctx):
        ctx.emit(topic, {"attempt": ctx.attempt}, aggregate_type="Order", aggregate_id=ctx.saga_id)
        if errors:
            raise errors.pop(0)

    async def aact(ctx):
        act(ctx)

    return aact if is_async else act


def order(*, is_async=False, undo_fails=(), **options):
    """Places an order, and fails to pack it."""

    def sold_out(ctx):
        ctx.emit("order.packed.v1", {})
        raise KeyError("sold out")

    return Saga(
        "order",
        [
            SagaStep(
                "place",
                emitting("order.placed.v1", is_async=is_async),
                emitting("order.cancelled.v1", undo_fails, is_async=is_async),
                compensate_policy=TWICE,
                **options,
            ),
            SagaStep("pack", sold_out, policy=ONCE),
        ],
    )


def entries(engine):
    return [entry.message for entry in engine.outbox.entries()]


def topics(engine):
    return [message.topic for message in entries(engine)]


@pytest.mark.req("EF-08")
def test_a_compensation_emits_its_event(outbox_place, run):
    """The event of a step and that of its compensation are published in their order."""
    with opened(outbox_place) as engine:
        with pytest.raises(KeyError, match="sold out"):
            run(engine, order(is_async=run is not run_sync), id="o-1")
        got = []
        engine.outbox.relay(got.append).drain()
        assert [message.topic for message in got] == ["order.placed.v1", "order.cancelled.v1"]
        assert {message.aggregate_id for message in got} == {"o-1"}
        assert engine.sagas.get("order", "o-1").state == "compensated"


@pytest.mark.req("EF-08")
def test_what_a_failed_attempt_has_emitted_is_dropped(outbox_place):
    """One event of two attempts: that of the attempt which succeeded."""
    with opened(outbox_place) as engine:
        with pytest.raises(KeyError):
            engine.sagas.run(order(undo_fails=[OSError("down")]), id="o-1")
        placed, cancelled = entries(engine)
        assert (placed.topic, cancelled.payload) == ("order.placed.v1", b'{"attempt":2}')


def test_a_stuck_saga_has_emitted_nothing_of_the_failed_compensation(outbox_place):
    with opened(outbox_place) as engine:
        with pytest.raises(CompensationFailedError):
            engine.sagas.run(order(undo_fails=[OSError(), OSError()]), id="o-1")
        assert topics(engine) == ["order.placed.v1"]


@pytest.mark.req("EF-08", "EF-14")
@pytest.mark.parametrize("is_written", [True, False])
def test_a_write_whose_reply_is_lost(outbox_place, run, monkeypatch, is_written):
    """It is tried again: whether or not it was carried out, there is one event of each step."""
    with opened(outbox_place) as engine:
        real, failures = engine.store.transact_also, [1, 0, 1, 0]

        def broken(*args):
            is_first = failures.pop(0) if failures else 0
            reply = real(*args) if is_written or not is_first else None
            if is_first:
                raise StoreUnavailable(engine.store.url, "write", "the connection was lost")
            return reply

        monkeypatch.setattr(engine.store, "transact_also", broken)
        with pytest.raises(KeyError):
            run(engine, order(is_async=run is not run_sync), id="o-1")
        assert failures == []
        assert topics(engine) == ["order.placed.v1", "order.cancelled.v1"]


@pytest.mark.req("EF-08", "EF-14")
def test_state_and_events_are_one_transaction(outbox_place):
    """If the database refuses the event, the saga has not gone on either; later it does."""
    saga = order(idempotency="idempotent")
    with opened(outbox_place) as engine:
        engine.outbox.counts()
        is_sqlite = outbox_place.url.startswith("sqlite")
        refuse, allow = REFUSE_ON_SQLITE if is_sqlite else REFUSE_ON_POSTGRESQL
        with outbox_place.connect() as connection:
            connection.execute(refuse)
        with pytest.raises(StoreUnavailable):
            engine.sagas.run(saga, id="o-1")
        assert topics(engine) == ["order.placed.v1"]
        (view,) = engine.sagas.open()
        assert view.state == "compensating"
        with outbox_place.connect() as connection:
            connection.execute(allow)
        engine.sagas.close()  # gives the lease up now
    with opened(outbox_place) as engine:
        engine.sagas.register(saga)
        assert engine.sagas.recover().compensated == 1
        assert topics(engine) == ["order.placed.v1", "order.cancelled.v1"]


def test_a_group_emits(outbox_place):
    """Steps at the same time: each of them has its event."""
    group = [emitting(f"t{number}") for number in range(3)]
    steps = [SagaStep(f"s{number}", act) for number, act in enumerate(group)]
    with opened(outbox_place) as engine:
        engine.sagas.run(Saga("group", [steps]))
        assert sorted(topics(engine)) == ["t0", "t1", "t2"]


def test_an_event_once_by_its_dedupe_key(outbox_place):
    def act(ctx):
        ctx.emit("t", 1, dedupe_key="k")
        ctx.emit("t", 2, dedupe_key="k")

    with opened(outbox_place) as engine:
        engine.sagas.run(Saga("s", [SagaStep("a", act)]))
        assert [message.payload for message in entries(engine)] == [b"1"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"topic": "t", "payload": object()}, "cannot be encoded as JSON"),
        ({"topic": "", "payload": 1}, "topic"),
        ({"topic": "t", "payload": 1, "id": "8d0f"}, "id is made anew"),
        ({"topic": "t", "payload": 1, "key": "k"}, "'key' is no field of a message"),
    ],
)
def test_what_cannot_be_emitted(tmp_path, arguments, text):
    """The step fails, with the reason; nothing is in the outbox."""
    saga = Saga("s", [SagaStep("a", lambda ctx: ctx.emit(**arguments), policy=ONCE)])
    with Engine(f"sqlite:///{tmp_path}/app.db", sinks=[]) as engine:
        with pytest.raises(UsageError, match=text):
            engine.sagas.run(saga)
        assert topics(engine) == []


def test_a_store_that_cannot_hold_an_outbox():
    saga = Saga("s", [SagaStep("a", emitting("t"), policy=ONCE)])
    with Engine(sinks=[]) as engine, pytest.raises(UsageError, match="memory://"):
        engine.sagas.run(saga)


def test_an_outbox_in_another_database(tmp_path, outbox_place):
    """It is refused: the message would not be in the transaction of the state."""
    saga = Saga("s", [SagaStep("a", emitting("t"), policy=ONCE)])
    with (
        opened(outbox_place, outbox=f"sqlite:///{tmp_path}/other.db") as engine,
        pytest.raises(UsageError, match="another database than the sagas"),
    ):
        engine.sagas.run(saga)


def test_the_same_database_by_another_name(outbox_place):
    """Engine(outbox=…) that names the database of the store is as good as none."""
    with opened(outbox_place, outbox=outbox_place.url) as engine:
        engine.sagas.run(Saga("s", [SagaStep("a", emitting("t"))]))
        assert topics(engine) == ["t"]


def test_the_plain_executor_has_no_outbox():
    with pytest.raises(UsageError, match="without an outbox"):
        asyncio.run(SagaExecutor().execute([SagaStep("a", emitting("t"))], "c-1"))
