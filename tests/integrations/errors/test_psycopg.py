"""What psycopg, its pool and psycopg2 raise of their own; for the server's see test_postgres.py."""

import pickle
import threading
from contextlib import closing

import psycopg
import psycopg2
import psycopg2.pool
import pytest
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from mainstay.core.known.codes import codes_of
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from tests.processes import wait_until


def raised(expected, call, *arguments):
    with pytest.raises(expected) as caught:
        call(*arguments)
    return kind_of(caught.value)


def test_a_pool_that_has_no_connection_left(postgres_url):
    """Nothing was sent: a timeout, an overload if too many wait, and final if it is closed."""
    options = {"min_size": 1, "max_size": 1, "timeout": 0.05, "open": True}
    with ConnectionPool(postgres_url, **options) as pool, pool.connection(timeout=60.0):
        known = raised(PoolTimeout, pool.getconn)
        assert (known.kind, known.is_ambiguous) == (Kind.TIMEOUT, False)
    assert raised(PoolClosed, pool.getconn).kind is Kind.PERMANENT


def test_a_pool_that_too_many_wait_for(postgres_url):
    """It refuses at once."""
    options = {"min_size": 1, "max_size": 1, "max_waiting": 1, "open": True}
    with ConnectionPool(postgres_url, **options) as pool, pool.connection(timeout=60.0):
        waiter = threading.Thread(target=lambda: raised(PoolClosed, pool.getconn, 120.0))
        waiter.start()
        wait_until(lambda: pool.get_stats().get("requests_waiting"), "one that waits")
        assert raised(TooManyRequests, pool.getconn).kind is Kind.OVERLOAD
        pool.close()
        waiter.join()


def test_misuse_of_psycopg_is_permanent(postgres_url):
    """Wrong arguments, a closed cursor, transactions that end in another order."""
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        execute = connection.execute
        assert raised(psycopg.ProgrammingError, execute, "SELECT %s", [1, 2]).kind is Kind.PERMANENT
        assert raised(psycopg.ProgrammingError, execute, "SELECT %s", [object()]).kind is (
            Kind.PERMANENT
        )
        cursor = connection.cursor()
        cursor.close()
        closed = raised(psycopg.InterfaceError, cursor.execute, "SELECT 1")
        assert closed.kind is Kind.PERMANENT
        outer, inner = connection.transaction(), connection.transaction()
        outer.__enter__()
        inner.__enter__()
        nesting = psycopg.transaction.OutOfOrderTransactionNesting
        assert raised(nesting, outer.__exit__, None, None, None).kind is Kind.PERMANENT


def test_a_statement_after_one_that_failed_is_permanent(postgres_url):
    """In a transaction, and in a pipeline: the first failure decides."""
    with psycopg.connect(postgres_url) as connection:
        raised(psycopg.Error, connection.execute, "SELECT 1 / 0")
        known = raised(psycopg.errors.InFailedSqlTransaction, connection.execute, "SELECT 1")
        assert known.kind is Kind.PERMANENT
    with (
        psycopg.connect(postgres_url, autocommit=True) as connection,
        connection.pipeline(),
    ):
        raised(psycopg.errors.DivisionByZero, connection.execute("SELECT 1 / 0").fetchone)
        second = connection.execute("SELECT 1")
        assert raised(psycopg.errors.PipelineAborted, second.fetchone).kind is Kind.PERMANENT


def test_an_error_that_was_pickled_is_judged_alike():
    """The connection that an error of connecting carries is lost; the text is still there."""
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect("postgresql://postgres@127.0.0.1:1/x", connect_timeout=60)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.pgconn is None
    assert (kind_of(copy).is_ambiguous, codes_of(copy)) == (False, ("08001",))


def test_a_name_that_no_host_has_is_not_ambiguous():
    """Nothing was sent."""
    url = "postgresql://postgres@nowhere.invalid/x"
    for connect, error in (
        (psycopg.connect, psycopg.OperationalError),
        (psycopg2.connect, psycopg2.OperationalError),
    ):
        known = raised(error, connect, url)
        assert (known.kind, known.is_ambiguous) == (Kind.TRANSIENT, False)


def test_misuse_of_psycopg2_is_permanent_and_its_empty_pool_an_overload(postgres_url):
    """Its pool does not wait."""
    pool = psycopg2.pool.SimpleConnectionPool(1, 1, postgres_url)
    connection = pool.getconn()
    assert raised(psycopg2.pool.PoolError, pool.getconn).kind is Kind.OVERLOAD
    cursor = connection.cursor()
    assert raised(psycopg2.ProgrammingError, cursor.execute, "SELECT %s", [object()]).kind is (
        Kind.PERMANENT
    )
    cursor.close()
    assert raised(psycopg2.InterfaceError, cursor.execute, "SELECT 1").kind is Kind.PERMANENT
    pool.closeall()
