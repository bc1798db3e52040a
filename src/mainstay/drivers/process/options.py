"""How a command is run: what it is given, what is kept of it, and what may end it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_PASSED_ON = ("MAINSTAY_OPERATOR_SECRET", "MAINSTAY_NEW_SECRET")
"""Variables that are for mainstay itself: secrets of operators."""
GRACE = 5.0
"""Seconds between TERM and KILL."""


class ProcessOptions(Struct, frozen=True):
    """How a command is run."""

    grace: float = GRACE
    keep: int | None = None
    """How many bytes of output to keep; None keeps none, and the command writes for itself."""
    through: bool = True
    """Whether what is kept goes to our own streams too."""
    cancel: Any = None
    """A threading.Event that ends it."""
    terminal: Any = None
    """The Terminal to lend it."""
    stdin: int | None = None
    cwd: str | None = None
    env: Mapping[str, str] | None = None


def own_environment() -> dict[str, str]:
    """The environment of this process as a command gets it: without the secrets of operators.

    >>> "MAINSTAY_OPERATOR_SECRET" in own_environment()
    False
    """
    return {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
