"""Keyed calls through the engine: on two stores, in three colours, with what goes wrong."""

import asyncio
import gc
import os
import sqlite3
import threading
import time
import weakref
from contextlib import suppress
from functools import wraps

import pytest
import trio

import mainstay
from mainstay import (
    Backoff,
    BreakerSettings,
    CircuitOpenError,
    Engine,
    OutcomeUnknown,
    PayloadMismatch,
    ResultNotKept,
    RetryPolicy,
    deadline,
)
from mainstay.core.base.change import Change
from mainstay.core.codec.canonical import canonical, fingerprint
from mainstay.core.idempotency.record import Begin, RecordState, Release, Settle, decode, reduce
from mainstay.drivers.idempotency import driver as keyed
from mainstay.drivers.idempotency.keyed_call import KeyedCall
from mainstay.drivers.idempotency.lease_renewal import LEASE_RENEWAL
from mainstay.errors import (
    CallCancelled,
    Conflict,
    LeaseLost,
    MainstayWarning,
    ResultRejected,
    StoredValueError,
    StoreUnavailable,
    UsageError,
)
from mainstay.stores.memory import MemoryStore
from mainstay.stores.sqlite import statements as sqlite_steps
from mainstay.stores.sqlite.store import SqliteStore
from mainstay.testing import virtual_time
from tests.processes import at_some_speed

SOON = 30.0
BRIEF = 0.05, 0.5, 5.0
"""Leases that a test waits out: the first that the machine is quick enough to begin a call in."""
WRITTEN = Change(b"1")
SWIFT = RetryPolicy(
    name="swift",
    max_attempts=3,
    backoff=Backoff.constant(0.001),
    retry_on=(ConnectionError,),
    classify={"Ambiguous": "ambiguous"},
)
ONCE = SWIFT.replace(name="once", max_attempts=1)


class Ambiguous(Exception):
    """It may have been applied."""


class Custom(ValueError):
    """A failure of the application's own."""


@pytest.fixture(autouse=True)
def _releases_end():
    """Those who were cut off leave a thread that ends by itself."""
    yield
    wait_until(lambda: not any(t.name == "mainstay-release" for t in threading.enumerate()))


def wait_until(condition):
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


class Colour:
    """One of the three ways to call, in real time."""

    def __init__(self, name):
        self.name = name
        self.is_async = name != "sync"

    def run(self, function, *args, **kwargs):
        if not self.is_async:
            return function(*args, **kwargs)
        if self.name == "asyncio":
            return asyncio.run(function(*args, **kwargs))

        async def main():
            return await function(*args, **kwargs)

        return trio.run(main)

    def of(self, function):
        """A plain function in this colour, with the same parameters."""
        if not self.is_async:
            return function

        @wraps(function)
        async def coloured(*args, **kwargs):
            return function(*args, **kwargs)

        return coloured

    async def sleep(self, seconds):
        sleep = asyncio.sleep if self.name == "asyncio" else trio.sleep
        await sleep(seconds)

    def call(self, operation, function, *args, **kwargs):
        return self.run(operation.acall if self.is_async else operation.call, function, *args)

    def result(self, operation, function, *args):
        return self.run(operation.arun if self.is_async else operation.run, function, *args)


@pytest.fixture(params=["sync", "asyncio", "trio"])
def colour(request):
    return Colour(request.param)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    made = MemoryStore() if request.param == "memory" else sqlite_at(tmp_path)
    yield made
    made.close()


def sqlite_at(folder, **options):
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return SqliteStore(f"sqlite:///{folder}/kept.db?synchronous=NORMAL&{query}".rstrip("&"))


def engine_on(store, default="swift", **options):
    return Engine(
        store, policies=[SWIFT, ONCE], default=default, sinks=options.pop("sinks", []), **options
    )


@pytest.fixture
def engine(store):
    with engine_on(store) as made:
        yield made


class Counting:
    """A function that counts its calls and plays a script; the last step goes on for ever."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.calls = 0

    def __call__(self, *args):
        step = self.steps[min(self.calls, len(self.steps) - 1)]
        self.calls += 1
        if isinstance(step, BaseException):
            raise step
        return step


def scripted(colour, *steps):
    """The same in a colour, with `calls` to look at."""
    plain = Counting(*steps)

    def function(*args):
        return plain(*args)

    return colour.of(function), plain


def record_of(engine, operation, key, who=None):
    """The record as the store has it, or None."""
    value, _ = engine.store.read("records", canonical([who, operation, key]).decode())
    return None if value is None else decode(value)


def claim(engine, operation, key, function, *args, lease=30.0, owner="ghost", most=3):
    """What a process leaves behind that begins a call and is gone."""
    from mainstay.core.codec.arguments import bound_arguments

    command = Begin(owner, fingerprint(bound_arguments(function, args, {})), lease, most)
    address = canonical([None, operation, key]).decode()
    answer = engine.store.transact("records", address, lambda v, n: reduce(v, command, n))
    return answer, lambda command: engine.store.transact(
        "records", address, lambda v, n: reduce(v, command, n)
    )


# --- the second call ------------------------------------------------------------------------------


@pytest.mark.req("CP-08")
@pytest.mark.parametrize("value", [None, 0, "", False, [], {}, 7, {"a": (1, b"x")}])
def test_the_second_call_returns_the_first_ones_result(engine, colour, value):
    """Whatever its truth value, and with its type."""
    function, plain = scripted(colour, value, "another")
    operation = engine.operation("charge", key="k")
    first, second = (colour.call(operation, function) for _ in range(2))
    assert (type(first), first) == (type(second), second) == (type(value), value)
    assert plain.calls == 1


def test_a_final_failure_is_replayed_with_type_arguments_and_notes(engine, colour):
    """As if the function had raised it again."""
    failure = Custom("no such order", 7)
    failure.add_note("looked twice")
    function, plain = scripted(colour, failure)
    operation = engine.operation("charge", key="k")
    for _ in range(2):
        with pytest.raises(Custom) as caught:
            colour.call(operation, function)
        assert caught.value.args == ("no such order", 7)
        assert "looked twice" in caught.value.__notes__
    assert caught.value is not failure
    assert plain.calls == 1


@pytest.mark.parametrize("kind", [ConnectionError, RuntimeError, PermissionError])
def test_other_failures_leave_no_record(engine, colour, kind):
    """The next call runs, with all its attempts."""
    failure = kind("not now")
    function, plain = scripted(colour, failure)
    operation = engine.operation("charge", key="k")
    made = []
    for _ in range(2):
        result = colour.result(operation, function)
        assert result.last_exception is failure
        made.append(result.attempts)
        assert record_of(engine, "charge", "k") is None
    assert made[0] == made[1] == plain.calls / 2


def test_trouble_of_a_store_inside_is_not_recorded_as_final(engine, colour):
    """A call inside that met a locked database would else fail for a day."""
    away = StoreUnavailable("sqlite:///other.db", "write", "database is locked")
    function, plain = scripted(colour, away, "done")
    operation = engine.operation("charge", key="k")
    with pytest.raises(StoreUnavailable):
        colour.call(operation, function)
    assert colour.call(operation, function) == "done"
    assert plain.calls == 2


def test_another_payload_under_the_key_is_refused(engine, colour):
    """And nothing is overwritten."""
    _, plain = scripted(colour, 1)

    def pay(amount):
        return plain()

    operation = engine.operation("charge", key="k")
    assert colour.call(operation, colour.of(pay), 5) == 1
    with pytest.raises(PayloadMismatch):
        colour.call(operation, colour.of(pay), 6)
    assert colour.call(operation, colour.of(pay), 5) == 1
    assert plain.calls == 1


def test_a_result_not_accepted_to_the_last_is_not_recorded(store, colour):
    """`retry_if_result` says it is not done: the next call asks again."""
    policy = SWIFT.replace(name="poll", max_attempts=2, retry_if_result=lambda v: v == "pending")
    with Engine(store, policies=[policy], default="poll", sinks=[]) as engine:
        function, plain = scripted(colour, "pending", "pending", "done")
        operation = engine.operation("poll", key="k")
        first = colour.result(operation, function)
        assert (first.success, first.value) == (False, "pending")
        assert colour.call(operation, function) == "done"
        assert colour.call(operation, function) == "done"
        assert plain.calls == 3


def test_a_result_that_is_raised_as_rejected_is_not_recorded_either(store, colour):
    """`on_exhausted` chooses how the caller gets it; the next call with the key asks again."""
    policy = SWIFT.replace(name="poll", max_attempts=2, retry_if_result=lambda v: v == "pending")
    policy = policy.replace(on_exhausted="raise")
    with Engine(store, policies=[policy], default="poll", sinks=[]) as engine:
        function, plain = scripted(colour, "pending", "pending", "done")
        operation = engine.operation("poll", key="k")
        with pytest.raises(ResultRejected):
            colour.call(operation, function)
        assert colour.call(operation, function) == "done"
        assert plain.calls == 3


def test_a_result_counts_attempts_and_a_replay_none(engine, colour):
    """`run` says what this call did."""
    function, _ = scripted(colour, ConnectionError(), "done")
    operation = engine.operation("charge", key="k")
    made = [colour.result(operation, function) for _ in range(2)]
    assert [(each.value, each.attempts) for each in made] == [("done", 2), ("done", 0)]


# --- keys -----------------------------------------------------------------------------------------


def test_without_a_key_all_arguments_make_it(engine, colour):
    """However they are passed; defaults count."""
    seen = []

    def send(to, subject="hello", *, copies=1):
        seen.append((to, subject, copies))
        return len(seen)

    send = engine.idempotent()(colour.of(send))
    forms = [
        (("ann",), {}),
        (("ann", "hello"), {}),
        ((), {"to": "ann", "copies": 1}),
        (("ann",), {"copies": 2}),
        (("bob",), {}),
    ]
    assert [colour.run(send, *args, **kwargs) for args, kwargs in forms] == [1, 1, 1, 2, 3]


def test_a_key_function_takes_the_arguments(engine):
    """And what it returns is the key."""
    seen = []

    @engine.idempotent(key=lambda order: order["id"])
    def charge(order):
        seen.append(order)
        return len(seen)

    assert [charge({"id": 1}), charge({"id": 1}), charge({"id": 2})] == [1, 1, 2]
    with pytest.raises(PayloadMismatch):
        charge({"id": 1, "amount": 5})
    for empty in ("", None, " "):
        with pytest.raises(UsageError):
            charge({"id": empty})


class Shop:
    """Its methods are keyed below; `self` is no part of a key."""

    seen: list = []  # noqa: RUF012

    def buy(self, what):
        self.seen.append(what)
        return len(self.seen)

    def restock(self, what):
        self.seen.append(what)
        return len(self.seen)


def test_methods_and_class_methods_leave_self_out(engine):
    """Two shops are one, as far as keys go."""
    Shop.seen.clear()
    buy = engine.idempotent()(Shop.buy)
    assert [buy(Shop(), "tea"), buy(Shop(), "tea"), buy(Shop(), "rum")] == [1, 1, 2]
    cls = type("Branch", (Shop,), {"fill": engine.idempotent()(classmethod(Shop.restock))})
    assert [cls.fill("tea"), cls().fill("tea")] == [3, 3]


def test_scopes_and_tenants_are_apart(engine, colour):
    """The same key of two tenants is two calls; a scope of one's own takes the tenant's place."""
    function, _ = scripted(colour, *range(1, 9))

    def call(tenant, **options):
        with mainstay.context(tenant_id=tenant):
            return colour.call(engine.operation("charge", key="k", **options), function)

    assert [call("a"), call("b"), call(None), call("a"), call("b")] == [1, 2, 3, 1, 2]
    assert [call("a", scope="s"), call("b", scope="s"), call("a", scope="a")] == [4, 4, 1]
    assert colour.call(engine.operation("other", key="k", scope="a"), function) == 5


# --- at the same time -----------------------------------------------------------------------------


def in_threads(number, function):
    results, errors = [], []

    def guarded():
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert errors == []
    return results


def test_of_a_hundred_threads_one_runs_and_all_have_the_value(engine):
    """None is turned away, and none runs after it."""
    calls = []

    def work():
        calls.append(1)
        time.sleep(0.05)
        return "made"

    results = in_threads(100, lambda: engine.operation("work", key="k").call(work))
    assert results == ["made"] * 100
    assert len(calls) == 1
    assert engine.records.counts()["record"] == 1
    assert engine.records.counts()["hit"] == 99


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_of_a_hundred_tasks_one_runs_and_all_have_the_value(engine, loop):
    """In one event loop."""
    calls, results = [], []

    async def work():
        calls.append(1)
        await Colour(loop).sleep(0.05)
        return "made"

    async def one():
        results.append(await engine.operation("work", key="k").acall(work))

    async def in_asyncio():
        await asyncio.gather(*(one() for _ in range(100)))

    async def in_trio():
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(one)

    asyncio.run(in_asyncio()) if loop == "asyncio" else trio.run(in_trio)
    assert results == ["made"] * 100
    assert len(calls) == 1


def test_whoever_does_not_wait_hears_when_to_ask_again(engine, colour):
    """Conflict, with the rest of the other's lease."""
    function, plain = scripted(colour, 1)
    claim(engine, "charge", "k", function)
    with pytest.raises(Conflict) as caught:
        colour.call(engine.operation("charge", key="k", on_conflict="raise"), function)
    assert 0.0 < caught.value.retry_after <= 30.0
    with pytest.raises(Conflict):
        colour.call(engine.operation("charge", key="k", wait=0.05), function)
    assert plain.calls == 0
    assert engine.records.counts()["conflict"] == 2


def test_waiting_for_another_call_keeps_the_deadline(engine, colour):
    """The policy's, and whichever is around: nobody sleeps past either."""
    function, _ = scripted(colour, 1)
    claim(engine, "charge", "k", function, lease=600.0)

    def check(limit):
        """On a busy machine a short one may be over before the store answers."""
        started = time.monotonic()
        with pytest.raises(Conflict), deadline.within(limit):
            colour.call(engine.operation("charge", key="k", wait=600.0), function)
        policy = SWIFT.replace(name="bounded", deadline=limit)
        with Engine(engine.store, policies=[policy], default="bounded", sinks=[]) as other:
            other.store = MemoryStore()  # not for this engine to close
            with pytest.raises(Conflict):
                colour.call(other.operation("charge", key="k", wait=600.0), function)
        assert time.monotonic() - started < SOON, "and not the 600 s that it may wait otherwise"

    at_some_speed(check, 0.3, 1.5, 10.0)


def test_time_spent_waiting_is_taken_from_the_deadline(engine, colour):
    """A call that waited for most of it has little left for itself."""
    policy = SWIFT.replace(name="bounded", deadline=60.0)
    left = []
    function = colour.of(lambda: left.append(deadline.remaining()))
    _, do = claim(engine, "charge", "k", function)

    def release():
        wait_until(lambda: other.records.counts()["conflict"])
        time.sleep(0.1)
        do(Release("ghost", 1))

    with Engine(engine.store, policies=[policy], default="bounded", sinks=[]) as other:
        other.store = MemoryStore()
        thread = threading.Thread(target=release)
        thread.start()
        colour.call(other.operation("charge", key="k"), function)
        thread.join()
    assert 0.0 < left[0] <= 60.0 - 0.1


def test_a_cancel_event_ends_the_wait_for_another_call(engine, colour):
    """At once, with CallCancelled."""
    function, plain = scripted(colour, 1)
    claim(engine, "charge", "k", function)
    cancel = threading.Event()
    timer = threading.Timer(0.05, cancel.set)
    timer.start()
    with pytest.raises(CallCancelled):
        colour.call(engine.operation("charge", key="k", cancel=cancel), function)
    timer.join()
    assert plain.calls == 0


# --- leases ---------------------------------------------------------------------------------------


class StoreClock(mainstay.runtime.clock.SystemClock):
    """The clock that leases are judged by: it stands still until it is moved."""

    def __init__(self):
        self.moment = time.time()

    def wall(self):
        return self.moment


@pytest.fixture
def store_clock(monkeypatch):
    made = StoreClock()
    monkeypatch.setattr(sqlite_steps, "now", made.wall)
    before = mainstay.runtime.clock.install(made)
    yield made
    mainstay.runtime.clock.install(before)


def test_a_long_call_keeps_its_lease(engine, colour, store_clock):
    """For three leases; whoever comes meanwhile waits."""

    def check(lease):
        others, key, before = [], f"k{lease}", engine.records.counts()["conflict"]

        def other():
            result = engine.operation("work", key=key, lease=lease).run(lambda: "second")
            others.append(result.value)

        thread = threading.Thread(target=other)

        def work():
            thread.start()
            wait_until(lambda: engine.records.counts()["conflict"] > before)
            for _ in range(2):
                store_clock.moment += 0.75 * lease
                until = store_clock.moment + 0.997 * lease
                wait_until(lambda until=until: record_of(engine, "work", key).lease_until >= until)
            return "first"

        operation = engine.operation("work", key=key, lease=lease)
        try:
            assert colour.call(operation, colour.of(work)) == "first"
        finally:
            thread.join(SOON)
        assert others == ["first"]

    at_some_speed(check, 0.9, 9.0, 30.0)


def test_who_lost_the_lease_is_told_with_its_value_and_changes_nothing(engine, colour, monkeypatch):
    """The other's outcome stays."""
    monkeypatch.setattr(LEASE_RENEWAL, "start", lambda *_: None)

    def check(lease):
        operation = engine.operation("work", key=f"k{lease}", idempotency="idempotent", lease=lease)
        before = engine.records.counts()["lost"]

        def late():
            time.sleep(2 * lease)
            assert operation.call(lambda: "other") == "other"
            return "mine"

        with pytest.raises(LeaseLost) as caught:
            colour.call(operation, colour.of(late))
        assert caught.value.value == "mine"
        assert operation.call(lambda: "third") == "other"
        assert engine.records.counts()["lost"] == before + 1

    at_some_speed(check, *BRIEF)


def test_who_lost_the_lease_is_told_with_its_failure(engine, colour, monkeypatch):
    """As the cause; and it is not recorded."""
    monkeypatch.setattr(LEASE_RENEWAL, "start", lambda *_: None)

    def check(lease):
        operation = engine.operation("work", key=f"k{lease}", idempotency="idempotent", lease=lease)

        def late():
            time.sleep(2 * lease)
            operation.call(lambda: "other")
            raise Custom("mine")

        with pytest.raises(LeaseLost) as caught:
            colour.call(operation, colour.of(late))
        assert isinstance(caught.value.__cause__, Custom)
        assert operation.call(lambda: "third") == "other"

    at_some_speed(check, *BRIEF)


def test_who_lost_the_lease_makes_no_further_attempt(engine, colour, monkeypatch):
    """It shows when the attempt is to be counted, before it is made."""
    monkeypatch.setattr(LEASE_RENEWAL, "start", lambda *_: None)

    def check(lease):
        key, calls = f"k{lease}", []
        operation = engine.operation("work", key=key, idempotency="idempotent", lease=lease)

        def late():
            calls.append(1)
            time.sleep(2 * lease)
            operation.call(lambda: "other")
            raise ConnectionError("try again")

        with pytest.raises(LeaseLost):
            colour.call(operation, colour.of(late))
        assert calls == [1]
        assert record_of(engine, "work", key).state is RecordState.SUCCEEDED

    at_some_speed(check, *BRIEF)


# --- attempts -------------------------------------------------------------------------------------


def test_each_further_attempt_is_counted_before_it_is_made(engine, colour):
    """In the record, where a crash leaves it."""
    seen = []

    def flaky():
        seen.append(record_of(engine, "work", "k").attempts)
        if len(seen) < 3:
            raise ConnectionError("again")

    colour.call(engine.operation("work", key="k"), colour.of(flaky))
    assert seen == [1, 2, 3]


@pytest.mark.req("AG-05", "IT-041-10")
def test_a_crash_carries_its_attempts_over(engine, colour):
    """What it used up is gone for whoever takes over; what was released is not."""
    function, plain = scripted(colour, ConnectionError("down"))
    claim(engine, "charge", "k", function, lease=0.05)
    operation = engine.operation("charge", key="k", idempotency="idempotent")
    assert colour.result(operation, function).attempts == 2
    assert colour.result(operation, function).attempts == 3
    assert plain.calls == 5


@pytest.mark.req("AG-05")
def test_a_call_that_crashed_too_often_is_for_a_person(engine, colour):
    """OutcomeUnknown, one item in the inbox however often it is asked for, and no run."""
    function, plain = scripted(colour, 1)
    for number in range(3):
        wait_until(
            lambda n=number: hasattr(
                claim(engine, "charge", "k", function, lease=0.05, owner=f"ghost{n}")[0], "epoch"
            )
        )
    time.sleep(0.06)
    for _ in range(3):
        with pytest.raises(OutcomeUnknown) as caught:
            colour.call(engine.operation("charge", key="k"), function)
        assert "keyed" not in caught.value.hint, "it is keyed already"
    (item,) = engine.inbox
    assert (item.kind, item.attempts, item.times) == ("unknown_outcome", 3, 1)
    assert "charge" in item.text
    assert "'k'" in item.text
    assert plain.calls == 0
    assert engine.records.counts()["unknown"] == 1


@pytest.mark.req("AG-05", "CP-13")
@pytest.mark.parametrize(
    ("options", "runs_again"),
    [
        ({}, False),
        ({"idempotency": "keyed"}, False),
        ({"idempotency": "idempotent"}, True),
        ({"idempotency": "unsafe"}, False),
        ({"on_crash": "retry"}, True),
        ({"on_crash": "unknown", "idempotency": "idempotent"}, False),
        ({"on_crash": "retry", "idempotency": "unsafe"}, False),
    ],
)
@pytest.mark.parametrize("door", ["operation", "idempotent"])
def test_what_a_crash_left_runs_again_only_if_it_is_declared_idempotent(
    tmp_path, options, runs_again, door
):
    """One default for every door: how far it came is unknown, and a payment is not made twice."""
    calls = []

    def charge():
        calls.append(1)
        return "paid"

    once = RetryPolicy(name="once", max_attempts=1 if "unsafe" in options.values() else 3)
    with Engine(f"sqlite:///{tmp_path}/a.db", sinks=[], policies=[once], default="once") as engine:
        claim(engine, "charge", "k", charge, lease=0.05)
        time.sleep(0.06)
        if door == "operation":
            made = engine.operation("charge", key="k", **options)
            outcome = made.run(charge)
        else:
            kept = engine.idempotent(key=lambda: "k", operation="charge", **options)(charge)
            outcome = RetryPolicy(max_attempts=1).run(kept)
        assert calls == [1] * runs_again
        if runs_again:
            assert outcome.value == "paid"
        else:
            assert isinstance(outcome.last_exception, OutcomeUnknown)
            assert 'idempotency="idempotent"' in outcome.last_exception.hint
            assert "keyed" not in outcome.last_exception.hint
            assert [item.kind for item in engine.inbox] == ["unknown_outcome"]


def test_where_a_crash_is_for_a_person_nothing_is_run_again(engine, colour):
    """`on_crash="unknown"`."""
    function, plain = scripted(colour, 1)
    claim(engine, "charge", "k", function, lease=0.05)
    with pytest.raises(OutcomeUnknown):
        colour.call(engine.operation("charge", key="k", on_crash="unknown"), function)
    assert plain.calls == 0
    assert len(list(engine.inbox)) == 1


def test_an_item_that_was_never_raised_is_raised_by_who_asks_next(engine, colour):
    """The process that found the outcome unknown may be killed before it raises the matter."""
    function, _ = scripted(colour, 1)
    claim(engine, "charge", "k", function, lease=0.05, most=1)
    time.sleep(0.06)
    claim(engine, "charge", "k", function, owner="finder", most=1)
    assert list(engine.inbox) == []
    with pytest.raises(OutcomeUnknown):
        colour.call(engine.operation("charge", key="k"), function)
    assert len(list(engine.inbox)) == 1


def test_an_unknown_outcome_carries_the_id_of_its_item(store, colour):
    """The one that the inbox has: when it is raised, and each time the key is used again."""
    with engine_on(store, default="once") as engine:
        function, _ = scripted(colour, Ambiguous("reply lost"))
        operation = engine.operation("charge", key="k", idempotency="unsafe")
        found = []
        for _ in range(2):
            with pytest.raises(OutcomeUnknown) as caught:
                colour.call(operation, function)
            found.append(caught.value.item_id)
        (item,) = engine.inbox
        assert found == [item.id, item.id]


@pytest.mark.req("PL-06")
def test_an_ambiguous_failure_of_an_unsafe_call_is_for_a_person(store, colour):
    """It may have been applied: the record says so, and nobody runs it again."""
    with engine_on(store, default="once") as engine:
        function, plain = scripted(colour, Ambiguous("reply lost"))
        operation = engine.operation("charge", key="k", idempotency="unsafe")
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                colour.call(operation, function)
        assert plain.calls == 1
        assert record_of(engine, "charge", "k").state is RecordState.UNKNOWN
        assert len(list(engine.inbox)) == 1


@pytest.mark.req("PL-06")
def test_an_ambiguous_failure_of_a_keyed_call_is_repeated(engine, colour):
    """The callee knows the key; whoever declares it so says that."""
    function, plain = scripted(colour, Ambiguous("reply lost"), "done")
    policy = RetryPolicy(
        name="a", backoff=Backoff.constant(0.001), classify={Ambiguous: "ambiguous"}
    )
    with Engine(engine.store, policies=[policy], default="a", sinks=[]) as other:
        other.store = MemoryStore()
        assert colour.call(other.operation("charge", key="k"), function) == "done"
    assert plain.calls == 2


# --- cut off --------------------------------------------------------------------------------------


def cancel_soon(colour, operation, function, when, then=lambda: None):
    """Runs a keyed call in a task, cancels it when a condition holds, and waits for its end.

    What it waits for meanwhile may be let go once it is cancelled.
    """

    async def in_asyncio():
        task = asyncio.create_task(operation.acall(function))
        while not when():  # noqa: ASYNC110 -- what it looks at is not of the loop
            await asyncio.sleep(0.001)
        task.cancel()
        then()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def in_trio():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(operation.acall, function)
            while not when():  # noqa: ASYNC110
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
            then()

    asyncio.run(in_asyncio()) if colour.name == "asyncio" else trio.run(in_trio)


@pytest.fixture(params=["asyncio", "trio"])
def async_colour(request):
    return Colour(request.param)


def test_a_task_cancelled_while_it_runs_releases_its_key(engine, async_colour):
    """The next call runs at once, not when the lease is over."""
    started, calls = threading.Event(), []

    async def work():
        calls.append(1)
        started.set()
        if len(calls) == 1:
            await async_colour.sleep(60.0)
        return "done"

    operation = engine.operation("work", key="k", idempotency="idempotent")
    cancel_soon(async_colour, operation, work, started.is_set)
    wait_until(lambda: record_of(engine, "work", "k") is None)
    assert async_colour.call(operation, work) == "done"


@pytest.mark.parametrize("unsafe", [{"on_crash": "unknown"}, {"idempotency": "unsafe"}])
def test_a_task_cancelled_where_repeating_is_not_safe_leaves_an_unknown_outcome(
    store, async_colour, unsafe
):
    """As a crash would: how far it came nobody knows."""

    def check(lease):
        started, calls, before = threading.Event(), [], len(list(engine.inbox))

        async def work():
            calls.append(1)
            started.set()
            await async_colour.sleep(60.0)

        operation = engine.operation("work", key=f"k{lease}", lease=lease, **unsafe)
        cancel_soon(async_colour, operation, work, started.is_set)
        with pytest.raises(OutcomeUnknown):
            async_colour.call(operation, work)
        assert calls == [1]
        assert len(list(engine.inbox)) == before + 1

    with engine_on(store, default="once") as engine:
        at_some_speed(check, *BRIEF)


def test_a_task_cancelled_while_it_waits_for_another_leaves_that_alone(engine, async_colour):
    """The other's claim is not its own."""
    function, plain = scripted(async_colour, 1)
    claim(engine, "work", "k", function)
    conflicts = engine.records.counts
    operation = engine.operation("work", key="k")
    cancel_soon(async_colour, operation, function, lambda: conflicts()["conflict"] > 0)
    assert record_of(engine, "work", "k").owner == "ghost"
    assert plain.calls == 0


class Slow(SqliteStore):
    """Holds back the steps of one kind until it is told to go on."""

    def __init__(self, url, kind):
        self.kind = kind
        self.reached, self.go_on = threading.Event(), threading.Event()
        super().__init__(url)

    def _write_batch(self, steps):
        answers = super()._write_batch(steps) if self.kind == "after" else None
        if not self.go_on.is_set() and self.is_held(steps):
            self.reached.set()
            self.go_on.wait(SOON)
        return super()._write_batch(steps) if answers is None else answers

    def is_held(self, steps):
        return True


def test_a_task_cancelled_while_it_begins_leaves_nothing_that_lasts(tmp_path, async_colour):
    """Released, or over with its lease; and the function has not run."""

    def check(lease):
        store = Slow(f"sqlite:///{tmp_path}/kept{lease}.db", "after")
        with engine_on(store) as engine:
            function, plain = scripted(async_colour, "done")
            operation = engine.operation("work", key="k", lease=lease)
            cancel_soon(async_colour, operation, function, store.reached.is_set, store.go_on.set)
            assert plain.calls <= 1
            assert async_colour.call(operation, function) == "done"

    at_some_speed(check, 0.3, 3.0, 15.0)


def test_a_task_cancelled_while_it_records_has_recorded(tmp_path, async_colour):
    """It is known how it ended: that is written down all the same, and it does not run again."""
    store = Slow(f"sqlite:///{tmp_path}/kept.db", "before")
    ran = threading.Event()
    store.is_held = lambda steps: ran.is_set()
    calls = []

    def work():
        calls.append(1)
        ran.set()
        return "done"

    with engine_on(store) as engine:
        operation = engine.operation("work", key="k")
        function = async_colour.of(work)
        cancel_soon(async_colour, operation, function, store.reached.is_set, store.go_on.set)
        assert async_colour.call(operation, async_colour.of(work)) == "done"
        assert calls == [1]


def test_a_coroutine_that_is_closed_releases_its_key(tmp_path):
    """Its event loop is gone: nothing can be awaited, and nothing is said of an ignored exit."""
    with engine_on(sqlite_at(tmp_path)) as engine:
        operation = engine.operation("work", key="k", idempotency="idempotent")

        async def work():
            await asyncio.sleep(60.0)

        async def main():
            made = operation.acall(work)
            waiting = made.send(None)  # until the writer answers its claim
            while not waiting.done():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            made.send(None)
            made.close()

        asyncio.run(main())
        wait_until(lambda: record_of(engine, "work", "k") is None)
        assert record_of(engine, "work", "k") is None


def test_a_coroutine_that_is_closed_is_in_doubt_where_a_crash_is():
    """How far it came is unknown: it is left to its lease, and a second call does not run it."""

    def check(lease):
        runs = []

        async def work():
            runs.append(1)
            await asyncio.sleep(60.0)

        async def main():
            made = operation.acall(work)
            made.send(None)
            made.close()
            with pytest.raises(OutcomeUnknown):
                await operation.acall(work)

        with engine_on(MemoryStore()) as engine:
            operation = engine.operation("work", key="k", lease=lease, on_crash="unknown")
            asyncio.run(main())
        assert runs == [1]

    at_some_speed(check, *BRIEF)


def test_ctrl_c_releases_the_key(engine, colour):
    """And leaves as it came."""
    function, _ = scripted(colour, KeyboardInterrupt(), "done")
    operation = engine.operation("work", key="k", idempotency="idempotent")
    with pytest.raises(KeyboardInterrupt):
        colour.call(operation, function)
    wait_until(lambda: record_of(engine, "work", "k") is None)
    assert colour.call(operation, function) == "done"


# --- results that cannot be kept ------------------------------------------------------------------


def test_a_result_that_cannot_be_kept_is_returned_once(engine, colour):
    """The first caller has it and a warning; the next hears why there is none, and nothing runs."""
    made = object()
    function, plain = scripted(colour, made)
    operation = engine.operation("work", key="k")
    with pytest.warns(MainstayWarning, match="not kept"):
        assert colour.call(operation, function) is made
    with pytest.raises(ResultNotKept, match="cannot be recorded"):
        colour.call(operation, function)
    assert plain.calls == 1


def test_a_warning_made_an_error_does_not_have_the_call_run_again(engine, colour):
    """Here warnings are errors: it is recorded before it is warned of."""
    function, plain = scripted(colour, object())
    operation = engine.operation("work", key="k")
    with pytest.raises(MainstayWarning):
        colour.call(operation, function)
    with pytest.raises(ResultNotKept):
        colour.call(operation, function)
    assert plain.calls == 1


# --- guards, deadlines, listeners -----------------------------------------------------------------


def test_an_open_circuit_leaves_no_record(store, colour):
    """A refusal is not an outcome."""
    with engine_on(store, breaker=BreakerSettings(failure_threshold=1)) as engine:
        function, plain = scripted(colour, "done")
        engine.operation("work")
        operation = engine.operation("work", key="k")
        engine.breaker("work").force_open()
        with pytest.raises(CircuitOpenError):
            colour.call(operation, function)
        assert record_of(engine, "work", "k") is None
        engine.breaker("work").reset()
        assert colour.call(operation, function) == "done"
        engine.breaker("work").force_open()
        assert colour.call(operation, function) == "done", "a replay asks nobody"
        assert plain.calls == 1


def test_a_deadline_that_is_over_releases_the_key(store, colour):
    """The last failure is raised; the next call may try."""
    policy = SWIFT.replace(
        name="bounded", deadline=60.0, backoff=Backoff.constant(120.0), max_attempts=5
    )
    with Engine(store, policies=[policy], default="bounded", sinks=[]) as engine:
        function, _ = scripted(colour, ConnectionError("down"), "done")
        operation = engine.operation("work", key="k")
        with pytest.raises(ConnectionError):
            colour.call(operation, function)
        assert colour.call(operation, function) == "done"


@pytest.mark.req("CP-09")
def test_hits_and_records_are_told(store, colour):
    """As events with the key, and as counts."""
    heard = []
    with engine_on(store, sinks=[heard.append]) as engine:
        function, _ = scripted(colour, 1)
        for _ in range(3):
            colour.call(engine.operation("work", key="k"), function)
        told = [(e.action, e.idempotency_key) for e in heard if hasattr(e, "action")]
        assert told == [("record", "k"), ("hit", "k"), ("hit", "k")]
        assert engine.records.counts() == {
            "hit": 2, "record": 1, "conflict": 0, "lost": 0, "unknown": 0, "expired": 0,
            "not_kept": 0,
        }  # fmt: skip


def test_a_listener_that_raises_changes_nothing(store, colour, caplog):
    """It is reported."""

    def listener(event):
        raise RuntimeError("deaf")

    with engine_on(store, sinks=[listener]) as engine:
        function, plain = scripted(colour, 1)
        assert [colour.call(engine.operation("work", key="k"), function) for _ in range(2)] == [
            1
        ] * 2
        assert plain.calls == 1
    assert "a listener raised" in caplog.text


def test_a_damaged_record_is_told_as_such_and_nothing_is_run(engine, colour):
    """Better no call than one that may have been made before."""
    function, plain = scripted(colour, "done")
    operation = engine.operation("work", key="k")
    assert colour.call(operation, function) == "done"
    address = canonical([None, "work", "k"]).decode()
    engine.store.transact("records", address, lambda *_: (Change(b'{"state":'), None))
    with pytest.raises(StoredValueError, match="the record of the call is damaged"):
        colour.call(operation, function)
    assert plain.calls == 1


# --- a store that is away -------------------------------------------------------------------------


class Failing(MemoryStore):
    """Fails the steps of some commands, before or after they are carried out."""

    def __init__(self):
        super().__init__()
        self.fails, self.late, self.tried = (), (), 0

    def transact(self, space, key, decide):
        kind = type(decide.__closure__[0].cell_contents) if decide.__closure__ else None
        if kind in self.fails:
            self.tried += 1
            raise StoreUnavailable(self.url, "write", "it is away")
        answer = super().transact(space, key, decide)
        if kind in self.late:
            self.late = ()
            raise StoreUnavailable(self.url, "write", "the reply was lost")
        return answer


@pytest.fixture
def failing():
    with engine_on(Failing()) as engine:
        yield engine


def test_where_the_claim_fails_the_function_is_not_run(failing, colour):
    """And the error is the store's, after a few tries."""
    function, plain = scripted(colour, 1)
    failing.store.fails = (Begin,)
    with pytest.raises(StoreUnavailable, match="it is away"):
        colour.call(failing.operation("work", key="k"), function)
    assert (plain.calls, failing.store.tried) == (0, 3)


def test_where_recording_fails_the_error_says_that_it_ran(failing, colour):
    """Within the lease it is a conflict; after it the call is made again, as at-least-once says."""

    def check(lease):
        function, plain = scripted(colour, 1)
        failing.store.fails = (Settle,)
        keyed = {"key": f"k{lease}", "idempotency": "idempotent", "lease": lease}
        operation = failing.operation("work", **keyed, on_conflict="raise")
        with pytest.raises(StoreUnavailable) as caught:
            colour.call(operation, function)
        assert any("work ran and returned" in note for note in caught.value.__notes__)
        failing.store.fails = ()
        with pytest.raises(Conflict):
            colour.call(operation, function)
        assert plain.calls == 1
        assert colour.call(failing.operation("work", **keyed), function) == 1
        assert plain.calls == 2

    at_some_speed(check, 0.5, 5.0, 20.0)


def test_a_failure_that_could_not_be_recorded_raises_the_stores_error(failing, colour):
    """It would have been replayed: the failure is the cause, and a note names what happened."""
    function, _ = scripted(colour, Custom("mine"))
    failing.store.fails = (Settle,)
    with pytest.raises(StoreUnavailable, match="it is away") as caught:
        colour.call(failing.operation("work", key="k"), function)
    assert str(caught.value.__cause__) == "mine"
    assert any("work ran and raised Custom" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("kind", [ConnectionError, KeyboardInterrupt])
def test_where_giving_up_the_claim_fails_no_failure_is_hidden(failing, colour, kind):
    """The caller gets its own failure, which is not recorded, with a note of the store's."""
    function, _ = scripted(colour, kind("mine"))
    failing.store.fails = (Settle, Release)
    with pytest.raises(kind, match="mine") as caught:
        colour.call(failing.operation("work", key="k", idempotency="idempotent"), function)
    assert any("it is away" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("kind", [Begin, Settle, Release])
def test_a_reply_that_was_lost_changes_nothing(failing, colour, kind):
    """The step comes a second time, and finds that it was taken."""
    value = ConnectionError("reset") if kind is Release else "done"
    function, plain = scripted(colour, *([value] * 3), "done")
    failing.store.late = (kind,)
    operation = failing.operation("work", key="k")
    if kind is Release:
        with pytest.raises(ConnectionError):
            colour.call(operation, function)
    assert colour.call(operation, function) == "done"
    assert colour.call(operation, function) == "done"
    assert plain.calls == (4 if kind is Release else 1)
    assert record_of(failing, "work", "k").attempts == 1


def test_a_lost_reply_to_a_doubt_still_reaches_a_person(colour):
    """The second telling is no lost lease."""
    from mainstay.core.idempotency.record import Doubt

    with engine_on(Failing(), default="once") as engine:
        engine.store.late = (Doubt,)
        function, _ = scripted(colour, Ambiguous("reply lost"))
        with pytest.raises(OutcomeUnknown):
            colour.call(engine.operation("work", key="k", idempotency="unsafe"), function)
        assert len(list(engine.inbox)) == 1


# --- in the caller's own transaction --------------------------------------------------------------


@pytest.fixture
def bound(tmp_path):
    """An engine on a file, and a connection of the caller's own to it."""
    store = sqlite_at(tmp_path, timeout=2)
    connection = sqlite3.connect(store.path, timeout=0.2, check_same_thread=False)
    connection.execute("CREATE TABLE effects (what TEXT)")
    with engine_on(store) as engine:
        yield engine, connection
    connection.close()


def effects_of(connection):
    return [what for (what,) in connection.execute("SELECT what FROM effects")]


def pay_on(connection, what="paid"):
    def pay():
        connection.execute("INSERT INTO effects VALUES (?)", (what,))
        return what

    return pay


def test_record_and_effect_are_committed_together(bound):
    """By the caller; and the second call finds both."""
    engine, connection = bound
    for _ in range(2):
        with connection:
            operation = engine.operation("pay", key="k", connection=connection)
            assert operation.call(pay_on(connection)) == "paid"
    assert effects_of(connection) == ["paid"]
    assert engine.operation("pay", key="k").call(pay_on(connection)) == "paid"
    assert effects_of(connection) == ["paid"]


def test_record_and_effect_are_rolled_back_together(bound):
    """Then it is as if nothing had been."""
    engine, connection = bound
    engine.operation("pay", key="k", connection=connection).call(pay_on(connection))
    connection.rollback()
    assert effects_of(connection) == []
    assert record_of(engine, "pay", "k") is None
    with connection:
        engine.operation("pay", key="k", connection=connection).call(pay_on(connection, "again"))
    assert effects_of(connection) == ["again"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_crash_between_effect_and_commit_leaves_neither(tmp_path, is_committed):
    """And a crash after the commit leaves both."""
    path = tmp_path / "kept.db"
    pid = os.fork()
    if pid == 0:
        store = SqliteStore(f"sqlite:///{path}")
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE effects (what TEXT)")
        engine = engine_on(store)
        engine.operation("pay", key="k", connection=connection).call(pay_on(connection))
        if is_committed:
            connection.commit()
        os.kill(os.getpid(), 9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
    with engine_on(SqliteStore(f"sqlite:///{path}")) as engine:
        connection = sqlite3.connect(path)
        assert effects_of(connection) == (["paid"] if is_committed else [])
        assert (record_of(engine, "pay", "k") is not None) == is_committed
        connection.close()


def leases_kept_alive():
    """Those that are renewed; the thread removes queues that are empty whenever it looks."""
    with LEASE_RENEWAL._lock:
        return [each for queue in LEASE_RENEWAL._queues.values() for each in queue]


def test_the_heart_leaves_the_callers_connection_alone(bound):
    """Nobody else sees the record before the commit; a renewal would begin a transaction later."""
    engine, connection = bound
    before = leases_kept_alive()

    def work():
        assert leases_kept_alive() == before
        time.sleep(0.15)
        return 1

    with connection:
        engine.operation("pay", key="k", lease=0.1, connection=connection).call(work)
    time.sleep(0.1)
    assert not connection.in_transaction


def test_a_caller_with_a_transaction_does_not_wait_for_another_call(bound):
    """It would hold the lock that the other needs to end."""
    engine, connection = bound
    function = pay_on(connection)
    claim(engine, "pay", "k", function)
    with pytest.raises(Conflict):
        engine.operation("pay", key="k", connection=connection).call(function)
    connection.rollback()


def test_a_locked_database_is_told_as_a_store_that_is_away(bound, tmp_path):
    """Not as an error of the client library."""
    engine, connection = bound
    other = sqlite3.connect(tmp_path / "kept.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        engine.operation("pay", key="k", connection=connection).call(pay_on(connection))
    other.execute("ROLLBACK")
    other.close()


def test_a_store_that_cannot_take_part_says_so():
    """When the operation is made, with the names of those that can."""
    with Engine(sinks=[]) as engine, pytest.raises(UsageError, match="sqlite and postgresql"):
        engine.operation("pay", key="k", connection=object())


# --- the embedded store under way -----------------------------------------------------------------


def test_closing_an_engine_while_a_step_is_under_way_harms_no_process(tmp_path):
    """A connection closed under a running statement would end the process with a signal."""
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        store = sqlite_at(tmp_path / str(number))
        begun = threading.Event()

        def work(store=store, begun=begun):
            with pytest.raises(StoreUnavailable):
                while True:
                    store.transact("a", "b", lambda value, now: (WRITTEN, None))
                    begun.set()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert begun.wait(SOON)
        store.close()
        for thread in threads:
            thread.join(SOON)
            assert not thread.is_alive()


@pytest.mark.parametrize("name", ["sync", "asyncio"])
def test_a_keyed_call_leaves_nothing_for_the_collector(tmp_path, name):
    """Its parts hold each other while it runs, and let go of each other when it ends."""
    made = []

    class Noted(KeyedCall):
        __slots__ = ("__weakref__",)

        def begin(self):
            made.append(weakref.ref(self))
            super().begin()

    with pytest.MonkeyPatch.context() as patch, engine_on(sqlite_at(tmp_path)) as engine:
        patch.setattr(keyed, "KeyedCall", Noted)
        gc.collect()
        gc.disable()
        try:
            function, _ = scripted(Colour(name), "done")
            assert Colour(name).call(engine.operation("work", key="k"), function) == "done"
            wait_until(lambda: [each() for each in made] == [None])  # the writer lets go last
        finally:
            gc.enable()


def test_the_failure_of_a_keyed_call_is_freed_without_the_collector():
    """With its frames and what those hold; the handler of the caller was the last to have it."""
    held = []

    class Payload:
        """What a frame of the function holds."""

    def fail():
        payload = Payload()
        held.append(weakref.ref(payload))
        raise ConnectionError("down")

    gc.collect()
    gc.disable()
    try:
        with Engine(policies=[SWIFT]) as engine:
            with suppress(ConnectionError):
                engine.operation("work", policy=SWIFT, key="k").call(fail)
            assert [each() for each in held] == [None] * 3
    finally:
        gc.enable()


def test_threads_that_have_ended_leave_no_connection_open(tmp_path):
    """A server with a thread per request would run out of files."""
    with engine_on(sqlite_at(tmp_path)) as engine:
        for _ in range(30):
            in_threads(1, lambda: engine.operation("work", key="k").call(int))
        gc.collect()
        assert len(engine.store._opened) <= 3


def test_a_step_after_closing_leaves_no_thread(tmp_path):
    """It is refused; the leftovers of each test are looked at."""
    store = sqlite_at(tmp_path)
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        asyncio.run(store.atransact("a", "b", lambda value, now: (WRITTEN, None)))


@pytest.mark.parametrize("name", ["sync", "asyncio"])
def test_in_virtual_time_the_file_is_still_reached(tmp_path, name):
    """Time that jumps must not jump past the thread that writes."""
    with virtual_time(), engine_on(sqlite_at(tmp_path)) as engine:
        function, plain = scripted(Colour(name), ConnectionError("reset"), "done")
        operation = engine.operation("work", key="k")
        assert [Colour(name).call(operation, function) for _ in range(2)] == ["done", "done"]
        assert plain.calls == 2


def test_an_interrupt_between_begin_and_step_keeps_no_lock(tmp_path):
    """What was begun and left is undone by the next step of that thread."""
    store = sqlite_at(tmp_path)
    store._hold().connection.execute("BEGIN IMMEDIATE")
    store.transact("a", "b", lambda value, now: (WRITTEN, None))
    assert store.read("a", "b")[0] == b"1"
    store.close()
