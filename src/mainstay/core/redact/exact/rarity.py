"""Which values are so rare in texts that they can be hidden wherever they stand."""

from __future__ import annotations

from mainstay.core.redact.plain import is_ordinary, is_plain, is_random

LEAST = 8
"""Characters of a secret that is known by its value: a shorter one stands in other words."""
DIFFERENT = 4
"""Characters of it that differ: `--------` is a line."""
LONG = 16
"""Characters of some letters that no text holds by chance."""


def is_declarable(value: str) -> bool:
    """Whether it can be hidden everywhere if a person asks for it.

    >>> [is_declarable(value) for value in ("postgres", "hunter2", "--------")]
    [True, False, False]
    """
    return len(value) >= LEAST and len(set(value)) >= DIFFERENT


def is_rare(value: str) -> bool:
    """Whether it can be hidden everywhere though nobody has asked for it.

    It mixes letters and digits or signs as no word, number, path or name of a file does, or is so
    long that no other text has it.

    >>> [is_rare(value) for value in ("x9Qz-1aP", "postgres", "secret12", "/run/secrets/db")]
    [True, False, False, False]
    """
    if not is_declarable(value) or is_plain(value, "", is_quoted=True) or is_ordinary(value):
        return False
    return len(value) >= LONG or is_random(value, LEAST)
