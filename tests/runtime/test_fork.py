"""A forked child begins again, and the end of a process flushes, each in one place."""

import gc
import os
import subprocess
import sys

import pytest

from mainstay.runtime import fork

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

CHILD = """
import os
from mainstay.runtime import fork

class Counted:
    def __init__(self, name):
        self.name = name
        fork.reset_in_child(self, Counted.reset)

    def reset(self):
        if self.name == "broken":
            raise ValueError(self.name)
        self.name += " in " + str(fork.PROCESS.pid == os.getpid())

kept = [Counted("broken"), Counted("one"), Counted("two")]
Counted("gone")
if os.fork() == 0:
    print(*sorted(each.name for each in kept), sep=", ", flush=True)
    os._exit(0)
os.wait()
print(*sorted(each.name for each in kept), sep=", ", flush=True)
"""


def run(code, *args):
    """What a script prints, and what it complains of."""
    command = [sys.executable, "-W", "error", "-c", code, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.splitlines(), done.stderr


@needs_fork
def test_a_forked_child_resets_every_object_and_its_parent_none():
    """One that cannot be reset is reported, and costs no other."""
    printed, complaints = run(CHILD)
    assert printed == ["broken, one in True, two in True", "broken, one, two"]
    assert "ValueError: broken" in complaints


def test_the_registries_keep_no_object_alive():
    """An object that nothing else holds is neither reset nor flushed."""

    class Sink:
        """Registered for both."""

    flushed = []
    gone, kept = Sink(), Sink()
    for each in (gone, kept):
        fork.reset_in_child(each, flushed.append)
        fork.flush_at_exit(each, flushed.append)
    del gone, each
    gc.collect()
    fork.flush_all()
    assert flushed == [kept]


AT_EXIT = """
import sys, threading
from mainstay.runtime.fork import flush_at_exit

class Sink:
    def __init__(self):
        self.events = []
        flush_at_exit(self, Sink.flush)

    def flush(self):
        if self.events:
            print(*self.events, flush=True)
        self.events.clear()

sink, joining = Sink(), threading.Event()
if sys.argv[1] == "main":
    sink.events.append("main")
elif sys.argv[1] == "thread":
    def work():
        threading.main_thread().join()
        sink.events.append("thread")
    threading.Thread(target=work).start()
else:
    import multiprocessing
    child = multiprocessing.get_context("fork").Process(target=sink.events.append, args=("child",))
    child.start()
    child.join(30)
"""


@pytest.mark.parametrize("who", ["main", "thread", pytest.param("child", marks=needs_fork)])
def test_the_end_of_a_process_flushes_what_is_registered(who):
    """Also what a thread adds that outlives the main one, and in a child of multiprocessing."""
    assert run(AT_EXIT, who) == ([who], "")


LATE = """
import atexit, sys, threading
from mainstay.runtime.fork import flush_at_exit

class Sink:
    def __init__(self):
        self.events = []
        flush_at_exit(self, Sink.flush)

    def flush(self):
        if self.events:
            print(*self.events, flush=True)
        self.events.clear()

def work():
    if sys.argv[1] == "thread":
        threading.main_thread().join()
    sinks.append(Sink())
    sinks[0].events.append(sys.argv[1])

sinks = []
if sys.argv[1] == "thread":
    threading.Thread(target=work).start()
elif sys.argv[1] == "handler":
    atexit.register(work)
else:
    atexit.register(lambda: sinks[0].events.append("first"))
    sinks.append(Sink())
"""


@pytest.mark.parametrize("who", ["thread", "handler", "first"])
def test_what_is_registered_or_emitted_late_is_flushed_too(who):
    """The first sink of a late thread or handler, and what a handler older than a sink emits."""
    assert run(LATE, who) == ([who], "")


FAILING = """
import os
from mainstay.runtime.fork import flush_all, flush_at_exit

class Sink:
    def __init__(self, name):
        self.name = name
        flush_at_exit(self, Sink.flush)

    def flush(self):
        if self.name == "broken":
            raise ValueError(self.name)
        kept.append(Sink("new"))
        print(self.name, flush=True)

kept = [Sink("broken"), Sink("one"), Sink("two")]
try:
    flush_all()
except ValueError as error:
    print("then", error, flush=True)
os._exit(0)
"""


def test_a_flush_that_fails_costs_no_other_nor_does_one_that_registers():
    """The error is raised when all are flushed."""
    assert run(FAILING) == (["one", "two", "then broken"], "")


BESIDE_AN_IMPORT = """
import importlib.abc, importlib.util, os, sys, threading, time
import mainstay.runtime.fork
assert "logging" not in sys.modules, "its hook is to be registered later, and so to run first"
import logging

class Slow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == "mainstay.slow" else None

    def exec_module(self, module):
        begun.set()
        time.sleep(0.3)  # the other thread is in its hooks by then
        module.logger = logging.getLogger("slow")

begun = threading.Event()
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=__import__, args=("mainstay.slow",))
thread.start()
begun.wait()
pid = os.fork()
if not pid:
    import mainstay.slow
    mainstay.slow.logger.warning("from the child")
    os._exit(0)
thread.join()
assert not logging._lock._is_owned(), "the hook of logging has released what it took"
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@needs_fork
def test_a_fork_waits_for_an_import_that_needs_a_logger():
    """Also if `logging` was loaded after us, so that its lock is taken before our hook runs."""
    done = subprocess.run(
        [sys.executable, "-c", BESIDE_AN_IMPORT], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, b"from the child" in done.stderr) == (0, True), done.stderr


MARKED = """
import ctypes, os, sys
from mainstay.runtime import fork

how, by = sys.argv[1:]
if how == "compared":
    fork._wiped_page = lambda: None
mark = fork.fork_mark()
assert mark is fork.fork_mark() and mark[0] == 1
kept, meanwhile = fork.threading.Event(), []
fork.reset_in_child(kept, lambda _: meanwhile.append(mark[0]))
pid = os.fork() if by == "python" else ctypes.PyDLL(None).fork()
if pid == 0:
    first = mark[0]
    fork.PROCESS.notice()
    print(first, *meanwhile, mark[0], flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(mark[0], flush=True)
"""


@needs_fork
@pytest.mark.parametrize("how", ["wiped", "compared"])
@pytest.mark.parametrize(("by", "first"), [("python", 1), ("c", 0)])
def test_a_mark_reads_0_in_a_child_until_that_has_noticed(how, by, first):
    """Hooks notice by themselves; without them the child finds an empty page, or another number.

    It reads 0 until everything is reset, so no thread uses what is its parent's.
    """
    assert run(MARKED, how, by) == ([f"{first} 0 1", "1"], "")


class Page(bytearray):
    """Takes some advice."""

    taken = ()

    def madvise(self, advice):
        if advice not in self.taken:
            raise OSError(22, "Invalid argument")


@pytest.mark.parametrize(
    ("platform", "taken", "is_used"),
    [("linux", (18,), True), ("linux", (), False), ("linux", (-1, 18), False),
     ("darwin", (18,), False)],
    ids=["wiped", "older kernel", "takes any advice", "another system"],
)  # fmt: skip
def test_a_page_is_used_where_the_kernel_wipes_it(monkeypatch, platform, taken, is_used):
    """An emulator may take any advice and follow none: then numbers are compared."""
    monkeypatch.setattr(fork.sys, "platform", platform)
    monkeypatch.setattr(Page, "taken", taken)
    monkeypatch.setattr("mmap.mmap", lambda *_, **__: Page(1))
    page = fork._wiped_page()
    assert (page is not None) is is_used
    assert page is None or page[0] == 1


BESIDE_A_LOOK_FOR_A_FOLDER = """
import os, signal, sys, tempfile, threading, time
import mainstay.runtime.fork

def slow():
    begun.set()
    time.sleep(0.3)
    return "/tmp"

begun = threading.Event()
tempfile._get_default_tempdir = slow
threading.Thread(target=tempfile.gettempdir).start()
begun.wait(30)
pid = os.fork()
if pid == 0:
    signal.alarm(10)
    tempfile.gettempdir()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""


@needs_fork
def test_a_fork_waits_for_a_thread_that_looks_for_the_temporary_folder():
    """That of a sink does, for spilled events; `tempfile` has a lock, which the child inherits."""
    command = [sys.executable, "-W", "ignore", "-c", BESIDE_A_LOOK_FOR_A_FOLDER]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


BESIDE_AN_IMPORT_OF_PYTHON = """
import importlib.abc, importlib.machinery, os, signal, sys, threading, time
import mainstay.runtime.fork

class Slow(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    def find_spec(self, name, path=None, target=None):
        found = importlib.machinery.PathFinder.find_spec(name, path)
        if name == "this":
            found.loader.__class__ = Slow
        return found
    def exec_module(self, module):
        begun.set()
        time.sleep(0.3)

begun = threading.Event()
sys.meta_path.insert(0, Slow("", ""))
thread = threading.Thread(target=__import__, args=("this",))
thread.start()
begun.wait(30)
pid = os.fork()
if pid == 0:
    signal.alarm(10)
    import this
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""


@needs_fork
def test_a_fork_waits_for_an_import_of_pythons_own():
    """A thread of ours may load such a module, and the child would wait for it for ever."""
    command = [sys.executable, "-W", "ignore", "-c", BESIDE_AN_IMPORT_OF_PYTHON]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@needs_fork
@pytest.mark.parametrize("without", ["memory", "mmap"])
def test_numbers_are_compared_where_no_page_is_to_be_had(monkeypatch, without):
    """A buffer is not refused for a page that only saves time."""

    def refuse(*_args, **_options):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(fork, "_marks", [])
    if without == "mmap":
        monkeypatch.setitem(sys.modules, "mmap", None)
    else:
        monkeypatch.setattr("mmap.mmap", refuse)
    monkeypatch.setattr(fork.sys, "platform", "linux")
    assert fork.fork_mark()[0] == 1
    assert type(fork.fork_mark()) is fork._Compared
