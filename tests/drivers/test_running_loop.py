"""A bounded first attempt finds the loop and the task that run here, without asking the system."""

import asyncio
import gc
import os
import sys
import threading
import weakref

import pytest
import trio

from mainstay import AttemptTimeout, RetryPolicy
from mainstay.drivers.call import on_asyncio
from mainstay.testing import virtual_time

LIMIT = 5.0
POLICY = RetryPolicy(name="op", retry_on=ConnectionError, attempt_timeout=LIMIT)


@POLICY
async def found():
    """The loop that has the task of this attempt in its lane, and whether it is this task."""
    loop = asyncio.get_running_loop()
    return loop.mainstay_lanes[LIMIT].queue[on_asyncio.BOUND.get()] is asyncio.current_task()


@pytest.fixture(autouse=True)
def nothing_found():
    """No loop was seen before, nor is one kept for the tests after."""
    on_asyncio._last.forget()
    yield
    on_asyncio._last.forget()


def in_thread(function):
    """What a function returns in a thread of its own."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    thread.join(30)
    return answers


async def twice():
    """The second attempt has a loop that was seen."""
    return await found() and await found()


def test_one_loop_after_the_other():
    """A loop that has ended is not taken for the one that runs."""
    assert [asyncio.run(twice()) for _ in range(3)] == [True] * 3


def test_a_loop_in_another_thread():
    """A task that is in the middle of a step there is not taken for the one that runs here."""

    async def outer():
        return await twice(), in_thread(lambda: asyncio.run(twice())), await twice()

    assert asyncio.run(outer()) == (True, [True], True)


def test_trio_in_another_thread():
    """While the only task of asyncio is in the middle of a step, trio makes its own attempt."""

    @POLICY
    async def bounded():
        await trio.lowlevel.checkpoint()
        return isinstance(on_asyncio.BOUND.get(), on_asyncio.Scope)

    async def outer():
        return await twice(), in_thread(lambda: trio.run(bounded))

    assert asyncio.run(outer()) == (True, [False])


def test_a_loop_inside_a_step_of_another():
    """As notebooks run one: both loops run in this thread, and the inner one is meant."""

    async def outer():
        before = asyncio.get_running_loop()
        assert await twice()
        task, inner = asyncio.current_task(), asyncio.new_event_loop()
        if sys.version_info >= (3, 14):  # where a thread has one task, and not each loop
            asyncio.tasks._leave_task(before, task)
        asyncio._set_running_loop(None)
        try:
            return inner.run_until_complete(twice())
        finally:
            inner.close()
            asyncio._set_running_loop(before)
            if sys.version_info >= (3, 14):
                asyncio.tasks._enter_task(before, task)

    assert asyncio.run(outer())


class Secretive(asyncio.SelectorEventLoop):
    """Does not show the thread it runs in, as some loops of others do."""

    @property
    def _thread_id(self):
        raise AttributeError

    @_thread_id.setter
    def _thread_id(self, _ident):
        pass

    def is_running(self):
        return False


def test_a_loop_that_does_not_show_its_thread():
    """It is asked for each time."""
    loop = Secretive()
    assert loop.run_until_complete(twice())
    assert on_asyncio._last.ref is None
    loop.close()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the loop is asked for each time")
def test_a_loop_that_was_seen_is_not_asked_for(monkeypatch):
    """One task in one loop: the system is asked once."""
    asked, ask = [], on_asyncio.get_running_loop
    monkeypatch.setattr(on_asyncio, "get_running_loop", lambda: asked.append(1) or ask())

    async def often():
        return [await found() for _ in range(5)]

    assert asyncio.run(often()) == [True] * 5
    assert len(asked) == 1


def test_a_loop_that_has_ended_is_freed():
    """What was seen is not kept alive."""
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(twice())
    loop.close()
    gone = weakref.ref(loop)
    del loop
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_of_a_fork_forgets_the_loop():
    """The child has the memory of a loop that runs in its parent alone."""
    assert asyncio.run(twice())
    child = os.fork()
    if child == 0:
        os._exit(0 if on_asyncio._last.ref is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_attempt_in_a_seen_loop_is_cut():
    """The lane that was found is the one whose timer cuts it."""

    @POLICY.replace(attempt_timeout=10.0, max_attempts=1)
    async def slow():
        await asyncio.sleep(60)

    async def often():
        for _ in range(2):
            with pytest.raises(AttemptTimeout):
                await slow()

    with virtual_time():
        asyncio.run(often())
