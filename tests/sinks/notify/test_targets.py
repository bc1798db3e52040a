"""Webhooks to this machine and its link: refused unless allowed, whatever the URL looks like."""

import socket
import threading
from contextlib import closing, contextmanager

import pytest

from mainstay.errors import PolicyError
from mainstay.events import InboxRaised
from mainstay.integrations.webhooks import targets
from mainstay.integrations.webhooks.targets import CheckedConnection, is_local, is_local_literal
from mainstay.sinks.notify.sink import NotifyMail, NotifySink, NotifyWebhook
from tests.processes import wait_until

SECRET = "0123456789abcdef-plant"
EVENT = InboxRaised(item="3f2a", severity="high", text="t", timestamp="2026-01-02T03:04:05Z")
LOCAL = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1", "::1", "::",
    "fe80::1", "fe80::1%lo", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "fd00:ec2::254", "100.100.100.200",
    "fd00:ec2::23", "fd20:ce::254", "168.63.129.16", "192.0.0.192", "::ffff:0:127.0.0.1",
    "::ffff:0:169.254.169.254",
    "2001:0:7f00:1::", "64:ff9b:1::7f00:1", "64:ff9b:1:fffe::a9fe:a9fe", "2001:db8::5efe:7f00:1",
    "2001:db8::200:5efe:a9fe:a9fe",
]  # fmt: skip
ELSEWHERE = [
    "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "8.8.8.8", "fc00::1", "2001:db8::1",
    "fd00::1", "::ffff:10.0.0.1", "64:ff9b::808:808", "2002:808:808::",
    "64:ff9b:1::808:808", "2001:db8::5efe:a00:1", "2001:db8::5eff:7f00:1",
]  # fmt: skip


@pytest.mark.parametrize("address", LOCAL)
def test_an_address_of_this_machine_or_of_its_link_is_local(address):
    """Also the IPv4 address that an IPv6 address stands for, and the metadata services."""
    assert is_local(address)


@pytest.mark.parametrize("address", ELSEWHERE)
def test_private_and_public_networks_are_not_local(address):
    """Most receivers are in a private network."""
    assert not is_local(address)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "LocalHost", "localhost.", "a.localhost", "2130706433", "0x7f.1",
        "0x7f000001", "017700000001", "0177.0.0.1", "127.1", "0", "[::1]", "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]", "[fe80::1]", "169.254.169.254", "2852039166", "0xa9fea9fe", "[::]",
    ],
)  # fmt: skip
def test_a_url_that_is_plainly_local_is_refused_when_it_is_configured(host):
    """In any spelling; the message names the word that allows it."""
    url = f"http://{host}:8080/latest/meta-data"
    with pytest.raises(PolicyError, match=r"allow_local=True .*allowLocal: true"):
        NotifyWebhook(url, secret=SECRET, spill=False)
    with pytest.raises(PolicyError, match="allowLocal"):
        NotifySink(webhook={"url": url})
    NotifyWebhook(url, secret=SECRET, spill=False, allow_local=True).close()


def test_a_name_is_no_literal():
    """It is looked up when it is used."""
    assert not any(map(is_local_literal, ["example.org", "10.0.0.1", "nolocalhost", "fe80.org"]))


@contextmanager
def listening():
    """A server on loopback that accepts and answers 204; how many have connected."""
    calls = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.02)
        is_over = threading.Event()

        def serve():
            while not is_over.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    continue
                with connection:
                    calls.append(connection.recv(65536))
                    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1], calls
        finally:
            is_over.set()
            thread.join(60)


def replace_here(monkeypatch, owner, name, replacement):
    """Replaces a function for this thread alone.

    The thread of a sink that a test before has closed may still be at its last delivery: what it
    calls is not counted here, and not answered by a script of this test.
    """
    original, here = getattr(owner, name), threading.current_thread()

    def called(*args, **options):
        is_here = threading.current_thread() is here
        return (replacement if is_here else original)(*args, **options)

    monkeypatch.setattr(owner, name, called)


def answers(monkeypatch, *addresses):
    """A name server that gives these answers, one after the other; how often it was asked."""
    asked, left = [], list(addresses)

    def getaddrinfo(host, port, *_args, **_options):
        asked.append(host)
        found = left.pop(0) if len(left) > 1 else left[0]
        family = socket.AF_INET6 if ":" in found[0] else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def test_a_name_that_leads_to_this_machine_is_not_connected_to(monkeypatch, tmp_path, caplog):
    """The notification waits: the name may lead elsewhere later. The report names the option."""
    with listening() as (port, calls):
        answers(monkeypatch, ["127.0.0.1"])
        sink = NotifyWebhook(f"http://rebound.example:{port}/", secret=SECRET, spill=tmp_path)
        sink(EVENT)
        wait_until(lambda: sink.stats()["failures"] >= 1, "a try")
        sink.close()
    assert calls == []
    assert (sink.stats()["delivered"], sink.stats()["lost"]) == (0, 0)
    assert "rebound.example leads to this machine; allow_local=True" in caplog.text


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(monkeypatch):
    """A name server that gives another answer the second time is not asked a second time."""
    with listening() as (port, calls):
        asked = answers(monkeypatch, ["203.0.113.9"], ["127.0.0.1"])
        connection = CheckedConnection("rebound.example", port, timeout=0.2)
        places = []

        def refuse(self, place):
            places.append(place)
            raise ConnectionRefusedError("not in a test")

        replace_here(monkeypatch, socket.socket, "connect", refuse)
        with pytest.raises(ConnectionRefusedError):
            connection.request("POST", "/", b"")
        connection.close()
    assert (asked, places, calls) == (["rebound.example"], [("203.0.113.9", port)], [])


def test_of_several_addresses_the_local_ones_are_left_out(monkeypatch):
    """Those that remain are tried in their order."""
    answers(monkeypatch, ["127.0.0.1", "10.9.9.9", "169.254.169.254", "10.9.9.8"])
    places = []

    def refuse(self, place):
        places.append(place[0])
        raise ConnectionRefusedError(place[0])

    replace_here(monkeypatch, socket.socket, "connect", refuse)
    with pytest.raises(ConnectionRefusedError, match=r"10\.9\.9\.9"):
        CheckedConnection("both.example", 80, timeout=1.0).connect()
    assert places == ["10.9.9.9", "10.9.9.8"]


def test_a_local_target_that_is_allowed_is_reached(tmp_path):
    """Also by an IPv4 address inside an IPv6 one; where it answers, it is delivered."""
    with listening() as (port, calls):
        options = {"secret": SECRET, "spill": tmp_path, "allow_local": True}
        sink = NotifyWebhook(f"http://localhost:{port}/", **options)
        sink(EVENT)
        assert sink.flush(60)
        sink.close()
    assert sink.stats()["delivered"] == 1
    assert calls[0].startswith(b"POST / HTTP/1.1")


def test_an_address_that_does_not_answer_leaves_time_for_the_next(monkeypatch):
    """Else all the time of a delivery would go to it, and no repetition would get further."""
    ours, theirs = socket.socketpair()
    places = [("2001:db8::1", 443), ("203.0.113.1", 443), ("203.0.113.2", 443)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
    tried = []

    def opened(_family, place, timeout):
        tried.append((place, timeout))
        if len(tried) < 3:
            raise TimeoutError("timed out")
        return ours

    replace_here(monkeypatch, socket, "getaddrinfo", lambda *_args, **_more: found)
    replace_here(monkeypatch, targets, "_opened", opened)
    connection = CheckedConnection("example.org", 443, timeout=9.0)
    with theirs, closing(connection):
        connection.connect()
        assert [place for place, _ in tried] == places
        assert tried[0][1] <= 3.0 < tried[1][1] <= 4.5 < tried[2][1] <= 9.0
        assert ours.gettimeout() == 9.0


@pytest.mark.parametrize("security", ["none", "tls"])
def test_mail_is_sent_to_the_first_address_that_answers(monkeypatch, security):
    """By itself smtplib gives each address all the time of a delivery."""
    tried = []

    def opened(_family, place, timeout):
        tried.append((place, timeout))
        raise TimeoutError("timed out")

    places = [("127.0.0.1", 25), ("127.0.0.2", 25)]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
    replace_here(monkeypatch, socket, "getaddrinfo", lambda *_args, **_more: found)
    replace_here(monkeypatch, targets, "_opened", opened)
    to = {"sender": "a@example.org", "to": "b@example.org", "spill": False}
    mail = NotifyMail("localhost", security=security, **to)
    with pytest.raises(TimeoutError), closing(mail):
        mail._send(InboxRaised(item="i"))
    assert [place for place, _ in tried] == places
    assert tried[0][1] <= mail._timeout / 2 < tried[1][1]
