"""Names a process so that another one on the same machine can find out whether it has ended.

A number alone does not: it is given again, and containers have numbers of their own. On Linux the
name holds the boot of the machine, the namespace of the number, the number, and when the process
started. On other systems there is no name, and a process counts as gone only when it is silent.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from mainstay.runtime.fork import PROCESS

_PROC = Path("/proc")


def process_name() -> str:
    """The name of this process; empty if the system has no /proc.

    >>> has_ended(process_name())
    False
    """
    return _name_of(PROCESS.pid)


@lru_cache(maxsize=1)  # a forked child has another number
def _name_of(number: int) -> str:
    world, started = _world(), _started(str(number))
    return f"{world} {number} {started}" if world and started else ""


def has_ended(name: str) -> bool:
    """Whether the process of that name has certainly ended; False if it may be elsewhere.

    >>> has_ended("")
    False
    """
    world, _, rest = name.rpartition(" ")[0].rpartition(" ")
    if not world or world != _world():
        return False
    started = _started(rest)
    return not _exists(rest) if started is None else started != name.rpartition(" ")[2]


def _exists(number: str) -> bool:
    """Whether there is such a process: /proc may hide those of other users."""
    try:
        os.kill(int(number), 0)
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True


def _world() -> str:
    """Where a number means one process: this boot and this namespace of numbers."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(number: str) -> str | None:
    """When the process of that number started, in ticks since the boot; empty if it has ended.

    None if /proc does not show it.
    """
    try:
        text = (_PROC / number / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return "" if fields[0] in ("Z", "X") else fields[19]
