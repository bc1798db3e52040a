"""The interceptors of grpc, against a real server."""

import asyncio
import json
import warnings

import grpc
import grpc.aio
import pytest

import mainstay
from mainstay import Backoff, Engine, RetryPolicy, deadline
from mainstay.errors import MainstayWarning
from mainstay.integrations import grpc as hands
from mainstay.integrations import http_headers
from mainstay.integrations.idempotency_key import keyed_call
from tests.integrations.errors.grpc_server import GrpcServer
from tests.processes import wait_until


@pytest.fixture(scope="module")
def running():
    """One for the module."""
    server = GrpcServer()
    yield server
    server.stop()


@pytest.fixture
def server(running):
    """The server, with nothing of the test before."""
    running.begin()
    return running


def three(**fields):
    """A policy of three attempts that does not wait."""
    return RetryPolicy(**{"attempts": 3, "backoff": Backoff.constant(0), **fields})


@pytest.fixture
def intercepted(server):
    """Makes a channel through an interceptor."""
    channels = []

    def make(*given, **options):
        channel = grpc.insecure_channel(server.target)
        channels.append(channel)
        return grpc.intercept_channel(channel, hands.ClientInterceptor(*given, **options))

    yield make
    for channel in channels:
        channel.close()


def in_aio(server, work, *given, **options):
    """Runs a coroutine function with a channel of asyncio."""

    async def main():
        made = hands.aio_interceptors(*given, **options)
        async with grpc.aio.insecure_channel(server.target, interceptors=made) as channel:
            return await work(channel)

    return asyncio.run(main())


def test_a_call_is_repeated_until_it_succeeds(server, intercepted):
    """The program makes one call; the server sees three."""
    server.begin("UNAVAILABLE", "ABORTED", "echo")
    echo = intercepted(three()).unary_unary("/t.T/echo")
    assert echo(b"hello", timeout=60) == b"hello"
    assert server.seen["echo"] == 3


def test_a_call_of_asyncio_is_repeated_until_it_succeeds(server):
    """The same, by another interface."""
    server.begin("UNAVAILABLE", "ABORTED", "echo")

    async def work(channel):
        return await channel.unary_unary("/t.T/echo")(b"hello", timeout=60)

    assert in_aio(server, work, three()) == b"hello"
    assert server.seen["echo"] == 3


@pytest.mark.parametrize(("code", "calls"), [("NOT_FOUND", 1), ("UNAVAILABLE", 3)])
def test_the_last_failure_is_raised_as_grpc_does(server, intercepted, code, calls):
    """A program that catches grpc.RpcError goes on working."""
    with pytest.raises(grpc.RpcError) as caught:
        intercepted(three()).unary_unary(f"/t.T/{code}")(b"", timeout=60)
    assert caught.value.code() is grpc.StatusCode[code]
    assert server.seen[code] == calls

    async def work(channel):
        await channel.unary_unary(f"/t.T/{code}")(b"", timeout=60)

    server.begin()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        in_aio(server, work, three())
    assert caught.value.code() is grpc.StatusCode[code]
    assert server.seen[code] == calls


def test_the_time_that_is_left_becomes_the_timeout(server, intercepted):
    """The server reads it from grpc's own header; the shorter one counts."""
    echo = intercepted(three()).unary_unary("/t.T/echo")
    with deadline.within(1000):
        echo(b"")
        echo(b"", timeout=500)
        echo(b"", timeout=6000)
    bare, short, long = server.left
    assert 900 < bare < 1010  # grpc rounds a timeout up on its way
    assert 400 < short < 510
    assert 900 < long < 1010

    async def work(channel):
        with deadline.within(1000):
            await channel.unary_unary("/t.T/echo")(b"")

    in_aio(server, work)
    assert 900 < server.left[-1] < 1010


def test_a_server_that_never_answers_is_given_up_on_at_the_deadline(server, intercepted):
    """The call itself names no timeout."""
    hang = intercepted(three()).unary_unary("/t.T/hang")
    with deadline.within(1.5), pytest.raises((grpc.RpcError, mainstay.DeadlineExceeded)):
        hang(b"")
    wait_until(lambda: server.seen["hang"] == 1, "the call at the server")

    async def work(channel):
        with deadline.within(1.5):
            await channel.unary_unary("/t.T/hang")(b"")

    with pytest.raises((grpc.RpcError, mainstay.DeadlineExceeded)):
        in_aio(server, work, three())


def test_a_server_of_ours_gets_the_number_of_the_attempt(server, intercepted):
    """As metadata, beside that of the call; others get nothing."""
    server.begin("UNAVAILABLE", "echo")
    echo = intercepted(three(), trusted=True).unary_unary("/t.T/echo")
    echo(b"", timeout=60, metadata=(("tenant", "a"),))
    assert [each["mainstay-attempt"] for each in server.metadata] == ["1", "2"]
    assert [each["tenant"] for each in server.metadata] == ["a", "a"]

    async def work(channel):
        metadata = grpc.aio.Metadata(("tenant", "a"))
        await channel.unary_unary("/t.T/echo")(b"", timeout=60, metadata=metadata)

    server.begin("UNAVAILABLE", "echo")
    in_aio(server, work, three(), trusted=True)
    assert [each["mainstay-attempt"] for each in server.metadata] == ["1", "2"]
    assert [each["tenant"] for each in server.metadata] == ["a", "a"]
    server.begin()
    intercepted(three()).unary_unary("/t.T/echo")(b"", timeout=60)
    assert "mainstay-attempt" not in server.metadata[0]


def test_a_server_of_ours_gets_the_key_of_the_call(server, intercepted):
    """The same for each attempt; one that the call has already is left."""
    server.begin("UNAVAILABLE", "echo")
    echo = intercepted(three(), trusted=True).unary_unary("/t.T/echo")
    with keyed_call("order-7"):
        echo(b"", timeout=60)
    assert [each["idempotency-key"] for each in server.metadata] == ["order-7", "order-7"]

    async def work(channel):
        with keyed_call("order-8"):
            metadata = grpc.aio.Metadata(("idempotency-key", "own"))
            await channel.unary_unary("/t.T/echo")(b"", timeout=60, metadata=metadata)
            await channel.unary_unary("/t.T/echo")(b"", timeout=60)

    server.begin()
    in_aio(server, work, three(), trusted=True)
    assert [each["idempotency-key"] for each in server.metadata] == ["own", "order-8"]
    server.begin()
    with keyed_call("order-9"):
        intercepted(three()).unary_unary("/t.T/echo")(b"", timeout=60)
    assert "idempotency-key" not in server.metadata[0]


def test_a_stream_is_bounded_and_not_repeated(server, intercepted):
    """Part of it may have been read."""
    stream = intercepted(three()).unary_stream("/t.T/stream")
    read = []
    with pytest.raises(grpc.RpcError):
        read.extend(stream(b"", timeout=60))
    assert server.seen["stream"] == 1

    async def work(channel):
        return [each async for each in channel.unary_stream("/t.T/stream")(b"", timeout=60)]

    with pytest.raises(grpc.aio.AioRpcError):
        in_aio(server, work, three())
    assert server.seen["stream"] == 2


def test_a_future_is_not_waited_for(server, intercepted):
    """It would no longer be one."""
    call = intercepted(three()).unary_unary("/t.T/hang").future(b"", timeout=60)
    assert not call.done()
    call.cancel()


class Done:
    """A call of grpc that has failed at once."""

    def done(self):
        return True

    def result(self):
        raise AssertionError("nobody waits for it here")


def test_a_future_that_has_failed_at_once_is_not_repeated():
    """It does so on a port where nobody listens, on some days; the caller was held then."""
    calls, done = [], Done()

    class MultiCallable:
        def future(self):
            def continuation(_details, _request):
                calls.append(1)
                return done

            return continuation

    details = grpc.aio.ClientCallDetails("/t.T/echo", None, None, None, None)
    made = hands.ClientInterceptor(three())
    assert made.intercept_unary_unary(MultiCallable().future(), details, b"") is done
    assert calls == [1]


def test_grpc_makes_a_future_in_the_function_of_that_name(server, intercepted, monkeypatch):
    """By which it is known; the program still gets the call itself."""
    kinds = []
    known = hands._is_future
    monkeypatch.setattr(hands, "_is_future", lambda made: kinds.append(known(made)) or kinds[-1])
    echo = intercepted(three()).unary_unary("/t.T/echo")
    assert echo.future(b"x", timeout=60).result() == b"x"
    assert echo(b"x", timeout=60) == b"x"
    assert echo.with_call(b"x", timeout=60)[0] == b"x"
    assert kinds == [True, False, False]


@pytest.mark.parametrize("field", ["deadline", "attempt_timeout"])
def test_a_call_that_is_not_repeated_has_the_limit_of_the_policy(server, intercepted, field):
    """A stream, and a future; the shorter one counts."""
    policy = three(**{field: 300.0})
    channel = intercepted(policy)
    with pytest.raises(grpc.RpcError):
        list(channel.unary_stream("/t.T/stream")(b""))
    channel.unary_unary("/t.T/echo").future(b"").result()
    channel.unary_unary("/t.T/echo").future(b"", timeout=100).result()
    with deadline.within(200):
        channel.unary_unary("/t.T/echo").future(b"").result()

    async def work(channel):
        return [each async for each in channel.unary_stream("/t.T/stream")(b"")]

    with pytest.raises(grpc.aio.AioRpcError):
        in_aio(server, work, policy)
    limits = [round(each, -2) for each in server.left]
    assert limits == [300.0, 300.0, 100.0, 200.0, 300.0]


def test_so_has_one_of_an_operation(server, intercepted):
    """The policy is that of the engine."""
    with Engine(policies=[three(name="short", deadline=300.0)], operations={"o": "short"}) as made:
        channel = intercepted(made, operation="o")
        with pytest.raises(grpc.RpcError):
            list(channel.unary_stream("/t.T/stream")(b""))
    assert round(server.left[0], -2) == 300.0


def test_without_a_policy_one_attempt_is_made(server, intercepted):
    """The deadline is handed on all the same."""
    with deadline.within(30), pytest.raises(grpc.RpcError):
        intercepted().unary_unary("/t.T/UNAVAILABLE")(b"")
    assert server.seen["UNAVAILABLE"] == 1
    assert server.left[0] < 31


def test_an_engine_makes_the_calls_of_an_operation(server, intercepted):
    """Its policies, circuits and sinks have them."""
    server.begin("UNAVAILABLE", "echo")
    with Engine(policies=[three(name="thrice")], operations={"orders": "thrice"}) as engine:
        echo = intercepted(engine, operation="orders").unary_unary("/t.T/echo")
        assert echo(b"x", timeout=60) == b"x"
    assert server.seen["echo"] == 2


SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.01s",
                "maxBackoff": "0.01s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}


@pytest.mark.parametrize(
    "config",
    [
        None,
        "",
        "no JSON",
        "[]",
        "null",
        7,
        '{"methodConfig": null}',
        '{"methodConfig": 7}',
        '{"methodConfig": [null, 7]}',
        '{"methodConfig": [{"retryPolicy": null}]}',
        '{"methodConfig": [{"retryPolicy": []}]}',
        '{"methodConfig": [{"retryPolicy": {"maxAttempts": "x"}}]}',
        b'{"methodConfig": []}',
    ],
)
def test_a_service_config_without_retries_multiplies_nothing(config):
    """What grpc ignores, or refuses itself, does not keep the interceptor from being made."""
    assert hands.configured_attempts([("grpc.service_config", config)]) == 1


def test_grpcs_own_retries_multiply_ours_and_are_named_once(server, monkeypatch):
    """Four of a service config for each of ours: twelve calls, unless they are turned off."""
    monkeypatch.setattr(http_headers, "_warned", set())
    options = (("grpc.service_config", json.dumps(SERVICE_CONFIG)),)
    with pytest.warns(MainstayWarning, match="4 x 3 = 12"):
        made = hands.ClientInterceptor(three(), options=options)
    with grpc.insecure_channel(server.target, options=options) as channel:
        call = grpc.intercept_channel(channel, made).unary_unary("/t.T/UNAVAILABLE")
        with pytest.raises(grpc.RpcError):
            call(b"", timeout=60)
    assert server.seen["UNAVAILABLE"] == 12
    server.begin()
    options += hands.NO_RETRIES
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = hands.ClientInterceptor(three(), options=options)
    with grpc.insecure_channel(server.target, options=options) as channel:
        call = grpc.intercept_channel(channel, made).unary_unary("/t.T/UNAVAILABLE")
        with pytest.raises(grpc.RpcError):
            call(b"", timeout=60)
    assert server.seen["UNAVAILABLE"] == 3
