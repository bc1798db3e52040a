"""The mark of an inner retry for an outer one: a note on the exception it gives up on.

Across tasks, pools and threads an outer retry cannot see the inner one; what it gets is the
exception. So a call that gives up after retrying leaves a note that is also a mark, with its own
number. An outer retry that finds another's mark, on the exception or on what it was raised from,
does not repeat the work.
"""

from __future__ import annotations

from mainstay.core.base.attributes import attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

_OURS = "mainstay: "
_MOST = 100
"""How many exceptions to look at: through `raise X from e` and in groups."""


class GaveUp(str):
    """A note with the operation that gave up, after how many attempts, and why."""

    __slots__ = ("attempts", "inside", "reason", "token")
    attempts: int
    inside: int
    """The attempts of a retry further in, if it was that one that gave up."""
    reason: str
    token: int

    def __new__(
        cls, operation: str, reason: str, token: int, attempts: int, inside: int = 0
    ) -> Self:
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        note = str.__new__(cls, f"{_OURS}gave up on {operation} after {times}: {reason}")
        note.attempts, note.inside, note.reason, note.token = attempts, inside, reason, token
        return note

    def put_on(self, exception: BaseException) -> None:
        """Leaves this note on the exception, in place of an earlier one of ours."""
        if exception.__dict__:
            notes = getattr(exception, "__notes__", None)
            if isinstance(notes, list):
                notes[:] = [note for note in notes if not _is_ours(note)]
        try:
            exception.add_note(self)
        except Exception:  # a frozen exception takes no note, and is not lost for one
            return

    def __reduce__(self) -> tuple[Callable[..., GaveUp], tuple[str, str, int, int, int]]:
        return _rebuild, (str(self), self.reason, self.token, self.attempts, self.inside)


def reason_of(exception: BaseException | None) -> str:
    """Why a retry gave up on this exception; empty if none did, or it is not known.

    >>> error = OSError("gone")
    >>> GaveUp("fetch", "no attempt left", 1, 3).put_on(error)
    >>> reason_of(error)
    'no attempt left'
    """
    notes = attribute(exception, "__notes__")
    found = [n.reason for n in notes if type(n) is GaveUp] if isinstance(notes, list) else []
    return found[-1] if found else ""


def _is_ours(note: object) -> bool:
    return isinstance(note, str) and note.startswith(_OURS)


def _rebuild(text: str, reason: str, token: int, attempts: int, inside: int = 0) -> GaveUp:
    note = str.__new__(GaveUp, text)
    note.attempts, note.inside, note.reason, note.token = attempts, inside, reason, token
    return note


def take_mark(exception: BaseException, token: int) -> int:
    """The attempts after which another retry gave up on this, or 0. Consumes the mark.

    Looks through `raise X from e` and into groups. One's own mark does not count: an exception
    object may be raised again and again, as a mock's side_effect is. Nor does that of a call which
    was not retried.
    """
    waiting: list[BaseException | None] = [exception]
    for _ in range(_MOST):
        if not waiting:
            break
        current = waiting.pop()
        if current is None:
            continue
        attempts = _take(current, token)
        if attempts:
            return attempts
        waiting.append(current.__cause__ or current.__context__)
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(current.exceptions)
    return 0


def _take(exception: BaseException, token: int) -> int:
    notes = attribute(exception, "__notes__")
    if not isinstance(notes, list):
        return 0
    for index, note in enumerate(notes):
        if type(note) is GaveUp:
            notes[index] = str(note)  # the note stays, the mark is consumed
            if note.token != token and max(note.attempts, note.inside) > 1:
                return max(note.attempts, note.inside)
    return 0
