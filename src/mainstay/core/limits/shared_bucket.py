"""The tokens that the processes of a token budget share: one bucket in the store.

Tokens are neither observed nor voted on, as circuits are, but there or spent. So the bucket itself
is stored, and each node adds what it took and gave since its last report.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainstay.core.base.change import Change, ready

_KEPT = 86_400.0
"""Seconds for which a bucket outlives the last report."""


class TokenTotals(Struct, frozen=True):
    """What a node took from a bucket and gave back to it since it started, in thousandths."""

    taken: int = 0
    given: int = 0
    seen: float = 0.0


class SharedBucket(Struct, frozen=True):
    """The tokens that nodes share, and the totals of each node that they include already."""

    tokens: int
    flows: dict[str, TokenTotals] = {}


def report_totals(
    value: bytes | None,
    node: str,
    acknowledged: TokenTotals,
    totals: TokenTotals,
    capacity: int,
    now: float,
    silence: float,
) -> tuple[Change, SharedBucket]:
    """Counts what a node took and gave since its last report; the answer is the bucket.

    A bucket holds the totals of each node, so a report that arrives twice counts once. If a node
    was silent for so long that its totals were dropped, those that it was last answered count.

    >>> began = TokenTotals()
    >>> _, bucket = report_totals(None, "a", began, TokenTotals(taken=3_000), 10_000, 0.0, 10.0)
    >>> bucket.tokens
    7000
    """
    bucket = SharedBucket(capacity)
    if value is not None:
        bucket = msgspec.json.decode(value, type=SharedBucket)
    counted = bucket.flows.get(node, acknowledged)
    tokens = bucket.tokens - (totals.taken - counted.taken) + (totals.given - counted.given)
    live = {name: each for name, each in bucket.flows.items() if now - each.seen < silence}
    live[node] = replace(totals, seen=now)
    bucket = SharedBucket(min(capacity, max(0, tokens)), live)
    return Change(msgspec.json.encode(bucket), now + _KEPT), bucket


ready(SharedBucket)
