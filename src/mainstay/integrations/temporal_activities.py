"""The steps of sagas as activities of Temporal, and what brings a stuck saga to the inbox."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from mainstay.core.base.functions import is_async, is_awaitable, takes_context
from mainstay.core.codec.outcome import (
    Failed,
    Succeeded,
    decode_outcome,
    encode_outcome,
    encode_value,
)
from mainstay.core.inbox.items import Item
from mainstay.core.saga.context import SagaContext, key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.types import UserValue
    from mainstay.core.saga.definition import Saga

Request = dict[str, Any]
"""What a workflow is started with, as JSON; Temporal reads the annotations."""
ESCALATE = "mainstay.saga.escalate"


def activity_name(saga: Saga, step: int, *, is_undo: bool) -> str:
    """The name of the activity of an action or a compensation."""
    return f"{saga.name}.v{saga.version}.{saga.steps[step].name}" + (".undo" if is_undo else "")


def acting(engine: Any, saga: Saga, number: int, *, is_undo: bool) -> Callable[..., Any]:
    """The activity of an action or a compensation."""
    step = saga.steps[number]
    function = step.compensate if is_undo else step.action
    assert function is not None
    policy = engine.sagas.policy_of(saga, number, is_undo=is_undo)
    loop = _running_loop()

    def given(request: Request) -> tuple[SagaContext, ...]:
        if not takes_context(function):
            return ()
        results = {name: value_of(data) for name, data in request["results"].items()}
        key = key_of(request["address"], step.name, is_undo=is_undo)
        value = value_of(request["input"])
        context = SagaContext(saga.name, request["id"], step.name, value, results, key)
        context.attempt = activity.info().attempt
        return (context,)

    def failed(error: Exception) -> ApplicationError:
        data = encode_outcome(Failed(error)).decode()
        is_final = not policy.classification(error).retryable
        return ApplicationError(
            f"{type(error).__name__}: {error}", data, engine.sagas.is_doubtful(error),
            type=type(error).__name__, non_retryable=is_final,
        )  # fmt: skip

    name = activity_name(saga, number, is_undo=is_undo)
    if is_async(function):

        @activity.defn(name=name)
        async def act(request: Request) -> str:
            try:
                return encode_value(await function(*given(request))).decode()
            except Exception as error:
                raise failed(error) from error

        return act

    @activity.defn(name=name)
    def act_in_thread(request: Request) -> str:
        try:
            value = function(*given(request))
            if is_awaitable(value):  # of a wrapper, which only its call shows to be async
                value = _waited_for(value, loop)
            return encode_value(value).decode()
        except Exception as error:
            raise failed(error) from error

    return act_in_thread


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _waited_for(value: Any, loop: asyncio.AbstractEventLoop | None) -> UserValue:
    """What an awaitable comes to, in the event loop of the worker: its clients may belong to it."""

    async def awaited() -> UserValue:
        return await value

    if loop is None:
        return asyncio.run(awaited())
    future = asyncio.run_coroutine_threadsafe(awaited(), loop)
    try:
        return future.result()
    except BaseException:  # Temporal has cancelled the thread of the activity
        future.cancel()
        raise


def value_of(data: str) -> UserValue:
    """A value that was sent through Temporal."""
    outcome = decode_outcome(data.encode())
    assert isinstance(outcome, Succeeded)
    return outcome.value


def escalating(engine: Any) -> Callable[..., Any]:
    """The activity that puts a saga which is stuck into the inbox of the engine."""

    @activity.defn(name=ESCALATE)
    def escalate(found: Request) -> str:
        item = Item(
            kind="stuck_saga",
            subject=f"temporal {found['address']}",
            operation=found["saga"],
            text=f"{found['saga']} {found['id']}: {found['text']} (on Temporal:"
            f" workflow {found['address']})",
            occasion=found["occasion"],
            data={**found, "temporal": True},
        )
        return str(engine.inbox.put(item, is_new=False).id)

    return escalate
