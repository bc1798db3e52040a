"""Items of the inbox about dead letters that are replayed, discarded or purged without it."""

import pytest

from mainstay import Backoff, Engine, RetryPolicy
from mainstay.drivers.outbox.reports import Reports
from tests.servers.databases import outbox_place

__all__ = ["outbox_place"]
ONCE = RetryPolicy(max_attempts=1, backoff=Backoff.constant(0.0), attempt_timeout=30.0)


@pytest.fixture
def seen():
    """The events of the engine."""
    return []


@pytest.fixture
def engine(outbox_place, seen):
    with Engine(outbox_place.url, sinks=[seen.append], audit=False) as made:
        made.outbox.counts()
        with outbox_place.connect() as connection:
            made.outbox.add(connection, topic="t", payload={}, id="8d0f", aggregate_id="X")
        dies(made)
        yield made


def dies(engine, **options):
    def fail(_message):
        raise ConnectionError("no route")

    engine.outbox.relay(fail, policy=ONCE, **options).drain()
    assert engine.outbox.get("8d0f").state == "DEAD"


def the_item(engine):
    (item,) = [each for each in engine.inbox.all() if each.subject == "8d0f"]
    return item


def kinds(seen):
    return [event.event_type for event in seen if event.event_type.startswith("inbox")]


@pytest.mark.req("EF-10", "CP-15.reported")
@pytest.mark.parametrize("action", ["replay", "discard"])
def test_what_is_resolved_without_the_inbox_closes_its_item(engine, seen, action):
    """With what became of the message, and who has done that; it is an event, and so audited."""
    reason = {} if action == "replay" else {"why": "a test of hunter2"}
    getattr(engine.outbox, action)("8d0f", by="ann", **reason)
    item = the_item(engine)
    assert (item.status, item.decision) == ("closed", None)
    assert item.result.startswith(f"the message was {action}ed by ann")
    assert item.history[-1].text == item.result
    assert kinds(seen) == ["inbox_raised", "inbox_closed"]
    closed = next(event for event in seen if event.event_type == "inbox_closed")
    assert (closed.operator, closed.decision, closed.result) == ("ann", "", item.result)
    assert "was closed: the message was" in closed.sentence()


@pytest.mark.parametrize("after_dead", ["continue", "hold"])
def test_a_second_death_raises_the_item_anew(engine, seen, after_dead):
    for turn in (1, 2):
        engine.outbox.replay("8d0f")
        dies(engine, after_dead=after_dead)
        assert the_item(engine).status == "open"
        assert kinds(seen).count("inbox_raised") == turn + 1
    assert [item.subject for item in engine.inbox] == ["8d0f"]


def test_a_purge_closes_items_whose_message_is_gone(engine, outbox_place):
    """What an earlier version, or a process that ended, has left open; others stay."""
    engine.inbox.resolve = lambda *_given, **_options: None
    engine.outbox.discard("8d0f", why="a test")
    assert the_item(engine).status == "open"
    del engine.inbox.resolve
    with outbox_place.connect() as connection:
        engine.outbox.add(connection, topic="t", payload={}, id="dead", aggregate_id="Y")

    def fail(_message):
        raise ConnectionError("no route")

    engine.outbox.relay(fail, policy=ONCE).drain()
    assert engine.outbox.purge(0.0) == 1
    assert the_item(engine).result == "there is no such message any more"
    assert [item.subject for item in engine.inbox] == ["dead"]


def test_a_message_that_is_replayed_while_its_item_is_raised(engine):
    """The relay looks again once the item is there."""
    reports = Reports(engine.outbox._opened(), engine.inbox, (), None)
    (entry,) = engine.outbox.entries("DEAD")
    engine.outbox.replay("8d0f", by="ann")
    assert reports._raised(entry)
    assert list(engine.inbox) == []


def test_an_item_that_cannot_be_closed_fails_no_replay(engine, monkeypatch):
    def fails(*_given, **_options):
        raise ConnectionError("the store of the inbox is down")

    monkeypatch.setattr(engine.inbox, "resolve", fails)
    engine.outbox.replay("8d0f")
    assert engine.outbox.get("8d0f").state == "PENDING"
    assert the_item(engine).status == "open"
