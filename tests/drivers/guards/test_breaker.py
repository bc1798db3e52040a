"""The circuit breaker as users hold it: decorated, as a block, by hand, in a retry, all at once."""

import asyncio
import contextvars
import logging
import pickle
import sys
import threading

import pytest
import trio

from mainstay import Backoff, Jitter, RetryPolicy, retry
from mainstay.core.circuit.breaker import CircuitState
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.circuit.window import Window
from mainstay.drivers.call.blocks import Attempts
from mainstay.drivers.call.guard import Gate
from mainstay.drivers.call.site import Site
from mainstay.drivers.call.wrap import wrap
from mainstay.drivers.guards.breaker import CircuitBreaker
from mainstay.errors import CircuitOpenError, PolicyError, UsageError
from mainstay.testing import Trace, scripted, takes, virtual_time
from tests.costs import acosts, costs

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
DOWN = ConnectionError
POLICY = RetryPolicy(
    name="op",
    retry_on=OSError,
    max_attempts=4,
    backoff=Backoff.constant(1.0),
    jitter=Jitter.none(),
)
ONCE = POLICY.replace(max_attempts=1)


@pytest.fixture
def time():
    with virtual_time() as clock:
        yield clock


@pytest.fixture
def hasty():
    """Threads are switched as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Told(CircuitBreaker):
    """A breaker, and its changes as they were told."""

    def __init__(self, **fields):
        self.trace = Trace()
        super().__init__("pay", listener=self.trace, **fields)


def breaker_of(threshold=1, recovery=30.0, **fields):
    """A breaker that opens soon."""
    return Told(failure_threshold=threshold, recovery_timeout=recovery, **fields)


def half_open(time, **fields):
    """A breaker whose open time is over."""
    breaker = breaker_of(**fields)
    breaker.record_failure()
    time.advance(breaker.retry_after)
    assert breaker.state is HALF_OPEN
    return breaker


def retried(function, breaker, policy=POLICY, **more):
    return wrap(function, Site(policy, gate=Gate((breaker,)), **more))


def changes(breaker):
    return [(event.from_state, event.to_state) for event in breaker.trace.events]


def fails(function, *args, error=DOWN):
    with pytest.raises(error) as caught:
        function(*args)
    return caught.value


def in_threads(work, threads=8):
    """Runs work(n) in so many threads at once; raises what one of them raised."""
    barrier, trouble = threading.Barrier(threads), []

    def run(n):
        barrier.wait(60)
        try:
            work(n)
        except BaseException as error:
            trouble.append(error)

    started = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if trouble:
        raise trouble[0]


# --- decorated ------------------------------------------------------------------------------------


@pytest.mark.req("FR-041-52", "FR-041-54", "FR-041-55", "AC-025", "AC-026", "AC-027", "UT-041-12")
@pytest.mark.req("PL-07", "NFR-041-04")
def test_a_decorated_function_is_not_called_while_the_circuit_is_open(driver):
    """Three failures in a row, and for 300 seconds every call is refused at once."""
    breaker = breaker_of(3, 300.0)
    function = driver.scripted(DOWN, DOWN, DOWN, "up")
    pay = breaker(function)
    for _ in range(3):
        fails(driver.run, pay)
    driver.time.advance(100.0)
    began = driver.time.elapsed
    for _ in range(5):
        refused = fails(driver.run, pay, error=CircuitOpenError)
        assert (refused.operation, refused.state) == ("pay", OPEN)
        assert refused.retry_after == pytest.approx(200.0)
    assert (len(function.script.calls), driver.time.elapsed) == (3, began)
    assert breaker.snapshot().refused == 5


@pytest.mark.req("FR-041-57", "FR-041-58", "AC-028", "AC-029", "UT-041-13", "PL-07")
def test_a_probe_that_succeeds_closes_it(driver):
    """After the open time one call goes through, and with it everything."""
    breaker = breaker_of(1, 300.0)
    pay = breaker(driver.scripted(DOWN, "up", "up"))
    fails(driver.run, pay)
    driver.time.advance(300.0)
    assert driver.run(pay) == "up"
    assert driver.run(pay) == "up"
    assert breaker.state is CLOSED
    assert changes(breaker) == [("closed", "open"), ("open", "half_open"), ("half_open", "closed")]


@pytest.mark.req("FR-041-59", "FR-041-56")
def test_a_probe_that_fails_opens_it_again(driver):
    """For another open time."""
    breaker = breaker_of(1, 20.0)
    pay = breaker(driver.scripted(DOWN, DOWN, "up"))
    fails(driver.run, pay)
    driver.time.advance(20.0)
    fails(driver.run, pay)
    assert fails(driver.run, pay, error=CircuitOpenError).retry_after == pytest.approx(20.0)
    driver.time.advance(20.0)
    assert driver.run(pay) == "up"


@pytest.mark.req("UT-041-11", "FR-041-53")
def test_a_success_ends_a_row_of_failures(driver):
    """Two, a success, two: nothing opens at three."""
    breaker = breaker_of(3)
    pay = breaker(driver.scripted(DOWN, DOWN, "up", DOWN, DOWN))
    for outcome, count in [(DOWN, 1), (DOWN, 2), ("up", 0), (DOWN, 1), (DOWN, 2)]:
        if outcome is DOWN:
            fails(driver.run, pay)
        else:
            assert driver.run(pay) == "up"
        assert breaker.snapshot().failure_count == count
    assert breaker.state is CLOSED


def test_mistakes_of_the_caller_neither_count_nor_end_a_row(driver):
    """They say nothing of the other side."""
    breaker = breaker_of(2)
    pay = breaker(driver.scripted(DOWN, ValueError, PermissionError, DOWN))
    for error in (DOWN, ValueError, PermissionError, DOWN):
        assert breaker.state is CLOSED
        fails(driver.run, pay, error=error)
    assert breaker.state is OPEN


@pytest.mark.parametrize("sort", ["method", "class", "static"])
def test_methods_of_every_sort_share_the_breaker(driver, sort):
    """The decorator stands above or below @classmethod and @staticmethod."""
    breaker = breaker_of(2)
    down = driver.colour(lambda *args: scripted(DOWN(len(args)))())

    class Client:
        method = breaker(down)
        outer = breaker(classmethod(down))
        inner = classmethod(breaker(down))
        static_outer = breaker(staticmethod(down))
        static_inner = staticmethod(breaker(down))

    client = Client()
    calls, count = {
        "method": ([client.method, client.method], 2),
        "class": ([client.outer, Client.inner], 2),
        "static": ([client.static_outer, Client.static_inner], 1),
    }[sort]
    for call in calls:
        assert fails(driver.run, call, "argument").args == (count,)
    assert breaker.state is OPEN
    fails(driver.run, client.method, error=CircuitOpenError)


def test_the_verbs_of_a_breaker_call_once(driver):
    """call, run and attempts() of the breaker itself: one attempt each, recorded or refused."""
    breaker = breaker_of(3)
    fails(driver.call, breaker, driver.scripted(DOWN))
    assert isinstance(driver.result(breaker, driver.scripted(DOWN)).last_exception, DOWN)
    fails(driver.block, breaker, driver.scripted(DOWN))
    assert breaker.state is OPEN
    fails(driver.call, breaker, driver.scripted(), error=CircuitOpenError)
    fails(driver.block, breaker, driver.scripted(), error=CircuitOpenError)
    result = driver.result(breaker, driver.scripted())
    assert isinstance(result.last_exception, CircuitOpenError)
    assert (result.success, result.attempts) == (False, 0)


# --- as a block -----------------------------------------------------------------------------------


def block(driver, breaker, function):
    """The function as the body of `with breaker` or `async with breaker`."""

    def plain():
        with breaker as same:
            assert same is breaker
            return function()

    async def coloured():
        async with breaker as same:
            assert same is breaker
            return await function()

    return driver.run(coloured if driver.is_async else plain)


def test_a_block_is_recorded_and_refused_as_a_call_is(driver):
    """Failure, refusal, probe, success."""
    breaker = breaker_of(1)
    function = driver.scripted(DOWN, "up")
    fails(block, driver, breaker, function)
    assert fails(block, driver, breaker, function, error=CircuitOpenError).retry_after == 30.0
    driver.time.advance(30.0)
    assert block(driver, breaker, function) == "up"
    assert breaker.state is CLOSED


@pytest.mark.parametrize(
    "stop", [asyncio.CancelledError, KeyboardInterrupt, SystemExit, ValueError]
)
def test_what_does_not_count_gives_a_blocks_probe_place_back(time, stop):
    """The circuit stays half open, and the next call may probe."""
    breaker = half_open(time)
    with pytest.raises(stop), breaker:
        assert breaker.snapshot().probes == 1
        raise stop
    assert (breaker.state, breaker.snapshot().probes) == (HALF_OPEN, 0)
    with breaker:
        pass
    assert breaker.state is CLOSED


def test_blocks_of_several_breakers_stand_in_one_another(time):
    """Each hears of the failure; the refusal of the inner does not count for the outer."""
    outer, inner = breaker_of(2), breaker_of(1)
    with pytest.raises(DOWN), outer, inner:
        raise DOWN
    assert (outer.snapshot().failure_count, inner.state) == (1, OPEN)
    with pytest.raises(CircuitOpenError), outer, inner:
        raise AssertionError
    assert outer.snapshot().failure_count == 1


def test_blocks_of_one_breaker_stand_in_one_another(time):
    """Each block is an attempt of its own, with its own time and ticket."""
    breaker = breaker_of(2)
    with pytest.raises(DOWN), breaker, breaker:
        raise DOWN
    assert breaker.state is OPEN


def test_a_block_that_was_entered_before_the_opening_does_not_close_it(time):
    """Its ticket is of another time."""
    breaker = breaker_of(1)
    with breaker:
        breaker.record_failure()
        time.advance(30.0)
        assert breaker.state is HALF_OPEN
    assert breaker.state is HALF_OPEN


def test_a_block_may_be_left_in_another_context(time):
    """As a generator fixture may be: then it is recorded without its ticket."""
    breaker = breaker_of(1)

    def body():
        with breaker:
            yield

    generator = body()
    contextvars.copy_context().run(next, generator)
    with pytest.raises(DOWN):
        contextvars.copy_context().run(generator.throw, DOWN())
    assert breaker.state is OPEN


def test_tasks_inside_a_block_have_blocks_of_their_own(time):
    """What a task enters, it leaves; its parent's block is not touched."""
    breaker = breaker_of(3)

    async def child(fail):
        async with breaker:
            await asyncio.sleep(1.0)
            if fail:
                raise DOWN

    async def main():
        async with breaker:
            return await asyncio.gather(*map(child, [1, 1, 0]), return_exceptions=True)

    assert [type(each) for each in asyncio.run(main())] == [DOWN, DOWN, type(None)]
    assert (breaker.state, breaker.snapshot().failure_count) == (CLOSED, 0)


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.req("CL-07", "FR-041-52", "FR-041-57", "FR-041-61", "AC-032")
def test_a_breaker_is_used_by_hand(time):
    """allow_request, record_success and record_failure; OPEN turns HALF_OPEN by itself."""
    settings = BreakerSettings(failure_threshold=2, recovery_timeout=60.0)
    breaker = CircuitBreaker("s3", settings)
    for _ in range(2):
        assert breaker.allow_request()
        breaker.record_failure()
    assert (breaker.state, breaker.allow_request()) == (OPEN, False)
    time.advance(60.0)
    assert breaker.state is HALF_OPEN
    assert breaker.allow_request()
    assert not breaker.allow_request()
    breaker.record_success()
    assert (breaker.state, breaker.allow_request()) == (CLOSED, True)
    breaker.record_failure()
    breaker.record_failure()
    breaker.reset()
    assert (breaker.state, breaker.allow_request()) == (CLOSED, True)
    assert breaker.snapshot().failure_count == 0


def test_a_failure_that_does_not_count_gives_a_probe_place_back_by_hand(time):
    """As it does everywhere else."""
    breaker = half_open(time)
    assert breaker.allow_request()
    breaker.record_failure(ValueError("mine"))
    assert (breaker.state, breaker.snapshot().probes) == (HALF_OPEN, 0)
    breaker.record_failure(ValueError("nothing to give back"))
    assert breaker.allow_request()
    breaker.record_failure(DOWN())
    assert breaker.state is OPEN


def test_an_outcome_without_a_question_is_a_probe_by_hand(time):
    """Somebody who only records has made a call all the same."""
    breaker = half_open(time, success_threshold=2)
    breaker.record_success()
    assert (breaker.state, breaker.snapshot().success_count) == (HALF_OPEN, 1)
    breaker.record_success()
    assert breaker.state is CLOSED


def test_a_place_never_given_back_is_written_off(time):
    """A caller that died after allow_request keeps nobody out for longer than the limit."""
    breaker = half_open(time, probe_timeout=60.0)
    assert breaker.allow_request()
    time.advance(59.0)
    assert (breaker.state, breaker.allow_request()) == (HALF_OPEN, False)
    time.advance(1.0)
    assert breaker.state is OPEN
    assert breaker.snapshot().reason == "a probe never returned"


# --- in a retry -----------------------------------------------------------------------------------


@pytest.mark.req("EF-11", "FR-041-54", "FR-041-55")
def test_the_order_of_breaker_and_retry(driver):
    """Checked before the loop, each failure recorded, checked before each retry: 5 and 60 s."""
    breaker = breaker_of(5, 60.0)
    function = driver.scripted(*[DOWN] * 5, "up")
    pay = retried(function, breaker)
    fails(driver.run, pay)
    assert (len(function.script.calls), breaker.snapshot().failure_count) == (4, 4)
    error = fails(driver.run, pay)
    assert len(function.script.calls) == 5
    assert "circuit 'pay' is open" in error.__notes__[0]
    began = driver.time.elapsed
    fails(driver.run, pay, error=CircuitOpenError)
    assert (len(function.script.calls), driver.time.elapsed) == (5, began)
    driver.time.advance(60.0)
    assert driver.run(pay) == "up"
    assert (breaker.state, breaker.snapshot().failure_count) == (CLOSED, 0)


@pytest.mark.req("EF-11", "CL-07")
@pytest.mark.parametrize("way", ["wrap", "heard", "block", "result"])
def test_every_attempt_is_recorded_once(driver, way):
    """On the fast path, with a listener, as a block and as a result."""
    breaker = breaker_of(100)
    function = driver.scripted(DOWN, DOWN, DOWN, DOWN)
    run_by(driver, way, function, breaker, POLICY)
    assert breaker.snapshot().failure_count == 4
    run_by(driver, way, driver.scripted(DOWN), breaker, ONCE)
    assert breaker.snapshot().failure_count == 5
    run_by(driver, way, driver.scripted(DOWN, "up"), breaker, POLICY)
    assert breaker.snapshot().failure_count == 0


def run_by(driver, way, function, breaker, policy):
    """One call under the policy and the breaker; its error, or None."""
    listeners = (Trace(),) if way == "heard" else ()
    site = Site(policy, gate=Gate((breaker,)), listeners=listeners)
    verbs = type("Verbs", (), {"attempts": lambda self: Attempts(site)})()
    try:
        if way == "block":
            driver.block(verbs, function)
        elif way == "result":
            return driver.result(Operation(site), function).last_exception
        else:
            driver.run(wrap(function, site))
    except Exception as error:
        return error
    return None


@pytest.mark.req("NFR-041-13")
@pytest.mark.parametrize("way", ["wrap", "heard", "block", "result"])
def test_with_count_all_a_failure_that_is_not_retried_is_recorded(driver, way):
    """The caller's mistakes open the circuit, but for those that are ignored."""
    breaker = CircuitBreaker("pay", failure_threshold=3, count="all", ignore=KeyError)
    for failure, failures in ((ValueError, 1), (KeyError, 1), (ValueError, 2)):
        run_by(driver, way, driver.scripted(failure), breaker, POLICY)
        assert breaker.snapshot().failure_count == failures
    run_by(driver, way, driver.scripted(ValueError), breaker, POLICY)
    assert breaker.state is OPEN
    by_default = CircuitBreaker("pay", failure_threshold=2)
    run_by(driver, way, driver.scripted(ValueError), by_default, POLICY)
    assert by_default.snapshot().failure_count == 0


class Operation(CircuitBreaker):
    """The verbs of a site of one's own."""

    def __init__(self, site):
        super().__init__("operation")
        self._site = site


@pytest.mark.req("EF-11")
@pytest.mark.parametrize("way", ["wrap", "heard", "block", "result"])
def test_nobody_waits_towards_an_open_circuit(driver, way):
    """The failure that opens it ends the call at once, with a note; no second is waited."""
    breaker = breaker_of(1)
    error = run_by(driver, way, driver.scripted(DOWN, "never"), breaker, POLICY)
    assert isinstance(error, DOWN)
    assert any("circuit 'pay' is open" in note for note in error.__notes__)
    assert driver.time.elapsed == 0.0


@pytest.mark.parametrize("way", ["wrap", "heard", "block", "result"])
def test_a_retry_that_would_find_it_half_open_is_waited_for(driver, way):
    """The delay is longer than the open time: the retry is the probe."""
    breaker = breaker_of(1, 10.0)
    slow = POLICY.replace(backoff=Backoff.constant(10.0))
    assert run_by(driver, way, driver.scripted(DOWN, "up"), breaker, slow) is None
    assert (breaker.state, driver.time.elapsed) == (CLOSED, 10.0)


@pytest.mark.req("EF-11")
@pytest.mark.parametrize("way", ["wrap", "heard", "block", "result"])
def test_a_circuit_that_opens_between_attempts_refuses_the_retry(driver, way):
    """The call ends with the error it has, and a note; the refusal is counted."""
    breaker = breaker_of(5)

    def fail():
        clock_hooks.append(breaker.force_open)
        raise DOWN("first")

    clock_hooks = []
    policy = POLICY.replace(before_retry=lambda info: clock_hooks.pop()())
    error = run_by(driver, way, driver.colour(fail), breaker, policy)
    assert str(error) == "first"
    assert "circuit 'pay' is forced open" in error.__notes__[0]
    assert breaker.snapshot().refused == 1


@pytest.mark.parametrize("way", ["wrap", "heard", "block", "result"])
def test_a_first_attempt_is_refused_with_the_refusal(driver, way):
    """There is no other error to raise; a listener hears of it."""
    breaker = breaker_of(1)
    breaker.force_open("maintenance")
    error = run_by(driver, way, driver.scripted(), breaker, POLICY)
    assert isinstance(error, CircuitOpenError)
    assert (error.state, error.retry_after) == (CircuitState.FORCED_OPEN, None)
    assert "an operator" in str(error)


def test_a_listener_of_the_retry_hears_of_the_refused_call(driver):
    """One event, and no attempt."""
    breaker, trace = breaker_of(1), Trace()
    breaker.force_open()
    pay = retried(driver.scripted(), breaker, listeners=(trace,))
    fails(driver.run, pay, error=CircuitOpenError)
    assert trace.names == ["call_refused"]


def test_a_retry_refused_after_a_result_keeps_the_result(driver):
    """A value that was not accepted is still the call's value."""
    breaker = breaker_of(1)

    def shut():
        breaker.force_open()
        return "half done"

    policy = POLICY.replace(retry_if_result=lambda value: value != "done")
    assert driver.run(retried(driver.colour(shut), breaker, policy)) == "half done"


@pytest.mark.parametrize("way", ["wrap", "heard", "block", "result"])
def test_results_that_are_not_accepted_are_no_failures(driver, way):
    """The other side answered."""
    breaker = breaker_of(1)
    policy = POLICY.replace(retry_if_result=lambda value: value != "done")
    function = driver.scripted("wait", "wait", "done")
    assert run_by(driver, way, function, breaker, policy) is None
    assert (breaker.state, breaker.snapshot().failure_count) == (CLOSED, 0)


@pytest.mark.parametrize("limits", [{"attempt_timeout": 2.0}, {"deadline": 2.0}], ids=str)
def test_an_attempt_that_was_cut_counts(async_driver, limits):
    """By its own limit or by the call's deadline: the other side did not answer in time."""
    breaker = breaker_of(1)
    policy = POLICY.replace(**limits)
    pay = retried(async_driver.scripted(takes(60.0, "late")), breaker, policy)
    fails(async_driver.run, pay, error=TimeoutError)
    assert breaker.state is OPEN


@pytest.mark.req("FR-041-51")
def test_without_a_breaker_nothing_is_refused(driver):
    """It is optional: a policy alone goes on calling."""
    pay = ONCE(driver.scripted(*[DOWN] * 10, "up"))
    for _ in range(10):
        fails(driver.run, pay)
    assert driver.run(pay) == "up"


def test_several_breakers_guard_one_call(driver):
    """The first refusal counts, and the places of those asked before are given back."""
    first, second = half_open(driver.time), breaker_of(1)
    second.force_open()
    pay = wrap(driver.scripted("up"), Site(POLICY, gate=Gate((first, second))))
    assert fails(driver.run, pay, error=CircuitOpenError).state is CircuitState.FORCED_OPEN
    assert (first.state, first.snapshot().probes) == (HALF_OPEN, 0)
    second.reset()
    assert driver.run(pay) == "up"
    assert (first.state, second.state) == (CLOSED, CLOSED)


# --- cut off --------------------------------------------------------------------------------------


def decorated(breaker, function):
    return breaker(function)


def in_block(breaker, function):
    async def call():
        async with breaker:
            await function()

    return call


def in_attempts(breaker, function):
    async def call():
        async for attempt in Attempts(Site(POLICY, gate=Gate((breaker,)))):
            with attempt:
                await function()

    return call


def under_deadline(breaker, function):
    return retried(function, breaker, POLICY.replace(deadline=900.0))


WAYS = [decorated, in_block, in_attempts, retried, under_deadline]


def as_way(way, breaker, function):
    return way(function, breaker) if way is retried else way(breaker, function)


@pytest.mark.parametrize("way", WAYS)
def test_a_cancelled_task_gives_its_probe_place_back(async_driver, way):
    """Half open, a probe under way, cancelled: the next call may probe, and nothing was counted."""
    breaker = half_open(async_driver.time, probe_timeout=1000.0)

    async def hang():
        assert breaker.snapshot().probes == 1
        await (asyncio if async_driver.name == "asyncio" else trio).sleep(900.0)

    call = as_way(way, breaker, hang)

    async def on_asyncio():
        task = asyncio.create_task(call())
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def on_trio():
        with trio.move_on_after(1.0):
            await call()

    async_driver.run(on_asyncio if async_driver.name == "asyncio" else on_trio)
    assert (breaker.state, breaker.snapshot().probes) == (HALF_OPEN, 0)
    assert breaker.allow_request()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_gives_a_probe_place_back(driver, stop):
    """It says nothing of the other side."""
    breaker = half_open(driver.time)
    for call in (breaker(driver.scripted(stop)), retried(driver.scripted(stop), breaker)):
        fails(driver.run, call, error=stop)
        assert (breaker.state, breaker.snapshot().probes) == (HALF_OPEN, 0)


def test_a_cancelled_call_of_a_closed_circuit_does_not_count(async_driver):
    """Nor does it end a row of failures."""
    breaker = breaker_of(2)
    pay = breaker(async_driver.scripted(DOWN, asyncio.CancelledError, DOWN))
    for error in (DOWN, asyncio.CancelledError):
        fails(async_driver.run, pay, error=error)
    assert breaker.snapshot().failure_count == 1
    fails(async_driver.run, pay)
    assert breaker.state is OPEN


# --- windows and slow calls -----------------------------------------------------------------------


def test_slow_calls_open_it(driver):
    """Two of four took two seconds; the others are only counted."""
    breaker = breaker_of(window=Window.calls(4), min_calls=4, slow_after=2.0, slow_rate=0.5)
    pay = breaker(driver.scripted(takes(1.0, 1), takes(2.0, 2), takes(1.9, 3), takes(2.0, 4)))
    assert [driver.run(pay) for _ in range(4)] == [1, 2, 3, 4]
    assert breaker.state is OPEN
    assert breaker.snapshot().reason == "2 of 4 calls were slow"


def test_a_slow_failure_is_both(driver):
    """Counted once, as failed and as slow."""
    breaker = breaker_of(window=Window.calls(10), min_calls=10, slow_after=2.0, slow_rate=0.5)
    pay = breaker(driver.scripted("quick", takes(3.0, DOWN)))
    driver.run(pay)
    fails(driver.run, pay)
    seen = breaker.snapshot()
    assert (seen.calls, seen.failure_rate, seen.slow_rate) == (2, 0.5, 0.5)


def test_an_outage_after_long_health_opens_a_time_window(driver):
    """A thousand healthy seconds do not hide ten bad ones."""
    breaker = breaker_of(window=Window.seconds(10.0), min_calls=10)
    pay = breaker(driver.scripted(*["up"] * 1000, *[DOWN] * 30))

    def plain():
        for _ in range(1000):
            pay()
            driver.time.advance(1.0)

    async def coloured():
        for _ in range(1000):
            await pay()
            driver.time.advance(1.0)

    driver.run(coloured if driver.is_async else plain)
    failures = 0
    while breaker.state is CLOSED and failures < 30:
        fails(driver.run, pay)
        failures += 1
        driver.time.advance(0.25)
    assert 8 <= failures <= 15


@pytest.mark.req("FR-041-53", "FR-041-64", "AC-031")
def test_a_snapshot_knows_the_successes_since_the_last_failure(driver):
    """Also those that were only counted."""
    breaker = breaker_of(window=Window.calls(100))
    pay = breaker(driver.scripted("up", DOWN, *["up"] * 18))
    driver.run(pay)
    fails(driver.run, pay)
    for _ in range(18):
        driver.run(pay)
    for _ in range(2):
        seen = breaker.snapshot()
        assert (seen.calls, seen.failure_count, seen.failure_rate) == (20, 1, 0.05)


@pytest.mark.parametrize("order", ["disable", "force_close", "force_open"])
def test_what_happened_under_an_order_is_no_evidence_after_it(time, order):
    """Successes counted before a reset are forgotten as failures are."""
    breaker = breaker_of(window=Window.calls(100), min_calls=2)
    pay = breaker(scripted(*["up"] * 100, DOWN, DOWN))
    for _ in range(50):
        pay()
    if order != "force_open":
        getattr(breaker, order)()
    for _ in range(50):
        pay()
    getattr(breaker, order)()
    breaker.reset()
    fails(pay)
    assert breaker.snapshot().calls == 1
    fails(pay)
    assert breaker.state is OPEN


def test_a_late_block_takes_no_successes_with_it(time):
    """What it says is void; the calls that were counted meanwhile are not."""
    breaker = breaker_of(window=Window.calls(100))
    pay = breaker(scripted(*["up"] * 5, DOWN))
    with breaker:
        breaker.reset()
        for _ in range(5):
            pay()
    fails(pay)
    assert breaker.snapshot().calls == 6


def test_a_ramp_refuses_some_calls_after_closing(time):
    """The first is let through, at the end all are."""
    breaker = half_open(time, ramp=100.0)
    pay = breaker(lambda: "up")
    assert pay() == "up"
    assert breaker.state is CLOSED
    outcomes = []
    for _ in range(20):
        try:
            outcomes.append(pay())
        except CircuitOpenError as error:
            outcomes.append(error.retry_after)
    assert outcomes[0] == "up"
    assert outcomes.count("up") == 2
    assert all(0.0 < wait <= 100.0 for wait in outcomes if wait != "up")
    time.advance(100.0)
    assert [pay() for _ in range(20)] == ["up"] * 20


# --- an operator's orders -------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["force_close", "disable", "observe"])
def test_an_operators_open_door_lets_everything_through(driver, order):
    """Whatever fails, until another order."""
    breaker = breaker_of(1)
    breaker.record_failure()
    getattr(breaker, order)("for now")
    pay = retried(driver.scripted(*[DOWN] * 9, "up"), breaker, ONCE)
    for _ in range(9):
        fails(driver.run, pay)
    assert driver.run(pay) == "up"
    assert breaker.trace.events[1].reason == "for now"
    breaker.reset()
    assert breaker.state is CLOSED


@pytest.mark.req("FR-041-61", "AC-032")
def test_a_reset_closes_it_at_once(driver):
    """For every function it guards."""
    breaker = breaker_of(1)
    one, two = breaker(driver.scripted(DOWN, 1)), breaker(driver.scripted(2))
    fails(driver.run, one)
    fails(driver.run, two, error=CircuitOpenError)
    breaker.reset()
    assert (driver.run(one), driver.run(two)) == (1, 2)


# --- who is told ----------------------------------------------------------------------------------


def test_changes_are_told_in_order_with_what_brought_them_about(time):
    """Every generation once, with counts, reason and the time to wait."""
    breaker = breaker_of(3, success_threshold=2)
    for _ in range(3):
        breaker.record_failure()
    time.advance(30.0)
    breaker.record_success()
    breaker.record_success()
    told = breaker.trace.events
    assert [event.generation for event in told] == [1, 2, 3]
    assert [event.operation for event in told] == ["pay"] * 3
    assert (told[0].failure_count, told[0].reason) == (3, "3 failures in a row")
    assert told[0].retry_after_seconds == 30.0
    assert (told[2].success_count, told[2].to_state) == (2, "closed")
    assert told[0].timestamp


def test_the_event_of_a_window_counts_the_failure_that_opened_it(time):
    """As its reason does."""
    breaker = breaker_of(window=Window.calls(10), min_calls=4)
    pay = breaker(scripted("up", "up", DOWN, DOWN))
    pay()
    pay()
    fails(pay)
    fails(pay)
    event = breaker.trace.events[0]
    assert (event.failure_count, event.reason) == (2, "2 of 4 calls failed")


def test_metrics_only_tells_when_it_would_open(time):
    """From metrics-only to metrics-only, with the count."""
    breaker = breaker_of(2)
    breaker.observe()
    breaker.record_failure()
    breaker.record_failure()
    event = breaker.trace.events[1]
    assert (event.from_state, event.to_state) == ("metrics_only", "metrics_only")
    assert (event.failure_count, event.reason) == (2, "would open: 2 failures in a row")


def test_a_listener_may_ask_and_order(time):
    """No lock is held; all hear of the changes in their order, also of those made while hearing."""
    heard, states = [], []

    def meddle(event):
        states.append((breaker.state, breaker.snapshot().generation, breaker.allow_request()))
        if event.to_state == "open":
            breaker.reset("at once")

    breaker = CircuitBreaker("pay", failure_threshold=1, listener=[meddle, heard.append])
    worker = threading.Thread(target=breaker.record_failure, daemon=True)
    worker.start()
    worker.join(60)
    assert not worker.is_alive()
    assert states == [(OPEN, 1, False), (CLOSED, 2, True)]
    assert [event.generation for event in heard] == [1, 2]


def test_a_listener_that_raises_changes_nothing(time, caplog):
    """It is logged, the others hear, and the user's error stays the user's error."""
    heard = []

    def broken(event):
        raise LookupError("oops")

    breaker = CircuitBreaker("pay", failure_threshold=1, listener=[broken, heard.append])
    fails(breaker(scripted(DOWN("mine"))))
    assert (breaker.state, len(heard)) == (OPEN, 1)
    assert "oops" in caplog.text


def test_a_listener_stopped_from_outside_does_not_silence_the_next_change(time):
    """Ctrl+C inside a listener leaves; the change stands, and the next one is told."""
    heard = []

    def stopped(event):
        heard.append(event.to_state)
        if len(heard) == 1:
            raise KeyboardInterrupt

    breaker = CircuitBreaker("pay", failure_threshold=1, listener=stopped)
    with pytest.raises(KeyboardInterrupt):
        breaker.record_failure()
    breaker.reset()
    assert heard == ["open", "closed"]


def test_a_listener_may_come_later(time):
    """Once, however often it is given."""
    breaker, heard = CircuitBreaker("pay"), []
    listener = heard.append
    breaker.listen(listener)
    breaker.listen(listener)
    breaker.force_open()
    assert [event.to_state for event in heard] == ["forced_open"]


@pytest.mark.usefixtures("logged")
def test_without_a_listener_changes_are_logged_at_info(time, caplog):
    """One line each, with name, states and reason, as an engine logs them."""
    breaker = CircuitBreaker("pay", failure_threshold=2)
    with caplog.at_level(logging.INFO, logger="mainstay"):
        breaker.record_failure()
        breaker.record_failure()
    (line,) = caplog.records
    assert (line.levelname, line.name) == ("INFO", "mainstay.security")
    assert line.getMessage() == "pay: circuit closed -> open (2 failures in a row)"


def test_changes_are_told_in_order_whoever_makes_them(hasty):
    """Eight threads give orders at once; every listener hears of each generation in turn."""
    heard = []
    breaker = CircuitBreaker("pay", listener=lambda event: heard.append(event.generation))

    def work(n):
        for _ in range(50):
            breaker.force_open() if n % 2 else breaker.reset()

    in_threads(work)
    assert heard == list(range(1, 401))


# --- how it looks ---------------------------------------------------------------------------------


@pytest.mark.req("CL-07", "FR-041-64", "AC-031")
def test_a_breaker_tells_its_name_state_and_numbers(time):
    """In repr, state, retry_after and snapshot."""
    breaker = breaker_of(2)
    assert repr(breaker) == "<CircuitBreaker 'pay' closed>"
    assert (breaker.state, breaker.retry_after, breaker.name) == (CLOSED, 0.0, "pay")
    breaker.record_failure()
    breaker.record_failure()
    breaker.allow_request()
    time.advance(10.0)
    assert repr(breaker) == "<CircuitBreaker 'pay' open>"
    seen = breaker.snapshot()
    assert (seen.state, seen.openings, seen.refused, seen.generation) == (OPEN, 1, 1, 1)
    assert (seen.seconds_in_state, seen.retry_after) == (
        pytest.approx(10.0),
        pytest.approx(20.0),
    )
    assert seen.to_dict()["name"] == "pay"


@pytest.mark.req("CL-07")
def test_the_refusal_travels(time):
    """Pickled and back: the same operation, state, time to wait and text."""
    breaker = breaker_of(1)
    breaker.record_failure()
    error = fails(breaker(scripted()), error=CircuitOpenError)
    error.add_note("seen here")
    again = pickle.loads(pickle.dumps(error))
    assert (again.operation, again.state, again.retry_after) == ("pay", OPEN, error.retry_after)
    assert (str(again), again.code, again.__notes__) == (str(error), "MS303", ["seen here"])
    assert str(again) == "circuit 'pay' is open: the call was not made. try again in 30 s"


@pytest.mark.parametrize("name", ["", " ", "a ", None, 3])
def test_a_breaker_has_a_name(name):
    """It stands in errors, events and reports."""
    with pytest.raises(PolicyError):
        CircuitBreaker(name)


def test_settings_are_given_whole_or_by_field():
    """Not both, and nothing else."""
    assert CircuitBreaker("a", BreakerSettings(failure_threshold=7)).settings.failure_threshold == 7
    with pytest.raises(UsageError):
        CircuitBreaker("a", BreakerSettings(), failure_threshold=7)
    with pytest.raises(UsageError):
        CircuitBreaker("a", {"failure_threshold": 7})
    with pytest.raises(PolicyError):
        CircuitBreaker("a", failure_threshold=0)
    with pytest.raises(PolicyError):
        CircuitBreaker("a", listener=[3])


def test_a_seed_makes_open_times_repeatable_and_seeds_differ(time):
    """The same to the bit; the next seed gives another."""

    def open_time(seed):
        fields = {"failure_threshold": 1, "recovery_jitter": Jitter.full()}
        breaker = CircuitBreaker("pay", seed=seed, **fields)
        breaker.record_failure()
        return breaker._circuit.open_seconds

    times = [open_time(seed) for seed in (*range(8), *range(8))]
    assert times[:8] == times[8:]
    assert len(set(times)) == 8


@pytest.mark.req("NFR-041-13")
def test_waiting_as_long_as_the_refusal_says_is_enough(time):
    """To within a rounding of the clock, whatever the clock shows; and never a call too many."""
    for n in range(200):
        time.advance(n / 7)
        breaker = breaker_of(1, 0.1 + n / 3)
        pay = breaker(scripted(DOWN, "up", "up"))
        fails(pay)
        time.advance(breaker.retry_after + 1e-6)
        assert pay() == "up"
        assert breaker.state is CLOSED


# --- what it costs --------------------------------------------------------------------------------


def trivial(a):
    return a


async def atrivial(a):
    return a


@pytest.mark.req("NFR-041-04", "FR-041-51")
def test_a_closed_breaker_costs_a_success_no_frame_and_no_call():
    """Alone and with a retry, sync and async: the wrapper's own frame, and nothing else."""
    breaker = breaker_of(5)
    for guard in (breaker, lambda function: retried(function, breaker)):
        assert costs(guard(trivial), 1) == ["first_attempt", "trivial"]
        assert acosts(guard(atrivial), 1) == ["first_attempt", "atrivial"]


@pytest.mark.req("NFR-041-04")
@pytest.mark.parametrize("window", [Window.calls(100), Window.seconds(60.0)])
def test_a_window_costs_a_success_one_c_call(window):
    """The call is counted, and nothing else: by a slot wrapper, which no profile hook can see."""
    breaker = breaker_of(window=window)
    for guard, way in ((breaker(trivial), costs), (breaker(atrivial), acosts)):
        assert way(guard, 1) == ["first_attempt", guard.__name__]
        assert breaker_of()(guard.__wrapped__).__code__.co_freevars == (
            "ms_function",
            "ms_now",
            "ms_site",
        )
        assert "ms_count" in guard.__code__.co_freevars
    kept = breaker(trivial)
    assert type(breaker._gates[-1]().tally.count).__name__ == "method-wrapper"
    assert kept(1) is not kept
    assert breaker.snapshot().calls == 2


def test_functions_of_one_gate_share_the_variable_that_it_sets():
    """So that an opening is seen by all of them at once, and by none before."""
    breaker = breaker_of(1)
    decorate = retry(on=OSError, breaker=breaker)
    functions = [decorate(trivial), decorate(atrivial), decorate(lambda a, *, b=1: a)]
    gate = functions[0].mainstay._site.gate

    def cells():
        names = (each.__code__.co_freevars.index("ms_now") for each in functions)
        return [each.__closure__[name] for each, name in zip(functions, names, strict=True)]

    assert all(cell is gate.cell for cell in cells())
    assert gate.cell.cell_contents is gate.quiet is not None
    breaker.force_open()
    assert gate.cell.cell_contents is gate.quiet is None
    breaker.reset()
    assert gate.cell.cell_contents is gate.quiet is not None


def test_after_a_row_of_failures_has_ended_success_is_free_again():
    """Trouble is over when it is over: after a success, a probe, or an order."""
    breaker = breaker_of(2)
    outcomes = iter([DOWN, "up", "up", DOWN, DOWN, "up"])

    @breaker
    def play():
        outcome = next(outcomes)
        if outcome is DOWN:
            raise DOWN
        return outcome

    free = ["first_attempt", "play", "next"]
    fails(play)
    assert len(costs(play)) > 3
    assert [name for name in costs(play) if "next" not in name] == free[:2]
    fails(play)
    fails(play)
    breaker.reset()
    assert [name for name in costs(play) if "next" not in name] == free[:2]


@pytest.mark.req("NFR-041-04")
def test_a_refusal_takes_no_lock(time):
    """An open circuit refuses while another thread holds it."""
    breaker = breaker_of(1)
    pay = breaker(scripted(DOWN))
    fails(pay)
    with breaker._lock:
        fails(pay, error=CircuitOpenError)


# --- many at once ---------------------------------------------------------------------------------


class Crowd:
    """A function that notes how many are inside at once."""

    def __init__(self, outcome=None):
        self.inside = self.most = self.calls = 0
        self.outcome = outcome
        self.lock = threading.Lock()

    def enter(self):
        with self.lock:
            self.inside += 1
            self.calls += 1
            self.most = max(self.most, self.inside)

    def leave(self):
        with self.lock:
            self.inside -= 1
        if self.outcome is not None:
            raise self.outcome


@pytest.mark.req("FR-041-57", "NFR-041-13")
@pytest.mark.parametrize("probes", [1, 3])
@pytest.mark.parametrize("outcome", [None, ValueError()], ids=repr)
def test_eight_threads_never_have_more_probes_than_allowed(hasty, probes, outcome):
    """The circuit stays half open, and however hard they knock, no more are inside at once."""
    breaker = breaker_of(1, 1e-6, half_open_probes=probes, success_threshold=1_000_000)
    crowd, refused = Crowd(outcome), []

    @breaker
    def probe():
        crowd.enter()
        for _ in range(20):
            pass  # so that others get their turn while this one is inside
        crowd.leave()

    breaker.record_failure()

    def work(n):
        for _ in range(300):
            try:
                probe()
            except CircuitOpenError:
                refused.append(n)
            except ValueError:
                pass

    in_threads(work)
    assert 1 <= crowd.most <= probes
    assert crowd.calls + len(refused) == 8 * 300
    seen = breaker.snapshot()
    assert (seen.state, seen.probes, seen.refused) == (HALF_OPEN, 0, len(refused))
    assert seen.success_count == (0 if outcome else crowd.calls)


@pytest.mark.req("FR-041-57", "NFR-041-13")
@pytest.mark.parametrize("way", [decorated, in_block, retried])
def test_a_thousand_tasks_never_have_more_probes_than_allowed(way):
    """Of a thousand at once two are probes, and the others are refused."""
    crowd = Crowd()

    async def probe():
        crowd.enter()
        await asyncio.sleep(1.0)
        crowd.leave()

    with virtual_time() as time:
        breaker = half_open(time, half_open_probes=2, success_threshold=4)
        call = as_way(way, breaker, probe)

        async def main():
            for _ in range(2):
                tasks = [asyncio.create_task(call()) for _ in range(1000)]
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
                assert sum(outcome is None for outcome in outcomes) == 2
                refused = [each for each in outcomes if isinstance(each, CircuitOpenError)]
                assert len(refused) == 998

        asyncio.run(main())
    assert (crowd.most, crowd.calls, breaker.state) == (2, 4, CLOSED)
    assert breaker.snapshot().refused == 2 * 998


@pytest.mark.req("FR-041-52", "FR-041-53", "NFR-041-13", "CL-07")
@pytest.mark.parametrize("way", ["decorated", "retried", "block", "by hand"])
def test_eight_threads_lose_no_count(hasty, way):
    """After so many calls the window holds exactly those, and exactly the failures."""
    breaker = CircuitBreaker("pay", window=Window.calls(10_000), min_calls=10_000)
    pay = breaker(outcome_of) if way == "decorated" else retried(outcome_of, breaker, ONCE)

    def by_block(n):
        with breaker:
            outcome_of(n)

    def by_hand(n):
        assert breaker.allow_request()
        breaker.record_success() if n % 5 else breaker.record_failure()

    call = {"block": by_block, "by hand": by_hand}.get(way, pay)

    def work(n):
        for m in range(250):
            try:
                call(m)
            except DOWN:
                assert m % 5 == 0

    in_threads(work)
    seen = breaker.snapshot()
    assert (seen.calls, seen.failure_count) == (8 * 250, 8 * 50)


def outcome_of(n):
    """Each fifth fails."""
    if n % 5 == 0:
        raise DOWN
    return n


@pytest.mark.req("FR-041-52", "NFR-041-13")
def test_eight_threads_lose_no_failure_in_a_row(hasty):
    """The circuit opens at the very failure its threshold names."""
    breaker = breaker_of(8 * 100)
    pay = breaker(lambda: outcome_of(0))

    def work(n):
        for _ in range(99 if n else 100):
            fails(pay)

    in_threads(work)
    assert (breaker.state, breaker.snapshot().failure_count) == (CLOSED, 793)
    for _ in range(7):
        fails(pay)
    assert breaker.state is OPEN
    assert breaker.trace.events[0].failure_count == 800


@pytest.mark.req("FR-041-52", "NFR-041-13")
def test_a_thousand_tasks_lose_no_count():
    """Half of them fail; all are counted."""
    with virtual_time():
        breaker = CircuitBreaker("pay", window=Window.seconds(60.0), min_calls=1_000_000)

        @breaker
        async def pay(n):
            await asyncio.sleep(n % 7 / 10)
            if n % 2:
                raise DOWN

        async def main():
            return await asyncio.gather(*map(pay, range(1000)), return_exceptions=True)

        assert sum(isinstance(each, DOWN) for each in asyncio.run(main())) == 500
        seen = breaker.snapshot()
    assert (seen.calls, seen.failure_count, seen.failure_rate) == (1000, 500, 0.5)


@pytest.mark.req("CL-07")
def test_threads_asyncio_and_trio_share_one_breaker():
    """What one opens is open to the others."""
    breaker = breaker_of(3)
    pay, apay = breaker(scripted(DOWN)), breaker(failing)
    fails(pay)
    fails(asyncio.run, apay())
    fails(trio.run, apay)
    for call in (pay, lambda: asyncio.run(apay()), lambda: trio.run(apay)):
        fails(call, error=CircuitOpenError)


async def failing():
    raise DOWN
