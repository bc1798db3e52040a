"""The outbox and the compensating event of the document on an engine: entries, worker, undo."""

import asyncio
import sqlite3
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

from mainstay import Engine, RetryPolicy
from mainstay.profiles import effects
from mainstay.profiles.effects import InfraConnectionError, OutboxEntry, outbox_publisher_worker
from mainstay.testing import virtual_time


class Created(BaseModel):
    """A payload."""

    user_id: str


def entry(**fields):
    """An entry of the outbox for user 2."""
    return OutboxEntry(**{
        "id": uuid4(), "aggregate_type": "User", "aggregate_id": UUID(int=2),
        "event_type": "user.created.v1", "payload": Created(user_id="u-2"),
        "created_at": datetime.now(UTC), **fields,
    })  # fmt: skip


class Bus:
    """An event bus; `publish` fails for the first few calls."""

    def __init__(self, failures=0):
        self.failures, self.published, self.calls = failures, [], 0
        self.is_over = asyncio.Event()

    async def publish(self, *, topic, event, correlation_id):
        self.calls += 1
        if self.calls <= self.failures:
            raise InfraConnectionError("broker down")
        self.published.append((topic, event, correlation_id))
        self.is_over.set()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "app.db"


@pytest.fixture
def engine(path):
    with Engine(f"sqlite:///{path}", sinks=[], audit=False) as made:
        yield made


def add(engine, path, *entries):
    """Adds entries in one transaction; returns whether it was committed."""
    connection = sqlite3.connect(path)
    try:
        with connection:
            return [each.add(engine, connection) for each in entries]
    finally:
        connection.close()


async def work(engine, bus, until, **options):
    """Runs the worker until something has happened."""
    worker = asyncio.create_task(outbox_publisher_worker(engine, bus, **options))
    await until()
    worker.cancel()
    await asyncio.wait([worker])
    assert worker.cancelled()


@pytest.mark.req("EF-10")
def test_the_worker_publishes_what_was_added(engine, path):
    """With the topic of the entry, its payload, and its id as the correlation id."""
    added = entry()
    assert add(engine, path, added) == [str(added.id)]

    async def main():
        bus = Bus()
        await work(engine, bus, bus.is_over.wait)
        return bus.published

    assert asyncio.run(main()) == [("user.created.v1", {"user_id": "u-2"}, added.id)]


@pytest.mark.req("EF-10")
def test_an_entry_of_a_transaction_that_is_rolled_back_is_not_there(engine, path):
    """As the row that it reports."""
    engine.outbox.relay(print).drain()  # creates the table
    connection = sqlite3.connect(path)
    entry().add(engine, connection)
    connection.rollback()
    connection.close()
    assert engine.outbox.relay(print).drain().published == 0


@pytest.mark.req("EF-10")
def test_an_entry_is_dead_after_three_retries(engine, path):
    """The fourth failure: it is not published again, and an inbox item asks a person."""
    add(engine, path, entry())
    policy = RetryPolicy(max_attempts=4, attempt_timeout=30.0).replace(
        backoff=effects.EffectRetryConfig(initial_delay_seconds=0.01).policy().backoff
    )

    async def main():
        bus = Bus(failures=99)

        async def dead():
            while not list(engine.inbox):  # noqa: ASYNC110 -- written by the relay's thread
                await asyncio.sleep(0.02)

        await work(engine, bus, dead, policy=policy, poll=0.05)
        return bus.calls

    assert asyncio.run(main()) == 4
    (item,) = engine.inbox
    assert "user.created.v1" in item.text


def test_a_message_that_others_have_added_is_published_too(engine, path):
    """Its id need not be a UUID, nor its payload JSON."""
    connection = sqlite3.connect(path)
    with connection:
        engine.outbox.add(connection, topic="raw", payload=b"\x00", id="m-1")
    connection.close()

    async def main():
        bus = Bus()
        await work(engine, bus, bus.is_over.wait)
        return bus.published

    assert asyncio.run(main()) == [("raw", b"\x00", "m-1")]


# --- the compensating event -----------------------------------------------------------------------


async def create_user(orchestrator, users, bus, user_id):
    """Inserts a user and publishes that; if it cannot be published, neither is there."""
    users.add(user_id)

    async def failed_event(failure):
        await bus.publish(
            topic="user.creation-failed.v1", event=str(failure.error), correlation_id=user_id
        )

    async with orchestrator.compensation(
        "create_user",
        undo=lambda: users.discard(user_id),
        publish=failed_event,
        key=user_id,
        on=InfraConnectionError,
    ):
        await bus.publish(topic="user.created.v1", event={}, correlation_id=user_id)


@pytest.mark.req("EF-08", "EF-12")
@pytest.mark.parametrize(
    ("failures", "topics"),
    [(0, ["user.created.v1"]), (1, ["user.creation-failed.v1"]), (99, [])],
    ids=["published", "compensated", "for a person"],
)
def test_a_partial_failure_is_compensated(failures, topics):
    """The user is gone, the failed event is out or an item asks for it, and the error is raised."""
    seen, users = [], set()

    async def main():
        bus = Bus(failures)
        with effects.Orchestrator(sinks=[seen.append]) as orchestrator:
            if failures:
                with pytest.raises(InfraConnectionError, match="broker down"):
                    await create_user(orchestrator, users, bus, "u-1")
            else:
                await create_user(orchestrator, users, bus, "u-1")
            return [topic for topic, *_ in bus.published], list(orchestrator.engine.inbox)

    with virtual_time():
        published, items = asyncio.run(main())
    assert published == topics
    assert users == (set() if failures else {"u-1"})
    assert len(items) == (1 if failures else 0)
    names = [event.event_type for event in seen]
    assert ("effect_partially_failed" in names) is bool(failures)
