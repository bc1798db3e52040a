"""Redaction on corpora that were written before its patterns: score.py has the rules."""

from collections import Counter

import pytest

from tests.core.redact import score

HARMLESS = 2
"""At most so many harmless texts may lose something, of both halves."""
MISSED = {
    False: Counter({"escaped": 1, "after-words": 1, "validation": 1}),
    True: Counter({"after-words": 2, "files": 1}),
}
"""Of each half of the second corpus; its README has the reasons."""


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
@pytest.mark.parametrize("scored", [False, True])
def test_secrets_of_a_second_author_are_found(scored):
    """But for those that the README names."""
    found = score.score("secrets", scored=scored, corpus=score.SECOND)
    assert found.lines - found.right == MISSED[scored]
    assert not score.score("harmless", scored=scored, corpus=score.SECOND).misses


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
@pytest.mark.parametrize(
    "corpus",
    [score.THIRD, score.FOURTH, score.FIFTH, score.SIXTH, score.SEVENTH, score.EIGHTH, score.NINTH],
)
@pytest.mark.parametrize("scored", [False, True])
def test_secrets_of_a_third_and_later_authors_are_found(corpus, scored):
    """All of both halves: no group may lose what it has."""
    assert not score.score("secrets", scored=scored, corpus=corpus).misses
    assert not score.score("harmless", scored=scored, corpus=corpus).misses
