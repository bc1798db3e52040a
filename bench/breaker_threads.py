"""Table 10: what eight threads pay that call through one closed breaker.

The threads are those of one pool, and wait for each other before every batch. Batches are long
and threads change places ten times as often as by default, or a batch would see them run one
after the other; the bare call pays for that too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

from bench.breaker import CALLS, MINE, PLAIN, SLOW, guarded
from bench.breaker_peers import ALONE, BOTH, Breaker, Circuit, mainstay_alone, mainstay_both
from bench.compare import ratios
from bench.measure import Contender, Effort, Results, calls, own_copy, race
from bench.peers import Function
from bench.sync_happy import bare
from bench.table import Table, at_most

ORDER = 10
THREADS = 8
SWITCH = 0.0005
BATCH = 0.012
ONE = "mainstay, breaker alone"
GOALS = {ONE: at_most(3), MINE: at_most(3)}

ASKED: dict[str, tuple[Breaker, Circuit]] = {
    ONE: (mainstay_alone, PLAIN),
    MINE: (mainstay_both, PLAIN),
    f"{MINE}, window of 100 calls": (mainstay_both, CALLS),
    f"{MINE}, window of 60 s, slow-call rate": (mainstay_both, SLOW),
    "circuitbreaker alone": (ALONE["circuitbreaker"], PLAIN),
    "pybreaker alone": (ALONE["pybreaker"], PLAIN),
    "tenaz": (BOTH["tenaz"], PLAIN),
    "pyresilience": (BOTH["pyresilience"], PLAIN),
}


def run(effort: Effort) -> Table:
    """First-attempt success in eight threads at once, one breaker for all of them."""
    # req: NFR-041-04
    parts = 3 if effort.is_quick else 7
    results = _results(Effort(effort.seconds * 2, parts=parts, batch=BATCH))
    rows = ratios(results, "bare call", GOALS)
    method = (
        f"Time per call, × a bare call in the same {THREADS} threads. Minima of interleaved "
        f"batches of {BATCH * 1000:g} ms; threads change places every {SWITCH * 1000:g} ms."
    )
    return Table("breaker_threads", "Eight threads on one closed breaker", method, rows)


def _results(effort: Effort) -> Results:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            make = partial(_prepared, pool)
            contenders = [Contender("bare call", partial(make, bare), in_threads)]
            contenders += [
                Contender(name, partial(make, partial(guarded, *asked)), in_threads)
                for name, asked in ASKED.items()
            ]
            return race(contenders, effort, GOALS)
    finally:
        sys.setswitchinterval(before)


def in_threads(n: int, pool: ThreadPoolExecutor, work: Callable[[int], None]) -> None:
    """n × 10 calls, shared out to the threads."""
    share = -(-n // THREADS)
    for done in [pool.submit(work, share) for _ in range(THREADS)]:
        done.result()


def _prepared(pool: ThreadPoolExecutor, prepare: Callable[[], tuple[Function]]) -> tuple[Any, ...]:
    (function,), loop, start = prepare(), own_copy(calls), Barrier(THREADS)

    def work(share: int) -> None:
        start.wait()  # also keeps one thread from taking two shares
        loop(share, function)

    return pool, work
