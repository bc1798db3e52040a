"""Turning retries off."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainstay.drivers.call.call import meddling

if TYPE_CHECKING:
    from collections.abc import Iterator

_changing = threading.Lock()


@contextmanager
def no_retry() -> Iterator[None]:
    """Every call inside makes one attempt, whatever its policy says.

    >>> from mainstay import RetryPolicy
    >>> with no_retry():
    ...     RetryPolicy(retry_on=ValueError).run(int, "x").attempts
    1
    """
    with _changing:
        meddling["no_retry"] = meddling.get("no_retry", 0) + 1
    try:
        yield
    finally:
        with _changing:
            meddling["no_retry"] -= 1
            if not meddling["no_retry"]:
                del meddling["no_retry"]
