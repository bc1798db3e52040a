"""Messages, sagas and runs of pipelines that any version has stored go on in this one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mainstay.profiles.pipelines import PipelineHalted
from tests.stored import content, durable

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("v*/durable.sqlite"))


@pytest.fixture(params=FILES, ids=lambda file: file.parent.name)
def path(request, tmp_path):
    """A file as a version has left it."""
    shutil.copy(request.param, tmp_path / "durable.sqlite")
    shutil.copytree(request.param.parent / "ledgers", tmp_path / "ledgers")
    return tmp_path / "durable.sqlite"


@pytest.fixture
def engine(path):
    with durable.open_engine(path) as engine:
        yield engine


def test_a_version_has_stored_something():
    """There is a file to open."""
    assert FILES


def test_messages_are_published_or_replayed(engine):
    """What was pending is published, what is dead has its history and can be replayed."""
    states = {name: engine.outbox.get(name).state for name in durable.MESSAGES}
    assert states == {"sent": "SENT", "dead": "DEAD", "pending": "PENDING"}
    assert "no such topic" in engine.outbox.get("dead").history[0].text
    engine.outbox.replay("dead", by="ann")
    published = []
    engine.outbox.relay(published.append).drain()
    assert [(each.id, each.payload) for each in published] == [
        ("pending", b'{"id":"pending"}'),
        ("dead", b'{"id":"dead"}'),
    ]


def test_a_saga_that_was_interrupted_goes_on(engine):
    """Its first step is not run again, and its result is there for the second one."""
    engine.sagas.register(durable.saga())
    assert engine.sagas.recover().succeeded == 1
    assert engine.sagas.get("transfer", "left").state == "succeeded"


def test_a_saga_that_has_ended_is_not_run_again(engine):
    """The same id is the same saga."""
    ended = durable.saga(credit=content.take)
    assert engine.sagas.run(ended, {"amount": 5}, id="ended").results["credit"] == 10


def test_a_saga_that_is_stuck_is_shown(engine):
    """With the step that a person must decide about."""
    view = engine.sagas.get("transfer", "stuck")
    assert (view.state, [each.name for each in view.steps]) == ("stuck", ["debit", "credit"])


def test_a_run_that_is_halted_is_resumed(engine, path):
    """Not before a person has released it; what was done is not done again."""
    engine.operators.add("ann", secret="correct horse battery")
    repaired = durable.pipeline(
        engine, lambda ctx: len(ctx.results["poll"]), path.parent / "ledgers"
    )
    with pytest.raises(PipelineHalted):
        repaired.resume("halted")
    (item,) = [each for each in engine.inbox if each.kind == "quarantine"]
    engine.inbox.act(item.id, "release", by="ann", proof="correct horse battery", why="repaired")
    assert repaired.resume("halted").results["check"] == 2
