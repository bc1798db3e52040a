"""A lock that outlives a call is made by runtime/fork.py, or by a reset that runs in each child."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mainstay

SOURCE = Path(mainstay.__file__).parent
MADE = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}
RESET = {
    "sinks/delivery/backlog.py": "Backlog.reset is called by Buffer's; a ticket is one caller's",
    "sinks/delivery/buffer.py": "Buffer._reset is registered",
    "sinks/delivery/losses.py": "Losses.reset is called by Buffer's",
    "sinks/delivery/pressure.py": "Pressure.reset is called by Buffer's",
    "sinks/telemetry/sink.py": "TelemetrySink._reset is registered",
    "sinks/alerts.py": "Alerts._reset makes its event anew",
    "drivers/idempotency/late_steps.py": "LateSteps.reset is registered with the first step",
    "drivers/idempotency/lease_renewal.py": "LeaseRenewal.reset is registered",
    "drivers/idempotency/purging.py": "Purging._reset is registered",
    "runtime/background.py": "Background's reset is registered; a job is one call's",
    "runtime/waits.py": "Waits._begin is registered",
    "drivers/saga/entries.py": "EntryRemoval.reset is registered with the first removal",
    "drivers/guards/shared.py": "Sharing._begin_in_child makes its event anew",
}
"""Modules that make their locks in a function that is registered by `reset_in_child`."""
SHORT = {
    "cli/demo/tally.py": "one run of a command that does not fork",
    "cli/demo/traffic.py": "one run of a command that does not fork",
    "cli/outbox/relay.py": "one run of a command that does not fork",
    "cli/pipelines/command.py": "one run of a command that does not fork",
    "cli/sagas/command.py": "one run of a command that does not fork",
    "drivers/outbox/relay.py": "one run of a relay, which a forked child does not continue",
    "profiles/agents/executor.py": "the token of one call",
    "drivers/layers/bulkhead.py": "one call that waits",
    "drivers/layers/race.py": "one call with a hedge",
    "drivers/process/capture.py": "one run of a subprocess",
    "drivers/process/group.py": "one run of a subprocess",
    "integrations/webhooks/post.py": "one request",
    "stores/group_commit.py": "the steps of one thread; the writer's lock is made by make_lock",
    "sinks/telemetry/sink.py": "the thread's own",
}
"""Modules whose locks belong to one call, which a forked child does not continue."""


def made_in(tree):
    """The lines on which a lock or an event of threading is made."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "threading" and node.func.attr in MADE:
                yield node.lineno


def test_every_other_lock_is_made_anew_in_a_forked_child():
    """A child would wait for ever for a lock that a thread of its parent held."""
    found = {
        name: lines
        for file in sorted(SOURCE.rglob("*.py"))
        if not (name := str(file.relative_to(SOURCE))).startswith("testing/")
        and (lines := list(made_in(ast.parse(file.read_text(encoding="utf-8")))))
    }
    del found["runtime/fork.py"]
    assert {name: found[name] for name in found if name not in {*RESET, *SHORT}} == {}
    assert {*RESET, *SHORT} <= set(found), "an exception that is no longer needed"


HELD = """
import os, sys, threading
from mainstay import Bulkhead, CircuitBreaker, Engine, RetryBudget
from mainstay.runtime import fork
from mainstay.stores.memory import MemoryStore

lock, again = fork.make_lock(), fork.make_rlock()
store, breaker, places = MemoryStore(), CircuitBreaker("pay"), Bulkhead("few", 1)
held, over = threading.Event(), threading.Event()

def hold():
    with lock, again, store._lock, breaker._lock, places, places._lock:
        held.set()
        over.wait()

thread = threading.Thread(target=hold, daemon=True)
thread.start()
held.wait()
if os.fork() == 0:
    with lock, again, places:
        store.describe(), store.scan("s"), breaker.snapshot()
    assert places.snapshot().running == 0
    print("free", flush=True)
    os._exit(0)
os.wait()
assert lock.locked() and not lock.acquire(timeout=0.01)
over.set()
thread.join()
"""


def run(code, *arguments):
    """What a program prints; it must end by itself."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_lock_that_a_thread_holds_is_free_in_the_child_and_held_in_the_parent():
    """And a place of a bulkhead that a call of the parent has is free there too."""
    assert run(HELD) == ["free"]


NOTIFYING = """
import os, threading
from mainstay import CircuitBreaker

held, over, seen, parent = threading.Event(), threading.Event(), [], os.getpid()

def listener(event):
    seen.append(event.to_state)
    if os.getpid() == parent:
        held.set()
        over.wait()

breaker = CircuitBreaker("pay", listener=listener)
thread = threading.Thread(target=breaker.force_open, daemon=True)
thread.start()
held.wait()
if os.fork() == 0:
    breaker.reset()
    print(*seen, flush=True)
    os._exit(0)
os.wait()
over.set()
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_thread_that_notifies_in_the_parent_keeps_no_event_from_the_child():
    """It is not there, and whoever comes next would leave its event to it."""
    assert run(NOTIFYING) == ["forced_open", "closed"]


IMPORTING = """
import os, sys, tempfile, threading, time
from pathlib import Path
import mainstay
from mainstay.runtime import fork

folder = Path(tempfile.mkdtemp())
slow = "import builtins, time; builtins.begun.set(); time.sleep(0.5)"
folder.joinpath("slow.py").write_text(slow)
mainstay.__path__.append(str(folder))
import builtins
builtins.begun = threading.Event()
thread = threading.Thread(target=__import__, args=["mainstay.slow"])
thread.start()
begun.wait()
pid = os.fork()
if pid == 0:
    import mainstay.slow
    print("imported", flush=True)
    os._exit(0)
for _ in range(1000):
    if os.waitpid(pid, os.WNOHANG)[0]:
        break
    time.sleep(0.01)
else:
    os.kill(pid, 9)
    print("hangs")
thread.join()
print("redactor" if "mainstay.core.redact.redactor" in sys.modules else "")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_module_that_a_thread_imports_is_there_in_the_child():
    """The child would wait for the lock of the module, which no thread of it holds.

    What a failing call loads is loaded before the fork.
    """
    assert run(IMPORTING) == ["imported", "redactor"]


HALF_IMPORTED = """
import builtins, os, sys, tempfile, threading, time
from pathlib import Path
import mainstay
from mainstay.runtime import fork

folder, name = Path(tempfile.mkdtemp()), sys.argv[1]
builtins.begun, builtins.go_on = threading.Event(), threading.Event()
wait = "import builtins; builtins.begun.set(); builtins.go_on.wait(20); value = 42"
folder.joinpath("slow.py").write_text(wait)
sys.path.insert(0, str(folder))
mainstay.__path__.append(str(folder))

class Importing:
    def begin(self):
        self.thread = threading.Thread(target=__import__, args=[name])
        self.thread.start()
        begun.wait()
    def go_on(self):
        go_on.set()

importing = Importing()
if name == "slow":
    importing.begin()
else:
    fork.around_fork(importing, Importing.begin, Importing.go_on)
pid = os.fork()
if pid == 0:
    go_on.set()
    __import__(name)
    print("imported", sys.modules[name].value, flush=True)
    os._exit(0)
for _ in range(1000):
    if os.waitpid(pid, os.WNOHANG)[0]:
        break
    time.sleep(0.01)
else:
    os.kill(pid, 9)
    print("hangs")
go_on.set()
importing.thread.join()
print("and here", sys.modules[name].value)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("name", ["slow", "mainstay.slow"])
def test_a_child_imports_anew_what_a_thread_of_its_parent_had_begun_to_import(name):
    """A module of somebody else's, for which no fork waits; and one of ours, begun after the wait.

    In the child no thread goes on with it, and Python would wait for ever for its lock.
    """
    assert run(HALF_IMPORTED, name) == ["imported", "42", "and", "here", "42"]


TWO = """
import os, threading
from mainstay.runtime import fork

class Watched:
    inside, most, calls = 0, 0, 0
    def before(self):
        self.inside += 1
        self.most = max(self.most, self.inside)
        threading.Event().wait(0.02)
    def after(self):
        self.inside -= 1
        self.calls += 1

watched = Watched()
fork.around_fork(watched, Watched.before, Watched.after)
def forks():
    for _ in range(5):
        pid = os.fork()
        if not pid:
            os._exit(0 if fork.PROCESS.had_hooks and fork.PROCESS.is_child else 1)
        assert os.waitpid(pid, 0)[1] == 0
threads = [threading.Thread(target=forks) for _ in range(3)]
for each in threads: each.start()
for each in threads: each.join()
print(watched.most, watched.inside, watched.calls, fork.PROCESS.forks, fork.PROCESS.is_child)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_two_threads_do_not_fork_at_once():
    """The hooks before a fork wait; a second fork begins when the first is over."""
    assert run(TWO) == ["1", "0", "15", "15", "False"]


LATE = """
import ctypes, os, sys, threading
from mainstay.runtime import fork

class Kept:
    def __init__(self):
        self.resets = 0
        fork.reset_in_child(self, Kept.reset)
    def reset(self):
        self.resets += 1

kept, lock, free = Kept(), fork.make_lock(), fork.make_lock()
lock.acquire()
pid = ctypes.PyDLL(None).fork()
if pid == 0:
    assert not fork.PROCESS.is_known
    assert fork.PROCESS.pid == os.getpid() and fork.PROCESS.pid == os.getpid()
    assert kept.resets == 1 and not fork.PROCESS.had_hooks and fork.PROCESS.is_child
    assert lock.acquire(timeout=1) and free.acquire(timeout=1)
    print("reset", flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert fork.PROCESS.pid == os.getpid() and kept.resets == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_without_hooks_resets_everything_when_the_number_is_first_read():
    """Once, and only in the child."""
    assert run(LATE) == ["reset"]


QUEUED = """
import asyncio, os, sys
from mainstay.stores.group_commit import Writer

done = []
writer = Writer(lambda steps: [done.append(step) or step for step in steps], "w")
async def main():
    first = asyncio.ensure_future(writer.submit("parent", 5.0))
    await asyncio.sleep(0)
    pid = os.fork()
    if pid == 0:
        assert writer._queue.empty() and not writer._turns
        writer.close()
        os._exit(0 if done in ([], ["parent"]) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    print(await first)
asyncio.run(main())
writer.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_steps_that_were_handed_in_before_a_fork_are_the_parents():
    """A child that carried them out too would write what the parent writes."""
    assert run(QUEUED) == ["parent"]
