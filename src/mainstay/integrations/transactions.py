"""The attempts at one transaction, as run_transaction of psycopg.py and sqlalchemy.py makes them.

A transaction that has not reached its COMMIT has left nothing behind, whatever it failed with: it
is run again. If the COMMIT itself failed and the server did not answer, it may have been applied:
it is not run again, under any policy, unless it is declared idempotent.
"""

from __future__ import annotations

from inspect import isasyncgenfunction, isgeneratorfunction

from mainstay.core.retry.kinds import kind_of
from mainstay.errors import CallCancelled, OutcomeUnknown, WrapError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any, ParamSpec, Protocol, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")
    F = TypeVar("F", bound=Callable[..., Any])

    class Caller(Protocol):
        """Calls a function, and again: a RetryPolicy, or an engine's operation."""

        def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

        async def acall(
            self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
        ) -> R: ...


_HINT = "look before repeating it; idempotent=True if it may run twice"


class Runs:
    """The attempts at one transaction.

    An attempt that a timeout has cut may still be running, in a thread that was abandoned: it
    announces its COMMIT and then looks whether it is still the newest; the next one makes itself
    the newest and then looks for a COMMIT that was announced.
    """

    __slots__ = ("_committing", "_is_idempotent", "_newest", "name")

    def __init__(self, function: Callable[..., Any], *, idempotent: bool) -> None:
        self.name: str = getattr(function, "__qualname__", None) or type(function).__qualname__
        if isgeneratorfunction(function) or isasyncgenfunction(function):
            raise WrapError(
                f"{self.name} is a generator function: its statements would be run after COMMIT",
                hint="collect the values in a function, and return them",
            )
        self._is_idempotent = idempotent
        self._newest = 0
        self._committing = 0
        """The attempt whose COMMIT was sent and has not been answered."""

    def begin(self) -> int:
        """The number of a new attempt; refused after a COMMIT that nobody knows the outcome of."""
        self._newest += 1
        if self._committing and not self._is_idempotent:
            raise OutcomeUnknown(self.name, hint=_HINT)
        return self._newest

    def commits(self, number: int) -> None:
        """Announces the COMMIT of an attempt; refused if another has begun meanwhile."""
        before, self._committing = self._committing, number
        if number != self._newest:
            self._committing = before
            raise CallCancelled(self.name, number)

    def committed(self) -> None:
        """The COMMIT was answered."""
        self._committing = 0

    def failed(self, number: int, error: Exception) -> None:
        """Raises OutcomeUnknown if it was the COMMIT that failed, and the server did not refuse it.

        The server refuses with an error code; what has none is a failure of the connection.
        """
        if self._committing != number:
            return
        known = kind_of(error)
        if known.by_code and not known.is_ambiguous:
            self._committing = 0
        elif not self._is_idempotent:
            raise OutcomeUnknown(self.name, hint=_HINT) from error

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        """Raises OutcomeUnknown if the call has ended while a COMMIT was not answered.

        As when its deadline cut the attempt, which then had nothing to raise.
        """
        in_doubt = self._committing and not self._is_idempotent
        if in_doubt and isinstance(error, Exception) and not isinstance(error, OutcomeUnknown):
            raise OutcomeUnknown(self.name, hint=_HINT) from error


def named(attempt: F, function: Callable[..., Any]) -> F:
    """Gives an attempt the name of the user's function, which records and messages have."""
    for name in ("__module__", "__name__", "__qualname__"):
        setattr(attempt, name, getattr(function, name, getattr(attempt, name)))
    return attempt


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, and at least one: zero means no limit to a database.

    >>> milliseconds(0.25), milliseconds(0.0)
    (250, 1)
    """
    return max(1, int(seconds * 1000.0))


_UNITS = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def shown_milliseconds(text: str) -> int:
    """A timeout as PostgreSQL shows it, in milliseconds; zero means none.

    >>> shown_milliseconds("0"), shown_milliseconds("1500ms"), shown_milliseconds("5min")
    (0, 1500, 300000)
    """
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    return int(digits) * _UNITS.get(text[len(digits) :], 1)


_MARGIN = 0.04
"""Seconds by which the server gives up before the client, and an async client before the deadline:
the server's answer keeps the connection, and a driver that is cancelled cleans up for seconds."""


def client_limit(left: float) -> float:
    """How long an async client may wait for an answer, of the seconds that are left.

    >>> client_limit(0.5), client_limit(0.02)
    (0.46, 0.01)
    """
    return max(left - _MARGIN, left / 2.0, 0.001)


def limit_statement(left: float, session: int) -> str:
    """The statement that limits those after it, in this transaction; empty if the session does.

    >>> limit_statement(0.5, 0), limit_statement(60.0, 5000)
    ('SET LOCAL statement_timeout = 420', '')
    """
    own = milliseconds(client_limit(client_limit(left)))
    return "" if 0 < session <= own else f"SET LOCAL statement_timeout = {own}"
