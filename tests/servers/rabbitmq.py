"""A real RabbitMQ on loopback, for tests: what tools/get-rabbitmq has unpacked, or the system's.

It takes seconds to start: a module that needs it starts one. Nothing outlives the tests: a guard
process kills the server when this process is gone, however it went.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
from pathlib import Path

from tests.servers.process import ServerProcess, required

_WITH_MAPPER = """
epmd &
mapper=$!
(while kill -0 $$; do sleep 1; done; kill $mapper) 2> /dev/null &
exec /bin/sh "$SCRIPT" -noinput
"""
"""Erlang's port mapper beside the server, on a port of its own, and not longer than the server."""
_HELP = "run tools/get-rabbitmq, or install rabbitmq-server"


def start_rabbitmq(folder: Path, **settings: object) -> Server:
    """Starts a server that keeps its files in a folder; guest may connect with `guest`.

    Settings go into its configuration, such as `max_message_size=1000`.
    """
    server = Server(folder, settings)
    server.start()
    return server


class Server(ServerProcess):
    """A RabbitMQ without plugins."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        super().__init__(folder)
        self._settings = settings

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def command(self, port: int) -> list[str]:
        root = _unpacked()
        script = required(_script(root), "RabbitMQ", _HELP)
        erlang = f"{root}/usr/lib/erlang/bin:" if root else ""
        distribution, mapper = self.free_port(), self.free_port()
        settings = {"listeners.tcp.1": f"127.0.0.1:{port}", "loopback_users": "none"}
        lines = [f"{name} = {value}\n" for name, value in (settings | self._settings).items()]
        (self.folder / "rabbitmq.conf").write_text("".join(lines), encoding="utf-8")
        (self.folder / "plugins").write_text("[].\n", encoding="utf-8")
        self.environment = {
            "PATH": f"{erlang}{os.environ['PATH']}", "HOME": str(self.folder),
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_LOGS": str(self.folder / "server.log"),
            "RABBITMQ_NODENAME": f"test{port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none",
            "ERL_EPMD_PORT": str(mapper), "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_CRASH_DUMP_BYTES": "0", "SCRIPT": script,
        }  # fmt: skip
        return ["/bin/sh", "-c", _WITH_MAPPER]

    def answers(self, port: int) -> bool:
        """It starts the handshake."""
        place = ("127.0.0.1", port)
        with contextlib.suppress(OSError), socket.create_connection(place, 1.0) as wire:
            wire.settimeout(1.0)
            wire.sendall(b"AMQP\0\0\x09\x01")
            return wire.recv(64).startswith(b"\x01")
        return False


def _unpacked() -> str:
    folder = Path(sys.prefix) / "opt" / "rabbitmq"
    return str(folder) if folder.is_dir() else ""


def _script(root: str) -> str | None:
    found = sorted(Path(f"{root}/usr/lib/rabbitmq/lib").glob("*/sbin/rabbitmq-server"))
    return str(found[-1]) if found else shutil.which("rabbitmq-server")
