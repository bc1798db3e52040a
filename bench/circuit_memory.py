"""Table 12: how many bytes a circuit takes.

Measured with tracemalloc in a fresh process, `python -m bench.circuit_memory NAME KIND`. Windows
are full: every circuit has seen 121 calls, one in three of them failed, over a minute of
virtual time where its window is one of time. Names exist before the measurement.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from bench.breaker import WITH_WINDOW
from bench.breaker_peers import ALONE, Circuit, mainstay_breaker
from bench.measure import Effort, answer, child, reason
from bench.peers import Colour
from bench.table import Goal, Row, Table, at_most

ORDER = 12
COUNT = 50
SEEN = 121  # calls, the last of which succeeds
KILOBYTE = 1024
MINE = "mainstay"

CIRCUITS = {
    "plain": Circuit(),
    "gate": Circuit(),
    "open": Circuit(failures=1),
    "calls": Circuit(window="calls"),
    "seconds": Circuit(window="seconds"),
    "slow": Circuit(window="seconds", slow_after=1.0),
}
TITLES = {
    "plain": "failures in a row",
    "open": "failures in a row, open",
    "gate": "failures in a row, with a gate attached",
    "calls": "window of 100 calls, full",
    "seconds": "window of 60 s, full",
    "slow": "window of 60 s, full, slow-call rate",
}


def run(effort: Effort) -> Table:
    """Bytes per circuit."""
    asked = [(name, "plain") for name in ALONE] + [(name, "calls") for name in WITH_WINDOW]
    table = _table({kind: 10 if CIRCUITS[kind].window else 2 for kind in TITLES})
    table.rows.extend(_row(name, kind, None) for name, kind in asked)
    return table


def counted() -> Table:
    """Our own rows within the bound of the document, which is a gate.

    Bytes are counted, whatever else the machine does. 2 KB without a window is a goal of our own,
    which `run` shows.
    """
    # req: NFR-041-08
    return _table(dict.fromkeys(TITLES, 10))


def _table(goals: dict[str, int]) -> Table:
    rows = [_row(MINE, kind, at_most(goal * KILOBYTE)) for kind, goal in goals.items()]
    method = (
        f"Bytes each, {COUNT} of them: tracemalloc, fresh processes. Pyresilience makes a breaker "
        "for each function, so that its rows count the function's wrapper too."
    )
    return Table("circuit_memory", "Memory per circuit", method, rows)


def _row(name: str, kind: str, goal: Goal | None) -> Row:
    what = f"{name}, {TITLES[kind]}"
    try:
        return Row(what, child("bench.circuit_memory", name, kind), goal, "B")
    except Exception as error:
        return Row(what, None, goal, "B", note=reason(error))


# What runs in the fresh process.


def size(name: str, kind: str) -> float:
    """Bytes for each circuit."""
    if name != MINE:
        return _each(lambda _: _used(name, CIRCUITS[kind]))
    from mainstay.testing import virtual_time

    names = [f"circuit-{number}" for number in range(COUNT)]
    with virtual_time() as time:
        return _each(lambda number: _used_mine(names[number], kind, time.advance))


def _each(make: Callable[[int], object]) -> float:
    made: list[object] = [make(number) for number in range(3)]  # whatever is cached once
    made = [None] * COUNT
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(COUNT):
        made[number] = make(number)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    return (after - before) / COUNT


def _used_mine(name: str, kind: str, advance: Callable[[float], None]) -> object:
    from mainstay.drivers.call.guard import Gate

    breaker = mainstay_breaker(CIRCUITS[kind], name)
    gate = Gate((breaker,)) if kind == "gate" else None
    if kind == "open":
        breaker.record_failure()
        assert breaker.state.name == "OPEN"
        return breaker
    for number in range(SEEN):
        advance(0.5)
        if number % 3 == 2:
            breaker.record_failure()
        else:
            breaker.record_success()
    assert breaker.state.name == "CLOSED"
    return breaker if gate is None else gate  # which holds the breaker


def _used(name: str, circuit: Circuit) -> object:
    colour: Colour = "async" if name.startswith("hyx") else "sync"
    fails = itertools.cycle((False, False, True))

    def f() -> None:
        if next(fails):
            raise ConnectionError

    async def g() -> None:
        f()

    decorate = ALONE[name](circuit, colour)
    function: Any = decorate(f if colour == "sync" else g)
    for _ in range(SEEN):
        with contextlib.suppress(ConnectionError, StopIteration):
            outcome = function()
            if colour == "async":
                outcome.send(None)
    return function if name.startswith("pyresilience") else decorate


if __name__ == "__main__":
    answer(size, *sys.argv[1:])
