"""`engine.outbox` on connections that are set up in unusual ways: which are one transaction."""

import asyncio
import contextlib
import sqlite3
import sys

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from mainstay import Engine
from mainstay.errors import StoreError
from tests.servers.databases import outbox_place, postgres_place, sqlite_place

__all__ = ["outbox_place"]
REFUSED = "commits by itself"
ELSEWHERE = "another database than"


def engine_of(place):
    return Engine(place.url, sinks=[], audit=False)


def topics(engine):
    got = []
    engine.outbox.relay(got.append).drain()
    return [message.topic for message in got]


def with_driver(place, driver):
    """The URL of SQLAlchemy for a place, with a driver, and what the driver is given."""
    if place.dialect == "sqlite":
        return place.url.replace("sqlite:", f"sqlite+{driver}:"), {}
    base, schema = place.url.split("?options=-csearch_path%3D")
    url = base.replace("postgresql://", f"postgresql+{driver}://")
    if driver == "asyncpg":
        return url, {"server_settings": {"search_path": schema}}
    return url, {"options": f"-csearch_path={schema}"}


# --- autocommit -----------------------------------------------------------------------------------


def sync_drivers(place):
    return ["pysqlite"] if place.dialect == "sqlite" else ["psycopg", "psycopg2"]


def refuses(engine, connection):
    """Neither a message nor a note is taken."""
    with pytest.raises(StoreError, match=REFUSED):
        engine.outbox.add(connection, topic="never", payload={})
    with pytest.raises(StoreError, match=REFUSED), engine.consumed(connection, "mailer", "8d0f"):
        pass


@pytest.mark.req("EF-10")
@pytest.mark.parametrize("way", ["engine", "engine options", "connection options", "event"])
def test_an_engine_of_sqlalchemy_in_autocommit_is_refused(outbox_place, way):
    """However that was set: the message would stay when the change is rolled back."""
    for driver in sync_drivers(outbox_place):
        url, given = with_driver(outbox_place, driver)
        level = {"isolation_level": "AUTOCOMMIT"}
        made = sqlalchemy.create_engine(
            url, connect_args=given, **(level if way == "engine" else {})
        )
        if way == "event":

            @sqlalchemy.event.listens_for(made, "connect")
            def sets_it(connection, _record):
                if outbox_place.dialect == "sqlite":
                    connection.isolation_level = None
                else:
                    connection.autocommit = True

        made = made.execution_options(**level) if way == "engine options" else made
        with engine_of(outbox_place) as engine:
            engine.outbox.counts()
            options = level if way == "connection options" else {}
            with made.connect().execution_options(**options) as connection:
                refuses(engine, connection)
            if way != "connection options":
                with Session(made) as session:
                    refuses(engine, session)
            assert topics(engine) == []
        made.dispose()


@pytest.mark.req("EF-10")
def test_a_driver_in_autocommit_behind_sqlalchemy_is_refused(postgres_url):
    """The arguments of the driver, of which SQLAlchemy knows nothing."""
    place = postgres_place(postgres_url)
    url, given = with_driver(place, "psycopg")
    made = sqlalchemy.create_engine(url, connect_args={**given, "autocommit": True})
    with engine_of(place) as engine:
        with made.connect() as connection:
            refuses(engine, connection)
        assert topics(engine) == []
    made.dispose()


@pytest.mark.req("EF-10")
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg", "aiosqlite"])
def test_an_async_engine_of_sqlalchemy_in_autocommit_is_refused(request, tmp_path, driver):
    """AsyncConnection and AsyncSession; without autocommit both are taken."""
    pytest.importorskip(driver)
    is_file = driver == "aiosqlite"
    place = (
        sqlite_place(tmp_path)
        if is_file
        else postgres_place(request.getfixturevalue("postgres_url"))
    )
    url, given = with_driver(place, driver)

    async def main(engine):
        made = create_async_engine(url, connect_args=given, isolation_level="AUTOCOMMIT")
        async with made.connect() as connection, AsyncSession(made) as session:
            for each in (connection, session):
                with pytest.raises(StoreError, match=REFUSED):
                    await engine.outbox.aadd(each, topic="never", payload={})
                with pytest.raises(StoreError, match=REFUSED):
                    async with engine.consumed(each, "mailer", "8d0f"):
                        pass
        await made.dispose()
        made = create_async_engine(url, connect_args=given)
        for kind in (made.connect, lambda: AsyncSession(made)):
            async with kind() as each:
                await engine.outbox.aadd(each, topic="a", payload={}, dedupe_key="k")
                await each.rollback()
                await engine.outbox.aadd(each, topic="a", payload={})
                await each.commit()
        await made.dispose()

    with engine_of(place) as engine:
        engine.outbox.counts()
        asyncio.run(main(engine))
        assert topics(engine) == ["a", "a"]


def test_a_transaction_that_was_begun_by_hand_is_one(outbox_place):
    """As SQLAlchemy's own recipe for SQLite has it: the driver in autocommit, and an own BEGIN."""
    for driver in sync_drivers(outbox_place):
        url, given = with_driver(outbox_place, driver)
        made = sqlalchemy.create_engine(url, connect_args=given, isolation_level="AUTOCOMMIT")

        @sqlalchemy.event.listens_for(made, "begin")
        def begin(connection):
            connection.exec_driver_sql("BEGIN")

        with engine_of(outbox_place) as engine:
            engine.outbox.counts()
            with made.connect() as connection:
                engine.outbox.add(connection, topic="a", payload={})
                connection.exec_driver_sql("ROLLBACK")
            with made.begin() as connection:
                engine.outbox.add(connection, topic="b", payload={})
                connection.exec_driver_sql("COMMIT")
            assert topics(engine) == ["b"]
        made.dispose()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no autocommit before")
@pytest.mark.parametrize("is_sqlalchemy", [False, True])
def test_autocommit_of_sqlite3(tmp_path, is_sqlalchemy):
    """True is refused without a BEGIN; False is always a transaction, whatever the level is."""
    place, path = sqlite_place(tmp_path), tmp_path / "app.db"
    with engine_of(place) as engine, contextlib.ExitStack() as stack:
        for given in ({"autocommit": True}, {"autocommit": False, "isolation_level": None}):
            if is_sqlalchemy:
                made = sqlalchemy.create_engine(place.url, connect_args=given)
                stack.callback(made.dispose)
                connection = made.connect()
            else:
                connection = sqlite3.connect(path, **given)
            if given["autocommit"]:
                refuses(engine, connection)
            else:
                engine.outbox.add(connection, topic="never", payload={})
                connection.rollback()
                engine.outbox.add(connection, topic="a", payload={})
                connection.commit()
            connection.close()
        assert topics(engine) == ["a"]


def test_a_transaction_that_was_begun_by_hand_on_an_async_engine(tmp_path):
    """The event that begins it needs the driver, also before the first statement."""
    pytest.importorskip("aiosqlite")
    place = sqlite_place(tmp_path)

    async def main(engine):
        made = create_async_engine(with_driver(place, "aiosqlite")[0], isolation_level="AUTOCOMMIT")

        @sqlalchemy.event.listens_for(made.sync_engine, "begin")
        def begin(connection):
            connection.exec_driver_sql("BEGIN")

        for topic in ("never", "a"):
            async with made.connect() as connection:
                await engine.outbox.aadd(connection, topic=topic, payload={})
                await connection.exec_driver_sql("ROLLBACK" if topic == "never" else "COMMIT")
        await made.dispose()

    with engine_of(place) as engine:
        asyncio.run(main(engine))
        assert topics(engine) == ["a"]


# --- factories of sqlite3 -------------------------------------------------------------------------


def as_dict(cursor, row):
    """The factory of Python's documentation."""
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize(
    "given",
    [
        {"row_factory": as_dict},
        {"row_factory": sqlite3.Row},
        {"row_factory": lambda _cursor, row: row[0]},
        {"text_factory": bytes},
        {"text_factory": bytearray},
        {"text_factory": lambda data: ("text", data)},
    ],
)
def test_any_row_factory_and_any_text_factory(tmp_path, given):
    """Messages, dedupe keys and notes; tables are created, and another file is refused."""
    place = sqlite_place(tmp_path)
    with engine_of(place) as engine:
        connection, other = (sqlite3.connect(tmp_path / name) for name in ("app.db", "other.db"))
        for name, value in given.items():
            setattr(connection, name, value)
            setattr(other, name, value)
        with connection:
            first = engine.outbox.add(connection, topic="a", payload={}, dedupe_key="k")
            assert engine.outbox.add(connection, topic="b", payload={}, dedupe_key="k") == first
            notes = [engine.consumed(connection, "mailer", "8d0f") for _ in range(2)]
            assert [note.__enter__() for note in notes] == [True, False]
        with pytest.raises(StoreError, match=ELSEWHERE):
            engine.outbox.add(other, topic="never", payload={})
        assert topics(engine) == ["a"]
        connection.close()
        other.close()


# --- pipelines of psycopg -------------------------------------------------------------------------


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_pipeline_of_psycopg(postgres_url, autocommit):
    """Messages and notes, in the transaction of the pipeline; in autocommit one is needed."""
    place = postgres_place(postgres_url)
    with (
        engine_of(place) as engine,
        psycopg.connect(place.url, autocommit=autocommit) as connection,
    ):
        engine.outbox.counts()
        with connection.pipeline():
            if autocommit:
                refuses(engine, connection)
                connection.execute("SELECT 1")  # the pipeline is busy, and in no transaction
                refuses(engine, connection)
            for name in "ab":
                with connection.transaction(force_rollback=name == "b"):
                    engine.outbox.add(connection, topic=name, payload={}, aggregate_id="X")
                    first = engine.outbox.add(connection, topic="k", payload={}, dedupe_key="k")
                    again = engine.outbox.add(connection, topic="k", payload={}, dedupe_key="k")
                    assert first == again
                    with engine.consumed(connection, "mailer", name) as fresh:
                        assert fresh
        connection.execute("BEGIN" if autocommit else "SELECT 1")
        with connection.pipeline():
            connection.execute("SELECT 1")
            engine.outbox.add(connection, topic="c", payload={}, aggregate_id="X")
        connection.execute("COMMIT")
        assert sorted(topics(engine)) == ["a", "c", "k"]


def test_an_async_pipeline_of_psycopg(postgres_url):
    place = postgres_place(postgres_url)

    async def main(engine):
        connect = psycopg.AsyncConnection.connect
        for autocommit in (False, True):
            async with await connect(place.url, autocommit=autocommit) as connection:
                async with connection.pipeline(), connection.transaction():
                    await engine.outbox.aadd(connection, topic="a", payload={})
                    await engine.outbox.aadd(connection, topic="b", payload={}, dedupe_key="k")
                    async with engine.consumed(connection, "mailer", "8d0f") as fresh:
                        assert fresh is not autocommit
                async with connection.pipeline():
                    await connection.execute("SELECT 1")
                    if autocommit:
                        with pytest.raises(StoreError, match=REFUSED):
                            await engine.outbox.aadd(connection, topic="never", payload={})
                    else:
                        await engine.outbox.aadd(connection, topic="c", payload={})

    with engine_of(place) as engine:
        engine.outbox.counts()
        asyncio.run(main(engine))
        assert sorted(topics(engine)) == ["a", "a", "b", "c"]


# --- which database -------------------------------------------------------------------------------


def test_another_file_is_refused_whatever_connection_was_there_before(tmp_path):
    """Python gives the number of an object that is gone to the next one."""
    place, other = sqlite_place(tmp_path), tmp_path / "other.db"
    with engine_of(place) as engine:
        for _ in range(20):
            connection = sqlite3.connect(tmp_path / "app.db")
            with connection:
                engine.outbox.add(connection, topic="a", payload={})
            connection.close()
            del connection
            connection = sqlite3.connect(other)
            connection.execute("CREATE TABLE IF NOT EXISTS users (id)")
            with connection:
                connection.executemany("INSERT INTO users VALUES (?)", [(1,)] * 5)
                with pytest.raises(StoreError, match=ELSEWHERE):
                    engine.outbox.add(connection, topic="never", payload={})
            query = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'mainstay%'"
            assert connection.execute(query).fetchone() == (0,)
            connection.close()
            del connection
        assert topics(engine) == ["a"] * 20


@pytest.mark.parametrize("is_sqlalchemy", [False, True])
def test_a_file_that_is_attached_is_ours_if_the_message_is_written_to_it(tmp_path, is_sqlalchemy):
    """Without tables they would be created in the file of the connection."""
    place, other = sqlite_place(tmp_path), tmp_path / "other.db"

    def attached():
        made = sqlalchemy.create_engine(f"sqlite:///{other}", poolclass=sqlalchemy.NullPool)
        connection = made.connect() if is_sqlalchemy else sqlite3.connect(other)
        execute = connection.exec_driver_sql if is_sqlalchemy else connection.execute
        execute(f'ATTACH DATABASE \'{tmp_path / "app.db"}\' AS "th""em"')
        return connection

    with engine_of(place) as engine:
        connection = attached()
        with pytest.raises(StoreError, match=ELSEWHERE):
            engine.outbox.add(connection, topic="never", payload={})
        connection.close()
        engine.outbox.counts()  # creates the tables
        connection = attached()
        engine.outbox.add(connection, topic="a", payload={})
        connection.commit()
        connection.close()
        with Engine(f"sqlite:///{other}", sinks=[], audit=False) as others:
            others.outbox.counts()  # the file of the connection comes first, now that it has them
        connection = attached()
        with pytest.raises(StoreError, match=ELSEWHERE):
            engine.outbox.add(connection, topic="never", payload={})
        connection.close()
        assert topics(engine) == ["a"]


def test_a_temporary_table_in_front_is_refused(tmp_path):
    place = sqlite_place(tmp_path)
    with engine_of(place) as engine:
        engine.outbox.counts()
        connection = sqlite3.connect(tmp_path / "app.db")
        connection.execute("CREATE TEMP TABLE users (id)")
        with connection:
            engine.outbox.add(connection, topic="a", payload={})
        connection.execute("CREATE TEMP TABLE mainstay_outbox (id)")
        with pytest.raises(StoreError, match=ELSEWHERE):
            engine.outbox.add(connection, topic="never", payload={})
        connection.close()
        assert topics(engine) == ["a"]
