"""Facts: what is told later is what would have been told at once."""

import asyncio
import gc
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mainstay
from mainstay import Backoff, Engine, Jitter, RetryPolicy
from mainstay.core.events.codec import encode
from mainstay.testing import virtual_time


class EventBuilder:
    """Hears events as they happen."""

    wants_evidence = True
    hears_successes = False

    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(event)


class Taker(EventBuilder):
    """Takes facts, and makes events of them at the end."""

    def __init__(self):
        super().__init__()
        self.facts = 0

    def take(self, facts):
        self.facts += 1
        self.events += facts.events()


class Odd(Exception):
    def __init__(self, code, reason):
        super().__init__(code)
        self.extra = reason  # so that its type alone does not settle it


class Strict(ConnectionError):
    """Cannot be made without its argument."""

    def __new__(cls, needed):
        return super().__new__(cls, needed)

    def __str__(self):
        return f"strictly {self.args[0]}"


class Mute(ConnectionError):
    def __str__(self):
        raise RuntimeError("no text")


FAILURES = [
    lambda: ConnectionError("down"),
    lambda: ConnectionError("down"),
    lambda: ConnectionResetError(104, "reset"),
    lambda: Strict("x"),
    Mute,
    lambda: ValueError("\udcff stray"),
    lambda: Odd(1, "y"),
    KeyboardInterrupt,
]
POLICY = RetryPolicy(
    name="standard",
    max_attempts=3,
    backoff=Backoff.exponential(0.1),
    jitter=Jitter.full(),
    retry_on=(ConnectionError, Odd),
)


POLICIES = st.builds(
    lambda attempts, level, on, jitter: POLICY.replace(
        max_attempts=attempts, log_level=level, retry_on=on, jitter=jitter
    ),
    st.integers(1, 7),
    st.sampled_from(["DEBUG", "WARNING", "CRITICAL"]),
    st.sampled_from([None, (ConnectionError, Odd), (Exception,)]),
    st.sampled_from([Jitter.none(), Jitter.full(), Jitter.decorrelated()]),
)


def told(sink, outcomes, awaits, policy=POLICY):
    """All events of some calls, as they are recorded."""
    with virtual_time(start=1000.0) as time:
        engine = Engine(sinks=[sink], policies=[policy.replace()], seed=3)
        left = list(reversed(outcomes))

        def attempt():
            time.advance(0.03)
            which = left.pop() if left else -1
            if which >= 0:
                failure = FAILURES[which]()
                raise failure

        async def attempt_async():
            attempt()

        def call():
            if awaits:
                asyncio.run(engine.acall("op", attempt_async))
            else:
                engine.call("op", attempt)

        with mainstay.context(tenant_id="t", category="C"):
            while left:
                try:
                    call()
                except (Exception, KeyboardInterrupt):
                    time.advance(0.5)
    return [encode(event) for event in sink.events]


@pytest.mark.req("CP-12", "CP-13")
@pytest.mark.parametrize("awaits", [False, True], ids=["sync", "asyncio"])
@settings(max_examples=60, deadline=None)
@given(
    policy=POLICIES,
    outcomes=st.lists(st.integers(-1, len(FAILURES) - 1), min_size=1, max_size=30),
)
def test_facts_tell_what_would_have_been_told(awaits, policy, outcomes):
    """To the byte: decisions, texts, times, proof."""
    if awaits:
        outcomes = [which for which in outcomes if which != len(FAILURES) - 1] or [0]
    late = told(Taker(), outcomes, awaits, policy)
    assert late == told(EventBuilder(), outcomes, awaits, policy)


def test_events_are_the_same_if_the_class_was_forgotten_meanwhile():
    """A table that is registered makes all policies forget what they have settled."""
    kept = []
    sink = Taker()
    sink.take = kept.append
    told(sink, [0, 0, 0] * 3, awaits=False)
    before = list(map(encode, kept[-1].events()))
    kept[-1].plan.policy._rules.forget()
    assert list(map(encode, kept[-1].events())) == before


def test_most_calls_leave_only_facts():
    """Once a type is known, nothing is told while the call goes on."""
    sink = Taker()
    told(sink, [0, 0, -1] * 10, awaits=False)
    assert sink.facts == 9


def test_the_garbage_collector_sees_one_object_of_a_call_that_waits_in_a_queue():
    """Thousands wait there: to pass over them again and again costs more than to write them."""
    kept = []
    sink = Taker()
    sink.take = kept.append
    told(sink, [0, 0, 0] * 3, awaits=False)
    facts = kept[-1]
    parts = [facts, *(getattr(facts, name) for name in facts.__struct_fields__), *facts.attempts]
    own = [each for each in parts if gc.is_tracked(each) and not isinstance(each, type)]
    assert own == [facts.plan, facts.context, facts.attempts]


def test_a_listener_that_hears_gets_events_at_once():
    """Facts are for those who all can wait: one who cannot makes the call tell its story."""
    taker, hearer = Taker(), EventBuilder()
    engine = Engine(sinks=[taker, hearer], policies=[POLICY])
    with virtual_time():
        for _ in range(3):
            engine.run("op", told_failure)
    assert taker.facts == 0
    assert [e.event_type for e in taker.events] == [e.event_type for e in hearer.events]


def told_failure():
    raise ConnectionError("down")


def test_a_taker_that_raises_is_passed_over(caplog):
    """And reported; the call's outcome is its own."""

    class Broken(Taker):
        def take(self, facts):
            raise RuntimeError("no room")

    engine = Engine(sinks=[Broken()], policies=[POLICY])
    with virtual_time(), caplog.at_level(logging.ERROR):
        for _ in range(2):
            with pytest.raises(ConnectionError, match="down"):
                engine.call("op", told_failure)
    assert "a listener raised on the facts of op" in caplog.text
