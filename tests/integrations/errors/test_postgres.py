"""Failures of a real PostgreSQL through its drivers: the kind, the code, and how often it ran."""

import contextlib
import os
import signal
import threading

import psycopg
import psycopg.errors
import psycopg2.errorcodes
import pytest

import mainstay
from mainstay.core.known.codes import codes_of
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.integrations.errors.sqlstate import CONNECT_TIMEOUT, ROWS, by_sqlstate
from mainstay.testing import FaultProxy
from tests.integrations.errors.postgres_drivers import DRIVERS, EXPIRES
from tests.integrations.errors.postgres_scenes import Scene
from tests.integrations.errors.walk import exception_classes
from tests.servers.postgres import start_postgres

POLICY = mainstay.RetryPolicy(
    on=mainstay.transient, attempts=3, backoff=mainstay.Backoff.constant(0.001)
)
OWN_ERRORS = {"asyncpg": OSError, "sqlalchemy-asyncpg": OSError}
"""asyncpg lets the errors of the socket through, and SQLAlchemy too."""


@pytest.fixture(scope="module")
def server():
    # Backends of closed connections take a while to go: a superuser always finds another slot.
    made = start_postgres(max_connections="40", superuser_reserved_connections="34")
    rules = made.folder / "data" / "pg_hba.conf"
    rules.write_text("host all secret 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    with psycopg.connect(made.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE secret LOGIN PASSWORD 'right'")
        connection.execute("CREATE ROLE plain LOGIN")
        connection.execute("CREATE TABLE rows (id int PRIMARY KEY, n int)")
        connection.execute("INSERT INTO rows VALUES (1, 0), (2, 0)")
        connection.execute("CREATE SEQUENCE runs")  # counts also what is rolled back
        connection.execute("SELECT pg_reload_conf()")
    yield made
    made.kill()


@pytest.fixture(params=DRIVERS)
def scene(server, request):
    made = Scene(server, DRIVERS[request.param])
    made.name = request.param
    yield made
    made.close()


def raised(call):
    """What it raised, and what is known of that."""
    try:
        call()
    except Exception as error:
        return error, kind_of(error)
    raise AssertionError("nothing was raised")


SCENES = {
    "dead_port": (Kind.TRANSIENT, "08001"),
    "wrong_password": (Kind.AUTH, "28P01"),
    "unknown_role": (Kind.AUTH, "28000"),
    "unknown_database": (Kind.PERMANENT, "3D000"),
    "too_many_connections": (Kind.OVERLOAD, "53300"),
    "missing_table": (Kind.PERMANENT, "42P01"),
    "unique_violation": (Kind.PERMANENT, "23505"),
    "read_only": (Kind.TRANSIENT, "25006"),
    "statement_timeout": (Kind.TIMEOUT, "57014"),
    "lock_timeout": (Kind.TRANSIENT, "55P03"),
    "serialization_failure": (Kind.TRANSIENT, "40001"),
    "deadlock": (Kind.TRANSIENT, "40P01"),
    "terminated_while_idle": (Kind.TRANSIENT, "57P01"),
    "terminated_in_a_statement": (Kind.TRANSIENT, "57P01"),
}
"""None of them is ambiguous: nothing was sent, or the server rolled back."""


@pytest.mark.parametrize("what", SCENES)
def test_what_the_server_refuses_or_undoes_has_its_kind_and_is_not_ambiguous(scene, what):
    """The SQLSTATE reaches the table through every driver, also that of a refused connection."""
    error, known = raised(getattr(scene, what))
    kind, code = SCENES[what]
    assert known.kind is kind
    if what.startswith("terminated") and scene.name.endswith("psycopg2"):
        assert known.is_ambiguous, "psycopg2 drops what the server sent before it hung up"
    else:
        assert not known.is_ambiguous
        assert code in codes_of(error) or isinstance(error, OWN_ERRORS.get(scene.name, ()))


def test_a_connection_that_was_closed_before_sends_nothing(scene):
    """It is not ambiguous; another connection may do."""
    _, known = raised(scene.closed_before)
    expected = Kind.PERMANENT if scene.name.startswith("sqlalchemy") else Kind.TRANSIENT
    assert (known.kind, known.is_ambiguous) == (expected, False)


def test_every_sqlstate_that_a_server_sends_is_judged_alike_by_every_driver(scene):
    """A function of the database raises each code of the table."""
    codes = [str(name).replace("*", "9ZZ") for name in ROWS if name != CONNECT_TIMEOUT]
    codes = [code for code in codes if not code.startswith("00")]  # no error can have it
    if "asyncpg" in scene.name:
        codes.remove("08003")  # asyncpg's own for a connection that is lost during a statement
    with scene.connected() as connection:
        for code in codes:
            block = f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$"
            connection.execute("SAVEPOINT here")
            error, known = raised(lambda block=block: connection.execute(block))
            row = by_sqlstate(lambda _, code=code: [code]).row(error)
            assert (known.kind, known.is_ambiguous) == (row.kind, row.ambiguous), code
            connection.execute("ROLLBACK TO here")


# --- lost connections -----------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["statement", "commit"])
def test_a_connection_that_is_lost_after_sending_is_ambiguous(scene, what):
    """The server has done its work, the row of a commit is there, and the client got no answer."""
    with (
        FaultProxy("127.0.0.1", scene.server.port) as proxy,
        scene.connected(proxy.url(scene.url)) as connection,
    ):
        connection.execute("INSERT INTO rows VALUES (100, 1)")
        proxy.cut_after(0)
        lost = connection.commit if what == "commit" else lambda: connection.execute("SELECT 1")
        _, known = raised(lost)
    assert (known.kind, known.is_ambiguous) == (Kind.TRANSIENT, True)
    assert scene.other.execute("DELETE FROM rows WHERE id = 100").rowcount == (what == "commit")


def test_a_connection_that_is_reset_while_connecting_is_made_again(scene):
    """Three attempts, counted where they arrive."""
    with FaultProxy("127.0.0.1", scene.server.port) as proxy:
        proxy.reset()
        _, known = raised(lambda: POLICY.call(scene.driver, proxy.url(scene.url)))
        assert (known.kind, known.is_ambiguous) == (Kind.TRANSIENT, False)
        each = 2 if "async" in scene.name and "psycopg" not in scene.name else 1
        assert proxy.connections in (3, 3 * each), "asyncpg tries again without TLS"


def test_a_wrong_password_is_sent_once(scene):
    """An authentication failure is not repeated, under no policy that names a base class."""
    with FaultProxy("127.0.0.1", scene.server.port) as proxy:
        url = proxy.url(scene.as_user("secret:wrong"))
        for policy in (POLICY, POLICY.replace(retry_on=Exception)):
            before = proxy.connections
            raised(lambda policy=policy: policy.call(scene.driver, url))
            assert proxy.connections - before <= 2, "asyncpg asks for TLS first"


@pytest.mark.parametrize(
    ("statements", "runs"),
    [(["SELECT 1 / 0"], 1), (["SET statement_timeout = '10ms'", "SELECT pg_sleep(60)"], 3)],
    ids=["a mistake", "a timeout"],
)
def test_a_statement_runs_as_often_as_its_failure_is_worth(scene, statements, runs):
    """Counted by a sequence of the server, which no rollback sets back."""

    def attempt():
        scene.run("SELECT nextval('runs')", *statements)

    before = scene.other.execute("SELECT nextval('runs')").fetchone()[0]
    raised(lambda: POLICY.call(attempt))
    after = scene.other.execute("SELECT nextval('runs')").fetchone()[0]
    assert after - before - 1 == runs


def test_a_black_hole_while_connecting_is_a_timeout(server):
    """The libpq waits for two seconds at least; the drivers wait at the same time."""
    found = {}

    def connect(name, url):
        _, found[name] = raised(lambda: DRIVERS[name](url, EXPIRES))

    with FaultProxy("127.0.0.1", server.port) as proxy:
        proxy.black_hole()
        arguments = [(name, proxy.url(server.url)) for name in DRIVERS]
        threads = [threading.Thread(target=connect, args=each) for each in arguments]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {
        name: (known.kind, known.is_ambiguous) for name, known in found.items()
    } == dict.fromkeys(DRIVERS, (Kind.TIMEOUT, False))


# --- a server that ends ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortal():
    made = start_postgres()
    yield made
    made.kill()


def in_sleeping_statements(server, end):
    """What every driver raises whose statement is running when the server ends."""
    found = {}
    connections = {name: driver(server.url) for name, driver in DRIVERS.items()}

    def run(name):
        _, found[name] = raised(lambda: connections[name].execute("SELECT pg_sleep(120)"))

    threads = [threading.Thread(target=run, args=[name]) for name in connections]
    for thread in threads:
        thread.start()
    scene = Scene(server, None)
    sleeping = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' HAVING count(*) ="
    scene.until(f"{sleeping} {len(DRIVERS)}")
    scene.close()
    end()
    for thread in threads:
        thread.join()
    for connection in connections.values():
        with contextlib.suppress(Exception):
            connection.close()
    return found


def test_a_server_that_is_killed_during_a_statement_is_ambiguous(mortal):
    """A kill -9 of the server and its processes: nobody knows what was applied."""
    found = in_sleeping_statements(mortal, mortal.crash)
    mortal.start()
    assert {
        name: (known.kind, known.is_ambiguous) for name, known in found.items()
    } == dict.fromkeys(DRIVERS, (Kind.TRANSIENT, True))


def test_a_server_that_is_restarted_rolls_back_and_announces_it(mortal):
    """It sends 57P01 before it hangs up; psycopg2 does not hand that on."""
    found = in_sleeping_statements(mortal, mortal.stop)
    mortal.start()
    assert {known.kind for known in found.values()} == {Kind.TRANSIENT}
    assert {name for name, known in found.items() if known.is_ambiguous} == {
        "psycopg2",
        "sqlalchemy-psycopg2",
    }


def test_a_server_that_is_shutting_down_is_overloaded(mortal):
    """It takes no new connections while an old one is open, and may be back soon."""
    with psycopg.connect(mortal.url):
        os.kill(mortal.pid, signal.SIGTERM)
        found = {}
        while not found or Kind.OVERLOAD not in {found[name].kind for name in found}:
            with contextlib.suppress(AssertionError):  # the signal has not arrived yet
                _, found["psycopg"] = raised(lambda: DRIVERS["psycopg"](mortal.url).close())
        for name, driver in DRIVERS.items():
            _, found[name] = raised(lambda driver=driver: driver(mortal.url))
    mortal.stop()
    assert {known.kind for known in found.values()} == {Kind.OVERLOAD}


# --- the table ------------------------------------------------------------------------------------


def test_the_sqlstate_of_every_class_of_every_driver_has_an_explicit_row():
    """A class of errors that a new PostgreSQL brings is noticed."""
    cases = by_sqlstate(lambda _: [])
    known = {code for code in psycopg.errors._sqlcodes if len(code) == 5 and code[0].isdigit()}
    known |= {getattr(each, "sqlstate", None) for each in exception_classes("asyncpg").values()}
    for name, code in vars(psycopg2.errorcodes).items():
        if isinstance(code, str) and name.isupper():
            known.add(code.ljust(5, "0"))
    known.discard(None)
    assert len(known) > 250
    assert sorted(code for code in known if cases.of_case(code) is None) == []
    assert "psycopg.errors.SerializationFailure" in exception_classes("psycopg")
