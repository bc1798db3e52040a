"""Which of the rows that are ready a claim takes, and which are behind another entry.

A store selects the first ready rows by position and locks them. What is decided here: a row is
blocked if an entry of its aggregate that is no part of the selection comes before it. An entry
whose claim has crashed is claimed alone, by a worker that has nothing else under way: if its
message ends the process again, no other entry is charged for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Candidate(Struct, frozen=True):
    """A row that is ready, as far as a claim looks at it."""

    id: str
    aggregate: str | None
    position: int
    crashes: int = 0


class ClaimPlan(Struct, frozen=True):
    """What a claim does with its candidates; what is in neither list stays as it is."""

    claimed: tuple[Candidate, ...]
    blocked: tuple[Candidate, ...]
    """Behind an entry that holds their aggregate: they are parked if that entry can be locked."""
    wants_alone: bool = False
    """The next entry must be claimed alone, and the worker has others under way."""


def plan_claim(
    candidates: Sequence[Candidate], first: Mapping[str, int], *, is_idle: bool = True
) -> ClaimPlan:
    """Plans a claim.

    Args:
        candidates: the rows, by position.
        first: for each aggregate the least position of an entry that holds it and is no candidate.
        is_idle: whether the worker has no other entry under way.

    >>> rows = [Candidate("a", "X", 1), Candidate("b", "Y", 2), Candidate("c", None, 3)]
    >>> plan = plan_claim(rows, {"Y": 1})
    >>> [row.id for row in plan.claimed], [row.id for row in plan.blocked]
    (['a', 'c'], ['b'])
    """
    claimed: list[Candidate] = []
    blocked: list[Candidate] = []
    for row in candidates:
        holder = first.get(row.aggregate) if row.aggregate is not None else None
        if holder is not None and holder < row.position:
            blocked.append(row)
        elif not row.crashes:
            claimed.append(row)
        elif claimed or not is_idle:
            return ClaimPlan(tuple(claimed), tuple(blocked), wants_alone=True)
        else:
            return ClaimPlan((row,), tuple(blocked))
    return ClaimPlan(tuple(claimed), tuple(blocked))
