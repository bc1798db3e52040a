"""Names, comments, messages and pages use the words of the field; the words they replace are gone.

A name is taken apart at `_` and at capitals, so that `is_calm` and `TellHit` count too.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src/mainstay"
GLOSSARY = ROOT / "docs/glossary.md"

REPLACED = {
    "tell tells told telling teller": "emit, report, record, notify, describe",
    "say says said saying": "state, report, print, return, document",
    "hear hears heard hearing": "receive, observe",
    "story stories retelling": "flow",
    "life lives": "flow of a call",
    "knock knocks knocking": "run_guarded",
    "glance glances glancing": "fast path, read first",
    "calm calms": "quiet",
    "away": "unavailable, at once, remove",
    "trouble troubles troubled": "error, failure",
    "heart hearts beat beats beating": "lease renewal",
    "manner manners": "options",
    "wish wishes": "request",
    "whoever": "code that, a caller, a process, a user",
}
"""Words that are gone, and what is used in their place."""
PHRASES = {
    "so many": "that many, a number",
    "somebody was faster": "lost the race",
    "made where it is not there": "created if missing",
}
INSTEAD = {word: instead for words, instead in REPLACED.items() for word in words.split()}
INSTEAD |= PHRASES

KEPT = {
    r"\.heard\b|\bheard(?=[=:])": "a field of stored circuits",
    r'"away"|"store_away"|"said_done"': "words in the JSON output of commands",
    r"\bfile\.tell\(": "a method of Python's files",
    r"\bhears_successes\b": "an attribute of sinks that users have written",
    r"\btest_it_says_what_it_is\b": "a test of StoreContract, in api.txt",
    r"\b(?:def |self\.|operators\.)tell\(": "Operators.tell, in api.txt",
}
"""Names on the wire and public names: they stay, each with its reason."""
KEPT_PARAMETERS = {
    "src/mainstay/errors.py": "CommandFailed(told=), in api.txt",
    "src/mainstay/drivers/guards/budget.py": "TokenBudget.agree(told=), in api.txt",
    "src/mainstay/drivers/inbox/authentication.py": "Operators.verify(told=), in api.txt",
}
"""Files with a public parameter `told`: it stays as a name, and is gone from their prose."""

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
PHRASE = re.compile(
    "|".join(rf"\b{each}\b".replace(" ", r"[\W_]+") for each in PHRASES), re.IGNORECASE
)
KEPT_NAME = re.compile("|".join(KEPT))
PARAMETER = re.compile(r"\btold(?=[:=,)\[`]| or |$)", re.MULTILINE)


def replaced_words(text, path=""):
    """Each replaced word in a text, with its line and what to use."""
    text = KEPT_NAME.sub(lambda kept: " " * len(kept[0]), text)
    if path in KEPT_PARAMETERS:
        text = PARAMETER.sub("    ", text)
    found = [(each.start(), each[0].lower()) for each in WORD.finditer(text)]
    found += [
        (each.start(), " ".join(WORD.findall(each[0].lower()))) for each in PHRASE.finditer(text)
    ]
    return [
        f"line {text.count(chr(10), 0, start) + 1}: {word} ({INSTEAD[word]})"
        for start, word in sorted(found)
        if word in INSTEAD
    ]


def rooms():
    """The rooms of the source, and the pages: what is checked one by one."""
    found = {path.name: path for path in SRC.iterdir() if path.name != "__pycache__"}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    return found | {path.relative_to(ROOT).as_posix(): path for path in pages}


@pytest.mark.parametrize("room", sorted(rooms()))
def test_replaced_words_are_gone(room):
    """A reader who knows the field needs no glossary for a name, a comment or a message."""
    path = rooms()[room]
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    texts = {file.relative_to(ROOT).as_posix(): file.read_text("utf-8") for file in files}
    found = {name: replaced_words(text, name) for name, text in texts.items()}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("It says no.", "says"),
        ("is_calm = True", "calm"),
        ("class TellHit: ...", "tell"),
        ("self._told.add(x)", "told"),
        ("HEART = 1", "heart"),
        ("waits so\n    # many seconds", "so many"),
    ],
)
def test_a_replaced_word_is_found(text, word):
    """The rule above can fail, also in parts of a name and across two lines."""
    assert [line.split(": ")[1].split(" (")[0] for line in replaced_words(text)] == [word]


@pytest.mark.parametrize(
    "text", ["heartbeat", "essay", "storey", "lifetime", "hears_successes = True"]
)
def test_other_words_pass(text):
    """Whole words count, and names that are kept do not."""
    assert replaced_words(text) == []


def test_a_kept_name_is_still_there():
    """A name that is gone from the source leaves the list of those that are kept."""
    source = "\n".join(path.read_text("utf-8") for path in SRC.rglob("*.py"))
    assert [name for name in KEPT if not re.search(name, source)] == []
    files = [ROOT / path for path in KEPT_PARAMETERS]
    assert [path for path in files if not PARAMETER.search(path.read_text("utf-8"))] == []


# --- the glossary ---------------------------------------------------------------------------------

MOST_TERMS = 40


def terms():
    """Each term of the glossary with its meaning and the reason for a word of our own."""
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|(.*)\|$", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    return {term: [cell.strip() for cell in rest.split(" | ")] for term, rest in rows}


def test_the_glossary_is_short():
    """A reader keeps 40 terms in mind at most; each has a meaning and a reason."""
    assert 0 < len(terms()) <= MOST_TERMS
    assert {t: cells for t, cells in terms().items() if len(cells) != 2 or not all(cells)} == {}


def test_terms_are_sorted():
    """A term is found without a search."""
    assert list(terms()) == sorted(terms(), key=str.lower)


@pytest.mark.parametrize("term", terms())
def test_a_term_is_used(term):
    """A term that neither the source nor a page uses is gone from the glossary."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path != GLOSSARY]
    words = r"[\W_]+".join(re.escape(word) for word in term.split())
    used = re.compile(rf"(?<![a-zA-Z]){words}(?:s|es)?(?![a-zA-Z])", re.IGNORECASE)
    assert any(used.search(path.read_text("utf-8")) for path in [*SRC.rglob("*.py"), *pages])


def test_no_term_is_a_replaced_word():
    """What was replaced has no meaning left to explain."""
    assert [term for term in terms() if replaced_words(term)] == []
