"""Table 9: what a closed breaker adds to a call that succeeds at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.breaker_peers import (
    ALONE,
    BOTH,
    Breaker,
    Circuit,
    mainstay_alone,
    mainstay_both,
    mainstay_breaker,
    versions,
)
from bench.compare import FASTEST, ratios
from bench.measure import (
    METHOD,
    Absent,
    Contender,
    Effort,
    Results,
    Timing,
    awaits,
    calls,
    nullary,
    race,
    race_async,
)
from bench.peers import Colour, Function, Plan, mainstay_policy
from bench.sync_happy import bare
from bench.table import Goal, Row, Table, at_least, at_most

ORDER = 9

PLAIN = Circuit()
CALLS = Circuit(window="calls")
SECONDS = Circuit(window="seconds")
SLOW = Circuit(window="seconds", slow_after=1.0)
SLOW_CALLS = Circuit(window="calls", slow_after=1.0)

MINE = "mainstay, retry + breaker"
BEST = f"{FASTEST} that has both"
CHECK = "mainstay, breaker.allow_request()"
ASKED = {
    MINE: PLAIN,
    f"{MINE}, window of 100 calls": CALLS,
    f"{MINE}, window of 60 s": SECONDS,
    f"{MINE}, window of 60 s, slow-call rate": SLOW,
}
WITH_WINDOW = ("fluxgate", "pyresilience, breaker", "resilient-circuit, breaker")
TIMING = ("fluxgate", "pyresilience, breaker")
MINE_ALONE = "mainstay, breaker alone"
SYNC_GOALS = dict(zip((*ASKED, MINE_ALONE), map(at_most, (3.5, 5, 5, 10, 3)), strict=True))
ASYNC_GOALS = {MINE: at_most(2.6)}


def run(effort: Effort) -> Table:
    """First-attempt success under a closed breaker: alone, with a retry, with a window."""
    # req: NFR-041-04
    results = race(
        [
            Contender("bare call", bare, calls),
            *_contenders("sync", calls),
            Contender(CHECK, _check, nullary),
        ],
        effort,
        {*SYNC_GOALS, *BOTH},
    )
    rows = ratios(results, "bare call", SYNC_GOALS, named="sync: {}")
    rows += _faster(results, "sync: {}", {BEST: at_least(30), "pyresilience": None})
    rows.append(_milliseconds(results))
    results = race_async(
        [Contender("bare await", partial(bare, "async"), awaits), *_contenders("async", awaits)],
        effort,
        {*ASYNC_GOALS, *BOTH},
    )
    rows += ratios(results, "bare await", ASYNC_GOALS, named="async: {}")
    rows += _faster(results, "async: {}", {BEST: at_least(1)})
    method = (
        "× a bare call, or a bare await inside one asyncio loop; the circuit is closed and stays "
        f"so. A + B: the retry of A around the breaker of B. {METHOD} {versions()}."
    )
    return Table("breaker", "First-attempt success under a closed breaker", method, rows)


def guarded(adapter: Breaker, circuit: Circuit, colour: Colour = "sync") -> tuple[Function]:
    """The trivial function under a breaker."""
    return (adapter(circuit, colour)(*bare(colour)),)


def _contenders(colour: Colour, loop: Callable[..., Any]) -> list[Contender]:
    asked: list[tuple[str, Breaker, Circuit]] = [
        *((name, mainstay_both, circuit) for name, circuit in ASKED.items()),
        (MINE_ALONE, mainstay_alone, PLAIN),
        (f"{MINE} + budget", _with_budget, PLAIN),
        (f"{MINE} + deadline", mainstay_both, Circuit(plan=Plan(deadline=30.0))),
        (f"{MINE}, two breakers", _with_two, PLAIN),
        *((name, adapter, PLAIN) for name, adapter in BOTH.items()),
        *((f"{name} alone", adapter, PLAIN) for name, adapter in ALONE.items()),
        *((f"{name} alone, window of 100 calls", ALONE[name], CALLS) for name in WITH_WINDOW),
        *((f"{name} alone, 100 calls, slow-call rate", ALONE[name], SLOW_CALLS) for name in TIMING),
    ]
    return [Contender(n, partial(guarded, a, circuit, colour), loop) for n, a, circuit in asked]


def _with_budget(circuit: Circuit, colour: Colour) -> Function:
    from mainstay import RetryBudget, retry

    policy, breaker = mainstay_policy(circuit.plan), mainstay_breaker(circuit)
    decorate: Function = retry(policy=policy, breaker=breaker, budget=RetryBudget())
    return decorate


def _with_two(circuit: Circuit, colour: Colour) -> Function:
    """One for the group of operations, one for everything."""
    from mainstay import retry

    breakers = [mainstay_breaker(circuit, name) for name in ("group", "global")]
    decorate: Function = retry(policy=mainstay_policy(circuit.plan), breaker=breakers)
    return decorate


def _check() -> tuple[Function]:
    return (mainstay_breaker(PLAIN).allow_request,)


def _milliseconds(results: Results) -> Row:
    """The specification's own bound for the check of a circuit."""
    # req: NFR-041-04
    check = results[CHECK]
    if isinstance(check, Absent):
        return Row(CHECK, None, at_most(1), "ms", note=check.reason)
    return Row(CHECK, check.best * 1000, at_most(1), "ms")


def _faster(results: Results, named: str, goals: dict[str, Goal | None]) -> list[Row]:
    """Against peers that retry and break, or the fastest library, or stack of two, of them."""
    timed = {n: r for n, r in results.items() if n in BOTH and isinstance(r, Timing)}
    fastest = min(timed, key=lambda name: timed[name].best, default="")
    rows, mine = [], results[MINE]
    for rival, goal in goals.items():
        what = named.format(f"{MINE}, times faster than {rival}")
        its = timed.get(fastest if rival == BEST else rival)
        if isinstance(mine, Absent) or its is None:
            rows.append(Row(what, None, goal))
        else:
            note = fastest if rival == BEST else ""
            noise, again = its.spread_over(mine), its.is_repeated or mine.is_repeated
            row = Row(what, its.over(mine), goal, spread=noise, note=note, is_repeated=again)
            rows.append(row)
    return rows
