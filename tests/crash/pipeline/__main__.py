"""Pipelines killed at every boundary: `python -m tests.crash.pipeline`.

A trial is one run whose second stage finds a violated schema; its process is killed at one of the
boundaries. Exits with 1 if a property was violated:

- the halt, the quarantine and the ledger entries are all in the store, or none of them is;
- whatever ledger file there is, is whole JSON with whole chains, at the moment of the kill;
- before the next run calls anything, the halt is carried over: the data set is given to no stage,
  the inbox has the item, the files have the entries of the store, and no open entry is left.
"""

# ruff: noqa: T201 -- a command prints

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from mainstay.core.pipeline.state import HALTED, RUNNING
from mainstay.errors import GovernanceBlocked, SchemaValidationError
from mainstay.profiles.pipelines import read_ledger, verify_together
from tests.crash.pipeline.worker import open_engine, pipeline_of

ROOT = Path(__file__).parents[3]
KILLED = -9
HELD = ["began", "halted", "quarantined"]


class Worker:
    """A process that forks a child for each trial."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "tests.crash.pipeline.worker"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def trial(self, crash_at: int) -> tuple[list[str], int, int]:
        """What was violated, how the process ended, and how many boundaries it passed."""
        folder = Path(tempfile.mkdtemp(prefix="pipeline-crash-"))
        try:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(
                json.dumps({"folder": str(folder), "crash_at": crash_at}) + "\n"
            )
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            counted = folder / "counted"
            passed = int(counted.read_text(encoding="utf-8")) if counted.exists() else 0
            violations = [] if code in (0, KILLED) else [f"it ended with {code}"]
            return [*violations, *checked(folder)], code, passed
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate(timeout=60)


def checked(folder: Path) -> list[str]:
    """The properties that do not hold after a kill, and after the next start."""
    found = _whole_files(folder)
    with open_engine(folder) as engine:
        records = engine.pipelines._parts.records
        record = records.get("etl/r-1")[0]
        is_halted = record is not None and record.state is HALTED
        if record is not None:
            kinds = [entry.kind for entry in record.versions]
            three = (record.halt is not None, record.is_held, kinds == HELD, bool(record.retries))
            if set(three) != {is_halted} or record.state not in (HALTED, RUNNING):
                found.append(f"halt, quarantine and ledger are {three}, and it is {record.state}")
        called: list[str] = []
        again = pipeline_of(engine, folder, "again", called.append)
        with suppress(GovernanceBlocked, SchemaValidationError):
            again.run(run_id="r-2")
        if ("check" in called) == is_halted:
            found.append(f"halted: {is_halted}, and the next run called {called}")
        items = [item for item in engine.inbox if item.subject == "etl/r-1"]
        if len(items) != int(is_halted):
            found.append(f"halted: {is_halted}, and there are {len(items)} items")
        if is_halted and records.entry_of("etl/r-1") is not None:
            found.append("it was not carried over before the next run")
        if is_halted and record is not None:
            log = read_ledger(folder / "ledgers/versioning_ledger.json")
            mine = tuple(entry for entry in log.entries if entry.run_id == "r-1")
            if mine != record.versions:
                found.append(f"the file has {len(mine)} entries, the store {len(record.versions)}")
    return found + _whole_files(folder)


def _whole_files(folder: Path) -> list[str]:
    paths = [folder / "ledgers" / f"{n}.json" for n in ("pipeline_retry_log", "versioning_ledger")]
    try:
        ledgers = [read_ledger(path) for path in paths if path.exists()]
    except Exception as error:
        return [f"a file is not whole: {error}"]
    return [] if len(ledgers) < 2 else [flaw.text for flaw in verify_together(*ledgers)]


def main() -> None:
    """A trial for each boundary."""
    worker = Worker()
    violations, _, boundaries = worker.trial(0)
    for number in range(1, boundaries + 1):
        more, code, _ = worker.trial(number)
        violations += [f"boundary {number}: {each}" for each in more]
        violations += [] if code == KILLED else [f"boundary {number}: it was not killed"]
    worker.close()
    print(f"{boundaries} boundaries, {len(violations)} violations")
    for each in violations:
        print(each)
    sys.exit(bool(violations))


if __name__ == "__main__":
    main()
