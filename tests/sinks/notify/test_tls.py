"""Notifications over TLS: a certificate is looked at, and a password is given to nobody else."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from aiosmtpd.smtp import SMTP, AuthResult

from mainstay import Engine, Item
from mainstay.sinks.notify.sink import NotifyMail, NotifyWebhook
from tests.processes import wait_until
from tests.servers.certificate import make_certificate, server_side
from tests.servers.smtp import MailServer

ITEM = Item(kind="unknown_outcome", subject="a", operation="charge", text="lost")
PASSWORD, SECRET = "hunter2-of-ops", "0123456789abcdef"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of 127.0.0.1, signed by itself, and its key: two files."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def trusted(certificate, monkeypatch):
    """This program trusts the certificate, as one would that has its authority installed."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))


def raised(sink):
    """Puts the item into an inbox whose engine has the sink; what became of it."""
    with Engine(sinks=[sink]) as engine:
        engine.inbox.put(ITEM)
        wait_until(lambda: sink.stats()["delivered"] or sink.stats()["failures"], "a delivery")
    sink.close()
    counts = sink.stats()
    return next(name for name in ("delivered", "spilled", "lost") if counts[name])


# --- https ----------------------------------------------------------------------------------------


@contextmanager
def https(certificate):
    """A server that keeps the bodies it gets."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_args):
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        context = server_side(certificate)
        running.socket = context.wrap_socket(
            running.socket, server_side=True, do_handshake_on_connect=False
        )
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"https://127.0.0.1:{running.server_port}/hook", got
        finally:
            running.shutdown()
            thread.join(60)


@pytest.mark.usefixtures("trusted")
def test_a_webhook_goes_over_https(certificate, tmp_path):
    """To a server whose certificate is good."""
    with https(certificate) as (url, got):
        assert (
            raised(NotifyWebhook(url, allow_local=True, secret=SECRET, spill=tmp_path))
            == "delivered"
        )
    assert len(got) == 1


def test_a_webhook_tells_nothing_to_a_server_that_cannot_prove_itself(certificate, tmp_path):
    """It is kept, as for one that is away."""
    with https(certificate) as (url, got):
        assert (
            raised(NotifyWebhook(url, allow_local=True, secret=SECRET, spill=tmp_path)) == "spilled"
        )
    assert got == []


# --- SMTP -----------------------------------------------------------------------------------------


class Mailbox:
    """Keeps what comes, and who logged in; a wrong password is refused."""

    def __init__(self):
        self.got, self.logins = [], []

    async def handle_DATA(self, _server, _session, envelope):  # noqa: N802
        self.got.append(envelope.content)
        return "250 OK"

    def authenticate(self, _server, _session, _envelope, mechanism, data):
        given = (data.login, data.password) if mechanism in ("LOGIN", "PLAIN") else ()
        self.logins.append(given)
        return AuthResult(success=given == (b"ops", PASSWORD.encode()), handled=False)


class _Controller(MailServer):
    """A server with STARTTLS, or TLS from the start."""

    def __init__(self, box, context, *, from_the_start):
        self._offered = None if from_the_start else context
        self._box = box
        super().__init__(box, context if from_the_start else None)

    def factory(self):
        return SMTP(
            self._box,
            tls_context=self._offered,
            require_starttls=self._offered is not None,
            authenticator=self._box.authenticate,
            auth_require_tls=self._offered is not None,
        )


@pytest.fixture(params=["starttls", "tls"])
def mail(request, certificate, tmp_path):
    """A mailbox behind TLS, and a sink that tells it."""
    box = Mailbox()
    is_tls = request.param == "tls"
    controller = _Controller(box, server_side(certificate), from_the_start=is_tls)
    controller.start()

    def sink(password=PASSWORD):
        login = {"user": "ops", "password": password, "security": request.param}
        told = {"sender": "ops@example.org", "to": ["ann@example.org"], "port": controller.port}
        return NotifyMail("127.0.0.1", **told, **login, spill=tmp_path / "spill")

    yield box, sink
    controller.stop()


@pytest.mark.usefixtures("trusted")
def test_mail_goes_over_tls_after_a_login(mail):
    """The password is given inside of it."""
    box, sink = mail
    assert raised(sink()) == "delivered"
    assert len(box.got) == 1
    assert box.logins == [(b"ops", PASSWORD.encode())]


def test_no_password_is_given_to_a_server_that_cannot_prove_itself(mail):
    """It may be anybody; the mail is kept."""
    box, sink = mail
    assert raised(sink()) == "spilled"
    assert (box.got, box.logins) == ([], [])


@pytest.mark.usefixtures("trusted")
def test_a_wrong_password_is_reported_and_not_shown(mail, caplog):
    """535 is for ever."""
    box, sink = mail
    raised(sink("hunter3-of-ops"))
    assert box.got == []
    assert "it answered 535" in caplog.text
    assert "hunter" not in caplog.text
