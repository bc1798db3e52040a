"""`mainstay` commands as processes that are forked, for tests: `run(*arguments)`.

Python and the modules of a command take most of the time of most commands. So one process for each
pytest-xdist worker has them loaded, and forks for a command. The command has a process of its own:
its arguments, environment, working directory, umask and three streams are those of a command that
is started, and it ends as Python ends. What a fork cannot give it is started instead: another
locale, an environment variable of Python's own, a function to be called before it starts.

What depends on how a process is started is not tested with this: Ctrl+C, terminals, sessions,
what is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import pickle
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from functools import cache
from importlib import import_module
from pathlib import Path

import mainstay
from mainstay.runtime.reports.logs import print_warnings
from tests.processes import leave

PROGRAM = [sys.executable, "-m", "mainstay"]
CHEAP = [
    sys.executable,
    "-c",
    """import sys, mainstay.core.inbox.operators as core
core.COST = core.Hash(salt='', n=16)
from mainstay.cli import main
sys.exit(main())""",
]
"""The same, with hashes of secrets that cost little: a real one takes a second of each test."""
PARTS = "audit cli config drivers engine stores".split()
"""Folders of the library that are loaded, with all below them."""
LOADED = (
    "asyncio nats psycopg_pool redis rich._emoji_codes rich.console rich.live rich.progress"
    " rich.table encodings.utf_8_sig"
).split()
HEAD = struct.Struct("!I")
FIRST = "MAINSTAY_TEST_FIRST"
"""An environment variable: code that a forked command runs before it begins."""
ROOM = 16_384
"""Bytes that fit into a pipe that nobody reads yet."""


def run(
    *arguments: str,
    input: bytes | None = None,  # noqa: A002 - as of subprocess.run
    env: dict[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 120.0,
    text: bool = False,
    **options: object,
) -> subprocess.CompletedProcess:
    """Runs `mainstay` with these arguments, as `subprocess.run(..., capture_output=True)` does."""
    env = dict(os.environ) if env is None else env
    if options or len(input or b"") > ROOM or not _can_fork(env):
        stdin = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        done = subprocess.run(
            [*PROGRAM, *arguments], capture_output=True, timeout=timeout, check=False,
            env=env, cwd=cwd, **stdin, **options,
        )  # fmt: skip
    else:
        place = os.fspath(cwd or Path.cwd())
        words = [os.fsdecode(each) for each in arguments]
        job = {"arguments": words, "env": env, "cwd": place, "umask": _umask()}
        done = _server().run(job, input, timeout)
    if text:
        done.stdout, done.stderr = (
            io.TextIOWrapper(io.BytesIO(each)).read() for each in (done.stdout, done.stderr)
        )
    return done


def _can_fork(env: dict[str, str]) -> bool:
    return hasattr(os, "fork") and _start(env) == _server().start


def _start(env: dict[str, str]) -> dict[str, object]:
    """What a process has from its start, and a fork cannot change."""
    names = ("PYTHON", "LC_", "LANG", "LD_", "GCOV", "COVERAGE")
    return {name: value for name, value in env.items() if name.startswith(names)} | {
        "user": os.geteuid() if hasattr(os, "geteuid") else 0
    }


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# --- the side of the tests ------------------------------------------------------------------------


@cache
def _server() -> _Server:
    return _Server()


class _Server:
    """The process that forks; it ends when this one does."""

    def __init__(self) -> None:
        self.start = _start(dict(os.environ))
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.servers.commands", str(theirs.fileno())],
                pass_fds=[theirs.fileno()], cwd=Path(__file__).parents[2],
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self._maker = os.getpid()
        atexit.register(self._end)

    def _end(self) -> None:
        if os.getpid() == self._maker:  # and not a forked child that ends
            self._control.close()
            self._process.kill()
            self._process.wait(60)

    def run(
        self,
        job: dict[str, object],
        stdin: bytes | None,
        timeout: float,
    ) -> subprocess.CompletedProcess[bytes]:
        with contextlib.ExitStack() as stack:
            reads = stack.enter_context(_stdin(stdin))
            out, err, ended = (_Pipe(stack) for _ in range(3))
            with self._lock:
                fds = [reads.fileno(), out.write, err.write, ended.write]
                data = pickle.dumps(job)
                socket.send_fds(self._control, [HEAD.pack(len(data))], fds)
                self._control.sendall(data)
            reads.close()
            if not _read([out, err, ended], time.monotonic() + timeout):
                pid = ended.data or os.read(ended.read, 64)
                os.kill(int(pid.split()[0]), signal.SIGKILL)
                raise subprocess.TimeoutExpired(job["arguments"], timeout, out.data, err.data)
        status = os.waitstatus_to_exitcode(int(ended.data.split()[1]))
        return subprocess.CompletedProcess(job["arguments"], status, out.data, err.data)


class _Pipe:
    """A pipe whose other end is the command's, and what was read from it."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.read, self.write = os.pipe()
        stack.callback(os.close, self.read)
        self.data = b""


def _stdin(data: bytes | None) -> io.FileIO:
    """What the command reads: nothing, or a pipe with these bytes."""
    if data is None:
        return io.FileIO(os.devnull)
    read, write = os.pipe()
    os.write(write, data)
    os.close(write)
    return io.FileIO(read)


def _read(pipes: list[_Pipe], until: float) -> bool:
    """Reads all of them; whether they came to their ends in time."""
    for pipe in pipes:
        os.close(pipe.write)
    with selectors.DefaultSelector() as waiting:
        for pipe in pipes:
            waiting.register(pipe.read, selectors.EVENT_READ, pipe)
        while waiting.get_map():
            ready = waiting.select(max(0.0, until - time.monotonic()))
            if not ready:
                return False
            for key, _ in ready:
                data = os.read(key.fd, 65_536)
                key.data.data += data
                if not data:
                    waiting.unregister(key.fd)
    return True


# --- the side of the server -----------------------------------------------------------------------


def serve(control: socket.socket) -> dict[str, object] | None:
    """Forks for each job. Returns it in the new process, and None when the tests are over."""
    _load()
    running: dict[int, int] = {}
    wakes, woken = socket.socketpair()
    woken.setblocking(False)
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno())
    with selectors.DefaultSelector() as waiting:
        waiting.register(control, selectors.EVENT_READ)
        waiting.register(wakes, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is wakes:
                    wakes.recv(4096)
                    _reap(running)
                    continue
                if (job := _receive(control)) is None:
                    return None
                if (pid := os.fork()) == 0:
                    return job
                running[pid] = job["fds"].pop()
                os.write(running[pid], b"%d " % pid)
                for fd in job["fds"]:
                    os.close(fd)


def _load() -> None:
    """Imports what commands use; extras that are not installed and other systems' are left out."""
    print_warnings()  # as a command does first; modules that log look at it
    source = Path(mainstay.__file__).parent
    files = [path for part in PARTS for path in sorted((source / part).rglob("*.py"))]
    names = [".".join(path.relative_to(source.parent).with_suffix("").parts) for path in files]
    for name in [*LOADED, *(each.removesuffix(".__init__") for each in names)]:
        with contextlib.suppress(ImportError):
            import_module(name)
    operators = import_module("mainstay.core.inbox.operators")
    operators.COST = operators.Hash(salt="", n=16)  # as CHEAP
    redactor = import_module("mainstay.core.redact.redactor")
    redactor.Redactor().text("password=none; token: none; https://a:none@b")  # compiles them all
    gc.collect()
    gc.freeze()


def _receive(control: socket.socket) -> dict[str, object] | None:
    head, fds, _, _ = socket.recv_fds(control, HEAD.size, 4)
    if len(head) < HEAD.size:
        return None
    [size] = HEAD.unpack(head)
    data = b""
    while len(data) < size:
        data += control.recv(size - len(data))
    return {**pickle.loads(data), "fds": list(fds)}


def _reap(running: dict[int, int]) -> None:
    """Writes how each that has ended did so."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        fd = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(fd, str(status).encode())
        os.close(fd)


def become(job: dict[str, object]) -> None:
    """Makes this process what it would be if it had been started for the job."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, fd in enumerate(job["fds"][:3]):
        os.dup2(fd, number)
    os.closerange(3, 1024)
    os.chdir(job["cwd"])
    os.umask(job["umask"])
    os.environ.clear()
    os.environ.update(job["env"])
    time.tzset()
    sys.argv = [sys.argv[0], *job["arguments"]]
    sys.path[0] = job["cwd"]
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.stdin)
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.stdout)
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.stderr, line_buffering=True)


def obey() -> None:
    """Runs the command, and ends."""
    from mainstay.cli import main

    exec(os.environ.pop(FIRST, ""), {})
    try:
        status = main()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        status = end.code
    leave(status or 0)


def _stream(fd: int, mode: str, like: io.TextIOWrapper, **options: bool) -> io.TextIOWrapper:
    """A stream of a process that has just been started, on a pipe."""
    raw = os.fdopen(fd, f"{mode}b", closefd=False)
    return io.TextIOWrapper(raw, like.encoding, like.errors, **options)


if __name__ == "__main__":
    given = serve(socket.socket(fileno=int(sys.argv[1])))
    if given is not None:
        become(given)
        obey()
