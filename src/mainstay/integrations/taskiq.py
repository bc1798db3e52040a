"""Taskiq: tasks whose retries are driven by a policy.

`RetryMiddleware` takes the place of Taskiq's own. If a task fails, the policy decides whether it is
sent again, and after which delay. The delay travels with the message: a broker that knows the label
`delay` holds it back, and otherwise the worker that receives it waits, so one that ends in the wait
loses nothing. A message that is delivered again because its worker was killed has the same number
of retries as before; a store counts it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from taskiq import SimpleRetryMiddleware, SmartRetryMiddleware, TaskiqMiddleware
from taskiq.exceptions import NoResultError, TaskRejectedError
from taskiq.kicker import AsyncKicker

import mainstay.runtime.clock as clock
from mainstay.errors import UsageError
from mainstay.integrations.task_attempts import Attempts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Never

    from taskiq import ScheduleSource, TaskiqMessage, TaskiqResult

    from mainstay.core.retry.policy import Policy
    from mainstay.ports import Store

_RETRIES = "_retries"
"""Where Taskiq's own middlewares have it."""
_ATTEMPT, _UNTIL = "mainstay_attempt", "mainstay_until"


class RetryMiddleware(TaskiqMiddleware):
    """Taskiq's retries, with a policy that decides.

    Args:
        policy: a RetryPolicy.
        store: counts the attempts by the task's id; None if an attempt whose worker was killed may
            be made once more than the policy allows, and again if that one is killed.
        schedule_source: holds a task back until its next attempt, as Taskiq's scheduler does; None
            to wait in the worker, for delays that are short beside the time after which the broker
            delivers a message again.

    Example:
        >>> from taskiq import InMemoryBroker
        >>> from mainstay import RetryPolicy
        >>> retries = RetryMiddleware(RetryPolicy(attempts=3), store=None)
        >>> broker = InMemoryBroker().with_middlewares(retries)
    """

    def __init__(
        self, policy: Policy, *, store: Store | None, schedule_source: ScheduleSource | None = None
    ) -> None:
        super().__init__()
        self._attempts = Attempts(policy, store)
        self._source = schedule_source

    def startup(self) -> None:
        """Refuses a broker whose tasks would be retried by two rules."""
        others = [type(each) for each in self.broker.middlewares if each is not self]
        ours = (RetryMiddleware, SimpleRetryMiddleware, SmartRetryMiddleware)
        if found := [each.__name__ for each in others if issubclass(each, ours)]:
            raise UsageError(
                f"the broker has {found[0]} beside the policy: a task would be sent twice",
                hint="leave it out",
            )

    async def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        """Waits until the attempt is due, and counts it; one beyond the policy is not made."""
        labels = message.labels
        wait = min(
            float(labels.get("delay", 0.0)), float(labels.get(_UNTIL, 0.0)) - clock.current.wall()
        )
        if wait > 0.0:
            await asyncio.sleep(wait)
        labels[_RETRIES] = max(0, int(labels.get(_RETRIES, 0)))
        number = labels[_ATTEMPT] = labels[_RETRIES] + 1
        try:
            counted = await self._attempts.abegin(message.task_name, message.task_id, number)
            labels[_ATTEMPT] = counted
        except Exception as error:
            message.kwargs = _Refusing(message.kwargs, error)
        return message

    async def on_error(
        self, message: TaskiqMessage, result: TaskiqResult[Any], exception: BaseException
    ) -> None:
        """Sends the task again, or leaves it failed."""
        if isinstance(message.kwargs, _Refusing):
            message.kwargs = message.kwargs.given
        asked = (NoResultError, TaskRejectedError)  # by the task itself
        if isinstance(exception, asked) or not isinstance(exception, Exception):
            return
        name, number = message.task_name, message.labels[_ATTEMPT]
        delay = self._attempts.delay(name, message.task_id, number, exception)
        if delay is not None:
            await self._send(message, delay)
            result.error = NoResultError()  # by which Taskiq does not keep it as the result

    async def _send(self, message: TaskiqMessage, delay: float) -> None:
        until = clock.current.wall() + delay
        retries = int(message.labels.get(_RETRIES, 0)) + 1
        labels = {**message.labels, _RETRIES: retries, "delay": delay, _UNTIL: until}
        kicker: AsyncKicker[..., Any] = AsyncKicker(message.task_name, self.broker, labels)
        kicker.with_task_id(message.task_id)
        if self._source is None:
            await kicker.kiq(*message.args, **message.kwargs)
        else:
            due = datetime.fromtimestamp(until, UTC)
            await kicker.schedule_by_time(self._source, due, *message.args, **message.kwargs)


class _Refusing(dict[str, "Any"]):
    """The arguments of a task that must not run: they raise when Taskiq hands them over.

    Taskiq has no place to refuse a task. What a middleware raises before the task leaves the
    message unanswered, and the broker delivers it again, for ever; what is raised here is the
    failure of the task.
    """

    def __init__(self, given: dict[str, Any], error: Exception) -> None:
        super().__init__(given)
        self.given = given
        self._error = error

    def keys(self) -> Never:
        raise self._error

    def __iter__(self) -> Iterator[Never]:
        raise self._error
