"""The order of stages, and which change of a pipeline a run can go on with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.pipeline.shape import changed, ordered, parents_of, shape_of
from mainstay.errors import PolicyError


@given(st.permutations(["a", "b", "c", "d"]))
def test_each_stage_comes_after_those_it_needs(names):
    """Whatever the order of declaration."""
    after = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
    found = ordered("etl", {name: after[name] for name in names})
    assert all(found.index(each) < found.index(name) for name in names for each in after[name])


def test_stages_that_do_not_exist():
    """All of them at once, each with the stage that names it."""
    with pytest.raises(PolicyError) as caught:
        ordered("etl", {"a": ["x"], "b": ["y", "a"]})
    assert [problem.value for problem in caught.value.problems] == ["x", "y"]


def test_a_circle_is_refused():
    """With the names of its stages."""
    with pytest.raises(PolicyError, match="'a, b': must be stages that do not"):
        ordered("etl", {"c": [], "a": ["b"], "b": ["a"]})


def test_the_text_reads_back():
    """A shape is text, and reads back."""
    text = shape_of({"a": [], "b": ["a"], "c": ["b", "a"]})
    assert parents_of(text) == {"a": (), "b": ("a",), "c": ("a", "b")}


def test_what_may_change():
    """A stage that is not done may change; one that is done may not."""
    assert changed("a;b<a", "a;x<a;b<x", ["a"]) == ""
    assert "comes after other stages" in changed("a;b<a", "a;x<a;b<x", ["a", "b"])
    assert "no such stage" in changed("a;b<a", "b", ["a"])
