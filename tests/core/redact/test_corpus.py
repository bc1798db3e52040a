"""Redaction on a corpus that was written before its patterns: score.py has the rules."""

import pytest

from tests.core.redact import score

HARMLESS = 2
"""At most so many harmless texts may lose something, of both halves."""


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
