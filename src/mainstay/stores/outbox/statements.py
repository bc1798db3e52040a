"""The steps of the outbox on PostgreSQL, as generators of round trips, without a connection.

**Who locks what.** A claim locks the rows that it takes, and for each aggregate that it parks rows
of one row before them that is claimed, waiting or holding, all with SKIP LOCKED: it never waits.
What ends entries locks all such rows of their aggregates, in the order of their ids, and then makes
ready what is parked before the first row that is left, in a statement of its own, which sees what
was parked before it had the locks. So a parked row always has a row before it whose end is still to
come.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from mainstay.core.outbox.claim import Candidate, plan_claim
from mainstay.core.outbox.entry import Entry, Phase
from mainstay.core.outbox.settle import LONGEST_WAIT, crashed, is_over
from mainstay.stores.outbox.arrays import numbers, optional_texts, texts
from mainstay.stores.outbox.rows import COLUMNS, Batch, Look, entry_of, history_text
from mainstay.stores.postgres.statements import CLOCK, RoundTrip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from mainstay.core.outbox.settle import DeadRules, Settlement
    from mainstay.stores.postgres.statements import Statement, Steps

_BEGIN = (("BEGIN ISOLATION LEVEL READ COMMITTED", dict[str, "Any"]()),)
_COMMIT = (("COMMIT", dict[str, "Any"]()),)
RELEASED = 100
"""Parked rows that become ready at once, as many as a claim takes."""
_UPKEEP = 0x6D73_6F75_7462_6F78
"""The advisory lock of the one worker that promotes what is due."""


def _least(hold: int) -> str:
    return (
        "(SELECT min(h.position) FROM mainstay_outbox AS h"
        f" WHERE h.aggregate = a.aggregate AND h.hold = {hold})"
    )


_NAMES = [name.strip() for name in COLUMNS.split(",")]
_AGGREGATE, _POSITION = _NAMES.index("aggregate"), _NAMES.index("position")


def _holder(position: str) -> str:
    """The columns of a claim, for a row that holds an aggregate and is not taken."""
    known = {"aggregate": "aggregate", "position": position}
    return ", ".join(known.get(name, "NULL") for name in (*_NAMES, "clock"))


_SELECT = (
    f"WITH c AS MATERIALIZED (SELECT {COLUMNS} FROM mainstay_outbox WHERE phase = 'ready'"
    " ORDER BY position LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED),"
    " a AS MATERIALIZED (SELECT DISTINCT aggregate FROM c WHERE aggregate IS NOT NULL),"
    " f AS MATERIALIZED (SELECT a.aggregate,"
    f" least({_least(0)}, {_least(2)}) AS first FROM a)"
    f" SELECT {COLUMNS}, {CLOCK} FROM c"
    f" UNION ALL SELECT {_holder('first')} FROM f WHERE first IS NOT NULL"
    f" UNION ALL SELECT {_holder('min(r.position)')} FROM mainstay_outbox AS r"
    " WHERE r.phase = 'ready' AND r.position < (SELECT max(position) FROM c)"
    " AND r.aggregate IS NOT NULL AND r.id NOT IN (SELECT id FROM c) GROUP BY r.aggregate"
)
"""The rows, and, without an id, first positions of rows that hold an aggregate and are not taken:
one is parked or busy, or another claim has locked it. Nothing is joined: a planner expects one row
of each part, would compare each row with each, and the claim of 500 rows would cost 20 times that
of 100. NOT IN is one look into a hash table for each row, whatever is expected."""
_LOCK_HOLDERS = (
    "SELECT h.aggregate FROM unnest(%(aggregates)s::text[], %(positions)s::bigint[])"
    " AS a (aggregate, position) CROSS JOIN LATERAL (SELECT o.aggregate FROM mainstay_outbox AS o"
    " WHERE o.aggregate = a.aggregate AND o.hold = 2 AND o.position < a.position"
    " LIMIT 1 FOR UPDATE SKIP LOCKED) AS h"
)
_TAKE = (
    "UPDATE mainstay_outbox AS o SET"
    " phase = CASE WHEN d.is_claimed THEN 'claimed' ELSE 'parked' END,"
    " attempts = o.attempts + d.is_claimed::integer,"
    " token = CASE WHEN d.is_claimed THEN %(token)s::text ELSE '' END,"
    f" lease_until = CASE WHEN d.is_claimed THEN {CLOCK} + %(lease)s::float8 END"
    " FROM unnest(%(ids)s::text[], %(is_claimed)s::boolean[]) AS d (id, is_claimed)"
    " WHERE o.id = d.id"
)
_LOCKED = (
    "WITH wanted AS MATERIALIZED (SELECT id FROM pg_catalog.unnest(%(ids)s::text[]) AS i (id)"
    " UNION SELECT h.id FROM pg_catalog.unnest(%(aggregates)s::text[]) AS a (aggregate)"
    " CROSS JOIN LATERAL ("
    "SELECT o.id FROM mainstay_outbox AS o WHERE o.aggregate = a.aggregate AND o.hold = 2"
    " OFFSET 0) AS h)"
    ' SELECT {} FROM (SELECT id FROM wanted ORDER BY id COLLATE "C") AS w CROSS JOIN LATERAL ('
    "SELECT * FROM mainstay_outbox AS o WHERE o.id = w.id LIMIT 1 FOR UPDATE) AS l"
)
"""Rows by their ids, and those that hold some aggregates, locked in the order of their ids. Each is
one look into an index: with a condition on either, PostgreSQL reads the whole table in the order of
its ids."""
_LOCK = _LOCKED.format(f"{', '.join('l.' + name.strip() for name in COLUMNS.split(','))}, {CLOCK}")
_LOCK_IDS = _LOCKED.format("1")
_SETTLE = (
    "UPDATE mainstay_outbox AS o SET phase = d.phase, attempts = d.attempts, crashes = d.crashes,"
    " next_at = d.next_at, ended_at = d.ended_at, history = coalesce(d.history, o.history),"
    " token = '', lease_until = NULL, is_replay = d.is_replay,"
    " has_item = CASE WHEN d.phase IN ('dead', 'holding') THEN false END,"
    " position = CASE WHEN d.is_moved THEN nextval('mainstay_outbox_position'::regclass)"
    " ELSE o.position END"
    " FROM unnest(%(ids)s::text[], %(phases)s::text[], %(attempts)s::integer[],"
    " %(crashes)s::integer[], %(next_at)s::float8[], %(ended_at)s::float8[],"
    " %(history)s::text[], %(is_moved)s::boolean[], %(is_replay)s::boolean[], %(tokens)s::text[])"
    " AS d (id, phase, attempts, crashes, next_at, ended_at, history, is_moved, is_replay, token)"
    " WHERE o.id = d.id AND o.token = d.token AND o.phase = ANY(%(from)s::text[])"
    " RETURNING o.id"
)
_RELEASE = (
    "UPDATE mainstay_outbox SET phase = 'ready' WHERE id IN (SELECT p.id"
    " FROM (SELECT u.aggregate FROM pg_catalog.unnest(%(aggregates)s::text[]) AS u (aggregate)"
    " WHERE (SELECT e.hold FROM mainstay_outbox AS e"
    " WHERE e.aggregate = u.aggregate AND e.hold = 0 LIMIT 1) IS NOT NULL OFFSET 0) AS a"
    " CROSS JOIN LATERAL ("
    f"SELECT least({_least(1)}, {_least(2)}) AS first OFFSET 0) AS f CROSS JOIN LATERAL ("
    "SELECT o.id FROM mainstay_outbox AS o WHERE o.aggregate = a.aggregate AND o.hold = 0"
    " AND (f.first IS NULL OR o.position < f.first)"
    f" ORDER BY o.position LIMIT {RELEASED}) AS p) AND phase = 'parked'"
)
"""Most aggregates have nothing parked, which one look into an index shows."""
_RENEW = (
    f"UPDATE mainstay_outbox SET lease_until = {CLOCK} + %(lease)s::float8"
    " WHERE phase = 'claimed' AND token = ANY(%(tokens)s::text[]) AND id = ANY(%(ids)s::text[])"
    " RETURNING id"
)
_LATE = f"(%(now)s::float8 + {LONGEST_WAIT}::float8)"
_LOOK = (
    f"SELECT {CLOCK},"
    " (SELECT min(next_at) FROM mainstay_outbox WHERE phase = 'scheduled' AND next_at > 0::float8),"
    " (SELECT min(next_at) FROM mainstay_outbox WHERE phase = 'waiting' AND next_at > 0::float8),"
    " (SELECT max(next_at) FROM mainstay_outbox WHERE phase = 'waiting' AND next_at > 0::float8),"
    " (SELECT min(lease_until) FROM mainstay_outbox WHERE lease_until > 0::float8),"
    " (SELECT max(lease_until) FROM mainstay_outbox WHERE lease_until > 0::float8),"
    " EXISTS (SELECT 1 FROM mainstay_outbox WHERE has_item = false)"
)
_TRY_UPKEEP = f"SELECT pg_try_advisory_xact_lock({_UPKEEP})"
_PROMOTE = (
    "WITH due AS MATERIALIZED (SELECT id, phase FROM mainstay_outbox"
    " WHERE phase IN ('waiting', 'scheduled') AND next_at > 0::float8"
    f" AND (next_at <= %(now)s::float8 OR (phase = 'waiting' AND next_at > {_LATE}))"
    " ORDER BY next_at, position LIMIT 1000 FOR UPDATE SKIP LOCKED),"
    " numbered AS MATERIALIZED (SELECT id, CASE WHEN phase = 'scheduled'"
    " THEN nextval('mainstay_outbox_position'::regclass) END AS position FROM due)"
    " UPDATE mainstay_outbox AS o SET phase = 'ready', next_at = NULL,"
    " position = coalesce(n.position, o.position) FROM numbered AS n WHERE o.id = n.id"
    " RETURNING o.id"
)
_EXPIRED = (
    "SELECT id, aggregate FROM mainstay_outbox WHERE phase = 'claimed' AND lease_until > 0::float8"
    f" AND (lease_until <= %(now)s::float8 OR lease_until > {_LATE}) LIMIT 100"
)
_UNREPORTED = (
    f"SELECT {COLUMNS} FROM mainstay_outbox WHERE has_item = false ORDER BY position LIMIT 100"
)
_REPORTED = (
    "UPDATE mainstay_outbox SET has_item = true"
    " WHERE id = ANY(%(ids)s::text[]) AND has_item = false"
)
_GET = f"SELECT {COLUMNS} FROM mainstay_outbox WHERE id = %(id)s::text"
_LIST = (
    f"SELECT {COLUMNS} FROM mainstay_outbox WHERE phase = ANY(%(phases)s::text[])"
    " AND position > %(after)s::bigint AND (%(topic)s::text IS NULL OR topic = %(topic)s::text)"
    " AND (%(aggregate_id)s::text IS NULL OR aggregate_id = %(aggregate_id)s::text)"
    " ORDER BY position LIMIT %(limit)s::bigint"
)
_COUNTS = "SELECT phase, count(*) FROM mainstay_outbox GROUP BY phase"
_OLDEST = (
    f"SELECT {CLOCK}, (SELECT created_at FROM mainstay_outbox WHERE phase = 'ready'"
    " ORDER BY position LIMIT 1),"
    " (SELECT min(created_at) FROM mainstay_outbox WHERE lease_until > 0::float8),"
    " (SELECT min(created_at) FROM mainstay_outbox WHERE phase = 'waiting' AND next_at > 0::float8)"
)
_PURGING = (
    "UPDATE mainstay_outbox SET phase = 'purged' WHERE id IN (SELECT id FROM mainstay_outbox"
    " WHERE phase IN ('sent', 'discarded')"
    f" AND ended_at <= {CLOCK} - %(age)s::float8 LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED)"
    " RETURNING id"
)
_PURGE = "DELETE FROM mainstay_outbox WHERE id = ANY(%(ids)s::text[])"
_FORGET = (
    "WITH gone AS (DELETE FROM mainstay_consumed WHERE (consumer, message_id) IN"
    " (SELECT consumer, message_id FROM mainstay_consumed"
    f" WHERE consumed_at <= {CLOCK} - %(age)s::float8 LIMIT %(limit)s::bigint) RETURNING 1)"
    " SELECT count(*) FROM gone"
)
_HAS_SCHEMA = (  # not to_regclass: in a transaction it may answer from before a lock was waited for
    "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE relname = 'mainstay_outbox_schema'"
    " AND pg_catalog.pg_table_is_visible(oid))"
)
_VERSION = "SELECT max(version) FROM mainstay_outbox_schema"


def claim(limit: int, lease: float, token: str, *, is_idle: bool) -> Steps[Batch]:
    """Claims the first rows that are ready, and parks those that are behind another."""
    found = yield RoundTrip(_SELECT, {"limit": limit}, before=_BEGIN)
    rows = sorted([row for row in found if row[0] is not None], key=itemgetter(_POSITION))
    if not rows:
        yield RoundTrip("ROLLBACK")
        return Batch((), token, 0.0)
    first: dict[str, int] = {}
    for row in found:
        if row[0] is None:
            aggregate, position = row[_AGGREGATE], row[_POSITION]
            first[aggregate] = min(position, first.get(aggregate, position))
    candidates = [Candidate(row[0], row[6], row[10], row[14]) for row in rows]
    plan = plan_claim(candidates, first, is_idle=is_idle)
    parked = yield from _parked(plan.blocked)
    claimed = {row.id for row in plan.claimed}
    values = {
        "ids": texts([*claimed, *parked]),
        "is_claimed": numbers([True] * len(claimed) + [False] * len(parked)),
        "token": token,
        "lease": lease,
    }
    yield RoundTrip(_TAKE, values, after=_COMMIT)
    taken = tuple([entry_of(row, token) for row in rows if row[0] in claimed])
    return Batch(taken, token, rows[0][-1], len(rows), len(parked), wants_alone=plan.wants_alone)


def _parked(blocked: Sequence[Candidate]) -> Steps[list[str]]:
    """Those of the rows whose aggregate is held by a row that could be locked."""
    if not blocked:
        return []
    first: dict[str, int] = {}
    for row in blocked:  # by position
        if row.aggregate is not None:
            first.setdefault(row.aggregate, row.position)
    values = {"aggregates": texts([*first]), "positions": numbers([*first.values()])}
    rows = yield RoundTrip(_LOCK_HOLDERS, values)
    locked = {row[0] for row in rows}
    return [row.id for row in blocked if row.aggregate in locked]


def settle(
    entries: Iterable[Entry], done: Sequence[Settlement], phases: Sequence[str] = ("claimed",)
) -> Steps[set[str]]:
    """Writes what became of entries; returns the ids of those that were still ours."""
    tokens, aggregates = _keys(entries)
    ids = texts([each.id for each in done])
    lock = (_LOCK_IDS, {"ids": ids, "aggregates": texts(aggregates)})
    return (yield from _settled(done, tokens, aggregates, phases, before=(*_BEGIN, lock)))


def _keys(entries: Iterable[Entry]) -> tuple[dict[str, str], list[str]]:
    tokens: dict[str, str] = {}
    aggregates: set[str] = set()
    for entry in entries:
        tokens[entry.id] = entry.token
        if entry.aggregate is not None:
            aggregates.add(entry.aggregate)
    return tokens, sorted(aggregates)


def _settled(
    done: Sequence[Settlement],
    tokens: dict[str, str],
    aggregates: list[str],
    phases: Sequence[str],
    before: tuple[Statement, ...] = (),
) -> Steps[set[str]]:
    """Writes settlements, releases what was parked behind, commits; all as one round trip.

    The rows are locked, or what comes `before` locks them.
    """
    values = {
        "ids": texts([each.id for each in done]),
        "phases": texts([each.phase.value for each in done]),
        "attempts": numbers([each.attempts for each in done]),
        "crashes": numbers([each.crashes for each in done]),
        "next_at": numbers([each.next_at for each in done]),
        "ended_at": numbers([each.ended_at for each in done]),
        "history": optional_texts(
            [None if e.history is None else history_text(e.history) for e in done]
        ),
        "is_moved": numbers([each.is_moved for each in done]),
        "is_replay": numbers([each.is_replay for each in done]),
        "tokens": texts([tokens[each.id] for each in done]),
        "from": texts(phases),
    }
    release = ((_RELEASE, {"aggregates": texts(aggregates)}),) if aggregates else ()
    rows = yield RoundTrip(_SETTLE, values, before, (*release, *_COMMIT))
    return {row[0] for row in rows}


def renew(tokens: list[str], ids: list[str], lease: float) -> Steps[set[str]]:
    """Renews leases; returns the ids of those that were still ours."""
    values = {"tokens": texts(tokens), "ids": texts(ids), "lease": lease}
    rows = yield RoundTrip(_RENEW, values)
    return {row[0] for row in rows}


def upkeep(rules: DeadRules) -> Steps[Look]:
    """Promotes what is due, and takes over what crashed workers have left."""
    look = yield from _look()
    if not look.is_due:
        return look
    rows = yield RoundTrip(_TRY_UPKEEP, before=_BEGIN)
    if not rows[0][0]:
        yield RoundTrip("ROLLBACK")
        return look
    yield RoundTrip(_PROMOTE, {"now": look.now}, after=_COMMIT)
    entries, done = yield from _recovered(look.now, rules)
    after = yield from _look()
    return Look(
        after.now,
        after.next_at,
        has_unreported=after.has_unreported,
        recovered=tuple(zip(entries, done, strict=True)),
    )


def _look() -> Steps[Look]:
    ((now, scheduled, waiting, latest, lease, last, unreported),) = yield RoundTrip(_LOOK)
    return Look.of(now, scheduled, waiting, latest, lease, last, unreported)


def _recovered(now: float, rules: DeadRules) -> Steps[tuple[list[Entry], list[Settlement]]]:
    found = yield RoundTrip(_EXPIRED, {"now": now})
    if not found:
        return [], []
    aggregates = sorted({row[1] for row in found if row[1] is not None})
    where = {"ids": texts([row[0] for row in found]), "aggregates": texts(aggregates)}
    rows = yield RoundTrip(_LOCK, where, before=_BEGIN)
    late = [entry for row in rows if _is_late(entry := entry_of(row), row[-1])]
    if not late:
        yield RoundTrip("ROLLBACK")
        return [], []
    done = [crashed(entry, rows[0][-1], rules) for entry in late]
    tokens, aggregates = _keys(late)
    yield from _settled(done, tokens, aggregates, ("claimed",))
    return late, done


def _is_late(entry: Entry, now: float) -> bool:
    return entry.phase is Phase.CLAIMED and is_over(entry.lease_until or 0.0, now)


def decide_dead(
    entry_id: str, decide: Callable[[Entry, float], Settlement]
) -> Steps[tuple[Entry, Settlement] | None]:
    """Settles one entry by a decision on what it is; None if there is no such entry."""
    rows = yield RoundTrip(_GET, {"id": entry_id})
    if not rows:
        return None
    aggregates = [] if rows[0][6] is None else [rows[0][6]]
    where = {"ids": texts([entry_id]), "aggregates": texts(aggregates)}
    rows = yield RoundTrip(_LOCK, where, before=_BEGIN)
    row = next((each for each in rows if each[0] == entry_id), None)
    if row is None:
        yield RoundTrip("ROLLBACK")
        return None
    entry = entry_of(row)
    try:
        done = decide(entry, row[-1])
    except Exception:  # a relay would skip the row while it is locked
        yield RoundTrip("ROLLBACK")
        raise
    yield from _settled([done], {entry_id: entry.token}, aggregates, (entry.phase.value,))
    return entry, done


def unreported() -> Steps[list[Entry]]:
    """Dead entries of which the inbox has no item yet."""
    rows = yield RoundTrip(_UNREPORTED)
    return [entry_of(row) for row in rows]


def reported(ids: list[str]) -> Steps[None]:
    """Notes that the inbox has items of them."""
    yield RoundTrip(_REPORTED, {"ids": ids})


def get(entry_id: str) -> Steps[Entry | None]:
    """One entry."""
    rows = yield RoundTrip(_GET, {"id": entry_id})
    return entry_of(rows[0]) if rows else None


def listed(
    phases: list[str], topic: str | None, aggregate_id: str | None, after: int, limit: int
) -> Steps[list[Entry]]:
    """Entries by position, page by page."""
    values = {"phases": phases, "topic": topic, "aggregate_id": aggregate_id}
    rows = yield RoundTrip(_LIST, {**values, "after": after, "limit": limit})
    return [entry_of(row) for row in rows]


def counts() -> Steps[dict[str, int]]:
    """Entries by phase."""
    rows = yield RoundTrip(_COUNTS)
    return {row[0]: int(row[1]) for row in rows}


def oldest_age() -> Steps[float | None]:
    """Seconds since the oldest entry was added that is due and not published; None if none is."""
    ((now, *found),) = yield RoundTrip(_OLDEST)
    known = [each for each in found if each is not None]
    return max(0.0, now - min(known)) if known else None


def purge(age: float, limit: int) -> Steps[int]:
    """Deletes entries that ended some time ago; how many."""
    rows = yield RoundTrip(_PURGING, {"age": age, "limit": limit}, before=_BEGIN)
    ids = [row[0] for row in rows]
    yield RoundTrip(_PURGE, {"ids": ids}, after=_COMMIT)
    return len(ids)


def forget(age: float, limit: int) -> Steps[int]:
    """Deletes notes of consumed messages that are older; how many."""
    ((count,),) = yield RoundTrip(_FORGET, {"age": age, "limit": limit})
    return int(count)


def version() -> Steps[int]:
    """The version of the schema; 0 if there is none."""
    rows = yield RoundTrip(_HAS_SCHEMA)
    if not rows[0][0]:
        return 0
    rows = yield RoundTrip(_VERSION)
    return int(rows[0][0] or 0)
