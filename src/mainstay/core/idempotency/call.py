"""The flow of one keyed call, as a generator: begin, run or replay, record.

It yields commands for the store, pauses while another call has the key, and once the call itself,
which is retried as any other. What must not be lost is written before it is acted on: the attempt
with the claim, the outcome before the caller receives it.
"""

from __future__ import annotations

from msgspec import Struct

from mainstay.core.base.attributes import add_note
from mainstay.core.base.timestamps import moment_of
from mainstay.core.codec.outcome import (
    Failed,
    encode_outcome,
    encode_shortened_failure,
    encode_value,
)
from mainstay.core.idempotency.record import (
    Begin,
    Busy,
    Done,
    Doubt,
    Mismatch,
    RecordState,
    Release,
    Replay,
    Run,
    Settle,
    Unknown,
)
from mainstay.core.known.http import status_of
from mainstay.core.known.kind import Kind, qualified_name
from mainstay.core.known.registry import REGISTRY
from mainstay.core.retry.classify import judged
from mainstay.core.retry.effects import Question, Returned
from mainstay.core.retry.kinds import NEVER_RETRIED
from mainstay.errors import (
    Conflict,
    LeaseLost,
    MainstayWarning,
    OutcomeUnknown,
    PayloadMismatch,
    Refused,
    ResultNotKept,
    ResultRejected,
    StoredValueError,
    StoreUnavailable,
    UsageError,
    ValueTooLarge,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, TypeAlias

    from mainstay.core.base.types import Answer, UserValue
    from mainstay.core.idempotency.record import Answer as RecordAnswer
    from mainstay.core.idempotency.record import Command
    from mainstay.core.known.kind import Known
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.effects import Outcome
    from mainstay.core.retry.policy import Policy

    KeyedFlow: TypeAlias = Generator[Any, Answer, None]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
SMALL = 4096
"""Bytes of an outcome that every store takes: its limit is not asked for."""
_LARGE = 1 << 20
"""Bytes from which on a store that fails may fail because of them: a timeout, a cut connection."""
_LONGEST = 500
"""Characters of a key, and of metadata, in the record of a result that is not kept."""
_TOO_OFTEN = "look why it does not come to an end; mainstay inbox list shows the item"
_IF_IT_MAY = (
    'look before repeating it; if it may run again, idempotency="idempotent" or on_crash="retry"'
)
"""A key alone is no reason to run it again, and the call has one."""
_CLAIMS = 2
"""How often a claim that took longer than its lease is made again."""


class Keyed(Struct, frozen=True, gc=False):
    """What is known before a keyed call."""

    operation: str
    key: str
    fingerprint: str
    owner: str
    lease: float = 30.0
    ttl: float | None = 86_400.0
    on_conflict: str = "wait"
    on_crash: str = "retry"
    wait: float = 30.0
    """Seconds to wait at most while another call has the key; no longer than the caller has."""
    metadata: str = ""
    """What is kept beside the outcome, as JSON."""
    redact: Redactor | None = None
    """What takes secrets out of notes; the usual one if there is none."""
    small: int = SMALL
    """Bytes of an outcome up to which the limit is not asked for."""


class StoreCommand(Struct, frozen=True, gc=False):
    """Asks the store to carry out a command on the record; the answer is the reducer's.

    If the command ends the call, the answer may be the exception of an unavailable store.
    """

    command: Command


class Pause(Struct, frozen=True, gc=False):
    """Asks to wait."""

    seconds: float


class Invoke(Struct, frozen=True, gc=False):
    """Asks for the call itself, with the attempts that are left; the answer is its outcome.

    The outcome is a Returned, or an exception; also of those that are not for us to keep. It is
    OVERDUE if nothing was started, because the lease may be over by now.
    """

    epoch: int
    attempts: int
    number: int = 1
    """The number of the first attempt, as the record has counted it with the claim."""


class Overdue:
    """See Invoke."""


OVERDUE = Overdue()


class Escalate(Struct, frozen=True):
    """Asks for an item in the inbox: a person must decide what became of the call.

    The answer is the item's id.

    If the doubt was found before, `is_new` is not set: there is an item, unless the process that
    found it ended before it raised one.
    """

    reason: str
    attempts: int
    is_new: bool = True
    owner: str = ""
    epoch: int = 0
    """The claim that is in doubt: the decision of a person is about that one."""


class SizeLimit(Struct, frozen=True, gc=False):
    """Asks how many bytes of an outcome are kept at most; the answer is None for any number."""


class EmitEvent(Struct, frozen=True, gc=False):
    """An event to count and emit.

    "hit", "record", "conflict", "lost", "unknown" or "not_kept".
    """

    what: str


class Recorded(Struct, frozen=True, gc=False):
    """The end of a call that returned: it is recorded, and counted as EmitEvent("record") is."""

    outcome: Returned


class Notice(Struct, frozen=True):
    """Something to warn a developer of."""

    category: type[Warning]
    text: str


def keyed(call: Keyed, policy: Policy) -> KeyedFlow:
    """The whole flow of a keyed call; ends with an exception to raise, a Replay, or what returned.

    The path of a call that succeeds is written out here: a generator within another costs a step
    more for each of its effects.
    """
    begin = Begin(call.owner, call.fingerprint, call.lease, policy.max_attempts, call.on_crash)
    answer = yield StoreCommand(begin)
    if type(answer) is Busy:
        answer = yield from _wait(call, begin, answer)
    if type(answer) is Run:
        left = policy.max_attempts - answer.attempts + 1
        left = left if left > 1 else 1  # noqa: FURB136 -- max() is one more call for each key
        outcome = yield Invoke(answer.epoch, left, answer.attempts)
        if outcome is OVERDUE:
            answer, outcome = yield from _claim_again(call, policy, begin)
        if type(answer) is not Run:
            yield from _not_run(call, answer)
        elif type(outcome) is Returned and outcome.is_accepted:
            data, why = _kept(outcome.value)
            if why or len(data) > call.small:
                yield from _unless_too_large(call, answer.epoch, outcome, data, why)
            settle = Settle(call.owner, answer.epoch, _SUCCEEDED, data, call.ttl, call.metadata)
            done = yield StoreCommand(settle)
            if type(done) is not Done:
                yield from _not_taken(call, answer.epoch, outcome, data, done)
            yield Recorded(outcome)
        else:
            yield from _failed(call, policy, answer, outcome)
    else:
        yield from _not_run(call, answer)


def _claim_again(
    call: Keyed, policy: Policy, begin: Begin
) -> Generator[Any, Answer, tuple[RecordAnswer, Outcome]]:
    """The claim took as long as its lease: claims again, and starts nothing until one is quick.

    A claim of the same owner renews the lease; if another call has taken over, it waits for that.
    """
    answer: RecordAnswer
    for _ in range(_CLAIMS):
        answer = yield StoreCommand(begin)
        if type(answer) is Busy:
            answer = yield from _wait(call, begin, answer)
        if type(answer) is not Run:
            return answer, LeaseLost(call.operation, call.key)
        left = max(1, policy.max_attempts - answer.attempts + 1)
        outcome = yield Invoke(answer.epoch, left, answer.attempts)
        if outcome is not OVERDUE:
            break
    else:
        outcome = _never_in_time(call)
    return answer, outcome


def _never_in_time(call: Keyed) -> LeaseLost:
    lost = LeaseLost(call.operation, call.key)
    lost.add_note(
        f"it did not run: each of {_CLAIMS + 1} claims took longer than the lease of"
        f" {call.lease:g} s"
    )
    return lost


def _not_run(call: Keyed, answer: Replay | Mismatch | Unknown) -> KeyedFlow:
    """It ended before, it was another call, or its outcome is unknown."""
    if type(answer) is Replay:
        yield EmitEvent("hit")
        yield answer
    elif type(answer) is Mismatch:
        yield PayloadMismatch(call.operation, call.key)
    else:
        if answer.is_new:
            yield EmitEvent("unknown")
        hint = _TOO_OFTEN if call.on_crash == "retry" else _IF_IT_MAY
        unknown = OutcomeUnknown(call.operation, hint=hint)
        unknown.item_id = yield Escalate(
            answer.reason, answer.attempts, answer.is_new, answer.owner, answer.epoch
        )
        yield unknown


def _wait(call: Keyed, begin: Begin, answer: RecordAnswer) -> Generator[Any, Answer, RecordAnswer]:
    """Waits for another call with the same key, up to the limit."""
    yield EmitEvent("conflict")
    now = yield Question.NOW
    left = yield Question.LEFT
    until, pause = now + min(call.wait, left), _FIRST_PAUSE
    while type(answer) is Busy:
        now = yield Question.NOW
        if call.on_conflict == "raise" or now >= until:
            yield Conflict(call.operation, call.key, answer.retry_after)
        yield Pause(min(pause, max(0.0, until - now), answer.retry_after))
        pause = min(_LONGEST_PAUSE, pause * 2)
        answer = yield StoreCommand(begin)
    return answer


def _failed(call: Keyed, policy: Policy, run: Run, outcome: Outcome) -> KeyedFlow:
    """It raised, or the last result was not accepted."""
    if isinstance(outcome, OutcomeUnknown):
        yield from _settle(call, Doubt(call.owner, run.epoch), outcome)
        yield EmitEvent("unknown")
        why = "it may have been applied"
        outcome.item_id = yield Escalate(why, run.attempts, owner=call.owner, epoch=run.epoch)
        yield outcome
    elif isinstance(outcome, Exception) and (yield from _is_final(outcome, policy)):
        yield from _record_failure(call, run.epoch, outcome)
    elif _is_cut_off(outcome) and call.on_crash != "retry":
        yield outcome  # left to its lease, as by a process that is gone
    else:
        answer = yield StoreCommand(Release(call.owner, run.epoch))
        yield from _unless_unavailable(call, answer, outcome)
        yield outcome


_RECORDED = EmitEvent("record")
_SUCCEEDED, _FAILED = RecordState.SUCCEEDED, RecordState.FAILED
_OF_THE_MOMENT = (
    LeaseLost, Refused, ResultRejected, StoreUnavailable, StoredValueError, MemoryError,
)  # fmt: skip
"""Failures of ours, and of the machine, that may be gone the next time."""


def _is_final(outcome: Exception, policy: Policy) -> Generator[Any, Answer, bool]:
    """Whether a failure would be the same the next time, and so is recorded."""
    if isinstance(outcome, _OF_THE_MOMENT):
        return False
    if any(qualified_name(base) in NEVER_RETRIED for base in type(outcome).__mro__):
        return False  # a cancellation, though it derives from Exception
    verdict = yield from judged(outcome, policy._rules)
    return verdict.kind is Kind.PERMANENT and _is_of_the_request(outcome, verdict.known)


def _is_of_the_request(outcome: Exception, known: Known | None) -> bool:
    """Whether the same request would fail the same, and not only this process, at this time.

    mainstay's tables have as permanent also what a repetition within the call does not mend: a pool
    that is closed, a name that no host has, a certificate. A status is an answer to the request.
    """
    if known is None or REGISTRY.is_own(known.table):
        return True
    return not known.table or status_of(outcome) is not None


def _is_cut_off(outcome: Outcome) -> bool:
    """Whether the function was cut off: how far it came is unknown.

    A lease that is lost may be why it was cancelled; the cancellation is the cause then.
    """
    if isinstance(outcome, LeaseLost):
        return outcome.__cause__ is not None and _is_cut_off(outcome.__cause__)
    return isinstance(outcome, BaseException) and not isinstance(outcome, Exception)


def _kept(value: UserValue) -> tuple[bytes, str]:
    """The value as it is recorded; or why it cannot be."""
    try:
        return encode_value(value), ""
    except UsageError as error:
        return b"", str(error)
    except Exception as error:  # of the user's own class, or no memory
        return b"", f"{type(error).__name__} while it was encoded: {error}. return plain data"


# --- outcomes that a store cannot take ------------------------------------------------------------


def _unless_too_large(
    call: Keyed, epoch: int, outcome: Returned, data: bytes, why: str
) -> KeyedFlow:
    """Goes on if the value can be kept; else ends the call without it."""
    why = why or (yield from _too_large(data))
    if why:
        yield from _not_kept(call, epoch, outcome, why)


def _too_large(data: bytes) -> Generator[Any, Answer, str]:
    """Why an outcome is not kept, or nothing."""
    limit = yield SizeLimit()
    if limit is None or len(data) <= limit:
        return ""
    return f"it has {len(data)} bytes as JSON, and {limit} are kept at most"


def _not_kept(call: Keyed, epoch: int, outcome: Returned, why: str) -> KeyedFlow:
    """It has been done: better a call that is not repeated than a result that is.

    It is warned of at the end: a warning may be made an error.
    """
    now = yield Question.WALL
    error = ResultNotKept(call.operation, call.key[:_LONGEST], moment_of(now), why)
    data = encode_outcome(Failed(error))
    metadata = call.metadata if len(call.metadata) <= _LONGEST else ""
    settle = Settle(call.owner, epoch, _SUCCEEDED, data, call.ttl, metadata)
    yield from _settle(call, settle, outcome)
    yield EmitEvent("not_kept")
    yield Notice(MainstayWarning, f"the result of {call.operation} is not kept: {why}")
    yield outcome


def _not_taken(
    call: Keyed, epoch: int, outcome: Returned, data: bytes, answer: RecordAnswer | Exception
) -> KeyedFlow:
    """The store did not take the value; without it the record may still be written."""
    if _is_refused(data, answer):
        yield from _not_kept(call, epoch, outcome, str(answer))
    yield from _unsettled(call, answer, outcome)


def _is_refused(data: bytes, answer: RecordAnswer | Exception) -> bool:
    """Whether the size of an outcome is, or may be, why the store did not take it."""
    is_lost = isinstance(answer, StoreUnavailable) and len(data) > _LARGE
    return is_lost or isinstance(answer, ValueTooLarge)


def _record_failure(call: Keyed, epoch: int, failure: Exception) -> KeyedFlow:
    """Records a failure; of one that is too large, its class and the beginning of its text."""
    data = encode_outcome(Failed(failure))
    if len(data) > call.small and (yield from _too_large(data)):
        data = encode_shortened_failure(failure)
    settle = Settle(call.owner, epoch, _FAILED, data, call.ttl, call.metadata)
    answer = yield StoreCommand(settle)
    if _is_refused(data, answer):
        data = encode_shortened_failure(failure)
        settle = Settle(call.owner, epoch, _FAILED, data, call.ttl)
        answer = yield StoreCommand(settle)
    if type(answer) is not Done:
        yield from _unsettled(call, answer, failure)
    yield _RECORDED
    yield failure


def _settle(call: Keyed, command: Settle | Doubt, outcome: Outcome) -> KeyedFlow:
    """Records the outcome, or raises that it could not be."""
    answer = yield StoreCommand(command)
    if type(answer) is not Done:
        yield from _unsettled(call, answer, outcome)


def _unsettled(call: Keyed, answer: RecordAnswer | Exception, outcome: Outcome) -> KeyedFlow:
    """The store was unavailable, or the lease was lost: a late result never overwrites."""
    is_final = not isinstance(outcome, OutcomeUnknown)
    yield from _unless_unavailable(call, answer, outcome, is_final=is_final)
    yield EmitEvent("lost")
    value, failure = (outcome.value, None) if isinstance(outcome, Returned) else (None, outcome)
    lost = LeaseLost(call.operation, call.key, value)
    lost.__cause__ = failure
    yield lost


def _unless_unavailable(
    call: Keyed, answer: RecordAnswer | Exception, outcome: Outcome, *, is_final: bool = False
) -> KeyedFlow:
    """If the store was unavailable: raises with a note of what happened, and hides no failure.

    An outcome that was to be recorded raises the store's error; a failure is its cause.
    """
    if not isinstance(answer, Exception):
        return
    raised: BaseException = answer
    ended, why = "returned", ""
    if isinstance(outcome, BaseException) and is_final:
        raised.__cause__, ended = outcome, f"raised {type(outcome).__name__}"
    elif isinstance(outcome, BaseException):
        raised, ended, why = outcome, "ended so", f" ({answer})"
    then = "it may run again" if call.on_crash == "retry" else "its outcome is unknown"
    note = (
        f"{call.operation} ran and {ended}, but that could not be recorded under the key"
        f" {call.key!r}{why}; once its lease of {call.lease:g} s is over {then}"
    )
    from mainstay.core.redact.redactor import REDACTOR

    add_note(raised, (call.redact or REDACTOR).text(note))
    yield raised
