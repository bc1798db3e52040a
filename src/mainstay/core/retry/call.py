"""The flow of one call, as a generator that yields effects and receives answers.

It decides everything and does nothing: see the table in docs/design.md for what it yields and
what the driver answers. A float means "wait that long, then invoke"; an exception means "raise
this"; Returned means "return this"; the rest are questions, hooks and events.

The caller may already have made the first attempt (the generated wrapper has): then its outcome
is handed in, and the happy path never comes here.
"""

from __future__ import annotations

from mainstay.core.base.deadline import NEVER, fits
from mainstay.core.base.entropy import uniform
from mainstay.core.known.kind import Kind
from mainstay.core.known.resolve import repeated_inside
from mainstay.core.retry.backoff import wait_of
from mainstay.core.retry.classify import Classification, classify, judged
from mainstay.core.retry.effects import (
    EXHAUSTED,
    GIVEN_UP_INSIDE,
    KIND_EXHAUSTED,
    MAY_BE_APPLIED,
    NOT_RETRYABLE,
    OUT_OF_TIME,
    REFUSED,
    RETRY_AFTER,
    TOO_LATE,
    Consult,
    Question,
    Returned,
    Stop,
    Warn,
    function_warning,
)
from mainstay.core.retry.give_up import mark_on, newest_mark
from mainstay.core.retry.hooks import CallHook, RetryInfo
from mainstay.core.retry.not_retried import after_retries, leave
from mainstay.core.retry.past_rules import meet
from mainstay.core.retry.predicates import truth_of
from mainstay.core.retry.retry_after import hint_of_result
from mainstay.errors import (
    AttemptTimeout,
    DeadlineExceeded,
    NestedRetryError,
    NestedRetryWarning,
    OutcomeUnknown,
    ResultRejected,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeAlias

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Answer, UserValue
    from mainstay.core.retry.effects import CallEvents, Enclosing, Outcome
    from mainstay.core.retry.give_up import GaveUp
    from mainstay.core.retry.plan import Plan
    from mainstay.core.retry.predicates import AwaitAnswer

    Effect: TypeAlias = (
        "float | BaseException | Returned | Question | Consult | CallHook | AwaitAnswer | Event"
        " | Warn"
    )
    Flow: TypeAlias = Generator[Effect, Answer, None]
    Deciding: TypeAlias = Generator[Effect, Answer, Effect]


_DRAW = Question.DRAW


def call_flow(
    plan: Plan,
    outcome: Outcome | Stop | None = None,
    key: int | Question = _DRAW,
    outer: Enclosing | Question | None = None,
    until: float = NEVER,
    limit: int = 0,
    builder: CallEvents | None = None,
    attempt: int = 1,
    delay: float = 0.0,
    own: int = -1,
    has_own_end: bool = True,
) -> Flow:
    """The whole flow of one call, or the rest of it after an outcome.

    Args:
        plan: what is known before the call.
        outcome: an attempt's outcome, if one was made already.
        key: the call's key for randomness; asked for at the first failure if not given.
        outer: the enclosing retry that refuses others inside it, if any; Question.ENCLOSING to
            ask for it when a second attempt is scheduled.
        until: the moment of the deadline, on the driver's monotonic clock.
        limit: a smaller number of attempts than the policy's; 0 for the policy's own.
        builder: makes the events, if there is a listener.
        attempt: which attempt the outcome is of.
        delay: how long was waited before it.
        own: see `Plan.note`.
        has_own_end: whether `until` is the policy's own deadline, and not the end of what encloses
            the call.
    """
    care = Care(plan, key, outer, until, limit or plan.policy.max_attempts, builder)
    care.own, care.has_own_end = own, has_own_end
    if outcome is None:
        outcome = yield 0.0
    while True:
        effect = yield from care.decide(outcome, attempt, delay)
        if type(effect) is not float:
            yield effect
            return
        # While waiting, nothing holds on to the failure, its traceback and their frames.
        outcome, delay = None, effect
        outcome = yield delay
        attempt += 1


class Care:
    """Weighs everything that may decide one call.

    The exception and what it carries, attempts, limits by kind, a rule for results, a deadline,
    hooks, listeners, another retry around or inside this one.
    """

    __slots__ = (
        "builder",
        "counts",
        "has_own_end",
        "inside",
        "key",
        "last",
        "limit",
        "outer",
        "own",
        "plan",
        "real",
        "refusal",
        "until",
    )  # fmt: skip

    def __init__(
        self,
        plan: Plan,
        key: int | Question,
        outer: Enclosing | Question | None,
        until: float,
        limit: int,
        builder: CallEvents | None,
    ) -> None:
        self.plan = plan
        self.key: Answer = key
        self.outer: Answer = outer
        self.until = until
        self.limit = limit
        self.builder = builder
        self.counts: dict[Kind, int] = {}
        self.own = -1
        self.has_own_end = True
        self.inside: GaveUp | None = None
        """The mark of an inner retry that has given up."""
        self.refusal: NestedRetryError | None = None
        """What is raised if retries meet under a policy that refuses that."""
        self.last: tuple[Outcome, Classification] | None = None
        """The outcome that is being retried, if a deadline or a guard may yet end that."""
        self.real: BaseException | None = None
        """The last error that was not our own deadline's doing."""

    def decide(self, outcome: Outcome | Stop, attempt: int, delay: float) -> Deciding:
        """What comes next: a delay before another attempt, or the end."""
        if isinstance(outcome, Stop):
            return (yield from self._not_made(attempt - 1, outcome))
        verdict = yield from self._judge(outcome)
        if verdict is None:
            yield from self._report_success(attempt, delay)
            return outcome
        if verdict is _REJECTED and isinstance(outcome, Returned):
            verdict = _rejected(outcome.value)
        if self.key is Question.DRAW:
            self.key = yield Question.DRAW
        yield from self._report_failure(outcome, verdict, attempt, delay)
        stop = self._refusal(verdict, attempt)
        if stop is None and self.plan.rule > 1 and isinstance(outcome, NestedRetryError):
            stop = NOT_RETRYABLE  # a mistake in the program, whatever the policy retries
        if stop is None:
            stop = yield from self._meet(outcome, attempt)
        if stop is None:
            delay, stop = yield from self._delay(outcome, verdict, attempt, delay)
        if self.until != NEVER:
            stop = self._in_time((yield Question.NOW), outcome, delay, stop)
        if stop is None and self.plan.is_guarded:
            delay, stop = yield from self._consult(outcome, delay)
        if stop is None and self.outer is not None and attempt == 1:
            stop = yield from self._look_around(outcome)
        if stop is None:
            yield from self._announce(outcome, verdict, attempt, delay)
            if self.until != NEVER or self.plan.is_guarded:
                self.last = (outcome, verdict)
            return delay
        return (yield from self._give_up(outcome, verdict, attempt, stop))

    def _give_up(
        self, outcome: Outcome, verdict: Classification, attempt: int, stop: Stop
    ) -> Deciding:
        """The end of the call, after its event; the answer to the event is an inbox item's id."""
        item_id = None
        if self.builder is not None:
            now = yield Question.NOW
            item_id = yield self.builder.gave_up(outcome, verdict, attempt, stop, now)
        end = self._end(outcome, verdict, attempt, stop)
        is_mistake = isinstance(outcome, NestedRetryError)  # which no policy can name
        if stop is NOT_RETRYABLE and verdict.note and attempt == 1 < self.limit and not is_mistake:
            leave(verdict.note, end)  # type: ignore[arg-type]  # no result is final at once
        if item_id is not None and isinstance(end, OutcomeUnknown):
            end.item_id = item_id
        return end

    def _consult(
        self, outcome: Outcome, delay: float
    ) -> Generator[Effect, Answer, tuple[float, Stop | None]]:
        """What the guards make of another attempt: the delay, or a reason to stop."""
        failure = None if isinstance(outcome, Returned) else outcome
        answer = yield Consult(failure, delay)
        if type(answer) is Stop:
            return delay, answer
        if answer > delay and self.until != NEVER:
            return answer, self._in_time((yield Question.NOW), outcome, answer, None)
        return answer, None

    def _not_made(self, made: int, stop: Stop) -> Deciding:
        """The end of a call whose next attempt was scheduled, but came too late or was refused."""
        last, self.last = self.last, None
        assert last is not None
        outcome, verdict = last
        stop = OUT_OF_TIME if stop is TOO_LATE else stop
        return (yield from self._give_up(outcome, verdict, made, stop))

    def _judge(self, outcome: Outcome) -> Generator[Effect, Answer, Classification | None]:
        """The classification of an outcome; None for a result that is accepted."""
        policy = self.plan.policy
        if not isinstance(outcome, Returned):
            if policy._rules.functions:
                verdict = yield from judged(outcome, policy._rules)
            else:
                verdict = classify(outcome, policy._rules)
            for error in verdict.errors:
                yield function_warning(policy, error)
            return verdict
        if policy.retry_if_result is None:
            return None
        try:
            is_rejected = policy.retry_if_result(outcome.value)
            if is_rejected is not False and is_rejected is not True:
                is_rejected = yield from truth_of(is_rejected)
            return _REJECTED if is_rejected else None
        except Exception as error:  # it has not asked for another result
            yield function_warning(policy, error)
            return None

    def _refusal(self, verdict: Classification, attempt: int) -> Stop | None:
        if verdict.is_ambiguous and self.plan.idempotency == "unsafe":
            return MAY_BE_APPLIED
        if not verdict.retryable:
            return NOT_RETRYABLE
        return EXHAUSTED if attempt >= self.limit else None

    def _meet(self, outcome: Outcome, attempt: int) -> Generator[Effect, Answer, Stop | None]:
        """Looks for a retry further in that has given up on this, since the attempt began."""
        if isinstance(outcome, Returned):
            return None
        if self.plan.rule == 1:
            return (yield from meet(self, outcome, attempt))
        mark, context = newest_mark(outcome), outcome.__context__
        before = None if context is None else mark_on(context)
        if mark is None and before is None:
            return None
        since = yield Question.SINCE
        if mark is not None and mark.moment >= since:
            return (yield from self._stand_back(mark))
        if before is not None and before.moment >= since and self.plan.policy.nested != "allow":
            yield self._product(before, "up to")  # a handler raised anew: both retry
        return None

    def _stand_back(self, mark: GaveUp) -> Generator[Effect, Answer, Stop | None]:
        """What is made of a failure that a retry further in has given up on."""
        plan, mode = self.plan, self.plan.policy.nested
        self.inside, made = mark, mark.made
        if self.builder is not None:
            self.builder.record_answer({"inner": made})
        if mode == "refuse":
            self.refusal = NestedRetryError(mark.by or _UNNAMED, plan.operation, made, self.limit)
            return REFUSED
        if mode != "allow":
            yield self._product(mark, "up to" if mode == "warn" else "avoided")
        return GIVEN_UP_INSIDE if mode == "collapse" else None

    def _product(self, mark: GaveUp, word: str) -> Warn:
        inner, outer, n, m = mark.by or _UNNAMED, self.plan.operation, mark.made, self.limit
        text = (
            f"{inner} retries inside {outer}: {word} {n} x {m} = {n * m} calls; retry in one place,"
            f' or set nested="allow" in the policy of {outer} if both are meant'
        )
        return Warn(NestedRetryWarning, text, (inner, outer))

    def _look_inside(self, outcome: Outcome, library: str) -> Flow:
        """Warns if the client has repeated the request by itself; once for each library."""
        plan, m = self.plan, self.limit
        plan.looked |= {library}
        assert not isinstance(outcome, Returned), "a result is of no library"
        found = repeated_inside(outcome)
        if found is None or plan.policy.nested == "allow":
            return
        name, n, off = found
        text = (
            f"{name} has sent a request {n} times by itself inside {plan.operation}: up to"
            f' {n} x {m} = {n * m} requests; {off}, or set nested="allow" in the policy of'
            f" {plan.operation} if both are meant"
        )
        yield Warn(NestedRetryWarning, text, (f"{name} inside {plan.operation}",))

    def _look_around(self, outcome: Outcome) -> Generator[Effect, Answer, Stop | None]:
        """Before the second attempt: whether an enclosing retry refuses a retry inside it."""
        if isinstance(outcome, Returned) or self.plan.rule == 1:
            return None
        if self.outer is Question.ENCLOSING:
            self.outer = yield Question.ENCLOSING
        if self.outer is None:
            return None
        outer = self.outer
        self.refusal = NestedRetryError(
            self.plan.operation, outer.operation, self.limit, outer.attempts
        )
        return REFUSED

    def _delay(
        self, outcome: Outcome, verdict: Classification, attempt: int, previous: float
    ) -> Generator[Effect, Answer, tuple[float, Stop | None]]:
        """How long to wait: by the policy, by the kind's own rule, or as the server asked."""
        policy, u = self.plan.policy, uniform(self.key, attempt)
        n, rule = attempt, None
        if policy.per_kind is not None:
            n = self.counts[verdict.kind] = self.counts.get(verdict.kind, 0) + 1
            rule = policy.per_kind.get(verdict.kind)
            if rule is not None and rule.max_attempts is not None and n >= rule.max_attempts:
                return previous, KIND_EXHAUSTED
        backoff = (rule and rule.backoff) or policy.backoff
        try:
            delay = policy.delay(n, u, previous, rule)
        except Exception as error:  # a backoff of the user's own
            yield function_warning(policy, error)
            delay = backoff.max_delay
        if self.builder is not None and backoff.kind == "custom":
            self.builder.record_answer({"base": delay})
        if policy.wait_from is not None:
            delay = yield from self._computed(outcome, delay)
        if verdict.hint is None or not policy.respect_retry_after:
            return delay, None
        asked = verdict.hint.seconds
        if asked is None:
            wall = yield Question.WALL
            asked = max(0.0, (verdict.hint.at or 0.0) - wall)
        stop = RETRY_AFTER if asked > policy.max_retry_after else None
        if self.plan.rule > 1:  # the first version let clients that were asked together return so
            jitter = (rule and rule.jitter) or policy.jitter
            asked += jitter.on_top(asked, u, backoff.max_delay)
        return max(delay, asked), stop

    def _computed(self, outcome: Outcome, delay: float) -> Generator[Effect, Answer, float]:
        """The wait that the policy's own function computes from the outcome, if it does."""
        policy, wait = self.plan.policy, None
        assert policy.wait_from is not None
        try:
            ended = outcome.value if isinstance(outcome, Returned) else outcome
            wait = wait_of(policy.wait_from(ended))
        except Exception as error:
            yield function_warning(policy, error)
        if self.builder is not None:
            self.builder.record_answer({"wait": wait})
        return delay if wait is None else wait

    def _in_time(
        self, now: float, outcome: Outcome, delay: float, stop: Stop | None
    ) -> Stop | None:
        """No attempt starts that cannot fit, and no wait passes the deadline."""
        cut = isinstance(outcome, AttemptTimeout) and not fits(now, 0.0, self.until)
        if cut or (stop is None and not fits(now, delay, self.until)):
            stop = OUT_OF_TIME
        if not isinstance(outcome, Returned) and not cut:
            self.real = outcome
        return stop

    def _report_failure(
        self, outcome: Outcome, verdict: Classification, attempt: int, delay: float
    ) -> Flow:
        if self.builder is not None:
            yield self.builder.attempt_failed(outcome, verdict, attempt, self.limit, self.key)
        hook = self.plan.policy.after_retry
        if hook is not None and attempt > 1:
            yield CallHook("after_retry", hook, self._info(outcome, verdict, attempt, delay))

    def _report_success(self, attempt: int, delay: float) -> Flow:
        hook = self.plan.policy.after_retry
        if hook is not None and attempt > 1:
            info = RetryInfo(self.plan.operation, attempt, self.limit, delay)
            yield CallHook("after_retry", hook, info)
        if self.builder is not None:
            yield self.builder.call_succeeded(attempt, (yield Question.NOW))

    def _announce(
        self, outcome: Outcome, verdict: Classification, attempt: int, delay: float
    ) -> Flow:
        if verdict.known is not None and verdict.known.table not in self.plan.looked:
            yield from self._look_inside(outcome, verdict.known.table)
        if self.builder is not None:
            yield self.builder.retry_scheduled(
                outcome, verdict, attempt, self.limit, delay, self.key
            )
        hook = self.plan.policy.before_retry
        if hook is not None:
            yield CallHook("before_retry", hook, self._info(outcome, verdict, attempt, delay))

    def _info(
        self, outcome: Outcome, verdict: Classification, attempt: int, delay: float
    ) -> RetryInfo:
        failure = None if isinstance(outcome, Returned) else outcome
        return RetryInfo(
            self.plan.operation, attempt, self.limit, delay, failure, verdict.kind, verdict.reason
        )

    def _end(self, outcome: Outcome, verdict: Classification, attempt: int, stop: Stop) -> Effect:
        """The exception, with a note that is also the mark; or the value that was not accepted."""
        policy = self.plan.policy
        if isinstance(outcome, Returned) and policy.on_exhausted == "return":
            return Returned(outcome.value, is_accepted=False)
        if self.refusal is not None:
            assert not isinstance(outcome, Returned)
            return _caused(self.refusal, outcome)
        error = self._final_error(outcome, stop, attempt)
        if attempt > 1 or (stop is not NOT_RETRYABLE and stop is not EXHAUSTED):
            inside, by = 0, ""
            if stop is GIVEN_UP_INSIDE and self.inside is not None:
                inside, by = self.inside.made, self.inside.by
            is_mark = self._has_given_up(verdict, attempt, stop)
            is_final = stop is NOT_RETRYABLE and not isinstance(outcome, NestedRetryError)
            why = after_retries(verdict.note) if is_final else ""
            self.plan.note(stop, attempt, inside, is_mark, self.own, why, by).put_on(error)
        return error

    def _has_given_up(self, verdict: Classification, attempt: int, stop: Stop) -> bool:
        """Whether it would have retried this, and has retried or was stopped by what is its own."""
        if self.limit == 1 or not self.plan.repeats(verdict):
            return False
        return attempt > 1 or stop is not OUT_OF_TIME or self.has_own_end

    def _final_error(self, outcome: Outcome, stop: Stop, attempt: int) -> BaseException:
        """The failure itself; ours if the deadline cut the attempt, or an unsafe call was cut."""
        plan, cut = self.plan, isinstance(outcome, AttemptTimeout)
        if isinstance(outcome, Returned):
            return ResultRejected(plan.operation, attempt, outcome.value)
        if stop is MAY_BE_APPLIED or (cut and plan.idempotency == "unsafe"):
            return _caused(OutcomeUnknown(plan.operation), outcome)
        real = self.real
        if isinstance(outcome, AttemptTimeout) and stop is OUT_OF_TIME and outcome is not real:
            if attempt == 1:
                return _caused(DeadlineExceeded(outcome.timeout), outcome)
            limit = (self.has_own_end and plan.policy.deadline) or outcome.timeout
            cause = outcome if real is None else real  # an exception may count as false
            return _caused(DeadlineExceeded(limit, has_failed=True), cause)
        return outcome


_UNNAMED = "an inner retry"
"""For a mark of an older version, which had no name."""


def _caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


_REJECTED = Classification(Kind.TRANSIENT, True, "retry_if_result")
"""Of a result that is not accepted."""


def _rejected(value: UserValue) -> Classification:
    """Of a result that is not accepted, with the wait that it asks for."""
    hint = hint_of_result(value)
    if hint is None:
        return _REJECTED
    return Classification(_REJECTED.kind, True, _REJECTED.reason, hint)
