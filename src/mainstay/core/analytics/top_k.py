"""The heaviest names of a stream, whatever the number of names, in a table of one size.

Space-Saving (Metwally, Agrawal and El Abbadi, ICDT 2005): if the table is full, a new name takes
the place of the lightest, and its weight. Any name that has more than a share of 1/size of the
stream is in the table at the end. Here what the lightest had counted is not lost but goes to
`other`, so that the rows and `other` together are exact; a row that came late may miss what went
there before, and `missed` is at most how much.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


class Row(Protocol):
    """What is counted under one name."""

    weight: int
    missed: int

    def merge(self, other: Self) -> None: ...


R = TypeVar("R", bound=Row)


class Ranking(Generic[R]):
    """Rows by name, at most `size` of them; `other` holds what those counted that had to go."""

    __slots__ = ("_heap", "_make", "gone", "other", "rows", "size")

    def __init__(self, size: int, make: Callable[[], R]) -> None:
        self.size = size
        self.rows: dict[str, R] = {}
        self.other = make()
        self.gone = 0
        """How often a row had to go; 0 means that every row is exact."""
        self._make = make
        self._heap: list[tuple[int, str]] = []

    def row(self, name: str) -> R:
        """The row of a name, one heavier than before."""
        row = self.rows.get(name)
        if row is None:
            row = self._admit(name)
        row.weight += 1
        return row

    def _admit(self, name: str) -> R:
        row = self._make()
        if len(self.rows) >= self.size:
            lightest = self._take_lightest()
            self.gone += 1
            self.other.merge(lightest)
            row.weight = row.missed = lightest.weight
        self.rows[name] = row
        heappush(self._heap, (row.weight, name))
        return row

    def _take_lightest(self) -> R:
        """The heap holds each row once, as light as it was when it was last looked at."""
        heap, rows = self._heap, self.rows
        while True:
            weight, name = heap[0]
            now = rows[name].weight
            if now == weight:
                heappop(heap)
                return rows.pop(name)
            heapreplace(heap, (now, name))
