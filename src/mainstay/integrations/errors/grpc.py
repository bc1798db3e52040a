"""grpc (grpcio): the status code decides, for sync and asyncio calls alike.

UNAVAILABLE is ambiguous: a connection that breaks after the call was sent has this code, too, and
grpc's documentation warns of repeating calls that are not idempotent. Only if no connection was
made is it certain that nothing was sent. INTERNAL and UNKNOWN, which a handler that raises gives,
are not repeated: a defect looks the same as bad luck, and the exception carries no method by which
a call that only reads could be known.

A server can send a pushback (gRFC A6) or a google.rpc.RetryInfo: how long to wait, or not to call
again.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, Row, Same, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

PUSHBACK = "grpc-retry-pushback-ms"
_DETAILS = "grpc-status-details-bin"
_NO_REPEAT = f"{PUSHBACK}: no"
_UNSENT, _TOO_LARGE = "UNAVAILABLE: not connected", "RESOURCE_EXHAUSTED: message too large"
_UNSENT_TEXTS = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "errors resolving ",
    "DNS resolution failed",
)
_MISUSE = Row(Kind.PERMANENT, "a mistake in the call")
_STATE = Row(Kind.PERMANENT, "what the call is about is not as it must be for it")
_BROKEN = "the server failed inside, and a defect looks the same as bad luck"
_OLD = Row(Kind.UNKNOWN, "of the interface before grpc 1.0, which grpc itself does not raise")
_INSIDE = Row(Kind.UNKNOWN, "of grpc's own use: calls raise errors with a status code")

_CODES: dict[str | int, Row] = {
    _NO_REPEAT: Row(Kind.PERMANENT, "the server asks not to repeat the call"),
    _UNSENT: Row(Kind.TRANSIENT, "no connection was made, so nothing was sent"),
    _TOO_LARGE: Row(Kind.PERMANENT, "a message is larger than this side allows"),
    "UNAVAILABLE": Row(
        Kind.TRANSIENT, "the server is not available, or the connection broke", ambiguous=True
    ),
    "RESOURCE_EXHAUSTED": Row(Kind.THROTTLED, "a quota is used up, or the server is full"),
    "DEADLINE_EXCEEDED": Row(Kind.TIMEOUT, "no answer in time", ambiguous=True),
    "ABORTED": Row(Kind.TRANSIENT, "a conflict with another call; this one was rolled back"),
    "INTERNAL": Row(Kind.UNKNOWN, _BROKEN, ambiguous=True),
    "UNKNOWN": Row(Kind.UNKNOWN, _BROKEN, ambiguous=True),
    "UNAUTHENTICATED": Row(Kind.AUTH, "no valid credentials"),
    "PERMISSION_DENIED": Row(Kind.AUTH, "the credentials do not permit it"),
    "CANCELLED": Row(Kind.PERMANENT, "cancelled by one of the two sides"),
    "DATA_LOSS": Row(Kind.PERMANENT, "data is lost for good"),
    "INVALID_ARGUMENT": _MISUSE,
    "OUT_OF_RANGE": _MISUSE,
    "UNIMPLEMENTED": Row(Kind.PERMANENT, "the server has no such method"),
    "NOT_FOUND": _STATE,
    "ALREADY_EXISTS": _STATE,
    "FAILED_PRECONDITION": _STATE,
}


def _cases(exception: Any) -> Iterable[str | None]:
    name, details = exception.code().name, exception.details() or ""
    pushback = dict(_metadata(exception)).get(PUSHBACK)
    refused = pushback is not None and _milliseconds(pushback) is None
    unsent = name == "UNAVAILABLE" and details.startswith(_UNSENT_TEXTS)
    large = name == "RESOURCE_EXHAUSTED" and "essage larger than max" in details
    return (
        _NO_REPEAT if refused else None,
        _UNSENT if unsent else None,
        _TOO_LARGE if large else None,
        name,
    )


def _metadata(exception: Any) -> Iterator[tuple[str, str | bytes]]:
    """The trailing metadata; pairs, whichever of grpc's two forms it has."""
    yield from exception.trailing_metadata() or ()


def _milliseconds(value: str | bytes) -> int | None:
    """The milliseconds of a pushback; None if it asks not to repeat: negative, or no number."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
    return int(text) if text.isascii() and text.isdigit() else None


def _wait(exception: Any) -> float | None:
    """What the server asks to wait."""
    found = dict(_metadata(exception))
    milliseconds = _milliseconds(found.get(PUSHBACK, ""))
    if milliseconds is not None:
        return milliseconds / 1000
    details = found.get(_DETAILS)
    return retry_info(details) if isinstance(details, bytes) else None


# --- google.rpc.Status, without protobuf ----------------------------------------------------------

_RETRY_INFO = b"google.rpc.RetryInfo"


def retry_info(status: bytes) -> float | None:
    r"""The delay of the google.rpc.RetryInfo in a google.rpc.Status; None if it has none.

    >>> retry_info(b"\x1a\x1c\x0a\x14google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x03")
    3.0
    """
    for detail in _fields(status, 3):
        names = [name for name in _fields(detail, 1) if isinstance(name, bytes)]
        if not any(name.endswith(_RETRY_INFO) for name in names):
            continue
        for info in _fields(detail, 2):
            for delay in _fields(info, 1):
                return max(0.0, _number(delay, 1) + _number(delay, 2) / 1e9)
    return None


def _number(message: bytes | int, wanted: int) -> int:
    value = next((each for each in _fields(message, wanted) if isinstance(each, int)), 0)
    return value - (1 << 64) if value >> 63 else value


def _fields(message: bytes | int, wanted: int) -> Iterator[bytes | int]:
    """The values of one field of a message: a number, or bytes (protobuf's wire format)."""
    if isinstance(message, int):
        return
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        size = {1: 8, 5: 4}.get(tag & 7)
        value: bytes | int
        if tag & 7 == 0:
            value, at = _varint(message, at)
        else:
            if size is None:
                size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        if tag >> 3 == wanted:
            yield value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


_SAME = Same("grpc.RpcError")

TABLE = Table(
    "grpc",
    {
        "grpc.RpcError": Cases(
            _cases, _CODES, otherwise=Row(Kind.UNKNOWN, "no status code is known")
        ),
        "grpc._channel._InactiveRpcError": _SAME,
        "grpc._channel._Rendezvous": _SAME,
        "grpc._channel._MultiThreadedRendezvous": _SAME,
        "grpc._channel._SingleThreadedRendezvous": _SAME,
        "grpc.aio._call.AioRpcError": _SAME,
        "grpc._interceptor._FailureOutcome": Inner("_exception", otherwise=_INSIDE),
        "grpc.FutureTimeoutError": Row(
            Kind.TIMEOUT,
            "the answer was not waited for any longer; the call goes on",
            ambiguous=True,
        ),
        "grpc.FutureCancelledError": Row(Kind.PERMANENT, "a cancellation"),
        "grpc.experimental.UsageError": _MISUSE,
        "grpc._cython.cygrpc.UsageError": _MISUSE,
        "grpc._cython.cygrpc.AbortError": Row(
            Kind.PERMANENT, "a handler of this server has ended its call"
        ),
        "grpc._cython.cygrpc.AioRpcStatus": _INSIDE,
        "grpc._cython.cygrpc.BaseError": _INSIDE,
        "grpc._cython.cygrpc.ExecuteBatchError": _INSIDE,
        "grpc._cython.cygrpc.InternalError": _INSIDE,
        "grpc._cython.cygrpc._RequestCallError": _INSIDE,
        "grpc._cython.cygrpc._ServerStoppedError": _INSIDE,
        "grpc._cython.cygrpc._WatchConnectivityFailed": _INSIDE,
        "grpc.framework.foundation.abandonment.Abandoned": _OLD,
        "grpc.framework.foundation.future.*": _OLD,
        "grpc.framework.interfaces.base.base.*": _OLD,
        "grpc.framework.interfaces.face.face.*": _OLD,
    },
    retries=(
        "calls that were never sent, always; others by a retryPolicy in the service config, which"
        " the channel or the name server brings: up to 5 attempts each; the channel's option"
        ' `("grpc.enable_retries", 0)` turns those off, and no exception names them'
    ),
    hint=_wait,
)
