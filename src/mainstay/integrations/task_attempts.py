"""The attempts at a task of a queue, whose redelivery is the retry: Celery, Taskiq and others.

A queue that delivers a task again keeps the time in between, and a program that ends loses nothing.
So an attempt here is one delivery. The policy decides what becomes of a failure; the number of the
attempt comes from the message, and from a store if there is one: a delivery that was made again
because its worker was killed has the same number in the message as before.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING
from warnings import warn

import mainstay.runtime.clock as clock
from mainstay.core.base.change import Change, read_as
from mainstay.core.base.deadline import NEVER
from mainstay.core.base.entropy import key_of, uniform
from mainstay.core.base.spaces import Space
from mainstay.core.known.kind import Kind
from mainstay.core.retry.call import Care
from mainstay.core.retry.effects import Question, Warn
from mainstay.core.retry.plan import Plan
from mainstay.core.retry.policy import Policy, async_fields
from mainstay.errors import OutcomeUnknown, StoreUnavailable, UsageError

if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.base.types import Answer
    from mainstay.ports import Store

SPACE = Space.TASKS.value
"""Where the store has the numbers of attempts."""
KEPT = 30 * 86_400.0
"""Seconds from the last attempt on: longer than a queue holds a task back."""
_OF_THE_QUEUE = {
    "attempt_timeout": "set the time limit of the queue, or call a policy inside the task",
    "deadline": "set the time limit or the expiry of the queue, or call a policy inside the task",
    "retry_if_result": "raise an exception for such a result",
    "before_retry": "use what the queue announces",
    "after_retry": "use what the queue announces",
}
"""What a policy may have and a queue cannot carry out, with what to do instead."""


class Attempts:
    """Counts the attempts at tasks, and decides what follows a failure.

    Args:
        policy: decides which failures are retried, how often, and after which delay. Its `nested`
            counts as "allow": a retry inside the task keeps its own attempts.
        store: counts the attempts by the task's id, such as `engine.store`; None if the queue does.
    """

    __slots__ = ("_uncounted", "policy", "store")

    def __init__(self, policy: Policy, store: Store | None) -> None:
        if not isinstance(policy, Policy):
            raise UsageError(
                f"policy = {policy!r}: must be a RetryPolicy",
                hint="an operation of an engine is called inside the task",
            )
        if store is not None and not callable(getattr(store, "transact", None)):
            raise UsageError(
                f"store = {store!r}: must be a store, or None",
                hint="such as engine.store",
            )
        for name, remedy in _OF_THE_QUEUE.items():
            if getattr(policy, name) is not None:
                raise UsageError(f"a queue does not carry out {name} of a policy", hint=remedy)
        for name in async_fields(policy):
            raise UsageError(f"{name} of a policy for tasks has an async function")
        self.policy: Policy = policy.replace(nested="allow")
        self.store = store
        self._uncounted = self.policy.replace(
            retry_on=StoreUnavailable, never_retry_on=(), classify=None
        )
        """An attempt that could not be counted is not made, and made later."""

    def begin(self, name: str, task_id: str, number: int) -> int:
        """The number of an attempt that begins; `number` is the one that the queue has.

        Raises:
            OutcomeUnknown: if the last attempt was made, and its worker did not come to its end.
            StoreUnavailable: if it could not be counted; then it must not be made.
        """
        if self.store is None:
            return number
        counted = self.store.transact(SPACE, f"{name} {task_id}", _count)
        return self._within(name, max(number, counted))

    async def abegin(self, name: str, task_id: str, number: int) -> int:
        """As `begin`, in an event loop."""
        if self.store is None:
            return number
        counted = await self.store.atransact(SPACE, f"{name} {task_id}", _count)
        return self._within(name, max(number, counted))

    def _within(self, name: str, number: int) -> int:
        if number <= self.policy.max_attempts:
            return number
        error = OutcomeUnknown(name, hint="look what it has done before it is sent again")
        error.add_note(
            f"mainstay: attempt {self.policy.max_attempts} of {self.policy.max_attempts} at {name}"
            " has begun, and its worker was lost"
        )
        raise error

    def delay(self, name: str, task_id: str, number: int, error: BaseException) -> float | None:
        """The seconds before the next attempt; None if the failure is final, which gets a note."""
        if isinstance(error, OutcomeUnknown):
            return None
        key = key_of(int.from_bytes(blake2b(task_id.encode(), digest_size=8).digest()), 0)
        plan = Plan(self._policy_for(error), name, token=0)
        care = Care(plan, key, None, NEVER, self.policy.max_attempts, None)
        care.counts = dict.fromkeys(Kind, number - 1)  # a queue does not keep the kinds
        return _decided(care, error, number, self._previous(key, number))

    def _policy_for(self, error: BaseException) -> Policy:
        if isinstance(error, StoreUnavailable) and self.store is not None:
            return self._uncounted if error.url == self.store.url else self.policy
        return self.policy

    def _previous(self, key: int, number: int) -> float:
        """The delay before this attempt, which the next one depends on by some jitters."""
        if self.policy.jitter.is_share or self.policy.backoff.kind == "custom":
            return 0.0
        delay = 0.0
        for n in range(1, number):
            delay = self.policy.delay(n, uniform(key, n), delay)
        return delay


def _count(value: bytes | None, now: float) -> tuple[Change, int]:
    number = 1 + (0 if value is None else read_as(int, value, "attempts at a task"))
    return Change(str(number).encode(), now + KEPT), number


def _decided(care: Care, error: BaseException, number: int, previous: float) -> float | None:
    """Answers what the flow of a call asks after a failure, until it has decided."""
    deciding, answer = care.decide(error, number, previous), None
    while True:
        try:
            effect: Any = deciding.send(answer)
        except StopIteration as decided:
            return decided.value if type(decided.value) is float else None
        answer = _answer(effect)


def _answer(effect: Any) -> Answer:
    if isinstance(effect, Warn):
        warn(effect.text, effect.category, stacklevel=2)
    if effect is Question.SINCE:
        return 0
    return clock.current.wall() if effect is Question.WALL else None
