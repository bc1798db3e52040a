"""What about a policy is likely a mistake: a table of rules, RULES, each asked in turn.

A rule is a function that yields a sentence for whatever it finds. A warning is wrong or risky; a
note is worth knowing and no more.
"""

from __future__ import annotations

from msgspec import Struct

from mainstay.core.base.deadline import NEVER
from mainstay.core.explain.worst_case import (
    Curve,
    attempt_limit,
    fit,
    nesting,
    own_curves,
    reach,
    s,
    span,
)
from mainstay.core.retry.policy_fields import DEFAULTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstay.core.explain.worst_case import Case

_MANY = 10
"""More attempts than this are rarely meant: at 0.1 s doubled, the eleventh comes after 100 s."""


class Remark(Struct, frozen=True):
    """One thing found: a short code that stays the same, and a sentence for a person.

    >>> str(Remark("unbounded", "a call that hangs is never given up"))
    '[unbounded] a call that hangs is never given up'
    """

    code: str
    text: str

    def __str__(self) -> str:
        return f"[{self.code}] {self.text}"


# --- what is wrong with time and attempts ---------------------------------------------------------


def _timeout_past_deadline(case: Case) -> Iterator[str]:
    timeout, deadline = case.policy.attempt_timeout, case.policy.deadline
    if timeout is None or deadline is None or timeout < deadline:
        return
    if timeout > deadline or case.is_retried:
        yield (
            f"attempt_timeout {s(timeout)} {_compared(timeout, deadline)} deadline {s(deadline)}:"
            " an attempt that hangs leaves no time for another; set attempt_timeout below"
            f" {s(deadline / 2)}, or raise the deadline"
        )


def _attempts_out_of_reach(case: Case) -> Iterator[str]:
    policy = case.policy
    if case.attempts < policy.max_attempts:
        yield (
            f"the waits alone pass deadline {s(policy.deadline)}: only {case.attempts} of"
            f" {policy.max_attempts} attempts can ever start; lower max_attempts, shorten the"
            " backoff or raise the deadline"
        )


def _attempts_out_of_time(case: Case) -> Iterator[str]:
    policy, timeout = case.policy, case.policy.attempt_timeout
    if timeout is None or policy.deadline is None or timeout >= policy.deadline:
        return
    made = reach(policy, timeout)
    if made < case.attempts:
        yield (
            f"if each attempt takes its attempt_timeout {s(timeout)}, only {made} of"
            f" {case.attempts} start before deadline {s(policy.deadline)}; shorten"
            " attempt_timeout, lower max_attempts or raise the deadline"
        )


def _unbounded(case: Case) -> Iterator[str]:
    if case.policy.first_limit is None:
        yield (
            "no deadline and no attempt_timeout: a call that hangs is never given up; set a"
            " deadline"
        )


def _many_attempts(case: Case) -> Iterator[str]:
    if case.attempts > _MANY:
        yield (
            f"max_attempts {case.policy.max_attempts}: a service that is down gets"
            f" {case.attempts} calls for one; 3 to 5 attempts pass over most short failures"
        )


def _retries_everything(case: Case) -> Iterator[str]:
    everything = [rule for rule in case.policy.retry_on or () if rule in (Exception, "Exception")]
    if everything and case.is_retried:
        but = " but what never_retry_on names" if case.policy.never_retry_on else ""
        yield (
            f"retry_on Exception: everything{but} is retried, also mistakes such as a TypeError;"
            " name what can pass, such as (ConnectionError, TimeoutError)"
        )


def _unsafe_retries(case: Case) -> Iterator[str]:
    if case.idempotency == "unsafe" and case.is_retried:
        yield (
            f"max_attempts {case.policy.max_attempts} on an unsafe operation: repeating it does"
            ' harm; set max_attempts to 1, or declare it "idempotent" or "keyed"'
        )


def _result_of_unsafe(case: Case) -> Iterator[str]:
    if case.idempotency == "unsafe" and case.policy.retry_if_result is not None:
        yield (
            "retry_if_result on an unsafe operation: a result that came back was applied, and may"
            " not be asked for again; leave retry_if_result out"
        )


# --- what is wrong with waits ---------------------------------------------------------------------


def _no_jitter(case: Case) -> Iterator[str]:
    for curve in own_curves(case.policy):
        low, high = span(curve, 1)
        if low == high > 0.0:
            yield (
                f"the first retry{_after(curve)} waits {s(low)} and never more or less: clients"
                " that failed together return together; set a jitter, such as Jitter.percent(0.1)"
            )


def _no_backoff(case: Case) -> Iterator[str]:
    for curve in own_curves(case.policy):
        if span(curve, 1)[1] == span(curve, curve.retries)[1] == 0.0:
            yield (
                f"retries{_after(curve)} do not wait: what has just failed is called again at once;"
                " set a backoff, such as Backoff.exponential(0.1)"
            )


def _after(curve: Curve) -> str:
    return f" after a {curve.kind} failure" if curve.kind else ""


def _retry_after_past_deadline(case: Case) -> Iterator[str]:
    """Only of a value that was set; the default is longer than many deadlines."""
    asked, deadline = case.policy.max_retry_after, case.policy.deadline
    if deadline is None or asked == DEFAULTS["max_retry_after"] or not case.is_retried:
        return
    if not case.policy.respect_retry_after:
        return
    if asked >= deadline:
        yield (
            f"max_retry_after {s(asked)} {_compared(asked, deadline)} deadline {s(deadline)}: no"
            " wait that long is ever made; lower max_retry_after or raise the deadline"
        )


def _kind_attempts(case: Case) -> Iterator[str]:
    most = case.policy.max_attempts
    for kind, rule in (case.policy.per_kind or {}).items():
        if rule.max_attempts is not None and rule.max_attempts > most:
            yield (
                f"per_kind {kind.value}: max_attempts {rule.max_attempts} is above the policy's"
                f" {most}, which caps them all; raise the policy's max_attempts"
            )


def _kind_wait_past_deadline(case: Case) -> Iterator[str]:
    deadline = case.policy.deadline or NEVER
    for curve in own_curves(case.policy)[1:]:
        low = span(curve, 1)[0]
        if low >= deadline:
            yield (
                f"per_kind {curve.kind}: its first wait of {s(low)} {_compared(low, deadline)}"
                f" deadline {s(deadline)}, so a call that begins with such a failure is not"
                " retried; shorten its backoff or raise the deadline"
            )


# --- what is wrong with what stands around --------------------------------------------------------


def _nesting_multiplies(case: Case) -> Iterator[str]:
    leaf = nesting(case)[1]
    if leaf > max(reach(policy, 0.0) for policy in (case.policy, *case.around)):
        yield (
            f'nested="warn" or "allow" around it: one call of the outermost may become {leaf}; set'
            ' nested="collapse", or retry in one place'
        )


def _budget_allows_nothing(case: Case) -> Iterator[str]:
    if case.ratio == 0.0 and case.is_retried:
        yield (
            "budget ratio 0: past the budget's floor no retry is ever made; set a ratio such as"
            " 0.2, or max_attempts to 1"
        )


def _budget_allows_everything(case: Case) -> Iterator[str]:
    if case.ratio is not None and case.attempts > 1 and case.ratio >= case.attempts - 1:
        yield (
            f"budget ratio {case.ratio:g} never holds back {case.attempts} attempts, which are"
            f" {case.attempts - 1:g} retries a call; set a ratio such as 0.2"
        )


def _breaker_needs_traffic(case: Case) -> Iterator[str]:
    for name, text, per_second in _least_traffic(case):
        if per_second >= 1.0:
            yield f"breaker {name!r} cannot trip below {per_second:.1f} calls a second: {text}"


def _breaker_traffic(case: Case) -> Iterator[str]:
    for name, text, per_second in _least_traffic(case):
        if per_second < 1.0:
            rate = f"{per_second * 60.0:.2g} calls a minute"
            yield f"breaker {name!r} cannot trip below {rate}: {text}"


def _least_traffic(case: Case) -> Iterator[tuple[str, str, float]]:
    for name, settings in case.breakers:
        window = settings.window
        if window is not None and window.kind == "seconds" and settings.min_calls > 1:
            text = (
                f"its window of {s(window.size)} must hold min_calls {settings.min_calls};"
                " lower min_calls or widen the window"
            )
            yield name, text, settings.min_calls / window.size


def _breaker_opened_by_one_call(case: Case) -> Iterator[str]:
    for name, settings in case.breakers:
        field = "failure_threshold" if settings.window is None else "min_calls"
        failures = getattr(settings, field)
        if case.attempts > 1 and failures <= case.attempts and fit(case, settings, failures):
            yield (
                f"one call can open breaker {name!r}: {field} {failures} is not above its"
                f" {case.attempts} attempts; raise {field} above {case.attempts}"
            )


def _breaker_recovers_early(case: Case) -> Iterator[str]:
    limit = attempt_limit(case.policy)
    for name, settings in case.breakers:
        backoff, jitter = settings.recovery_timeout, settings.recovery_jitter
        opened = span(Curve("", backoff, jitter, 1), 1)[0]
        if limit is not None and opened < limit:
            yield (
                f"breaker {name!r} probes after {s(opened)}, while attempts from before it opened"
                f" may take {s(limit)}; raise recovery_timeout to {s(limit)} or more"
            )


def _breaker_probe_cut(case: Case) -> Iterator[str]:
    limit = attempt_limit(case.policy)
    for name, settings in case.breakers:
        if limit is not None and settings.probe_timeout < limit:
            yield (
                f"breaker {name!r} writes a probe off after {s(settings.probe_timeout)}, while it"
                f" may yet succeed until {s(limit)}; raise probe_timeout to {s(limit)} or more"
            )


def _breaker_never_slow(case: Case) -> Iterator[str]:
    limit = case.policy.first_limit or NEVER
    for name, settings in case.breakers:
        slow = settings.slow_after
        if slow is not None and slow >= limit:
            yield (
                f"breaker {name!r}: no call is ever slow, since slow_after {s(slow)}"
                f" {_compared(slow, limit)} the {s(limit)} after which an attempt is cut; lower"
                " slow_after"
            )


# --- what is worth knowing ------------------------------------------------------------------------


def _sync_not_interrupted(case: Case) -> Iterator[str]:
    if case.policy.first_limit is not None and case.policy.timeout_by == "client":
        yield (
            'timeout_by "client": a sync attempt is not interrupted; its client must heed'
            ' mainstay.deadline.remaining(), or set timeout_by="thread"'
        )


def _hang_takes_all(case: Case) -> Iterator[str]:
    policy = case.policy
    if policy.attempt_timeout is None and policy.deadline is not None and case.attempts > 1:
        yield (
            f"without an attempt_timeout an attempt that hangs takes the whole deadline"
            f" {s(policy.deadline)} and is not retried"
        )


def _breaker_closes_slowly(case: Case) -> Iterator[str]:
    for name, settings in case.breakers:
        wanted, probes = settings.success_threshold, settings.half_open_probes
        if wanted > probes:
            at_once = "one" if probes == 1 else str(probes)
            yield f"breaker {name!r} closes after {wanted} probes that succeed, {at_once} at a time"


def _breaker_counts_all(case: Case) -> Iterator[str]:
    for name, settings in case.breakers:
        if settings.count == "all":
            yield (
                f"breaker {name!r} counts every failure but cancellations, also the caller's"
                " mistakes and statuses from 400 to 499"
            )


def _breaker_judges_results(case: Case) -> Iterator[str]:
    for name, settings in case.breakers:
        if settings.failure_if_result is not None:
            yield (
                f"breaker {name!r} counts results for which failure_if_result is true as failures;"
                " the caller gets them, and only retry_if_result repeats them"
            )


def _first_calls_wait(case: Case) -> Iterator[str]:
    for rule in case.limits:
        if rule.first_calls:
            yield (
                f"rate limit {rule.name!r}: a first attempt, too, waits for its turn, up to"
                f" {s(rule.max_wait)} or the deadline, and is refused with RateLimited if the turn"
                " is further off; these waits are not counted here"
            )


def _hedge_not_counted(case: Case) -> Iterator[str]:
    if "hedge" in case.layers:
        yield "a hedge may start further attempts beside each one; they are not counted here"


def _computed_waits(case: Case) -> Iterator[str]:
    if case.policy.wait_from is not None and case.is_retried:
        yield (
            "wait_from computes waits, and only a deadline bounds them: the waits shown are those"
            " for which it returns None"
        )


def _exhausted_without_results(case: Case) -> Iterator[str]:
    if case.policy.on_exhausted == "raise" and case.policy.retry_if_result is None:
        yield (
            'on_exhausted "raise" without retry_if_result: no result is ever rejected; set'
            " retry_if_result, or leave on_exhausted out"
        )


RULES: tuple[tuple[str, str, Callable[[Case], Iterator[str]]], ...] = (
    ("unbounded", "warning", _unbounded),
    ("timeout-past-deadline", "warning", _timeout_past_deadline),
    ("attempts-out-of-reach", "warning", _attempts_out_of_reach),
    ("attempts-out-of-time", "warning", _attempts_out_of_time),
    ("many-attempts", "warning", _many_attempts),
    ("retries-everything", "warning", _retries_everything),
    ("unsafe-retries", "warning", _unsafe_retries),
    ("result-of-unsafe", "warning", _result_of_unsafe),
    ("no-jitter", "warning", _no_jitter),
    ("no-backoff", "warning", _no_backoff),
    ("retry-after-past-deadline", "warning", _retry_after_past_deadline),
    ("kind-attempts", "warning", _kind_attempts),
    ("kind-wait-past-deadline", "warning", _kind_wait_past_deadline),
    ("nesting-multiplies", "warning", _nesting_multiplies),
    ("budget-allows-nothing", "warning", _budget_allows_nothing),
    ("budget-allows-everything", "warning", _budget_allows_everything),
    ("breaker-needs-traffic", "warning", _breaker_needs_traffic),
    ("breaker-opened-by-one-call", "warning", _breaker_opened_by_one_call),
    ("breaker-recovers-early", "warning", _breaker_recovers_early),
    ("breaker-probe-cut", "warning", _breaker_probe_cut),
    ("breaker-never-slow", "warning", _breaker_never_slow),
    ("sync-not-interrupted", "note", _sync_not_interrupted),
    ("hang-takes-all", "note", _hang_takes_all),
    ("breaker-traffic", "note", _breaker_traffic),
    ("breaker-closes-slowly", "note", _breaker_closes_slowly),
    ("breaker-counts-all", "note", _breaker_counts_all),
    ("breaker-judges-results", "note", _breaker_judges_results),
    ("first-calls-wait", "note", _first_calls_wait),
    ("hedge-not-counted", "note", _hedge_not_counted),
    ("computed-waits", "note", _computed_waits),
    ("exhausted-without-results", "note", _exhausted_without_results),
)
"""Every rule: its code, whether it warns or notes, and what looks."""


def remarks(case: Case, level: str) -> tuple[Remark, ...]:
    """What the rules of a level find, in the order of the table."""
    found = [(code, text) for code, of, rule in RULES if of == level for text in rule(case)]
    return tuple(Remark(code, text) for code, text in found)


def _compared(one: float, other: float) -> str:
    return "exceeds" if one > other else "equals"
