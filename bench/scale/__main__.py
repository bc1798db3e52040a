"""`python -m bench.scale [--only NAME] [--json | --markdown | --write PAGE] [--quick | --full]`."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import re
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType

import bench.scale
from bench.measure import reason
from bench.scale.curve import Curve
from bench.scale.sweep import FULL, QUICK, Effort

CURVES = ("names", "parked", "audit", "claims", "relays")


def main(arguments: list[str] | None = None) -> int:
    """Measure the curves asked for, print each as soon as it is there."""
    options = _options(arguments)
    effort = QUICK if options.quick else FULL if options.full else Effort()
    effort = effort if options.seconds is None else _within(effort, options.seconds)
    curves: list[Curve] = []
    for name in options.only or CURVES:
        start = time.perf_counter()
        found = measured(importlib.import_module(f"bench.scale.{name}"), name, effort)
        curves += found
        if not options.json:
            for curve in found:
                print(
                    curve.markdown() if options.markdown else curve.text(), end="\n\n", flush=True
                )
            took = time.perf_counter() - start
            print(f"{name}: measured in {took:.0f} s", file=sys.stderr, flush=True)
    if options.json:
        document = {"python": platform.python_version(), "curves": [each.data() for each in curves]}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    elif not options.markdown:
        print(summary(curves))
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(written(page, curves), encoding="utf-8")
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=bench.scale.__doc__)
    parser.add_argument(
        "--only", action="append", choices=CURVES, metavar="NAME",
        help=f"one of {', '.join(CURVES)}; may be given more than once",
    )  # fmt: skip
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document")
    form.add_argument("--markdown", action="store_true", help="ratios and exponents alone")
    form.add_argument("--write", type=Path, metavar="PAGE", help="the same, into the docs")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes, under two minutes")
    size.add_argument("--full", action="store_true", help="10⁷ audit records too; half an hour")
    parser.add_argument("--seconds", type=float, help="for each curve, at most")
    return parser.parse_args(arguments)


def _within(effort: Effort, seconds: float) -> Effort:
    return Effort(seconds, effort.repeats, effort.is_quick, effort.is_full)


def measured(module: ModuleType, name: str, effort: Effort) -> list[Curve]:
    """The curves, or one that gives the reason why there is none: the others are not lost."""
    try:
        curves: list[Curve] = module.run(effort)
    except Exception as error:
        traceback.print_exc()
        return [Curve(name, name, "n", "Not measured.", [], left_out=reason(error))]
    return curves


def written(page: str, curves: list[Curve]) -> str:
    """The page with new tables, each between the marks of its curve; others stay."""
    for curve in curves:
        if not curve.points:
            continue
        begin, end = f"<!-- curve: {curve.name} -->", "<!-- end of curve -->"
        section = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if not section.search(page):
            raise ValueError(f"the page has no section {begin}")
        new = f"{begin}\n{curve.markdown()}\n{end}"
        page = section.sub(lambda _, new=new: new, page, count=1)  # type: ignore[misc]
    return page


def summary(curves: list[Curve]) -> str:
    """How many exponents are within their limits, and which are not."""
    judged = [(c, each, c.is_met(each)) for c in curves for each in c.series]
    judged = [entry for entry in judged if entry[2] is not None]
    met = sum(is_met is True for _, _, is_met in judged)
    lines = [f"{met} of {len(judged)} exponents are within their limits."]
    for curve, series, is_met in judged:
        found = curve.fit(series)
        if not is_met and found is not None:
            why = f", explained: {series.reason}" if series.reason else ""
            lines.append(f"  above: {curve.name}: {series.name}: {found.text()}{why}")
    lines += [f"  {curve.name}: {curve.left_out}" for curve in curves if curve.left_out]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
