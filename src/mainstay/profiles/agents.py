"""The front door for agents: tools and files under a policy, and the document's own policies.

A tool is a command that is run, bounded in time, retried, and ended with all it started. A file
operation is any function on files: locked and busy files are retried, what is missing or forbidden
is not. `mainstay exec` is the same for a shell.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, overload

from msgspec import Struct

import mainstay.deadline as deadline
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.drivers.policy import RetryPolicy
from mainstay.drivers.process import run as process
from mainstay.drivers.process.capture import KEPT, stream_of
from mainstay.drivers.process.command import name_of
from mainstay.drivers.process.options import ProcessOptions, own_environment
from mainstay.engine.registry import STANDARD
from mainstay.errors import UsageError
from mainstay.runtime.context import CANCEL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, ParamSpec, Self, TypeVar

    from mainstay.drivers.process.command import Output
    from mainstay.engine.engine import Engine

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = [
    "AGGRESSIVE",
    "CIRCUIT_BREAKER",
    "NO_RETRY",
    "STANDARD",
    "ToolResult",
    "file_operation",
    "read_file",
    "run_tool",
    "write_file",
]

AGGRESSIVE = RetryPolicy(
    name="aggressive",
    max_attempts=5,
    backoff=Backoff.exponential(0.05, max_delay=30.0),
    jitter=Jitter.percent(0.2),
)
"""The document's: 5 attempts, 0.05 s doubled up to 30 s, plus or minus 20 %."""
NO_RETRY = RetryPolicy(name="noRetry", max_attempts=1)
"""The document's: one attempt."""
CIRCUIT_BREAKER = BreakerSettings(
    failure_threshold=5, recovery_timeout=30.0, half_open_probes=1, count="all"
)
"""The document's, for `Engine(breaker=...)`: opens for 30 s after 5 failures in a row, retryable or
not. Circuits of `agent/config.yml` and of `mainstay exec` count the same failures."""


class ToolResult(Struct, frozen=True):
    """What a tool wrote, and how often it was run.

    >>> run_tool(["echo", "hello"]).stdout.split()
    [b'hello']
    """

    stdout: bytes
    stderr: bytes
    attempts: int
    lost: str = ""
    """Why the output is not here, if it is not: it was too long."""

    @property
    def text(self) -> str:
        """What it wrote to stdout, as text.

        >>> ToolResult(b"ok", b"", 1).text
        'ok'
        """
        return self.stdout.decode(errors="replace")


def run_tool(
    command: Sequence[str],
    *,
    policy: RetryPolicy = STANDARD,
    timeout: float | None = None,
    engine: Engine | None = None,
    operation: str | None = None,
    escalate: bool = True,
    input: bytes | None = None,  # noqa: A002  as subprocess.run has it
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    attempt_timeout: float | None = None,
) -> ToolResult:
    """Runs a command under a policy; what it wrote comes back.

    `with mainstay.context(cancel=event):` ends it, or its wait, once the event is set.

    Args:
        command: the program and its arguments; no shell is between.
        policy: how it is retried.
        timeout: seconds for each attempt; then it is ended with all it started.
        engine: runs it as an operation of this engine, under that operation's policy, circuit and
            budget, instead.
        operation: that operation's name; by default the command's.
        escalate: whether a tool that is given up becomes an item of the engine's inbox.
        input: what it reads from stdin, anew in each attempt; nothing by default.
        cwd: the folder it is run in.
        env: its environment; by default this process's, without the secrets of operators.
        attempt_timeout: the same as `timeout`.

    Raises:
        CommandFailed: it failed in every attempt, or in a way that is not retried.
        AttemptTimeout: the last attempt was cut.

    >>> run_tool(["sh", "-c", "echo done"], timeout=30.0).attempts
    1
    """
    if isinstance(command, str | bytes) or not command:
        raise UsageError(
            f"command = {command!r}: must be a list of a program and its arguments",
            hint='["sh", "-c", "..."] runs a script of the shell\'s',
        )
    if timeout is not None and attempt_timeout is not None:
        raise UsageError("timeout and attempt_timeout are one field", hint="give one of them")
    limit = attempt_timeout if timeout is None else timeout
    folder = None if cwd is None else os.fspath(cwd)
    with _Tool(command, limit, input, folder, env) as tool:
        if engine is None:
            output = policy.call(tool.attempt)
        else:
            name = operation or name_of(command)
            output = engine.operation(name, escalate=escalate).call(tool.attempt)
    tape = output["tape"]
    return ToolResult(stream_of(tape, 1), stream_of(tape, 2), tool.attempts, output["lost"])


class _Tool:
    """A command with its input, and how often it was tried."""

    def __init__(
        self,
        command: Sequence[str],
        timeout: float | None,
        given: bytes | None,
        cwd: str | None,
        env: Mapping[str, str] | None,
    ) -> None:
        self.attempts = 0
        self._command = command
        self._timeout = timeout
        self._input = None if given is None else tempfile.TemporaryFile()  # noqa: SIM115  closed on exit
        if self._input is not None:
            self._input.write(given or b"")
            self._input.flush()
        stdin = DEVNULL if self._input is None else self._input.fileno()
        cancel, env = CANCEL.get(), own_environment() if env is None else env
        self._options = ProcessOptions(
            keep=KEPT, through=False, cancel=cancel, stdin=stdin, cwd=cwd, env=env
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._input is not None:
            self._input.close()

    def attempt(self) -> Output:
        self.attempts += 1
        if self._input is not None:
            self._input.seek(0)
        with nullcontext() if self._timeout is None else deadline.within(self._timeout):
            return process.run(self._command, self._options)


# --- files ----------------------------------------------------------------------------------------


FILE = "file"
"""What the document's `operationPolicies` call the operations on files."""


@overload
def file_operation(
    function: Callable[..., R],
    /,
    *args: Any,
    engine: Engine,
    operation: str = ...,
    escalate: bool = ...,
    **kwargs: Any,
) -> R: ...
@overload
def file_operation(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
def file_operation(function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
    """Calls a function on files; locked and busy ones are tried again, under STANDARD.

    EAGAIN, EBUSY, ETXTBSY, stale handles and the sharing violations of Windows are retried; a file
    that is missing, forbidden or on a full disk is not. For another policy: `policy.call`.

    With `engine` it is called as an operation of that engine, under that operation's policy,
    circuit and budget, with the engine's log and audit. `operation` is the name, by default "file".
    A call that is given up becomes an item of the engine's inbox, unless `escalate` is False.

    Args:
        function: what is called.
        args: its arguments.
        kwargs: its arguments by name, and the three options above if one of them is an Engine.

    >>> file_operation(os.path.exists, "/")
    True
    """
    if "engine" not in kwargs:
        return STANDARD.call(function, *args, **kwargs)
    from mainstay.engine.engine import Engine

    if not isinstance(kwargs["engine"], Engine):  # a parameter of the function's own
        return STANDARD.call(function, *args, **kwargs)
    engine, name = kwargs.pop("engine"), kwargs.pop("operation", FILE)
    operation = engine.operation(name, escalate=kwargs.pop("escalate", True))
    return operation.call(function, *args, **kwargs)  # type: ignore[no-any-return]


def read_file(
    path: str | os.PathLike[str],
    *,
    policy: RetryPolicy = STANDARD,
    engine: Engine | None = None,
    operation: str = FILE,
    escalate: bool = True,
) -> bytes:
    """The bytes of a file; tried again while it is locked or busy.

    With an engine it is an operation of that engine, as in `file_operation`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(f"{folder}/note", b"hello")
    ...     read_file(f"{folder}/note")
    b'hello'
    """
    if engine is None:
        return policy.call(Path(path).read_bytes)
    read = Path(path).read_bytes
    return file_operation(read, engine=engine, operation=operation, escalate=escalate)


def write_file(
    path: str | os.PathLike[str],
    data: bytes,
    *,
    policy: RetryPolicy = STANDARD,
    engine: Engine | None = None,
    operation: str = FILE,
    escalate: bool = True,
) -> None:
    """Writes a file whole: a reader sees the old content or all of the new.

    With an engine it is an operation of that engine, as in `file_operation`.

    Each attempt writes a file beside it and puts it in place; what an attempt left is removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(f"{folder}/note", b"hello")
    ...     os.listdir(folder)
    ['note']
    """
    if engine is None:
        policy.call(_replace, Path(path), data)
        return
    work = partial(_replace, Path(path), data)
    file_operation(work, engine=engine, operation=operation, escalate=escalate)


def _replace(path: Path, data: bytes) -> None:
    target = path.resolve()  # a link stays one
    beside = target.with_name(f".{target.name[:100]}.{os.urandom(6).hex()}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):  # a new one has what any new file has
            beside.chmod(stat.S_IMODE(target.stat().st_mode))
        beside.replace(target)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
