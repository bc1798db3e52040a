"""Notifications of new inbox items by a signed webhook, and the check for its receiver."""

from __future__ import annotations

import hashlib
import hmac
import re
import warnings
from base64 import b64encode
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

import mainstay.runtime.clock as clock
from mainstay.core.base.validate import Checker
from mainstay.errors import UsageError
from mainstay.sinks.notify.base import Notifier, Refused, delivery_of
from mainstay.sinks.notify.targets import (
    ALLOWS,
    CheckedConnection,
    CheckedTlsConnection,
    is_local_literal,
)

if TYPE_CHECKING:
    import os
    from urllib.parse import SplitResult

    from mainstay.core.base.types import Seconds
    from mainstay.core.inbox.events import InboxRaised

ID, TIME, SIGNED = "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"
"""The headers of a webhook, as the Standard Webhooks specification has them."""
TIMESTAMP, SIGNATURE, DELIVERY = "Mainstay-Timestamp", "Mainstay-Signature", "Mainstay-Delivery"
"""The headers of before; the signature does not cover the id, and goes with the next version."""
_SHORTEST = 16
"""Characters of a secret."""
_TIME = re.compile("[0-9]{1,15}")
_FOR_NOW = frozenset({408, 425, 429})
"""Statuses below 500 after which it is worth another try."""


class NotifyWebhook(Notifier):
    """Posts each new item as JSON to a URL, signed, so that the receiver can check its origin.

    The headers are those of Standard Webhooks: `Webhook-Signature` is `v1,` and the HMAC-SHA256, in
    base64, of `Webhook-Id`, `Webhook-Timestamp` and the body, with full stops between them. The id
    is the same when one is delivered twice. Answers of 2xx are taken; 408, 425, 429 and 5xx
    repeated; others reported and let go. Redirects are not followed.

    A target on this machine or on its link (loopback, 169.254.169.254, …) needs `allow_local`: it
    is refused here if the URL shows it, and at the connection if a name leads there.

    Args:
        url: where to, http or https.
        secret: what both sides know, of at least 16 characters; None not to sign.
        least: the lowest severity of items that are notified.
        spill: the folder for what cannot be delivered for now; False for none.
        timeout: seconds for one delivery.
        allow_local: whether a target on this machine or on its link is allowed.

    >>> hook = NotifyWebhook("https://example.org/hooks/1", secret="0123456789abcdef", spill=False)
    >>> hook.name
    'webhook example.org d581b948'
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | None,
        least: str = "low",
        spill: str | os.PathLike[str] | bool | None = None,
        timeout: Seconds = 10.0,
        allow_local: bool = False,
    ) -> None:
        check, parts = Checker("NotifyWebhook"), _parts_of(url)
        if parts is None:
            check.note("url", "…", "a URL with http or https and a host, escaped where it must be")
        elif not allow_local and is_local_literal(parts.hostname or ""):
            check.note("url", parts.hostname, f"a target outside this machine, unless {ALLOWS}")
        if secret is not None and (not isinstance(secret, str) or len(secret) < _SHORTEST):
            check.note("secret", "…", f"a text of at least {_SHORTEST} characters")
        check.close()
        assert parts is not None
        self._parts, self._secret = parts, (secret or "").encode()
        self._allow_local = allow_local
        digest = hashlib.sha256(url.encode()).hexdigest()[:8]  # its path may be a secret
        name = f"webhook {parts.hostname} {digest}"
        super().__init__(name, least=least, spill=spill, timeout=timeout)

    def _send(self, event: InboxRaised) -> None:
        body = msgspec.json.encode(event)
        timestamp, delivery = str(int(clock.SYSTEM.wall())), delivery_of(event)
        headers = {"Content-Type": "application/json", ID: delivery, TIME: timestamp}
        headers |= {DELIVERY: delivery, TIMESTAMP: timestamp}
        if self._parts.username:
            who = f"{unquote(self._parts.username)}:{unquote(self._parts.password or '')}"
            headers["Authorization"] = f"Basic {b64encode(who.encode()).decode()}"
        if self._secret:
            headers[SIGNED] = signature_of(self._secret, timestamp, body, delivery)
            headers[SIGNATURE] = signature_of(self._secret, timestamp, body)
        status = self._post(body, headers)
        if status >= 500 or status in _FOR_NOW:
            raise ConnectionError(f"{self.name} answered {status}")
        if not 200 <= status < 300:
            raise Refused(f"it answered {status}")

    def _post(self, body: bytes, headers: dict[str, str]) -> int:
        from http.client import HTTPException

        parts = self._parts
        kind = CheckedTlsConnection if parts.scheme == "https" else CheckedConnection
        port = parts.port or kind.default_port
        connection = kind(parts.hostname or "", port, timeout=self._timeout)
        connection.allow_local = self._allow_local
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            with self._in_time(lambda: connection.sock):
                connection.request("POST", target, body, headers)
                return int(connection.getresponse().status)
        except HTTPException as error:  # some are no OSError
            raise ConnectionError(f"{self.name}: {type(error).__name__}") from None
        finally:
            connection.close()


def _parts_of(url: object) -> SplitResult | None:
    """The parts of a URL that can be posted to; others would be tried for ever."""
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        host.encode("idna")
    except ValueError:  # of the port, of brackets, of the host's name
        return None
    is_plain = parts.path.isascii() and parts.query.isascii() and port != 0
    return parts if parts.scheme in ("http", "https") and host and is_plain else None


def signature_of(secret: bytes, timestamp: str, body: bytes, delivery: str | None = None) -> str:
    """The signature of a webhook: its id, its time and its body.

    Without an id, that of the header `Mainstay-Signature`, which covers time and body alone.

    >>> signature_of(b"0123456789abcdef", "1700000000", b"{}", "3f2a")[:11]
    'v1,Rhoa25qz'
    """
    signed = timestamp.encode() + b"." + body
    if delivery is None:
        return f"v1={hmac.new(secret, signed, hashlib.sha256).hexdigest()}"
    signed = delivery.encode("utf-8", "replace") + b"." + signed
    return f"v1,{b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()}"


def is_genuine(
    secret: str,
    timestamp: str | None,
    body: bytes,
    signature: str | None,
    *,
    delivery: str | msgspec.UnsetType | None = msgspec.UNSET,
    within: float = 300.0,
) -> bool:
    """Whether a webhook was signed with the secret, and just now: for its receiver.

    Whatever is missing or is no time or signature is not genuine. A secret of less than 16
    characters is refused: with an empty one, every webhook would be genuine.

    Args:
        secret: what both sides know.
        timestamp: the header `Webhook-Timestamp`.
        body: the body as it came.
        signature: the header `Webhook-Signature`; of several in it, one must be right.
        delivery: the header `Webhook-Id`; None, for one that is missing, is not genuine. If the
            argument is left out, `signature` is `Mainstay-Signature`, which does not cover the
            id; that is deprecated.
        within: seconds by which the time may be off.

    >>> now = str(int(clock.current.wall()))
    >>> signed = signature_of(b"0123456789abcdef", now, b"{}", "3f2a")
    >>> is_genuine("0123456789abcdef", now, b"{}", signed, delivery="3f2a")
    True
    >>> is_genuine("0123456789abcdef", now, b"{}", signed, delivery="77aa")
    False
    """
    if not isinstance(secret, str) or len(secret) < _SHORTEST:
        raise UsageError(f"a webhook's secret has at least {_SHORTEST} characters")
    if delivery is msgspec.UNSET:
        warnings.warn(_UNCOVERED, DeprecationWarning, stacklevel=2)
    elif not isinstance(delivery, str):
        return False
    if not isinstance(timestamp, str) or not isinstance(signature, str):
        return False
    if not isinstance(body, bytes) or not _TIME.fullmatch(timestamp):
        return False
    covered = delivery if isinstance(delivery, str) else None
    expected = signature_of(secret.encode(), timestamp, body, covered).encode()
    given = [each.encode("utf-8", "replace") for each in signature.split(" ")]
    if not any(hmac.compare_digest(expected, each) for each in given):
        return False
    return abs(clock.current.wall() - int(timestamp)) <= within


_UNCOVERED = (
    "is_genuine() without delivery= checks Mainstay-Signature, which does not cover the id of a"
    " delivery; pass the headers Webhook-Timestamp, Webhook-Signature and delivery=Webhook-Id"
)
