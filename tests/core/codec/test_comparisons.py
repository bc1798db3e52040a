"""What it takes to compare the members of a set that consist of parts."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

from mainstay.core.codec.comparisons import is_costly

SAME = [frozenset({number, number + 2**61 - 1}) for number in range(200)]
"""Each holds two members with equal hashes, and all have the same hash."""


class Named(NamedTuple):
    part: Any

    def __hash__(self):
        return 1


@dataclass(frozen=True)
class Held:
    part: Any

    def __hash__(self):
        return 1


class Written(msgspec.Struct, frozen=True):
    part: Any

    def __hash__(self):
        return 1


class Model(pydantic.BaseModel):
    part: Any

    def __hash__(self):
        return 1


SHAPES = {
    "a named tuple": Named,
    "a dataclass": Held,
    "a struct": Written,
    "a pydantic model": lambda part: Model(part=part),
    "a dict in a dataclass": lambda part: Held({"part": part}),
    "a list in a dataclass": lambda part: Held([part]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_members_of_one_hash_are_counted_with_their_parts(shape):
    """A few are made into a set in no time; with many, each is compared with each."""
    members = [SHAPES[shape](part) for part in SAME]
    assert not is_costly(members[:20])
    assert is_costly(members * 10)


def test_members_whose_hashes_differ_cost_nothing():
    """However many there are."""
    assert not is_costly([(number,) for number in range(100_000)])


def test_the_more_a_dict_holds_the_more_comparisons_are_allowed():
    """The bound is in proportion to the parts, keys and values of a dict included."""
    members = [Held(dict.fromkeys(range(50), 0)) for _ in range(150)]
    assert not is_costly(members)
    assert is_costly([Held(0) for _ in range(450)])
