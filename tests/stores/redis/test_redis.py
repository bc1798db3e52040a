"""The Redis store: the contract, and what goes wrong with a server, its memory and its disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import threading
import time
import traceback
import uuid
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis
import trio

from mainstay.core.base.change import DROP, KEEP, Change
from mainstay.core.idempotency.record import Begin, Busy, RecordState, Replay, Run, Settle, reduce
from mainstay.errors import MainstayWarning, StoreError, StoreUnavailable, ValueTooLarge
from mainstay.runtime.clock import SYSTEM
from mainstay.stores.redis import protocol as redis_telling
from mainstay.stores.redis.keys import explained as _explained
from mainstay.stores.redis.store import RedisStore
from mainstay.testing.stores import StoreContract
from tests.servers.valkey import start_valkey


def put(data, expires=None):
    return lambda value, now: (Change(data, None if expires is None else now + expires), value)


def count(value, now):
    return Change(str(int(value or b"0") + 1).encode()), None


def does(command):
    return lambda value, now: reduce(value, command, now)


def in_the_end(step):
    """What a step answers, where its time may be too short for a busy machine."""
    answers = []

    def has_answered():
        with contextlib.suppress(StoreUnavailable):
            answers.append(step())
        return answers

    until(has_answered)
    return answers[0]


def until(condition, seconds=30.0):
    """Waits for a condition, not for long."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


def in_threads(number, function):
    errors = []

    def guarded(index):
        try:
            function(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def sockets():
    """The open sockets of this process."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(str(path.readlink()))
    return {name for name in found if name.startswith("socket:")}


@pytest.fixture
def store(valkey_url):
    store = RedisStore(valkey_url)
    yield store
    store.close()


@pytest.fixture
def client(valkey_url):
    """The server, looked at from outside."""
    client = redis.Redis.from_url(valkey_url)
    yield client
    client.close()


@pytest.fixture
def space():
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def server(tmp_path):
    """A server of the test's own, to stop, kill and configure."""
    server = start_valkey(tmp_path)
    yield server
    server.kill()


class TestRedisStore(StoreContract):
    """As every other store."""

    @pytest.fixture(autouse=True)
    def _place(self, valkey_url):
        self.url = f"{valkey_url}?timeout=60"  # a busy machine is no failure

    def open(self):
        return RedisStore(self.url)


# --- many at once ---------------------------------------------------------------------------------


def test_of_a_hundred_threads_that_begin_one_runs(store, space):
    """The others find it running."""
    answers = []

    def begin(number):
        command = Begin(f"owner-{number}", "f", 30.0, 3)
        answers.append(store.transact(space, "k", does(command)))

    in_threads(100, begin)
    assert sum(isinstance(answer, Run) for answer in answers) == 1
    assert sum(isinstance(answer, Busy) for answer in answers) == 99


def test_a_hundred_threads_that_all_write_one_record_all_get_their_turn(store, space):
    """Nobody starves, and no step is lost."""
    in_threads(100, lambda _: [store.transact(space, "k", count) for _ in range(5)])
    assert store.read(space, "k")[0] == b"500"


def test_a_slow_client_is_not_starved_by_fast_ones(valkey_url, store, space):
    """It takes ten times as long to decide as they do, and still comes to write."""
    other, is_over = RedisStore(valkey_url), threading.Event()

    def hurry(_):
        while not is_over.is_set():
            other.transact(space, "k", count)

    def decide(value, now):
        time.sleep(0.01)
        return count(value, now)

    def dawdle():
        try:
            for _ in range(5):
                store.transact(space, "k", decide)
        finally:
            is_over.set()

    try:
        in_threads(4, lambda index: hurry(index) if index else dawdle())
    finally:
        other.close()
    assert store.read(space, "k")[0] is not None


def test_a_record_held_for_one_step_is_free_after_it(valkey_url, store, space, client):
    """A step that lost often and then keeps the record lets others write at once."""
    other, rounds = RedisStore(valkey_url), []

    def decide(value, now):
        rounds.append(value)
        held = client.exists(f"mainstay:{{{space}}}!k")
        if held:
            return KEEP, "kept"
        other.transact(space, "k", count)
        return Change(b"0"), "written"

    assert store.transact(space, "k", decide) == "kept"
    assert len(rounds) > 3
    assert client.exists(f"mainstay:{{{space}}}!k") == 0
    other.close()


def test_two_loops_in_two_threads_share_a_store(valkey_url, space):
    """Each has connections of its own, and no step is lost."""
    store = RedisStore(f"{valkey_url}?timeout=60")  # 200 steps on one record, on any machine

    async def many():
        await asyncio.gather(*(store.atransact(space, "k", count) for _ in range(100)))

    in_threads(2, lambda _: asyncio.run(many()))
    assert store.read(space, "k")[0] == b"200"
    store.close()


def test_no_more_connections_are_open_than_the_pool_allows(server):
    """Fifty threads and fifty tasks share two and two."""
    store = RedisStore(f"{server.url}?pool=2")
    in_threads(50, lambda number: store.transact("s", f"k{number}", put(b"1")))
    looker = redis.Redis.from_url(server.url)

    async def many():
        await asyncio.gather(*(store.atransact("s", f"k{n}", put(b"2")) for n in range(50)))
        return len(looker.client_list())

    assert asyncio.run(many()) == 2 + 2 + 1
    until(lambda: len(looker.client_list()) == 2 + 1)
    store.close()
    until(lambda: len(looker.client_list()) == 1)
    looker.close()


def test_one_connection_is_enough_for_threads_that_write_one_record(server):
    """Who waits for its turn keeps no connection from the one whose turn it is.

    Two stores, as of two processes: who loses to the other one waits, and gives its connection.
    """
    stores = [RedisStore(f"{server.url}?pool=1&timeout=20") for _ in range(2)]

    def work(number):
        for _ in range(50):
            stores[number % 2].transact("s", "k", count)

    in_threads(8, work)
    assert stores[0].read("s", "k")[0] == b"400"
    for store in stores:
        store.close()


def test_one_connection_is_enough_for_tasks_that_write_one_record(server):
    """The same in an event loop."""
    stores = [RedisStore(f"{server.url}?pool=1&timeout=20") for _ in range(2)]

    async def work(store):
        for _ in range(25):
            await store.atransact("s", "k", count)

    async def main():
        await asyncio.gather(*(work(store) for store in stores * 4))
        return await stores[0].aread("s", "k")

    assert asyncio.run(main())[0] == b"200"
    for store in stores:
        store.close()


def test_one_connection_is_enough_for_a_server_that_has_forgotten_everything(server):
    """The scripts are told again and the space is registered again, within a step."""
    store = RedisStore(f"{server.url}?pool=1")
    looker = redis.Redis.from_url(server.url)
    store.transact("s", "k", put(b"1"))
    looker.script_flush()
    looker.flushall()
    store.transact("s", "k", put(b"2"))
    assert store.read("s", "k")[0] == b"2"
    assert looker.smembers("mainstay:spaces") == {b"s"}
    store.close()
    looker.close()


def test_a_connection_that_dies_within_a_step_is_made_anew(server):
    """Between the reading and the writing; the writing is carried out once."""
    store, looker = RedisStore(f"{server.url}?pool=1"), redis.Redis.from_url(server.url)

    def cutting(value, now):
        looker.client_kill_filter(_type="normal", skipme=True)
        return count(value, now)

    async def main():
        for _ in range(3):
            await store.atransact("s", "k", cutting)

    for _ in range(3):
        store.transact("s", "k", cutting)
    asyncio.run(main())
    assert store.read("s", "k")[0] == b"6"
    store.close()
    looker.close()


class _Interrupting:
    """Does something instead of the next reading on a connection, or after it."""

    def __init__(self, store, *, reads):
        pool = store._client.connection_pool
        self._connection, self._reads = pool.get_connection(), reads
        pool.release(self._connection)

    def raises(self, error, *, at):
        """The n-th reading from now on raises; it has read the reply, or it has not."""
        plain, left = self._connection.read_response, [at]

        def read_response(*args, **kwargs):
            left[0] -= 1
            if left[0]:
                return plain(*args, **kwargs)
            del self._connection.read_response
            if self._reads:
                plain(*args, **kwargs)
                self._connection.disconnect()
            raise error

        self._connection.read_response = read_response


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("of a signal's handler")])
def test_a_reply_that_nobody_read_is_not_taken_for_another(server, error):
    """Ctrl+C between asking and reading: what comes late belongs to nobody."""
    store = RedisStore(f"{server.url}?pool=1")
    for key in ("a", "b", "c"):
        store.transact("s", key, put(key.encode()))
    _Interrupting(store, reads=False).raises(error, at=1)
    with contextlib.closing(redis.Redis.from_url(server.url)) as other:
        other.client_pause(300)  # so that the reply is not there when the next one asks
    with pytest.raises((type(error), StoreUnavailable)):
        store.read("s", "a")
    assert [store.read("s", key)[0] for key in ("b", "c", "a")] == [b"b", b"c", b"a"]
    store.close()


@pytest.mark.parametrize("is_held", [False, True], ids=["plain", "held"])
def test_a_write_whose_reply_was_lost_is_not_made_twice(server, is_held, monkeypatch):
    """The connection died with the reply; the server knows the write by its token."""
    store = RedisStore(server.url)
    store.transact("s", "k", put(b"6"))
    if is_held:
        monkeypatch.setattr("mainstay.stores.redis.protocol.Contention.hold", lambda _self: 5000)
    _Interrupting(store, reads=True).raises(redis.ConnectionError("gone"), at=2)
    store.transact("s", "k", count)
    assert store.read("s", "k")[0] == b"7"
    with contextlib.closing(redis.Redis.from_url(server.url)) as other:
        assert not other.keys("*!*")  # nobody holds it
    store.close()


def test_a_step_on_an_unchanged_record_costs_one_round_trip_and_a_write_two(server):
    """Counted by the server."""
    store, looker = RedisStore(server.url), redis.Redis.from_url(server.url)
    store.transact("s", "k", put(b"1"))

    def cost(decide):
        before = calls()
        store.transact("s", "k", decide)
        return calls() - before

    def calls():
        told = looker.info("commandstats")
        return sum(
            told.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval")
        )

    assert cost(lambda value, now: (KEEP, None)) == 1
    assert cost(put(b"2")) == 2
    store.close()
    looker.close()


# --- trio, cancellation, forks --------------------------------------------------------------------


def test_it_works_under_trio(store, space):
    """In a worker thread."""

    async def main():
        await store.atransact(space, "k", put(b"1"))
        return await store.aread(space, "k")

    assert trio.run(main)[0] == b"1"


def test_a_cancelled_step_leaves_the_store_as_good_as_before(server):
    """No reply of a cancelled step is taken for another's, and no connection is lost."""
    store = RedisStore(f"{server.url}?pool=2")

    async def main():
        for number in range(20):
            await store.atransact("s", f"k{number}", put(str(number).encode()))
        server.pause()
        tasks = [asyncio.create_task(store.aread("s", f"k{number}")) for number in range(6)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        server.resume()
        assert all(isinstance(error, asyncio.CancelledError) for error in ended)
        found = await asyncio.gather(*(store.aread("s", f"k{number}") for number in range(20)))
        assert [value for value, _ in found] == [str(number).encode() for number in range(20)]

    asyncio.run(main())
    store.close()


def test_a_step_cancelled_while_it_waits_for_a_connection_keeps_nobody_waiting(server):
    """The one that was told of a free connection is cancelled; the next has it."""

    async def main():
        store = RedisStore(f"{server.url}?pool=1&timeout=30")
        await store.atransact("s", "k", put(b"1"))
        pool = (await store._loops.client())[0].connection_pool
        connection = await pool.get_connection()
        first, second = [asyncio.create_task(store.aread("s", "k")) for _ in range(2)]
        await asyncio.sleep(0.05)  # until both wait
        await pool.release(connection)
        first.cancel()
        async with asyncio.timeout(10.0):
            assert (await second)[0] == b"1"
        assert first.cancelled()
        store.close()

    asyncio.run(main())


def test_a_step_cancelled_while_it_waits_for_its_turn_keeps_nobody_waiting(store, space):
    """The one after it goes on."""

    async def main():
        tasks = [asyncio.create_task(store.atransact(space, "k", count)) for _ in range(20)]
        await asyncio.sleep(0.005)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.atransact(space, "k", put(b"last"))

    asyncio.run(main())
    assert store.read(space, "k")[0] == b"last"


def test_a_forked_child_has_connections_of_its_own(store, space):
    """Parent and child use the store at the same time without harm."""
    store.transact(space, "k", put(b"parent"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork among threads, from 3.12 on
        child = os.fork()
    if child == 0:
        try:
            for _ in range(50):
                store.transact(space, "n", count)
            asyncio.run(store.atransact(space, "task", put(b"task")))
        finally:
            os._exit(0)
    for _ in range(50):
        store.transact(space, "n", count)
    os.waitpid(child, 0)
    assert store.read(space, "n")[0] == b"100"
    assert store.read(space, "task")[0] == b"task"


def test_closing_leaves_no_socket_and_no_thread(valkey_url, space):
    """Whoever used it, and however their loops stand."""
    before, threads = sockets(), set(threading.enumerate())
    store = RedisStore(valkey_url)
    in_threads(5, lambda number: store.transact(space, f"k{number}", put(b"1")))
    asyncio.run(store.atransact(space, "k", put(b"1")))
    standing = asyncio.new_event_loop()
    standing.run_until_complete(store.atransact(space, "k", put(b"1")))

    async def inside():
        await store.atransact(space, "k", put(b"1"))
        store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.aread(space, "k")

    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(store.atransact(space, "k", put(b"1")), running).result(60)
    asyncio.run(inside())
    standing.run_until_complete(asyncio.sleep(0))
    store.close()
    running.call_soon_threadsafe(running.stop)
    thread.join(60)
    for loop in (running, standing):
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.transact(space, "k", put(b"2"))
    assert sockets() <= before
    assert set(threading.enumerate()) <= threads


# --- a server that is away, slow or restarted -----------------------------------------------------


def test_what_was_written_outlives_a_kill_of_the_server(tmp_path):
    """With appendfsync always, kill -9 right after the step loses nothing."""
    server = start_valkey(tmp_path, True, "--appendfsync", "always")
    store = RedisStore(server.url)
    do = lambda command: store.transact("s", "k", does(command))  # noqa: E731
    assert isinstance(do(Begin("a", "f", 30.0, 3)), Run)
    server.kill()
    with pytest.raises(StoreUnavailable, match="could not write"):
        do(Begin("b", "f", 30.0, 3))
    server.start()
    assert isinstance(do(Begin("b", "f", 30.0, 3)), Busy)
    do(Settle("a", 1, RecordState.SUCCEEDED, b"1", 3600.0))
    server.kill()
    server.start()
    assert do(Begin("b", "f", 30.0, 3)) == Replay(RecordState.SUCCEEDED, b"1")
    assert [key for key, _ in store.scan("s")] == ["k"]
    store.close()
    server.kill()


def test_with_everysec_what_is_a_second_old_outlives_a_kill(tmp_path):
    """The log is written with every command and flushed every second."""
    server = start_valkey(tmp_path, True, "--appendfsync", "everysec")
    store = RedisStore(server.url)
    store.transact("s", "k", put(b"1"))
    looker = redis.Redis.from_url(server.url)
    until(lambda: looker.info("persistence")["aof_pending_bio_fsync"] == 0)
    server.kill()
    server.start()
    assert store.read("s", "k")[0] == b"1"
    assert store.describe()["appendonly"] == "yes"
    assert store.describe()["appendfsync"] == "everysec"
    store.close()
    looker.close()
    server.kill()


def test_a_server_that_stands_still_is_told_of_in_time(server):
    """In sync and async steps; when it goes on, so does the store."""
    store = RedisStore(f"{server.url}?timeout=0.5")
    in_the_end(lambda: store.transact("s", "k", put(b"1")))
    server.pause()
    started = SYSTEM.monotonic()
    for _ in range(2):  # the second has to connect anew
        with pytest.raises(StoreUnavailable, match=r"no answer within 0\.5 s"):
            store.transact("s", "k", put(b"2"))
    with pytest.raises(StoreUnavailable, match=r"no answer within 0\.5 s"):
        asyncio.run(store.atransact("s", "k", put(b"2")))
    assert SYSTEM.monotonic() - started < 30.0
    server.resume()
    assert in_the_end(lambda: store.read("s", "k"))[0] is not None
    assert in_the_end(lambda: asyncio.run(store.aread("s", "k")))[0] is not None
    store.close()


def test_waiting_for_a_connection_counts_as_time(server):
    """Sixty threads on one connection to a server that stands still all end in time."""
    store = RedisStore(f"{server.url}?timeout=0.5&pool=1")
    in_the_end(lambda: store.read("s", "k"))
    server.pause()
    told = []

    def ask(_):
        with pytest.raises(StoreUnavailable) as caught:
            store.read("s", "k")
        told.append(caught.value.reason)

    started = SYSTEM.monotonic()
    in_threads(60, ask)
    assert SYSTEM.monotonic() - started < 20.0, "one after another they would take 30"
    assert len(told) == 60
    server.resume()
    in_the_end(lambda: store.read("s", "k"))
    store.close()


def test_a_server_that_is_not_there_is_told_of_at_once(server):
    """And when it is there again, the same store works."""
    store = RedisStore(server.url)
    server.stop()
    with pytest.raises(StoreUnavailable, match="is the server running"):
        store.read("s", "k")
    with pytest.raises(StoreUnavailable, match="is the server running"):
        asyncio.run(store.aread("s", "k"))
    server.start()
    store.transact("s", "k", put(b"1"))
    assert asyncio.run(store.aread("s", "k"))[0] == b"1"
    store.close()


def test_scripts_that_the_server_forgot_are_given_again(store, space, client):
    """After SCRIPT FLUSH everything works, sync and async."""
    for _ in range(2):
        client.script_flush()
        store.transact(space, "k", count)
        client.script_flush()
        asyncio.run(store.atransact(space, "k", count))
        client.script_flush()
        store.transact(space, "other", put(b"1"))
        client.script_flush()
        store.transact(space, "other", lambda value, now: (DROP, None))
    assert store.scan(space) == [("k", b"4")]


def test_a_replica_is_refused_even_for_reading(tmp_path, server):
    """It may be behind; after it became the primary, the same store works."""
    (tmp_path / "replica").mkdir()
    primary = redis.Redis.from_url(server.url)
    primary.config_set("repl-diskless-sync-delay", 0)
    primary.close()
    replica = start_valkey(tmp_path / "replica", False, "--replicaof", f"127.0.0.1 {server.port}")
    store = RedisStore(replica.url)
    looker = redis.Redis.from_url(replica.url)
    until(lambda: looker.info("replication")["master_link_status"] == "up")
    with pytest.raises(StoreUnavailable, match="this is a replica"):
        store.transact("s", "k", lambda value, now: (KEEP, None))
    with pytest.raises(StoreUnavailable, match="this is a replica"):
        asyncio.run(store.atransact("s", "k", put(b"1")))
    assert store.describe()["role"] == "slave"
    looker.replicaof("NO", "ONE")
    store.transact("s", "k", put(b"1"))
    store.close()
    looker.close()
    replica.kill()


def test_full_memory_is_told_of_and_what_is_there_can_be_read_and_dropped(server):
    """Nothing is lost, and the way out is open."""
    store, looker = RedisStore(server.url), redis.Redis.from_url(server.url)
    store.transact("s", "k", put(b"1"))
    looker.config_set("maxmemory", "1mb")
    with pytest.raises(StoreUnavailable, match="its memory is full"):
        store.transact("s", "new", put(b"x" * 100_000))
    assert store.read("s", "k")[0] == b"1"
    store.transact("s", "k", lambda value, now: (DROP, None))
    assert store.scan("s") == []
    looker.config_set("maxmemory", "0")
    store.transact("s", "new", put(b"x"))
    store.close()
    looker.close()


def test_a_password_is_needed_and_never_shown(tmp_path):
    """Without it and with a wrong one the reason is told; no message has it."""
    server = start_valkey(tmp_path, False, "--requirepass", "s3cret")
    place = f"127.0.0.1:{server.port}/0"
    for address, told in (
        (f"redis://{place}", "wants a password"),
        (f"redis://:wr0ng@{place}", "the user or password is wrong"),
        (f"redis://{place}?password=wr0ng", "the user or password is wrong"),
    ):
        store = RedisStore(address)
        for ask in (
            lambda s=store: s.read("s", "k"),
            lambda s=store: asyncio.run(s.aread("s", "k")),
        ):
            with pytest.raises(StoreUnavailable, match=told) as caught:
                ask()
            shown = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
            assert "wr0ng" not in shown
        store.close()
    store = RedisStore(f"redis://:s3cret@{place}?timeout=0.5")
    in_the_end(lambda: store.transact("s", "k", put(b"1")))
    assert "s3cret" not in repr(store.describe()) + store.url
    server.pause()
    with pytest.raises(StoreUnavailable) as caught:
        store.read("s", "k")
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    store.close()
    server.kill()


def test_a_node_of_a_cluster_takes_the_spaces_of_its_slots(tmp_path):
    """All keys of a step are in one slot; a space of another node is told of as such."""
    nodes = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        nodes.append(start_valkey(tmp_path / name, False, "--cluster-enabled", "yes"))
    first, second = (redis.Redis.from_url(node.url) for node in nodes)
    first.execute_command("CLUSTER ADDSLOTSRANGE", 0, 8191)
    second.execute_command("CLUSTER ADDSLOTSRANGE", 8192, 16383)
    store = RedisStore(nodes[0].url)
    with pytest.raises(StoreUnavailable, match="its cluster is down"):
        store.read("s", "k")
    first.execute_command("CLUSTER MEET", "127.0.0.1", nodes[1].port)
    until(lambda: first.cluster("INFO")["cluster_state"] == "ok", 60)
    slots = {n: first.execute_command("CLUSTER KEYSLOT", f"mainstay:{{{n}}}:k") for n in range(9)}
    mine = next(str(n) for n, slot in slots.items() if slot < 8192)
    foreign = next(str(n) for n, slot in slots.items() if slot >= 8192)
    with pytest.raises(StoreUnavailable, match="one node of a cluster"):
        store.read(foreign, "k")
    store._spaces.add(mine)  # the list of spaces has a slot of its own
    in_threads(8, lambda _: store.transact(mine, "k", count))
    assert store.read(mine, "k")[0] == b"8"
    for client in (first, second):
        client.close()
    store.close()
    for node in nodes:
        node.kill()


def test_what_cannot_be_staged_here_is_explained_too(valkey_url):
    """Protected mode, loading and a lost disk, as servers word them."""
    store = RedisStore(valkey_url)
    for error, told in (
        (redis.ConnectionError("DENIED Redis is running in protected mode"), "its own machine"),
        (redis.BusyLoadingError("Redis is loading the dataset in memory"), "has just started"),
        (redis.ResponseError("MISCONF Errors writing to the AOF file"), "write to its disk"),
        (redis.ResponseError("something new"), "something new"),
    ):
        assert told in _explained(error, store, store.timeout)
    store.close()


def test_an_eviction_policy_is_warned_of_once(server):
    """Records would be dropped when memory is full."""
    looker = redis.Redis.from_url(server.url)
    looker.config_set("maxmemory-policy", "allkeys-lru")
    store = RedisStore(server.url)
    with pytest.warns(MainstayWarning, match="allkeys-lru"):
        store.read("s", "k")
    store.read("s", "k")  # a second warning would be an error
    assert store.describe()["maxmemory_policy"] == "allkeys-lru"
    store.close()
    looker.close()


# --- clocks and expiry ----------------------------------------------------------------------------


def test_wrong_clocks_of_clients_do_not_matter(valkey_url, store, space, monkeypatch):
    """A lease is judged by the server's clock: a client an hour ahead takes nothing over."""
    other = RedisStore(valkey_url)
    assert isinstance(store.transact(space, "k", does(Begin("a", "f", 30.0, 3))), Run)
    for wrong in (3600.0, -3600.0):
        real = time.time()
        monkeypatch.setattr(time, "time", lambda now=real + wrong: now)
        answer = other.transact(space, "k", does(Begin("b", "f", 30.0, 3)))
        assert isinstance(answer, Busy)
        assert 0.0 < answer.retry_after <= 30.0
    other.close()


def test_the_server_drops_what_nobody_has_purged_by_itself(store, space, client):
    """A week after it has expired; and nothing without a time, nor what was written again so."""
    store.transact(space, "gone", put(b"1", 60.0))
    store.transact(space, "kept", put(b"2", 60.0))
    store.transact(space, "kept", put(b"3"))
    assert 604_800 < client.ttl(f"mainstay:{{{space}}}:gone") <= 604_861
    assert client.pttl(f"mainstay:{{{space}}}:kept") == -1


def dropped(client, space, key):
    """What the server has dropped by itself."""
    assert client.delete(f"mainstay:{{{space}}}:{key}") == 1


def test_scanning_passes_over_what_was_dropped_and_forgets_it(store, space, client):
    """A page is full as long as there are records, and the index gets shorter."""
    for number in range(30):
        store.transact(space, f"{number:02}", put(b"x", 0.01 if number % 3 else None))
        if number % 3:
            dropped(client, space, f"{number:02}")
    assert [key for key, _ in store.scan(space, limit=4)] == ["00", "03", "06", "09"]
    assert len(store.scan(space)) == 10
    assert client.zcard(f"mainstay:{{{space}}}") == 10
    assert client.zcard(f"mainstay:{{{space}}}~") == 0


def test_purging_drops_what_has_expired_within_its_limit(server):
    """It says how many; what was written again meanwhile stays."""
    store, looker = RedisStore(server.url), redis.Redis.from_url(server.url)
    for number in range(12):
        store.transact(f"s{number % 2}", f"k{number}", put(b"x", 0.01))
    store.transact("s0", "later", put(b"x", 3600.0))
    dropped(looker, "s1", "k1")
    written = store.read("s0", "later")[1]
    until(lambda: store.read("s0", "later")[1] > written + 0.02)
    store.transact("s0", "k0", put(b"again"))
    assert store.purge(5) == 5
    assert store.purge(1000) == 6
    assert store.purge(1000) == 0
    assert [key for key, _ in store.scan("s0")] == ["k0", "later"]
    assert looker.zcard("mainstay:{s1}") == 0
    store.close()
    looker.close()


def test_purging_finds_its_spaces_after_a_flush(server):
    """A process that wrote before the flush registers its spaces again."""
    store, looker = RedisStore(server.url), redis.Redis.from_url(server.url)
    store.transact("s", "k", put(b"x", 0.01))
    looker.flushall()
    store.transact("s", "k", put(b"x", 0.01))
    purged = []
    until(lambda: purged.append(store.purge(10)) or sum(purged))
    assert sum(purged) == 1
    store.close()
    looker.close()


def test_a_record_made_again_is_another_record(store, space, client):
    """Equal values do not deceive a step that read the one before: every write has a new token."""
    store.transact(space, "k", put(b"same"))
    first = client.get(f"mainstay:{{{space}}}:k")
    rounds = []

    def decide(value, now):
        if not rounds:
            store._client.delete(f"mainstay:{{{space}}}:k")
            asyncio.run(store.atransact(space, "k", put(b"same")))
        rounds.append(value)
        return Change(b"new"), None

    store.transact(space, "k", decide)
    assert len(rounds) == 2
    assert client.get(f"mainstay:{{{space}}}:k")[:12] != first[:12]


# --- keys, values, addresses ----------------------------------------------------------------------


@pytest.mark.parametrize("space", ["", "{", "}", "{}", "a{b}c", "a:b", "%7B", "é\n", "\ud800"])
def test_any_text_is_a_space(store, space):
    """And none is another's, nor mixed up with an index."""
    name = uuid.uuid4().hex
    for key in (name, name + "}", name + "\ud800", name + "\U0001f600"):
        store.transact(space, key, put(key.encode("utf-8", "surrogatepass")))
    found = store.scan(space, after=name[:-1])
    assert [key for key, _ in found if key.startswith(name)] == sorted(
        [name, name + "}", name + "\ud800", name + "\U0001f600"]
    )
    for key, value in found:
        if key.startswith(name):
            assert value == key.encode("utf-8", "surrogatepass")
            store.transact(space, key, lambda value, now: (DROP, None))


def test_a_value_of_many_megabytes_comes_back(store, space):
    """Sync and async, byte for byte."""
    data = os.urandom(1024) * 8192
    store.transact(space, "k", put(data))
    assert store.read(space, "k")[0] == data
    assert asyncio.run(store.atransact(space, "k", put(b""))) == data
    assert store.read(space, "k")[0] == b""


def test_a_value_that_the_server_does_not_take_is_told_of(server):
    """By the server's own limit, and the store goes on."""
    store, looker = RedisStore(server.url), redis.Redis.from_url(server.url)
    store.read("s", "k")  # which reads its limit too
    looker.config_set("proto-max-bulk-len", "1mb")
    with pytest.raises((StoreUnavailable, ValueTooLarge)):  # it may cut the connection instead
        store.transact("s", "k", put(b"x" * 2_000_000))
    store.transact("s", "k", put(b"x"))
    store.close()
    looker.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:p@h:1/2?timeout=3", "redis://u@h:1/2"),
        ("valkey://h", "valkey://h"),
        ("rediss://:p@h/0?ssl_cert_reqs=none&db=1", "rediss://h/0"),
        ("valkeys://h:6380?password=p", "valkeys://h:6380"),
    ],
)
def test_an_address_is_shown_without_secrets(url, shown):
    """Neither in the URL nor in its options."""
    store = RedisStore(url)
    assert store.url == shown
    store.close()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://h?tiemout=1", "tiemout is no option"),
        ("redis://h?timeout=soon", "timeout = 'soon'"),
        ("redis://h?pool=0", "pool = '0'"),
        ("redis:///0", "is no address"),
        ("http://u:secret@h", "is no address"),
    ],
)
def test_a_wrong_address_is_refused(url, told):
    """When it is given, not when it is used."""
    with pytest.raises(StoreError, match=told) as caught:
        RedisStore(url)
    assert "secret" not in str(caught.value)


def test_options_reach_whom_they_are_for(server):
    """Ours stay here, theirs go to the client."""
    store = RedisStore(f"{server.url}?timeout=2&pool=3&prefix=my:&client_name=me&db=1")
    looker = redis.Redis.from_url(server.url)
    store.transact("s", "k", put(b"1"))
    assert (store.timeout, store.pool, store.prefix) == (2.0, 3, "my:")
    assert {told["name"] for told in looker.client_list()} >= {"me"}
    looker.select(1)
    assert sorted(looker.keys()) == [b"my:spaces", b"my:{s}", b"my:{s}:k"]
    store.close()
    looker.close()


def test_errors_of_a_decision_come_back_as_they_are(store, space):
    """Also those that look like a client's or a timeout."""
    for error in (redis.ConnectionError("mine"), OSError("mine"), TimeoutError("mine")):

        def decide(value, now, error=error):
            raise error

        with pytest.raises(type(error)) as caught:
            store.transact(space, "k", decide)
        assert caught.value is error
        with pytest.raises(type(error)) as caught:
            asyncio.run(store.atransact(space, "k", decide))
        assert caught.value is error


def test_out_of_descriptors_is_told_of(server):
    """And when there are some again, the store works."""
    store = RedisStore(server.url)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    held = [os.dup(0) for _ in range(highest)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held), limits[1]))
    try:
        with pytest.raises(StoreUnavailable):
            store.read("s", "k")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for number in held:
            os.close(number)
    store.read("s", "k")
    store.close()


def test_a_step_that_always_loses_ends_in_time(valkey_url, space, monkeypatch):
    """Somebody who ignores holds writes between its reading and its writing, every time."""
    store = RedisStore(f"{valkey_url}?timeout=30")
    rude = redis.Redis.from_url(valkey_url)
    later = [0.0]  # seconds that the clock is ahead: the time ends between two commands
    ahead = SimpleNamespace(monotonic=lambda: SYSTEM.monotonic() + sum(later), sleep=SYSTEM.sleep)
    monkeypatch.setattr(redis_telling, "SYSTEM", ahead)

    def decide(value, now):
        rude.set(f"mainstay:{{{space}}}:k", os.urandom(16))
        later.append(5.0)
        return Change(b"mine"), None

    with pytest.raises(StoreUnavailable, match="within 30 s: it lost every race to write"):
        store.transact(space, "k", decide)
    assert 3 < len(later) < 8, "rounds of five seconds, and what they took"
    store.close()
    rude.close()


def test_a_user_who_may_not_ask_about_the_server_may_use_it(server):
    """What it is not told is unknown; what it may not do is explained."""
    looker = redis.Redis.from_url(server.url)
    looker.execute_command(*"ACL SETUSER app on >pw ~mainstay:* +@all -info -config".split())
    looker.execute_command(*"ACL SETUSER other on >pw ~other:* +@all -info -config".split())
    store = RedisStore(f"redis://app:pw@127.0.0.1:{server.port}/0")
    store.transact("s", "k", put(b"1"))
    assert store.purge() == 0
    assert store.describe()["maxmemory_policy"] == "unknown"
    assert store.describe()["appendfsync"] == "none"
    store.close()
    store = RedisStore(f"redis://other:pw@127.0.0.1:{server.port}/0")
    with pytest.raises(StoreUnavailable, match="its ACL"):
        store.transact("s", "k", put(b"1"))
    store.close()
    looker.close()


def test_closing_ends_what_is_under_way(server):
    """A step that waits for an answer is told that the store was closed."""
    store = RedisStore(server.url)
    store.scan("s")
    server.pause()
    told = []

    def ask():
        with pytest.raises(StoreUnavailable) as caught:
            store.read("s", "k")
        told.append(caught.value.reason)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: store._client.connection_pool.pool.qsize() < store.pool)
    time.sleep(0.05)  # for the command to be on its way
    store.close()
    thread.join(30.0)
    assert told == ["it was closed"]
    server.resume()


def test_a_turn_that_does_not_come_is_told_of(server):
    """Two steps of one process on one record, while the server stands still."""
    store = RedisStore(f"{server.url}?timeout=3")
    in_the_end(lambda: store.transact("s", "k", put(b"1")))

    def decide(value, now):
        server.pause()
        time.sleep(0.1)  # both have read
        return Change(b"2"), None

    def ask(_):
        with pytest.raises(StoreUnavailable, match="no answer within"):
            store.transact("s", "k", decide)

    in_threads(2, ask)
    server.resume()
    in_the_end(lambda: store.transact("s", "k", put(b"3")))
    store.close()


def test_a_value_beyond_the_limit_is_refused_by_name(store, space, monkeypatch):
    """Before it is sent."""
    store.read(space, "k")
    monkeypatch.setattr(store, "max_value", 10)
    with pytest.raises(ValueTooLarge, match=r"a value of 11 bytes .* takes 10 bytes at most"):
        store.transact(space, "k", put(b"x" * 11))
    assert store.read(space, "k")[0] is None


def test_an_old_server_is_refused(store, space, monkeypatch):
    """Its scripts cannot say that they write, so that a replica would answer."""
    monkeypatch.setattr("mainstay.stores.redis.store._OLDEST", 99)
    with pytest.raises(StoreUnavailable, match=r"99\.0 or later is needed"):
        store.read(space, "k")
