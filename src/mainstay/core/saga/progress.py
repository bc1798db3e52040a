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

    __slots__ = ("_order", "is_past_pivot", "log", "outline", "status")

    def __init__(self, outline: Outline, log: Iterable[Entry] = ()) -> None:
        self.outline = outline
        self.log: list[Entry] = []
        self.status: dict[int, Mark] = {}
        """The last that is known of each step that was started."""
        self._order: dict[int, int] = {}
        """When each step was done, counted."""
        self.is_past_pivot = False
        """Whether the saga can only go forward."""
        for entry in log:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Adds an entry of the log."""
        self.log.append(entry)
        what, step = entry.what, entry.step
        if what is RETRIED:
            self.status.pop(step, None)
        elif what is UNDO_RETRIED:
            self.status[step] = UNDOING
        elif what is not ENDED:
            self.status[step] = what
        is_passed = what is DONE or what is SKIPPED
        if is_passed:
            self._order[step] = len(self.log)
        if step == self.outline.pivot and what is not ENDED:
            self.is_past_pivot = is_passed

    def todo(self, group: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The steps of a group that are not done, and those of them that were not started."""
        marks = [*map(self.status.get, group)]
        if not any(marks):
            return group, group
        left = [each for each in zip(group, marks, strict=True) if each[1] not in _PASSED]
        return (
            tuple([step for step, _ in left]),
            tuple([step for step, mark in left if mark is not STARTED]),
        )

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
        last = len(self.log) + 1
        found = [
            (self._order.get(step, last), step)
            for step, mark in self.status.items()
            if mark in _MAY_HAVE_HAPPENED and step in self.outline.undoable
        ]
        return [step for _, step in sorted(found, reverse=True)]


_PASSED = (DONE, SKIPPED)
_MAY_HAVE_HAPPENED = frozenset({DONE, STARTED, IN_DOUBT, UNDOING, UNDO_FAILED})
