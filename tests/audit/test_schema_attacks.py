"""An audit log in a database, whose tables or view somebody has replaced: verify finds it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

from mainstay import Engine
from mainstay.audit import AuditLog, read_log, verify_log
from mainstay.cli.app import app
from mainstay.events import CallSucceeded

VIEW = (
    "DROP VIEW mainstay_audit",
    "CREATE VIEW mainstay_audit AS SELECT 1 AS number, 'all is well' AS event_type",
)
BEHIND = (
    "DROP VIEW mainstay_audit",
    "ALTER TABLE mainstay_audit_blocks RENAME TO kept",
    "CREATE VIEW mainstay_audit_blocks AS SELECT * FROM kept",
)
IN_SQLITE = {
    "a view that was replaced": VIEW,
    "a view that hides a record": (
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = sql || ' WHERE b.block <> 2' WHERE name = 'mainstay_audit'",
    ),
    "a table behind a view": BEHIND,
    "a trigger that keeps blocks out": (
        (
            "CREATE TRIGGER quiet BEFORE INSERT ON mainstay_audit_blocks"
            " BEGIN SELECT RAISE(IGNORE); END"
        ),
    ),
    "a trigger on a table in other letters": (
        "CREATE TRIGGER loud BEFORE INSERT ON MAINSTAY_AUDIT_BLOCKS BEGIN SELECT 1; END",
    ),
    "a trigger on a table of one's own": (
        "CREATE TABLE own (x)",
        (
            "CREATE TRIGGER far AFTER INSERT ON own"
            " BEGIN DELETE FROM Mainstay_Audit_Heads WHERE block > 1; END"
        ),
    ),
    "a trigger on the view in other letters": (
        "CREATE TRIGGER loud INSTEAD OF INSERT ON Mainstay_Audit BEGIN SELECT 1; END",
    ),
    "a block that no block comes before": (
        (
            "INSERT INTO mainstay_audit_blocks SELECT -5, header, links, '[{\"forged\":1}]'"
            " FROM mainstay_audit_blocks WHERE block = 2"
        ),
    ),
    "a plan that nothing was pruned for": (
        (
            "INSERT INTO mainstay_audit_anchor VALUES"
            " ('', 0, 0, zeroblob(32), '[' || char(10) || '{\"forged\":1}' || char(10) || ']')"
        ),
    ),
    "a trigger on the heads": (
        (
            "CREATE TRIGGER other AFTER INSERT ON mainstay_audit_heads"
            " BEGIN DELETE FROM mainstay_audit_heads; END"
        ),
    ),
    "no view": ("DROP VIEW mainstay_audit",),
    "no table of heads": ("DROP TABLE mainstay_audit_heads",),
    "a body that the view reads otherwise": (
        "UPDATE mainstay_audit_blocks SET body = CAST(body AS BLOB) WHERE block = 2",
    ),
    "an anchor that is no number": (
        "INSERT INTO mainstay_audit_anchor VALUES ('a', 'x', 'y', 'z', '[]')",
    ),
    "an anchor below zero": (
        "INSERT INTO mainstay_audit_anchor VALUES ('a', -1, -1, x'00', '[]')",
    ),
    "a last header that is no JSON": (
        "UPDATE mainstay_audit_blocks SET header = 'x' WHERE block = 3",
    ),
    "an index with other records than its table": (
        "UPDATE mainstay_audit_blocks SET body = replace(body, 'event', 'FORGED')",
        "CREATE INDEX quick ON mainstay_audit_blocks (block, header, body)",
        "CREATE TABLE kept AS SELECT * FROM sqlite_master WHERE name = 'quick'",
        "PRAGMA writable_schema = ON",
        "DELETE FROM sqlite_master WHERE name = 'quick'",
        "PRAGMA writable_schema = RESET",
        "UPDATE mainstay_audit_blocks SET body = replace(body, 'FORGED', 'event')",
        "PRAGMA writable_schema = ON",
        "INSERT INTO sqlite_master SELECT * FROM kept",
        "PRAGMA writable_schema = RESET",
    ),
    "an index of heads without its rows": (
        (
            "CREATE TABLE kept AS SELECT * FROM sqlite_master"
            " WHERE name = 'mainstay_audit_heads_block'"
        ),
        "PRAGMA writable_schema = ON",
        "DELETE FROM sqlite_master WHERE name = 'mainstay_audit_heads_block'",
        "PRAGMA writable_schema = RESET",
        "INSERT INTO mainstay_audit_heads VALUES (1, 'x')",
        "PRAGMA writable_schema = ON",
        "INSERT INTO sqlite_master SELECT * FROM kept",
        "PRAGMA writable_schema = RESET",
    ),
    "a table in the place of a function": ("CREATE TABLE JSON_each (value)",),
}
IN_POSTGRES = {
    "a view that was replaced": (
        "DROP VIEW mainstay_audit",
        "CREATE VIEW mainstay_audit AS SELECT 1 AS number",
    ),
    "a view that hides a record": (
        "CREATE VIEW all_of_it AS SELECT * FROM mainstay_audit",
        "ALTER VIEW mainstay_audit RENAME TO kept",
        "CREATE VIEW mainstay_audit AS SELECT * FROM kept WHERE number > 1",
    ),
    "a table behind a view": BEHIND[1:],
    "a trigger that keeps blocks out": (
        "CREATE FUNCTION quiet() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        (
            "CREATE TRIGGER quiet BEFORE INSERT ON mainstay_audit_blocks"
            " FOR EACH ROW EXECUTE FUNCTION quiet()"
        ),
    ),
    "a rule": ("CREATE RULE quiet AS ON INSERT TO mainstay_audit_blocks DO INSTEAD NOTHING",),
    "a block that no block comes before": (
        (
            "INSERT INTO mainstay_audit_blocks SELECT -5, header, links, '[{\"forged\":1}]'"
            " FROM mainstay_audit_blocks WHERE block = 2"
        ),
    ),
    "a block without a number": (
        "ALTER TABLE mainstay_audit_blocks DROP CONSTRAINT mainstay_audit_blocks_pkey",
        "ALTER TABLE mainstay_audit_blocks ALTER block DROP NOT NULL",
        (
            "INSERT INTO mainstay_audit_blocks SELECT NULL, header, links, '[{\"forged\":1}]'"
            " FROM mainstay_audit_blocks WHERE block = 2"
        ),
    ),
    "numbers that need not differ": (
        "ALTER TABLE mainstay_audit_blocks DROP CONSTRAINT mainstay_audit_blocks_pkey",
        "ALTER TABLE mainstay_audit_blocks ADD PRIMARY KEY (links)",
    ),
    "a plan that nothing was pruned for": (
        (
            "INSERT INTO mainstay_audit_anchor VALUES"
            " ('', 0, 0, decode(repeat('00', 32), 'hex'), E'[\\n{\"forged\":1}\\n]'::bytea)"
        ),
    ),
    "policies on rows": ("ALTER TABLE mainstay_audit_blocks ENABLE ROW LEVEL SECURITY",),
    "a table that inherits": ("CREATE TABLE more () INHERITS (mainstay_audit_blocks)",),
    "no view": ("DROP VIEW mainstay_audit",),
    "no table of heads": ("DROP TABLE mainstay_audit_heads",),
    "an anchor below zero": ("INSERT INTO mainstay_audit_anchor VALUES ('a', -1, -1, '', '[]')",),
    "a constraint that keeps records out": (
        (
            "ALTER TABLE mainstay_audit_blocks ADD CHECK"
            " (position('call_failed'::bytea IN body) = 0) NOT VALID"
        ),
    ),
    "heads that end with a row of another table": (
        "CREATE TABLE own (block bigint PRIMARY KEY)",
        (
            "ALTER TABLE mainstay_audit_heads ADD FOREIGN KEY (block) REFERENCES own"
            " ON DELETE CASCADE NOT VALID"
        ),
    ),
    "an index that runs a function": (
        "CREATE FUNCTION own(bytea) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'",
        "CREATE INDEX quiet ON mainstay_audit_blocks (own(body))",
    ),
    "an index with a condition that runs a function": (
        "CREATE FUNCTION own(bytea) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true'",
        "CREATE INDEX quiet ON mainstay_audit_blocks (block) WHERE own(body)",
    ),
}
IN_FRONT = {
    "a view in the schema of a user": (
        "CREATE SCHEMA AUTHORIZATION CURRENT_USER",
        "CREATE VIEW mainstay_audit AS SELECT * FROM public.mainstay_audit WHERE number > 1",
    ),
    "a whole log in the schema of a user": (
        "CREATE SCHEMA AUTHORIZATION CURRENT_USER",
        *(
            f"CREATE TABLE {name} (LIKE public.{name} INCLUDING ALL)"
            for name in ("mainstay_audit_blocks", "mainstay_audit_heads", "mainstay_audit_anchor")
        ),
        "INSERT INTO mainstay_audit_blocks SELECT * FROM public.mainstay_audit_blocks",
        "INSERT INTO mainstay_audit_heads SELECT * FROM public.mainstay_audit_heads",
        (
            "DO $$ BEGIN EXECUTE 'CREATE VIEW mainstay_audit AS '"
            " || replace(pg_get_viewdef('public.mainstay_audit'::regclass), 'public.', ''); END $$"
        ),
    ),
    "functions in front of those of PostgreSQL": (
        "CREATE SCHEMA front",
        (
            "CREATE FUNCTION front.convert_from(bytea, name) RETURNS text LANGUAGE sql"
            " AS $$ SELECT pg_catalog.replace(pg_catalog.convert_from($1, $2), 'failed', '') $$"
        ),
        (
            "DO $$ DECLARE shown text := pg_get_viewdef('mainstay_audit'::regclass); BEGIN"
            " SET search_path = front, public, pg_catalog;"
            " EXECUTE 'CREATE OR REPLACE VIEW mainstay_audit AS ' || shown; END $$"
        ),
        (
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = front, public,"
            " pg_catalog', current_database()); END $$"
        ),
    ),
    "a view of functions in front of those of PostgreSQL": (
        "CREATE SCHEMA front",
        (
            "CREATE FUNCTION front.convert_from(bytea, name) RETURNS text LANGUAGE sql"
            " AS $$ SELECT pg_catalog.replace(pg_catalog.convert_from($1, $2), 'failed', '') $$"
        ),
        (
            "DO $$ BEGIN EXECUTE 'CREATE OR REPLACE VIEW mainstay_audit AS ' || replace("
            "pg_get_viewdef('mainstay_audit'::regclass), 'convert_from', 'front.convert_from');"
            " END $$"
        ),
    ),
}
CALLED = "BEGIN RAISE EXCEPTION 'a function of another user was called'; END"
BETTER_FITS = {
    "hashtextextended(text, integer)": "bigint",
    "convert_from(bytea, text)": "text",
    "nextval(text)": "bigint",
    "to_regclass(name)": "regclass",
    "unnest(text[])": "SETOF text",
    "pg_get_viewdef(regclass)": "text",
    "any_of(oid, regclass)": "boolean",
    "any_of(name, text)": "text",
    "any_of(float8, integer)": "boolean",
    "any_of(float8, numeric)": "float8",
}
"""What PostgreSQL would call before its own, since the types fit without a cast."""
BETTER_OPERATORS = {
    "=": ("oid", "regclass"),
    "||": ("name", "text"),
    ">": ("float8", "integer"),
    "+": ("float8", "numeric"),
}


def fill(where):
    log = AuditLog(where, spill=False)
    log(CallSucceeded(operation="a"))
    log.close()
    assert verify_log(where).is_complete


@pytest.mark.parametrize("attack", IN_SQLITE)
def test_a_changed_schema_of_sqlite_is_a_finding(tmp_path, attack):
    """Whoever reads the log by SQL reads what verify has checked, or verify reports it."""
    path = tmp_path / "audit.db"
    fill(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        for statement in IN_SQLITE[attack]:
            connection.execute(statement)
        connection.commit()
    found = CliRunner().invoke(app, ["audit", "verify", str(path)])
    assert found.exit_code == 1, found.output
    assert "changed after it was written" in found.output


def test_tables_and_indexes_of_ones_own_are_no_finding(tmp_path):
    """The file may have tables of others, and triggers on those."""
    path = tmp_path / "audit.db"
    fill(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (a)")
        connection.execute("CREATE TRIGGER mine_too AFTER INSERT ON mine BEGIN SELECT 1; END")
        connection.execute("CREATE INDEX by_size ON mainstay_audit_blocks (length(body))")
        connection.commit()
    assert verify_log(f"sqlite:///{path}").is_complete


def test_a_changed_schema_of_postgres_is_a_finding(postgres_database):
    """The same, with what else PostgreSQL has: rules, policies, tables that inherit."""
    import psycopg

    for attack, statements in IN_POSTGRES.items():
        fill(postgres_database)
        with psycopg.connect(postgres_database) as connection:
            for statement in statements:
                connection.execute(statement)
        verdict = verify_log(postgres_database)
        assert (verdict.ok, verdict.first_bad) == (False, 1), attack
        with psycopg.connect(postgres_database) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")


def test_a_view_of_another_server_is_compared_with_one_that_is_made(postgres_database, monkeypatch):
    """Servers show a view in different words: then a view is made, compared and dropped."""
    from mainstay.stores.postgres import audit_schema

    fill(postgres_database)
    monkeypatch.setattr(audit_schema, "_SHOWN", "in other words")
    assert verify_log(postgres_database).is_complete
    assert verify_log(postgres_database).is_complete


@pytest.mark.parametrize("attack", IN_FRONT)
def test_a_schema_in_front_of_a_log_is_a_finding(postgres_database, attack):
    """A reader of that search path is shown what the chain does not cover."""
    import psycopg

    fill(postgres_database)
    with psycopg.connect(postgres_database) as connection:
        for statement in IN_FRONT[attack]:
            connection.execute(statement)
    verdict = verify_log(postgres_database)
    assert (verdict.ok, verdict.first_bad) == (False, 1)


def test_an_index_of_ones_own_is_no_finding_in_postgres(postgres_database):
    """It runs functions of PostgreSQL only."""
    import psycopg

    fill(postgres_database)
    with psycopg.connect(postgres_database) as connection:
        connection.execute("CREATE INDEX by_size ON mainstay_audit_blocks (length(body))")
        connection.execute("CREATE TABLE mine (block bigint REFERENCES mainstay_audit_blocks)")
        connection.execute("CREATE SCHEMA elsewhere")
        connection.execute("CREATE TABLE elsewhere.mainstay_audit_blocks (mine int)")
    assert verify_log(postgres_database).is_complete


def test_no_function_of_another_user_is_called(postgres_database):
    """A user who may create in the schema has no code run by the user of the store.

    PostgreSQL takes a function whose types fit without a cast before one of its own.
    """
    import psycopg

    with psycopg.connect(postgres_database) as connection:
        for name, returned in BETTER_FITS.items():
            connection.execute(
                f"CREATE FUNCTION public.{name} RETURNS {returned} LANGUAGE plpgsql AS $${CALLED}$$"
            )
        for sign, (left, right) in BETTER_OPERATORS.items():
            connection.execute(
                f"CREATE OPERATOR public.{sign} (leftarg = {left}, rightarg = {right},"
                " function = public.any_of)"
            )
    fill(postgres_database)
    records = len(list(read_log(postgres_database)))
    with psycopg.connect(postgres_database) as connection:
        assert connection.execute("SELECT count(*) FROM mainstay_audit").fetchall() == [(records,)]
    assert records > 0
    sent = []
    with Engine(postgres_database, sinks=[]) as engine:
        with psycopg.connect(postgres_database) as connection:
            engine.outbox.add(
                connection, topic="a", payload={}, aggregate_type="A", aggregate_id="7"
            )
            engine.outbox.add(connection, topic="b", payload={}, delay=0.001)
        relay = engine.outbox.relay(sent.append)
        while len(sent) < 2:
            relay.drain()
        engine.outbox.counts()
    assert verify_log(postgres_database).ok
