"""What happens around a fork, and what the end of the process flushes: one registry for each.

A forked child inherits locks that none of its threads holds, and threads, connections and counts
that belong to its parent. An object that keeps such a thing registers how it begins again
(`reset_in_child`), or what must be over before the fork (`around_fork`). A lock that outlives a
call is made here (`make_lock`, `make_rlock`) and is free in every child.

>>> class Connection:
...     def __init__(self):
...         self.pid = PROCESS.pid
...         reset_in_child(self, Connection.reset)
...     def reset(self):
...         self.pid = PROCESS.pid
>>> Connection().pid == PROCESS.pid
True

If C code forks without Python's hooks, the first reading of `PROCESS.pid` in the child finds the
other number, and resets everything then. What has a thread, or a lease, asks before it uses that
(`PROCESS.notice`): the thread is not there, and the lease is the parent's.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import contextmanager, suppress
from os import getpid
from threading import get_ident
from weakref import WeakKeyDictionary, WeakSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol, TypeAlias, TypeVar

    class Mark(Protocol):
        """See `fork_mark`."""

        def __getitem__(self, place: int, /) -> int: ...
        def __setitem__(self, place: int, value: int, /) -> None: ...

    T = TypeVar("T")
    Registry: TypeAlias = WeakKeyDictionary[object, Callable[..., object]]


class Process:
    """This process: its id, and the forks that it has seen.

    Attributes:
        number: its id as of the last reset. It differs from `getpid()` in a child that was forked
            without hooks and has not noticed: then `notice()` resets everything.
        forks: how often it has forked, as far as Python's hooks have seen it.
        refusals: how often this forked child has refused to use a file of its parent's.
        replaced: how many files it has found deleted or replaced while they were in use.
        is_child: whether it was forked from a process that had loaded this module.
        had_hooks: whether the hooks before that fork have run to their end.
    """

    __slots__ = (
        "forking",
        "forks",
        "had_hooks",
        "is_child",
        "is_prepared",
        "number",
        "refusals",
        "replaced",
    )

    def __init__(self) -> None:
        self.number = getpid()
        self.forks = self.refusals = self.replaced = 0
        self.is_child = False
        self.had_hooks = True
        self.forking = 0
        """The thread that is about to fork, and whether it has run all hooks before that."""
        self.is_prepared = False

    @property
    def pid(self) -> int:
        """The id of this process, correct after a fork without hooks too."""
        found = getpid()
        if found != self.number:
            _reset_late()
        return found

    def notice(self) -> None:
        """Resets everything if this is a child that was forked without hooks.

        No lock of `make_lock` is held by the caller: it would be made anew.
        """
        if self.number != getpid():
            _reset_late()

    @property
    def is_known(self) -> bool:
        """Whether the resets of this process have been done."""
        return self.number == getpid()

    def begin(self, *, had_hooks: bool) -> None:
        """In a forked child."""
        self.number = getpid()
        self.forks = self.refusals = self.replaced = 0
        self.is_child, self.had_hooks = True, had_hooks
        self.forking, self.is_prepared = 0, False


PROCESS = Process()
_resets: Registry = WeakKeyDictionary()
_flushes: Registry = WeakKeyDictionary()
_befores: Registry = WeakKeyDictionary()
_afters: Registry = WeakKeyDictionary()
_locks: WeakSet[threading.Lock | threading.RLock] = WeakSet()
_forking = threading.Lock()
"""Held by the thread that forks: hooks wait, and two threads could be in them at once."""
_resetting = threading.Lock()
_LONGEST = 5.0
"""Seconds for which a fork waits for the fork of another thread."""


def fork_mark() -> Mark:
    """What reads 1 at its only place; 0 in a forked child, until that has reset everything.

    So `notice()` need not be called where it is read before each step. A reading is no call of the
    system, as `getpid()` is: Linux gives a child a page of zeros (`MADV_WIPEONFORK`, since 4.14).
    Where a page is not wiped, the number of the process is compared.

    >>> fork_mark()[0]
    1
    """
    if not _marks:
        _marks.append(_wiped_page() or _Compared())
    return _marks[0]


def _wiped_page() -> Mark | None:
    """A page that a forked child finds empty, if this system has such pages."""
    if sys.platform != "linux":
        return None
    try:
        import mmap

        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (ImportError, OSError):  # Python was built without it, or the memory has a limit
        return None
    try:
        page.madvise(_NO_ADVICE)
    except OSError:
        try:
            page.madvise(_WIPE_ON_FORK)
        except OSError:  # an older kernel
            return None
        page[0] = 1
        return page
    return None  # an emulator that takes any advice, and follows none


_WIPE_ON_FORK, _NO_ADVICE = 18, -1
"""Advice of Linux that `mmap` has no name for; and none at all, which Linux refuses."""


class _Compared:
    """In place of such a page."""

    __slots__ = ("_number",)

    def __init__(self) -> None:
        self._number = PROCESS.number

    def __getitem__(self, _place: int) -> int:
        return int(self._number == getpid())

    def __setitem__(self, _place: int, _value: int) -> None:
        self._number = PROCESS.number


_marks: list[Mark] = []


# --- what objects register ------------------------------------------------------------------------


def make_lock(*, is_owned: bool = False) -> threading.Lock:
    """A lock for an object that outlives a call; it is free in a forked child.

    Where there are many such objects and each registers a reset, its class names the attribute in
    `_fork_locks` and the lock `is_owned`: an entry of its own would take twice the lock's bytes.
    """
    made = threading.Lock()
    if not is_owned:
        _locks.add(made)
    return made


def make_rlock() -> threading.RLock:
    """The same, for code that may enter it again."""
    made = threading.RLock()
    _locks.add(made)
    return made


def reset_in_child(thing: T, reset: Callable[[T], object]) -> None:
    """Calls `reset(thing)` in each forked child, as long as the object exists.

    `reset` must be a plain function, such as `Pool.reset`: a bound method would hold the object.
    """
    _resets[thing] = reset


def around_fork(
    thing: T, before: Callable[[T], object], after_in_parent: Callable[[T], object]
) -> None:
    """Calls `before(thing)` before each fork, and `after_in_parent(thing)` in the parent after it.

    Only forks through Python have these hooks: `PROCESS.had_hooks` in the child.
    """
    _befores[thing] = before
    _afters[thing] = after_in_parent


def flush_at_exit(thing: T, flush: Callable[[T], object]) -> None:
    """Calls `flush(thing)` at the end of the process, as long as the object exists.

    It may be called twice: before the interpreter joins the threads, which is the only time in a
    child of multiprocessing, and by atexit, for what those threads have added since.
    """
    _flushes[thing] = flush


def flush_all() -> None:
    """Flushes every object that is registered, as the end of the process does."""
    PROCESS.notice()  # or the parent's events would be written by both
    _call_each(_flushes)


_inherited: list[object] = []


def leave_to_parent(thing: object) -> None:
    """Never finalises an inherited object: that would act on the parent's sockets or files.

    A list is not enough. The interpreter empties it when it ends.
    """
    _inherited.append(thing)
    try:
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    except (ImportError, AttributeError):  # pragma: no cover -- an interpreter without it
        return


# --- the hooks ------------------------------------------------------------------------------------


def _before() -> None:
    """In the parent. Only one thread at a time is between the lock and `_after_in_parent`."""
    if threading.active_count() > 1:
        with _logging_unlocked():
            _finish_imports()
            _find_temporary_folder()
    if _forking.acquire(timeout=_LONGEST):
        PROCESS.forking = get_ident()
        _call_each(_befores)
        PROCESS.is_prepared = True


LOADED_LATER = ["mainstay.core.redact.redactor"]
"""The modules that calls load when they first need them; an engine adds those of its parts."""


def load_before_fork(module: str) -> None:
    """Has a module loaded before a fork that a thread may need at any moment."""
    if module not in LOADED_LATER:
        LOADED_LATER.append(module)


_AWAITED = {"mainstay", *sys.stdlib_module_names}
"""The packages whose import never waits for code of a user's."""


def _finish_imports() -> None:
    """Waits for imports that other threads have begun: of this package, or of Python's library.

    The child would have to import such a module anew, beside what it has done so far. What a call
    may load is loaded here, since a thread may need it at any moment.
    """
    begun = [name for name, found in list(sys.modules.items()) if _is_begun(name, found)]
    for name in (*LOADED_LATER, *begun):
        try:
            __import__(name)
        except Exception:  # noqa: S112 -- the thread that has begun it reports it
            continue


def _drop_imports() -> None:
    """In a forked child: forgets the imports that other threads of its parent had begun.

    No thread of the child goes on with them, and it would wait for ever for the lock of such a
    module. This one, without the lock and the unfinished module, imports it anew.
    """
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    for name, reference in list(locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner is not None and owner != get_ident():
            del locks[name]
            if _is_unfinished(sys.modules.get(name)):
                del sys.modules[name]


def _find_temporary_folder() -> None:
    """Has `tempfile` look for its folder, which it does once, under a lock of its own.

    A thread that writes for a sink may be doing so: the child would wait for that lock for ever.
    Once the folder is known, no one takes the lock.
    """
    find = getattr(sys.modules.get("tempfile"), "gettempdir", None)
    if find is not None:
        with suppress(OSError):  # there is none, and a caller finds so, who needs one
            find()


@contextmanager
def _logging_unlocked() -> Iterator[None]:
    """Releases the lock that the hook of `logging` has taken, if that ran before ours.

    It does if `logging` was loaded later than this module. An import that another thread has begun
    may need a logger, and would wait for that lock while this thread waits for the import. At the
    fork itself the lock is held again.
    """
    lock: threading.RLock | None = getattr(sys.modules.get("logging"), "_lock", None)
    times = 0
    if lock is None:
        yield
        return
    while lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 -- Condition asks so too
        lock.release()
        times += 1
    try:
        yield
    finally:
        for _ in range(times):
            lock.acquire()


def _is_begun(name: str, module: object) -> bool:
    is_awaited = name.partition(".")[0] in _AWAITED  # others may wait for what this thread does
    return is_awaited and _is_unfinished(module)


def _is_unfinished(module: object) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def _after_in_parent() -> None:
    PROCESS.forks += 1
    if PROCESS.forking != get_ident():
        return
    try:
        _call_each(_afters)
    finally:
        PROCESS.forking, PROCESS.is_prepared = 0, False
        _forking.release()


def _after_in_child() -> None:
    for each in (_forking, _resetting, *_every_lock()):
        _make_anew(each)
    _drop_imports()
    PROCESS.begin(had_hooks=PROCESS.is_prepared and PROCESS.forking == get_ident())
    _reset_all()


def _reset_late() -> None:
    """In a child that was forked without hooks, when it is found out."""
    with _resetting:
        if PROCESS.is_known:
            return
        for each in _every_lock():
            # Other threads of this child may run by now: a lock that comes free was theirs.
            if each.acquire(timeout=0.05):
                each.release()
            else:
                _make_anew(each)
        _make_anew(_forking)
        PROCESS.begin(had_hooks=False)
        try:
            _reset_all()
        except Exception as error:  # as Python does for a hook: the caller has another question
            sys.excepthook(type(error), error, error.__traceback__)


def _reset_all() -> None:
    """Resets what is registered; only after that the mark is set, which another thread may read."""
    try:
        _call_each(_resets)
    finally:
        for mark in _marks:
            mark[0] = 1


def _every_lock() -> list[threading.Lock | threading.RLock]:
    """The locks that are registered, and those of registered objects."""
    found = list(_locks)
    for thing, _ in _registered(_resets):
        found += [getattr(thing, name) for name in getattr(type(thing), "_fork_locks", ())]
    return found


def _make_anew(lock: threading.Lock | threading.RLock) -> None:
    """Frees an inherited lock in place, as the standard library does with its own."""
    lock._at_fork_reinit()  # type: ignore[union-attr]  # noqa: SLF001 -- there is no other way


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
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
