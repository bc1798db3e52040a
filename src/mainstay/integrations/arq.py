"""arq: jobs whose retries are driven by a policy.

arq counts the tries of a job in Redis before each one begins, also those whose worker was killed,
so no store is needed here. A failure that the policy retries becomes arq's own `Retry`, with the
policy's delay: the job waits in Redis, and any worker makes the next try.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING

from arq.worker import Retry, func

from mainstay.errors import UsageError
from mainstay.integrations.task_attempts import Attempts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from arq.worker import Function

    from mainstay.core.retry.policy import Policy


def task(
    function: Callable[..., Awaitable[Any]],
    policy: Policy,
    *,
    name: str | None = None,
    **options: Any,
) -> Function:
    """A function for `WorkerSettings.functions`, repeated as a policy allows.

    Args:
        function: the function of the job; its first argument is arq's context.
        policy: a RetryPolicy.
        name: what jobs call it; by default its qualified name, as arq has it.
        options: those of `arq.func`, such as `timeout` and `keep_result`. `max_tries` is that of
            the policy.

    Example:
        >>> from mainstay import RetryPolicy, transient
        >>> async def charge(ctx, order):
        ...     return f"charged {order}"
        >>> class WorkerSettings:
        ...     functions = [task(charge, RetryPolicy(on=transient, attempts=3))]
        >>> WorkerSettings.functions[0].max_tries
        3
    """
    attempts, known_as = Attempts(policy, None), name or function.__qualname__
    if "max_tries" in options:
        raise UsageError(
            f"max_tries = {options['max_tries']!r} beside a policy of {policy.max_attempts}"
            " attempts: the policy decides",
            hint="leave it out",
        )

    @wraps(function)
    async def attempt(ctx: dict[Any, Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return await function(ctx, *args, **kwargs)
        except Retry:  # the job itself asks for it
            raise
        except Exception as error:
            delay = attempts.delay(known_as, ctx["job_id"], ctx["job_try"], error)
            if delay is None:
                raise
            raise Retry(defer=delay) from error

    return func(attempt, name=known_as, max_tries=policy.max_attempts, **options)
