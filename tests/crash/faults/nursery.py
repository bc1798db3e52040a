"""A process that has imported everything, and forks the workers of a sample.

A new interpreter for each of the four or five processes of a trial costs more than the trial does.
`make crash` starts new ones; `make test`, with one trial for each cell, forks them. The process
that forks has no threads and no engine, and opens no store. It ends with the socket to its parent.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from tests.crash.faults.places import ROOT
from tests.processes import leave

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.crash.faults.places import Place

_WORKER = "tests.crash.faults.worker"
_STORES = {"postgres": "postgres", "valkey": "redis", "nats": "nats"}
"""The module of each store that is a server."""
_MOST = 1 << 16
"""Bytes of a job, or of an answer."""


def environment(added: Mapping[str, str]) -> dict[str, str]:
    """With the path of this package: a mount namespace has a working directory of its own."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, **added, "PYTHONPATH": path}


class Nursery:
    """For the processes of one cell: they see its disk and its clock."""

    def __init__(self, place: Place) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        module = f"mainstay.stores.{_STORES.get(place.store, place.store)}.store"
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno()), module]
            self._process = subprocess.Popen(
                [*place.prefix, *command], cwd=ROOT, env=environment(place.environment),
                stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        self._ended: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.wait(60.0)

    def start(self, job: dict[str, Any], log: int) -> Forked:
        """Forks a worker with this job; `log` is the descriptor of its output."""
        reads, writes = os.pipe()
        try:
            fds = [reads, log, job["oracle"]]
            socket.send_fds(self._socket, [json.dumps(job).encode()], fds)
        finally:
            os.close(reads)
        while (pid := self._heard(60.0)) is None:
            pass
        return Forked(self, pid, writes)

    def ended(self, pid: int, timeout: float) -> int | None:
        """The exit status of a worker that ends within that time; negative for a signal."""
        until = time.monotonic() + timeout
        while pid not in self._ended:
            left = max(0.0, until - time.monotonic())
            if not select.select([self._socket], [], [], left)[0]:
                return None
            self._heard(0.0)
        return self._ended[pid]

    def _heard(self, timeout: float) -> int | None:
        """Takes one answer; the pid, if a worker was started."""
        assert select.select([self._socket], [], [], timeout)[0], "the nursery does not answer"
        data = self._socket.recv(_MOST)
        assert data, "the nursery has ended"
        pid, status = json.loads(data)
        if status is None:
            return int(pid)
        self._ended[pid] = status
        return None


class Forked:
    """A worker that a nursery has forked; what `subprocess.Popen` offers of it."""

    def __init__(self, nursery: Nursery, pid: int, writes: int) -> None:
        self._nursery, self.pid = nursery, pid
        self.stdin = os.fdopen(writes, "wb")
        self.returncode: int | None = None

    def wait(self, timeout: float = 60.0) -> int:
        """Its exit status; `TimeoutExpired` if it does not end in time."""
        if self.returncode is None:
            self.returncode = self._nursery.ended(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal, unless it has ended."""
        if self.returncode is None and self._nursery.ended(self.pid, 0.0) is None:
            os.kill(self.pid, number)


# --- the process that forks -----------------------------------------------------------------------


def next_job(channel: socket.socket) -> dict[str, Any] | None:
    """In each child: its job. In the process that forks: None, when its parent is gone."""
    wake, wakes = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready = select.select([channel, wake], [], [])[0]
        if wake in ready:
            os.read(wake, _MOST)
            _report_ends(channel)
        if channel in ready:
            data, fds, _, _ = socket.recv_fds(channel, _MOST, 3)
            if not data:
                return None
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (channel.detach(), wake, wakes):
                    os.close(each)
                return _taken_over(json.loads(data), fds)
            for each in fds:
                os.close(each)
            channel.send(json.dumps([pid, None]).encode())


def _report_ends(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        channel.send(json.dumps([pid, os.waitstatus_to_exitcode(status)]).encode())


def _taken_over(job: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """The job, with its input, output and oracle in the place of those of the process."""
    os.setsid()
    reads, log, oracle = fds
    for given, own in ((reads, 0), (log, 1), (log, 2)):
        os.dup2(given, own)
    os.close(reads)
    os.close(log)
    return {**job, "oracle": oracle}


def main() -> None:
    """Imports what workers need, and forks them."""
    from tests.crash.faults import worker

    __import__(sys.argv[2])
    gc.freeze()  # what a child does not touch it need not copy
    job = next_job(socket.socket(fileno=int(sys.argv[1])))
    if job is not None:
        worker.work(job)
        leave(0)


if __name__ == "__main__":
    main()
