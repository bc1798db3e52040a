"""The HTTP server that tests use fails as its scripts demand, and counts requests."""

import http.client
import socket

import pytest

from tests.servers.http_faults import (
    Chunks,
    Close,
    Drip,
    HttpFaults,
    Raw,
    Reset,
    Silence,
    Status,
    dead_port,
    full_port,
)


@pytest.fixture
def server():
    with HttpFaults() as server:
        yield server


def ask(server, path="/x", method="GET", body=None, headers=None, timeout=5.0):
    """One request on a connection of its own: status, headers and body."""
    wire = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    try:
        wire.request(method, path, body, headers or {})
        answer = wire.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        wire.close()


def test_a_script_is_answered_in_order_and_its_end_repeats(server):
    """Requests are kept with method, headers and body; a path without a script gets 404."""
    server.on("/x", Status(503, {"Retry-After": "2"}), Status(200, body=b"done"))
    status, headers, _ = ask(server, method="POST", body=b"order", headers={"X-Key": "k"})
    assert (status, headers["Retry-After"]) == (503, "2")
    assert [ask(server, "/x?page=2")[::2], ask(server)[::2]] == [(200, b"done")] * 2
    assert ask(server, "/y")[0] == 404
    assert (server.count(), server.count("/x"), server.count("/x", "POST")) == (4, 3, 1)
    assert server.seen[0].body == b"order"
    assert server.seen[0].headers["x-key"] == "k"
    server.clear()
    assert (server.count(), ask(server)[0]) == (0, 404)


def test_a_chunked_body_and_a_function_as_answer(server):
    """A function sees the request that it answers."""
    server.on("/x", lambda request: Status(201, body=request.body.upper()))
    assert ask(server, method="PUT", body=iter([b"or", b"der"]))[::2] == (201, b"ORDER")
    assert ask(server, method="HEAD")[2] == b""


def test_an_answer_in_chunks(server):
    """It ends with its last chunk, and the connection lives on."""
    server.on("/x", Chunks(503, (b"a" * 20, b"b")))
    wire = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5.0)
    for _ in range(2):
        wire.request("GET", "/x")
        answer = wire.getresponse()
        assert (answer.status, answer.read()) == (503, b"a" * 20 + b"b")
    wire.close()
    assert server.connections == 1


def test_a_connection_is_kept(server):
    """Two requests of one client share a connection."""
    server.on("/x", Status(200, body=b"1"))
    wire = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    for _ in range(2):
        wire.request("GET", "/x")
        assert wire.getresponse().read() == b"1"
    wire.close()
    assert (server.count("/x"), server.connections) == (2, 1)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Reset(), ConnectionResetError),
        (Close(), http.client.RemoteDisconnected),
        (Silence(), TimeoutError),
        (Drip(every=5.0), TimeoutError),
        (Raw(b"SSH-2.0\r\n"), http.client.BadStatusLine),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), http.client.IncompleteRead),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
def test_each_fault_is_what_a_client_sees(server, answer, error):
    """The request has arrived, and the answer fails in its own way."""
    server.on("/x", answer)
    with pytest.raises(error):
        ask(server, timeout=0.2 if error is TimeoutError else 5.0)
    assert server.count("/x") == 1


@pytest.mark.parametrize(
    "cut",
    [
        b"POST /x HTTP/1.1\r\nContent-Length: 9\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf",
        b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ],
)
def test_a_request_that_is_cut_off_was_not_received(server, cut):
    """Neither in its headers nor in its body: no service would act on it."""
    server.on("/x", Status(200))
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as wire:
        wire.sendall(cut)
        wire.shutdown(socket.SHUT_WR)
        wire.settimeout(30.0)
        assert wire.recv(1) == b""
    assert server.count("/x") == 0


def test_nobody_is_behind_the_ports():
    """A dead port refuses; a full one lets a client wait."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", dead_port()), timeout=5)
    with full_port() as port, pytest.raises(TimeoutError):
        socket.create_connection(("127.0.0.1", port), timeout=0.05)
    server = HttpFaults()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)
