"""What the tables themselves keep: legal steps of an entry, places at the real commit, versions."""

import sqlite3

import psycopg
import pytest

from mainstay.core.outbox.entry import TRANSITIONS, Failure, Phase
from mainstay.core.outbox.settle import DeadRules, discarded, failed, published, replayed
from mainstay.errors import StoreError
from mainstay.stores.outbox import schema
from mainstay.stores.outbox.insert import add
from mainstay.stores.outbox.new_row import new_row
from mainstay.stores.outbox.open import open_outbox
from tests.servers.databases import outbox_place

__all__ = ["outbox_place"]
RULES = DeadRules()
REFUSED = (sqlite3.IntegrityError, psycopg.IntegrityError)


@pytest.fixture
def table(outbox_place):
    found = open_outbox(outbox_place.url)
    yield found
    found.close()


def added(place, *names, aggregate="X"):
    with place.connect() as connection:
        for name in names:
            given = {"id": name, "aggregate_id": aggregate}
            add(connection, new_row("t", {}, given), creates=False)


def ids(table):
    return [entry.id for entry in table.claim(100, 30.0, "one", is_idle=True).entries]


def died(table, *names):
    """Lets the messages that are ready die."""
    entries = table.claim(100, 30.0, "one", is_idle=True).entries
    assert [entry.id for entry in entries] == list(names)
    no = [failed(each, Failure(1.0, 1, "permanent", "no"), RULES, is_final=True, delay=0.0)
          for each in entries]  # fmt: skip
    assert table.settle(entries, no) == set(names)


# --- steps ----------------------------------------------------------------------------------------

PHASES = {
    Phase.READY: "",
    Phase.PARKED: "phase = 'parked'",
    Phase.CLAIMED: "phase = 'claimed', attempts = attempts + 1, token = 'x', lease_until = 9e9",
    Phase.SENT: "phase = 'sent', ended_at = 5",
    Phase.WAITING: "phase = 'waiting', next_at = 9e9, history = '[]'",
    Phase.DEAD: "phase = 'dead', has_item = {false}, history = '[]'",
    Phase.HOLDING: "phase = 'holding', has_item = {false}, history = '[]'",
    Phase.DISCARDED: "phase = 'discarded', ended_at = 5, history = '[ ]'",
    Phase.PURGED: "phase = 'purged'",
}
"""What comes with each phase, from its usual one before."""
WAYS = {
    Phase.PARKED: [Phase.PARKED],
    Phase.CLAIMED: [Phase.CLAIMED],
    Phase.SENT: [Phase.CLAIMED, Phase.SENT],
    Phase.WAITING: [Phase.CLAIMED, Phase.WAITING],
    Phase.DEAD: [Phase.CLAIMED, Phase.DEAD],
    Phase.HOLDING: [Phase.CLAIMED, Phase.HOLDING],
    Phase.DISCARDED: [Phase.CLAIMED, Phase.DEAD, Phase.DISCARDED],
}


def brought_to(place, phase):
    """An entry in a phase, by legal steps."""
    added(place, "a")
    for each in WAYS.get(phase, []):
        sets(place, PHASES[each])


def sets(place, what):
    false = "false" if place.dialect == "postgresql" else "0"
    place.execute("UPDATE mainstay_outbox SET " + what.replace("{false}", false))


@pytest.mark.req("EF-08")
@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("phase", [Phase.READY, *WAYS], ids=str)
def test_the_table_takes_no_step_that_is_none_of_the_core(outbox_place, table, phase):
    """So a message that waits is not removed by way of 'sent' and 'purged'."""
    brought_to(outbox_place, phase)
    before = table.get("a")
    for after in PHASES.keys() - TRANSITIONS[phase] - {phase}:
        for what in (f"phase = '{after}'", PHASES[after] or "phase = 'ready'"):
            with pytest.raises(REFUSED):
                sets(outbox_place, what)
    with pytest.raises(REFUSED):
        outbox_place.execute("DELETE FROM mainstay_outbox")
    assert table.get("a") == before


@pytest.mark.req("EF-08")
@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("phase", [Phase.READY, *WAYS], ids=str)
@pytest.mark.parametrize(
    "what",
    [
        "history = '[  ]'",
        "attempts = attempts + 7",
        "attempts = attempts - 1",
        "crashes = crashes + 1",
        "is_replay = NOT is_replay",
        "ended_at = 1",
        "position = position - 1",
    ],
)
def test_books_change_only_with_a_step(outbox_place, table, phase, what):
    brought_to(outbox_place, phase)
    before = table.get("a")
    with pytest.raises(REFUSED):
        sets(outbox_place, what)
    assert table.get("a") == before


@pytest.mark.req("EF-08")
@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("phase", "what"),
    [
        (Phase.READY, "phase = 'claimed'"),
        (Phase.READY, "phase = 'claimed', attempts = attempts + 2"),
        (Phase.CLAIMED, "phase = 'sent'"),
        (Phase.CLAIMED, "phase = 'ready', attempts = 5"),
        (Phase.DEAD, "phase = 'discarded', ended_at = 5"),
        (Phase.DEAD, "phase = 'ready', attempts = 0"),
        (Phase.DEAD, "phase = 'ready', attempts = 0, history = ''"),
        (Phase.DEAD, "phase = 'discarded', ended_at = 5, history = '[ ]', is_replay = {true}"),
        (Phase.SENT, "phase = 'purged', history = '[  ]'"),
    ],
)
def test_a_step_has_what_comes_with_it(outbox_place, table, phase, what):
    brought_to(outbox_place, phase)
    before = table.get("a")
    true = "true" if outbox_place.dialect == "postgresql" else "1"
    with pytest.raises(REFUSED):
        sets(outbox_place, what.replace("{true}", true))
    assert table.get("a") == before


def test_a_message_is_discarded_replayed_and_purged_as_before(outbox_place, table):
    """Every step of relays and operators, also of one that holds and of one that was replayed."""
    added(outbox_place, "a", "b")
    died(table, "a", "b")
    for name in "ab":
        table.decide(name, lambda entry, now: replayed(entry, now, "ann"))
    died(table, "a", "b")
    table.decide("a", lambda entry, now: discarded(entry, now, "ann", "no use"))
    table.decide("b", lambda entry, now: replayed(entry, now, "ann"))
    entries = table.claim(100, 30.0, "one", is_idle=True).entries
    assert [(entry.id, entry.message.is_replay) for entry in entries] == [("b", True)]
    table.settle(entries, [published(each, 1.0) for each in entries])
    assert table.purge(0.0) == 2


# --- versions -------------------------------------------------------------------------------------


def first_version(place):
    with place.connect() as connection:
        for statement in schema.statements(place.dialect, schema.scripts(place.dialect)[1]):
            connection.execute(statement)


def test_tables_of_the_first_version_are_brought_up_to_date(outbox_place):
    """A process of before goes on beside; one that may not change the tables works with them."""
    first_version(outbox_place)
    added(outbox_place, "a", "b")
    before = open_outbox(outbox_place.url, creates=False)
    (a,) = before.claim(1, 30.0, "one", is_idle=True).entries
    after = open_outbox(outbox_place.url)
    with pytest.raises(REFUSED):
        sets(outbox_place, "phase = 'sent', ended_at = 5")
    assert before.settle([a], [published(a, 1.0)]) == {"a"}
    (b,) = before.claim(100, 30.0, "two", is_idle=True).entries
    assert after.settle([b], [published(b, 1.0)]) == {"b"}
    assert after.purge(0.0) == 2
    for each in (before, after):
        each.close()
    with outbox_place.connect() as connection:
        rows = connection.execute("SELECT version FROM mainstay_outbox_schema").fetchall()
    assert rows == [(schema.newest(outbox_place.dialect),)]


def test_the_exported_difference_is_what_is_missing(outbox_place):
    first_version(outbox_place)
    with outbox_place.connect() as connection:
        for each in schema.statements(
            outbox_place.dialect, schema.exported(outbox_place.dialect, 1)
        ):
            connection.execute(each)
    added(outbox_place, "a")
    open_outbox(outbox_place.url, creates=False).close()
    with pytest.raises(REFUSED):
        sets(outbox_place, "phase = 'sent', ended_at = 5")
    outbox_place.execute("UPDATE mainstay_outbox_schema SET version = 0")
    with pytest.raises(StoreError, match="--after 0"):
        schema.check(outbox_place.dialect, 0, "url")
