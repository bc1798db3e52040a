"""A whole transaction again: what repeats it, what does not, and how often the server ran it."""

import contextlib
import threading

import psycopg
import pytest

import mainstay
from mainstay.core.known.codes import codes_of
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.testing import FaultProxy
from tests.integrations.transaction_hands import HANDS
from tests.servers.postgres import create_database, start_postgres

POLICY = mainstay.RetryPolicy(
    on=mainstay.transient, attempts=3, backoff=mainstay.Backoff.constant(0.001)
)


class World:
    """A database with a counter of runs that no rollback sets back, and an opponent."""

    def __init__(self, url):
        self.url = url
        self.other = psycopg.connect(url, autocommit=True)
        self.other.execute("CREATE TABLE IF NOT EXISTS accounts (id int PRIMARY KEY, n int)")
        self.other.execute(
            "CREATE TABLE IF NOT EXISTS late"
            " (id int, CONSTRAINT once UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)"
        )
        self.other.execute("CREATE SEQUENCE IF NOT EXISTS runs")
        self.start()

    def start(self):
        self.other.execute("TRUNCATE accounts, late; ALTER SEQUENCE runs RESTART WITH 1")
        self.other.execute("INSERT INTO accounts VALUES (1, 0), (2, 0)")

    def one(self, query):
        return self.other.execute(query).fetchone()[0]

    @property
    def runs(self):
        """How often the server has begun the transaction."""
        return self.one("SELECT last_value - (NOT is_called)::int FROM runs")


@pytest.fixture(scope="module")
def world(postgres_url):
    name = "run_transaction"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
        create_database(connection, name)
    made = World(postgres_url.rpartition("/")[0] + f"/{name}")
    yield made
    made.other.close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=HANDS)
def hand(world, request):
    world.start()
    with contextlib.closing(HANDS[request.param](world.url)) as made:
        yield made


def failure(call):
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_a_serialization_failure_runs_the_whole_transaction_again(world, hand):
    """The second run reads what the opponent has written; the server has seen two."""

    def transaction():
        yield "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
        ((run,),) = yield "SELECT nextval('runs')"
        ((n,),) = yield "SELECT n FROM accounts WHERE id = 1"
        if run == 1:
            world.other.execute("UPDATE accounts SET n = 10 WHERE id = 1")
        yield f"UPDATE accounts SET n = {n + 1} WHERE id = 1"
        return n

    with mainstay.deadline.within(30.0):  # its SET LOCAL is no query: SET TRANSACTION may follow
        assert hand.run(transaction, policy=POLICY) == 10
    assert (world.runs, world.one("SELECT n FROM accounts WHERE id = 1")) == (2, 11)


def test_a_deadlock_runs_the_whole_transaction_again(world, hand):
    """Ours looks for deadlocks first, so it is the one that the server rolls back."""
    opponent = psycopg.connect(world.url)
    opponent.execute("SET deadlock_timeout = '60s'")
    waits = threading.Thread(
        target=opponent.execute, args=["UPDATE accounts SET n = 10 WHERE id = 1"]
    )

    def transaction():
        yield "SET LOCAL deadlock_timeout = '10ms'"
        ((run,),) = yield "SELECT nextval('runs')"
        if run == 1:
            opponent.execute("UPDATE accounts SET n = 10 WHERE id = 2")
        else:
            ends.join()  # or ours might be the first to lock the row again
        yield "UPDATE accounts SET n = n + 1 WHERE id = 1"
        if run == 1:
            waits.start()
            while not world.other.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            ).fetchone():
                pass
            ends.start()
        yield "UPDATE accounts SET n = n + 1 WHERE id = 2"

    def end():
        waits.join()
        opponent.rollback()
        opponent.close()

    ends = threading.Thread(target=end)
    hand.run(transaction, policy=POLICY)
    ends.join()
    assert (world.runs, world.one("SELECT sum(n) FROM accounts")) == (2, 2)


def test_a_connection_lost_before_commit_runs_it_again_on_another(world, hand):
    """The server has rolled the first one back; one row is there."""

    def transaction():
        ((run,),) = yield "SELECT nextval('runs')"
        yield "INSERT INTO accounts VALUES (100, 0)"
        ((pid,),) = yield "SELECT pg_backend_pid()"
        if run == 1:
            world.other.execute("SELECT pg_terminate_backend(%s, 2000)", [pid])
        yield "SELECT 1"

    hand.run(transaction, policy=POLICY)
    assert (world.runs, world.one("SELECT count(*) FROM accounts WHERE id = 100")) == (2, 1)


def is_commit(request):
    """Whether a request is COMMIT, and not BEGIN ISOLATION LEVEL READ COMMITTED."""
    return b"COMMIT" in request.replace(b"COMMITTED", b"")


def lose_commit(world, name, **options):
    """A transaction whose COMMIT the server carries out, and nobody gets to know."""

    def transaction():
        yield "SELECT nextval('runs')"
        yield "INSERT INTO accounts VALUES (100, 0) ON CONFLICT DO NOTHING"

    port = int(world.url.rpartition(":")[2].partition("/")[0])
    with (
        FaultProxy("127.0.0.1", port) as proxy,
        contextlib.closing(HANDS[name](proxy.url(world.url))) as hand,
    ):
        proxy.drop_reply_once(is_commit)
        return hand.run(transaction, **options)


@pytest.mark.parametrize("name", HANDS)
@pytest.mark.parametrize("on", [mainstay.transient, Exception], ids=["transient", "Exception"])
def test_a_commit_without_an_answer_is_not_run_again(world, name, on):
    """Under no policy: the row is there once, and the error names the doubt."""
    world.start()
    policy = POLICY.replace(retry_on=on)
    error = failure(lambda: lose_commit(world, name, policy=policy))
    assert isinstance(error, mainstay.OutcomeUnknown)
    assert error.__cause__ is not None or on is Exception
    assert (world.runs, world.one("SELECT count(*) FROM accounts WHERE id = 100")) == (1, 1)


@pytest.mark.parametrize("name", HANDS)
def test_a_commit_without_an_answer_is_run_again_if_it_is_idempotent(world, name):
    """The caller has declared that twice is as good as once."""
    world.start()
    lose_commit(world, name, policy=POLICY, idempotent=True)
    assert (world.runs, world.one("SELECT count(*) FROM accounts WHERE id = 100")) == (2, 1)


def test_a_violation_is_final(world, hand):
    """Also one that the server finds in COMMIT: it has answered, so nothing is in doubt."""

    def at_once():
        yield "SELECT nextval('runs')"
        yield "INSERT INTO accounts VALUES (1, 0)"

    def in_commit():
        yield "SELECT nextval('runs')"
        yield "INSERT INTO late VALUES (1), (1)"

    for transaction in (at_once, in_commit):
        error = failure(lambda transaction=transaction: hand.run(transaction, policy=POLICY))
        assert kind_of(error).kind is Kind.PERMANENT
        assert "23505" in codes_of(error)
    assert world.runs == 2


def test_what_the_function_raises_rolls_back_and_comes_through(world, hand):
    """It is the user's own error, under the user's own rules."""

    def transaction():
        yield "SELECT nextval('runs')"
        yield "INSERT INTO accounts VALUES (100, 0)"
        raise ValueError("no")

    assert isinstance(failure(lambda: hand.run(transaction, policy=POLICY)), ValueError)
    assert (world.runs, world.one("SELECT count(*) FROM accounts")) == (1, 2)


def test_the_time_that_is_left_limits_the_statements_at_the_server(world, hand):
    """Never to more than the session's own limit, which here is the lower one."""
    seen = []

    def transaction():
        seen.extend((yield "SHOW statement_timeout"))

    hand.run(transaction, policy=POLICY)
    with mainstay.deadline.within(60.0):
        hand.run(transaction, policy=POLICY)
    world.other.execute("ALTER DATABASE run_transaction SET statement_timeout = '5s'")
    try:
        with (
            contextlib.closing(type(hand)(world.url)) as fresh,
            mainstay.deadline.within(60.0),
        ):
            fresh.run(transaction, policy=POLICY)
    finally:
        world.other.execute("ALTER DATABASE run_transaction RESET statement_timeout")
    (none,), (limited,), (lower,) = seen
    assert (none, lower) == ("0", "5s")
    assert 50_000 < int(limited.removesuffix("ms").removesuffix("s")) <= 60_000 or limited == "1min"


def never_answered(world, name, after, fault):
    """What a hand raises if the network fails after a number of statements."""
    port = int(world.url.rpartition(":")[2].partition("/")[0])
    with (
        FaultProxy("127.0.0.1", port) as proxy,
        contextlib.closing(HANDS[name](proxy.url(world.url))) as hand,
    ):

        def transaction():
            for number in range(2):
                yield f"SELECT repeat('x', {2000 * number})"
                if number == after:
                    fault(proxy)

        with mainstay.deadline.within(3.0):  # it cuts nothing by itself
            error = failure(lambda: hand.run(transaction, policy=mainstay.RetryPolicy(attempts=1)))
        proxy.heal()
        return error


@pytest.mark.req("EF-07.database")
@pytest.mark.parametrize("phase", ["statement", "slow answer", "commit"])
def test_a_server_that_never_answers_is_given_up_at_the_deadline(world, phase):
    """All wait at once, for three seconds; libpq alone would wait for ever, or while bytes come."""
    fault = FaultProxy.black_hole if phase != "slow answer" else lambda proxy: proxy.slow(20.0)
    found = {}
    names = HANDS.keys()

    def wait(name):
        found[name] = never_answered(world, name, 1 if phase == "commit" else 0, fault)

    threads = [threading.Thread(target=wait, args=[name], daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert names - found.keys() == set(), "they wait for ever"
    if phase == "commit":
        assert {name: type(error) for name, error in found.items()} == dict.fromkeys(
            names, mainstay.OutcomeUnknown
        )
    else:
        assert {
            name: kind_of(error).is_ambiguous for name, error in found.items()
        } == dict.fromkeys(names, True)


# --- a server that ends ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortal():
    server = start_postgres()
    made = World(server.url)
    made.server = server
    yield made
    made.other.close()
    server.kill()


def reconnect(world):
    with contextlib.suppress(psycopg.Error):
        world.other.close()
    world.other = psycopg.connect(world.url, autocommit=True)


@pytest.mark.parametrize("name", ["psycopg", "sqlalchemy-engine"])
def test_a_restart_of_the_server_runs_the_transaction_again(mortal, name):
    """The pool connects anew; of the first run nothing is left."""
    mortal.start()
    runs = []

    def transaction():
        runs.append(1)
        yield "INSERT INTO accounts VALUES (100, 0)"
        if len(runs) == 1:
            mortal.server.restart()
        yield "SELECT 1"

    with contextlib.closing(HANDS[name](mortal.url)) as hand:
        hand.run(transaction, policy=POLICY)
    reconnect(mortal)
    assert (len(runs), mortal.one("SELECT count(*) FROM accounts WHERE id = 100")) == (2, 1)


def test_a_server_that_is_killed_in_commit_leaves_the_outcome_unknown(mortal):
    """A kill -9 after it has committed: the row is there when it is back, and once."""
    mortal.start()

    def transaction():
        yield "SELECT nextval('runs')"
        yield "INSERT INTO accounts VALUES (100, 0)"

    with (
        FaultProxy("127.0.0.1", mortal.server.port) as proxy,
        contextlib.closing(HANDS["sqlalchemy-engine"](proxy.url(mortal.url))) as hand,
    ):
        proxy.drop_reply_once(is_commit, then=mortal.server.crash)
        error = failure(lambda: hand.run(transaction, policy=POLICY))
    assert isinstance(error, mainstay.OutcomeUnknown)
    mortal.server.start()
    reconnect(mortal)
    assert mortal.one("SELECT count(*) FROM accounts WHERE id = 100") == 1
