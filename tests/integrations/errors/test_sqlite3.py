"""Failures of a real SQLite, through sqlite3 and through SQLAlchemy."""

import contextlib
import pickle
import sqlite3

import pytest
import sqlalchemy

import mainstay
from mainstay.core.known.codes import codes_of
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.integrations.errors import table

POLICY = mainstay.RetryPolicy(
    on=mainstay.transient, attempts=3, backoff=mainstay.Backoff.constant(0.001)
)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, n int)")
        connection.execute("INSERT INTO rows VALUES (1, 0)")
        connection.commit()
    return file


def connect(file, **options):
    return contextlib.closing(sqlite3.connect(file, timeout=0.0, **options))


def raised(call):
    try:
        call()
    except Exception as error:
        return error, kind_of(error)
    raise AssertionError("nothing was raised")


# --- what goes wrong, each with the database's path -----------------------------------------------


def locked(file):
    with connect(file) as other, connect(file) as connection:
        other.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO rows VALUES (2, 0)")


def written_since_it_was_read(file):
    with connect(file) as other, connect(file) as connection:
        other.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM rows").fetchall()
        other.execute("INSERT INTO rows VALUES (3, 0)")
        other.commit()
        connection.execute("INSERT INTO rows VALUES (4, 0)")


def table_locked(_file):
    name = "file:shared?mode=memory&cache=shared"
    with connect(name, uri=True) as other, connect(name, uri=True) as connection:
        other.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY)")
        other.execute("INSERT INTO rows VALUES (1)")
        connection.execute("SELECT * FROM rows").fetchall()


def read_only(file):
    with connect(f"file:{file}?mode=ro", uri=True) as connection:
        connection.execute("INSERT INTO rows VALUES (2, 0)")


def full(file):
    with connect(file) as connection:
        connection.execute("PRAGMA max_page_count = 2")
        connection.execute("CREATE TABLE more (blob)")
        connection.execute("INSERT INTO more VALUES (zeroblob(100000))")


def malformed(file):
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    file.write_bytes(data)
    with connect(file) as connection:
        connection.execute("SELECT * FROM rows").fetchall()


def no_database(file):
    file.write_bytes(b"a letter to the editor " * 100)
    with connect(file) as connection:
        connection.execute("SELECT * FROM rows")


def missing_table(file):
    with connect(file) as connection:
        connection.execute("SELECT * FROM nowhere")


def unique(file):
    with connect(file) as connection:
        connection.execute("INSERT INTO rows VALUES (1, 1)")


def wrong_type(file):
    with connect(file) as connection:
        connection.execute("INSERT INTO rows VALUES ('one', 1)")


def no_folder(file):
    with connect(file.parent / "nowhere" / "shop.db"):
        pass


def interrupted(file):
    with connect(file) as connection:
        connection.set_progress_handler(lambda: 1, 1)
        connection.execute("SELECT * FROM rows").fetchall()


def not_authorised(file):
    with connect(file) as connection:
        connection.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)
        connection.execute("SELECT * FROM rows")


def too_big(file):
    with connect(file) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1000)
        connection.execute("SELECT zeroblob(2000)").fetchall()


SCENES = {
    locked: (Kind.TRANSIENT, "SQLITE_BUSY"),
    written_since_it_was_read: (Kind.TRANSIENT, "SQLITE_BUSY_SNAPSHOT"),
    table_locked: (Kind.TRANSIENT, "SQLITE_LOCKED_SHAREDCACHE"),
    read_only: (Kind.PERMANENT, "SQLITE_READONLY"),
    full: (Kind.PERMANENT, "SQLITE_FULL"),
    malformed: (Kind.PERMANENT, "SQLITE_CORRUPT"),
    no_database: (Kind.PERMANENT, "SQLITE_NOTADB"),
    missing_table: (Kind.PERMANENT, "SQLITE_ERROR"),
    unique: (Kind.PERMANENT, "SQLITE_CONSTRAINT_PRIMARYKEY"),
    wrong_type: (Kind.PERMANENT, "SQLITE_MISMATCH"),
    no_folder: (Kind.PERMANENT, "SQLITE_CANTOPEN"),
    interrupted: (Kind.PERMANENT, "SQLITE_INTERRUPT"),
    not_authorised: (Kind.AUTH, "SQLITE_AUTH"),
    too_big: (Kind.PERMANENT, "SQLITE_TOOBIG"),
}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_what_sqlite_reports_has_its_kind(path, scene):
    """The name of SQLite's code decides, and nothing is ambiguous: the statement was undone."""
    error, known = raised(lambda: scene(path))
    kind, code = SCENES[scene]
    assert (known.kind, known.is_ambiguous, known.table) == (kind, False, "sqlite3")
    assert code in codes_of(error)


def test_a_locked_database_is_tried_again_and_a_missing_table_is_not(path):
    """Attempts are counted by the statements that SQLite traces."""
    seen = []
    with connect(path) as other, connect(path) as connection:
        connection.set_trace_callback(seen.append)
        other.execute("BEGIN IMMEDIATE")
        connection.isolation_level = None
        raised(lambda: POLICY.call(connection.execute, "INSERT INTO rows VALUES (2, 0)"))
        assert len(seen) == 3
        seen.clear()
        raised(lambda: POLICY.call(connection.execute, "INSERT INTO rows VALUES (1, 0)"))
        other.rollback()
        raised(lambda: POLICY.call(connection.execute, "INSERT INTO rows VALUES (1, 0)"))
        assert len(seen) == 4, "three while it was locked, one against the constraint"


def test_sqlalchemy_is_seen_through(path):
    """A locked database is as transient as with sqlite3 itself, and the codes are the same."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": 0.0})
    with connect(path) as other, engine.connect() as connection:
        other.execute("BEGIN IMMEDIATE")
        insert = sqlalchemy.text("INSERT INTO rows VALUES (2, 0)")
        error, known = raised(lambda: connection.execute(insert))
        assert (type(error), known.kind) == (sqlalchemy.exc.OperationalError, Kind.TRANSIENT)
        assert "SQLITE_BUSY" in codes_of(error)
        _, known = raised(lambda: connection.execute(sqlalchemy.text("SELECT * FROM nowhere")))
        assert known.kind is Kind.PERMANENT
    engine.dispose()


def test_misuse_is_permanent(path):
    """A closed connection, two statements at once, a value that no column takes."""
    with connect(path) as connection:
        _, known = raised(lambda: connection.execute("SELECT 1; SELECT 2"))
        assert known.kind is Kind.PERMANENT
        _, known = raised(lambda: connection.execute("SELECT ?", [object()]))
        assert known.kind is Kind.PERMANENT
        connection.close()
        _, known = raised(lambda: connection.execute("SELECT 1"))
        assert known.kind is Kind.PERMANENT


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("database is locked", Kind.TRANSIENT),
        ("database table is locked: rows", Kind.TRANSIENT),
        ("database or disk is full", Kind.PERMANENT),
        ("database disk image is malformed", Kind.PERMANENT),
        ("attempt to write a readonly database", Kind.PERMANENT),
        ("gone fishing", Kind.UNKNOWN),
    ],
)
def test_an_error_that_lost_its_code_is_known_by_its_text(text, kind):
    """As one from another process: pickle keeps the text alone."""
    error = pickle.loads(pickle.dumps(sqlite3.OperationalError(text)))
    assert not hasattr(error, "sqlite_errorname")
    assert kind_of(error).kind is kind


NOT_PROVOKED = {
    "SQLITE_ABORT_ROLLBACK": Kind.PERMANENT,
    "SQLITE_IOERR_FSYNC": Kind.TRANSIENT,
    "SQLITE_NOMEM": Kind.OVERLOAD,
    "SQLITE_PERM": Kind.AUTH,
    "SQLITE_PROTOCOL": Kind.TRANSIENT,
    "SQLITE_SCHEMA": Kind.TRANSIENT,
}
"""Which no test can make SQLite report: they need a broken disk, or a race inside it."""


@pytest.mark.parametrize("code", NOT_PROVOKED)
def test_codes_that_need_a_broken_disk_have_their_kind(code):
    """Built by hand; a failure of the disk is the one that may have been applied."""
    error = sqlite3.OperationalError(code)
    error.sqlite_errorname = code
    known = kind_of(error)
    assert (known.kind, known.is_ambiguous) == (NOT_PROVOKED[code], "IOERR" in code)


def test_a_code_that_python_has_no_name_for_is_known_by_its_number():
    """An SQLite that is newer than Python: the lower byte is the code's family."""
    error = sqlite3.OperationalError("new")
    error.sqlite_errorname, error.sqlite_errorcode = "unknown", 5 | (99 << 8)
    assert kind_of(error).kind is Kind.TRANSIENT


NO_ERRORS = ("SQLITE_DBCONFIG", "SQLITE_NOTICE", "SQLITE_OK", "SQLITE_WARNING")
PRIMARY = (
    "ABORT AUTH BUSY CANTOPEN CONSTRAINT CORRUPT ERROR FULL INTERNAL INTERRUPT IOERR LOCKED"
    " MISMATCH MISUSE NOMEM NOTADB PERM PROTOCOL RANGE READONLY SCHEMA TOOBIG"
)
"""Python has them beside other numbers, of limits and of authorizers."""


def test_every_code_of_python_has_a_row():
    """A code that a new Python brings is noticed."""
    cases = table("sqlite3").entries["sqlite3.Error"]
    codes = {name for name in dir(sqlite3) if name.startswith("SQLITE_")}
    codes = {name for name in codes if getattr(sqlite3, name) > 0xFF}
    codes = {name for name in codes if not name.startswith(NO_ERRORS)}
    assert len(codes) > 50
    codes |= {f"SQLITE_{name}" for name in PRIMARY.split()}
    assert sorted(code for code in codes if cases.of_case(code) is None) == []
