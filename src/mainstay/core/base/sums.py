"""Adding up what must come out the same everywhere, to the bit.

`sum` of floats is another number in Python 3.12 than in 3.11: it carries along what rounding has
dropped. A figure that is read from a record is compared with one that was added up step by step,
maybe by another version; so both are added in order, and rounded at every step.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeVar

    Number = TypeVar("Number", int, float)


def in_order(numbers: Iterable[Number]) -> Number:
    """The sum, added from the left.

    >>> in_order([0.1] * 10)
    0.9999999999999999
    """
    return reduce(add, numbers, 0)
