"""Table 1: what a synchronous call costs that succeeds at once."""

from __future__ import annotations

from functools import partial

from bench.compare import FASTEST, faster_than, ratios
from bench.measure import METHOD, Contender, Effort, calls, race
from bench.peers import EVERYONE, Colour, Function, Plan
from bench.table import Table, at_least, at_most

ORDER = 1


def run(effort: Effort) -> Table:
    """First-attempt success of a trivial function: three attempts, exponential + jitter."""
    # req: NFR-041-02
    contenders = [Contender(name, partial(decorated, name), calls) for name in EVERYONE]
    goals = {"mainstay": at_most(2.5)}
    results = race([Contender("bare call", bare, calls), *contenders], effort, EVERYONE)
    rows = ratios(results, "bare call", goals)
    rows += faster_than(results, {"tenacity": at_least(200), FASTEST: at_least(2)})
    return Table("sync_happy", "Sync, first-attempt success", f"× a bare call. {METHOD}", rows)


def bare(colour: Colour = "sync") -> tuple[Function]:
    """A trivial function of its own, so that nobody shares its inline caches."""

    def f(a: object, b: object) -> object:
        return a

    async def g(a: object, b: object) -> object:
        return a

    return (f if colour == "sync" else g,)


def decorated(name: str, plan: Plan | None = None, colour: Colour = "sync") -> tuple[Function]:
    """The trivial function under the contender `name`."""
    (function,) = bare(colour)
    return (EVERYONE[name](plan or Plan(), colour)(function),)
