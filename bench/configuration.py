"""Loading a thousand policies, and what an operation's policy costs to find afterwards.

The specification bounds loading at 100 ms, which depends on the machine; the ratio is to PyYAML's
own C loader on the same text, which checks nothing and knows no lines. Both are timed in CPU time,
in turns.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from bench.compare import ratios
from bench.measure import (
    METHOD,
    Contender,
    Effort,
    lookups,
    operation_lookups,
    race,
    reason,
    spread,
)
from bench.table import Row, Table, at_most

ORDER = 30
COUNT = 1000
ONE = "operation-500"
FIELDS = """\
      maxAttempts: 3
      backoff: exponential
      initialDelayMs: 100
      maxDelayMs: 5000
      factor: 2.0
      jitterPercent: 10
"""
TEXT = "retry:\n  policies:\n" + "".join(f"    policy-{n}:\n{FIELDS}" for n in range(COUNT))
TEXT += "  operationPolicies:\n" + "".join(f"    operation-{n}: policy-{n}\n" for n in range(COUNT))
YAML = f"yaml.load of {COUNT:,} policies and operations, C loader"
LOAD = f"mainstay, {COUNT:,} policies and operations read, checked and made"
LOOKUP = f"mainstay, policies.of(operation) of {COUNT:,} configured"


def run(effort: Effort) -> Table:
    """Loading, and looking up."""
    # req: NFR-041-06, FR-041-12
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mainstay.yml"
        path.write_text(TEXT, encoding="utf-8")
        rows = _loading(path, 5 if effort.is_quick else 15)
        contenders = [
            Contender("dict lookup", _dict, lookups),
            Contender(LOOKUP, lambda: _registry(path), operation_lookups),
        ]
        results = race(contenders, effort.scaled(0.2))
    rows += ratios(results, "dict lookup", {})
    method = f"× yaml.load, × one dict lookup; and milliseconds of CPU time. {METHOD}"
    return Table("configuration", "Loading a configuration", method, rows)


def _loading(path: Path, turns: int) -> list[Row]:
    from mainstay.config.load import load
    from mainstay.drivers.policy import RetryPolicy

    def plain() -> Any:
        return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)

    def ours() -> Any:
        return load(path, env={}, make=RetryPolicy)

    try:
        loaded = ours()
        assert len(loaded.settings.policies) == COUNT
        assert not loaded.report.problems
    except Exception as error:
        return [Row(LOAD, None, at_most(100), "ms", note=reason(error))]
    pairs = [(_seconds(plain), _seconds(ours)) for _ in range(turns)]
    shares = [own / base for base, own in pairs]
    best = min(own for _, own in pairs) * 1000
    return [
        Row(YAML, 1.0, note=f"{min(base for base, _ in pairs) * 1000:.0f} ms on this machine"),
        Row(LOAD, statistics.median(shares), None, spread=spread(shares)),
        Row(LOAD, best, at_most(100), "ms", note="the best; it depends on the machine"),
    ]


def _seconds(function: Callable[[], Any]) -> float:
    gc.collect()
    start = time.process_time()
    function()
    return time.process_time() - start


def _dict() -> tuple[dict[str, object], str]:
    return {f"operation-{number}": object() for number in range(COUNT)}, ONE


def _registry(path: Path) -> tuple[Any, str]:
    from mainstay import Engine

    env = {name: value for name, value in os.environ.items() if not name.startswith("MAINSTAY_")}
    policies = Engine.from_config(path, env=env).policies
    assert policies.of(ONE).name == "policy-500"
    return policies, ONE
