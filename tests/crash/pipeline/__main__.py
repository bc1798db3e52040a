"""Pipelines killed at every boundary: `python -m tests.crash.pipeline`.

A trial is one run on SQLite or PostgreSQL whose second stage finds a violated schema; its process
is killed at one of the boundaries: while it halts, while it halts with another stage beside it, or,
once that is repaired and released, while it is resumed. Exits with 1 if a property was violated:

- the halt, the quarantine and the ledger entries are all in the store, or none of them is;
- whatever ledger file there is, is whole JSON with whole chains, at the moment of the kill;
- before the next run calls anything, the halt is carried over: the data set is given to no stage,
  the inbox has the item, the files have the entries of the store, and no open entry is left;
- a run that was killed while it was resumed is resumed by the next process, ends once, calls no
  stage that was done, and is in the files as it is in the store.
"""

# ruff: noqa: T201 -- a command prints

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from os import urandom
from pathlib import Path
from typing import Any

from mainstay.core.inbox.items import Decision
from mainstay.core.pipeline.state import HALTED, RUNNING, SUCCEEDED
from mainstay.drivers.pipeline.carry import item_of
from mainstay.errors import Conflict, GovernanceBlocked, PipelineHalted, SchemaValidationError
from mainstay.profiles.pipelines import read_ledger, verify_together
from tests.crash.pipeline.worker import open_engine, pipeline_of

ROOT = Path(__file__).parents[3]
SQLITE = "sqlite:///{folder}/runs.db"
SCENARIOS = ("halts", "wide", "resumes")
KILLED = -9
HELD = ["began", "halted", "quarantined"]
RESUMED = [*HELD, "reviewed", "resumed"]


class Worker:
    """A process that forks a child for each trial."""

    def __init__(self, url: str = SQLITE, scenario: str = "halts") -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "tests.crash.pipeline.worker"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self._url, self._scenario = url, scenario

    def trial(self, crash_at: int) -> tuple[list[str], int, int]:
        """What was violated, how the process ended, and how many boundaries it passed."""
        folder = Path(tempfile.mkdtemp(prefix="pipeline-crash-"))
        job = {
            "folder": str(folder), "crash_at": crash_at, "url": self._url,
            "scenario": self._scenario, "trial": urandom(6).hex(),
        }  # fmt: skip
        try:
            if self._scenario == "resumes":
                halted_and_released(job)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            counted = folder / "counted"
            passed = int(counted.read_text(encoding="utf-8")) if counted.exists() else 0
            violations = [] if code in (0, KILLED) else [f"it ended with {code}"]
            check = checked_resumed if self._scenario == "resumes" else checked
            return [*violations, *check(job)], code, passed
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate(timeout=60)


def halted_and_released(job: dict[str, Any]) -> None:
    """A run that is halted, and that a person has released."""
    with open_engine(job) as engine:
        pipeline = pipeline_of(engine, job, lambda _: None)
        with suppress(SchemaValidationError):
            pipeline.run(run_id="r-1")
        address = f"{pipeline.pipeline_id}/r-1"
        record = engine.pipelines._parts.records.get(address)[0]
        assert record is not None
        item = item_of(address, record)
        assert item is not None
        engine.pipelines.settle(item, Decision(action="release", by="ann", at=0.0, why="repaired"))


def checked(job: dict[str, Any]) -> list[str]:
    """The properties that do not hold after a kill while it halts, and after the next start."""
    folder, address = Path(job["folder"]), f"etl-{job['trial']}/r-1"
    found = _whole_files(folder)
    with open_engine(job) as engine:
        records = engine.pipelines._parts.records
        record = records.get(address)[0]
        is_halted = record is not None and record.halt is not None
        if record is not None:
            kinds = [entry.kind for entry in record.versions]
            three = (is_halted, record.is_held, kinds == HELD, bool(record.retries))
            is_left = record.state is RUNNING and job["scenario"] == "wide"
            if len(set(three)) > 1 or (record.state is not HALTED) != (not is_halted or is_left):
                found.append(f"halt, quarantine and ledger are {three}, and it is {record.state}")
        called: list[str] = []
        again = pipeline_of(engine, job, called.append, "again")
        with suppress(GovernanceBlocked, SchemaValidationError):
            again.run(run_id="r-2")
        if ("check" in called) == is_halted:
            found.append(f"halted: {is_halted}, and the next run called {called}")
        if record is not None and is_halted and record.state is RUNNING:
            record = _closed(records, address, again)
        items = [item for item in engine.inbox if item.subject == address]
        if len(items) != int(is_halted):
            found.append(f"halted: {is_halted}, and there are {len(items)} items")
        if is_halted and records.entry_of(address) is not None:
            found.append("it was not carried over before the next run")
        if is_halted and record is not None:
            found += _not_in_file(folder, record)
    return found + _whole_files(folder)


def _closed(records: Any, address: str, again: Any) -> Any:
    """The record, once the lease of the process that was killed is over and another run began."""
    while records.get(address)[1] > 0.0:
        time.sleep(records.get(address)[1] + 0.01)
    with suppress(GovernanceBlocked, SchemaValidationError):
        again.run(run_id="r-3")
    return records.get(address)[0]


def checked_resumed(job: dict[str, Any]) -> list[str]:
    """The properties that do not hold after a kill while it is resumed."""
    folder, address, called = Path(job["folder"]), f"etl-{job['trial']}/r-1", list[str]()
    found = _whole_files(folder)
    with open_engine(job) as engine:
        records = engine.pipelines._parts.records
        before = records.get(address)[0]
        assert before is not None
        was_done = before.state is SUCCEEDED
        pipeline = pipeline_of(engine, job, called.append, is_repaired=True)
        result = _resumed(pipeline)
        if result.results["check"] != "checked" or called != ([] if was_done else ["check"]):
            found.append(f"it was {before.state}, and the next process called {called}")
        record = records.get(address)[0]
        assert record is not None
        kinds = [entry.kind for entry in record.versions]
        wanted = [HELD + ["reviewed"] + ["resumed"] * n + ["completed"] for n in (1, 2)]
        if kinds not in wanted or record.state is not SUCCEEDED:
            found.append(f"it is {record.state}, and its ledger has {kinds}")
        if records.entry_of(address) is not None:
            found.append("it was not carried over")
        found += _not_in_file(folder, record)
        if records.known(f"d-{job['trial']}").held:
            found.append("its data set is still held")
    return found + _whole_files(folder)


def _resumed(pipeline: Any) -> Any:
    """Resumes it, once the lease of the process that was killed is over."""
    for _ in range(50):
        try:
            return pipeline.resume("r-1")
        except Conflict as error:
            time.sleep(error.retry_after or 0.1)
    raise PipelineHalted(pipeline.pipeline_id, "r-1", "", "its lease did not end", None)


def _not_in_file(folder: Path, record: Any) -> list[str]:
    log = read_ledger(folder / "ledgers/versioning_ledger.json")
    mine = tuple(e for e in log.entries if (e.pipeline_id, e.run_id) == (record.pipeline, "r-1"))
    if mine == record.versions:
        return []
    return [f"the file has {len(mine)} entries, the store {len(record.versions)}"]


def _whole_files(folder: Path) -> list[str]:
    paths = [folder / "ledgers" / f"{n}.json" for n in ("pipeline_retry_log", "versioning_ledger")]
    try:
        ledgers = [read_ledger(path) for path in paths if path.exists()]
    except Exception as error:
        return [f"a file is not whole: {error}"]
    return [] if len(ledgers) < 2 else [flaw.text for flaw in verify_together(*ledgers)]


def campaign(url: str, scenario: str) -> list[str]:
    """A trial for each boundary; what was violated."""
    worker = Worker(url, scenario)
    violations, _, boundaries = worker.trial(0)
    for number in range(1, boundaries + 1):
        more, code, _ = worker.trial(number)
        violations += [f"boundary {number}: {each}" for each in more]
        violations += [] if code == KILLED else [f"boundary {number}: it was not killed"]
    worker.close()
    store = url.partition(":")[0]
    print(f"{store}, {scenario}: {boundaries} boundaries, {len(violations)} violations")
    for each in violations:
        print(each)
    return violations


def main() -> None:
    """Both scenarios on both stores."""
    from tests.servers.postgres import start_postgres

    with ExitStack() as stack:
        server = start_postgres()
        stack.callback(server.kill)
        found = [campaign(url, name) for url in (SQLITE, server.url) for name in SCENARIOS]
    sys.exit(any(found))


if __name__ == "__main__":
    main()
