"""Following single calls: told as each attempt begins and ends, in every colour."""

import asyncio
import contextvars
import threading

import pytest
import trio

import mainstay
from mainstay import Backoff, CallCancelled, CircuitBreaker, CircuitOpenError, Engine, RetryPolicy
from mainstay.drivers.call.call import Call
from mainstay.drivers.call.wrap import path_of
from mainstay.testing import scripted, virtual_time

POLICY = RetryPolicy(name="quick", retry_on=OSError, backoff=Backoff.constant(1.0))
INSIDE = contextvars.ContextVar("inside", default=0)


class Following:
    """A listener whose followers write down all they are told; an attempt sees its number."""

    hears_successes = False

    def __init__(self):
        self.told = []
        self.stray = []

    def __call__(self, event):
        self.stray.append(event.event_type)

    def follow(self, plan):
        self.told.append(("call", plan.operation))
        return Follower(self.told)


class Follower:
    def __init__(self, told):
        self.told = told
        self.token = None

    def __call__(self, event):
        self.told.append(event.event_type)

    def attempt_began(self, number):
        self.told.append(("began", number))
        self.token = INSIDE.set(number)

    def attempt_ended(self, outcome):
        self.told.append(("ended", type(outcome).__name__))
        INSIDE.reset(self.token)
        self.token = None

    def call_ended(self):
        self.told.append("over")
        if self.token is not None:
            INSIDE.reset(self.token)


def failing_twice():
    """A function that fails twice, and what each attempt saw."""
    seen = []

    def work():
        seen.append(INSIDE.get())
        if len(seen) < 3:
            raise ConnectionError("down")
        return "done"

    return work, seen


TWICE = [
    ("call", "work"),
    ("began", 1), ("ended", "ConnectionError"), "attempt_failed", "retry_attempt",
    ("began", 2), ("ended", "ConnectionError"), "attempt_failed", "retry_attempt",
    ("began", 3), ("ended", "Returned"), "call_succeeded",
    "over",
]  # fmt: skip


def decorated(work, following, **options):
    with virtual_time():
        return mainstay.retry(policy=POLICY.replace(**options), listener=following)(work)()


def by_engine(work, following, **options):
    policy = POLICY.replace(**options)
    with virtual_time(), Engine(policies=[policy], default="quick", sinks=[following]) as engine:
        return engine.call("work", work)


def in_asyncio(work, following, **options):
    @mainstay.retry(policy=POLICY.replace(**options), listener=following)
    async def awork():
        await asyncio.sleep(0)
        return work()

    with virtual_time():
        return asyncio.run(awork())


def in_trio(work, following, **options):
    @mainstay.retry(policy=POLICY.replace(**options), listener=following)
    async def awork():
        await trio.lowlevel.checkpoint()
        return work()

    with virtual_time() as time:
        return trio.run(awork, clock=time.trio_clock())


def in_a_block(work, following, **options):
    policy = POLICY.replace(**options)
    with virtual_time(), Engine(policies=[policy], default="quick", sinks=[following]) as engine:
        for attempt in engine.operation("work").attempts():
            with attempt:
                value = work()
        return value


def in_an_async_block(work, following, **options):
    policy = POLICY.replace(**options)

    async def main():
        with Engine(policies=[policy], default="quick", sinks=[following]) as engine:
            async for attempt in engine.operation("work").attempts():
                with attempt:
                    value = work()
            return value

    with virtual_time():
        return asyncio.run(main())


def with_a_key(work, following, **options):
    policy = POLICY.replace(**options)
    with virtual_time(), Engine(policies=[policy], default="quick", sinks=[following]) as engine:
        return engine.operation("work", key="k").call(work)


WAYS = [decorated, by_engine, in_asyncio, in_trio, in_a_block, in_an_async_block, with_a_key]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("options", [{}, {"attempt_timeout": 5.0}, {"deadline": 50.0}], ids=str)
def test_attempts_are_told_as_they_begin_and_end(way, options):
    """In order with the events, and what is set when one begins is there inside it alone."""
    work, seen = failing_twice()
    following = Following()
    assert way(work, following, **options) == "done"
    told = [("call", "work") if each[:1] == ("call",) else each for each in following.told]
    assert told == TWICE
    assert seen == [1, 2, 3]
    assert INSIDE.get() == 0
    assert [each for each in following.stray if each != "idempotency"] == []


def test_an_attempt_in_a_worker_thread_sees_what_was_set_for_it():
    """The thread runs in a copy of the context that the follower has prepared."""
    work, seen = failing_twice()
    threads = []

    def watched():
        threads.append(threading.current_thread())
        return work()

    following = Following()
    policy = POLICY.replace(attempt_timeout=30.0, timeout_by="thread")
    assert (
        mainstay.retry(policy=policy.replace(backoff=Backoff.constant(0)), listener=following)(
            watched
        )()
        == "done"
    )
    assert seen == [1, 2, 3]
    assert threading.main_thread() not in threads


def test_a_call_that_is_cut_off_is_over():
    """Ctrl+C in the second attempt: no end of the attempt, but one of the call."""
    following = Following()

    def work():
        if INSIDE.get() == 2:
            raise KeyboardInterrupt
        raise ConnectionError("down")

    with pytest.raises(KeyboardInterrupt):
        decorated(work, following)
    assert following.told[-3:] == [("began", 2), "call_interrupted", "over"]
    assert INSIDE.get() == 0


def test_a_cancelled_task_is_over():
    """The same in asyncio, where the context is the task's."""
    following = Following()

    @mainstay.retry(policy=POLICY, listener=following)
    async def work():
        await asyncio.sleep(3600)

    async def main():
        task = asyncio.ensure_future(work())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with virtual_time():
        asyncio.run(main())
    assert following.told[1:] == [("began", 1), "call_interrupted", "over"]


def test_a_refused_call_has_no_attempt():
    """Nothing began, so nothing ended."""
    following = Following()
    breaker = CircuitBreaker("shut")
    breaker.force_open()
    work = scripted("never")
    with pytest.raises(CircuitOpenError):
        mainstay.retry(policy=POLICY, breaker=breaker, listener=following)(work)()
    assert following.told == [("call", "scripted.scripted_call"), "call_refused", "over"]


def test_a_wait_that_is_cancelled_ends_the_call():
    """Between two attempts there is none to end."""
    following, cancel = Following(), threading.Event()

    def work():
        cancel.set()
        raise ConnectionError("down")

    with mainstay.context(cancel=cancel), pytest.raises(CallCancelled):
        decorated(work, following)
    assert following.told[-3:] == ["retry_attempt", "call_interrupted", "over"]


class Broken:
    """Fails at whatever it is asked."""

    def __init__(self, at):
        self.at = at

    def __call__(self, event):
        pass

    def follow(self, plan):
        if self.at == "follow":
            raise RuntimeError("no exporter")
        return self

    def __getattr__(self, name):
        if name not in ("attempt_began", "attempt_ended", "call_ended"):
            raise AttributeError(name)

        def method(*_):
            if name == self.at:
                raise RuntimeError("no exporter")

        return method


@pytest.mark.parametrize("at", ["follow", "attempt_began", "attempt_ended", "call_ended"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_one_that_raises_changes_nothing(at, way, caplog):
    """It is reported, and the call ends as it would have."""
    work, _ = failing_twice()
    assert way(work, Broken(at)) == "done"
    assert f"a listener raised on {at}" in caplog.text


def test_who_asks_for_no_following_pays_for_none():
    """The wrapper is the same short one, and a failing call looks once."""

    def quiet(event):
        pass

    quiet.hears_successes = False
    site = Engine(sinks=[quiet]).operation("a")._site
    assert site.follows is False
    assert path_of(site, awaits=False) == ("first",)
    call = Call(site, int)
    assert call.followers == ()
    followed = Engine(sinks=[Following()]).operation("a")._site
    assert followed.follows is True
    assert path_of(followed, awaits=False) == ("whole",)


def test_two_calls_at_once_are_followed_apart():
    """Each call has a follower of its own, and so have calls inside attempts."""
    following = Following()
    inner = mainstay.retry(policy=POLICY, listener=following)(scripted("in"))

    @mainstay.retry(policy=POLICY, listener=following)
    def outer():
        return inner(), INSIDE.get()

    assert outer() == ("in", 1)
    assert [each for each in following.told if each == "over"] == ["over"] * 2
    assert INSIDE.get() == 0
