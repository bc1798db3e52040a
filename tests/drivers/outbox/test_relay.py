"""The relay: order, retries, circuits, stopping, crashes of its database."""

import asyncio
import threading
import time
from collections import defaultdict

import psycopg
import pytest

from mainstay import Backoff, BreakerSettings, Engine, RetryBudget, RetryPolicy
from mainstay.core.outbox.settle import DeadRules, published
from mainstay.errors import PolicyError, UsageError
from tests.processes import at_some_speed
from tests.servers.databases import outbox_place, postgres_place, sqlite_place

__all__ = ["outbox_place"]
QUICK = RetryPolicy(max_attempts=4, backoff=Backoff.constant(0.0), attempt_timeout=30.0)


def engine_of(place, **options):
    engine = Engine(place.url, **{"sinks": [], "audit": False, **options})
    engine.outbox.counts()  # creates the tables
    return engine


def add(engine, place, *names, aggregate="X"):
    with place.connect() as connection:
        for name in names:
            engine.outbox.add(connection, topic=name, payload={}, id=name, aggregate_id=aggregate)


@pytest.fixture(autouse=True)
def _threads_of_publishers_end():
    """A publisher that is closed does not wait for its threads: a function may hang."""
    yield
    eventually(lambda: not any("mainstay-publish" in t.name for t in threading.enumerate()))


def eventually(condition):
    """Waits for a condition of other threads; the test's own timeout bounds it."""
    while not condition():
        time.sleep(0.005)


class Broker:
    """Receives messages, and fails for those that a test names, once for each time."""

    url = "test:broker"

    def __init__(self, **fails):
        self.got, self.fails, self.is_closed = [], fails, 0

    async def publish(self, message):
        await asyncio.sleep(0)
        left = self.fails.get(message.topic, 0)
        if left:
            self.fails[message.topic] = left - 1
            raise ConnectionError("down")
        self.got.append(message.topic)

    async def close(self):
        self.is_closed += 1


def drained(relay, engine, *states):
    """Drains until only those states are left."""
    while set(engine.outbox.counts()) - set(states or ["SENT"]):
        relay.drain()
    return relay.counts


@pytest.mark.req("EF-10")
def test_a_retry_holds_its_aggregate_and_others_go_on(outbox_place):
    broker = Broker(a=2)
    with engine_of(outbox_place) as engine:
        add(engine, outbox_place, "a", "b", "c")
        add(engine, outbox_place, "y", aggregate="Y")
        relay = engine.outbox.relay(broker, policy=QUICK)
        relay.drain()
        assert broker.got[0] == "y"
        counts = drained(relay, engine)
    assert [each for each in broker.got if each != "y"] == ["a", "b", "c"]
    assert (counts.published, counts.retried, counts.dead) == (4, 2, 0)
    assert broker.is_closed


@pytest.mark.req("EF-10")
@pytest.mark.parametrize(("after_dead", "got"), [("continue", ["b"]), ("hold", [])])
def test_the_fourth_failure_is_dead_and_later_ones_go_on_or_hold(outbox_place, after_dead, got):
    broker = Broker(a=99)
    with engine_of(outbox_place) as engine:
        add(engine, outbox_place, "a", "b")
        relay = engine.outbox.relay(broker, policy=QUICK, after_dead=after_dead)
        left = ["DEAD", "SENT"] if got else ["DEAD", "PENDING"]
        while engine.outbox.counts().get("DEAD") != 1:
            relay.drain()
        drained(relay, engine, *left)
        assert broker.got == got
        assert broker.fails["a"] == 95
        assert len(engine.outbox.get("a").history) == 4
        if after_dead == "hold":
            broker.fails.clear()
            engine.outbox.replay("a")
            drained(relay, engine)
            assert broker.got == ["a", "b"]


def test_a_permanent_failure_is_dead_at_once(outbox_place):
    def fail(message):
        raise ValueError("no such topic")

    with engine_of(outbox_place) as engine:
        add(engine, outbox_place, "a")
        counts = engine.outbox.relay(fail).drain()
        assert (counts.dead, counts.retried) == (1, 0)


class Unshowable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, BaseException, Unshowable])
@pytest.mark.parametrize("is_async", [False, True])
def test_whatever_a_publisher_raises_is_a_failure_of_its_message(tmp_path, kind, is_async):
    """Before, the entry stayed claimed, its lease was renewed, and its aggregate was held."""
    got = []

    def publish(message):
        if message.topic == "a":
            raise kind("boom")
        got.append(message.topic)

    async def apublish(message):
        publish(message)

    place = sqlite_place(tmp_path)
    with engine_of(place) as engine:
        add(engine, place, "a", "b")
        relay = engine.outbox.relay(apublish if is_async else publish, policy=QUICK)
        drained(relay, engine, "DEAD", "SENT")
        assert len(engine.outbox.get("a").history) in (1, 4)
    assert got == ["b"]


@pytest.mark.parametrize("error", [RuntimeError("?"), PermissionError("no login")])
def test_what_no_table_knows_and_a_wrong_password_are_retried(tmp_path, error):
    """No reason to give a message up at once; a policy with retry_on decides otherwise."""

    def fail(message):
        raise error

    place = sqlite_place(tmp_path)
    with engine_of(place) as engine:
        add(engine, place, "a")
        assert engine.outbox.relay(fail, policy=QUICK).drain().dead == 0
        strict = QUICK.replace(retry_on=(ConnectionError,))
        relay = engine.outbox.relay(fail, policy=strict)
        while not relay.counts.dead:
            relay.drain()
        assert engine.outbox.get("a").attempts == 2


def test_an_open_circuit_charges_no_attempt(outbox_place):
    """The entry waits for the time that the circuit names."""
    broker = Broker(a=2)
    breaker = BreakerSettings(failure_threshold=1, recovery_timeout=300.0)
    with engine_of(outbox_place, breaker=breaker) as engine:
        add(engine, outbox_place, "a", "b")
        add(engine, outbox_place, "y", aggregate="Y")
        relay = engine.outbox.relay(broker, policy=QUICK)
        for _ in range(5):
            relay.drain()
        assert relay.counts.refused >= 1
        counts = relay.counts
        attempts = [engine.outbox.get(name).attempts for name in "aby"]
        assert sum(attempts) == counts.published + counts.retried <= 2
        waits = [each.next_at for each in engine.outbox.entries("PENDING") if each.next_at]
        assert max(waits) - time.time() > 60.0


def test_a_spent_budget_makes_the_wait_the_longest(tmp_path):
    place = sqlite_place(tmp_path)
    policy = QUICK.replace(backoff=Backoff.exponential(0.001, factor=2.0, max_delay=600.0))
    budget = RetryBudget("outbox", ratio=0.0, floor=0)
    with engine_of(place, budget=budget) as engine:
        add(engine, place, "a")
        engine.outbox.relay(Broker(a=9), policy=policy).drain()
        (entry,) = engine.outbox.entries("PENDING")
        assert entry.next_at - time.time() > 60.0


def test_a_retry_after_of_the_broker_is_the_least_wait(tmp_path):
    class Throttled(Exception):
        retry_after = 120.0
        status_code = 429

    def fail(message):
        raise Throttled

    place = sqlite_place(tmp_path)
    with engine_of(place) as engine:
        add(engine, place, "a")
        engine.outbox.relay(fail, policy=QUICK).drain()
        (entry,) = engine.outbox.entries("PENDING")
        assert 100.0 < entry.next_at - time.time() <= 121.0


def test_an_attempt_is_cut_at_its_timeout(tmp_path):
    async def hang(message):
        await asyncio.sleep(3600)

    place = sqlite_place(tmp_path)
    with engine_of(place) as engine:
        add(engine, place, "a")
        relay = engine.outbox.relay(hang, policy=QUICK.replace(attempt_timeout=0.02))
        assert relay.drain().retried == 1
        assert engine.outbox.get("a").history[0].kind == "timeout"


def test_a_relay_in_a_thread_publishes_what_is_committed_and_stops(outbox_place):
    """Woken by NOTIFY on PostgreSQL, by polling on SQLite."""
    broker = Broker()
    with engine_of(outbox_place) as engine:
        relay = engine.outbox.relay(
            broker, poll=0.05 if outbox_place.dialect == "sqlite" else 3600.0
        )
        with relay:
            with pytest.raises(UsageError, match="running already"):
                relay.start()
            for name in "abc":
                add(engine, outbox_place, name)
                eventually(lambda name=name: name in broker.got)
        assert broker.is_closed
        add(engine, outbox_place, "d")
        assert "d" not in broker.got
        with relay:  # it may be started again
            eventually(lambda: "d" in broker.got)


def test_a_relay_polls_if_no_notification_arrives(postgres_url, monkeypatch):
    """As behind a pool of connections that has no LISTEN."""
    place, broker = postgres_place(postgres_url), Broker()
    with engine_of(place) as engine:
        relay = engine.outbox.relay(broker, poll=0.1)
        monkeypatch.setattr(relay._table, "listen", lambda _wake, _stop: None)
        with relay:
            for name in "abc":
                add(engine, place, name)
                eventually(lambda name=name: name in broker.got)


def test_stopping_finishes_what_is_being_published_and_gives_the_rest_back(outbox_place):
    began, go_on = threading.Event(), threading.Event()
    got = []

    def slow(message):
        began.set()
        go_on.wait()
        got.append(message.topic)

    with engine_of(outbox_place) as engine:
        add(engine, outbox_place, "a", "b", "c")
        relay = engine.outbox.relay(slow).start()
        began.wait()
        relay.stop(wait=False)
        go_on.set()
        relay.stop()
        assert got == ["a"]
        assert engine.outbox.counts() == {"SENT": 1, "PENDING": 2}
        assert [each.attempts for each in engine.outbox.entries("PENDING")] == [0, 0]


def test_a_cancelled_relay_gives_back_what_it_has_claimed(tmp_path):
    place = sqlite_place(tmp_path)

    async def main(engine):
        began = asyncio.Event()

        async def slow(message):
            began.set()
            await asyncio.sleep(0.05)

        task = asyncio.create_task(engine.outbox.relay(slow).arun())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with engine_of(place) as engine:
        add(engine, place, "a", "b")
        asyncio.run(main(engine))
        assert engine.outbox.counts() == {"SENT": 1, "PENDING": 1}


@pytest.mark.req("EF-14")
def test_the_late_writes_of_a_worker_are_refused(outbox_place):
    """Another relay has taken over, as after a stop for longer than the lease."""
    got = []
    with engine_of(outbox_place) as engine:
        add(engine, outbox_place, "a", "b")
        table = engine.outbox._opened()

        def stolen(message):
            got.append(message.topic)
            if len(got) == 1:
                outbox_place.execute("UPDATE mainstay_outbox SET lease_until = 1")
                table.upkeep(DeadRules())
                batch = table.claim(1, 300.0, "other", is_idle=True).entries
                table.settle(batch, [published(each, 1.0) for each in batch])

        relay = engine.outbox.relay(stolen, lease=300.0)
        relay.drain()
        assert relay.counts.lost == 2
        drained(relay, engine)
    assert got == ["a", "b", "b"]


@pytest.mark.req("EF-14")
def test_a_worker_whose_lease_is_over_publishes_nothing_more(outbox_place):
    """As after a stop: the entries that are left are given back."""
    got = []

    async def stops(message):
        got.append(message.topic)
        if len(got) == 1:
            time.sleep(0.8)  # noqa: ASYNC251 -- the whole process stands still

    with engine_of(outbox_place) as engine:
        add(engine, outbox_place, "a", "b")
        counts = engine.outbox.relay(stops, lease=0.5).drain()
        assert got == ["a", "b"]
        assert counts.given_back >= 1


@pytest.mark.req("EF-14")
def test_a_worker_whose_machine_slept_publishes_nothing_more(outbox_place, machine):
    """The lease is over on the clock of the database, which did not sleep."""
    got = []

    def sleeps(message):
        got.append(message.topic)
        if len(got) == 1:
            machine.sleep(61.0)

    with engine_of(outbox_place) as engine:
        add(engine, outbox_place, "a", "b")
        counts = engine.outbox.relay(sleeps, lease=60.0).drain()
        assert got == ["a", "b"]
        assert counts.given_back >= 1


@pytest.mark.req("EF-14")
def test_leases_are_renewed_while_a_message_is_published(outbox_place):
    """A publish of several leases is done once."""

    def check(lease):
        got, name = [], f"after {lease}"

        async def slow(message):
            await asyncio.sleep(2.4 * lease)
            got.append(message.topic)

        with engine_of(outbox_place) as engine:
            add(engine, outbox_place, name)
            one, two = (engine.outbox.relay(slow, lease=lease, poll=0.05) for _ in range(2))
            with one, two:
                eventually(lambda: set(engine.outbox.counts()) == {"SENT"})
        assert got == [name]
        assert one.counts.lost == 0

    at_some_speed(check, 0.3, 2.0, 10.0)


def test_two_relays_publish_each_message_once_and_in_order(outbox_place):
    """The broker's order is the commit order, for each aggregate."""
    broker, names = Broker(), defaultdict(list)
    with engine_of(outbox_place) as engine:
        options = {"poll": 0.02, "batch": 5}
        with engine.outbox.relay(broker, **options), engine.outbox.relay(broker, **options):
            for number in range(60):
                aggregate = str(number % 4)
                add(engine, outbox_place, f"{aggregate}-{number:03}", aggregate=aggregate)
            eventually(lambda: engine.outbox.counts() == {"SENT": 60})
    for name in broker.got:
        names[name[0]].append(name)
    assert len(broker.got) == 60
    assert all(found == sorted(found) for found in names.values())


def test_a_relay_outlives_the_loss_of_its_connections(postgres_url):
    """The server ends every connection: the relay goes on, and nothing is lost."""
    place, broker = postgres_place(postgres_url), Broker()
    with engine_of(place) as engine, engine.outbox.relay(broker, poll=0.05):
        for turn in range(3):
            add(engine, place, f"a{turn}")
            eventually(lambda turn=turn: f"a{turn}" in broker.got)
            with psycopg.connect(postgres_url, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
        eventually(lambda: engine.outbox.counts() == {"SENT": 3})
    assert broker.got == ["a0", "a1", "a2"]


def test_more_is_claimed_while_outcomes_are_written(outbox_place, monkeypatch):
    """A relay that claims only after each write leaves its broker idle meanwhile."""
    with engine_of(outbox_place) as engine:
        for name in "abcdef":
            add(engine, outbox_place, name, aggregate=name)
        broker = Broker()
        relay = engine.outbox.relay(broker, batch=1)
        settle, most = relay._table.settle, []

        def slow(entries, done):
            eventually(lambda: len(broker.got) >= 3 or most)
            most.append(len(broker.got))
            return settle(entries, done)

        monkeypatch.setattr(relay._table, "settle", slow)
        relay.drain()
    assert most[0] == 3  # and no more: those are what a worker that dies leaves to others
    assert broker.got == list("abcdef")


def test_outcomes_that_end_together_are_written_together(outbox_place, monkeypatch):
    monkeypatch.setattr("mainstay.drivers.outbox.relay._MOMENT", 0.5)
    turns = iter(range(100))
    written = []

    async def publish(_message):
        for _ in range(next(turns)):
            await asyncio.sleep(0)

    with engine_of(outbox_place) as engine:
        for name in "abcdefghij":
            add(engine, outbox_place, name, aggregate=name)
        relay = engine.outbox.relay(publish)
        settle = relay._table.settle
        monkeypatch.setattr(
            relay._table, "settle", lambda *args: written.append(len(args[1])) or settle(*args)
        )
        relay.drain()
    assert written == [10]


@pytest.mark.parametrize("options", [{"batch": 0}, {"poll": 0}, {"lease": 7200}, {"retention": -1}])
def test_options_are_checked(tmp_path, options):
    with engine_of(sqlite_place(tmp_path)) as engine:
        with pytest.raises(PolicyError):
            engine.outbox.relay(print, **options)
        with pytest.raises(UsageError, match="after_dead"):
            engine.outbox.relay(print, after_dead="explode")
