"""Django's database layer, with real SQLite and PostgreSQL: what a retry around a transaction sees.

The settings are those of this file alone; Django has one set per process.
"""

import os
import socket
import sqlite3
import threading
from urllib.parse import urlsplit

import psycopg
import pytest
from django.apps import apps
from django.conf import UserSettingsHolder, global_settings, settings
from django.db import connections, transaction
from django.db.utils import (
    DataError,
    IntegrityError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)

import mainstay
from mainstay import Backoff, Kind, RetryPolicy
from mainstay.core.retry.kinds import kind_of

AT_ONCE = RetryPolicy(on=mainstay.transient, attempts=3, backoff=Backoff.constant(0))


@pytest.fixture
def django(postgres_database, tmp_path):
    """The connections `default` (PostgreSQL), `file` (SQLite) and `nobody` (nothing listens)."""
    url = urlsplit(postgres_database)
    server = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path[1:],
        "USER": url.username,
        "HOST": url.hostname,
        "PORT": url.port,
    }
    holder = UserSettingsHolder(global_settings)
    holder.DATABASES = {
        "default": server,
        "file": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": tmp_path / "shop.db",
            "OPTIONS": {"timeout": 0.01},
        },
        "nobody": {**server, "PORT": 1},
    }
    before, settings._wrapped = settings._wrapped, holder
    forget_connections()
    apps.populate(())
    with connections["default"].cursor() as cursor:
        cursor.execute("CREATE TABLE accounts (id int PRIMARY KEY, amount int)")
        cursor.execute("INSERT INTO accounts VALUES (1, 0), (2, 0)")
    yield connections
    forget_connections()
    settings._wrapped = before


def forget_connections():
    """Close them, and have the settings read anew."""
    for alias in ("default", "file", "nobody"):
        if hasattr(connections._connections, alias):
            connections[alias].close()
            del connections[alias]
    connections._settings = None
    vars(connections).pop("settings", None)


def raised(expected, alias, *statements):
    """What is known of an error that statements of one transaction raise."""
    with pytest.raises(expected) as caught, transaction.atomic(using=alias):
        run(alias, *statements)
    return kind_of(caught.value)


def run(alias, *statements):
    with connections[alias].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def test_what_the_driver_raised_decides(django):
    """By the SQLSTATE of psycopg, which Django keeps as the cause."""
    taken = raised(IntegrityError, "default", "INSERT INTO accounts VALUES (1, 0)")
    assert (taken.kind, taken.by_code) == (Kind.PERMANENT, True)
    assert raised(ProgrammingError, "default", "SELECT * FROM nowhere").kind is Kind.PERMANENT
    assert raised(DataError, "default", "SELECT 1 / 0").kind is Kind.PERMANENT
    refused = raised(NotSupportedError, "default", "SELECT DISTINCT 1 FOR UPDATE")
    assert refused.kind is Kind.PERMANENT
    late = raised(
        OperationalError, "default", "SET LOCAL statement_timeout = 10", "SELECT pg_sleep(60)"
    )
    assert late.kind is Kind.TIMEOUT
    with pytest.raises(OperationalError) as caught:
        connections["nobody"].cursor()
    assert (kind_of(caught.value).kind, kind_of(caught.value).is_ambiguous) == (
        Kind.TRANSIENT,
        False,
    )


@pytest.mark.usefixtures("_collected")  # Django leaves open what it could not set up
def test_a_locked_file_of_sqlite_is_transient(django, tmp_path):
    """Another process writes; sqlite3's own code decides."""
    with sqlite3.connect(tmp_path / "shop.db", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        known = raised(OperationalError, "file", "CREATE TABLE orders (id int)")
    other.close()
    assert known.kind is Kind.TRANSIENT


def test_a_deadlock_runs_the_whole_transaction_again(django, postgres_database):
    """Two transactions, crosswise; the one that PostgreSQL rolls back is run once more."""
    other = psycopg.connect(postgres_database)
    other.execute("SET deadlock_timeout = '60s'")
    other.execute("UPDATE accounts SET amount = amount + 1 WHERE id = 2")
    attempts = []

    def finish():
        with other:
            other.execute("UPDATE accounts SET amount = amount + 1 WHERE id = 1")

    thread = threading.Thread(target=finish)

    @transaction.atomic(durable=True)
    def move():
        attempts.append(1)
        if len(attempts) == 2:
            thread.join()  # or it may meet the other one's last statement, and deadlock again
        run(
            "default",
            "SET LOCAL deadlock_timeout = '10ms'",
            "UPDATE accounts SET amount = amount - 1 WHERE id = 1",
        )
        if len(attempts) == 1:
            thread.start()
            wait_for_a_lock(postgres_database)
        run("default", "UPDATE accounts SET amount = amount - 1 WHERE id = 2")

    AT_ONCE.call(move)
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT amount FROM accounts ORDER BY id")
        assert cursor.fetchall() == [(0,), (0,)]
    assert len(attempts) == 2


def wait_for_a_lock(url):
    """Until a connection to the database waits for another."""
    with psycopg.connect(url, autocommit=True) as watch:
        found = None
        while not found:
            found = watch.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND datname = current_database()"
            ).fetchone()


def test_a_connection_that_is_lost_is_replaced_between_attempts(django, postgres_database):
    """`atomic` closes what cannot be rolled back, so the next attempt connects anew."""
    attempts = []

    @transaction.atomic(durable=True)
    def move():
        attempts.append(connections["default"].connection.info.backend_pid)
        if len(attempts) == 1:
            with psycopg.connect(postgres_database, autocommit=True) as admin:
                admin.execute("SELECT pg_terminate_backend(%s)", attempts)
        run("default", "UPDATE accounts SET amount = 7 WHERE id = 1")

    AT_ONCE.call(move)
    assert len(set(attempts)) == 2


def test_a_rule_names_the_code_of_a_lost_connection(django):
    """For a transaction that must not be applied twice, as docs/how-to/django.md has it."""
    attempts = []

    @transaction.atomic(durable=True)
    def move():
        attempts.append(1)
        with socket.socket(fileno=os.dup(connections["default"].connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)
        run("default", "UPDATE accounts SET amount = 7 WHERE id = 1")

    policy = RetryPolicy(
        on=mainstay.transient, attempts=3, backoff=Backoff.constant(0), never_retry_on="08006"
    )
    with pytest.raises(OperationalError) as caught:
        policy.call(move)
    assert (len(attempts), kind_of(caught.value).is_ambiguous) == (1, True)
    with pytest.raises(OperationalError):
        AT_ONCE.call(move)
    assert len(attempts) == 4


def test_an_error_of_django_itself_is_not_retried(django):
    """A transaction inside another is a mistake, and so is a query after an error."""
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        AT_ONCE.call(transaction.atomic(durable=True)(run), "default", "SELECT 1")
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError) as caught:
            run("default", "SELECT 1")
    assert kind_of(caught.value).kind is Kind.PERMANENT
