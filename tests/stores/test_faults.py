"""What keyed calls come to when the network between them and their store fails.

Each test runs against each server, through a proxy of its own; what became of the calls is then
looked at without the proxy.
"""

import asyncio
import contextlib
import itertools
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from mainstay import Engine
from mainstay.core.codec.canonical import canonical
from mainstay.core.codec.outcome import decode_outcome
from mainstay.core.idempotency.record import RecordState, decode
from mainstay.errors import MainstayError, StoreUnavailable
from mainstay.testing.proxy import FaultProxy
from tests.processes import at_some_speed
from tests.servers.nats import nats_url
from tests.servers.postgres import postgres_url
from tests.servers.valkey import valkey_url

__all__ = ["nats_url", "postgres_url", "valkey_url"]  # fixtures

SOON = 120.0
"""Seconds that any one call may take at most; each step of a store has the 30 of the tests."""
CLAIM, OUTCOME = b'"state":"running"', b'"state":"succeeded"'
"""What is in a record that is claimed, and in one with its outcome."""


class Place:
    """A server, a proxy before it, and what was called through it."""

    def __init__(self, name, url, proxy, stack):
        self.proxy = proxy
        self.ran = Counter()
        self._stack = stack
        self._name = name
        self._prefix = uuid.uuid4().hex
        self.far_url = proxy.url(url)
        self.far = self.engine(self.far_url)
        self.near = self.engine(url)

    def engine(self, url, **options):
        if "pool" in options and self._name == "nats":
            del options["pool"]  # it has one connection for all
        query = "&".join(f"{name}={value}" for name, value in options.items())
        joint = "&" if urlsplit(url).query else "?"
        return self._stack.enter_context(Engine(f"{url}{joint}{query}" if query else url, sinks=[]))

    def operation(self, engine, name, **options):
        return engine.operation(
            "op", key=f"{self._prefix} {name}", idempotency="idempotent", **options
        )

    def effect(self, name):
        """Counts how often it ran, and says so."""
        self.ran[name] += 1
        return f"{name}, run {self.ran[name]}"

    async def aeffect(self, name):
        return self.effect(name)

    def call(self, name, engine=None, effect=None):
        return self.operation(engine or self.far, name).call(effect or self.effect, name)

    async def acall(self, name, engine=None, effect=None, **options):
        operation = self.operation(engine or self.far, name, **options)
        return await operation.acall(effect or self.aeffect, name)

    def either(self, colour, name, effect=None):
        """A call through the proxy, of either colour."""
        if colour == "sync":
            return self.call(name, effect=effect)

        async def aeffect(name):
            return (effect or self.effect)(name)

        return asyncio.run(asyncio.wait_for(self.acall(name, effect=aeffect), SOON))

    def recorded(self, name):
        """The outcome that the server has, read past the proxy; None where it has none."""
        address = canonical([None, "op", f"{self._prefix} {name}"]).decode()
        value, _ = self.near.store.read("records", address)
        record = None if value is None else decode(value)
        if record is None or record.state is not RecordState.SUCCEEDED:
            return None
        return decode_outcome(bytes(record.outcome)).value


@pytest.fixture(params=["postgres", "valkey", "nats"])
def place(request):
    url = request.getfixturevalue(f"{request.param}_url")
    parts = urlsplit(url)
    with (
        FaultProxy(parts.hostname, parts.port) as proxy,
        contextlib.ExitStack() as stack,
    ):
        yield Place(request.param, url, proxy, stack)
        proxy.heal()


@contextlib.contextmanager
def patience(engine, seconds):
    """How long a step of the engine's store takes at most, for a while."""
    stores = [engine.store, getattr(engine.store, "_address", None)]
    stores = [each for each in stores if hasattr(each, "timeout")]
    before = [each.timeout for each in stores]
    for each in stores:
        each.timeout = seconds
    try:
        yield
    finally:
        for each, was in zip(stores, before, strict=True):
            each.timeout = was


def in_the_end(call):
    """What it returns once the machine is quick enough for it."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            return call()


COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])


# --- a reply is lost ------------------------------------------------------------------------------


@COLOURS
@pytest.mark.parametrize("step", [CLAIM, OUTCOME], ids=["claim", "outcome"])
def test_a_lost_reply_to_a_step_is_asked_for_again(place, colour, step):
    """The step was taken, nobody heard of it, it is repeated: the effect runs once."""
    lost = threading.Event()
    place.either(colour, "before")
    place.proxy.drop_reply_once(step, then=lost.set)
    assert place.either(colour, "pay") == "pay, run 1"
    assert lost.is_set()
    assert place.recorded("pay") == "pay, run 1"
    assert place.call("pay", place.near) == place.either(colour, "pay") == "pay, run 1"
    assert place.ran["pay"] == 1


@COLOURS
def test_an_outcome_that_was_recorded_unheard_is_found_by_the_next_call(place, colour):
    """The store is gone before it can be asked again: an error now, and the outcome later."""
    hasty = contextlib.ExitStack()

    def refuse():
        place.proxy.refuse()
        hasty.enter_context(patience(place.far, 0.3))

    def effect(name):
        place.proxy.drop_reply_once(OUTCOME, then=refuse)
        return place.effect(name)

    with hasty, pytest.raises(StoreUnavailable) as caught:
        place.either(colour, "pay", effect)
    assert any("could not be recorded" in note for note in caught.value.__notes__)
    assert place.recorded("pay") == "pay, run 1"
    place.proxy.heal()
    assert place.either(colour, "pay") == "pay, run 1"
    assert place.ran["pay"] == 1


# --- the store is down ----------------------------------------------------------------------------


def test_a_store_that_was_down_works_again_and_has_lost_nothing(place):
    """While it is down calls say so; what was acknowledged before and after is all there."""
    acknowledged, refused, names = {}, [], itertools.count()
    stop = threading.Event()

    def work():
        while not stop.is_set():
            name = str(next(names))
            try:
                acknowledged[name] = place.call(name)
            except StoreUnavailable as error:
                refused.append(error)

    def after(more, of):
        """Waits until there are so many more of them."""
        wanted = len(of) + more
        while len(of) < wanted:
            assert not stop.wait(0.005)
            assert any(not future.done() for future in futures), "nobody works any more"

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(work) for _ in range(3)]
        try:
            after(20, acknowledged)
            with patience(place.far, 0.3):
                after(6, acknowledged)  # steps that began with more patience are over
                place.proxy.refuse()
                after(2, refused)
                place.proxy.heal()
            after(20, acknowledged)
        finally:
            stop.set()
    assert [future.result() for future in futures] == [None] * 3
    assert all("127.0.0.1" in error.url and error.reason for error in refused)
    for name, value in acknowledged.items():
        assert place.recorded(name) == value == f"{name}, run 1"
        assert place.ran[name] == 1


def test_the_first_async_call_after_a_store_is_back_succeeds(place):
    """Nothing has to be built anew in the loop, and nothing of the bad time sticks."""

    async def story():
        before = await place.acall("before")
        place.proxy.refuse()
        with patience(place.far, 0.3), pytest.raises(StoreUnavailable):
            await place.acall("between")
        place.proxy.heal()
        return before, await place.acall("between"), await place.acall("before")

    told = asyncio.run(asyncio.wait_for(story(), SOON))
    assert told == ("before, run 1", "between, run 1", "before, run 1")


# --- a black hole ---------------------------------------------------------------------------------


@pytest.mark.req("CP-14.stores")
def test_a_black_hole_is_left_in_time_and_leaves_no_connection_taken(place):
    """More threads and tasks than connections wait in vain, for a while; then all succeed."""
    far = place.engine(place.far_url, timeout=1, pool=2)
    names = [str(number) for number in range(12)]

    async def all_of():
        """Half of them in threads, half as tasks of the loop."""
        calls = [asyncio.to_thread(place.call, name, far) for name in names[:6]]
        calls += [place.acall(name, far) for name in names[6:]]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), SOON)

    async def story():
        in_the_end(lambda: place.call("before, in a thread", far))
        await asyncio.to_thread(in_the_end, lambda: asyncio.run(place.acall("before", far)))
        place.proxy.black_hole()
        with patience(far, 0.3):
            told = await all_of()
        place.proxy.heal()
        with patience(far, 30.0):
            return told, await all_of()

    told, values = asyncio.run(story())
    assert {type(one) for one in told} == {StoreUnavailable}
    assert values == [f"{name}, run 1" for name in names]


def test_a_black_hole_between_claim_and_outcome_is_told_with_what_happened(place):
    """The effect ran and could not be recorded: the error says so, and nobody waits for ever."""

    def effect(name):
        place.proxy.black_hole()
        return place.effect(name)

    def check(limit):
        far = place.engine(place.far_url, timeout=limit)
        name, other = f"pay {limit}", f"other {limit}"
        in_the_end(lambda: place.call(f"before {limit}", far))
        try:
            with pytest.raises(StoreUnavailable) as caught:
                place.call(name, far, effect)
            assert any("op ran and returned" in note for note in caught.value.__notes__)
            assert place.recorded(name) is None
        finally:
            place.proxy.heal()
        with patience(far, 30.0):
            assert place.call(other, far) == f"{other}, run 1"

    at_some_speed(check, 0.4, 2.0, 10.0)


# --- latency and resets ---------------------------------------------------------------------------


def test_a_slow_network_only_takes_longer(place):
    """50 ms for a round trip, with jitter: calls, replays and concurrent ones work."""
    far = place.far
    place.proxy.latency(0.05, jitter=0.02)
    names = [str(number) for number in range(10)]

    async def all_of():
        calls = [place.acall(name, far) for name in names]
        return await asyncio.wait_for(asyncio.gather(*calls), SOON)

    assert place.call("pay", far) == place.call("pay", far) == "pay, run 1"
    assert asyncio.run(all_of()) == [f"{name}, run 1" for name in names]
    assert place.ran["pay"] == 1


def test_connections_reset_amid_many_calls_leave_one_outcome_for_each_key(place):
    """Each call returns or says what happened; what was recorded ran once, and stays so."""
    names = [str(number) for number in range(20)]
    ended = itertools.count(1)

    async def effect(name):
        value = place.effect(name)
        await asyncio.sleep(0.001 * int(name))
        if next(ended) == 10:
            place.proxy.reset()
            asyncio.get_running_loop().call_later(0.3, place.proxy.heal)
        return value

    async def all_of(engine):
        calls = [place.acall(name, engine, effect, lease=1.0) for name in names]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), SOON)

    first = asyncio.run(all_of(place.far))
    assert [one for one in first if not isinstance(one, str | MainstayError)] == []
    recorded = {name: place.recorded(name) for name in names}
    for name, answer in zip(names, first, strict=True):
        if isinstance(answer, str):
            assert answer == recorded[name]
        if recorded[name] is not None:
            assert (recorded[name], place.ran[name]) == (f"{name}, run 1", 1)
    second, runs = asyncio.run(all_of(place.near)), place.ran.copy()
    for name, answer in zip(names, second, strict=True):
        assert answer == place.recorded(name) == (recorded[name] or answer)
        assert runs[name] == 1 or recorded[name] is None
    assert asyncio.run(all_of(place.near)) == second
    assert place.ran == runs
