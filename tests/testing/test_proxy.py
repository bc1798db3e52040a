"""The fault proxy: every fault, against a small server with real sockets."""

import asyncio
import contextlib
import errno
import gc
import socket
import socketserver
import threading
import time
import warnings
from pathlib import Path

import pytest

from mainstay.errors import PolicyError, UsageError
from mainstay.testing import virtual_time
from mainstay.testing.proxy import FaultProxy

SOON = 30.0
"""Seconds that anything here may take at most."""
A_MOMENT = 0.15
"""Seconds in which an answer on loopback would have come."""


class Lines(socketserver.StreamRequestHandler):
    """Answers each line with `re: ` and the line; keeps it; `stop` ends the connection."""

    def handle(self):
        with contextlib.suppress(ConnectionError):
            for line in self.rfile:
                self.server.heard.append(line)
                if line == b"stop\n":
                    return
                self.wfile.write(b"re: " + line)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, handler=Lines):
        super().__init__(("127.0.0.1", 0), handler)
        self.heard = []
        self.thread = threading.Thread(target=self.serve_forever, args=[0.01], daemon=True)
        self.thread.start()

    def server_close(self):
        self.shutdown()
        self.thread.join(SOON)
        super().server_close()


@pytest.fixture
def server():
    with Server() as running:
        yield running


@pytest.fixture
def proxy(server):
    with FaultProxy(*server.server_address) as running:
        yield running


@contextlib.contextmanager
def connected(proxy):
    """A blocking socket to the proxy."""
    with socket.create_connection((proxy.host, proxy.port), timeout=SOON) as client:
        yield client


def said(client, line=b"hello\n"):
    """What comes back for a line."""
    client.sendall(line)
    return received(client, len(line) + 4)


def received(client, size):
    """So many bytes, or fewer where the stream ends."""
    data = b""
    while len(data) < size and (more := client.recv(size - len(data))):
        data += more
    return data


def hears_nothing(client):
    """Whether nothing comes for a moment."""
    client.settimeout(A_MOMENT)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(SOON)
    return False


def ended(client):
    """How the stream ends: b"" or a reset."""
    try:
        return client.recv(1)
    except ConnectionResetError:
        return "reset"


def is_reset_on_arrival(proxy):
    """Whether a new connection is reset; a quick reset is seen while it is being made."""
    try:
        with connected(proxy) as client:
            return ended(client) == "reset"
    except ConnectionResetError:
        return True


def until(condition):
    """Waits for something that another thread does."""
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


# --- without faults -------------------------------------------------------------------------------


def test_it_passes_everything_both_ways(server, proxy):
    """Without a fault a client sees what it would see without the proxy, and it is counted."""
    with connected(proxy) as first, connected(proxy) as second:
        assert said(first) == b"re: hello\n"
        assert said(second, b"you\n") == b"re: you\n"
        assert said(first, b"again\n") == b"re: again\n"
        assert (proxy.connections, proxy.open_connections) == (2, 2)
    assert server.heard == [b"hello\n", b"you\n", b"again\n"]
    assert (proxy.bytes_to_server, proxy.bytes_to_client) == (16, 28)
    until(lambda: proxy.open_connections == 0)


def test_asyncio_streams_pass_from_the_tests_own_loop(proxy):
    """The proxy has a loop of its own, so a test's loop may wait for it."""

    async def talk():
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
        writer.write(b"hello\n")
        first = await reader.readline()
        proxy.latency(0.01)
        writer.write(b"again\n")
        second = await reader.readline()
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            await reader.readline()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        return first, second

    answers = asyncio.run(asyncio.wait_for(talk(), SOON))
    assert answers == (b"re: hello\n", b"re: again\n")


def test_the_end_of_a_stream_passes_one_way_at_a_time(proxy):
    """A client that has said all it has to say still hears the rest."""
    with connected(proxy) as client:
        client.sendall(b"one\ntwo\n")
        client.shutdown(socket.SHUT_WR)
        assert received(client, 100) == b"re: one\nre: two\n"


def test_a_server_that_hangs_up_is_heard(proxy):
    """The end of the server's stream reaches the client."""
    with connected(proxy) as client:
        client.sendall(b"stop\n")
        assert client.recv(1) == b""


def test_megabytes_arrive_whole(proxy):
    """Nothing is lost or mixed up where buffers fill and empty."""
    line = b"x" * 3_000_000 + b"\n"
    with connected(proxy) as client:
        sender = threading.Thread(target=client.sendall, args=[line])
        sender.start()
        assert received(client, len(line) + 4) == b"re: " + line
        sender.join(SOON)


def shrunk(made):
    """A socket for which the kernel keeps 64 KB each way, twice with its own bookkeeping."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    return made


def kept_by_the_kernel():
    """Megabytes that it keeps at most for one socket, received and to be sent."""
    limits = [Path(f"/proc/sys/net/ipv4/tcp_{kind}mem") for kind in "rw"]
    if not all(each.exists() for each in limits):
        return 16
    return sum(int(each.read_text(encoding="ascii").split()[2]) for each in limits) // 10**6 + 1


def test_who_does_not_read_is_not_read_for(proxy, server):
    """Backpressure: the proxy keeps 4 MB each way at most, and then lets the server wait."""
    shrunk(server.socket)  # as are those that it accepts
    most = 2 * (4 + kept_by_the_kernel()) + 8
    with connected(proxy) as client:
        shrunk(client).settimeout(0.5)
        line = b"x" * 999_999 + b"\n"
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 2 * most:
                client.sendall(line)
                sent += 1
        assert sent <= most


def test_a_server_that_is_not_there_resets_the_client():
    """What the proxy cannot pass on, it does not pretend to."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, but it does not listen
        with FaultProxy(*nobody.getsockname()) as proxy:
            assert is_reset_on_arrival(proxy)


def test_each_address_of_a_name_is_tried(server):
    """`localhost` may be an address of IPv6 first, where nobody listens."""
    with FaultProxy("localhost", server.server_address[1]) as proxy, connected(proxy) as client:
        assert said(client) == b"re: hello\n"


def test_a_client_that_vanishes_is_told_to_the_server():
    """A reset from the client is a reset for the server."""
    heard = []

    class Waits(socketserver.BaseRequestHandler):
        def handle(self):
            heard.append("begun")
            heard.append(ended(self.request))

    with Server(Waits) as server, FaultProxy(*server.server_address) as proxy:
        with connected(proxy) as client:
            until(lambda: heard)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        until(lambda: len(heard) == 2)
    assert heard == ["begun", "reset"]


# --- faults ---------------------------------------------------------------------------------------


def test_latency_delays_a_round_trip_until_it_is_healed(proxy):
    """What is under way when it is healed arrives at once."""
    with connected(proxy) as client:
        proxy.latency(0.1, jitter=0.1)
        began = time.monotonic()
        assert said(client) == b"re: hello\n"
        assert time.monotonic() - began >= 0.1
        proxy.latency(600.0)
        client.sendall(b"again\n")
        assert hears_nothing(client)
        proxy.heal()
        assert received(client, 10) == b"re: again\n"


def test_latency_does_not_limit_how_much_is_under_way(proxy):
    """Requests that follow each other closely are all late by the same, not by the sum."""
    proxy.latency(0.4)
    with connected(proxy) as client:
        began = time.monotonic()
        for number in range(100):
            client.sendall(b"%02d\n" % number)
            time.sleep(0.001)
        assert received(client, 700) == b"".join(b"re: %02d\n" % n for n in range(100))
        assert time.monotonic() - began < 30.0, "one after another, they would take 40"


def test_slow_lets_so_many_bytes_pass_a_second(proxy):
    """And all of them once it is healed."""
    with connected(proxy) as client:
        proxy.slow(200)
        began = time.monotonic()
        assert said(client, b"x" * 30 + b"\n") == b"re: " + b"x" * 30 + b"\n"
        assert time.monotonic() - began >= 0.1
        proxy.slow(0.01)
        client.sendall(b"again\n")
        assert hears_nothing(client)
        proxy.heal()
        assert received(client, 10) == b"re: again\n"


def test_a_black_hole_swallows_and_keeps_connections(server, proxy):
    """Nothing comes back, for open and new connections; healing resets what has lost bytes."""
    with connected(proxy) as before, connected(proxy) as idle:
        assert said(before) == said(idle) == b"re: hello\n"
        proxy.black_hole()
        with connected(proxy) as after:
            for client in (before, after):
                client.sendall(b"lost\n")
                assert hears_nothing(client)
            assert b"lost\n" not in server.heard
            proxy.heal()
            assert ended(before) == ended(after) == "reset"
        assert said(idle) == b"re: hello\n"
        with connected(proxy) as client:
            assert said(client) == b"re: hello\n"


def test_a_black_hole_swallows_a_goodbye(proxy):
    """The server does not hear that the client hung up, until it is healed."""
    with connected(proxy) as client:
        assert said(client) == b"re: hello\n"
        proxy.black_hole()
    time.sleep(A_MOMENT)
    assert proxy.open_connections == 1
    proxy.heal()
    assert proxy.open_connections == 0


def test_a_black_hole_takes_what_was_delayed(server, proxy):
    """What is under way when the hole opens never arrives."""
    with connected(proxy) as client:
        assert said(client) == b"re: hello\n"
        proxy.latency(600.0)
        client.sendall(b"lost\n")
        assert hears_nothing(client)
        proxy.black_hole()
        until(lambda: client.fileno() and next(iter(proxy._hub.connections)).has_lost)
        proxy.heal()
        assert ended(client) == "reset"
    assert server.heard == [b"hello\n"]


def test_reset_ends_all_connections_and_each_new_one(proxy):
    """Until it is healed; then new connections work."""
    with connected(proxy) as first, connected(proxy) as second:
        assert said(first) == said(second)
        proxy.reset()
        assert ended(first) == ended(second) == "reset"
    assert is_reset_on_arrival(proxy)
    proxy.heal()
    with connected(proxy) as client:
        assert said(client) == b"re: hello\n"


def test_refuse_is_a_server_that_was_stopped(proxy):
    """Open connections end, new ones are refused; healed, it has the same port."""
    port = proxy.port
    with connected(proxy) as client:
        assert said(client) == b"re: hello\n"
        proxy.refuse()
        assert client.recv(1) == b""
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((proxy.host, port), timeout=SOON)
    proxy.refuse()
    proxy.heal()
    assert proxy.port == port
    with connected(proxy) as client:
        assert said(client) == b"re: hello\n"


def test_nobody_gets_the_port_while_it_refuses(proxy):
    """The port stays the proxy's own: not even a socket that wants it by name may have it."""
    proxy.refuse()
    with socket.socket() as other, pytest.raises(OSError, match="in use") as caught:
        other.bind((proxy.host, proxy.port))
    assert caught.value.errno == errno.EADDRINUSE


def test_replies_alone_can_be_dropped(server, proxy):
    """The server does its work, and nobody hears of it."""
    with connected(proxy) as client:
        assert said(client) == b"re: hello\n"
        proxy.drop_replies()
        client.sendall(b"done\n")
        assert hears_nothing(client)
        assert server.heard == [b"hello\n", b"done\n"]
        proxy.heal()
        assert ended(client) == "reset"


def test_a_server_that_hangs_up_is_not_heard_where_replies_are_dropped(proxy):
    """The end of its stream is a reply too; when the client goes as well, all is over."""
    proxy.drop_replies()
    with connected(proxy) as client:
        client.sendall(b"stop\n")
        assert hears_nothing(client)
    until(lambda: proxy.open_connections == 0)


def test_one_reply_is_dropped_after_the_request_that_matches(server, proxy):
    """Only that one, on that connection, once; the server has heard the request."""
    proxy.drop_reply_once(b"pay")
    with connected(proxy) as paying, connected(proxy) as other:
        assert said(paying) == said(other) == b"re: hello\n"
        paying.sendall(b"pay 5\n")
        assert ended(paying) == "reset"
        assert said(other, b"pay 6\n") == b"re: pay 6\n"
    assert server.heard.count(b"pay 5\n") == 1
    with connected(proxy) as client:
        assert said(client, b"pay 7\n") == b"re: pay 7\n"


def test_a_request_in_two_pieces_matches(server, proxy):
    """Bytes are looked for in what a connection has sent, however it was cut up."""
    proxy.drop_reply_once(b"pay now")
    with connected(proxy) as paying, connected(proxy) as other:
        paying.sendall(b"pay ")
        until(lambda: proxy.bytes_to_server == 4)
        assert said(other, b"now\n") == b"re: now\n"
        paying.sendall(b"now\n")
        assert ended(paying) == "reset"
    assert b"pay now\n" in server.heard


def test_a_function_says_which_request_it_is_and_what_is_next(server, proxy):
    """Both run in the proxy's thread, where faults can be switched too."""
    seen, threads = [], []

    def is_third(data):
        seen.append(data)
        threads.append(threading.current_thread().name)
        return len(seen) == 3

    proxy.drop_reply_once(is_third, then=proxy.refuse)
    with connected(proxy) as client:
        assert said(client, b"1\n") == b"re: 1\n"
        assert said(client, b"2\n") == b"re: 2\n"
        client.sendall(b"3\n")
        assert ended(client) in (b"", "reset")
    assert seen == server.heard == [b"1\n", b"2\n", b"3\n"]
    assert set(threads) == {"mainstay-fault-proxy"}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((proxy.host, proxy.port), timeout=SOON)


def test_earlier_replies_arrive_before_the_one_that_is_dropped(proxy):
    """Also where they are late."""
    proxy.latency(0.2)
    proxy.drop_reply_once(b"second")
    with connected(proxy) as client:
        client.sendall(b"first\n")
        time.sleep(0.15)
        client.sendall(b"second\n")
        assert received(client, 10) == b"re: first\n"
        assert ended(client) == "reset"


def test_healing_disarms_a_trap(proxy):
    """A reply that was to be lost is not, whether its request was seen or not."""
    proxy.drop_reply_once(b"hello")
    proxy.heal()
    with connected(proxy) as client:
        assert said(client) == b"re: hello\n"
        proxy.drop_reply_once(b"half")
        client.sendall(b"half")
        until(lambda: proxy.bytes_to_server == 10)
        proxy.heal()
        assert said(client, b" done\n") == b"re: half d"
        assert received(client, 4) == b"one\n"


@pytest.mark.parametrize("where", ["after", "then"])
def test_what_a_function_raises_comes_out_at_the_end(server, where):
    """A mistake in a test's own function is not lost in the proxy's thread."""

    def fails(*_):
        raise OSError("a mistake")

    functions = (fails, None) if where == "after" else (b"hello", fails)
    proxy = FaultProxy(*server.server_address).start()
    proxy.drop_reply_once(*functions)
    with connected(proxy) as client:
        client.sendall(b"hello\n")
        assert ended(client) == "reset"
    with pytest.raises(OSError, match="a mistake"):
        proxy.close()
    proxy.close()


@pytest.mark.parametrize("count", [0, 1, 6, 10])
def test_a_connection_is_cut_after_so_many_bytes(proxy, count):
    """Exactly so many arrive, on open and on new connections; healed, there is no limit."""
    with connected(proxy) as before:
        assert said(before) == b"re: hello\n"
        proxy.cut_after(count)
        with connected(proxy) as after:
            for client in (before, after):
                client.sendall(b"hello\n")
                assert received(client, 100) == b"re: hello\n"[:count]
    proxy.heal()
    with connected(proxy) as client:
        assert said(client) == said(client) == b"re: hello\n"


def test_a_limit_counts_over_replies_and_is_lifted_for_open_connections(proxy):
    """Bytes that passed before it was set do not count."""
    with connected(proxy) as client:
        assert said(client) == b"re: hello\n"
        proxy.cut_after(15)
        assert said(client) == b"re: hello\n"
        proxy.heal()
        assert said(client) == said(client) == b"re: hello\n"


def test_faults_add_up(proxy):
    """Late, slow and cut, all at once."""
    proxy.latency(0.1)
    proxy.slow(1000)
    proxy.cut_after(7)
    began = time.monotonic()
    with connected(proxy) as client:
        client.sendall(b"hello\n")
        assert received(client, 100) == b"re: hel"
    assert time.monotonic() - began >= 0.1


def test_faults_are_switched_from_many_threads(proxy):
    """None is lost, and at the end it works."""

    def switch(number):
        for _ in range(20):
            (proxy.black_hole, proxy.reset, proxy.refuse, proxy.drop_replies)[number]()
            proxy.heal()

    threads = [threading.Thread(target=switch, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert not any(thread.is_alive() for thread in threads)
    with connected(proxy) as client:
        assert said(client) == b"re: hello\n"


# --- the proxy itself -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "proxied"),
    [
        ("redis://h:1", "redis://127.0.0.1:{}"),
        ("postgresql://u:p%40@h/db?timeout=1", "postgresql://u:p%40@127.0.0.1:{}/db?timeout=1"),
        ("nats://token@[::1]:4222", "nats://token@127.0.0.1:{}"),
        ("http://a:1,b:2/x;y?q=a@b#f", "http://127.0.0.1:{}/x;y?q=a@b#f"),
    ],
)
def test_a_url_leads_to_the_proxy_and_keeps_the_rest(proxy, given, proxied):
    """Only host and port are others."""
    assert proxy.url(given) == proxied.format(proxy.port)


def test_it_waits_in_real_time_only(server):
    """Virtual time neither ends its delays early nor is moved by them."""
    with virtual_time() as clock, FaultProxy(*server.server_address) as proxy:
        proxy.latency(0.3)
        with connected(proxy) as client:
            began = time.monotonic()
            assert said(client) == b"re: hello\n"
            assert time.monotonic() - began >= 0.3
    assert clock.elapsed == 0.0


@pytest.mark.parametrize("fault", ["latency", "black_hole", "slow", "refuse", "nothing"])
def test_nothing_is_left_behind(server, fault):
    """No thread and no socket, whatever is wrong and under way when it is closed."""
    threads = set(threading.enumerate())
    proxy = FaultProxy(*server.server_address).start()
    port = proxy.port
    with warnings.catch_warnings(record=True) as told, connected(proxy) as client:
        warnings.simplefilter("always")
        assert said(client) == b"re: hello\n"
        faults = {"latency": 600.0, "slow": 0.01}
        if fault != "nothing":
            getattr(proxy, fault)(*([faults[fault]] if fault in faults else []))
        with contextlib.suppress(ConnectionError):
            client.sendall(b"hello\n")
        proxy.close()
        proxy.close()
        assert {t.name for t in set(threading.enumerate()) - threads} <= handlers()
        gc.collect()
    assert [str(one.message) for one in told] == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=SOON)


def handlers():
    """The threads of the test's own server."""
    return {t.name for t in threading.enumerate() if "process_request" in t.name}


def test_it_must_be_running_to_fail():
    """Before and after, faults say what to do instead."""
    proxy = FaultProxy("127.0.0.1", 1)
    proxy.close()
    with pytest.raises(UsageError, match="not running"):
        proxy.heal()
    with pytest.raises(UsageError, match="no port yet"):
        proxy.url("redis://h")
    with proxy:
        assert proxy.start() is proxy
        proxy.heal()
    with pytest.raises(UsageError, match="not running"):
        proxy.reset()
    with pytest.raises(UsageError, match="was closed"):
        proxy.start()


def test_a_name_that_leads_nowhere_is_told_at_the_start():
    """Not when the first client comes."""
    with pytest.raises(socket.gaierror):
        FaultProxy("no-such-host.invalid", 1).start()


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        ("latency", -1.0),
        ("latency", "1"),
        ("slow", 0),
        ("cut_after", -1),
        ("cut_after", 1.5),
        ("drop_reply_once", b""),
        ("drop_reply_once", "text"),
    ],
)
def test_values_that_make_no_sense_are_refused(proxy, fault, wrong):
    """With the value, and what would do."""
    with pytest.raises((PolicyError, UsageError), match="must be") as caught:
        getattr(proxy, fault)(wrong)
    assert repr(wrong) in str(caught.value)


def test_too_many_connections_are_reset(proxy, monkeypatch):
    """The proxy is bounded too."""
    monkeypatch.setattr("mainstay.testing.proxy.hub._MOST", 1)
    with connected(proxy) as first:
        assert said(first) == b"re: hello\n"
        assert is_reset_on_arrival(proxy)
        assert said(first) == b"re: hello\n"
