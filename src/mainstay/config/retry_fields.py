"""The fields of policies and circuits."""

from __future__ import annotations

from mainstay.config.shapes import (
    Either,
    Field,
    Flag,
    Listing,
    NameMap,
    Number,
    Section,
    Text,
    Whole,
    duration,
)
from mainstay.core.base.validate import MAX_ATTEMPTS, MAX_SECONDS
from mainstay.core.circuit.settings import COUNTED
from mainstay.core.known.kind import Kind
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.policy_fields import (
    EXHAUSTED_MODES,
    LOG_LEVELS,
    MEANT,
    NESTED_MODES,
    OTHER_NAMES,
    TIMEOUT_MODES,
    KindRule,
)

KINDS = tuple(kind.value for kind in Kind)
CURVES = ("constant", "linear", "exponential")
JITTERS = ("none", "percent", "additive", "full", "equal", "decorrelated")
NEVER_RETRIED = (
    "BaseException",
    "BaseExceptionGroup",
    "GeneratorExit",
    "KeyboardInterrupt",
    "MemoryError",
    "SystemExit",
)
MOST = 1_000_000

_END = r"(?![\s\S])"  # as $, but not before a last line's end
_NOT_A_KIND = rf"(?!(?:{'|'.join(KINDS)}){_END})"
_RULE = rf"{_NOT_A_KIND}(?:kind:(?:{'|'.join(KINDS)})|(?!kind:)\S(?:[\s\S]*\S)?)"
_RETRIED = rf"(?!(?:{'|'.join(NEVER_RETRIED)}){_END}){_RULE}"
_RULE_EXPECTED = (
    f"the name of an exception class or an error code, or kind: and one of {', '.join(KINDS)}"
)


def rules(name: str, means: str, default: str, *, is_retried: bool = False) -> Field:
    """A field of rules: names of exceptions, codes, and kinds as `kind:throttled`."""
    expected = _RULE_EXPECTED.replace("code", "code (never KeyboardInterrupt and its like)")
    meant = {kind: f"kind:{kind}" for kind in KINDS}
    if is_retried:
        one = Text(pattern=_RETRIED, expected=expected, meant=meant, is_rule=True)
    else:
        one = Text(pattern=_RULE, expected=_RULE_EXPECTED, meant=meant, is_rule=True)
    some = Listing(one, or_one=True)
    return Field(name, some, means, default, [(other, some) for other in others_of(name)])


def others_of(name: str) -> list[str]:
    """The other names of a policy's field, as Python code has them."""
    return [other for other, own in OTHER_NAMES.items() if own == name]


_KIND = Field("kind", Text(choices=CURVES), "the curve", "exponential")
_FACTOR = Field(
    "factor", Number(1.0, 1000.0), "what an exponential delay is multiplied by each time", "2"
)
_STEP = duration("step", "what a linear delay grows by each time", "the initial delay")
_MAX_DELAY = duration(
    "max_delay", "the longest delay, before the jitter", "5 s; constant: none; chain: 60 s"
)

_INITIAL = duration("initial", "the first delay", "0.1 s")
BACKOFF = Section(
    Field("kind", Text(choices=(*CURVES, "chain")), "the curve, or a chain of delays",
          "exponential"),
    _INITIAL, _FACTOR, _STEP, _MAX_DELAY,
    Field("delays", Listing(Number(0.0, MAX_SECONDS, unit=" of seconds")),
          "the delays of a chain, one for each retry; the last one repeats", "none"),
    Field("then", Section(_KIND, _INITIAL, _FACTOR, _STEP, _MAX_DELAY, text="kind"),
          "the curve by which a chain goes on after its delays", "the last delay"),
    text="kind",
)  # fmt: skip
JITTER = Section(
    Field("kind", Text(choices=JITTERS), "how delays are spread", "percent"),
    Field(
        "amount",
        Number(0.0, MOST, is_time=True),
        "the share for `percent` (0.1 is ±10 %), the seconds for `additive`",
        "0.1 for percent",
    ),
    text="kind",
)

DELAYS = (
    Field("backoff", BACKOFF, "how delays grow: the curve, or all of it as a mapping",
          "exponential"),
    duration("initial_delay", "the first delay; 0 retries at once", "0.1 s"),
    _MAX_DELAY,
    _FACTOR,
    _STEP,
    Field("jitter", JITTER, "how delays are spread; in per cent of the delay: `jitterPercent`",
          "±10 %", also=[("jitter_percent", Number(0.0, 100.0, unit=" of per cent", per=100))]),
)  # fmt: skip

_ATTEMPTS = Whole(1, MAX_ATTEMPTS)
MAX_ATTEMPTS_FIELD = Field(
    "max_attempts", _ATTEMPTS, "attempts, the first included; 1 is no retry", "3",
    [(other, _ATTEMPTS) for other in others_of("max_attempts")],
)  # fmt: skip
PER_KIND = Section(
    MAX_ATTEMPTS_FIELD, *DELAYS,
    meant={word: name for word, name in MEANT.items() if name in KindRule.__slots__},
)  # fmt: skip

_FUNCTION = "is a function, and no file can hold one: set it in code, with policy.replace()"

POLICY = Section(
    Field("extends", Text(), "the policy whose fields are inherited", "none"),
    MAX_ATTEMPTS_FIELD,
    *DELAYS,
    rules("retry_on", "what is retried",
          "the kinds transient, throttled, timeout and overload", is_retried=True),
    rules("never_retry_on", "what is never retried; checked first, and final", "nothing more"),
    Field("classify", NameMap(Text(choices=KINDS), key=Text(pattern=rf"(?!kind:){_RULE}",
          expected="the name of an exception class or an error code", is_rule=True)),
          "kinds for exceptions of your own: names to kinds", "none"),
    Field("per_kind", NameMap(PER_KIND, key=Text(choices=KINDS), what="kind"),
          "limits of their own for some kinds", "none"),
    duration("attempt_timeout", "the time of one attempt", "none", above=True, optional=True,
             also=others_of("attempt_timeout")),
    Field("timeout_by", Text(choices=TIMEOUT_MODES), "who cuts a sync attempt", "client"),
    duration("deadline", "the time of the whole call, waits included", "none", above=True,
             optional=True),
    duration("max_retry_after", "the longest Retry-After that is waited for", "60 s"),
    Field("respect_retry_after", Flag(), "whether a Retry-After is waited for", "true"),
    Field("on_exhausted", Text(choices=EXHAUSTED_MODES),
          "what becomes of a result that no attempt improved", "return"),
    Field("nested", Text(choices=NESTED_MODES), "a failure that a retry inside gave up on",
          "`retry.nested`"),
    Field("log_level", Either(Text(choices=LOG_LEVELS), Whole(10, 50)),
          "at which a scheduled retry is logged; also as logging's number", "WARNING"),
    refused={
        "name": "is not a field: a policy's name is its key",
        **dict.fromkeys(
            ("retry_if_result", "wait_from", "before_retry", "after_retry"), _FUNCTION
        ),
    },
    meant={word: name for word, name in MEANT.items() if name != "before_retry"},
)  # fmt: skip

_RATE = Number(0.0, 1.0, above=True)
_RECOVERY = Section(
    _KIND, duration("initial", "the first open time", "30 s", above=True), _FACTOR, _STEP,
    _MAX_DELAY, number="initial",
)  # fmt: skip
_IN_MS = Number(0.0, 31_622_400_000.0, unit=" of milliseconds", above=True, per=1000)

BREAKER_FIELDS = (
    Field("enabled", Flag(), "false leaves the section out", "true"),
    Field("failure_threshold", Whole(1, MOST), "failures in a row that open it", "5"),
    Field("recovery_timeout", _RECOVERY,
          "how long it stays open: seconds, or a curve by which each time is longer", "30 s",
          also=[("recovery_timeout_ms", _IN_MS), ("open_duration", _RECOVERY),
                ("open_duration_ms", _IN_MS)]),
    Field("recovery_jitter", JITTER, "spreads that time", "none"),
    Field("success_threshold", Whole(1, MOST), "probes that must succeed to close it", "1"),
    Field("half_open_probes", Whole(1, MOST), "the most probes at once", "1"),
    duration("probe_timeout", "after which a probe counts as failed", "60 s", above=True),
    Field("window", Section(
        Field("calls", Whole(1, 10_000), "the number of calls in the window"),
        duration("seconds", "the time that the window covers", low=0.1),
        Field("buckets", Whole(1, 60), "the parts of a window of time", "10"),
    ), "open by rates over this window, instead of failures in a row", "none"),
    Field("failure_rate", _RATE, "the share of failures that opens it", "0.5"),
    duration("slow_after", "when a call counts as slow", "none", above=True, optional=True),
    Field("slow_rate", Number(0.0, 1.0, above=True, optional=True),
          "the share of slow calls that opens it", "none"),
    Field("min_calls", Whole(1, MOST), "with fewer calls in the window it does not open", "10"),
    duration("ramp", "over which calls are let through again after it closed", "0"),
    duration("stable_after", "after this time closed, the next opening counts as a first", "60 s"),
    Field("count", Text(choices=COUNTED),
          "which failures count: those of the dependency, or all but cancellations",
          "dependency; all in `agent/config.yml`"),
    rules("count_on", "only these failures count", "failures that the other side causes"),
    rules("ignore", "these never count", "nothing more"),
)  # fmt: skip
_IN_CODE = {
    "failure_if_result": "is a function, and no file can hold one: set it in code,"
    " with BreakerSettings"
}
BREAKER = Section(*BREAKER_FIELDS, flag="enabled", refused=_IN_CODE)
NAMED_BREAKER = Section(
    Field("operations", Listing(Text(), or_one=True),
          "the operations that share it: names or patterns", "the one of its name"),
    *BREAKER_FIELDS,
    refused=_IN_CODE,
)  # fmt: skip

DEFAULT_BACKOFF = Backoff.exponential(0.1, factor=2.0, max_delay=5.0)
DEFAULT_JITTER = Jitter.percent(0.10)
