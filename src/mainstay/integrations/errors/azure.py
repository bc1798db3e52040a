"""azure-core, which the clients of Azure raise the errors of."""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.known.http import KEY_HEADERS
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, OwnRetries, Row, Same, Table, by_status
from mainstay.integrations.errors import shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LOST = "the connection failed after the request was sent, in part or whole"
_WRONG = Row(Kind.PERMANENT, "a mistake in the call")
_DAMAGED = Row(Kind.PERMANENT, "the body is not what its headers declare", ambiguous=True)
_HTTP = "azure.core.exceptions.HttpResponseError"

_CLASSES: dict[str | int, Row] = {
    "ClientAuthenticationError": Row(Kind.AUTH, "the credentials are not accepted"),
    "ResourceNotFoundError": Row(Kind.PERMANENT, "what it names is not there"),
    "ResourceExistsError": Row(Kind.PERMANENT, "it is there already, or was changed meanwhile"),
    "ResourceModifiedError": Row(Kind.PERMANENT, "it was changed meanwhile"),
    "ResourceNotModifiedError": Row(Kind.PERMANENT, "it was not changed, as the request asks"),
    "TooManyRedirectsError": Row(Kind.PERMANENT, "the redirects do not end"),
}
"""Each of one status, so that a rule which names the class names that."""


def _class(error: Any) -> tuple[str]:
    return (type(error).__name__,)


_BY_CLASS = Cases(
    _class,
    _CLASSES,
    otherwise=by_status(  # inside: a lost connection, or why an operation failed after a success
        Inner(
            "inner_exception",
            otherwise=Row(Kind.UNKNOWN, "a status that the client does not expect", ambiguous=True),
        )
    ),
    of="class",
)


def _milliseconds(error: Any) -> float | None:
    """The headers that Azure has beside Retry-After."""
    headers: Mapping[str, str] = error.response.headers
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        if name in headers:
            return int(headers[name]) / 1000
    return None


def _sent(error: Any) -> int:
    """By the history of its retry policy: with the failure, or before the answer that it was of."""
    steps = [each.f_locals for each in shared.frames(error)]
    failed = [_history(each.get("retry_settings")) for each in steps]
    answers = [attribute(each.get("pipeline_response"), "context") for each in steps]
    return max([*failed, *(_history(each) + 1 for each in answers)], default=1)


def _history(holder: Any) -> int:
    return 0 if holder is None else len(holder.get("history", ()))


TABLE = Table(
    "azure",
    {
        "azure.core.exceptions.AzureError": Row(
            Kind.UNKNOWN, "a base class, for a retry that ends with neither an answer nor an error"
        ),
        _HTTP: _BY_CLASS,
        "azure.core.exceptions.ODataV4Error": Same(_HTTP),
        **{f"azure.core.exceptions.{name}": Same(_HTTP) for name in _CLASSES},
        "azure.core.exceptions.DecodeError": _DAMAGED,
        "azure.core.exceptions.IncompleteReadError": Row(
            Kind.TRANSIENT, "the answer began and did not end", ambiguous=True
        ),
        "azure.core.exceptions.ServiceRequestError": Inner(
            "inner_exception",
            otherwise=Row(Kind.TRANSIENT, "no connection was made, so nothing was sent"),
        ),
        "azure.core.exceptions.ServiceRequestTimeoutError": Row(
            Kind.TIMEOUT, "no connection was made in time, so nothing was sent"
        ),
        "azure.core.exceptions.ServiceResponseError": Row(Kind.TRANSIENT, _LOST, ambiguous=True),
        "azure.core.exceptions.ServiceResponseTimeoutError": Row(
            Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True
        ),
        "azure.core.exceptions.SerializationError": _WRONG,
        "azure.core.exceptions.DeserializationError": _DAMAGED,
        "azure.core.exceptions.ResponseNotReadError": _WRONG,
        "azure.core.exceptions.StreamClosedError": _WRONG,
        "azure.core.exceptions.StreamConsumedError": _WRONG,
        "azure.core.pipeline.transport._base_async._ResponseStopIteration": Row(
            Kind.PERMANENT, "the end of a body, which azure-core handles itself"
        ),
        "azure.core.polling.base_polling.BadResponse": Row(
            Kind.TRANSIENT, "the state of the operation cannot be read", ambiguous=True
        ),
        "azure.core.polling.base_polling.BadStatus": Row(
            Kind.UNKNOWN, "a status that the operation should not have; it is not kept"
        ),
        "azure.core.polling.base_polling.OperationFailed": Row(
            Kind.PERMANENT, "the operation failed or was cancelled"
        ),
    },
    packages=("azure.core",),
    retries="up to 10 of its own, 3 after a lost connection and 3 after a status:"
    " `retry_total=0` turns them off",
    hint=_milliseconds,
    own_retries=OwnRetries(_sent, "pass retry_total=0 to the client"),
    key="a Repeatability-Request-ID",
    key_headers=(*KEY_HEADERS, "repeatability-request-id"),
)
