"""requests against a server that fails."""

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from mainstay import Kind
from mainstay.integrations.errors import table
from tests.integrations.errors.http_contract import (
    CUT,
    PATIENT,
    HttpContract,
    check,
    failure,
    judged,
)
from tests.servers.http_faults import Close, Drip, Status, dead_port


class TestRequests(HttpContract):
    library, base, status_error = (
        "requests",
        requests.RequestException,
        requests.HTTPError,
    )

    @staticmethod
    def send(method, url, headers, timeout=PATIENT, connect=PATIENT):
        with requests.Session() as session:
            session.trust_env = False
            answer = session.request(method, url, headers=headers, timeout=(connect, timeout))
            answer.raise_for_status()
            return answer


# --- classes that the contract does not raise -----------------------------------------------------
# requests itself raises neither its base classes RequestException and Timeout nor URLRequired.


@pytest.fixture
def session():
    with requests.Session() as session:
        session.trust_env = False
        yield session


@pytest.mark.parametrize(
    ("status", "kind"),
    [(407, Kind.AUTH), (403, Kind.AUTH), (502, Kind.TRANSIENT), (503, Kind.OVERLOAD),
     (504, Kind.TIMEOUT), (400, Kind.PERMANENT)],
)  # fmt: skip
def test_a_tunnel_that_the_proxy_refuses_was_never_used(server, session, status, kind):
    """The answer to CONNECT decides, and no status of it is ambiguous."""
    server.on("orders.test:443", Status(status))
    session.proxies = {"https": server.url}
    check(lambda: session.post("https://orders.test/"), "ProxyError", kind)
    assert server.count(method="CONNECT") == server.count() == 1


def test_a_proxy_that_is_away_is_a_connection_that_was_not_made(session):
    """A dead port, one hop earlier."""
    session.proxies = {"https": f"http://127.0.0.1:{dead_port()}"}
    check(lambda: session.post("https://orders.test/"), "ProxyError", Kind.TRANSIENT)


@pytest.mark.parametrize(
    ("status", "kind", "ambiguous"),
    [
        (503, Kind.OVERLOAD, False),
        (429, Kind.THROTTLED, False),
        (500, Kind.TRANSIENT, True),
        (404, Kind.PERMANENT, False),
    ],
)
def test_an_adapter_that_gives_up_has_the_status_in_its_text(
    server, session, status, kind, ambiguous
):
    """urllib3 repeats inside of our attempt, and names the last status when it gives up."""
    session.mount("http://", HTTPAdapter(max_retries=Retry(1, status_forcelist=[status])))
    url = server.on("/", Status(status))
    check(lambda: session.get(url), "RetryError", kind, ambiguous=ambiguous)
    assert server.count() == 2


def test_the_retries_of_an_adapter_multiply(server, session):
    """Three attempts of ours, two requests in each: the table names these hidden retries."""
    session.mount("http://", HTTPAdapter(max_retries=Retry(1, status_forcelist=[503])))
    failure(session.get, server.on("/", Status(503)))
    assert server.count() == 6
    assert "max_retries" in table("requests").retries


def test_a_timeout_in_the_body_is_a_connection_error(server, session):
    """It carries no request, which is found all the same: a POST is final."""
    url = server.on("/", Drip(every=5.0, after=60))

    def post():
        return session.post(url, timeout=(PATIENT, 1.0))  # the headers must come in time

    check(post, "ConnectionError", Kind.TIMEOUT, ambiguous=True)
    error, calls = failure(post)
    assert (error.request, calls) == (None, 1)


def test_a_body_that_is_read_later_is_of_its_request_too(server, session):
    """With `stream=True` the body is read after the call."""
    url = server.on("/", CUT)

    def send(method):
        with session.request(method, url, stream=True) as answer:
            return list(answer.iter_content(1))

    failure(send, "POST")
    failure(send, "GET")
    assert (server.count("/", "POST"), server.count("/", "GET")) == (1, 3)


def test_tls_that_ends_after_sending_is_ambiguous(tls_server, certificate, session):
    """Python hides that TLS was not ended in order: it is a closed connection."""
    session.verify = str(certificate / "cert.pem")
    url = tls_server.on("/", Close())
    error, calls = failure(session.post, url)
    assert (judged(error), calls) == ((Kind.TRANSIENT, True), 1)
    failure(session.get, url)
    assert (tls_server.count("/", "POST"), tls_server.count("/", "GET")) == (1, 3)


def _again(session, url):
    answer = session.get(url, stream=True)
    list(answer.iter_content(1))
    list(answer.iter_content(1))


def _two_cookies(session):
    session.cookies.set("a", "1", path="/x")
    session.cookies.set("a", "2", path="/y")
    return session.cookies["a"]


def _body_of_a_pipe(session, url):
    class Pipe:
        def __iter__(self):
            return iter([b"x"])

        def read(self, _size):
            return b""

        def tell(self):
            raise OSError

    return session.post(url, data=Pipe())


def _through_no_proxy(session, url):
    session.proxies = {"http": "http:///nobody"}
    return session.get(url)


MISTAKES = {
    "InvalidJSONError": lambda session, url: session.post(url, json=float("nan")),
    "InvalidHeader": lambda session, url: session.get(url, headers={"X-Bad": "a\nb"}),
    "InvalidProxyURL": _through_no_proxy,
    "InvalidSchema": lambda session, url: session.get("ftp://127.0.0.1/"),
    "InvalidURL": lambda session, url: session.get("http://[::1/"),
    "MissingSchema": lambda session, url: session.get("127.0.0.1/"),
    "StreamConsumedError": _again,
    "UnrewindableBodyError": lambda session, url: _body_of_a_pipe(session, f"{url}moved"),
    "CookieConflictError": lambda session, url: _two_cookies(session),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_call_is_permanent(server, session, name):
    """As the library finds it, before or after a request."""
    server.on("/moved", Status(307, {"Location": "/"}))
    url = server.on("/", Status(200, body=b"page"))
    check(lambda: MISTAKES[name](session, url), name, Kind.PERMANENT)


def test_a_body_that_is_no_json_was_an_answer(server, session):
    """The request was carried out, and the same page would come again."""
    url = server.on("/", Status(200, body=b"<html>"))
    check(lambda: session.get(url).json(), "JSONDecodeError", Kind.PERMANENT, ambiguous=True)


@pytest.mark.req("CL-04")
@pytest.mark.parametrize(
    ("status", "requests_"), [(429, 3), (500, 3), (502, 3), (503, 3), (504, 3), (400, 1), (404, 1)]
)
def test_what_is_repeated_by_its_status_is_counted_at_the_server(server, status, requests_):
    """5xx and 429 are repeated, other 4xx are not."""
    url = server.on("/", *[Status(status)] * 3)
    error, _ = failure(TestRequests.send, "GET", url, {})
    assert type(error) is TestRequests.status_error
    assert server.count() == requests_
