"""An audit log in a database, whose tables or view somebody has replaced: verify finds it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

from mainstay.audit import AuditLog, verify_log
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
