"""Formulas of earlier versions of the rules: what replay needs to decide as was decided then.

A call and a circuit that are recorded have the version of their rules (core/base/proof.py).
"""

from __future__ import annotations

from mainstay.core.retry.backoff import Backoff, Jitter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def jitter_of(plain: Mapping[str, Any], rule: int) -> Jitter:
    """The jitter of a record, as that version of the rules spreads a delay.

    >>> now, then = (jitter_of({"kind": "decorrelated", "amount": 0.0}, rule) for rule in (2, 1))
    >>> curve = Backoff.exponential(1.0, max_delay=5.0)
    >>> [each.spread(5.0, u=0.5, previous=5.0, backoff=curve) for each in (now, then)]
    [3.0, 5.0]
    """
    if rule == 1 and plain["kind"] == "decorrelated":
        return _CappedAfterwards.from_dict(plain)
    return Jitter.from_dict(plain)


class _CappedAfterwards(Jitter):
    """Decorrelated jitter of version 1: all that is drawn above the cap is the cap."""

    __slots__ = ()

    def spread(self, _delay: float, u: float, previous: float, backoff: Backoff) -> float:
        initial = backoff.base(1)
        return min(backoff.max_delay, initial + u * (3.0 * (previous or initial) - initial))
