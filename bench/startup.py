"""Table: how long `mainstay --version` takes, beside what no command line of click's can avoid.

Whole processes, start and end included, in CPU time of the child. Each run is paired with one of
the base right before it, and the figure is the median of the ratios: on a busy machine the minimum
of a whole process is luck. Bytecode is written first, as an installation has it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from functools import partial

from bench.compare import paired
from bench.measure import Effort
from bench.table import Row, Table, at_most

ORDER = 7
BASE = 'python -c "import click"'
COMMANDS = {
    BASE: ["-c", "import click"],
    "mainstay --version": ["-m", "mainstay", "--version"],
    "mainstay --help": ["-m", "mainstay", "--help"],
    "mainstay exec -- true": ["-m", "mainstay", "exec", "--", sys.executable, "-I", "-S", "-c", ""],
}
GOALS = {"mainstay --version": at_most(1.5), "mainstay exec -- true": at_most(2.5)}
PATIENCE = 4  # what has no goal is measured every so many times


def run(effort: Effort) -> Table:
    """Each command relative to `import click`."""
    pairs = 7 if effort.is_quick else 4 * effort.repeats
    with tempfile.TemporaryDirectory() as state:
        env = {**os.environ, "XDG_STATE_HOME": state}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for arguments in COMMANDS.values():
            _seconds(arguments, env)  # writes bytecode, fills the disk cache, makes the store
        bases: list[float] = []

        def pair(name: str) -> float:
            bases.append(_seconds(COMMANDS[BASE], env))
            return _seconds(COMMANDS[name], env) / bases[-1]

        figures: dict[str, list[float]] = {name: [] for name in COMMANDS if name != BASE}
        for turn in range(pairs):
            for name, ratios in figures.items():
                if name in GOALS or turn % PATIENCE == 0:
                    ratios.append(pair(name))
        rows = [
            paired(name, ratios, GOALS.get(name), partial(pair, name), effort)
            for name, ratios in figures.items()
        ]
    rows.insert(0, Row(BASE, 1.0, note=f"{min(bases) * 1000:.3g} ms on this machine"))
    method = (
        f"CPU time of whole processes; × {BASE}; medians of {pairs} pairs with the base, of a"
        f" {PATIENCE}th of them without a goal."
    )
    return Table("startup", "Start of the command line", method, rows)


def _seconds(arguments: list[str], env: dict[str, str]) -> float:
    """The CPU seconds of a process and what it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        env=env,
        cwd=env["XDG_STATE_HOME"],
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
