"""Virtual time: instant, exact, and out of the way of sockets, threads and other clocks."""

import asyncio
import concurrent.futures
import subprocess
import sys
import threading
import time as real

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from mainstay import Backoff, Engine, Jitter, RetryPolicy, deadline
from mainstay.runtime import clock
from mainstay.testing import VirtualTime, scripted, scripted_async, takes, virtual_time

POLICY = RetryPolicy(
    retry_on=OSError, backoff=Backoff.exponential(60.0, max_delay=3600.0), jitter=Jitter.none()
)


def test_sync_waits_are_instant_and_exact():
    """Retries that would take minutes take none, and the clock says they took minutes."""
    with virtual_time() as time:
        POLICY.call(scripted(OSError, OSError, "ok"))
        assert time.elapsed == 180.0
        assert time.sleeps == [60.0, 120.0]
        real.sleep(20.0)
        assert time.elapsed == 200.0


def test_a_delay_is_exact_wherever_the_real_clock_stands(monkeypatch):
    """Also across a power of two, where a float has one bit less for the part of a second."""
    for now in (1000.0123456789, 4.0 - 2.0**-51, 65535.9, 2.0**31 - 0.3):
        monkeypatch.setattr(real, "monotonic", lambda now=now: now)
        monkeypatch.setattr(real, "time", lambda now=now: now)
        time = VirtualTime()
        for clock_of in (time.monotonic, time.wall):
            assert 0.0 <= clock_of() - now <= 0.001
            for delay in (0.25, 1.5, 60.0):
                assert clock_of() + delay - clock_of() == delay


@given(
    start=st.floats(0.0, 2e9),
    before=st.lists(st.floats(0.0, 1e4), max_size=4),
    delay=st.floats(0.0, 1e6),
    jumps=st.booleans(),
)
def test_a_delay_leads_to_the_moment_that_was_computed_for_its_end(start, before, delay, jumps):
    """To the last bit, on each clock: a circuit that is open for 30 s lets a probe through then."""
    time = VirtualTime(start)
    for seconds in before:
        time.advance(seconds)
    ends = [read() + delay for read in (time.monotonic, time.steady, time.wall)]
    if jumps:
        time.jump_to(ends[0])
    else:
        time.advance(delay)
    assert [time.monotonic(), time.steady()] == ends[:2]
    assert time.wall() == ends[2] or jumps


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_async_waits_are_instant_and_exact(loop):
    """The same in an event loop, with the loop's own sleeps."""

    async def main():
        await POLICY.acall(scripted_async(OSError, OSError, takes(20.0, "ok")))

    with virtual_time() as time:
        if loop == "asyncio":
            asyncio.run(main())
        else:
            trio.run(main, clock=time.trio_clock())
        assert time.elapsed == 200.0


@pytest.mark.parametrize("start", [2e7, 1_769_375_700.0, 1e12])
def test_async_waits_end_however_late_the_clock_is(start):
    """After 194 days of uptime a step of the clock is longer than what a loop takes for "now"."""

    async def main():
        for _ in range(3):
            await asyncio.sleep(0.3)
        async with asyncio.timeout(5.0):
            await asyncio.sleep(0.1)

    with virtual_time(start=start) as time:
        asyncio.run(main())
        assert time.elapsed == pytest.approx(1.0, abs=1e-3)


def test_concurrent_waits_take_as_long_as_the_longest():
    """Time jumps from timer to timer, in order."""
    order = []

    async def wait(seconds):
        await asyncio.sleep(seconds)
        order.append(seconds)

    async def main():
        await asyncio.gather(*(wait(float(n)) for n in (50, 10, 40, 20, 30)))

    with virtual_time() as time:
        asyncio.run(main())
        assert time.elapsed == 50.0
    assert order == [10.0, 20.0, 30.0, 40.0, 50.0]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_timeouts_are_cut_at_their_moment(loop):
    """attempt_timeout, deadline and the loop's own timeouts keep virtual time."""
    policy = POLICY.replace(attempt_timeout=90.0, max_attempts=2)

    async def main():
        with pytest.raises(TimeoutError):
            await policy.acall(scripted_async(takes(1e6, "late"), takes(1e6, "late")))

    with virtual_time() as time:
        if loop == "asyncio":
            asyncio.run(main())
        else:
            trio.run(main, clock=time.trio_clock())
        assert time.elapsed == pytest.approx(240.0)


def test_real_sockets_work_in_the_same_loop():
    """A server and its client on loopback speak while virtual minutes pass between."""

    async def serve(reader, writer):
        while line := await reader.readline():
            await asyncio.sleep(30.0)
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        calls = []

        @POLICY
        async def ask(word):
            calls.append(word)
            if len(calls) < 3:
                raise ConnectionError
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.timeout(40.0):
                writer.write(word)
                answer = await reader.readline()
            writer.close()
            await writer.wait_closed()
            return answer

        assert await ask(b"hello\n") == b"HELLO\n"
        server.close()
        await server.wait_closed()

    with virtual_time() as time:
        asyncio.run(main())
        assert 210.0 <= time.elapsed < 260.0


def test_real_sockets_work_under_trio_too():
    """The same with trio's streams: the answer is there before time jumps past it."""

    async def main():
        async def serve(stream):
            async for data in stream:
                await stream.send_all(data.upper())

        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, serve, 0)
            port = listeners[0].socket.getsockname()[1]

            @POLICY.replace(attempt_timeout=30.0)
            async def ask(word):
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                async with stream:
                    await stream.send_all(word)
                    return await stream.receive_some()

            for n in range(20):
                assert await ask(b"hello%d" % n) == b"HELLO%d" % n
            nursery.cancel_scope.cancel()

    with virtual_time() as time:
        trio.run(main, clock=time.trio_clock())
        assert time.elapsed == 0.0


POOL = """
import asyncio
import mainstay.testing.time
from concurrent.futures import ThreadPoolExecutor

mainstay.testing.time._ANSWERS_WITHIN = 3600.0
pool = ThreadPoolExecutor(1)
pool.submit(int).result()
if {ended}:
    pool.shutdown()
    del pool

async def main():
    for _ in range(500):
        await asyncio.sleep(60.0)

with mainstay.testing.virtual_time() as time:
    asyncio.run(main())
print(time.elapsed)
"""


@pytest.mark.parametrize("ended", [True, False])
def test_a_pool_without_work_makes_no_jump_wait(ended):
    """Nothing outside can wake the loop: it jumps at once, or this would take 500 hours."""
    program = POOL.format(ended=ended)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "30000.0\n"


def test_it_is_over_when_it_is_over():
    """Clock, time.sleep and event loops are as before, also after an error."""
    before = whats_patched()
    with pytest.raises(KeyError), virtual_time():
        assert clock.current is not before[0]
        raise KeyError
    assert whats_patched() == before


def whats_patched():
    loops, futures = asyncio.BaseEventLoop, asyncio.futures
    ends, pools = loops.shutdown_default_executor, concurrent.futures.ThreadPoolExecutor
    patched = loops.time, loops._run_once, ends, futures._chain_future, pools.submit
    return clock.current, real.sleep, *patched


def test_other_threads_go_on_sleeping_for_real():
    """time.sleep is virtual in the thread that asked for it, and only there."""
    with virtual_time() as time:
        thread = threading.Thread(target=real.sleep, args=(0.01,))
        thread.start()
        thread.join()
        assert time.elapsed == 0.0


def test_nested_virtual_times_have_each_their_own():
    """The inner one counts inside, the outer one goes on afterwards."""
    with virtual_time() as outer:
        real.sleep(1.0)
        with virtual_time() as inner:
            real.sleep(10.0)
        real.sleep(100.0)
    assert (outer.elapsed, inner.elapsed) == (101.0, 10.0)


def test_the_clock_never_goes_back():
    """Neither advance nor jump_to moves it backwards."""
    time = VirtualTime()
    time.advance(5.0)
    time.advance(-3.0)
    time.jump_to(time.monotonic() - 4.0)
    assert time.elapsed == 5.0


def test_deadlines_and_events_read_it():
    """remaining() and the timestamps of events follow the virtual clock."""
    stamps = []
    policy = POLICY.replace(name="op")
    engine = Engine(policies=[policy], sinks=[lambda event: stamps.append(event.timestamp)])
    with virtual_time() as time:
        with deadline.within(100.0):
            time.advance(40.0)
            assert round(deadline.remaining(), 6) == 60.0
        engine.call("op", scripted(OSError, "ok"))
    assert stamps == sorted(stamps)
    assert stamps[0] < stamps[-1]
    assert all(stamp.endswith("Z") for stamp in stamps)


def test_a_cancel_event_set_by_a_thread_still_wakes_a_virtual_wait(monkeypatch):
    """A wait with a cancel event gives other threads a moment before time jumps."""
    monkeypatch.setattr("mainstay.testing.time._PATIENCE", 30.0)
    cancel = threading.Event()
    with virtual_time() as time:
        threading.Timer(0.002, cancel.set).start()
        assert time.sleep(3600.0, cancel) is True
        assert time.elapsed == 0.0


def test_a_clock_can_begin_where_it_is_told():
    """Then every run sees the same moments, to the bit."""
    with virtual_time(start=1000.0) as time:
        real.sleep(0.5)
        assert time.monotonic() == clock.current.monotonic() == 1000.5
        assert time.wall() == 1000.5


def test_a_loop_that_keeps_real_time_is_left_alone():
    """A store's own thread talks to a real server, and its timeouts are real ones."""

    class Real(asyncio.SelectorEventLoop):
        keeps_real_time = True

    with virtual_time(start=0.0) as time:
        loop = Real()
        try:
            assert loop.time() != time.monotonic()
            loop.run_until_complete(asyncio.sleep(0.01))
            assert time.elapsed == 0.0
        finally:
            loop.close()


def test_an_attempt_in_a_thread_is_given_real_time():
    """A stage of work that takes long on a busy machine is not taken for one that hangs."""
    policy = RetryPolicy(max_attempts=1, attempt_timeout=30.0, timeout_by="thread")
    with virtual_time() as time:
        assert policy.call(lambda: threading.Event().wait(0.2)) is False
    assert time.elapsed == 0.0
