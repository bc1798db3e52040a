"""The processes of a trial: started, given commands, stopped, killed, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.crash.faults import LEASE
from tests.crash.faults.nursery import environment
from tests.crash.faults.places import ROOT, Place

if TYPE_CHECKING:
    from tests.crash.faults.nursery import Forked, Nursery
    from tests.crash.faults.oracle import Line, Oracle

ENDS_WITHIN = 30.0
"""Seconds in which a process must end when it is asked to; a call waits for 3 leases at most."""
STARTS_WITHIN = 60.0
_WORKER = "tests.crash.faults.worker"


class Worker:
    """One process under load."""

    def __init__(self, process: subprocess.Popen[bytes] | Forked, colour: str) -> None:
        self.process = process
        self.colour = colour

    @property
    def pid(self) -> int:
        """Of its process."""
        return self.process.pid

    def ask(self, command: str) -> None:
        """Gives it a command; one that is gone receives none."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{command}\n".encode())
            self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process alone."""
        self.process.send_signal(number)


class Crew:
    """The workers of a trial."""

    def __init__(
        self,
        place: Place,
        oracle: Oracle,
        job: dict[str, Any],
        log: Path,
        nursery: Nursery | None = None,
    ) -> None:
        self._place, self._oracle, self._job, self._nursery = place, oracle, job, nursery
        self._stderr = log.open("ab")
        self.workers: list[Worker] = []
        self._all: list[Worker] = []

    # --- starting ---------------------------------------------------------------------------------

    def start(self, colours: tuple[str, ...]) -> None:
        """Starts a worker of each colour, and waits until all of them have begun."""
        self._witness = Worker(self._process({"mode": "witness"}), "witness")
        self._all.append(self._witness)
        for colour in colours:
            self.add(colour)
        is_ready = self._oracle.wait_for(_is("ready"), STARTS_WITHIN, count=len(colours))
        assert is_ready, "the workers did not start"

    def add(self, colour: str) -> Worker:
        """Starts another one."""
        job = {"mode": "load", "colour": colour, "start": self._frontier()}
        worker = Worker(self._process(job), colour)
        self.workers.append(worker)
        self._all.append(worker)
        return worker

    def _frontier(self) -> int:
        """How far the others are, so that one that is new need not begin at the first key."""
        numbers = [
            int(line.key.partition("-")[2])
            for line in list(self._oracle.lines)
            if line.what == "asked" and line.key[0].isdigit()
        ]
        return max(0, max(numbers, default=0) - 5)

    def replace(self, worker: Worker, *, waits: bool = False) -> None:
        """Another one in place of one that is gone."""
        self.workers.remove(worker)
        pid = self.add(worker.colour).pid
        if waits:
            self._oracle.wait_for(lambda line: line.what == "began" and line.pid == pid, 10.0)

    def recover(self, keys: Path, rounds: int) -> int | None:
        """A new process that asks for each key; its exit status, None if it did not end in time."""
        url = self._place.url(self._job["scope"], timeout=20)  # nothing is to fail any more
        job = {"mode": "recover", "keys": str(keys), "rounds": rounds, "wait": LEASE + 4.0}
        worker = Worker(self._process({**job, "url": url}), "sync")
        self._all.append(worker)
        if _ended(worker, 2 * ENDS_WITHIN):
            return worker.process.returncode
        os.killpg(worker.pid, signal.SIGKILL)
        return None

    def purge(self, key: str) -> None:
        """A new process that asks for a key and purges; it is waited for."""
        worker = Worker(self._process({"mode": "purge", "key": key}), "sync")
        self._all.append(worker)
        self.note_gone(worker)

    def _process(self, more: dict[str, Any]) -> subprocess.Popen[bytes] | Forked:
        job = {**self._job, "oracle": self._oracle.descriptor, **more}
        if self._nursery is not None:
            return self._nursery.start(job, self._stderr.fileno())
        return subprocess.Popen(
            [*self._place.prefix, sys.executable, "-m", _WORKER, json.dumps(job)],
            cwd=ROOT, env=environment(self._place.environment), stdin=subprocess.PIPE,
            stdout=self._stderr, stderr=self._stderr, start_new_session=True,
            pass_fds=[self._oracle.descriptor],
        )  # fmt: skip

    # --- ending -----------------------------------------------------------------------------------

    def kill(self, worker: Worker) -> None:
        """SIGKILL; when it returns, the process is gone and noted so."""
        worker.signal(signal.SIGKILL)
        self.note_gone(worker)

    def note_gone(self, worker: Worker) -> bool:
        """Waits for its end, and notes it; whether it came in time."""
        is_over = _ended(worker, ENDS_WITHIN)
        if not is_over:
            worker.signal(signal.SIGKILL)
            worker.process.wait()
        self._oracle.pen.write("gone", pid=worker.pid)
        return is_over

    def stop(self) -> list[str]:
        """Asks all of them to end; which did not, or not well."""
        for worker in [*self.workers, self._witness]:
            worker.ask("stop")
        until, problems = time.monotonic() + ENDS_WITHIN, []
        for worker in self.workers:
            if not _ended(worker, max(0.1, until - time.monotonic())):
                problems.append(f"process {worker.pid} ({worker.colour}) did not end")
            elif worker.process.returncode:
                status = worker.process.returncode
                problems.append(f"process {worker.pid} ({worker.colour}) ended with {status}")
        if not _ended(self._witness, ENDS_WITHIN):
            problems.append("the witness did not end")
        return problems

    def end_all(self) -> None:
        """Kills what is left, forked children included."""
        for worker in self._all:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.process.wait()
            with contextlib.suppress(BrokenPipeError):
                worker.process.stdin.close()
        self._stderr.close()

    # --- choosing ---------------------------------------------------------------------------------

    def choose(self, source: random.Random, number: int = 1, colour: str = "") -> list[Worker]:
        """Some that have begun."""
        ready = {line.pid for line in list(self._oracle.lines) if line.what == "ready"}
        found = [each for each in self.workers if each.pid in ready and colour in each.colour]
        return source.sample(found, min(number, len(found)))


def _ended(worker: Worker, within: float) -> bool:
    try:
        worker.process.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True


def _is(what: str) -> Any:
    def is_it(line: Line) -> bool:
        return line.what == what

    return is_it
