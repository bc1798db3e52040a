"""Tells people of new inbox items: through a function, a signed webhook, or e-mail.

Each is a sink that hears `inbox_raised`, which is told once for a new item and not for its
repetitions. It takes the event and returns; a thread of its own delivers, and repeats with growing
delays what could not be delivered for now. What will never be taken is reported and let go, or it
would stand in the way of everything after it.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

import mainstay.clock as clock
from mainstay.core.events import InboxRaised
from mainstay.core.inbox import RANKS
from mainstay.core.validate import Checker
from mainstay.report import report
from mainstay.sinks.buffered import BufferedSink

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from typing import Any

    from mainstay.core.events import Event

TIMESTAMP, SIGNATURE, DELIVERY = "Mainstay-Timestamp", "Mainstay-Signature", "Mainstay-Delivery"
"""The headers of a webhook."""
_FOR_NOW = frozenset({408, 425, 429})
"""Statuses below 500 after which it is worth another try."""


class Refused(Exception):
    """The other side will never take this one."""


class Notifier(BufferedSink):
    """Tells of new items, one by one; a subclass says how.

    `least` is the severity from which on items are told of.
    """

    def __init__(
        self,
        name: str,
        *,
        least: str = "low",
        spill: str | os.PathLike[str] | bool | None = None,
        timeout: float = 10.0,
    ) -> None:
        check = Checker(type(self).__name__)
        check.choice("least", least, RANKS)
        self._timeout = check.number("timeout", timeout, 0.01, 600.0, " of seconds")
        check.close()
        self._told_of = frozenset(RANKS[: RANKS.index(least) + 1])
        self._sent: set[str] = set()
        """Of a batch that failed half-way: what was delivered of it."""
        super().__init__(name, spill=spill, timeout=timeout)

    def __call__(self, event: Event) -> None:
        """Takes the event of a new item, and no other."""
        if isinstance(event, InboxRaised) and event.severity in self._told_of:
            super().__call__(event)

    def _deliver(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, InboxRaised) and delivery_of(event) not in self._sent:
                try:
                    self._send(event)
                except Refused as trouble:
                    report(trouble, "%s: item %s is not told of", self.name, event.item)
                self._sent.add(delivery_of(event))
        self._sent.clear()

    def _send(self, event: InboxRaised) -> None:
        raise NotImplementedError("a subclass knows how")


class NotifyHook(Notifier):
    """Calls a function with the event of each new item, in a thread of its own.

    What the function raises is reported, and the item not told again.

    Args:
        tell: the function.
        least: the severity from which on items are told of.

    >>> from mainstay import Engine, Item
    >>> told = []
    >>> sink = NotifyHook(lambda event: told.append(event.text))
    >>> with Engine(sinks=[sink]) as engine:
    ...     item = Item(kind="alert", subject="a", operation="fetch", text="failing")
    ...     for _ in range(3):
    ...         done = engine.inbox.put(item)
    >>> told
    ['failing']
    """

    def __init__(self, tell: Callable[[InboxRaised], object], *, least: str = "low") -> None:
        check = Checker("NotifyHook")
        if not callable(tell):
            check.note("tell", tell, "a function of one event")
        check.close()
        self._tell = tell
        super().__init__("notify hook", least=least, spill=False)

    def _send(self, event: InboxRaised) -> None:
        try:
            self._tell(event)
        except Exception as trouble:
            report(trouble, "the hook raised on item %s", event.item)


class NotifyWebhook(Notifier):
    """Posts each new item as JSON to a URL, signed, so that the other side knows whose it is.

    The header `Mainstay-Signature` is `v1=` and the HMAC-SHA256, in hexadecimal, of the timestamp
    in `Mainstay-Timestamp`, a full stop, and the body. `Mainstay-Delivery` is the same when one is
    delivered twice. Answers of 2xx are taken; 408, 425, 429 and 5xx repeated; others reported and
    let go. Redirects are not followed.

    Args:
        url: where to, http or https.
        secret: what both sides know; at least 16 characters.
        least: the severity from which on items are told of.
        spill: the folder for what cannot be delivered for now; False for none.
        timeout: seconds for one delivery.

    >>> hook = NotifyWebhook("https://example.org/hooks/1", secret="0123456789abcdef", spill=False)
    >>> hook.name
    'webhook example.org d581b948'
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str,
        least: str = "low",
        spill: str | os.PathLike[str] | bool | None = None,
        timeout: float = 10.0,
    ) -> None:
        check, parts = Checker("NotifyWebhook"), urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            check.note("url", f"{parts.scheme}://…", "a URL with http or https and a host")
        if not isinstance(secret, str) or len(secret) < 16:
            check.note("secret", "…", "a text of at least 16 characters")
        check.close()
        self._parts, self._secret = parts, secret.encode()
        digest = hashlib.sha256(url.encode()).hexdigest()[:8]  # its path may be a secret
        name = f"webhook {parts.hostname} {digest}"
        super().__init__(name, least=least, spill=spill, timeout=timeout)

    def _send(self, event: InboxRaised) -> None:
        body = msgspec.json.encode(event)
        timestamp = str(int(clock.SYSTEM.wall()))
        headers = {
            "Content-Type": "application/json",
            TIMESTAMP: timestamp,
            SIGNATURE: signature_of(self._secret, timestamp, body),
            DELIVERY: delivery_of(event),
        }
        status = self._post(body, headers)
        if status >= 500 or status in _FOR_NOW:
            raise ConnectionError(f"{self.name} answered {status}")
        if not 200 <= status < 300:
            raise Refused(f"it answered {status}")

    def _post(self, body: bytes, headers: dict[str, str]) -> int:
        from http.client import HTTPConnection, HTTPException, HTTPSConnection

        parts = self._parts
        kind: Any = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=self._timeout)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            connection.request("POST", target, body, headers)
            return int(connection.getresponse().status)
        except HTTPException as trouble:  # some are no OSError
            raise ConnectionError(f"{self.name}: {type(trouble).__name__}") from None
        finally:
            connection.close()


class NotifyMail(Notifier):
    """Sends an e-mail for each new item, over SMTP.

    Args:
        host: the SMTP server.
        sender: the address it comes from.
        to: the addresses it goes to.
        port: 587, 465 or 25 as a rule.
        tls: "starttls", "tls" from the start, or "none".
        user: who logs in, where that is needed.
        password: with what.
        least: the severity from which on items are told of.
        spill: the folder for what cannot be delivered for now; False for none.
        timeout: seconds for one delivery.

    >>> mail = NotifyMail("localhost", sender="ops@shop.org", to=["ann@shop.org"], spill=False)
    >>> mail.name
    'mail localhost:587'
    """

    def __init__(
        self,
        host: str,
        *,
        sender: str,
        to: Iterable[str],
        port: int = 587,
        tls: str = "starttls",
        user: str = "",
        password: str = "",
        least: str = "low",
        spill: str | os.PathLike[str] | bool | None = None,
        timeout: float = 10.0,
    ) -> None:
        check, several = Checker("NotifyMail"), [to] if isinstance(to, str) else list(to)
        self._tls = check.choice("tls", tls, ("starttls", "tls", "none"))
        for field, address in [("sender", sender), *(("to", each) for each in several)]:
            if not isinstance(address, str) or "@" not in address or not address.isprintable():
                check.note(field, address, "an address")
        if not several:
            check.note("to", several, "at least one address")
        check.close()
        self._where, self._sender, self._to = (host, port), sender, several
        self._login = (user, password)
        super().__init__(f"mail {host}:{port}", least=least, spill=spill, timeout=timeout)

    def _send(self, event: InboxRaised) -> None:
        import smtplib

        try:
            with self._connected() as server:
                refused = server.send_message(self._message(event))
        except smtplib.SMTPRecipientsRefused as trouble:
            codes = [code for code, _ in trouble.recipients.values()]
            raise _verdict(min(codes, default=500), "no recipient was taken") from None
        except smtplib.SMTPResponseException as trouble:
            raise _verdict(trouble.smtp_code, f"it answered {trouble.smtp_code}") from None
        if refused:
            report(
                None, "%s: %d of %d recipients were refused", self.name, len(refused), len(self._to)
            )

    def _connected(self) -> Any:
        import smtplib

        context = None if self._tls == "none" else ssl.create_default_context()
        host, port = self._where
        if self._tls == "tls":
            server: Any = smtplib.SMTP_SSL(host, port, timeout=self._timeout, context=context)
        else:
            server = smtplib.SMTP(host, port, timeout=self._timeout)
        try:
            if self._tls == "starttls":
                server.starttls(context=context)
            if self._login[0]:
                server.login(*self._login)
        except BaseException:
            server.close()
            raise
        return server

    def _message(self, event: InboxRaised) -> Any:
        from email.message import EmailMessage

        message = EmailMessage()
        message["From"], message["To"] = self._sender, ", ".join(self._to)
        what = f"{event.severity}: {event.item_kind} of {event.operation}"
        message["Subject"] = "".join(c if c.isprintable() else " " for c in what)[:200]
        message["Message-ID"] = f"<{delivery_of(event)}@mainstay.invalid>"
        message.set_content(
            f"{event.text}\n\noperation  {event.operation}\nseverity   {event.severity}\n"
            f"raised     {event.timestamp}\n\nmainstay inbox show {event.item}\n"
        )
        return message


def _verdict(code: int, text: str) -> Exception:
    """A code of 500 and more is for ever, one below for now."""
    return Refused(text) if code >= 500 else ConnectionError(text)


def delivery_of(event: InboxRaised) -> str:
    """What one notification is known by: the item, and when it was raised.

    >>> delivery_of(InboxRaised(item="3f2a", timestamp="2026-01-02T03:04:05Z"))
    '3f2a.20260102T030405Z'
    """
    return f"{event.item}.{event.timestamp.replace('-', '').replace(':', '')}"


def signature_of(secret: bytes, timestamp: str, body: bytes) -> str:
    """The signature of a webhook's body.

    >>> signature_of(b"0123456789abcdef", "1700000000", b"{}")[:11]
    'v1=e4f8e2ec'
    """
    digest = hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"v1={digest}"


def is_genuine(
    secret: str, timestamp: str, body: bytes, signature: str, *, within: float = 300.0
) -> bool:
    """Whether a webhook comes from one who has the secret, and now: for the side that gets it.

    >>> now = str(int(clock.current.wall()))
    >>> signed = signature_of(b"0123456789abcdef", now, b"{}")
    >>> is_genuine("0123456789abcdef", now, b"{}", signed)
    True
    >>> is_genuine("0123456789abcdef", now, b"{1}", signed)
    False
    """
    expected = signature_of(secret.encode(), timestamp, body)
    if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")):
        return False
    return abs(clock.current.wall() - int(timestamp)) <= within
