"""urllib3 against a server that fails."""

import pickle
import socket
from contextlib import closing

import pytest
import urllib3
from urllib3 import Retry
from urllib3.exceptions import NameResolutionError

from mainstay import Jitter, Kind, RetryPolicy
from mainstay.integrations.errors import table
from mainstay.testing import virtual_time
from tests.integrations.errors.http_contract import (
    CUT,
    PATIENT,
    SHORT,
    HttpContract,
    check,
    failure,
    judged,
)
from tests.servers.http_faults import Close, Raw, Reset, Silence, Status, dead_port, full_port

ONCE = Retry(
    0, status_forcelist=range(400, 600), allowed_methods=None, respect_retry_after_header=False
)
"""Statuses raise, and nothing is repeated."""


class TestUrllib3(HttpContract):
    library, base, status_error = (
        "urllib3",
        urllib3.exceptions.HTTPError,
        urllib3.exceptions.MaxRetryError,
    )

    @staticmethod
    def send(method, url, headers, timeout=PATIENT, connect=PATIENT):
        limits = urllib3.Timeout(connect=connect, read=timeout)
        with urllib3.PoolManager(timeout=limits, retries=ONCE) as pool:
            return pool.request(method, url, headers=headers)

    def test_a_status_is_named_by_its_number(self, server):
        """The status is in the text of the error alone; as an error code it can be named."""
        failure(self.send, "GET", server.on("/404", Status(404)), {}, retry_on="404")
        failure(self.send, "GET", server.on("/410", Status(410)), {}, retry_on="404")
        assert (server.count("/404"), server.count("/410")) == (3, 1)

    def test_a_date_and_seconds_of_retry_after_are_read(self, server):
        """urllib3 returns what others raise: the header of a result is read."""
        url = server.on("/", Status(503, {"Retry-After": "7"}), Status(200, body=b"up"))
        policy = RetryPolicy(
            retry_if_result=lambda answer: answer.status in (429, 503), jitter=Jitter.none()
        )
        with urllib3.PoolManager(retries=False) as pool, virtual_time() as time:
            assert policy.call(pool.request, "GET", url).data == b"up"
        assert time.sleeps == [7.0]
        assert server.count("/") == 2


# --- what it repeats by itself --------------------------------------------------------------------


def test_its_own_retries_multiply(server):
    """Three attempts of ours with the default Retry(3) inside; `retries=False` ends that."""
    with urllib3.PoolManager() as pool:
        failure(pool.request, "GET", server.on("/", Reset()))
        assert server.count() == 12
        server.clear()
        failure(lambda: pool.request("GET", server.on("/", Reset()), retries=False))
        assert server.count() == 3
    assert "Retry(3)" in table("urllib3").retries


def test_a_pool_by_itself_has_the_request_in_its_traceback(server):
    """Also without a PoolManager; an error without a traceback has none."""
    server.on("/", Reset())
    with urllib3.HTTPConnectionPool("127.0.0.1", server.port, retries=False) as pool:
        error, calls = failure(lambda: pool.request("POST", "/"))
        assert calls == 1
        _, calls = failure(lambda: pool.request("POST", "/", headers={"idempotency-key": "7"}))
        assert calls == 3
    assert not RetryPolicy().classification(error).retryable
    assert RetryPolicy().classification(error.with_traceback(None)).retryable


def test_it_obeys_retry_after_by_itself(server):
    """Also without a list of statuses, and without a bound: the wait is inside our attempt."""
    url = server.on("/", Status(503, {"Retry-After": "3600"}), Status(200, body=b"up"))
    with urllib3.PoolManager() as pool, virtual_time() as time:
        assert pool.request("GET", url).data == b"up"
    assert time.sleeps == [3600.0]


# --- classes that the contract does not raise -----------------------------------------------------
# IncompleteRead and InvalidChunkLength come inside a ProtocolError; FullPoolError, PoolError,
# RequestError, HTTPError, TimeoutError and HeaderParsingError do not leave urllib3; ResponseError
# comes inside a MaxRetryError. The classes of the two first are judged all the same.


@pytest.mark.parametrize(
    ("answer", "name", "kind"),
    [
        (Reset(), "ProtocolError", Kind.TRANSIENT),
        (CUT, "ProtocolError", Kind.TRANSIENT),
        (Silence(), "ReadTimeoutError", Kind.TIMEOUT),
    ],
)
def test_without_retries_its_errors_come_bare(server, answer, name, kind):
    """After sending, and so ambiguous."""
    limit = SHORT if isinstance(answer, Silence) else PATIENT
    limits = urllib3.Timeout(connect=PATIENT, read=limit)
    with urllib3.PoolManager(retries=False, timeout=limits) as pool:
        url = server.on("/", answer)
        check(lambda: pool.request("POST", url), name, kind, ambiguous=True)


def test_before_sending_its_errors_come_bare_too():
    """A dead port and one that never accepts."""
    with urllib3.PoolManager(retries=False, timeout=SHORT) as pool, full_port() as port:
        dead, full = f"http://127.0.0.1:{dead_port()}/", f"http://127.0.0.1:{port}/"
        check(lambda: pool.request("POST", dead), "NewConnectionError", Kind.TRANSIENT)
        check(lambda: pool.request("POST", full), "ConnectTimeoutError", Kind.TIMEOUT)


def test_a_pool_without_room_is_a_timeout_before_sending(server):
    """The request waited for a connection of ours."""
    url = server.on("/", Status(200, body=b"page"))
    pool = urllib3.HTTPConnectionPool("127.0.0.1", server.port, block=True, maxsize=1)
    with pool:
        held = pool.urlopen("GET", url, preload_content=False)
        check(lambda: pool.urlopen("POST", "/", pool_timeout=SHORT), "EmptyPoolError", Kind.TIMEOUT)
        held.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [(407, Kind.AUTH), (502, Kind.TRANSIENT), (503, Kind.OVERLOAD), (504, Kind.TIMEOUT)],
)
def test_a_tunnel_that_the_proxy_refuses_was_never_used(server, status, kind):
    """The answer to CONNECT decides, and no status of it is ambiguous."""
    server.on("orders.test:443", Status(status))
    with urllib3.ProxyManager(server.url, retries=False) as pool:
        check(lambda: pool.request("POST", "https://orders.test/"), "ProxyError", kind)
    assert server.count(method="CONNECT") == server.count() == 1


def test_an_unreadable_retry_after_is_final(server):
    """urllib3 refuses the header itself."""
    url = server.on("/", Status(503, {"Retry-After": "soon"}))
    with urllib3.PoolManager() as pool:
        check(lambda: pool.request("GET", url), "InvalidHeader", Kind.PERMANENT, ambiguous=True)


def _closed(pool, url):
    made = urllib3.HTTPConnectionPool("127.0.0.1", 80)
    made.close()
    return made.urlopen("GET", "/")


def _elsewhere(pool, url):
    with urllib3.HTTPConnectionPool("127.0.0.1", 80) as made:
        return made.urlopen("GET", "http://localhost:1/", retries=False)


def _not_chunked(pool, url):
    with closing(pool.request("GET", url, preload_content=False)) as answer:
        return list(answer.read_chunked())


MISTAKES = {
    "ClosedPoolError": _closed,
    "HostChangedError": _elsewhere,
    "LocationParseError": lambda pool, url: pool.request("GET", "http://[::1/"),
    "LocationValueError": lambda pool, url: pool.request("GET", "http:///path"),
    "URLSchemeUnknown": lambda pool, url: pool.request("GET", "ftp://127.0.0.1/"),
    "ProxySchemeUnknown": lambda pool, url: urllib3.ProxyManager("ftp://127.0.0.1/"),
    "TimeoutStateError": lambda pool, url: urllib3.Timeout(1).get_connect_duration(),
    "ResponseNotChunked": _not_chunked,
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_call_is_permanent(server, name):
    """As the library finds it, before or after a request."""
    url = server.on("/", Status(200, body=b"page"))
    with urllib3.PoolManager() as pool:
        check(lambda: MISTAKES[name](pool, url), name, Kind.PERMANENT)


def test_tls_that_ends_after_sending_is_ambiguous(tls_server, certificate):
    """Python hides that TLS was not ended in order: it is a closed connection."""
    url = tls_server.on("/", Close())
    with urllib3.PoolManager(ca_certs=str(certificate / "cert.pem"), retries=False) as pool:
        error, calls = failure(pool.request, "POST", url)
        assert (judged(error), calls) == ((Kind.TRANSIENT, True), 1)
        failure(pool.request, "GET", url)
    assert (tls_server.count("/", "POST"), tls_server.count("/", "GET")) == (1, 3)


def test_a_body_that_was_read_cannot_be_sent_again(server):
    """urllib3 repeats a PUT whose connection is lost, if it can."""

    class Pipe:
        def read(self, _size):
            return b""

        def tell(self):
            raise OSError

    url = server.on("/", Reset())
    with urllib3.PoolManager() as pool:
        check(
            lambda: pool.request("PUT", url, body=Pipe()),
            "UnrewindableBodyError",
            Kind.PERMANENT,
            ambiguous=True,
        )


def test_a_chunk_without_a_length_is_half_an_answer(server):
    """What came back is no HTTP any more."""
    url = server.on("/", Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab"))
    with urllib3.PoolManager(retries=False) as pool:
        made = pool.request("GET", url, preload_content=False)
        check(lambda: list(made.stream()), "ProtocolError", Kind.TRANSIENT, ambiguous=True)


def test_a_pickled_error_is_judged_as_before():
    """A pickle loses the cause of an error; its name is still not resolved."""
    error = NameResolutionError("orders.test", None, socket.gaierror(-2, "no such name"))
    assert judged(pickle.loads(pickle.dumps(error))) == (Kind.PERMANENT, False)
