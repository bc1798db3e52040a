"""Leases and claims on real stores: far away, hanging, and given up at any moment.

What is counted is executions and records; how quick a renewal is, is in bench/lease_renewal.py.
"""

import asyncio
import contextlib
import random
import threading
import time
import uuid
from collections import Counter
from urllib.parse import urlsplit

import pytest

from mainstay import Engine
from mainstay.core.codec.arguments import bound_arguments
from mainstay.core.codec.canonical import canonical, fingerprint
from mainstay.core.idempotency.record import Begin, RecordState, decode, reduce
from mainstay.drivers.idempotency import keyed_call
from mainstay.errors import Conflict, MainstayError
from mainstay.testing.proxy import FaultProxy
from tests.processes import at_some_speed

SERVERS = ["postgres", "valkey", "nats"]
SOON = 60.0


@pytest.fixture(params=SERVERS)
def server(request):
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture(params=[*SERVERS, "sqlite", "memory"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/kept.db?synchronous=NORMAL"
    if request.param == "memory":
        return "memory://"
    return request.getfixturevalue(f"{request.param}_url")


@contextlib.contextmanager
def behind(url, latency=0.0, jitter=0.0):
    """The URL of a server behind a proxy, and the proxy; a file as it is."""
    parts = urlsplit(url)
    if not parts.port:
        yield url, None
        return
    with FaultProxy(parts.hostname, parts.port) as proxy:
        if latency or jitter:
            proxy.latency(latency, jitter)
        yield proxy.url(url), proxy
        proxy.heal()


def wait_until(condition):
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


# --- renewals -------------------------------------------------------------------------------------


def test_calls_on_a_store_that_hangs_cost_a_call_on_another_no_lease(valkey_url, tmp_path):
    """Eight calls on a Valkey that does not answer, and one on a file: that is executed once."""
    at_some_speed(lambda lease: hang_beside_a_file(valkey_url, tmp_path, lease), 1.0, 4.0, 15.0)


def hang_beside_a_file(valkey_url, folder, lease):
    """Both engines on the file are in this process, so that it must not stand still for a lease."""
    end, executions, others = threading.Event(), [], []
    prefix = uuid.uuid4().hex
    file = f"sqlite:///{folder}/kept{lease}.db"

    def hold(engine, number):
        with contextlib.suppress(MainstayError):  # its lease is lost, and its outcome with it
            engine.operation(
                "hold", key=f"{prefix}{number}", idempotency="idempotent", lease=lease
            ).call(end.wait, SOON)

    def work():
        executions.append(1)
        time.sleep(2.5 * lease)
        return len(executions)

    with (
        behind(valkey_url) as (far, proxy),
        Engine(far, sinks=[]) as hung,
        Engine(file, sinks=[]) as healthy,
        Engine(file, sinks=[]) as other,
    ):
        holding = [threading.Thread(target=hold, args=(hung, number)) for number in range(8)]
        for thread in holding:
            thread.start()
        wait_until(lambda: len(list(hung.store.scan("records", limit=1000))) >= 8)
        proxy.black_hole()
        time.sleep(lease / 2)
        keyed = {"key": "k", "idempotency": "idempotent", "lease": lease}
        operation = other.operation("work", **keyed, wait=SOON)

        def wait():
            with contextlib.suppress(MainstayError):  # the machine stood still, and it shows below
                others.append(operation.call(work))

        waiting = threading.Thread(target=wait)
        timer = threading.Timer(0.3, waiting.start)
        timer.start()
        try:
            assert healthy.operation("work", **keyed).call(work) == 1
        finally:
            timer.join()
            end.set()
            proxy.heal()
            for thread in [waiting, *holding]:
                thread.join(SOON)
    assert (executions, others) == ([1], [1])


def test_many_long_calls_on_a_distant_server_keep_their_leases(postgres_url):
    """A hundred of them, 50 ms away: one after the other they would take more than a lease."""
    at_some_speed(lambda lease: hold_from_afar(postgres_url, lease), 3.0, 12.0)


def hold_from_afar(postgres_url, lease):
    """So many that take longer than a lease, if one is renewed after the other."""
    executions, prefix, keys = Counter(), uuid.uuid4().hex, range(100)
    end = asyncio.Event()

    async def work(number):
        executions[number] += 1
        if executions[number] == 1:
            await end.wait()

    async def conflicts(engine, number):
        operation = engine.operation(
            "w", key=f"{prefix}{number}", idempotency="idempotent", lease=lease, on_conflict="raise"
        )
        try:
            await operation.acall(work, number)
        except Conflict:
            return 1
        return 0

    async def main(far, near):
        calls = [
            far.operation("w", key=f"{prefix}{number}", idempotency="idempotent", lease=lease)
            for number in keys
        ]
        held = [asyncio.create_task(call.acall(work, n)) for n, call in enumerate(calls)]
        while len(executions) < len(keys):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(4 / 3 * lease)
        seen = sum(await asyncio.gather(*(conflicts(near, number) for number in keys)))
        end.set()
        await asyncio.gather(*held)
        return seen

    with (
        behind(postgres_url, 0.05) as (distant, _),
        Engine(distant, sinks=[]) as far,
        Engine(postgres_url, sinks=[]) as near,
    ):
        assert asyncio.run(main(far, near)) == len(keys)
    assert set(executions.values()) == {1}
    assert far.records.counts().get("expired", 0) == 0


# --- claims that are given up ---------------------------------------------------------------------


@pytest.mark.parametrize("on_crash", ["retry", "unknown"])
def test_calls_that_are_cancelled_at_any_moment_leave_no_claim(url, on_crash):
    """No record is running or in doubt, nobody is asked, and each key runs at once."""
    chance, prefix, number = random.Random(11), uuid.uuid4().hex, 250
    ran, longest = Counter(), 0.02 if urlsplit(url).port else 0.002

    async def work(key):
        ran[key] += 1
        return key

    async def cancelled(engine, key):
        operation = engine.operation(prefix, key=key, idempotency="idempotent", on_crash=on_crash)
        task = asyncio.create_task(operation.acall(work, key))
        await asyncio.sleep(chance.uniform(0.0, longest))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def main(engine):
        for first in range(0, number, 25):
            keys = range(first, first + 25)
            await asyncio.gather(*(cancelled(engine, str(key)) for key in keys))
        await asyncio.sleep(0.5)  # what is on its way arrives

    with contextlib.ExitStack() as stack:
        far, _ = stack.enter_context(behind(url, 0.003, 0.006))
        engine = stack.enter_context(Engine(far, sinks=[]))
        asyncio.run(main(engine))
        wait_until(lambda: not any(t.name == "mainstay-release" for t in threading.enumerate()))
        near = stack.enter_context(Engine(url, sinks=[])) if longest == 0.02 else engine
        states = states_of(near, prefix)
        assert states[RecordState.RUNNING] == states[RecordState.UNKNOWN] == 0
        assert not [item for item in near.inbox if item.operation == prefix]
        for key in map(str, range(number)):
            operation = near.operation(
                prefix, key=key, idempotency="idempotent", on_conflict="raise"
            )
            assert operation.call(lambda key: key, key) == key
    assert set(ran.values()) <= {1}


@pytest.mark.parametrize("before", ["absent", "left"])
def test_a_claim_that_arrives_after_its_release_is_not_written(server, monkeypatch, before):
    """It was on its way when its call was cancelled; the release takes a quicker way."""
    name, decided, released = uuid.uuid4().hex, asyncio.Event(), []

    def spy(value, command, *more):
        if isinstance(command, Begin):
            decided.set()
        return reduce(value, command, *more)

    def work():
        """Nothing."""

    async def awork():
        """The same."""

    async def main(engine, proxy):
        await engine.operation(name, key="before", idempotency="idempotent").acall(awork)
        monkeypatch.setattr(keyed_call, "reduce", spy)
        decided.clear()
        proxy.latency(0.6)
        task = asyncio.create_task(
            engine.operation(name, key="k", idempotency="idempotent").acall(awork)
        )
        await decided.wait()
        await asyncio.sleep(0.05)  # it is sent
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert released
        await asyncio.sleep(0.6)  # it has arrived
        proxy.heal()

    with (
        behind(server) as (far, proxy),
        Engine(far, sinks=[]) as engine,
        Engine(server, sinks=[]) as near,
    ):
        if before == "left":
            left_by_a_crash(near, name, work)

        def later(address, decide, _seconds):
            released.append(near.store.transact("records", address, decide))

        monkeypatch.setattr(engine.records, "later", later)
        asyncio.run(main(engine, proxy))
        assert (
            near.operation(name, key="k", idempotency="idempotent", on_conflict="raise").call(work)
            is None
        )


def left_by_a_crash(engine, name, function, *args):
    """The record of a call whose process is gone, and whose lease has run out."""
    begin = Begin("ghost", fingerprint(bound_arguments(function, args, {})), 0.01, 9)
    address = canonical([None, name, "k"]).decode()
    engine.store.transact("records", address, lambda value, now: reduce(value, begin, now))
    time.sleep(0.05)


def states_of(engine, operation):
    """How many records of an operation have which state."""
    found, after = Counter(), ""
    while page := engine.store.scan("records", after, 1000):
        found.update(decode(value).state for key, value in page if operation in key)
        after = page[-1][0]
    return found


@pytest.mark.parametrize("is_taken", [False, True], ids=["before the claim", "after it"])
def test_a_thread_interrupted_in_its_claim_leaves_none(url, is_taken):
    """Ctrl+C while the store works: the claim was taken, or was not; it is given up."""
    name = uuid.uuid4().hex
    with Engine(url, sinks=[]) as engine:
        transact, interrupts = engine.store.transact, [1]

        def interrupted(*args):
            answer = transact(*args) if is_taken or not interrupts else None
            if interrupts:
                interrupts.pop()
                raise KeyboardInterrupt
            return answer

        engine.store.transact = interrupted
        with pytest.raises(KeyboardInterrupt):
            engine.operation(name, key="k", idempotency="idempotent").call(int)
        engine.store.transact = transact
        wait_until(lambda: not any(t.name == "mainstay-release" for t in threading.enumerate()))
        assert states_of(engine, name)[RecordState.RUNNING] == 0
        assert (
            engine.operation(name, key="k", idempotency="idempotent", on_conflict="raise").call(int)
            == 0
        )
