"""What a recorded value may cost to be read: a store may hold what nobody's program has written.

A record has a bounded size, and most values are read in the time that it takes to read their bytes.
These are the others: a fraction is reduced, a Flag is taken apart bit by bit, and members of a set
or keys of a dict with equal hashes are compared with each other.
"""

from __future__ import annotations

from collections import Counter

from mainstay.errors import StoredValueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.core.base.types import UserValue

MOST_BITS = 250_000
"""Of a numerator or denominator; reducing such a fraction takes tenths of a second."""
MOST_FLAGS = 10_000
"""Bits of a Flag."""
_FREE = 20_000
"""Comparisons of members with equal hashes that are always allowed; and four for each member."""


def is_long(number: int) -> bool:
    """Whether a part of a fraction is too long."""
    return number.bit_length() > MOST_BITS


def fraction(numerator: UserValue, denominator: UserValue) -> UserValue:
    """The fraction of two integers: of a text, such as 1e99999999, it would be made for ever."""
    from fractions import Fraction

    if type(numerator) is not int or type(denominator) is not int:
        raise StoredValueError("a recorded fraction is not one of two integers")
    if is_long(numerator) or is_long(denominator):
        raise StoredValueError(f"a recorded fraction has more than {MOST_BITS:,} bits")
    return Fraction(numerator, denominator)


def flags(number: int) -> int:
    """The number of a Flag, if it has not too many bits."""
    if number.bit_length() > MOST_FLAGS:
        raise StoredValueError(f"a recorded Flag has more than {MOST_FLAGS:,} bits")
    return number


def spread(members: Sequence[UserValue]) -> Sequence[UserValue]:
    """The members of a set, or the keys of a dict, unless too many have equal hashes.

    >>> spread([1, 2, 3])
    [1, 2, 3]
    """
    count = len(members)
    if count * (count - 5) > _FREE:
        same = Counter(map(hash, members)).values()
        if sum(each * (each - 1) for each in same) > _FREE + 4 * count:
            raise StoredValueError(
                f"a recorded set or dict of {count:,} has too many members with equal hashes"
            )
    return members
