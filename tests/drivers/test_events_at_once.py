"""Events on the fast path: those of the flow, and only those that a listener wants."""

import asyncio
import logging
import threading
from collections import Counter
from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mainstay
from mainstay import Backoff, Engine, Jitter, RetryPolicy, retry
from mainstay.core.events.codec import encode
from mainstay.errors import SinkError, UsageError
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


class Taken:
    """Takes facts, of which it keeps what cut a call off; and whatever it is to raise."""

    wants = SinkWants(successes=False, facts=True)
    raises = None

    def __init__(self):
        self.cut_by = []

    def __call__(self, event):
        """Nothing: what is asked for is facts."""

    def take(self, facts):
        if self.raises is not None:
            raise self.raises
        self.cut_by.append(facts.by)


def test_events_beside_facts_have_the_time_of_day_of_their_moment():
    """The machine may sleep between two attempts, or its clock may be set."""

    def stamps(sinks):
        found = []

        def keep(event):
            found.append(event.timestamp)

        keep.wants = SinkWants(successes=False)
        policy = RetryPolicy(name="standard", retry_on=OSError, backoff=Backoff.constant(1.0))
        with (
            virtual_time(start=1000.0) as time,
            Engine(sinks=[*sinks, keep], policies=[policy], seed=3) as engine,
        ):
            engine.call("op", scripted(ConnectionError("x"), None))  # the type is settled here
            found.clear()

            def attempt():
                time.suspend(3600.0)
                if len(found) < 3:
                    raise ConnectionError("x")

            engine.call("op", attempt)
        return found

    assert stamps([Taken()]) == stamps([])


def test_an_interrupt_of_a_sink_at_the_end_of_a_call_shows_its_failure():
    """Who reads the traceback sees what the call failed with."""
    taken, failure = Taken(), ConnectionError("x")
    policy = RetryPolicy(name="standard", retry_on=OSError, max_attempts=1)
    with virtual_time(), Engine(sinks=[taken], policies=[policy]) as engine:
        with pytest.raises(ConnectionError):
            engine.call("op", scripted(ConnectionError("x")))  # the type is settled here
        taken.raises = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt) as stopped:
            engine.call("op", scripted(failure))
        taken.raises = None
    assert stopped.value.__context__ is failure


def test_an_interrupt_as_the_flow_takes_over_loses_no_facts(monkeypatch):
    """Ctrl+C may come as any function is entered."""

    def interrupt(*_):
        raise KeyboardInterrupt

    taken = Taken()
    policy = RetryPolicy(name="standard", retry_on=OSError, backoff=Backoff.constant(1.0))
    with virtual_time(), Engine(sinks=[taken], policies=[policy]) as engine:
        engine.call("op", scripted(ConnectionError("x"), None))  # the type is settled here
        taken.cut_by.clear()
        monkeypatch.setattr("mainstay.drivers.call.sync.rest_of", interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.call("op", scripted(ConnectionError("x"), BrokenPipeError("y"), None))
    assert taken.cut_by == ["KeyboardInterrupt"]


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
    assert more == Counter(["isEnabledFor"])


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


ALL = ["attempt_failed", "retry_attempt", "attempt_failed", "retry_exhausted"]


def fails_twice(sinks, *, change=None):
    """What listeners receive of a call that is given up; `change` is made after its first use."""
    policy = RetryPolicy(
        name="standard", retry_on=OSError, max_attempts=2, backoff=Backoff.constant(1.0)
    )
    with virtual_time(), Engine(sinks=sinks, policies=[policy]) as engine:
        protected = engine.protect("op")(scripted(*[ConnectionError("x")] * 4))
        for again in [change] if change else []:
            with pytest.raises(ConnectionError):
                protected()
            again()
        with pytest.raises(ConnectionError):
            protected()


def own_log(level=logging.DEBUG):
    """A logger, and the names of the events that are logged to it."""
    logger, names = logging.Logger("own", level), []  # noqa: LOG001 -- of one test alone
    handler = logging.Handler()
    handler.emit = lambda record: names.append(record.mainstay["event_type"])
    logger.addHandler(handler)
    return logger, names


class Levels:
    """A sink that is no log, and wants some levels."""

    def __init__(self, *levels):
        self.levels, self.names = levels, []

    def is_enabled(self, level):
        return level in self.levels

    def __call__(self, event):
        self.names.append(event.event_type)


@pytest.mark.parametrize("is_own", [False, True])
def test_a_log_whose_levels_are_a_programs_own_is_asked_itself(is_own):
    """A class that derives from LoggingSink may want less than its logger; an object may, too."""

    class NoAttempts(LoggingSink):
        def is_enabled(self, level):
            return level != "DEBUG"

    logger, names = own_log()
    sink = NoAttempts(logger) if is_own else LoggingSink(logger)
    if not is_own:
        sink.is_enabled = lambda level: level != "DEBUG"
    fails_twice([sink])
    assert names == ["retry_attempt", "retry_exhausted"]


@pytest.mark.parametrize("name", ["logger", "is_enabled"])
def test_what_operations_ask_a_log_by_is_not_replaced_unnoticed(name):
    """Records below the level of the new logger, or none at all, would be what comes of it."""
    sink = LoggingSink(own_log()[0])
    setattr(sink, name, getattr(LoggingSink(own_log()[0]), name))  # before its first use

    def change():
        setattr(sink, name, None)

    with pytest.raises(UsageError, match=f"the {name} of a log"):
        fails_twice([sink], change=change)


def test_a_log_may_want_evidence_at_any_time():
    """As any sink may that has `wants_evidence`: it is read for each call."""
    logger, _ = own_log()
    proved = []
    logger.handlers[0].emit = lambda record: proved.append("proof" in record.mainstay)
    sink = LoggingSink(logger)
    fails_twice([sink], change=lambda: setattr(sink, "wants_evidence", True))
    assert proved == [False] * 4 + [True] * 4


@pytest.mark.parametrize("wanted", ["DEBUG", "WARNING"])
def test_a_sink_may_want_what_is_quiet_and_not_what_is_loud(wanted):
    """One that counts retries wants nothing else: it is asked for each event."""
    sink, (logger, names) = Levels(wanted), own_log(logging.CRITICAL)
    fails_twice([sink, LoggingSink(logger)])
    assert sink.names == {"DEBUG": ["attempt_failed"] * 2, "WARNING": ["retry_attempt"]}[wanted]
    assert names == []


def test_a_logger_may_want_what_is_quiet_and_not_what_is_loud():
    """A class of a program's own decides about levels."""

    def wants(_self, level):
        return level == logging.WARNING

    names = []
    logger = type("OnlyRetries", (logging.Logger,), {"isEnabledFor": wants})("own")
    handler = logging.Handler()
    handler.emit = lambda record: names.append(record.mainstay["event_type"])
    logger.addHandler(handler)
    fails_twice([LoggingSink(logger)])
    assert names == ["retry_attempt"]


def test_a_sink_that_is_given_twice_costs_no_other_its_events():
    """It is left out twice; what is left then is another listener."""
    received, sink = [], Levels("ERROR")
    fails_twice([lambda event: received.append(event.event_type), sink, sink])
    assert received == ALL
    assert sink.names == ["retry_exhausted"] * 2


@pytest.mark.usefixtures("logged")
@pytest.mark.parametrize("outcomes", [[ConnectionError("down")] * 2, ["value"]])
def test_a_sink_that_raises_when_it_is_asked_costs_no_call(caplog, outcomes):
    """The error of the call is the caller's; that of the sink is reported."""

    class Broken(Levels):
        def is_enabled(self, level):
            raise RuntimeError(f"is there a level {level}?")

    received, sink = [], Broken()
    policy = RetryPolicy(
        name="standard", retry_on=OSError, max_attempts=2, backoff=Backoff.constant(1.0)
    )
    listeners = [sink, lambda event: received.append(event.event_type)]
    with virtual_time(), Engine(sinks=listeners, policies=[policy]) as engine:
        protected = engine.protect("op")(scripted(*outcomes))
        with nullcontext() if outcomes == ["value"] else pytest.raises(ConnectionError):
            protected()
    assert received == (ALL if len(outcomes) == 2 else ["call_succeeded"])
    assert sink.names == received
    assert "is there a level DEBUG?" in caplog.text


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
