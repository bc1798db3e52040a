"""What goes around a function, in one fixed order.

Outermost first: fallback, retry with its guards, hedge, bulkhead, function. So a fallback stands in
for what retries could not save, and every attempt is hedged and waits for room by itself.
"""

from __future__ import annotations

from mainstay.drivers.call.wrap import wrap
from mainstay.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.types import UserValue
    from mainstay.drivers.call.site import Site

    Layer = Callable[[UserValue], UserValue]


class Layers:
    """The layers of one operation besides its retry; None for those it has not."""

    __slots__ = ("bulkhead", "fallback", "hedge")

    def __init__(
        self,
        *,
        hedge: Layer | None = None,
        bulkhead: Layer | None = None,
        fallback: Layer | None = None,
    ) -> None:
        self.hedge = hedge
        self.bulkhead = bulkhead
        self.fallback = fallback
        for name in self.__slots__:
            layer = getattr(self, name)
            if layer is not None and not callable(layer):
                raise UsageError(
                    f"{name} = {layer!r} cannot go around a function",
                    hint=f"give a mainstay.{name.capitalize()}",
                )

    def check(self, idempotency: str) -> None:
        """Refuses what cannot go together."""
        if self.hedge is not None and idempotency == "unsafe":
            raise UsageError(
                "an unsafe operation cannot be hedged: it would run twice",
                hint='declare it "idempotent" or "keyed", or leave the hedge out',
            )

    def inside(self, function: UserValue) -> UserValue:
        """The function as each attempt calls it."""
        for layer in (self.bulkhead, self.hedge):
            function = function if layer is None else layer(function)
        return function

    def around(self, function: UserValue, site: Site) -> UserValue:
        """The function with every layer around it."""
        wrapped = wrap(self.inside(function), site)
        return wrapped if self.fallback is None else self.fallback(wrapped)
