"""Text from elsewhere: on one line, and nothing in it is obeyed."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.printable import printable, printable_json, printable_lines, text_of

ANY = st.text(st.characters(), max_size=40)
OBEYED = [
    *map(chr, [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]),
    *"\u200e\u200f\u061c\u2028\u2029\ud800\udfff\ufeff\U000e0041",
]


def test_controls_line_ends_and_marks_of_direction_are_shown():
    """Each of them as an escape; what is plain text stays."""
    for each in OBEYED:
        shown = printable(f"a{each}b")
        assert shown == f"a{each.encode('unicode_escape').decode()}b"
        assert shown.isascii()
    for text in ("naïve café", "支払い", "тест", "👍", "a b"):
        assert printable(text) == text


@given(ANY)
def test_a_text_is_one_line_for_everybody(text):
    """No reader of lines splits it, UTF-8 can hold it, and escaping it again changes nothing."""
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not {unicodedata.category(each) for each in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert shown.encode().decode() == shown == printable(shown)


@given(ANY)
def test_several_lines_keep_their_line_breaks_and_tabs_only(text):
    """All other characters are those of one line each."""
    shown = printable_lines(text)
    assert set(shown) & set(OBEYED) <= {"\n", "\t"}
    assert shown.count("\n") == text.count("\n")


@given(st.recursive(ANY | st.integers(), lambda inner: st.dictionaries(ANY, inner, max_size=3)))
def test_json_has_the_same_value_after_it(value):
    """Only its text is another one."""
    line = json.dumps(value, ensure_ascii=False)
    shown = printable_json(line)
    assert json.loads(shown) == value
    assert not set(shown) & set(OBEYED)


def test_the_text_of_an_exception_that_has_none():
    """An exception whose own text fails is named."""

    class Unshowable(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    assert text_of(ValueError("closed")) == "closed"
    assert text_of(Unshowable()) == "a Unshowable that cannot be shown"
