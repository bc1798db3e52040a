"""The mark of an inner retry for an outer one: a note on the exception it gives up on.

An outer retry does not repeat what an inner one has given up on. What it gets, across tasks, pools
and threads too, is the exception. So a call that gives up leaves a note; if it would have retried
that failure, the note is also a mark, with the moment at which it was made. An outer retry that
finds a mark which was made since its current attempt began does not repeat the work. It finds marks
on the exception, on what that was raised `from`, and on the members of a group. A service that has
given up puts the mark into a header of its response, and the caller's client takes it from there.

Moments are numbers, and this module does not count them: a caller of `Plan.note` does.
"""

from __future__ import annotations

from mainstay.core.base.attributes import KEEPS_SIGNALS, add_note, attribute
from mainstay.core.base.printable import printable
from mainstay.core.known.headers import GAVE_UP
from mainstay.core.retry.effects import COLLAPSED, MAY_BE_APPLIED, NOT_RETRYABLE
from mainstay.core.retry.retry_after import HINTS_ARE_CARRIED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from mainstay.core.base.types import UserValue

_OURS = "mainstay: "
_MOST = 100
"""How many exceptions to look at: through `raise X from e` and in groups."""
_NEAR = (1, 2, 3, 4, 5, 6)
"""Causes that are looked at at once; a chain may be a circle."""
NO_MOMENT = -1
"""The moment of a note that no outer retry can honour: it is before the first one."""


class GaveUp(str):
    """A note with the operation that gave up, after how many attempts, and why."""

    __slots__ = ("attempts", "by", "inside", "is_mark", "moment", "operation", "reason", "token")
    attempts: int
    by: str
    """The operation that made the attempts: this one, or a retry further in that gave up."""
    inside: int
    """The attempts of a retry further in, if it was that one that gave up."""
    is_mark: bool
    """Whether the call would have retried the failure, and does not."""
    moment: int
    """When it was made, if it is a mark and another call was under way then."""
    operation: str
    reason: str
    token: int

    def __new__(
        cls,
        operation: str,
        reason: str,
        token: int,
        attempts: int,
        inside: int = 0,
        is_mark: bool = True,
        moment: int = NO_MOMENT,
        why: str = "",
        by: str = "",
    ) -> Self:
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        name = operation if operation.isprintable() else printable(operation)
        full = f"{reason}: {why}" if why else reason
        note = str.__new__(cls, f"{_OURS}gave up on {name} after {times}: {full}")
        note.attempts, note.inside, note.reason, note.token = attempts, inside, reason, token
        note.operation, note.is_mark, note.moment = operation, is_mark, moment
        note.by = by or operation
        return note

    @property
    def made(self) -> int:
        """The attempts of the retry that gave up, here or further in."""
        return max(self.attempts, self.inside)

    def put_on(self, exception: BaseException) -> None:
        """Leaves this note on the exception, in place of an earlier one of ours.

        A note that is no mark leaves a mark as it is: the retry further in has given up all the
        same.
        """
        carried = exception.__dict__
        if carried:
            keeps = KEEPS_SIGNALS[type(exception)]
            notes = carried.get("__notes__") if keeps else attribute(exception, "__notes__")
            if isinstance(notes, list):
                notes[:] = [note for note in notes if not self._replaces(note)]
        add_note(exception, self)

    def _replaces(self, note: object) -> bool:
        if not isinstance(note, str) or not note.startswith(_OURS):
            return False
        return self.is_mark or type(note) is not GaveUp or note.moment == NO_MOMENT

    def __deepcopy__(self, _memo: dict[int, object]) -> Self:
        return self  # it is a value, and a copy was made at the same moment

    def __reduce__(self) -> tuple[Callable[..., GaveUp], tuple[str | int, ...]]:
        given = (str(self), self.reason, self.token, self.attempts, self.inside)
        further_in = () if self.by == self.operation else (self.by,)
        return _rebuild, (*given, self.operation, self.is_mark, *further_in)


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


arrivals: list[Callable[[], int]] = []
"""What counts the moments, if it is loaded: the first one is asked when a mark arrives."""
_NEVER_MARKS = {stop.text for stop in (NOT_RETRYABLE, MAY_BE_APPLIED, COLLAPSED)}


def _rebuild(
    text: str,
    reason: str,
    token: int,
    attempts: int,
    inside: int = 0,
    operation: str = "",
    is_mark: bool | None = None,
    by: str = "",
) -> GaveUp:
    """A note out of a pickle; a mark counts as made now. Older versions had no `is_mark`."""
    if is_mark is None:
        is_mark = max(attempts, inside) > 1 and reason not in _NEVER_MARKS
    note = str.__new__(GaveUp, text)
    note.attempts, note.inside, note.reason, note.token = attempts, inside, reason, token
    note.operation, note.is_mark, note.by = operation, is_mark, by or operation
    note.moment = arrivals[0]() if is_mark and arrivals else NO_MOMENT
    return note


def newest_mark(exception: BaseException) -> GaveUp | None:
    """The mark that was made last: on this, on what it was raised from, in groups.

    Never on the `__context__`: the failure of a handler is another failure.

    >>> error = OSError("gone")
    >>> newest_mark(error)
    >>> GaveUp("fetch", "no attempt left", 1, 3, moment=7).put_on(error)
    >>> newest_mark(ExceptionGroup("two", [ValueError(), error])).moment
    7
    """
    current: BaseException | None = exception
    for _ in _NEAR:
        if current is None:
            return None  # nothing of it, nor of what it was raised from, can have one
        carried = current.__dict__
        if carried and ("__notes__" in carried or carried.get("response") is not None):
            break
        if not HINTS_ARE_CARRIED[type(current)]:  # a group, perhaps
            break
        current = current.__cause__
    if exception.__cause__ is None and not isinstance(exception, BaseExceptionGroup):
        return mark_on(exception)
    found: GaveUp | None = None
    for current in _reached(exception):
        mark = mark_on(current)
        if mark is not None and (found is None or mark.moment > found.moment):
            found = mark
    return found


def _reached(exception: BaseException) -> Iterator[BaseException]:
    """The exception, what it was raised from, and the members of groups."""
    waiting = [exception]
    for _ in range(_MOST):
        if not waiting:
            break
        current = waiting.pop()
        yield current
        if current.__cause__ is not None:
            waiting.append(current.__cause__)
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(current.exceptions)


def mark_on(exception: BaseException | None) -> GaveUp | None:
    """The mark on this very exception, if it has one that an outer retry can honour."""
    if exception is None:
        return None
    if not KEEPS_SIGNALS[type(exception)]:
        marks = [note for note in _notes_on(exception) if note.moment != NO_MOMENT]
        return marks[0] if marks else None
    carried = exception.__dict__
    notes, response = carried.get("__notes__"), carried.get("response")
    if isinstance(notes, list):
        for note in notes:
            if type(note) is GaveUp and note.moment != NO_MOMENT:
                return note
    of_response = None if response is None else note_of_response(response)
    has_mark = of_response is not None and of_response.moment != NO_MOMENT
    return of_response if has_mark else None


def _notes_on(exception: BaseException | None) -> list[GaveUp]:
    """Our notes on an exception, and the one that the response it carries has."""
    notes = attribute(exception, "__notes__")
    found = [note for note in notes if type(note) is GaveUp] if isinstance(notes, list) else []
    response = attribute(exception, "response")
    note = None if response is None else note_of_response(response)
    return found if note is None else [*found, note]


# --- over HTTP ------------------------------------------------------------------------------------

ON_RESPONSE = "ms_gave_up"
"""Where a response has the note of a retry that gave up on it: a key of its `extensions`, or an
attribute. What `raise_for_status()` raises then has the response, and so the note."""


def note_of_response(response: object) -> GaveUp | None:
    """The note of a retry further in that gave up on a response."""
    if type(response) is dict:  # botocore's, parsed
        return None
    try:
        extensions: UserValue = getattr(response, "extensions", None)
        has_some = isinstance(extensions, dict)
        note = extensions.get(ON_RESPONSE) if has_some else getattr(response, ON_RESPONSE, None)
    except Exception:  # a property may raise
        return None
    return note if type(note) is GaveUp else None


def gave_up_headers(error: BaseException | None) -> dict[str, str]:
    """The header for a response that answers with this failure, if a retry has given up on it.

    The caller's retry then does not repeat the request. Empty if no retry gave up on that very
    failure, on what it was raised from or on a member of the group; and of None, which a handler
    has that is called without a failure.

    >>> import mainstay
    >>> @mainstay.retry(on=ConnectionError, attempts=2)
    ... def load():
    ...     raise ConnectionError("gone")
    >>> try:
    ...     load()
    ... except ConnectionError as error:
    ...     mainstay.gave_up_headers(error)
    {'Mainstay-Gave-Up': '2'}
    >>> mainstay.gave_up_headers(ConnectionError("another one"))
    {}
    """
    note = None if error is None else given_up(error)
    return {} if note is None else {GAVE_UP: str(note.made)}


def given_up(error: BaseException) -> GaveUp | None:
    """The mark with the most attempts that a failure has, whenever it was made."""
    notes = [note for each in _reached(error) for note in _notes_on(each) if note.is_mark]
    return max(notes, key=lambda note: note.made, default=None)


def arrived(operation: str, attempts: int) -> GaveUp:
    """The mark of a service that answered with its header; it counts as made now.

    >>> arrived("orders.internal", 3)
    'mainstay: gave up on orders.internal after 3 attempts: as its answer states'
    """
    moment = arrivals[0]() if arrivals else NO_MOMENT
    return GaveUp(operation, "as its answer states", 0, attempts, moment=moment)
