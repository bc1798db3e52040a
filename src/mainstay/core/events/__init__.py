"""Every event: the catalogue, the codec, the builder of a call's events, evidence for replay."""

from __future__ import annotations

import sys


def __getattr__(name: str) -> object:
    """What version 1 had under this name, for pickles."""
    found: object = sys.modules["mainstay"]._moved(__name__, name)  # noqa: SLF001  the door's
    return found
