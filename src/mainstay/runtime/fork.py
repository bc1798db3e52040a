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

import atexit
import os
import threading
from weakref import WeakKeyDictionary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias, TypeVar

    T = TypeVar("T")
    Registry: TypeAlias = WeakKeyDictionary[object, Callable[..., object]]


class Process:
    """The id of this process, correct after a fork too; reading it is no system call."""

    __slots__ = ("pid",)

    def __init__(self) -> None:
        self.pid = os.getpid()

    def reset(self) -> None:
        """Asks the system again."""
        self.pid = os.getpid()


PROCESS = Process()
_resets: Registry = WeakKeyDictionary()
_flushes: Registry = WeakKeyDictionary()


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
    _flushes[thing] = flush


def flush_all() -> None:
    """Flushes every object that is registered, as the end of the process does."""
    _call_each(_flushes)


def _reset_all() -> None:
    """In a forked child."""
    PROCESS.reset()
    _call_each(_resets)


def _call_each(registry: Registry) -> None:
    """Calls what is registered. One that fails costs no other; Python prints the first error."""
    errors = []
    for thing, function in _registered(registry):
        try:
            function(thing)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _registered(registry: Registry) -> Iterator[tuple[object, Callable[..., object]]]:
    """The objects that exist; a thread may register another one meanwhile."""
    for reference in registry.keyrefs():
        thing = reference()
        if thing is not None:
            yield thing, registry[thing]


# Registered before any object: handlers of atexit run in reverse order, so one that the program
# registers from now on runs first, and what it emits is flushed. Nor could the first object of a
# thread that outlives the main one register: the interpreter refuses that by then.
atexit.register(flush_all)
if hasattr(threading, "_register_atexit"):
    try:  # noqa: SIM105 -- no other module of a plain call loads contextlib
        threading._register_atexit(flush_all)  # noqa: SLF001 -- see flush_at_exit
    except RuntimeError:  # even this module was imported by such a thread
        pass
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)
