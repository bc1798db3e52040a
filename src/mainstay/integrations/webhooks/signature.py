"""The signature of a webhook, as the Standard Webhooks specification has it, and its check."""

from __future__ import annotations

import hashlib
import hmac
import re
import warnings
from base64 import b64encode

import msgspec

import mainstay.runtime.clock as clock
from mainstay.errors import UsageError

ID, TIME, SIGNED = "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"
"""The headers of a webhook, as the Standard Webhooks specification has them."""
SHORTEST = 16
"""Characters of a secret."""
_TIME = re.compile("[0-9]{1,15}")


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
    if not isinstance(secret, str) or len(secret) < SHORTEST:
        raise UsageError(f"a webhook's secret has at least {SHORTEST} characters")
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
