"""Kills by the thousand: `python -m tests.crash.campaign --kills 1000`.

A trial is one key: a child is killed, perhaps another, and the last is let through. Between and
after, the store and the files are looked at, and every property below must hold. The points are
enumerated, one trial for each boundary; where more kills are asked for, trials with several kills
at points drawn from a seed follow. Exits with 1 where a property was violated.
"""

# ruff: noqa: T201 -- a command prints

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from mainstay.core.codec.canonical import canonical
from mainstay.core.codec.outcome import Failed, decode_outcome
from mainstay.core.idempotency.record import Record, RecordState, decode
from mainstay.core.inbox.items import Item
from mainstay.core.inbox.items import decode as decode_item
from tests.crash.worker import MOST, SCENARIOS, opened

ROOT = Path(__file__).parents[2]
COLOURS = ("sync", "asyncio")
ENDS = {
    "plain": {"value"},
    "flaky": {"value"},
    "fails": {"ValueError"},
    "released": {"ConnectionError", "OutcomeUnknown"},
    "long": {"value"},
    "unsafe": {"OutcomeUnknown"},
    "given_up": {"OutcomeUnknown"},
}
"""What a caller may see in the end."""
WORN_OUT = {"ConnectionError", "OutcomeUnknown"}
"""And where so many processes were killed that hardly an attempt was left."""


@dataclass
class Trial:
    """One key, and the kills on its way."""

    url: str
    """Where the records are; `{folder}` is the trial's own."""
    scenario: str
    colour: str = "sync"
    crash_at: tuple[int, ...] = ()
    kill_after: tuple[float, ...] = ()
    is_late: bool = False
    """Whether no step of SQLite is made with one statement alone."""


@dataclass
class Report:
    """What came of a trial."""

    trial: Trial
    kills: int = 0
    violations: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


# --- the workers ----------------------------------------------------------------------------------


class Workers:
    """Processes that fork children, each used by one trial at a time."""

    def __init__(self, number: int) -> None:
        self._idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        self._all = [self._started() for _ in range(number)]
        self._pool = ThreadPoolExecutor(number)

    def _started(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.crash.worker"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self._idle.put(process)
        return process

    def run(self, trials: list[Trial]) -> Iterator[Report]:
        """The reports of trials, several at a time."""
        yield from self._pool.map(self.one, trials)

    def one(self, trial: Trial) -> Report:
        process = self._idle.get()
        try:
            return _Run(trial, lambda job: _ask(process, job)).report()
        finally:
            self._idle.put(process)

    def labels(self, url: str, scenario: str, colour: str, *, is_late: bool = False) -> list[str]:
        """The boundaries of a scenario, as one that nobody kills passes them.

        On a machine that stands still for as long as a lease a call passes more of them. So the
        fewest count, if two calls passed as many.
        """
        seen: list[list[str]] = []
        while len(seen) < 2 or len(seen[0]) < len(seen[1]):
            assert len(seen) < 20, "no two calls pass the same boundaries"
            report = self.one(Trial(url, scenario, colour, is_late=is_late))
            assert not report.violations, report.violations
            seen = sorted([*seen, report.labels], key=len)
        return seen[0]

    def close(self) -> None:
        self._pool.shutdown()
        while _views:
            _views.popitem()[1].close()
        for process in self._all:
            process.communicate(timeout=60)


def _ask(process: subprocess.Popen[str], job: dict[str, Any]) -> int | None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{json.dumps(job)}\n")
    process.stdin.flush()
    status: int | None = json.loads(process.stdout.readline())["status"]
    return status


# --- one trial ------------------------------------------------------------------------------------


class _Run:
    """A trial under way, and the properties."""

    def __init__(self, trial: Trial, ask: Callable[[dict[str, Any]], int | None]) -> None:
        self.trial = trial
        self.result = Report(trial)
        self._ask = ask
        self.folder = Path(tempfile.mkdtemp(prefix="crash-"))
        self.url = trial.url.format(folder=self.folder)
        self.key = uuid.uuid4().hex
        self.address = canonical([None, trial.scenario, self.key]).decode()
        self.recorded: Record | None = None
        self.effects_then = 0
        self.released_at = 0

    def report(self) -> Report:
        try:
            self._kill_and_recover()
        except Exception as error:
            self._violated(f"{type(error).__name__}: {error}")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.result

    def _kill_and_recover(self) -> None:
        for crash_at in self.trial.crash_at:
            self._child(crash_at=crash_at)
        for kill_after in self.trial.kill_after:
            self._child(kill_after=kill_after)
        if self.trial.scenario == "given_up":
            for _ in range(MOST):
                self._child()
        self._child()
        self._child()  # and whoever asks again hears the same
        self._check_the_end()

    def _child(self, **how: Any) -> None:
        trial = self.trial
        job = {"url": self.url, "scenario": trial.scenario, "colour": trial.colour}
        job |= {"is_late": trial.is_late, "folder": str(self.folder), "key": self.key}
        status = self._ask(job | how)
        self.result.kills += status == -signal.SIGKILL
        if status is None:
            self._violated("a call did not end")
        elif status not in (0, -signal.SIGKILL):
            self._violated(f"a child ended with {status}: {self._lines('trouble')}")
        labels = self.folder / "labels"
        if labels.exists() and not self.result.labels:
            self.result.labels = labels.read_text().splitlines()
        self._look()

    def _violated(self, what: str) -> None:
        trial = self.trial
        at = [*trial.crash_at, *trial.kill_after]
        self.result.violations.append(f"{trial.scenario}/{trial.colour} killed at {at}: {what}")

    def _lines(self, name: str) -> list[str]:
        where = self.folder / name
        return where.read_text().splitlines() if where.exists() else []

    def _stored(self) -> tuple[Record | None, Item | None]:
        """What the store has of the key: its record, and its item in the inbox."""
        about = Item(kind="unknown_outcome", subject=self.address, operation="", text="")
        view = _view_of_file if self.url.startswith("sqlite") else _view_of_server
        value, item = view(self.url, (("records", self.address), ("inbox", about.id)))
        return value and decode(value), item and decode_item(item)

    # --- properties ------------------------------------------------------------------------------

    def _look(self) -> None:
        """What must hold whenever a child has ended, killed or not."""
        record, _ = self._stored()
        effects = len(self._lines("effects"))
        before = self.recorded
        if before is not None and before.state is not RecordState.RUNNING:
            if record != before:
                self._violated(f"a recorded end was changed: {before} became {record}")
            if effects != self.effects_then:
                self._violated("the effect was made again though its end was recorded")
        if record is None:
            self.released_at = effects
        elif record.attempts < effects - self.released_at:
            self._violated(f"{effects} effects, {record.attempts} attempts counted")
        if effects - self.released_at > MOST:
            self._violated(f"{effects} effects, {MOST} attempts allowed")
        self.recorded, self.effects_then = record, effects

    def _check_the_end(self) -> None:
        """What must hold when all is over."""
        record, item = self._stored()
        seen = [json.loads(line) for line in self._lines("seen")]
        if record is not None and record.state is RecordState.RUNNING:
            self._violated("a record is left running")
        several = self.result.kills > 1
        allowed = ENDS[self.trial.scenario] | (WORN_OUT if several else set())
        for each in seen:
            if each.get("error", "value") not in allowed:
                self._violated(f"a caller saw {each}")
        self._check_what_was_seen(record, seen)
        is_unknown = record is not None and record.state is RecordState.UNKNOWN
        allowed_attempts = {"unsafe": 1, "released": 2}.get(self.trial.scenario, MOST)
        if is_unknown and record.attempts < allowed_attempts:
            self._violated(f"given up after {record.attempts} of {allowed_attempts} attempts")
        if is_unknown != (item is not None and item.status == "open" and item.times == 1):
            self._violated(f"the record is {record}, the inbox has {item}")

    def _check_what_was_seen(self, record: Record | None, seen: list[dict[str, str]]) -> None:
        """Every caller that heard of an end heard of the same, and it is the recorded one."""
        values = {each["value"] for each in seen if "value" in each and each["value"] is not None}
        if len(values) > 1:
            self._violated(f"callers saw different results: {values}")
        if values and record is not None:
            outcome = decode_outcome(bytes(record.outcome))
            kept = str(outcome.exception) if isinstance(outcome, Failed) else outcome.value
            if values != {kept}:
                self._violated(f"callers saw {values}, recorded is {kept}")


def _view_of_file(url: str, places: tuple[tuple[str, str], ...]) -> list[Any]:
    """Read by SQLite itself, past our own code; a file without tables has nothing."""
    path = Path(url.removeprefix("sqlite:///"))
    if not path.exists():
        return [None, None]
    with closing(sqlite3.connect(path, timeout=10.0)) as connection:
        try:
            damage = connection.execute("PRAGMA quick_check").fetchall()
            assert damage == [("ok",)], damage
            ask = "SELECT value FROM mainstay_kept WHERE space = ? AND key = ?"
            rows = [connection.execute(ask, place).fetchone() for place in places]
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            return [None, None]
    return [row and row[0] for row in rows]


_views: dict[str, Any] = {}


def _view_of_server(url: str, places: tuple[tuple[str, str], ...]) -> list[Any]:
    with _opening:
        if url not in _views:
            _views[url] = opened(url)
    return [_views[url].read(*place)[0] for place in places]


_opening = threading.Lock()


# --- which trials ---------------------------------------------------------------------------------


def enumerated(
    workers: Workers,
    url: str,
    scenario: str,
    colour: str,
    commands: tuple[str, ...] = (),
    *,
    is_late: bool = False,
) -> list[Trial]:
    """One trial for each boundary of a scenario; those of making tables in one scenario only."""
    labels = workers.labels(url, scenario, colour, is_late=is_late)
    makes_tables = scenario == "plain" and not is_late
    first = 0 if makes_tables else labels.index("begin before the step")
    return [
        Trial(url, scenario, colour, crash_at=(at,), is_late=is_late)
        for at, label in enumerate(labels, 1)
        if at > first and (not commands or label.startswith(commands))
    ]


def drawn(trials: list[Trial], seed: int) -> Iterator[Trial]:
    """Trials with two to four kills each, without an end."""
    source = random.Random(seed)
    while True:
        one = source.choice(trials)
        most = max(each.crash_at[0] for each in trials if each.scenario == one.scenario)
        points = tuple(source.randint(1, most) for _ in range(source.randint(2, 4)))
        yield Trial(one.url, one.scenario, one.colour, crash_at=points, is_late=one.is_late)


def at_random_moments(url: str, number: int, seed: int) -> list[Trial]:
    """Trials whose child is killed from outside, after a time drawn from the seed."""
    source = random.Random(seed)
    return [
        Trial(url, source.choice(SCENARIOS[:-1]), source.choice(COLOURS), (), _moments(source))
        for _ in range(number)
    ]


def _moments(source: random.Random) -> tuple[float, ...]:
    return tuple(source.uniform(0.0, 0.06) for _ in range(source.randint(1, 3)))


# --- the command ----------------------------------------------------------------------------------


def main() -> int:
    """Runs the campaign."""
    options = _options()
    with ExitStack() as stack:
        workers = Workers(options.workers)
        stack.callback(workers.close)
        failed = 0
        for name in options.stores.split(","):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crash-")))
            folder.chmod(0o755)
            url = place(name, folder, stack)
            trials = _trials_of(workers, url, name, options)
            failed += _campaign(name, workers, trials, options.kills)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Kills processes and checks what is left.")
    parser.add_argument("--kills", type=int, default=1000, help="for each store")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--stores", default="sqlite,postgres,valkey,nats")
    return parser.parse_args()


def place(name: str, folder: Path, stack: ExitStack) -> str:
    """The URL of a store of that kind; starts a server where it needs one."""
    if name == "sqlite":
        return "sqlite:///{folder}/kept.db"
    module = __import__(f"tests.servers.{name}", fromlist=["start"])
    server = getattr(module, f"start_{name}")(folder)
    stack.callback(server.kill)
    return str(server.url)


def _trials_of(
    workers: Workers, url: str, name: str, options: argparse.Namespace
) -> Iterator[Trial]:
    """First every boundary, where they can be counted; then what the seed draws."""
    if name in ("valkey", "nats"):
        yield from at_random_moments(url, options.kills, options.seed)
        return
    trials = [
        each
        for colour in COLOURS
        for scenario in SCENARIOS[:-1]
        for each in enumerated(workers, url, scenario, colour)
    ]
    if name == "sqlite":
        for scenario in SCENARIOS[:-1]:
            trials += enumerated(workers, url, scenario, "sync", is_late=True)
    yield from trials
    yield from (Trial(url, "given_up", colour) for colour in COLOURS)
    yield from drawn(trials, options.seed)


def _campaign(name: str, workers: Workers, trials: Iterator[Trial], kills: int) -> int:
    """Runs trials until there were enough kills; how many violated a property."""
    done, made, failed, started = 0, 0, 0, time.monotonic()
    while done < kills:
        batch = [trial for trial, _ in zip(trials, range(64), strict=False)]
        if not batch:
            break
        for report in workers.run(batch):
            done, made, failed = done + report.kills, made + 1, failed + bool(report.violations)
            print(*report.violations, sep="\n", end="\n" * bool(report.violations))
            _show(name, done, kills)
    took = time.monotonic() - started
    print(f"{name}: {made} trials, {done} kills, {failed} with a violation, {took:.0f} s")
    return failed


def _show(name: str, done: int, kills: int) -> None:
    if sys.stdout.isatty():
        part = min(1.0, done / kills)
        print(f"\r{name} [{'#' * int(part * 40):40}] {done}/{kills} kills ", end="", flush=True)
        if part == 1.0:
            print("\r\x1b[K", end="")


if __name__ == "__main__":
    sys.exit(main())
