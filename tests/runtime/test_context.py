"""Tenant, correlation and trace travel with every event, wherever the call is made."""

import asyncio
import concurrent.futures
import contextlib
import sys
import threading

import pytest
import trio

import mainstay
from mainstay import Backoff, Engine, Jitter, RetryPolicy
from mainstay.runtime.context import CANCEL, Context
from mainstay.testing import Trace, scripted, scripted_async, virtual_time

POLICY = RetryPolicy(
    name="op", retry_on=OSError, max_attempts=2, backoff=Backoff.constant(1.0), jitter=Jitter.none()
)
WHO = {"tenant_id": "t1", "correlation_id": "c1", "trace_id": "x1", "category": "NETWORK"}


@pytest.fixture
def time():
    """Virtual time."""
    with virtual_time() as virtual:
        yield virtual


@pytest.fixture
def trace():
    """Hears the engine's events."""
    return Trace()


@pytest.fixture
def engine(trace):
    """An engine that tells its events to the trace."""
    return Engine(policies=[POLICY], sinks=[trace])


def strays(trace):
    """The events that do not carry the context; there are some of a failing call at least."""
    expected = dict(WHO)
    expected["retry_category"] = expected.pop("category")
    assert trace.names.count("attempt_failed") >= 1
    found = [({name: getattr(each, name) for name in expected}, each) for each in trace.events]
    return [event for carried, event in found if carried != expected]


@pytest.mark.req("CP-20.events")
@pytest.mark.parametrize("ends", ["success", "exhausted", "final", "stopped", "hook"])
def test_every_sort_of_event_carries_the_context(engine, trace, time, ends):
    """Failures, retries, exhaustion, interruptions and troubles of hooks: all say for whom."""
    steps = {
        "success": (OSError, "ok"),
        "exhausted": (OSError, OSError),
        "final": (ValueError,),
        "stopped": (OSError, KeyboardInterrupt),
        "hook": (OSError, "ok"),
    }[ends]
    if ends == "hook":
        chosen = POLICY.replace(before_retry=lambda info: 1 / 0)
        engine = Engine(policies=[chosen], sinks=[trace])
    with mainstay.context(**WHO), contextlib.suppress(OSError, ValueError, KeyboardInterrupt):
        engine.call("op", scripted(*steps))
    assert strays(trace) == []


@pytest.mark.req("CP-20.events")
@pytest.mark.parametrize("way", ["call", "run", "protect", "attempts", "nested"])
def test_the_context_travels_by_every_way_of_calling(engine, trace, time, way):
    """Called, run, decorated, as a block, or in a call in a call."""
    with mainstay.context(**WHO):
        if way == "protect":
            engine.protect("op")(scripted(OSError, "ok"))()
        elif way == "nested":
            outer = POLICY.replace(retry_on=KeyError)
            outer.call(lambda: outer.call(lambda: engine.call("op", scripted(OSError, "ok"))))
        elif way == "attempts":
            function = scripted(OSError, "ok")
            for attempt in engine.operation("op").attempts():
                with attempt:
                    function()
        else:
            getattr(engine, way)("op", scripted(OSError, "ok"))
    assert strays(trace) == []


@pytest.mark.req("CP-20.tasks")
@pytest.mark.parametrize("how", ["await", "task", "gather", "TaskGroup", "to_thread", "executor"])
def test_the_context_travels_through_asyncio(engine, trace, time, how):
    """Tasks take it along by themselves, so does to_thread; an executor where it is carried."""

    async def call():
        await engine.acall("op", scripted_async(OSError, "ok"))

    def plain():
        engine.call("op", scripted(OSError, "ok"))

    async def main():
        with mainstay.context(**WHO):
            if how == "await":
                await call()
            elif how == "task":
                await asyncio.create_task(call())
            elif how == "gather":
                await asyncio.gather(call(), call())
            elif how == "TaskGroup":
                async with asyncio.TaskGroup() as group:
                    group.create_task(call())
            elif how == "to_thread":
                await asyncio.to_thread(plain)
            else:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(None, mainstay.carry(plain))

    asyncio.run(main())
    assert strays(trace) == []


@pytest.mark.req("CP-20.tasks")
@pytest.mark.parametrize("how", ["await", "nursery", "thread"])
def test_the_context_travels_through_trio(engine, trace, how):
    """Nurseries and trio's threads take it along by themselves."""
    engine = Engine(policies=[POLICY.replace(backoff=Backoff.constant(0))], sinks=[trace])

    async def call():
        await engine.acall("op", scripted_async(OSError, "ok"))

    async def main():
        with mainstay.context(**WHO):
            if how == "await":
                await call()
            elif how == "nursery":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(call)
            else:
                await trio.to_thread.run_sync(engine.call, "op", scripted(OSError, "ok"))

    trio.run(main)
    assert strays(trace) == []


@pytest.mark.req("CP-20.threads")
@pytest.mark.parametrize("how", ["carry", "submit", "map", "timeout_by"])
def test_the_context_travels_to_threads_where_it_is_carried(engine, trace, time, how):
    """`carry()` for a thread, `carrying()` for an executor, a worker thread of ours by itself."""

    def plain(*_):
        engine.call("op", scripted(OSError, "ok"))

    with mainstay.context(**WHO):
        if how == "carry":
            thread = threading.Thread(target=mainstay.carry(plain))
            thread.start()
            thread.join()
        elif how == "timeout_by":
            outer = RetryPolicy(retry_on=KeyError, timeout_by="thread", attempt_timeout=500.0)
            outer.call(plain)
        else:
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                carrying = mainstay.carrying(pool)
                if how == "submit":
                    carrying.submit(plain).result()
                else:
                    list(carrying.map(plain, range(5), timeout=50))
    assert strays(trace) == []


def test_a_thread_that_is_not_carried_to_starts_empty():
    """Nothing leaks into threads by itself, unless Python itself passes on the context."""
    seen = []
    with mainstay.context(**WHO):
        thread = threading.Thread(target=lambda: seen.append(mainstay.current_context()))
        thread.start()
        thread.join()
    inherits = getattr(sys.flags, "thread_inherit_context", False)  # in free-threaded Pythons
    assert seen == [Context(**WHO) if inherits else Context()]


@pytest.mark.req("CP-20.nested")
def test_contexts_nest_and_are_restored():
    """What is left out comes from outside; leaving restores it, also when an error leaves."""
    with mainstay.context(tenant_id="t1", correlation_id="c1") as outer:
        with pytest.raises(ZeroDivisionError), mainstay.context(correlation_id="c2") as inner:
            assert inner == Context(tenant_id="t1", correlation_id="c2")
            assert mainstay.current_context() == inner
            raise ZeroDivisionError
        assert mainstay.current_context() == outer
    assert mainstay.current_context() == Context()


def test_tasks_that_share_one_context_object_each_leave_their_own_block():
    """The first to enter is also the first to leave, and finds its own context again."""
    shared = mainstay.context(correlation_id="c", cancel=threading.Event())

    async def work(tenant, turns):
        with mainstay.context(tenant_id=tenant):
            with shared:
                for _ in range(turns):
                    await asyncio.sleep(0)
                assert mainstay.current_context().tenant_id == tenant
            assert mainstay.current_context() == Context(tenant_id=tenant)
            assert CANCEL.get() is None

    async def main():
        await asyncio.gather(work("a", 2), work("b", 5))

    asyncio.run(main())


def test_one_context_object_can_be_entered_many_times():
    """Also while it is entered already, as a decorator-like constant would be."""
    who = mainstay.context(tenant_id="t1")
    with who, who:
        with who:
            assert mainstay.current_context().tenant_id == "t1"
        assert mainstay.current_context().tenant_id == "t1"
    assert mainstay.current_context().tenant_id is None


@pytest.mark.req("CP-20.tasks", "NFR-041-15")
def test_contexts_of_concurrent_tasks_do_not_mix(engine, trace, time):
    """A hundred requests in one loop: each event carries its own request's names."""

    async def request(n):
        with mainstay.context(tenant_id=f"t{n % 7}", correlation_id=f"c{n}"):
            await asyncio.sleep(n % 5 / 10)
            await engine.acall("op", scripted_async(OSError(f"c{n}"), f"c{n}"))

    async def main():
        await asyncio.gather(*(request(n) for n in range(100)))

    asyncio.run(main())
    assert len(trace.events) == 300
    by_call = {}
    for event in trace.events:
        by_call.setdefault(event.call_id, set()).add((event.tenant_id, event.correlation_id))
        if event.event_type == "attempt_failed":
            assert event.exception_message == event.correlation_id
    assert len(by_call) == 100
    assert all(len(names) == 1 for names in by_call.values())


def test_the_context_of_the_call_counts_also_when_it_is_left_meanwhile(trace, time):
    """A call belongs to whoever made it: a function that sets a context changes no event."""
    engine = Engine(policies=[POLICY], sinks=[trace])

    def function():
        with mainstay.context(tenant_id="inside"):
            raise OSError

    with mainstay.context(**WHO), pytest.raises(OSError):
        engine.call("op", function)
    assert strays(trace) == []


def test_carry_can_be_used_by_many_threads_at_once():
    """One carried function, eight threads: each runs in a copy of its own."""
    seen, barrier = [], threading.Barrier(8)

    def look():
        barrier.wait(60)
        with mainstay.context(correlation_id="mine"):
            seen.append(mainstay.current_context())

    with mainstay.context(tenant_id="t1"):
        carried = mainstay.carry(look)
    threads = [threading.Thread(target=carried) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [Context(tenant_id="t1", correlation_id="mine")] * 8


def test_carry_takes_arguments_results_and_errors_through():
    """The carried function is called as the function would be."""
    assert mainstay.carry(int)("101", base=2) == 5
    with pytest.raises(ZeroDivisionError):
        mainstay.carry(lambda: 1 / 0)()
