"""Checks on values, collecting every problem instead of stopping at the first.

A check returns the cleaned value, or notes a Problem and returns the value as it came; `close()`
raises when anything was noted, so nothing half-built remains.
"""

from __future__ import annotations

from mainstay.core.base.functions import is_async
from mainstay.errors import PolicyError, Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mainstay.core.base.types import Seconds

MAX_ATTEMPTS = 1_000_000
"""More attempts than any policy means; at one a second it is eleven days."""

MAX_SECONDS = 31_622_400.0
"""366 days: longer than any wait, and far below what a platform's timers overflow at."""
MIN_WINDOW = 0.01
"""The shortest window, in seconds, over which something is counted."""


def in_seconds(value: object) -> object:
    """The seconds of a timedelta; anything else as it is.

    It is recognised by its method, so that datetime is not imported for it, and so that the
    durations of other libraries are read too.

    >>> from datetime import timedelta
    >>> in_seconds(timedelta(minutes=1)), in_seconds(2.5)
    (60.0, 2.5)
    """
    seconds = getattr(type(value), "total_seconds", None)
    return value if seconds is None else seconds(value)


def seconds_of(length: Seconds) -> float:
    """The seconds of a length of time that is not checked here.

    >>> from datetime import timedelta
    >>> seconds_of(timedelta(minutes=1)), seconds_of(2.5)
    (60.0, 2.5)
    """
    return in_seconds(length)  # type: ignore[return-value]


class Checker:
    """Collects what is wrong with one subject."""

    __slots__ = ("problems", "subject")

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.problems: list[Problem] = []

    def note(self, field: str, value: object, allowed: str) -> None:
        self.problems.append(Problem(field, value, allowed))

    def include(self, error: PolicyError, names: Mapping[str, str]) -> None:
        """Adds the problems of a part of the subject, under the names that its fields have here."""
        self.problems += [Problem(names[p.field], p.value, p.allowed) for p in error.problems]

    def close(self) -> None:
        if self.problems:
            raise PolicyError(self.subject, self.problems)

    def attempts(self, field: str, value: object) -> int:
        return self.count(field, value, MAX_ATTEMPTS)

    def count(self, field: str, value: object, most: int, least: int = 1) -> int:
        """An integer (not a bool) from `least` to `most`."""
        if type(value) is int and least <= value <= most:
            return value
        self.note(field, value, f"an integer from {least} to {most}")
        return least

    def number(self, field: str, value: object, low: float, high: float, unit: str = "") -> float:
        """A finite number (not a bool) in [low, high]."""
        if type(value) in (int, float) and low <= value <= high:  # type: ignore[operator]
            return float(value)  # type: ignore[arg-type]
        self.note(field, value, f"a finite number{unit} from {low:g} to {high:.9g}")
        return low

    def seconds(self, field: str, value: object, *, zero: bool = True) -> float:
        value = in_seconds(value)
        if zero or value != 0 or type(value) not in (int, float):
            return self.duration(field, value, 0.0, MAX_SECONDS)
        self.note(field, value, "more than 0 seconds")
        return 0.0

    def duration(self, field: str, value: object, low: float, high: float) -> float:
        """Seconds in [low, high], or a timedelta of such a length."""
        return self.number(field, in_seconds(value), low, high, " of seconds")

    def optional_seconds(self, field: str, value: object) -> float | None:
        return None if value is None else self.seconds(field, value, zero=False)

    def name(self, field: str, value: object) -> str:
        if isinstance(value, str) and value.strip() and value == value.strip():
            return value
        self.note(field, value, "a text that is not empty and has no spaces around it")
        return "?"

    def choice(self, field: str, value: object, allowed: Iterable[str]) -> str:
        choices = tuple(allowed)
        if isinstance(value, str) and value in choices:
            return str(value)
        self.note(field, value, "one of " + ", ".join(choices))
        return choices[0]

    def instance(self, field: str, value: object, kind: type, such_as: str = "") -> None:
        """Notes what is given and no instance of the class; None is not given."""
        if value is not None and not isinstance(value, kind):
            article = "an" if kind.__name__[0].lower() in "aeio" else "a"
            example = f", such as {such_as}" if such_as else ""
            self.note(field, value, f"{article} {kind.__name__}{example}")

    def function(self, field: str, value: object) -> None:
        if value is not None and (not callable(value) or isinstance(value, type)):
            self.note(field, value, "a function, or None")

    def plain_function(self, field: str, value: object) -> None:
        """A function whose result is used at once, so it cannot be async."""
        self.function(field, value)
        if is_async(value):
            self.note(field, value, "a plain function: nothing awaits it")


def positive_seconds(subject: str, field: str, value: object) -> float:
    """The seconds of one length of time, more than none; `subject` is what it is given to.

    >>> positive_seconds("Cache", "ttl", 30.0)
    30.0
    """
    check = Checker(subject)
    seconds = check.seconds(field, value, zero=False)
    check.close()
    return seconds
