"""Table 25: what it costs to be recorded: a failing call on SQLite, with audit and the usual log.

The call fails twice and succeeds; time.sleep is stubbed. The caller's figure is wall time of the
call itself; the process's is CPU time, with the threads that write, until the engine is closed.
The garbage collector runs as always, but not over what other tables have left in this process: a
walk through those modules takes as long as the calls.
Both are relative to a hand-written loop that logs each failure with logging.warning to a handler
that drops.
"""

from __future__ import annotations

import gc
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.failure import scripted
from bench.measure import Effort, reason, spread
from bench.peers import mainstay_policy, no_sleep
from bench.table import Row, Table, at_most
from bench.ways import FAILS, Dropping, log_at, logging_loop

ORDER = 25
HAND = "hand-written loop that logs"
CALLER, PROCESS = "what the caller waits for", "CPU time of the process"


def run(effort: Effort) -> Table:
    """Interleaved batches of both; medians of their ratios."""
    # req: NFR-041-02
    rounds = 5 if effort.is_quick else 3 * effort.repeats
    calls = 300 if effort.is_quick else 2000  # opening and closing the log is shared by them
    method = (
        "Two failures, then success; × a hand-written loop with logging.warning; the handler drops."
        f" SQLite with audit, opened and closed around {calls:,} calls; medians of {rounds} pairs."
    )
    try:
        gc.collect()
        gc.freeze()
        rows = _rows(rounds, calls)
    except Exception as error:
        rows = [Row(CALLER, None, at_most(2), note=reason(error))]
    finally:
        gc.unfreeze()
    return Table("recorded", "What it costs to be recorded", method, rows)


def _rows(rounds: int, calls: int) -> list[Row]:
    ratios: dict[str, list[float]] = {CALLER: [], PROCESS: []}
    hand = 0.0
    with no_sleep(), log_at(logging.WARNING, Dropping()):
        for _ in range(rounds):
            caller, process = _by_hand(calls)
            mine, whole = _recorded(calls)
            ratios[CALLER].append(mine / caller)
            ratios[PROCESS].append(whole / process)
            hand = caller
    goals = {CALLER: at_most(2), PROCESS: at_most(5)}
    rows = [Row(HAND, 1.0, note=f"{hand / calls * 1e6:.3g} µs on this machine")]
    for name, found in ratios.items():
        rows.append(Row(name, statistics.median(found), goals[name], spread=spread(found)))
    return rows


def _by_hand(calls: int) -> tuple[float, float]:
    (function,) = logging_loop()
    return _timed(lambda: function(1, 2), calls, lambda: None)


def _recorded(calls: int) -> tuple[float, float]:
    from mainstay import Engine

    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder, 'kept.db')}"
        engine = Engine(store, policies=[mainstay_policy(FAILS)])
        function = engine.protect("bench")(scripted(FAILS, "sync"))
        return _timed(lambda: function(1, 2), calls, engine.close)


def _timed(
    call: Callable[[], object], calls: int, close: Callable[[], object]
) -> tuple[float, float]:
    """Seconds of the calls, by the minimum of ten parts, and CPU seconds with what follows them."""
    for _ in range(20):
        call()
    began, parts = time.process_time(), []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(calls // 10):
            call()
        parts.append(time.perf_counter() - start)
    close()
    return min(parts) * 10, time.process_time() - began
