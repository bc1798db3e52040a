"""The NATS store: the contract, and what servers, clocks, loops and processes do to it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
import warnings
from pathlib import Path

import nats
import pytest
import trio
from nats.aio.client import Client

import mainstay.runtime.clock
from mainstay.core.base.change import DROP, KEEP, Change
from mainstay.core.idempotency.record import Begin, Busy, Run, reduce
from mainstay.errors import StoreError, StoreUnavailable, ValueTooLarge
from mainstay.stores.nats import thread as nats_thread
from mainstay.stores.nats import wire as nats_wire
from mainstay.stores.nats.store import NatsStore
from mainstay.testing.stores import StoreContract
from tests.crash.faults.clock import TimeRelay
from tests.processes import at_some_speed, run_at_once
from tests.servers.nats import start_nats


class TestNatsStore(StoreContract):
    """On a server of the session."""

    @pytest.fixture(autouse=True)
    def _address(self, nats_url):
        self.url = f"{nats_url}?timeout=60"  # a busy machine is no failure

    def open(self):
        return NatsStore(self.url)


@pytest.fixture
def space():
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def opened():
    """Opens stores, and closes them at the end."""
    with contextlib.ExitStack() as stack:

        def open_one(url, **options):
            query = "&".join(f"{name}={value}" for name, value in options.items())
            store = NatsStore(f"{url}?{query}" if query else url)
            stack.callback(store.close)
            return store

        yield open_one


@pytest.fixture
def server(tmp_path):
    """A server of the test's own."""
    server = start_nats(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def store(nats_url, opened):
    return opened(nats_url)


def put(data, expires=None):
    return lambda value, now: (Change(data, expires and now + expires), value)


def count(value, _now):
    return Change(str(int(value or b"0") + 1).encode()), None


def eventually(ask, patience=30.0):
    """The first true answer; what is not there yet may be soon."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


def once_it_is_back(step):
    """What a step answers, when the server has had its time."""
    answers = []

    def has_answered():
        with contextlib.suppress(StoreUnavailable):
            answers.append(step())
        return answers

    return eventually(has_answered)[0]


def threads_of_stores():
    return {thread for thread in threading.enumerate() if thread.name == "mainstay-nats"}


def open_files():
    """Of this process, number and name; none where the system does not tell."""
    found = set()
    for path in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(FileNotFoundError):  # the folder itself, while it was read
            found.add((path.name, str(path.readlink())))
    return found


def administer(url, work):
    """Does something to the server with a client of its own."""

    async def connected():
        client = await nats.connect(url)
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(connected())


# --- many at once ---------------------------------------------------------------------------------


def test_of_fifty_that_begin_through_five_connections_one_runs(nats_url, opened, space):
    """The others find it running; nobody waits in vain."""
    stores = [opened(nats_url) for _ in range(5)]

    def begin(number):
        command = Begin(f"owner-{number}", "f", 30.0, 3)
        return stores[number % 5].atransact(space, "k", lambda v, now: reduce(v, command, now))

    async def all_of_them():
        return await asyncio.gather(*(begin(number) for number in range(50)))

    answers = asyncio.run(all_of_them())
    assert sum(isinstance(answer, Run) for answer in answers) == 1
    assert sum(isinstance(answer, Busy) for answer in answers) == 49


def test_nobody_starves_on_a_key_that_ten_connections_fight_for(nats_url, opened, space):
    """Each of them counts to twenty there within its timeout for each step; no count is lost."""
    stores = [opened(nats_url) for _ in range(10)]

    async def twenty(store):
        for _ in range(20):
            await store.atransact(space, "k", count)

    async def all_of_them():
        await asyncio.gather(*(twenty(store) for store in stores))

    asyncio.run(all_of_them())
    assert stores[0].read(space, "k")[0] == b"200"


def test_ten_processes_that_start_at_once_make_one_bucket(server):
    """On an empty server, each making it if it is not there; all of their counts are kept."""
    imports = """
        import nats
        from mainstay.core.base.change import Change
        from mainstay.stores.nats.store import NatsStore
    """
    body = """
        store = NatsStore(sys.argv[1])
        for _ in range(5):
            store.transact("s", "k", lambda value, now: (
                Change(str(int(value or b"0") + 1).encode()), None))
        store.close()
    """
    assert run_at_once(10, imports, body, server.url) == (0, "")
    store = NatsStore(server.url)
    assert store.read("s", "k")[0] == b"50"
    store.close()


def test_two_loops_in_two_threads_share_one_store(store, space):
    """And the thread of the store serves sync callers beside them."""

    async def many():
        await asyncio.gather(*(store.atransact(space, "k", count) for _ in range(20)))

    threads = [threading.Thread(target=asyncio.run, args=(many(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        store.transact(space, "k", count)
    for thread in threads:
        thread.join(60)
    assert store.read(space, "k")[0] == b"50"


def test_under_trio_it_works_as_well(store, space):
    """In a thread of trio's."""

    async def main():
        await store.atransact(space, "k", put(b"1"))
        return await store.aread(space, "k")

    assert trio.run(main)[0] == b"1"


def test_a_cancelled_step_is_let_go_and_the_store_goes_on(server, opened):
    """The caller is free at once; nothing hangs in the store's thread."""
    store = opened(server.url)
    store.transact("s", "k", put(b"1"))

    async def main():
        server.pause()
        task = asyncio.create_task(store.atransact("s", "k", count))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.resume()
        return await store.aread("s", "k")

    assert asyncio.run(main())[0] == b"1"
    eventually(lambda: not store._nats_thread._running)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, TimeoutError, StopIteration])
def test_whatever_a_decision_raises_comes_back_as_it_is(store, space, error):
    """Also what would end a loop, or looks like a timeout of the store's own."""
    raised = error("mine")

    def decide(value, now):
        raise raised

    with pytest.raises(error) as caught:
        store.transact(space, "k", decide)
    assert caught.value is raised
    assert store.transact(space, "k", put(b"1")) is None


# --- servers that go and come back ----------------------------------------------------------------


def test_what_was_acknowledged_is_there_after_kill_9(server, opened):
    """Whatever a writer was told it had written; and the same store goes on."""
    store = opened(server.url, timeout=5)
    acknowledged = []

    def write():
        with contextlib.suppress(StoreUnavailable):
            for number in range(100_000):
                store.transact("s", f"{number:06}", put(str(number).encode()))
                acknowledged.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    eventually(lambda: len(acknowledged) > 50)
    server.kill()
    writer.join(60)
    assert not writer.is_alive()
    server.start()
    once_it_is_back(lambda: store.read("s", "000000"))
    for number in acknowledged:
        assert store.read("s", f"{number:06}")[0] == str(number).encode()


def test_a_server_that_stands_still_is_told_in_time_and_used_again(server, opened):
    """Its connections are open, and nobody answers."""
    store = opened(server.url, timeout=0.5)
    once_it_is_back(lambda: store.transact("s", "k", put(b"1")))
    server.pause()
    for step in (lambda: store.transact("s", "k", put(b"2")), lambda: store.read("s", "k")):
        with pytest.raises(StoreUnavailable, match=r"no answer within 0.5 s"):
            step()
    server.resume()
    assert once_it_is_back(lambda: store.read("s", "k")[0]) == b"1"


def test_a_server_that_comes_later_is_used_when_it_is_there(server, opened):
    """The store needs no server to be made; it says what it tried."""
    server.stop()
    store = opened(server.url, timeout=2)
    with pytest.raises(StoreUnavailable, match=r"tried to connect \d+ x, the last error: "):
        store.transact("s", "k", put(b"1"))
    with pytest.raises(StoreUnavailable, match="Connect call failed"):
        asyncio.run(store.aread("s", "k"))
    server.start()
    once_it_is_back(lambda: store.transact("s", "k", put(b"2")))
    assert once_it_is_back(lambda: store.read("s", "k")[0]) == b"2"


def test_a_step_that_loses_the_server_while_writing_says_that_nobody_knows(server, opened):
    """It may have been written or not: that is for the caller to find out."""
    store = opened(server.url, timeout=2)
    once_it_is_back(lambda: store.read("s", "k"))  # the first step has to make the bucket

    def decide(value, now):
        server.kill()
        return Change(b"1"), None

    with pytest.raises(StoreUnavailable, match="may have been written or not"):
        store.transact("s", "k", decide)


def test_a_reading_that_loses_the_server_is_asked_again(server, opened):
    """On the next connection, as long as there is time."""
    store = opened(server.url, timeout=10)
    store.transact("s", "k", put(b"1"))
    server.pause()
    answers = []
    reader = threading.Thread(target=lambda: answers.append(store.read("s", "k")[0]))
    reader.start()
    eventually(lambda: store._nats_thread._connection._awaited)
    server.kill()
    server.start()
    reader.join(60)
    assert answers == [b"1"]


def test_a_connection_that_is_closing_is_not_asked_for_ever(store, space, caplog):
    """nats-py refuses before it tells that it has closed; the store opens another, and no fuss."""
    store.transact(space, "k", put(b"1"))
    gc.collect()
    caplog.clear()  # of what other tests have left to the collector
    store._nats_thread._connection.client._status = Client.CLOSED
    assert store.read(space, "k")[0] == b"1"
    gc.collect()
    assert [record.message for record in caplog.records] == []


def test_a_server_without_jetstream_is_told_at_once(tmp_path, opened):
    """Waiting would not help."""
    server = start_nats(tmp_path, jetstream=False)
    try:
        with pytest.raises(StoreUnavailable, match="JetStream is off"):
            opened(server.url).read("s", "k")
    finally:
        server.kill()


def test_a_bucket_that_was_deleted_is_told_and_then_made_again(server, opened):
    """Not in silence: records have gone."""
    store = opened(server.url)
    store.transact("s", "k", put(b"1"))
    administer(server.url, lambda js: js.delete_key_value("mainstay"))
    with pytest.raises(StoreUnavailable, match=r"stream not found|the bucket is gone"):
        store.transact("s", "k", put(b"2"))
    assert store.transact("s", "k", put(b"3")) is None


def test_another_server_of_the_list_is_used_where_one_is_gone(server, opened):
    """Servers are named with commas in between."""
    hosts = f"nats://127.0.0.1:1,127.0.0.1:{server.port}"
    assert opened(hosts).transact("s", "k", put(b"1")) is None


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"storage": "memory"}, "storage is 'memory' and must be 'file'"),
        ({"history": 5}, "max_msgs_per_subject is 5 and must be 1"),
        ({"ttl": 3600}, "max_age is 3600000000000 and must be 0"),
    ],
)
def test_a_bucket_that_could_lose_records_is_refused(nats_url, opened, config, told):
    """With what differs."""
    bucket = f"other-{uuid.uuid4().hex}"
    administer(nats_url, lambda js: js.create_key_value(bucket=bucket, **config))
    with pytest.raises(StoreError, match=told):
        opened(nats_url, bucket=bucket).read("s", "k")


def test_a_bucket_with_fewer_copies_than_asked_is_refused(nats_url, opened):
    """More of them than asked are fine."""
    bucket = f"other-{uuid.uuid4().hex}"
    opened(nats_url, bucket=bucket).read("s", "k")
    with pytest.raises(StoreError, match="num_replicas is 1, and 3 are asked"):
        opened(nats_url, bucket=bucket, replicas=3).read("s", "k")


# --- the clock ------------------------------------------------------------------------------------


class Crooked:
    """A clock an hour ahead, in both its readings."""

    def monotonic(self):
        return time.monotonic() + 3600.0

    def wall(self):
        return time.time() + 3600.0

    def sleep(self, seconds, cancel=None):
        return mainstay.runtime.clock.SYSTEM.sleep(seconds, cancel)


def test_the_clock_of_this_machine_does_not_matter(nats_url, opened, space, monkeypatch):
    """An hour off, the time of a step is still the server's."""
    before = mainstay.runtime.clock.install(Crooked())
    try:
        monkeypatch.setattr(time, "time", lambda: 0.0)
        now = opened(nats_url).transact(space, "k", lambda value, now: (KEEP, now))
    finally:
        mainstay.runtime.clock.install(before)
        monkeypatch.undo()
    assert abs(now - time.time()) < 60.0, "the server runs on this machine"


def test_a_server_that_does_not_tell_the_time_is_asked_by_a_message(store, space):
    """As servers before 2.10 are; both ways tell the same."""
    store.read(space, "k")
    clock = nats_wire.Clock()
    work = nats_thread._measure_by_writing(store._nats_thread._connection, clock)
    asyncio.run_coroutine_threadsafe(work, store._nats_thread._loop).result(60)
    assert abs(clock.now() - store.read(space, "k")[1]) < 5.0


@pytest.mark.parametrize("uptime", [5.0, 1e9])
def test_the_clock_does_not_go_back_by_itself(monkeypatch, uptime):
    """If two measurements differ a little it stands still, and is right again later."""
    monkeypatch.setattr(nats_wire, "steady", lambda: uptime)
    clock = nats_wire.Clock()
    clock.learn(uptime, uptime + 0.01, 1000.0)
    first = clock.now()
    clock.learn(uptime, uptime + 0.01, 999.8)
    assert clock.now() == first
    clock.learn(uptime, uptime + 0.01, 2000.0)
    assert (last := clock.now()) > first
    assert clock.unmeasured().now() == last


def test_the_clock_follows_a_server_whose_clock_was_set_back():
    """It does not stand still for the day: no lease would end in this process."""
    clock = nats_wire.Clock()
    here = nats_wire.steady()
    clock.learn(here, here + 0.01, 100_000.0)
    assert clock.now() > 99_999.0
    clock.learn(here, here + 0.01, 13_600.0)
    first = clock.now()
    assert 13_500.0 < first < 13_700.0
    assert clock.now() >= first


def test_a_slow_answer_does_not_spoil_what_is_known():
    """Unless it contradicts it: then the server's clock was set."""
    clock = nats_wire.Clock()
    here = nats_wire.steady()
    clock.learn(here, here + 0.01, 1000.0)
    clock.learn(here, here + 4.0, 1003.9)
    assert clock.uncertainty() < 0.01
    clock.learn(here, here + 4.0, 5000.0)
    assert clock.uncertainty() == pytest.approx(2.0)


@pytest.fixture
def relay(server):
    """The server, with a clock that can be set."""
    relay = TimeRelay(server.port)
    yield relay
    relay.close()


def test_a_lease_by_the_new_time_holds_for_a_process_that_knows_the_old_one(relay, opened, space):
    """The clock is set back a day: one process learns of it at once, the other within a second."""
    url = f"nats://127.0.0.1:{relay.port}"
    late, soon = opened(url), opened(url)

    def begin(store, owner):
        command = Begin(owner, "same", 60.0, 3)
        return store.transact(space, "k", lambda value, now: reduce(value, command, now))

    late.transact(space, "other", put(b"measured"))
    relay.offset = -86_400
    assert isinstance(begin(soon, "soon"), Run)
    assert isinstance(begin(late, "late"), Busy)


def test_what_is_kept_by_the_new_time_is_not_purged_by_the_old_one(relay, opened, space):
    """The clock is set back a day; a purge that begins before it goes by the time of after it."""
    url = f"nats://127.0.0.1:{relay.port}"
    late, soon = opened(url), opened(url)
    late.transact(space, "other", put(b"measured"))
    relay.offset = -86_400
    soon.transact(space, "k", put(b"kept", expires=3_600.0))
    assert late.purge() == 0
    assert soon.read(space, "k")[0] == b"kept"


def test_the_clock_is_measured_again_when_it_is_old(store, space, monkeypatch):
    """At least every ten seconds, by the first step that needs it."""
    store.read(space, "k")
    clock = store._clock
    clock._measured -= 11.0
    assert clock.is_stale()
    store.read(space, "k")
    assert not clock.is_stale()


# --- keys, values and expiry ----------------------------------------------------------------------

STRANGE = ["a.b", "*", ">", "\n", " ", "\u00e9", "\U0001f600" * 3, "/", "k" * 2000, "\u4e2d" * 700]


def test_any_text_is_a_key_and_comes_back_in_order(store, space):
    """Also where it is too long for a name of NATS and is known by its hash."""
    for key in STRANGE:
        store.transact(space, key, put(key.encode()))
    assert store.scan(space) == [(key, key.encode()) for key in sorted(STRANGE)]
    assert (
        store.scan(space, after="a.b", limit=2)
        == [(key, key.encode()) for key in sorted(STRANGE) if key > "a.b"][:2]
    )
    other = "\u00fc" * 1000
    store.transact(other, "k", put(b"1"))
    assert store.scan(other) == [("k", b"1")]


def test_values_of_several_megabytes_come_back(store, space):
    """As far as the server's max_payload goes."""
    data = os.urandom(5 * 1024 * 1024)
    store.transact(space, "k", put(data))
    assert store.read(space, "k")[0] == data


def test_a_value_beyond_the_limit_is_refused_with_its_name(tmp_path, opened):
    """And the connection goes on."""
    server = start_nats(tmp_path, max_payload=100_000)
    try:
        store = opened(server.url)
        with pytest.raises(ValueTooLarge, match=r"takes 100000 bytes at most.*max_payload"):
            store.transact("s", "k", put(b"x" * 100_000))
        largest = put(b"x" * 99_900)
        assert store.transact("s", "k", largest) is None
    finally:
        server.kill()


def test_a_purge_stops_at_its_limit_and_goes_on_next_time(server, opened):
    """Until all that has expired is gone; what has not stays."""
    store = opened(server.url)
    for number in range(5):
        store.transact("s", f"old-{number}", put(b"x", -1.0))
        store.transact("s", f"new-{number}", put(b"x", 3600.0))
    assert [store.purge(2) for _ in range(4)] == [2, 2, 1, 0]
    assert [key for key, _ in store.scan("s")] == [f"new-{number}" for number in range(5)]


def test_a_purge_clears_what_dropped_records_left(server, opened):
    """Nothing of a dropped record stays in the bucket; it can be written again."""
    store = opened(server.url)
    for number in range(300):
        store.transact("s", str(number), put(b"x"))
        store.transact("s", str(number), lambda value, now: (DROP, None))
    assert store.purge() == 0
    info = administer(server.url, lambda js: js.stream_info("KV_mainstay"))
    assert info.state.messages == 0
    assert info.state.consumer_count == 0
    assert store.transact("s", "7", put(b"y")) is None


def test_what_somebody_else_keeps_in_the_bucket_is_told(server, opened):
    """And not taken for a record."""
    store = opened(server.url)
    store.read("s", "k")
    name = store._address.subject("s", "k").removeprefix("$KV.mainstay.")

    async def write(js):
        await (await js.key_value("mainstay")).put(name, b"{}")

    administer(server.url, write)
    with pytest.raises(StoreUnavailable, match="no record of mainstay's"):
        store.read("s", "k")


# --- the store itself -----------------------------------------------------------------------------


def test_closing_leaves_no_thread_and_no_socket(nats_url, space):
    """And a closed store says so."""
    before, files = threads_of_stores(), open_files()
    store = NatsStore(nats_url)
    store.transact(space, "k", put(b"1"))
    assert len(threads_of_stores() - before) == 1
    store.close()
    assert threads_of_stores() <= before
    assert open_files() <= files
    with pytest.raises(StoreUnavailable, match="it was closed"):
        store.read(space, "k")
    with pytest.raises(StoreUnavailable, match="it was closed"):
        asyncio.run(store.aread(space, "k"))


def test_closing_while_the_server_stands_still_ends_all_the_same(server):
    """Who waits is told, sync and async, and nothing is left."""
    before = threads_of_stores()
    store = NatsStore(f"{server.url}?timeout=30")
    store.transact("s", "k", put(b"1"))
    server.pause()
    told = []

    def wait(step):
        try:
            step()
        except StoreUnavailable as error:
            told.append(error.reason)

    waiting = [
        threading.Thread(target=wait, args=(step,))
        for step in (
            lambda: store.transact("s", "k", put(b"x" * 4_000_000)),
            lambda: asyncio.run(store.aread("s", "k")),
        )
    ]
    for thread in waiting:
        thread.start()
    eventually(lambda: len(store._nats_thread._running) == 2)
    store.close()
    for thread in waiting:
        thread.join(60)
    assert told == ["it was closed"] * 2
    assert threads_of_stores() <= before


def test_a_store_that_is_forgotten_ends_its_thread(nats_url, space):
    """Nobody has to close what nobody holds."""
    before = threads_of_stores()
    store = NatsStore(nats_url)
    store.read(space, "k")
    del store
    gc.collect()
    assert eventually(lambda: threads_of_stores() <= before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_a_connection_of_its_own(store, space):
    """Both go on, and neither hears the answers of the other."""
    store.transact(space, "k", put(b"1"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads: the point here
        child = os.fork()
    if child == 0:
        status = 1
        try:
            for _ in range(20):
                store.transact(space, "k", count)
            store.close()
            status = 0
        finally:
            os._exit(status)
    for _ in range(20):
        store.transact(space, "k", count)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.read(space, "k")[0] == b"41"


def test_it_says_what_it_is_and_how_well_it_knows_the_time(store):
    """For the doctor."""
    told = store.describe()
    assert told["store"] == "nats"
    assert re.fullmatch(r"\d+\.\d+\.\d+", told["version"])
    assert told["latency_ms"] > 0
    assert told["max_payload"] > 0
    assert 0 < told["clock_uncertainty_ms"] < 1000


def test_no_password_is_in_what_it_says(tmp_path, opened):
    """Neither where it is right nor where it is wrong."""
    server = start_nats(tmp_path, authorization='{user: me, password: "s3cret/word"}')
    try:
        host = server.url.removeprefix("nats://")
        store = opened(f"nats://me:s3cret%2Fword@{host}")
        store.transact("s", "k", put(b"1"))
        assert "s3cret" not in json.dumps(store.describe())
        wrong = opened(f"nats://me:wr0ng@{host}")
        with pytest.raises(StoreUnavailable, match="Authorization Violation") as caught:
            wrong.read("s", "k")
        assert "wr0ng" not in str(caught.value) + repr(caught.value.__dict__)
        assert wrong.url == f"nats://me@{host}"
        assert NatsStore(f"nats://t0ken@{host}").url == f"nats://{host}"
    finally:
        server.kill()


def test_a_password_is_not_given_to_a_server_without_tls(server, opened):
    """Whoever writes tls:// means it."""

    def check(seconds):
        store = opened(server.url.replace("nats://", "tls://me:secret@"), timeout=seconds)
        with pytest.raises(StoreUnavailable, match="the server offers no TLS"):
            store.read("s", "k")

    at_some_speed(check, 1, 10)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nats://", "names no server"),
        ("nats://me:secret@:99999999", "names no server"),
        ("nats://me:secret@127.0.0.1:4222/mine", "has a path"),
        ("nats://127.0.0.1?bucket=a.b", "bucket = 'a.b': must be letters"),
        ("nats://127.0.0.1?replicas=0", "replicas = '0'"),
        ("nats://127.0.0.1?colour=red", "colour is no option"),
    ],
)
def test_a_url_that_cannot_be_right_is_refused(url, told):
    """When the store is made, and without its password."""
    with pytest.raises(StoreError, match=told) as caught:
        NatsStore(url)
    assert "secret" not in str(caught.value)


def test_without_the_library_the_extra_is_named():
    """Not an import error of somebody else's."""
    program = "import sys; sys.modules['nats'] = None; import mainstay.stores.nats.store"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert b"mainstay[nats]" in done.stderr
