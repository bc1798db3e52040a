"""The faults: each has `colours` of workers, and `inject`, which returns how many there were.

What a fault does to a process or to the store is noted in the oracle: `gone`, `paused` and
`resumed`, `down` and `up`, `jumped`.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from typing import TYPE_CHECKING

from tests.crash.faults import LEASE

if TYPE_CHECKING:
    from tests.crash.faults.crew import Crew, Worker
    from tests.crash.faults.oracle import Oracle
    from tests.crash.faults.places import Place

DAY = 86_400


class Fault:
    """One kind of fault, in one trial."""

    per_trial = 8
    """How many a trial of the campaign has."""
    needs_pad = 0
    """Bytes that are added to each result."""

    def __init__(
        self, place: Place, crew: Crew, oracle: Oracle, source: random.Random, trial: str
    ) -> None:
        self.place, self.crew, self.oracle = place, crew, oracle
        self.source, self.trial = source, trial
        self.problems: list[str] = []

    def colours(self, number: int) -> tuple[str, ...]:
        """The workers of a trial of that number."""
        return ("sync", "asyncio", "sync")

    def inject(self) -> int:
        """Injects, waits, and ends the fault; how many there were."""
        raise NotImplementedError("a subclass is one kind of fault")

    def wait_for_a_moment(self) -> None:
        """A time that is drawn, or the moment at which a call begins or ends."""
        time.sleep(self.source.uniform(0.02, 0.25))
        what = self.source.choice(["", "began", "ended", "saw"])
        if what:
            since = len(self.oracle.lines)
            self.oracle.wait_for(lambda line: line.what == what, 0.5, since)

    def wait_for_load(self) -> None:
        """Until some calls have begun since now, so that the next fault hits something."""
        since = len(self.oracle.lines)
        self.oracle.wait_for(lambda line: line.what == "began", 3.0, since, count=2)


class Kill(Fault):
    """SIGKILL of a worker; another takes its place."""

    per_trial = 12

    def inject(self) -> int:
        self.wait_for_load()
        self.wait_for_a_moment()
        victims = self.crew.choose(self.source)
        for victim in victims:
            self.crew.kill(victim)
            self.crew.replace(victim)
        return len(victims)


class Fork(Fault):
    """A fork under load; the parent goes on, closes first, or exits first."""

    per_trial = 12
    _HOWS = ("stays", "multiprocessing", "closes", "exits")

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self._number = 0

    def colours(self, number: int) -> tuple[str, ...]:
        """Every other trial has one process, so that a parent that closes is the last to do so."""
        return ("sync",) if number % 2 == 0 else super().colours(number)

    def inject(self) -> int:
        chosen = self.crew.choose(self.source, colour="sync")
        self.wait_for_a_moment()
        for parent in chosen:
            self._fork(parent, self.source.choice(self._HOWS))
        return len(chosen)

    def _fork(self, parent: Worker, how: str) -> None:
        since = len(self.oracle.lines)
        self._number += 1
        parent.ask(f"fork {how} {self._number}")
        self.oracle.wait_for(
            lambda line: line.what == "forked" and line.pid == parent.pid, 10.0, since
        )
        if how in ("closes", "exits"):
            if not self.crew.note_gone(parent):
                self.problems.append(f"process {parent.pid} did not end after a fork ({how})")
            self.crew.replace(parent, waits=True)


class Pause(Fault):
    """SIGSTOP of one or two workers for longer than a lease."""

    per_trial = 8

    def inject(self) -> int:
        victims = self.crew.choose(self.source, self.source.choice([1, 2]))
        self.wait_for_a_moment()
        for victim in victims:
            victim.signal(signal.SIGSTOP)
            self.oracle.pen.write("paused", pid=victim.pid)
        time.sleep(LEASE * self.source.uniform(1.1, 1.6))
        for victim in victims:
            self.oracle.pen.write("resumed", pid=victim.pid)
            victim.signal(signal.SIGCONT)
        self.wait_for_load()
        return len(victims)


class Restart(Fault):
    """kill -9 of the server, and its start on the same files; for SQLite see `Place.lock`."""

    per_trial = 8

    def inject(self) -> int:
        self.wait_for_a_moment()
        self.oracle.pen.write("down")
        seconds = self.source.uniform(0.0, 0.8 * LEASE)
        if self.place.server is None:
            self._hold(seconds)
        else:
            self.place.crash()
            time.sleep(seconds)
            self.place.start()
        self.oracle.pen.write("up")
        self.wait_for_load()
        return 1

    def _hold(self, seconds: float) -> None:
        holder = self.place.lock(self.trial)
        time.sleep(seconds)
        holder.kill()
        holder.communicate()


class Reply(Fault):
    """One reply of the store is lost: what was asked has been done, the client sees an error."""

    per_trial = 24
    _REQUESTS = (b'"state":"running"', b'"state":"succeeded"', b'"state":"failed"')

    def inject(self) -> int:
        time.sleep(self.source.uniform(0.02, 0.1))
        if self.place.proxy is None:
            return self._lose_by_worker()
        lost = threading.Event()
        request = self.source.choice([*self._REQUESTS[:2], *self._REQUESTS])
        self.place.proxy.drop_reply_once(request, then=lost.set)
        is_lost = lost.wait(2.0)
        if not is_lost:
            self.place.proxy.heal()
        return int(is_lost)

    def _lose_by_worker(self) -> int:
        since = len(self.oracle.lines)
        for worker in self.crew.choose(self.source):
            worker.ask("lose")
        return int(self.oracle.wait_for(lambda line: line.what == "lost", 2.0, since))


class Disk(Fault):
    """The disk of the store is full for a while."""

    per_trial = 6
    needs_pad = 2_500

    def inject(self) -> int:
        self.wait_for_a_moment()
        self.oracle.pen.write("down")
        self.place.disk.fill()
        time.sleep(self.source.uniform(0.3, LEASE))
        self.place.disk.empty()
        self.place.restart_if_needed()
        self.oracle.pen.write("up")
        self.wait_for_load()
        return 1


class Clock(Fault):
    """The wall clock jumps by an hour or a day; before it goes back, a process is killed.

    A process that starts after the jump writes and purges. The recovery asks for earlier keys.
    A process can notice a jump if it has used the store before. So each worker has executed a call
    before the first jump, and between two.
    """

    per_trial = 8
    _OFFSETS = (-DAY, -3_600, 0, 3_600, DAY)
    _jumps = 0

    def inject(self) -> int:
        self._wait_for_everyone()
        now = self.place.clock.offset
        offset = self.source.choice([each for each in self._OFFSETS if each != now])
        self.wait_for_a_moment()
        victims = self.crew.choose(self.source) if offset < now else []
        for victim in victims:
            self.crew.kill(victim)
        self.place.jump(offset)
        self.oracle.pen.write("jumped", more=f"{offset - now:+d} s to {offset:+d} s")
        self._jumps += 1
        self.crew.purge(f"p{self._jumps}-0")
        for victim in victims:
            self.crew.replace(victim, waits=True)
        return 1

    def _wait_for_everyone(self) -> None:
        """Until each worker has executed a call since the last jump."""
        lines = self.oracle.lines
        jumps = [index for index, line in enumerate(lines) if line.what == "jumped"]
        for pid in [worker.pid for worker in self.crew.workers]:
            self.oracle.wait_for(
                lambda line, pid=pid: line.what == "began" and line.pid == pid,
                10.0,
                max(jumps, default=0),
            )
        time.sleep(self.source.uniform(0.1, LEASE))


KINDS: dict[str, type[Fault]] = {
    "kill": Kill,
    "fork": Fork,
    "pause": Pause,
    "restart": Restart,
    "reply": Reply,
    "disk": Disk,
    "clock": Clock,
}
