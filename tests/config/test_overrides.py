"""A value of `--set` and of the environment that is one plain word is read without YAML."""

import re

from hypothesis import given
from hypothesis import strategies as st

from mainstay.config.files.yaml import read_yaml
from mainstay.config.overrides import _WORD, _leaf
from mainstay.config.report import Report
from mainstay.config.tree import Node

LETTERS = "ab19eE_/:.@+-?=&%~0nNoOfFyYtT"


@given(st.one_of(st.from_regex(_WORD, fullmatch=True), st.text(LETTERS, max_size=8)))
def test_a_plain_word_is_what_yaml_reads(text):
    """Numbers, words for true and false, URLs and paths: the value and its type are YAML's."""
    report = Report({})
    found = _leaf(text, Node(None, None, "--set a"), ("a",), report)
    if not re.fullmatch(_WORD, text):
        return
    read = read_yaml(text, "--set a", Report({}))
    assert found is not None
    assert not report.problems
    assert (repr(found.value), found.text) == (repr(read.value), text)


def test_the_store_of_a_command_is_a_plain_word():
    """`mainstay exec` gives its store this way, with an option in the query."""
    assert re.fullmatch(_WORD, "sqlite:////home/ann/.local/state/mainstay/mainstay.db?timeout=2.0")
