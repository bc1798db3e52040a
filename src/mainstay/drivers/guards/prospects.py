"""What a circuit begins with that this process has yet to make: read ahead, so that no call reads.

The first look reads the tables of all circuits, up to ten thousand. Each look after it reads one
page, and goes on from there the next time: with up to five hundred circuits it sees all of them.
Kept are those that matter to a new node: not closed, with failures that count, under an order.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.spaces import Space
from mainstay.core.circuit import cluster as core
from mainstay.errors import StoredValueError
from mainstay.runtime.identity import has_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from typing import TypeAlias

    from mainstay.core.circuit.cluster import Prospect, Table
    from mainstay.ports import Store

    Found: TypeAlias = tuple[Prospect, float]
    """With the seconds that the clock of the store shows more than this one."""

CIRCUITS = Space.CIRCUITS.value
_PAGE = 500
_FIRST_PAGES = 20
_MOST = 10_000
"""Circuits that are kept; past that, those that are closed go first."""


class Prospects:
    """The circuits of a store as a new node finds them."""

    def __init__(self, store: Store, silence: float) -> None:
        self._store = store
        self._silence = silence
        self._known: dict[str, Found] = {}
        self._next: dict[str, Found] = {}
        """What the round that is under way has found so far."""
        self._after = ""
        self._pages = _FIRST_PAGES

    def of(self, name: str) -> Found | None:
        """What a circuit of that name begins with; None if the store has nothing that matters."""
        return self._next.get(name) or self._known.get(name)

    def look(self, node: str, met: Container[str] = ()) -> None:
        """Reads on, for this node; the circuits that it has met already are passed over."""
        now = self._store.read(CIRCUITS, "")[1]
        by = now - clock.current.monotonic()
        is_gone = cache(has_ended)  # the same processes sit at many tables
        for _ in range(self._pages):
            page = self._store.scan(CIRCUITS, self._after, _PAGE)
            for name, value in page:
                if name not in met and (table := _decoded(value)) is not None:
                    found = prospect_of(table, node, now, self._silence, is_gone)
                    if found.rank:
                        self._next[name] = found, by
            if len(page) < _PAGE:
                self._known, self._next, self._after = _most_important(self._next), {}, ""
                break
            self._after = page[-1][0]
        self._pages = 1


def _decoded(value: bytes) -> Table | None:
    try:
        return core.decode(value)
    except StoredValueError:
        return None  # it is reported when the circuit is made


def prospect_of(
    table: Table,
    node: str,
    now: float,
    silence: float,
    is_gone: Callable[[str], bool] = has_ended,
    quorum: int | None = None,
) -> Prospect:
    """What a new node begins with; processes of this machine that have ended count as gone."""
    live = {seat.process for seat in table.seats.values() if core.is_live(seat, now, silence)}
    ended = frozenset(each for each in live if each and is_gone(each))
    table = core.without_ended(table, ended) if ended else table
    return core.prospect(table, node, now, silence, quorum)


def _most_important(found: dict[str, Found]) -> dict[str, Found]:
    if len(found) <= _MOST:
        return found
    names = sorted(found, key=lambda name: -found[name][0].rank)[:_MOST]
    return {name: found[name] for name in names}
