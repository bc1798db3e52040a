"""A process group of its own for one command, and how it is ended.

The group is led by a small shell that does nothing. It keeps the group's number from being
reused; if the terminal belongs to the group it dies of Ctrl+C, which is how that is noticed; and
when the process that made it is gone, also by `kill -9`, it ends the group. If there is no
`/bin/sh`, the command leads the group itself, and nothing ends it after a `kill -9`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

LEADER = (
    'trap "" TERM QUIT TSTP TTIN TTOU; read x; kill -TERM 0; kill -CONT 0; sleep "$1"; kill -KILL 0'
)
"""What the leading shell does: waits for the end of its input, and then ends the group."""

_DEAF_TO = [
    getattr(signal, name)
    for name in ("SIGTERM", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU")
    if hasattr(signal, name)
]
UNKNOWN = 255
"""The exit code of a command whose end was not seen."""
_POLL = 0.02
_DEADLY = 5.0
"""Seconds for which what was killed may take to be gone."""


class Group:
    """One process group: the command, what it started, and the leader.

    Args:
        grace: seconds between TERM and KILL.
        report: called with ("exited", 0), ("stopped", signal) and ("leader", signal), from threads.
    """

    def __init__(self, grace: float, report: Callable[[tuple[str, int]], object]) -> None:
        self.grace = grace
        self.id = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.has_exited = threading.Event()
        """Whether the command has ended; others of the group may still be there."""
        self._report = report
        self._leader, self._leash = 0, -1
        self._watchers: list[threading.Thread] = []
        self._lead()

    def _lead(self) -> None:
        """Starts the leader, deaf to what ends the others from its first moment on."""
        ours, theirs = -1, -1
        try:
            theirs, ours = os.pipe()
            self._leader = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", LEADER, "mainstay", f"{self.grace:.3f}"],
                {"PATH": os.environ.get("PATH", os.defpath)},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setpgroup=0,
                setsigmask=_DEAF_TO,
                setsigdef=[signal.SIGINT, signal.SIGHUP],
            )
            self.id, self._leash = self._leader, ours
            self._watch(self._watch_leader, "leader")
        except OSError:  # no shell, or no room for one: the command leads
            if ours != -1 and self._leader == 0:
                os.close(ours)
        finally:
            if theirs != -1:
                os.close(theirs)

    def start(self, command: Sequence[str | bytes], **options: Any) -> None:
        """Starts the command in the group."""
        self.process = subprocess.Popen(  # noqa: S603  to run it is what was asked for
            command, process_group=self.id, **options
        )
        self.id = self.id or self.process.pid
        self._watch(self._watch_command, "exited")

    def _watch(self, watch: Callable[[], int], word: str) -> None:
        """Reports a child's end from a thread, which ends with it."""
        thread = threading.Thread(
            target=lambda: self._report((word, watch())), name=f"mainstay-{word}", daemon=True
        )
        self._watchers.append(thread)
        thread.start()

    def _watch_command(self) -> int:
        """Reaps the command, and reports when it is stopped."""
        assert self.process is not None
        status = _stopped(0)
        while os.WIFSTOPPED(status):
            try:
                _, status = os.waitpid(self.process.pid, os.WUNTRACED)
            except ChildProcessError:  # SIGCHLD is ignored, and with it how children end
                status = _exited(UNKNOWN)
            if os.WIFSTOPPED(status):
                self._report(("stopped", os.WSTOPSIG(status)))
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.has_exited.set()
        return 0

    def _watch_leader(self) -> int:
        """The signal that ended the leader; it is not reaped, so that the group stays ours."""
        with suppress(ChildProcessError):
            if hasattr(os, "waitid"):
                seen = os.waitid(os.P_PID, self._leader, os.WEXITED | os.WNOWAIT)
                return 0 if seen is None or seen.si_code == os.CLD_EXITED else seen.si_status
            _, status = os.waitpid(self._leader, 0)  # macOS before Python 3.13
            return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return 0

    def signal(self, number: int) -> None:
        """Sends a signal to every process of the group."""
        if self.id:
            with suppress(ProcessLookupError, PermissionError):  # macOS refuses to signal zombies
                os.killpg(self.id, number)

    def terminate(self) -> None:
        """Asks every process to end, also those that are stopped."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends every process of the group, the leader too."""
        self.signal(signal.SIGKILL)

    def was_interrupted(self) -> int:
        """The signal of the terminal's that the leader died of or is about to; 0 if none.

        A command that ends on Ctrl+C may be seen to end before the leader is.
        """
        if not self._leader:
            return 0
        try:
            lines = Path(f"/proc/{self._leader}/status").read_bytes().splitlines()
        except OSError:
            return 0
        fields = dict(line.split(b":", 1) for line in lines if b":" in line)
        if fields[b"State"].split()[0] in (b"Z", b"X"):
            return signal.SIGINT
        pending = int(fields[b"SigPnd"], 16) | int(fields[b"ShdPnd"], 16)
        deadly = (signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
        return signal.SIGINT if any(pending >> number - 1 & 1 for number in deadly) else 0

    def is_empty(self) -> bool:
        """Whether only the leader is left.

        Without /proc that is unknown: the group counts as empty when its command has ended.
        """
        if self.process is not None and not self.has_exited.is_set():
            return False
        return not (members(self.id) or set()) - {self._leader}

    def close(self) -> int:
        """Ends what is left, and reaps; the command's status, as Popen has it."""
        self.kill()
        for watcher in self._watchers:
            watcher.join(_DEADLY)
        if self._leader:
            with suppress(ChildProcessError):
                os.waitpid(self._leader, 0)
            os.close(self._leash)
            self._leader = 0
        if self.process is None:
            self._reap_the_unknown()
        self._await_the_dead()
        if self.process is None:
            return 0
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:  # it was not read: an exception came first
                pipe.close()
        return self.process.wait()

    def _reap_the_unknown(self) -> None:
        """A command that runs although its start was interrupted: no Popen knows its number."""
        with suppress(ChildProcessError):
            while self.id:
                os.waitpid(-self.id, 0)

    def _await_the_dead(self) -> None:
        """What was killed may take a moment to be gone."""
        if not self._has_any():  # as nearly always; a look at every process takes longer
            return
        end = clock.SYSTEM.monotonic() + _DEADLY
        while members(self.id) and clock.SYSTEM.monotonic() < end:
            clock.SYSTEM.sleep(_POLL)

    def _has_any(self) -> bool:
        """Whether there is a process of the group, be it one that has ended and is not reaped."""
        try:
            os.killpg(self.id, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def _exited(code: int) -> int:
    """The status of a process that has ended with that code."""
    return code << 8


def _stopped(number: int) -> int:
    """The status of a process that was stopped by that signal."""
    return number << 8 | 0x7F


def members(group: int) -> set[int] | None:
    """The processes of a group that have not ended; None if there is no /proc.

    >>> found = members(os.getpgrp())
    >>> found is None or os.getpid() in found
    True
    """
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 -- there are many
    except OSError:
        return None
    found = {pid for pid in pids if _is_of(pid, group) and _is_alive(pid)}
    return found if pids else None


def _is_of(pid: int, group: int) -> bool:
    """Whether a process is of the group; asked of the system, since a host has many processes.

    To read the file of each took 15 ms with 340 of them.
    """
    try:
        return os.getpgid(pid) == group
    except PermissionError:  # a system that hides it: the file has it
        return _stat(pid)[2:3] == [str(group).encode()]
    except OSError:
        return False


def _is_alive(pid: int) -> bool:
    """Whether a process has not ended, though it may not be reaped."""
    return _stat(pid)[:1] not in ([], [b"Z"], [b"X"])


def _stat(pid: int) -> list[bytes]:
    """The fields of a process after its name: its state, its parent, its group; none if gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
