"""Whether a connection of the caller commits each statement: nothing could be rolled back then.

There are several ways to that: an argument of the driver, options of an engine or connection,
events. A transaction that was begun by hand is one all the same. So the driver is asked.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def sqlite_commits(connection: Any) -> bool:
    """Whether a connection of sqlite3 or aiosqlite commits each statement now.

    >>> import sqlite3
    >>> connection = sqlite3.connect(":memory:", isolation_level=None)
    >>> sqlite_commits(connection)
    True
    >>> _ = connection.execute("BEGIN")
    >>> sqlite_commits(connection)
    False
    """
    commits = connection.isolation_level is None or getattr(connection, "autocommit", -1) is True
    return commits and not connection.in_transaction


def sqlalchemy_commits(connection: Any) -> bool:
    """The same for a `Connection` of SQLAlchemy, once it has begun its transaction."""
    pooled = connection.connection
    driver = pooled.driver_connection
    if connection.dialect.name == "sqlite":
        return sqlite_commits(driver)
    if getattr(pooled.dbapi_connection, "autocommit", None) is not True:  # MySQL's is a method
        return False
    if hasattr(driver, "is_in_transaction"):  # asyncpg
        return not driver.is_in_transaction()
    info = getattr(driver, "info", None)  # of psycopg and psycopg2
    return info is None or info.transaction_status == 0
