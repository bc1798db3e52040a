"""A store that hangs: the deadline of a call holds, whatever the store's own timeout is.

The store's timeout is an hour here. So a test does not measure how late a call returns (that is in
bench/store_hangs.py): if a wait is not bounded by the deadline, the call does not return at all,
and the test fails by its watchdog.
"""

import asyncio
import contextlib
import sqlite3
import threading
import uuid
from urllib.parse import urlsplit

import psycopg
import pytest

from mainstay import DeadlineExceeded, Engine, RetryPolicy, StoreUnavailable, deadline
from mainstay.core.codec.canonical import canonical
from mainstay.core.idempotency.record import RecordState, decode
from mainstay.testing.proxy import FaultProxy
from tests.processes import at_some_speed, wait_until
from tests.servers.nats import nats_url
from tests.servers.postgres import postgres_url
from tests.servers.valkey import valkey_url

__all__ = ["nats_url", "postgres_url", "valkey_url"]  # fixtures

HOUR = 3600
SOON = 60.0
"""Seconds after which the watchdog ends a test."""
DEADLINE, CLAIMED = 0.5, (0.5, 3.0, 15.0)
"""Of calls that nothing is to come of, and of calls that are to be claimed in time."""
POLICY = RetryPolicy(name="brief", max_attempts=3, deadline=DEADLINE)
LONG = [RetryPolicy(name=f"for {each}", max_attempts=3, deadline=each) for each in CLAIMED]
PATIENT = RetryPolicy(name="patient", max_attempts=3, deadline=None)


class Server:
    """A server behind a proxy that swallows everything."""

    def __init__(self, url, stack):
        parts = urlsplit(url)
        self.proxy = stack.enter_context(FaultProxy(parts.hostname, parts.port))
        joint = "&" if parts.query else "?"
        self.url = f"{self.proxy.url(url)}{joint}timeout={HOUR}"
        self.near = url

    def hang(self):
        self.proxy.black_hole()

    def heal(self):
        self.proxy.heal()


class File:
    """A SQLite file that another connection has locked."""

    def __init__(self, folder, stack):
        path = folder / "kept.db"
        self.url, self.near = f"sqlite:///{path}?timeout={HOUR}", f"sqlite:///{path}?timeout=30"
        Engine(self.near, sinks=[], audit=False).close()
        self._other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        stack.callback(self._other.close)
        stack.callback(self.heal)

    def hang(self):
        self._other.execute("BEGIN IMMEDIATE")

    def heal(self):
        if self._other.in_transaction:
            self._other.execute("ROLLBACK")


class Place:
    """A store that can hang, and keyed calls on it."""

    def __init__(self, store, stack):
        self.store = store
        self.hang, self.heal = store.hang, store.heal
        self.ran = 0
        self._key = uuid.uuid4().hex
        policies = {"policies": [POLICY, *LONG, PATIENT], "sinks": [], "audit": False}
        own = {each.name: each.name for each in (POLICY, *LONG)}
        patient = {"operations": {"*": "patient", **own}}
        self.far = stack.enter_context(Engine(store.url, **policies, **patient))
        self.near = stack.enter_context(Engine(store.near, **policies, **patient))

    def call(self, colour, operation="brief", effect=None, key="k", **options):
        """A keyed call in one of the two ways; a watchdog ends it if it hangs."""
        keyed = self.far.operation(
            operation, key=f"{self._key} {key}", idempotency="idempotent", **options
        )

        def run():
            self.ran += 1
            return effect() if effect is not None else "done"

        async def arun():
            return run()

        if colour == "async":
            return watched(lambda: asyncio.run(keyed.acall(arun)))
        return watched(lambda: keyed.call(run))

    def state(self, operation="brief", key="k"):
        """What the server has, read past the proxy."""
        address = canonical([None, operation, f"{self._key} {key}"]).decode()
        value, _ = self.near.store.read("records", address)
        return None if value is None else decode(value).state


def watched(work):
    """The result of the work, or a failure if it does not end."""
    ended = []

    def run():
        try:
            ended.append((work(), None))
        except BaseException as error:
            ended.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SOON)
    assert ended, "the call did not return"
    value, error = ended[0]
    if error is not None:
        raise error
    return value


@pytest.fixture(params=["postgres", "valkey", "nats", "sqlite"])
def place(request, tmp_path):
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            store = File(tmp_path, stack)
        else:
            store = Server(request.getfixturevalue(f"{request.param}_url"), stack)
        place = Place(store, stack)
        yield place
        place.heal()


COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])


@COLOURS
@pytest.mark.parametrize("store_wait", [0.0, 600.0])
def test_the_deadline_of_the_policy_ends_the_wait_for_a_claim(place, colour, store_wait):
    """The function is not called, and the error of the store names the deadline."""
    assert place.call(colour, "patient", key="before") == "done"
    place.hang()
    with pytest.raises(StoreUnavailable) as caught:
        place.call(colour, store_wait=store_wait)
    assert any("its deadline leaves the store no more time" in n for n in caught.value.__notes__)
    assert place.ran == 1


@COLOURS
def test_a_deadline_outside_ends_it_too(place, colour):
    """`within()` bounds whatever is inside, also if the policy has no deadline."""
    assert place.call(colour, "patient", key="before") == "done"
    place.hang()
    keyed = place.far.operation("patient", key=uuid.uuid4().hex, idempotency="idempotent")

    def work():
        with deadline.within(DEADLINE):
            if colour == "sync":
                return keyed.call(int)

            async def number():
                return 0

            return asyncio.run(keyed.acall(number))

    with pytest.raises(StoreUnavailable):
        watched(work)


@COLOURS
def test_a_store_that_was_never_reached_is_left_in_time(place, colour):
    """Connecting is a part of the step: a new connection has no more time than an old one."""
    place.hang()
    with pytest.raises(StoreUnavailable):
        place.call(colour)
    assert place.ran == 0


@COLOURS
def test_an_outcome_is_recorded_later_if_the_store_hangs_at_the_end(place, colour):
    """The caller gets an error in time; what the function returned is recorded without it."""

    def check(limit):
        name, place.ran = f"for {limit}", 0
        try:
            with pytest.raises(StoreUnavailable) as caught:
                place.call(colour, name, effect=lambda: place.hang() or "paid")
            assert any("ran and returned" in note for note in caught.value.__notes__)
            assert place.ran == 1
            assert place.state(name) is not RecordState.SUCCEEDED
        finally:
            place.heal()
        wait_until(lambda: place.state(name) is RecordState.SUCCEEDED, "the outcome")
        assert place.call("sync", name) == "paid"
        assert place.ran == 1

    assert place.call(colour, "patient", key="before") == "done"
    at_some_speed(check, *CLAIMED)


@pytest.fixture
def _generous(monkeypatch):
    """The least time of a step, so long that a busy machine does not decide a test."""
    monkeypatch.setattr("mainstay.stores.time_left.LEAST", SOON / 2)


@COLOURS
@pytest.mark.usefixtures("_generous")
def test_a_function_that_takes_all_the_time_is_still_recorded(place, colour):
    """The last step has a time of its own: a healthy store takes it after the deadline."""
    late = threading.Event()

    def check(limit):
        name = f"for {limit}"
        effect = lambda: late.wait(limit + 0.1) or "paid"  # noqa: E731 -- passed on
        assert place.call(colour, name, effect=effect) == "paid"
        assert place.state(name) is RecordState.SUCCEEDED

    assert place.call(colour, "patient", key="before") == "done"
    at_some_speed(check, *CLAIMED)


@COLOURS
def test_many_callers_that_share_few_connections_are_all_left_in_time(place, colour):
    """A wait for a free connection, or for a turn, is a part of the step."""
    assert place.call(colour, "patient", key="before") == "done"
    place.hang()
    keyed = [
        place.far.operation("brief", key=uuid.uuid4().hex, idempotency="idempotent")
        for _ in range(24)
    ]

    async def number():
        return 0

    async def all_of_them():
        calls = [each.acall(number) for each in keyed]
        return await asyncio.gather(*calls, return_exceptions=True)

    def one(each, ended):
        try:
            each.call(int)
        except StoreUnavailable as error:
            ended.append(error)

    def in_threads():
        ended = []
        threads = [threading.Thread(target=one, args=[each, ended], daemon=True) for each in keyed]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
        return ended

    ended = watched(in_threads if colour == "sync" else lambda: asyncio.run(all_of_them()))
    assert [type(each) for each in ended] == [StoreUnavailable] * len(keyed)


@COLOURS
@pytest.mark.usefixtures("_generous")
def test_a_claim_that_came_too_late_starts_nothing(place, colour, monkeypatch):
    """If the claim took all the time, the function is not called, and the key is free again."""
    transact, atransact = place.far.store.transact, place.far.store.atransact
    late = threading.Event()

    def slow(*args):
        late.wait(DEADLINE * 1.2)
        late.set()
        return transact(*args)

    async def aslow(*args):
        late.wait(DEADLINE * 1.2)
        late.set()
        return await atransact(*args)

    monkeypatch.setattr(place.far.store, "transact", slow)
    monkeypatch.setattr(place.far.store, "atransact", aslow)
    with pytest.raises(DeadlineExceeded):
        place.call(colour)
    assert place.ran == 0
    assert place.state() is None


# --- a connection of the caller's own -------------------------------------------------------------


@contextlib.contextmanager
def opened_by_the_user(url, kind):
    """A connection of the user's, patient for an hour, and how long it waits for a lock."""
    if kind == "sqlite":
        path = url.removeprefix("sqlite:///").partition("?")[0]
        made = sqlite3.connect(path, timeout=HOUR, check_same_thread=False)
        ask = lambda: made.execute("PRAGMA busy_timeout").fetchone()[0]  # noqa: E731
    else:
        made = psycopg.connect(url)
        made.execute(f"SET lock_timeout = '{HOUR}s'")
        made.commit()
        ask = lambda: made.execute("SHOW lock_timeout").fetchone()[0]  # noqa: E731
    with contextlib.closing(made):
        yield made, ask


@COLOURS
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("how", ["policy", "within"])
def test_a_deadline_bounds_a_lock_of_a_connection_of_the_callers(
    request, tmp_path, colour, kind, how
):
    """Another transaction has the record; the caller's own patience is put back."""
    url = (
        f"sqlite:///{tmp_path}/kept.db"
        if kind == "sqlite"
        else request.getfixturevalue(f"{kind}_url")
    )
    key, name = uuid.uuid4().hex, "brief" if how == "policy" else "patient"

    async def number():
        return 0

    with (
        Engine(
            url,
            policies=[POLICY, PATIENT],
            operations={"*": name},
            sinks=[],
            audit=False,
            purge=None,
        ) as engine,
        opened_by_the_user(url, kind) as (first, _),
        opened_by_the_user(url, kind) as (second, patience),
    ):
        before = patience()
        second.rollback()
        holder = engine.operation("op", key=key, idempotency="idempotent", connection=first)
        holder.call(int)
        keyed = engine.operation("op", key=key, idempotency="idempotent", connection=second)

        def call():
            with contextlib.nullcontext() if how == "policy" else deadline.within(DEADLINE):
                return keyed.call(int) if colour == "sync" else asyncio.run(keyed.acall(number))

        with pytest.raises(
            StoreUnavailable, match=r"another (connection|transaction) held"
        ) as caught:
            watched(call)
        assert "LockNotAvailable" in repr(caught.value.__cause__) or kind == "sqlite"
        second.rollback()
        assert patience() == before
        second.rollback()
        first.rollback()
        assert watched(call) == 0
