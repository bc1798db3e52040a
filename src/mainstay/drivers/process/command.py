"""What a command is called, what it comes to, and what it wrote: the same on every system."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from mainstay.core.known.kind import RETRIED_KINDS
from mainstay.core.retry.kinds import kind_of
from mainstay.errors import CommandFailed, CommandKilled, CommandNotRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.drivers.process.capture import Tape
    from mainstay.drivers.process.pump import Pump

_NOT_FOUND, _NOT_RUN = 127, 126


class Output(TypedDict):
    """What a command wrote, as a tape; or why it was not kept."""

    tape: bytes
    lost: str


def is_output(value: object) -> bool:
    """Whether a recorded value is what a command wrote; a person may have recorded another.

    >>> is_output(output_of(None)), is_output({"id": 7})
    (True, False)
    """
    if not isinstance(value, dict) or set(value) != {"tape", "lost"}:
        return False
    return isinstance(value["tape"], bytes) and isinstance(value["lost"], str)


def name_of(command: Sequence[str | bytes]) -> str:
    """A command as messages name it: without its folder, and without its arguments.

    >>> name_of(["/usr/bin/rsync", "--password=hunter2"])
    'rsync'
    """
    program = os.fsdecode(command[0])
    return Path(program).name or program


def failure_of(name: str, status: int) -> CommandFailed | None:
    """The error of a status as subprocess has it; None if it is 0.

    >>> failure_of("rsync", -9)
    CommandKilled('rsync: killed by SIGKILL')
    """
    if status == 0:
        return None
    if status < 0:
        return CommandKilled(name, -status, _signal_name(-status))
    if status in (_NOT_RUN, _NOT_FOUND):
        return CommandNotRun(name, status)
    return CommandFailed(name, status)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def not_run(command: Sequence[str | bytes], error: Exception) -> Exception:
    """The error of a command that the system did not start.

    What may be gone the next time, as a file that is being written or too many processes, is raised
    as it is: its number identifies it.
    """
    name, why = name_of(command), getattr(error, "strerror", None) or str(error)
    if kind_of(error).kind in RETRIED_KINDS:
        return error
    if not isinstance(error, FileNotFoundError):
        return CommandNotRun(name, _NOT_RUN, f"cannot be run: {why}")
    if Path(os.fsdecode(command[0])).exists():
        return CommandNotRun(name, _NOT_RUN, "cannot be run: its interpreter or folder is missing")
    return CommandNotRun(name, _NOT_FOUND, "command not found")


def pumps_of(process: Any, tape: Tape, *, through: bool) -> list[Pump]:
    """What carries a process's output from now on."""
    from mainstay.drivers.process.pump import Pump

    pumps = []
    for stream, pipe in ((1, process.stdout), (2, process.stderr)):
        source = os.dup(pipe.fileno())
        pipe.close()
        pumps.append(Pump(source, stream, stream if through else None, tape))
        pumps[-1].start()
    return pumps


def output_of(tape: Tape | None) -> Output:
    """What was taken down."""
    if tape is None:
        return {"tape": b"", "lost": ""}
    return {"tape": tape.taken(), "lost": tape.lost}
