"""Dramatiq: actors whose retries are driven by a policy.

`attach(broker, policy, store=...)` puts `Retries` in the place of Dramatiq's own middleware of that
name. If an actor fails, the policy decides whether its message is sent again, and after which
delay. A message that is delivered again because its worker was killed has the same number of
retries as before; a store counts it.
"""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING

import dramatiq
import dramatiq.middleware

from mainstay.errors import OutcomeUnknown, UsageError
from mainstay.integrations.task_attempts import Attempts

if TYPE_CHECKING:
    from typing import Any

    from dramatiq import Actor, Broker, MessageProxy

    from mainstay.core.retry.policy import Policy
    from mainstay.ports import Store

_ATTEMPT = "mainstay_attempt"
_OTHERS = ("max_retries", "min_backoff", "max_backoff", "retry_when")
"""Options of an actor that the policy takes the place of."""


class _Refused(UsageError, dramatiq.middleware.MiddlewareError):
    """A UsageError that Dramatiq raises; others that a middleware raises it only logs."""


class _Unknown(OutcomeUnknown, dramatiq.middleware.MiddlewareError):
    """An OutcomeUnknown by which Dramatiq does not call the actor."""


class _NotBegun(dramatiq.middleware.MiddlewareError):
    """The attempt could not be counted, and is not made; the reason is the `__cause__`."""


class Retries(dramatiq.middleware.Retries):
    """Dramatiq's middleware for retries, with a policy that decides.

    An actor may have a policy of its own: `@dramatiq.actor(policy=...)`. Its options `throws` and
    `on_retry_exhausted` are Dramatiq's; a `dramatiq.Retry` is sent again with the delay that it
    has, within the same number of attempts.

    Args:
        policy: a RetryPolicy.
        store: counts the attempts by the message's id; None if an attempt whose worker was killed
            may be made once more than the policy allows, and again if that one is killed.
    """

    def __init__(self, policy: Policy, *, store: Store | None) -> None:
        super().__init__(retry_when=_never)
        self._store = store
        self._default = Attempts(policy, store)
        self._own: dict[str, Attempts] = {}

    @property
    def actor_options(self) -> set[str]:
        """The options of an actor that this reads."""
        return {*super().actor_options, "policy"}

    def before_declare_actor(self, broker: Broker, actor: Actor[..., Any]) -> None:
        """Refuses an actor that would be retried by two rules."""
        others = [type(each) for each in broker.middleware if each is not self]
        if any(issubclass(each, dramatiq.middleware.Retries) for each in others):
            raise _Refused(
                "the broker has another middleware that retries",
                hint="attach(broker, policy, store=...) takes its place",
            )
        if named := [name for name in _OTHERS if name in actor.options]:
            raise _Refused(
                f"{actor.actor_name} has {', '.join(named)}, and a policy that retries",
                hint="leave them out; the policy has attempts, backoff and on",
            )
        if "policy" in actor.options:
            try:
                own = Attempts(actor.options["policy"], self._store)
            except UsageError as error:
                raise _Refused(f"{actor.actor_name}: {error.message}", hint=error.hint) from error
            self._own[actor.actor_name] = own

    def before_process_message(self, _broker: Broker, message: MessageProxy) -> None:
        """Counts the attempt; one that is beyond the policy is not made."""
        retries = message.options["retries"] = max(0, int(message.options.get("retries", 0)))
        number = message.options[_ATTEMPT] = retries + 1
        attempts = self._own.get(message.actor_name, self._default)
        try:
            number = attempts.begin(message.actor_name, message.message_id, number)
        except OutcomeUnknown as error:
            raise _Unknown(message.actor_name, hint=error.hint) from error
        except Exception as error:
            raise _NotBegun(str(error)) from error
        message.options[_ATTEMPT] = number

    def after_process_message(
        self,
        broker: Broker,
        message: MessageProxy,
        *,
        result: Any = None,
        exception: BaseException | None = None,
    ) -> None:
        """Sends the message again, or leaves it failed."""
        if exception is None:
            return
        actor = broker.get_actor(message.actor_name)
        throws = message.options.get("throws") or actor.options.get("throws") or ()
        delay = None if isinstance(exception, throws) else self._delay(message, exception)
        if delay is None:
            final: Any = super()  # untyped
            final.after_process_message(broker, message, result=result, exception=exception)
            return
        message.options["retries"] = int(message.options.get("retries", 0)) + 1
        message.options["traceback"] = "".join(traceback.format_exception(exception, limit=30))
        message.options["requeue_timestamp"] = int(time.time() * 1000)
        broker.enqueue(message, delay=int(delay * 1000))  # type: ignore[arg-type]  # as Dramatiq's does

    def _delay(self, message: MessageProxy, exception: BaseException) -> float | None:
        attempts, number = (
            self._own.get(message.actor_name, self._default),
            message.options[_ATTEMPT],
        )
        if isinstance(exception, dramatiq.Retry) and exception.delay is not None:
            return exception.delay / 1000 if number < attempts.policy.max_attempts else None
        error = exception.__cause__ if isinstance(exception, _NotBegun) else exception
        return attempts.delay(message.actor_name, message.message_id, number, error or exception)


def attach(broker: Broker, policy: Policy, *, store: Store | None) -> Broker:
    """Puts `Retries` in the place of Dramatiq's own, before any actor is declared.

    Returns:
        The broker.

    Example:
        >>> from dramatiq.brokers.stub import StubBroker
        >>> from mainstay import RetryPolicy
        >>> broker = attach(StubBroker(), RetryPolicy(attempts=3), store=None)
        >>> @dramatiq.actor(broker=broker)
        ... def charge(order):
        ...     return None
    """
    if broker.actors:
        raise UsageError("the broker has actors", hint="attach before the first one is declared")
    ours = Retries(policy, store=store)
    for number, each in enumerate(broker.middleware):
        if isinstance(each, dramatiq.middleware.Retries):
            broker.middleware[number] = ours
            broker.actor_options |= ours.actor_options
            return broker
    broker.add_middleware(ours)
    return broker


def _never(retries: int, exception: BaseException) -> bool:  # noqa: ARG001 -- Dramatiq calls it so
    """Has Dramatiq's own middleware end what it is given: only what is final comes to it."""
    return False
