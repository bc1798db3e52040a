"""Neo4j through its driver, against a server that speaks enough of Bolt to fail.

The codes are those of "Status codes for errors" in Neo4j's documentation.
"""

import neo4j
import neo4j.exceptions
import pytest

import mainstay
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from tests.integrations.errors.bolt_stub import (
    BEGIN,
    COMMIT,
    HELLO,
    RESET,
    RUN,
    SILENCE,
    BoltStub,
)
from tests.integrations.errors.service_stub import dead_port, seen

WAIT = 2.0
"""Seconds to sign in; a busy machine needs some."""


@pytest.fixture(scope="module")
def server():
    with BoltStub() as stub:
        yield stub


@pytest.fixture
def driver(server):
    with neo4j.GraphDatabase.driver(server.url, auth=("neo4j", "secret")) as made:
        yield made


def run(driver):
    with driver.session() as session:
        session.run("CREATE ()").consume()


def write(driver):
    with driver.session() as session, session.begin_transaction() as transaction:
        transaction.run("CREATE ()").consume()
        transaction.commit()


@pytest.mark.parametrize(
    ("code", "raised", "kind", "count"),
    [
        ("TransientError.Transaction.DeadlockDetected", "TransientError", Kind.TRANSIENT, 3),
        ("TransientError.General.DatabaseUnavailable", "DatabaseUnavailable", Kind.OVERLOAD, 3),
        (
            "TransientError.General.MemoryPoolOutOfMemoryError",
            "TransientError",
            Kind.OVERLOAD,
            3,
        ),
        ("ClientError.Cluster.NotALeader", "WriteServiceUnavailable", Kind.TRANSIENT, 3),
        (
            "ClientError.General.ForbiddenOnReadOnlyDatabase",
            "WriteServiceUnavailable",
            Kind.TRANSIENT,
            3,
        ),
        ("ClientError.Security.AuthorizationExpired", "TransientError", Kind.TRANSIENT, 3),
        ("ClientError.Transaction.TransactionTimedOut", "ClientError", Kind.TIMEOUT, 3),
        ("TransientError.Transaction.LockClientStopped", "ClientError", Kind.TIMEOUT, 3),
        ("ClientError.Security.Forbidden", "Forbidden", Kind.AUTH, 1),
        ("ClientError.Security.TokenExpired", "TokenExpired", Kind.AUTH, 1),
        ("ClientError.Statement.SyntaxError", "CypherSyntaxError", Kind.PERMANENT, 1),
        ("ClientError.Statement.TypeError", "CypherTypeError", Kind.PERMANENT, 1),
        (
            "ClientError.Schema.ConstraintValidationFailed",
            "ConstraintError",
            Kind.PERMANENT,
            1,
        ),
        ("ClientError.Database.DatabaseNotFound", "ClientError", Kind.PERMANENT, 1),
        ("DatabaseError.General.UnknownError", "DatabaseError", Kind.UNKNOWN, 1),
    ],
)
@pytest.mark.req("PL-01.neo4j")
def test_what_the_server_reports(server, driver, code, raised, kind, count):
    """By its code, also where the driver has no class for it."""
    server.answers({RUN: f"Neo.{code}"})
    problem = seen(lambda: run(driver))
    assert type(problem).__name__ == raised
    assert (kind_of(problem).kind, server.count) == (kind, count)
    assert kind_of(problem).is_ambiguous is (raised == "DatabaseError")


def test_what_the_driver_has_as_retryable_is_retried(server, driver):
    """The table and `is_retryable()` agree, but for a transaction that the server ended."""
    for code in ("TransientError.Transaction.DeadlockDetected", "ClientError.Cluster.NotALeader"):
        server.answers({RUN: f"Neo.{code}"})
        problem = seen(lambda: run(driver), attempts=1)
        assert problem.is_retryable()
        assert mainstay.RetryPolicy().classification(problem).retryable


@pytest.mark.parametrize(
    ("code", "kind"),
    [("Unauthorized", Kind.AUTH), ("AuthenticationRateLimit", Kind.AUTH)],
)
def test_credentials_that_are_refused_are_sent_once(server, driver, code, kind):
    """More attempts would lock the account."""
    server.answers({HELLO: f"Neo.ClientError.Security.{code}"})
    problem = seen(lambda: run(driver))
    assert (kind_of(problem).kind, server.seen.count(HELLO)) == (kind, 1)


@pytest.mark.parametrize(
    ("on", "raised"),
    [
        ({RUN: RESET}, neo4j.exceptions.ServiceUnavailable),
        ({COMMIT: RESET}, neo4j.exceptions.IncompleteCommit),
    ],
)
def test_a_connection_that_is_lost_leaves_it_in_doubt(server, driver, on, raised):
    """A statement on its own commits by itself; and nobody knows whether a COMMIT arrived."""
    server.answers(on)
    call = run if RUN in on else write
    problem = seen(lambda: call(driver))
    known = kind_of(problem)
    assert type(problem) is raised
    assert (known.kind, known.is_ambiguous, server.count) == (Kind.TRANSIENT, True, 3)


def test_a_server_that_never_answers_is_given_up(server):
    """The pool's time to sign in is the only limit that the driver has for an answer."""
    server.answers({HELLO: SILENCE})
    with neo4j.GraphDatabase.driver(
        server.url, auth=("neo4j", "secret"), connection_acquisition_timeout=WAIT
    ) as driver:
        problem = seen(lambda: run(driver), attempts=1)
        known = kind_of(problem)
    assert isinstance(problem, neo4j.exceptions.SessionExpired)
    assert (known.kind, known.is_ambiguous) == (Kind.TIMEOUT, True)
    assert server.seen.count(HELLO) == 1


def test_a_dead_port_is_tried_again():
    """Nothing was sent, so nothing is in doubt."""
    tries = []
    with neo4j.GraphDatabase.driver(f"bolt://127.0.0.1:{dead_port()}") as driver:
        known = kind_of(seen(lambda: (tries.append(1), run(driver))))
    assert (known.kind, known.is_ambiguous, len(tries)) == (Kind.TRANSIENT, False, 3)


def test_a_pool_that_is_used_up_is_waited_for(server):
    """Nothing was sent."""
    server.answers({})
    with (
        neo4j.GraphDatabase.driver(
            server.url, max_connection_pool_size=1, connection_acquisition_timeout=WAIT
        ) as driver,
        driver.session() as busy,
        busy.begin_transaction(),
    ):
        problem = seen(lambda: run(driver), attempts=1)
    known = kind_of(problem)
    assert isinstance(problem, neo4j.exceptions.ConnectionAcquisitionTimeoutError)
    assert (known.kind, known.is_ambiguous) == (Kind.TIMEOUT, False)


def test_retries_of_a_managed_transaction_multiply(server):
    """`execute_write` repeats by itself, for 30 seconds by default, in each of our attempts."""
    server.answers({BEGIN: "Neo.TransientError.General.DatabaseUnavailable"})

    def managed():
        with driver.session() as session:
            session.execute_write(lambda transaction: transaction.run("CREATE ()").consume())

    with neo4j.GraphDatabase.driver(
        server.url, max_transaction_retry_time=0.05, initial_retry_delay=0.02
    ) as driver:
        seen(managed, attempts=2)
    assert server.seen.count(BEGIN) > 2


def test_failures_that_no_single_server_reports_are_made_by_the_driver_itself():
    """The driver's own reading of a failure, for what it replaces by an error of its own."""
    made = neo4j.exceptions.Neo4jError._hydrate_neo4j(
        code="Neo.ClientError.Cluster.NotALeader", message="m"
    )
    assert isinstance(made, neo4j.exceptions.NotALeader)
    assert kind_of(made).kind is Kind.TRANSIENT
    made = neo4j.exceptions.Neo4jError._hydrate_neo4j(code="Neo.Other.x.y", message="m")
    assert kind_of(made).kind is Kind.UNKNOWN
