"""Policies as Temporal takes them; what has no counterpart there is refused by its name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from mainstay.core.retry.policy import Policy
from mainstay.errors import UsageError

_LONGEST_ATTEMPT = 3600.0
"""Seconds of an attempt whose policy has no attempt_timeout: Temporal needs a limit."""
_SHORTEST = 0.001
"""Seconds of a limit: Temporal takes none of 0."""
_UNTRANSLATED = {
    "retry_if_result": "a result is not judged by Temporal",
    "per_kind": "Temporal has one limit for all failures",
    "jitter": "Temporal has no jitter of its own",
    "timeout_by": "Temporal cuts attempts itself",
}
"""Fields of a policy that Temporal has no counterpart for, if they are not as usual."""
_USUAL = Policy()


def retry_of(policy: Policy, what: str) -> dict[str, Any]:
    """The policy of a step as Temporal takes it; raises UsageError for what has no counterpart.

    What is retried is decided in the activity, by the policy itself: a failure that it calls final
    is one that Temporal does not retry.
    """
    for name, why in _UNTRANSLATED.items():
        if getattr(policy, name) != getattr(_USUAL, name):
            raise UsageError(
                f"{what}: {name} cannot be translated: {why}",
                hint="leave it out of the policy of this step",
            )
    backoff = policy.backoff
    if backoff.kind not in ("constant", "exponential"):
        raise UsageError(
            f"{what}: a {backoff.kind} backoff cannot be translated: Temporal has exponential ones",
            hint="use Backoff.exponential(...) or Backoff.constant(...)",
        )
    is_constant = backoff.kind == "constant"
    return {
        "initial": max(backoff.initial, _SHORTEST),
        "factor": 1.0 if is_constant else max(1.0, backoff.factor),
        "most": max(backoff.initial if is_constant else backoff.max_delay, _SHORTEST),
        "attempts": policy.max_attempts,
        "attempt": policy.attempt_timeout or _LONGEST_ATTEMPT,
        "whole": policy.deadline,
    }


def limit_of(retry: dict[str, Any], left: float | None) -> timedelta | None:
    """For how long all attempts may last: by the policy, and the seconds to a deadline.

    >>> limit_of({"whole": 30.0}, 2.0), limit_of({"whole": None}, None)
    (datetime.timedelta(seconds=2), None)
    """
    limits = [each for each in (retry["whole"], left) if each is not None]
    return timedelta(seconds=max(min(limits), _SHORTEST)) if limits else None
