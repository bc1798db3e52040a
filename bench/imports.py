"""Table 6: what `import mainstay` and the first decorated function cost a fresh interpreter.

Each figure is taken inside a new interpreter, around the statements alone, so its start does not
count. Every contender is paired with an `import asyncio` right before it, and the figure is the
median of the ratios in CPU time: on a busy machine the minimum of a whole process is luck (run to
run it moved by 10–16 %, the median of pairs by 2–10 %). The interpreters run isolated and without
`site`, on the module path of this one, so that no .pth file imports anything beforehand.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import partial

from bench.compare import paired
from bench.measure import Effort, Lacks, reason
from bench.table import Row, Table, at_most

ORDER = 6
BASE = "import asyncio"
# What the base install of mainstay brings; _yaml is PyYAML's C half.
ALLOWED = {"mainstay", "msgspec", "yaml", "_yaml"}

GOALS = {"mainstay": at_most(0.5)}
STATEMENTS = {
    "mainstay": "import mainstay\n@mainstay.retry(on=ConnectionError)\ndef f(a, b): return a",
    "import mainstay alone": "import mainstay",
    "tenacity": (
        "import tenacity as t\n"
        "@t.retry(stop=t.stop_after_attempt(3), wait=t.wait_exponential_jitter())\n"
        "def f(a, b): return a"
    ),
    "stamina": (
        "import stamina\n@stamina.retry(on=ConnectionError, attempts=3)\ndef f(a, b): return a"
    ),
    "backoff": (
        "import backoff\n@backoff.on_exception(backoff.expo, ConnectionError, max_tries=3)\n"
        "def f(a, b): return a"
    ),
    "hyx": (
        "from hyx.retry import retry\nfrom hyx.retry.backoffs import expo\n"
        "@retry(on=ConnectionError, attempts=2, backoff=expo())\nasync def f(a, b): return a"
    ),
    "redress": "import redress\n@redress.retry(max_attempts=3)\ndef f(a, b): return a",
    "pyresilience": (
        "from pyresilience import RetryConfig, resilient\n"
        "@resilient(retry=RetryConfig(max_attempts=3))\ndef f(a, b): return a"
    ),
    "resilient-circuit": (
        "from resilient_circuit import RetryWithBackoffPolicy\n"
        "@RetryWithBackoffPolicy(max_retries=2)\ndef f(a, b): return a"
    ),
    "google-api-core": "from google.api_core import retry\n@retry.Retry()\ndef f(a, b): return a",
}

CHILD = """
import os, sys, time, json
statements, sys.path[:] = sys.argv[1], json.loads(sys.argv[2])
code, before = compile(statements, "<bench>", "exec"), set(sys.modules)
namespace = {}
start = time.process_time()
exec(code, namespace)
elapsed = time.process_time() - start
print(json.dumps([elapsed, sorted({name.partition(".")[0] for name in set(sys.modules) - before})]))
"""


def run(effort: Effort) -> Table:
    """Import and decorate, relative to `import asyncio`; and what came along."""
    pairs = 5 if effort.is_quick else 4 * effort.repeats
    patience = pairs if effort.is_quick else 5  # what has no goal is measured every so many times
    figures, modules, absent = _interleaved(pairs, patience)
    rows = [Row(BASE, 1.0, note=f"{min(figures[BASE]) * 1000:.3g} ms on this machine")]
    for name, statements in STATEMENTS.items():
        goal = GOALS.get(name)
        if name in absent:
            rows.append(Row(name, None, goal, note=absent[name]))
        else:
            again = partial(_pair, statements, figures[BASE])
            rows.append(paired(name, figures[name], goal, again, effort))
    rows.append(_strangers(modules, absent))
    method = (
        "Import, then decorate one function; × `import asyncio`. CPU time inside fresh "
        f"interpreters, their start not counted; medians of {pairs} pairs with the base "
        f"({-(-pairs // patience)} without a goal)."
    )
    return Table("imports", "Import and first decoration", method, rows)


def _interleaved(
    pairs: int, patience: int
) -> tuple[dict[str, list[float]], dict[str, list[str]], dict[str, str]]:
    """Ratios to the base, or for the base itself its seconds; modules; who is missing and why."""
    figures: dict[str, list[float]] = {name: [] for name in (BASE, *STATEMENTS)}
    modules: dict[str, list[str]] = {}
    absent: dict[str, str] = {}
    for name, statements in STATEMENTS.items():
        try:
            _, modules[name] = _fresh(statements)  # writes bytecode, fills the disk cache
        except Exception as error:
            absent[name] = reason(error)
    for turn in range(pairs):
        for name, statements in STATEMENTS.items():
            if name not in absent and (name in GOALS or turn % patience == 0):
                figures[name].append(_pair(statements, figures[BASE]))
    return figures, modules, absent


def _pair(statements: str, bases: list[float]) -> float:
    """The ratio to the base, which runs right before it."""
    base, _ = _fresh(BASE)
    mine, _ = _fresh(statements)
    bases.append(base)
    return mine / base


def _fresh(statements: str) -> tuple[float, list[str]]:
    command = [sys.executable, "-I", "-S", "-c", CHILD, statements, json.dumps(_path())]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tempfile.gettempdir()
    )
    if done.returncode != 0:
        last = (done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Lacks("not installed" if last.startswith("ModuleNotFoundError") else last[:90])
    elapsed, modules = json.loads(done.stdout)
    return elapsed, modules


def _path() -> list[str]:
    """The module path without the folder that this run was started in."""
    return [entry for entry in sys.path[1:] if entry]


def _strangers(modules: dict[str, list[str]], absent: dict[str, str]) -> Row:
    what = "mainstay, third-party modules beyond the base install"
    if "mainstay" in absent:
        return Row(what, None, at_most(0), "modules", note=absent["mainstay"])
    strangers = [
        name
        for name in modules["mainstay"]
        if name not in sys.stdlib_module_names and name not in ALLOWED
    ]
    return Row(what, len(strangers), at_most(0), "modules", note=", ".join(strangers))
