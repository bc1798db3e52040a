"""Which requirements the tests of the last run have shown.

    python -m tools.trace [--json | --quiet] [ROOT]

An id counts only if a test that carries it has passed in that run and none has failed; one that was
only skipped shows nothing. `make test` writes the report of a run to .trace.json
(tests/tools/ran.py), `make counts` what the benchmark counts to .counted.json. Marks are read from
the source (tools/marks.py) and compared with the lists in tests/: requirements.txt (claimed),
requirements-all.txt (every id there is), requirements-parts.txt (ids that are shown part by part).
An id that only a benchmark shows is listed as that. Exits 1 on any problem, 0 otherwise.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tools.marks import ID, Marks, marks_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

RANGE = re.compile(rf"({ID})(?:\.\.(\d+))?")
PARTS = re.compile(rf"({ID}):((?: [a-z][a-z0-9-]*)+)")
RAN, COUNTED = ".trace.json", ".counted.json"
NO_RUN = (
    f"there is no report of a test run: `make test` writes {RAN}; without ARGS, which narrow it"
)


@dataclass
class Run:
    """What the last run has shown, by id or part: the tests that passed, failed, were skipped."""

    ended: str = ""
    passed: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Trace:
    """The lists, the marks and the run, put together; and what is wrong."""

    every: list[str]
    claimed: list[str]
    parts: dict[str, tuple[str, ...]]
    marks: Marks
    run: Run | None
    counted: dict[str, bool]
    """By the file of a benchmark: whether it was counted after that run and met its goals."""
    problems: list[str] = field(default_factory=list)

    @property
    def unclaimed(self) -> list[str]:
        """The ids that are not claimed yet."""
        return [i for i in self.every if i not in set(self.claimed)]

    @property
    def shown(self) -> dict[str, list[str]]:
        """By id or part: the tests that passed, and the benchmarks."""
        return {name: places for name in self.names() if (places := self.places(name))}

    def names(self) -> Iterator[str]:
        """Every id, or each of its parts."""
        for identifier in self.every:
            yield from self.names_of(identifier)

    def names_of(self, identifier: str) -> list[str]:
        """What is to be shown of an id: its parts, or itself."""
        return [f"{identifier}.{part}" for part in self.parts.get(identifier, ())] or [identifier]

    def places(self, name: str) -> list[str]:
        """Where an id or part is shown."""
        if self.run is not None and name in self.run.failed:
            return []
        tests = [] if self.run is None else self.run.passed.get(name, [])
        bench = self.marks.bench.get(name, [])
        return [*tests, *(place for place in bench if self.is_counted(place) is not False)]

    def is_counted(self, place: str) -> bool | None:
        """Whether a benchmark met its goals when it was counted; None if it was not counted."""
        return self.counted.get(place.partition(":")[0])

    def rests_on_bench(self) -> dict[str, str]:
        """The ids that no test of the run shows and a benchmark does: how."""
        found = {}
        for name in self.names() if self.run is not None else ():
            places = self.places(name)
            if places and all(place.startswith("bench/") for place in places):
                is_counted = any(map(self.is_counted, places))
                found[name] = "counted" if is_counted else "timed, by `make bench` alone"
        return found

    def why_not(self, name: str) -> str:
        """Why an id or part is not shown; empty if it is."""
        if self.run is None or self.places(name):
            return ""
        for outcome, tests in (("failed", self.run.failed), ("was skipped", self.run.skipped)):
            if name in tests:
                return f"its test {outcome} in this run: {tests[name][0]}"
        if name in self.marks.bench:
            return f"its benchmark missed a goal: {self.marks.bench[name][0]}"
        marked = self.marks.tests.get(name)
        return f"its test did not run: {marked[0]}" if marked else "no test shows it"


def main(arguments: list[str] | None = None) -> int:
    """Print the trace of a repository; 1 if it has problems."""
    parser = argparse.ArgumentParser(description="Which tests show which requirement.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--quiet", action="store_true", help="only the counts and the problems")
    options = parser.parse_args(arguments)
    trace = collect(options.root)
    print(as_json(trace) if options.json else as_text(trace, quiet=options.quiet))
    return 1 if trace.problems else 0


def collect(root: Path) -> Trace:
    """Read the repository at `root`, and the reports of its last run."""
    trace = Trace(
        every=read_ids(root / "tests/requirements-all.txt"),
        claimed=read_ids(root / "tests/requirements.txt"),
        parts=read_parts(root / "tests/requirements-parts.txt"),
        marks=marks_in(root),
        run=read_run(root / RAN),
        counted=(read_json(root / COUNTED) or {}).get("met", {}),
    )
    trace.problems += trace.marks.problems
    check_marks(trace)
    if trace.run is None:
        trace.problems.append(NO_RUN)
    for identifier in trace.claimed:
        if identifier not in trace.every:
            trace.problems.append(f"{identifier} is claimed, but not in tests/requirements-all.txt")
            continue
        for name in trace.names_of(identifier):
            if why := trace.why_not(name):
                trace.problems.append(f"{name} is claimed, but {why}")
    return trace


def check_marks(trace: Trace) -> None:
    """Each mark names an id that there is, or a part of one that has parts."""
    known = set(trace.names())
    for places in (trace.marks.tests, trace.marks.bench):
        for name, where in places.items():
            identifier = name.partition(".")[0]
            if name in known:
                continue
            if identifier not in trace.every:
                text = f"{name} is not in tests/requirements-all.txt"
            elif identifier in trace.parts:
                text = f"{name}: mark a part: {', '.join(trace.names_of(identifier))}"
            else:
                text = f"{name} has no such part in tests/requirements-parts.txt"
            trace.problems += [f"{place}: {text}" for place in where]
    for identifier in trace.parts:
        if identifier not in trace.every:
            trace.problems.append(f"tests/requirements-parts.txt: {identifier} is no requirement")


# --- the lists and the reports --------------------------------------------------------------------


def read_ids(path: Path) -> list[str]:
    """The ids of a list: one a line, `#` comments, `A-01..09` for a range."""
    return [identifier for line in lines_of(path) for identifier in expand(line, path)]


def lines_of(path: Path) -> list[str]:
    """The lines of a list, without comments."""
    lines = (line.partition("#")[0].strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if line]


def expand(line: str, path: Path) -> Iterator[str]:
    """The ids of one line."""
    match = RANGE.fullmatch(line)
    if match is None:
        raise SystemExit(f"{path}: {line!r} is neither an id nor a range such as CP-01..09")
    first, last = match.groups()
    stem, _, start = first.rpartition("-")
    for number in range(int(start), int(last or start) + 1):
        yield f"{stem}-{number:0{len(start)}}"


def read_parts(path: Path) -> dict[str, tuple[str, ...]]:
    """The parts of ids that are shown one by one: `AG-01: memory storm` a line."""
    found = {}
    for line in lines_of(path) if path.exists() else []:
        match = PARTS.fullmatch(line)
        if match is None:
            raise SystemExit(
                f"{path}: {line!r} is not an id with parts, such as AG-01: memory storm"
            )
        found[match[1]] = tuple(match[2].split())
    return found


def read_json(path: Path) -> dict[str, Any] | None:
    """A report; None if there is none, or only a piece of one."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def read_run(path: Path) -> Run | None:
    """What a run has shown; of a test with parameters, all cases together."""
    document = read_json(path)
    if document is None:
        return None
    run = Run(document["ended"])
    for case, found in document["tests"].items():
        test = case.partition("[")[0]
        for name in found["req"]:
            places = getattr(run, found["outcome"]).setdefault(name, [])
            if test not in places:
                places.append(test)
    return run


# --- as text and as plain data --------------------------------------------------------------------


def as_text(trace: Trace, *, quiet: bool = False) -> str:
    """The trace for people: id → tests, then the counts, then what is wrong."""
    shown, bench = trace.shown, trace.rests_on_bench()
    lines = [] if quiet else [as_line(name, places, bench) for name, places in shown.items()]
    early = [i for i in trace.unclaimed if all(name in shown for name in trace.names_of(i))]
    lines.append(
        f"{len(trace.claimed)} of {len(trace.every)} requirements claimed,"
        f" {len(trace.unclaimed)} unclaimed"
        + (f" ({len(early)} of those have a test)" if early else "")
    )
    if trace.run is not None:
        lines.append(f"by the tests of the run that ended {trace.run.ended}")
    for how in sorted(set(bench.values())):
        names = [name for name, each in bench.items() if each == how]
        lines.append(f"rest on bench/, {how}: {', '.join(names)}")
    lines += [f"problem: {problem}" for problem in trace.problems]
    return "\n".join(lines)


def as_line(name: str, places: list[str], bench: dict[str, str]) -> str:
    """One id or part, the first place that shows it and the number of others."""
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"{name:<10} → {places[0]}{more}" + (f" ({bench[name]})" if name in bench else "")


def as_json(trace: Trace) -> str:
    """The trace for programs."""
    counts = {"all": len(trace.every), "claimed": len(trace.claimed)}
    document = {
        "run": None if trace.run is None else trace.run.ended,
        "requirements": dict(sorted(trace.shown.items())),
        "claimed": trace.claimed,
        "unclaimed": trace.unclaimed,
        "bench": trace.rests_on_bench(),
        "counts": counts,
        "problems": trace.problems,
    }
    return json.dumps(document, indent=2)


if __name__ == "__main__":
    sys.exit(main())
