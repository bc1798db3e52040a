"""The states of a circuit, docs/reference/circuit.md, from the table of core/circuit/breaker.py.

python tools/circuit_doc.py            print it
python tools/circuit_doc.py --write    write docs/reference/circuit.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mainstay.core.circuit.breaker import ORDERS, TABLE, CircuitState, Signal

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "reference" / "circuit.md"

HEAD = """\
<!-- Made by tools/circuit_doc.py; edit it, then: .venv/bin/python tools/circuit_doc.py --write -->

# The states of a circuit

What the breaker does by itself, and what an operator can order. Both are one table in the code, and
this page is made from it. How to use one: [circuit breakers](../how-to/circuit-breakers.md).

```mermaid
"""

MEANINGS = {
    CircuitState.CLOSED: "calls go through, failures are counted",
    CircuitState.OPEN: "calls are refused until the open time is over",
    CircuitState.HALF_OPEN: "a few probes go through, other calls are refused",
    CircuitState.FORCED_OPEN: "calls are refused until another order",
    CircuitState.FORCED_CLOSED: "calls go through and nothing is counted, until another order",
    CircuitState.DISABLED: "as if there were no breaker, until another order",
    CircuitState.METRICS_ONLY: "calls go through and are counted; an event reports each trip",
}


def render() -> str:
    """The page."""
    return "\n".join([HEAD + "\n".join(_diagram()), "```", "", *_states(), "", *_orders(), ""])


def _diagram() -> list[str]:
    arrows = [
        f"    {before.name} --> {after.name}: {signal.value}"
        for (before, signal), after in TABLE.items()
        if signal not in ORDERS
    ]
    return ["stateDiagram-v2", "    [*] --> CLOSED", *arrows]


def _states() -> list[str]:
    rows = [f"| `{state.name}` | {MEANINGS[state]} |" for state in CircuitState]
    return ["| state | what it does with calls |", "| --- | --- |", *rows]


def _orders() -> list[str]:
    method = {
        Signal.RESET: "reset",
        Signal.FORCE_OPEN: "force_open",
        Signal.FORCE_CLOSE: "force_close",
        Signal.DISABLE: "disable",
        Signal.OBSERVE: "observe",
    }
    rows = [f"| `{method[order]}()` | `{state.name}` |" for order, state in ORDERS.items()]
    return ["| order, from any state | leads to |", "| --- | --- |", *rows]


def main(arguments: list[str]) -> int:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description="the states of a circuit")
    parser.add_argument("--write", action="store_true", help="write docs/reference/circuit.md")
    if parser.parse_args(arguments).write:
        FILE.write_text(render(), encoding="utf-8")
    else:
        print(render(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
