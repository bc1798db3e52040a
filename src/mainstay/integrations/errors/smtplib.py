"""smtplib: the reply code decides (RFC 5321, section 4.2), with the enhanced code behind it.

Codes from 400 to 499 ask to try again, those from 500 on are final. A reply means that the message
was not taken. If the connection ends without one, the message may have been.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_LOGIN = Row(Kind.AUTH, "name or password are not accepted")
_LIMIT = Row(Kind.THROTTLED, "a limit of the server's policy, such as greylisting or a rate")
_CODES: dict[str | int, Row] = {
    "421 4.7.*": _LIMIT,
    "450 4.7.*": _LIMIT,
    "451 4.7.*": _LIMIT,
    "452 4.7.*": _LIMIT,
    421: Row(Kind.OVERLOAD, "the server is not available for now, and closes the connection"),
    450: Row(Kind.TRANSIENT, "the mailbox is not available for now"),
    451: Row(Kind.TRANSIENT, "an error inside the server"),
    452: Row(Kind.OVERLOAD, "the server has no room for now"),
    454: Row(Kind.TRANSIENT, "logging in is not possible for now"),
    "4*": Row(Kind.TRANSIENT, "the server asks to try again later"),
    530: Row(Kind.AUTH, "the server wants a login first"),
    534: _LOGIN,
    535: _LOGIN,
    538: Row(Kind.AUTH, "the server wants encryption before a login"),
    "5*": Row(Kind.PERMANENT, "the server refuses it for good"),
}
_UNKNOWN = Row(Kind.UNKNOWN, "a reply that is not of the protocol")


def _reply(exception: Any) -> Iterable[str | int | None]:
    return _of(exception.smtp_code, exception.smtp_error)


def _refusals(exception: Any) -> Iterable[str | int | None]:
    """Of all recipients; a temporary one first, since that mailbox may take the message later."""
    replies = sorted(exception.recipients.values(), key=lambda reply: int(reply[0]))
    return [case for reply in replies for case in _of(*reply)]


def _of(code: int, text: bytes | str) -> tuple[str | None, int]:
    words = (text.decode("latin-1") if isinstance(text, bytes) else text).split()
    policy = f"{code} {words[0]}" if words and words[0].startswith("4.7.") else None
    return policy if code in (421, 450, 451, 452) else None, code


_BY_REPLY = Cases(_reply, _CODES, otherwise=_UNKNOWN)

TABLE = Table(
    "smtplib",
    {
        "smtplib.SMTPException": Row(
            Kind.PERMANENT, "the server offers no way to log in that smtplib knows"
        ),
        "smtplib.SMTPNotSupportedError": Row(Kind.PERMANENT, "the server has no such extension"),
        "smtplib.SMTPResponseException": _BY_REPLY,
        "smtplib.SMTPConnectError": _BY_REPLY,
        "smtplib.SMTPHeloError": _BY_REPLY,
        "smtplib.SMTPSenderRefused": _BY_REPLY,
        "smtplib.SMTPDataError": _BY_REPLY,
        "smtplib.SMTPRecipientsRefused": Cases(_refusals, _CODES, otherwise=_UNKNOWN),
        "smtplib.SMTPAuthenticationError": Cases(
            _reply,
            {code: row for code, row in _CODES.items() if str(code).startswith("4")},
            otherwise=_LOGIN,
        ),
        "smtplib.SMTPServerDisconnected": Row(
            Kind.TRANSIENT,
            "the connection ended, and the message may have been taken",
            ambiguous=True,
        ),
    },
    retries="none",
)
