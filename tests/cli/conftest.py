"""The command as users run it: in a process of its own, with a pipe or a terminal around it."""

import logging
import os
import select
import subprocess
import sys
import time
import warnings

import pytest

from tests.servers import commands
from tests.servers.commands import CHEAP
from tests.servers.commands import PROGRAM as RUN


def program(arguments):
    """What starts the command with these arguments."""
    is_identified = {"inbox", "operators", "circuits", "store"} & set(arguments[:1])
    return CHEAP if is_identified else RUN


# Makes the terminal the process's own, so that Ctrl+C in it reaches the process as a signal.
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    " os.execv(sys.argv[1], sys.argv[1:])"
)


LEFT_OUT = (
    "NO_COLOR FORCE_COLOR MAINSTAY_DEBUG COLUMNS TERM TTY_COMPATIBLE PYTHONUNBUFFERED".split()
)


@pytest.fixture(autouse=True)
def log_of_its_own():
    """Puts back the log and the warnings, which `exec` in this process writes as its own lines."""
    logger, shown = logging.getLogger("mainstay"), warnings.showwarning
    handlers, propagates = logger.handlers, logger.propagate
    yield
    logger.handlers, logger.propagate, warnings.showwarning = handlers, propagates, shown


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """Takes away what would change how a command writes; pytest-xdist sets COLUMNS, for one."""
    for name in LEFT_OUT:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run():
    """Runs `mainstay` with these arguments and a pipe for its output."""

    def run(*arguments, **env):
        return commands.run(*arguments, text=True, env=os.environ | env)

    return run


class Terminal:
    """A process in a terminal of 100 columns, what it wrote, and keys for it."""

    def __init__(self, arguments, env, run=RUN):
        import fcntl
        import pty
        import struct
        import termios

        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.output = b""
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", TAKE_TERMINAL, *run, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env=os.environ | {"TERM": "xterm-256color"} | env,
        )
        os.close(theirs)

    def wait_for(self, text, timeout=60.0):
        """Reads until the text was written."""
        self._read_until(lambda: text.encode() in self.output, timeout)
        assert text.encode() in self.output, self.text

    def press(self, key):
        """Presses a key."""
        os.write(self._ours, key)

    def wait(self, timeout=60.0):
        """Reads until the process has ended; returns its exit code."""
        self._read_until(lambda: False, timeout)
        try:
            return self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it goes on after {timeout:g} s: {self.text}") from None

    def _read_until(self, is_enough, timeout):
        end = time.monotonic() + timeout
        while not is_enough() and time.monotonic() < end:
            ready, _, _ = select.select([self._ours], [], [], 0.1)
            if ready and not self._read():
                return

    def _read(self):
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux says EIO when the other side is closed
            return False
        self.output += data
        return bool(data)

    @property
    def text(self):
        """Everything it wrote, escapes and all."""
        return self.output.decode(errors="replace").replace("\r\n", "\n")

    def has_left_something(self):
        """Whether any process of the session is still there."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def hang_up(self):
        """Closes the terminal, as a window is closed."""
        os.close(self._ours)
        self._ours = -1

    def close(self):
        """Ends the process, if the test has not."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        if self._ours != -1:
            os.close(self._ours)


@pytest.fixture
def terminal():
    """Starts `mainstay` with these arguments in a pseudo-terminal."""
    pytest.importorskip("pty", reason="there are no pseudo-terminals here")
    started = []

    def start(*arguments, run=None, **env):
        started.append(Terminal(arguments, env, run or program(arguments)))
        return started[-1]

    yield start
    for one in started:
        one.close()
