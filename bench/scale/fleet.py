"""A number of processes that begin together, and what each of them has measured.

They are forked where the system can: sixty-four that each import the library would take a minute.
Each opens its connections itself, after the fork.
"""

from __future__ import annotations

import multiprocessing
import queue
import time
import traceback
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

Work = Callable[..., Any]


def fleet(work: Work, count: int, *arguments: Any, within: float = 120.0) -> list[Any]:
    """What `work(number, barrier, *arguments)` returns in each of `count` processes.

    If one fails, its error is raised; none outlives this call.
    """
    how = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(how)
    answers, barrier = context.Queue(), context.Barrier(count, timeout=within)
    crew = [
        context.Process(target=_run, args=(work, number, barrier, answers, arguments), daemon=True)
        for number in range(count)
    ]
    for each in crew:
        each.start()
    try:
        return _collected(answers, count, within)
    finally:
        for each in crew:
            each.terminate()
        for each in crew:
            each.join()


def _collected(answers: Queue[tuple[str, Any]], count: int, within: float) -> list[Any]:
    until = time.monotonic() + within
    found = []
    while len(found) < count:
        try:
            problem, value = answers.get(timeout=max(until - time.monotonic(), 0.0))
        except queue.Empty:
            raise TimeoutError(f"{len(found)} of {count} processes answered") from None
        if problem:
            raise RuntimeError(problem)
        found.append(value)
    return found


def _run(
    work: Work, number: int, barrier: Barrier, answers: Queue[tuple[str, Any]], given: Any
) -> None:
    try:
        answers.put(("", work(number, barrier, *given)))
    except BaseException as error:
        barrier.abort()
        answers.put((f"{type(error).__name__}: {error}", None))
        traceback.print_exc()


def quantile(values: list[float], share: float) -> float:
    """The smallest value that this share of all values does not exceed.

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[max(0, -(-int(len(ordered) * share * 1_000_000) // 1_000_000) - 1)]
