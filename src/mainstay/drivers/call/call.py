"""Answers the core's questions: clocks, keys, the enclosing retry, events and warnings.

The same for every driver; only waiting, invoking and awaiting a hook differ.
"""

from __future__ import annotations

import sys

import mainstay.runtime.clock as clock
from mainstay.core.base import deadline
from mainstay.core.base.attributes import add_note
from mainstay.core.base.deadline import NEVER
from mainstay.core.base.functions import discard
from mainstay.core.base.printable import printable
from mainstay.core.retry.call import call_flow
from mainstay.core.retry.effects import CUT, Consult, Enclosing, Question, Returned, Stop, Warn
from mainstay.core.retry.give_up import NO_MOMENT
from mainstay.core.retry.hooks import RELEASE
from mainstay.core.retry.predicates import AwaitAnswer
from mainstay.drivers.call import listeners as following
from mainstay.drivers.call.callables import check_callable, name_of
from mainstay.drivers.call.guard import WAIT, guards_around
from mainstay.errors import CallCancelled, RateLimited, Refused, SinkError
from mainstay.runtime.context import CANCEL, current_bound
from mainstay.runtime.enclosing import FRAMES, OPEN, REFUSER, aside
from mainstay.runtime.reports.logs import LOGS, QUIET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Answer, UserValue
    from mainstay.core.events.builder import EventBuilder
    from mainstay.core.retry.call import Effect, Flow
    from mainstay.core.retry.effects import Outcome
    from mainstay.core.retry.hooks import CallHook
    from mainstay.drivers.call.callables import Function
    from mainstay.drivers.call.emit import Notes
    from mainstay.drivers.call.guard import GuardTicket, Witness
    from mainstay.drivers.call.result import RetryResult
    from mainstay.drivers.call.site import Site
    from mainstay.ports import Follower, Sink
    from mainstay.runtime.background import Job
    from mainstay.runtime.enclosing import Enclosure, Refuser

_warned: set[object] = set()
_MAX_WARNED = 1000


class Call:
    """One call under way: the flow of the core, and what the driver keeps for it.

    Args:
        site: what is retried.
        function: what is called; its name is the operation's if the site has none.
        around: the retries that enclose it.
        started: when the first attempt began, if that was noted.
        box: holds the last attempt's failure, if some were made already, after the tickets that
            a first attempt began with.
        attempts: how many were made then.
        key: the call's key for randomness, if it was drawn already.
        delay: how long was waited before the last attempt.
        limit: a smaller number of attempts than the policy's; 0 for the policy's own.
        begun: when the last attempt began, if it was not the first and that was noted.
        since: the moment at which the last attempt began, as marks count moments; the caller holds
            what counts it.
        is_bound: whether the policy's deadline is the current bound already.
    """

    __slots__ = (
        "around",
        "attempts",
        "before",
        "begun",
        "builder",
        "cancel",
        "failure",
        "flow",
        "followers",
        "gate",
        "holds",
        "is_accepted",
        "is_bounded",
        "is_quiet",
        "listeners",
        "own",
        "pending",
        "refuser",
        "since",
        "site",
        "tickets",
        "until",
    )  # fmt: skip

    def __init__(
        self,
        site: Site,
        function: Function | None,
        around: Sequence[Enclosure] = (),
        started: float | None = None,
        box: list[Any] | None = None,
        attempts: int = 1,
        key: int | Question = Question.DRAW,
        delay: float = 0.0,
        limit: int = 0,
        begun: float | None = None,
        since: int = NO_MOMENT,
        is_bound: bool = False,
    ) -> None:
        site = site if site.operation else site_of(site, function)
        policy = site.policy
        now = clock.current.monotonic() if started is None else started
        self.site, self.around, self.cancel = site, around, site.cancel or CANCEL.get()
        self.since = FRAMES["ms_active"].moment if since == NO_MOMENT else since
        self.own = int(since != NO_MOMENT)
        self.until, has_own_end = self._end(now, is_bound)
        self.is_bounded = self.until != NEVER or policy.attempt_timeout is not None
        self.listeners: tuple[Sink, ...] = site.listeners
        if LOGS.root.handlers or LOGS.own.handlers != QUIET:
            self.listeners += site.logs.listeners
        self.followers: tuple[Follower, ...] = ()
        if site.follows or site.overrides.is_active:
            self.listeners, self.followers = self._following(site)
            limit = limit if site.overrides.has_retries else 1
        self.builder = self._builder(now, attempts, delay, limit) if self.listeners else None
        if self.builder is not None and key is not Question.DRAW:
            self.builder.goes_on(key, attempts)
        has_rules = policy.retry_if_result is not None or policy.after_retry is not None
        self.is_quiet = self.builder is None and not has_rules
        """Whether a success concerns only the guards."""
        self.is_accepted, self.gate = True, site.gate
        self.tickets: list[GuardTicket] | None = None  # the guards' leave for the attempt
        self.pending: list[Job] | None = None  # steps of a store that guards have begun
        self.begun = now if begun is None else begun
        self.attempts = self.before = 0
        self.failure: Any = None
        self.holds = None if box else site.first_pressure  # what it is to wait for
        if box:
            self._resume(box, attempts, has_begun=started is not None)
        self.refuser = REFUSER.get() if OPEN else None  # of what has started this task or thread
        is_refused = self.refuser is not None or (around and any(e.refuses for e in around))
        outer = Question.ENCLOSING if is_refused else None
        asked = (key, outer, self.until, limit, self.builder, attempts, delay)
        self.flow: Flow = call_flow(site, self.failure, *asked, self.own, has_own_end)

    def _end(self, now: float, is_bound: bool) -> tuple[float, bool]:
        """The moment of the deadline, and whether it is the policy's own."""
        limit, bound = self.site.policy.deadline, current_bound()
        around = min([each.end for each in self.around]) if self.around else NEVER
        until = deadline.until(now, limit, min(bound.end, around))
        if is_bound and bound.outer is not None:
            bound = bound.outer
        return until, limit is not None and now + limit <= min(bound.end, around)

    def _following(self, site: Site) -> tuple[tuple[Sink, ...], tuple[Follower, ...]]:
        """What receives the events, and what follows each attempt."""
        listeners = (*self.listeners, *site.overrides.listeners)
        return following.begun(listeners, site) if site.follows else (listeners, ())

    def _resume(self, box: list[Any], attempts: int, *, has_begun: bool) -> None:
        """Goes on after a failed attempt: the box holds its failure, after its tickets."""
        self.failure = box.pop()
        self.attempts = attempts
        if self.gate is not None:
            self.tickets = box[0] if box else None  # those it began with, unannounced
        if has_begun or self.gate is not None:
            self.ended(self.failure)

    def _builder(self, now: float, attempts: int, delay: float, limit: int) -> EventBuilder:
        from mainstay.drivers.call.emit import builder_for
        from mainstay.ports import wants_evidence_now

        until, opening = None if self.until == NEVER else self.until, None
        if self.site.is_clocked or wants_evidence_now(self.listeners):
            opening = (now, until, attempts, delay, limit)
        return builder_for(self.site, now, opening)

    def answer(self, effect: Effect) -> Answer:
        """The answer to anything but waiting, invoking, hooks and the end."""
        if type(effect) is Consult:
            return self._consult(effect)
        if type(effect) is Warn:
            return self._warn(effect)
        if type(effect) is AwaitAnswer:
            return self._not_awaited(effect)
        if type(effect) is not Question:
            return self._emit(effect)  # type: ignore[arg-type]  # drivers do the other effects
        answer: Answer = _ASKED[effect](self)
        is_kept = effect is not Question.SINCE and answer is not None
        if self.builder is not None and is_kept:
            self.builder.record_answer(answer.plain if type(answer) is Enclosing else answer)
        return answer

    def _emit(self, event: Event) -> str | None:
        """Emits an event; returns the id of the inbox item that it led to, if there is one."""
        from mainstay.drivers.call.emit import emit, take_item_id

        try:
            with aside(self.site, self.until):
                emit(event, self.listeners, self.site.redact)
            if self.site.pressures and event.event_type == "attempt_failed":
                self.holds = self.site.high_pressure
            return take_item_id() if self.site.escalates else None
        except SinkError as error:
            error.__context__ = self.failure
            raise

    def _not_awaited(self, effect: AwaitAnswer) -> None:
        """A sync call, and a block, cannot await what a predicate returned."""
        discard(effect.awaitable)

    def _warn(self, effect: Warn) -> None:
        """Warns once; if warnings are errors, the user's exception still comes first."""
        if effect.subjects[0] in _warned:
            return
        if len(_warned) >= _MAX_WARNED:
            _warned.clear()
        _warned.update(effect.subjects)
        import warnings

        try:
            text = printable(self.site.shown(effect.text))
            warnings.warn(text, effect.category, stacklevel=_user_level())
        except Warning as warning:
            if self.failure is not None:
                add_note(self.failure, f"{type(warning).__name__}: {warning}")

    def admit(self) -> Stop | None:
        """Asks the guards before an attempt; a refused retry is a reason to stop.

        A refused first attempt raises the refusal: there is no failure to raise instead.
        """
        if self.gate is None:
            if self.builder is not None:
                self.begun = clock.current.monotonic()
            return None
        self.begun = clock.current.monotonic()
        riding = [guard for each in self.around for guard in guards_around(each)]
        answer = self.gate.enter(self.attempts > 0, self.begun, riding, self._witness)
        if isinstance(answer, Refused):
            return self._refused(answer)
        self.tickets = answer
        if self.gate.waits:
            self.pending = self.gate.pending(answer) or None
        return None

    def confirm(self) -> Stop | None:
        """After the wait for what was pending: an attempt that has yet to begin may be refused."""
        self.pending = None
        if self.tickets is None or self.gate is None:
            return None
        self.begun = clock.current.monotonic()
        riding = [guard for each in self.around for guard in guards_around(each)]
        tickets, self.tickets = self.tickets, None
        answer = self.gate.confirm(tickets, self.attempts > 0, self.begun, riding, self._witness)
        if isinstance(answer, Refused):
            return self._refused(answer)
        self.tickets = answer
        return None

    def patience(self, job: Job) -> float:
        """Until how many seconds after it was posted a step of a store is waited for."""
        longest: float = getattr(job, "longest", WAIT)  # of a turn, which a rate limit gives
        if hasattr(job, "cancel"):
            job.cancel = self.cancel
        if self.until == NEVER:
            return longest
        return min(longest, job.age + self.until - clock.current.monotonic())

    def _refused(self, answer: Refused) -> Stop:
        if self.attempts:
            return self.not_made(Stop(self.site.shown(str(answer))))
        if self.cancel is not None and self.cancel.is_set() and isinstance(answer, RateLimited):
            raise self.cancelled()  # while it waited for its turn
        if self.builder is not None:
            self._emit(self.builder.call_refused(answer))
        raise answer

    @property
    def _witness(self) -> Witness | None:
        """Keeps what guards decide on, if a listener wants evidence."""
        builder = self.builder
        return builder.saw if builder is not None and builder.keeps else None

    def began(self) -> None:
        """Notifies the followers that an attempt begins."""
        following.notify(self.followers, "attempt_began", self.before + self.attempts)

    def not_made(self, stop: Stop) -> Stop:
        """Keeps why an attempt that was scheduled was not made."""
        if self.builder is not None:
            self.builder.record_answer({"stop": stop.text})
        return stop

    def ended(self, outcome: Outcome) -> Outcome:
        """Reports to the guards and the followers how an attempt has ended."""
        if self.gate is None and self.builder is None:
            return outcome
        now = clock.current.monotonic()
        if self.builder is not None:
            self.builder.took = now - self.begun
            if self.followers:
                following.notify(self.followers, "attempt_ended", outcome)
        if self.gate is not None:
            failure = outcome if isinstance(outcome, BaseException) else None
            returned = outcome if isinstance(outcome, Returned) else None
            judged = returned if self.gate.judges_results else None
            tickets, self.tickets = self.tickets, None
            self.gate.left(tickets, failure, now - self.begun, now, judged)
            if self.gate.waits:
                self.pending = self.gate.pending() or None
        return outcome

    def returned(self, end: Returned) -> UserValue:
        """The call ends with a value."""
        self.is_accepted = end.is_accepted
        if self.attempts == 1 and end.is_accepted and self.gate is not None:
            self.gate.succeeded()
        return end.value

    def _consult(self, effect: Consult) -> float | Stop:
        now, builder = clock.current.monotonic(), self.builder
        assert self.gate is not None
        answer: float | Stop = self.gate.consider(effect.failure, effect.delay, now, self._witness)
        if type(answer) is Stop:
            answer = self._shown(answer)
        if builder is not None:
            builder.record_answer({"stop": answer.text} if type(answer) is Stop else answer)
        return answer

    def _shown(self, stop: Stop) -> Stop:
        """A guard's reason as people may read it; nearly always the very same."""
        text = self.site.shown(stop.text)
        return stop if text == stop.text else Stop(text)

    def show_wait(self, delay: float) -> int:
        """Shows a long wait to other processes; returns its number there, or 0."""
        waits = self.site.waits
        if waits is None:
            return 0
        return waits.show(self.site, self.before + self.attempts, self.failure, delay)

    def free(self) -> UserValue:
        """Frees what the failure holds, before a wait; what it returns is for an event loop."""
        free = vars(self.failure).pop(RELEASE, None)
        return None if free is None else free()

    def end_wait(self, number: int) -> None:
        """The wait of that number is over."""
        if number and self.site.waits is not None:
            self.site.waits.end(number)

    def turn(self) -> float:
        """Seconds to wait for a listener that cannot keep up, within the deadline."""
        holds, self.holds = self.holds, None
        assert holds is not None
        seconds = holds.turn()
        if self.until != NEVER:
            return min(seconds, deadline.remaining(clock.current.monotonic(), self.until))
        return seconds

    def is_late(self, delay: float) -> bool:
        """Whether a wait that starts now would leave no time for the attempt after it."""
        return self.until != NEVER and clock.current.monotonic() + delay >= self.until

    def bounds(self) -> tuple[float, float]:
        """When the attempt that starts now must be over, and how long that is."""
        now, limit = clock.current.monotonic(), self.site.policy.attempt_timeout
        if limit is not None and now + limit <= self.until:
            return now + limit, limit
        return self.until, deadline.remaining(now, self.until)

    def cancelled(self) -> CallCancelled:
        """The error of a set cancel event."""
        error = CallCancelled(self.site.operation, self.attempts)
        error.__cause__ = self.failure
        self.interrupted(error)
        return error

    def hook_failed(self, effect: CallHook, error: BaseException) -> None:
        """Reports a hook that raised: to the listeners, or, without any, to the log."""
        if self.builder is not None:
            self._emit(self.builder.hook_failed(effect.name, error))
            return
        from mainstay.runtime.reports.report_failure import report

        message, name = "%s of policy %r raised and was passed over", self.site.policy.name
        report(error, message, effect.name, name, redact=self.site.redact)

    def interrupted(self, stop: BaseException) -> None:
        """Emits that the call was cut off from outside, and marks what cut it off."""
        mark_cut(self.site, stop, self.attempts, self.own)
        if self.builder is not None:
            made = self.before + self.attempts  # before: by a process that is gone
            self._emit(self.builder.call_interrupted(made, type(stop).__name__))

    def release(self) -> None:
        """Lets go of the failure, whose traceback holds the driver's frame, and of the flow.

        An attempt that was cut off is withdrawn.
        """
        if self.tickets is not None and self.gate is not None:
            self.gate.give_back(self.tickets, clock.current.monotonic())
            self.tickets = None
        if self.followers:
            following.notify(self.followers, "call_ended")
        self.failure = None
        del self.flow


def site_of(site: Site, function: Function | None) -> Site:
    """The site of one function's call; a site without a name serves many functions."""
    check_callable(function)
    return site.of(name_of(function))


def rest_of(
    site: Site,
    function: Function,
    started: float | None,
    box: list[Any],
    made: tuple[int, int, float, int],
    notes: Notes | None,
) -> Call:
    """What is left of a call whose attempts so far took the fast path.

    In a function of its own, because the frame that calls it waits, ten thousand times over, and
    has room for its longest line.
    """
    attempt, key, before, since = made
    begun = None
    if notes is not None:
        started, begun = notes.end_here(box[-1])
    return Call(site, function, (), started, box, attempt, key, before, begun=begun, since=since)


def result_of(
    call: Call, began: float, error: Exception | None, value: UserValue = None
) -> RetryResult[UserValue]:
    """What became of a call that has ended."""
    from mainstay.drivers.call.result import RetryResult

    seconds = clock.current.monotonic() - began
    success = error is None and call.is_accepted
    return RetryResult(success, call.attempts, error, seconds * 1000.0, value)


def mark_cut(site: Site, stop: BaseException | None, attempts: int, own: int) -> None:
    """Marks what cuts off a call that has retried, such as the end of an enclosing attempt.

    The enclosing call then has the mark: its AttemptTimeout was raised from this.
    """
    if attempts > 1 and stop is not None and not isinstance(stop, _NO_CUT):
        note = site.note(CUT, attempts, 0, True, own)
        if note.moment != NO_MOMENT:
            note.put_on(stop)


_NO_CUT = (Exception, GeneratorExit, KeyboardInterrupt, SystemExit)


_ASKED: dict[Question, Callable[[Call], Answer]] = {
    Question.ENCLOSING: lambda call: _enclosing(call.around, call.refuser, call.failure),
    Question.DRAW: lambda call: call.site.entropy.draw(),
    Question.NOW: lambda _call: clock.current.monotonic(),
    Question.WALL: lambda _call: clock.current.wall(),
    Question.SINCE: lambda call: call.since,
}


def _enclosing(
    around: Sequence[Enclosure], refuser: Refuser | None, failure: Outcome | None
) -> Enclosing | None:
    """The nearest enclosing retry that would retry this failure too, and refuses it here."""
    if isinstance(failure, Returned | None):
        return None
    for each in around:
        if each.refuses and each.plan.would_retry(failure):
            return Enclosing(each.name, each.plan.policy.max_attempts)
    while refuser is not None:
        plan = refuser.plan
        if not refuser.is_over and plan.would_retry(failure):
            return Enclosing(plan.operation, plan.policy.max_attempts)
        refuser = refuser.outer
    return None


def _user_level() -> int:
    """The stack level of the first frame outside this package, for a warning's place."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if frame.f_globals is not FRAMES and not name.startswith("mainstay."):
            break
        level, frame = level + 1, frame.f_back
    return level
