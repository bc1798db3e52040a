"""py-consul: the status is the beginning of the message.

A connection that fails raises an error of requests, or of aiohttp.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row, Table, by_status
from mainstay.integrations.errors.shared import asked_wait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.known.table import Entry


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

_ENTRIES: dict[str, Entry] = {
    "ConsulException": _BY_STATUS,
    "ClientError": _BY_STATUS,
    "BadRequest": Row(Kind.PERMANENT, "a mistake in the call"),
    "ACLDisabled": Row(Kind.AUTH, "ACLs are off, or no token was sent"),
    "ACLPermissionDenied": Row(Kind.AUTH, "the token is not accepted or not permitted"),
    "NotFound": Row(Kind.PERMANENT, "what it names is not there"),
    "Timeout": Row(Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True),
}
OTHER_VERSIONS = tuple(f"consul.base.{name}" for name in _ENTRIES)
"""Of python-consul, and of py-consul before 1.4."""

TABLE = Table(
    "consul",
    {
        **{f"consul.exceptions.{name}": entry for name, entry in _ENTRIES.items()},
        **{f"consul.base.{name}": entry for name, entry in _ENTRIES.items()},
    },
    retries="none",
    hint=lambda error: asked_wait(error, "consul.callback"),
)
