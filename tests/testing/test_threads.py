"""Virtual time and threads: while one works for an event loop, time does not jump."""

import asyncio
import threading
import time as real
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import trio

from mainstay import Backoff, Jitter, RetryPolicy
from mainstay.testing import threads, virtual_time

LONG = 0.15
"""Real seconds; several times what a socket is waited for."""

POLICY = RetryPolicy(retry_on=(OSError, TimeoutError), backoff=Backoff.constant(3600.0))


def work():
    real.sleep(LONG)
    return "done"


@pytest.fixture
def blocked():
    """A thread's step that ends with the test."""
    end = threading.Event()
    yield lambda: end.wait(60.0)
    end.set()


async def by_to_thread(_pool):
    return await asyncio.to_thread(work)


async def by_run_in_executor(pool):
    return await asyncio.get_running_loop().run_in_executor(pool, work)


async def by_wrap_future(pool):
    return await asyncio.wrap_future(pool.submit(work))


async def by_a_callback(pool):
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    future = pool.submit(lambda: [work(), loop.call_soon_threadsafe(event.set)][0])
    await event.wait()
    return future.result()


async def by_a_thread_of_its_own(_pool):
    future = Future()
    threading.Thread(target=lambda: future.set_result(work())).start()
    return await asyncio.wrap_future(future)


WAYS = [by_to_thread, by_run_in_executor, by_wrap_future, by_a_callback, by_a_thread_of_its_own]


@pytest.mark.parametrize("way", WAYS)
def test_a_thread_is_waited_for_however_long_it_takes(way):
    """Its answer is there before a timer that is seconds away, and took no time."""

    async def main(pool):
        async with asyncio.timeout(60.0):
            return await way(pool)

    with virtual_time() as time, ThreadPoolExecutor(1) as pool:
        assert asyncio.run(main(pool)) == "done"
        assert time.elapsed == 0.0


def test_work_of_a_pool_is_done_before_time_jumps():
    """Also where nobody awaits it: a minute is longer than it takes."""

    async def main(pool):
        future = pool.submit(work)
        await asyncio.sleep(60.0)
        return future.done()

    with virtual_time(start=0.0) as time, ThreadPoolExecutor(1) as pool:
        assert asyncio.run(main(pool))
        assert time.elapsed == 60.0


def test_what_waits_in_the_queue_of_a_pool_is_work_too():
    """One thread, five steps: the last of them is waited for as the first is."""

    async def main(pool):
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60.0):
            await asyncio.gather(
                *(loop.run_in_executor(pool, real.sleep, LONG / 5) for _ in range(5))
            )

    with virtual_time() as time, ThreadPoolExecutor(1) as pool:
        asyncio.run(main(pool))
        assert time.elapsed == 0.0


def test_the_end_of_the_loops_own_pool_takes_no_time():
    """asyncio.run waits for its threads, with a timer of five minutes since 3.13."""

    async def main():
        step = asyncio.ensure_future(asyncio.to_thread(work))
        await asyncio.sleep(0)
        step.cancel()

    with virtual_time() as time:
        asyncio.run(main())
        assert time.elapsed == 0.0


def test_a_thread_that_is_late_is_late_in_virtual_time_too(blocked):
    """As much real time passes as the timer is away; then it is due."""

    async def main():
        async with asyncio.timeout(0.05):
            await asyncio.get_running_loop().run_in_executor(pool, blocked)

    with virtual_time(start=0.0) as time:
        pool = ThreadPoolExecutor(1)
        with pytest.raises(TimeoutError):
            asyncio.run(main())
        pool.shutdown(wait=False)
        assert time.elapsed == 0.05


def test_a_thread_that_never_ends_is_given_up(blocked, monkeypatch):
    """A test does not take an hour for a timer of an hour."""
    monkeypatch.setattr(threads, "STUCK", 0.05)

    async def main():
        async with asyncio.timeout(3600.0):
            await asyncio.get_running_loop().run_in_executor(pool, blocked)

    with virtual_time(start=0.0) as time:
        pool = ThreadPoolExecutor(1)
        with pytest.raises(TimeoutError):
            asyncio.run(main())
        pool.shutdown(wait=False)
        assert time.elapsed == 3600.0


def test_a_thread_that_nobody_waits_for_any_more_holds_nothing_up(blocked, monkeypatch):
    """An attempt was cut and its thread left behind: or the wait would take a real hour."""
    monkeypatch.setattr(threads, "STUCK", 3600.0)
    pool = ThreadPoolExecutor(2)
    steps = [blocked, lambda: "done"]

    async def attempt():
        return await asyncio.get_running_loop().run_in_executor(pool, steps.pop(0))

    policy = POLICY.replace(attempt_timeout=0.05, jitter=Jitter.none())
    with virtual_time(start=0.0) as time:
        assert asyncio.run(policy.acall(attempt)) == "done"
        assert time.elapsed == pytest.approx(3600.05)
    pool.shutdown(wait=False)


def test_a_thread_that_waits_for_the_loop_is_not_waited_for():
    """Or each would wait for the other, for an hour."""

    async def main():
        loop = asyncio.get_running_loop()

        def ask():
            return asyncio.run_coroutine_threadsafe(asyncio.sleep(3600.0, "slept"), loop).result(60)

        return await asyncio.to_thread(ask)

    with virtual_time(start=0.0) as time:
        assert asyncio.run(main()) == "slept"
        assert time.elapsed == 3600.0


def test_time_that_a_thread_moves_is_seen_by_the_loop():
    """A timer that has become due is not waited for in real time."""

    async def main(time):
        async with asyncio.timeout(1800.0):
            await asyncio.to_thread(lambda: [time.advance(3600.0), threading.Event().wait(0.1)])

    with virtual_time(start=0.0) as time:
        with pytest.raises(TimeoutError):
            asyncio.run(main(time))
        assert time.elapsed == 3600.0


def test_a_thread_of_trio_is_waited_for_however_long_it_takes():
    """As under asyncio, also several of them one after the other."""

    async def main():
        with trio.fail_after(60.0):
            return [await trio.to_thread.run_sync(work) for _ in range(3)]

    with virtual_time() as time:
        assert trio.run(main, clock=time.trio_clock()) == ["done"] * 3
        assert time.elapsed == 0.0


def test_a_thread_of_trio_that_is_late_or_left_behind_holds_nothing_up(blocked, monkeypatch):
    """It is late when its timer is due in real time, and then waited for no more."""
    monkeypatch.setattr(threads, "STUCK", 3600.0)

    async def main():
        with trio.move_on_after(0.05) as scope:
            await trio.to_thread.run_sync(blocked, abandon_on_cancel=True)
        await trio.sleep(3600.0)
        return scope.cancelled_caught

    with virtual_time(start=0.0) as time:
        assert trio.run(main, clock=time.trio_clock()) is True
        assert time.elapsed == pytest.approx(3600.05)
