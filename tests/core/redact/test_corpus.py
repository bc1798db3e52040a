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
FOUND = Counter(
    {
        "escaped": 28,
        "percent-encoded": 23,
        "auth-headers": 25,
        "quoting": 30,
        "urls": 31,
        "xml-forms": 26,
        "name-value": 24,
        "names": 39,
        "code-parameter": 29,
        "after-words": 31,
        "sql": 28,
        "validation": 20,
        "files": 32,
        "issuers": 41,
        "cards-and-keys": 23,
        "bytes-and-structs": 27,
        "command-lines": 36,
    }
)
"""At least so many secrets of the unread half of the fourth corpus, by group: its last score."""
FOUND_IN_FIFTH = Counter(
    {
        "apart": 31,
        "calls": 21,
        "cards": 17,
        "command-lines": 31,
        "connstrings-files": 13,
        "fields": 16,
        "headers": 23,
        "other-notation": 28,
        "private-keys": 21,
        "quoting": 29,
        "sentences": 29,
        "sql": 18,
        "text-in-text": 31,
        "token-shapes": 35,
        "url": 21,
        "value-decides": 15,
        "xml-forms": 18,
    }
)
"""The same of the fifth corpus."""
FOUND_IN_SIXTH = Counter(
    {
        "calls": 14,
        "cards": 14,
        "cli-any-program": 19,
        "cli-archives-clouds": 24,
        "cli-databases": 13,
        "cli-network": 12,
        "config-formats": 17,
        "connection-strings": 14,
        "deciding-names": 19,
        "driver-logs": 16,
        "fields": 19,
        "fields-languages": 14,
        "files": 21,
        "forms-multipart": 23,
        "headers": 21,
        "headers-structured": 12,
        "long-texts": 12,
        "name-value": 16,
        "other-notation": 15,
        "private-keys": 14,
        "quoting": 19,
        "real-logs": 20,
        "sentences": 13,
        "sql": 16,
        "texts-in-texts": 17,
        "tokens-cloud": 15,
        "tokens-issuers": 19,
        "url-params": 20,
        "url-userinfo": 18,
        "validation": 18,
        "xml": 13,
    }
)
"""The same of the sixth corpus, before that half was read."""
CHANGED = {score.FOURTH: 4, score.FIFTH: 4, score.SIXTH: 5}
"""At most so many harmless texts of those halves may lose something."""


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
    ("corpus", "scored"),
    [
        (score.THIRD, False),
        (score.THIRD, True),
        (score.FOURTH, False),
        (score.FIFTH, False),
        (score.SIXTH, False),
        (score.SIXTH, True),
    ],
)
def test_secrets_of_a_third_and_later_authors_are_found(corpus, scored):
    """All of the halves that are read."""
    assert not score.score("secrets", scored=scored, corpus=corpus).misses
    assert not score.score("harmless", scored=scored, corpus=corpus).misses


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
@pytest.mark.parametrize(
    ("corpus", "least"),
    [(score.FOURTH, FOUND), (score.FIFTH, FOUND_IN_FIFTH), (score.SIXTH, FOUND_IN_SIXTH)],
)
def test_secrets_that_nobody_has_read_are_found_as_before(corpus, least):
    """No group of an unread half may lose what it had; no text of it is shown."""
    found = score.score("secrets", scored=True, corpus=corpus)
    assert least - found.right == Counter()
    changed = len(score.score("harmless", scored=True, corpus=corpus).misses)
    assert changed <= CHANGED[corpus]
