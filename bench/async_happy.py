"""Table 2: what an asynchronous call costs that succeeds at once."""

from __future__ import annotations

from functools import partial

from bench.compare import FASTEST, faster_than, ratios
from bench.measure import METHOD, Contender, Effort, awaits, race_async
from bench.peers import EVERYONE, Plan
from bench.sync_happy import bare, decorated
from bench.table import Table, at_least, at_most

ORDER = 2


def run(effort: Effort) -> Table:
    """First-attempt success of a trivial coroutine function, awaited in one running loop."""
    # req: NFR-041-02
    contenders = [
        Contender(name, partial(decorated, name, Plan(), "async"), awaits) for name in EVERYONE
    ]
    goals = {"mainstay": at_most(2.2)}
    results = race_async(
        [Contender("bare await", partial(bare, "async"), awaits), *contenders], effort, EVERYONE
    )
    rows = ratios(results, "bare await", goals)
    rows += faster_than(results, {FASTEST: at_least(1)})
    method = f"× a bare await of a coroutine that never suspends, inside one asyncio loop. {METHOD}"
    return Table("async_happy", "Async, first-attempt success", method, rows)
