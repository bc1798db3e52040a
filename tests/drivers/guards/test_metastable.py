"""A service that stays down after the trigger is over, and what it takes to bring it back."""

import pytest

from tools import metastable

HOW = "run .venv/bin/python tools/metastable.py --write and look at the picture"


@pytest.fixture(scope="module")
def outcomes():
    return metastable.outcomes()


def test_retries_alone_keep_a_service_down(outcomes):
    """A minute after the server is well again, not one call succeeds: all its work is abandoned."""
    outcome = outcomes["retries alone"]
    assert outcome.goodput(0.0, 20.0) == 1.0
    assert outcome.goodput(30.0, 90.0) < 0.05
    assert outcome.load(70.0, 90.0) > 2.0


@pytest.mark.req("AG-01.storm", "UVS-4", "UVS-5")
def test_with_a_budget_and_a_breaker_it_recovers(outcomes):
    """The same trigger, the same users: it is back, and never saw more than its usual load."""
    outcome = outcomes["with budget and breaker"]
    assert outcome.goodput(0.0, 20.0) == 1.0
    assert outcome.goodput(20.0, 30.0) < 0.5, "the trigger must hurt, or this shows nothing"
    assert outcome.goodput(60.0, 90.0) == 1.0
    assert outcome.load(30.0, 90.0) < 0.75


def test_the_picture_in_the_docs_is_this_one(outcomes):
    """Every run is the same to the bit, and so is its picture."""
    drawn = metastable.FILE.read_text(encoding="utf-8") if metastable.FILE.exists() else ""
    assert drawn == metastable.render(outcomes), f"docs/images/metastable.svg is not new: {HOW}"
