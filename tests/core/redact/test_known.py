"""Secrets that are known by their values are hidden in any notation."""

import copy
import json
import pickle
import random
import string
from time import process_time
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mainstay.core.redact.exact.known import Known
from mainstay.core.redact.exact.process import PROCESS, Knowledge
from mainstay.core.redact.exact.rarity import is_declarable, is_rare
from mainstay.core.redact.redactor import LONGEST, REDACTOR, Redactor, is_secret_name, secrets_in
from mainstay.errors import PolicyError
from tests.plants import AROUND, notations

PRINTABLE = st.characters(min_codepoint=32, max_codepoint=0x2FFFF, exclude_categories=["C", "Z"])
VALUES = st.text(PRINTABLE, min_size=8, max_size=30).filter(is_declarable)


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
@given(VALUES, st.text(max_size=30), st.text(max_size=30), st.data())
def test_no_known_value_survives_in_any_notation(value, before, after, data):
    """Whatever stands around it."""
    written = data.draw(st.sampled_from(notations(value)))
    shown = Redactor(secrets=[value]).text(before + written + after)
    assert value not in shown
    assert written not in shown


@given(VALUES, VALUES, st.integers(0, 29))
def test_of_two_that_overlap_nothing_is_left(one, other, cut):
    """One begins where another has not ended."""
    both = one + other[min(cut, len(other)) :]
    second = both[len(one) // 2 :]
    assume(is_declarable(second))
    assert Redactor(secrets=[one, second], builtin=False).text(both) == "[redacted]"


@given(st.lists(VALUES, max_size=4), AROUND, VALUES)
def test_other_texts_stay(values, around, other):
    """And what was hidden once is not changed again."""
    redact = Redactor(secrets=values, builtin=False)
    shown = redact.text(around + other)
    assert redact.text(shown) == shown
    if not any(set(value) & set(around + other) for value in values):
        assert shown == around + other


def test_data_and_bytes_are_searched_too():
    """Keys, values and bytes."""
    redact = Redactor(secrets=["otter-garden"])
    given = {"otter-garden": ["a otter-garden", b"otter-garden"], "by": ("otter%2Dgarden", 7)}
    assert redact.data(given) == {
        "[redacted]": ["a [redacted]", b"[redacted]"],
        "by": ("[redacted]", 7),
    }


def test_a_value_is_hidden_before_a_rule_takes_a_part_of_it():
    """And before a long text is cut."""
    redact = Redactor(secrets=["a;password=x9 otter garden"])
    assert redact.text("is a;password=x9 otter garden") == "is [redacted]"
    padded = "." * (LONGEST - 1013) + "a;password=x9 otter garden" + " b" * 1000
    assert "otter" not in redact.text(padded)


def test_lines_of_a_secret_are_hidden_one_by_one():
    """As those of a key that a program prints with a margin; a line of words stays."""
    redact = Redactor(
        secrets=["-----BEGIN IT-----\nMIIEowIBAAKCAQEA7\nand so on\n-----END IT-----"]
    )
    assert redact.text("  | MIIEowIBAAKCAQEA7\n  | and so on") == "  | [redacted]\n  | and so on"
    wordy = Redactor(
        secrets=["-----BEGIN IT-----\nwords that anybody may write\nMIIEowIBAAKCAQEA7"]
    )
    for text in ("words that anybody may write", "no line -----BEGIN IT----- was found"):
        assert wordy.text(text) == text


@pytest.mark.parametrize(
    "value", ["hunter2", "", "--------", "aaaaaaaabbb", b"x9Qz-1aPxx", 12345678]
)
def test_a_value_that_would_be_hidden_in_other_words_is_refused(value):
    """The error has the reason, and not the value."""
    with pytest.raises(PolicyError, match=r"secrets\[1\]") as caught:
        Redactor(secrets=["otter-garden", value])
    assert value == "" or repr(value) not in str(caught.value)
    assert "other words" in str(caught.value) or not isinstance(value, str)


@pytest.mark.parametrize("secrets", ["otter-garden", {"otter-garden": 1}, 7])
def test_secrets_are_a_list(secrets):
    """A text is no list of its characters."""
    with pytest.raises(PolicyError, match="a list of texts") as caught:
        Redactor(secrets=secrets)
    assert "otter" not in str(caught.value)


def test_neither_a_repr_nor_a_pickle_has_a_value():
    """A copy is the redactor itself, and knows them."""
    redact = Redactor(secrets=["otter-garden", "x9Qz-1aP"])
    assert repr(redact).endswith("secrets=<2 secrets>)")
    assert repr(Redactor(secrets=["otter-garden"])).endswith("secrets=<1 secret>)")
    with pytest.raises(TypeError, match="are not pickled"):
        pickle.dumps(redact)
    assert copy.deepcopy(redact) is redact
    same = Redactor(secrets=["x9Qz-1aP", "otter-garden"])
    assert redact == same
    assert hash(redact) == hash(same)
    assert redact != Redactor()
    assert redact != "otter-garden"
    assert Known(["otter-garden"]) != "otter-garden"


@pytest.mark.parametrize(
    "value",
    [
        "postgres", "password", "secret12", "user4711", "test", "development", "changeme",
        "12345678", "2026-01-31T10:00", "/run/secrets/db_password", "C:\\Users\\ann\\key.txt",
        "~/.ssh/id_rsa", "secrets/db.txt", "config.py", "${DB_PASSWORD}", "<hidden>",
        "https://example.org/a/b", "db.example.org:5432", "com.example.shop.Service",
        "DB_PASSWORD_PRODUCTION", "--------", "*" * 20,
    ],
)  # fmt: skip
def test_what_may_stand_elsewhere_is_not_hidden_unasked(value):
    """Words, numbers, times, paths, names of files and of variables, placeholders, URLs."""
    assert not is_rare(value)


@pytest.mark.parametrize(
    "value", ["x9Qz-1aP", "correct-horse-battery", "otter garden finch", "hunter2!xy", "Pa$$word1"]
)
def test_what_is_written_like_no_word_is_hidden_unasked(value):
    """Or is long."""
    assert is_rare(value)


def test_the_secrets_of_a_url_are_its_password_and_its_tokens():
    """As they stand there, and without escapes; a word is none."""
    url = "https://ann:x9Qz%2D1aP@example.org/pay?api_key=Zk-77aaQ1&user=postgres"
    assert sorted(secrets_in(url)) == ["Zk-77aaQ1", "x9Qz%2D1aP", "x9Qz-1aP"]
    assert secrets_in("postgresql://postgres:postgres@db/postgres") == []


def test_what_a_source_gives_is_asked_for_once():
    """And again only if there is another source; a known key is no other."""
    asked = []
    knowledge = Knowledge()
    assert knowledge.known() is None

    def source():
        asked.append(1)
        return ["otter-garden"]

    for _ in range(3):
        knowledge.take("a", source)
        assert repr(knowledge.known()) == "<1 secret>"
    assert len(asked) == 1
    knowledge.take("b", lambda: ["x9Qz-1aP"])
    assert repr(knowledge.known()) == "<2 secrets>"
    assert len(asked) == 2


def test_a_process_with_very_many_urls_forgets_the_oldest():
    """What it keeps is bounded."""
    knowledge = Knowledge()
    for number in range(1005):
        knowledge.take(number, lambda number=number: [f"otter-garden-{number}"])
    assert len(knowledge.known()) == 1000
    assert (
        knowledge.known().hide("otter-garden-4x otter-garden-1004") == "otter-garden-4x [redacted]"
    )


def test_the_cost_does_not_grow_with_the_secrets():
    """A thousand are searched in the time of some, and a long text in its own."""
    letters = random.Random(7)
    values = ["".join(letters.choices(string.ascii_letters, k=24)) for _ in range(1000)]
    line = "connection to db.example.org:5432 failed: timed out after 30 seconds, request 7f3a91\n"

    def spent(known, text):
        times = []
        for _ in range(3):
            begin = process_time()
            known.hide(text)
            times.append(process_time() - begin)
        return min(times)

    few, many = Known(values[:10]), Known(values)
    assert spent(many, line * 800) < 20 * spent(few, line * 800) + 0.01
    for text in (line * 800, "a\\u0041%41&amp;" * 3000):
        assert spent(many, text * 4) < 12 * spent(many, text) + 0.01


def test_a_redactor_without_secrets_looks_for_none():
    """The usual one too, in a process that knows none."""
    assert Redactor()._own is None
    assert Redactor() == REDACTOR


def test_what_the_process_knows_is_hidden_by_each_redactor_with_the_built_in_rules():
    """Also a text that was shown before; and names and nothing are judged as before."""
    redact, own = Redactor(["EMP-[0-9]+"]), Redactor(builtin=False)
    assert redact.text("by otter-garden") == "by otter-garden"
    PROCESS.take("store", lambda: ["otter-garden"])
    assert redact.text("by otter-garden") == "by [redacted]"
    assert own.text("by otter-garden") == "by otter-garden"
    assert is_secret_name("DB_PASSWORD")
    assert not is_secret_name("PASSWORD_LENGTH")
    assert Known([]).hide("otter-garden") == "otter-garden"


def test_escapes_of_two_sorts_are_undone_in_turn():
    """As long as there are some, up to a bound."""
    written = 'otter "garden"'
    for number in range(8):
        written = quote(written) if number % 2 else json.dumps(written)[1:-1]
        hidden = Redactor(secrets=['otter "garden"'], builtin=False).text(written)
        assert number > 4 or hidden == "[redacted]"
