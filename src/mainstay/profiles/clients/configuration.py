"""How a client's calls are retried: what, how often and after which delays, with presets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mainstay.core.base.validate import MAX_ATTEMPTS, MAX_SECONDS, Checker, in_seconds
from mainstay.core.known.http import status_of
from mainstay.core.known.kind import RETRIED_KINDS
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.kinds import kind_of
from mainstay.drivers.policy import RetryPolicy
from mainstay.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.types import Seconds
    from mainstay.core.retry.classify import Rule
    from mainstay.core.retry.hooks import Hook


def is_server_error(error: Exception) -> bool:
    """Whether an HTTP error is the server's doing, or asks us to slow down: 5xx and 429.

    >>> error = RuntimeError()
    >>> error.status_code = 503
    >>> is_server_error(error)
    True
    """
    status = status_of(error)
    return status is not None and (status == 429 or 500 <= status < 600)


def is_transient(error: Exception) -> bool:
    """Whether its library's table has it as worth repeating: S3's SlowDown, a reset, a timeout.

    An HTTP status decides alone, as the document has it; AWS's error codes decide before it. A
    request whose answer was lost and that must not be sent twice is not worth repeating.
    """
    known = kind_of(error)
    is_decided = status_of(error) is None or known.table == "botocore"
    return bool(known.table) and is_decided and known.kind in RETRIED_KINDS and not known.unsafe


RETRY_ON: tuple[Rule, ...] = (
    "ThrottlingException",
    "ProvisionedThroughputExceededException",
    "InternalError",
    "ServiceUnavailable",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.Timeout",
    is_server_error,
    is_transient,
)
IGNORE_ON: tuple[Rule, ...] = (
    "AccessDeniedException",
    "NoSuchKey",
    "InvalidSignatureException",
    ValueError,
    TypeError,
)


@dataclass(frozen=True, slots=True)
class RetryConfiguration:
    """How a client's calls are retried; `policy()` makes the engine's policy of it.

    >>> RetryConfiguration(max_attempts=3, base_delay=0.5, max_delay=10.0).policy().max_attempts
    3
    """

    max_attempts: int = 5
    base_delay: float = 1.0
    max_delay: float = 30.0
    exponential_base: float = 2.0
    jitter: float = 1.0
    retry_on_exceptions: tuple[Rule, ...] = RETRY_ON
    ignore_on_exceptions: tuple[Rule, ...] = IGNORE_ON
    log_level: str | int = "WARNING"
    before_retry_hook: Hook | None = None
    after_retry_hook: Hook | None = None

    if TYPE_CHECKING:  # fields are floats, whatever is given

        def __init__(
            self,
            max_attempts: int = 5,
            base_delay: Seconds = 1.0,
            max_delay: Seconds = 30.0,
            exponential_base: float = 2.0,
            jitter: Seconds = 1.0,
            retry_on_exceptions: tuple[Rule, ...] = RETRY_ON,
            ignore_on_exceptions: tuple[Rule, ...] = IGNORE_ON,
            log_level: str | int = "WARNING",
            before_retry_hook: Hook | None = None,
            after_retry_hook: Hook | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        check = Checker("RetryConfiguration")
        for name in ("base_delay", "max_delay", "jitter"):
            object.__setattr__(self, name, in_seconds(getattr(self, name)))
        for name, (is_right, allowed) in _RULES.items():
            value = getattr(self, name)
            if type(value) not in (int, float) or not math.isfinite(value) or not is_right(value):
                check.note(name, value, allowed)
        if not check.problems and self.max_delay < self.base_delay:
            check.note("max_delay", self.max_delay, f"at least base_delay, {self.base_delay:g}")
        try:
            self._without_delays("client")
        except PolicyError as error:
            check.include(error, {field: name for name, field in _FIELDS.items()})
        check.close()

    def policy(self, name: str = "client") -> RetryPolicy:
        """The engine's policy with these values."""
        return self._without_delays(name).replace(
            max_attempts=self.max_attempts,
            backoff=Backoff.exponential(
                self.base_delay, factor=self.exponential_base, max_delay=self.max_delay
            ),
            jitter=Jitter.additive(self.jitter),
        )

    def _without_delays(self, name: str) -> RetryPolicy:
        fields: dict[str, Any] = {field: getattr(self, own) for own, field in _FIELDS.items()}
        return RetryPolicy(name=name, **fields)


_FIELDS = {
    "retry_on_exceptions": "retry_on",
    "ignore_on_exceptions": "never_retry_on",
    "log_level": "log_level",
    "before_retry_hook": "before_retry",
    "after_retry_hook": "after_retry",
}
"""What the document calls fields of a policy, and their names there."""


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_attempts": (
        lambda value: type(value) is int and 1 <= value <= MAX_ATTEMPTS,
        "an integer of at least 1",
    ),
    "base_delay": (lambda value: 0 <= value <= MAX_SECONDS, "at least 0"),
    "max_delay": (lambda value: 0 <= value <= MAX_SECONDS, "at least base_delay"),
    "exponential_base": (lambda value: 1 <= value <= 1000, "at least 1.0"),
    "jitter": (lambda value: 0 <= value <= MAX_SECONDS, "at least 0"),
}


class RetryPresets:
    """Configurations for common sorts of operations.

    >>> RetryPresets.API_CALL.max_attempts, RetryPresets.API_CALL.max_delay
    (3, 10.0)
    """

    S3_UPLOAD: ClassVar = RetryConfiguration()
    S3_DOWNLOAD: ClassVar = RetryConfiguration()
    API_CALL: ClassVar = RetryConfiguration(
        max_attempts=3, base_delay=0.5, max_delay=10.0, jitter=0.5
    )
