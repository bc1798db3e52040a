"""The tasks of an event loop that share a commit: how they wait, and how each goes on."""

import asyncio
import gc
import threading
import weakref

import pytest

from mainstay.deadline import within
from mainstay.errors import StoreUnavailable
from mainstay.stores import group_commit
from mainstay.stores.group_commit import Writer

SOON = 30.0


class Wrong(Exception):
    """What a step may raise."""


@pytest.fixture
def made():
    """Makes writers, and closes them."""
    writers = []

    def make(carry_out=lambda steps: [step * 2 for step in steps]):
        writers.append(Writer(carry_out, "writer", "sqlite:///a.db"))
        return writers[-1]

    yield make
    for each in writers:
        each.close()


@pytest.fixture
def held(made):
    """A writer that begins nothing until `let_go` is set."""
    let_go = threading.Event()
    writer = made(lambda steps: [let_go.wait(SOON)] and steps)
    writer.let_go = let_go
    yield writer
    let_go.set()


def test_the_tasks_of_one_commit_go_on_in_one_call_of_the_loop(made):
    """A call for each of them would be a sixth of what the loop does for a step."""
    writer, calls = made(), []

    async def main():
        loop = asyncio.get_running_loop()
        real = loop.call_soon
        tasks = [asyncio.create_task(writer.submit(number, SOON)) for number in range(64)]
        loop.call_soon = lambda *args, **kwargs: calls.append(args[0]) or real(*args, **kwargs)
        await asyncio.sleep(0.0)
        handed_over = len(calls)
        answers = [await task for task in tasks]
        return answers, handed_over

    answers, handed_over = asyncio.run(main())
    assert answers == [number * 2 for number in range(64)]
    waking = [each for each in calls[handed_over:] if "wakeup" in repr(each).lower()]
    assert len(waking) < 4, "the task that awaits them is woken by the first"


def test_a_task_that_ends_the_program_costs_no_other_its_answer(made):
    """The loop may run again, as it does to let the other tasks clean up."""
    writer, done = made(), []

    async def ending():
        await writer.submit(1, SOON)
        raise SystemExit(3)

    async def other(number):
        done.append(await writer.submit(number, SOON))

    loop = asyncio.new_event_loop()
    ends = loop.create_task(ending())
    others = [loop.create_task(other(number)) for number in (2, 3)]
    with pytest.raises(SystemExit):
        loop.run_until_complete(asyncio.wait(others))
    loop.run_until_complete(asyncio.wait_for(asyncio.gather(*others), SOON))
    loop.close()
    assert done == [4, 6]
    assert isinstance(ends.exception(), SystemExit)


def test_a_task_that_is_cancelled_keeps_the_reason(held):
    """Its step is withdrawn, and the others of its turn have their answers."""

    async def main():
        first, second, third = [asyncio.create_task(held.submit(each, SOON)) for each in "abc"]
        while not held.is_crowded:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        second.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await second
        assert not second.cancel()
        held.let_go.set()
        return await first, await third

    assert asyncio.run(main()) == ("a", "c")


def test_a_task_that_is_cancelled_as_its_answer_comes_is_cancelled(held):
    """Between the end of its wait and its next step, nothing is left to withdraw."""

    async def main():
        task = asyncio.create_task(bounded())
        while not held.is_crowded:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        waiting = task._fut_waiter
        waiting.end(Wrong())
        assert waiting.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def bounded():
        with within(20.0):
            return await held.submit("a", SOON)

    asyncio.run(main())


def test_each_task_has_the_error_of_a_failed_commit_for_itself(made):
    """One exception in several tasks would have the traceback of all."""

    def fail(steps):
        raise StoreUnavailable("sqlite:///a.db", "write", "the disk is full")

    writer = made(fail)

    async def main():
        steps = [writer.submit(number, SOON) for number in range(3)]
        return await asyncio.gather(*steps, return_exceptions=True)

    errors = asyncio.run(main())
    assert [str(each) for each in errors] == [str(errors[0])] * 3
    assert "the disk is full" in str(errors[0])
    assert len({id(each) for each in errors}) == 3


def test_a_step_that_fails_leaves_nothing_for_the_collector(made):
    """Its error holds the frames that it came through, and they must not hold it."""
    writer = made(lambda steps: [Wrong() for _ in steps])

    async def main():
        try:
            await writer.submit(1, SOON)
        except Wrong as error:
            return weakref.ref(error)

    gc.collect()
    gc.disable()
    try:
        gone = asyncio.run(main())
        writer.close()
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["step", "commit", "cancelled"])
def test_a_task_that_fails_leaves_nothing_for_the_collector(made, held, how):
    """It holds its error, whose frames hold the step, and that must not hold the task any more."""

    def fail(steps):
        raise StoreUnavailable("sqlite:///a.db", "write", "the disk is full")

    writer = {"step": made(lambda steps: [Wrong() for _ in steps]), "commit": made(fail)}.get(
        how, held
    )

    async def main():
        task = asyncio.create_task(writer.submit(1, SOON))
        if how == "cancelled":
            while not held.is_crowded:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or task.exception()
        held.let_go.set()
        return weakref.ref(task)

    gc.collect()
    gc.disable()
    try:
        gone = asyncio.run(main())
        writer.close()
        assert gone() is None
    finally:
        gc.enable()


def test_an_answer_that_an_interrupt_precedes_comes_when_the_loop_runs_again(made, monkeypatch):
    """A signal may arrive as the function is entered that gives a task its answer."""
    real, interrupts = group_commit._Waiting.take, [KeyboardInterrupt()]

    def take(item, *answer):
        if interrupts:
            raise interrupts.pop()
        real(item, *answer)

    monkeypatch.setattr(group_commit._Waiting, "take", take)
    writer = made()
    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(writer.submit(number, SOON)) for number in (1, 2, 3)]
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.wait(tasks))
    answers = loop.run_until_complete(asyncio.wait_for(asyncio.gather(*tasks), SOON))
    loop.close()
    assert answers == [2, 4, 6]


def test_a_coroutine_without_a_task_finds_out_by_itself(made):
    """Who drives it by hand gets what it waits for, and asks whether that is done."""
    writer = made()

    async def main():
        step = writer.submit(4, SOON)
        waiting = step.send(None)
        while not waiting.done():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        with pytest.raises(StopIteration) as ended:
            step.send(None)
        return ended.value.value

    assert asyncio.run(main()) == 8


def test_a_coroutine_without_a_task_is_given_up_on_like_any_other(held):
    async def main():
        step = held.submit(4, 0.01)
        waiting = step.send(None)
        while not waiting.done():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        held.let_go.set()
        with pytest.raises(StoreUnavailable, match=r"no answer within 0.01 s"):
            step.send(None)

    asyncio.run(main())
