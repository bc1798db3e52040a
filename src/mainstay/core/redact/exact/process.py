"""What this process knows to be secret: all redactors with the built-in rules hide it.

What makes the parts of a process gives sources here: of the environment, of a configuration, of
the URL of a store. They are asked when the next text is shown, since few processes show one.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from mainstay.core.redact.exact.known import Known

    Source = Callable[[], Iterable[str]]

_MOST = 1000
"""Sources that are kept; the oldest one goes first."""


class Knowledge:
    """Sources of secrets, and what they gave.

    >>> knowledge = Knowledge()
    >>> knowledge.take("store", lambda: ["x9Qz-1aP"])
    >>> knowledge.known()
    <1 secret>
    """

    __slots__ = ("_known", "_sources", "version")

    def __init__(self) -> None:
        self._sources: dict[Hashable, Source] = {}
        self._known: tuple[int, Known | None] = (0, None)
        self.version = 0
        """How often it has changed."""

    def take(self, key: Hashable, source: Source) -> None:
        """Asks this source too from now on; one with the same key is known already."""
        if key in self._sources:
            return
        if len(self._sources) >= _MOST:
            self._sources.pop(next(iter(self._sources)), None)
        self._sources[key] = source
        self.version += 1

    def known(self) -> Known | None:
        """All that the sources give, or nothing if they have none."""
        version, known = self._known
        while version != self.version:
            from mainstay.core.redact.exact.known import Known  # when the first text is shown

            version = self.version
            values = [value for source in list(self._sources.values()) for value in source()]
            known = Known(values) or None
            self._known = version, known
        return known


PROCESS = Knowledge()
"""Of this process."""
