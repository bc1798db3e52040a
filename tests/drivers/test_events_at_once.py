"""Events on the fast path: those of the flow, and only those that a listener wants."""

import asyncio
import logging
import threading
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mainstay
from mainstay import Backoff, Engine, Jitter, RetryPolicy, retry
from mainstay.core.events.codec import encode
from mainstay.errors import SinkError
from mainstay.ports import SinkWants
from mainstay.runtime.enclosing import attempt_around, enclosures
from mainstay.runtime.reports.logs import LEVELS
from mainstay.sinks.logging import LoggingSink
from mainstay.testing import scripted, virtual_time
from tests.costs import costs


class Coded(Exception):
    """Its attributes decide."""

    def __init__(self, status):
        super().__init__(f"status {status}: \N{SNOWMAN}")
        self.status_code = status


class Slow(Exception):
    """It asks for a wait."""

    retry_after = 0.7


class Mute(ConnectionError):
    """It has no text."""

    def __str__(self):
        raise RuntimeError("no text")


FAILURES = [
    lambda: ConnectionError("password=hunter2"),
    lambda: OSError(104, "reset"),
    lambda: OSError("no number"),
    lambda: ValueError("\udcff stray"),
    lambda: Coded(503),
    lambda: Coded(401),
    lambda: Slow("slow"),
    Mute,
    KeyboardInterrupt,
]
OUTCOMES = st.lists(st.integers(-1, len(FAILURES) - 1), min_size=1, max_size=12)
POLICIES = st.builds(
    lambda attempts, level, on: RetryPolicy(
        name="standard", max_attempts=attempts, log_level=level, retry_on=on,
        backoff=Backoff.exponential(0.1), jitter=Jitter.full(),
    ),
    st.integers(1, 3),
    st.sampled_from(sorted(LEVELS)),
    st.sampled_from([None, (OSError, Coded, Slow), (Exception,)]),
)  # fmt: skip


def called(policy, outcomes, sinks, *, cancel, awaits=False):
    """Makes calls until the outcomes are used up; with a cancel event all of it is flow."""
    with virtual_time(start=1000.0) as time, Engine(sinks=sinks, policies=[policy], seed=3) as made:
        left = list(reversed(outcomes))
        operation = made.operation("op", cancel=cancel)

        def attempt():
            time.advance(0.03)
            which = left.pop() if left else -1
            if which >= 0:
                failure = FAILURES[which]()
                raise failure

        async def attempt_async():
            attempt()

        with mainstay.context(tenant_id="t", category="C"):
            while left:
                try:
                    if awaits:
                        asyncio.run(operation.acall(attempt_async))
                    else:
                        operation.call(attempt)
                except (Exception, KeyboardInterrupt):
                    time.advance(0.5)


@pytest.mark.parametrize("awaits", [False, True], ids=["sync", "asyncio"])
@settings(max_examples=50, deadline=None)
@given(policy=POLICIES, outcomes=OUTCOMES, successes=st.booleans())
def test_the_fast_path_emits_the_events_of_the_flow(awaits, policy, outcomes, successes):
    """To the byte, also for errors whose attributes decide, and for calls that succeed at once."""
    if awaits:
        outcomes = [which for which in outcomes if which != len(FAILURES) - 1] or [0]

    def heard(cancel):
        events = []

        class Hearer:
            wants = SinkWants(successes=successes)

            def __call__(self, event):
                events.append(encode(event))

        called(policy, outcomes, [Hearer()], cancel=cancel, awaits=awaits)
        return events

    assert heard(None) == heard(threading.Event())


@settings(max_examples=50, deadline=None)
@given(policy=POLICIES, outcomes=OUTCOMES, level=st.sampled_from([*LEVELS.values(), 60]))
def test_a_log_has_the_records_of_the_flow_at_every_level(policy, outcomes, level):
    """An event that is not made is one that no record would have come of."""

    def logged(cancel):
        records = []
        logger = logging.Logger("own", level)  # noqa: LOG001 -- of this test alone
        handler = logging.Handler()
        handler.emit = lambda record: records.append((record.levelno, record.getMessage()))
        logger.addHandler(handler)
        called(policy, outcomes, [LoggingSink(logger)], cancel=cancel)
        return records

    assert logged(None) == logged(threading.Event())


def test_a_taker_of_facts_and_a_log_each_receive_their_own():
    """The audit log keeps its facts although a log beside it is written at once."""
    facts, records = [], []

    class Taker:
        wants = SinkWants(successes=False, evidence=True, facts=True)

        def __call__(self, event):
            records.append("an event for the taker")

        def take(self, what):
            facts.append([event.event_type for event in what.events()])

    def hear(event):
        records.append(event.event_type)

    hear.wants = SinkWants(successes=False)
    policy = RetryPolicy(name="standard", retry_on=OSError, backoff=Backoff.constant(1.0))
    with virtual_time(), Engine(sinks=[Taker(), hear], policies=[policy]) as engine:
        engine.run("op", scripted(ConnectionError("x"), None))  # the type is settled here
        facts.clear(), records.clear()
        engine.call("op", scripted(ConnectionError("x"), None))
    assert facts == [["attempt_failed", "retry_attempt", "call_succeeded"]]
    assert records == ["attempt_failed", "retry_attempt", "call_succeeded"]


def test_an_engine_whose_log_is_off_makes_no_event():
    """A failing call enters what it would enter without sinks, and asks the log once."""
    policy = RetryPolicy(name="standard", retry_on=OSError, backoff=Backoff.constant(1.0))
    logger = logging.Logger("off", 60)  # noqa: LOG001 -- of this test alone

    def frames(sinks):
        engine = Engine(sinks=sinks, policies=[policy])
        fails = iter([True, False] * 3)

        def attempt():
            if next(fails):
                raise ConnectionError

        with virtual_time():
            protected = engine.protect("op")(attempt)
            protected()
            return costs(protected)

    more = Counter(frames([LoggingSink(logger)])) - Counter(frames([]))
    assert more == Counter(["wanted", "isEnabledFor"])


def test_a_log_of_ones_own_that_does_more_receives_every_event():
    """A class that derives from LoggingSink and counts, say, is not cut short by a level."""
    seen = []

    class Counting(LoggingSink):
        def __call__(self, event):
            seen.append(event.event_type)

    policy = RetryPolicy(name="standard", retry_on=OSError, backoff=Backoff.constant(1.0))
    logger = logging.Logger("off", 60)  # noqa: LOG001 -- of this test alone
    with virtual_time(), Engine(sinks=[Counting(logger)], policies=[policy]) as engine:
        engine.call("op", scripted(ConnectionError("x"), None))
    assert seen == ["attempt_failed", "retry_attempt", "call_succeeded"]


def test_a_level_that_changes_counts_from_the_next_event_on():
    """A program may raise or lower it at any time."""
    records = []
    logger = logging.getLogger("tests.events_at_once")
    logger.setLevel(logging.ERROR)
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.levelname)
    logger.handlers, logger.propagate = [handler], False
    policy = RetryPolicy(name="standard", retry_on=OSError, backoff=Backoff.constant(1.0))

    def louder():
        logger.setLevel(logging.INFO)

    with virtual_time(), Engine(sinks=[LoggingSink(logger)], policies=[policy]) as engine:
        engine.call("op", scripted(ConnectionError("x"), None))
        assert not records
        script = scripted(ConnectionError("x"), ConnectionError("x"), None)

        def second():
            if len(script.script.calls) == 1:
                louder()
            return script()

        engine.call("op", second)
    assert records == ["WARNING", "INFO"]


def test_a_retry_inside_a_listener_is_not_inside_the_attempt():
    """What a listener calls is retried by itself, and stands back for nothing."""
    inner = RetryPolicy(retry_on=OSError, max_attempts=3, backoff=Backoff.constant(0.1))
    made = []

    def listener(event):
        if event.event_type == "attempt_failed":
            script = scripted(OSError("inner"), OSError("inner"), None)
            inner.call(script)
            made.append(len(script.script.calls))

    @retry(on=OSError, attempts=2, nested="refuse", listener=listener)
    def fetch(script):
        return script()

    with virtual_time():
        assert fetch(scripted(OSError("x"), 5)) == 5
    assert made == [3]


@pytest.mark.parametrize("refused", ["attempt_failed", "retry_attempt", "call_succeeded"])
def test_a_strict_sink_fails_the_call_on_the_fast_path_too(refused):
    """With the failure it was about as its context, and the other listeners have the event."""
    others = []

    def strict(event):
        if event.event_type == refused:
            raise SinkError("full", event.event_type, 1.0)

    @retry(on=OSError, attempts=2, listener=[strict, others.append])
    def fetch(script):
        return script()

    with virtual_time(), pytest.raises(SinkError, match="full") as caught:
        fetch(scripted(OSError("x"), 5))
    assert others[-1].event_type == refused
    if refused != "call_succeeded":
        assert isinstance(caught.value.__context__, OSError)


@pytest.mark.parametrize("awaits", [False, True], ids=["sync", "asyncio"])
def test_what_encloses_a_listener_is_the_same_on_the_fast_path(awaits):
    """Code that a listener calls runs beside the attempts of its call, within those around it."""
    policy = RetryPolicy(name="standard", retry_on=OSError, backoff=Backoff.constant(1.0))

    def seen(cancel):
        found = []

        class Looking:
            wants = SinkWants(successes=True)

            def __call__(self, event):
                around = [(each.name, each.retries, each.end) for each in enclosures()]
                found.append((event.event_type, around, attempt_around()))

        called(policy, [0, 0, -1, -1, 0, 0, 0], [Looking()], cancel=cancel, awaits=awaits)
        return found

    around = [("op", False, float("inf"))]
    assert {repr(each) for _, each, _ in seen(None)} == {repr(around)}
    if not awaits:
        assert [each[:2] for each in seen(None)] == [each[:2] for each in seen(threading.Event())]


def test_a_listener_inside_another_retry_sees_that_one():
    """Its own call is left out, the one around it is not."""
    found = []

    def listener(event):
        found.append([(each.name.split(".")[-1], each.retries) for each in enclosures()])

    @retry(on=OSError, attempts=2, listener=listener)
    def inner(script):
        return script()

    @retry(on=OSError, attempts=2)
    def outer():
        return inner(scripted(OSError("x"), 5))

    with virtual_time():
        assert outer() == 5
    assert found == [[("inner", False), ("outer", True)]] * 3
