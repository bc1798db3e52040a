"""One effect under a policy: failures are raised for the engine, the last result is returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.drivers.effects.single_shot import failed
from mainstay.runtime.context import context

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.types import Fields, UserValue
    from mainstay.core.effects.result import EffectResult
    from mainstay.drivers.call.result import RetryResult
    from mainstay.drivers.effects.single_shot import Effect
    from mainstay.drivers.verbs import Verbs


class EffectCall:
    """A call of an effect by an orchestrator.

    Args:
        operation: makes the attempts.
        effect: what is called.
        kwargs: its arguments by name; a `correlation_id` among them is that of the events.
        error_of: the exception of a result that names an error and has no exception, or None.
    """

    def __init__(
        self,
        operation: Verbs,
        effect: Effect,
        kwargs: Fields,
        error_of: Callable[[EffectResult], Exception | None],
    ) -> None:
        self._operation, self._kwargs, self._error_of = operation, kwargs, error_of
        known = kwargs.get("correlation_id")
        self._context = context(
            category=effect.kind.value, correlation_id=None if known is None else str(known)
        )
        self._began = clock.current.monotonic()
        self._last: EffectResult | None = None

    def run(self, effect: Callable[..., UserValue], args: tuple[UserValue, ...]) -> EffectResult:
        def attempt() -> None:
            self._keep(effect(*args, **self._kwargs))

        with self._context:
            return self._ended(self._operation.run(attempt))

    async def run_async(
        self, effect: Callable[..., UserValue], args: tuple[UserValue, ...]
    ) -> EffectResult:
        async def attempt() -> None:
            self._keep(await effect(*args, **self._kwargs))

        with self._context:
            return self._ended(await self._operation.arun(attempt))

    def _keep(self, result: EffectResult) -> None:
        """Raises what the effect failed with, for the engine to decide on."""
        self._last = result
        if result.success:
            return
        error = self._error_of(result) if result.exception is None else None
        if error is not None:
            raise error
        result.unwrap()

    def _ended(self, call: RetryResult[None]) -> EffectResult:
        error, last = call.last_exception, self._last
        if error is None or (last is not None and last.exception in (error, None)):
            assert last is not None, "a call that has ended has a result, or failed"
            return last
        elapsed = max(0.0, clock.current.monotonic() - self._began) * 1000.0
        assert isinstance(error, Exception), "others are raised"
        return failed(error, elapsed)
