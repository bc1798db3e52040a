"""One command as one attempt: run in a group of its own, bounded in time, ended as a whole.

It raises how the command failed, so that retries, breakers, deadlines and keys decide as for any
call. However `run` is left, no process of the group is left either: one that does not end on TERM
within the grace time is killed. Its time is that of the attempt it is made in.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.deadline import remaining
from mainstay.drivers.process.command import (
    Output,
    failure_of,
    name_of,
    not_run,
    output_of,
    pumps_of,
)
from mainstay.drivers.process.interrupt import Interrupt
from mainstay.drivers.process.options import ProcessOptions
from mainstay.errors import AttemptTimeout, CallCancelled, CommandFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.drivers.process.capture import Tape
    from mainstay.drivers.process.group import Group
    from mainstay.drivers.process.pump import Pump

_POLL = 0.05
"""Seconds between two looks: a signal that goes to another thread wakes no thread here."""


def run(command: Sequence[str | bytes], options: ProcessOptions | None = None) -> Output:
    """Runs a command to its end, and returns if it exits with 0.

    >>> run(["true"])
    {'tape': b'', 'lost': ''}

    Raises:
        CommandFailed: it exited with another code.
        CommandKilled: a signal ended it.
        CommandNotRun: it could not be run.
        AttemptTimeout: the time of the attempt was up, and it was ended.
        CallCancelled: the cancel event was set, and it was ended.
    """
    if os.name == "nt":
        from mainstay.drivers.process import windows as process_windows

        return process_windows.run(command, options or ProcessOptions())
    return _Attempt(command, options or ProcessOptions()).run()


class _Attempt:
    """A command under way."""

    def __init__(self, command: Sequence[str | bytes], options: ProcessOptions) -> None:
        self.command = command
        self.name = name_of(command)
        self.options = options
        self.limit = remaining()
        self.events: SimpleQueue[tuple[str, int]] = SimpleQueue()
        self.tape: Tape | None = None
        self.pumps: list[Pump] = []
        self.cut: Exception | None = None
        """Why it was ended by us, if it was."""

    def run(self) -> Output:
        from mainstay.drivers.process.group import Group

        options = self.options
        if options.cancel is not None and options.cancel.is_set():
            raise CallCancelled(self.name, 0)
        with ExitStack() as around:
            self._listen(around)
            group = Group(options.grace, self.events.put)
            try:
                self._start(group)
                self._await_end(group)
            finally:
                status = self._end(group)
            return self._judged(status)

    def _listen(self, around: ExitStack) -> None:
        """Receives Ctrl+C and Ctrl+Z while the command runs, and keeps its tape."""
        cancel, terminal = self.options.cancel, self.options.terminal
        if self.options.keep is not None:
            from mainstay.drivers.process.capture import Tape

            self.tape = Tape(self.options.keep)
            around.callback(self.tape.close)
        if isinstance(cancel, Interrupt):

            def interrupted(number: int) -> None:
                self.events.put(("interrupted", number))

            cancel.call_on_signal(interrupted)
            around.callback(cancel.forget, interrupted)
        if terminal is not None:
            around.enter_context(terminal.listening(self.events.put))

    # --- starting ---------------------------------------------------------------------------------

    def _start(self, group: Group) -> None:
        terminal = self.options.terminal
        if terminal is not None and group.id and terminal.is_all_there_is:
            terminal.give(group.id)
        pipe = None if self.tape is None else -1  # subprocess.PIPE
        given = {"stdin": self.options.stdin, "cwd": self.options.cwd, "env": self.options.env}
        try:
            group.start(self.command, stdout=pipe, stderr=pipe, **given)
        except (OSError, ValueError) as error:
            raise not_run(self.command, error) from None
        if self.tape is not None and group.process is not None:
            self.pumps = pumps_of(group.process, self.tape, through=self.options.through)

    # --- waiting ----------------------------------------------------------------------------------

    def _await_end(self, group: Group) -> None:
        """Waits until the command has ended, or must be ended."""
        end = None if self.limit is None else clock.SYSTEM.monotonic() + self.limit
        while self.cut is None:
            word, number = self._next(end)
            if word == "exited":
                self._look_for_interrupt(group)
                return
            if word == "late":
                self.cut = AttemptTimeout(self.limit or 0.0)
            elif word == "interrupted":
                self.cut = CallCancelled(self.name, 1)
            elif word == "leader":
                self._leader_gone(number)
            elif word == "stopped":
                self._stopped(group, number)
            elif word == "suspend":
                group.signal(signal.SIGTSTP)

    def _next(self, end: float | None) -> tuple[str, int]:
        """What happens next; ("late", 0) if nothing does in time."""
        cancel = self.options.cancel
        while True:
            left = None if end is None else end - clock.SYSTEM.monotonic()
            if left is not None and left <= 0.0:
                return "late", 0
            if cancel is not None and cancel.is_set():
                return "interrupted", signal.SIGINT
            try:
                return self.events.get(timeout=_POLL if left is None else min(left, _POLL))
            except Empty:
                continue

    def _look_for_interrupt(self, group: Group) -> None:
        """Ctrl+C may have ended the command before it was noticed otherwise."""
        if self.options.terminal is not None and (number := group.was_interrupted()):
            self._leader_gone(number)

    def _leader_gone(self, number: int) -> None:
        """The terminal's Ctrl+C went to the group; so did its end."""
        if number in (signal.SIGINT, signal.SIGHUP) and self.cut is None:
            self.cut = CallCancelled(self.name, 1)
            if isinstance(self.options.cancel, Interrupt):
                self.options.cancel.note(number)

    def _stopped(self, group: Group, number: int) -> None:
        """It asked for the terminal, or Ctrl+Z was pressed: then we stop with it."""
        terminal = self.options.terminal
        if terminal is None or number == signal.SIGSTOP:
            return
        if number in (signal.SIGTTIN, signal.SIGTTOU) and terminal.give(group.id):
            group.signal(signal.SIGCONT)
            return
        terminal.take_back(group.id)
        terminal.suspend(lambda seconds: self._wait_for("continued", seconds))
        terminal.give(group.id)
        group.signal(signal.SIGCONT)

    def _wait_for(self, wanted: str, seconds: float) -> bool:
        """Waits for an event, at most that long; other events are kept."""
        end, others, found = clock.SYSTEM.monotonic() + seconds, [], False
        while not found and (left := end - clock.SYSTEM.monotonic()) > 0.0:
            try:
                event = self.events.get(timeout=left)
            except Empty:
                break
            found = event[0] == wanted
            if not found:
                others.append(event)
        for event in others:
            self.events.put(event)
        return found

    # --- ending -----------------------------------------------------------------------------------

    def _end(self, group: Group) -> int:
        """Ends what is left of the group; the command's status."""
        was_cut = self.cut is not None or not group.has_exited.is_set()
        terminal = self.options.terminal
        try:
            if terminal is not None:
                terminal.take_back(group.id)  # so that a second Ctrl+C arrives
            if not group.is_empty():
                self._end_gently(group)
        finally:
            status = group.close()
            if terminal is not None and (was_cut or status < 0):
                terminal.mend()
            for pump in self.pumps:
                pump.finish(self.options.grace if was_cut else None)
        return status

    def _end_gently(self, group: Group) -> None:
        """TERM, and as much time as they need up to the grace time; a second Ctrl+C ends it."""
        group.terminate()
        end, times = clock.SYSTEM.monotonic() + self.options.grace, self._times
        while clock.SYSTEM.monotonic() < end and not group.is_empty() and self._times == times:
            try:
                self.events.get(timeout=_POLL)
            except Empty:
                continue

    @property
    def _times(self) -> int:
        cancel = self.options.cancel
        return cancel.times if isinstance(cancel, Interrupt) else 0

    def _judged(self, status: int) -> Output:
        """What became of it: its output, or the error."""
        output = output_of(self.tape)
        failure = self.cut if self.cut is not None else failure_of(self.name, status)
        if failure is None:
            return output
        if isinstance(failure, CommandFailed):
            failure.output = output
        raise failure
