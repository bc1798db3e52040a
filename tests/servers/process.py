"""A server of a test's own on loopback: started, paused, killed, and never left behind.

A guard process kills the server when this process is gone, however it went. What differs between
servers is how they are started and when they answer.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.servers.ports import free_port

_STARTS_WITHIN = 60.0


class ServerProcess:
    """`url`, `port`, `pid`, and what can be done to it."""

    prefix: tuple[str, ...] = ()
    """What its command begins with, such as `nsenter` with its options."""
    environment: dict[str, str] | None = None
    """Added to the environment it runs in."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        atexit.register(self._kill_at_the_end)

    def command(self, port: int) -> list[str]:
        """What starts it on a port; its log goes to server.log in its folder."""
        raise NotImplementedError("a subclass knows its server")

    def answers(self, port: int) -> bool:
        """Whether it is ready."""
        raise NotImplementedError("a subclass knows its server")

    def free_port(self) -> int:
        """A port that nobody has just now."""
        return free_port()

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Starts it on a free port, or on the one it had; another process may be faster."""
        for _ in range(5):
            port = self.port or self.free_port()
            self._process = subprocess.Popen(
                [*self.prefix, *self.command(port)], start_new_session=True,
                env={**os.environ, **(self.environment or {})},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self._guard = _guard(self._process.pid)
            if self._is_up(port):
                self.port = port
                return
            self.kill()
        raise RuntimeError(f"the server did not start:\n{self.log()}")

    def stop(self) -> None:
        """Asks it to end, and sees that it does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As kill -9 does: nothing is flushed, nothing is said."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Ends it, if it still runs, and starts it on the same port and files."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and nobody answers; it returns when all threads stand."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)  # two may pause it

    def resume(self) -> None:
        """SIGCONT: it goes on."""
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """What it wrote to its log."""
        path = self.folder / "server.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def _is_up(self, port: int) -> bool:
        assert self._process is not None
        end = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < end and self._process.poll() is None:
            if self.answers(port):
                return self._process.poll() is None  # and not a stranger on the same port
            time.sleep(0.01)
        return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, how)
                os.killpg(process.pid, signal.SIGCONT)
            try:
                process.wait(60.0)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(60.0)
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            guard.kill()
            guard.stdin.close()
            guard.wait(60.0)

    def _kill_at_the_end(self) -> None:
        if os.getpid() == self._owner:  # and not a forked child's end
            self.kill()


def required(binary: str | None, what: str, help_text: str) -> str:
    """The binary; without one the test is skipped, or fails where everything is required."""
    if binary is not None:
        return binary
    if os.environ.get("MAINSTAY_REQUIRE_ALL") == "1":
        pytest.fail(f"no {what}: {help_text}")
    return pytest.skip(f"no {what}: {help_text}")


def _guard(pid: int) -> subprocess.Popen[bytes]:
    """A shell that kills the server when the pipe from this process breaks."""
    return subprocess.Popen(
        ["/bin/sh", "-c", f"cat > /dev/null; kill -9 {pid}"], start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
