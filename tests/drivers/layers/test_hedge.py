"""A hedge: the first answer wins, losers are gone or counted, what bounds a call is seen."""

import asyncio
import gc
import inspect
import threading
import weakref

import pytest
import trio
import trio.testing

import mainstay
from mainstay import Backoff, PolicyError, RetryPolicy, UsageError, WrapError, deadline
from mainstay.core.retry.effects import Stop
from mainstay.drivers.layers import race as module
from mainstay.drivers.layers.hedge import Hedge
from mainstay.runtime.context import CANCEL
from mainstay.testing import Trace, no_retry, record, virtual_time

LONG = 30.0
"""Real seconds after which a test that waits for another thread has failed."""


class Play:
    """A function whose attempts last and end as a script says; it remembers what became of them.

    A step is (seconds, outcome). In threads an attempt lasts until it is released, or not at all
    where its step has no seconds.
    """

    def __init__(self, driver, *steps):
        self.driver, self.steps = driver, steps
        self.started, self.cancelled, self.seen = [], [], []
        self.release = threading.Event()
        self.function = self.coloured if driver.is_async else self.plain

    def begin(self, look):
        number = len(self.started)
        self.started.append(self.driver.time.elapsed)
        self.seen.append(look())
        return number, *self.steps[number]

    def plain(self, look=lambda: None):
        _, seconds, outcome = self.begin(look)
        if seconds and not self.release.wait(LONG):
            raise AssertionError("never released")
        return self.end(outcome)

    async def coloured(self, look=lambda: None):
        number, seconds, outcome = self.begin(look)
        try:
            if self.driver.name == "trio":
                await trio.sleep(seconds)
            else:
                await asyncio.sleep(seconds)
        except (asyncio.CancelledError, trio.Cancelled):
            self.cancelled.append(number)
            raise
        return self.end(outcome)

    @staticmethod
    def end(outcome):
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@pytest.fixture
def play(driver):
    """Makes plays for each driver, and lets their threads end."""
    plays = []

    def make(*steps):
        plays.append(Play(driver, *steps))
        return plays[-1]

    before = set(threading.enumerate())
    yield make
    for each in plays:
        each.release.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(LONG)


def call(driver, hedge, play, *args):
    """One hedged call; in an event loop, nothing of it is left when it returns."""
    function = hedge(play.function)
    if not driver.is_async:
        return function(*args)

    async def main():
        try:
            return await function(*args)
        finally:
            if driver.name == "asyncio":
                assert asyncio.all_tasks() == {asyncio.current_task()}
                loop = asyncio.get_running_loop()
                assert [t for t in loop._scheduled if not t._cancelled] == []
            else:
                assert not trio.lowlevel.current_task().child_nurseries

    return driver.run(main)


# --- who wins -------------------------------------------------------------------------------------


def test_a_fast_answer_needs_no_hedge(driver, play):
    """What ends before the delay runs once."""
    hedge, made = Hedge(5.0, listener=Trace()), play((0, "fast"))
    assert call(driver, hedge, made) == "fast"
    assert len(made.started) == 1
    assert driver.time.elapsed == 0.0
    assert hedge.snapshot().hedged == 0


def test_a_slow_attempt_gets_another_beside_it(driver, play):
    """After the delay a second one starts; its answer is taken, the loser is cancelled."""
    trace = Trace()
    hedge, made = Hedge(5.0, listener=trace), play((100.0, "slow"), (0, "hedge"))
    with mainstay.context(tenant_id="t1"):
        assert call(driver, hedge, made) == "hedge"
    assert made.started == pytest.approx([0.0, 5.0])
    assert driver.time.elapsed == pytest.approx(5.0)
    now = hedge.snapshot()
    assert (now.hedged, now.won, now.denied) == (1, 1, 0)
    (event,) = trace.events
    assert (event.event_type, event.hedge_number) == ("attempt_hedged", 1)
    assert event.waited_seconds == pytest.approx(5.0)
    assert event.tenant_id == "t1"
    assert event.operation.startswith("Play.")
    if driver.is_async:
        assert made.cancelled == [0]


def test_the_first_attempt_may_still_win(async_driver):
    """Its answer, given while the hedge runs, is as good."""
    made = Play(async_driver, (6.0, "first"), (50.0, "hedge"))
    hedge = Hedge(5.0)
    assert call(async_driver, hedge, made) == "first"
    assert async_driver.time.elapsed == pytest.approx(6.0)
    assert made.cancelled == [1]
    assert (hedge.snapshot().hedged, hedge.snapshot().won) == (1, 0)


def test_the_first_thread_may_still_win():
    """The same in threads: the hedge lets the first one go on, and then loses."""
    started, go = threading.Event(), threading.Event()
    hedge, numbers = Hedge(0.0), iter(range(2))

    @hedge
    def work():
        if next(numbers) == 0:
            assert started.wait(LONG)
            return "first"
        started.set()
        assert go.wait(LONG)
        return "hedge"

    assert work() == "first"
    assert hedge.snapshot().won == 0
    go.set()
    finish_threads(hedge)


def finish_threads(hedge):
    for thread in list(hedge._book.abandoned):
        thread.join(LONG)
    assert hedge.snapshot().abandoned == 0


def test_several_hedges_start_one_after_another(driver, play):
    """Each a delay after the one before, and no more than max_hedges."""
    trace = Trace()
    slow = (100.0, "slow")
    made = play(slow, slow, slow, (0, "third hedge"))
    assert call(driver, Hedge(5.0, max_hedges=3, listener=trace), made) == "third hedge"
    assert made.started == pytest.approx([0.0, 5.0, 10.0, 15.0])
    assert [event.hedge_number for event in trace.events] == [1, 2, 3]


def test_no_more_than_max_hedges_start(async_driver):
    """The rest is waiting."""
    made = Play(async_driver, (100.0, "slow"), (100.0, "slow too"))
    assert call(async_driver, Hedge(5.0, max_hedges=1), made) == "slow"
    assert len(made.started) == 2
    assert async_driver.time.elapsed == pytest.approx(100.0)


def test_without_delay_both_start_at_once(driver, play):
    """A delay of 0 is a race from the start."""
    made = play((100.0, "slow"), (0, "fast"))
    assert call(driver, Hedge(0.0), made) == "fast"
    assert made.started[1] == pytest.approx(0.0, abs=1e-3)


# --- failures -------------------------------------------------------------------------------------


def test_a_failure_before_the_delay_is_raised_at_once(driver, play):
    """There is nothing to race; repeating is a retry's business."""
    error = ConnectionError("down")
    made = play((0, error))
    with pytest.raises(ConnectionError) as caught:
        call(driver, Hedge(5.0), made)
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert len(made.started) == 1
    assert driver.time.elapsed == 0.0


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        ([(6.0, OSError("1")), (9.0, "hedge")], 14.0),
        ([(9.0, "first"), (1.0, OSError("2"))], 9.0),
    ],
    ids=["first fails", "hedge fails"],
)
def test_a_failure_does_not_win_while_another_runs(async_driver, steps, seconds):
    """The answer is waited for, whoever failed before it."""
    made = Play(async_driver, *steps)
    assert call(async_driver, Hedge(5.0), made) in ("first", "hedge")
    assert async_driver.time.elapsed == pytest.approx(seconds)
    assert made.cancelled == []


@pytest.mark.parametrize(("first", "second"), [(6.0, 9.0), (9.0, 1.0)], ids=["in turn", "across"])
def test_where_all_fail_the_first_attempts_error_is_raised(async_driver, first, second):
    """With the others' in a note, whichever ended last."""
    error = ConnectionError("one")
    made = Play(async_driver, (first, error), (second, TimeoutError("two")))
    with pytest.raises(ConnectionError) as caught:
        call(async_driver, Hedge(5.0), made)
    assert caught.value is error
    (note,) = error.__notes__
    assert note == "hedge 1 of Play.coloured failed too: TimeoutError: two"


def test_where_all_threads_fail_the_first_attempts_error_is_raised():
    """The same in threads."""
    barrier, errors = threading.Barrier(2), iter([ConnectionError("one"), OSError("two")])

    @Hedge(0.0)
    def work():
        error = next(errors)
        barrier.wait(LONG)
        raise error

    with pytest.raises(ConnectionError, match="one") as caught:
        work()
    assert caught.value.__notes__[0].endswith("work failed too: OSError: two")


def test_an_error_that_is_raised_again_gets_its_note_once(async_driver):
    """A mock that raises the same two objects in every call does not collect notes."""
    error = OSError("one")
    for _ in range(3):
        made = Play(async_driver, (9.0, error), (9.0, OSError("two")))
        with pytest.raises(OSError, match="one"):
            call(async_driver, Hedge(5.0), made)
    assert len(error.__notes__) == 1


def test_one_error_raised_by_all_gets_no_note(async_driver):
    """A mock that raises one object is not told of itself."""
    error = OSError("down")
    made = Play(async_driver, (9.0, error), (9.0, error))
    with pytest.raises(OSError, match="down"):
        call(async_driver, Hedge(5.0), made)
    assert not hasattr(error, "__notes__")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_means_stop_wins_at_once(driver, play, stop):
    """From any attempt it reaches the caller, and the other attempts are ended."""
    made = play((100.0, "slow"), (0, stop()))
    with pytest.raises(stop):
        call(driver, Hedge(5.0), made)
    assert driver.time.elapsed == pytest.approx(5.0)
    if driver.is_async:
        assert made.cancelled == [0]


def test_an_attempt_that_cancels_itself_cancels_the_call():
    """A CancelledError of the function's own is no failure and no answer."""

    @Hedge(5.0)
    async def function():
        raise asyncio.CancelledError

    async def main():
        task = asyncio.create_task(function())
        await asyncio.wait([task], timeout=1.0)
        return task.cancelled()

    with virtual_time():
        assert asyncio.run(main())


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_in_a_loser_that_cleans_up_is_not_lost(async_driver, stop):
    """The answer is there, and still the program is to end."""
    sleep = trio.sleep if async_driver.name == "trio" else asyncio.sleep
    numbers = iter(range(2))

    @Hedge(5.0)
    async def function():
        if next(numbers):
            return "answer"
        try:
            await sleep(100.0)
        finally:
            raise stop

    with pytest.raises(stop):
        async_driver.run(function)


def test_an_error_in_a_loser_that_cleans_up_does_not_matter(async_driver):
    """Nor does a value that a cancelled loser returns."""
    sleep = trio.sleep if async_driver.name == "trio" else asyncio.sleep
    for ending in (OSError("cleaning up"), "too late"):
        numbers = iter(range(2))

        @Hedge(5.0)
        async def function(numbers=numbers, ending=ending):
            if next(numbers):
                return "answer"
            try:
                await sleep(100.0)
            except BaseException:
                return Play.end(ending)

        assert async_driver.run(function) == "answer"


def test_losers_are_awaited(async_driver):
    """When the call returns, a loser's clean-up is done."""
    sleep = trio.sleep if async_driver.name == "trio" else asyncio.sleep
    cleaned, numbers = [], iter(range(2))
    hedge = Hedge(5.0, quantile=0.9)

    async def clean_up():
        if async_driver.name == "trio":
            with trio.CancelScope(shield=True):
                await sleep(3.0)
        else:
            await sleep(3.0)
        cleaned.append(async_driver.time.elapsed)

    @hedge
    async def function():
        if next(numbers):
            return "answer"
        try:
            await sleep(100.0)
        finally:
            await clean_up()

    assert async_driver.run(function) == "answer"
    assert cleaned == pytest.approx([8.0])
    assert hedge._book.recent.quantile(1.0) == pytest.approx(5.0)  # the loser's time is not learned


# --- cancelled from outside -----------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [3.0, 7.0], ids=["one runs", "two run"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_cancelled_task_cancels_all_attempts(seconds, times):
    """The caller's cancellation ends the attempts, and is the caller's again."""
    with virtual_time() as time:
        driver = type("Driver", (), {"name": "asyncio", "is_async": True, "time": time})()
        made = Play(driver, (100.0, "slow"), (100.0, "slow"))

        async def main():
            task = asyncio.create_task(Hedge(5.0)(made.function)())
            await asyncio.sleep(seconds)
            for _ in range(times):
                task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert task.cancelling() == times
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(main())
    assert time.elapsed == pytest.approx(seconds)
    assert sorted(made.cancelled) == list(range(len(made.started)))


def test_a_timeout_around_a_hedge_is_a_timeout():
    """asyncio.timeout() tells its own cancellation from others."""

    @Hedge(5.0)
    async def function():
        await asyncio.sleep(100.0)

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7.0):
                await function()
        assert asyncio.current_task().cancelling() == 0

    with virtual_time() as time:
        asyncio.run(main())
    assert time.elapsed == pytest.approx(7.0)


@pytest.mark.parametrize("seconds", [3.0, 7.0], ids=["one runs", "two run"])
def test_a_cancelled_trio_scope_cancels_all_attempts(seconds):
    """The caller sees trio.Cancelled itself, not a group of it."""
    ended, seen = [], []

    @Hedge(5.0)
    async def function():
        try:
            await trio.sleep(100.0)
        finally:
            ended.append(trio.current_time())

    async def main():
        with trio.move_on_after(seconds) as scope:
            try:
                await function()
            except BaseException as error:
                seen.append(type(error))
                raise
        assert scope.cancelled_caught

    with virtual_time() as time:
        trio.run(main, clock=time.trio_clock())
        assert time.elapsed == pytest.approx(seconds)
    assert seen == [trio.Cancelled]
    assert len(ended) == (1 if seconds < 5.0 else 2)


def test_an_attempt_timeout_of_a_retry_cuts_all_attempts(async_driver):
    """The retry sees an AttemptTimeout, and makes its next attempt with a hedge of its own."""
    slow = (100.0, "slow")
    made = Play(async_driver, slow, slow, (0, "second"))
    hedge = Hedge(5.0)
    policy = RetryPolicy(
        retry_on=OSError, max_attempts=2, attempt_timeout=7.0, backoff=Backoff.constant(0.0)
    )
    assert async_driver.run(policy(hedge(made.function))) == "second"
    assert made.cancelled in ([0, 1], [1, 0])
    assert async_driver.time.elapsed == pytest.approx(7.0)


def test_ctrl_c_while_threads_are_waited_for_abandons_them(monkeypatch):
    """The caller is interrupted; the attempts are told to end, and counted until they do."""
    seen, started = [], threading.Event()
    hedge = Hedge(5.0)

    def interrupted(self, seconds):
        assert started.wait(LONG)
        raise KeyboardInterrupt

    @hedge
    def function():
        seen.append(CANCEL.get())
        started.set()
        assert CANCEL.get().wait(LONG)
        assert go.wait(LONG)

    go = threading.Event()
    monkeypatch.setattr(module.Threads, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        function()
    assert hedge.snapshot().abandoned == 1
    assert seen[0].is_set()
    go.set()
    finish_threads(hedge)


# --- threads --------------------------------------------------------------------------------------


def test_a_losing_thread_is_told_abandoned_and_counted():
    """Its cancel event is set, it is a daemon, and it is counted until it ends."""
    hedge, release, seen = Hedge(0.0), threading.Event(), []

    @hedge
    def work():
        seen.append((threading.current_thread(), CANCEL.get()))
        if len(seen) == 2:
            return "hedge"
        assert release.wait(LONG)
        return "late"

    assert work() == "hedge"
    (loser, cancel), (winner, _) = seen
    assert cancel.is_set()
    assert loser.daemon
    assert loser.is_alive()
    assert not winner.is_alive()
    assert threading.current_thread() not in (loser, winner)
    assert hedge.snapshot().abandoned == 1
    release.set()
    loser.join(LONG)
    assert hedge.snapshot().abandoned == 0


def test_a_retry_in_a_losing_thread_stops_waiting():
    """The cancel event is the one that mainstay's own waits look at."""
    hedge, seen, errors, waits = Hedge(0.0), [], [], threading.Event()
    policy = RetryPolicy(retry_on=OSError, max_attempts=3, backoff=Backoff.constant(LONG),
                         before_retry=lambda info: waits.set())  # fmt: skip

    @policy
    def fails():
        raise OSError("down")

    @hedge
    def work():
        seen.append(threading.current_thread())
        if len(seen) == 2:
            assert waits.wait(LONG)
            return "hedge"
        try:
            return fails()
        except mainstay.CallCancelled as error:
            errors.append(error)
            raise

    assert work() == "hedge"
    seen[0].join(LONG)
    assert not seen[0].is_alive()
    assert len(errors) == 1


def test_the_callers_cancel_event_reaches_the_threads():
    """An event of the context around the call is passed on, and no further hedge starts."""
    cancel, seen = threading.Event(), []

    @Hedge(LONG)
    def work():
        seen.append(CANCEL.get())
        cancel.set()
        return CANCEL.get().wait(LONG)

    with mainstay.context(cancel=cancel):
        assert work() is True
    assert len(seen) == 1
    assert seen[0] is not cancel


def test_no_hedge_starts_once_the_cancel_event_is_set(async_driver):
    """Nobody wants the answer of another attempt."""
    cancel = threading.Event()
    cancel.set()
    made = Play(async_driver, (6.0, "slow"), (0, "hedge"))
    with mainstay.context(cancel=cancel):
        assert call(async_driver, Hedge(5.0), made) == "slow"
    assert len(made.started) == 1


def test_a_hedge_for_which_there_is_no_thread_is_left_out(monkeypatch):
    """The first attempt goes on; a first attempt without a thread is an error."""
    real, started = threading.Thread.start, []
    hedge = Hedge(0.0, listener=Trace())

    def start(self):
        started.append(self)
        if len(started) == 2:
            go.set()
        if len(started) in (2, 3):
            raise RuntimeError("can't start new thread")
        real(self)

    go = threading.Event()
    monkeypatch.setattr(module.Worker, "start", start)
    assert hedge(lambda: go.wait(LONG) and "first")() == "first"
    assert len(started) == 2
    assert hedge.snapshot().hedged == 0
    with pytest.raises(RuntimeError, match="can't start"):
        hedge(lambda: "never")()


# --- what bounds and encloses a call --------------------------------------------------------------


def look():
    """What an attempt sees of the call it belongs to."""
    return mainstay.current_context().tenant_id, deadline.remaining()


@pytest.mark.parametrize("bounds", ["within", "attempt_timeout", "retried"])
def test_attempts_see_the_context_and_the_deadline(driver, play, bounds):
    """The first attempt and the hedge alike, however the deadline was set."""
    made = play((100.0, "slow"), (0, "hedge"))
    function = Hedge(5.0)(made.function)
    if bounds != "within":
        function = mainstay.retry(on=KeyError, timeout=20.0, backoff=Backoff.constant(0))(function)
    if bounds == "retried":
        made.steps = [(0, KeyError("again")), *made.steps]
    with mainstay.context(tenant_id="t1"):
        if bounds == "within":
            with deadline.within(20.0):
                assert driver.run(function, look) == "hedge"
        else:
            assert driver.run(function, look) == "hedge"
    (tenants, left) = zip(*made.seen[-2:], strict=True)
    assert tenants == ("t1", "t1")
    assert left == pytest.approx((20.0, 15.0), abs=1e-3)


def test_a_failure_that_was_given_up_on_inside_the_hedge_is_not_repeated(driver):
    """The inner retry has its attempts as if there were no hedge, and the outer one stands back."""
    made = []

    def leaf():
        made.append(1)
        raise ConnectionError("down")

    options = {"on": ConnectionError, "backoff": Backoff.constant(0.0)}
    inner = mainstay.retry(attempts=5, **options)(driver.colour(leaf))
    function = mainstay.retry(attempts=2, **options)(Hedge(50.0)(inner))
    with pytest.warns(mainstay.NestedRetryWarning), pytest.raises(ConnectionError):
        driver.run(function)
    assert len(made) == 5


@pytest.mark.parametrize("refuses", ["nearest", "outermost"])
def test_a_retry_around_the_hedge_that_refuses_is_found_through_it(driver, refuses):
    """All retries around it are found, not only the nearest; and only one that would retry."""
    made = []

    def leaf():
        made.append(1)
        raise ConnectionError("down")

    policy = RetryPolicy(retry_on=ConnectionError, backoff=Backoff.constant(0.0))
    strict = policy.replace(nested="refuse")
    other = policy.replace(retry_on=KeyError, nested="refuse")
    around = (strict, policy) if refuses == "nearest" else (other, strict)
    hedged = Hedge(50.0)(policy.replace(max_attempts=5)(driver.colour(leaf)))
    with pytest.raises(mainstay.NestedRetryError):
        driver.run(around[1](around[0](hedged)))
    assert len(made) == 1


def test_a_hedge_does_not_start_without_time(async_driver):
    """Where the deadline has passed a second attempt could not be of use."""
    made = Play(async_driver, (6.0, "slow"), (0, "hedge"))
    with deadline.within(5.0):
        assert call(async_driver, Hedge(5.0), made) == "slow"
    assert len(made.started) == 1


def test_no_retry_means_no_hedge_either(driver, play):
    """`mainstay.testing.no_retry()`: every call makes one attempt."""
    made = play((0, "once"))
    with no_retry():
        assert call(driver, Hedge(0.0), made) == "once"
    assert len(made.started) == 1


def test_what_a_listener_calls_keeps_its_retries(driver, play):
    """A listener runs beside the attempts of the retry around the hedge."""
    made = []

    @mainstay.retry(on=OSError, attempts=2, backoff=Backoff.constant(0))
    def report(event):
        made.append(event)
        raise OSError

    slow = play((100.0, "slow"), (0, "hedge"))
    function = mainstay.retry(on=OSError, attempts=5)(Hedge(5.0, listener=report)(slow.function))
    assert driver.run(function) == "hedge"
    assert len(made) == 2


def test_a_recording_hears_of_hedges(driver, play):
    """`mainstay.testing.record()` is a listener too."""
    made = play((100.0, "slow"), (0, "hedge"))
    with record() as trace:
        call(driver, Hedge(5.0), made)
    assert trace.names == ["attempt_hedged"]


def test_what_is_raised_is_held_by_nothing_of_the_hedge(driver, play):
    """No cycle keeps the exception and its frames until the garbage collector runs."""

    class Odd(Exception):
        pass

    def fail():
        raise Odd

    function = Hedge(50.0)(driver.colour(fail))

    def plain():
        try:
            function()
        except Odd as error:
            return weakref.ref(error)

    async def coloured():
        try:
            await function()
        except Odd as error:
            reference = weakref.ref(error)
        await (trio.sleep if driver.name == "trio" else asyncio.sleep)(0)
        return reference, reference() is None

    gc.collect()
    gc.disable()
    try:
        if driver.is_async:
            assert driver.run(coloured)[1]
        else:
            assert plain()() is None
    finally:
        gc.enable()


# --- budget ---------------------------------------------------------------------------------------


class Purse:
    """A budget that answers as a script says."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def consider(self, failure, delay, now):
        self.asked.append((failure, delay))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_budget_is_charged_for_each_hedge(driver, play):
    """Asked once for each, and not for the first attempt."""
    purse = Purse(0.0, 0.0)
    made = play((100.0, "slow"), (100.0, "slow"), (0, "second hedge"))
    assert call(driver, Hedge(5.0, max_hedges=2, budget=purse), made) == "second hedge"
    assert purse.asked == [(None, 0.0)] * 2
    assert call(driver, Hedge(5.0, budget=purse), play((0, "fast"))) == "fast"
    assert len(purse.asked) == 2


@pytest.mark.parametrize(
    "answer", [Stop("spent"), ZeroDivisionError("broken")], ids=["stop", "raises"]
)
def test_a_hedge_that_is_denied_does_not_start(async_driver, answer, caplog):
    """A Stop means no, for this call; a budget that raises counts as one."""
    purse = Purse(answer)
    made = Play(async_driver, (100.0, "slow"), (0, "hedge"))
    hedge = Hedge(5.0, max_hedges=3, budget=purse, listener=Trace())
    assert call(async_driver, hedge, made) == "slow"
    assert len(made.started) == len(purse.asked) == 1
    assert (hedge.snapshot().denied, hedge.snapshot().hedged) == (1, 0)
    assert ("the budget of a hedge raised" in caplog.text) is isinstance(answer, Exception)


def test_a_hedge_waits_as_long_as_its_budget_asks(async_driver):
    """A rate limit answers with a delay: it is waited, and not asked for again."""
    purse = Purse(3.0)
    made = Play(async_driver, (100.0, "slow"), (0, "hedge"))
    assert call(async_driver, Hedge(5.0, budget=purse), made) == "hedge"
    assert made.started == pytest.approx([0.0, 8.0])
    assert len(purse.asked) == 1


# --- quantiles ------------------------------------------------------------------------------------


def test_a_quantile_needs_twenty_durations_first(async_driver):
    """Until then nothing is hedged; from then on what takes longer than most is."""
    hedge = Hedge(quantile=0.95)
    for number in range(1, 20):
        made = Play(async_driver, (float(number), "ok"), (0, "hedge"))
        call(async_driver, hedge, made)
        assert len(made.started) == 1
        assert hedge.snapshot().delay is None
    call(async_driver, hedge, Play(async_driver, (20.0, "ok")))
    assert hedge.snapshot().samples == 20
    assert hedge.snapshot().delay == pytest.approx(19.0)
    made = Play(async_driver, (100.0, "slow"), (1.0, "hedge"))
    started = async_driver.time.elapsed
    assert call(async_driver, hedge, made) == "hedge"
    assert made.started[1] - made.started[0] == pytest.approx(19.0)
    assert async_driver.time.elapsed - started == pytest.approx(20.0)


def test_a_delay_holds_until_a_quantile_is_known(async_driver):
    """Given both, the delay is where it starts."""
    hedge = Hedge(5.0, quantile=0.5)
    made = Play(async_driver, (100.0, "slow"), (0, "hedge"))
    assert call(async_driver, hedge, made) == "hedge"
    for _ in range(20):
        call(async_driver, hedge, Play(async_driver, (2.0, "ok")))
    assert hedge.snapshot().delay == pytest.approx(2.0)


def test_whole_calls_are_learned_not_the_time_of_the_winner(async_driver):
    """Or slow calls would look fast, the delay would sink, and ever more would be hedged."""
    hedge = Hedge(5.0, quantile=0.5)
    call(async_driver, hedge, Play(async_driver, (100.0, "slow"), (1.0, "hedge")))
    assert hedge._book.recent.quantile(1.0) == pytest.approx(6.0)


def test_failures_teach_nothing(driver, play):
    """A refused connection is quick, and says nothing of how long an answer takes."""
    hedge = Hedge(5.0, quantile=0.5)
    with pytest.raises(OSError, match="down"):
        call(driver, hedge, play((0, OSError("down"))))
    learning = Hedge(quantile=0.5)
    with pytest.raises(OSError, match="down"):
        call(driver, learning, play((0, OSError("down"))))
    assert hedge.snapshot().samples == learning.snapshot().samples == 0


def test_while_it_learns_a_sync_call_stays_in_its_thread():
    """No thread is started for a call that is not going to be hedged."""
    hedge = Hedge(quantile=0.9)
    assert hedge(threading.current_thread)() is threading.current_thread()
    assert hedge.snapshot().samples == 1


def test_a_hedge_without_quantile_remembers_nothing(driver, play):
    """What is not asked for is not kept."""
    hedge = Hedge(5.0)
    call(driver, hedge, play((0, "ok")))
    assert hedge.snapshot().samples == 0


# --- decorating and wrong values ------------------------------------------------------------------


def test_an_attempt_that_ends_while_the_outcome_is_made_up_changes_nothing():
    """In threads a loser may end at any moment, also while the outcomes are looked at."""
    third_began, third_may_end = threading.Event(), threading.Event()
    started = []

    def ended(number):
        for thread in threading.enumerate():
            if thread.name == f"mainstay-hedge-{number}":
                thread.join(LONG)

    class Looked(Exception):
        @property
        def __class__(self):  # read by isinstance(): now the outcomes are looked at
            third_may_end.set()
            ended(3)
            return Looked

    @Hedge(0.01, max_hedges=2)
    def attempt():
        started.append(1)
        number = len(started)
        if number == 1:
            third_began.wait(LONG)
            raise Looked
        if number == 2:
            third_began.wait(LONG)
            ended(1)
            return "first answer"
        third_began.set()
        third_may_end.wait(LONG)
        return "too late"

    assert attempt() == "first answer"


def test_signature_name_and_colour_are_kept():
    """Tools see the function as it was."""

    @Hedge(5.0)
    def function(a: int, /, b: str = "x", *, c: float = 1.0) -> int:
        """Documented."""
        return a

    @Hedge(5.0)
    async def coloured(a: int) -> int:
        return a

    assert str(inspect.signature(function)) == "(a: int, /, b: str = 'x', *, c: float = 1.0) -> int"
    assert (function.__name__, function.__doc__) == ("function", "Documented.")
    assert function(7, c=2.0) == 7
    assert inspect.iscoroutinefunction(coloured)


def test_methods_of_every_sort_can_be_decorated():
    """Also where the decorator stands above @classmethod or @staticmethod."""
    hedge = Hedge(5.0)

    class Service:
        @hedge
        def method(self, x):
            return type(self).__name__, x

        @hedge
        @classmethod
        def outside(cls, x):
            return cls.__name__, x

        @hedge
        @staticmethod
        def static(x):
            return "static", x

    assert Service().method(1) == ("Service", 1)
    assert Service.outside(2) == ("Service", 2)
    assert Service.static(3) == ("static", 3)


def test_a_generator_function_is_refused():
    """Values that were taken cannot be raced."""

    async def lines():
        yield 1

    with pytest.raises(WrapError, match="generator"):
        Hedge(5.0)(lines)


def test_an_unsafe_operation_is_refused():
    """Both attempts may be applied: the error says so, and what to do."""
    with pytest.raises(UsageError, match=r"unsafe operation cannot be hedged.*\"keyed\""):
        Hedge(5.0, idempotency="unsafe")
    assert Hedge(5.0, idempotency="keyed").delay == 5.0


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, ["delay"]),
        ({"delay": -1.0}, ["delay"]),
        ({"delay": True}, ["delay"]),
        ({"delay": "1"}, ["delay"]),
        ({"delay": float("nan")}, ["delay"]),
        ({"delay": float("inf")}, ["delay"]),
        ({"quantile": 0.0}, ["quantile"]),
        ({"quantile": 0.49}, ["quantile"]),
        ({"quantile": 1.0}, ["quantile"]),
        ({"quantile": 95}, ["quantile"]),
        ({"delay": 1.0, "max_hedges": 0}, ["max_hedges"]),
        ({"delay": 1.0, "max_hedges": 11}, ["max_hedges"]),
        ({"delay": 1.0, "max_hedges": 1.0}, ["max_hedges"]),
        ({"delay": 1.0, "budget": 7}, ["budget"]),
        ({"delay": 1.0, "listener": [print, 7]}, ["listener"]),
        ({"delay": 1.0, "idempotency": "perhaps"}, ["idempotency"]),
        (
            {"delay": -1, "quantile": 2, "max_hedges": 0, "budget": 7, "listener": 8,
             "idempotency": "?"},
            ["delay", "quantile", "max_hedges", "listener", "budget", "idempotency"],
        ),
    ],
)  # fmt: skip
def test_every_wrong_value_is_named_at_once(options, fields):
    """All problems in one error."""
    with pytest.raises(PolicyError) as caught:
        Hedge(**options)
    assert [problem.field for problem in caught.value.problems] == fields


def test_a_repr_says_when_it_hedges():
    """The settings."""
    assert repr(Hedge(0.5)) == "Hedge(0.5, quantile=None, max_hedges=1)"
