"""Celery: tasks whose retries are driven by a policy.

`Task` is the base of a task. If its function fails, the policy decides whether Celery sends it
again, and after which delay. A wait is Celery's own countdown, so a worker that ends in it loses
nothing. A delivery that is made again because its worker was killed (`acks_late`) has the same
number of retries as before; a store counts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import celery  # type: ignore[import-untyped]  # celery has no types
from celery.exceptions import TaskPredicate  # type: ignore[import-untyped]  # as above

from mainstay.errors import UsageError
from mainstay.integrations.task_attempts import Attempts

if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.retry.policy import Policy
    from mainstay.ports import Store


class Task(celery.Task):  # type: ignore[misc]  # untyped
    """A task that is retried by its policy: `@app.task(base=Task, policy=..., store=...)`.

    A failure that the policy does not retry, or that was the last attempt, is raised as it is.
    What Celery's own `self.retry()` asks for is done, within the same number of attempts.

    Attributes:
        policy: a RetryPolicy.
        store: counts the attempts by the task's id, so that one whose worker was killed counts;
            `acks_late` needs it.

    Raises:
        UsageError: when the task is made, if it has `autoretry_for` as well, or no policy.

    Example:
        >>> from mainstay import RetryPolicy
        >>> app = celery.Celery("shop", set_as_current=False)
        >>> @app.task(base=Task, policy=RetryPolicy(attempts=3))
        ... def charge(order):
        ...     return f"charged {order}"
        >>> charge("order-1")
        'charged order-1'
    """

    abstract = True
    policy: Policy
    store: Store | None = None
    _attempts: Attempts

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """Checks what the task was given, when Celery makes it."""
        super().on_bound(app)
        cls._attempts = Attempts(getattr(cls, "policy", None), cls.store)  # type: ignore[arg-type]  # it checks
        if getattr(cls, "autoretry_for", ()):
            raise UsageError(
                f"{cls.name} has autoretry_for, and a policy that retries",
                hint="leave autoretry_for out; on= of the policy names what is retried",
            )
        if cls.acks_late and cls.store is None:
            raise UsageError(
                f"{cls.name} has acks_late and no store: nothing counts an attempt whose worker"
                " was killed",
                hint="give it a store, which counts by the task's id: store=engine.store",
            )
        cls.max_retries = cls._attempts.policy.max_attempts - 1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Makes one attempt; a call that no worker makes is a plain call of the function."""
        request = self.request_stack.top
        if request is None or request.called_directly or request._protected:  # noqa: SLF001 -- Celery's mark
            return super().__call__(*args, **kwargs)
        request._protected = 1  # noqa: SLF001 -- so that a call inside is a plain one
        request.retries = max(0, request.retries)  # a message may begin with any number
        number = request.retries + 1
        try:
            number = self._attempts.begin(self.name, request.id, number)
            return self.run(*args, **kwargs)
        except TaskPredicate:  # Retry, Ignore, Reject: not a failure
            raise
        except Exception as error:
            delay = self._attempts.delay(self.name, request.id, number, error)
            if delay is None:
                raise
            raise self.retry(exc=error, countdown=delay) from error

    def apply(self, *args: Any, retries: int = 0, **options: Any) -> Any:
        """Celery's own, which counts the retries itself when no worker makes them."""
        return super().apply(*args, retries=max(0, retries), **options)

    def retry(  # Celery's own arguments
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: Any = None,
        throw: bool = True,
        eta: Any = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> Any:
        """Celery's own, within the attempts of the policy: `max_retries` can only lower them."""
        if max_retries is not None:
            max_retries = min(max_retries, self._attempts.policy.max_attempts - 1)
        return super().retry(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
