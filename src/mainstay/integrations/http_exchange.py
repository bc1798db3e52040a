"""One HTTP request in one or more attempts: what the integrations of the clients share.

An integration derives its own Exchange: it knows the library's request and response. Here is what
is put on a request and taken off again, what a response with an error status is raised as, and
which response is returned in the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay import deadline
from mainstay.core.base.deadline import NEVER
from mainstay.core.known.http import ONCE, unsafe_request
from mainstay.core.retry.give_up import ON_RESPONSE, given_up
from mainstay.errors import OutcomeUnknown
from mainstay.integrations.http_headers import KEY
from mainstay.runtime.context import BOUND, UNBOUND
from mainstay.runtime.enclosing import attempt_around, enclosures

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any, TypeVar

    from mainstay.integrations.http_headers import Outgoing

    E = TypeVar("E", bound=Exception)

NOTES = "mainstay_notes"
"""Where a response that was returned has the notes: why it was not repeated."""


class Until(float):
    """A timeout of some seconds that also ends at a moment.

    To a client it is a number. What reads and writes for the client asks for `left` each time.
    """

    __slots__ = ("end",)
    end: float

    def left(self, error: type[Exception]) -> float:
        """The seconds of it that are left now; raises the error if there are none."""
        rest = self.end - clock.current.monotonic()
        if rest <= 0.0:
            raise error("the deadline has passed")
        return min(float(self), rest)


def limited(given: float | None, end: float) -> Until:
    """The timeout that a client was given, and never past the end."""
    rest = max(0.0, end - clock.current.monotonic())
    timeout = Until(rest if given is None else min(given, rest))
    timeout.end = end
    return timeout


def _end_around() -> float:
    """As `deadline.moment()`, and quicker if nothing is around."""
    if BOUND.get() is UNBOUND and not enclosures():
        return NEVER
    return deadline.moment()


class Exchange:
    """A request, what was put on it for an attempt, and the response that may yet be returned.

    Most requests need nothing of it: what they do not need is set when it is needed.
    """

    status_error: Any
    """The library's own exception for a status, by which the policy judges the response."""
    response: Any = None
    attempt = 0
    failure: Exception | None = None
    """What is raised again if a rule of the policy's own repeats what cannot be sent again."""
    is_under_way = False
    """Whether an attempt has begun and did not end: once the next one begins, it was cut."""
    due = NEVER
    """The end of the attempt, if it is one in a thread."""
    headers: dict[str, str] | None = None
    is_touched = False
    """Whether something was put on the request that is to be taken off."""

    def __init__(self, outgoing: Outgoing, request: Any) -> None:
        self.outgoing = outgoing
        self.request = request
        self.until = None if outgoing.limits else _end_around()
        """The end of every attempt; None if the policy limits each one. Before the call nothing of
        ours is on the stack, so it is a few times quicker to find out."""

    # --- of the library -------------------------------------------------------------------------

    @property
    def address(self) -> tuple[str, int | None]:
        """The host and the port that the request goes to."""
        raise NotImplementedError

    @property
    def is_spent(self) -> bool:
        """Whether the body was read, in part or whole, and cannot be read again."""
        raise NotImplementedError

    def marks_of(self, response: Any) -> MutableMapping[str, Any]:
        """Where a response has the mark of a give-up."""
        raise NotImplementedError

    def late(self, text: str) -> Exception:
        """The library's own timeout for a request of which nothing was sent."""
        raise NotImplementedError

    def cut(self, text: str) -> Exception:
        """The library's own timeout for a request that may have been sent."""
        raise NotImplementedError

    def limit(self, end: float) -> None:
        """Puts the end on the request, if the library has a place for it there."""

    # --- an attempt -----------------------------------------------------------------------------

    def take_response(self) -> Any:
        """The response of the attempt before, to be closed: another attempt is made."""
        if self.failure is not None:
            raise self.failure
        if self.is_under_way:
            self._refuse_after_cut()
        response, self.response = self.response, None
        return response

    def _refuse_after_cut(self) -> None:
        """Raises the timeout of an attempt that was cut, if the request must not be repeated.

        The policy has an AttemptTimeout for it, which does not carry the request.
        """
        error = self.failed(self.cut("the attempt was cut, and may have been carried out"))
        self.is_under_way = False
        if self.failure is not None or unsafe_request(error):
            raise error

    def begin(self) -> float:
        """Puts our headers on the request; returns the moment at which it must be over."""
        self.attempt += 1
        end = deadline.moment() if self.until is None else self.until
        if end != NEVER:
            if end <= clock.current.monotonic():
                raise self.late("no time is left before the deadline")
            self.limit(end)
        if self.outgoing.trust:
            self._put_headers(end)
        self.is_under_way = True
        if self.outgoing.threads:
            self.due = end
        return end

    def _put_headers(self, end: float) -> None:
        request = self.request
        number = attempt_around() if self.outgoing.calls is None else self.attempt
        made = self.outgoing.headers(*self.address, request.method, number, end)
        self.headers = {name: each for name, each in made.items() if name not in request.headers}
        request.headers.update(self.headers)
        self.is_touched = True

    def end(self) -> None:
        """Takes off what must not follow a redirect; the key stays, since a repeat needs it."""
        for name in self.headers or ():
            if name != KEY:
                del self.request.headers[name]
        self.headers = None
        self.is_touched = False

    def failed(self, error: E) -> E:
        """The failure, with the request by which it is judged.

        In a thread one that comes as late as this may come after the policy has cut the attempt.
        """
        self.is_under_way = self.due != NEVER and self.due <= clock.current.monotonic()
        error.request = self.request  # type: ignore[attr-defined]  # all the libraries have it
        if self.is_spent:
            self.failure = error
            setattr(error, ONCE, f"{self.request.method} whose body cannot be read again")
        return error

    def answered(self, response: Any, status: int) -> Any:
        """A response with an error status; it is raised, if there is a policy to judge it."""
        host, port = self.address
        mark = self.outgoing.mark_of(host, port, response.headers)
        if mark is not None:
            self.marks_of(response)[ON_RESPONSE] = mark
        if self.outgoing.calls is None:
            return response
        self.response = response
        text = f"status {status} from {host or 'the server'}"
        raise self.failed(self.status_error(text, request=self.request, response=response))

    # --- the end --------------------------------------------------------------------------------

    def last_response(self, error: BaseException) -> Any:
        """The response that a failure stands for: a client does not raise for a status; or None."""
        failure = error.__cause__ if isinstance(error, OutcomeUnknown) else error
        if self.response is None or getattr(failure, "response", None) is not self.response:
            return None
        marks, note = self.marks_of(self.response), given_up(error)
        if note is not None:
            marks[ON_RESPONSE] = note
        notes = getattr(error, "__notes__", None)
        if notes:
            marks[NOTES] = tuple(str(each) for each in notes)
        self.failure = None
        return self.response
