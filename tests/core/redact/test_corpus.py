"""Redaction on corpora that were written before its patterns: score.py has the rules."""

from collections import Counter

import pytest

from tests.core.redact import score

HARMLESS = 2
"""At most so many harmless texts may lose something, of both halves."""
MISSED = Counter({"escaped": 1, "after-words": 1, "validation": 1})
"""Of the half of the second corpus that was read; its README has the reasons."""
FOUND = Counter(
    {
        "escaped": 16,
        "percent-encoded": 20,
        "auth-headers": 32,
        "quoting": 33,
        "urls": 27,
        "xml-forms": 27,
        "name-value": 18,
        "names": 58,
        "code-parameter": 17,
        "after-words": 30,
        "sql": 16,
        "validation": 22,
        "files": 26,
        "issuers": 47,
        "cards-and-keys": 21,
        "bytes-and-structs": 35,
    }
)
"""At least so many secrets of the unread half, by group: its score when the patterns were done."""
CHANGED = 9
"""At most so many harmless texts of the unread half may lose something."""


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
@pytest.mark.parametrize("scored", [False, True])
def test_secrets_of_every_group_are_found(scored):
    """Each group by itself, so that one cannot stand in for another."""
    found = score.score("secrets", scored=scored)
    assert {
        group: lines - found.right[group] for group, lines in found.lines.items()
    } == dict.fromkeys(found.lines, 0)


def test_harmless_texts_stay_as_they_are():
    """Of both halves together."""
    changed = [
        text for half in (False, True) for text in score.score("harmless", scored=half).misses
    ]
    assert len(changed) <= HARMLESS


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
def test_secrets_of_a_second_author_are_found():
    """In the half that patterns were written on, but for those that the README names."""
    found = score.score("secrets", scored=False, corpus=score.SECOND)
    assert found.lines - found.right == MISSED
    assert not score.score("harmless", scored=False, corpus=score.SECOND).misses


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
def test_secrets_that_nobody_has_read_are_found_as_before():
    """No group of the unread half may lose what it had; no text of it is shown."""
    found = score.score("secrets", scored=True, corpus=score.SECOND)
    assert FOUND - found.right == Counter()
    assert len(score.score("harmless", scored=True, corpus=score.SECOND).misses) <= CHANGED
