"""The managers for urllib3, against a server that fails on command."""

import io

import pytest
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    ProtocolError,
    ReadTimeoutError,
)

import mainstay
from mainstay import Backoff, Engine, RetryPolicy, deadline
from mainstay.core.known.kind import Kind
from mainstay.integrations.idempotency_key import keyed_call
from mainstay.integrations.urllib3 import PoolManager, ProxyManager
from tests.processes import at_some_speed, wait_until
from tests.servers.certificate import make_certificate, server_side
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
)

OK = Status(200, body=b"ok")
DOWN = Status(503, body=b"down")


@pytest.fixture
def server():
    """A server of its own: what the client of the test before gave up on may yet arrive there."""
    with HttpFaults() as running:
        yield running


def three(**fields):
    """A policy of three attempts that does not wait."""
    return RetryPolicy(**{"attempts": 3, "backoff": Backoff.constant(0), **fields})


def send(method, url, retry=None, *, trust=(), operation="urllib3", pool=None, **options):
    """One request with a manager of its own."""
    with PoolManager(retry, trust=trust, operation=operation, **(pool or {})) as http:
        return http.request(method, url, **options)


def test_a_response_that_is_worth_repeating_is_repeated(server):
    """The caller gets the response that came in the end."""
    url = server.on("/", DOWN, Reset(), OK)
    assert send("GET", url, three()).data == b"ok"
    assert server.count("/") == 3


def test_the_last_response_is_returned_as_urllib3_would(server):
    """No exception for a status: urllib3 does not raise either. The body is there."""
    response = send("GET", server.on("/", DOWN), three())
    assert (response.status, response.data) == (503, b"down")
    assert response.mainstay_notes == (
        "mainstay: gave up on urllib3 after 3 attempts: no attempt left",
    )
    assert server.count("/") == 3


def test_the_last_failure_is_raised_as_urllib3_would(server):
    """A MaxRetryError for a GET, with the note of who gave up."""
    with pytest.raises(MaxRetryError) as caught:
        send("GET", server.on("/", Close()), three())
    assert isinstance(caught.value.reason, ProtocolError)
    assert "after 3 attempts" in caught.value.__notes__[0]
    assert server.count("/") == 3


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_response_that_is_not_worth_it_is_returned_at_once(server, status):
    """Another request would get the same answer."""
    assert send("GET", server.on("/", Status(status)), three()).status == status
    assert server.count("/") == 1


def test_nothing_listens():
    """A dead port is repeated: nothing was sent. urllib3's own three retries are off."""
    seen = []
    policy = three(before_retry=lambda info: seen.append(info.kind))
    with pytest.raises(MaxRetryError):
        send("POST", f"http://127.0.0.1:{dead_port()}/", policy, body=b"x")
    assert seen == [Kind.TRANSIENT] * 2


def test_urllib3_does_not_repeat_by_itself(server):
    """By default it sends a GET four times after a reset, and waits for each Retry-After."""
    url = server.on("/", Reset())
    with pytest.raises(MaxRetryError):
        send("GET", url, three(attempts=2))
    assert server.count() == 2
    url = server.on("/throttled", Status(429, {"Retry-After": "600"}))
    assert send("GET", url, three(attempts=1)).status == 429
    assert server.count("/throttled") == 1


def test_without_a_policy_it_does_what_urllib3_does(server):
    """Four requests after a reset, and its deadline reaches the socket."""
    with pytest.raises(MaxRetryError):
        send("GET", server.on("/", Reset()))
    assert server.count() == 4


def test_the_wait_that_a_response_asks_for_is_waited_for(server):
    """Retry-After, as seconds."""
    url, delays = server.on("/", Status(429, {"Retry-After": "7"}), OK), []
    policy = three(before_retry=lambda info: delays.append(info.delay))
    with mainstay.testing.virtual_time():
        assert send("GET", url, policy).status == 200
    assert 7.0 <= delays[0] < 9.0


@pytest.mark.parametrize("fault", [Reset(), Status(500), Status(502), Status(504)])
def test_a_post_is_not_repeated_if_it_may_have_been_carried_out(server, fault):
    """Without a key the server could not tell the second one from a new order."""
    url, notes = server.on("/", fault, OK), []
    try:
        notes += send("POST", url, three(), body=b"order").mainstay_notes
    except HTTPError as error:
        notes += error.__notes__
    assert any("POST without an Idempotency-Key" in note for note in notes)
    assert server.count("/") == 1


def test_a_post_with_a_key_is_repeated_with_the_same_key(server):
    """The key of the call that is under way goes to a host that is listed."""
    url = server.on("/", Reset(), Status(500), OK)
    with keyed_call("order-7"):
        assert send("POST", url, three(), body=b"o", trust=["127.0.0.1"]).status == 200
    assert [each.headers["idempotency-key"] for each in server.seen] == ['"order-7"'] * 3


def test_headers_go_to_listed_hosts_alone(server):
    """The time that is left, the key and the attempt; headers of the user stay as they are."""
    url, own = server.on("/", DOWN, OK), {"X-Own": "1"}
    with deadline.within(3000.0), keyed_call("order-7"):
        send("POST", url, three(), body=b"o", trust=["other.internal"], headers=own)
    ours = {"mainstay-timeout", "mainstay-attempt", "idempotency-key"}
    assert not any(ours & set(each.headers) for each in server.seen)
    server.on("/", DOWN, OK)
    server.seen.clear()
    with deadline.within(3000.0), keyed_call("order-7"):
        trust = [f"127.0.0.1:{server.port}"]
        send("POST", url, three(), body=b"o", trust=trust, headers=own)
    assert [each.headers["mainstay-attempt"] for each in server.seen] == ["1", "2"]
    assert all(2900.0 < float(each.headers["mainstay-timeout"]) <= 3000.0 for each in server.seen)
    assert all(each.headers["x-own"] == "1" for each in server.seen)
    assert own == {"X-Own": "1"}


def test_redirects_are_those_of_urllib3(server):
    """Each hop is repeated by the policy; our headers do not follow to another host."""
    with HttpFaults() as other:
        elsewhere = other.on("/", DOWN, OK).replace("127.0.0.1", "localhost")
        url = server.on("/", Status(307, {"Location": elsewhere}))
        with deadline.within(3000.0):
            assert send("GET", url, three(), trust=["127.0.0.1"]).data == b"ok"
        assert "mainstay-timeout" in server.seen[0].headers
        assert not any(name.startswith("mainstay-") for name in other.seen[0].headers)
        assert (server.count(), other.count()) == (1, 2)


def test_redirects_end_where_urllib3_ends_them(server):
    """After three by default; `redirect=False` returns the first."""
    url = server.on("/", Status(302, {"Location": "/"}))
    with pytest.raises(MaxRetryError, match="too many redirects"):
        send("GET", url, three())
    assert server.count() == 4
    assert send("GET", url, three(), redirect=False).status == 302
    assert send("GET", url, three(), retries=False).status == 302
    only = urllib3.Retry(10, connect=0, read=0, status=0, other=0, redirect=1)
    server.seen.clear()
    with pytest.raises(MaxRetryError):
        send("GET", url, three(), retries=only)
    assert server.count() == 2


FAULTS = [
    pytest.param(Silence(), id="no answer"),
    pytest.param(Drip(every=0.03), id="slow headers"),
    pytest.param(Drip(every=0.03, after=70), id="a byte at a time"),
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "timeout", [{}, {"timeout": 60.0}, {"timeout": urllib3.Timeout(total=60.0)}, {"timeout": None}],
    ids=repr,
)  # fmt: skip
def test_the_deadline_ends_a_request_whatever_the_server_does(server, fault, timeout):
    """The server sends a byte well within each timeout of the client; the deadline comes first."""

    def check(seconds):
        server.clear()
        url = server.on("/", fault)
        with deadline.within(seconds), pytest.raises(HTTPError):
            send("GET", url, **timeout, retries=False)
        wait_until(lambda: server.count("/") == 1, "the request", 5.0)

    at_some_speed(check, 0.15, 2.0, 10.0)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_deadline_of_the_policy_ends_it_too(server, fault):
    """Headers and body have one deadline, also if the body is read later."""
    url = server.on("/", fault)
    with pytest.raises(HTTPError):
        send("GET", url, three(deadline=0.15))
    with PoolManager(three(deadline=0.15)) as http, pytest.raises(HTTPError):
        http.request("GET", url, preload_content=False).read()


def test_the_deadline_ends_a_request_over_tls(tmp_path):
    """The connections of HTTPS are others, and end as well."""
    with HttpFaults(server_side(make_certificate(tmp_path))) as server:
        pool = {"ca_certs": str(tmp_path / "cert.pem")}
        url = server.on("/", DOWN, OK, Drip(every=0.03))
        assert send("GET", url, three(), pool=pool).data == b"ok"
        with deadline.within(0.3), pytest.raises(HTTPError):
            send("GET", url, three(), pool=pool)


def test_nothing_is_sent_if_no_time_is_left(server):
    """A request whose answer nobody waits for is work for nothing."""
    url = server.on("/", OK)
    with mainstay.testing.virtual_time() as time, deadline.within(1.0):
        time.advance(2.0)
        with pytest.raises(ConnectTimeoutError, match="no time is left"):
            send("GET", url, three())
    assert server.count() == 0


def parts():
    """A body that can be read once."""
    yield b"one"
    yield b"two"


class Pipe(io.RawIOBase):
    """A file that does not seek."""

    def __init__(self):
        super().__init__()
        self._data = io.BytesIO(b"onetwo")

    def tell(self):
        raise OSError("no position")

    def read(self, size=-1):
        return self._data.read(size)


@pytest.mark.parametrize("fault", [DOWN, Reset()], ids=["503", "reset"])
@pytest.mark.parametrize("body", [parts, Pipe])
def test_a_body_that_cannot_be_read_again_is_not_sent_again(server, fault, body):
    """Half a body, or none, would be another request; a note states it."""
    url = server.on("/", fault, OK)
    try:
        notes = send("PUT", url, three(), body=body()).mainstay_notes
    except HTTPError as error:
        notes = error.__notes__
    assert any("PUT whose body cannot be read again" in note for note in notes)
    assert [each.body for each in server.seen] == [b"onetwo"]


@pytest.mark.parametrize("body", [b"kept", bytearray(b"kept"), "kept", [b"ke", b"pt"]], ids=repr)
def test_a_body_that_is_the_same_again_is_sent_again(server, body):
    """Bytes, text and lists of them."""
    url = server.on("/", DOWN, Reset(), OK)
    assert send("PUT", url, three(), body=body).status == 200
    assert [each.body for each in server.seen] == [b"kept"] * 3


def test_a_file_is_sent_again_from_where_it_began(server):
    """Not from its first byte, and not from where the first attempt left it."""
    url, file = server.on("/", DOWN, Reset(), OK), io.BytesIO(b"skipped, kept")
    file.seek(9)
    assert send("PUT", url, three(), body=file).status == 200
    assert [each.body for each in server.seen] == [b"kept"] * 3


def test_half_a_body_is_repeated_if_urllib3_reads_it(server):
    """`preload_content` reads it within the attempt."""
    cut = Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    url = server.on("/", cut, Chunks(200, (b"whole",)))
    assert send("GET", url, three()).data == b"whole"
    assert server.count() == 2


def test_an_engine_makes_the_calls_of_an_operation(server):
    """With its policy, and with what else the engine has for that name."""
    url = server.on("/", DOWN)
    with Engine(policies=[three(name="api", attempts=2)], operations={"orders": "api"}) as engine:
        assert send("GET", url, engine, operation="orders").status == 503
    assert server.count() == 2


@pytest.mark.parametrize("retries", [3, urllib3.Retry(3), urllib3.Retry(None, status=3)])
def test_the_retries_of_urllib3_are_refused_beside_ours(server, retries):
    """With the number of requests that it would come to; of the manager, and of one request."""
    with pytest.raises(mainstay.UsageError, match="4 x 3 = 12"):
        PoolManager(three(), retries=retries)
    with pytest.raises(mainstay.UsageError, match="4 x 3 = 12"):
        send("GET", server.url, three(), retries=retries)
    assert server.count() == 0
    assert send("GET", server.on("/", OK), retries=retries, pool={"retries": retries}).status == 200


def test_an_outer_retry_stands_back_from_what_the_manager_has_given_up_on(server):
    """Three requests, not nine."""
    url = server.on("/", Reset())

    @mainstay.retry(on=mainstay.transient, attempts=3, backoff=Backoff.constant(0))
    def fetch():
        send("GET", url, three())

    with pytest.warns(mainstay.NestedRetryWarning), pytest.raises(MaxRetryError) as caught:
        fetch()
    assert server.count() == 3
    assert mainstay.gave_up_headers(caught.value) == {"Mainstay-Gave-Up": "3"}


def test_a_thread_that_was_cut_is_not_repeated_if_it_may_have_been_applied(server):
    """The attempt may still run in its thread: a POST is not sent again, a GET is."""
    policy = three(attempts=2, attempt_timeout=0.5, timeout_by="thread")
    with pytest.raises((ReadTimeoutError, mainstay.AttemptTimeout)):
        send("POST", server.on("/", Silence()), policy, body=b"order")
    wait_until(lambda: server.count() == 1, "the request")


def test_requests_go_through_a_proxy(server):
    """With retries, and in time."""
    server.on("http://a.example/", DOWN, OK, Drip(every=0.03))
    with ProxyManager(server.url, three()) as http:
        assert http.request("GET", "http://a.example/").data == b"ok"
        with deadline.within(0.5), pytest.raises(HTTPError):
            http.request("GET", "http://a.example/")
    wait_until(lambda: server.count() == 3, "the requests")


# --- as urllib3's own tests of Retry have it, with a policy instead -------------------------------


def test_a_forcelist_is_a_rule_for_the_status(server):
    """`status_forcelist=[418]`."""
    url = server.on("/", Status(418), OK)
    assert send("GET", url, three(on="status:418")).status == 200
    assert server.count() == 2


def test_the_methods_that_are_allowed(server):
    """`allowed_methods` has no POST by default, and PUT, DELETE, HEAD, OPTIONS, TRACE and GET."""
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"):
        assert send(method, server.on(f"/{method}", Status(502), OK), three()).status == 200
        assert server.count(f"/{method}") == 2
    assert send("POST", server.on("/POST", Status(502), OK), three()).status == 502


def test_a_read_error_in_chunks_is_repeated(server):
    """`test_retry_on_broken_chunk`: a body that breaks off, if urllib3 reads it."""
    cut = Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")
    assert send("GET", server.on("/", cut, OK), three()).data == b"ok"


def test_one_manager_serves_many_hosts(server):
    """A pool for each, with the same policy."""
    with HttpFaults() as other, PoolManager(three()) as http:
        urls = [server.on("/", DOWN, OK), other.on("/", Reset(), OK)]
        assert [http.request("GET", url).data for url in urls] == [b"ok", b"ok"]
        assert (server.count(), other.count(), len(http.pools)) == (2, 2, 2)
