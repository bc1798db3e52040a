"""What strangers' exceptions carry is read without trusting them."""

import pytest

from mainstay.core.base.attributes import CACHE_SIZE, KEEPS_SIGNALS, attribute, signals_of
from mainstay.core.known.kind import Kind
from mainstay.core.retry.classify import Rules, classify
from mainstay.core.retry.give_up import newest_mark


class Hostile(Exception):
    """Raises on whatever it is asked."""

    def __getattribute__(self, name):
        if name.startswith("__") and name != "__notes__":
            return super().__getattribute__(name)
        raise RuntimeError(f"do not ask for {name}")


class HostileOSError(Hostile, OSError):
    """The same, where an errno is looked for."""


class Headers:
    """Looks like headers, and is none."""

    def get(self, name, default, more):
        return None


def test_an_attribute_is_read_where_there_is_one():
    """Its value, falsy ones included; None where there is none."""
    assert attribute(OSError(2, "no such file"), "errno") == 2
    assert attribute(OSError(), "errno") is None
    assert attribute("text", "missing") is None
    assert attribute(0, "real") == 0


class OfClass(Exception):
    status_code = 503


class OfProperty(Exception):
    @property
    def response(self):
        return None


class OfSlot(Exception):
    __slots__ = ("retry_after",)


class OfGetattr(Exception):
    def __getattr__(self, name):
        raise AttributeError(name)


@pytest.mark.parametrize("cls", [OfClass, OfProperty, OfSlot, OfGetattr, Hostile, HostileOSError])
def test_an_exception_whose_class_may_have_signals_is_read_by_getattr(cls):
    """Its dict would not have them."""
    assert signals_of(cls()) is None


def test_signals_of_other_exceptions_are_in_their_dict():
    failure = OSError(2, "gone")
    assert signals_of(failure) == {}
    failure.status_code = 503
    assert signals_of(failure) == {"status_code": 503}


def test_classes_that_are_remembered_are_bounded():
    for number in range(CACHE_SIZE + 5):
        signals_of(type(f"Made{number}", (Exception,), {})())
    assert 0 < len(KEEPS_SIGNALS) <= CACHE_SIZE


@pytest.mark.parametrize("cls", [Hostile, HostileOSError])
def test_a_property_that_raises_is_as_good_as_none(cls):
    """Httpx's properties raise before they are set; the failure is judged all the same."""
    assert attribute(cls(), "errno") is None
    for rules in (Rules(), Rules((cls,)), Rules(("SomeCode", cls))):
        found = classify(cls(), rules)
        assert found.retryable is (rules.retry_on is not None)
        assert found.hint is None
    assert classify(cls(), Rules()).kind is Kind.UNKNOWN
    assert newest_mark(cls()) is None


def test_headers_that_only_look_like_some_are_no_hint():
    """A `get` of another shape is not an error of the call."""
    error = ConnectionError()
    error.headers = Headers()
    found = classify(error, Rules())
    assert (found.kind, found.retryable, found.hint) == (Kind.TRANSIENT, True, None)
