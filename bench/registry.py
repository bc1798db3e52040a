"""Table 8: finding a policy among a thousand, and computing a delay.

The specification bounds these in milliseconds, which any implementation meets on any machine;
the ratio to a plain dict is what shows a change.
"""

from __future__ import annotations

import random
import time
from typing import Any

from bench.compare import ratios
from bench.measure import (
    METHOD,
    Absent,
    Contender,
    Effort,
    Results,
    lookups,
    nullary,
    operation_lookups,
    race,
    reason,
)
from bench.peers import Function, Plan, mainstay_policy
from bench.table import Row, Table, at_most

ORDER = 8
COUNT = 1000
ONE = "policy-500"
LOOKUP = f"mainstay, policies.of(operation) among {COUNT:,}"
HAND = "two delays, hand-written"
DELAYS = "mainstay, policy.delays(seed=7)"


def run(effort: Effort) -> Table:
    """Policy lookup by operation, and backoff computation."""
    # req: NFR-041-01, NFR-041-03, NFR-041-10, IT-041-12
    contenders = [
        Contender("dict lookup", _dict, lookups),
        Contender(LOOKUP, _registry, operation_lookups),
        Contender(HAND, _handwritten, nullary),
        Contender(DELAYS, _delays, nullary),
    ]
    results = race(contenders, effort.scaled(0.3))
    rows = ratios({name: results[name] for name in ("dict lookup", LOOKUP)}, "dict lookup", {})
    rows += ratios({name: results[name] for name in (HAND, DELAYS)}, HAND, {})
    rows += [_milliseconds(results, LOOKUP, 1), _milliseconds(results, DELAYS, 2), _built()]
    method = f"× one dict lookup, × two hand-written delays; and milliseconds. {METHOD}"
    return Table("registry", "Policy lookup and backoff computation", method, rows)


def _milliseconds(results: Results, name: str, parts: int) -> Row:
    what = f"{name}, one delay" if parts > 1 else name
    result = results[name]
    if isinstance(result, Absent):
        return Row(what, None, at_most(1), "ms", note=result.reason)
    return Row(what, result.best / parts * 1000, at_most(1), "ms")


def _built() -> Row:
    """An engine of a thousand policies must stand; how long that takes is told, not judged."""
    # req: NFR-041-10
    what = f"mainstay, Engine of {COUNT:,} policies"
    try:
        start = time.perf_counter()
        engine = _engine()
        elapsed = time.perf_counter() - start
        assert len(list(engine.policies)) >= COUNT
    except Exception as error:
        return Row(what, None, None, "ms", note=reason(error))
    return Row(what, elapsed * 1000, None, "ms", note="policies included")


def _dict() -> tuple[dict[str, object], str]:
    return {f"policy-{number}": object() for number in range(COUNT)}, ONE


def _registry() -> tuple[Any, str]:
    policies = _engine().policies
    assert policies.of(ONE).name == ONE
    return policies, ONE


def _engine() -> Any:
    from mainstay import Engine

    base = mainstay_policy(Plan())
    return Engine(policies=[base.replace(name=f"policy-{number}") for number in range(COUNT)])


def _handwritten() -> tuple[Function]:
    initial, factor, most, jitter = 0.1, 2.0, 5.0, 0.1

    def delays() -> list[float]:
        return [
            min(initial * factor**retry, most) * (1 + jitter * (2 * random.random() - 1))
            for retry in range(2)
        ]

    return (delays,)


def _delays() -> tuple[Function]:
    policy = mainstay_policy(Plan())
    return (lambda: policy.delays(seed=7),)
