"""mainstay.integrations.redis: redis-py's own retries, driven by a policy."""

import asyncio
import copy

import pytest
import redis
import redis.asyncio

import mainstay
from mainstay.integrations.redis import AsyncRetry, Retry
from mainstay.testing import FaultProxy
from tests.integrations.errors.brokers import AT_ONCE, dead_port, hurry, judged, seen
from tests.processes import wait_until
from tests.servers.valkey import start_valkey

PATIENT = {"socket_timeout": 60, "socket_connect_timeout": 60}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of its own, whose commands are counted."""
    server = start_valkey(tmp_path_factory.mktemp("valkey"))
    yield server
    server.kill()


@pytest.fixture
def proxy(server):
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


@pytest.fixture
def control(server):
    """A client without the proxy, at an empty server."""
    with redis.Redis(port=server.port) as control:
        control.flushall()
        control.config_resetstat()
        yield control


def calls(control, command):
    return control.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


@pytest.mark.parametrize("kind", [Retry, AsyncRetry])
def test_an_engine_or_an_operation_decides_too(kind):
    """As for the other clients; a copy, which each connection gets, has the same."""
    with mainstay.Engine(policies=[AT_ONCE.replace(name="once")], operations={"o": "once"}) as made:
        for retry in (kind(made, operation="o"), kind(made.operation("o")), kind(AT_ONCE)):
            assert copy.deepcopy(retry).get_retries() == retry.get_retries() == 2
        with redis.Redis(port=dead_port(), retry=Retry(made.operation("o"))) as client:
            with pytest.raises(redis.ConnectionError) as caught:
                client.ping()
            assert "gave up on" in caught.value.__notes__[0]
    for wrong in (None, "x", 3):
        with pytest.raises(mainstay.UsageError, match="must be a RetryPolicy, an Engine"):
            kind(wrong)


def test_the_policy_decides_how_often_a_command_is_sent(proxy, control):
    """Three connections for three attempts, and not eleven, nor thirty-three under a retry."""
    with redis.Redis(port=proxy.port, retry=Retry(AT_ONCE), **PATIENT) as client:
        client.ping()
        hurry(client)
        proxy.drop_replies()
        error = seen(lambda: AT_ONCE.call(lambda: client.incr("n")))
        assert judged(error)[0] == "timeout ambiguous"
    wait_until(lambda: proxy.connections == 3, "the connections")
    wait_until(lambda: control.get("n") == b"1", "the command")


def test_an_asyncio_client_does_the_same(proxy, control):
    """Of the two colours there is one rule."""

    async def run():
        retry = AsyncRetry(AT_ONCE)
        async with redis.asyncio.Redis(port=proxy.port, retry=retry, **PATIENT) as client:
            await client.ping()
            hurry(client)
            proxy.drop_replies()
            await client.incr("n")

    assert judged(seen(run))[0] == "timeout ambiguous"
    wait_until(lambda: proxy.connections == 3, "the connections")
    wait_until(lambda: control.get("n") == b"1", "the command")


def test_the_note_names_redis_and_no_function_of_ours():
    """The command is not known there; the client is."""
    port, note = dead_port(), "mainstay: gave up on redis after 3 attempts: no attempt left"
    with redis.Redis(port=port, retry=Retry(AT_ONCE)) as client:
        assert note in seen(client.get, "n").__notes__

    async def run():
        async with redis.asyncio.Redis(port=port, retry=AsyncRetry(AT_ONCE)) as client:
            await client.get("n")

    assert note in seen(run).__notes__


def test_a_client_by_url_has_no_retries_of_its_own():
    """As the recipe states; a client of `Redis(...)` has ten."""
    for made in (redis, redis.asyncio):
        by_url = made.Redis.from_url("redis://127.0.0.1:1/0")
        assert by_url.connection_pool.make_connection().retry.get_retries() == 0
        assert made.Redis().connection_pool.make_connection().retry.get_retries() == 10


def test_a_lost_answer_is_repeated_on_a_new_connection(proxy, control):
    """One failure, one more attempt; the command was executed twice."""
    with redis.Redis(port=proxy.port, retry=Retry(AT_ONCE), **PATIENT) as client:
        client.ping()
        proxy.drop_reply_once(b"INCR")
        assert client.incr("n") == 2

    async def run():
        retry = AsyncRetry(AT_ONCE)
        async with redis.asyncio.Redis(port=proxy.port, retry=retry, **PATIENT) as client:
            await client.ping()
            proxy.drop_reply_once(b"INCR")
            return await client.incr("n")

    assert asyncio.run(run()) == 4
    assert calls(control, "incrby") == 4


def test_what_the_server_refuses_is_judged_by_the_table(server, control):
    """A full server is asked three times, a wrong type once; redis-py would do neither."""
    with redis.Redis(port=server.port, retry=Retry(AT_ONCE), **PATIENT) as client:
        control.config_set("maxmemory", 1)
        assert judged(seen(client.set, "n", 1)) == ("overload", "redis")
        control.config_set("maxmemory", 0)
        assert control.info("commandstats")["cmdstat_set"]["rejected_calls"] == 3
        control.rpush("list", 1)
        assert judged(seen(client.incr, "list")) == ("permanent", "redis")
        assert control.info("commandstats")["cmdstat_incrby"]["failed_calls"] == 1


def test_a_policy_that_excludes_what_may_have_been_executed(proxy, control):
    """A rule decides, as everywhere: no second INCR after a lost answer."""
    careful = mainstay.RetryPolicy(retry_on=mainstay.transient, never_retry_on=[is_ambiguous])
    with redis.Redis(port=proxy.port, retry=Retry(careful), **PATIENT) as client:
        client.ping()
        proxy.drop_reply_once(b"INCR")
        assert isinstance(seen(client.incr, "n"), redis.ConnectionError)
    assert control.get("n") == b"1"


def is_ambiguous(error):
    """Whether a connection was lost after sending."""
    return "connecting" not in str(error)


def test_a_transaction_that_watches_is_not_repeated_in_part(proxy, control):
    """redis-py raises it at once, since the watches are gone; the policy must not go on."""
    with redis.Redis(port=proxy.port, retry=Retry(AT_ONCE), **PATIENT) as client:
        pipeline = client.pipeline()
        pipeline.watch("n")
        pipeline.multi()
        pipeline.incr("n")
        proxy.drop_reply_once(b"EXEC")
        assert isinstance(seen(pipeline.execute), redis.WatchError)
    assert control.get("n") == b"1"


@pytest.mark.parametrize("between", [True, False])
def test_what_another_client_has_changed_is_not_overwritten(server, control, between):
    """A second EXEC would have no watch: its answer would be taken for that of the first."""
    with redis.Redis(port=server.port, retry=Retry(AT_ONCE), **PATIENT) as client:
        runs = []

        def add(pipeline):
            runs.append(int(pipeline.get("n") or 0))
            if between and len(runs) == 1:
                control.set("n", 5)
            pipeline.multi()
            pipeline.set("n", runs[-1] + 1)

        client.transaction(add, "n")
    assert (runs, control.get("n")) == (([0, 5], b"6") if between else ([0], b"1"))


def test_an_asyncio_client_does_not_overwrite_it_either(server, control):
    """Its transactions have the same watches."""

    async def run():
        retry = AsyncRetry(AT_ONCE)
        async with (
            redis.asyncio.Redis(port=server.port, retry=retry, **PATIENT) as client,
            client.pipeline() as pipeline,
        ):
            await pipeline.watch("n")
            control.set("n", 5)
            pipeline.multi()
            pipeline.set("n", 1)
            await pipeline.execute()

    assert isinstance(seen(run), redis.WatchError)
    assert control.get("n") == b"5"


@pytest.mark.parametrize("transaction", [True, False])
def test_a_pipeline_of_which_a_part_was_executed_is_not_executed_again(
    server, control, transaction
):
    """One command is answered with an error; the counter before it has counted."""
    with redis.Redis(port=server.port, retry=Retry(AT_ONCE), **PATIENT) as client:
        pipeline = client.pipeline(transaction=transaction)
        pipeline.incr("n")
        pipeline.eval("return redis.error_reply('TRYAGAIN not now')", 0)
        error = seen(pipeline.execute)
        assert judged(error) == ("transient", "redis")
    assert control.get("n") == b"1"


def test_errors_that_redis_py_names_as_final_are_final():
    """`is_retryable` of its callers is asked before the policy."""
    failed = []

    def do():
        raise redis.ConnectionError("lost")

    run = Retry(AT_ONCE).call_with_retry
    error = seen(lambda: run(do, failed.append, is_retryable=lambda _error: False))
    assert isinstance(error, redis.ConnectionError)
    assert failed == []
    seen(lambda: run(do, failed.append))
    assert len(failed) == 3

    async def ado():
        raise redis.ConnectionError("lost")

    async def afail(error):
        raise ValueError("while closing") from error

    async def arun():
        await AsyncRetry(AT_ONCE).call_with_retry(ado, afail)

    assert isinstance(seen(arun), ValueError)


def test_a_client_keeps_the_policy_in_its_copies():
    """redis-py copies the retry for each connection, and adds errors to the copy."""
    retry = Retry(AT_ONCE)
    client = redis.Redis(port=1, retry=retry, retry_on_error=[redis.ReadOnlyError])
    copy = client.connection_pool.make_connection().retry
    assert copy.policy is AT_ONCE
    assert copy.get_retries() == 2
    assert redis.ReadOnlyError in copy._supported_errors
    assert redis.ReadOnlyError not in retry._supported_errors
