"""py-consul: the status is the beginning of the message.

A connection that fails raises an error of requests, or of aiohttp.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row, Table, by_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _message(error: Any) -> tuple[str]:
    return (str(error),)


def _status(error: Any) -> tuple[int]:
    return (int(str(error)[:3]),)


_BY_STATUS = Cases(
    _message,
    {
        "500 No cluster leader*": Row(Kind.TRANSIENT, "no leader at the moment; nothing was done"),
        "500 rpc error making call: No cluster leader*": Row(
            Kind.TRANSIENT, "no leader at the moment; nothing was done"
        ),
    },
    otherwise=by_status(Row(Kind.UNKNOWN, "an answer that cannot be read"), read=_status),
    of="message",
)

TABLE = Table(
    "consul",
    {
        "consul.exceptions.ConsulException": _BY_STATUS,
        "consul.exceptions.ClientError": _BY_STATUS,
        "consul.exceptions.BadRequest": Row(Kind.PERMANENT, "a mistake in the call"),
        "consul.exceptions.ACLDisabled": Row(Kind.AUTH, "ACLs are off, or no token was sent"),
        "consul.exceptions.ACLPermissionDenied": Row(
            Kind.AUTH, "the token is not accepted or not permitted"
        ),
        "consul.exceptions.NotFound": Row(Kind.PERMANENT, "what it names is not there"),
        "consul.exceptions.Timeout": Row(
            Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True
        ),
    },
    retries="none",
)
