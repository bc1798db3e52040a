"""Where a cell keeps its records: a file or a server of its own, and what can be done to it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from mainstay.testing import FaultProxy
from tests.crash.faults.clock import Clock, TimeRelay
from tests.crash.faults.disk import SmallDisk
from tests.servers import nats, postgres, valkey

ROOT = Path(__file__).parents[3]
_MEGABYTES = {"sqlite": 16, "postgres": 160, "valkey": 48, "nats": 48}
_SMALL_WAL = {"max_wal_size": "48MB", "min_wal_size": "32MB"}
_LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30.0)
connection.execute("PRAGMA cache_size = 5")
connection.execute("BEGIN IMMEDIATE")
connection.execute("CREATE TABLE IF NOT EXISTS scratch (a)")
for _ in range(200):
    connection.execute("INSERT INTO scratch VALUES (randomblob(2000))")
print("locked", flush=True)
sys.stdin.read()
"""


class Place:
    """A store for the trials of a cell; `fault` decides what stands around it."""

    def __init__(self, store: str, fault: str, stack: ExitStack) -> None:
        self.store = store
        self.folder = Path(tempfile.mkdtemp(prefix="faults-"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.folder.chmod(0o755)
        self.disk = self._disk(stack) if fault == "disk" else None
        self.clock = Clock(self.folder) if fault == "clock" else None
        self.server = None if store == "sqlite" else self._server(stack)
        self.proxy = self._proxy(stack) if fault == "reply" else None
        self.relay = self._relay(stack) if fault == "clock" and store == "nats" else None

    # --- what stands around it --------------------------------------------------------------------

    def _disk(self, stack: ExitStack) -> SmallDisk:
        inside = {"postgres": "server", "nats": "server/jetstream"}.get(self.store, "server/data")
        mounted = self.folder / inside
        mounted.mkdir(parents=True)
        disk = SmallDisk(mounted, _MEGABYTES[self.store])
        stack.callback(disk.close)
        return disk

    def _server(self, stack: ExitStack) -> Any:
        folder = self.folder / "server"
        folder.mkdir(exist_ok=True)
        environment = self.clock.environment if self.clock else {}
        if self.store == "postgres":
            prefix = self.disk.prefix_of_server if self.disk else ()
            server = postgres.Server(
                folder, postgres.server_settings(**_SMALL_WAL), prefix, environment
            )
        else:
            server = self._valkey(folder) if self.store == "valkey" else nats.Server(folder, {})
            server.prefix = self.disk.prefix if self.disk else ()
            server.environment = environment
        server.start()
        stack.callback(server.kill)
        return server

    def _valkey(self, folder: Path) -> valkey.Server:
        data = folder / "data"
        data.mkdir(exist_ok=True)
        durable = ("--appendonly", "yes", "--appendfsync", "always")
        return valkey.Server(folder, (*durable, "--dir", str(data)))

    def _proxy(self, stack: ExitStack) -> FaultProxy | None:
        if self.server is None:
            return None
        return stack.enter_context(FaultProxy("127.0.0.1", self.server.port))

    def _relay(self, stack: ExitStack) -> TimeRelay:
        relay = TimeRelay(self.server.port)
        stack.callback(relay.close)
        return relay

    # --- what workers need ------------------------------------------------------------------------

    def url(self, trial: str, timeout: int = 2) -> str:
        """The store of a trial, as its workers reach it."""
        if self.server is None:
            return f"sqlite:///{self.file(trial)}?timeout={timeout}"
        url = self.server.url
        if self.proxy is not None:
            url = self.proxy.url(url)
        if self.relay is not None:
            url = urlunsplit(urlsplit(url)._replace(netloc=f"127.0.0.1:{self.relay.port}"))
        return f"{url}?timeout={timeout}"

    def file(self, trial: str) -> Path:
        """The file of a trial with SQLite."""
        folder = self.folder / "server/data" if self.disk else self.folder
        return folder / f"{trial}.db"

    def audit(self, trial: str) -> str | None:
        """Where the audit log of a trial is; None for the store's own."""
        is_own = self.store in ("sqlite", "postgres")
        return None if is_own else str(self.folder / f"{trial}.jsonl")

    @property
    def prefix(self) -> tuple[str, ...]:
        """What the command of a worker begins with."""
        return self.disk.prefix if self.disk and self.store == "sqlite" else ()

    @property
    def environment(self) -> dict[str, str]:
        """What is added to the environment of a worker."""
        return {
            "XDG_STATE_HOME": str(self.folder),
            **(self.clock.environment if self.clock else {}),
        }

    def forget(self, trial: str) -> None:
        """Removes the file of a trial that is over; a small disk has no room for many."""
        root = self.disk.root if self.disk else ""
        for path in Path(f"{root}{self.file(trial)}").parent.glob(f"{trial}.db*"):
            path.unlink()

    # --- what can be done to it -------------------------------------------------------------------

    def crash(self) -> None:
        """Kills -9 the server; what it has acknowledged must be there after `start()`."""
        getattr(self.server, "crash", self.server.kill)()

    def start(self) -> None:
        """Starts the server on its port and files."""
        self.server.start()

    def restart_if_needed(self) -> None:
        """As an operator does after a disk was full: NATS has JetStream off until then."""
        if self.server is None:
            return
        process = self.server._process
        if self.store == "nats" or process is None or process.poll() is not None:
            self.crash()
            self.start()

    def jump(self, offset: int) -> None:
        """Sets the clock of the store and of the workers."""
        self.clock.set(offset)
        if self.relay is not None:
            self.relay.offset = offset

    def lock(self, trial: str) -> subprocess.Popen[bytes]:
        """A process that has the write lock of the file, and half a transaction in its WAL."""
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", _LOCKER, str(self.file(trial))]
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        assert process.stdout.readline() == b"locked\n"
        return process
