"""The adapter for requests, through real sessions against a server that fails on command."""

import io
import pickle

import pytest
import requests
import urllib3

import mainstay
from mainstay import Backoff, Engine, RetryPolicy, deadline
from mainstay.core.known.kind import Kind
from mainstay.integrations.idempotency_key import keyed_call
from mainstay.integrations.requests import Adapter
from tests.processes import at_some_speed, wait_until
from tests.servers.certificate import make_certificate, server_side
from tests.servers.http_faults import (
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


def send(method, url, retry=None, *, trust=(), operation="requests", **options):
    """One request in a session of its own."""
    with requests.Session() as session:
        session.trust_env = False
        adapter = Adapter(retry, trust=trust, operation=operation)
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        return session.request(method, url, **options)


def test_a_response_that_is_worth_repeating_is_repeated(server):
    """The caller gets the response that came in the end."""
    url = server.on("/", DOWN, Reset(), OK)
    assert send("GET", url, three()).text == "ok"
    assert server.count("/") == 3


@pytest.mark.parametrize("body", [bytearray(b"order"), memoryview(b"order")])
def test_bytes_of_any_kind_are_sent_as_requests_would_and_again(server, body):
    """They are no parts of a body, though one can iterate over them."""
    url = server.on("/", DOWN, OK)
    assert send("POST", url, three(), data=body).text == "ok"
    assert [each.body for each in server.seen] == [b"order", b"order"]


def test_the_last_response_is_returned_as_requests_would(server):
    """No exception for a status: the session does not raise either. The body is there."""
    url = server.on("/", DOWN)
    response = send("GET", url, three())
    assert (response.status_code, response.text) == (503, "down")
    assert response.mainstay_notes == (
        "mainstay: gave up on requests after 3 attempts: no attempt left",
    )
    assert server.count("/") == 3


def test_the_last_failure_is_raised_as_requests_would(server):
    """With the note of who gave up."""
    url = server.on("/", Close())
    with pytest.raises(requests.ConnectionError) as caught:
        send("GET", url, three())
    assert "after 3 attempts" in caught.value.__notes__[0]
    assert server.count("/") == 3


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_response_that_is_not_worth_it_is_returned_at_once(server, status):
    """Another request would get the same answer."""
    url = server.on("/", Status(status))
    assert send("GET", url, three()).status_code == status
    assert server.count("/") == 1


def test_nothing_listens():
    """A dead port is repeated: nothing was sent."""
    seen = []
    policy = three(before_retry=lambda info: seen.append(info.kind))
    with pytest.raises(requests.ConnectionError):
        send("POST", f"http://127.0.0.1:{dead_port()}/", policy, data=b"x")
    assert seen == [Kind.TRANSIENT] * 2


def test_the_wait_that_a_response_asks_for_is_waited_for(server):
    """Retry-After, as seconds."""
    url = server.on("/", Status(429, {"Retry-After": "7"}), OK)
    delays = []
    policy = three(before_retry=lambda info: delays.append(info.delay))
    with mainstay.testing.virtual_time():
        assert send("GET", url, policy).status_code == 200
    assert 7.0 <= delays[0] < 9.0


@pytest.mark.parametrize("fault", [Reset(), Status(500), Status(502), Status(504)])
def test_a_post_is_not_repeated_if_it_may_have_been_carried_out(server, fault):
    """Without a key the server could not tell the second one from a new order."""
    url = server.on("/", fault, OK)
    notes = []
    try:
        notes += send("POST", url, three(), data=b"order").mainstay_notes
    except requests.ConnectionError as error:
        notes += error.__notes__
    assert any("POST without an Idempotency-Key" in note for note in notes)
    assert server.count("/") == 1


def test_a_post_with_a_key_is_repeated_with_the_same_key(server):
    """The key of the call that is under way goes to a host that is listed."""
    url = server.on("/", Reset(), Status(500), OK)
    with keyed_call("order-7"):
        assert send("POST", url, three(), data=b"o", trust=["127.0.0.1"]).status_code == 200
    assert [each.headers["idempotency-key"] for each in server.seen] == ['"order-7"'] * 3


def test_headers_go_to_listed_hosts_alone(server):
    """The time that is left, the key and the attempt are nobody else's business."""
    url = server.on("/", DOWN, OK)
    with deadline.within(3000.0), keyed_call("order-7"):
        send("POST", url, three(), data=b"o", trust=["other.internal"])
    ours = {"mainstay-timeout", "mainstay-attempt", "idempotency-key"}
    assert not any(ours & set(each.headers) for each in server.seen)
    server.on("/", DOWN, OK)
    server.seen.clear()
    with deadline.within(3000.0), keyed_call("order-7"):
        send("POST", url, three(), data=b"o", trust=[f"127.0.0.1:{server.port}"])
    assert [each.headers["mainstay-attempt"] for each in server.seen] == ["1", "2"]
    assert all(2900.0 < float(each.headers["mainstay-timeout"]) <= 3000.0 for each in server.seen)


def test_our_headers_do_not_follow_a_redirect_to_another_host(server):
    """The session copies the request: ours are off it by then."""
    with HttpFaults() as other:
        elsewhere = other.on("/", OK).replace("127.0.0.1", "localhost")
        url = server.on("/", Status(307, {"Location": elsewhere}))
        with deadline.within(3000.0):
            send("GET", url, three(), trust=["127.0.0.1"])
        assert "mainstay-timeout" in server.seen[0].headers
        assert not any(name.startswith("mainstay-") for name in other.seen[0].headers)


FAULTS = [
    pytest.param(Silence(), id="no answer"),
    pytest.param(Drip(every=0.03), id="slow headers"),
    pytest.param(Drip(every=0.03, after=70), id="a byte at a time"),
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "timeout",
    [60.0, (60.0, None), urllib3.Timeout(read=60.0), urllib3.Timeout(total=60.0), None],
    ids=repr,
)
@pytest.mark.req("EF-07.http")
def test_the_deadline_ends_a_request_whatever_the_server_does(server, fault, timeout):
    """The server sends a byte well within each timeout of the client; the deadline comes first."""
    late = (requests.Timeout, requests.ConnectionError)

    def check(seconds):
        server.clear()
        url = server.on("/", fault)
        with deadline.within(seconds), pytest.raises(late) as why:
            send("GET", url, timeout=timeout)
        assert "timed out" in str(why.value) or "deadline" in str(why.value)
        wait_until(lambda: server.count("/") == 1, "the request", 5.0)

    at_some_speed(check, 0.2, 2.0, 10.0)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_deadline_of_the_policy_ends_it_too(server, fault):
    """Headers and body have one deadline."""
    url = server.on("/", fault)
    with pytest.raises((requests.Timeout, requests.ConnectionError)):
        send("GET", url, three(deadline=0.15))


def test_the_deadline_ends_a_request_over_tls(tmp_path):
    """The connections of HTTPS are others, and end as well."""
    with HttpFaults(server_side(make_certificate(tmp_path))) as server:
        url, trusted = server.on("/", OK, Drip(every=0.03)), str(tmp_path / "cert.pem")
        assert send("GET", url, three(), verify=trusted).text == "ok"
        with deadline.within(1.0), pytest.raises(requests.Timeout):
            send("GET", url, verify=trusted)


def test_a_connection_is_used_again_after_an_answer_in_time(server):
    """Also by a request without a deadline, which has the timeouts of its own."""
    url = server.on("/", OK)
    with requests.Session() as session:
        session.mount("http://", Adapter(three()))
        for _ in range(3):
            with deadline.within(60.0):
                assert session.get(url).text == "ok"
            assert session.get(url, timeout=60.0).text == "ok"
    assert (server.count(), server.connections) == (6, 1)


def test_a_response_without_a_length_is_read_to_its_end(server):
    """The connection is closed by http.client before the body is read; the file keeps it open."""
    whole = b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n" + b"x" * 50_000
    url = server.on("/", Raw(whole))
    with deadline.within(60.0):
        assert len(send("GET", url, three()).content) == 50_000


def test_nothing_is_sent_if_no_time_is_left(server):
    """A request whose answer nobody waits for is work for nothing."""
    url = server.on("/", OK)
    with mainstay.testing.virtual_time() as time, deadline.within(1.0):
        time.advance(2.0)
        with pytest.raises(requests.ConnectTimeout, match="no time is left"):
            send("GET", url, three())
    assert server.count() == 0


def parts():
    """A body that can be read once."""
    yield b"one"
    yield b"two"


class Pipe:
    """A file that does not seek."""

    def __init__(self):
        self._data = io.BytesIO(b"onetwo")

    def read(self, size=-1):
        return self._data.read(size)

    def __iter__(self):
        return iter(self._data)


@pytest.mark.parametrize("fault", [DOWN, Reset()], ids=["503", "reset"])
@pytest.mark.parametrize("body", [parts, Pipe])
@pytest.mark.parametrize("on", [None, (lambda error: True,)])
def test_a_body_that_cannot_be_read_again_is_not_sent_again(server, fault, body, on):
    """Half a body, or none, would be another request; a note states it."""
    url = server.on("/", fault, OK)
    try:
        notes = send("PUT", url, three(on=on), data=body()).mainstay_notes
    except requests.ConnectionError as error:
        notes = error.__notes__
    assert any("PUT whose body cannot be read again" in note for note in notes)
    assert [each.body for each in server.seen] == [b"onetwo"]


def test_a_file_is_sent_again_from_where_it_began(server):
    """Not from its first byte, and not from where the first attempt left it."""
    url = server.on("/", DOWN, Reset(), OK)
    file = io.BytesIO(b"skipped, kept")
    file.seek(9)
    assert send("PUT", url, three(), data=file).status_code == 200
    assert [each.body for each in server.seen] == [b"kept"] * 3


def test_an_engine_makes_the_calls_of_an_operation(server):
    """With its policy, and with what else the engine has for that name."""
    url = server.on("/", DOWN)
    with Engine(policies=[three(name="api", attempts=2)], operations={"orders": "api"}) as engine:
        assert send("GET", url, engine, operation="orders").status_code == 503
    assert server.count() == 2


@pytest.mark.parametrize("retries", [3, urllib3.Retry(3), urllib3.Retry(None, status=3)])
def test_the_retries_of_urllib3_are_refused_beside_ours(retries):
    """With the number of requests that it would come to."""
    with pytest.raises(mainstay.UsageError, match="4 x 3 = 12"):
        Adapter(three(), max_retries=retries)
    Adapter(max_retries=retries).close()
    Adapter(three(), pool_maxsize=2).close()


def test_an_outer_retry_stands_back_from_what_the_adapter_has_given_up_on(server):
    """Three requests, not nine, though raise_for_status() makes an exception of its own."""
    url = server.on("/", DOWN)

    @mainstay.retry(on=mainstay.transient, attempts=3, backoff=Backoff.constant(0))
    def fetch():
        send("GET", url, three()).raise_for_status()

    with pytest.warns(mainstay.NestedRetryWarning), pytest.raises(requests.HTTPError) as caught:
        fetch()
    assert server.count() == 3
    assert mainstay.gave_up_headers(caught.value) == {"Mainstay-Gave-Up": "3"}


@pytest.mark.filterwarnings("ignore::mainstay.NestedRetryWarning")
@pytest.mark.parametrize(("trust", "sent"), [(["127.0.0.1"], 1), ([], 3)])
def test_a_give_up_is_believed_from_a_listed_host_alone(server, trust, sent):
    """A stranger cannot switch off the retries of its callers."""
    url = server.on("/", Status(503, {"Mainstay-Gave-Up": "3"}))
    assert send("GET", url, three(), trust=trust).status_code == 503
    assert server.count() == sent


def test_a_session_with_an_adapter_can_be_pickled(server):
    """As every session can."""
    url = server.on("/", DOWN, OK)
    with requests.Session() as session:
        session.mount("http://", Adapter(three(), trust=["127.0.0.1"]))
        copy = pickle.loads(pickle.dumps(session))
        with copy:
            assert copy.get(url).status_code == 200
    assert server.seen[-1].headers["mainstay-attempt"] == "2"


def test_requests_go_through_a_proxy_in_time(server):
    """The connections to a proxy end at the deadline too."""
    server.on("http://a.example/", Drip(every=0.03))
    with deadline.within(1.0), pytest.raises(requests.Timeout):
        send("GET", "http://a.example/", proxies={"http": server.url})


def test_a_response_that_the_policy_does_not_accept_is_closed(server):
    """Its connection is free for the next attempt, and after the last one."""
    url = server.on("/", Status(202, body=b"x" * 100_000), OK)
    policy = three(retry_if_result=lambda response: response.status_code == 202)
    assert send("GET", url, policy).text == "ok"
    assert server.count() == 2
    url = server.on("/", Status(202, body=b"x" * 100_000))
    with pytest.raises(mainstay.ResultRejected):
        send("GET", url, three(retry_if_result=lambda _: True, on_exhausted="raise"))
