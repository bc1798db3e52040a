"""The signs of a failure: all that decides about it, so that the next one like it is decided."""

from __future__ import annotations

from mainstay.core.base.attributes import KEEPS_SIGNALS, signals_of
from mainstay.core.known.codes import codes_of
from mainstay.core.known.http import status_of
from mainstay.core.known.naming import STATUS, is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from mainstay.core.known.kind import Known

    Signs: TypeAlias = tuple[object, ...]

_NUMBERS = (int, type(None))


class Asked:
    """What the rules of a policy ask of a failure, besides its class and its kind."""

    __slots__ = ("classes", "names", "statuses")

    def __init__(self, retry_on: Iterable[object], never_retry_on: Iterable[object]) -> None:
        named = [rule for rule in (*retry_on, *never_retry_on) if is_name(rule)]
        self.names = bool(named)
        """Whether a rule is a name, which may be that of an error code."""
        self.statuses = any(name.startswith(STATUS) for name in named)
        self.classes = any(isinstance(rule, type) for rule in retry_on)

    def signs(self, exception: BaseException, known: Known) -> Signs:
        """Those of a failure; two failures with the same signs are decided alike."""
        has_codes = self.names
        if self.classes and not has_codes and (known.by_code or known.unsafe):
            has_codes = bool(known.unsafe) or _has_others(exception, known)
        if known.is_shared and not has_codes:
            return type(exception), known
        return (
            type(exception), known.kind._value_, known.reason, known.by_type, known.by_code,
            known.is_ambiguous, known.unsafe, known.once, known.table,
            codes_of(exception) if has_codes else None,
            status_of(exception) if self.statuses else None,
        )  # fmt: skip

    def is_numbered(self, exception: BaseException, known: Known) -> bool:
        """Whether its class and the numbers of the system are all that decides."""
        is_bare = isinstance(exception, OSError) and not exception.__dict__ and not known.table
        return is_bare and not self.names and signals_of(exception) is not None


def _has_others(exception: BaseException, known: Known) -> bool:
    """Whether a code of it, besides those that are known, may be the name of a class.

    A status is none.
    """
    if not (known.by_status or known.codes) or not KEEPS_SIGNALS[type(exception)]:
        return True
    response = exception.__dict__.get("response")
    error = response.get("Error") if isinstance(response, dict) else None
    return isinstance(error, dict) and error.get("Code") not in known.codes


def numbers_of(exception: BaseException) -> Signs:
    """The class and the numbers of an OSError; empty if it has anything else in their place.

    >>> numbers_of(OSError(2, "no such file"))
    (<class 'FileNotFoundError'>, 2, None)
    """
    try:
        number, of_windows = getattr(exception, "errno", None), getattr(exception, "winerror", None)
    except Exception:  # a property of a class of its own
        return ()
    is_usual = type(number) in _NUMBERS and type(of_windows) in _NUMBERS
    return (type(exception), number, of_windows) if is_usual else ()
