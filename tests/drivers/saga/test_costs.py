"""What a saga costs: statements, frames and C functions, counted.

Bounds for a saga of three steps that nothing goes wrong with; ratios of time are in bench/.
"""

import pytest

from mainstay import Engine, Saga, SagaStep
from mainstay.stores.sqlite import statements as sqlite_steps
from tests.costs import costs

STEPS = ("debit", "credit", "notify")


@pytest.fixture
def entered(tmp_path, monkeypatch):
    """What three sagas of three steps on SQLite enter each, of which the first has warmed up."""
    for name in ("_INSERT", "_UPDATE", "_ROW"):  # a machine that stands still is no wait
        monkeypatch.setattr(
            sqlite_steps, name, getattr(sqlite_steps, name).replace("< 0.01", "< 50")
        )
    sqlite_steps._inserting.cache_clear()
    saga = Saga("transfer", [SagaStep(name, lambda: 1, lambda: None) for name in STEPS])
    with Engine(
        f"sqlite:///{tmp_path}/kept.db?synchronous=NORMAL", sinks=[], audit=False
    ) as engine:

        def run(number):
            engine.sagas.run(saga, {"amount": 500}, id=f"t-{number}")

        for number in range(2):
            run(f"warm-{number}")
        yield [costs(run, number) for number in range(3)]
    sqlite_steps._inserting.cache_clear()


def test_a_saga_of_three_steps_says_four_statements(entered):
    """The beginning, and a write after each step: each a commit of its own; nothing is read."""
    counted = [[name for name in each if name == "Connection.execute"] for each in entered]
    assert [len(each) for each in counted] == [4, 4, 4]


def test_a_saga_decodes_nothing_that_it_has_written(entered):
    """The driver has the record whose text it hands to the store."""
    assert not [name for each in entered for name in each if name == "Decoder.decode"]


def test_a_saga_of_three_steps_enters_few_frames(entered):
    """Beginning, steps, writes and end; what a step does itself is one of them."""
    assert min(map(len, entered)) <= 285, "a machine that stands still adds looks at the clock"
