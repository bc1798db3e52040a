"""Whether the tables and the view of an audit log in PostgreSQL are those that mainstay has made.

The chain covers what is read from the tables. A view that was replaced, a trigger, a rule, a policy
on rows or a table that is a view now shows readers something else than what the chain covers, or
keeps records out of it.
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
_NO_NUMBER = "SELECT block FROM mainstay_audit_blocks WHERE block < 1 LIMIT 1"
"""Such a row is in the view, and a reader of the log begins with block 1."""
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
     WHERE i.indrelid = c.oid AND i.indisprimary)
FROM unnest(%(names)s::text[]) AS wanted (name)
LEFT JOIN pg_class AS c ON c.oid = to_regclass(wanted.name)
"""
_DEFINITION = "SELECT pg_get_viewdef(to_regclass(%(name)s::text))"
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
    rows = yield RoundTrip(_OURS, {"names": [*_COLUMNS, _VIEW]})
    if all(row[1] is None for row in rows):
        return []
    flaws = [flaw for row in rows for flaw in _flaws_of(row)]
    if flaws:
        return flaws
    below = yield RoundTrip(_NO_NUMBER)
    if below:
        return [f"the table {_BLOCKS} has a row {below[0][0]}, and begins with 1"]
    return [] if (yield from _shown(_VIEW)) == _SHOWN else [OTHER_VIEW]


def _flaws_of(row: Sequence[Any]) -> list[str]:
    """What is wrong with a table or the view."""
    name, kind, has_policies, columns, triggers, rules, inherits, key = row
    what, wanted = ("view", "v") if name == _VIEW else ("table", "r")
    if kind is None:
        return [f"the {what} {name} is missing"]
    if kind != wanted or (name != _VIEW and columns != _COLUMNS[name]):
        return [f"the {what} {name} is not the one that was made"]
    found = {"trigger": triggers, "rule": rules}
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
    yield RoundTrip("BEGIN")
    yield RoundTrip(text.replace(begins, f"CREATE TEMP VIEW {_EXPECTED} AS", 1))
    shown, expected = (yield from _shown(_VIEW)), (yield from _shown(f"pg_temp.{_EXPECTED}"))
    yield RoundTrip("ROLLBACK")
    return shown == expected
