"""Redaction: removes secrets from everything that a person or a log can read."""

from __future__ import annotations

import sys

MARK = "[redacted]"
"""What stands in place of a secret."""


def __getattr__(name: str) -> object:
    """What version 1 had under this name, for pickles."""
    found: object = sys.modules["mainstay"]._moved(__name__, name)  # noqa: SLF001  the door's
    return found
