"""A bulkhead: never more than its limit, first come first served, and no place is ever lost."""

import asyncio
import gc
import inspect
import threading
from collections import deque

import pytest
import trio
import trio.testing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import mainstay
from mainstay import BulkheadFull, CallCancelled, PolicyError, WrapError, deadline
from mainstay.drivers.layers import bulkhead as module
from mainstay.drivers.layers.bulkhead import Bulkhead
from mainstay.testing import virtual_time

LONG = 30.0
"""Real seconds after which a test that waits for another thread has failed."""


def counts(bulkhead):
    now = bulkhead.snapshot()
    return now.running, now.waiting


def until(condition):
    """Waits, for real, until something another thread does has happened."""
    pause = threading.Event()
    for _ in range(int(LONG / 0.001)):
        if condition():
            return
        pause.wait(0.001)
    raise AssertionError("it did not happen")


class Thread(threading.Thread):
    """A thread that holds a place until told; what it raised is kept."""

    def __init__(self, bulkhead, name="", order=None, before=None):
        super().__init__(daemon=True)
        self.bulkhead, self.label, self.order = bulkhead, name, order
        self.before = before
        self.entered, self.release = threading.Event(), threading.Event()
        self.error = None
        self.start()

    def run(self):
        try:
            with self.before or mainstay.context(), self.bulkhead:
                if self.order is not None:
                    self.order.append(self.label)
                self.entered.set()
                assert self.release.wait(LONG)
        except BaseException as error:
            self.error = error

    def finish(self):
        self.release.set()
        self.join(LONG)
        assert not self.is_alive()


# --- room and no room -----------------------------------------------------------------------------


def test_a_call_runs_where_there_is_room(driver):
    """Decorated, it returns what the function returns, and the place is free again."""
    bulkhead = Bulkhead("db", 1)
    seen = []
    function = driver.colour(lambda x: seen.append(counts(bulkhead)) or x)
    assert driver.run(bulkhead(function), 7) == 7
    assert seen == [(1, 0)]
    assert counts(bulkhead) == (0, 0)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_call_that_fails_gives_back_its_place(driver, error):
    """Whatever it fails with."""
    bulkhead = Bulkhead("db", 1)
    with pytest.raises(error):
        driver.run(bulkhead(driver.scripted(error)))
    assert counts(bulkhead) == (0, 0)


def test_a_full_bulkhead_refuses(driver):
    """Without a queue nobody waits; the error says how full it was, and it is counted."""
    bulkhead = Bulkhead("db", 2)
    function = bulkhead(driver.scripted("never"))
    with bulkhead, bulkhead, pytest.raises(BulkheadFull) as caught:
        driver.run(function)
    error = caught.value
    assert (error.name, error.limit, error.queue, error.waited) == ("db", 2, 0, 0.0)
    assert driver.time.elapsed == 0.0
    assert (bulkhead.snapshot().refused, counts(bulkhead)) == (1, (0, 0))
    assert driver.run(bulkhead(driver.scripted("room"))) == "room"


def test_the_happy_path_makes_no_waiter(driver, monkeypatch):
    """Where there is room nothing that could wait is made."""
    for name in ("_Threaded", "_waiter_here", "_OnAsyncio", "_OnTrio"):
        monkeypatch.delattr(module, name)
    bulkhead = Bulkhead("db", 1, queue=1)
    assert driver.run(bulkhead(driver.scripted("fast"))) == "fast"


def test_one_count_serves_with_and_async_with(async_driver):
    """A block of either sort takes a place from the same few."""
    bulkhead = Bulkhead("db", 2)

    async def main():
        async with bulkhead as entered:
            assert entered is bulkhead
            with bulkhead:
                assert counts(bulkhead) == (2, 0)
                with pytest.raises(BulkheadFull):
                    async with bulkhead:
                        pass

    async_driver.run(main)
    assert counts(bulkhead) == (0, 0)


def test_a_repr_shows_what_it_is_doing():
    """The settings, and how many run and wait."""
    with Bulkhead("db", 2, queue=3, max_wait=1.5) as bulkhead:
        assert repr(bulkhead) == ("Bulkhead('db', 2, queue=3, max_wait=1.5: 1 running, 0 waiting)")


# --- waiting --------------------------------------------------------------------------------------


def test_a_wait_ends_after_max_wait(driver):
    """In virtual time, to the moment; the error says how long it waited."""
    bulkhead = Bulkhead("db", 1, queue=1, max_wait=5.0)
    with bulkhead, pytest.raises(BulkheadFull) as caught:
        driver.run(bulkhead(driver.scripted("never")))
    assert caught.value.waited == pytest.approx(5.0)
    assert driver.time.elapsed == pytest.approx(5.0)
    assert (bulkhead.snapshot().refused, counts(bulkhead)) == (1, (0, 0))


@pytest.mark.parametrize(("left", "max_wait", "waited"), [(2.0, 5.0, 2.0), (2.0, None, 2.0),
                                                          (9.0, 5.0, 5.0)])  # fmt: skip
def test_a_wait_ends_at_the_deadline(driver, left, max_wait, waited):
    """At the earlier of max_wait and what the deadline leaves."""
    bulkhead = Bulkhead("db", 1, queue=1, max_wait=max_wait)
    with bulkhead, deadline.within(left), pytest.raises(BulkheadFull) as caught:
        driver.run(bulkhead(driver.scripted("never")))
    assert caught.value.waited == pytest.approx(waited)


def test_a_wait_ends_with_the_time_of_the_retry_around_it(driver):
    """The deadline of a retry is seen without anybody setting one."""
    bulkhead = Bulkhead("db", 1, queue=1)
    outer = mainstay.retry(on=OSError, deadline=3.0)(bulkhead(driver.scripted("never")))
    with bulkhead, pytest.raises((BulkheadFull, mainstay.DeadlineExceeded)):
        driver.run(outer)
    assert driver.time.elapsed == pytest.approx(3.0)
    assert counts(bulkhead) == (0, 0)


def test_nobody_starts_to_wait_without_time(driver, monkeypatch):
    """Where nothing is left the refusal comes at once; a free place is taken all the same."""
    monkeypatch.delattr(Bulkhead, "_patience")  # which those in the queue are asked for
    bulkhead = Bulkhead("db", 1, queue=1, max_wait=5.0)
    function = bulkhead(driver.scripted("room"))
    with deadline.within(1.0):
        driver.time.advance(1.0)
        with bulkhead, pytest.raises(BulkheadFull) as caught:
            driver.run(bulkhead(driver.scripted("never")))
        assert driver.run(function) == "room"
    assert caught.value.waited == 0.0
    assert driver.time.elapsed == pytest.approx(1.0)


def test_a_full_queue_refuses():
    """So many wait and no more."""
    bulkhead = Bulkhead("db", 1, queue=1)
    with bulkhead:
        waiting = Thread(bulkhead)
        until(lambda: counts(bulkhead) == (1, 1))
        with pytest.raises(BulkheadFull) as caught, bulkhead:
            pass
        assert caught.value.waited == 0.0
    assert waiting.entered.wait(LONG)
    waiting.finish()
    assert counts(bulkhead) == (0, 0)


def test_threads_asyncio_and_trio_are_served_in_the_order_they_came():
    """One queue for all kinds of waiters, and places cross from one to another."""
    bulkhead, order = Bulkhead("db", 1, queue=6), []

    async def wait_here(label):
        async with bulkhead:
            order.append(label)

    runners = {
        "thread": lambda label: Thread(bulkhead, label, order).release.set(),
        "asyncio": lambda label: asyncio.run(wait_here(label)),
        "trio": lambda label: trio.run(wait_here, label),
    }
    threads = []
    with bulkhead:
        for number, kind in enumerate(["trio", "thread", "asyncio", "trio", "asyncio", "thread"]):
            label = f"{number} {kind}"
            threads.append(threading.Thread(target=runners[kind], args=[label], daemon=True))
            threads[-1].start()
            until(lambda number=number: counts(bulkhead) == (1, number + 1))
    for thread in threads:
        thread.join(LONG)
    until(lambda: counts(bulkhead) == (0, 0))
    assert order == sorted(order)
    assert len(order) == 6


def test_a_free_place_goes_to_whoever_waits_not_to_whoever_comes():
    """Between the moment a place is freed and the moment the waiter runs, nobody slips in."""
    bulkhead = Bulkhead("db", 1, queue=1)

    async def main():
        await bulkhead.__aenter__()
        waiter = asyncio.create_task(bulkhead.__aenter__())
        await asyncio.sleep(0)
        await bulkhead.__aexit__(None, None, None)
        assert counts(bulkhead) == (1, 0)
        assert not bulkhead._take()
        await waiter
        await bulkhead.__aexit__(None, None, None)

    asyncio.run(main())
    assert counts(bulkhead) == (0, 0)


def test_a_place_freed_on_the_way_to_the_queue_is_taken(driver, monkeypatch):
    """Between finding it full and lining up a place may become free."""
    bulkhead = Bulkhead("db", 1)
    bulkhead._take()
    real = Bulkhead._line_up

    def line_up(self, waiter):
        self._free()
        real(self, waiter)

    monkeypatch.setattr(Bulkhead, "_line_up", line_up)
    assert driver.run(bulkhead(driver.scripted("room"))) == "room"
    assert counts(bulkhead) == (0, 0)


# --- cancelled in the queue -----------------------------------------------------------------------


def test_a_cancelled_task_leaves_the_queue():
    """task.cancel() while queued: the next in line is served."""
    bulkhead, served = Bulkhead("db", 1, queue=2), []

    @bulkhead
    async def work(label):
        served.append(label)

    async def main():
        async with bulkhead:
            first, second = (asyncio.create_task(work(label)) for label in "ab")
            await asyncio.sleep(0)
            assert counts(bulkhead) == (1, 2)
            first.cancel()
            await asyncio.wait([first])
            assert first.cancelled()
            assert counts(bulkhead) == (1, 1)
        await second
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert served == ["b"]
    assert counts(bulkhead) == (0, 0)


@pytest.mark.parametrize("is_next", [True, False])
@pytest.mark.parametrize("when", ["before", "after", "woken"])
def test_a_place_handed_to_a_cancelled_task_is_passed_on(when, is_next):
    """Handed over and cancelled at the same moment, in either order: the place is not lost."""
    bulkhead, served = Bulkhead("db", 1, queue=2), []

    @bulkhead
    async def work(label):
        served.append(label)

    async def main():
        await bulkhead.__aenter__()
        tasks = [asyncio.create_task(work(label)) for label in ("ab" if is_next else "a")]
        await asyncio.sleep(0)
        if when == "before":
            tasks[0].cancel()
        bulkhead.__exit__()
        if when == "woken":  # the event is set, the task has not run
            asyncio.get_running_loop().call_soon(tasks[0].cancel)
        elif when == "after":
            tasks[0].cancel()
        await asyncio.wait(tasks)
        assert tasks[0].cancelled()

    asyncio.run(main())
    assert served == (["b"] if is_next else [])
    assert counts(bulkhead) == (0, 0)


@pytest.mark.parametrize("is_handed", [True, False])
def test_a_cancelled_trio_scope_leaves_the_queue(is_handed):
    """The same under trio, also where the place was handed over that very moment."""
    bulkhead, served = Bulkhead("db", 1, queue=2), []

    @bulkhead
    async def work(label):
        served.append(label)

    async def cancellable(scope):
        with scope:
            await work("a")

    async def main():
        scope = trio.CancelScope()
        await bulkhead.__aenter__()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancellable, scope)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(work, "b")
            await trio.testing.wait_all_tasks_blocked()
            assert counts(bulkhead) == (1, 2)
            scope.cancel()
            if not is_handed:
                await trio.testing.wait_all_tasks_blocked()
                assert counts(bulkhead) == (1, 1)
            bulkhead.__exit__()
        assert scope.cancelled_caught

    trio.run(main)
    assert served == ["b"]
    assert counts(bulkhead) == (0, 0)


def test_ctrl_c_in_the_queue_leaves_it(monkeypatch):
    """KeyboardInterrupt in a waiting thread; a place it was just given is passed on."""
    bulkhead = Bulkhead("db", 1, queue=1)

    def interrupted(self, seconds):
        if self.is_handed:
            bulkhead._free()
        raise KeyboardInterrupt

    for is_handed in (False, True):
        monkeypatch.setattr(module._Threaded, "wait", interrupted)
        monkeypatch.setattr(module._Threaded, "is_handed", is_handed, raising=False)
        bulkhead._take()
        with pytest.raises(KeyboardInterrupt), bulkhead:
            pass
        if not is_handed:
            assert counts(bulkhead) == (1, 0)
            bulkhead._free()
        assert counts(bulkhead) == (0, 0)


def test_a_place_that_comes_with_the_end_of_the_wait_is_kept(monkeypatch):
    """Handed over in the moment in which the time is up: it is a place, not a refusal."""
    bulkhead = Bulkhead("db", 1, queue=1, max_wait=5.0)

    def late(self, seconds):
        virtual.advance(seconds)
        bulkhead._free()

    monkeypatch.setattr(module._Threaded, "wait", late)
    bulkhead._take()
    with virtual_time() as virtual, bulkhead:
        assert counts(bulkhead) == (1, 0)
        assert virtual.elapsed == 5.0
    assert counts(bulkhead) == (0, 0)


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_a_cancel_event_ends_a_wait(driver, looks, monkeypatch):
    """The event of mainstay.context(): the wait ends with CallCancelled, and leaves the queue."""
    bulkhead, cancel, seen = Bulkhead("db", 1, queue=1, max_wait=500.0), threading.Event(), []
    real = Bulkhead._patience

    def patience(self, waiter):
        if len(seen) == looks:
            cancel.set()
        seen.append(counts(self))
        return real(self, waiter)

    monkeypatch.setattr(Bulkhead, "_patience", patience)
    with bulkhead, mainstay.context(cancel=cancel), pytest.raises(CallCancelled) as caught:
        driver.run(bulkhead(driver.scripted("never")))
    assert caught.value.operation == "db"
    assert seen == [(1, 1)] * (looks + 1)
    assert driver.time.elapsed <= 0.02 * looks + 1e-6
    assert (bulkhead.snapshot().refused, counts(bulkhead)) == (0, (0, 0))


def test_a_cancel_event_does_not_matter_where_there_is_room(driver):
    """The happy path does not look at it."""
    cancel = threading.Event()
    cancel.set()
    with mainstay.context(cancel=cancel):
        assert driver.run(Bulkhead("db", 1)(driver.scripted("room"))) == "room"


def test_a_wait_with_a_cancel_event_still_ends_in_time(driver):
    """Looking at the event every now and then does not lengthen the wait."""
    bulkhead = Bulkhead("db", 1, queue=1, max_wait=0.1)
    with bulkhead, mainstay.context(cancel=threading.Event()), pytest.raises(BulkheadFull):
        driver.run(bulkhead(driver.scripted("never")))
    assert driver.time.elapsed == pytest.approx(0.1)


# --- loops that are gone --------------------------------------------------------------------------


def abandoned_loop(bulkhead):
    """A loop that was closed while a task of it was queued; the task too, to keep it alive."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(bulkhead.__aenter__())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    task._log_destroy_pending = False
    return task


def test_a_waiter_of_a_closed_loop_is_skipped():
    """Its place goes to the next in line, or is free."""
    bulkhead, order = Bulkhead("db", 1, queue=3), []
    with bulkhead:
        dead = [abandoned_loop(bulkhead)]
        living = Thread(bulkhead, "living", order)
        until(lambda: counts(bulkhead) == (1, 2))
        dead.append(abandoned_loop(bulkhead))
        assert counts(bulkhead) == (1, 3)
    assert living.entered.wait(LONG)
    living.finish()
    assert order == ["living"]
    assert counts(bulkhead) == (0, 0)
    dead.clear()
    gc.collect()
    assert counts(bulkhead) == (0, 0)


def test_waiters_of_closed_loops_take_no_room_in_the_queue():
    """A queue that is full of the dead has room for the living."""
    bulkhead = Bulkhead("db", 1, queue=1)
    with bulkhead:
        dead = abandoned_loop(bulkhead)
        living = Thread(bulkhead)
        until(lambda: len([each for each in bulkhead._waiters if not each.is_dead]) == 1)
        assert counts(bulkhead) == (1, 1)
    assert living.entered.wait(LONG)
    living.finish()
    del dead
    gc.collect()
    assert counts(bulkhead) == (0, 0)


def test_a_dead_waiter_that_frees_itself_first_is_not_freed_twice():
    """Thrown away while its loop is told in vain: the place is passed on by one of the two."""
    bulkhead = Bulkhead("db", 1, queue=1)
    bulkhead._take()
    dead = [abandoned_loop(bulkhead)]
    waiter = next(iter(bulkhead._waiters))

    class Loop:
        def call_soon_threadsafe(self, callback):
            dead[0].get_coro().close()
            raise RuntimeError("Event loop is closed")

    waiter._loop = Loop()
    bulkhead._free()
    assert counts(bulkhead) == (0, 0)


def test_a_waiter_of_a_trio_run_that_is_over_is_skipped():
    """Trio says so by RunFinishedError."""
    bulkhead = Bulkhead("db", 1, queue=1)

    async def main():
        return module._OnTrio(None)

    waiter = trio.run(main)
    bulkhead._take()
    bulkhead._waiters[waiter] = None
    bulkhead._free()
    assert counts(bulkhead) == (0, 0)


def test_a_coroutine_that_is_thrown_away_gives_back_its_place():
    """Closed while it holds a place, or while it waits, in whichever thread."""
    bulkhead = Bulkhead("db", 1, queue=1)

    async def hold():
        async with bulkhead:
            await asyncio.sleep(LONG)

    loop = asyncio.new_event_loop()
    holder, waiter = loop.create_task(hold()), loop.create_task(hold())
    loop.run_until_complete(asyncio.sleep(0))
    assert counts(bulkhead) == (1, 1)
    with bulkhead._lock:  # as if the garbage collector ran while somebody holds the lock
        waiter.get_coro().close()
        holder.get_coro().close()
    assert counts(bulkhead) == (0, 0)
    for task in (holder, waiter):
        task._log_destroy_pending = False
    loop.close()


# --- the model ------------------------------------------------------------------------------------


class BulkheadMachine(RuleBasedStateMachine):
    """Arrivals, departures, cancellations and time, in any order, against a simple model."""

    LIMIT, QUEUE, MAX_WAIT = 2, 3, 10.0

    def __init__(self):
        super().__init__()
        self.virtual_time = virtual_time()
        self.time = self.virtual_time.__enter__()
        self.loop = asyncio.new_event_loop()
        self.bulkhead = Bulkhead("model", self.LIMIT, queue=self.QUEUE, max_wait=self.MAX_WAIT)
        self.tasks, self.exits, self.served, self.outcomes = {}, {}, [], {}
        self.running, self.queue, self.refused = [], deque(), 0
        self.expected = []
        self.number = 0

    def teardown(self):
        for task in self.tasks.values():
            task.cancel()
        self.settle()
        left = counts(self.bulkhead)
        self.loop.close()
        self.virtual_time.__exit__(None, None, None)
        assert left == (0, 0)

    async def visit(self, number):
        try:
            async with self.bulkhead:
                self.served.append(number)
                await self.exits[number].wait()
            self.outcomes[number] = "left"
        except BulkheadFull:
            self.outcomes[number] = "refused"
        except asyncio.CancelledError:
            self.outcomes[number] = "cancelled"

    def settle(self):
        async def turns():
            for _ in range(20):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    def admit(self):
        """What the model does with a place that became free."""
        while self.queue and len(self.running) < self.LIMIT:
            number, _ = self.queue.popleft()
            self.running.append(number)
            self.expected.append(number)

    # -- what happens

    def arrival(self):
        number = self.number = self.number + 1
        self.exits[number] = asyncio.Event()
        self.tasks[number] = self.loop.create_task(self.visit(number))
        if len(self.running) < self.LIMIT:
            self.running.append(number)
            self.expected.append(number)
        elif len(self.queue) < self.QUEUE:
            self.queue.append((number, self.time.monotonic() + self.MAX_WAIT))
        else:
            self.refused += 1
        return number

    @rule()
    def arrive(self):
        self.arrival()
        self.settle()

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leave(self, data):
        number = data.draw(st.sampled_from(self.running))
        self.exits[number].set()
        self.running.remove(number)
        self.admit()
        self.settle()
        assert self.outcomes[number] == "left"

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def cancel(self, data):
        entry = data.draw(st.sampled_from(list(self.queue)))
        self.queue.remove(entry)
        self.tasks[entry[0]].cancel()
        self.settle()
        assert self.outcomes[entry[0]] == "cancelled"

    @precondition(lambda self: self.running and self.queue)
    @rule(is_cancelled_first=st.booleans(), turns=st.integers(0, 3))
    def hand_over_and_cancel(self, is_cancelled_first, turns):
        """The holder leaves, and the one who is handed the place is cancelled beside it."""
        holder, (heir, _) = self.running[0], self.queue[0]

        async def together():
            steps = [self.exits[holder].set, self.tasks[heir].cancel]
            first, second = reversed(steps) if is_cancelled_first else steps
            first()
            for _ in range(turns):
                await asyncio.sleep(0)
            second()

        self.loop.run_until_complete(together())
        self.settle()
        self.running.remove(holder)
        self.queue.popleft()
        if heir in self.served:  # it ran before it was cancelled
            self.expected.append(heir)
        self.admit()
        assert self.outcomes[heir] == "cancelled"

    @precondition(lambda self: self.queue)
    @rule(seconds=st.sampled_from([1.0, 4.0, 9.0, 11.0]))
    def wait(self, seconds):
        end = self.time.monotonic() + seconds
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self.settle()
        gone = [entry for entry in self.queue if entry[1] <= end + 1e-6]
        for entry in gone:
            self.queue.remove(entry)
            self.refused += 1
            assert self.outcomes[entry[0]] == "refused"

    @invariant()
    def it_agrees_with_the_model(self):
        now = self.bulkhead.snapshot()
        assert now.running == len(self.running) <= self.LIMIT
        assert now.waiting == len(self.queue) <= self.QUEUE
        assert now.refused == self.refused
        assert self.served == self.expected  # in the order they came
        assert not self.queue or len(self.running) == self.LIMIT


BulkheadMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBulkheadMachine = BulkheadMachine.TestCase


def test_eight_threads_and_two_hundred_tasks_share_three_places():
    """Under stress never more than the limit run, and everybody is served."""
    bulkhead = Bulkhead("db", 3, queue=1000)
    lock, inside, most, served = threading.Lock(), [0], [0], [0]

    def enter():
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])

    def leave():
        with lock:
            inside[0] -= 1
            served[0] += 1

    def in_threads():
        barrier.wait(LONG)
        for _ in range(50):
            with bulkhead:
                enter()
                leave()

    async def in_task():
        async with bulkhead:
            enter()
            await asyncio.sleep(0)
            leave()

    async def in_tasks():
        barrier.wait(LONG)
        async with asyncio.timeout(LONG):
            await asyncio.gather(*(in_task() for _ in range(200)))

    barrier = threading.Barrier(9)
    threads = [threading.Thread(target=in_threads, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    asyncio.run(in_tasks())
    for thread in threads:
        thread.join(LONG)
    assert served == [8 * 50 + 200]
    assert most[0] <= 3
    assert counts(bulkhead) == (0, 0)


def test_cancelled_tasks_of_two_loops_lose_no_place():
    """Two loops in two threads, every third task cancelled at once or a little later."""
    bulkhead, served = Bulkhead("db", 2, queue=1000), []

    async def work(number):
        async with bulkhead:
            await asyncio.sleep(0)
            served.append(number)

    async def main():
        tasks = [asyncio.create_task(work(number)) for number in range(90)]
        for number, task in enumerate(tasks):
            if number % 3 == 0:
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                task.cancel()
        async with asyncio.timeout(LONG):
            await asyncio.gather(*tasks, return_exceptions=True)

    threads = [threading.Thread(target=asyncio.run, args=[main()], daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert len(served) >= 2 * 60
    assert counts(bulkhead) == (0, 0)


# --- decorating and wrong values ------------------------------------------------------------------


def test_signature_name_and_colour_are_kept():
    """Tools see the function as it was."""
    bulkhead = Bulkhead("db", 1)

    @bulkhead
    def function(a: int, /, b: str = "x", *, c: float = 1.0) -> int:
        """Documented."""
        return a

    @bulkhead
    async def coloured(a: int) -> int:
        return a

    assert str(inspect.signature(function)) == "(a: int, /, b: str = 'x', *, c: float = 1.0) -> int"
    assert (function.__name__, function.__doc__) == ("function", "Documented.")
    assert inspect.iscoroutinefunction(coloured)
    assert not inspect.iscoroutinefunction(function)


def test_methods_of_every_sort_can_be_decorated():
    """Also where the decorator stands above @classmethod or @staticmethod."""
    bulkhead = Bulkhead("db", 1)

    class Service:
        @bulkhead
        def method(self, x):
            return type(self).__name__, x, counts(bulkhead)

        @bulkhead
        @classmethod
        def outside(cls, x):
            return cls.__name__, x, counts(bulkhead)

        @bulkhead
        @staticmethod
        def static(x):
            return "static", x, counts(bulkhead)

    assert Service().method(1) == ("Service", 1, (1, 0))
    assert Service.outside(2) == ("Service", 2, (1, 0))
    assert Service.static(3) == ("static", 3, (1, 0))


def test_a_generator_function_is_refused():
    """Its place would be given back before its first value is taken."""

    def lines():
        yield 1

    with pytest.raises(WrapError, match="generator"):
        Bulkhead("db", 1)(lines)


@pytest.mark.parametrize(
    ("arguments", "options", "fields"),
    [
        (("", 1), {}, ["name"]),
        ((" db", 1), {}, ["name"]),
        ((7, 1), {}, ["name"]),
        (("db", 0), {}, ["limit"]),
        (("db", -1), {}, ["limit"]),
        (("db", True), {}, ["limit"]),
        (("db", 1.0), {}, ["limit"]),
        (("db", 10**9), {}, ["limit"]),
        (("db", 1), {"queue": -1}, ["queue"]),
        (("db", 1), {"queue": False}, ["queue"]),
        (("db", 1), {"queue": None}, ["queue"]),
        (("db", 1), {"queue": 1, "max_wait": 0}, ["max_wait"]),
        (("db", 1), {"queue": 1, "max_wait": -1.0}, ["max_wait"]),
        (("db", 1), {"queue": 1, "max_wait": float("nan")}, ["max_wait"]),
        (("db", 1), {"queue": 1, "max_wait": float("inf")}, ["max_wait"]),
        (("db", 1), {"queue": 1, "max_wait": "1"}, ["max_wait"]),
        (("db", 1), {"max_wait": 1.0}, ["max_wait"]),
        (("", 0), {"queue": "2", "max_wait": -1}, ["name", "limit", "queue", "max_wait"]),
    ],
)
def test_every_wrong_value_is_named_at_once(arguments, options, fields):
    """All problems in one error."""
    with pytest.raises(PolicyError) as caught:
        Bulkhead(*arguments, **options)
    assert [problem.field for problem in caught.value.problems] == fields
