"""Checks on values: each names the field, the value and what is allowed."""

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.validate import MAX_ATTEMPTS, MAX_SECONDS, Checker, positive_seconds
from mainstay.errors import PolicyError


def short(value):
    """A name for a test case, where the value has 400 digits."""
    return repr(value)[:9]


def outcome(method, value, *args, **kwargs):
    """What a check returns, and what it notes as (field, value, allowed)."""
    check = Checker("subject")
    result = getattr(check, method)("field", value, *args, **kwargs)
    return result, [(p.field, p.value, p.allowed) for p in check.problems]


@pytest.mark.req("FR-041-02", "CL-01")
@given(value=st.integers(1, MAX_ATTEMPTS))
def test_attempts_are_whole_numbers_from_one_to_a_million(value):
    """Every count from 1 to a million is as good as it is, both ends included."""
    for count in (1, value, MAX_ATTEMPTS):
        assert outcome("attempts", count) == (count, [])


@pytest.mark.req("FR-041-15", "CL-01")
@pytest.mark.parametrize(
    "value",
    [0, -1, MAX_ATTEMPTS + 1, 10**400, True, False, 2.0, math.nan, "3", None, [3]],
    ids=short,
)
def test_other_counts_are_refused(value):
    """Zero, negative, huge, fractional, boolean and textual counts are refused."""
    allowed = "an integer from 1 to 1000000"
    assert outcome("attempts", value) == (1, [("field", value, allowed)])


@given(value=st.one_of(st.integers(2, 5), st.floats(2.0, 5.0)))
def test_a_number_in_its_range_becomes_a_float(value):
    """Whole numbers and fractions in the range pass, both ends included."""
    result, problems = outcome("number", value, 2.0, 5.0)
    assert (result, problems) == (float(value), [])
    assert type(result) is float


@pytest.mark.req("FR-041-15")
@pytest.mark.parametrize(
    "value",
    [1.999, 5.001, -3, math.nan, math.inf, -math.inf, True, "3", None, 3j, [], 10**400, -(10**400)],
    ids=short,
)
def test_a_number_out_of_its_range_is_refused(value):
    """What is no finite number in the range is refused, with the range and the unit."""
    result, [(field, shown, allowed)] = outcome("number", value, 2.0, 5.0, " of apples")
    assert (result, field) == (2.0, "field")
    assert allowed == "a finite number of apples from 2 to 5"
    assert shown is value


def test_seconds_reach_from_nothing_to_a_year():
    """Zero and 366 days pass; a second more does not."""
    assert outcome("seconds", 0) == (0.0, [])
    assert outcome("seconds", MAX_SECONDS) == (366 * 86_400.0, [])
    allowed = "a finite number of seconds from 0 to 31622400"
    assert outcome("seconds", MAX_SECONDS + 1)[1] == [("field", MAX_SECONDS + 1, allowed)]
    assert outcome("seconds", -0.5) == (0.0, [("field", -0.5, allowed)])


def test_a_limit_of_zero_seconds_is_refused():
    """A limit that nothing can keep is a mistake; None is no limit."""
    for zero in (0, 0.0, -0.0):
        result, [(field, value, allowed)] = outcome("seconds", zero, zero=False)
        assert (result, field) == (0.0, "field")
        assert value is zero
        assert allowed.startswith("more than 0 seconds")
    assert outcome("optional_seconds", 0)[1] != []
    assert outcome("optional_seconds", None) == (None, [])
    assert outcome("optional_seconds", 2) == (2.0, [])
    assert outcome("seconds", 0.001, zero=False) == (0.001, [])


@pytest.mark.parametrize("value", [False, -1, "0", math.nan], ids=short)
def test_a_limit_that_is_no_number_is_refused_as_such(value):
    """False is not taken for a zero."""
    allowed = "a finite number of seconds from 0 to 31622400"
    assert outcome("seconds", value, zero=False)[1][0][2] == allowed


@pytest.mark.req("FR-041-16")
@pytest.mark.parametrize("value", ["", " ", "\t\n", " api", "api ", None, 7, b"api"], ids=repr)
def test_a_name_is_a_text_without_spaces_around_it(value):
    """Empty names, names that only look empty and padded names are refused."""
    allowed = "a text that is not empty and has no spaces around it"
    assert outcome("name", value) == ("?", [("field", value, allowed)])


def test_a_good_name_passes():
    """Spaces inside and other scripts are fine."""
    for value in ("api", "my api", "größe", "a"):
        assert outcome("name", value) == (value, [])


def test_a_choice_is_one_of_those_there_are():
    """The first of the choices stands in for a wrong one, so that checking goes on."""
    assert outcome("choice", "b", iter("ab")) == ("b", [])
    assert outcome("choice", "c", iter("ab")) == ("a", [("field", "c", "one of a, b")])
    assert outcome("choice", ["a"], ("a", "b")) == ("a", [("field", ["a"], "one of a, b")])
    assert outcome("choice", None, ("a",)) == ("a", [("field", None, "one of a")])


@pytest.mark.parametrize("value", [3, "len", int, Checker, {}], ids=repr)
def test_what_cannot_be_called_as_a_function_is_refused(value):
    """A class is callable, and still not meant."""
    assert outcome("function", value) == (None, [("field", value, "a function, or None")])


def test_functions_and_none_pass():
    """Anything that can be called, or nothing."""
    for value in (None, len, lambda: 0, "x".upper):
        assert outcome("function", value) == (None, [])


@pytest.mark.req("FR-041-15")
def test_close_raises_everything_at_once():
    """One error holds every problem in order, and the subject."""
    check = Checker("Thing 'a'")
    check.attempts("first", 0)
    check.name("second", "")
    with pytest.raises(PolicyError) as caught:
        check.close()
    assert [p.field for p in caught.value.problems] == ["first", "second"]
    assert caught.value.subject == "Thing 'a'"
    assert str(caught.value).startswith("Thing 'a' is not valid:\n  - first = 0: must be an int")


def test_close_is_silent_where_nothing_is_wrong():
    """A checker without problems lets the value be built."""
    check = Checker("subject")
    check.attempts("field", 3)
    assert check.close() is None


def test_an_async_function_is_refused_where_nothing_awaits_it():
    """It could be called, but its answer would be a coroutine."""

    async def late():
        """Async."""

    _, noted = outcome("plain_function", late)
    assert [allowed for _, _, allowed in noted] == ["a plain function: nothing awaits it"]
    assert outcome("plain_function", len)[1] == []
    assert len(outcome("plain_function", 3)[1]) == 1


def test_the_problems_of_a_part_are_included_under_other_names():
    """Beside those of the subject itself, in order."""
    part, check = Checker("part"), Checker("subject")
    part.note("retry_on", 3, "rules")
    check.note("jitter", -1, "at least 0")
    with pytest.raises(PolicyError) as caught:
        part.close()
    check.include(caught.value, {"retry_on": "retryable_exceptions"})
    problems = [(problem.field, problem.value, problem.allowed) for problem in check.problems]
    assert problems == [("jitter", -1, "at least 0"), ("retryable_exceptions", 3, "rules")]


def test_an_object_of_another_class_is_noted():
    """With the class that is wanted; None is an argument that was not given."""
    check = Checker("subject")
    for value in (None, 3):
        check.instance("count", value, int)
    check.instance("count", "three", int, "7")
    check.instance("name", 3, str)
    allowed = [(problem.field, problem.allowed) for problem in check.problems]
    assert allowed == [("count", "an int, such as 7"), ("name", "a str")]


@pytest.mark.parametrize("value", [5, 5.0, timedelta(seconds=5)])
def test_a_length_of_time_that_is_more_than_none(value):
    """In seconds, or as a timedelta."""
    assert positive_seconds("Cache", "ttl", value) == 5.0


@pytest.mark.parametrize("value", [0, -1.0, timedelta(0), "5", math.nan, None])
def test_no_length_of_time_is_refused_with_its_name(value):
    """The error has what it was given to, the field and the value."""
    with pytest.raises(PolicyError, match="Cache") as caught:
        positive_seconds("Cache", "ttl", value)
    assert "ttl" in str(caught.value)
