"""grpc: a real server that aborts with each code, hangs, raises, stops, and is not there."""

import ast
import asyncio
import json
import re
import socket
import threading
from datetime import timedelta
from pathlib import Path

import pytest

import mainstay
from mainstay.core.known.kind import Kind
from mainstay.core.retry.classify import Rules, classify
from mainstay.core.retry.kinds import kind_of
from mainstay.integrations.errors.grpc import retry_info
from mainstay.testing import virtual_time
from tests.integrations.errors.model_server import free_port
from tests.integrations.errors.recipe import run_recipe
from tests.processes import wait_until

grpc = pytest.importorskip("grpc")
server_module = pytest.importorskip("tests.integrations.errors.grpc_server")


@pytest.fixture(scope="module")
def server():
    """One for the module."""
    server = server_module.GrpcServer()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def channel(server):
    """A channel to it."""
    with grpc.insecure_channel(server.target) as channel:
        yield channel


def call(channel, method, timeout=60, data=b"ask"):
    """A call with up to three attempts."""
    tries = []

    @mainstay.retry(on=mainstay.transient, attempts=3)
    def ask():
        tries.append(1)
        return channel.unary_unary(f"/t.T/{method}")(data, timeout=timeout)

    with virtual_time():
        try:
            return ask(), None, len(tries)
        except grpc.RpcError as error:
            return error, kind_of(error), len(tries)


CODES = [
    # code, kind, ambiguous, calls
    ("UNAVAILABLE", Kind.TRANSIENT, True, 3),
    ("RESOURCE_EXHAUSTED", Kind.THROTTLED, False, 3),
    ("DEADLINE_EXCEEDED", Kind.TIMEOUT, True, 3),
    ("ABORTED", Kind.TRANSIENT, False, 3),
    ("INTERNAL", Kind.UNKNOWN, True, 1),
    ("UNKNOWN", Kind.UNKNOWN, True, 1),
    ("raise", Kind.UNKNOWN, True, 1),
    ("UNAUTHENTICATED", Kind.AUTH, False, 1),
    ("PERMISSION_DENIED", Kind.AUTH, False, 1),
    ("CANCELLED", Kind.PERMANENT, False, 1),
    ("DATA_LOSS", Kind.PERMANENT, False, 1),
    ("INVALID_ARGUMENT", Kind.PERMANENT, False, 1),
    ("OUT_OF_RANGE", Kind.PERMANENT, False, 1),
    ("UNIMPLEMENTED", Kind.PERMANENT, False, 1),
    ("NOT_FOUND", Kind.PERMANENT, False, 1),
    ("ALREADY_EXISTS", Kind.PERMANENT, False, 1),
    ("FAILED_PRECONDITION", Kind.PERMANENT, False, 1),
]


@pytest.mark.parametrize(("code", "kind", "ambiguous", "calls"), CODES)
def test_a_call_is_judged_by_its_status_code(server, channel, code, kind, ambiguous, calls):
    """The code that a server aborts with decides how often it is called."""
    server.begin()
    _, known, _ = call(channel, code)
    assert (known.kind, known.is_ambiguous, known.table) == (kind, ambiguous, "grpc")
    assert server.seen[code] == calls


@pytest.mark.parametrize(("code", "kind", "ambiguous", "calls"), CODES)
def test_asyncio_raises_another_class_with_the_same_codes(server, code, kind, ambiguous, calls):
    """One table for both."""
    server.begin()

    @mainstay.retry(on=mainstay.transient, attempts=3)
    async def ask(channel):
        return await channel.unary_unary(f"/t.T/{code}")(b"", timeout=60)

    async def main():
        async with grpc.aio.insecure_channel(server.target) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ask(channel)
            return kind_of(caught.value)

    with virtual_time():
        known = asyncio.run(main())
    assert (known.kind, known.is_ambiguous, known.table) == (kind, ambiguous, "grpc")
    assert server.seen[code] == calls


def test_every_status_code_of_grpc_is_judged():
    """A code that a new version adds is noticed."""
    judged = {code for code, *_ in CODES} | {"OK"}
    assert set(grpc.StatusCode.__members__) <= judged


def test_a_dead_port_is_not_ambiguous():
    """Nothing was sent."""
    with grpc.insecure_channel(f"127.0.0.1:{free_port()}") as channel:
        error, known, tries = call(channel, "echo")
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert (known.kind, known.is_ambiguous, tries) == (Kind.TRANSIENT, False, 3)


def test_what_was_certainly_not_carried_out_can_be_named(server, channel):
    """A call that must not be made twice is repeated only if it never left."""
    server.begin("UNAVAILABLE", "echo")
    only = mainstay.retry(on="UNAVAILABLE: not connected", attempts=3)
    with virtual_time(), pytest.raises(grpc.RpcError):
        only(channel.unary_unary("/t.T/echo"))(b"", timeout=60)
    assert server.seen["echo"] == 1
    with grpc.insecure_channel(f"127.0.0.1:{free_port()}") as dead:
        script = [dead.unary_unary("/t.T/echo"), channel.unary_unary("/t.T/echo")]
        with virtual_time():
            assert only(lambda: script.pop(0)(b"hello", timeout=60))() == b"hello"


def test_a_server_of_another_protocol_is_tried_again():
    """The code is that of a server which is not there, and so is the text."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse():
            try:
                while True:
                    peer, _ = listener.accept()
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    peer.close()
            except OSError:
                return

        refusing = threading.Thread(target=refuse, daemon=True)
        refusing.start()
        with grpc.insecure_channel(f"127.0.0.1:{listener.getsockname()[1]}") as channel:
            _, known, _ = call(channel, "echo")
        listener.shutdown(socket.SHUT_RDWR)
        refusing.join()
    assert (known.kind, known.is_ambiguous) == (Kind.TRANSIENT, False)


def test_a_server_that_never_answers_is_an_ambiguous_timeout(server, channel):
    """It may be at work."""
    server.begin()
    error, known, tries = call(channel, "hang", timeout=0.5)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert (known.kind, known.is_ambiguous) == (Kind.TIMEOUT, True)
    assert tries == 3
    wait_until(lambda: server.seen["hang"] >= 1, "a call at the server")


def test_a_server_that_is_killed_in_a_call_is_ambiguous():
    """The call had begun."""
    server = server_module.GrpcServer()

    def stop():
        while not server.seen["hang"]:
            threading.Event().wait(0.005)
        server.kill()

    threading.Thread(target=stop, daemon=True).start()
    with grpc.insecure_channel(server.target) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t.T/hang")(b"", timeout=60)
    server.stop()
    known = kind_of(caught.value)
    assert (known.kind, known.is_ambiguous) == (Kind.TRANSIENT, True), caught.value


def test_a_stream_that_breaks_off_is_judged_by_its_code(channel):
    """The class is another one."""
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.unary_stream("/t.T/stream")(b"", timeout=60))
    assert type(caught.value).__name__ == "_MultiThreadedRendezvous"
    assert kind_of(caught.value).kind is Kind.TRANSIENT


@pytest.mark.parametrize("option", ["send", "receive"])
def test_a_message_that_is_too_large_is_final(server, option):
    """The code is that of a quota; the message stays as large as it is."""
    server.begin()
    limit = [(f"grpc.max_{option}_message_length", 2)]
    with grpc.insecure_channel(server.target, options=limit) as channel:
        error, known, tries = call(channel, "echo", data=b"long")
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (known.kind, tries) == (Kind.PERMANENT, 1)


def test_a_future_that_is_not_waited_for_is_a_timeout(server, channel):
    """The call goes on without anybody."""
    server.begin()
    future = channel.unary_unary("/t.T/hang").future(b"", timeout=60)
    with pytest.raises(grpc.FutureTimeoutError) as caught:
        future.result(timeout=0.01)
    assert (kind_of(caught.value).kind, kind_of(caught.value).is_ambiguous) == (Kind.TIMEOUT, True)
    future.cancel()
    with pytest.raises(grpc.FutureCancelledError) as caught:
        future.result()
    assert kind_of(caught.value).kind is Kind.PERMANENT


PUSHBACK = "grpc-retry-pushback-ms"


def failure(channel, method):
    """The failure of one call."""
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(f"/t.T/{method}")(b"", timeout=60)
    return caught.value


def test_a_pushback_is_waited_for(server, channel):
    """Milliseconds in the trailing metadata (gRFC A6)."""
    server.begin(trailing=((PUSHBACK, "2500"),))
    assert classify(failure(channel, "RESOURCE_EXHAUSTED"), Rules()).hint.seconds == 2.5
    server.begin("UNAVAILABLE", "echo", trailing=((PUSHBACK, "40000"),))
    policy = mainstay.RetryPolicy(retry_on=mainstay.transient)
    with virtual_time() as time:
        policy.call(channel.unary_unary("/t.T/echo"), b"", timeout=60)
    assert time.elapsed >= 40.0


@pytest.mark.parametrize("value", ["-1", "never", ""])
def test_a_pushback_that_is_negative_or_no_number_is_final(server, channel, value):
    """The server asks not to repeat the call."""
    server.begin(trailing=((PUSHBACK, value),))
    error, known, _ = call(channel, "UNAVAILABLE")
    assert known.kind is Kind.PERMANENT
    assert classify(error, Rules()).hint is None
    assert server.seen["UNAVAILABLE"] == 1


def status_with(delay):
    """A google.rpc.Status with a RetryInfo, made by Google's own classes."""
    status = pytest.importorskip("google.rpc.status_pb2").Status(code=8, message="slower")
    details = pytest.importorskip("google.rpc.error_details_pb2")
    help_ = details.Help(links=[details.Help.Link(description="a page", url="http://x")])
    info = details.RetryInfo()
    info.retry_delay.FromTimedelta(delay)
    for each in (help_, info):
        status.details.add().Pack(each)
    return status.SerializeToString()


def test_a_retry_info_is_waited_for(server, channel):
    """Google's services send one with RESOURCE_EXHAUSTED; it is read without protobuf."""
    details = status_with(timedelta(seconds=1, milliseconds=250))
    server.begin(trailing=(("grpc-status-details-bin", details),))
    assert classify(failure(channel, "RESOURCE_EXHAUSTED"), Rules()).hint.seconds == 1.25
    assert retry_info(status_with(timedelta(seconds=-3))) == 0.0


def test_details_that_cannot_be_read_are_no_hint(server, channel):
    """Cut off, of another kind, or none."""
    for details in (b"", b"\x1a\x7f\x0a", b"\x08\x01\x11" + bytes(8), b"\x1a\x02\x08\x01"):
        server.begin(trailing=(("grpc-status-details-bin", details),))
        assert classify(failure(channel, "RESOURCE_EXHAUSTED"), Rules()).hint is None


def test_an_error_without_a_code_is_unknown():
    """A class of the program's own that only derives from grpc's."""
    assert kind_of(grpc.RpcError()).kind is Kind.UNKNOWN


def test_the_recipe_runs(server):
    """The code of the page makes a call to a server that is not available at first."""
    server.begin("UNAVAILABLE", "RESOURCE_EXHAUSTED", "echo", "ABORTED", "echo")
    made = run_recipe("grpc", **{"localhost:50051": server.target})
    assert (made["reply"], made["answer"]) == (b"hello", b"hello")
    assert server.seen["Echo"] == 5


# --- retries of a service config ------------------------------------------------------------------

FOUR = {"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1}
RETRIED = {"retryPolicy": {**FOUR, "retryableStatusCodes": ["UNAVAILABLE"]}, "name": [{}]}
SERVICE_CONFIG = ("grpc.service_config", json.dumps({"methodConfig": [RETRIED]}))
LINE = re.compile(r"options=(\[\(\"grpc.enable_retries\", 0\)\])")


def documented():
    """The options of the line that the page gives."""
    page = Path(__file__).parents[3] / "docs" / "cookbook" / "grpc.md"
    return ast.literal_eval(LINE.search(page.read_text(encoding="utf-8")).group(1))


async def of_asyncio(target, options):
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        await channel.unary_unary("/t.T/UNAVAILABLE")(b"", timeout=60)


def test_the_documented_line_turns_off_grpcs_own_retries(server):
    """Under a plain decorator both multiply: the server counts twelve calls, or three."""
    counts = []
    for options in ([SERVICE_CONFIG], [SERVICE_CONFIG, *documented()]):
        server.begin()
        with grpc.insecure_channel(server.target, options=options) as channel:
            _, _, tries = call(channel, "UNAVAILABLE")
        counts.append((tries, server.seen["UNAVAILABLE"]))
    assert counts == [(3, 12), (3, 3)]


def test_the_documented_line_turns_them_off_with_asyncio(server):
    """The same options."""
    counts = []
    for options in ([SERVICE_CONFIG], [SERVICE_CONFIG, *documented()]):
        server.begin()
        with pytest.raises(grpc.RpcError):
            asyncio.run(of_asyncio(server.target, options))
        counts.append(server.seen["UNAVAILABLE"])
    assert counts == [4, 1]


def test_no_exception_tells_of_grpcs_own_retries(server):
    """If one did, a policy could warn of them, as it does of those of other libraries.

    The server alone is told, by `grpc-previous-rpc-attempts`.
    """
    told = []
    for options in ([SERVICE_CONFIG], [SERVICE_CONFIG, *documented()]):
        server.begin()
        with (
            grpc.insecure_channel(server.target, options=options) as channel,
            pytest.raises(grpc.RpcError) as caught,
        ):
            channel.unary_unary("/t.T/UNAVAILABLE")(b"", timeout=60)
        error = caught.value
        sent = (*error.initial_metadata(), *error.trailing_metadata())
        told.append((sent, error.details(), error.debug_error_string(), str(error)))
        counted = [each.get("grpc-previous-rpc-attempts") for each in server.metadata]
        assert counted == [None, "1", "2", "3"][: server.seen["UNAVAILABLE"]]
    assert told[0] == told[1]
