"""How a circuit stands in all its processes: who speaks for it, and who follows an order."""

import pytest

from mainstay.core.circuit.breaker import Circuit, CircuitState, Signal
from mainstay.core.circuit.cluster import Order, Seat, Table
from mainstay.core.circuit.cluster_status import Standing, standing

OPEN = Circuit(state=CircuitState.OPEN, since=90.0, open_seconds=30.0, reason="3 failures")
CLOSED = Circuit(since=50.0)
FORCED = Circuit(state=CircuitState.FORCED_OPEN, since=90.0)


def stands(seats, order=None, now=100.0):
    return standing("pay", Table(seats, order), now)


def test_the_worst_of_those_that_are_there_speaks():
    """One open process of two is told, with how many."""
    found = stands({"a": Seat(100.0, CLOSED), "b": Seat(99.0, OPEN)})
    assert (found.state, found.is_open, found.worst.node) == (CircuitState.OPEN, True, "b")
    assert found.worst.retry_after == 20.0
    assert found.states() == {"open": 1, "closed": 1}
    assert found.to_dict()["seconds_in_state"] == 10.0


def test_who_is_gone_speaks_only_where_nobody_is_there():
    """A process that left is no news beside one that lives."""
    gone = Seat(100.0, OPEN, has_left=True)
    assert stands({"a": Seat(100.0, CLOSED), "b": gone}).state is CircuitState.CLOSED
    alone = stands({"b": gone})
    assert (alone.state, alone.live, alone.to_dict()["nodes"]) == (CircuitState.OPEN, (), 0)


def test_each_process_says_how_long_its_silence_may_be():
    """One that shares once a minute is there though it was not heard of for half of one."""
    seats = {"slow": Seat(70.0, CLOSED, silence=300.0), "lost": Seat(70.0, CLOSED)}
    assert [each.node for each in stands(seats).live] == ["slow"]


@pytest.mark.parametrize(
    ("circuit", "now", "state", "wait"),
    [
        (OPEN, 119.0, CircuitState.OPEN, 1.0),
        (OPEN, 120.0, CircuitState.HALF_OPEN, 0.0),
        (FORCED, 100.0, CircuitState.FORCED_OPEN, None),
        (CLOSED, 100.0, CircuitState.CLOSED, 0.0),
    ],
)
def test_when_asking_again_may_help(circuit, now, state, wait):
    """An open circuit whose time is over lets a probe through; a forced one waits for an order."""
    found = stands({"a": Seat(now, circuit)}, now=now)
    assert (found.state, found.worst.retry_after) == (state, wait)


def test_an_order_and_who_has_yet_to_follow_it():
    """As plain data too."""
    order = Order(2, Signal.RESET, "ann", 99.0, "it is back")
    seats = {"a": Seat(100.0, OPEN, obeyed=1), "b": Seat(100.0, CLOSED, obeyed=2)}
    found = stands(seats, order)
    assert found.pending_nodes == 1
    assert found.to_dict()["order"] == {
        "number": 2, "order": "reset", "by": "ann", "at": 99.0, "why": "it is back", "unheard": 1,
    }  # fmt: skip
    assert stands(seats).pending_nodes == 0


def test_a_table_of_a_budget_or_of_nobody_is_a_closed_circuit():
    """Nothing is known against it."""
    assert stands({"a": Seat(100.0)}) == Standing("pay")
    plain = Standing("pay").to_dict()
    assert (plain["state"], plain["reason"], plain["seconds_in_state"]) == ("closed", "", None)


def test_after_the_clock_was_set_back_it_is_open_for_its_length_at_most():
    """Not until the clock has caught up."""
    opened = Circuit(state=CircuitState.OPEN, since=90_000.0, open_seconds=30.0)
    assert stands({"a": Seat(100.0, opened)}).worst.retry_after == 30.0
