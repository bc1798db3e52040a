"""Calls of work that has a name, with an engine or without one: tools and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstay.drivers.policy import RetryPolicy
    from mainstay.drivers.verbs import Verbs
    from mainstay.engine.engine import Engine


def calls_of(name: str, policy: RetryPolicy, engine: Engine | None, *, escalate: bool) -> Verbs:
    """What makes the attempts at work that has a name: an engine's operation, or a policy."""
    return policy if engine is None else engine.operation(name, escalate=escalate)
