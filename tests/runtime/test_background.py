"""Jobs in a background thread: in order, waited for within bounds, by threads and event loops."""

import asyncio
import os
import re
import threading
import time
from contextvars import copy_context
from pathlib import Path

import pytest
import trio

import mainstay
from mainstay import deadline
from mainstay.events import CallSucceeded
from mainstay.runtime.background import Background, detached_thread, is_in_loop
from mainstay.sinks.delivery.buffer import Buffer
from mainstay.stores.time_left import time_for


@pytest.fixture
def background():
    made = Background("example")
    yield made
    made.close(30.0)


@pytest.fixture
def gate(background):
    """Keeps the thread busy until it is set."""
    event = threading.Event()
    background.post(lambda: event.wait(60.0))
    yield event
    event.set()


def test_jobs_are_done_in_order(background):
    """What was posted first has happened before."""
    done = []
    jobs = [background.post(lambda number=number: done.append(number)) for number in range(50)]
    assert jobs[-1].wait(30.0)
    assert done == list(range(50))


def test_an_error_is_kept_and_costs_no_other_job(background):
    """The one that waits may look at it."""
    job = background.post(lambda: 1 // 0)
    assert job.wait(30.0)
    assert (job.answer, type(job.error)) == (None, ZeroDivisionError)
    assert background.post(lambda: 7).wait(30.0)


def test_a_wait_ends_after_its_time(background, gate):
    """It counts from when the job was posted: a second wait for the same one adds nothing."""
    job = background.post(lambda: 42)
    assert job.wait(0.01) is False
    began = time.monotonic()
    assert job.wait(0.01) is False
    assert time.monotonic() - began < 30.0
    gate.set()
    assert job.wait(60.0)
    assert job.wait(0.0), "it is done"
    assert job.answer == 42


@pytest.mark.parametrize("run", [asyncio.run, trio.run])
def test_an_event_loop_awaits_a_job(run, background, gate):
    """Done or not; and in the thread of a loop nothing blocks."""

    async def main():
        job = background.post(lambda: 42)
        assert is_in_loop()
        assert job.wait(60.0) is False, "it would block the loop"
        assert await job.awaited(0.01) is False
        gate.set()
        assert await job.awaited(60.0)
        assert await job.awaited(60.0)
        return job.answer

    assert (run(main) if run is trio.run else run(main())) == 42
    assert not is_in_loop()


def test_a_loop_that_is_gone_is_not_woken(background, gate):
    """The job is done all the same."""
    jobs = []

    async def main():
        jobs.append(background.post(lambda: 42))
        waiting = asyncio.ensure_future(jobs[0].awaited(60.0))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(main())
    gate.set()
    assert jobs[0].wait(60.0)


def test_what_is_posted_before_the_end_is_done_and_what_comes_after_is_refused():
    """A caller that waits for it does so in vain, and not for long."""
    background = Background("example")
    done = []
    background.post(lambda: done.append(1))
    background.close(30.0)
    assert done == [1]
    job = background.post(lambda: done.append(2))
    assert job.wait(60.0)
    assert isinstance(job.error, RuntimeError)
    assert done == [1]
    Background("unused").close(30.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_a_thread_of_its_own(background, gate):
    """And none of the jobs of its parent."""
    waiting = background.post(lambda: None)
    child = os.fork()
    if child == 0:
        job = background.post(lambda: 42)
        os._exit(0 if job.wait(30.0) and job.answer == 42 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    gate.set()
    assert waiting.wait(30.0)


def test_work_is_refused_while_no_thread_can_be_started(background, monkeypatch):
    """The call that posts it goes on; the next one has a thread again."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", refuse)
        job = background.post(lambda: 42)
        assert (job.is_done, job.answer) == (True, None)
    job = background.post(lambda: 42)
    assert job.wait(30.0)
    assert job.answer == 42


# --- the context of a thread ----------------------------------------------------------------------


@pytest.fixture
def inherited(monkeypatch):
    """A thread has the context of the code that starts it, as in a free-threaded Python."""
    start = threading.Thread.start

    def inheriting(thread):
        context, run = copy_context(), thread.run
        thread.run = lambda: context.run(run)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", inheriting)


@pytest.mark.usefixtures("inherited")
def test_a_detached_thread_begins_in_an_empty_context():
    """It has neither the deadline nor the tenant of the code that starts it."""
    seen = []
    with deadline.within(60.0), mainstay.context(tenant_id="acme"):
        thread = detached_thread(lambda *given: seen.append((given, *here())), "example", 1, 2)
        thread.start()
    thread.join(60.0)
    assert seen == [((1, 2), None, None)]


@pytest.mark.usefixtures("inherited")
def test_a_thread_that_delivers_for_all_has_no_caller_s_deadline():
    """A store would have 80 ms for each step of it, once that deadline has passed."""
    seen = []
    buffer = Buffer(lambda _: seen.append(time_for(5.0)), name="example", spill=False)
    with deadline.within(0.001):
        buffer.put(CallSucceeded(operation="first", total_attempts=2))
        assert buffer.flush(60.0)
    buffer.put(CallSucceeded(operation="second", total_attempts=2))
    assert buffer.flush(60.0)
    buffer.close()
    assert seen == [5.0, 5.0]


def here():
    return deadline.remaining(), mainstay.current_context().tenant_id


ATTACHED = {
    "cli/pipelines/command.py": "a picture of progress, which ends with the command",
    "drivers/idempotency/groups.py": "each task of it is carried with its own context",
    "drivers/process/group.py": "waits for a child, and for nothing else",
    "integrations/connection_deadline.py": "one connection, for the call that waits for it",
    "integrations/http_lookup.py": "one look-up, for the call that waits for it",
    "ports.py": "steps of one call, in its own context",
    "runtime/background.py": "`detached_thread` itself",
    "runtime/context.py": "an example of `carry`",
    "stores/redis/clients.py": "ends one connection, while the caller waits",
    "testing/proxy/proxy.py": "a server for tests",
    "testing/publishers.py": "a test",
    "testing/stores.py": "a test",
}
"""Where a thread may begin with the context of the code that starts it, and why."""


def test_threads_that_work_for_all_calls_are_detached():
    """A new thread is detached, or is listed with the reason."""
    root = Path(mainstay.__file__).parent
    starts = re.compile(r"\bThread\(")
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if starts.search(path.read_text(encoding="utf-8"))
    }
    assert found == ATTACHED.keys()
