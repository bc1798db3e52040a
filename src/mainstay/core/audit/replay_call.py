"""The flow of a recorded call, run again: on stand-ins, with the recorded answers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mainstay.core.audit.reconstruct import Recollection, exception_of, policy_of, result_of
from mainstay.core.base.deadline import NEVER
from mainstay.core.base.event import Event
from mainstay.core.base.proof import RULE
from mainstay.core.events.builder import EventBuilder
from mainstay.core.retry.call import call_flow
from mainstay.core.retry.effects import TOO_LATE, Consult, Enclosing, Question, Returned, Stop
from mainstay.core.retry.events import (
    AttemptFailed,
    CallSucceeded,
    GivenUp,
    PlanDeclared,
    RetryAttempt,
)
from mainstay.core.retry.give_up import GaveUp
from mainstay.core.retry.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.base.types import Answer
    from mainstay.core.retry.effects import Outcome
    from mainstay.core.retry.policy import Policy

Recorded = list[tuple[int, Event]]
"""The events of one call, each with its number in the log."""


class Declared:
    """A plan from the log, ready to be run."""

    def __init__(self, event: PlanDeclared) -> None:
        self.fields = event.fields
        self.recalled = Recollection()
        self._policies: dict[int, Policy] = {}
        self.idempotency = event.idempotency
        self.rules = {each["guard"]: each["rule"] for each in event.guards}
        self.is_guarded = bool(event.guards)
        self.policy(RULE)  # a plan that cannot be read is found when it is declared

    def policy(self, rule: int) -> Policy:
        """The policy as that version of the rules reads it."""
        if rule not in self._policies:
            self._policies[rule] = policy_of(self.fields, self.recalled, rule)
        return self._policies[rule]


class CallReplay:
    """The events that the flow of a recorded call yields when it is run again.

    Each recorded event brings the answers that were given before it, and the outcome of its
    attempt.
    """

    def __init__(self, plan: Declared, call: Recorded) -> None:
        self._call = [event for _, event in call]
        proof = self._call[0].proved
        self._rule = proof.rule if proof is not None else 1
        self._declared = plan
        self._answers: deque[Answer] = deque()
        self._index = -1
        self._found: int | None = None
        """The attempts of a retry further in that had given up."""

    def __iter__(self) -> Iterator[Event | str]:
        """The events of the flow; a sentence if it does something that was not recorded."""
        first = self._call[0]
        proof = first.proved
        assert proof, "a call without proof is not replayed"
        opening = proof.opening
        assert opening, "a call whose beginning is not in the log is not replayed"
        rule = proof.rule
        policy = self._declared.policy(rule)
        plan = Plan(policy, first.operation, 1, self._declared.idempotency)
        plan.rule = rule
        plan.is_guarded = self._declared.is_guarded
        flow = call_flow(
            plan,
            self._outcome(),
            outer=Question.ENCLOSING,
            until=NEVER if opening.until is None else opening.until,
            limit=opening.limit,
            builder=EventBuilder(plan, opening.started),
            attempt=opening.attempt,
            delay=opening.delay,
        )
        answer: Answer = None
        while True:
            effect = flow.send(answer)
            answer = None
            if isinstance(effect, Event):
                yield effect
            elif type(effect) is float:
                answer = self._outcome()
                if answer is None:
                    yield "another attempt"
                    return
            elif isinstance(effect, Question | Consult):
                answer = self._answer(effect)
                if answer is _MISSING:
                    yield f"a question that was not asked: {effect}"
                    return
            elif isinstance(effect, BaseException | Returned):
                return

    def _outcome(self) -> Outcome | Stop | None:
        """How the next attempt ended, by the next recorded event; None if there is none."""
        self._index += 1
        event = self._event()
        while isinstance(event, RetryAttempt):  # decided on the outcome before
            self._index += 1
            event = self._event()
        if isinstance(event, AttemptFailed):
            return self._failure(event)
        if isinstance(event, CallSucceeded):
            self._bring(event)
            return Returned(None)
        if isinstance(event, GivenUp):  # the attempt was not made
            self._bring(event)
            stop = self._answers.popleft() if self._answers else None
            return _stopped(stop["stop"]) if type(stop) is dict and "stop" in stop else None
        return None

    def _event(self) -> Event | None:
        return self._call[self._index] if self._index < len(self._call) else None

    def _failure(self, event: AttemptFailed) -> Outcome:
        """The stand-in of a failure, with the answers up to the end of the decision on it."""
        evidence = event.proved and event.proved.evidence
        assert evidence, "a failure without evidence is not replayed"
        self._bring(event)
        following = self._call[self._index + 1 : self._index + 2]
        if following and isinstance(following[0], RetryAttempt | GivenUp):
            self._bring(following[0])
        if not evidence.classes:
            return Returned(result_of(evidence))
        failure = exception_of(evidence)
        if self._found is not None:
            GaveUp("", "", 2, self._found, moment=0).put_on(failure)
        return failure

    def _bring(self, event: Event) -> None:
        """Takes the answers of an event; what the flow finds by itself is put where it looks."""
        self._found = None
        for answer in event.proved.answers if event.proved else ():
            if type(answer) is dict and "inner" in answer:
                self._found = answer["inner"]
            elif type(answer) is dict and "base" in answer:
                self._declared.recalled.bases.append(answer["base"])
            elif type(answer) is dict and "wait" in answer:
                self._declared.recalled.waits.append(answer["wait"])
            elif type(answer) is not dict or "rule" not in answer:
                self._answers.append(answer)

    def _is_enclosed(self) -> bool:
        return bool(self._answers) and type(self._answers[0]) is list

    def _answer(self, effect: Question | Consult) -> Answer:
        if effect is Question.SINCE:
            return 0  # as the mark of the stand-in
        if effect is Question.ENCLOSING and self._rule > 1 and not self._is_enclosed():
            return None  # it is recorded only if there is one
        if not self._answers:
            return _MISSING
        answer = self._answers.popleft()
        if effect is Question.ENCLOSING:
            return None if answer is None else Enclosing(*answer)
        if isinstance(effect, Consult) and type(answer) is dict:
            return Stop(answer["stop"])
        return answer


_MISSING = object()


def _stopped(text: str) -> Stop:
    """The reason of that text: the core compares its own by identity."""
    return TOO_LATE if text == TOO_LATE.text else Stop(text)
