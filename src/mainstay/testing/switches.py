"""Turning retries off."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainstay.runtime.overrides import PROCESS_OVERRIDES

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_retry() -> Iterator[None]:
    """Every call inside makes one attempt, whatever its policy is.

    >>> from mainstay import RetryPolicy
    >>> with no_retry():
    ...     RetryPolicy(retry_on=ValueError).run(int, "x").attempts
    1
    """
    PROCESS_OVERRIDES.disable_retries()
    try:
        yield
    finally:
        PROCESS_OVERRIDES.enable_retries()
