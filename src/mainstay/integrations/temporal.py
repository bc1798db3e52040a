"""Sagas on Temporal: the same definition as a workflow, its steps as activities.

    worker = saga_worker(client, engine, [transfer], task_queue="sagas")
    result = await run_saga(client, engine, transfer, {"amount": 5}, id="t-1", task_queue="sagas")

The workflow drives the flow of `core/saga/`, as the engine's own drivers do, so pivot, order of
compensation and stuck mean the same. Temporal keeps the history, and owns retries and timers: the
policy of a step becomes a RetryPolicy of Temporal, and what has no counterpart there is refused by
its name. The id of the workflow is the address of the saga. A saga that is stuck is an item of the
engine's inbox, and goes on with the signal `decide`.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from mainstay.core.codec.outcome import (
    Failed,
    Succeeded,
    decode_outcome,
    encode_outcome,
    encode_value,
)
from mainstay.core.saga.commands import Begin, Cancel, Claimed, Resolve, Take
from mainstay.core.saga.context import address_of
from mainstay.core.saga.definition import Saga, SagaStep, outline_of
from mainstay.core.saga.flow import (
    AwaitStep,
    EmitSaga,
    Outcome,
    Plan,
    RunSteps,
    UndoStep,
    Write,
    saga_flow,
)
from mainstay.core.saga.progress import DONE
from mainstay.core.saga.record import reduce
from mainstay.core.saga.state import SagaState, decode
from mainstay.errors import MissingExtraError, OutcomeUnknown, PayloadMismatch
from mainstay.integrations.temporal_policy import limit_of, retry_of

try:
    from temporalio import workflow
    from temporalio.common import RetryPolicy as TemporalRetry
    from temporalio.common import WorkflowIDReusePolicy
    from temporalio.exceptions import (
        ActivityError,
        ApplicationError,
        WorkflowAlreadyStartedError,
    )
    from temporalio.worker import Worker
except ImportError as error:
    raise MissingExtraError("temporalio", "temporal") from error
from mainstay.integrations.temporal_activities import (
    ESCALATE,
    Request,
    acting,
    activity_name,
    escalating,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from temporalio.client import Client, WorkflowHandle

    from mainstay.core.base.types import UserValue
    from mainstay.core.saga.flow import Effect, End


# --- the workflow ---------------------------------------------------------------------------------


@workflow.defn(name="mainstay.SagaWorkflow", sandboxed=False)
class SagaWorkflow:
    """A saga as a workflow: one for all definitions, which it receives as data."""

    @workflow.init
    def __init__(self, request: Request) -> None:
        self._request = request
        self._saga = _outline_saga(request)
        self._value: bytes | None = None
        self._decisions: list[Request] = []
        self._epoch = 0
        self._group: asyncio.Queue[Outcome] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    @workflow.run
    async def run(self, _request: Request) -> Request:
        """From the beginning to the end, over as many decisions of people as it takes."""
        while True:
            end = await self._drive(*self._claimed())
            if end.state is not SagaState.STUCK:
                return self._ended(end)
            while self._is_stuck():
                await workflow.wait_condition(lambda: bool(self._decisions))
                self._resolve(self._decisions.pop(0))

    @workflow.signal
    def decide(self, decision: Request) -> None:
        """A person's decision about a saga that is stuck: action, why, evidence, token."""
        self._decisions.append(decision)

    @workflow.signal
    def cancel(self, why: str) -> None:
        """Begins no further step, and undoes what was done."""
        if self._value is not None:
            self._write(Cancel(why))

    @workflow.query
    def state(self) -> str:
        """Where the saga stands."""
        return "running" if self._value is None else decode(self._value).state.value

    # --- the record, kept by the history of the workflow ------------------------------------------

    def _write(self, command: Any) -> Any:
        change, answer = reduce(self._value, command, workflow.time())
        if change.value is not None and change.value != b"keep":
            self._value = change.value
        return answer

    def _claimed(self) -> tuple[Claimed, bool]:
        self._epoch += 1
        owner, saga = f"{workflow.info().run_id} {self._epoch}", self._saga
        if self._value is None:
            command: Begin | Take = Begin(
                owner, saga.name, saga.version, saga.shape, "", self._request["input"].encode(),
                saga.groups[0], saga.lease, saga.deadline,
            )  # fmt: skip
        else:
            command = Take(owner, saga.shape, saga.lease)
        answer = self._write(command)
        assert isinstance(answer, Claimed)
        return answer, self._epoch > 1

    def _is_stuck(self) -> bool:
        return decode(self._value or b"").state is SagaState.STUCK

    def _resolve(self, decision: Request) -> None:
        """Carries a decision out, unless it is about another time at which the saga was stuck."""
        record = decode(self._value or b"")
        stuck = "" if record.stuck is None else record.stuck.item
        if decision.get("occasion", stuck) != stuck:
            return
        self._write(
            Resolve(
                decision["action"],
                stuck,
                decision.get("token") or f"{self._epoch}",
                decision.get("why", ""),
                encode_value(decision.get("evidence")),
            )
        )

    # --- effects ----------------------------------------------------------------------------------

    async def _drive(self, claimed: Claimed, is_recovery: bool) -> End:
        plan = Plan(self._saga, self._request["id"], claimed.record.owner)
        flow = saga_flow(plan, claimed.record, claimed.left, is_recovery=is_recovery)
        answer: Any = None
        while True:
            try:
                effect = flow.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = await self._perform(effect)

    async def _perform(self, effect: Effect) -> Any:
        if type(effect) is Write:
            return self._write(effect.command)
        if type(effect) is RunSteps:
            return await self._run_steps(effect.steps, effect.left)
        if type(effect) is AwaitStep:
            return await self._group.get()
        if type(effect) is UndoStep:
            return await self._activity(effect.step, is_undo=True)
        if type(effect) is EmitSaga:
            return None
        return await self._escalate()

    async def _run_steps(self, steps: tuple[int, ...], left: float | None) -> Outcome:
        if len(steps) == 1:
            return await self._activity(steps[0], left)

        async def one(step: int) -> None:
            self._group.put_nowait(await self._activity(step, left))

        self._tasks = {asyncio.create_task(one(step)) for step in steps}
        return await self._group.get()

    async def _activity(
        self, step: int, left: float | None = None, *, is_undo: bool = False
    ) -> Outcome:
        """One action or compensation, which Temporal repeats for `left` seconds at most."""
        retry = self._request["undo" if is_undo else "action"][step]
        name = activity_name(self._saga, step, is_undo=is_undo)
        try:
            done = await workflow.execute_activity(
                name,
                self._given(),
                start_to_close_timeout=timedelta(seconds=retry["attempt"]),
                schedule_to_close_timeout=limit_of(retry, left),
                retry_policy=TemporalRetry(
                    initial_interval=timedelta(seconds=retry["initial"]),
                    backoff_coefficient=retry["factor"],
                    maximum_interval=timedelta(seconds=retry["most"]),
                    maximum_attempts=retry["attempts"],
                ),
            )
        except ActivityError as error:
            return _failed(step, error, f"{self._saga.name}.{self._saga.steps[step].name}")
        outcome = decode_outcome(done.encode())
        assert isinstance(outcome, Succeeded)
        return Outcome(step, outcome.value)

    def _given(self) -> Request:
        """What an activity is given: the input, and the results of the steps that are done."""
        names = [step.name for step in self._saga.steps]
        log = () if self._value is None else decode(self._value).log
        results = {names[each.step]: bytes(each.data).decode() for each in log if each.what is DONE}
        return {
            "id": self._request["id"],
            "address": self._request["address"],
            "input": self._request["input"],
            "results": results,
        }

    async def _escalate(self) -> str:
        record = decode(self._value or b"")
        assert record.stuck is not None
        step = record.stuck.step
        found: str = await workflow.execute_activity(
            ESCALATE,
            {
                "saga": self._saga.name,
                "id": self._request["id"],
                "address": self._request["address"],
                "text": record.stuck.text,
                "phase": record.stuck.phase,
                "occasion": record.stuck.item,
                "step": self._saga.steps[step].name if step >= 0 else "",
            },
            start_to_close_timeout=timedelta(seconds=60),
        )
        return found

    def _ended(self, end: End) -> Request:
        """What the saga came to, as JSON."""
        failure = end.failure if isinstance(end.failure, Exception) else None
        return {
            "state": "" if end.state is None else end.state.value,
            "input": self._request["input"],
            "results": self._given()["results"],
            "failure": None if failure is None else encode_outcome(Failed(failure)).decode(),
        }


def _outline_saga(request: Request) -> Saga:
    """The definition as the flow needs it: without functions."""
    outline = outline_of(request["shape"])
    groups = [
        [
            SagaStep(
                outline.names[step],
                _nothing,
                _nothing if step in outline.undoable else None,
                pivot=step == outline.pivot,
            )
            for step in group
        ]
        for group in outline.groups
    ]
    return Saga(
        request["saga"], groups, version=request["version"], deadline=request["deadline"],
        lease=request["lease"],
    )  # fmt: skip


def _nothing() -> None:
    """Stands for a function that only the worker of the activities knows."""


def _failed(step: int, error: ActivityError, what: str) -> Outcome:
    """The outcome of an activity that Temporal has given up on."""
    cause = error.cause
    if not isinstance(cause, ApplicationError) or len(cause.details) < 2:  # it timed out, or worse
        unknown = OutcomeUnknown(what, hint="look before repeating it")
        unknown.add_note(f"{type(cause).__name__}: {cause}")
        return Outcome(step, error=unknown, in_doubt=True)
    data, in_doubt = cause.details[0], bool(cause.details[1])
    outcome = decode_outcome(data.encode())
    assert isinstance(outcome, Failed)
    return Outcome(step, error=outcome.exception, in_doubt=in_doubt)


# --- the worker -----------------------------------------------------------------------------------


def saga_worker(
    client: Client, engine: Any, sagas: Sequence[Saga], *, task_queue: str, **options: Any
) -> Worker:
    """A worker of Temporal that runs the workflows and the steps of these sagas.

    Args:
        client: of the Temporal server.
        engine: its policies and its inbox are used.
        sagas: the definitions; several versions side by side.
        task_queue: where workflows are started.
        options: of `temporalio.worker.Worker`.
    """
    activities: list[Callable[..., Any]] = [escalating(engine)]
    for saga in sagas:
        request_of(engine, saga, "", None)  # what cannot be translated is refused now
        for step in range(len(saga.steps)):
            activities.append(acting(engine, saga, step, is_undo=False))
            if saga.steps[step].compensate is not None:
                activities.append(acting(engine, saga, step, is_undo=True))
    options.setdefault("activity_executor", ThreadPoolExecutor(32))
    return Worker(
        client, task_queue=task_queue, workflows=[SagaWorkflow], activities=activities, **options
    )


# --- starting -------------------------------------------------------------------------------------


def request_of(engine: Any, saga: Saga, saga_id: str, given: UserValue) -> Request:
    """What a workflow of a saga is started with."""
    policies = {
        kind: [
            retry_of(engine.sagas.policy_of(saga, step, is_undo=kind == "undo"), each.name)
            for step, each in enumerate(saga.steps)
        ]
        for kind in ("action", "undo")
    }
    return {
        "saga": saga.name,
        "version": saga.version,
        "shape": saga.shape,
        "deadline": saga.deadline,
        "lease": saga.lease,
        "id": saga_id,
        "address": address_of(saga.name, saga_id),
        "input": encode_value(given).decode(),
        **policies,
    }


async def start_saga(
    client: Client,
    engine: Any,
    saga: Saga,
    input: UserValue = None,  # noqa: A002 -- as `engine.sagas.run` names it
    *,
    id: str,  # noqa: A002
    task_queue: str,
) -> WorkflowHandle[Any, Any]:
    """Starts the workflow of a saga; the same id is the same workflow."""
    request = request_of(engine, saga, id, input)
    try:
        return await client.start_workflow(
            SagaWorkflow.run,
            request,
            id=request["address"],
            task_queue=task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )
    except WorkflowAlreadyStartedError:
        return client.get_workflow_handle(request["address"])


async def forward_decisions(client: Client, engine: Any) -> int:
    """Signals what people have decided in the inbox to the workflows; how many decisions.

    Call it now and then, in any process that reaches the Temporal server.
    """
    count = 0
    for item in list(engine.inbox.all()):
        decision = item.decision
        if item.status != "decided" or not item.data.get("temporal") or decision is None:
            continue
        handle = client.get_workflow_handle(str(item.data["address"]))
        order = {
            "action": decision.action,
            "why": f"{decision.by}: {decision.why}",
            "evidence": decision.evidence,
            "token": decision.token,
            "occasion": item.data["occasion"],
        }
        await handle.signal(SagaWorkflow.decide, order)
        engine.sagas.forwarded.add(decision.token)
        try:
            engine.inbox.carry_out(item.id)
        finally:
            engine.sagas.forwarded.discard(decision.token)
        count += 1
    return count


async def run_saga(
    client: Client,
    engine: Any,
    saga: Saga,
    input: UserValue = None,  # noqa: A002 -- as `engine.sagas.run` names it
    *,
    id: str,  # noqa: A002
    task_queue: str,
) -> dict[str, UserValue]:
    """Runs a saga on Temporal to its end: its results; a compensated one raises what failed."""
    handle = await start_saga(client, engine, saga, input, id=id, task_queue=task_queue)
    found = await handle.result()
    if found["input"] != encode_value(input).decode():
        raise PayloadMismatch(saga.name, id)
    if found["state"] == "succeeded":
        return {name: value_of(data) for name, data in found["results"].items()}
    outcome = decode_outcome(found["failure"].encode())
    assert isinstance(outcome, Failed)
    raise outcome.exception
