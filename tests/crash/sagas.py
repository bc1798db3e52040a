"""Saga workers killed by the hundred: `python -m tests.crash.sagas --kills 500`.

A trial is one saga. Its first process is killed at a boundary; then one, two or four workers
recover it at once, of which the first may be killed as well, and again until it has ended. What
happened is read from a file that the steps append to. Exits with 1 if a property was violated:

- the saga ends as its definition has it: succeeded, compensated, or stuck with one item;
- no step runs again after it was recorded as done;
- undone are exactly the steps that may have happened, in reverse order of their ends;
- all attempts of a step have one key; no entry of an open saga is left;
- the outbox has one event of each step and compensation whose end is in the log, in its order, and
  no other: each of them emits one.
"""

# ruff: noqa: T201 -- a command prints

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from mainstay import Engine, SagaView
from tests.crash.saga_worker import SCENARIOS

ROOT = Path(__file__).parents[2]
KILLED = -9
_MOST_ROUNDS = 30


@dataclass
class Trial:
    """One saga, and the kills on its way."""

    url: str
    scenario: str
    workers: int = 1
    crash_at: tuple[int, ...] = ()


@dataclass
class Report:
    """What came of a trial."""

    trial: Trial
    kills: int = 0
    boundaries: int = 0
    violations: list[str] = field(default_factory=list)


class Workers:
    """Processes that fork children, each used by one trial at a time."""

    def __init__(self, number: int) -> None:
        self._idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        command, pipe = [sys.executable, "-m", "tests.crash.saga_worker"], subprocess.PIPE
        self._all = [
            subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
            for _ in range(number)
        ]
        for process in self._all:
            self._idle.put(process)
        self._pool = ThreadPoolExecutor(number)
        self.effects = Path(tempfile.mkdtemp(prefix="saga-effects-"))
        """A file for each saga: workers of one trial may recover the saga of another."""

    def run(self, trials: list[Trial]) -> Iterator[Report]:
        """The reports of trials, several at a time."""
        yield from self._pool.map(self.one, trials)

    def one(self, trial: Trial) -> Report:
        """One trial, from the first process to the checks."""
        process, folder = self._idle.get(), Path(tempfile.mkdtemp(prefix="saga-crash-"))
        try:
            return _Run(trial, folder, self.effects, process).report()
        finally:
            self._idle.put(process)
            shutil.rmtree(folder, ignore_errors=True)

    def enumerated(self, url: str, scenario: str, workers: int = 1) -> list[Trial]:
        """A trial for each boundary that a saga passes which nothing kills.

        A saga whose lease ends because the machine stands still passes more of them, and one of a
        group whose steps end at the same time fewer: the first number that two sagas have passed.
        """
        passed: list[int] = []
        while len(set(passed)) == len(passed):
            assert len(passed) < 20, f"no two sagas pass as many boundaries: {sorted(passed)}"
            whole = self.one(Trial(url, scenario))
            assert not whole.violations, whole.violations
            passed.append(whole.boundaries)
        return [Trial(url, scenario, workers, (number,)) for number in range(1, passed[-1] + 1)]

    def close(self) -> None:
        """Ends the processes."""
        self._pool.shutdown()
        for process in self._all:
            process.communicate(timeout=60)
        shutil.rmtree(self.effects, ignore_errors=True)


class _Run:
    """A trial under way, and the properties."""

    def __init__(
        self, trial: Trial, folder: Path, effects: Path, process: subprocess.Popen[str]
    ) -> None:
        self.trial, self.folder, self.effects, self.process = trial, folder, effects, process
        self.url = trial.url.format(folder=folder)
        self.id = uuid.uuid4().hex
        self.result = Report(trial)

    def report(self) -> Report:
        kills = list(self.trial.crash_at)
        self._ask([self._job(kills.pop(0) if kills else 0, is_first=True)])
        counted = self.folder / "counted"
        self.result.boundaries = int(counted.read_text()) if counted.exists() else 0
        for _ in range(_MOST_ROUNDS):
            jobs = [self._job(kills.pop(0) if kills else 0)]
            jobs += [self._job(0) for _ in range(self.trial.workers - 1)]
            if self._ask(jobs)[0] != KILLED and not kills:
                break
        self._check()
        return self.result

    def _job(self, crash_at: int, *, is_first: bool = False) -> dict[str, object]:
        return {
            "url": self.url,
            "folder": str(self.folder),
            "effects": str(self.effects),
            "scenario": self.trial.scenario,
            "id": self.id,
            "crash_at": crash_at,
            "is_first": is_first,
        }

    def _ask(self, jobs: list[dict[str, object]]) -> list[int]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps(jobs)}\n")
        self.process.stdin.flush()
        codes: list[int] = json.loads(self.process.stdout.readline())
        self.result.kills += codes.count(KILLED)
        self._hold(set(codes) <= {0, KILLED}, f"processes ended with {codes}")
        return codes

    def _hold(self, is_held: bool, text: str) -> None:
        if not is_held:
            self.result.violations.append(f"{self.trial}: {text}")

    def _check(self) -> None:
        with Engine(self.url, sinks=[], audit=False, purge=None, share=None) as engine:
            found = engine.sagas.get(self.trial.scenario, self.id)
            items = [item for item in engine.inbox if self.id in item.subject]
            entries = [at for at, _ in engine.sagas._parts.records.entries() if self.id in at]
            events = [each.message.topic for each in engine.outbox.entries(aggregate_id=self.id)]
        self._hold(not entries, f"an entry is left: {entries}")
        if found is None:  # killed before it was begun: nothing happened
            self._hold(not self._lines(), "steps ran, and there is no record")
            self._hold(not items, "an item without a saga")
            self._hold(not events, f"events without a saga: {events}")
            return
        expected = SCENARIOS[self.trial.scenario][1]
        self._hold(found.state == expected, f"it is {found.state}, not {expected}")
        self._hold(len(items) == (expected == "stuck"), f"{len(items)} items")
        ends = {"done": "", "undo_done": "-"}
        logged = [ends[each.what] + each.step for each in found.log if each.what in ends]
        self._hold(events == logged, f"events {events}, and the log has {logged}")
        self._check_effects(found)

    def _lines(self) -> list[tuple[str, str, float]]:
        file = self.effects / self.id
        if not file.exists():
            return []
        words = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
        return [(name, key, float(at)) for name, key, at, _ in words]

    def _check_effects(self, found: SagaView) -> None:
        lines = self._lines()
        keys = {(name, key) for name, key, _ in lines}
        self._hold(len(keys) == len({name for name, _ in keys}), f"keys differ: {keys}")
        done = [(each.step, each.at) for each in found.log if each.what == "done"]
        for step, at in done:
            late = [moment for name, _, moment in lines if name == step and moment > at]
            self._hold(not late, f"step {step} ran after it was done at {at}: {late}")
        acted = {name for name, _, _ in lines if not name.startswith("-")}
        self._hold({step for step, _ in done} <= acted, "a step is done that did not run")
        undone = list(dict.fromkeys(name[1:] for name, _, _ in lines if name.startswith("-")))
        self._check_undone(found, [step for step, _ in done], acted, undone)

    def _check_undone(
        self, found: SagaView, done: list[str], acted: set[str], undone: list[str]
    ) -> None:
        undoable = {step.name for step in found.steps if step.undoable}
        started = {each.step for each in found.log if each.what == "started"}
        in_doubt = [each.step for each in found.log if each.what == "in_doubt"]
        if found.state == "succeeded" or self.trial.scenario == "behind":
            self._hold(not undone, f"undone without reason: {undone}")
            return
        order = [each for each in [*in_doubt, *reversed(done)] if each in undoable]
        if self.trial.scenario == "stuck":
            order = order[:1]
        self._hold(undone == order, f"undone {undone}, not {order}")
        self._hold(set(undone) <= started & acted, f"undone {undone}, of which {acted} ran")


# --- the campaign ---------------------------------------------------------------------------------


def trials_of(workers: Workers, url: str, numbers: list[int]) -> list[Trial]:
    """Each boundary of each scenario, with each number of workers."""
    return [
        trial
        for scenario in SCENARIOS
        for number in numbers
        for trial in workers.enumerated(url, scenario, number)
    ]


def with_more_kills(trials: list[Trial], seed: int) -> Iterator[Trial]:
    """The same with a second and a third kill, at boundaries drawn from a seed; without end."""
    draw = random.Random(seed)
    while True:
        trial = draw.choice(trials)
        more = tuple(draw.randint(1, 14) for _ in range(draw.randint(1, 2)))
        yield Trial(trial.url, trial.scenario, trial.workers, (*trial.crash_at, *more))


def urls(stack: ExitStack) -> list[str]:
    """A file of SQLite for each trial, and a database of PostgreSQL."""
    from tests.servers.postgres import start_postgres

    server = start_postgres()
    stack.callback(server.kill)
    return ["sqlite:///{folder}/kept.db", server.url]


def main() -> int:
    """Runs the campaign, and prints what was violated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", default="", help="sqlite or postgresql; both without it")
    parser.add_argument("--workers", default="1,2,4", help="how many recover a saga at once")
    given = parser.parse_args()
    kills, violations = 0, list[str]()
    with ExitStack() as stack:
        workers = Workers(4)
        stack.callback(workers.close)
        for url in urls(stack):
            if not url.startswith(given.store):
                continue
            trials = trials_of(workers, url, [int(each) for each in given.workers.split(",")])
            more = with_more_kills(trials, given.seed)
            before = kills
            while trials and (kills - before) * 2 < given.kills:
                reports = list(workers.run(trials))
                kills += sum(report.kills for report in reports)
                found = [each for report in reports for each in report.violations]
                print(*found, sep="\n", end="\n" * bool(found), flush=True)
                violations += found
                trials = [next(more) for _ in range(100)]
            print(f"{url.split(':', maxsplit=1)[0]}: {kills - before} kills", flush=True)
    print(f"{kills} kills of saga workers, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
