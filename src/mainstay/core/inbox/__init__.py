"""The inbox: items that wait for a person, the actions that are legal, and the operators."""

from __future__ import annotations

import sys


def __getattr__(name: str) -> object:
    """What version 1 had under this name, for pickles."""
    found: object = sys.modules["mainstay"]._moved(__name__, name)  # noqa: SLF001  the door's
    return found
