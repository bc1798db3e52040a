"""openai: the code in the body of an answer decides, then its status.

A connection error wraps one of httpx2 (httpx, before version 3), which decides. A request whose
answer was lost may have been carried out and paid for; if it is a POST without an Idempotency-Key,
it is not repeated.
"""

from __future__ import annotations

import re

from mainstay.core.base.attributes import attribute
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Cases, Inner, OwnRetries, Row, Same, Table
from mainstay.integrations.errors.model_api import (
    CREDENTIALS,
    LATE,
    LOST,
    MISUSE,
    NO_RETRIES,
    RETRIES,
    STATUSES,
    header,
    milliseconds,
    only_computes,
    status_cases,
)
from mainstay.integrations.errors.shared import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from mainstay.core.known.table import Entry

_QUOTA = Row(Kind.PERMANENT, "the account has no credit left; waiting does not help")
_TOO_LONG = Row(Kind.PERMANENT, "longer than the model takes")
_POLICY = Row(Kind.PERMANENT, "refused by the content policy")
_RATE = Row(Kind.THROTTLED, "a rate limit of the account")
_OVERLOADED = Row(Kind.OVERLOAD, "the service is overloaded")
_SERVER = Row(Kind.TRANSIENT, "an error inside the service", ambiguous=True)

_CODES: dict[str | int, Row] = {
    "insufficient_quota": _QUOTA,
    "billing_hard_limit_reached": _QUOTA,
    "billing_not_active": _QUOTA,
    "context_length_exceeded": _TOO_LONG,
    "string_above_max_length": _TOO_LONG,
    "content_policy_violation": _POLICY,
    "content_filter": _POLICY,
    "invalid_api_key": Row(Kind.AUTH, "a wrong API key"),
    "rate_limit_exceeded": _RATE,
    "slow_down": _RATE,
    "server_is_overloaded": _OVERLOADED,
    "engine_overloaded": _OVERLOADED,
    "server_error": _SERVER,
}


def _of_status(exception: Any) -> Iterable[str | int | None]:
    # The type is looked at for this one alone: a wrong key has the type invalid_request_error.
    quota = "insufficient_quota" if exception.type == "insufficient_quota" else None
    return (exception.code, quota, *status_cases(exception))


_EXCHANGE = re.compile(r"Token exchange failed with status (\d{3})")


def _of_exchange(exception: Any) -> tuple[int | None]:
    """The status of the service that gives tokens, which the text alone has."""
    found = _EXCHANGE.fullmatch(str(exception))
    return (int(found[1]) if found else None,)


def _of_event(exception: Any) -> Iterable[str | int | None]:
    return (exception.code, exception.type)


def _reset(exception: Any) -> float | None:
    """When the limit that is used up is whole again, by `x-ratelimit-reset-*`."""
    if attribute(exception, "status_code") != 429:
        return None
    after = milliseconds(exception)
    if after is not None:
        return after
    waits = [
        seconds(header(exception, f"x-ratelimit-reset-{each}"))
        for each in ("requests", "tokens")
        if header(exception, f"x-ratelimit-remaining-{each}") == "0"
    ]
    return max((each for each in waits if each is not None), default=None)


_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|d|h|m|s)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str | None) -> float | None:
    """The seconds of a duration as the service writes it.

    >>> seconds("6m0s"), seconds("17ms"), seconds("soon")
    (360.0, 0.017, None)
    """
    if not text or _PARTS.sub("", text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PARTS.findall(text))


_STATUS = Cases(
    _of_status,
    {**STATUSES, **_CODES},
    otherwise=Row(Kind.UNKNOWN, "no status and no code are known"),
)
_SAME = Same("openai.APIStatusError")
_TOOLS = Row(Kind.UNKNOWN, "tools may have run; the lists of calls that it carries decide")
_CANCELLED = Row(Kind.PERMANENT, "a cancellation")


def _of_version_0(exception: Any) -> Iterable[str | int | None]:
    body = exception.json_body["error"] if exception.json_body else {}
    return (body.get("code"), body.get("type"), exception.http_status)


_STATUS_BEFORE = Cases(
    _of_version_0,
    {**STATUSES, **_CODES},
    otherwise=Row(Kind.UNKNOWN, "no status and no code are known"),
)
_BEFORE: dict[str, Entry] = {
    "openai.error.OpenAIError": Row(Kind.UNKNOWN, "a base class, which openai does not raise"),
    "openai.error.APIError": _STATUS_BEFORE,
    "openai.error.AuthenticationError": Cases(
        _of_version_0, {**STATUSES, **_CODES}, otherwise=CREDENTIALS
    ),
    "openai.error.InvalidRequestError": Cases(
        _of_version_0, {**STATUSES, **_CODES}, otherwise=MISUSE
    ),
    "openai.error.PermissionError": _STATUS_BEFORE,
    "openai.error.RateLimitError": _STATUS_BEFORE,
    "openai.error.ServiceUnavailableError": Cases(
        _of_version_0, {**STATUSES, **_CODES}, otherwise=_OVERLOADED
    ),
    "openai.error.TryAgain": Cases(
        _of_version_0,
        {**STATUSES, **_CODES},
        otherwise=Row(Kind.TRANSIENT, "the client asks to repeat: the answer is not there yet"),
    ),
    "openai.error.APIConnectionError": Inner("__cause__", otherwise=LOST),
    "openai.error.Timeout": Inner("__cause__", otherwise=LATE),
    "openai.error.InvalidAPIType": MISUSE,
    "openai.error.SignatureVerificationError": Row(
        Kind.PERMANENT, "the message is not signed with the secret of this webhook"
    ),
    "openai.datalib.MissingDependencyError": MISUSE,
    "openai.datalib.common.MissingDependencyError": MISUSE,
    "openai.upload_progress.CancelledError": _CANCELLED,
}
"""Before version 1."""

OTHER_VERSIONS = (
    *_BEFORE,
    "openai.cli._errors.CLIError",
    "openai.cli._errors.SilentCLIError",
    "openai.cli._progress.CancelledError",
)

TABLE = Table(
    "openai",
    {
        **_BEFORE,
        "openai.OpenAIError": Cases(
            _of_exchange,
            STATUSES,
            otherwise=Row(
                Kind.PERMANENT, "the client cannot be used as it is set up, such as without a key"
            ),
            of="status",
        ),
        "openai.APIError": Cases(
            _of_event,
            _CODES,
            otherwise=Row(Kind.UNKNOWN, "an error inside a stream, with a code that is not known"),
        ),
        "openai.APIStatusError": _STATUS,
        **dict.fromkeys(
            (
                "openai.AuthenticationError",
                "openai.BadRequestError",
                "openai.ConflictError",
                "openai.InternalServerError",
                "openai.NotFoundError",
                "openai.OAuthError",
                "openai.PermissionDeniedError",
                "openai.RateLimitError",
                "openai.UnprocessableEntityError",
            ),
            _SAME,
        ),
        "openai.APIConnectionError": Inner("__cause__", otherwise=LOST),
        "openai.APITimeoutError": Inner("__cause__", otherwise=LATE),
        "openai.APIResponseValidationError": Row(
            Kind.PERMANENT, "the answer is not what this version of the client knows"
        ),
        "openai.ContentFilterFinishReasonError": _POLICY,
        "openai.LengthFinishReasonError": Row(
            Kind.PERMANENT, "the answer reached its limit of tokens before it was whole"
        ),
        "openai.InvalidWebhookSignatureError": Row(
            Kind.PERMANENT, "the message is not signed with the secret of this webhook"
        ),
        "openai._exceptions.SubjectTokenProviderError": Inner("__cause__", otherwise=CREDENTIALS),
        "openai.auth._x509._TransientTokenExchangeError": Inner(
            "error", otherwise=Row(Kind.TRANSIENT, "no token was exchanged for now")
        ),
        "openai.WebSocketConnectionClosedError": Row(
            Kind.TRANSIENT, "the connection closed before all was sent", ambiguous=True
        ),
        "openai.WebSocketQueueFullError": Row(
            Kind.OVERLOAD, "more waits to be sent than the client keeps"
        ),
        "openai.lib.responses_websocket._session.ResponsesWebSocketBufferError": Row(
            Kind.PERMANENT, "an answer is larger than the program allows"
        ),
        "openai.lib.responses_websocket._session.ResponsesWebSocketError": Row(
            Kind.UNKNOWN, "an event of the service that this table does not read"
        ),
        "openai._AmbiguousModuleClientUsageError": MISUSE,
        "openai._extras._common.MissingDependencyError": MISUSE,
        "openai._legacy_response.MissingStreamClassError": MISUSE,
        "openai._response.MissingStreamClassError": MISUSE,
        "openai._response.StreamAlreadyConsumed": MISUSE,
        "openai.cli._errors.CLIError": MISUSE,
        "openai.cli._errors.SilentCLIError": MISUSE,
        "openai.cli._progress.CancelledError": _CANCELLED,
        "openai.lib._old_api.APIRemovedInV1": MISUSE,
        "openai.lib.azure.MutuallyExclusiveAuthError": MISUSE,
        "openai.lib.beta.agents._files.AgentFilePreparationError": Row(
            Kind.UNKNOWN, "some files were uploaded, others not"
        ),
        "openai.lib.beta.agents._files.AgentFileStagingError": Row(
            Kind.UNKNOWN, "the file was uploaded and not staged"
        ),
        "openai.lib.beta.agents._result.AgentOutputParseError": Row(
            Kind.PERMANENT, "the turn ended, and its output is not what was asked for"
        ),
        "openai.lib.beta.agents._result.AgentTurnResultError": Row(
            Kind.UNKNOWN, "the turn may have ended well; only its result was not seen"
        ),
        "openai.lib.browser.BrowserCancelledError": _CANCELLED,
        "openai.lib.browser.BrowserError": Row(
            Kind.PERMANENT, "a refusal that the model is to read"
        ),
        "openai.lib.computer.ComputerUseError": _TOOLS,
        "openai.lib.decisions_tool_runner.DecisionsToolRunnerCancelledError": _CANCELLED,
        "openai.lib.decisions_tool_runner.DecisionsToolRunnerError": _TOOLS,
        "openai.lib.responses_tool_runner.ToolRunnerCancelledError": _CANCELLED,
        "openai.lib.responses_tool_runner.ToolRunnerError": _TOOLS,
    },
    retries=RETRIES,
    hint=_reset,
    changes_nothing=only_computes,
    own_retries=OwnRetries(
        lambda error: counted(error, "retries_taken", "openai._base_client") + 1, NO_RETRIES
    ),
)
