"""Which error of the effects document a failure is: by its HTTP status, its class, its kind.

Kinds come from the tables of libraries (core/known/). What is not known is no error of the
taxonomy, and is not retried; nor is a mistake of the program, which no table has.
"""

from __future__ import annotations

from mainstay.core.known.http import status_of
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of

RETRYABLE = ("InfraConnectionError", "InfraTimeoutError", "InfraUnavailableError")
FINAL = (
    "InfraDataIntegrityError", "InfraAuthenticationError", "ProtocolConfigurationError",
    "SecretResolutionError",
)  # fmt: skip
"""Looked at first: InfraDataIntegrityError is an InfraConnectionError."""

STATUSES = (429, 500, 502, 503, 504)
"""The HTTP statuses that are retried."""
_BY_STATUS = {
    400: "ProtocolConfigurationError",
    401: "InfraAuthenticationError",
    403: "InfraAuthenticationError",
    404: "SecretResolutionError",
    407: "InfraAuthenticationError",
    409: "InfraDataIntegrityError",
    410: "SecretResolutionError",
    422: "ProtocolConfigurationError",
    429: "InfraConnectionError",
    500: "InfraUnavailableError",
    502: "InfraUnavailableError",
    503: "InfraUnavailableError",
    504: "InfraTimeoutError",
}
_BY_CLASS = {
    "IntegrityError": "InfraDataIntegrityError",
    "IntegrityConstraintViolationError": "InfraDataIntegrityError",
    "hvac.exceptions.InvalidPath": "SecretResolutionError",
    "consul.exceptions.NotFound": "SecretResolutionError",
    "consul.base.NotFound": "SecretResolutionError",
    "cryptography.exceptions.InvalidSignature": "InfraAuthenticationError",
    "cryptography.exceptions.InvalidTag": "InfraAuthenticationError",
    "cryptography.fernet.InvalidToken": "InfraAuthenticationError",
    "ssl.SSLCertVerificationError": "InfraAuthenticationError",
}
"""By the name of a class or of one that it derives from; PEP 249 names IntegrityError."""
_BY_KIND = {
    Kind.TRANSIENT: "InfraConnectionError",
    Kind.THROTTLED: "InfraConnectionError",
    Kind.AMBIGUOUS: "InfraConnectionError",
    Kind.TIMEOUT: "InfraTimeoutError",
    Kind.OVERLOAD: "InfraUnavailableError",
    Kind.AUTH: "InfraAuthenticationError",
}


def infra_name(error: BaseException) -> str:
    """The name of the error of the taxonomy that a failure is; empty if it is none.

    >>> infra_name(ConnectionRefusedError()), infra_name(TimeoutError()), infra_name(KeyError())
    ('InfraConnectionError', 'InfraTimeoutError', '')
    """
    status = status_of(error)
    if status is not None:
        return _BY_STATUS.get(status, "")
    for base in type(error).__mro__:
        for name in (base.__name__, f"{base.__module__}.{base.__qualname__}"):
            if name in _BY_CLASS:
                return _BY_CLASS[name]
    known = kind_of(error)
    if known.kind is Kind.PERMANENT and known.table:
        return "ProtocolConfigurationError"
    return _BY_KIND.get(known.kind, "")
