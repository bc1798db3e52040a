"""Calls of a front door that have a name, with an engine or without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.drivers.call.guard import gate_of
from mainstay.drivers.verbs import named_calls
from mainstay.engine.registry import STANDARD

if TYPE_CHECKING:
    from mainstay.drivers.call.guard import Guard
    from mainstay.drivers.call.site import Site
    from mainstay.drivers.policy import RetryPolicy
    from mainstay.drivers.verbs import Verbs
    from mainstay.engine.engine import Engine
    from mainstay.ports import Sink


def calls_of(
    name: str, policy: RetryPolicy | None, engine: Engine | None, *, escalate: bool
) -> Verbs:
    """What makes the attempts: an engine's operation, or a policy's calls under the name.

    A policy that is given wins over the one that the engine has for the name.

    >>> calls_of("file", None, None, escalate=False).call(int, "7")
    7
    """
    if engine is None:
        return named_calls(policy or STANDARD, name)
    return engine.operation(name, policy=policy, escalate=escalate)


def site_in(
    engine: Engine, name: str, policy: RetryPolicy | None, listener: Sink, guard: Guard | None
) -> Site:
    """Where an engine makes the calls of an operation, with a listener and a guard more.

    >>> from mainstay import Engine
    >>> site_in(Engine(sinks=[]), "parse", None, print, None).operation
    'parse'
    """
    site = engine.operation(name, policy=policy)._verb_site  # noqa: SLF001 -- the doors are ours
    return site.beside(listener, gate_of(guard, () if site.gate is None else site.gate.guards))
