"""One attempt at a function of the user's: what it returns or raises becomes an EffectResult.

The frame that makes the attempt is entered as a scope that refuses retries inside, also in the
tasks that it starts. A retry in a thread of a plain pool, which copies no context, is seen by the
mark that it leaves on the failure.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.functions import is_async
from mainstay.core.effects.result import EffectResult, result_of
from mainstay.core.effects.taxonomy import infra_name
from mainstay.core.events.describe import describe
from mainstay.core.retry.give_up import newest_mark
from mainstay.core.retry.plan import Plan
from mainstay.core.retry.policy import Policy
from mainstay.drivers.call.callables import check_callable, name_of
from mainstay.errors import NestedRetryError, UsageError
from mainstay.runtime.enclosing import FRAMES, attempting

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.core.base.types import UserValue
    from mainstay.core.effects.transport import EnumInfraTransportType

_ONCE = Policy(name="effect", max_attempts=1, nested="refuse")
ATTRIBUTE = "mainstay_effect"
"""Where a decorated function, also as a method, has its Effect."""


class _Scope(Plan):
    """The plan of what runs once, and lets nothing inside retry."""

    __slots__ = ()

    def would_retry(self, failure: BaseException) -> bool:  # noqa: ARG002 -- whichever it is
        """True: the orchestrator around it may, so what is inside must not."""
        return True


class Effect:
    """What an effect is called and talks to, and how safe repeating it is."""

    __slots__ = ("idempotency", "is_async", "kind", "name", "plan")

    def __init__(
        self, function: Any, kind: EnumInfraTransportType, name: str | None, idempotency: str
    ) -> None:
        check_callable(function)
        self.kind = kind
        self.name = name or name_of(function)
        self.is_async = is_async(function)
        self.idempotency = idempotency
        self.plan = _Scope(_ONCE, self.name, 0, idempotency)


def single_shot(function: Any, effect: Effect) -> Callable[..., Any]:
    """The function as an effect: it returns an EffectResult, and is called once."""
    if effect.is_async:

        @wraps(function)
        async def once(*args: UserValue, **kwargs: UserValue) -> EffectResult:
            began, since = clock.current.monotonic(), FRAMES["ms_active"].moment
            with attempting(effect.plan):
                try:
                    value = await function(*args, **kwargs)
                except Exception as error:
                    return failed(error, _elapsed(began), effect, since)
            return result_of(value, _elapsed(began))

    else:

        @wraps(function)
        def once(*args: UserValue, **kwargs: UserValue) -> EffectResult:
            began, since = clock.current.monotonic(), FRAMES["ms_active"].moment
            with attempting(effect.plan):
                try:
                    value = function(*args, **kwargs)
                except Exception as error:
                    return failed(error, _elapsed(began), effect, since)
            return result_of(value, _elapsed(began))

    setattr(once, ATTRIBUTE, effect)
    return once


def failed(
    error: Exception, duration_ms: float, effect: Effect | None = None, since: int = 0
) -> EffectResult:
    """The result of a failure; a mistake of the program, such as a retry inside, is raised."""
    if isinstance(error, UsageError):
        raise error
    mark = None if effect is None else newest_mark(error)
    if effect is not None and mark is not None and mark.moment >= since:
        raise NestedRetryError(mark.by, effect.name, mark.made, 1) from error
    name, text = describe(error)
    return EffectResult(
        success=False,
        error=text or name,
        duration_ms=duration_ms,
        error_type=infra_name(error) or type(error).__name__,
        exception=error,
    )


def _elapsed(began: float) -> float:
    return max(0.0, clock.current.monotonic() - began) * 1000.0
