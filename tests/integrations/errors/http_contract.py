"""What holds for every HTTP client: which failures are repeated, counted at the server.

A test file derives from `HttpContract` and says how its client sends a request.
"""

import asyncio
import inspect
import socket
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime

import pytest

import mainstay
from mainstay import Backoff, Jitter, Kind, RetryPolicy
from mainstay.integrations.errors import table
from tests.processes import wait_until
from tests.servers.http_faults import (
    Close,
    Drip,
    Raw,
    Reset,
    Silence,
    Status,
    dead_port,
    full_port,
)

AT_ONCE = {"backoff": Backoff.constant(0), "jitter": Jitter.none()}
KEY = {"Idempotency-Key": "order-7"}
PATIENT, SHORT = 30.0, 0.1
"""Seconds that a client waits, where it does not matter and where nothing will come."""
CUT = Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
NO_HTTP = Raw(b"SSH-2.0-server\r\n\r\n")
LOST = [Reset(), Close(), NO_HTTP]


def name_of(value):
    return type(value).__name__ if not isinstance(value, int | str) else str(value)


def failure(send, *arguments, **options):
    """How a call ended: the exception, and how often the function was called."""
    calls = []
    policy = RetryPolicy(**{"retry_on": mainstay.transient, "max_attempts": 3} | AT_ONCE | options)

    def counted(*args):
        calls.append(args)
        return send(*args)

    async def counted_async(*args):
        calls.append(args)
        return await send(*args)

    with pytest.raises(Exception) as caught:
        if inspect.iscoroutinefunction(send):
            asyncio.run(policy.acall(counted_async, *arguments))
        else:
            policy.call(counted, *arguments)
    return caught.value, len(calls)


def judged(error):
    """What is known of a failure, without a rule: kind, and whether it may have been applied."""
    verdict = RetryPolicy().classification(error)
    return verdict.kind, verdict.is_ambiguous


def check(cause, name, kind, *, ambiguous=False):
    """What a function raises is of this class, and judged so by the table of its library."""
    error, calls = failure(cause, max_attempts=1)
    assert type(error).__name__ == name, repr(error)
    assert judged(error) == (kind, ambiguous), RetryPolicy().classification(error)
    assert RetryPolicy().classification(error).known is not None, "decided by a table"
    assert calls == 1


@contextmanager
def deaf_port():
    """A port that accepts and never reads: what is sent fills the buffers, and then waits."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@contextmanager
def hanging_up():
    """A port that reads the beginning of a handshake and ends the connection."""

    def serve():
        with suppress(OSError):
            while True:
                wire, _ = listener.accept()
                with wire:
                    wire.recv(4096)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


class HttpContract:
    """The cases; `send(method, url, headers, timeout, connect)` makes one request.

    It raises for 4xx. `timeout` is for an answer, and `connect` for a connection: a test of the
    first must not fail by the second.
    """

    library: str
    base: type
    """The class that all of its errors derive from, or most."""
    status_error: type
    """The class of an answer with a status of 4xx or 5xx."""
    each_get = 1
    """Requests that the client makes by itself for one GET whose connection is lost."""

    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_a_dead_port_is_tried_again(self, method):
        """No connection was made, so nothing was sent: a POST is repeated too."""
        error, calls = failure(self.send, method, f"http://127.0.0.1:{dead_port()}/", {})
        assert judged(error) == (Kind.TRANSIENT, False)
        assert calls == 3

    def test_a_connection_that_is_not_made_in_time_is_tried_again(self):
        """A timeout of connecting is not ambiguous."""
        with full_port() as port:
            error, calls = failure(
                self.send, "POST", f"http://127.0.0.1:{port}/", {}, PATIENT, SHORT, max_attempts=2
            )
        assert judged(error) == (Kind.TIMEOUT, False)
        assert calls == 2

    @pytest.mark.parametrize("answer", LOST, ids=name_of)
    def test_a_get_whose_answer_is_lost_is_repeated(self, server, answer):
        """The method is idempotent, though the request may have been carried out."""
        error, calls = failure(self.send, "GET", server.on("/lost", answer), {})
        assert judged(error) == (Kind.TRANSIENT, True)
        each = 1 if answer is NO_HTTP else self.each_get
        assert (calls, server.count("/lost", "GET")) == (3, 3 * each)

    @pytest.mark.parametrize("answer", LOST, ids=name_of)
    def test_a_post_whose_answer_is_lost_is_repeated_with_a_key_alone(self, server, answer):
        """Without a key the second might be a second order."""
        url = server.on("/lost", answer)
        error, _ = failure(self.send, "POST", url, {})
        assert judged(error) == (Kind.TRANSIENT, True)
        assert server.count("/lost", "POST") == 1
        server.clear()
        failure(self.send, "POST", server.on("/lost", answer), KEY)
        assert server.count("/lost", "POST") == 3
        assert {each.headers["idempotency-key"] for each in server.seen} == {"order-7"}

    def test_a_black_hole_is_a_timeout_after_sending(self, server):
        """A GET is repeated, a POST without a key is not."""
        url = server.on("/hole", Silence())
        error, _ = failure(self.send, "GET", url, {}, SHORT, max_attempts=2)
        assert judged(error) == (Kind.TIMEOUT, True)
        error, _ = failure(self.send, "POST", url, {}, SHORT, max_attempts=2)
        assert judged(error) == (Kind.TIMEOUT, True)
        expected = 2, 1
        wait_until(lambda: server.count("/hole") >= sum(expected), "the requests")
        assert (server.count("/hole", "GET"), server.count("/hole", "POST")) == expected

    @pytest.mark.parametrize("after", [0, 60])
    def test_a_byte_now_and_then_is_a_timeout(self, server, after):
        """In the headers as in the body."""
        url = server.on("/slow", Drip(every=5.0, after=after))
        error, _ = failure(self.send, "GET", url, {}, SHORT, max_attempts=1)
        assert judged(error) == (Kind.TIMEOUT, True)

    def test_half_an_answer_is_asked_for_again(self, server):
        """The answer began and did not end; a POST without a key is not repeated."""
        url = server.on("/half", CUT)
        error, _ = failure(self.send, "GET", url, {})
        assert judged(error) == (Kind.TRANSIENT, True)
        failure(self.send, "POST", url, {})
        assert (server.count("/half", "GET"), server.count("/half", "POST")) == (3, 1)
        failure(self.send, "POST", url, KEY)
        assert server.count("/half", "POST") == 4

    @pytest.mark.parametrize(
        ("status", "kind", "ambiguous", "requests"),
        [
            (400, Kind.PERMANENT, False, 1),
            (401, Kind.AUTH, False, 1),
            (403, Kind.AUTH, False, 1),
            (404, Kind.PERMANENT, False, 1),
            (407, Kind.AUTH, False, 1),
            (408, Kind.TIMEOUT, False, 3),
            (425, Kind.TRANSIENT, False, 3),
            (429, Kind.THROTTLED, False, 3),
            (500, Kind.TRANSIENT, True, 3),
            (502, Kind.TRANSIENT, True, 3),
            (501, Kind.PERMANENT, False, 1),
            (503, Kind.OVERLOAD, False, 3),
            (504, Kind.TIMEOUT, True, 3),
        ],
    )
    def test_a_status_decides(self, server, status, kind, ambiguous, requests):
        """What is overloaded, throttled or transient is repeated; mistakes and refusals are not."""
        error, _ = failure(self.send, "GET", server.on("/status", Status(status)), {})
        assert judged(error) == (kind, ambiguous)
        assert server.count("/status") == requests

    @pytest.mark.parametrize(("status", "requests"), [(429, 3), (500, 1), (503, 3)])
    def test_a_post_is_repeated_after_a_refusal_and_not_after_an_accident(
        self, server, status, requests
    ):
        """429 and 503 came before the work; after 500 it may have been done."""
        failure(self.send, "POST", server.on("/status", Status(status)), {})
        assert server.count("/status") == requests

    def test_a_post_with_a_key_is_repeated_after_an_accident(self, server):
        """The server that honours the key has done it once at most."""
        failure(self.send, "POST", server.on("/status", Status(500)), KEY)
        assert server.count("/status", "POST") == 3

    def test_a_base_class_does_not_repeat_a_post_that_may_have_been_applied(self, server):
        """The very class does: whoever names it has read what it means."""
        url = server.on("/lost", Reset())
        error, _ = failure(self.send, "POST", url, {}, retry_on=self.base)
        assert server.count("/lost") == 1
        server.clear()
        failure(self.send, "POST", server.on("/lost", Reset()), {}, retry_on=type(error))
        assert server.count("/lost") == 3

    def test_a_date_and_seconds_of_retry_after_are_read(self, server):
        """Both forms of the header, as the client hands it on."""
        later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
        for value in ("7", later):
            url = server.on("/busy", Status(429, {"Retry-After": value}))
            error, _ = failure(self.send, "GET", url, {}, max_attempts=1)
            hint = RetryPolicy().classification(error).hint
            assert (hint.seconds, hint.at) == (
                (7.0, None) if value == "7" else (None, parsedate_to_datetime(later).timestamp())
            )

    def test_naming_a_class_is_not_naming_its_status(self, server):
        """A rule with the base class, or with the very class, does not repeat 404 and 401."""
        for status in (404, 401):
            url = server.on(f"/{status}", Status(status))
            for rule in (self.base, self.status_error):
                failure(self.send, "GET", url, {}, retry_on=rule)
            assert server.count(f"/{status}") == 2
        failure(self.send, "GET", server.on("/503", Status(503)), {}, retry_on=self.base)
        assert server.count("/503") == 3

    def test_a_status_is_named_by_its_number(self, server):
        """`on="status:404"` is that status, and no other."""
        failure(self.send, "GET", server.on("/404", Status(404)), {}, retry_on="status:404")
        failure(self.send, "GET", server.on("/410", Status(410)), {}, retry_on="status:404")
        assert (server.count("/404"), server.count("/410")) == (3, 1)

    @pytest.mark.parametrize(
        ("code", "kind", "calls"),
        [("EAI_NONAME", Kind.PERMANENT, 1), ("EAI_AGAIN", Kind.TRANSIENT, 3)],
    )
    def test_a_name_fails_for_good_or_for_now(self, monkeypatch, code, kind, calls):
        """A name that no host has is a mistake; a name server that is away is not."""

        def getaddrinfo(*_, **__):
            raise socket.gaierror(getattr(socket, code), "planted")

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        error, made = failure(self.send, "POST", "http://orders.test/", {})
        assert judged(error) == (kind, False)
        assert made == calls
        _, made = failure(self.send, "POST", "http://orders.test/", {}, retry_on=code)
        assert made == 3

    def test_a_certificate_that_is_not_accepted_stays_so(self, tls_server):
        """One connection, and nothing was sent over it."""
        error, calls = failure(self.send, "GET", tls_server.on("/", Status(200)), {})
        assert judged(error) == (Kind.PERMANENT, False)
        assert (calls, tls_server.connections, tls_server.count()) == (1, 1, 0)

    def test_a_handshake_that_breaks_is_worth_another(self):
        """A proxy that restarts ends a connection in the middle of TLS."""
        with hanging_up() as port:
            error, _ = failure(self.send, "GET", f"https://127.0.0.1:{port}/", {})
            assert judged(error)[0] is Kind.TRANSIENT
            assert RetryPolicy().classification(error).retryable

    def test_a_server_without_tls_is_a_mistake(self, server):
        """Https to a port that speaks http."""
        url = server.on("/", Status(200)).replace("http:", "https:")
        error, calls = failure(self.send, "GET", url, {})
        assert judged(error) == (Kind.PERMANENT, False)
        assert calls == 1

    @pytest.mark.parametrize("path", ["/endless", "/unreadable"])
    def test_what_would_be_the_same_the_next_time_is_final(self, server, path):
        """Redirects without an end, and a body that is not what its headers declare."""
        server.on("/endless", Status(302, {"Location": "/endless"}))
        server.on("/unreadable", Status(200, {"Content-Encoding": "gzip"}, b"no gzip"))
        error, calls = failure(self.send, "GET", server.url + path, {})
        assert judged(error)[0] is Kind.PERMANENT
        assert calls == 1

    @pytest.mark.parametrize("url", ["http://[::1/", "gopher://127.0.0.1/"])
    def test_a_mistake_in_the_address_is_final(self, url):
        """Nothing is sent to an address that is none."""
        error, calls = failure(self.send, "GET", url, {})
        assert judged(error) == (Kind.PERMANENT, False)
        assert calls == 1

    def test_the_errors_of_the_contract_are_in_the_table(self, server):
        """What the cases above saw was decided by the library's table."""
        for answer in (Reset(), Status(503)):
            error, _ = failure(self.send, "GET", server.on("/x", answer), {}, max_attempts=1)
            name = f"{type(error).__module__}.{type(error).__qualname__}"
            assert table(self.library).entry(name) is not None
