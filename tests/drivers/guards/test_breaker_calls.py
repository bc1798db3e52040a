"""What a circuit looks at in a call, and what it lets others know of it."""

import asyncio
import gc
import logging
import weakref

import pytest

from mainstay import (
    Backoff,
    BreakerSettings,
    CircuitBreaker,
    CircuitOpenError,
    Engine,
    PolicyError,
    RetryPolicy,
    Window,
    retry,
)
from mainstay.testing import virtual_time

AT_ONCE = RetryPolicy(retry_on=OSError, backoff=Backoff.constant(0))


def bad(result):
    return result == "bad"


# --- results --------------------------------------------------------------------------------------


class Scripted:
    """A function that returns one thing after the other, or raises it."""

    def __init__(self, *script):
        self.script = list(script)

    def __call__(self):
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


WAYS = {
    "decorator": lambda breaker, function: breaker(function)(),
    "call": lambda breaker, function: breaker.call(function),
    "retry": lambda breaker, function: retry(policy=AT_ONCE, breaker=breaker)(function)(),
    "async": lambda breaker, function: asyncio.run(_awaited(breaker, function)),
    "engine": lambda breaker, function: Engine(guards=[breaker]).call("op", function),
}


async def _awaited(breaker, function):
    @breaker
    async def call():
        return function()

    return await call()


@pytest.mark.parametrize("way", WAYS)
def test_a_result_may_count_as_a_failure(way):
    """The caller gets it all the same; the circuit opens as if it had been raised."""
    breaker = CircuitBreaker("search", failure_threshold=2, failure_if_result=bad)
    function = Scripted("good", "bad", "bad")
    assert [WAYS[way](breaker, function) for _ in range(3)] == ["good", "bad", "bad"]
    assert breaker.state.name == "OPEN"
    with pytest.raises(CircuitOpenError) as caught:
        WAYS[way](breaker, function)
    assert caught.value.opened_by == "a result that counts as a failure"


def test_a_good_result_is_a_success():
    """It ends a row of failures, and a probe closes the circuit."""
    breaker = CircuitBreaker("search", failure_threshold=2, failure_if_result=bad)
    call = breaker(Scripted("bad", "good", "bad", "good"))
    for _ in range(4):
        call()
    assert breaker.state.name == "CLOSED"
    with virtual_time() as time:
        opened = CircuitBreaker(
            "search", failure_threshold=1, failure_if_result=bad, recovery_timeout=5
        )
        probed = opened(Scripted("bad", "bad", "good"))
        states = []
        for _ in range(3):
            probed()
            states.append(opened.state.name)
            time.advance(5.0)
        assert states == ["OPEN", "OPEN", "CLOSED"]


def test_failures_count_as_they_did():
    """A rule for results changes nothing about exceptions."""
    breaker = CircuitBreaker("search", failure_threshold=1, failure_if_result=bad)
    call = breaker(Scripted(ValueError("mine"), ConnectionError("theirs")))
    with pytest.raises(ValueError, match="mine"):
        call()
    assert breaker.state.name == "CLOSED"
    with pytest.raises(ConnectionError):
        call()
    assert breaker.state.name == "OPEN"


def test_a_result_counts_in_a_window():
    """As a failure of its rate."""
    breaker = CircuitBreaker(
        "search", window=Window.calls(4), min_calls=4, failure_rate=0.75, failure_if_result=bad
    )
    call = breaker(Scripted("bad", "good", "bad", "bad"))
    for _ in range(4):
        call()
    assert breaker.state.name == "OPEN"
    assert breaker.snapshot().reason == "3 of 4 calls failed"


def test_a_rule_that_raises_has_not_judged(caplog):
    """The result is a success, and the error is logged."""
    breaker = CircuitBreaker("search", failure_threshold=1, failure_if_result=lambda r: r.status)
    with caplog.at_level(logging.ERROR, "mainstay"):
        assert breaker(Scripted("text"))() == "text"
    assert breaker.state.name == "CLOSED"
    assert "failure_if_result raised on a str" in caplog.text


def test_only_one_of_two_circuits_judges():
    """Each circuit has its own rule."""
    judging = CircuitBreaker("a", failure_threshold=1, failure_if_result=bad)
    plain = CircuitBreaker("b", failure_threshold=1)
    assert retry(policy=AT_ONCE, breaker=[plain, judging])(Scripted("bad"))() == "bad"
    assert (judging.state.name, plain.state.name) == ("OPEN", "CLOSED")


async def later(_):
    """No rule for a sync call."""


@pytest.mark.parametrize("rule", [later, 3, str])
def test_only_a_plain_function_judges(rule):
    """An async one could not be awaited; a class is a mistake."""
    with pytest.raises(PolicyError, match="failure_if_result"):
        BreakerSettings(failure_if_result=rule)


# --- a window that a success completes ------------------------------------------------------------


@pytest.mark.parametrize("window", [Window.calls(10), Window.seconds(60.0)], ids=["calls", "time"])
@pytest.mark.parametrize("way", ["decorator", "call", "block", "hand"])
def test_a_success_that_completes_the_window_may_open_it(window, way):
    """Six failures and four successes are 60 %, in whichever order they come."""
    breaker = CircuitBreaker("search", window=window, min_calls=10, failure_rate=0.5)
    function = Scripted(*[ConnectionError("down")] * 6, *"abcd")
    for n in range(1, 11):
        assert breaker.state.name == "CLOSED", n
        made(breaker, function, way)
    assert breaker.state.name == "OPEN"
    assert breaker.snapshot().reason == "6 of 10 calls failed"


def made(breaker, function, way):
    """One call, in one of the ways; its failure is swallowed."""
    try:
        if way == "block":
            with breaker:
                function()
        elif way == "hand":
            try:
                function()
            except ConnectionError as error:
                breaker.record_failure(error)
            else:
                breaker.record_success()
        else:
            WAYS[way](breaker, function)
    except (ConnectionError, TimeoutError):
        return


def test_too_few_failures_are_not_waited_for():
    """Calls take the quick way while no success can open the circuit."""
    breaker = CircuitBreaker("search", window=Window.calls(10), min_calls=10, failure_rate=0.5)
    for n in range(1, 6):
        made(breaker, Scripted(ConnectionError()), "decorator")
        assert breaker.is_failing is (n >= 5)


def test_slow_calls_complete_a_window_too():
    """Five slow of ten: the last quick one judges."""
    with virtual_time() as time:
        breaker = CircuitBreaker(
            "search", window=Window.calls(10), min_calls=10, slow_after=1.0, slow_rate=0.5
        )
        call = breaker(time.advance)
        for n in range(10):
            assert breaker.state.name == "CLOSED"
            call(2.0 if n < 5 else 0.1)
        assert breaker.snapshot().reason == "5 of 10 calls were slow"
        assert breaker.state.name == "OPEN"


# --- what opened it -------------------------------------------------------------------------------


def opened(error):
    breaker = CircuitBreaker("pay", failure_threshold=1, recovery_timeout=30.0)
    made(breaker, Scripted(error), "decorator")
    return breaker


def refusal(breaker, way="call"):
    with pytest.raises(CircuitOpenError) as caught:
        WAYS[way](breaker, Scripted("never"))
    return caught.value


@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_has_the_failure_that_opened_the_circuit(way):
    """Its type and text, also in the message."""
    error = refusal(opened(ConnectionError("no route to bank")), way)
    assert error.opened_by == "ConnectionError: no route to bank"
    assert str(error).startswith(
        "circuit 'pay' is open: the call was not made (opened by ConnectionError: no route to bank)"
    )


def test_the_failure_itself_is_not_kept():
    """Its traceback would keep the frames of that call alive while the circuit is open."""

    class Held(ConnectionError):
        pass

    error = Held("down")
    watched = weakref.ref(error)
    breaker = opened(error)
    del error
    gc.collect()
    assert watched() is None
    assert refusal(breaker).opened_by.endswith("Held: down")


def test_no_secret_is_in_it():
    """The text is redacted as that of every event."""
    error = refusal(opened(ConnectionError("postgres://app:hunter2@db/1 refused")))
    assert "hunter2" not in str(error)
    assert "hunter2" not in error.opened_by


def test_a_circuit_that_no_failure_opened_has_none():
    """An operator's order, slow calls, other nodes."""
    breaker = CircuitBreaker("pay")
    breaker.force_open()
    assert refusal(breaker).opened_by is None
    assert "opened by" not in str(refusal(breaker))


def test_a_relapse_has_the_failure_of_the_probe():
    """The last failure that opened it; once it has closed, none."""
    with virtual_time() as time:
        breaker = CircuitBreaker("pay", failure_threshold=1, recovery_timeout=5.0)
        made(breaker, Scripted(ConnectionError("first")), "decorator")
        time.advance(5.0)
        made(breaker, Scripted(TimeoutError("second")), "decorator")
        assert refusal(breaker).opened_by == "TimeoutError: second"
        breaker.reset()
        breaker.force_open()
        assert refusal(breaker).opened_by is None


def test_a_failure_that_is_recorded_by_hand_is_kept_too():
    """As far as it was given."""
    breaker = CircuitBreaker("pay", failure_threshold=1)
    breaker.record_failure(OSError("disk"))
    assert refusal(breaker).opened_by == "OSError: disk"


# --- listeners ------------------------------------------------------------------------------------


def outcomes(events):
    return [(event.outcome, event.state) for event in events if event.event_type == "circuit_call"]


@pytest.mark.parametrize("way", ["decorator", "call", "retry", "async", "block"])
def test_a_listener_may_receive_every_call(way):
    """How each ended, in which state, how long it took and what it raised."""
    events, breaker = [], CircuitBreaker("pay", failure_threshold=1)
    breaker.listen(events.append, calls=True)
    function = Scripted("fine", ConnectionError("down"))
    once = {"retry": retry(on=KeyError, breaker=breaker)(function)}
    for _ in range(3):
        try:
            once.get(way, lambda: made(breaker, function, way))()
        except (ConnectionError, CircuitOpenError):
            continue
    assert outcomes(events) == [("succeeded", "closed"), ("failed", "open"), ("refused", "open")]
    good, failed, refused = [event for event in events if event.event_type == "circuit_call"]
    assert good.operation == failed.operation == refused.operation == "pay"
    assert good.duration_seconds >= 0.0
    assert (failed.exception_type, failed.exception_message) == ("ConnectionError", "down")
    assert refused.duration_seconds is None


def test_a_failure_that_does_not_count_is_reported_as_such():
    """The caller's mistake says nothing about the other side."""
    events, breaker = [], CircuitBreaker("pay", failure_threshold=1)
    breaker.listen(events.append, calls=True)
    with pytest.raises(ValueError, match="mine"):
        breaker(Scripted(ValueError("mine")))()
    breaker.record_failure(ValueError("mine"))
    assert outcomes(events) == [("ignored", "closed")] * 2


def test_calls_by_hand_are_reported_too():
    """Allowed, recorded and refused."""
    events, breaker = [], CircuitBreaker("pay", failure_threshold=1)
    breaker.listen(events.append, calls=True)
    breaker.record_success()
    breaker.record_failure()
    assert not breaker.allow_request()
    assert [name for name, _ in outcomes(events)] == ["succeeded", "failed", "refused"]


def test_a_call_inside_another_of_the_circuit_is_one_call():
    """A block around a decorated function: the block is the call."""
    events, breaker = [], CircuitBreaker("pay", failure_threshold=1)
    breaker.listen(events.append, calls=True)
    breaker.listen(events.append, calls=True)
    call = breaker(Scripted("fine"))
    with breaker:
        assert call() == "fine"
    assert [name for name, _ in outcomes(events)] == ["succeeded"] * 2


def test_other_listeners_receive_changes_only():
    """And calls that succeed are not announced for them."""
    events, breaker = [], CircuitBreaker("pay", failure_threshold=1)
    breaker.listen(events.append)
    made(breaker, Scripted("fine"), "decorator")
    assert events == []
    assert not breaker.is_failing


@pytest.mark.parametrize("calls", [True, False])
def test_a_listener_can_be_removed(calls):
    """From then on it receives nothing, and calls take the quick way again."""
    events, breaker = [], CircuitBreaker("pay", failure_threshold=1)
    breaker.listen(events.append, calls=calls)
    assert breaker.is_failing is calls
    breaker.unlisten(events.append)
    assert not breaker.is_failing
    made(breaker, Scripted(ConnectionError()), "decorator")
    assert breaker.state.name == "OPEN"
    assert events == []


def test_one_listener_is_removed_and_the_others_stay():
    """Also if it listened from the beginning; one that never listened is passed over."""
    first, second = [], []
    breaker = CircuitBreaker("pay", listener=[first.append, second.append])
    breaker.unlisten(first.append)
    breaker.unlisten(print)
    breaker.force_open()
    assert (len(first), len(second)) == (0, 1)


async def awaited(event):
    raise AssertionError


@pytest.mark.parametrize("listener", [awaited, 3, None])
def test_what_cannot_listen_is_refused(listener):
    """Nothing would await an async function, nor call what is none."""
    with pytest.raises(PolicyError, match="listener"):
        CircuitBreaker("api").listen(listener)
