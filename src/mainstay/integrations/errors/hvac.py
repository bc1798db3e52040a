"""hvac, the client of HashiCorp Vault: a class for each status, without the status itself.

A connection that fails raises an error of requests.
"""

from __future__ import annotations

from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Row, Table
from mainstay.integrations.errors.shared import asked_wait

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_NOT_YET = Row(Kind.TRANSIENT, "the node does not have the state of the last write yet")


def _errors(error: Any) -> tuple[str, ...]:
    return tuple(error.errors or (error.text,))


TABLE = Table(
    "hvac",
    {
        "hvac.exceptions.VaultError": Row(
            Kind.UNKNOWN, "a base class, which hvac itself does not raise"
        ),
        "hvac.exceptions.InvalidRequest": _WRONG,
        "hvac.exceptions.ParamValidationError": _WRONG,
        "hvac.exceptions.UnsupportedOperation": _WRONG,
        "hvac.exceptions.Unauthorized": Row(Kind.AUTH, "the token is not accepted"),
        "hvac.exceptions.Forbidden": Row(Kind.AUTH, "the token is not accepted or not permitted"),
        "hvac.exceptions.InvalidPath": Row(Kind.PERMANENT, "what it names is not there"),
        "hvac.exceptions.PreconditionFailed": _NOT_YET,
        "hvac.exceptions.RateLimitExceeded": Row(Kind.THROTTLED, "a rate limit quota of Vault"),
        "hvac.exceptions.InternalServerError": Row(
            Kind.TRANSIENT, "an error inside Vault", ambiguous=True
        ),
        "hvac.exceptions.VaultNotInitialized": Row(Kind.PERMANENT, "Vault is not initialised"),
        "hvac.exceptions.BadGateway": Row(
            Kind.TRANSIENT, "what stands before Vault got no answer", ambiguous=True
        ),
        "hvac.exceptions.VaultDown": Row(Kind.OVERLOAD, "Vault is sealed or under maintenance"),
        "hvac.exceptions.UnexpectedError": Cases(
            _errors,
            {"required index state not present*": _NOT_YET},
            otherwise=Row(Kind.UNKNOWN, "a status that hvac has no class for, and does not keep"),
            of="error",
        ),
    },
    retries="none by default; an adapter of requests with `max_retries=Retry(...)` repeats",
    hint=lambda error: asked_wait(error, "hvac.adapters"),
)
