"""The three log records of the effects document: a retry, no attempt left, a compensation."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainstay.core.base.validate import seconds_of
from mainstay.core.events.describe import describe
from mainstay.runtime.reports import logs

if TYPE_CHECKING:
    from uuid import UUID

    from mainstay.core.base.types import Seconds

logger = logs.logger("mainstay.profiles.effects")


def log_retry_attempt(
    effect_type: str,
    attempt: int,
    max_attempts: int,
    delay: Seconds,
    error: Exception,
    correlation_id: UUID,
) -> None:
    """Logs a retry at WARNING; `attempt` counts from 0, the record's from 1.

    Of the error only its type is logged: its text may hold a secret.

    >>> from uuid import UUID
    >>> log_retry_attempt("database", 0, 3, 1.0, TimeoutError(), UUID(int=7))
    """
    delay = seconds_of(delay)
    logger.warning(
        "Retrying %s operation (attempt %d/%d) after %.2fs delay",
        effect_type,
        attempt + 1,
        max_attempts,
        delay,
        extra={
            "effect_type": effect_type,
            "attempt": attempt + 1,
            "max_attempts": max_attempts,
            "delay_seconds": delay,
            "error_type": type(error).__name__,
            "correlation_id": str(correlation_id),
        },
    )


def log_retry_exhausted(
    effect_type: str,
    max_attempts: int,
    total_time: Seconds,
    error: Exception,
    correlation_id: UUID,
) -> None:
    """Logs at ERROR that no attempt is left.

    The document's `error_message` is there, with its secrets taken out; the message itself has none
    of the error's text.

    >>> from uuid import UUID
    >>> log_retry_exhausted("database", 3, 4.2, TimeoutError("no reply"), UUID(int=7))
    """
    total_time, (_, text) = seconds_of(total_time), describe(error)
    logger.error(
        "All retry attempts exhausted for %s after %d attempts (%.2fs total)",
        effect_type,
        max_attempts,
        total_time,
        extra={
            "effect_type": effect_type,
            "max_attempts": max_attempts,
            "total_time_seconds": total_time,
            "error_type": type(error).__name__,
            "error_message": text,
            "correlation_id": str(correlation_id),
        },
    )


def log_compensation_action(
    effect_type: str, action: str, success: bool, correlation_id: UUID
) -> None:
    """Logs that an effect was undone, at INFO, or could not be, at ERROR.

    >>> from uuid import UUID
    >>> log_compensation_action("database", "delete_user", True, UUID(int=7))
    """
    logger.log(
        logging.INFO if success else logging.ERROR,
        "Compensation %s for %s: %s",
        "succeeded" if success else "failed",
        effect_type,
        action,
        extra={
            "effect_type": effect_type,
            "compensation_action": action,
            "compensation_success": success,
            "correlation_id": str(correlation_id),
        },
    )
