"""The rules of the pipeline document as values: its numbers, what is retried, what never is.

A stage has the document's policy unless it has its own, and its own is held to the same rules: what
the document forbids is refused when the stage is declared.
"""

from __future__ import annotations

from mainstay.core.base.validate import Checker
from mainstay.core.known.http import status_of
from mainstay.core.known.kind import RETRIED_KINDS
from mainstay.core.retry.kinds import kind_of
from mainstay.errors import FailFastError, RetryForbidden, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.retry.backoff import Backoff, Jitter
    from mainstay.core.retry.policy import Policy

STATUSES = (408, 429, 500, 501, 502, 503, 504)
"""What is retried by its HTTP status, and no other status is."""
MAX_ATTEMPTS, LEAST_BASE, MOST_BASE, MAX_DELAY, FACTOR = 5, 0.5, 1.0, 30.0, 2.0
MAX_FAILURES, COOLDOWN, PROBES = 3, 300.0, 1
TIMEOUT = 60.0
"""Seconds of one attempt, unless the stage has a limit of its own."""

FORBIDDEN = (
    "unbounded-retries", "no-backoff", "non-idempotent", "ignored-retry-after", "forbidden-class",
    "growing-concurrency", "swallowed-exception",
)  # fmt: skip
"""The seven forbidden behaviours, in the order of the document."""

FAIL_FAST_CLASSES = frozenset({
    "jsonschema.exceptions.ValidationError", "jsonschema.exceptions.SchemaError",
    "jsonschema_rs.ValidationError", "fastjsonschema.exceptions.JsonSchemaValueException",
    "pydantic_core._pydantic_core.ValidationError", "pydantic.v1.error_wrappers.ValidationError",
    "msgspec.ValidationError", "marshmallow.exceptions.ValidationError",
    "cerberus.validator.DocumentError", "voluptuous.error.Invalid",
    "pandera.errors.SchemaError", "pandera.errors.SchemaErrors",
    "xmlschema.validators.exceptions.XMLSchemaValidationError", "lxml.etree.DocumentInvalid",
    "avro.errors.AvroTypeException", "fastavro._validate_common.ValidationError",
})  # fmt: skip
"""Classes of libraries that validate schemas; each counts with what derives from it."""


def is_fail_fast(error: BaseException) -> bool:
    """Whether the document forbids to retry this failure.

    What was raised from such a failure counts as it; a timeout is judged by its cause also if it
    was raised while such a failure was handled.

    >>> from mainstay.errors import SchemaValidationError
    >>> is_fail_fast(SchemaValidationError("no id")), is_fail_fast(TimeoutError())
    (True, False)
    """
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        if isinstance(found, FailFastError) or _is_listed(type(found)):
            return True
        if isinstance(found, BaseExceptionGroup):
            return any(map(is_fail_fast, found.exceptions))
        seen.add(id(found))
        by_chance = found.__context__ if isinstance(found, TimeoutError) else None
        found = found.__cause__ or by_chance
    return False


def _is_listed(cls: type) -> bool:
    return any(
        f"{base.__module__}.{base.__qualname__}" in FAIL_FAST_CLASSES for base in cls.__mro__
    )


def is_retryable(error: Exception) -> bool:
    """Whether the document allows to retry this failure.

    An HTTP status decides alone, unless the library's own code does, as AWS's do; otherwise what is
    known of the class, the code or the errno: timeouts, throttling, Neo4j's TransientError, files
    and databases that are busy or locked.

    >>> error = RuntimeError(); error.status_code = 501
    >>> is_retryable(error), is_retryable(ConnectionResetError()), is_retryable(KeyError())
    (True, True, False)
    """
    known, status = kind_of(error), status_of(error)
    if status is not None and known.table != "botocore":
        return status in STATUSES
    return known.kind in RETRIED_KINDS and not known.unsafe


def check_policy(name: str, policy: Policy) -> None:
    """Refuses a policy that breaks the document's rules; all problems at once.

    >>> from mainstay import Backoff, RetryPolicy
    >>> check_policy("poll", RetryPolicy(backoff=Backoff.constant(0.0)))
    Traceback (most recent call last):
    mainstay.errors.PolicyError: the policy of stage poll is not valid:...
    """
    check = Checker(f"the policy of stage {name}")
    if policy.max_attempts > MAX_ATTEMPTS:
        check.note("max_attempts", policy.max_attempts, f"1 to {MAX_ATTEMPTS} (unbounded-retries)")
    if policy.attempt_timeout is None:
        check.note("attempt_timeout", None, "a number of seconds: each attempt has a hard timeout")
    if not policy.respect_retry_after:
        check.note("respect_retry_after", False, "True (ignored-retry-after)")
    if policy.wait_from is not None:
        check.note("wait_from", policy.wait_from, "None: the backoff decides (no-backoff)")
    if policy.max_attempts > 1:
        for field, backoff, jitter in _curves(policy):
            _check_curve(check, field, backoff, jitter)
    for rule in policy.retry_on or ():
        if isinstance(rule, type) and issubclass(rule, FailFastError):
            check.note("retry_on", rule.__name__, "no class that fails fast (forbidden-class)")
    check.close()


def _curves(policy: Policy) -> Iterator[tuple[str, Backoff, Jitter]]:
    yield "", policy.backoff, policy.jitter
    for kind, rule in (policy.per_kind or {}).items():
        field = f"per_kind.{getattr(kind, 'value', kind)}."
        yield field, rule.backoff or policy.backoff, rule.jitter or policy.jitter


def _check_curve(check: Checker, field: str, backoff: Backoff, jitter: Jitter) -> None:
    if backoff.kind != "exponential" or backoff.factor != FACTOR:
        shown = f"{backoff.kind}, factor {backoff.factor:g}"
        check.note(f"{field}backoff", shown, "exponential, factor 2 (no-backoff)")
        return
    if not LEAST_BASE <= backoff.initial <= MOST_BASE:
        check.note(f"{field}backoff.initial", backoff.initial, "0.5 to 1.0 s (no-backoff)")
    if backoff.max_delay > MAX_DELAY:
        check.note(f"{field}backoff.max_delay", backoff.max_delay, "30 s at most")
    if jitter.kind != "full":
        check.note(f"{field}jitter", jitter.kind, "full")


def check_idempotency(
    name: str, idempotency: str | None, max_attempts: int, *, has_key: bool
) -> str:
    """The idempotency gate: how a stage may be repeated; refused when it is declared.

    >>> check_idempotency("load", None, 5, has_key=False)
    Traceback (most recent call last):
    mainstay.errors.UsageError: stage load does not state how safe repeating it is. idempotency=...
    """
    if idempotency not in IDEMPOTENCY:
        what = "does not state how safe repeating it is"
        if idempotency is not None:
            what = f"has idempotency = {idempotency!r}, which is none of {', '.join(IDEMPOTENCY)}"
        raise UsageError(
            f"stage {name} {what}",
            hint='idempotency="idempotent", "keyed" with idempotency_key=, "outbox" with connect=,'
            ' or "unsafe" with max_attempts=1',
        )
    if idempotency == "unsafe" and max_attempts > 1:
        text = f"stage {name} is unsafe and would be called up to {max_attempts} times"
        raise RetryForbidden("non-idempotent", text)
    if idempotency == "keyed" and not has_key:
        raise UsageError(
            f"stage {name} is keyed and has no key",
            hint='idempotency_key="load-{run_id}", or a function of the context',
        )
    return idempotency


IDEMPOTENCY = ("idempotent", "keyed", "outbox", "unsafe")
