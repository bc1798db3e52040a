"""HttpPublisher against a real HTTP server that fails on command, behind a proxy."""

import asyncio
import uuid
from contextlib import suppress
from urllib.parse import unquote

import pytest

from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.core.retry.retry_after import hint_of
from mainstay.errors import MainstayError
from mainstay.publishers.http import HttpPublisher
from mainstay.sinks.notify import is_genuine
from mainstay.testing import BrokerContract, FaultProxy, Received
from mainstay.testing.publishers import failure_of, message_of
from tests.publishers.forked import IDS, publish_in_children, publish_in_children_of_c_code
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

SECRET = "0123456789abcdef"


@pytest.fixture
def server():
    with HttpFaults() as server:
        yield server


@pytest.fixture
def proxy(server):
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


def received(request):
    headers = request.headers
    attributes = {n[3:]: unquote(v) for n, v in headers.items() if n.startswith("ce-")}
    attributes["datacontenttype"] = headers["content-type"]
    assert headers["idempotency-key"] == headers["webhook-id"] == attributes["id"]
    return Received(headers["idempotency-key"], request.body, attributes)


class TestContract(BrokerContract):
    too_large = 1_200_000

    @pytest.fixture(autouse=True)
    def _server(self, server, proxy):
        self.server, self.proxy = server, proxy

    def open(self):
        url = self.proxy.url(f"{self.server.url}/{{topic}}")
        return HttpPublisher(f"{url}#allow_local=true&timeout=30")

    def topic(self):
        name = f"paid-{uuid.uuid4()}"
        self.server.on(f"/{name}", lambda seen: Status(413 if len(seen.body) > 1_100_000 else 204))
        return name

    def missing_topic(self):
        return "no-such-path"

    def received(self, topic):
        seen = [each for each in list(self.server.seen) if each.path == f"/{topic}"]
        return [received(each) for each in seen if len(each.body) <= 1_100_000]


def publish(url, *messages, **options):
    """Publishes one after the other; the failures, None for each that was acknowledged."""

    async def run():
        publisher = HttpPublisher(url, allow_local=True, **options)
        outcomes = []
        for message in messages:
            try:
                outcomes.append(await publisher.publish(message))
            except Exception as error:
                outcomes.append(error)
        await publisher.close()
        return outcomes

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Status(201), None),
        (Status(204), None),
        (Status(301, {"Location": "/other"}), Kind.UNKNOWN),
        (Status(400), Kind.PERMANENT),
        (Status(401), Kind.AUTH),
        (Status(404), Kind.PERMANENT),
        (Status(408), Kind.TIMEOUT),
        (Status(410), Kind.PERMANENT),
        (Status(413), Kind.PERMANENT),
        (Status(429), Kind.THROTTLED),
        (Status(500), Kind.TRANSIENT),
        (Status(503), Kind.OVERLOAD),
        (Reset(), Kind.TRANSIENT),
        (Close(), Kind.TRANSIENT),
        (Raw(b"nonsense\r\n\r\n"), Kind.TRANSIENT),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), None),
    ],
    ids=repr,
)
def test_the_answer_decides_what_becomes_of_a_message(server, answer, kind):
    """2xx alone is an acknowledgement; nothing is repeated or followed here."""
    (outcome,) = publish(server.on("/in", answer), message_of("t", b"{}"))
    assert (None if outcome is None else kind_of(outcome).kind) == kind
    assert server.count() == 1


def test_a_retry_after_is_what_the_receiver_asks_for(server):
    """The relay waits for it."""
    url = server.on("/in", Status(429, {"Retry-After": "7"}))
    (error,) = publish(url, message_of("t", b"{}"))
    assert hint_of(error).seconds == 7.0


def test_a_port_where_nobody_listens_is_transient():
    (error,) = publish(f"http://127.0.0.1:{dead_port()}/", message_of("t", b"{}"))
    assert kind_of(error).kind is Kind.TRANSIENT


def test_an_answer_that_does_not_come_is_a_timeout(server):
    (error,) = publish(server.on("/in", Silence()), message_of("t", b"{}"), timeout=0.2)
    assert kind_of(error).kind is Kind.TIMEOUT
    assert "within 0.2 s" in str(error)


def test_an_answer_byte_by_byte_is_cut_with_its_thread(server):
    """A socket's own timeout is for one read: the one thread would be taken for a minute."""
    url = server.on("/in", Drip(0.05), Status(204))

    async def run():
        publisher = HttpPublisher(url, allow_local=True, threads=1, timeout=1.0)
        error = await failure_of(publisher.publish(message_of("t", b"{}")))
        for _ in range(20):
            with suppress(TimeoutError):
                await publisher.publish(message_of("t", b"{}"))
                break
        await publisher.close()
        return error

    assert kind_of(asyncio.run(run())).kind is Kind.TIMEOUT
    assert server.count() == 2


def test_the_signature_is_that_of_standard_webhooks(server):
    """The receiver checks it with the library, over the id, the time and the body."""
    message = message_of("t", b'{"amount": 5}')
    assert publish(server.on("/in", Status(200)), message, secret=SECRET) == [None]
    (request,) = server.seen
    timestamp, signature = (request.headers[f"webhook-{n}"] for n in ("timestamp", "signature"))
    check = {"delivery": request.headers["webhook-id"]}
    assert is_genuine(SECRET, timestamp, request.body, signature, **check)
    assert not is_genuine(SECRET, timestamp, b"{}", signature, **check)


def test_without_a_secret_nothing_is_signed(server):
    publish(server.on("/in", Status(200)), message_of("t", b"{}"))
    assert "webhook-signature" not in server.seen[0].headers


def test_a_connection_is_used_again(server):
    """Ten messages one after the other, one connection; one that the server closed is replaced."""
    url = server.on("/in", *[Status(200)] * 10, Status(200, {"Connection": "close"}), Status(200))
    assert publish(url, *(message_of("t", b"{}") for _ in range(11))) == [None] * 11
    assert server.connections == 1


def test_an_idle_connection_that_the_server_has_closed_is_not_used(server):
    """The message goes out over a new one, and is sent once."""
    url = server.on("/in", Status(200))

    async def run():
        publisher = HttpPublisher(url, allow_local=True)
        await publisher.publish(message_of("t", b"{}"))
        idle = publisher._idle[0].sock
        server.clear()
        server.on("/in", Status(200))
        await asyncio.to_thread(idle.recv, 1)  # until its end has arrived
        await publisher.publish(message_of("t", b"{}"))
        await publisher.close()

    asyncio.run(run())
    assert (server.count(), server.connections) == (1, 1)


def test_a_forked_child_has_connections_of_its_own(server, tmp_path):
    """It neither uses nor closes that of its parent: each message arrives once."""
    url = server.on("/in", Status(200))
    publish_in_children(tmp_path, f"{url}#allow_local=true", "t")
    assert sorted(each.headers["idempotency-key"] for each in server.seen) == sorted(IDS)
    assert server.connections == 4


def test_a_child_that_c_code_has_forked_has_connections_of_its_own(server, tmp_path):
    """And threads: those of its parent seem to be there, and take nothing."""
    url = f"{server.on('/in', Status(200))}#allow_local=true"
    publish_in_children_of_c_code(tmp_path, url, "t", has_links=False)
    assert sorted(each.headers["idempotency-key"] for each in server.seen) == sorted(IDS)
    assert server.connections == 4


def test_names_of_a_message_in_the_url_are_escaped(server):
    """A topic cannot lead to another path."""
    url = server.on("/in/a%2Fb%3Fc", Status(200)).replace("a%2Fb%3Fc", "{topic}")
    assert publish(url, message_of("a/b?c", b"{}")) == [None]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", "0x7f.1"])
def test_a_target_on_this_machine_needs_a_word(host):
    """A URL may come from a configuration that others can write."""
    with pytest.raises(MainstayError, match="allow_local=True"):
        HttpPublisher(f"http://{host}/")
    assert HttpPublisher(f"http://{host}/#allow_local=true").url.startswith("http://")


def test_a_name_that_leads_to_this_machine_is_refused_at_the_connection(server, monkeypatch):
    """Whatever a name server answers: nothing is sent."""
    from mainstay.integrations.webhooks import targets

    place = [(2, ("127.0.0.1", server.port))]
    monkeypatch.setattr(targets, "addresses_of", lambda *_: place)

    async def run():
        publisher = HttpPublisher("http://example.org/in")
        error = await failure_of(publisher.publish(message_of("t", b"{}")))
        await publisher.close()
        return error

    assert "leads to this machine" in str(asyncio.run(run()))
    assert server.connections == 0


def test_no_secret_is_shown(server):
    """Not the password, not the path, not the key; not in errors either."""
    url = server.on("/hooks/hunter2path", Status(404)).replace("//", "//me:hunter2@")
    publisher = HttpPublisher(f"{url}#secret=hunter2hunter2hunter2&allow_local=true")

    async def run():
        error = await failure_of(publisher.publish(message_of("t", b"{}")))
        await publisher.close()
        return error

    error = asyncio.run(run())
    assert server.seen[0].headers["authorization"] == "Basic bWU6aHVudGVyMg=="
    shown = f"{error} {error!r} {error.url} {error.__cause__} {publisher.url} {publisher!r}"
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://", "url"),
        ("http://example.org/a b", "url"),
        ("https://example.org/#secret=short", "at least 16 characters"),
        ("https://example.org/#timeut=1", "timeut is no option of this publisher"),
        ("https://example.org/#threads=0", "threads"),
        ("https://example.org/{nonsense}", "nonsense"),
    ],
)
def test_a_wrong_url_is_refused_when_it_is_given(url, words):
    with pytest.raises(MainstayError, match=words) as caught:
        HttpPublisher(url)
    assert "short" not in str(caught.value)
