"""Notifications of new inbox items by a signed webhook, and the check for its receiver."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

import mainstay.runtime.clock as clock
from mainstay.core.base.validate import Checker
from mainstay.integrations.webhooks.post import (
    authorization_of,
    connection_to,
    parts_of,
    target_of,
)
from mainstay.integrations.webhooks.signature import ID, SHORTEST, SIGNED, TIME, signature_of
from mainstay.integrations.webhooks.targets import ALLOWS, is_local_literal
from mainstay.runtime.reports.known_secrets import know_secret, know_url
from mainstay.sinks.notify.base import Notifier, Refused, delivery_of

if TYPE_CHECKING:
    import os

    from mainstay.core.base.types import Seconds
    from mainstay.core.inbox.events import InboxRaised

TIMESTAMP, SIGNATURE, DELIVERY = "Mainstay-Timestamp", "Mainstay-Signature", "Mainstay-Delivery"
"""The headers of before; the signature does not cover the id, and goes with the next version."""
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
        check, parts = Checker("NotifyWebhook"), parts_of(url)
        if parts is None:
            check.note("url", "…", "a URL with http or https and a host, escaped where it must be")
        elif not allow_local and is_local_literal(parts.hostname or ""):
            check.note("url", parts.hostname, f"a target outside this machine, unless {ALLOWS}")
        if secret is not None and (not isinstance(secret, str) or len(secret) < SHORTEST):
            check.note("secret", "…", f"a text of at least {SHORTEST} characters")
        check.close()
        assert parts is not None
        know_url(url)
        if secret:
            know_secret(secret)
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
        headers |= authorization_of(self._parts)
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

        connection = connection_to(self._parts, self._timeout, allow_local=self._allow_local)
        try:
            with self._in_time(lambda: connection.sock):
                connection.request("POST", target_of(self._parts), body, headers)
                return int(connection.getresponse().status)
        except HTTPException as error:  # some are no OSError
            raise ConnectionError(f"{self.name}: {type(error).__name__}") from None
        finally:
            connection.close()
