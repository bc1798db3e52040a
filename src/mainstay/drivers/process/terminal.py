"""The terminal a command may need: its foreground group, Ctrl+Z, and the way back.

A command is in a group of its own, so it may read the terminal only if that group is made the
foreground. That is done at once if stdin, stdout and stderr all are the terminal, and otherwise
when the command asks (it is then stopped by SIGTTIN or SIGTTOU): in `mainstay exec -- CMD | less`
it is `less` that reads the keys. Only the main thread of a command line may use this.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_MOMENT = 0.3


class Terminal:
    """The terminal that controls this process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._own = os.getpgrp()
        self._kept: list[int | list[bytes | int]] | None = None

    @classmethod
    def of_process(cls) -> Terminal | None:
        """The controlling terminal; None if there is none, as under cron."""
        try:
            return cls(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC))
        except OSError:
            return None

    def close(self) -> None:
        """Lets go of it."""
        os.close(self._descriptor)

    @property
    def is_all_there_is(self) -> bool:
        """Whether the standard streams all are a terminal: then no other process needs it."""
        return all(map(_is_terminal, (0, 1, 2)))

    @property
    def is_ours(self) -> bool:
        """Whether this process is in the foreground."""
        with suppress(OSError):
            return os.tcgetpgrp(self._descriptor) == self._own
        return False

    def give(self, group: int) -> bool:
        """Makes a group the foreground, if we are it; whether that was so."""
        if not self.is_ours:
            return False
        import termios

        with suppress(OSError, termios.error):
            self._kept = self._kept or termios.tcgetattr(self._descriptor)
            os.tcsetpgrp(self._descriptor, group)
            return True
        return False

    def take_back(self, group: int) -> None:
        """Makes us the foreground, if the group is it."""
        with suppress(OSError), _undisturbed():
            if os.tcgetpgrp(self._descriptor) == group:
                os.tcsetpgrp(self._descriptor, self._own)

    def mend(self) -> None:
        """Puts it back as it was: a command that was cut off may have left it without echo."""
        import termios

        if self._kept is not None and self.is_ours:
            with suppress(OSError, termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._kept)

    @contextmanager
    def listening(self, report: Callable[[tuple[str, int]], object]) -> Iterator[None]:
        """Reports ("suspend", 0), as Ctrl+Z asks, and ("continued", 0)."""
        words: dict[int, str] = {signal.SIGTSTP: "suspend", signal.SIGCONT: "continued"}
        before = {
            number: signal.signal(number, lambda which, _: report((words[which], 0)))
            for number in words
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def suspend(self, wait: Callable[[float], object]) -> None:
        """Stops this process and what shares its job, as Ctrl+Z does, until it is continued.

        `wait` waits that many seconds for ("continued", 0). If no shell could continue us nothing
        is stopped, and that time is all that passes.
        """
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        try:
            os.killpg(self._own, signal.SIGTSTP)
            wait(_MOMENT)  # the signal may strike another thread, a moment later
        finally:
            signal.signal(signal.SIGTSTP, handler)


def _is_terminal(descriptor: int) -> bool:
    with suppress(OSError):
        return os.isatty(descriptor)
    return False


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A process in the background that sets the foreground is stopped, unless it blocks SIGTTOU."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
