"""Which addresses a webhook may reach: none of this machine, unless that is allowed.

A URL may come from a configuration that others can write, and what is local often trusts every
client: the metadata service of a cloud (169.254.169.254) hands out credentials, and a database on
loopback may need no password. The check is of the address that a connection is made to, after the
name was resolved: whatever spelling a URL has (2130706433, 0x7f.1, ::ffff:127.0.0.1), and whatever
a name server answers from one moment to the next, there is no second look-up between the check and
the connection. Private networks (10.0.0.0/8, fc00::/7 and others) are where most receivers are, and
stay allowed.
"""

from __future__ import annotations

import socket
from http.client import HTTPConnection
from ipaddress import IPv6Address, ip_address, ip_network
from ssl import create_default_context
from typing import TYPE_CHECKING

from mainstay.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv4Address
    from typing import Any

_LOCAL = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # this host: a connection to it is one to loopback
        "127.0.0.0/8",
        "169.254.0.0/16",
        "::/128",
        "::1/128",
        "fe80::/10",
        "100.100.100.200/32",  # the metadata service of Alibaba Cloud
        "192.0.0.192/32",  # that of Oracle Cloud, beside 169.254.169.254
        "168.63.129.16/32",  # that of Azure for the machine itself
        "fd00:ec2::/32",  # those of AWS on IPv6: metadata, credentials of pods
        "fd20:ce::254/128",  # that of Google Cloud on IPv6
    )
]
_TRANSLATED = [
    ip_network(text) for text in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
]
"""IPv6 networks whose last 32 bits are an IPv4 address: IPv4-compatible, IPv4-translated
(RFC 2765), NAT64 (RFC 6052, and RFC 8215 with a prefix of one's own)."""
_ISATAP = (0x5EFE, 0x0200_5EFE)
"""What stands before an IPv4 address in any IPv6 network (RFC 5214)."""
ALLOWS = "allow_local=True (in a configuration allowLocal: true) allows it"


class LocalTargetError(OSError):
    """A name of a webhook leads to this machine, or to the network link only."""


def is_local(address: str) -> bool:
    """Whether an address is of this machine or of the link: loopback, link-local, unspecified.

    >>> is_local("169.254.169.254"), is_local("::ffff:127.0.0.1"), is_local("10.0.0.1")
    (True, True, False)
    """
    found = ip_address(address.partition("%")[0])  # without the interface of a link
    return any(each in network for each in _meant_by(found) for network in _LOCAL)


def _meant_by(found: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """An address, and the IPv4 address that an IPv6 address stands for."""
    if not isinstance(found, IPv6Address):
        return [found]
    inner = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
    ends_in_4 = any(found in network for network in _TRANSLATED)
    ends_in_4 = ends_in_4 or int(found) >> 32 & 0xFFFFFFFF in _ISATAP
    held = [ip_address(int(found) & 0xFFFFFFFF)] if ends_in_4 else []
    return [found, *held, *(each for each in inner if each is not None)]


def is_local_literal(host: str) -> bool:
    """Whether a host of a URL is plainly local, without asking a name server.

    >>> [is_local_literal(host) for host in ("localhost", "0x7f.1", "2130706433", "example.org")]
    [True, True, True, False]
    """
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761, 6.3
        return True
    try:
        text = name if ":" in name else socket.inet_ntoa(socket.inet_aton(name))
        return is_local(text)
    except (OSError, ValueError):
        return False


class CheckedConnection(HTTPConnection):
    """An HTTP connection to the first address of a host that may be reached and answers.

    >>> connection = CheckedConnection("127.0.0.1", 9)
    >>> connection.connect()
    Traceback (most recent call last):
    mainstay.integrations.webhooks.targets.LocalTargetError: 127.0.0.1 leads to this machine; ...
    """

    allow_local = False

    def connect(self) -> None:
        """Resolves the name once, and connects to an address that was checked."""
        places = addresses_of(self.host, self.port)
        if not self.allow_local:
            places = [(family, place) for family, place in places if not is_local(str(place[0]))]
        if not places:
            raise LocalTargetError(f"{self.host} leads to this machine; {ALLOWS}")
        self.sock = first_opened(places, self.timeout)
        self.sock.settimeout(self.timeout)


class CheckedTlsConnection(CheckedConnection):
    """The same over TLS, with the certificate checked against the host's name."""

    default_port = 443

    def connect(self) -> None:
        """Connects, and makes sure of whom to."""
        super().connect()
        self.sock = create_default_context().wrap_socket(self.sock, server_hostname=self.host)


def addresses_of(host: str, port: int) -> list[tuple[int, Any]]:
    """The addresses of a host, with their families.

    >>> addresses_of("127.0.0.1", 25) == [(socket.AF_INET, ("127.0.0.1", 25))]
    True
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, place) for family, _, _, _, place in found]


def first_opened(places: Sequence[tuple[int, Any]], timeout: float | None) -> socket.socket:
    """A connection to the first place that answers; each has its share of the time that is left.

    Else one that does not answer would take all the time of a delivery, and no repetition would
    get further than that.
    """
    until = None if timeout is None else SYSTEM.monotonic() + timeout
    errors: list[OSError] = []
    for left, (family, place) in zip(range(len(places), 0, -1), places, strict=True):
        share = None if until is None else max(0.001, (until - SYSTEM.monotonic()) / left)
        try:
            return _opened(family, place, share)
        except OSError as error:
            errors.append(error)
    raise errors[0]


def _opened(family: int, place: Any, timeout: float | None) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # headers, then the body
        opened.settimeout(timeout)
        opened.connect(place)
    except BaseException:
        opened.close()
        raise
    return opened
