"""One HTTP request in one or more attempts: what the integrations of the clients share.

An integration derives its own Exchange: it knows the library's request and response. Here is what
is put on a request and taken off again, what a response with an error status is raised as, and
which response is returned in the end.

A response that is to be repeated does not keep its connection while the policy waits: a short body
is read and kept, so that the connection goes back to the pool, and any other response is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay import deadline
from mainstay.core.base.deadline import NEVER
from mainstay.core.known.http import ONCE, unsafe_request
from mainstay.core.retry.give_up import ON_RESPONSE, given_up
from mainstay.core.retry.hooks import RELEASE
from mainstay.errors import OutcomeUnknown
from mainstay.integrations.http_headers import KEY
from mainstay.runtime.context import BOUND, UNBOUND
from mainstay.runtime.enclosing import attempt_around, enclosures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping
    from typing import Any, TypeVar

    from mainstay.integrations.http_headers import Outgoing

    E = TypeVar("E", bound=Exception)

NOTES = "mainstay_notes"
"""Where a response that was returned has the notes: why it was not repeated."""


LONGEST = 65536
"""Bytes of a body that are read for the sake of its connection; a new one costs less than more."""
PATIENCE = 0.5
"""Seconds that the rest of such a body is waited for."""


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


def one_attempt(name: str, failures: type[Exception]) -> Callable[[Exchange], Any]:
    """The function that makes an attempt with a client that is not async, for a policy to call.

    Args:
        name: what notes and events call it.
        failures: the base of what the client raises.
    """

    def send(exchange: Exchange) -> Any:
        if exchange.attempt:
            if exchange.check_repeat():
                exchange.release()
            exchange.rewind()
        end = exchange.begin()
        try:
            response = exchange.send(end)
        except failures as error:
            raise exchange.failed(error)  # noqa: B904 -- the same one, with its request
        except Exception:
            exchange.is_under_way = False
            raise
        finally:
            if exchange.is_touched:
                exchange.end()
        exchange.is_under_way = False
        status = exchange.status_of(response)
        if status >= 400:
            exchange.answered(response, status)
        exchange.response = response  # to be closed, if the policy does not accept it
        return response

    send.__qualname__ = name
    return send


def end_around() -> float:
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
    is_released = False
    """Whether the response has given its connection back."""

    def __init__(self, outgoing: Outgoing, request: Any) -> None:
        self.outgoing = outgoing
        self.request = request
        self.until = None if outgoing.limits else end_around()
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

    def send(self, end: float) -> Any:
        """Sends the request, if `one_attempt` makes the attempts; returns the response."""
        raise NotImplementedError

    def status_of(self, response: Any) -> int:
        """The status of a response, for `one_attempt`."""
        raise NotImplementedError

    def rewind(self) -> None:
        """Has the body begin where it began for the first attempt, for `one_attempt`."""

    def release(self) -> Any:
        """Reads a short body and keeps it, or closes the response; awaited if the client is."""
        raise NotImplementedError

    def limit(self, end: float) -> None:
        """Puts the end on the request, if the library has a place for it there."""

    # --- an attempt -----------------------------------------------------------------------------

    def check_repeat(self) -> bool:
        """Raises what must not be repeated; else whether a response still has its connection."""
        if self.failure is not None:
            raise self.failure
        if self.is_under_way:
            self._refuse_after_cut()
        return self.response is not None and not self.is_released

    def has_short_body(self) -> bool:
        """Whether the body of the response is short, as far as its headers state that."""
        length = self.response.headers.get("Content-Length")
        return length is None or not length.isdigit() or int(length) <= LONGEST

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
        self.response, self.is_released = None, False
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
        error = self.failed(self.status_error(text, request=self.request, response=response))
        setattr(error, RELEASE, self.release)
        raise error

    # --- the end --------------------------------------------------------------------------------

    def last_response(self, error: BaseException) -> Any:
        """The response that a failure stands for: a client does not raise for a status; or None."""
        failure = error.__cause__ if isinstance(error, OutcomeUnknown) else error
        if failure is not None:
            vars(failure).pop(RELEASE, None)
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


class Body:
    """A body that can be read once; knows whether it has been."""

    def __init__(self, body: Any) -> None:
        self.given = body
        self.begun = False

    def __iter__(self) -> Iterator[Any]:
        self.begun = True
        if not hasattr(self.given, "read"):
            yield from self.given
            return
        while block := self.given.read(_BLOCK):
            yield block


_BLOCK = 16384
