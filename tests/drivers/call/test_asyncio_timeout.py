"""A cut attempt ends as it would under asyncio.timeout(), in every scenario we could think of."""

import asyncio
import contextlib
import inspect
import sys

import pytest

from mainstay import AttemptTimeout, Backoff, Engine, Jitter, RetryPolicy
from mainstay.testing import Trace, virtual_time

POLICY = RetryPolicy(
    name="op",
    retry_on=ConnectionError,
    never_retry_on=AttemptTimeout,
    max_attempts=2,
    backoff=Backoff.constant(0),
    jitter=Jitter.none(),
)


# --- ways of limiting a function to some seconds --------------------------------------------------


async def by_asyncio(seconds, function):
    """What the standard library does."""
    async with asyncio.timeout(seconds):
        return await function()


async def by_first_attempt(seconds, function):
    """A first attempt: the shared lane."""

    @POLICY.replace(attempt_timeout=seconds)
    async def first():
        return await function()

    return await first()


async def by_retry(seconds, function):
    """A second attempt: a timer of its own."""
    failed = False

    class FirstAttempt(Exception):
        """Retried here, and by nobody around."""

    @POLICY.replace(attempt_timeout=seconds, retry_on=FirstAttempt)
    async def second():
        nonlocal failed
        if not failed:
            failed = True
            raise FirstAttempt
        return await function()

    return await second()


async def by_deadline(seconds, function):
    """A deadline in place of an attempt's timeout."""

    @POLICY.replace(deadline=seconds)
    async def bounded():
        return await function()

    return await bounded()


async def by_call(seconds, function):
    return await POLICY.replace(attempt_timeout=seconds).acall(function)


async def by_operation(seconds, function):
    """With a listener, the whole call goes through the driver."""
    policy = POLICY.replace(attempt_timeout=seconds)
    return await Engine(policies=[policy], sinks=[Trace()]).acall("op", function)


async def by_block(seconds, function):
    async for attempt in POLICY.replace(attempt_timeout=seconds).attempts():
        with attempt:
            return await function()
    raise AssertionError("the last attempt returns or raises")


async def by_result(seconds, function):
    result = await POLICY.replace(attempt_timeout=seconds).arun(function)
    if result.last_exception is not None:
        raise result.last_exception
    return result.value


OURS = [
    by_first_attempt,
    by_retry,
    by_deadline,
    by_call,
    by_operation,
    by_block,
    by_result,
]


# --- scenarios: each is given a way, and what it ends with is compared ----------------------------


async def sleep_for(seconds, value="done"):
    await asyncio.sleep(seconds)
    return value


def sleeps(seconds):
    return lambda: sleep_for(seconds)


def later(seconds, function):
    asyncio.get_running_loop().call_later(seconds, function)


def me():
    return asyncio.current_task()


async def ends_in_time(limited):
    return await limited(1.0, sleeps(0.5))


async def is_cut(limited):
    return await limited(1.0, sleeps(5.0))


async def ends_at_that_very_moment(limited):
    return await limited(1.0, sleeps(1.0))


async def fails_by_itself(limited):
    async def function():
        await asyncio.sleep(0.5)
        raise LookupError

    return await limited(1.0, function)


async def fails_with_a_timeout_of_its_own(limited):
    async def function():
        await asyncio.sleep(0.5)
        raise TimeoutError("its own")

    return await limited(1.0, function)


async def is_cancelled_before(limited):
    later(0.5, me().cancel)
    return await limited(1.0, sleeps(5.0))


async def is_cancelled_twice_before(limited):
    later(0.5, me().cancel)
    later(0.5, me().cancel)
    return await limited(1.0, sleeps(5.0))


async def is_cancelled_in_the_same_tick_first(limited):
    later(1.0, me().cancel)
    return await limited(1.0, sleeps(5.0))


async def is_cancelled_in_the_same_tick_second(limited):
    async def function():
        later(1.0, me().cancel)
        await asyncio.sleep(5.0)

    return await limited(1.0, function)


async def is_cancelled_afterwards(limited):
    async def function():
        try:
            await asyncio.sleep(5.0)
        finally:
            await asyncio.sleep(1.0)  # cleans up; the cancellation comes meanwhile

    later(1.5, me().cancel)
    return await limited(1.0, function)


async def is_cancelled_already(limited):
    me().cancel()
    return await limited(1.0, sleeps(5.0))


async def was_cancelled_and_went_on(limited):
    me().cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(1.0)
    return await limited(1.0, sleeps(5.0))


async def swallows_the_cancellation(limited):
    async def function():
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            return "swallowed"

    return await limited(1.0, function)


async def swallows_it_and_goes_on(limited):
    async def function():
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            await asyncio.sleep(3.0)
            return "late"

    return await limited(1.0, function)


async def swallows_it_and_is_cancelled(limited):
    async def function():
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            await asyncio.sleep(3.0)

    later(2.0, me().cancel)
    return await limited(1.0, function)


async def raises_another_error_when_cut(limited):
    async def function():
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            raise LookupError from None

    return await limited(1.0, function)


async def cleans_up_for_long(limited):
    async def function():
        try:
            await asyncio.sleep(5.0)
        finally:
            await asyncio.sleep(2.0)

    return await limited(1.0, function)


async def raises_a_cancellation_of_its_own(limited):
    async def function():
        raise asyncio.CancelledError("mine")

    return await limited(1.0, function)


async def awaits_a_task_that_was_cancelled(limited):
    async def function():
        task = asyncio.ensure_future(asyncio.sleep(5.0))
        later(0.5, task.cancel)
        await task

    return await limited(1.0, function)


async def blocks_past_its_time(limited):
    async def function():
        asyncio.get_running_loop().slow(3.0)
        return "blocked"

    return await limited(1.0, function)


async def blocks_past_its_time_and_awaits(limited):
    async def function():
        asyncio.get_running_loop().slow(3.0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "blocked"

    return await limited(1.0, function)


async def nested_outer_first(limited):
    return await limited(1.0, lambda: limited(2.0, sleeps(5.0)))


async def nested_inner_first(limited):
    return await limited(2.0, lambda: limited(1.0, sleeps(5.0)))


async def nested_inner_first_and_caught(limited):
    async def function():
        try:
            await limited(1.0, sleeps(5.0))
        except TimeoutError:
            await asyncio.sleep(0.5)
            return "second best"

    return await limited(2.0, function)


async def nested_inner_first_and_caught_too_late(limited):
    async def function():
        try:
            await limited(1.0, sleeps(5.0))
        except TimeoutError:
            await asyncio.sleep(5.0)

    return await limited(2.0, function)


async def nested_in_three(limited):
    return await limited(3.0, lambda: limited(2.0, lambda: limited(1.0, sleeps(5.0))))


async def one_after_the_other(limited):
    found = []
    for _ in range(3):
        try:
            await limited(1.0, sleeps(5.0))
        except TimeoutError:
            found.append(me().cancelling())
    return found


async def asyncio_timeout_around_first(limited):
    async with asyncio.timeout(1.0):
        return await limited(2.0, sleeps(5.0))


async def asyncio_timeout_around_second(limited):
    async with asyncio.timeout(2.0):
        return await limited(1.0, sleeps(5.0))


async def asyncio_timeout_around_at_once(limited):
    async with asyncio.timeout(1.0):
        return await limited(1.0, sleeps(5.0))


async def asyncio_timeout_inside_first(limited):
    async def function():
        async with asyncio.timeout(1.0):
            await asyncio.sleep(5.0)

    return await limited(2.0, function)


async def asyncio_timeout_inside_second(limited):
    async def function():
        async with asyncio.timeout(2.0):
            await asyncio.sleep(5.0)

    return await limited(1.0, function)


async def wait_for_around(limited):
    return await asyncio.wait_for(limited(2.0, sleeps(5.0)), 1.0)


async def wait_for_inside(limited):
    return await limited(1.0, lambda: asyncio.wait_for(sleep_for(5.0), 2.0))


async def a_sibling_in_a_task_group_fails(limited):
    async def sibling():
        await asyncio.sleep(0.5)
        raise LookupError

    async with asyncio.TaskGroup() as group:
        group.create_task(sibling())
        await limited(1.0, sleeps(5.0))


async def a_member_of_a_task_group_is_cut(limited):
    async with asyncio.TaskGroup() as group:
        group.create_task(limited(1.0, sleeps(5.0)))
        await asyncio.sleep(9.0)


async def a_task_group_inside_is_cut(limited):
    ended = []

    async def child():
        try:
            await asyncio.sleep(5.0)
        finally:
            ended.append("child")

    async def function():
        async with asyncio.TaskGroup() as group:
            group.create_task(child())
            group.create_task(child())

    try:
        await limited(1.0, function)
    except TimeoutError:
        return ended


async def a_task_group_inside_fails_when_cut(limited):
    async def child():
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            raise LookupError from None

    async def function():
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    return await limited(1.0, function)


async def gather_inside(limited):
    async def function():
        return await asyncio.gather(sleep_for(0.5), sleep_for(5.0))

    return await limited(1.0, function)


async def gather_around(limited):
    found = await asyncio.gather(
        limited(1.0, sleeps(5.0)),
        limited(1.0, sleeps(0.5)),
        limited(0.5, sleeps(5.0)),
        return_exceptions=True,
    )
    return [shown(each) for each in found]


async def shield_inside(limited):
    task = asyncio.ensure_future(sleep_for(2.0, "shielded"))
    try:
        await limited(1.0, lambda: asyncio.shield(task))
    except TimeoutError:
        return await task


async def an_async_generator_inside(limited):
    closed = []

    async def numbers():
        try:
            while True:
                yield 1
                await asyncio.sleep(0.4)
        finally:
            closed.append(1)

    async def function():
        async for _ in numbers():
            pass

    try:
        await limited(1.0, function)
    except TimeoutError:
        return closed


async def takes_the_cancellation_back_itself(limited):
    async def function():
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            me().uncancel()
            raise

    return await limited(1.0, function)


def scenarios():
    here = sys.modules[__name__]
    functions = [each for each in vars(here).values() if inspect.isfunction(each)]
    named = [each for each in functions if list(inspect.signature(each).parameters) == ["limited"]]
    return [each for each in named if inspect.iscoroutinefunction(each)]


def shown(outcome):
    """An outcome without what may differ: our timeout is a TimeoutError, groups are sorted."""
    if isinstance(outcome, BaseExceptionGroup):
        return type(outcome).__name__, sorted(map(str, map(shown, outcome.exceptions)))
    if isinstance(outcome, TimeoutError):
        return TimeoutError
    return type(outcome) if isinstance(outcome, BaseException) else outcome


def play(scenario, limited):
    """What a scenario ends with: outcome, time, and what the task is left with."""
    with virtual_time() as time:

        async def main():
            loop = asyncio.get_running_loop()
            loop.slow = time.advance
            started = loop.time()
            left = {}

            async def body():
                try:
                    return await scenario(limited)
                except BaseException as error:
                    left["kind"] = shown(error)
                    raise
                finally:
                    left["cancelling"] = me().cancelling()
                    left["at"] = round(loop.time() - started, 6)

            task = asyncio.create_task(body())
            await asyncio.wait([task])
            await asyncio.sleep(100.0)  # a stray timer would show
            assert asyncio.all_tasks() == {me()}
            ended = "cancelled" if task.cancelled() else shown(task.exception() or task.result())
            return ended, left

        return asyncio.run(main())


@pytest.mark.req("FR-041-35", "NFR-041-17")
@pytest.mark.parametrize("limited", OURS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.__name__)
def test_a_cut_attempt_ends_as_under_asyncio_timeout(scenario, limited):
    """Outcome, moment and cancellation count are those of asyncio.timeout(), in each scenario."""
    assert play(scenario, limited) == play(scenario, by_asyncio)


def test_the_scenarios_are_found():
    """The comparison covers more than the fifteen scenarios it was measured with."""
    assert len(scenarios()) >= 35


@pytest.mark.parametrize("limited", OURS, ids=lambda way: way.__name__)
def test_where_two_limits_expire_together_the_call_still_ends(limited):
    """Nested with the same limit: one timeout, and the task is left uncancelled."""

    async def nested_at_once(way):
        return await way(1.0, lambda: way(1.0, sleeps(5.0)))

    ended, left = play(nested_at_once, limited)
    assert ended is TimeoutError
    assert left == {"kind": TimeoutError, "cancelling": 0, "at": 1.0}
