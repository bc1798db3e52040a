"""Which process this is: a forked child leaves its parent's connections alone, and makes its own.

To ask the system costs a call of it; this is asked with every step.
"""

from __future__ import annotations

import os


class _Process:
    """The number of this process, right also after a fork."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        self.number = os.getpid()


PROCESS = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PROCESS.begin_anew)
