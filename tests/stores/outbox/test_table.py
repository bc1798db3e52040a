"""The table of the outbox on both databases: claims, order, leases, immutability."""

import sqlite3
import threading

import psycopg
import pytest

from mainstay.core.outbox.entry import Failure, Phase
from mainstay.core.outbox.settle import (
    DeadRules,
    crashed,
    discarded,
    failed,
    given_back,
    published,
    replayed,
)
from mainstay.errors import StoreError
from mainstay.stores.outbox.insert import add
from mainstay.stores.outbox.new_row import new_row
from mainstay.stores.outbox.open import open_outbox
from mainstay.stores.outbox.schema import exported, newest, statements
from tests.processes import at_some_speed
from tests.servers.databases import outbox_place, postgres_place, sqlite_place

RULES = DeadRules()


__all__ = ["outbox_place"]


class Opened:
    """A database with an outbox."""

    def __init__(self, place):
        self.url, self.connect, self.execute = place.url, place.connect, place.execute
        self.table = open_outbox(place.url)

    def add(self, *names, aggregate="X", **fields):
        with self.connect() as connection:
            for name in names:
                add(connection, new_row("t", {}, {"id": name, "aggregate_id": aggregate, **fields}),
                    creates=False)  # fmt: skip

    def claim(self, limit=100, *, lease=30.0, is_idle=True, token="one"):
        return self.table.claim(limit, lease, token, is_idle=is_idle)

    def ids(self, *args, **options):
        return [each.id for each in self.claim(*args, **options).entries]

    def phases(self):
        found = self.table.list([each.value for each in Phase], limit=1000)
        return {each.id: each.phase.value for each in found}


@pytest.fixture
def place(outbox_place):
    found = Opened(outbox_place)
    yield found
    found.table.close()


def sent(entries):
    return [published(each, 1.0) for each in entries]


def test_a_claim_takes_entries_by_position_and_counts_the_attempt(place):
    place.add("a", "b", "c")
    batch = place.claim(2)
    assert [(e.id, e.attempts, e.message.attempt) for e in batch.entries] == [
        ("a", 1, 1),
        ("b", 1, 1),
    ]
    assert place.phases() == {"a": "claimed", "b": "claimed", "c": "ready"}


def test_an_entry_behind_another_is_parked_once_and_ready_when_that_has_ended(place):
    """Order per aggregate with two workers; other aggregates go on."""
    place.add("a", "b")
    place.add("y", aggregate="Y")
    first = place.claim(1)
    assert place.ids(token="two") == ["y"]
    assert place.phases() == {"a": "claimed", "b": "parked", "y": "claimed"}
    assert place.table.settle(first.entries, sent(first.entries)) == {"a"}
    assert place.ids(token="three") == ["b"]


def test_parked_entries_wait_for_the_last_of_those_before_them(place):
    """Of a claim of two, the end of the first releases nothing."""
    place.add("a", "b", "c")
    batch = place.claim(2)
    assert place.ids(token="two") == []
    a, b = batch.entries
    place.table.settle([a], sent([a]))
    assert place.phases()["c"] == "parked"
    place.table.settle([b], sent([b]))
    assert place.phases()["c"] == "ready"


@pytest.mark.parametrize("count", [100, 1000])
def test_many_entries_of_one_aggregate_cost_sqlite_the_same_each(tmp_path, count):
    """Instructions of SQLite's machine, which no neighbour disturbs: 176 each were counted."""
    own, ticks = Opened(sqlite_place(tmp_path)), []
    with own.connect() as connection:
        connection.set_progress_handler(lambda: ticks.append(1), 100)
        for number in range(count):
            fields = {"id": f"m{number}", "aggregate_id": "X"}
            add(connection, new_row("t", {}, fields), creates=False)
    own.table.close()
    assert len(ticks) * 100 < 300 * count


ODD = ['"', "\\", '\\"', "{a,b}", "a,b", "NULL", "null", " a ", "ä€𝄞", "'", "%s", "a\nb\tc"]


@pytest.mark.parametrize("odd", ODD)
def test_any_text_is_an_id_an_aggregate_and_a_reason(place, odd):
    """Texts that mean something in an array of PostgreSQL reach the table as they are."""
    place.add(odd, f"{odd}2", f"{odd}3", aggregate=odd)
    first = place.claim(1)
    place.claim(1, token="two")
    assert place.phases() == {odd: "claimed", f"{odd}2": "parked", f"{odd}3": "ready"}
    assert place.table.renew(first.entries, 30.0) == {odd}
    failure = Failure(first.now, 1, "transient", odd)
    waits = failed(first.entries[0], failure, RULES, is_final=False, delay=0.0)
    assert place.table.settle(first.entries, [waits]) == {odd}
    place.table.upkeep(RULES)
    again = place.claim(1)
    assert [each.text for each in again.entries[0].history] == [odd]
    assert place.table.settle(again.entries, sent(again.entries)) == {odd}
    assert place.ids() == [f"{odd}2", f"{odd}3"]


def test_a_retry_holds_its_aggregate_and_keeps_its_place(place):
    place.add("a", "b")
    batch = place.claim()
    a, b = batch.entries
    failure = Failure(batch.now, 1, "transient", "down")
    waits = failed(a, failure, RULES, is_final=False, delay=0.0)
    place.table.settle([a, b], [waits, given_back(b, is_behind=True)])
    assert place.phases() == {"a": "waiting", "b": "parked"}
    place.add("c")
    assert place.ids() == []
    place.table.upkeep(RULES)
    assert place.ids() == ["a"]


def test_once_dead_the_later_ones_go_on_unless_it_holds(place):
    place.add("a", "b")
    (a,) = place.claim(1).entries
    place.ids()
    dead = failed(a, Failure(1.0, 1, "permanent", "no"), RULES, is_final=True, delay=0.0)
    place.table.settle([a], [dead])
    (b,) = place.claim().entries
    assert b.id == "b"
    place.add("c")
    place.ids()
    holds = failed(b, Failure(1.0, 1, "permanent", "no"), DeadRules(holds=True), is_final=True,
                   delay=0.0)  # fmt: skip
    place.table.settle([b], [holds])
    assert place.phases() == {"a": "dead", "b": "holding", "c": "parked"}
    assert place.ids() == []
    place.table.decide("b", lambda entry, now: discarded(entry, now, "ann", "no use"))
    assert place.ids() == ["c"]


def test_a_replay_keeps_the_id_and_comes_after_what_is_there(place):
    place.add("a")
    (a,) = place.claim().entries
    dead = failed(a, Failure(1.0, 1, "permanent", "no"), RULES, is_final=True, delay=0.0)
    place.table.settle([a], [dead])
    place.add("b")
    place.table.decide("a", lambda entry, now: replayed(entry, now, "ann"))
    batch = place.claim()
    assert [(e.id, e.message.is_replay) for e in batch.entries] == [("b", False), ("a", True)]
    assert [each.kind for each in batch.entries[1].history] == ["permanent", "replay"]
    assert place.table.decide("none", lambda entry, now: replayed(entry, now, "ann")) is None


def test_a_worker_that_ended_is_taken_over_and_its_late_write_refused(place):
    """By token: the second claim's outcome stands."""
    place.add("a", "b")
    late = place.claim(lease=0.001)
    while not place.table.upkeep(RULES).recovered:
        pass
    again = place.claim(token="two")
    assert [(e.id, e.crashes, e.attempts) for e in again.entries] == [("a", 1, 2)]
    assert place.table.settle(late.entries, sent(late.entries)) == set()
    assert place.table.renew(late.entries, 30.0) == set()
    assert place.table.renew(again.entries, 30.0) == {"a"}
    assert place.table.settle(again.entries, sent(again.entries)) == {"a"}


def test_an_entry_that_crashed_is_claimed_alone(place):
    """A worker with others under way leaves it; an idle one takes it by itself."""
    place.add("a", aggregate="X")
    place.add("b", aggregate="Y")
    place.claim(1, lease=0.001)
    while not place.table.upkeep(RULES).recovered:
        pass
    busy = place.claim(is_idle=False)
    assert busy.entries == ()
    assert busy.wants_alone
    assert place.ids(is_idle=True) == ["a"]
    assert place.ids(is_idle=True) == ["b"]


@pytest.mark.req("EF-10")
def test_a_message_that_kills_its_worker_is_dead_alone(place):
    place.add("poison", aggregate="X")
    place.add("b", aggregate="Y")
    for _ in range(4):
        assert "poison" in place.ids(lease=0.001)
        while "claimed" in place.phases().values():
            place.table.upkeep(RULES)
    phases = place.phases()
    assert phases == {"poison": "dead", "b": "ready"}
    assert [each.kind for each in place.table.get("poison").history] == ["crash"] * 4
    assert [each.id for each in place.table.unreported()] == ["poison"]
    place.table.reported(["poison"])
    assert place.table.unreported() == []


def test_delayed_entries_sort_by_due_time(place):
    def check(delay):
        late, early, now = (f"{name} {delay}" for name in ("late", "early", "now"))
        place.add(late, delay=2 * delay)
        place.add(early, delay=delay)
        place.add(now)
        got = []
        while len(got) < 3:
            place.table.upkeep(RULES)
            batch = place.claim()
            got += [each.id for each in batch.entries]
            place.table.settle(batch.entries, sent(batch.entries))
        assert got == [now, early, late]

    at_some_speed(check, 0.1, 2.0, 10.0)


def test_a_clock_that_was_set_back_by_a_day_keeps_nothing_for_a_day(place):
    """Leases and waits that are too far away count as over."""
    place.add("a", aggregate="X")
    place.add("b", aggregate="Y")
    _a, b = place.claim().entries
    waits = failed(b, Failure(1.0, 1, "transient", "no"), RULES, is_final=False, delay=0.0)
    place.table.settle([b], [waits])
    place.execute("UPDATE mainstay_outbox SET lease_until = lease_until + 86400 WHERE id = 'a'")
    place.execute("UPDATE mainstay_outbox SET next_at = 4102444800 WHERE id = 'b'")
    place.table.upkeep(RULES)
    assert place.phases() == {"a": "ready", "b": "ready"}


@pytest.mark.req("EF-14")
def test_a_clock_that_was_set_ahead_by_a_day_loses_nothing(place):
    """A worker that is alive seems to be gone: another takes over, and its late write is refused.

    What a day passes is due at once.
    """
    place.add("a", aggregate="X")
    place.add("b", aggregate="Y", delay=3600.0)
    (first,) = place.claim(token="one").entries
    place.execute("UPDATE mainstay_outbox SET lease_until = lease_until - 86400 WHERE id = 'a'")
    place.execute("UPDATE mainstay_outbox SET next_at = next_at - 86400 WHERE id = 'b'")
    place.table.upkeep(RULES)
    assert place.phases() == {"a": "ready", "b": "ready"}
    second, *_ = place.claim(token="two").entries
    assert (second.id, second.attempts) == ("a", 2)
    assert place.table.settle([first], sent([first])) == set()
    assert place.table.settle([second], sent([second])) == {"a"}


def test_a_dedupe_key_keeps_the_first(place):
    with place.connect() as connection:
        for name in ("a", "b"):
            row = new_row("t", {}, {"id": name, "dedupe_key": "once"})
            assert add(connection, row, creates=False) == "a"
    assert place.phases() == {"a": "ready"}


@pytest.mark.req("EF-08")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE mainstay_outbox SET payload = 'x'",
        "UPDATE mainstay_outbox SET id = 'x'",
        "UPDATE mainstay_outbox SET topic = 'x'",
        "DELETE FROM mainstay_outbox",
        "TRUNCATE mainstay_outbox",
        "UPDATE mainstay_outbox SET phase = 'purged'",
        (
            "REPLACE INTO mainstay_outbox (id, topic, payload, content_type, position)"
            " VALUES ('a', 'x', 'x', 'x', 9)"
        ),
        (
            "REPLACE INTO mainstay_outbox (id, topic, payload, content_type, position, dedupe_key)"
            " VALUES ('z', 'x', 'x', 'x', 9, 'once')"
        ),
        (
            "REPLACE INTO mainstay_outbox (rowid, id, topic, payload, content_type, position)"
            " VALUES (1, 'z', 'x', 'x', 'x', 9)"
        ),
        "UPDATE OR REPLACE mainstay_outbox SET rowid = rowid + 1",
        (
            "INSERT INTO mainstay_outbox (id, topic, payload, content_type)"
            " VALUES ('a', 'x', 'x', 'x') ON CONFLICT (id) DO UPDATE SET payload = 'y'"
        ),
    ],
)
def test_the_database_refuses_to_change_or_delete_a_message(place, statement):
    """Whatever the statement raises or ignores, the message is as it was."""
    place.add("a", dedupe_key="once")
    before = place.table.get("a")
    try:
        place.execute(statement)
    except (sqlite3.Error, psycopg.Error):
        pass
    else:
        assert "once" in statement  # a second one of a key is ignored
    assert place.table.get("a") == before
    assert place.table.counts() == {"ready": 1}


def test_a_purge_deletes_only_what_has_ended_long_ago(place):
    place.add("a", "b", "c")
    a, b, _ = place.claim().entries
    place.table.settle([a], [published(a, 1.0)])
    place.table.settle([b], [published(b, 4e9)])
    assert place.table.purge(60.0) == 1
    assert place.phases() == {"b": "sent", "c": "claimed"}


def test_the_oldest_age_is_that_of_what_is_due(place):
    assert place.table.oldest_age() is None
    place.add("later", delay=60.0)
    assert place.table.oldest_age() is None
    place.add("a")
    assert place.table.oldest_age() >= 0.0


def test_missing_tables_name_the_command(place):
    url = place.url + "2" if place.table.dialect == "sqlite" else place.url + "_none"
    with pytest.raises(StoreError, match="mainstay outbox schema --dialect"):
        open_outbox(url, creates=False)


def test_the_exported_schema_is_what_we_create(place):
    """A role without DDL finds what it needs, and nothing is created twice."""
    again = open_outbox(place.url, creates=False)
    again.close()
    assert len(statements(place.table.dialect, exported(place.table.dialect))) > 10
    assert exported(place.table.dialect, after=newest(place.table.dialect)) == ""


def test_a_newer_version_is_refused(place):
    place.execute("UPDATE mainstay_outbox_schema SET version = 99")
    with pytest.raises(StoreError, match="version 99"):
        open_outbox(place.url)
    place.execute("UPDATE mainstay_outbox_schema SET version = 0")
    with pytest.raises(StoreError, match="mainstay outbox schema"):
        open_outbox(place.url, creates=False)


def test_of_several_that_open_it_at_once_one_creates_the_tables(outbox_place):
    """The others wait for its lock, and find what it has created."""
    ready, failures = threading.Barrier(6), []

    def opens():
        ready.wait()
        try:
            open_outbox(outbox_place.url).close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=opens) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.parametrize("url", ["redis://localhost", "memory://", "sqlite:///:memory:"])
def test_what_cannot_keep_an_outbox_is_refused(url):
    with pytest.raises(StoreError, match=r"outbox|memory"):
        open_outbox(url)


# --- order by commit, on PostgreSQL ---------------------------------------------------------------


@pytest.fixture
def postgres(postgres_url):
    found = Opened(postgres_place(postgres_url))
    yield found
    found.table.close()


def _add(connection, name, aggregate="X"):
    add(connection, new_row("t", {}, {"id": name, "aggregate_id": aggregate}), creates=False)


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_order_is_that_of_commits(postgres, isolation):
    """A is added first and committed last: it is published last, and nothing is lost."""
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        one.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
        _add(one, "a1")
        _add(two, "b")
        _add(one, "a2")
        two.commit()
        one.commit()
    assert postgres.ids() == ["b", "a1", "a2"]


def test_a_transaction_that_stays_open_holds_nobody_up(postgres):
    """What is committed meanwhile is published meanwhile."""
    with psycopg.connect(postgres.url) as one:
        _add(one, "a")
        postgres.add("b")
        batch = postgres.claim()
        assert [each.id for each in batch.entries] == ["b"]
        postgres.table.settle(batch.entries, sent(batch.entries))
        postgres.add("c")
        one.commit()
    assert postgres.ids() == ["c", "a"]


def test_entries_in_savepoints_keep_their_order(postgres):
    """A savepoint has a transaction id of its own."""
    with psycopg.connect(postgres.url) as one:
        with one.transaction():
            _add(one, "a1")
            with one.transaction():
                _add(one, "a2")
            _add(one, "a3")
        assert postgres.ids() == ["a1", "a2", "a3"]


def test_adding_takes_no_lock_that_another_waits_for(postgres):
    """Two open transactions add to one aggregate, and both commit."""
    with psycopg.connect(postgres.url) as one, psycopg.connect(postgres.url) as two:
        for connection in (one, two):
            connection.execute("SET lock_timeout = '1s'")
        _add(one, "a")
        _add(two, "b")
        _add(one, "c")
        two.commit()
        one.commit()
    assert set(postgres.ids()) == {"a", "b", "c"}


def test_a_claim_takes_nothing_behind_what_another_claim_has_locked(postgres):
    """The other has not written yet what it takes: the entry is ready, and is not to be had."""
    postgres.add("a", "b")
    postgres.add("y", aggregate="Y")
    with psycopg.connect(postgres.url) as other:
        other.execute("SELECT 1 FROM mainstay_outbox WHERE id = 'a' FOR UPDATE")
        assert postgres.ids() == ["y"]
        assert postgres.phases() == {"a": "ready", "b": "ready", "y": "claimed"}
    assert postgres.ids() == ["a", "b"]


def test_a_claim_while_an_outcome_is_written(postgres):
    """What is behind it is neither claimed nor parked: nothing would make it ready again."""
    postgres.add("a", "b")
    postgres.claim(1)
    with psycopg.connect(postgres.url) as other:
        other.execute("UPDATE mainstay_outbox SET phase = 'sent', ended_at = 1 WHERE id = 'a'")
        batch = postgres.claim(token="two")
        assert (batch.entries, batch.seen, batch.parked) == ((), 1, 0)
    assert postgres.ids(token="two") == ["b"]


def test_no_row_stays_parked_if_two_entries_of_an_aggregate_end_at_once(postgres):
    """Whoever commits last releases: both lock what holds the aggregate."""
    for turn in range(10):
        names = [f"{turn}{each}" for each in "abc"]
        postgres.add(*names)
        batch = postgres.claim(2)
        postgres.ids(token="two")
        ends = [
            threading.Thread(target=postgres.table.settle, args=([each], sent([each])))
            for each in batch.entries
        ]
        for thread in ends:
            thread.start()
        for thread in ends:
            thread.join()
        last = postgres.claim()
        assert [each.id for each in last.entries] == [names[2]]
        postgres.table.settle(last.entries, sent(last.entries))


def test_a_crash_of_a_claim_leaves_entries_to_others(postgres):
    """What the core decides for it is what the table has."""
    postgres.add("a")
    (a,) = postgres.claim(lease=0.001).entries
    found = ()
    while not found:
        found = postgres.table.upkeep(RULES).recovered
    assert found[0][1].crashes == crashed(a, 1.0, RULES).crashes == 1


def looks(plan):
    """How many rows of the table a plan has read, and how often it has looked into an index."""
    own = 0
    if plan.get("Relation Name") == "mainstay_outbox" and plan["Node Type"] != "ModifyTable":
        removed = plan.get("Rows Removed by Filter", 0)
        own = int((max(plan["Actual Rows"], 1) + removed) * plan["Actual Loops"])
    return own + sum(looks(each) for each in plan.get("Plans", ()))


def comparisons(plan):
    """How many rows the parts of a plan have handed on, or compared and left out."""
    known = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter")
    own = int(sum(plan.get(name, 0) for name in known) * plan["Actual Loops"])
    return own + sum(comparisons(each) for each in plan.get("Plans", ()))


@pytest.mark.parametrize("step", ["claim", "outcomes"])
def test_a_step_reads_what_it_needs_and_not_the_table(postgres, step):
    """A claim looked for each aggregate at each row; the outcomes of a batch read every row.

    A plan is made once for every size of a batch, and expects one row of each part. A claim joined
    its parts: it compared each row with each, 10,000 and more for a batch of 100.
    """
    from mainstay.stores.outbox import statements
    from mainstay.stores.outbox.postgres import _SESSION

    with postgres.connect() as connection:
        connection.execute("ALTER TABLE mainstay_outbox DISABLE TRIGGER USER")
        connection.execute(
            "INSERT INTO mainstay_outbox (id, topic, payload, content_type, aggregate, phase)"
            " SELECT n::text, 't', '', '', 'a' || n, CASE WHEN n <= 100 THEN 'ready'"
            " ELSE 'sent' END FROM generate_series(1, 3000) AS n"
        )
        connection.execute("UPDATE mainstay_outbox SET phase = 'sent' WHERE phase = 'ready'")
        connection.execute("ANALYZE mainstay_outbox")  # the statistics know no row that is ready
        connection.execute("UPDATE mainstay_outbox SET phase = 'ready' WHERE length(id) < 3")
    ids, aggregates = ([f"{mark}{n}" for n in range(1, 101)] for mark in ("", "a"))
    text, values = {
        "claim": (statements._SELECT, {"limit": 100}),
        "outcomes": (statements._LOCK_IDS, {"ids": ids, "aggregates": aggregates}),
    }[step]
    with postgres.connect() as connection:
        connection.execute(_SESSION)
        found = explained(connection, text, values)
        connection.rollback()
    assert looks(found) <= 500
    assert comparisons(found) <= 3000


def explained(connection, text, values):
    """The plan that a relay's connections keep, and what it has done."""
    import json

    numbered = {name: f"${number}" for number, name in enumerate(values, 1)}
    connection.execute(f"PREPARE step AS {text % numbered}")
    given = ", ".join(
        str(each) if isinstance(each, int) else f"'{{{','.join(each)}}}'"
        for each in values.values()
    )
    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE step({given})"
    ((found,),) = connection.execute(explain).fetchall()
    return (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
