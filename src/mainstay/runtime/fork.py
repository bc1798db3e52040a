"""What a forked child resets, and what the end of the process flushes: one registry for each.

A forked child inherits locks that none of its threads holds, and threads, connections and counts
that belong to its parent. An object that keeps such a thing registers how it begins again.

>>> class Connection:
...     def __init__(self):
...         self.pid = PROCESS.pid
...         reset_in_child(self, Connection.reset)
...     def reset(self):
...         self.pid = PROCESS.pid
>>> Connection().pid == PROCESS.pid
True
"""

from __future__ import annotations

import os
from functools import cache
from weakref import WeakKeyDictionary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")


class Process:
    """The id of this process, correct after a fork too; reading it is no system call."""

    __slots__ = ("pid",)

    def __init__(self) -> None:
        self.pid = os.getpid()

    def reset(self) -> None:
        """Asks the system again."""
        self.pid = os.getpid()


PROCESS = Process()
_resets: WeakKeyDictionary[object, Callable[..., object]] = WeakKeyDictionary()
_flushes: WeakKeyDictionary[object, Callable[..., object]] = WeakKeyDictionary()


def reset_in_child(thing: T, reset: Callable[[T], object]) -> None:
    """Calls `reset(thing)` in each forked child, as long as the object exists.

    `reset` must be a plain function, such as `Pool.reset`: a bound method would hold the object.
    """
    _resets[thing] = reset


def flush_at_exit(thing: T, flush: Callable[[T], object]) -> None:
    """Calls `flush(thing)` at the end of the process, as long as the object exists.

    It may be called twice: before the interpreter joins the threads, which is the only time in a
    child of multiprocessing, and by atexit, for what those threads have added since.
    """
    _register_at_exit()
    _flushes[thing] = flush


def flush_all() -> None:
    """Flushes every object that is registered, as the end of the process does."""
    for thing, flush in list(_flushes.items()):
        flush(thing)


@cache
def _register_at_exit() -> None:
    import atexit
    import threading

    atexit.register(flush_all)
    if hasattr(threading, "_register_atexit"):
        threading._register_atexit(flush_all)  # noqa: SLF001 -- see flush_at_exit


def _reset_all() -> None:
    """In a forked child. A reset that fails costs no other; Python prints the first such error."""
    PROCESS.reset()
    errors = []
    for thing, reset in list(_resets.items()):
        try:
            reset(thing)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
