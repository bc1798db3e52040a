"""smtplib: a local server that answers each step of a delivery as it is told.

The codes are those of RFC 5321, section 4.2.3, RFC 4954 (login) and RFC 3463 (enhanced codes).
"""

import smtplib
import socket
import struct
import threading
from collections import Counter
from contextlib import suppress

import pytest

import mainstay
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.testing import virtual_time
from tests.integrations.errors.model_server import free_port
from tests.integrations.errors.recipe import run_recipe
from tests.processes import wait_until

CLOSE, RESET, SILENCE = "close", "reset", "silence"
USUAL = {
    "CONNECT": "220 ready",
    "EHLO": "250-local\r\n250-AUTH PLAIN\r\n250 SIZE",
    "HELO": "250 local",
    "AUTH": "235 welcome",
    "MAIL": "250 ok",
    "RCPT": "250 ok",
    "DATA": "354 go on",
    "MESSAGE": "250 taken",
    "RSET": "250 ok",
    "QUIT": "221 bye",
}


class MailServer:
    """`port`, the commands that came, and `replies`: by step, one for all or a list of them."""

    def __init__(self):
        self.seen = Counter()
        self.replies = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def begin(self, **replies):
        """Forgets what came, and answers so from now on."""
        self.seen, self.replies = Counter(), replies

    def close(self):
        """Stops, with the thread: one that waits for a closed socket may meet its successor."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()

    def _accept(self):
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(peer,), daemon=True).start()

    def _talk(self, peer):
        with suppress(OSError), peer, peer.makefile("rb") as lines:  # a client that gives up
            step = "CONNECT"
            while self._answer(peer, step) and step != "QUIT":
                step = self._next(lines, step)

    def _next(self, lines, step):
        line = lines.readline().decode()
        if step == "DATA":
            while line not in (".\r\n", ""):
                line = lines.readline().decode()
            return "MESSAGE"
        return line.split()[0].upper() if line.strip() else "QUIT"

    def _answer(self, peer, step):
        self.seen[step] += 1
        reply = self.replies.get(step, USUAL.get(step, "500 what?"))
        if isinstance(reply, list):
            reply = reply.pop(0) if reply[1:] else reply[0]
        if reply == RESET:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if reply == SILENCE:
            peer.settimeout(60)
            peer.recv(1)
        if reply in (RESET, CLOSE, SILENCE):
            return False
        peer.sendall(f"{reply}\r\n".encode())
        return step != "DATA" or reply.startswith("354")


@pytest.fixture(scope="module")
def server():
    """One for the module."""
    server = MailServer()
    yield server
    server.close()


def send(port, login=False, to=("b@example.org",), timeout=60):
    """A message, with up to three attempts, each over a connection of its own."""

    @mainstay.retry(on=mainstay.transient, attempts=3)
    def deliver():
        with smtplib.SMTP("127.0.0.1", port, local_hostname="here", timeout=timeout) as mail:
            if login:
                mail.login("me", "secret")
            mail.sendmail("a@example.org", list(to), "Subject: x\r\n\r\ntext")

    with virtual_time():
        deliver()


REPLIES = [
    # step, reply, class, kind, times
    ("CONNECT", "421 too many connections", "SMTPConnectError", Kind.OVERLOAD, 3),
    ("CONNECT", "554 no service here", "SMTPConnectError", Kind.PERMANENT, 1),
    ("MAIL", "421 closing", "SMTPSenderRefused", Kind.OVERLOAD, 3),
    ("MAIL", "421 4.7.0 too many messages", "SMTPSenderRefused", Kind.THROTTLED, 3),
    ("MAIL", "450 4.7.1 slower", "SMTPSenderRefused", Kind.THROTTLED, 3),
    ("MAIL", "451 4.7.1 greylisted", "SMTPSenderRefused", Kind.THROTTLED, 3),
    ("MAIL", "452 4.7.28 rate", "SMTPSenderRefused", Kind.THROTTLED, 3),
    ("MAIL", "451 4.3.0 an error inside", "SMTPSenderRefused", Kind.TRANSIENT, 3),
    ("MAIL", "452 no room", "SMTPSenderRefused", Kind.OVERLOAD, 3),
    ("MAIL", "455 not with these parameters now", "SMTPSenderRefused", Kind.TRANSIENT, 3),
    ("MAIL", "530 5.7.0 log in first", "SMTPSenderRefused", Kind.AUTH, 1),
    ("MAIL", "538 5.7.11 encrypt first", "SMTPSenderRefused", Kind.AUTH, 1),
    ("MAIL", "552 too large", "SMTPSenderRefused", Kind.PERMANENT, 1),
    ("RCPT", "450 mailbox busy", "SMTPRecipientsRefused", Kind.TRANSIENT, 3),
    ("RCPT", "550 no such mailbox", "SMTPRecipientsRefused", Kind.PERMANENT, 1),
    ("DATA", "451 an error inside", "SMTPDataError", Kind.TRANSIENT, 3),
    ("MESSAGE", "452 no room", "SMTPDataError", Kind.OVERLOAD, 3),
    ("MESSAGE", "554 5.7.1 spam", "SMTPDataError", Kind.PERMANENT, 1),
]


@pytest.mark.parametrize(("step", "reply", "name", "kind", "times"), REPLIES)
def test_a_reply_is_judged_by_its_code(server, step, reply, name, kind, times):
    """What the server asks to try again is tried again, and nothing else."""
    server.begin(**{step: reply})
    with pytest.raises(getattr(smtplib, name)) as caught:
        send(server.port)
    known = kind_of(caught.value)
    assert (known.kind, known.is_ambiguous, known.table) == (kind, False, "smtplib")
    assert server.seen[step] == times


@pytest.mark.parametrize(
    ("reply", "kind", "times"),
    [
        ("535 5.7.8 wrong", Kind.AUTH, 1),
        ("534 5.7.9 too weak", Kind.AUTH, 1),
        ("538 5.7.11 encrypt", Kind.AUTH, 1),
        ("550 go away", Kind.AUTH, 1),
        ("454 4.7.0 not now", Kind.TRANSIENT, 3),
        ("421 4.7.0 too many logins", Kind.THROTTLED, 3),
    ],
)
def test_a_login_that_fails_is_repeated_only_if_the_server_asks_for_it(server, reply, kind, times):
    """A wrong password would lock the account in the end."""
    server.begin(AUTH=reply)
    with pytest.raises(smtplib.SMTPAuthenticationError) as caught:
        send(server.port, login=True)
    assert kind_of(caught.value).kind is kind
    assert server.seen["AUTH"] == times


def test_a_recipient_that_is_refused_for_now_is_worth_another_attempt(server):
    """One mailbox does not exist, the other is busy: it may take the message later."""
    server.begin(RCPT=["550 no such mailbox", "450 busy", "550 no such mailbox", "250 ok"])
    send(server.port, to=("gone@example.org", "busy@example.org"))
    assert server.seen["MESSAGE"] == 1


@pytest.mark.parametrize("how", [CLOSE, RESET])
def test_a_connection_that_ends_after_the_message_is_ambiguous(server, how):
    """The server may have taken it; it comes twice then, if the delivery may be repeated."""
    server.begin(MESSAGE=how)
    with pytest.raises(smtplib.SMTPServerDisconnected) as caught:
        send(server.port)
    known = kind_of(caught.value)
    assert (known.kind, known.is_ambiguous) == (Kind.TRANSIENT, True)
    assert server.seen["MESSAGE"] == 3


def test_a_delivery_that_must_not_come_twice_is_not_repeated_after_that(server):
    """`never_retry_on` names what is ambiguous; the rest is repeated as before."""
    server.begin(MESSAGE=["451 an error inside", CLOSE])
    lost = smtplib.SMTPServerDisconnected

    @mainstay.retry(on=mainstay.transient, never_retry_on=(lost, TimeoutError), attempts=5)
    def deliver():
        with smtplib.SMTP("127.0.0.1", server.port, local_hostname="here", timeout=60) as mail:
            mail.sendmail("a@example.org", ["b@example.org"], "text")

    with virtual_time(), pytest.raises(lost):
        deliver()
    assert server.seen["MESSAGE"] == 2


@pytest.mark.parametrize("step", ["CONNECT", "MESSAGE"])
def test_silence_is_known_without_a_table(server, step):
    """The timeout of the socket comes through, or ends the connection."""
    server.begin(**{step: SILENCE})
    with pytest.raises((TimeoutError, smtplib.SMTPServerDisconnected)) as caught:
        send(server.port, timeout=0.2)
    assert kind_of(caught.value).kind in (Kind.TIMEOUT, Kind.TRANSIENT)
    wait_until(lambda: server.seen["CONNECT"] == 3, "the connections")


def test_a_dead_port_is_tried_again():
    """Nothing was sent; smtplib lets the error of the socket through."""
    with pytest.raises(ConnectionRefusedError) as caught:
        send(free_port())
    assert kind_of(caught.value).kind is Kind.TRANSIENT


def test_what_the_server_does_not_offer_is_final(server):
    """Another attempt would meet the same server."""
    server.begin()
    with smtplib.SMTP("127.0.0.1", server.port, local_hostname="here", timeout=60) as mail:
        with pytest.raises(smtplib.SMTPNotSupportedError) as caught:
            mail.starttls()
        assert kind_of(caught.value).kind is Kind.PERMANENT
        mail.ehlo()
        mail.esmtp_features["auth"] = "XOAUTH9"
        with pytest.raises(smtplib.SMTPException) as caught:
            mail.login("me", "secret")
        assert kind_of(caught.value).kind is Kind.PERMANENT


def test_a_server_that_does_not_greet_back_is_judged_by_its_code(server):
    """HELO and EHLO both refused."""
    server.begin(EHLO="421 closing", HELO="421 closing")
    with pytest.raises(smtplib.SMTPHeloError) as caught:
        send(server.port)
    assert kind_of(caught.value).kind is Kind.OVERLOAD
    server.begin(EHLO="502 no", HELO="900 what")
    with pytest.raises(smtplib.SMTPHeloError) as caught:
        send(server.port)
    assert kind_of(caught.value).kind is Kind.UNKNOWN


def test_the_recipe_runs(server):
    """The code of the page delivers a message to a server that is busy at first."""
    server.begin(MAIL=["451 4.7.1 greylisted", "250 ok"])
    run_recipe("smtplib", **{"2525": server.port})
    assert (server.seen["MAIL"], server.seen["MESSAGE"]) == (2, 1)
