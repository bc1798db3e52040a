"""redis-py and valkey-py against a real Valkey that fails, and behind a proxy that does.

Raised by a stub of RESP and not by a server: what needs a cluster or sentinels of several nodes
(TRYAGAIN, ASK, MOVED, INPROG, NOGOODSLAVE, NOQUORUM, IOERR, REDIRECT) and DENIED, which needs a
client that is not on loopback. The words are those of the protocol's error replies in Valkey's
src/server.c, src/sentinel.c, src/cluster.c and src/networking.c.
"""

import inspect
import os
import threading
import time

import pytest
import redis
import redis.asyncio
import redis.cluster
import redis.sentinel
import valkey
import valkey.asyncio

from mainstay.testing import FaultProxy
from tests.integrations.errors.brokers import (
    BY_DEFAULT,
    SHORT,
    dead_port,
    hurry,
    judged,
    seen,
    stub,
    tried,
)
from tests.processes import wait_until
from tests.servers.valkey import start_valkey

PATIENT = {"socket_timeout": 60, "socket_connect_timeout": 60}
OPEN = ("--enable-protected-configs", "yes", "--enable-debug-command", "yes")
LOST, SLOW = "transient ambiguous", "timeout ambiguous"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server for what leaves it as it was."""
    server = start_valkey(tmp_path_factory.mktemp("valkey"), False, *OPEN)
    yield server
    server.kill()


@pytest.fixture
def proxy(server):
    """A proxy before the server."""
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


@pytest.fixture
def control(server):
    """A client that arranges what is to fail; nothing of it stays."""
    with client(server.port) as control:
        control.flushall()
        control.config_resetstat()
        yield control


def client(port, library=redis, **settings):
    """A client without retries of its own."""
    none = library.retry.Retry(library.backoff.NoBackoff(), 0)
    return library.Redis(port=port, **{**PATIENT, "retry": none, **settings})


def incr(library):
    """A function that increments over a new connection, sync or async.

    `ready` is called when the connection is there; then it is patient no longer.
    """
    if library in (redis, valkey):

        def once(port, ready=None, settings=()):
            with client(port, library, **dict(settings)) as one:
                if ready is not None:
                    one.ping()
                    hurry(one)
                    ready()
                return one.incr("n")

        return once

    async def aonce(port, ready=None, settings=()):
        parent = redis if library is redis.asyncio else valkey
        none = library.retry.Retry(parent.backoff.NoBackoff(), 0)
        async with library.Redis(port=port, **{**PATIENT, "retry": none, **dict(settings)}) as one:
            if ready is not None:
                await one.ping()
                hurry(one)
                ready()
            return await one.incr("n")

    return aonce


every_client = pytest.mark.parametrize(
    "library",
    [redis, redis.asyncio, valkey, valkey.asyncio],
    ids=["redis", "redis.asyncio", "valkey", "valkey.asyncio"],
)


def table_of(library):
    return library.__name__.partition(".")[0]


# --- the network ----------------------------------------------------------------------------------


@every_client
def test_a_dead_port_is_retried_and_nothing_was_sent(library):
    """Nobody listens: transient, not ambiguous, three attempts."""
    error, count = tried(incr(library), dead_port())
    assert judged(error) == ("transient", table_of(library))
    assert count == 3


@every_client
def test_a_reset_after_sending_is_ambiguous(library, proxy, control):
    """The command was executed and its answer lost: a repetition executes it again."""
    proxy.drop_reply_once(b"INCR")
    assert judged(seen(incr(library), proxy.port)) == (LOST, table_of(library))
    assert control.get("n") == b"1"


@every_client
def test_answers_that_do_not_come_are_timeouts_after_sending(library, proxy, control):
    """The command was executed; the client cannot know."""
    error = seen(incr(library), proxy.port, proxy.drop_replies)
    assert judged(error) == (SLOW, table_of(library))
    wait_until(lambda: control.get("n") == b"1", "the command at the server")


@every_client
def test_a_black_hole_is_a_timeout(library, proxy):
    """It accepts, and never answers."""
    proxy.black_hole()
    run, soon = incr(library), {"socket_timeout": 0.05}
    error, count = tried(run, proxy.port, None, soon, policy=BY_DEFAULT)
    assert judged(error) == (SLOW, table_of(library))
    assert count == 3
    wait_until(lambda: proxy.connections == 3, "the connections at the proxy")


def test_the_retries_of_redis_py_repeat_what_may_have_been_executed(proxy, control):
    """Ten more attempts by default, whatever the command: an INCR counts twice unnoticed."""
    with client(proxy.port, retry=redis.Redis(port=1).get_retry()) as one:
        one.ping()
        proxy.drop_reply_once(b"INCR")
        assert one.incr("n") == 2


# --- a server that ends, hangs, or is not ready ---------------------------------------------------


@pytest.fixture(scope="module")
def mortal(tmp_path_factory):
    """A server that is stopped and killed; it loads slowly, a key in 20 ms, until told."""
    slow = ("--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
    server = start_valkey(tmp_path_factory.mktemp("mortal"), False, *OPEN, *slow)
    yield server
    server.kill()


def test_a_server_that_is_killed_and_restarted(mortal):
    """A lost connection, then none, then a server that is loading; and an answer at last."""
    with client(mortal.port) as one:
        one.mset({f"k{n}": os.urandom(1000) for n in range(3000)})
        one.save()
        mortal.kill()
        found = [seen(one.incr, "n")]
        starting = threading.Thread(target=mortal.start)
        starting.start()
        while True:
            try:
                one.incr("n")
                break
            except redis.BusyLoadingError as error:
                found.append(error)
                one.config_set("key-load-delay", 0)
            except redis.RedisError as error:
                found.append(error)
                time.sleep(0.005)
        starting.join()
        one.flushall()
        one.save()
    kinds = {judged(error)[0] for error in found}
    assert "overload" in kinds
    assert kinds <= {"transient", LOST, "overload", SLOW}
    loading = next(error for error in found if isinstance(error, redis.BusyLoadingError))
    assert judged(loading) == ("overload", "redis")


@every_client
def test_a_server_that_hangs_is_a_timeout(library, mortal):
    """SIGSTOP: the kernel accepts connections, and nobody answers."""
    mortal.pause()
    try:
        assert judged(seen(incr(library), mortal.port, None, {"socket_timeout": SHORT}))[0] == SLOW
    finally:
        mortal.resume()


def test_a_server_that_is_stopped_while_a_command_waits(mortal):
    """An orderly end closes the connection under the command: it may have been executed."""
    with client(mortal.port) as one, client(mortal.port) as other:

        def end():
            wait_until(lambda: other.info("clients")["blocked_clients"] == 1, "a command")
            mortal.stop()

        ending = threading.Thread(target=end)
        ending.start()
        error = seen(one.blpop, "nothing", 0)
        ending.join()
    assert judged(error) == (LOST, "redis")
    mortal.start()


# --- what the server answers ----------------------------------------------------------------------


def rejected(control, command):
    """How often the server refused a command, and how often it failed."""
    stats = control.info("commandstats").get(f"cmdstat_{command}", {})
    return stats.get("rejected_calls", 0) + stats.get("failed_calls", 0)


def test_a_full_server_is_overloaded(control, server):
    """Three attempts arrive and are refused: memory may become free."""
    control.config_set("maxmemory", 1)
    try:
        error, count = tried(incr(redis), server.port)
        assert judged(error) == ("overload", "redis")
        assert (count, rejected(control, "incrby")) == (3, 3)
        assert judged(seen(incr(valkey), server.port)) == ("overload", "valkey")
    finally:
        control.config_set("maxmemory", 0)


def test_a_wrong_type_is_final(control, server):
    """One attempt: the answer would be the same."""
    control.rpush("n", "x")
    error, count = tried(incr(redis), server.port)
    assert judged(error) == ("permanent", "redis")
    assert (count, rejected(control, "incrby")) == (1, 1)


def test_credentials_that_are_wrong_missing_or_not_enough(control, server):
    """Authentication failures are final."""
    control.acl_setuser("reader", enabled=True, passwords=["+secret"], commands=["+get"], keys="*")
    control.config_set("requirepass", "secret")
    control.execute_command("AUTH", "secret")
    try:
        for settings in ({"password": "wrong"}, {}, {"username": "reader", "password": "secret"}):
            error, count = tried(lambda s=settings: incr(redis)(server.port, None, s))
            assert (judged(error), count) == (("auth", "redis"), 1), settings
            assert judged(seen(lambda s=settings: incr(valkey)(server.port, None, s)))[0] == "auth"
    finally:
        control.config_set("requirepass", "")


def test_too_few_replicas(control, server):
    """NOREPLICAS: writes are refused until a replica is connected."""
    control.config_set("min-replicas-to-write", 1)
    try:
        error, count = tried(incr(redis), server.port)
        assert (judged(error), count) == (("overload", "redis"), 3)
        assert rejected(control, "incrby") == 3
    finally:
        control.config_set("min-replicas-to-write", 0)


def test_a_server_that_cannot_save(control, server, tmp_path):
    """MISCONF: writes are refused, in a pipeline too, where the text begins otherwise."""
    (tmp_path / "gone").mkdir()
    before = control.config_get("dir")["dir"]
    control.config_set("dir", str(tmp_path / "gone"))
    (tmp_path / "gone").rmdir()
    control.config_set("save", "3600 1")
    try:
        control.bgsave()
        while control.info("persistence")["rdb_last_bgsave_status"] != "err":
            time.sleep(0.005)
        assert judged(seen(incr(redis), server.port)) == ("overload", "redis")
        pipeline = control.pipeline(transaction=False).incr("n")
        assert judged(seen(pipeline.execute)) == ("overload", "redis")
    finally:
        control.config_set("save", "")
        control.config_set("dir", before)


def test_a_replica_refuses_writes_and_stale_reads(control, server):
    """READONLY is what the old primary answers after a failover; MASTERDOWN without its primary."""
    waiting = client(server.port)
    taken = []
    thread = threading.Thread(target=lambda: taken.append(seen(waiting.blpop, "nothing", 0)))
    thread.start()
    while control.info("clients")["blocked_clients"] != 1:
        time.sleep(0.005)
    control.replicaof("127.0.0.1", dead_port())
    try:
        thread.join()
        assert judged(taken[0]) == ("transient", "redis")
        error, count = tried(incr(redis), server.port)
        assert (judged(error), count) == (("transient", "redis"), 3)
        assert judged(seen(incr(valkey), server.port)) == ("transient", "valkey")
        control.config_set("replica-serve-stale-data", "no")
        assert judged(seen(control.get, "n")) == ("overload", "redis")
    finally:
        control.config_set("replica-serve-stale-data", "yes")
        control.replicaof("NO", "ONE")
        waiting.close()


def test_a_script_keeps_the_server_busy(control, server):
    """BUSY until the script ends or is killed."""
    control.config_set("busy-reply-threshold", 1)
    endless = threading.Thread(target=seen, args=[client(server.port).eval, "while true do end", 0])
    endless.start()
    try:
        wait_until(lambda: is_busy(control), "the script")
        assert judged(seen(incr(redis), server.port)) == ("overload", "redis")
    finally:
        control.script_kill()
        endless.join()


def is_busy(control):
    try:
        return not control.ping()
    except redis.ResponseError:
        return True


def test_too_many_clients(control, server):
    """The server has no room for one more: overload."""
    before = control.config_get("maxclients")["maxclients"]
    control.config_set("maxclients", 1)
    try:
        assert judged(seen(incr(redis), server.port)) == ("overload", "redis")
        assert judged(seen(incr(valkey), server.port)) == ("overload", "valkey")
    finally:
        control.config_set("maxclients", before)


def test_a_node_of_a_cluster_without_slots(tmp_path):
    """CLUSTERDOWN is worth another attempt, keys of different slots are not."""
    server = start_valkey(tmp_path, False, "--cluster-enabled", "yes")
    try:
        error, count = tried(incr(redis), server.port)
        assert (judged(error), count) == (("overload", "redis"), 3)
        with client(server.port) as one:
            one.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            assert judged(seen(one.mget, "a", "b")) == ("permanent", "redis")
    finally:
        server.kill()


NOT_BY_ONE_SERVER = [
    ("TRYAGAIN Multiple keys request during rehashing of slot", "transient"),
    ("MASTERDOWN Link with MASTER is down", "overload"),
    ("ASK 3999 127.0.0.1:6381", "permanent"),
    ("MOVED 3999 127.0.0.1:6381", "permanent"),
    ("REDIRECT 127.0.0.1:6381", "transient"),
    ("INPROG Failover already in progress", "overload"),
    ("NOGOODSLAVE No suitable replica to promote", "overload"),
    ("NOGOODREPLICA No suitable replica to promote", "overload"),
    ("NOQUORUM 1 usable Sentinels. Not enough available Sentinels", "overload"),
    ("IOERR error or timeout writing to target instance", LOST),
    ("DENIED the server is running in protected mode", "auth"),
    ("ERR problem with LDAP service", "overload"),
    ("ERR wrong number of arguments for 'auth' command", "auth"),
    ("ERR Error unloading module: no such module with that name", "permanent"),
    ("ERR no such fieldset", "permanent"),
    ("OOM command not allowed when used memory > 'maxmemory'.", "overload"),
]


def test_answers_that_one_server_does_not_give():
    """The first word decides, and the texts that redis-py has classes for."""
    answers = iter(())

    def handle(wire):
        while request := wire.recv(4096):
            first = b"INCR" not in request
            wire.sendall(b"+OK\r\n" * max(1, request.count(b"SETINFO")) if first else next(answers))

    with stub(handle) as port:
        for text, kind in NOT_BY_ONE_SERVER:
            answers = iter([f"-{text}\r\n".encode()])
            with client(port, protocol=2) as one:
                assert judged(seen(one.incr, "n")) == (kind, "redis"), text


# --- what redis-py decides by itself --------------------------------------------------------------


def test_transactions_locks_and_scripts(control):
    """A changed key is worth the whole transaction again; a held lock is waited for."""
    pipeline = control.pipeline()
    pipeline.watch("n")
    pipeline.multi()
    pipeline.incr("n")
    control.set("n", 1)
    assert judged(seen(pipeline.execute)) == ("transient", "redis")
    control.lock("held").acquire()
    other = control.lock("held", blocking_timeout=0.01, sleep=0.001)
    assert judged(seen(other.__enter__)) == ("timeout", "redis")
    assert judged(seen(other.release)) == ("permanent", "redis")
    lost = control.lock("lost", timeout=60)
    lost.acquire()
    control.delete("lost")
    assert judged(seen(lost.release)) == ("permanent", "redis")
    assert judged(seen(control.evalsha, "0" * 40, 0)) == ("permanent", "redis")
    assert judged(seen(control.set, "n", object())) == ("permanent", "redis")
    listener = control.pubsub()
    listener.subscribe("news")
    assert judged(seen(listener.run_in_thread)) == ("permanent", "redis")
    listener.close()
    refused = control.pipeline().set("n", 1)
    refused.execute_command("NO SUCH COMMAND")
    assert judged(seen(refused.execute)) == ("permanent", "redis")


def test_a_transaction_that_is_lost_while_it_watches_is_ambiguous(proxy, control):
    """The class is that of a changed key; its text has the difference."""
    with client(proxy.port) as one:
        pipeline = one.pipeline()
        pipeline.watch("n")
        pipeline.multi()
        pipeline.incr("n")
        proxy.drop_reply_once(b"EXEC")
        assert judged(seen(pipeline.execute)) == (LOST, "redis")
    assert control.get("n") == b"1"


def test_pools_that_are_empty(server):
    """Nothing was sent: no connection was free."""
    full = redis.ConnectionPool(port=server.port, max_connections=1)
    blocking = redis.BlockingConnectionPool(port=server.port, max_connections=1, timeout=0.01)
    for pool, kind in ((full, "overload"), (blocking, "timeout")):
        taken = pool.get_connection()
        assert judged(seen(redis.Redis(connection_pool=pool).ping)) == (kind, "redis")
        pool.release(taken)
        pool.disconnect()


def test_sentinels_and_clusters_that_are_not_there(server):
    """Nobody knows a primary; no node is reachable; a server that is no cluster."""
    none = {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), **PATIENT}
    sentinel = redis.sentinel.Sentinel([("127.0.0.1", dead_port())], sentinel_kwargs=none)
    assert judged(seen(sentinel.discover_master, "main")) == ("transient", "redis")
    assert judged(seen(sentinel.slave_for("main", **none).ping)) == ("transient", "redis")
    for port, kind in ((dead_port(), "transient"), (server.port, "permanent")):
        error = seen(lambda p=port: redis.RedisCluster(host="127.0.0.1", port=p, **none))
        assert judged(error) == (kind, "redis")


def test_something_that_is_no_redis():
    """An answer of another protocol is final."""

    def handle(wire):
        wire.recv(4096)
        wire.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with stub(handle) as port:
        assert judged(seen(incr(redis), port))[0] == "permanent ambiguous"


def test_a_certificate_that_is_not_accepted_is_final(server):
    """A server without TLS never answers its handshake: a timeout, and nothing was sent."""
    soon = {"ssl": True, "socket_timeout": SHORT, "socket_connect_timeout": SHORT}
    assert judged(seen(incr(redis), server.port, None, soon)) == ("timeout", "redis")
    text = "Error 1 connecting to h:1. [SSL: CERTIFICATE_VERIFY_FAILED] unable to get issuer."
    assert judged(redis.ConnectionError(text)) == ("permanent", "redis")


def test_the_asyncio_client_is_judged_by_the_same_table(server):
    """One table for both: the classes are the same."""

    async def wrong_type():
        async with redis.asyncio.Redis(port=server.port, **PATIENT) as one:
            await one.set("text", "x")
            await one.lpush("text", 1)

    error, count = tried(wrong_type)
    assert (judged(error), count) == (("permanent", "redis"), 1)
    assert inspect.iscoroutinefunction(wrong_type)
