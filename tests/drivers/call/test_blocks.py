"""Blocks and results: `policy.attempts()`, `policy.run()`, and what both promise."""

import asyncio

import pytest
import trio

from mainstay import (
    AttemptTimeout,
    Backoff,
    Engine,
    Jitter,
    ResultRejected,
    RetryPolicy,
    UsageError,
)
from mainstay.testing import takes, virtual_time

POLICY = RetryPolicy(
    name="op",
    retry_on=OSError,
    max_attempts=3,
    backoff=Backoff.constant(1.0),
    jitter=Jitter.none(),
)


# --- blocks ---------------------------------------------------------------------------------------


@pytest.mark.req("FR-041-24", "FR-041-28", "AC-012", "AC-015", "UT-041-09")
def test_attempts_are_counted_from_one(driver):
    """The number of the attempt is in the block's hand, and so is whether it is the last."""
    seen = []

    def plain():
        for attempt in POLICY.attempts():
            with attempt:
                seen.append((attempt.number, attempt.is_last))
                raise ConnectionError(str(attempt.number))

    async def coloured():
        async for attempt in POLICY.attempts():
            with attempt:
                seen.append((attempt.number, attempt.is_last))
                raise ConnectionError(str(attempt.number))

    with pytest.raises(ConnectionError, match="3"):
        driver.run(coloured if driver.is_async else plain)
    assert seen == [(1, False), (2, False), (3, True)]
    assert driver.time.elapsed == 2.0


def test_a_block_may_be_left_by_return_break_and_continue(driver):
    """Each of them ends an attempt that did not fail: the loop is over."""
    ways = []

    def plain(way):
        for attempt in POLICY.attempts():
            with attempt:
                ways.append(way)
                if way == "return":
                    return way
                if way == "break":
                    break
                continue
        return way

    async def coloured(way):
        async for attempt in POLICY.attempts():
            with attempt:
                ways.append(way)
                if way == "return":
                    return way
                if way == "break":
                    break
                continue
        return way

    for way in ("return", "break", "continue"):
        assert driver.run(coloured if driver.is_async else plain, way) == way
    assert ways == ["return", "break", "continue"]


def test_an_attempt_that_is_not_used_is_an_error(driver):
    """Forgetting `with attempt:` would retry nothing: it is said at the second round."""

    def plain():
        for _ in POLICY.attempts():
            pass

    async def coloured():
        async for _ in POLICY.attempts():
            pass

    with pytest.raises(UsageError, match="with attempt"):
        driver.run(coloured if driver.is_async else plain)


def test_a_loop_may_be_iterated_on_after_it_has_ended(driver):
    """Nothing comes any more, and nothing breaks."""

    def plain():
        attempts = POLICY.attempts()
        for attempt in attempts:
            with attempt:
                pass
        return list(attempts)

    async def coloured():
        attempts = POLICY.attempts()
        async for attempt in attempts:
            with attempt:
                pass
        return [attempt async for attempt in attempts]

    assert driver.run(coloured if driver.is_async else plain) == []


def test_a_block_inside_a_generator_belongs_to_the_generator():
    """While the generator is suspended in its block, its consumer is not inside it."""
    from mainstay import deadline

    seen = []

    def numbers():
        for attempt in POLICY.replace(deadline=5.0).attempts():
            with attempt:
                seen.append(deadline.remaining() is None)
                yield 1
                seen.append(deadline.remaining() is None)

    for number in numbers():
        assert number == 1
        seen.append(deadline.remaining() is None)
    assert seen == [False, True, False]


@pytest.mark.req("NFR-041-16")
@pytest.mark.parametrize("attempts", [1, 2])
def test_a_block_that_is_cut_in_its_last_attempt_raises_the_timeout(async_driver, attempts):
    """Not the cancellation that cut it: that was ours."""

    async def coloured():
        sleep = asyncio.sleep if async_driver.name == "asyncio" else trio.sleep
        async for attempt in POLICY.replace(attempt_timeout=2.0, max_attempts=attempts).attempts():
            with attempt:
                await sleep(50.0)

    with pytest.raises(AttemptTimeout):
        async_driver.run(coloured)
    assert async_driver.time.elapsed == 2.0 * attempts + (attempts - 1)


@pytest.mark.parametrize("way", ["acall", "block"])
def test_what_fails_beside_a_cut_attempt_is_not_lost(way):
    """A nursery that is cut while a child fails ends in that failure, and is retried for it."""
    calls = []

    async def child():
        try:
            await trio.sleep(50.0)
        except trio.Cancelled:
            raise ConnectionError("in the child") from None

    async def function():
        calls.append(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
            nursery.start_soon(trio.sleep, 50.0)

    chosen = POLICY.replace(attempt_timeout=2.0)

    async def main():
        if way == "acall":
            await chosen.acall(function)
        else:
            async for attempt in chosen.attempts():
                with attempt:
                    await function()

    with virtual_time() as time, pytest.raises(ExceptionGroup) as caught:
        trio.run(main, clock=time.trio_clock())
    assert caught.group_contains(ConnectionError, match="in the child")
    assert len(calls) == 3


# --- results --------------------------------------------------------------------------------------


@pytest.mark.req("CL-09")
def test_a_result_tells_everything(driver):
    """success, attempts, last_exception, total_time_ms, value, and the two questions."""
    result = driver.result(POLICY, driver.scripted(takes(0.5, OSError()), takes(0.25, "ok")))
    assert result.success is True
    assert result.attempts == 2
    assert result.last_exception is None
    assert result.value == "ok"
    assert result.total_time_ms == pytest.approx(1750.0)
    assert result.succeeded_on_first_attempt is False
    assert result.failed_after_retries is False
    for part in ("success=True", "attempts=2", "value='ok'"):
        assert part in repr(result)


@pytest.mark.req("CL-09", "UVS-1", "AC-012")
@pytest.mark.parametrize(
    ("steps", "success", "attempts", "first", "after"),
    [
        (["ok"], True, 1, True, False),
        ([None], True, 1, True, False),
        ([OSError, "ok"], True, 2, False, False),
        ([OSError] * 3, False, 3, False, True),
        ([ValueError], False, 1, False, False),
        ([OSError, ValueError], False, 2, False, True),
    ],
)
def test_a_result_never_raises_for_a_failed_call(driver, steps, success, attempts, first, after):
    """`run` answers; what went wrong is in `last_exception`."""
    result = driver.result(POLICY, driver.scripted(*steps))
    assert (result.success, result.attempts) == (success, attempts)
    assert (result.succeeded_on_first_attempt, result.failed_after_retries) == (first, after)
    assert (result.last_exception is None) is success
    if not success:
        assert type(result.last_exception) is steps[-1]
        assert result.value is None


@pytest.mark.req("CL-09")
def test_a_result_that_was_never_accepted_is_no_success(driver):
    """retry_if_result to the end: the last value is there, and success is False."""
    chosen = POLICY.replace(retry_if_result=lambda value: value == "bad")
    result = driver.result(chosen, driver.scripted("bad", "bad", "bad"))
    assert (result.success, result.attempts, result.value) == (False, 3, "bad")
    assert result.last_exception is None
    assert result.failed_after_retries is True


def test_a_result_that_was_never_accepted_may_be_raised(driver):
    """By call, block and decorator, in every colour: ResultRejected, with the last result."""
    chosen = POLICY.replace(retry_if_result=lambda value: value == "bad", on_exhausted="raise")
    with pytest.raises(ResultRejected) as caught:
        driver.call(chosen, driver.scripted("bad", "bad", "bad"))
    assert (caught.value.attempts, caught.value.result) == (3, "bad")
    result = driver.result(chosen, driver.scripted("bad", "bad", "bad"))
    assert (result.success, result.attempts, result.value) == (False, 3, None)
    assert type(result.last_exception) is ResultRejected


def test_a_block_raises_the_result_that_was_never_accepted():
    """The loop ends with the error, and the result is on it."""
    chosen = POLICY.replace(retry_if_result=lambda value: value < 9, on_exhausted="raise")
    with pytest.raises(ResultRejected) as caught:
        for attempt in chosen.attempts():
            with attempt:
                attempt.set_result(attempt.number)
    assert (caught.value.attempts, caught.value.result) == (3, 3)


@pytest.mark.req("FR-041-29", "FR-041-30", "AC-016", "UT-041-10", "UVS-2")
@pytest.mark.parametrize("attempts", [1, 2, 3, 7, 50])
def test_the_last_attempt_is_the_last(driver, attempts):
    """max_attempts calls are made, not one more, and the last error is raised with a note."""
    errors = [ConnectionError(str(n)) for n in range(1, attempts + 1)]
    function = driver.scripted(*errors)
    with pytest.raises(ConnectionError) as caught:
        driver.call(POLICY.replace(max_attempts=attempts), function)
    assert caught.value is errors[-1]
    assert len(function.script.calls) == attempts
    notes = getattr(caught.value, "__notes__", [])
    assert len(notes) == (attempts > 1)
    assert all(f"after {attempts} attempts" in note for note in notes)


@pytest.mark.req("FR-041-23", "AC-011", "UT-041-08")
def test_arguments_are_the_same_in_every_attempt(driver):
    """Each attempt gets the very objects that the call was given."""
    function = driver.scripted(OSError, OSError, "ok")
    one, two = object(), object()
    for verbs in (POLICY, Engine(policies=[POLICY], sinks=[]).operation("op")):
        function = driver.scripted(OSError, OSError, "ok")
        if driver.is_async:

            async def main(verbs=verbs, function=function):
                return await verbs.acall(function, one, key=two)

            driver.run(main)
        else:
            verbs.call(function, one, key=two)
        assert function.script.calls == [((one,), {"key": two})] * 3
