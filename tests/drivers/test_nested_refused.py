"""`nested="refuse"` and effects, across tasks and threads: before a second attempt is made.

A stack ends where a task or a thread begins, so an attempt that refuses tells those that start
inside. The law of test_nested_laws.py has the trees; here are the ways to start them, and the ends.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import itertools
import sys
from types import SimpleNamespace

import pytest
import trio

from mainstay import Backoff, Engine, NestedRetryError, RetryPolicy
from mainstay.audit import AuditLog, replay_log
from mainstay.profiles.effects import effect
from mainstay.runtime.enclosing import OPEN, REFUSER
from mainstay.testing import virtual_time

INNER = RetryPolicy(name="i", retry_on=OSError, max_attempts=3, backoff=Backoff.constant(1.0))
STRICT = INNER.replace(max_attempts=4, nested="refuse")


@pytest.fixture
def leaf():
    """A retry of what always fails, with its calls: sync, and async."""
    calls = []

    @INNER
    def load():
        calls.append("load")
        raise ConnectionError("down")

    @INNER
    async def aload():
        calls.append("aload")
        raise ConnectionError("down")

    return SimpleNamespace(load=load, aload=aload, calls=calls)


async def _gather(leaf):
    await asyncio.gather(leaf.aload(), leaf.aload())


async def _create_task(leaf):
    await asyncio.create_task(leaf.aload())


async def _wait_for(leaf):
    await asyncio.wait_for(leaf.aload(), 60.0)


async def _group(leaf):
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(leaf.aload())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _to_thread(leaf):
    await asyncio.to_thread(leaf.load)


async def _swallowed(leaf):
    task = asyncio.create_task(leaf.aload())
    with contextlib.suppress(ConnectionError):
        await task


async def _in_a_task_of_a_task(leaf):
    await asyncio.create_task(_create_task(leaf))


STARTS = [_gather, _create_task, _wait_for, _group, _to_thread, _swallowed, _in_a_task_of_a_task]


def _by_decorator(work, policy):
    return policy(work)


def _by_call(work, policy):
    async def outer(leaf):
        await policy.acall(work, leaf)

    return outer


def _by_block(work, policy):
    async def outer(leaf):
        async for attempt in policy.attempts():
            with attempt:
                await work(leaf)

    return outer


def _bounded(work, policy):
    return policy.replace(deadline=600.0, attempt_timeout=300.0)(work)


def _keyed(work, policy):
    async def outer(leaf):
        with Engine(policies=[policy], default="i", store="memory://") as engine:

            @engine.idempotent(operation="outer", key=lambda: "k")
            async def keyed():
                await work(leaf)

            await keyed()

    return outer


WAYS = [_by_decorator, _by_call, _by_block, _bounded, _keyed]


@pytest.mark.req("EF-02")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("start", STARTS)
def test_a_retry_in_a_task_or_thread_is_refused_before_its_second_attempt(way, start, leaf):
    """However it is started and whatever becomes of its failure, by each way to make attempts."""
    with virtual_time(), pytest.raises(NestedRetryError, match="retries inside"):
        asyncio.run(way(start, STRICT)(leaf))
    assert set(leaf.calls) <= {"load", "aload"}
    assert len(leaf.calls) <= 2  # each of those that were started made one
    assert REFUSER.get() is None
    assert not OPEN


@pytest.mark.req("EF-02")
@pytest.mark.parametrize("start", STARTS)
def test_an_effect_refuses_a_retry_in_a_task_or_thread(start, leaf):
    """As one that runs on its own stack."""
    once = effect(kind="database")(start)
    with virtual_time(), pytest.raises(NestedRetryError):
        asyncio.run(once(leaf))
    assert len(leaf.calls) <= 2


def test_a_retry_of_a_trio_task_is_refused(leaf):
    """Each child of a nursery has the context of the code that starts it."""

    @STRICT
    async def outer():
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(leaf.aload)
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    with virtual_time(), pytest.raises(NestedRetryError):
        trio.run(outer)
    assert leaf.calls == ["aload"]


def test_later_attempts_refuse_too(leaf):
    """What the first attempt came to is another failure."""
    numbers = itertools.count(1)

    @STRICT
    async def outer():
        if next(numbers) < 3:
            raise ConnectionError("own")
        await _create_task(leaf)

    with virtual_time(), pytest.raises(NestedRetryError):
        asyncio.run(outer())
    assert leaf.calls == ["aload"]
    assert next(numbers) == 4


def test_a_sync_attempt_refuses_in_a_thread_that_copies_its_context(leaf):
    """A plain pool copies none (but on free-threaded Python): there the mark tells."""
    pool = concurrent.futures.ThreadPoolExecutor(1)

    @STRICT
    def copied():
        pool.submit(contextvars.copy_context().run, leaf.load).result()

    @STRICT
    def plain():
        with concurrent.futures.ThreadPoolExecutor(1) as own:
            own.submit(leaf.load).result()

    with pool, virtual_time():
        with pytest.raises(NestedRetryError):
            copied()
        assert len(leaf.calls) == 1
        with pytest.raises(NestedRetryError):
            plain()
    inherits = getattr(sys.flags, "thread_inherit_context", 0)
    assert len(leaf.calls) == 1 + (1 if inherits else 3)


def test_a_failure_that_the_outer_one_would_not_retry_is_not_refused(leaf):
    """And the next one further out decides for itself."""

    @STRICT.replace(retry_on=KeyError)
    async def other():
        await _create_task(leaf)

    with virtual_time(), pytest.raises(ConnectionError):
        asyncio.run(other())
    assert len(leaf.calls) == 3

    @STRICT
    async def outer():
        await asyncio.create_task(other())

    with virtual_time(), pytest.raises(NestedRetryError):
        asyncio.run(outer())
    assert len(leaf.calls) == 4


@pytest.mark.parametrize("way", [*WAYS, lambda work, _: effect(kind="http")(work)])
def test_a_task_that_outlives_the_attempt_keeps_its_retries(way, leaf):
    """Nothing repeats it any more."""
    started = []

    async def outer(_):
        started.append(asyncio.create_task(later()))

    async def later():
        await asyncio.sleep(5.0)
        await leaf.aload()

    async def main():
        await way(outer, STRICT)(leaf)
        (task,) = started
        with pytest.raises(ConnectionError):
            await task

    with virtual_time():
        asyncio.run(main())
    assert len(leaf.calls) == 3


@pytest.mark.parametrize("before", [0, 2])
def test_a_refusal_has_no_note_of_what_the_outer_policy_names(before, leaf):
    """No policy could name it: it is a mistake in the program."""
    numbers = itertools.count()

    @STRICT
    def outer():
        if next(numbers) < before:
            raise ConnectionError("own")
        leaf.load()

    with virtual_time(), pytest.raises(NestedRetryError) as refused:
        outer()
    assert "is not named by" not in "".join(getattr(refused.value, "__notes__", []))


def test_a_hook_and_what_follows_the_call_keep_their_retries(leaf):
    """They run beside the attempts."""

    async def hook(_):
        with contextlib.suppress(ConnectionError):
            await asyncio.create_task(leaf.aload())

    async def main():
        with pytest.raises(ConnectionError):
            await STRICT.replace(max_attempts=2, before_retry=hook)(failing)()
        assert len(leaf.calls) == 3
        with pytest.raises(ConnectionError):
            await asyncio.create_task(leaf.aload())

    async def failing():
        raise ConnectionError("own")

    with virtual_time():
        asyncio.run(main())
    assert len(leaf.calls) == 6


def test_a_hook_of_a_keyed_call_keeps_its_retries(leaf):
    """The call itself is no attempt."""

    async def hook(_):
        with contextlib.suppress(ConnectionError):
            await asyncio.create_task(leaf.aload())

    async def failing(_):
        raise ConnectionError("own")

    keyed = _keyed(failing, STRICT.replace(max_attempts=2, before_retry=hook))
    with virtual_time(), pytest.raises(ConnectionError):
        asyncio.run(keyed(leaf))
    assert len(leaf.calls) == 3


def test_a_block_in_a_generator_refuses_nothing_to_its_consumer(leaf):
    """The two share a context, and what the consumer does is not repeated."""

    def rows():
        for attempt in STRICT.attempts():
            with attempt:
                yield "row"

    with virtual_time():
        for _ in rows():
            with pytest.raises(ConnectionError):
                leaf.load()
    assert len(leaf.calls) == 3


def test_a_refusal_of_a_task_is_replayed(tmp_path, leaf):
    """The record has the answer that one on the same stack has."""
    log = tmp_path / "audit.jsonl"
    with virtual_time(), Engine(policies=[INNER], default="i", sinks=[AuditLog(log)]) as engine:
        inner = engine.protect("inner")(leaf.load)

        @STRICT
        async def outer():
            await asyncio.to_thread(inner)

        with pytest.raises(NestedRetryError):
            asyncio.run(outer())
    report = replay_log(log)
    assert (report.ok, report.calls) == (True, 1)
    assert b"outer" in log.read_bytes()
