"""`engine.outbox`: adding on every kind of connection, dead letters, the consumer's note."""

import asyncio
import sqlite3
import unittest.mock
from datetime import UTC, datetime, timedelta

import msgspec
import psycopg
import pydantic
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session

from mainstay import Backoff, Engine, RetryPolicy, events
from mainstay.errors import StoreError, UsageError
from tests.servers.databases import outbox_place, postgres_place, sqlite_place

__all__ = ["outbox_place"]
QUICK = RetryPolicy(max_attempts=2, backoff=Backoff.constant(0.0), attempt_timeout=30.0)


def engine_of(place, **options):
    return Engine(place.url, **{"sinks": [], "audit": False, **options})


def published(engine):
    """What a relay publishes now."""
    got = []
    engine.outbox.relay(got.append).drain()
    return got


def topics(engine):
    return [message.topic for message in published(engine)]


# --- a message ------------------------------------------------------------------------------------


class Created(msgspec.Struct):
    id: int


class Model(pydantic.BaseModel):
    id: int


@pytest.mark.req("EF-10")
@pytest.mark.parametrize(
    ("payload", "data"),
    [({"id": 7}, b'{"id":7}'), (Created(7), b'{"id":7}'), (Model(id=7), b'{"id":7}'), (b"7", b"7")],
)
def test_a_message_arrives_as_it_was_added(outbox_place, payload, data):
    """With its attributes of CloudEvents, and an id that is a UUID."""
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()
        with outbox_place.connect() as connection:
            made = engine.outbox.add(
                connection, topic="user.created.v1", payload=payload, aggregate_type="User",
                aggregate_id="u-1", source="/shop", extensions={"tenant": "t1"},
            )  # fmt: skip
        (message,) = published(engine)
        assert (message.id, message.payload, message.topic) == (made, data, "user.created.v1")
        assert message.attributes.items() >= {
            ("id", made), ("source", "/shop"), ("type", "user.created.v1"), ("subject", "u-1"),
            ("tenant", "t1"), ("specversion", "1.0"),
        }  # fmt: skip
        assert datetime.fromisoformat(message.time) - datetime.now(UTC) < timedelta(minutes=1)
        entry = engine.outbox.get(made)
        assert (entry.state, entry.retry_count) == ("SENT", 0)
        assert entry.published_at >= entry.created_at


@pytest.mark.req("EF-10")
def test_a_rolled_back_transaction_adds_nothing(outbox_place):
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()

        def broken():
            with outbox_place.connect() as connection:
                engine.outbox.add(connection, topic="never", payload={})
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            broken()
        assert topics(engine) == []


def test_a_payload_of_a_megabyte_arrives_whole(outbox_place):
    payload = bytes(range(256)) * 4096
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()
        with outbox_place.connect() as connection:
            engine.outbox.add(connection, topic="large", payload=payload)
        assert published(engine)[0].payload == payload


@pytest.mark.parametrize(
    "fields",
    [
        {"payload": object()},
        {"topic": ""},
        {"delay": -1},
        {"delay": 1, "due": datetime.now(UTC)},
        {"due": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"due": "2020-01-01"},
        {"content_type": "text/plain\r\nX-Evil: 1"},
        {"content_type": "text/plain\n"},
        {"id": ""},
        {"dedupe_key": ""},
        {"aggregate_id": "a\0b"},
        {"no_such_field": 1},
    ],
)
def test_what_cannot_be_added_is_refused_before_anything_is_written(fields):
    """The transaction of the caller goes on without it."""
    connection = sqlite3.connect(":memory:")
    with Engine(sinks=[]) as engine, pytest.raises((UsageError, ValueError)):
        engine.outbox.add(connection, **{"topic": "t", "payload": {}, **fields})
    assert not connection.in_transaction
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    connection.close()


def test_delays_and_due_times(outbox_place):
    """What is due in the past or without a delay is published at once."""
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()
        with outbox_place.connect() as connection:
            add = engine.outbox.add
            add(connection, topic="later", payload={}, delay=timedelta(hours=1))
            add(connection, topic="then", payload={}, due=datetime.now(UTC) + timedelta(hours=1))
            add(connection, topic="now", payload={}, delay=0)
            add(connection, topic="past", payload={}, due=datetime(2020, 1, 1, tzinfo=UTC))
        assert topics(engine) == ["now", "past"]
        assert engine.outbox.counts() == {"PENDING": 2, "SENT": 2}


def test_an_unordered_message_does_not_wait_for_its_aggregate(outbox_place):
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()
        with outbox_place.connect() as connection:
            for ordered in (True, False):
                engine.outbox.add(
                    connection, topic=f"{ordered}", payload={}, aggregate_id="a", ordered=ordered
                )
        assert engine.outbox.get(next(engine.outbox.entries(topic="False")).id).aggregate is None


# --- connections ----------------------------------------------------------------------------------


def sqlalchemy_url(place):
    if place.dialect == "sqlite":
        return place.url
    return place.url.replace("postgresql://", "postgresql+psycopg://")


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_sqlalchemy(outbox_place, kind):
    """A Connection and a Session, in their transactions."""
    made = sqlalchemy.create_engine(sqlalchemy_url(outbox_place))
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()
        if kind == "connection":
            with made.begin() as connection:
                engine.outbox.add(connection, topic="a", payload={}, dedupe_key="k")
            with made.connect() as connection:
                engine.outbox.add(connection, topic="never", payload={})
        else:
            with Session(made) as session:
                engine.outbox.add(session, topic="a", payload={}, dedupe_key="k")
                session.commit()
                engine.outbox.add(session, topic="never", payload={})
        commits = made.connect().execution_options(isolation_level="AUTOCOMMIT")
        with commits as connection, pytest.raises(StoreError, match="commits by itself"):
            engine.outbox.add(connection, topic="a", payload={})
        assert topics(engine) == ["a"]
    made.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_async_sqlalchemy(postgres_url, driver):
    """AsyncConnection and AsyncSession, on two drivers."""
    place = postgres_place(postgres_url)
    base, schema = place.url.split("?options=-csearch_path%3D")
    url = base.replace("postgresql://", f"postgresql+{driver}://")
    given = (
        {"server_settings": {"search_path": schema}}
        if driver == "asyncpg"
        else {"options": f"-csearch_path={schema}"}
    )

    async def main(engine):
        made = create_async_engine(url, connect_args=given)
        async with made.begin() as connection:
            first = await engine.outbox.aadd(connection, topic="a", payload={}, dedupe_key="k")
            again = await engine.outbox.aadd(connection, topic="a", payload={}, dedupe_key="k")
            assert first == again
            with pytest.raises(UsageError, match="async"):
                engine.outbox.add(connection, topic="a", payload={})
        async with AsyncSession(made) as session:
            await engine.outbox.aadd(session, topic="b", payload={"x": 1}, aggregate_id="1")
            await session.commit()
            await engine.outbox.aadd(session, topic="never", payload={})
        scoped = async_scoped_session(async_sessionmaker(made), asyncio.current_task)
        await engine.outbox.aadd(scoped, topic="c", payload={}, aggregate_id="1")
        await scoped.commit()
        await scoped.remove()
        await made.dispose()

    with engine_of(place) as engine:
        asyncio.run(main(engine))
        assert topics(engine) == ["a", "b", "c"]


def test_async_psycopg(postgres_url):
    """An AsyncConnection; one in autocommit without a transaction is refused."""
    place = postgres_place(postgres_url)

    async def main(engine):
        async with await psycopg.AsyncConnection.connect(place.url) as connection:
            await engine.outbox.aadd(connection, topic="a", payload={}, dedupe_key="k")
            async with engine.consumed(connection, "mailer", "8d0f") as fresh:
                assert fresh
        async with await psycopg.AsyncConnection.connect(place.url, autocommit=True) as connection:
            with pytest.raises(StoreError, match=r"with connection\.transaction"):
                await engine.outbox.aadd(connection, topic="never", payload={})
            async with connection.transaction():
                await engine.outbox.aadd(connection, topic="b", payload={})
                async with engine.consumed(connection, "mailer", "8d0f") as fresh:
                    assert not fresh

    with engine_of(place) as engine:
        asyncio.run(main(engine))
        assert topics(engine) == ["a", "b"]


def test_psycopg_in_autocommit_is_refused(postgres_url):
    place = postgres_place(postgres_url)
    with engine_of(place) as engine, psycopg.connect(place.url, autocommit=True) as connection:
        with pytest.raises(StoreError, match="commits by itself"):
            engine.outbox.add(connection, topic="never", payload={})
        connection.row_factory = psycopg.rows.dict_row
        with connection.transaction():
            engine.outbox.add(connection, topic="a", payload={}, dedupe_key="k")
            engine.outbox.add(connection, topic="a", payload={}, dedupe_key="k")
        assert topics(engine) == ["a"]


def test_sqlite3_in_autocommit_is_refused(tmp_path):
    place = sqlite_place(tmp_path)
    connection = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    with engine_of(place) as engine:
        with pytest.raises(StoreError, match="BEGIN"):
            engine.outbox.add(connection, topic="never", payload={})
        connection.execute("BEGIN")
        engine.outbox.add(connection, topic="a", payload={})
        connection.execute("COMMIT")
        assert topics(engine) == ["a"]
    connection.close()


@pytest.fixture
def _django_settings():
    """Settings of Django, and those of before for the tests that come after it."""
    from django.conf import UserSettingsHolder, global_settings, settings

    holder = UserSettingsHolder(global_settings)
    holder.USE_TZ = True
    before, settings._wrapped = settings._wrapped, holder
    yield
    settings._wrapped = before


def django_connections(place):
    """The handler of Django for a place, as `django.db.connections` is one."""
    import django
    from django.db.utils import ConnectionHandler

    django.setup()
    if place.dialect == "sqlite":
        given = {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": place.url.removeprefix("sqlite:///"),
        }
    else:
        known = psycopg.conninfo.conninfo_to_dict(place.url)
        given = {
            "ENGINE": "django.db.backends.postgresql", "NAME": known["dbname"],
            "USER": known["user"], "HOST": known["host"], "PORT": known["port"],
            "OPTIONS": {"options": known["options"]},
        }  # fmt: skip
    return ConnectionHandler({"default": given})


@pytest.mark.usefixtures("_django_settings")
def test_django(outbox_place):
    """A connection of Django, in `atomic()`; outside of it the message is refused."""
    connection = django_connections(outbox_place)["default"]
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()
        with pytest.raises(StoreError, match="atomic"):
            engine.outbox.add(connection, topic="never", payload={})
        connection.set_autocommit(False)
        engine.outbox.add(connection, topic="a", payload=b"\x00%s\xff", dedupe_key="k")
        engine.outbox.add(connection, topic="a", payload={}, dedupe_key="k")
        connection.commit()
        assert [message.payload for message in published(engine)] == [b"\x00%s\xff"]
    connection.close()


@pytest.mark.usefixtures("_django_settings")
def test_the_connection_of_a_request(outbox_place):
    """`django.db.connection`, which leads to that of the thread; in `atomic()`, and in one of it.

    The tables are created with the first message, and what a savepoint rolls back is not there.
    """
    from django.db.transaction import Atomic
    from django.utils.connection import ConnectionProxy

    handler = django_connections(outbox_place)
    connection = ConnectionProxy(handler, "default")

    class Within(Atomic):
        def __enter__(self):
            with patched(handler):
                super().__enter__()

        def __exit__(self, *ended):
            with patched(handler):
                super().__exit__(*ended)

    with engine_of(outbox_place) as engine:
        with pytest.raises(StoreError, match="atomic"):
            engine.outbox.add(connection, topic="never", payload={})
        with Within(None, True, False):
            engine.outbox.add(connection, topic="a", payload={}, aggregate_id="X")
            with pytest.raises(KeyError), Within(None, True, False):
                engine.outbox.add(connection, topic="b", payload={}, aggregate_id="X")
                raise KeyError
            engine.outbox.add(connection, topic="c", payload={}, aggregate_id="X")
        assert topics(engine) == ["a", "c"]
    connection.close()


def patched(handler):
    """What `django.db.transaction` takes connections from."""
    return unittest.mock.patch("django.db.transaction.connections", handler)


def test_what_is_no_connection_is_refused():
    with Engine(sinks=[]) as engine, pytest.raises(StoreError, match="psycopg"):
        engine.outbox.add(object(), topic="t", payload={})


def test_tables_of_sqlite_are_created_in_the_transaction_of_the_first_message(tmp_path):
    """No other connection could: the caller has the lock. A rollback takes them back."""
    place = sqlite_place(tmp_path)
    with engine_of(place) as engine:
        connection = sqlite3.connect(tmp_path / "app.db")
        connection.execute("CREATE TABLE users (id)")
        for ends in (connection.rollback, connection.commit):
            connection.execute("INSERT INTO users VALUES (1)")
            engine.outbox.add(connection, topic="a", payload={})
            ends()
        connection.close()
        assert topics(engine) == ["a"]


def test_missing_tables_of_postgresql_name_the_command(postgres_url):
    """The engine does not know this database."""
    place = postgres_place(postgres_url)
    refused = pytest.raises(StoreError, match="mainstay outbox schema --dialect postgresql")
    with Engine(sinks=[]) as engine, place.connect() as connection, refused:
        engine.outbox.add(connection, topic="a", payload={})


def test_an_engine_with_another_store_has_the_outbox_of_its_url(outbox_place):
    with Engine(sinks=[], outbox=outbox_place.url) as engine:
        with outbox_place.connect() as connection:
            engine.outbox.add(connection, topic="a", payload={})
        assert topics(engine) == ["a"]
    with pytest.raises(StoreError, match="cannot keep an outbox"):
        Engine(sinks=[], outbox="redis://localhost")
    with Engine(sinks=[]) as engine, pytest.raises(StoreError, match="cannot keep an outbox"):
        engine.outbox.relay(print)


# --- dead letters ---------------------------------------------------------------------------------


def dead(engine, place, *names):
    with place.connect() as connection:
        for name in names:
            engine.outbox.add(connection, topic=name, payload={}, id=name, aggregate_id="X")

    def fail(message):
        raise ConnectionError("no route to postgresql://ann:hunter2@broker")

    relay = engine.outbox.relay(fail, policy=QUICK)
    while engine.outbox.counts().get("DEAD", 0) < len(names):
        relay.drain()
    return relay


@pytest.mark.req("EF-10", "CP-15.reported")
def test_dead_letters_are_kept_with_their_history_and_raise_an_item(outbox_place):
    got = []
    with engine_of(outbox_place, sinks=[got.append]) as engine:
        engine.outbox.counts()
        dead(engine, outbox_place, "a")
        (entry,) = engine.outbox.entries("DEAD")
        assert [each.kind for each in entry.history] == ["transient", "transient"]
        assert "hunter2" not in str(entry.history)
        (item,) = engine.inbox
        assert (item.kind, item.subject, item.attempts) == ("dead_letter", "a", 2)
        assert "hunter2" not in item.text
    kinds = [event.event_type for event in got if event.event_type.startswith("outbox")]
    assert kinds == ["outbox_retry", "outbox_dead"]


@pytest.mark.parametrize(("action", "state"), [("retry", "SENT"), ("abandon", "DISCARDED")])
def test_an_operator_decides_about_a_dead_letter(outbox_place, action, state):
    """Retry replays it, with the same id; abandon discards it, and both are audited events."""
    got = []
    with engine_of(outbox_place, sinks=[got.append]) as engine:
        engine.outbox.counts()
        dead(engine, outbox_place, "a")
        engine.operators.add("ann", secret="correct horse")
        (item,) = engine.inbox
        answer = engine.inbox.act(item.id, action, by="ann", proof="correct horse", why="because")
        assert answer.item.status == "closed"
        assert [message.id for message in published(engine)] == ["a"] * (action == "retry")
        assert engine.outbox.get("a").state == state
        assert engine.outbox.settle(answer.item, answer.item.decision).startswith("nothing was")
    found = [event for event in got if event.event_type in ("outbox_replayed", "outbox_discarded")]
    assert [event.operator for event in found] == ["ann"]
    assert isinstance(found[0], events.OutboxReplayed | events.OutboxDiscarded)


def test_a_replay_says_that_it_is_out_of_order(outbox_place):
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()
        dead(engine, outbox_place, "a")
        with outbox_place.connect() as connection:
            engine.outbox.add(connection, topic="b", payload={}, aggregate_id="X")
        engine.outbox.replay("a", by="ann")
        assert [(m.topic, m.is_replay) for m in published(engine)] == [("b", False), ("a", True)]


def test_a_relay_in_a_running_loop_names_the_method_to_await(outbox_place):
    with engine_of(outbox_place) as engine:
        relay = engine.outbox.relay(print)

        async def main():
            for sync, name in ((relay.drain, "adrain"), (relay.run, "arun")):
                with pytest.raises(UsageError, match=f"await relay.{name}"):
                    sync()

        asyncio.run(main())


def test_acting_on_what_is_not_dead_is_refused(outbox_place):
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()
        with pytest.raises(UsageError, match="no message 'none'"):
            engine.outbox.replay("none")
        with outbox_place.connect() as connection:
            engine.outbox.add(connection, topic="a", payload={}, id="a")
        with pytest.raises(UsageError, match="only a dead one"):
            engine.outbox.discard("a", why="why")
        with pytest.raises(UsageError, match="reason"):
            engine.outbox.discard("a", why=" ")
        with pytest.raises(UsageError, match="no state"):
            list(engine.outbox.entries("LOST"))


def test_a_purge_is_explicit(outbox_place):
    got = []
    with engine_of(outbox_place, sinks=[got.append]) as engine:
        engine.outbox.counts()
        with outbox_place.connect() as connection:
            for _ in range(3):
                engine.outbox.add(connection, topic="a", payload={})
        assert len(published(engine)) == 3
        assert engine.outbox.purge(3600.0) == 0
        assert engine.outbox.purge(0.0, limit=2) == 2
        engine.outbox.relay(print, retention=0.0).drain()
        assert engine.outbox.counts() == {}
        assert engine.outbox.age() is None
    assert [event.purged for event in got if event.event_type == "outbox_purged"] == [2]


# --- the consumer ---------------------------------------------------------------------------------


def test_a_consumer_has_each_message_once_in_its_own_transaction(outbox_place):
    """A rollback takes the note back; another consumer has a note of its own."""
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()

        def consume(consumer, *, fails=False):
            place = outbox_place.connect()
            with place as connection, engine.consumed(connection, consumer, "8d0f") as fresh:
                if fails:
                    raise ZeroDivisionError
                return fresh

        with pytest.raises(ZeroDivisionError):
            consume("mailer", fails=True)
        assert [consume("mailer"), consume("mailer"), consume("billing")] == [True, False, True]
        with outbox_place.connect() as connection, pytest.raises(UsageError, match="consumer"):
            engine.consumed(connection, "", "8d0f")


# --- the database of a connection -----------------------------------------------------------------

ELSEWHERE = "another database than"


def other_place(place, tmp_path, request):
    if place.dialect == "sqlite":
        folder = tmp_path / "other"
        folder.mkdir()
        return sqlite_place(folder)
    return postgres_place(request.getfixturevalue("postgres_url"))


@pytest.mark.req("CP-15.reported")
def test_a_connection_to_another_database_is_refused(outbox_place, tmp_path, request):
    """The message would never be published; the same server, or a copy of the table, is no help."""
    other = other_place(outbox_place, tmp_path, request)
    with engine_of(outbox_place) as engine, engine_of(other) as theirs:
        engine.outbox.counts()
        theirs.outbox.counts()
        for _ in range(2):
            with other.connect() as connection, pytest.raises(StoreError, match=ELSEWHERE):
                engine.outbox.add(connection, topic="never", payload={})
            with outbox_place.connect() as connection:
                engine.outbox.add(connection, topic="a", payload={})
                engine.outbox.add(connection, topic="b", payload={})
        assert sorted(topics(engine)) == ["a", "a", "b", "b"]  # of no aggregate: in any order
        assert theirs.outbox.counts() == {}


@pytest.mark.parametrize("kind", ["connection", "session"])
def test_an_engine_of_sqlalchemy_for_another_database(outbox_place, tmp_path, request, kind):
    other = other_place(outbox_place, tmp_path, request)
    made = sqlalchemy.create_engine(sqlalchemy_url(other))
    with engine_of(outbox_place) as engine, engine_of(other) as theirs:
        theirs.outbox.counts()
        with (
            made.connect() if kind == "connection" else Session(made) as connection,
            pytest.raises(StoreError, match=ELSEWHERE),
        ):
            engine.outbox.add(connection, topic="never", payload={})
    made.dispose()


def test_an_async_connection_to_another_database(postgres_url):
    place, other = postgres_place(postgres_url), postgres_place(postgres_url)

    async def main():
        made = create_async_engine(sqlalchemy_url(other))
        async with made.connect() as connection, AsyncSession(made) as session:
            for given in (connection, session):
                with pytest.raises(StoreError, match=ELSEWHERE):
                    await engine.outbox.aadd(given, topic="never", payload={})
        await made.dispose()
        async with await psycopg.AsyncConnection.connect(other.url) as connection:
            with pytest.raises(StoreError, match=ELSEWHERE):
                await engine.outbox.aadd(connection, topic="never", payload={})

    with engine_of(place) as engine, engine_of(other) as theirs:
        theirs.outbox.counts()
        asyncio.run(main())


def test_a_connection_of_the_other_kind(postgres_url, tmp_path):
    sqlite, postgres = sqlite_place(tmp_path), postgres_place(postgres_url)
    for place, other in ((sqlite, postgres), (postgres, sqlite)):
        with engine_of(place) as engine, engine_of(other) as theirs:
            theirs.outbox.counts()
            with other.connect() as connection, pytest.raises(StoreError, match=ELSEWHERE):
                engine.outbox.add(connection, topic="never", payload={})


def test_a_database_is_asked_once(outbox_place):
    """Further messages cost a look into a set: of a connection of PostgreSQL, of a path of SQLite.

    A second question would fail.
    """
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()
        with outbox_place.connect() as connection:
            engine.outbox.add(connection, topic="a", payload={})
            engine.outbox._expected._own = engine.outbox._expected._find = None
            engine.outbox.add(connection, topic="b", payload={})
        assert topics(engine) == ["a", "b"]


def test_a_server_that_was_started_anew(outbox_place):
    """What was known of the engine's own database is found out again before it refuses."""
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()
        engine.outbox._ready()
        engine.outbox._expected._own = ("before", "1", "2")
        with outbox_place.connect() as connection:
            engine.outbox.add(connection, topic="a", payload={})
        assert topics(engine) == ["a"]


def test_the_same_file_by_another_path(tmp_path):
    """A link, or a relative path, leads to the same database."""
    place = sqlite_place(tmp_path)
    with engine_of(place) as engine:
        (tmp_path / "link.db").symlink_to(tmp_path / "app.db")
        connection = sqlite3.connect(tmp_path / "link.db")
        with connection:
            engine.outbox.add(connection, topic="a", payload={})
        connection.close()
        memory = sqlite3.connect(":memory:")
        with pytest.raises(StoreError, match=ELSEWHERE):
            engine.outbox.add(memory, topic="never", payload={})
        memory.close()
        assert topics(engine) == ["a"]


def test_an_engine_that_has_no_relay_checks_nothing(tmp_path):
    """A store in memory, or in Redis: the relay is another process's."""
    connection = sqlite3.connect(tmp_path / "app.db")
    with Engine(sinks=[]) as engine, connection:
        added = engine.outbox.add(connection, topic="a", payload={})
    rows = connection.execute("SELECT id, topic FROM mainstay_outbox").fetchall()
    connection.close()
    assert rows == [(added, "a")]


# --- two operators at once ------------------------------------------------------------------------


def at_once(*works):
    """What several calls return or raise that are made at the same time."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    barrier = Barrier(len(works))

    def run(work):
        barrier.wait(60.0)
        try:
            return work()
        except UsageError as error:
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def test_a_replay_that_is_refused_ends_its_transaction(postgres_url):
    """A connection that was closed instead keeps the row locked until the server notices."""
    url = postgres_place(postgres_url).url
    with psycopg.connect(url, autocommit=True) as other:

        def clients():
            query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
            return set(other.execute(query).fetchall())

        before = clients()
        with Engine(url, sinks=[], audit=False) as engine:
            engine.outbox.counts()
            with other.transaction():
                message = engine.outbox.add(other, topic="a", payload={})
            ours = clients() - before
            with pytest.raises(UsageError, match="only a dead one"):
                engine.outbox.replay(message, by="ann")
            assert engine.outbox.get(message).state == "PENDING"
            assert ours <= clients()


@pytest.mark.req("EF-10")
def test_two_operators_replay_one_dead_letter(outbox_place):
    """One of them does, the other is told why not; the message is published once more."""
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()
        dead(engine, outbox_place, "a")
        replay, discard = engine.outbox.replay, engine.outbox.discard
        answers = at_once(
            lambda: replay("a", by="ann"),
            lambda: replay("a", by="ben"),
            lambda: discard("a", by="eve", why="a mistake"),
        )
        refused = [each for each in answers if isinstance(each, UsageError)]
        assert len(refused) == 2
        assert all("only a dead one" in str(each) for each in refused)
        history = [each.kind for each in engine.outbox.get("a").history]
        assert history.count("replay") + history.count("discard") == 1
        assert len(published(engine)) == history.count("replay")


def test_an_operator_acts_on_the_item_of_a_message_that_another_has_replayed(outbox_place):
    """The item is closed with what it found; nothing is published twice."""
    with engine_of(outbox_place) as engine:
        engine.outbox.counts()
        dead(engine, outbox_place, "a")
        engine.operators.add("ann", secret="correct horse battery")
        (item,) = engine.inbox
        engine.outbox.replay("a", by="ben")
        assert len(published(engine)) == 1
        answer = engine.inbox.act(item.id, "retry", by="ann", proof="correct horse battery")
        assert not answer.won
        assert answer.item.result == "the message was replayed by ben"
        assert published(engine) == []
