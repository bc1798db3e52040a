"""Stages: the document's policy, and a function with how safe repeating it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.pipeline.definition import StageDefinition
from mainstay.core.pipeline.rules import (
    LEAST_BASE,
    MAX_ATTEMPTS,
    MAX_DELAY,
    TIMEOUT,
    is_fail_fast,
    is_retryable,
)
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.drivers.policy import RetryPolicy, states_nested

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mainstay.core.base.types import Seconds
    from mainstay.core.pipeline.definition import Datasets, Function, Key

PIPELINE_POLICY = RetryPolicy(
    name="pipeline",
    max_attempts=MAX_ATTEMPTS,
    backoff=Backoff.exponential(LEAST_BASE, factor=2.0, max_delay=MAX_DELAY),
    jitter=Jitter.full(),
    retry_on=(is_retryable,),
    never_retry_on=(is_fail_fast,),
    attempt_timeout=TIMEOUT,
    timeout_by="thread",
    nested="allow",
)
"""The document's policy: 5 attempts, full jitter, 0.5 s doubled up to 30 s, each 60 s at most."""


class Stage(StageDefinition):
    """One stage of a pipeline: a function, and how safe repeating it is.

    The function takes nothing, or one argument: the StageContext.

    Args:
        name: unique in its pipeline.
        function: what is called; a function or an async function.
        after: the stages that it comes after, by name.
        idempotency: how it may be repeated; required. "idempotent": as it is. "keyed": what it
            calls honours `idempotency_key`, and its result is recorded under it. "outbox": its
            effect, its messages and its record are one transaction of the connection that
            `connect` opens. "unsafe": it is called once.
        idempotency_key: of a keyed stage: a text, in which `{run_id}` and `{stage}` are filled in,
            or a function of the context. A second run with the same key gets the first result.
        policy: a RetryPolicy in place of the document's; it is held to the same rules.
        max_attempts: calls at most, in place of the policy's.
        timeout: seconds of one attempt, in place of the policy's; hard, and known to what it calls.
        datasets: the ids of the data sets that it touches, or a function of the context.
        care_labels: the CARE labels that it is cleared for.
        masking: the level at which it leaves its data sets masked; higher is stronger.
        kind: "source", "transform" or "sink", if its place is to be checked.
        connect: of an "outbox" stage: opens a connection to the store's database.

    >>> Stage("poll", lambda: [1, 2], idempotency="idempotent").policy.max_attempts
    5
    >>> Stage("charge", print)
    Traceback (most recent call last):
    mainstay.errors.UsageError: stage charge does not state how safe repeating it is. ...
    """

    __slots__ = ()

    def __init__(  # noqa: PLR0913 -- a stage has that many fields, all by keyword
        self,
        name: str,
        function: Function,
        *,
        after: Iterable[str] | str = (),
        idempotency: str | None = None,
        idempotency_key: Key | None = None,
        policy: RetryPolicy | None = None,
        max_attempts: int | None = None,
        timeout: Seconds | None = None,
        datasets: Datasets = (),
        care_labels: Iterable[str] | str = (),
        masking: int | None = None,
        kind: str | None = None,
        connect: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(
            name,
            function,
            after=after,
            idempotency=idempotency,
            idempotency_key=idempotency_key,
            policy=_governed(policy, max_attempts, timeout),
            datasets=datasets,
            care_labels=care_labels,
            masking=masking,
            kind=kind,
            connect=connect,
        )


def _governed(
    policy: RetryPolicy | None, max_attempts: int | None, timeout: Seconds | None
) -> RetryPolicy:
    """A policy with what the document demands of each: forbidden classes, a hard timeout."""
    own = PIPELINE_POLICY if policy is None else policy
    fields: dict[str, Any] = {}
    if max_attempts is not None:
        fields["max_attempts"] = max_attempts
    if timeout is not None or own.attempt_timeout is None:
        fields["attempt_timeout"] = TIMEOUT if timeout is None else timeout
    if policy is not None:
        fields["never_retry_on"] = (is_fail_fast, *policy.never_retry_on)
        fields["retry_on"] = (is_retryable,) if policy.retry_on is None else policy.retry_on
        fields["timeout_by"] = "thread"
        fields["nested"] = policy.nested if states_nested(policy) else "allow"
    return own.replace(**fields) if fields else own
