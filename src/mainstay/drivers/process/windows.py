"""One command as one attempt where there are no process groups to signal: Windows.

The command gets a console group of its own, is asked to end by CTRL_BREAK, and after the grace time
is ended with its descendants by `taskkill /T`. What it started and let go of is not found, there is
no terminal to lend, and nothing ends it if this process is killed.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER
from mainstay.deadline import remaining
from mainstay.drivers.process.capture import Tape
from mainstay.drivers.process.command import failure_of, name_of, not_run, output_of, pumps_of
from mainstay.errors import AttemptTimeout, CallCancelled, CommandFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.drivers.process.command import Output
    from mainstay.drivers.process.options import ProcessOptions

_NEW_GROUP = 0x00000200
"""CREATE_NEW_PROCESS_GROUP."""
_CTRL_BREAK = 1
_POLL = 0.05


def run(command: Sequence[str | bytes], options: ProcessOptions) -> Output:
    """As `process.run`."""
    name, limit = name_of(command), remaining()
    if options.cancel is not None and options.cancel.is_set():
        raise CallCancelled(name, 0)
    tape = None if options.keep is None else Tape(options.keep)
    try:
        return _run(command, options, name, limit, tape)
    finally:
        if tape is not None:
            tape.close()


def _run(
    command: Sequence[str | bytes],
    options: ProcessOptions,
    name: str,
    limit: float | None,
    tape: Tape | None,
) -> Output:
    process = _started(command, options, None if tape is None else subprocess.PIPE)
    pumps = [] if tape is None else pumps_of(process, tape, through=options.through)
    cut: Exception | None = None
    try:
        cut = _await_end(process, options, limit, name)
    finally:
        _end(process, options)
        for pump in pumps:
            pump.finish(options.grace)
    failure = cut if cut is not None else failure_of(name, process.returncode)
    output = output_of(tape)
    if isinstance(failure, CommandFailed):
        failure.output = output
    if failure is not None:
        raise failure
    return output


def _started(
    command: Sequence[str | bytes], options: ProcessOptions, pipe: int | None
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603  to run it is what was asked for
            command,
            stdin=options.stdin,
            stdout=pipe,
            stderr=pipe,
            cwd=options.cwd,
            env=options.env,
            creationflags=_NEW_GROUP,
        )
    except (OSError, ValueError) as error:
        raise not_run(command, error) from None


def _await_end(
    process: subprocess.Popen[bytes], options: ProcessOptions, limit: float | None, name: str
) -> Exception | None:
    """Waits until it has ended; else why it must be."""
    end = NEVER if limit is None else clock.SYSTEM.monotonic() + limit
    while process.poll() is None:
        if clock.SYSTEM.monotonic() >= end:
            return AttemptTimeout(limit or 0.0)
        if options.cancel is not None and options.cancel.is_set():
            return CallCancelled(name, 1)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL)
    return None


def _end(process: subprocess.Popen[bytes], options: ProcessOptions) -> None:
    """Asks it to end, and then ends it with its descendants."""
    if process.poll() is None:
        with suppress(OSError, ValueError):
            process.send_signal(_CTRL_BREAK)
        with suppress(subprocess.TimeoutExpired):
            process.wait(options.grace)
    if process.poll() is None:
        with suppress(OSError):
            tree = ["taskkill", "/F", "/T", "/PID", str(process.pid)]
            subprocess.run(tree, capture_output=True, check=False)  # noqa: S603  our own words
        process.kill()
    process.wait()
