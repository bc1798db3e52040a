"""What a recorded value may cost to be read: a store may hold what nobody's program has written.

A record has a bounded size, and most values are read in the time that it takes to read their bytes.
These are the others: a fraction is reduced, a Flag is taken apart bit by bit, members of a set or
keys of a dict with equal hashes are compared with each other (comparisons.py has what that takes if
they are sets themselves), and hashes of numbers can be chosen so that the search for a free slot
passes most of the slots that are taken.
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
_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
"""Types of values without parts."""
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


def spread(members: Sequence[UserValue], *, is_set: bool = False) -> Sequence[UserValue]:
    """The members of a set, or the keys of a dict, unless it would take too long to make one.

    >>> spread([1, 2, 3])
    [1, 2, 3]
    """
    count = len(members)
    if count * (count - 5) > _FREE:
        same = Counter(map(hash, members)).values()
        if sum(each * (each - 1) for each in same) > _FREE + 4 * count:
            raise _too_many_equal(count)
    if count > 1 and not _PLAIN.issuperset(map(type, members)):
        from mainstay.core.codec.comparisons import is_costly  # most sets hold plain values

        if is_costly(members):
            raise _too_many_equal(count)
    if count > _FEW and not all(type(each) is str for each in members):
        Slots(is_set=is_set).add_all(members)
    return members


def _too_many_equal(count: int) -> StoredValueError:
    return StoredValueError(
        f"a recorded set or dict of {count:,} has too many members with equal hashes"
    )


class Slots:
    """The slots of a set or dict as CPython fills them, to count how many it has to look at.

    A hash is looked for where its last bits lead, then further on by the other bits, five at a
    time, until a slot is free (Objects/dictobject.c and setobject.c). The hash of a text is another
    one in each process; that of a number is not.
    """

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._beside = _BESIDE if is_set else 0
        self._slots: list[int | None] = [None] * _SLOTS
        self._codes: list[int] = []

    def add_all(self, members: Sequence[UserValue]) -> None:
        """Adds the members to the slots.

        Raises:
            StoredValueError: too many slots are looked at.
        """
        left = _STEPS * len(members)
        for member in members:
            if self._is_full():
                self._grow()
            code = hash(member)
            self._codes.append(code)
            left -= self._add(code)
            if left < 0:
                raise StoredValueError(
                    f"a recorded set or dict of {len(members):,} has hashes that were chosen to "
                    "collide"
                )

    def _add(self, code: int) -> int:
        """How many slots are looked at for a hash."""
        slots, mask, steps = self._slots, len(self._slots) - 1, 0
        rest = code & _WORD
        at = rest & mask
        while True:
            last = at + self._beside
            for slot in range(at, last + 1 if last <= mask else at + 1):
                steps += 1
                if slots[slot] is None:
                    slots[slot] = code
                    return steps
            rest >>= 5
            at = (at * 5 + 1 + rest) & mask

    def _is_full(self) -> bool:
        size, used = len(self._slots), len(self._codes)
        return used * 5 >= (size - 1) * 3 if self._is_set else used >= size * 2 // 3

    def _grow(self) -> None:
        size = 2 * len(self._slots)
        codes = self._codes
        if self._is_set:
            codes = [code for code in self._slots if code is not None]
            while size <= len(codes) * (2 if len(codes) > _LARGE_SET else 4):
                size *= 2
        self._slots = [None] * size
        for code in codes:
            self._add(code)


_FEW = 5000
"""Members of a set or dict that are made in a tenth of a second, whatever their hashes are."""
_STEPS = 300
"""Slots that may be looked at for each member, in the mean.

Random numbers need two, and those that differ in their first bits only (`n << 40`, `n / 1024`) 29
in a dict and 95 in a set, however many there are. Chosen ones need a third of all members.
"""
_SLOTS = 8192
_BESIDE = 9
"""Slots behind each that a set looks at first."""
_LARGE_SET = 50_000
_WORD = (1 << 64) - 1
