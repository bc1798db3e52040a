"""How far a saga has come: a view of its log, which holds all that is known.

The log is a sequence of entries. What a step has come to is what its last entry of importance
shows; in which order steps are undone follows from the order in which they were done.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec import Struct

from mainstay.core.base.clock_jumps import NO_TIME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.core.saga.definition import Outline

NULL = msgspec.Raw(b"null")


class Mark(Enum):
    """What an entry of the log records; the values are stored."""

    STEP_STARTED = "started"
    STEP_DONE = "done"
    STEP_FAILED = "failed"
    """It has certainly not happened."""
    STEP_IN_DOUBT = "in_doubt"
    """It failed, and may have happened."""
    STEP_SKIPPED = "skipped"
    """A person decided to go on without it."""
    STEP_RETRIED = "retried"
    """A person decided that it is tried again."""
    UNDO_STARTED = "undo_started"
    UNDO_DONE = "undo_done"
    UNDO_FAILED = "undo_failed"
    UNDO_SKIPPED = "undo_skipped"
    """A person decided to go on without the compensation."""
    UNDO_RETRIED = "undo_retried"
    ENDED = "ended"
    """A person ended the saga."""


STARTED, DONE, FAILED, IN_DOUBT, SKIPPED, RETRIED = list(Mark)[:6]
UNDOING, UNDONE, UNDO_FAILED, UNDO_SKIPPED, UNDO_RETRIED, ENDED = list(Mark)[6:]


class Entry(Struct, frozen=True, array_like=True, gc=False):
    """One entry of the log."""

    what: Mark
    step: int
    at: float = NO_TIME
    attempts: int = 0
    data: msgspec.Raw = NULL
    """The result or the failure, as JSON."""
    note: str = ""


class Progress:
    """What the log of a saga shows.

    >>> from mainstay.core.saga.definition import outline_of
    >>> log = [Entry(Mark.STEP_STARTED, 0), Entry(Mark.STEP_DONE, 0), Entry(Mark.STEP_STARTED, 1)]
    >>> progress = Progress(outline_of("debit~ > credit~"), log)
    >>> progress.status[0], progress.to_undo()
    (<Mark.STEP_DONE: 'done'>, [1, 0])
    """

    __slots__ = ("_count", "_order", "is_past_pivot", "outline", "status")

    def __init__(self, outline: Outline, log: Iterable[Entry] = ()) -> None:
        self.outline = outline
        self._count = 0
        """Entries of the log."""
        self.status: dict[int, Mark] = {}
        """The last that is known of each step that was started."""
        self._order: dict[int, int] = {}
        """When each step was done, counted."""
        self.is_past_pivot = False
        """Whether the saga can only go forward."""
        for entry in log:
            self.add(entry.what, entry.step)

    def add(self, what: Mark, step: int) -> None:
        """Adds an entry of the log."""
        self._count += 1
        if what in _PASSED:
            self.status[step] = what
            self._order[step] = self._count
            if step == self.outline.pivot:
                self.is_past_pivot = True
            return
        if what is STARTED:
            self.status[step] = what
        elif what is RETRIED:
            self.status.pop(step, None)
        elif what is UNDO_RETRIED:
            self.status[step] = UNDOING
        elif what is ENDED:
            return
        else:
            self.status[step] = what
        if step == self.outline.pivot:
            self.is_past_pivot = False

    def todo(self, group: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The steps of a group that are not done, and those of them that were not started."""
        status = self.status
        if status.keys().isdisjoint(group):
            return group, group
        left = tuple([step for step in group if status.get(step) not in _PASSED])
        return left, tuple([step for step in left if status.get(step) is not STARTED])

    def failed(self) -> list[int]:
        """The steps that have failed, in doubt or not."""
        return [step for step, mark in self.status.items() if mark is FAILED or mark is IN_DOUBT]

    def unknown(self) -> list[int]:
        """The steps that were started and have no outcome."""
        return [step for step, mark in self.status.items() if mark is STARTED]

    def to_undo(self) -> list[int]:
        """The steps that may have happened and can be undone: the last done comes first.

        Steps without a known outcome come before all that are done.
        """
        last = self._count + 1
        found = [
            (self._order.get(step, last), step)
            for step, mark in self.status.items()
            if mark in _MAY_HAVE_HAPPENED and step in self.outline.undoable
        ]
        return [step for _, step in sorted(found, reverse=True)]


_PASSED = (DONE, SKIPPED)
_MAY_HAVE_HAPPENED = frozenset({DONE, STARTED, IN_DOUBT, UNDOING, UNDO_FAILED})
