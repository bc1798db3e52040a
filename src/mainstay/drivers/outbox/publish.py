"""One attempt to publish an entry, and what the failure of an attempt means for it.

An attempt goes through an operation of the engine: its timeout, its circuit and its other guards.
The delay of a retry is the policy's backoff, written to the table: nothing waits here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.entropy import uniform
from mainstay.core.base.printable import text_of
from mainstay.core.known.kind import Kind
from mainstay.core.outbox.entry import Failure
from mainstay.core.outbox.settle import failed, published, refused
from mainstay.core.retry.effects import Stop
from mainstay.errors import CallCancelled, DeadlineExceeded, Refused
from mainstay.runtime.reports.report_failure import report

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainstay.core.outbox.entry import Entry
    from mainstay.core.outbox.message import Message
    from mainstay.core.outbox.settle import DeadRules, Settlement
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.policy import Policy
    from mainstay.drivers.call.guard import Gate
    from mainstay.drivers.call.site import Entropy

_RETRIED_BY_DEFAULT = frozenset({Kind.UNKNOWN, Kind.AUTH})
"""Kinds that a policy without `retry_on` makes final, and a relay does not: a wrong password of the
relay, or an exception of a function that no table knows, is no reason to give a message up at once.
Its id makes a repetition safe."""
_LONGEST_TEXT = 2000
_FAR = 64
"""A retry whose backoff is at its longest."""


class Attempts:
    """Makes attempts for a relay.

    Args:
        call: publishes a message once, under timeout and guards.
        policy: classification and backoff.
        rules: when an entry is dead.
        gate: what may refuse a retry; None for nothing.
        entropy: randomness of the delays.
        redact: removes secrets from the texts of failures.
        idle: seconds to wait if a guard refuses an attempt without a time of its own.
    """

    def __init__(
        self,
        call: Callable[[Message], Awaitable[object]],
        policy: Policy,
        rules: DeadRules,
        *,
        gate: Gate | None,
        entropy: Entropy,
        redact: Redactor,
        idle: float,
    ) -> None:
        self.rules = rules
        self._call = call
        self._policy = policy
        self._gate = gate
        self._entropy = entropy
        self._redact = redact
        self._idle = idle

    async def attempt(self, entry: Entry, now: Callable[[], float]) -> Settlement:
        """Publishes an entry once; `now` is the clock of the table."""
        try:
            await self._call(entry.message)
        except Refused as error:
            if isinstance(error, DeadlineExceeded | CallCancelled):
                return self._judged(entry, error, now())
            delay = getattr(error, "retry_after", None)
            return refused(entry, now(), self._idle if delay is None else delay)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._judged(entry, error, now())  # a client library cancelled its own work
        except GeneratorExit:  # the event loop is gone
            raise
        except BaseException as error:  # also SystemExit: a message must not hold its aggregate
            return self._judged(entry, error, now())
        return published(entry, now())

    def _judged(self, entry: Entry, error: BaseException, now: float) -> Settlement:
        """What the failure means; one that a policy cannot judge is not kept claimed."""
        try:
            return self._failed(entry, error, now)
        except Exception as own:
            report(own, "the policy of the relay has failed for message %s", entry.id)
            text = f"{type(own).__name__}, raised by the policy after {type(error).__name__}"
            failure = Failure(now, entry.attempts, Kind.UNKNOWN.value, text)
            return failed(entry, failure, self.rules, is_final=False, delay=self._idle)

    def _failed(self, entry: Entry, error: BaseException, now: float) -> Settlement:
        verdict = self._policy.classification(error)
        is_final = not verdict.retryable
        if self._policy.retry_on is None and verdict.kind in _RETRIED_BY_DEFAULT:
            is_final = False
        if isinstance(error, asyncio.CancelledError):  # a client that has lost its connection
            is_final = False
        text = f"{type(error).__name__}: {text_of(error)}"[:_LONGEST_TEXT]
        failure = Failure(now, entry.attempts, verdict.kind.value, self._redact.text(text))
        delay = 0.0 if is_final else self._delay(entry, error, verdict.retry_after)
        return failed(entry, failure, self.rules, is_final=is_final, delay=delay)

    def _delay(self, entry: Entry, error: BaseException, retry_after: float | None) -> float:
        """Seconds before the next attempt; a budget that is spent makes it the longest there is."""
        u = uniform(self._entropy.draw(), entry.attempts)
        delay = max(self._policy.delay(entry.attempts, u), retry_after or 0.0)
        if self._gate is None:
            return delay
        answer = self._gate.consider(error, delay, clock.current.monotonic())
        if isinstance(answer, Stop):
            return max(delay, self._policy.delay(_FAR, u))
        return max(delay, answer)
