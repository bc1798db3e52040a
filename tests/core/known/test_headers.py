"""The headers between services of ours, and whom they are sent to and believed from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.known.headers import Trust, parse_gave_up, parse_timeout, timeout_text
from mainstay.errors import UsageError


@given(st.floats(-10.0, 1e12))
def test_what_is_sent_is_read_and_never_more_than_is_left(seconds):
    """A service never believes that its caller waits longer than it does."""
    read = parse_timeout(timeout_text(seconds))
    assert read is not None
    assert 0.0 <= read <= max(seconds, 0.0)
    assert min(max(seconds, 0.0), 999_999_999.0) - read < 0.0011


@pytest.mark.parametrize(
    "text", ["", "-1", "nan", "inf", "1e3", "1.2.3", "1.", ".5", "9" * 10, "\u0661", None]
)
def test_a_timeout_that_makes_no_sense_is_none(text):
    """What a stranger sends is at most ignored."""
    assert parse_timeout(text) is None


@pytest.mark.parametrize(
    ("text", "attempts"),
    [("3", 3), (" 12 ", 12), ("", None), (None, None), ("-1", None), ("x", None)],
)
def test_the_attempts_after_which_a_service_gave_up(text, attempts):
    """A number of attempts, or nothing."""
    assert parse_gave_up(text) == attempts


@pytest.mark.parametrize(
    ("listed", "host", "port", "is_covered"),
    [
        ("orders.internal", "orders.internal", 443, True),
        ("orders.internal", "ORDERS.internal", None, True),
        ("orders.internal", "evil-orders.internal", 443, False),
        ("*.svc.local", "a.svc.local", 80, True),
        ("*.svc.local", ".svc.local", 80, False),
        ("*.svc.local", "a.svc.local.evil.com", 80, False),
        ("*", "anything", 80, True),
        ("localhost:8080", "localhost", 8080, True),
        ("localhost:8080", "localhost", 80, False),
        ("localhost:8080", "localhost", None, False),
        ("10.0.0.0/8", "10.9.8.7", None, True),
        ("10.0.0.0/8", "11.0.0.1", None, False),
        ("10.0.0.0/8", "ten.internal", None, False),
        ("[::1]", "::1", 80, True),
        ("fd00::/8", "[fd00::2]", 80, True),
        ("*.svc.local:8080", "a.svc.local", 8080, True),
        ("*.svc.local:8080", "a.svc.local", 80, False),
        ("*.svc.local:8080", "a.svc.local", None, False),
        ("10.0.0.0/8:8080", "10.9.8.7", 8080, True),
        ("10.0.0.0/8:8080", "10.9.8.7", 80, False),
        ("[fd00::/8]:8080", "fd00::2", 8080, True),
        ("[fd00::]/8", "fd00::2", 8080, True),
        ("[::1]:8080", "::1", 8080, True),
        ("[::1]:8080", "::1", 80, False),
        ("[::1]:8080", "::1:8080", 80, False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", None, True),
        ("10.0.0.0/8", "::ffff:11.1.2.3", None, False),
        ("127.0.0.1", "::FFFF:127.0.0.1", None, True),
        ("::ffff:0:0/96", "::ffff:10.1.2.3", None, True),
        ("10.0.0.0/8", "::ffff:a01:203", None, True),
        ("10.0.0.0/8", "::ffff:b01:203", None, False),
        ("10.0.0.1", "::FFFF:A00:1", None, True),
        ("::1", "0:0:0:0:0:0:0:1", None, True),
        ("0:0:0:0:0:0:0:1", "[::1]", 80, True),
        ("fe80::1", "fe80::1%eth0", 80, False),
        ("fd00::/8", "fd00::zz", 80, False),
        ("orders.internal", "orders.internal.", 80, True),
        ("orders.internal.", "orders.internal", 80, True),
        ("*.svc.local.", "a.svc.local.", 80, True),
        ("orders", "orders.", 80, False),
        ("*", "orders.", 80, True),
        ("*.", "orders.internal", 80, False),
        ("b\u00fccher.de", "xn--bcher-kva.de", 80, False),
        ("localhost", None, None, False),
        ("localhost", "", None, False),
    ],
)
def test_a_host_is_trusted_if_it_is_listed(listed, host, port, is_covered):
    """By name, pattern, address, network and port; nothing by resemblance."""
    trust = Trust(listed)
    assert trust.covers(host, port) is is_covered
    assert trust.covers(host, port) is is_covered, "the second answer is the first one"


def test_nothing_is_trusted_unless_something_is_listed():
    """The default."""
    assert not Trust(())
    assert not Trust(()).covers("localhost", 80)


@pytest.mark.parametrize(
    "host", ["", " ", 7, "http://a", "10.0.0.0/99", ":80", "a:", "a:b", "a:0", "a:65536"]
)
def test_what_is_no_host_is_refused(host):
    """A mistake in the list is found when it is made."""
    with pytest.raises(UsageError, match="trust"):
        Trust([host])


def test_many_hosts_are_not_remembered_for_ever():
    """A service that calls any number of hosts does not grow by it."""
    trust = Trust(["a"])
    for number in range(2500):
        assert not trust.covers(f"host-{number}", 80)
    assert len(trust._seen) <= 1000
