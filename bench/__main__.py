"""`python -m bench [TABLE ...] [--long] [--json] [--quick | --counted]`."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import pkgutil
import platform
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType

import bench
from bench.measure import QUICK, Effort, reason
from bench.peers import EVERYONE
from bench.table import SPREAD_LIMIT, Row, Table, at_most


def main() -> int:
    """Measure the tables asked for, print them, and say which goals were met."""
    tables = find_tables()
    parser = argparse.ArgumentParser(prog="python -m bench", description=bench.__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(tables)}")
    parser.add_argument(
        "--long",
        action="store_true",
        help="the tables that need servers, wait in real time or fill a store, not the others",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--quick", action="store_true", help="under a minute, with more noise")
    parser.add_argument(
        "--counted",
        action="store_true",
        help="only what is counted, not timed; 1 if a goal is missed",
    )
    parser.add_argument("--report", type=Path, help="with --counted: which tables met their goals")
    options = parser.parse_args()
    if unknown := set(options.tables) - set(tables):
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(tables)}")
    if options.counted:
        named = {name: tables[name] for name in options.tables}
        return count(named or tables, options.report)
    chosen = choose(tables, options.tables, is_long=options.long)
    measured = measure(chosen, QUICK if options.quick else Effort(), is_json=options.json)
    if options.json:
        document = {"environment": environment(), "tables": [table.data() for table in measured]}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print(summary(measured))
    return 0


def count(modules: dict[str, ModuleType], report: Path | None) -> int:
    """Print the goals that are missed among what is counted; 1 if one is."""
    tables = {m.__name__: m.counted() for m in modules.values() if hasattr(m, "counted")}
    rows = [(name, row) for name, table in tables.items() for row in table.rows if row.goal]
    missed = [(name, row) for name, row in rows if not row.is_met]
    for _, row in missed:
        print("  ".join(cell for cell in row.cells() if cell))
    print(f"{len(rows) - len(missed)} of {len(rows)} goals that are counted are met")
    if report is not None:
        bad = {name for name, _ in missed}
        paths = {f"{name.replace('.', '/')}.py": name not in bad for name in tables}
        report.write_text(json.dumps({"met": paths}, indent=2), encoding="utf-8")
    return 1 if missed else 0


def choose(
    tables: dict[str, ModuleType], names: list[str], *, is_long: bool
) -> dict[str, ModuleType]:
    """The tables that are named; without names those of `make bench`, or the long ones."""
    if names:
        return {name: tables[name] for name in tables if name in names}
    return {n: table for n, table in tables.items() if getattr(table, "IS_LONG", False) is is_long}


def find_tables() -> dict[str, ModuleType]:
    """Every module of the package that has a run(), by its ORDER and then its name."""
    modules = [
        importlib.import_module(f"bench.{info.name}")
        for info in pkgutil.iter_modules(bench.__path__)
        if not info.name.startswith("_")
    ]
    found = [module for module in modules if hasattr(module, "run")]
    found.sort(key=lambda module: (getattr(module, "ORDER", 99), module.__name__))
    return {module.__name__.removeprefix("bench."): module for module in found}


def measure(modules: dict[str, ModuleType], effort: Effort, *, is_json: bool) -> list[Table]:
    """Run the tables one after the other, printing each as soon as it is there."""
    if not is_json:
        print("  ".join(f"{name} {version}" for name, version in environment().items()), end="\n\n")
    measured = []
    for name, module in modules.items():
        progress(f"measuring {name} ...")
        start = time.perf_counter()
        table = outcome(name, module, effort)
        if not effort.is_quick and any(_is_unsettled(row) for row in table.rows):
            progress(f"measuring {name} again ...")
            table = steadier(table, outcome(name, module, effort))
        measured.append(table)
        progress("")
        if not is_json:
            took = time.perf_counter() - start
            print(f"{measured[-1].text()}\n  measured in {took:.0f} s", end="\n\n", flush=True)
    return measured


def _is_unsettled(row: Row) -> bool:
    """Whether a row with a goal is too noisy to be judged, and was measured only once."""
    return row.goal is not None and row.is_noisy and not row.is_repeated


def steadier(first: Table, second: Table) -> Table:
    """A table that was measured twice: a noisy row is the one with the smaller spread."""
    again = {row.what: row for row in second.rows}
    rows = []
    for row in first.rows:
        other = again.get(row.what, row)
        is_better = row.is_noisy and (other.spread or 0) < (row.spread or 0)
        rows.append(other if is_better and other.value is not None else row)
    return Table(first.name, first.title, first.method, rows)


def outcome(name: str, module: ModuleType, effort: Effort) -> Table:
    """The table, or one that says why there is none: the others must not be lost with it."""
    try:
        table: Table = module.run(effort)
    except Exception as error:
        traceback.print_exc()
        row = Row("the table itself", None, at_most(0), note=reason(error))
        return Table(name, name, "Not measured.", [row])
    return table


def environment() -> dict[str, str]:
    """The versions that the figures belong to."""
    versions = {"python": platform.python_version()}
    for name in EVERYONE:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "(not installed)"
    return versions


def summary(tables: list[Table]) -> str:
    """How many goals were met, which were not, and whether the machine was quiet enough."""
    rows = [(table.name, row) for table in tables for row in table.rows]
    judged = [(name, row) for name, row in rows if row.goal is not None]
    met = sum(row.is_met is True for _, row in judged)
    lines = [f"{met} of {len(judged)} goals met."]
    lines += [f"  missed: {name}: {row.what}" for name, row in judged if row.is_met is False]
    lines += [f"  not measured: {name}: {row.what}" for name, row in judged if row.is_met is None]
    lines += [
        f"  spread {row.spread:.0%}, measure again: {name}: {row.what}"
        for name, row in judged
        if row.is_noisy
    ]
    noisy = sum(row.is_noisy for _, row in rows if row.goal is None)
    lines.append(f"{noisy} rows without a goal have a spread over {SPREAD_LIMIT:.0%}.")
    return "\n".join(lines)


def progress(message: str) -> None:
    """Tell a person at a terminal what is going on; an empty message clears the line."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{message}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
