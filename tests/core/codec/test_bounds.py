"""A record that somebody else has written: refused if it would take minutes to read."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest

from mainstay.core.codec.bounds import MOST_BITS, MOST_FLAGS, spread
from mainstay.core.codec.outcome import Succeeded, decode_outcome, encode_outcome
from mainstay.errors import StoredValueError, UsageError

COLLIDING = [n * sys.hash_info.modulus for n in range(1, 3000)]
"""Integers whose hash is 0."""


def chosen(bits, points, beside=0, count=400):
    """Numbers that fill a run of slots, and others whose search leads into that run."""
    mask = (1 << bits) - 1
    taken, run, at = {}, [], 12345 & mask
    for _ in range(points):
        run.append(at)
        taken |= dict.fromkeys(range(at, min(at + beside, mask) + 1))
        at = (5 * at + 1) & mask
    late = []
    for number in range(1 << 20):
        code = run[number % (points // 2)] | (1 + number // (points // 2) << bits)
        if is_led(code, mask, beside, taken):
            late.append(code)
        if len(late) == count:
            break
    return [*taken, *late]


def is_led(code, mask, beside, taken):
    """Whether each slot that a dict or set looks at is taken, until only the last bits count."""
    at, rest = code & mask, code
    while rest:
        rest >>= 5
        at = (5 * at + 1 + rest) & mask
        if not all(slot in taken for slot in (at, min(at + beside, mask))):
            return False
    return True


class Bits(enum.IntFlag):
    ONE = 1


@dataclass(frozen=True)
class Held:
    """What a record may hold a set in."""

    held: object


def hexed(number):
    return {"$int": f"{number:x}"}


def sets_of(members, top=0):
    """As many sets, each of all members but the last, and one that the others have not."""
    ends = [hexed((5000 + 1000 * top + n) * sys.hash_info.modulus) for n in range(len(members))]
    return [{"$frozenset": [*members[:-1], end]} for end in ends]


def decoded(value):
    return decode_outcome(msgspec.json.encode({"v": 1, "value": value}))


COSTLY = {
    "a fraction of a text": {"$fraction": ["1e99999999"]},
    "a fraction of two texts": {"$fraction": ["1e99999999", "3"]},
    "a fraction of a Decimal": {"$fraction": [{"$decimal": "1e99999999"}]},
    "a fraction of a float": {"$fraction": [{"$float": "inf"}, 1]},
    "a fraction to be reduced": {"$fraction": [hexed(1 << MOST_BITS), 3]},
    "a fraction with a long denominator": {"$fraction": [3, hexed(1 << MOST_BITS)]},
    "a set": {"$set": list(map(hexed, COLLIDING))},
    "a frozenset": {"$frozenset": list(map(hexed, COLLIDING))},
    "a dict": {"$dict": [[hexed(each), 1] for each in COLLIDING]},
    "a set of tuples": {
        "$set": [{"$tuple": [-1 - (n >> bit & 1) for bit in range(11)]} for n in range(2048)]
    },
    "a set of sets": {"$set": sets_of([hexed(each) for each in COLLIDING[:140]])},
    "a dict of sets": {
        "$dict": [[each, 1] for each in sets_of([hexed(each) for each in COLLIDING[:140]])]
    },
    "a set of sets in tuples": {
        "$set": [{"$tuple": [each]} for each in sets_of([hexed(n) for n in COLLIDING[:140]])]
    },
    "sets of sets of sets": {
        "$set": sets_of(
            [
                {"$frozenset": each}
                for each in [sets_of([hexed(n) for n in COLLIDING[:12]], top) for top in range(12)]
            ]
        )
    },
    "a set of dataclasses": {
        "$set": [
            {"$object": [__name__, "Held", {"held": each}]}
            for each in sets_of([hexed(n) for n in COLLIDING[:140]])
        ]
    },
    "a dict whose hashes differ": 0,
    "a set whose hashes differ": 0,
    "a Flag": {"$enum": [__name__, "Bits", hexed(1 << MOST_FLAGS)]},
    "a number of five thousand digits": 0,
    "nesting": 0,
}


@pytest.mark.parametrize("what", COSTLY)
def test_a_record_that_would_take_minutes_is_refused(what):
    """As every record that cannot be read: StoredValueError, and the record stays as it is."""
    value = COSTLY[what]
    if what == "a dict whose hashes differ":
        value = {"$dict": [[each, 1] for each in chosen(13, 4400, count=1000)]}
    if what == "a set whose hashes differ":
        value = {"$set": chosen(15, 2300, beside=9, count=2100)}
    data = msgspec.json.encode({"v": 1, "value": value})
    if what == "nesting":
        data = b'{"v":1,"value":%b' % (b'{"$tuple":[' * 50_000)
    if what == "a number of five thousand digits":
        data = b'{"v":1,"value":%b}' % (b"9" * 5000)
    with pytest.raises(StoredValueError):
        decode_outcome(data)


@pytest.mark.parametrize(
    "value",
    [
        Fraction(10**4000, 3),
        {n: n for n in range(-5000, 5000)},
        {(x, y, z) for x in range(-9, 9) for y in range(-9, 9) for z in range(-9, 9)},
        {*COLLIDING[:100], *range(1000)},
        {frozenset({-1, *range(2000)}), frozenset({-2, *range(2000)})},
        {frozenset({(x, y), (y, x)}) for x in range(-9, 9) for y in range(-9, 9)},
        {(n, frozenset({-1 - n % 2})) for n in range(3000)},
        {Held((x, y)) for x in range(-9, 9) for y in range(-9, 9)},
        {(-1 - (n >> 1 & 1), -1 - (n & 1), *range(200)) for n in range(4)},
        frozenset(map(str, range(5000))),
        {n << 40: n for n in range(6000)},
        {n << 40 for n in range(6000)},
        {n * 0.1 for n in range(80_000)},
        {f"{n}": n for n in range(6000)} | {1: 1},
        {1: "a", (2, 3): "b"},
        Bits(1 << 100),
        Decimal("1e999999"),
        1 << 1_000_000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_programs_record_is_read_as_before(value):
    """Also large sets with the collisions that negative numbers have, and long numbers."""
    assert decode_outcome(encode_outcome(Succeeded(value))) == Succeeded(value)


def test_a_fraction_that_could_not_be_read_is_not_recorded():
    """It is refused when it is written, with its path."""
    with pytest.raises(UsageError, match="Fraction with more than"):
        encode_outcome(Succeeded([Fraction(1, 3 << MOST_BITS)]))


def test_many_small_groups_of_equal_hashes_are_bounded_together():
    """Not only the largest one."""
    modulus = sys.hash_info.modulus
    groups = [each + n * modulus for each in range(300) for n in range(20)]
    with pytest.raises(StoredValueError, match="equal hashes"):
        spread(groups)
    assert spread(groups[:200]) == groups[:200]
