"""What HTTP clients hand on with a request: the time that is left, the key and the attempt.

Shared by the integrations of the clients. A header of ours goes only to a host that `trust` lists,
and is believed only from one: the names and their forms are in core/known/headers.py.
"""

from __future__ import annotations

import sys
import warnings
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay import deadline
from mainstay.core.base.deadline import NEVER
from mainstay.core.base.validate import MAX_SECONDS
from mainstay.core.known.headers import (
    ATTEMPT,
    GAVE_UP,
    TIMEOUT,
    Trust,
    parse_gave_up,
    parse_timeout,
    timeout_text,
)
from mainstay.core.retry.give_up import arrived
from mainstay.errors import MainstayWarning, UsageError
from mainstay.integrations.idempotency_key import IdempotencyKeyHeader, current_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import FrameType
    from typing import Any, Protocol, TypeVar

    from mainstay.core.retry.give_up import GaveUp

    R = TypeVar("R")

    class Calls(Protocol):
        """A RetryPolicy, or an operation of an engine."""

        def call(self, function: Callable[..., R], /, *args: Any) -> R: ...
        def acall(self, function: Callable[..., Awaitable[R]], /, *args: Any) -> Awaitable[R]: ...

    class Operations(Protocol):
        """An engine."""

        def operation(self, name: str) -> Calls: ...


KEY = "Idempotency-Key"
PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
"""The port of a URL that has none."""
_KEYED_METHODS = frozenset({"POST", "PATCH"})
_key_header = IdempotencyKeyHeader()
_warned: set[str] = set()
_NO_TIME = 1e-9
"""Stands for a deadline that has passed: what starts inside finds no time left."""


class Outgoing:
    """What the hands of every client have: what retries, and which hosts are trusted."""

    __slots__ = ("attempts", "calls", "limits", "threads", "trust")

    def __init__(
        self, retry: Calls | Operations | None, trust: Iterable[str], operation: str
    ) -> None:
        self.calls = calls_of(retry, operation)
        self.trust = Trust(trust)
        policy: Any = getattr(self.calls, "policy", self.calls)
        self.attempts = int(getattr(policy, "max_attempts", 1))
        self.threads = getattr(policy, "timeout_by", "") == "thread"
        """Whether an attempt may still run, in a thread that was abandoned, when another begins."""
        limits = (getattr(policy, "attempt_timeout", None), getattr(policy, "deadline", None))
        self.limits = limits != (None, None)
        """Whether the policy limits an attempt; the deadline around the call does in any case."""

    def retried(self, send: Callable[..., R]) -> Callable[..., R]:
        """The function that makes one attempt, as often as the policy allows.

        A policy decorates it, which is quicker than a call by the policy.
        """
        calls: Any = self.calls
        if calls is None:
            return send
        if callable(calls):
            made: Callable[..., R] = calls(send)
            return made
        return partial(calls.acall if iscoroutinefunction(send) else calls.call, send)

    def headers(
        self, host: str, port: int | None, method: str, attempt: int, end: float
    ) -> dict[str, str]:
        """The headers for one attempt; none for a host that is not listed."""
        if not self.trust.covers(host, port):
            return {}
        made = {ATTEMPT: str(attempt)}
        if end != NEVER:
            made[TIMEOUT] = timeout_text(end - clock.current.monotonic())
        if method in _KEYED_METHODS and current_key() is not None:
            made = _key_header.headers(made)
        return made

    def mark_of(self, host: str, port: int | None, headers: Any) -> GaveUp | None:
        """The mark of a service that has given up, if it is listed and its answer has one."""
        if not self.trust or headers.get(GAVE_UP) is None or not self.trust.covers(host, port):
            return None
        attempts = parse_gave_up(headers.get(GAVE_UP))
        return None if attempts is None else arrived(host, attempts)

    def warn_of_retries(
        self, library: str, own: int, remedy: str, *, where: str = "inside"
    ) -> None:
        """Warns once that the library repeats by itself what is repeated here."""
        if own <= 0 or self.attempts <= 1 or library in _warned:
            return
        _warned.add(library)
        n, m = own + 1, self.attempts
        warnings.warn(
            f"{library} repeats a request up to {n} times {where} a retry of {m} attempts: up to"
            f" {n} x {m} = {n * m} requests; {remedy}",
            MainstayWarning,
            stacklevel=4,
        )

    def warn_of_client(self, headers: Any) -> None:
        """Warns once of a client of an API that repeats what was given up on here.

        openai, anthropic and others that Stainless generates number their requests; how often one
        is sent at most is in the function that called.
        """
        if "x-stainless-retry-count" not in headers:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            library, _, module = str(frame.f_globals.get("__name__")).partition(".")
            own = frame.f_locals.get("max_retries") if module == "_base_client" else None
            if type(own) is int:
                remedy = "pass max_retries=0 to the client"
                self.warn_of_retries(library, own, remedy, where="around")
                return
            frame = frame.f_back


def within(stated: Iterable[str]) -> deadline.within | None:
    """The limit that the values of a `Mainstay-Timeout` come to: the least; None if none is one."""
    seconds = [each for each in map(parse_timeout, stated) if each is not None]
    return deadline.within(min(max(min(seconds), _NO_TIME), MAX_SECONDS)) if seconds else None


def until(end: float) -> deadline.within:
    """A limit up to a moment."""
    return deadline.within(max(end - clock.current.monotonic(), _NO_TIME))


def calls_of(retry: Calls | Operations | None, operation: str) -> Calls | None:
    """What makes the calls: the policy itself, or the operation of an engine."""
    if retry is None:
        return None
    found: Any = getattr(retry, "operation", None)
    if callable(found):
        made: Calls = found(operation)
        return made
    if not callable(getattr(retry, "acall", None)):
        raise UsageError(
            f"retry = {retry!r}: must be a RetryPolicy, an Engine or an operation of one",
            hint="such as RetryPolicy(attempts=3)",
        )
    return retry  # type: ignore[return-value]  # it has call and acall
