"""Whether the tables and the view of an audit log in PostgreSQL are those that mainstay has made.

The chain covers what is read from the tables. A view that was replaced, a trigger, a rule, a policy
on rows or a table that is a view now shows readers something else than what the chain covers, or
keeps records out of it. So does another log in a schema in front, and a schema in front of
`pg_catalog`, whose functions would answer in place of those of PostgreSQL.

The look itself has `pg_catalog` alone as its search path: in any other one, a function of another
user with fitting types would be called in place of one that these statements mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstay.stores.migrations import scripts, statements
from mainstay.stores.postgres.statements import RoundTrip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.stores.postgres.statements import Steps

_COLUMNS = {
    "mainstay_audit_blocks": "block bigint,header bytea,links bytea,body bytea",
    "mainstay_audit_heads": "block bigint,head bytea",
    "mainstay_audit_anchor": "log text,block bigint,number bigint,link bytea,carried bytea",
}
_BLOCKS = "mainstay_audit_blocks"
_VIEW = "mainstay_audit"
_NAMES = [*_COLUMNS, _VIEW]
_CATALOG = "pg_catalog"
_NO_NUMBER = "SELECT block FROM mainstay_audit_blocks WHERE block < 1 LIMIT 1"
"""Such a row is in the view, and a reader of the log begins with block 1."""
_PATH = "SELECT pg_catalog.current_schemas(true)::text[]"
_LOOK_IN = "SELECT pg_catalog.set_config('search_path', %(path)s::text, true)"
_PLACES = """
SELECT n.nspname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname::text = ANY (%(names)s::text[]) AND n.nspname::text = ANY (%(path)s::text[])
"""
_OURS = """
SELECT wanted.name, c.relkind::text, c.relrowsecurity,
    (SELECT string_agg(
        a.attname::text || ' ' || format_type(a.atttypid, a.atttypmod) || a.attgenerated::text,
        ',' ORDER BY a.attnum)
     FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT string_agg(t.tgname::text, ', ') FROM pg_trigger AS t
     WHERE t.tgrelid = c.oid AND NOT t.tgisinternal),
    (SELECT string_agg(r.rulename::text, ', ') FROM pg_rewrite AS r
     WHERE r.ev_class = c.oid AND (c.relkind <> 'v' OR r.rulename <> '_RETURN')),
    EXISTS (SELECT FROM pg_inherits AS i WHERE c.oid IN (i.inhparent, i.inhrelid)),
    (SELECT string_agg(a.attname::text, ',') FROM pg_index AS i
     JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
     WHERE i.indrelid = c.oid AND i.indisprimary),
    (SELECT string_agg(k.conname::text, ', ') FROM pg_constraint AS k
     WHERE k.conrelid = c.oid AND k.contype NOT IN ('p', 'n')),
    (SELECT string_agg(DISTINCT x.relname::text, ', ') FROM pg_index AS i
     JOIN pg_class AS x ON x.oid = i.indexrelid
     JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
     WHERE i.indrelid = c.oid
     AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_opclass'::regclass)
     AND NOT EXISTS (SELECT FROM pg_depend AS e WHERE e.classid = d.refclassid
                     AND e.objid = d.refobjid AND e.deptype = 'e'))
FROM unnest(%(names)s::text[]) AS wanted (name)
LEFT JOIN (pg_class AS c JOIN pg_namespace AS n
    ON n.oid = c.relnamespace AND n.nspname::text = %(schema)s::text)
ON c.relname::text = wanted.name
"""
"""Functions of PostgreSQL's own are no dependency; those of an extension are known ones."""
_DEFINITION = "SELECT pg_catalog.pg_get_viewdef(pg_catalog.to_regclass(%(name)s::text)::oid)"
_EXPECTED = "mainstay_audit_as_made"
_SHOWN = " ".join(
    """
    SELECT ((((h.header ->> 'first'::text))::bigint + e."position") - 1) AS number,
    (e.event ->> 'event_type'::text) AS event_type, (e.event ->> 'operation'::text) AS operation,
    (e.event ->> 'policy'::text) AS policy, (e.event ->> 'call_id'::text) AS call_id,
    (e.event ->> 'tenant_id'::text) AS tenant_id, (e.event ->> 'timestamp'::text) AS "timestamp",
    (h.header ->> 'writer'::text) AS writer, e.event FROM ((mainstay_audit_blocks b
    CROSS JOIN LATERAL ( SELECT (convert_from(b.header, 'UTF8'::name))::json AS header) h)
    CROSS JOIN LATERAL json_array_elements((convert_from(b.body, 'UTF8'::name))::json)
    WITH ORDINALITY e(event, "position"));
    """.split()
)
"""How PostgreSQL 18 shows the view; of others, a view for comparison is made and dropped."""
OTHER_VIEW = f"the view {_VIEW} is not the one that was made"


def schema_flaws() -> Steps[list[str]]:
    """What is not as it was made; nothing if there is no audit log at all."""
    path, places = yield from _found()
    if not places:
        yield RoundTrip("ROLLBACK")
        return []
    flaws = _in_front(path, places)
    if not flaws:
        wanted = {"names": _NAMES, "schema": places[0]}
        rows = yield RoundTrip(_OURS, wanted)
        flaws = [flaw for row in rows for flaw in _flaws_of(row)]
    if not flaws:
        yield RoundTrip(_LOOK_IN, {"path": _only(places[0])})
        below = yield RoundTrip(_NO_NUMBER)
        if below:
            flaws = [f"the table {_BLOCKS} has a row {below[0][0]}, and begins with 1"]
        elif (yield from _shown(_VIEW)) != _SHOWN:
            flaws = [OTHER_VIEW]
    yield RoundTrip("ROLLBACK")
    return flaws


def _found() -> Steps[tuple[list[str], list[str]]]:
    """The search path, and which schemas of it have tables of a log; begins a transaction.

    From here on, and to its end, the search path is `pg_catalog` alone.
    """
    path = list((yield RoundTrip(_PATH))[0][0])
    yield RoundTrip("BEGIN")
    yield RoundTrip(_LOOK_IN, {"path": "pg_catalog, pg_temp"})
    rows = yield RoundTrip(_PLACES, {"names": _NAMES, "path": path})
    return path, sorted({row[0] for row in rows}, key=path.index)


def _only(schema: str) -> str:
    """A search path in which nothing answers in place of PostgreSQL's own."""
    quoted = schema.replace('"', '""')
    return f'pg_catalog, "{quoted}", pg_temp'


def _in_front(path: list[str], places: list[str]) -> list[str]:
    """What a reader of these tables would be shown by another schema."""
    before = [each for each in path[: path.index(_CATALOG)] if not each.startswith("pg_temp_")]
    flaws = [
        f"the search path has {each} before {_CATALOG}, so that its functions are called instead"
        for each in before
    ]
    if len(places) > 1:
        first, *others = places
        flaws.append(f"the schema {first} has tables of a log in front of {', '.join(others)}")
    return flaws


def _flaws_of(row: Sequence[Any]) -> list[str]:
    """What is wrong with a table or the view."""
    name, kind, has_policies, columns, triggers, rules, inherits, key, checks, indexes = row
    what, wanted = ("view", "v") if name == _VIEW else ("table", "r")
    if kind is None:
        return [f"the {what} {name} is missing"]
    if kind != wanted or (name != _VIEW and columns != _COLUMNS[name]):
        return [f"the {what} {name} is not the one that was made"]
    found = {
        "trigger": triggers,
        "rule": rules,
        "constraint": checks,
        "index with a function": indexes,
    }
    flaws = [f"the {word} {names} on {name} was added" for word, names in found.items() if names]
    if has_policies:
        flaws.append(f"{name} has policies on its rows, which hide some from some users")
    if name == _BLOCKS and key != "block":
        flaws.append(f"the primary key of {name}, the number of a block, was removed")
    if inherits:
        flaws.append(f"the table {name} shares its rows with another")
    return flaws


def _shown(name: str) -> Steps[str]:
    rows = yield RoundTrip(_DEFINITION, {"name": name})
    return " ".join(str(rows[0][0]).split())


def is_as_made() -> Steps[bool]:
    """Whether the server shows the same of the view and of one that is made for comparison."""
    begins = f"CREATE VIEW {_VIEW} AS"
    made = [each for script in scripts("postgres").values() for each in statements(script)]
    text = next(each for each in made if each.startswith(begins))
    _, places = yield from _found()
    yield RoundTrip(_LOOK_IN, {"path": _only(places[0])})
    yield RoundTrip(text.replace(begins, f"CREATE TEMP VIEW {_EXPECTED} AS", 1))
    shown, expected = (yield from _shown(_VIEW)), (yield from _shown(f"pg_temp.{_EXPECTED}"))
    yield RoundTrip("ROLLBACK")
    return shown == expected
