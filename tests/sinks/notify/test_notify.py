"""Notifications of new items: a function, a signed webhook, an e-mail over a real SMTP server."""

import base64
import hmac
import socket
import threading
from contextlib import contextmanager, suppress
from email import message_from_bytes
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mainstay import Engine, Item
from mainstay.errors import PolicyError, UsageError
from mainstay.events import InboxRaised, decode
from mainstay.sinks.notify.sink import (
    NotifyHook,
    NotifyMail,
    NotifySink,
    NotifyWebhook,
    is_genuine,
    signature_of,
)
from tests.processes import wait_until
from tests.servers.smtp import MailServer

SECRET = "0123456789abcdef-plant"
ITEM = Item(kind="unknown_outcome", subject="a", operation="charge", text="token=hunter2 lost")


@contextmanager
def server(statuses=()):
    """An HTTP server that answers with these statuses, then 204; what it got."""
    left, got = list(statuses), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, dict(self.headers), body))
            self.send_response(left.pop(0) if left else 204)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args):
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}/hook?x=1", got
        finally:
            running.shutdown()
            thread.join(60)


def raised(sink, *items, times=1):
    """Puts items into the inbox of an engine with this sink."""
    with Engine(sinks=[sink]) as engine:
        for item in items:
            for _ in range(times):
                engine.inbox.put(item)
        assert sink.flush(60)
    sink.close()


def test_a_function_is_told_once_of_a_new_item_and_not_of_its_repetition():
    """With what a person needs, without secrets, and off the caller's thread."""
    told, threads = [], []

    def tell(event):
        told.append(event)
        threads.append(threading.current_thread())

    raised(NotifyHook(tell), ITEM, times=5)
    (event,) = told
    assert isinstance(event, InboxRaised)
    assert (event.item, event.severity) == (ITEM.id, "high")
    assert event.text == "token=[redacted] lost"
    assert threads[0] is not threading.main_thread()


def test_a_function_that_raises_costs_nobody_anything(caplog):
    """It is reported, and the next item is told of."""
    told = []

    def tell(event):
        told.append(event.operation)
        raise RuntimeError("no pager")

    other = Item(kind="alert", subject="b", operation="fetch", text="failing")
    raised(NotifyHook(tell), ITEM, other)
    assert told == ["charge", "fetch"]
    assert "the hook raised on item" in caplog.text


def test_only_what_is_bad_enough_is_told():
    """From the severity that was asked for."""
    told = []
    quiet = Item(kind="alert", subject="b", operation="fetch", text="t", severity="low")
    bad = Item(kind="stuck_saga", subject="c", operation="pay", text="t")
    raised(NotifyHook(lambda event: told.append(event.operation), least="high"), quiet, ITEM, bad)
    assert told == ["charge", "pay"]


def test_a_webhook_is_signed_over_its_id_its_time_and_its_body(tmp_path):
    """Whoever has the secret can tell; a changed id, body, time or signature is seen."""
    with server() as (url, got):
        raised(NotifyWebhook(url, allow_local=True, secret=SECRET, spill=tmp_path), ITEM, times=3)
    ((path, headers, body),) = got
    assert path == "/hook?x=1"
    stamp, signed = headers["Webhook-Timestamp"], headers["Webhook-Signature"]
    sent = {"delivery": headers["Webhook-Id"]}
    assert sent["delivery"] == headers["Mainstay-Delivery"]
    assert is_genuine(SECRET, stamp, body, signed, **sent)
    assert is_genuine(SECRET, stamp, body, f"v1,AAAA {signed} v2,x", **sent)
    assert not is_genuine(SECRET, stamp, body, signed, delivery=sent["delivery"] + "x")
    assert not is_genuine(SECRET, stamp, body + b" ", signed, **sent)
    assert not is_genuine(SECRET, str(int(stamp) + 1), body, signed, **sent)
    assert not is_genuine(SECRET + "x", stamp, body, signed, **sent)
    for delivery in (sent["delivery"], None):  # without an id, the old signature is no way round
        assert not is_genuine(SECRET, stamp, body, headers["Mainstay-Signature"], delivery=delivery)
    old = "1700000000"
    again = signature_of(SECRET.encode(), old, body, sent["delivery"])
    assert not is_genuine(SECRET, old, body, again, **sent)
    event = decode(body)
    assert (event.item, event.text) == (ITEM.id, "token=[redacted] lost")
    assert SECRET not in repr((headers, body))


def test_the_signature_is_that_of_standard_webhooks(tmp_path):
    """The bytes are put together here by hand, as the specification has them."""
    with server() as (url, got):
        sink = NotifyWebhook(url, allow_local=True, secret=SECRET, spill=tmp_path)
        raised(sink, ITEM)
    ((_, headers, body),) = got
    said = b".".join([headers["Webhook-Id"].encode(), headers["Webhook-Timestamp"].encode(), body])
    digest = hmac.digest(SECRET.encode(), said, "sha256")
    assert headers["Webhook-Signature"] == "v1," + base64.b64encode(digest).decode()


def test_a_receiver_of_an_earlier_version_is_still_served_and_warned(tmp_path):
    """Its header is sent for one more version; the check of it is deprecated."""
    with server() as (url, got):
        sink = NotifyWebhook(url, allow_local=True, secret=SECRET, spill=tmp_path)
        raised(sink, ITEM)
    ((_, headers, body),) = got
    stamp, signed = headers["Mainstay-Timestamp"], headers["Mainstay-Signature"]
    with pytest.warns(DeprecationWarning, match="does not cover the id"):
        assert is_genuine(SECRET, stamp, body, signed)
    with pytest.warns(DeprecationWarning, match="does not cover the id"):
        assert not is_genuine(SECRET, stamp, body + b" ", signed)


def test_a_webhook_that_is_unavailable_is_tried_again_and_one_that_refuses_is_not(tmp_path, caplog):
    """503 and 429 are repeated as the same delivery; 302 and 404 are reported, and let go."""
    items = [Item(kind="alert", subject=s, operation=s, text="t") for s in "abc"]
    with server([503, 429, 204, 302, 404]) as (url, got):
        raised(NotifyWebhook(url, allow_local=True, secret=SECRET, spill=tmp_path), *items)
        wait_until(lambda: caplog.text.count("is not notified") == 2, "two reports")
    assert [decode(body).operation for _, _, body in got] == ["a", "a", "a", "b", "c"]
    assert len({headers["Mainstay-Delivery"] for _, headers, _ in got[:3]}) == 1
    assert {path for path, _, _ in got} == {"/hook?x=1"}


def test_a_server_that_is_not_there_delays_no_call(tmp_path):
    """The item is in the inbox, and the event waits on disk."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        sink = NotifyWebhook(url, allow_local=True, secret=SECRET, spill=tmp_path, timeout=0.5)
        with Engine(sinks=[sink]) as engine:
            engine.inbox.put(ITEM)
            assert [item.id for item in engine.inbox] == [ITEM.id]
        assert sink.stats()["delivered"] == 0
        assert sink.stats()["lost"] == 0
        assert any(tmp_path.rglob("*"))


def test_a_webhook_without_a_secret_is_not_signed(tmp_path):
    """Nor does it pretend to be; who the URL names is told as HTTP does."""
    with server() as (url, got):
        named = url.replace("http://", "http://ann:p%40ss@")
        raised(NotifyWebhook(named, allow_local=True, secret=None, spill=tmp_path), ITEM)
    assert not {"Mainstay-Signature", "Webhook-Signature"} & got[0][1].keys()
    assert got[0][1]["Authorization"] == "Basic YW5uOnBAc3M="


def test_a_configuration_tells_by_webhook_and_mail(tmp_path, mailbox):
    """`inbox.notify`, with what the file names; flushed when the engine closes."""
    with server() as (url, got):
        file = tmp_path / "mainstay.yml"
        file.write_text(
            "inbox:\n  notify:\n"
            f"    webhook: {{url: '{url}', secret: {SECRET}, allowLocal: true}}\n"
            f"    email: {{host: 127.0.0.1, port: {mailbox.port}, security: none,"
            " from: ops@example.org, to: ann@example.org}\n"
        )
        with Engine.from_config(file, env={}) as engine:
            engine.inbox.put(ITEM)
            (sink,) = [each for each in engine.sinks if isinstance(each, NotifySink)]
            assert sink.flush(60)
            assert sink.stats()["delivered"] == 2
        sink.close()
    assert [decode(body).item for _, _, body in got] == [ITEM.id]
    assert len(mailbox.got) == 1


class Mailbox:
    """Keeps what comes; refuses one recipient."""

    def __init__(self):
        self.got, self.answers = [], []

    async def handle_RCPT(self, _server, _session, envelope, address, _options):  # noqa: N802
        if address.startswith("nobody"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server, _session, envelope):  # noqa: N802
        answer = self.answers.pop(0) if self.answers else "250 OK"
        if answer.startswith("2"):
            self.got.append((envelope.mail_from, envelope.rcpt_tos, envelope.content))
        return answer


@pytest.fixture
def mailbox():
    box = Mailbox()
    controller = MailServer(box)
    controller.start()
    box.port = controller.port
    yield box
    controller.stop()


def mail(mailbox, tmp_path, to=("ann@example.org",)):
    return NotifyMail(
        "127.0.0.1",
        sender="ops@example.org",
        to=to,
        port=mailbox.port,
        security="none",
        spill=tmp_path,
    )


def test_an_item_is_mailed_once(mailbox, tmp_path):
    """With its severity, kind and operation as the subject, and the command that shows it."""
    raised(mail(mailbox, tmp_path), ITEM, times=3)
    ((sender, to, content),) = mailbox.got
    message = message_from_bytes(content)
    assert (sender, to) == ("ops@example.org", ["ann@example.org"])
    assert message["Subject"] == "high: unknown_outcome of charge"
    assert parsedate_to_datetime(message["Date"]).year >= 2026
    text = message.get_payload(decode=True).decode()
    assert "token=[redacted] lost" in text
    assert f"mainstay inbox show {ITEM.id}" in text


def test_an_operation_cannot_write_headers(mailbox, tmp_path):
    """What ends a line is shown instead, in the subject and in the text."""
    evil = Item(kind="alert", subject="x", operation="a\r\nBcc: eve@example.org", text="t\r\n.\r\n")
    raised(mail(mailbox, tmp_path), evil)
    ((_, to, content),) = mailbox.got
    assert to == ["ann@example.org"]
    message = message_from_bytes(content)
    assert message["Bcc"] is None
    assert message["Subject"] == r"normal: alert of a\r\nBcc: eve@example.org"
    assert r"operation  a\r\nBcc" in message.get_payload(decode=True).decode()


def test_mail_that_is_refused_for_now_comes_later_and_for_ever_never(mailbox, tmp_path, caplog):
    """451 is repeated; 554 and a recipient nobody has are reported."""
    mailbox.answers = ["451 later", "250 OK", "554 no"]
    other = Item(kind="alert", subject="b", operation="fetch", text="failing")
    raised(mail(mailbox, tmp_path, ["ann@example.org", "nobody@example.org"]), ITEM, other)
    wait_until(lambda: not mailbox.answers, "three deliveries")
    wait_until(lambda: "1 of 2 recipients were refused" in caplog.text, "the report")
    assert len(mailbox.got) == 1
    raised(mail(mailbox, tmp_path, "nobody@example.org"), ITEM)
    assert "no recipient was taken" in caplog.text


@pytest.mark.parametrize(
    "make",
    [
        lambda: NotifyHook("no function"),
        lambda: NotifyHook(print, least="worst"),
        lambda: NotifyWebhook("ftp://example.org", secret=SECRET),
        lambda: NotifyWebhook("https://", secret=SECRET),
        lambda: NotifyWebhook("https://example.org", secret="short"),
        lambda: NotifyWebhook("https://example.org:99999/", secret=SECRET),
        lambda: NotifyWebhook("https://example.org/a b", secret=SECRET),
        lambda: NotifyWebhook("https://example.org/\u00e4", secret=SECRET),
        lambda: NotifyWebhook("https://example.org\r\nHost: eve/", secret=SECRET),
        lambda: NotifyWebhook("https://[::1", secret=SECRET),
        lambda: NotifyWebhook(f"https://{'a' * 70}.org/", secret=SECRET),
        lambda: NotifyMail("h", sender="ops", to=["ann@example.org"]),
        lambda: NotifyMail("h", sender="ops@example.org", to=[]),
        lambda: NotifyMail("h", sender="ops@example.org", to=["a@b\nBcc: c@d"]),
        lambda: NotifyMail("h", sender="ops@example.org", to="a@b.c", security="maybe"),
        lambda: NotifyMail("h", sender="o@b.c", to="a@b.c", security="none", user="u", password=""),
        lambda: NotifyMail("127.eve.org", sender="o@b.c", to="a@b.c", security="none", user="u"),
        lambda: NotifyMail("h", sender="ops@example.org", to="a@b.c", port=99_999),
        lambda: NotifyMail("h", sender="ops@example.org", to=["undisclosed:;@"]),
        lambda: NotifyMail("h", sender="ops@example.org", to=[" @ "]),
        lambda: NotifyMail("h", sender="ops@example.org", to=["a@b.c;d@e.f"]),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(make):
    """And a secret that is too short is not in the message."""
    with pytest.raises((PolicyError, UsageError)) as told:
        make()
    assert "short" not in str(told.value)


def test_any_address_that_mail_goes_to_is_taken():
    """With a name, in another script, or several in one text."""
    for to in (
        "Ann B <ann@example.org>",
        "\u00e4nn@example.org",
        "ann@b\u00fccher.org",
        "a@b.c, d@e.f",
    ):
        sink = NotifyMail("h", sender="ops@example.org", to=to, spill=False)
        assert sink._to == [to]


@pytest.mark.parametrize(
    ("stamp", "body", "signature"),
    [
        (None, b"{}", "v1=00"),
        ("1700000000", b"{}", None),
        ("1700000000", b"{}", b"v1=00"),
        ("1700000000", "{}", "v1=00"),
        ("\udcff", b"{}", "v1=\udcff"),
        ("inf", b"{}", signature_of(SECRET.encode(), "inf", b"{}", "a")),
        ("9" * 5000, b"{}", signature_of(SECRET.encode(), "9" * 5000, b"{}", "a")),
        ("-5", b"{}", signature_of(SECRET.encode(), "-5", b"{}", "a")),
    ],
    ids=["no time", "unsigned", "bytes", "text", "half a letter", "infinite", "long", "negative"],
)
def test_what_is_no_webhook_of_ours_is_not_genuine(stamp, body, signature):
    """Whatever is sent, the answer is no and not an error."""
    assert is_genuine(SECRET, stamp, body, signature, delivery="a") is False
    assert is_genuine(SECRET, stamp, body, signature, delivery="\udcff") is False


@pytest.mark.parametrize("secret", ["", "short", None])
def test_nothing_is_genuine_by_a_secret_that_anybody_can_guess(secret):
    """An empty variable in the environment must not let everybody in."""
    from mainstay.runtime import clock

    now = str(int(clock.current.wall()))
    with pytest.raises(UsageError, match="at least 16"):
        signed = signature_of((secret or "").encode(), now, b"{}", "a")
        is_genuine(secret, now, b"{}", signed, delivery="a")


@contextmanager
def dripping(text):
    """A server that answers byte by byte, and never comes to an end; how many have called."""
    calls, is_over = [], threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.05)

        def serve():
            while not is_over.is_set():
                with suppress(OSError):
                    connection, _ = listening.accept()
                    calls.append(connection)
                    answer(connection)

        def answer(connection):
            with connection:
                for byte in text * 10_000:
                    if is_over.wait(0.02):
                        return
                    connection.sendall(bytes([byte]))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1], calls
        finally:
            is_over.set()
            thread.join(60)


def slow_webhook(port, folder):
    url = f"http://127.0.0.1:{port}/"
    return NotifyWebhook(url, allow_local=True, secret=SECRET, spill=folder, timeout=0.3)


def slow_mail(port, folder):
    options = {"security": "none", "spill": folder, "timeout": 0.3}
    return NotifyMail("127.0.0.1", sender="a@b.c", to="d@e.f", port=port, **options)


@pytest.mark.req("CP-14.exporters")
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (slow_webhook, b"HTTP/1.1 100 Continue\r\n\r\n"),
        (slow_webhook, b"HTTP/1.1 200 OK\r\nX: y"),
        (slow_mail, b"220-welcome\r\n"),
    ],
)
def test_who_answers_byte_by_byte_is_cut_and_tried_again(tmp_path, make, text):
    """The time is that of the whole delivery, or one such server would silence all that follows."""
    with dripping(text) as (port, calls):
        sink = make(port, tmp_path)
        sink(InboxRaised(item=ITEM.id, severity="high", text="t", timestamp="2026-01-02T03:04:05Z"))
        wait_until(lambda: len(calls) >= 2, "a second try")
        assert sink.stats()["failures"] >= 1
        sink.close()


def test_a_connection_that_is_made_when_the_time_is_up_is_cut_too(tmp_path):
    """The first address of a name may not answer, and the second byte by byte."""
    sink = NotifyWebhook("https://example.org/", secret=None, spill=tmp_path, timeout=0.01)
    ours, theirs = socket.socketpair()
    found = []
    with ours, theirs:
        ours.settimeout(5.0)

        def connect():
            if found:
                return ours
            found.append("asked while there was none")
            return None

        with pytest.raises(TimeoutError, match=r"within 0\.01 s"), sink._in_time(connect):
            found.append(ours.recv(1))
    assert found == ["asked while there was none", b""]
    sink.close()
