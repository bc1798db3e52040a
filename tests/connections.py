"""Whether a test has left a connection to SQLite open."""

import sqlite3


def is_closed(connection):
    """Whether nothing can be asked of it any more."""
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError as error:
        return "closed" in str(error)
    return False
