"""Table 11: what it costs to be refused by an open circuit.

Every contender is rehearsed first: its function fails until calls are refused without running it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.breaker_peers import ALONE, BOTH, Breaker, Circuit, mainstay_alone, mainstay_both
from bench.compare import duration, ratios
from bench.measure import METHOD, Contender, Effort, Lacks, Results, Timing, race, race_async
from bench.peers import Colour, Function, Plan, no_sleep
from bench.table import Row, Table, at_most

ORDER = 11
RAISED = "raise + except"
MINE = "mainstay, retry + breaker"
ALONE_MINE = "mainstay, breaker alone"
CIRCUIT = Circuit(failures=1, plan=Plan(initial=0.001))
MOST = 20


def run(effort: Effort) -> Table:
    """Calls that an open circuit refuses, each error caught at once."""
    # req: NFR-041-04
    half = effort.scaled(0.6)
    goals = {MINE: at_most(5), ALONE_MINE: at_most(5)}
    with no_sleep():
        sync = race(_contenders("sync", REFUSED), half, goals)
        rows = ratios(sync, RAISED, goals, named="sync: {}")
        rows.append(_milliseconds(sync))
        rows += ratios(
            race_async(_contenders("async", AREFUSED), half), RAISED, {}, named="async: {}"
        )
    method = (
        "× a function, or a coroutine function, that raises a ConnectionError which the caller "
        f"catches. {METHOD}"
    )
    return Table("refusal", "Refused by an open circuit", method, rows)


def _contenders(colour: Colour, loop: Callable[..., Any]) -> list[Contender]:
    asked = {MINE: mainstay_both, ALONE_MINE: mainstay_alone}
    asked |= BOTH | {f"{name} alone": adapter for name, adapter in ALONE.items()}
    contenders = [Contender(RAISED, partial(_raising, colour), loop)]
    contenders += [
        Contender(name, partial(_refusing, adapter, colour), loop)
        for name, adapter in asked.items()
    ]
    return contenders


def _milliseconds(results: Results) -> Row:
    # req: NFR-041-04
    what, mine = f"sync: {MINE}", results[MINE]
    if not isinstance(mine, Timing):
        return Row(what, None, at_most(1), "ms", note=mine.reason)
    return Row(what, mine.best * 1000, at_most(1), "ms", note=duration(mine.best))


def _raising(colour: Colour) -> tuple[Function]:
    def f(a: object, b: object) -> object:
        raise ConnectionError

    async def g(a: object, b: object) -> object:
        raise ConnectionError

    return (f if colour == "sync" else g,)


def _refusing(adapter: Breaker, colour: Colour) -> tuple[Function]:
    """The function under a breaker that has opened."""
    runs: list[None] = []

    def f(a: object, b: object) -> object:
        runs.append(None)
        raise ConnectionError

    async def g(a: object, b: object) -> object:
        runs.append(None)
        raise ConnectionError

    function = adapter(CIRCUIT, colour)(f if colour == "sync" else g)
    for _ in range(MOST):
        before = len(runs)
        if _has_raised(function, colour) and len(runs) == before:
            return (function,)
    raise Lacks(f"{MOST} failures do not open it")


def _has_raised(function: Function, colour: Colour) -> bool:
    """Whether a call ends with an error; a coroutine is driven by hand, and must not suspend."""
    try:
        outcome: Any = function(1, 2)
        if colour == "sync":
            return False
        outcome.send(None)
    except StopIteration:
        return False
    except Exception:
        return True
    outcome.close()
    raise Lacks("asks its breaker in a worker thread")


# The timing loops: ten calls a turn, and each error is caught where it arrives.


def _loop(head: str, call: str) -> Function:
    ten = f"        try: {call}\n        except Exception: pass\n" * 10
    made: dict[str, Function] = {}
    exec(f"{head} loop(n, f):\n    for _ in range(n):\n{ten}", made)
    return made["loop"]


REFUSED = _loop("def", "f(1, 2)")
AREFUSED = _loop("async def", "await f(1, 2)")
