"""Table 4: what failing calls cost when the waiting itself takes no time."""

from __future__ import annotations

import itertools
import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bench.compare import FASTEST, duration, faster_than, ratios
from bench.handwritten import handwritten
from bench.measure import (
    METHOD,
    Contender,
    Effort,
    Lacks,
    Results,
    Timing,
    awaits,
    calls,
    race,
    race_async,
)
from bench.peers import EVERYONE, Adapter, Colour, Function, Plan, no_sleep
from bench.table import Row, Table, at_least, at_most

ORDER = 4
HAND = "hand-written loop"
RECOVERED = Plan(failures=2)
EXHAUSTED = Plan(failures=3)
GOALS = {"mainstay": at_most(2)}
LOOPS = {"sync": calls, "async": awaits}
COLOURS: tuple[Colour, ...] = ("sync", "async")


def run(effort: Effort) -> Table:
    """Two failures then success, and exhaustion after three; sleep stubbed, nobody listening."""
    # req: NFR-041-02
    rows: list[Row] = []
    for plan, what in ((RECOVERED, "recovers"), (EXHAUSTED, "gives up")):
        for colour in COLOURS:
            notes: dict[str, str] = {}
            results = _results(plan, colour, effort.scaled(0.5), notes)
            named = f"{colour}, {what}: {{}}"
            rows += ratios(results, HAND, GOALS, named=named, notes=notes)
            rows += faster_than(results, {FASTEST: at_least(1)}, named=named)
            rows.append(_overhead(results, named, plan.failures))
    rows += _nested(effort.scaled(0.4))
    method = (
        "× a hand-written loop doing the same. Recovers: two failures, then success. Gives up: "
        "three failures, raised. In a handler, inside another retry: × the same call alone. "
        f"time.sleep and asyncio.sleep are stubbed. {METHOD}"
    )
    return Table("failure", "Failing calls, sleep stubbed", method, rows)


def _results(plan: Plan, colour: Colour, effort: Effort, notes: dict[str, str]) -> Results:
    contenders = [
        Contender(name, partial(_failing, name, plan, colour, notes), LOOPS[colour])
        for name in (HAND, *EVERYONE)
    ]
    with no_sleep():
        timed = race if colour == "sync" else race_async
        return timed(contenders, effort, EVERYONE)


NESTS = {
    RECOVERED: {"in a handler": at_most(1.5), "inside another retry": at_most(3)},
    EXHAUSTED: {"inside another retry": at_most(9)},
}
"""What other code around a failing call may cost: an exception that is handled, an outer retry."""


def _nested(effort: Effort) -> list[Row]:
    """Failing calls while another exception is handled, and inside another retry."""
    rows: list[Row] = []
    for plan, what in ((RECOVERED, "recovers"), (EXHAUSTED, "gives up")):
        places = ("alone", *NESTS[plan])
        contenders = [Contender(each, partial(_placed, each, plan), calls) for each in places]
        with no_sleep(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = race(contenders, effort, NESTS[plan])
        rows += ratios(results, "alone", NESTS[plan], named=f"mainstay, sync, {what}: {{}}")
    return rows


def _placed(place: str, plan: Plan) -> tuple[Function]:
    """A failing call of mainstay's with something around it."""
    retried = EVERYONE["mainstay"](plan, "sync")
    function = retried(scripted(plan, "sync"))
    if place == "in a handler":
        return (_swallowing(_handling(function), "sync"),)
    if place == "inside another retry":
        return (_swallowing(retried(_passing(function)), "sync"),)
    return (_swallowing(function, "sync"),)


def _handling(function: Function) -> Function:
    def f(a: object, b: object) -> object:
        try:
            raise KeyError
        except KeyError:
            return function(a, b)

    return f


def _passing(function: Function) -> Function:
    def f(a: object, b: object) -> object:
        return function(a, b)

    return f


def _overhead(results: Results, named: str, failures: int) -> Row:
    """What a retry costs besides the waiting, in milliseconds: the specification's own figure."""
    # req: NFR-041-02, IT-041-12
    what, goal = named.format("mainstay, overhead of one attempt"), at_most(5)
    mine = results["mainstay"]
    if not isinstance(mine, Timing):
        return Row(what, None, goal, "ms", note=mine.reason)
    each = mine.best / failures
    return Row(what, each * 1000, goal, "ms", note=f"{duration(each)}, the failing call included")


def _failing(name: str, plan: Plan, colour: Colour, notes: dict[str, str]) -> tuple[Function]:
    """The contender around a function that fails by script; raising is part of what is timed."""
    adapter = handwritten if name == HAND else EVERYONE[name]
    if name == "mainstay" and not _rehearse(adapter, plan, colour).is_stubbed:
        plan, notes[name] = replace(plan, initial=0.0), "zero delay: its sleep is not the stub"
    rehearsal = _rehearse(adapter, plan, colour)
    if rehearsal.calls != 3:
        raise Lacks(f"makes {rehearsal.calls} calls instead of 3")
    if rehearsal.sleeps != 2 and name not in notes:
        notes[name] = f"sleeps {rehearsal.sleeps} times between 3 attempts"
    decorated = adapter(plan, colour)(scripted(plan, colour))
    if plan.failures < plan.attempts:
        return (decorated,)
    return (_swallowing(decorated, colour),)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What one call did: how often the function ran, how many sleeps were asked of the stub."""

    calls: int
    sleeps: int
    is_stubbed: bool


def _rehearse(adapter: Adapter, plan: Plan, colour: Colour) -> Rehearsal:
    """Make one call under a counting stub; a coroutine is driven by hand, and must not suspend."""
    runs: list[None] = []
    sleeps: list[float] = []
    function = _swallowing(adapter(plan, colour)(scripted(plan, colour, runs)), colour)
    suspended, start = False, time.perf_counter()
    with no_sleep(sleeps):
        outcome: Any = function(1, 2)
        if colour == "async":
            try:
                outcome.send(None)
                suspended = True
                outcome.close()
            except StopIteration:
                pass
    waited = time.perf_counter() - start > plan.shortest > 0
    return Rehearsal(len(runs), len(sleeps), is_stubbed=not (suspended or waited))


def scripted(plan: Plan, colour: Colour, runs: list[None] | None = None) -> Function:
    """A function that fails `plan.failures` times and then succeeds, over and over."""
    fails = itertools.cycle([True] * plan.failures + [False] * (plan.failures < plan.attempts))
    error = plan.on

    def f(a: object, b: object) -> object:
        if runs is not None:
            runs.append(None)
        if next(fails):
            raise error
        return a

    async def g(a: object, b: object) -> object:
        if runs is not None:
            runs.append(None)
        if next(fails):
            raise error
        return a

    return f if colour == "sync" else g


def _swallowing(function: Function, colour: Colour) -> Function:
    def f(a: object, b: object) -> object:
        try:
            return function(a, b)
        except Exception as error:
            return error

    async def g(a: object, b: object) -> object:
        try:
            return await function(a, b)
        except Exception as error:
            return error

    return f if colour == "sync" else g
