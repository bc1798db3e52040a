"""An event loop of its own for a relay that a sync program runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mainstay.errors import UsageError
from mainstay.runtime.context import is_in_event_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, TypeVar

    Answer = TypeVar("Answer")


def run_in_loop(work: Callable[[], Coroutine[Any, Any, Answer]], name: str) -> Answer:
    """Runs it to its end; refused in a running event loop, where it can be awaited instead.

    >>> import asyncio
    >>> run_in_loop(lambda: asyncio.sleep(0.0, "done"), "drain")
    'done'
    """
    if is_in_event_loop():
        raise UsageError(
            f"relay.{name}() in a running event loop", hint=f"await relay.a{name}(), or start()"
        )
    return asyncio.run(work())
