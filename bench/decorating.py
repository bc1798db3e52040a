"""Table 24: decorating fifty functions, and a fresh process that protects fifty with an engine.

Each figure is CPU time inside a new interpreter, paired with one of the base right before it; the
figure is the median of the ratios, as in imports. The functions have ten shapes of parameters, and
names of their own, and what is made of them is kept, as a program keeps it. Decorating is timed
after the import and after a first function.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

from bench.compare import paired
from bench.measure import Effort, Lacks, reason
from bench.table import Goal, Row, Table, at_most

ORDER = 24
TENACITY = "tenacity, decorating 50 functions"
MINE = "mainstay, decorating 50 functions"
ASYNCIO = "import asyncio"
ENGINE = "mainstay, an Engine that protects 50 functions"

_FUNCTIONS = """
shapes = ["a, b", "self", "a, *, b=1", "a, b=5.0", "*a, **b", "a, b, c=None", "a, /, b",
          "a, b, *, c=None", "a, b=None, *c", "a, **b"]
texts = [f"def f{n}({shapes[n % 10]}): pass" for n in range(51)]
for n, text in enumerate(texts):
    for name in "abc":
        text = text.replace(f" {name}", f" {name}{n}").replace(f"({name}", f"({name}{n}")
        text = text.replace(f"*{name}", f"*{name}{n}")
    exec(text)
functions = [globals()[f"f{n}"] for n in range(51)]
"""
CASES = {
    TENACITY: (
        f"""{_FUNCTIONS}
import tenacity as t
def decorate(f):
    return t.retry(stop=t.stop_after_attempt(3), wait=t.wait_exponential_jitter(), reraise=True,
                   retry=t.retry_if_exception_type(ConnectionError))(f)
decorate(functions.pop())""",
        "kept = [decorate(f) for f in functions]",
    ),
    MINE: (
        f"""{_FUNCTIONS}
import mainstay
def decorate(f): return mainstay.retry(on=ConnectionError, attempts=3)(f)
decorate(functions.pop())""",
        "kept = [decorate(f) for f in functions]",
    ),
    ASYNCIO: ("", "import asyncio"),
    ENGINE: (
        _FUNCTIONS,
        """import mainstay
engine = mainstay.Engine()
kept = [engine.protect(f.__name__)(f) for f in functions[:50]]""",
    ),
}
GOALS: tuple[tuple[str, str, Goal], ...] = (
    (MINE, TENACITY, at_most(3)),
    (ENGINE, ASYNCIO, at_most(1)),
)
CHILD = """
import sys, time, json
before, timed, sys.path[:] = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
namespace = {}
exec(compile(before, "<bench>", "exec"), namespace)
code = compile(timed, "<bench>", "exec")
start = time.process_time()
exec(code, namespace)
print(json.dumps(time.process_time() - start))
"""


def run(effort: Effort) -> Table:
    """Each relative to its base."""
    pairs = 5 if effort.is_quick else 4 * effort.repeats
    rows = [row for asked in GOALS for row in _rows(*asked, pairs, effort)]
    method = f"CPU time inside fresh interpreters; medians of {pairs} pairs with the base."
    return Table("decorating", "Decorating many functions", method, rows)


def _rows(mine: str, base: str, goal: Goal, pairs: int, effort: Effort) -> list[Row]:
    try:
        for name in (base, mine):
            _seconds(name)  # writes bytecode, fills the disk cache
        bases, ratios = [], []
        for _ in range(pairs):
            bases.append(_seconds(base))
            ratios.append(_seconds(mine) / bases[-1])
    except Lacks as error:
        return [Row(mine, None, goal, note=reason(error))]
    return [
        Row(base, 1.0, note=f"{min(bases) * 1000:.3g} ms on this machine"),
        paired(mine, ratios, goal, lambda: _seconds(mine) / _seconds(base), effort),
    ]


def _seconds(name: str) -> float:
    path = json.dumps([entry for entry in sys.path[1:] if entry])
    command = [sys.executable, "-I", "-S", "-c", CHILD, *CASES[name], path]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tempfile.gettempdir()
    )
    if done.returncode != 0:
        last = (done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Lacks("not installed" if last.startswith("ModuleNotFoundError") else last[:90])
    seconds: float = json.loads(done.stdout)
    return seconds
