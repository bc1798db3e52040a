"""What if: recorded calls, run again under another policy by the same flow.

Attempt n has the outcome that it has in the record. A record does not hold three things, and the
result states each:

- An attempt that was never made: assumed by a rule, `rate`, `fail` or `succeed`. By `rate` it
  succeeds with the share of retried attempts that did, after such a failure of that operation in
  the record; drawn from the call's key, so that a second run gives the same.
- Whether an attempt at another moment would have ended otherwise: its outcome stays.
- What guards would have answered to other traffic: their answers stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mainstay.core.audit.plan_codec import declared
from mainstay.core.audit.reconstruct import Recollection, exception_of, policy_of, result_of
from mainstay.core.base.deadline import NEVER
from mainstay.core.base.entropy import uniform
from mainstay.core.base.validate import MAX_ATTEMPTS
from mainstay.core.retry.call import call_flow
from mainstay.core.retry.effects import Consult, Question, Returned, Stop
from mainstay.core.retry.give_up import GaveUp
from mainstay.core.retry.plan import Plan
from mainstay.errors import AttemptTimeout, UsageError

if TYPE_CHECKING:
    from mainstay.core.audit.recorded_calls import Attempt, Call
    from mainstay.core.base.types import Answer
    from mainstay.core.retry.call import Effect
    from mainstay.core.retry.effects import Outcome as AttemptOutcome
    from mainstay.core.retry.policy import Policy

RULES = {
    "rate": "succeeds as often as retried attempts did after such a failure of that operation",
    "fail": "fails as the last one did",
    "succeed": "succeeds",
}
"""What is assumed of an attempt that was never made."""
MOST_CHANCES = 10_000


class Chances:
    """How often retried attempts succeeded: by operation and kind of the failure before."""

    def __init__(self, assume: str = "rate") -> None:
        if assume not in RULES:
            raise UsageError(f"assume={assume!r}: there are {', '.join(RULES)}")
        self._assume = assume
        self._seen: dict[tuple[str, str], list[int]] = {}

    def learn(self, call: Call) -> None:
        """Takes in the retried attempts of one recorded call."""
        for before, attempt in zip(call.attempts, call.attempts[1:], strict=False):
            good = attempt.evidence is None
            for key in ((call.operation, before.kind), (call.operation, ""), ("", "")):
                made = self._seen.get(key)
                if made is None:
                    if len(self._seen) >= MOST_CHANCES:
                        continue
                    made = self._seen[key] = [0, 0]
                made[0] += good
                made[1] += 1

    def of(self, operation: str, kind: str) -> float:
        """The chance of a retried attempt; that of the operation or of all if none was made."""
        if self._assume != "rate":
            return float(self._assume == "succeed")
        for key in ((operation, kind), (operation, ""), ("", "")):
            if key in self._seen:
                good, made = self._seen[key]
                return good / made
        return 0.0


class Outcome(msgspec.Struct, frozen=True):
    """What came of a call."""

    succeeded: bool
    waited: float
    starts: tuple[float, ...]
    """When each attempt began, in seconds after the first."""
    assumed: int = 0
    """Attempts whose outcome the record does not hold."""

    @property
    def attempts(self) -> int:
        return len(self.starts)


def recorded(call: Call) -> Outcome:
    """What came of a call as the record has it."""
    starts, now = [], 0.0
    for attempt in call.attempts:
        now += attempt.wait
        starts.append(now)
        now += attempt.seconds
    return Outcome(call.succeeded, call.waited, tuple(starts))


def ready(policy: Policy) -> Policy:
    """The policy with rules that match recorded exceptions by their names.

    Raises:
        UsageError: if a rule is a function, which can judge only a real exception.
    """
    plan = declared(policy, "idempotent")
    tagged = [*(plan.fields["retry_on"] or ()), *(plan.fields["never_retry_on"] or ())]
    tagged += [rule for rule, _ in plan.fields["classify"]]
    functions = [name for sort, name in tagged if sort == "function"]
    functions += ["wait_from"] * (policy.wait_from is not None)
    if functions:
        raise UsageError(
            f"{functions[0]} cannot be asked: a record holds no exceptions, only what they were",
            hint="name classes, codes or kinds instead",
        )
    named = policy_of(plan.fields, Recollection())
    return policy.replace(
        retry_on=named.retry_on,
        never_retry_on=named.never_retry_on,
        classify=named.classify,
        retry_if_result=named.retry_if_result,
    )


def rerun(call: Call, policy: Policy, chances: Chances) -> Outcome:
    """What would have come of a call under a policy that is `ready`."""
    return _Again(call, policy, chances).run()


class _Again:
    """One call, run again."""

    def __init__(self, call: Call, policy: Policy, chances: Chances) -> None:
        self.call, self.policy, self.chances = call, policy, chances
        self.at = call.opening.started
        self.waited = 0.0
        self.assumed = 0
        self.starts: list[float] = []
        self.before = call.plan.fields if call.plan is not None else {}
        self.until = self._until()

    def run(self) -> Outcome:
        call = self.call
        plan = Plan(self.policy, call.operation, 1, call.plan.idempotency if call.plan else "")
        plan.is_guarded = bool(call.refusal)
        plan.rule = call.rule  # so that a difference is the policy's
        limit = min(call.opening.limit, self.policy.max_attempts)
        flow = call_flow(plan, None, call.key, call.enclosing, self.until, limit)
        effect = flow.send(None)
        while not isinstance(effect, BaseException | Returned):
            effect = flow.send(self._answer(effect))
        flow.close()
        succeeded = isinstance(effect, Returned) and effect.is_accepted
        starts = tuple(start - call.opening.started for start in self.starts)
        return Outcome(succeeded, self.waited, starts, self.assumed)

    def _until(self) -> float:
        """The deadline: the new policy's, or one around the call that is sooner."""
        opening = self.call.opening
        own = self.before.get("deadline")
        ends = [] if self.policy.deadline is None else [opening.started + self.policy.deadline]
        if opening.until is not None and (own is None or opening.until < opening.started + own):
            ends.append(opening.until)
        return min(ends, default=NEVER)

    def _answer(self, effect: Effect) -> Answer:
        if type(effect) is float:
            return self._attempt(effect)
        if effect is Question.NOW:
            return self.at
        if effect is Question.SINCE:
            return 0  # as the mark of the stand-in
        if effect is Question.WALL:
            return (self.call.wall or 0.0) + self.at - self.call.opening.started
        if isinstance(effect, Consult):
            is_now = self._is_refused() and not self.call.refused_after_wait
            return Stop(self.call.refusal) if is_now else effect.delay
        return None  # hooks and warnings

    def _is_refused(self) -> bool:
        """Whether this is where a guard ended the recorded call."""
        return bool(self.call.refusal) and len(self.starts) == len(self.call.attempts)

    def _attempt(self, delay: float) -> AttemptOutcome | Stop:
        """How the next attempt ends; the clock goes on."""
        self.at += delay
        self.waited += delay
        if self._is_refused() and self.call.refused_after_wait:
            return Stop(self.call.refusal)
        self.starts.append(self.at)
        known = self.call.attempts[len(self.starts) - 1 : len(self.starts)]
        attempt = known[0] if known else None
        if attempt is None or self._was_cut_sooner(attempt):
            attempt = self._assumed()
        limit = self._cut(attempt.seconds)
        self.at += attempt.seconds if limit is None else limit
        return AttemptTimeout(limit) if limit is not None else _outcome(attempt)

    def _assumed(self) -> Attempt:
        """An attempt that the record does not hold; it takes as long as the last one did."""
        self.assumed += 1
        last = self.call.attempts[: len(self.starts)][-1]
        u = uniform(self.call.key, MAX_ATTEMPTS + len(self.starts))
        if u < self.chances.of(self.call.operation, last.kind):
            return msgspec.structs.replace(last, evidence=None)
        return last

    def _was_cut_sooner(self, attempt: Attempt) -> bool:
        """Whether it was cut after a time that it has more of now: it might have succeeded."""
        cut = attempt.evidence.timeout if attempt.evidence is not None else None
        return cut is not None and cut < self._room()

    def _cut(self, seconds: float) -> float | None:
        """Where an attempt is cut that is allowed less time now than it was; None if it is not."""
        room = self._room()
        had = self._time(self.before.get("attempt_timeout"), self.call.opening.until)
        return max(0.0, room) if seconds > room and room < had else None

    def _room(self) -> float:
        """How long an attempt may take that begins now."""
        return self._time(self.policy.attempt_timeout, self.until)

    def _time(self, timeout: float | None, until: float | None) -> float:
        left = NEVER if until is None else until - self.starts[-1]
        return left if timeout is None else min(timeout, left)


def _outcome(attempt: Attempt) -> AttemptOutcome:
    if attempt.evidence is None:
        return Returned(None)
    if not attempt.evidence.classes:
        return Returned(result_of(attempt.evidence))
    failure = exception_of(attempt.evidence)
    if attempt.inner:
        GaveUp("", "", 2, attempt.inner, moment=0).put_on(failure)
    return failure
