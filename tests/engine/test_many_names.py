"""Calls under more names than an engine keeps."""

import gc

import pytest

from mainstay import BreakerSettings, Engine
from mainstay.drivers.call.site import Site
from mainstay.drivers.guards import registry
from mainstay.engine import calls

MOST = 50


@pytest.fixture(autouse=True)
def few_names(monkeypatch):
    """Engines that keep fifty names, and as many circuits."""
    monkeypatch.setattr(calls, "_MAX_OPERATIONS", MOST)
    monkeypatch.setattr(registry, "_MOST", MOST)


@pytest.fixture
def uncollected():
    """Only counting frees objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(cls, prefix):
    """The names of all sites or circuits there are whose name begins so."""
    names = [
        each.operation if cls is Site else each.name
        for each in gc.get_objects()
        if type(each) is cls
    ]
    return {name for name in names if name.startswith(prefix)}


@pytest.mark.parametrize("verb", ["call", "run"])
def test_what_is_forgotten_is_freed_at_once(uncollected, verb):
    """A flood of names does not fill the memory until a collection of garbage walks through it."""
    with Engine(sinks=[], breaker=BreakerSettings()) as engine:
        for number in range(4 * MOST):
            getattr(engine, verb)(f"flood-{verb}-{number}", int)
        prefix = f"flood-{verb}-"
        assert alive(Site, prefix) == set(engine._sites)
        assert alive(registry.CircuitBreaker, prefix) == set(engine.circuits.names)
        assert max(len(engine._sites), len(engine.circuits)) <= MOST


def test_names_are_forgotten_a_tenth_at_a_time():
    """Those that were used first; the others stay as quick as they were."""
    with Engine(sinks=[]) as engine:
        for number in range(MOST + 1):
            engine.call(f"name-{number}", int)
        assert list(engine._sites) == [f"name-{number}" for number in range(MOST // 10, MOST + 1)]


def test_an_operation_that_was_forgotten_works_as_before():
    """Its verbs are made anew, and its circuit is the same."""
    with Engine(sinks=[], breaker=BreakerSettings()) as engine:
        operation = engine.operation("kept")
        assert operation.call(int, "7") == 7
        guard = engine.circuits["kept"]
        for number in range(2 * MOST):
            engine.call(f"other-{number}", int)
        assert "kept" not in engine._sites
        assert operation.call(int, "8") == 8
        assert operation.run(int, "9").value == 9
        assert engine.circuits["kept"] is guard
