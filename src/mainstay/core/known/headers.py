"""The headers that services of ours send each other, and whom they are sent to and believed from.

A time is sent as the seconds that are left and not as a date, so the two clocks need not agree.
"""

from __future__ import annotations

from mainstay.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from ipaddress import IPv4Network, IPv6Network

TIMEOUT = "Mainstay-Timeout"
"""The seconds that the caller has left: `1.250`."""
ATTEMPT = "Mainstay-Attempt"
"""Which attempt of its call the request is, from 1; information only."""
GAVE_UP = "Mainstay-Gave-Up"
"""On a response: the attempts after which the service gave up on what it answers with."""

_DIGITS = 9
"""Of a number that is sent; a longer one is a mistake, or worse."""
_REMEMBERED = 1000
"""Hosts whose answer is kept."""


def timeout_text(seconds: float) -> str:
    """The value of `Mainstay-Timeout`; never more than what is left.

    >>> timeout_text(1.2509), timeout_text(-3.0)
    ('1.250', '0.000')
    """
    thousandths = int(min(max(seconds, 0.0), 999_999_999.0) * 1000)
    return f"{thousandths // 1000}.{thousandths % 1000:03d}"


def parse_timeout(text: str | None) -> float | None:
    """The seconds of a `Mainstay-Timeout`; None if the value makes no sense.

    >>> parse_timeout("1.250"), parse_timeout("1e9"), parse_timeout("-1"), parse_timeout(None)
    (1.25, None, None, None)
    """
    text = "" if text is None else text.strip()
    whole, point, rest = text.partition(".")
    return float(text) if _is_number(whole) and (not point or _is_number(rest)) else None


def parse_gave_up(text: str | None) -> int | None:
    """The attempts of a `Mainstay-Gave-Up`; None if the value makes no sense.

    >>> parse_gave_up("3"), parse_gave_up("yes")
    (3, None)
    """
    text = "" if text is None else text.strip()
    return int(text) if _is_number(text) else None


def _is_number(text: str) -> bool:
    return len(text) <= _DIGITS and text.isascii() and text.isdecimal()


class Trust:
    """The hosts that configuration lists: by name, by a pattern, by address or network.

    >>> trust = Trust(["orders.internal", "*.svc.local", "10.0.0.0/8", "127.0.0.1:8080"])
    >>> [trust.covers(host, 80) for host in ("orders.internal", "a.svc.local", "10.1.2.3")]
    [True, True, True]
    >>> trust.covers("127.0.0.1", 80), trust.covers("127.0.0.1", 8080)
    (False, True)
    """

    __slots__ = ("_names", "_networks", "_patterns", "_seen")

    def __init__(self, hosts: Iterable[str]) -> None:
        if isinstance(hosts, str):
            hosts = (hosts,)
        self._names: set[tuple[str, int | None]] = set()
        self._patterns: list[tuple[str, int | None]] = []
        self._networks: list[tuple[IPv4Network | IPv6Network, int | None]] = []
        self._seen: dict[tuple[str, int | None], bool] = {}
        for host in hosts:
            self._add(host)

    def __bool__(self) -> bool:
        return bool(self._names or self._patterns or self._networks)

    def covers(self, host: str | None, port: int | None = None) -> bool:
        """Whether a host is listed, on any port or on this one."""
        if not host or not self:
            return False
        asked = (host, port)
        answer = self._seen.get(asked)
        if answer is None:
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            name = host.lower().strip("[]")
            names = {name, _canonical(name)}
            answer = self._seen[asked] = any(self._look_up(each, port) for each in names)
        return answer

    def _add(self, host: object) -> None:
        if not isinstance(host, str) or not host.strip() or "://" in host:
            raise _no_host(host)
        text, port = _split(host.strip().lower())
        if "/" in text:
            self._networks.append((_network(text), port))
        elif text.startswith("*"):
            self._patterns.append((text[1:2] + text[2:].removesuffix("."), port))
        else:
            self._names.add((_canonical(text), port))

    def _look_up(self, host: str, port: int | None) -> bool:
        if (host, None) in self._names or (host, port) in self._names:
            return True
        ports = (None, port)
        if any(
            host.endswith(pattern) and host != pattern and on in ports
            for pattern, on in self._patterns
        ):
            return True
        networks = [network for network, on in self._networks if on in ports]
        return bool(networks) and _is_in(networks, host)


def _is_in(networks: list[IPv4Network | IPv6Network], host: str) -> bool:
    from ipaddress import ip_address

    try:
        address = ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in networks)


def _canonical(host: str) -> str:
    """A host as it is compared: one spelling of each IPv6 address, and no dot at the end.

    An address of IPv4 that a socket of both families shows as one of IPv6 is that of IPv4. A name
    without another dot keeps its own at the end: `orders` may be found in a search domain, and
    `orders.` never is. Names in other scripts are not converted; two rules for it disagree.

    >>> _canonical("::ffff:a00:1"), _canonical("0:0:0:0:0:0:0:1"), _canonical("orders.internal.")
    ('10.0.0.1', '::1', 'orders.internal')
    """
    if ":" not in host:
        return host[:-1] if host.endswith(".") and "." in host[:-1] else host
    from ipaddress import IPv6Address

    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def _split(text: str) -> tuple[str, int | None]:
    """A host, pattern or network, and the port; what has several colons is an IPv6 address.

    >>> _split("*.svc.local:8080"), _split("[::1]:80"), _split("::1:80")
    (('*.svc.local', 8080), ('::1', 80), ('::1:80', None))
    """
    host, bracket, rest = text.removeprefix("[").partition("]")
    if not bracket and text.count(":") == 1:
        host, _, rest = text.partition(":")
        rest = f":{rest}"
    mask, colon, port = rest.partition(":")
    if not host or (colon and not (_is_number(port) and 0 < int(port) < 65536)):
        raise _no_host(text)
    return host + mask, int(port) if colon else None


def _no_host(host: object) -> UsageError:
    return UsageError(
        f"trust: {host!r} is no host",
        hint='such as "orders.internal", "*.svc.local", "10.0.0.0/8", "localhost:8080"',
    )


def _network(text: str) -> IPv4Network | IPv6Network:
    from ipaddress import ip_network

    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise UsageError(f"trust: {text!r}: {error}", hint='such as "10.0.0.0/8"') from error
