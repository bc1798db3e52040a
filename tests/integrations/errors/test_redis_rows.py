"""redis-py and valkey-py: rows of the table that the other tests do not come to.

A stub of RESP answers with the error replies of a server, of a node of a cluster and of a sentinel;
their words are those of Valkey's sources.
"""

import pytest
import redis
import redis.asyncio.sentinel
import redis.cluster
import redis.event
import redis.http.http_client
import redis.sentinel
import valkey
import valkey.asyncio.sentinel
import valkey.cluster
import valkey.sentinel

from tests.integrations.errors.resp_stub import OK, RespStub, client, slots
from tests.integrations.errors.rows import comes_to, raised_by, row_of
from tests.integrations.errors.service_stub import Answer, ServiceStub, dead_port
from tests.servers.http_faults import full_port

BOTH = {"redis": redis, "valkey": valkey}


@pytest.fixture(scope="module")
def stub():
    stub = RespStub()
    yield stub
    stub.close()


ANSWERS = {
    "OOM command not allowed when used memory > 'maxmemory'.": "OutOfMemoryError",
    "LOADING the server is loading the dataset in memory": "BusyLoadingError",
    "BUSY the server is busy running a script.": "",
    "MISCONF the server is configured to save RDB snapshots, but cannot persist on disk": "",
    "NOREPLICAS Not enough good replicas to write.": "",
    "READONLY You can't write against a read only replica.": "ReadOnlyError",
    "TRYAGAIN Multiple keys request during rehashing of slot": "TryAgainError",
    "CLUSTERDOWN Hash slot not served": "ClusterDownError",
    "MASTERDOWN Link with MASTER is down": "MasterDownError",
    "UNBLOCKED force unblock from blocking operation": "",
    "REDIRECT 127.0.0.1:6381": "",
    "NOGOODSLAVE No suitable replica to promote": "",
    "NOGOODREPLICA No suitable replica to promote": "",
    "INPROG Failover already in progress": "",
    "NOQUORUM 1 usable Sentinels. Not enough available Sentinels": "",
    "IOERR error or timeout writing to target instance": "",
    "NOAUTH Authentication required.": "AuthenticationError",
    "WRONGPASS invalid username-password pair": "AuthenticationError",
    "NOPERM this user has no permissions": "NoPermissionError",
    "DENIED the server is running in protected mode": "",
    "MOVED 3999 127.0.0.1:6381": "AskError",
    "ASK 3999 127.0.0.1:6381": "AskError",
    "CROSSSLOT Keys in request don't hash to the same slot": "ClusterCrossSlotError",
    "NOSCRIPT No matching script.": "NoScriptError",
    "EXECABORT Transaction discarded because of previous errors.": "ExecAbortError",
    "ERR Error loading the extension. Please check the server logs.": "ModuleError",
    "ERR wrong number of arguments for 'auth' command": "AuthenticationWrongNumberOfArgsError",
    "ERR max number of clients reached": "ConnectionError phase clients",
    "ERR value is not an integer or out of range": "ResponseError otherwise",
}


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("text", ANSWERS)
def test_what_a_server_answers(stub, name, text):
    """A class of its own, or the first word."""
    stub.answer = f"-{text}\r\n".encode()
    with client(BOTH[name], stub.port) as one:
        error = raised_by(lambda: one.incr("n"))
    row, _ = row_of(error)
    expected = f".{ANSWERS[text]}" if ANSWERS[text] else ".ResponseError"
    assert row.startswith(f"{name}.exceptions")
    assert row.endswith((expected, f"ResponseError code {text.partition(' ')[0]}")), row


@pytest.mark.parametrize("name", BOTH)
def test_a_cluster_that_does_not_serve_every_slot(stub, name):
    """A node answers for a cluster."""
    library = BOTH[name]
    kind = library.RedisCluster if name == "redis" else library.ValkeyCluster
    stub.slots = slots(stub.port, 100)
    settings = {"host": "127.0.0.1", "port": stub.port, "protocol": 2}
    comes_to(
        f"{kind.__name__}Exception phase slots",
        lambda: kind(require_full_coverage=True, **settings),
    )
    partial = kind(require_full_coverage=False, **settings)
    stub.answer = OK
    comes_to("SlotNotCoveredError", lambda: partial.get_node_from_key("a") or partial.incr("a"))
    partial.close()


@pytest.mark.parametrize("name", BOTH)
def test_a_cluster_whose_slots_move_for_ever(stub, name):
    """The client follows a number of redirections."""
    library = BOTH[name]
    kind = library.RedisCluster if name == "redis" else library.ValkeyCluster
    stub.slots = slots(stub.port, 16383)
    whole = kind(host="127.0.0.1", port=stub.port, protocol=2)
    stub.answer = b"-CROSSSLOT Keys in request don't hash to the same slot\r\n"
    comes_to("ClusterCrossSlotError", lambda: whole.incr("a"))
    stub.answer = f"-ASK 1 127.0.0.1:{stub.port}\r\n".encode()
    comes_to("ClusterError", lambda: whole.incr("a"))
    pipeline = whole.pipeline()
    comes_to(f"{kind.__name__}Exception otherwise", lambda: pipeline.mset({"a": 1, "b": 2}))
    if name == "redis":
        pair = whole.pipeline(transaction=True)
        pair.incr("a")
        comes_to("CrossSlotTransactionError", lambda: pair.incr("b").execute())
    whole.close()


@pytest.mark.parametrize("name", BOTH)
def test_pools_sentinels_and_other_protocols(stub, name):
    """What the client decides by itself."""
    library = BOTH[name]
    full = library.ConnectionPool(port=stub.port, max_connections=1, protocol=2)
    waiting = library.BlockingConnectionPool(
        port=stub.port, max_connections=1, timeout=0.01, protocol=2
    )
    exhausted = {
        "redis": "MaxConnectionsError", "valkey": "ConnectionError phase exhausted"
    }[name]  # fmt: skip
    for pool, row in ((full, exhausted), (waiting, "ConnectionError phase pool")):
        taken = pool.get_connection(*([] if name == "redis" else ["PING"]))
        kind = library.Redis
        comes_to(row, kind(connection_pool=pool).ping)
        pool.release(taken)
        pool.disconnect()
    pipeline = client(library, stub.port).pipeline()
    pipeline.multi()
    comes_to("RedisError" if name == "redis" else "ValkeyError", pipeline.multi)
    dead = [("127.0.0.1", dead_port())]
    none = {"retry": library.retry.Retry(library.backoff.NoBackoff(), 0)}
    sentinel = library.sentinel.Sentinel(dead, sentinel_kwargs=none)
    comes_to(f"{name}.sentinel.MasterNotFoundError", lambda: sentinel.discover_master("main"))
    comes_to(f"{name}.sentinel.SlaveNotFoundError", sentinel.slave_for("main", **none).ping)
    with full_port() as port:
        late = client(library, port, socket_connect_timeout=0.05)
        comes_to("TimeoutError phase connecting", late.ping)
    stub.answer = b"HTTP/1.1 400\r\n"
    with client(library, stub.port) as one:
        comes_to("InvalidResponse", lambda: one.incr("n"))
        comes_to("DataError", lambda: one.set("n", object()))
        comes_to("PubSubError", lambda: listened(one))


@pytest.mark.parametrize("name", BOTH)
def test_a_watched_key_that_changed(stub, name):
    """EXEC answers with nothing."""
    with client(BOTH[name], stub.port) as one, one.pipeline() as pipeline:
        pipeline.watch("n")
        pipeline.multi()
        pipeline.set("n", 1)
        comes_to("WatchError otherwise", pipeline.execute)


ASYNC = {"redis": redis.asyncio.sentinel, "valkey": valkey.asyncio.sentinel}


@pytest.mark.parametrize("name", BOTH)
def test_sentinels_of_asyncio(name):
    """Nobody answers."""
    library = BOTH[name]
    retry = library.asyncio.retry.Retry(library.backoff.NoBackoff(), 0)
    none, dead = {"retry": retry}, [("127.0.0.1", dead_port())]

    async def of_primary():
        await ASYNC[name].Sentinel(dead, sentinel_kwargs=none).discover_master("main")

    async def of_replica():
        sentinel = ASYNC[name].Sentinel(dead, sentinel_kwargs=none)
        async with sentinel.slave_for("main", **none) as one:
            await one.ping()

    module = f"{name}.asyncio.sentinel"
    comes_to(f"{module}.MasterNotFoundError", of_primary)
    comes_to(f"{module}.SlaveNotFoundError", of_replica)


def listened(one):
    listener = one.pubsub()
    listener.channels = {b"news": None}
    listener.run_in_thread()


@pytest.mark.parametrize("name", BOTH)
def test_locks(stub, name):
    """A lock that another client holds, that was never acquired, and that was lost."""
    library = BOTH[name]
    with client(library, stub.port) as one:
        held = one.lock("held", timeout=9)
        comes_to("LockError otherwise", held.release)
        held.local.token = b"mine"
        stub.answer = b":0\r\n"
        comes_to("LockNotOwnedError", held.release)
        stub.held = True
        other = one.lock("held", blocking_timeout=0.01, sleep=0.001)
        comes_to("LockError phase acquire", other.__enter__)
        stub.held = False


@pytest.mark.parametrize("name", BOTH)
def test_settings_that_the_server_does_not_support(stub, name):
    """RESP3 on a server that knows RESP2."""
    library = BOTH[name]
    comes_to("ConnectionError phase settings", lambda: library.Connection(protocol=7))


# --- what redis-py alone has ----------------------------------------------------------------------

STATUSES = {str(each): each for each in (401, 403, 407, 408, 425, 429, 500, 502, 503, 504)}
STATUSES |= {"4*": 418, "5*": 505}


@pytest.fixture(scope="module")
def web():
    with ServiceStub() as stub:
        yield stub


@pytest.mark.filterwarnings("ignore:Implicitly cleaning up <HTTPError:ResourceWarning")
@pytest.mark.parametrize("case", STATUSES)
def test_the_rest_api_of_redis_enterprise(web, case):
    """redis-py asks it whether a database is healthy; it leaves the answer open (Python 3.14)."""
    none = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    web.answers(Answer(STATUSES[case]))
    made = redis.http.http_client.HttpClient(web.url, retry=none)
    comes_to(f"HttpError status {case}", lambda: made.get("/v1/bdbs"))


def test_tokens():
    """Of an identity provider."""
    listener = redis.event.RegisterReAuthForSingleConnection()
    comes_to("EventException wraps", lambda: listener._raise_on_error(ConnectionResetError()))
