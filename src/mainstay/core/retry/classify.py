"""From a failure to a decision: may it be retried, what kind was it, how long should we wait?

Rules are values: an exception class, a name (of the class, a base, or the service's error code),
a Kind, or a predicate. The order is fixed: what is never retried, never_retry_on (final),
retry_on, then what is known of the exception itself. If its type settles it, the answer is kept.

A predicate may return something to await. Nothing waits here: `Unanswered` is raised then, and the
classification begins again when there is an answer; those before it are kept (predicates.py). If
nothing can await it, the failure is final: what was to decide has not.
"""

from __future__ import annotations

import mainstay.core.known.naming as naming
from mainstay.core.base.attributes import KEEPS_SIGNALS, is_direct
from mainstay.core.known.behind import may_be_of_client
from mainstay.core.known.http import ONCE
from mainstay.core.known.kind import RETRIED_KINDS, Kind, Known
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.resolve import hint_by_table, known_by_table, reads_hint, reads_more
from mainstay.core.known.signs import Asked, numbers_of
from mainstay.core.retry.kinds import RECORDED, is_never_retried, kind_of, known_of
from mainstay.core.retry.not_retried import (
    OUT_OF_MEMORY,
    by_kind,
    cannot_be_sent,
    excluded,
    in_group,
    may_be_applied,
    not_covered,
    not_named,
    note_for,
    of_code,
)
from mainstay.core.retry.predicates import (
    UNANSWERABLE,
    Answers,
    AwaitAnswer,
    Unanswerable,
    Unanswered,
    functions_in,
)
from mainstay.core.retry.retry_after import HINTS_ARE_CARRIED, Hint, hint_in, hint_of, parse
from mainstay.errors import AttemptTimeout, CallCancelled, WrapError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import TypeAlias

    from mainstay.core.base.types import Answer
    from mainstay.core.known.signs import Signs

    Rule: TypeAlias = type[BaseException] | str | Kind | Callable[[Exception], object]

CACHE_SIZE = 128
"""Exception types remembered per policy; far more than a service raises."""

# Attributes by which an instance is more precise than its type.
_INSTANCE_SIGNALS = frozenset({ONCE, "response", "status", "status_code", "winerror"})


class Classification:
    """What a failure is, and whether it may be retried.

    >>> verdict = classify(ConnectionResetError("peer"), Rules())
    >>> verdict.kind.value, verdict.retryable
    ('transient', True)
    """

    __slots__ = (
        "asked", "errors", "has_table_hint", "hint", "is_ambiguous", "kind", "known",
        "looks_behind", "note", "reason", "retryable",
    )  # fmt: skip

    def __init__(
        self,
        kind: Kind,
        retryable: bool,
        reason: str,
        hint: Hint | None = None,
        errors: tuple[Exception, ...] = (),
        asked: tuple[bool | None, ...] = (),
        note: str = "",
        known: Known | None = None,
        is_ambiguous: bool = False,
    ) -> None:
        self.kind = kind
        self.retryable = retryable
        self.known = known
        """What the table of its library had for it, if one decided, or its request does."""
        self.looks_behind = True
        """Whether a client that another failure like it came through may decide otherwise."""
        self.has_table_hint = False
        """Whether the table that decided may read how long the other side asks to wait."""
        is_known = known is not None and known.is_ambiguous
        self.is_ambiguous = is_ambiguous or kind is Kind.AMBIGUOUS or is_known
        self.reason = reason
        self.hint = hint
        self.errors = errors
        """What the user's own predicates raised while they were asked."""
        self.asked = asked
        """What they answered, in the order they were asked, those of a group's members included.

        None for one that returned something that nothing could await.
        """
        self.note = note
        """Which rule made it final, for the exception; empty if it is retryable, or a
        cancellation."""

    @property
    def retry_after(self) -> float | None:
        """The seconds the other side asked for; a date shows only in `hint.at`."""
        return self.hint.seconds if self.hint is not None else None

    def __setstate__(self, state: tuple[None, dict[str, Kind | Hint | str | bool | None]]) -> None:
        """Reads a pickle; version 1 called `errors` by another name, and had no note."""
        self.note, self.known, self.looks_behind, self.has_table_hint = "", None, True, False
        for name, value in state[1].items():
            setattr(self, name if name in Classification.__slots__ else "errors", value)

    def __repr__(self) -> str:
        word = "retryable" if self.retryable else "final"
        return f"Classification({self.kind.value}, {word}, {self.reason!r})"


_NOTHING: dict[Signs, Classification] = {}
"""Shared by all policies that have decided nothing by signs; never written to."""


class Rules:
    """A policy's rules, sorted once into what types can settle and what only instances can."""

    __slots__ = (
        "__weakref__", "asked", "classify", "decided", "functions", "never_retry_on", "remembers",
        "retry_on", "settled", "version",
    )  # fmt: skip

    def __init__(
        self,
        retry_on: tuple[Rule, ...] | None = None,
        never_retry_on: tuple[Rule, ...] = (),
        classify: Mapping[Rule, Kind] | None = None,
        version: int = 3,
    ) -> None:
        self.version = version
        """Version 1 retried a MemoryError if a rule covered it, version 2 any status and code of a
        class that a rule covers; replay still does."""
        self.retry_on = retry_on
        self.never_retry_on = never_retry_on
        self.classify = tuple(classify.items()) if classify else ()
        self.functions = functions_in(retry_on, never_retry_on, tuple(classify or ()))
        """The predicates among them."""
        self.asked: Asked | None = None
        self.remembers = not self.functions and not self.classify
        """Whether type, codes and what is known of a failure decide, and nothing else does."""
        self.settled: dict[type, Classification] = {}
        """The answer for every instance of a type, if the type alone decides."""
        self.decided: dict[Signs, Classification] = _NOTHING
        """The answers by type, codes and what was known of a failure."""

    def ask(self) -> Asked:
        """What the rules ask of a failure; found out when it is first needed."""
        if self.asked is None:
            self.asked = Asked(self.retry_on or (), self.never_retry_on)
        return self.asked

    def settle(self, cls: type, answer: Classification) -> None:
        """Remembers an answer, unless the type itself may carry a hint or it needs thought."""
        if answer.is_ambiguous or not KEEPS_SIGNALS[cls] or reads_more(cls):
            return
        if len(self.settled) >= CACHE_SIZE:
            self.settled.clear()
        if not self.settled:
            REGISTRY.depend(self)
        self.settled[cls] = answer

    def decide_alike(self, signs: Signs, answer: Classification) -> None:
        """Remembers the answer for all failures with these signs, if there are any."""
        if len(self.decided) >= CACHE_SIZE or not self.decided:
            self.decided = {}  # most policies never have one of their own
            REGISTRY.depend(self)
        if signs:
            self.decided[signs] = answer

    def forget(self) -> None:
        """Forgets the answers: a table that was registered may change them."""
        self.settled.clear()
        self.decided = _NOTHING


def classify(
    exception: BaseException, rules: Rules, answers: Answers | None = None
) -> Classification:
    """The classification of one failure under a policy's rules.

    >>> classify(PermissionError(), Rules(retry_on=(OSError,))).retryable
    False
    """
    cls, carried = type(exception), exception.__dict__
    answer = rules.settled.get(cls)
    if not carried:
        if answer is None and isinstance(exception, OSError):
            answer = rules.decided.get(numbers_of(exception))
        if answer is not None and (
            not answer.looks_behind
            or (trace := exception.__traceback__) is None  # as `is_direct`, without a call
            or (trace := trace.tb_next) is None
            or trace.tb_next is None
        ):
            return answer  # with nothing that could ask for a wait
    if answer is not None and _has_more(exception, answer):
        answer = None
    response, is_carried = carried.get("response"), HINTS_ARE_CARRIED[cls]
    if answer is None and not rules.remembers:
        answer = _judged(exception, rules, answers, None, ())
    elif answer is None:
        found = REGISTRY.found[cls]
        if found is not None and ONCE not in carried and RECORDED not in carried:
            known = known_by_table(found, exception, kind_of)  # as kind_of does, without a call
        else:
            known = known_of(exception) if ONCE in carried else kind_of(exception)
        asked = rules.asked or rules.ask()
        is_plain = known.is_shared and not (asked.names or known.unsafe)
        if is_plain and known.by_code:
            is_plain = known.by_status and is_carried and not isinstance(response, dict)
        signs: Signs = (cls, known) if is_plain else asked.signs(exception, known)  # the same
        answer = rules.decided.get(signs) or _judged(exception, rules, answers, known, signs)
    is_asking = "retry_after" in carried or "headers" in carried or not is_carried
    hint = hint_of(exception) if is_asking else None if response is None else hint_in(response)
    if hint is None and answer.has_table_hint:
        hint = parse(hint_by_table(exception))
    if hint is None:
        return answer
    return Classification(
        answer.kind, answer.retryable, answer.reason, hint, answer.errors, answer.asked,
        answer.note, answer.known, answer.is_ambiguous,
    )  # fmt: skip


def _has_more(exception: BaseException, answer: Classification) -> bool:
    """Whether what it carries, or a client that it came through, may decide otherwise."""
    is_plain = _INSTANCE_SIGNALS.isdisjoint(exception.__dict__)
    is_own = not answer.looks_behind or is_direct(exception)
    return not is_plain or not (is_own or REGISTRY.behind(exception) is None)


def judged(
    exception: BaseException, rules: Rules
) -> Generator[AwaitAnswer, Answer, Classification]:
    """The classification of a failure; what predicates return is awaited where it must be."""
    answers = Answers(waits=True)
    while True:
        try:
            return classify(exception, rules, answers)
        except Unanswered as unanswered:
            awaitable = unanswered.awaitable
        answers.begin_again((yield AwaitAnswer(awaitable)))


def first_match(exception: BaseException, rules: tuple[Rule, ...]) -> Rule | None:
    """The first rule that matches an exception.

    >>> first_match(ConnectionResetError(), ("Throttled", OSError))
    <class 'OSError'>
    """
    if not rules:
        return None
    inquiry = _Inquiry(exception, _NO_RULES, Answers())
    inquiry.known = kind_of(exception)
    try:
        return inquiry.first(rules)
    except Unanswerable:
        return None


def _judged(
    exception: BaseException, rules: Rules, given: Answers | None, known: Known | None, signs: Signs
) -> Classification:
    """The answer of the rules for a failure unlike those before it; it is kept if it may be."""
    inquiry = _Inquiry(exception, rules, given or Answers())
    answer = inquiry.answer(known)
    is_recorded = RECORDED in exception.__dict__
    answer.has_table_hint = answer.known is not None and reads_hint(type(exception))
    answer.looks_behind = known is None or is_recorded or may_be_of_client(exception, known)
    if known is not None and not isinstance(exception, BaseExceptionGroup):
        rules.decide_alike(signs, answer)
        if rules.ask().is_numbered(exception, known):
            rules.decide_alike(numbers_of(exception), answer)
    if inquiry.by_type and _INSTANCE_SIGNALS.isdisjoint(exception.__dict__):
        rules.settle(type(exception), answer)
    return answer


class _Inquiry:
    """One exception under examination; `by_type` stays True while only its type was looked at."""

    __slots__ = (
        "answers", "by_type", "exception", "is_ambiguous", "known", "rules", "start", "why",
    )  # fmt: skip

    def __init__(self, exception: BaseException, rules: Rules, answers: Answers) -> None:
        self.exception = exception
        self.rules = rules
        self.by_type = True
        self.is_ambiguous = False
        """Whether a member of a group is."""
        self.answers = answers
        self.start = answers.used
        self.why = ""
        """Why it is final, for the note on the exception."""
        self.known: Known

    def answer(self, known: Known | None = None) -> Classification:
        try:
            self.known = known or self._know()
            if isinstance(self.exception, OSError) and not self.known.by_type:
                self.by_type = False  # the next one may carry another errno
            kind, retryable, reason = self._decide()
        except Unanswerable:
            self.known = kind_of(self.exception)
            kind, retryable, reason = self.known.kind, False, UNANSWERABLE
            self.why = f"could not be judged: {UNANSWERABLE}"
        given = self.answers
        asked = tuple(given.given[self.start : given.used])
        note = note_for(self.exception, self.why)
        known = self.known if self.known.table or self.known.once else None
        return Classification(
            kind, retryable, reason, None, tuple(given.errors), asked, note, known,
            self.is_ambiguous,
        )  # fmt: skip

    def _know(self) -> Known:
        """What is known of it: the policy's own `classify` first."""
        for rule, kind in self.rules.classify:
            if self._matches(rule):
                return self._declared(rule, kind)
        return known_of(self.exception)

    def _declared(self, rule: Rule, kind: Kind) -> Known:
        """By `classify`. It may have been applied all the same, unless that very class is named."""
        was = self.known = known_of(self.exception)
        known = Known(kind, f"classify: {naming.show_rule(rule)}", once=was.once)
        self.by_type = self.by_type and (was.by_type or not was.table)
        is_named = not naming.is_of_class(rule, self.exception) or self._is_named_by(rule)
        if was.is_ambiguous and (kind is Kind.AMBIGUOUS or not is_named):
            known.is_ambiguous, known.unsafe = True, was.unsafe
            known.by_code, known.table = was.by_code, was.table
        return known

    def _decide(self) -> tuple[Kind, bool, str]:
        exception, known = self.exception, self.known
        if isinstance(exception, WrapError):
            return Kind.PERMANENT, False, "a function that cannot be retried as it is"
        if isinstance(exception, CallCancelled) or is_never_retried(type(exception)):
            return Kind.PERMANENT, False, "a cancellation is never retried"
        if isinstance(exception, MemoryError) and self.rules.version > 1:
            self.why = OUT_OF_MEMORY
            return Kind.PERMANENT, False, "running out of memory is never retried"
        rule = self.first(self.rules.never_retry_on)
        if rule is not None:
            kind = Kind.PERMANENT if known.kind in RETRIED_KINDS else known.kind
            # A table that looks into the instance may give the next one another kind.
            self.by_type = self.by_type and (known.by_type or not known.table)
            self.why = excluded(rule)
            return kind, False, f"never_retry_on: {naming.show_rule(rule)}"
        if isinstance(exception, BaseExceptionGroup) and not self._is_group_named():
            return self._decide_group(exception)
        return self._decide_by_retry_on()

    def _is_group_named(self) -> bool:
        """Whether retry_on names groups themselves; then their members are not classified."""
        classes = [rule for rule in self.rules.retry_on or () if isinstance(rule, type)]
        groups = [cls for cls in classes if issubclass(cls, BaseExceptionGroup)]
        return isinstance(self.exception, tuple(groups))

    def _decide_by_retry_on(self) -> tuple[Kind, bool, str]:
        known = self.known
        if isinstance(self.exception, AttemptTimeout):
            # Our own timeout cut the attempt: a policy that sets one wants the next attempt.
            return Kind.TIMEOUT, True, "the attempt timed out"
        if known.once:
            self.by_type = False
            self.why = cannot_be_sent(known.once)
            return known.kind, False, f"{known.reason}; a {known.once}"
        rules = self.rules.retry_on or ()
        decided = self._decide_by_rules(rules)
        if decided is not None:
            return decided
        self.by_type = self.by_type and known.by_type
        if self.rules.retry_on is None:
            if known.unsafe:
                return self._decide_unsafe()
            # An ambiguous failure may be repeated if the operation is idempotent; the flow checks.
            retried = known.kind in RETRIED_KINDS or known.kind is Kind.AMBIGUOUS
            self.why = "" if retried else by_kind(known.kind, known.reason)
            return known.kind, retried, known.reason
        self.why = not_named(rules, known.kind, known.reason)
        return known.kind, False, f"not in retry_on; {known.reason}"

    def _decide_by_rules(self, rules: tuple[Rule, ...]) -> tuple[Kind, bool, str] | None:
        """By the first rule that covers it; if none does, the refusal of the first that matches.

        One that names a class, or a kind, may match and not cover what the failure carries.
        """
        refusal, why = None, ""
        for rule in rules:
            is_asked = self.known.kind is not Kind.AUTH or isinstance(rule, type | str)
            if (refusal is not None and not is_asked) or not self._matches(rule):
                continue  # no function covers an authentication failure
            self.why = ""
            decided = self._decide_by_rule(rule)
            if decided[1]:
                return decided
            if refusal is None:
                refusal, why = decided, self.why
        self.why = why
        return refusal

    def _decide_by_rule(self, rule: Rule) -> tuple[Kind, bool, str]:
        kind = self.known.kind
        exact = self._is_named_by(rule)
        # The type alone settles it if the rule names that very class; a base class does not
        # cover an authentication failure, and that may show in the instance only. Nor does a
        # table that looks into the instance: the next one may carry a code that is final.
        is_settled = exact and not self.known.table
        self.by_type = self.by_type and (is_settled or self.known.by_type)
        if kind is Kind.AUTH and not exact:
            named = f"retry_on: {naming.show_rule(rule)} does not name it"
            self.why = not_covered(self.rules.retry_on or ())
            return kind, False, f"an authentication failure; {named}"
        refusal = self._not_in_the_class(rule, exact=exact) if self.rules.version > 2 else None
        if refusal is not None:
            return refusal
        if kind in (Kind.UNKNOWN, Kind.PERMANENT):
            kind = Kind.TRANSIENT
        return kind, True, f"retry_on: {naming.show_rule(rule)}"

    def _not_in_the_class(self, rule: Rule, *, exact: bool) -> tuple[Kind, bool, str] | None:
        """A refusal, if what the failure carries is final and the rule does not name that."""
        known, is_class = self.known, naming.is_of_class(rule, self.exception)
        if not is_class and not isinstance(rule, Kind):
            return None
        if known.unsafe and not (is_class and exact):
            return self._decide_unsafe()
        if is_class and known.by_code and known.kind is Kind.PERMANENT:
            self.why = of_code(known.reason, self.rules.retry_on or ())
            named = f"retry_on: {naming.show_rule(rule)} names the class alone"
            return known.kind, False, f"{known.reason}; {named}"
        return None

    def _decide_unsafe(self) -> tuple[Kind, bool, str]:
        known = self.known
        self.by_type = False
        self.why = may_be_applied(known.unsafe, by_code=known.by_code)
        return known.kind, False, f"{known.reason}; a {known.unsafe} is not repeated"

    def _decide_group(self, group: BaseExceptionGroup[BaseException]) -> tuple[Kind, bool, str]:
        """A group is as bad as its worst member: retried only if each of them would be."""
        self.by_type = False
        first: Classification | None = None
        worst: Classification | None = None
        for member in group.exceptions:
            verdict = classify(member, self.rules, self.answers)
            first = first or verdict
            if not isinstance(member, Exception) or not verdict.retryable:
                worst = worst or verdict
            if self.rules.version > 2:
                self.is_ambiguous = self.is_ambiguous or verdict.is_ambiguous
            elif worst is not None:
                break
        assert first is not None, "a group is never empty"
        if worst is not None:
            self.why = in_group(worst.note)
            return worst.kind, False, f"in a group: {worst.reason}"
        return first.kind, True, f"a group of which each is retryable; {first.reason}"

    def first(self, rules: tuple[Rule, ...]) -> Rule | None:
        return next((rule for rule in rules if self._matches(rule)), None)

    def _matches(self, rule: Rule) -> bool:
        if isinstance(rule, type):
            return isinstance(self.exception, rule)
        if isinstance(rule, Kind):
            self.by_type = self.by_type and self.known.by_type
            return self.known.kind is rule
        if isinstance(rule, str) and naming.names_ancestor(rule, type(self.exception)):
            return True
        self.by_type = False
        if isinstance(rule, str):
            return naming.names_code(rule, self.exception)
        return self.answers.ask(rule, self.exception)

    def _is_named_by(self, rule: Rule) -> bool:
        """Whether the rule names this very class, code or kind, and not just a base."""
        by_code = self.known.by_code and self.rules.version > 2
        return naming.names_itself(rule, self.exception, by_code=by_code)


_NO_RULES = Rules()
