"""Tools: commands that are run, bounded in time, retried, and ended with all they started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from mainstay.drivers.process.capture import stream_of
from mainstay.drivers.process.command import name_of
from mainstay.drivers.process.tool import Tool
from mainstay.errors import MainstayError, UsageError
from mainstay.profiles.calls import calls_of
from mainstay.runtime.reports.tracebacks import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mainstay.core.base.types import Seconds
    from mainstay.drivers.policy import RetryPolicy
    from mainstay.engine.engine import Engine


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
    policy: RetryPolicy | None = None,
    timeout: Seconds | None = None,
    engine: Engine | None = None,
    operation: str | None = None,
    escalate: bool = True,
    input: bytes | None = None,  # noqa: A002  as subprocess.run has it
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    attempt_timeout: Seconds | None = None,
) -> ToolResult:
    """Runs a command under a policy; what it wrote comes back.

    `with mainstay.context(cancel=event):` ends it, or its wait, once the event is set.

    Args:
        command: the program and its arguments; no shell is between.
        policy: how it is retried, also in place of the engine's; by default the engine's, or
            STANDARD.
        timeout: seconds for each attempt; then it is ended with all it started.
        engine: runs it as an operation of this engine, under that operation's policy, circuit and
            budget, with the engine's log and audit.
        operation: what log, events and the engine call it; by default the command's name.
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
    folder = None if cwd is None else os.fspath(cwd)
    with Tool(command, attempt_timeout if timeout is None else timeout, input, folder, env) as tool:
        try:
            calls = calls_of(operation or name_of(command), policy, engine, escalate=escalate)
            output = calls.call(tool.attempt)
        except MainstayError as error:
            shorten(error)
            raise
    tape = output["tape"]
    return ToolResult(stream_of(tape, 1), stream_of(tape, 2), tool.attempts, output["lost"])
