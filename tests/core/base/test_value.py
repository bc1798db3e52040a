"""Frozen values: compared, hashed, shown and pickled by their fields."""

import copy
import pickle

import pytest

from mainstay.core.base.value import Value
from mainstay.core.retry.backoff import Backoff, Jitter


class Point(Value):
    __slots__ = ("_cache", "x", "y")

    def __init__(self, x, y=0, cache=None):
        self._fill(x=x, y=y, _cache=cache)


class Point3(Point):
    __slots__ = ("z",)

    def __init__(self, x, y=0, z=0):
        self._fill(x=x, y=y, z=z)


class Size(Value):
    __slots__ = ("width",)

    def __init__(self, width):
        self._fill(width=width)


@pytest.mark.req("FR-041-13")
def test_a_value_cannot_be_changed():
    """Setting, adding and deleting are refused, and the value stays what it was."""
    point = Point(1, 2)
    with pytest.raises(AttributeError, match="Point is frozen: x cannot be set; make a new one"):
        point.x = 5
    with pytest.raises(AttributeError, match="Point is frozen: other cannot be set"):
        point.other = 5
    with pytest.raises(AttributeError, match="Point is frozen: y cannot be deleted"):
        del point.y
    assert (point.x, point.y) == (1, 2)


def test_values_are_equal_by_their_fields():
    """Equal fields make equal values with equal hashes; a cache plays no part."""
    assert Point(1, 2, cache="a") == Point(1, 2, cache="b")
    assert hash(Point(1, 2, cache="a")) == hash(Point(1, 2, cache="b"))
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Point(2, 2)
    assert hash(Point(1, 2)) != hash(Point(1, 3))


def test_a_value_equals_nothing_that_is_no_such_value():
    """Tuples, other values and values with more fields are different."""
    assert Point(1, 2) != (1, 2)
    assert Point(1) != Size(1)
    assert Point(1, 2) != Point3(1, 2)
    assert Point(1) != None  # noqa: E711
    assert Point(1).__eq__((1, 0)) is NotImplemented


def test_a_value_shows_its_fields():
    """The repr is what a person would type, base fields first, caches left out."""
    assert repr(Point(1, "a", cache=3)) == "Point(x=1, y='a')"
    assert repr(Point3(1, 2, 3)) == "Point3(x=1, y=2, z=3)"


def test_a_copy_of_a_value_is_the_value():
    """Nothing can change it, so there is no need of another."""
    point = Point([1])
    assert copy.copy(point) is point
    assert copy.deepcopy(point) is point


@pytest.mark.req("FR-041-17")
def test_a_value_survives_pickle():
    """It is built anew from its fields, checks and caches included."""
    for value in (Backoff.constant(2), Jitter.full()):
        assert pickle.loads(pickle.dumps(value)) == value
    rebuild, (cls, fields) = Point(1, 2, cache=3).__reduce__()
    assert fields == {"x": 1, "y": 2}
    assert rebuild(cls, fields) == Point(1, 2)
