"""The attempts at one transaction, and what psycopg and SQLAlchemy each have of their own."""

import asyncio
import contextlib
import sqlite3

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

import mainstay
from mainstay.integrations import psycopg as for_psycopg
from mainstay.integrations import sqlalchemy as for_sqlalchemy
from mainstay.integrations.transactions import Runs, named
from tests.integrations.transaction_hands import scheme

POLICY = mainstay.RetryPolicy(
    on=mainstay.transient, attempts=3, backoff=mainstay.Backoff.constant(0.001)
)


def lost():
    """A connection that was lost, as psycopg reports it."""
    return psycopg.OperationalError("server closed the connection unexpectedly")


def refused():
    return psycopg.errors.SerializationFailure("could not serialize access")


# --- attempts -------------------------------------------------------------------------------------


def rows(connection):
    """A generator: calling it runs nothing."""
    yield connection


async def async_rows(connection):
    """The same."""
    yield connection


@pytest.mark.parametrize("function", [rows, async_rows])
def test_a_generator_function_is_refused(function):
    """Its statements would be run after an empty transaction, on a connection given back."""
    with pytest.raises(mainstay.WrapError, match="generator function"):
        Runs(function, idempotent=False)


def test_a_failure_before_commit_leaves_the_way_free():
    """Also one that would be ambiguous of a single statement: the server rolls back."""
    runs = Runs(print, idempotent=False)
    runs.failed(runs.begin(), lost())
    assert runs.begin() == 2


def test_a_commit_that_the_server_refused_leaves_the_way_free():
    """It has answered, with a code."""
    runs = Runs(print, idempotent=False)
    number = runs.begin()
    runs.commits(number)
    runs.failed(number, refused())
    assert runs.begin() == 2


@pytest.mark.parametrize("error", [lost(), TimeoutError(), ConnectionResetError()])
def test_a_commit_without_an_answer_ends_it(error):
    """Whatever it failed with, and whatever the policy then does."""
    runs = Runs(print, idempotent=False)
    number = runs.begin()
    runs.commits(number)
    with pytest.raises(mainstay.OutcomeUnknown, match="print") as caught:
        runs.failed(number, error)
    assert caught.value.__cause__ is error
    assert caught.value.hint == "look before repeating it; idempotent=True if it may run twice"
    with pytest.raises(mainstay.OutcomeUnknown):
        runs.begin()


def test_an_attempt_that_was_cut_in_its_commit_ends_it():
    """A timeout cancels the attempt: nothing is raised in it that could be looked at."""
    runs = Runs(print, idempotent=False)
    runs.commits(runs.begin())
    with pytest.raises(mainstay.OutcomeUnknown):
        runs.begin()


def test_a_call_that_ends_in_its_commit_ends_in_doubt():
    """Its deadline was over. One that ended before COMMIT is in no doubt, nor an idempotent one."""
    late = mainstay.DeadlineExceeded(1.0)
    for idempotent in (False, True):
        runs = Runs(print, idempotent=idempotent)
        assert end(runs, late) is late
        runs.commits(runs.begin())
    assert end(runs, late) is late
    runs = Runs(print, idempotent=False)
    runs.commits(runs.begin())
    unknown = end(runs, late)
    assert isinstance(unknown, mainstay.OutcomeUnknown)
    assert unknown.__cause__ is late
    assert end(runs, unknown) is unknown
    assert isinstance(end(runs, KeyboardInterrupt()), KeyboardInterrupt)


def end(runs, error):
    """What comes of a call of the transaction that ends with an error."""
    with pytest.raises(BaseException) as caught, runs:
        raise error
    return caught.value


def test_an_attempt_that_was_abandoned_does_not_commit():
    """It is still running, in a thread, when the next one has begun."""
    runs = Runs(print, idempotent=False)
    abandoned, newer = runs.begin(), runs.begin()
    with pytest.raises(mainstay.CallCancelled):
        runs.commits(abandoned)
    runs.commits(newer)
    runs.committed()


def test_an_idempotent_transaction_is_run_again_whatever_failed():
    """And a failure of the second run before COMMIT is not taken for one of COMMIT."""
    runs = Runs(print, idempotent=True)
    number = runs.begin()
    runs.commits(number)
    runs.failed(number, lost())
    runs.failed(runs.begin(), lost())
    assert runs.begin() == 3


def test_an_attempt_has_the_name_of_the_function():
    """Records and messages are about the user's function; a partial has none."""

    def attempt():
        pass

    assert named(attempt, print).__qualname__ == "print"
    assert Runs(object(), idempotent=True).name == "object"


# --- psycopg --------------------------------------------------------------------------------------


def test_a_connection_in_a_transaction_is_refused(postgres_url):
    """What was done in it before could not be repeated."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SELECT 1")
        with pytest.raises(mainstay.UsageError, match="in a transaction"):
            for_psycopg.run_transaction(connection, print, policy=POLICY)


def test_a_plain_connection_is_used_as_it_is(postgres_url):
    """Twice, in autocommit too; it stays open, and its own waits are as before."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for _ in range(2):
            with mainstay.deadline.within(20.0):
                found = for_psycopg.run_transaction(
                    connection, lambda used: used.execute("SELECT 42").fetchone(), policy=POLICY
                )
            assert found == (42,)
        assert "wait" not in vars(connection)


def test_a_failure_that_the_function_swallowed_is_not_taken_for_success(postgres_url):
    """The server answers COMMIT with a rollback then, and no error."""

    def swallow(connection):
        with contextlib.suppress(psycopg.Error):
            connection.execute("SELECT * FROM nowhere")

    failed = pytest.raises(psycopg.errors.InFailedSqlTransaction)
    with psycopg.connect(postgres_url) as connection, failed:
        for_psycopg.run_transaction(connection, swallow, policy=POLICY)

    async def aswallow(connection):
        with contextlib.suppress(psycopg.Error):
            await connection.execute("SELECT * FROM nowhere")

    async def main():
        opened = await psycopg.AsyncConnection.connect(postgres_url)
        async with opened as connection:
            await for_psycopg.arun_transaction(connection, aswallow, policy=POLICY)

    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        asyncio.run(main())


def test_a_rollback_on_purpose_returns_none(postgres_url):
    """As a transaction block of psycopg takes it."""

    def leave(connection):
        raise psycopg.Rollback

    with psycopg.connect(postgres_url) as connection:
        assert for_psycopg.run_transaction(connection, leave, policy=POLICY) is None


def test_an_async_function_opens_the_connection_of_each_attempt(postgres_url):
    """It is closed when the attempt has ended."""
    opened = []

    async def connect():
        opened.append(await psycopg.AsyncConnection.connect(postgres_url))
        return opened[-1]

    async def fail(connection):
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        asyncio.run(for_psycopg.arun_transaction(connect, fail, policy=POLICY))
    assert [connection.closed for connection in opened] == [True] * 3


def test_a_plain_async_connection_is_used_as_it_is(postgres_url):
    """Twice; the limit of its session is looked up once."""

    async def one(connection):
        return await (await connection.execute("SELECT 42")).fetchone()

    async def main():
        opened = await psycopg.AsyncConnection.connect(postgres_url)
        async with opened as connection:
            with mainstay.deadline.within(20.0):
                run = for_psycopg.arun_transaction
                found = [await run(connection, one, policy=POLICY) for _ in range(2)]
            assert "wait" not in vars(connection)
        return found

    assert asyncio.run(main()) == [(42,)] * 2


# --- SQLAlchemy -----------------------------------------------------------------------------------


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "accounts"
    id: Mapped[int] = mapped_column(primary_key=True)
    n: Mapped[int]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "shop.db"


@pytest.fixture
def engine(path):
    made = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": 0.0})
    Base.metadata.create_all(made)
    yield made
    made.dispose()


def add(session):
    session.add(Account(id=1, n=1))


def test_a_locked_database_runs_the_session_again(engine, path):
    """What the session had is read, and written, anew; the row is there once."""
    runs = []
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")

        def transaction(session):
            runs.append(session)
            if len(runs) == 2:
                other.rollback()
            add(session)

        for_sqlalchemy.run_transaction(sessionmaker(engine), transaction, policy=POLICY)
        assert other.execute("SELECT count(*) FROM accounts").fetchone() == (1,)
    assert len(set(map(id, runs))) == len(runs) == 2


def test_the_sources_of_sqlalchemy(engine):
    """Each of them, and a connection and a session are left open."""
    count = sqlalchemy.text("SELECT count(*) FROM accounts")
    with engine.connect() as connection, Session(engine) as session:
        for source in (engine, connection, session, sessionmaker(engine)):
            found = for_sqlalchemy.run_transaction(
                source, lambda used: used.execute(count).scalar(), policy=POLICY
            )
            assert found == 0
        assert not connection.closed
    with pytest.raises(mainstay.UsageError, match="str is no sessionmaker"):
        for_sqlalchemy.run_transaction("shop.db", print, policy=POLICY)


def test_the_async_sources_of_sqlalchemy(postgres_url):
    """The same; one of the wrong colour is refused."""
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

    async def one(used):
        return (await used.execute(sqlalchemy.text("SELECT 1"))).scalar()

    async def main():
        engine = create_async_engine(scheme(postgres_url, "asyncpg"))
        async with engine.connect() as connection, AsyncSession(engine) as session:
            for source in (engine, connection, session, async_sessionmaker(engine)):
                assert await for_sqlalchemy.arun_transaction(source, one, policy=POLICY) == 1
        with pytest.raises(mainstay.UsageError, match="arun_transaction for the async"):
            for_sqlalchemy.run_transaction(engine, print, policy=POLICY)
        await engine.dispose()

    asyncio.run(main())


def autocommit_sources(url, **options):
    """Those that SQLAlchemy knows of, by its engine or by an option."""
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT", **options)
    plain = sqlalchemy.create_engine(url, **options)
    optional = plain.execution_options(isolation_level="AUTOCOMMIT")
    connection = plain.connect().execution_options(isolation_level="AUTOCOMMIT")
    yield from (engine, optional, connection)
    yield from (sessionmaker(engine), Session(optional), Session(connection))
    connection.close()
    engine.dispose()
    plain.dispose()


def test_autocommit_is_refused_by_sqlalchemy(path):
    """Nothing would be rolled back: each attempt would leave its statements behind."""
    for source in autocommit_sources(f"sqlite:///{path}"):
        with pytest.raises(mainstay.UsageError, match="in autocommit"):
            for_sqlalchemy.run_transaction(source, pytest.fail, policy=POLICY)


def test_a_driver_of_sqlite_in_autocommit_is_refused_unless_an_event_begins(path):
    """The event is SQLAlchemy's own recipe for SQLite, whose driver begins too late."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"isolation_level": None})
    sources = (engine, sessionmaker(engine))
    run = for_sqlalchemy.run_transaction
    for source in sources:
        with pytest.raises(mainstay.UsageError, match="in autocommit"):
            run(source, pytest.fail, policy=POLICY)
    sqlalchemy.event.listen(engine, "begin", lambda used: used.exec_driver_sql("BEGIN"))
    one = sqlalchemy.text("SELECT 1")
    for source in sources:
        assert run(source, lambda used: used.execute(one).scalar(), policy=POLICY) == 1
    engine.dispose()


def test_so_is_autocommit_of_the_driver(postgres_url):
    """A connection knows it, and SQLAlchemy does not; an option may turn it off."""
    url, options = scheme(postgres_url, "psycopg"), {"connect_args": {"autocommit": True}}
    engine = sqlalchemy.create_engine(url, **options)
    for source in (engine, sessionmaker(engine), Session(engine)):
        with pytest.raises(mainstay.UsageError, match="in autocommit"):
            for_sqlalchemy.run_transaction(source, pytest.fail, policy=POLICY)
    engine.dispose()
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    usual = engine.execution_options(isolation_level="SERIALIZABLE")
    one = sqlalchemy.text("SELECT 1")
    for source in (usual, sessionmaker(usual)):
        run = for_sqlalchemy.run_transaction
        assert run(source, lambda used: used.execute(one).scalar(), policy=POLICY) == 1
    engine.dispose()


def test_so_is_autocommit_of_what_is_async(postgres_url):
    """An engine, a connection, a session."""
    from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

    async def never(used):
        pytest.fail("it must not be called")

    async def main():
        engine = create_async_engine(scheme(postgres_url, "asyncpg"), isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection, AsyncSession(engine) as session:
            for source in (engine, connection, session, async_sessionmaker(engine)):
                with pytest.raises(mainstay.UsageError, match="in autocommit"):
                    await for_sqlalchemy.arun_transaction(source, never, policy=POLICY)
        await engine.dispose()

    asyncio.run(main())


def test_a_session_with_several_engines_chooses_by_the_statement(engine):
    """What it will choose is not known before."""
    session = Session(binds={Account: engine})
    assert for_sqlalchemy.run_transaction(session, lambda _: 42, policy=POLICY) == 42


@pytest.mark.parametrize("ends", ["rollback", "commit"])
def test_a_function_that_ends_the_transaction_has_the_error_of_that(engine, ends):
    """COMMIT was never sent, so nothing is unknown about it."""

    def end(used):
        used.execute(sqlalchemy.insert(Account).values(id=7, n=1))
        getattr(used, ends)()

    for source in (engine, sessionmaker(engine)):
        with pytest.raises(sqlalchemy.exc.InvalidRequestError, match=r"closed|inactive"):
            for_sqlalchemy.run_transaction(source, end, policy=POLICY)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.delete(Account))


def test_so_has_an_async_one(postgres_url):
    async def end(used):
        await used.execute(sqlalchemy.text("SELECT 1"))
        await used.rollback()

    async def main():
        engine = create_async_engine(scheme(postgres_url, "asyncpg"))
        with pytest.raises(sqlalchemy.exc.InvalidRequestError, match=r"closed|inactive"):
            await for_sqlalchemy.arun_transaction(engine, end, policy=POLICY)
        await engine.dispose()

    asyncio.run(main())


def test_the_time_that_is_left_limits_the_wait_for_a_lock_of_sqlite(path):
    """It is restored afterwards, and a shorter one of the connection stays."""
    seen = []

    def look(connection):
        seen.append(connection.exec_driver_sql("PRAGMA busy_timeout").scalar())

    engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": 20.0})
    with engine.connect() as connection:
        for seconds in (10.0, 60.0):
            with mainstay.deadline.within(seconds):
                for_sqlalchemy.run_transaction(connection, look, policy=POLICY)
        for_sqlalchemy.run_transaction(connection, look, policy=POLICY)
    engine.dispose()
    assert 5_000 < seen[0] <= 10_000
    assert seen[1:] == [20_000, 20_000]


def test_a_session_that_has_several_databases_is_not_limited(engine):
    """Which one a statement goes to is not known before."""
    with Session(binds={Account: engine}) as session, mainstay.deadline.within(10.0):
        for_sqlalchemy.run_transaction(session, add, policy=POLICY)
        assert session.get(Account, 1).n == 1


def test_a_database_without_a_place_for_it_is_not_limited(engine, monkeypatch):
    """Such as one whose dialect is another's."""
    monkeypatch.setattr(engine.dialect, "name", "another")
    with mainstay.deadline.within(10.0):
        assert for_sqlalchemy.run_transaction(engine, lambda _: "ran", policy=POLICY) == "ran"


def test_an_async_database_without_a_place_for_it_is_not_limited(postgres_url, monkeypatch):
    """The policy alone cuts its attempts."""

    async def one(session):
        return (await session.execute(sqlalchemy.text("SELECT 1"))).scalar()

    async def main():
        engine = create_async_engine(scheme(postgres_url, "asyncpg"))
        async with engine.connect() as connection:
            monkeypatch.setattr(engine.dialect, "name", "another")
            monkeypatch.setattr(engine.dialect, "driver", "another")
            with mainstay.deadline.within(10.0):
                found = await for_sqlalchemy.arun_transaction(connection, one, policy=POLICY)
        await engine.dispose()
        return found

    assert asyncio.run(main()) == 1


def test_what_is_no_async_source_is_refused(engine):
    """Before anything is tried."""
    with pytest.raises(mainstay.UsageError, match="Engine is no async_sessionmaker"):
        asyncio.run(for_sqlalchemy.arun_transaction(engine, print, policy=POLICY))


def test_an_error_of_the_socket_in_commit_leaves_the_outcome_unknown(engine, monkeypatch):
    """SQLAlchemy does not wrap it, and `attach` has nothing to note on it."""
    for_sqlalchemy.attach(engine)

    def reset(_connection):
        raise ConnectionResetError

    monkeypatch.setattr(engine.dialect, "do_commit", reset)
    with pytest.raises(mainstay.OutcomeUnknown) as caught:
        for_sqlalchemy.run_transaction(sessionmaker(engine), add, policy=POLICY)
    assert not hasattr(caught.value.__cause__, "__notes__")


def test_whatever_commit_raises_leaves_the_outcome_unknown(engine, monkeypatch):
    """Such as an error of an event handler, which is the cause."""
    handler = ValueError("after the commit")
    monkeypatch.setattr(engine.dialect, "do_commit", lambda _: _raise(handler))
    with pytest.raises(mainstay.OutcomeUnknown) as caught:
        for_sqlalchemy.run_transaction(engine, lambda _: None, policy=POLICY)
    assert caught.value.__cause__ is handler


def _raise(error):
    raise error


# --- an engine that acts on what is known ---------------------------------------------------------


@pytest.fixture
def read_only(postgres_url):
    """An engine whose pool holds a connection to a server that turned read-only."""
    made = sqlalchemy.create_engine(scheme(postgres_url, "psycopg"))
    with made.connect() as connection:
        connection.exec_driver_sql("SET default_transaction_read_only = on")
        connection.commit()
    yield made
    made.dispose()


@pytest.mark.parametrize("attached", [True, False])
def test_a_connection_to_a_standby_is_dropped_from_the_pool(read_only, attached):
    """The next attempt connects anew; without it, each attempt is given the same connection."""
    made = []
    event.listen(read_only, "connect", lambda *_: made.append(1))
    if attached:
        for_sqlalchemy.attach(read_only)

    def create(connection):
        connection.exec_driver_sql("CREATE TABLE standby_test (id int)")
        connection.exec_driver_sql("DROP TABLE standby_test")

    if attached:
        for_sqlalchemy.run_transaction(read_only, create, policy=POLICY)
    else:
        with pytest.raises(sqlalchemy.exc.InternalError, match="read-only"):
            for_sqlalchemy.run_transaction(read_only, create, policy=POLICY)
    assert len(made) == attached


def test_a_transaction_that_is_read_only_on_purpose_keeps_its_connection(read_only):
    """It is a mistake in the program, and not a failover."""
    for_sqlalchemy.attach(read_only)
    with read_only.connect() as connection:
        readonly = connection.execution_options(postgresql_readonly=True)
        with pytest.raises(sqlalchemy.exc.InternalError) as caught:
            readonly.exec_driver_sql("CREATE TABLE never (id int)")
        assert not caught.value.connection_invalidated
    assert caught.value.__notes__[0].startswith("mainstay: transient: the server is read-only")


@pytest.mark.parametrize(
    ("driver", "option", "least"),
    [
        ("psycopg", "connect_timeout", 2),
        ("psycopg2", "connect_timeout", 2),
        ("asyncpg", "timeout", 0),
    ],
)
def test_the_time_that_is_left_limits_connecting(driver, option, least):
    """Never to more than the engine's own limit; the driver's smallest is kept."""
    seen = []

    def connect(_dialect, _record, _args, options):
        seen.append(options.get(option))
        raise ConnectionRefusedError

    for own in ({}, {option: 3}):
        engine = sqlalchemy.create_engine(f"postgresql+{driver}://127.0.0.1:1/x", connect_args=own)
        for_sqlalchemy.attach(engine)
        event.listen(engine, "do_connect", connect)
        for seconds in (None, 0.5, 60.0, None):
            bound = mainstay.deadline.within(seconds) if seconds else contextlib.nullcontext()
            with bound, pytest.raises(ConnectionRefusedError):
                engine.connect()
    assert seen[0] is seen[3] is None
    assert seen[4:] == [3, pytest.approx(max(least, 0.5), abs=0.4), 3, 3]
    assert least <= seen[1] <= 2
    assert 50 < seen[2] <= 60


def test_connecting_by_another_driver_is_left_as_it_is():
    """Its options are not known."""
    seen = []

    def connect(_dialect, _record, _args, options):
        seen.append(dict(options))
        raise ConnectionRefusedError

    engine = sqlalchemy.create_engine("postgresql+pg8000://127.0.0.1:1/x", module=psycopg)
    for_sqlalchemy.attach(engine)
    event.listen(engine, "do_connect", connect)
    with mainstay.deadline.within(5.0), pytest.raises(ConnectionRefusedError):
        engine.connect()
    assert not {"timeout", "connect_timeout"} & seen[0].keys()


def test_a_note_is_left_on_what_no_connection_raised(postgres_url):
    """An unknown database: there is no connection that could be dropped."""
    wrong = scheme(postgres_url, "psycopg").rpartition("/")[0] + "/nowhere"
    engine = sqlalchemy.create_engine(wrong)
    for_sqlalchemy.attach(engine)
    with pytest.raises(sqlalchemy.exc.OperationalError) as caught:
        engine.connect()
    assert caught.value.__notes__ == ["mainstay: permanent: there is no such database"]
