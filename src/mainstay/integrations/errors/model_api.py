"""What the services of language models have in common: statuses, and headers for their clients.

The clients of OpenAI and Anthropic come from one generator, and read the same headers.
"""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import RETRIED_KINDS, Kind
from mainstay.core.known.table import Row, by_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LOST = Row(
    Kind.TRANSIENT,
    "the connection failed after the request was sent, in part or whole",
    ambiguous=True,
)
LATE = Row(Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True)
MISUSE = Row(Kind.PERMANENT, "a mistake in the call")
CREDENTIALS = Row(Kind.AUTH, "no credentials, or none that can be used")
FINAL = "x-should-retry: false"
"""A header: the service knows that a repetition would end the same."""
NO_RETRIES = "pass max_retries=0 to the client"
RETRIES = (
    "`max_retries` of the client, 2 by default: connection errors, timeouts, 408, 409, "
    "429 and every status from 500 on, so that one call makes up to 3 requests"
)

STATUSES: Mapping[str | int, Row] = {
    **by_status(
        rows={
            409: Row(Kind.TRANSIENT, "another request changes the same thing"),
            # of Cloudflare, which both services are behind
            520: Row(Kind.TRANSIENT, "the service broke off its answer", ambiguous=True),
            521: Row(Kind.TRANSIENT, "the service refused the connection"),
            522: Row(Kind.TIMEOUT, "the service took no connection in time"),
            523: Row(Kind.TRANSIENT, "the service cannot be reached"),
            524: Row(Kind.TIMEOUT, "the service gave no answer in time", ambiguous=True),
            529: Row(Kind.OVERLOAD, "the service is overloaded for all of its users"),
        }
    ).rows,
    FINAL: Row(Kind.PERMANENT, "the service asks not to repeat the request"),
}


def header(exception: object, name: str) -> str | None:
    """A header of the answer that an exception carries."""
    headers = attribute(attribute(exception, "response"), "headers")
    value = None if headers is None else headers.get(name)
    return value if isinstance(value, str) else None


def status_cases(exception: object) -> tuple[str | int | None, ...]:
    """The status, after a header that asks not to repeat what would be repeated."""
    status = attribute(exception, "status_code")
    if type(status) is not int or status < 400:
        return ()
    row = STATUSES.get(status)
    is_repeated = row is not None and row.kind in RETRIED_KINDS
    is_final = is_repeated and header(exception, "x-should-retry") == "false"
    return (FINAL if is_final else None, status)


def milliseconds(exception: object) -> float | None:
    """The header `retry-after-ms`, in seconds."""
    value = header(exception, "retry-after-ms")
    return None if value is None else float(value) / 1000


_COMPUTED = (
    "/audio/speech", "/audio/transcriptions", "/audio/translations", "/chat/completions",
    "/completions", "/embeddings", "/images/generations", "/messages", "/messages/count_tokens",
    "/moderations", "/responses",
)  # fmt: skip


def only_computes(exception: object) -> bool:
    """Whether the request asks for an answer of a model, and changes nothing at the service.

    It costs money again if it is repeated after a lost answer, which is what a caller who asks for
    retries wants. A message that is added to a thread, a batch, a file or a job is another matter.
    """
    return is_computed(attribute(exception, "request"))


def is_computed(request: object) -> bool:
    """Whether a request to such a service asks for an answer of a model alone."""
    path = str(attribute(attribute(request, "url"), "path") or "")
    is_kept = "/threads/" in path or "/conversations/" in path
    return path.endswith(_COMPUTED) and not is_kept
