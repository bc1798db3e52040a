"""Notifications of new inbox items by e-mail, over SMTP."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.printable import printable, printable_lines
from mainstay.core.base.validate import Checker
from mainstay.integrations.webhooks.targets import addresses_of, first_opened
from mainstay.runtime.reports.known_secrets import know_secret
from mainstay.runtime.reports.report_failure import report
from mainstay.sinks.notify.base import Notifier, Refused, delivery_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from typing import Any

    from mainstay.core.base.types import Seconds
    from mainstay.core.inbox.events import InboxRaised


class NotifyMail(Notifier):
    """Sends an e-mail for each new item, over SMTP.

    Args:
        host: the SMTP server.
        sender: the address it comes from.
        to: the addresses it goes to.
        port: its port; by default 587, and 465 with "tls".
        security: "starttls", "tls" from the start, or "none".
        user: the user name, if the server needs a login.
        password: its password.
        least: the lowest severity of items that are notified.
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
        port: int | None = None,
        security: str = "starttls",
        user: str = "",
        password: str = "",
        least: str = "low",
        spill: str | os.PathLike[str] | bool | None = None,
        timeout: Seconds = 10.0,
    ) -> None:
        check, several = Checker("NotifyMail"), [to] if isinstance(to, str) else list(to)
        self._tls = check.choice("security", security, ("starttls", "tls", "none"))
        for field, address in [("sender", sender), *(("to", each) for each in several)]:
            if not isinstance(address, str) or not _is_address(address):
                check.note(field, address, "an address")
        if not several:
            check.note("to", several, "at least one address")
        if user and security == "none" and not _is_here(host):
            check.note("security", security, '"starttls" or "tls": a password is no plain text')
        port = check.count("port", port or (465 if security == "tls" else 587), 65_535)
        check.close()
        self._where, self._sender, self._to = (host, port), sender, several
        self._login = (user, password)
        if password:
            know_secret(password)
        super().__init__(f"mail {host}:{port}", least=least, spill=spill, timeout=timeout)

    def _send(self, event: InboxRaised) -> None:
        import smtplib

        servers: list[Any] = []
        try:
            with (
                self._in_time(lambda: servers[0].sock if servers else None),
                self._connected(servers) as server,
            ):
                refused = server.send_message(self._message(event))
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            raise _verdict(min(codes, default=500), "no recipient was taken") from None
        except smtplib.SMTPResponseException as error:
            raise _verdict(error.smtp_code, f"it answered {error.smtp_code}") from None
        if refused:
            report(
                None, "%s: %d of %d recipients were refused", self.name, len(refused), len(self._to)
            )

    def _connected(self, servers: list[Any]) -> Any:
        """A server that has greeted us; it is among the servers as soon as it has a socket."""
        import smtplib

        kind: Any = smtplib.SMTP_SSL if self._tls == "tls" else smtplib.SMTP

        class Known(kind):  # type: ignore[misc]  # one of the two
            def connect(self, *given: Any, **named: Any) -> Any:
                servers.append(self)
                return super().connect(*given, **named)

            def _get_socket(self, host: str, port: int, timeout: float) -> Any:
                opened = first_opened(addresses_of(host, port), timeout)
                opened.settimeout(timeout)
                if kind is smtplib.SMTP_SSL:
                    return self.context.wrap_socket(opened, server_hostname=self._host)
                return opened

        context = None if self._tls == "none" else ssl.create_default_context()
        host, port = self._where
        options = {"context": context} if self._tls == "tls" else {}
        server: Any = Known(host, port, timeout=self._timeout, **options)
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
        from email.utils import formatdate

        message = EmailMessage()
        message["From"], message["To"] = self._sender, ", ".join(self._to)
        what = f"{event.severity}: {event.item_kind} of {event.operation}"
        message["Subject"] = printable(what)[:200]
        message["Date"] = formatdate(clock.SYSTEM.wall())
        message["Message-ID"] = f"<{delivery_of(event)}@mainstay.invalid>"
        message.set_content(
            f"{printable_lines(event.text)}\n\noperation  {printable(event.operation)}\n"
            f"severity   {event.severity}\n"
            f"raised     {event.timestamp}\n\nmainstay inbox show {event.item}\n"
        )
        return message


def _is_here(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name, and be it 127.example.org
        return False


def _is_address(text: str) -> bool:
    """Whether mail can be sent there: otherwise it would be tried for ever."""
    from email.errors import NonASCIILocalPartDefect
    from email.headerregistry import HeaderRegistry

    if not text.isprintable():
        return False
    try:
        header: Any = HeaderRegistry()("to", text)
        found = header.addresses
    except (ValueError, AttributeError, IndexError):  # of addresses that are none
        return False
    defects = [each for each in header.defects if not isinstance(each, NonASCIILocalPartDefect)]
    return bool(found) and not defects and all(each.username and each.domain for each in found)


def _verdict(code: int, text: str) -> Exception:
    """A code of 500 and more is for ever, one below for now."""
    return Refused(text) if code >= 500 else ConnectionError(text)
