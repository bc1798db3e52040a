"""The middleware for aiohttp, through real sessions against a server that fails on command."""

import asyncio
import io

import aiohttp
import pytest

import mainstay
from mainstay import Backoff, Engine, RetryPolicy, deadline
from mainstay.core.known.kind import Kind
from mainstay.integrations.aiohttp import Middleware
from mainstay.integrations.idempotency_key import keyed_call
from tests.processes import at_some_speed, wait_until
from tests.servers.http_faults import Close, Drip, HttpFaults, Reset, Silence, Status, dead_port

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


class Answer:
    """A response that was read."""

    def __init__(self, response, body):
        self.response, self.status, self.body = response, response.status, body
        self.notes = getattr(response, "mainstay_notes", ())


async def asend(method, url, retry=None, *, trust=(), operation="aiohttp", check=False, **options):
    """One request in a session of its own."""
    hands = Middleware(retry, trust=trust, operation=operation)
    async with (
        aiohttp.ClientSession(middlewares=[hands]) as session,
        session.request(method, url, **options) as response,
    ):
        if check:
            response.raise_for_status()
        return Answer(response, await response.read())


def send(*given, **options):
    """The same, from outside of a loop."""
    return asyncio.run(asend(*given, **options))


def test_a_response_that_is_worth_repeating_is_repeated(server):
    """The caller gets the response that came in the end."""
    url = server.on("/", DOWN, Reset(), OK)
    assert send("GET", url, three()).body == b"ok"
    assert server.count("/") == 3


def test_the_last_response_is_returned_as_aiohttp_would(server):
    """No exception for a status: the session does not raise either. The body is there."""
    url = server.on("/", DOWN)
    answer = send("GET", url, three())
    assert (answer.status, answer.body) == (503, b"down")
    assert answer.notes == ("mainstay: gave up on aiohttp after 3 attempts: no attempt left",)
    assert server.count("/") == 3


@pytest.mark.parametrize("fault", [Close(), Reset()], ids=["close", "reset"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_the_last_failure_is_raised_and_aiohttp_does_not_begin_again(server, fault, method):
    """Three requests, not six: aiohttp would repeat all of it once for an idempotent method."""
    url = server.on("/", fault)
    with pytest.raises(aiohttp.ClientError) as caught:
        send(method, url, three(), data=b"x" if method == "PUT" else None)
    assert "after 3 attempts" in caught.value.__notes__[0]
    assert server.count("/") == 3


def test_the_next_request_of_the_same_task_is_made(server):
    """What was kept for a second pass of aiohttp's is of that request alone."""
    url = server.on("/", Close(), Close(), Close(), OK)

    async def main():
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await asend("GET", url, three())
        return await asend("GET", url, three())

    assert asyncio.run(main()).status == 200
    assert server.count("/") == 4


def test_without_a_policy_aiohttp_does_what_it_does(server):
    """One attempt of ours; its own second one is its own."""
    url = server.on("/", Close(), OK)
    assert send("GET", url).status == 200
    assert server.count("/") == 2


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_response_that_is_not_worth_it_is_returned_at_once(server, status):
    """Another request would get the same answer."""
    url = server.on("/", Status(status))
    assert send("GET", url, three()).status == status
    assert server.count("/") == 1


def test_nothing_listens():
    """A dead port is repeated: nothing was sent."""
    seen = []
    policy = three(before_retry=lambda info: seen.append(info.kind))
    with pytest.raises(aiohttp.ClientConnectorError):
        send("POST", f"http://127.0.0.1:{dead_port()}/", policy, data=b"x")
    assert seen == [Kind.TRANSIENT] * 2


def test_the_wait_that_a_response_asks_for_is_waited_for(server):
    """Retry-After, as seconds."""
    url = server.on("/", Status(429, {"Retry-After": "7"}), OK)
    delays = []
    policy = three(before_retry=lambda info: delays.append(info.delay))
    with mainstay.testing.virtual_time():
        assert send("GET", url, policy).status == 200
    assert 7.0 <= delays[0] < 9.0


@pytest.mark.parametrize("fault", [Reset(), Close(), Status(500), Status(502), Status(504)])
def test_a_post_is_not_repeated_if_it_may_have_been_carried_out(server, fault):
    """Without a key the server could not tell the second one from a new order."""
    url = server.on("/", fault, OK)
    notes = []
    try:
        notes += send("POST", url, three(), data=b"order").notes
    except aiohttp.ClientError as error:
        notes += error.__notes__
    assert any("POST without an Idempotency-Key" in note for note in notes)
    assert server.count("/") == 1


def test_a_post_whose_attempt_was_cut_is_not_repeated(server):
    """The server may have it; what the policy cuts with does not carry the request."""
    url = server.on("/", Silence(), OK)
    with pytest.raises(aiohttp.ServerTimeoutError, match="may have been carried out"):
        send("POST", url, three(timeout=1.0), data=b"order")
    wait_until(lambda: server.count("/") == 1, "the request")


def test_a_body_of_an_attempt_that_was_cut_is_not_sent_again_if_it_was_read(server):
    """What is left of it, which is nothing, would be another request.

    The reason depends on what ends the attempt first: the policy, or the client's own timeout.
    """
    url = server.on("/", Silence(), OK)
    why = "may have been carried out|of a PUT whose body cannot be read again"
    with pytest.raises(aiohttp.ServerTimeoutError, match=why):
        send("PUT", url, three(timeout=1.0), data=parts())
    assert {each.body for each in server.seen} <= {b"onetwo"}
    assert server.count() <= 1


def test_a_post_with_a_key_is_repeated_with_the_same_key(server):
    """The key of the call that is under way goes to a host that is listed."""
    url = server.on("/", Reset(), Status(500), OK)
    with keyed_call("order-7"):
        assert send("POST", url, three(), data=b"o", trust=["127.0.0.1"]).status == 200
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
    """Nor does a key."""
    with HttpFaults() as other:
        elsewhere = other.on("/", OK).replace("127.0.0.1", "localhost")
        url = server.on("/", Status(307, {"Location": elsewhere}))
        with deadline.within(3000.0), keyed_call("order-7"):
            send("POST", url, three(), data=b"o", trust=["127.0.0.1"])
        ours = {"mainstay-timeout", "mainstay-attempt", "idempotency-key"}
        assert ours <= set(server.seen[0].headers)
        assert not ours & set(other.seen[0].headers)


FAULTS = [
    pytest.param(Silence(), id="no answer"),
    pytest.param(Drip(every=0.03), id="slow headers"),
    pytest.param(Drip(every=0.03, after=70), id="a byte at a time"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_deadline_ends_a_request_whatever_the_server_does(server, fault):
    """Long before the five minutes of the session."""

    def check(seconds):
        server.clear()
        url = server.on("/", fault)
        with deadline.within(seconds), pytest.raises(aiohttp.ServerTimeoutError, match="deadline"):
            send("GET", url)
        wait_until(lambda: server.count("/") == 1, "the request", 5.0)

    at_some_speed(check, 0.2, 2.0, 10.0)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_deadline_of_the_policy_ends_it_too(server, fault):
    """Headers and body have one deadline."""
    url = server.on("/", fault)
    with pytest.raises((aiohttp.ServerTimeoutError, mainstay.DeadlineExceeded)):
        send("GET", url, three(deadline=0.2))


def test_a_timeout_of_aiohttp_is_its_own(server):
    """One that comes before the deadline is raised as it is."""
    url = server.on("/", Silence())
    timeout = aiohttp.ClientTimeout(sock_read=0.5)
    with deadline.within(60.0), pytest.raises(aiohttp.SocketTimeoutError):
        send("GET", url, three(), timeout=timeout)
    wait_until(lambda: server.count("/") == 3, "the requests")
    timeout = aiohttp.ClientTimeout(total=0.05)
    with deadline.within(60.0), pytest.raises(TimeoutError) as caught:
        send("GET", url, three(), timeout=timeout)
    assert not isinstance(caught.value, aiohttp.ClientError)


def test_a_body_that_is_read_in_time_is_left_alone(server):
    """Nothing of the deadline is left on a connection that is used again."""
    url = server.on("/", OK)

    async def main():
        async with aiohttp.ClientSession(middlewares=[Middleware(three())]) as session:
            for _ in range(2):
                with deadline.within(2.0):
                    async with session.get(url) as response:
                        await response.read()
            await asyncio.sleep(2.02)  # past both deadlines
            async with session.get(url) as response:
                return await response.read()

    assert asyncio.run(main()) == b"ok"
    assert server.connections == 1


def test_nothing_is_sent_if_no_time_is_left(server):
    """A request whose answer nobody waits for is work for nothing."""
    url = server.on("/", OK)

    async def main():
        with mainstay.testing.virtual_time() as time, deadline.within(1.0):
            time.advance(2.0)
            await asend("GET", url)

    with pytest.raises(aiohttp.ConnectionTimeoutError, match="no time is left"):
        asyncio.run(main())
    assert server.count() == 0


async def parts():
    """A body that can be read once."""
    yield b"one"
    yield b"two"


@pytest.mark.parametrize("fault", [DOWN, Reset()], ids=["503", "reset"])
@pytest.mark.parametrize("on", [None, (lambda error: True,)])
def test_a_body_that_cannot_be_read_again_is_not_sent_again(server, fault, on):
    """Half a body, or none, would be another request; a note states it."""
    url = server.on("/", fault, OK)
    try:
        notes = send("PUT", url, three(on=on), data=parts()).notes
    except aiohttp.ClientError as error:
        notes = error.__notes__
    assert any("PUT whose body cannot be read again" in note for note in notes)
    assert [each.body for each in server.seen] == [b"onetwo"]


@pytest.mark.parametrize("body", [b"kept", io.BytesIO(b"kept"), {"a": "b"}])
def test_a_body_that_is_the_same_again_is_sent_again(server, body):
    """Bytes, files and forms."""
    url = server.on("/", DOWN, Reset(), OK)
    assert send("PUT", url, three(), data=body).status == 200
    assert len({each.body for each in server.seen}) == 1
    assert server.seen[0].body


def test_an_engine_makes_the_calls_of_an_operation(server):
    """With its policy, and with what else the engine has for that name."""
    url = server.on("/", DOWN)
    with Engine(policies=[three(name="api", attempts=2)], operations={"orders": "api"}) as engine:
        assert send("GET", url, engine, operation="orders").status == 503
    assert server.count() == 2


def test_an_outer_retry_stands_back_from_what_the_middleware_has_given_up_on(server):
    """Three requests, not nine, though raise_for_status() makes an exception of its own."""
    url = server.on("/", DOWN)

    @mainstay.retry(on=mainstay.transient, attempts=3, backoff=Backoff.constant(0))
    async def fetch():
        return await asend("GET", url, three(), check=True)

    with (
        pytest.warns(mainstay.NestedRetryWarning),
        pytest.raises(aiohttp.ClientResponseError) as caught,
    ):
        asyncio.run(fetch())
    assert server.count() == 3
    assert mainstay.gave_up_headers(caught.value) == {"Mainstay-Gave-Up": "3"}


@pytest.mark.filterwarnings("ignore::mainstay.NestedRetryWarning")
@pytest.mark.parametrize(("trust", "sent"), [(["127.0.0.1"], 1), ([], 3)])
@pytest.mark.parametrize("place", ["inside", "around"])
def test_a_give_up_is_believed_from_a_listed_host_alone(server, trust, sent, place):
    """A stranger cannot switch off the retries of its callers, wherever they are."""
    url = server.on("/", Status(503, {"Mainstay-Gave-Up": "3"}))
    if place == "inside":
        assert send("GET", url, three(), trust=trust).status == 503
    else:
        with pytest.raises(aiohttp.ClientResponseError):
            asyncio.run(three().acall(lambda: asend("GET", url, trust=trust, check=True)))
    assert server.count() == sent


def test_a_response_that_the_policy_does_not_accept_is_closed(server):
    """Its connection is free for the next attempt, and after the last one."""
    url = server.on("/", Status(202, body=b"x" * 100_000), OK)
    policy = three(retry_if_result=lambda response: response.status == 202)
    assert send("GET", url, policy).body == b"ok"
    assert server.count() == 2
    url = server.on("/", Status(202, body=b"x" * 100_000))
    with pytest.raises(mainstay.ResultRejected):
        send("GET", url, three(retry_if_result=lambda _: True, on_exhausted="raise"))
