"""One action or compensation under its policy: what it is given, and whether it may have happened.

An attempt counts as begun before the function is called, and as clear if it failed with what shows
that nothing has happened. A step with an attempt that was begun and is not clear is in doubt: one
that was cut off, timed out, or lost its connection after the request was sent.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING

from msgspec import Struct

from mainstay.core.base.functions import PLAIN, discard, is_async, is_awaitable, takes_context
from mainstay.core.known.kind import Kind
from mainstay.core.retry.backoff import Backoff
from mainstay.core.saga.context import SagaContext, key_of
from mainstay.core.saga.flow import Outcome
from mainstay.drivers.policy import RetryPolicy, states_nested
from mainstay.errors import OutcomeUnknown, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol, TypeAlias

    from mainstay.core.base.types import Fields, UserValue
    from mainstay.core.retry.policy import Policy
    from mainstay.core.saga.definition import Action, Saga, SagaStep
    from mainstay.drivers.verbs import Verbs
    from mainstay.errors import LeaseLost

    class Operate(Protocol):
        """Makes an operation of the engine."""

        def __call__(
            self, name: str, *, policy: RetryPolicy | None = None, idempotency: str | None = None
        ) -> Verbs: ...

    class HeldLease(Protocol):
        """The lease of a saga, looked at right before each attempt.

        A process may have stood still since the last look, or have waited for its next attempt, and
        another may run the saga: then these raise SagaTaken.
        """

        def is_certain(self) -> bool: ...
        def renew(self) -> None: ...
        async def arenew(self) -> None: ...

    MakeMessage: TypeAlias = Callable[[str, UserValue, Fields], tuple[UserValue, str]]
    """Checks and encodes a message: what the outbox takes, and the id."""


PATIENT = RetryPolicy(
    name="saga.patient",
    max_attempts=8,
    backoff=Backoff.exponential(0.5, factor=2.0, max_delay=30.0),
    retry_on=(Exception,),
    nested="allow",
)
"""Of compensations, and of steps behind the pivot, that have no policy of their own."""
_PLAIN = RetryPolicy()
_CUT = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, OutcomeUnknown)
"""The other side may have carried out the request before the connection was lost."""
_DOUBTFUL = (Kind.TIMEOUT, Kind.AMBIGUOUS)


def is_doubtful(error: BaseException) -> bool:
    """Whether what raised this may have happened.

    >>> is_doubtful(TimeoutError()), is_doubtful(ConnectionRefusedError()), is_doubtful(KeyError())
    (True, False, False)
    """
    if not isinstance(error, Exception) or isinstance(error, _CUT):
        return True
    verdict = _PLAIN.classification(error)
    return verdict.is_ambiguous or verdict.kind in _DOUBTFUL


class SagaTaken(BaseException):
    """Another process has the saga: no attempt is made, and none is a failure of the step.

    No policy retries it, because it is no Exception; the drivers raise the `lost` in its place.
    """

    def __init__(self, lost: LeaseLost) -> None:
        super().__init__(str(lost))
        self.lost = lost


class StepAwaits(BaseException):
    """A plain function has returned what has to be awaited, which a thread cannot do.

    No policy retries it; the drivers await the value, or refuse it.
    """

    def __init__(self, value: UserValue) -> None:
        super().__init__("what was returned has to be awaited")
        self.value = value


class StepCall(Struct, eq=False):
    """One action or compensation, with the context that it is given."""

    saga: str
    step: int
    known: Known
    lease: HeldLease
    context: SagaContext | None = None
    """None for a function that takes none."""
    messages: list[UserValue] | tuple[()] = ()
    """What the present attempt has emitted; a function without a context emits nothing."""
    began: int = 0
    clear: int = 0
    awaited: UserValue = None
    """What a plain function has returned, and its first attempt goes on to await."""

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.known.step.name

    def attempt(self) -> UserValue:
        """One attempt of a plain function."""
        if not self.lease.is_certain():
            self.lease.renew()
        self.began += 1
        context = self.context
        try:
            value = self.known.function() if context is None else self._given(context)
        except BaseException as error:
            self._note(error)
            raise
        if type(value) not in PLAIN and is_awaitable(value):
            raise StepAwaits(value)
        return value

    def refused(self, value: UserValue) -> Outcome:
        """The outcome where nothing can await what was returned: it is not tried again."""
        discard(value)
        return self.failed(
            UsageError(
                f"step {self.name} of {self.saga} returned {type(value).__name__}, which has to be"
                " awaited",
                hint="use `await engine.sagas.arun(...)`",
            )
        )

    def go_on(self, value: UserValue) -> None:
        """Has `aattempt` await what was returned; from now on the function counts as async."""
        self.awaited = value
        self.began -= 1
        self.known.is_async = True

    async def aattempt(self) -> UserValue:
        """One attempt of an async function."""
        if not self.lease.is_certain():
            await self.lease.arenew()
        self.began += 1
        context, value = self.context, self.awaited
        try:
            if value is not None:
                self.awaited = None
            else:
                value = self.known.function() if context is None else self._given(context)
                if type(value) is not CoroutineType and not is_awaitable(value):
                    return value  # of a function that is async at times
            return await value
        except BaseException as error:
            self._note(error)
            raise

    def _given(self, context: SagaContext) -> UserValue:
        """Calls a function with its context, in which an attempt begins without any message."""
        context.attempt = self.began
        if self.messages:
            self.messages.clear()
        return self.known.function(context)

    def _note(self, error: BaseException) -> None:
        if not is_doubtful(error):
            self.clear += 1

    def returned(self, value: UserValue) -> Outcome:
        """How it has ended."""
        return Outcome(self.step, value, None, self.began, False, tuple(self.messages))

    def failed(self, error: BaseException) -> Outcome:
        """How it has ended."""
        return Outcome(self.step, None, error, self.began, self.clear < self.began)


class Known:
    """What is known of an action or a compensation, once it was first called."""

    __slots__ = ("function", "is_async", "operation", "step", "takes_context")

    def __init__(self, step: SagaStep, function: Action, operation: Verbs) -> None:
        self.step = step
        self.function = function
        self.operation = operation
        self.is_async = is_async(function)
        self.takes_context = takes_context(function)


class Operations:
    """The operations of steps, each made once: `transfer.debit`, `transfer.debit.undo`."""

    __slots__ = ("_found", "_operate", "_policy_of")

    def __init__(self, operate: Operate, policy_of: Callable[[str], RetryPolicy]) -> None:
        self._operate = operate
        self._policy_of = policy_of
        self._found: dict[tuple[str, int, int, bool], Known] = {}

    def of(self, saga: Saga, number: int, *, is_undo: bool) -> Known:
        """The operation of an action or a compensation, and its function."""
        at, step = (saga.name, saga.version, number, is_undo), saga.steps[number]
        found = self._found.get(at)
        if found is None or found.step is not step:
            function = step.compensate if is_undo else step.action
            assert function is not None
            operation = self._made(saga, number, is_undo=is_undo)
            found = self._found[at] = Known(step, function, operation)
        return found

    def _made(self, saga: Saga, number: int, *, is_undo: bool) -> Verbs:
        idempotency = "keyed" if is_undo else saga.steps[number].idempotency
        policy = self.policy_of(saga, number, is_undo=is_undo)
        name = _operation_name(saga, number, is_undo=is_undo)
        return self._operate(name, policy=policy, idempotency=idempotency)

    def policy_of(self, saga: Saga, number: int, *, is_undo: bool) -> RetryPolicy:
        """The policy of an action or a compensation."""
        step = saga.steps[number]
        if is_undo:
            return _allowing(step.compensate_policy or PATIENT)
        is_behind = any(each.pivot for each in saga.steps[:number])
        name = _operation_name(saga, number, is_undo=False)
        policy = step.policy or (PATIENT if is_behind else self._policy_of(name))
        if step.idempotency == "unsafe" and step.policy is None:
            policy = policy.replace(max_attempts=1)
        return _allowing(policy)


def _operation_name(saga: Saga, number: int, *, is_undo: bool) -> str:
    return f"{saga.name}.{saga.steps[number].name}" + (".undo" if is_undo else "")


def _allowing(policy: Policy) -> RetryPolicy:
    """The policy, by which an action may also retry what it calls, unless it declares otherwise."""
    own = policy if isinstance(policy, RetryPolicy) else RetryPolicy(**policy.to_dict())
    return own if states_nested(policy) else own.replace(nested="allow")


def call_of(
    saga: Saga,
    number: int,
    place: tuple[str, str],
    given: UserValue,
    results: Mapping[str, UserValue],
    known: Known,
    lease: HeldLease,
    make: MakeMessage | None = None,
    *,
    is_undo: bool = False,
) -> StepCall:
    """The call of a step that takes a context; `place` is the id and the address of the saga."""
    name, (saga_id, address) = saga.steps[number].name, place
    key = key_of(address, name, is_undo=is_undo)
    messages: list[UserValue] = []

    def send(topic: str, payload: UserValue, fields: Fields) -> str:
        assert make is not None
        message, message_id = make(topic, payload, fields)
        messages.append(message)
        return message_id

    sending = None if make is None else send
    context = SagaContext(saga.name, saga_id, name, given, results, key, sending)
    return StepCall(saga.name, number, known, lease, context, messages)
