"""Table 7: how many bytes a policy and a decorated function take.

Measured with tracemalloc in a fresh process, `python -m bench.memory NAME KIND`. The policies share
nothing, as those of a configuration: each has a backoff, a jitter and rules of its own, with
numbers of its own. The thousand functions have one signature but each its own code object, as in a
real program; they, and the names of policies and rules, exist before and are not counted.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from bench.measure import Effort, answer, child, reason
from bench.peers import EVERYONE, PEERS, Colour, Function, Plan, mainstay_policy
from bench.table import Goal, Row, Table, at_most

ORDER = 7
COUNT = 1000
KILOBYTE = 1024


def run(effort: Effort) -> Table:
    """Bytes per policy and per decorated function."""
    table = counted()
    goal = at_most(3382)  # tenacity's function and pybreaker's circuit together
    what = "mainstay, function with its own policy and circuit"
    table.rows.append(_row(what, "mainstay", "breaker", goal))
    table.rows.extend(_row(f"{name}, function", name, "function", None) for name in PEERS)
    return table


def counted() -> Table:
    """Our own rows: bytes are counted, whatever else the machine does."""
    # req: NFR-041-07
    rows = [
        _row("mainstay, policy that shares nothing", "mainstay", "policy", at_most(KILOBYTE)),
        _row("mainstay, the same after a call was retried under it", "mainstay", "used", None),
        _row("mainstay, policy that differs from another by its name", "mainstay", "like", None),
        _row("mainstay, function", "mainstay", "function", at_most(1.2 * KILOBYTE)),
        _row("mainstay, function with its own policy", "mainstay", "own", at_most(2.2 * KILOBYTE)),
    ]
    method = (
        f"Bytes each, {COUNT:,} of them, the bare functions not counted: tracemalloc, fresh "
        "processes. All functions of a row share one policy (one decorator) unless it says own."
    )
    return Table("memory", "Memory per policy and per decorated function", method, rows)


def _row(what: str, name: str, kind: str, goal: Goal | None) -> Row:
    try:
        return Row(what, child("bench.memory", name, kind), goal, "B")
    except Exception as error:
        return Row(what, None, goal, "B", note=reason(error))


# What runs in the fresh process.


def size(name: str, kind: str) -> float:
    """Bytes for each of a thousand."""
    colour: Colour = "async" if name == "hyx" else "sync"
    if kind in _POLICIES:
        return _each(_POLICIES[kind]([f"policy-{number}" for number in range(COUNT)]))
    functions = _functions(colour)
    if kind == "own":
        return _each(lambda number: EVERYONE[name](Plan(), colour)(functions[number]))
    if kind == "breaker":
        return _each(_guarded(functions))
    decorate = EVERYONE[name](Plan(), colour)
    return _each(lambda number: decorate(functions[number]))


def _alone(names: list[str]) -> Callable[[int], Any]:
    """Policies that have nothing in common but their classes: every field of the document."""
    from mainstay import Backoff, Jitter, RetryPolicy

    retried = [[ConnectionError, f"Busy{number}"] for number in range(COUNT)]
    final = [[PermissionError, f"Denied{number}"] for number in range(COUNT)]

    def make(number: int) -> RetryPolicy:
        own = number / 7919
        return RetryPolicy(
            name=names[number],
            max_attempts=5,
            backoff=Backoff.exponential(0.1 + own, factor=2.0 + own, max_delay=30.0 + own),
            jitter=Jitter.percent(0.1 + own / 10),
            retry_on=retried[number],
            never_retry_on=final[number],
        )

    return make


def _used(names: list[str]) -> Callable[[int], Any]:
    """The same, each after a call that was retried under it."""
    from mainstay.testing import scripted, virtual_time

    make = _alone(names)

    def made(number: int) -> object:
        policy = make(number)
        with virtual_time():
            policy.call(scripted(ConnectionError, None))
        return policy

    return made


def _guarded(functions: list[Function]) -> Callable[[int], Any]:
    """Functions that are retried, each behind a circuit of its own."""
    from mainstay import CircuitBreaker, retry

    circuits = [f"circuit-{number}" for number in range(COUNT)]

    def make(number: int) -> Any:
        breaker = CircuitBreaker(circuits[number])
        return retry(on=ConnectionError, attempts=3, breaker=breaker)(functions[number])

    return make


def _like(names: list[str]) -> Callable[[int], Any]:
    base = mainstay_policy(Plan())
    return lambda number: base.replace(name=names[number])


_POLICIES = {"policy": _alone, "used": _used, "like": _like}


def _each(make: Callable[[int], object]) -> float:
    made = [make(number) for number in range(5)]  # whatever is compiled or cached once
    made = [None] * COUNT
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(COUNT):
        made[number] = make(number)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    return (after - before) / COUNT


def _functions(colour: Colour) -> list[Function]:
    keyword = "async def" if colour == "async" else "def"
    source = "\n".join(f"{keyword} f{number}(a, b): return a" for number in range(COUNT))
    namespace: dict[str, Function] = {}
    exec(source, namespace)
    return [namespace[f"f{number}"] for number in range(COUNT)]


if __name__ == "__main__":
    answer(size, *sys.argv[1:])
