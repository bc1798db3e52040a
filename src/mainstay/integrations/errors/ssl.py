"""ssl: the reason that OpenSSL gives decides; its numbers are no errnos."""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_LOST = Row(
    Kind.TRANSIENT, "the connection ended, perhaps after the request was sent", ambiguous=True
)
_CORRUPT = Row(Kind.TRANSIENT, "a record was damaged on its way", ambiguous=True)
_CERTIFICATE = Row(Kind.PERMANENT, "the certificate of the other side is not trusted")
_OUR_CERTIFICATE = Row(Kind.AUTH, "the other side does not accept our certificate")
_NO_TLS = Row(Kind.PERMANENT, "the other side does not speak TLS")
_NO_COMMON = Row(Kind.PERMANENT, "both sides have no version or cipher in common")
_NO_HOST = Row(Kind.PERMANENT, "the other side does not serve this name")
_WAIT = Row(Kind.TRANSIENT, "a socket that does not block has to be waited for")


def _reason(exception: Any) -> Iterable[str | None]:
    """The reason, and the alert in it, whichever version of TLS its name begins with.

    A reason that this Python has no name for is only in the text: "[SSL] tlsv1 alert ... (_ssl.c)".
    """
    reason = exception.reason
    if reason is None:
        text = exception.strerror.partition("] ")[2].partition(" (")[0]
        reason = text.upper().replace(" ", "_")
    _, alert, name = reason.partition("ALERT_")
    return (reason, f"{alert}{name}" if alert else None)


TABLE = Table(
    "ssl",
    {
        "ssl.SSLError": Cases(
            _reason,
            {
                "CERTIFICATE_VERIFY_FAILED": _CERTIFICATE,
                "WRONG_VERSION_NUMBER": _NO_TLS,
                "HTTP_REQUEST": _NO_TLS,
                "HTTPS_PROXY_REQUEST": _NO_TLS,
                "UNSUPPORTED_PROTOCOL": _NO_COMMON,
                "NO_PROTOCOLS_AVAILABLE": _NO_COMMON,
                "NO_SHARED_CIPHER": _NO_COMMON,
                "ALERT_HANDSHAKE_FAILURE": _NO_COMMON,
                "ALERT_PROTOCOL_VERSION": _NO_COMMON,
                "ALERT_INSUFFICIENT_SECURITY": _NO_COMMON,
                "ALERT_NO_APPLICATION_PROTOCOL": _NO_COMMON,
                "TLSV1_UNRECOGNIZED_NAME": _NO_HOST,
                "ALERT_UNRECOGNIZED_NAME": _NO_HOST,
                "ALERT_BAD_CERTIFICATE": _OUR_CERTIFICATE,
                "ALERT_CERTIFICATE_EXPIRED": _OUR_CERTIFICATE,
                "ALERT_CERTIFICATE_REQUIRED": _OUR_CERTIFICATE,
                "ALERT_CERTIFICATE_REVOKED": _OUR_CERTIFICATE,
                "ALERT_CERTIFICATE_UNKNOWN": _OUR_CERTIFICATE,
                "ALERT_UNSUPPORTED_CERTIFICATE": _OUR_CERTIFICATE,
                "ALERT_UNKNOWN_CA": _OUR_CERTIFICATE,
                "ALERT_ACCESS_DENIED": _OUR_CERTIFICATE,
                "ALERT_INTERNAL_ERROR": Row(
                    Kind.TRANSIENT, "an error inside the other side", ambiguous=True
                ),
                "ALERT_BAD_RECORD_MAC": _CORRUPT,
                "BAD_RECORD_TYPE": _CORRUPT,
                "RECORD_LAYER_FAILURE": _CORRUPT,  # of OpenSSL 3.2 and newer
                "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": _CORRUPT,
                "UNEXPECTED_EOF_WHILE_READING": _LOST,
            },
            otherwise=Row(Kind.UNKNOWN, "a reason of OpenSSL that is not known"),
            of="reason",
        ),
        "ssl.SSLCertVerificationError": _CERTIFICATE,
        "ssl.SSLEOFError": _LOST,
        "ssl.SSLZeroReturnError": _LOST,
        "ssl.SSLSyscallError": _LOST,
        "ssl.SSLWantReadError": _WAIT,
        "ssl.SSLWantWriteError": _WAIT,
    },
    retries="none",
)
