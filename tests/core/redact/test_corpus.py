"""Redaction on a corpus that was written before its patterns, by half: score.py has the rules."""

import pytest

from tests.core.redact import score

WRITING = 1.0
"""Of the half on which patterns were written, in each group."""
HARMLESS = 0.02
"""Of harmless texts, at most so many may lose something."""
SCORED = {
    "escaped": 33 / 34,
    "percent-encoded": 23 / 23,
    "auth-headers": 35 / 37,
    "quoting": 29 / 34,
    "urls": 33 / 33,
    "xml-forms": 18 / 20,
    "name-value": 24 / 30,
    "names": 55 / 57,
    "code-parameter": 9 / 9,
    "after-words": 34 / 41,
    "sql": 28 / 32,
    "validation": 24 / 25,
    "files": 35 / 40,
    "issuers": 72 / 76,
    "cards-and-keys": 15 / 17,
    "bytes-and-structs": 35 / 39,
}
"""Of the half that was only scored: what was measured, and the minimum from then on."""


def found(name, *, scored):
    """A score, and what share of each group came out right."""
    result = score.score(name, scored=scored)
    return result, {group: result.right[group] / lines for group, lines in result.lines.items()}


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
def test_secrets_of_every_group_are_found_where_patterns_were_written():
    """Each group by itself, so that one cannot stand in for another."""
    _, shares = found("secrets", scored=False)
    assert {group: share for group, share in shares.items() if share < WRITING} == {}


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
def test_secrets_of_every_group_are_found_where_no_pattern_was_written():
    """A minimum for each group: what was measured, once."""
    _, shares = found("secrets", scored=True)
    assert {group: share for group, share in shares.items() if share < SCORED[group]} == {}


@pytest.mark.parametrize("scored", [False, True])
def test_harmless_texts_stay_as_they_are(scored):
    """At most two in a hundred lose something, in either half."""
    result, _ = found("harmless", scored=scored)
    assert 1 - result.right.total() / result.lines.total() <= HARMLESS
