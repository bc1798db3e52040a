"""The fields of a policy: their defaults, and a check for each."""

from __future__ import annotations

from mainstay.core.base.validate import Checker
from mainstay.core.base.value import Value
from mainstay.core.known.kind import Kind
from mainstay.core.retry.backoff import Backoff, Jitter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Never, TypedDict, TypeVar

    from mainstay.core.base.types import Seconds, UserValue
    from mainstay.core.retry.classify import Rule
    from mainstay.core.retry.hooks import Hook

    Given = TypeVar("Given")
    """What the user gave for a field: it comes back as it is."""

    class MoreFields(TypedDict, total=False):
        """The fields of a policy that `retry` takes besides those in its own signature."""

        name: str
        max_attempts: int
        retry_on: Rule | Iterable[Rule] | None
        never_retry_on: Rule | Iterable[Rule]
        classify: Mapping[Rule, Kind | str] | None
        per_kind: Mapping[Kind | str, KindRule] | None
        retry_if_result: Callable[[Any], object] | None
        on_exhausted: str
        wait_from: Callable[[Any], Seconds | None] | None
        attempt_timeout: Seconds | None
        timeout_by: str
        max_retry_after: Seconds
        respect_retry_after: bool
        nested: str
        before_retry: Hook | None
        after_retry: Hook | None
        log_level: str | int

    class PolicyFields(MoreFields, total=False):
        """The fields of a policy as keywords, each by its names."""

        attempts: int
        on: Rule | Iterable[Rule] | None
        timeout: Seconds | None
        backoff: Backoff
        jitter: Jitter
        deadline: Seconds | None


NESTED_MODES = ("collapse", "warn", "allow", "refuse")
EXHAUSTED_MODES = ("return", "raise")
TIMEOUT_MODES = ("client", "thread")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LEVEL_NUMBERS = dict(zip(range(10, 60, 10), LOG_LEVELS, strict=True))
"""The numbers that logging has for them: `logging.INFO` is 20."""

OTHER_NAMES = {"attempts": "max_attempts", "on": "retry_on", "timeout": "attempt_timeout"}
"""Short names of fields. Each place that takes fields by name reads them here: `retry`, policies,
their copies, KindRule, the configuration. So a name is known everywhere or nowhere."""

MEANT = {
    "retries": "max_attempts",
    "max_retries": "max_attempts",
    "tries": "max_attempts",
    "max_tries": "max_attempts",
    "stop": "max_attempts",
    "wait": "backoff",
    "delay": "backoff",
    "exception": "retry_on",
    "exceptions": "retry_on",
    "retry": "retry_on",
    "giveup": "never_retry_on",
    "give_up_on": "never_retry_on",
    "max_time": "deadline",
    "total_timeout": "deadline",
    "before_sleep": "before_retry",
    "on_backoff": "before_retry",
}
"""The words of other libraries (tenacity, backoff, retrying, urllib3) for our fields."""


def own_names(check: Checker, fields: Mapping[str, Given]) -> dict[str, Given]:
    """The fields by their own names; one that is given under two names is a problem.

    >>> own_names(Checker("policy"), {"attempts": 4, "deadline": 9.0})
    {'max_attempts': 4, 'deadline': 9.0}
    """
    found: dict[str, Given] = {}
    for name, value in fields.items():
        own = OTHER_NAMES.get(name, name)
        if own in found:
            short = next(short for short, of in OTHER_NAMES.items() if of == own)
            check.note(name, value, f"left out: {short} and {own} are one field, given twice")
        else:
            found[own] = value
    return found


class KindRule(Value):
    """Limits of their own for one kind of failure; what is None comes from the policy.

    `max_attempts` (or `attempts`) caps the attempts that end in this kind; the policy's caps
    their sum.

    >>> KindRule(max_attempts=2).backoff is None
    True
    """

    __slots__ = ("backoff", "jitter", "max_attempts")
    max_attempts: int | None
    backoff: Backoff | None
    jitter: Jitter | None

    def __init__(
        self,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        jitter: Jitter | None = None,
        *,
        attempts: int | None = None,
        **unknown: Never,
    ) -> None:
        check = Checker("KindRule")
        given = {"max_attempts": max_attempts, "attempts": attempts}
        named = own_names(check, {name: n for name, n in given.items() if n is not None})
        max_attempts = named.get("max_attempts")
        for name, value in dict[str, object](unknown).items():
            check.note(name, value, f"left out; {nearest_field(name, KindRule.__slots__)}")
        if max_attempts is not None:
            max_attempts = check.attempts("max_attempts", max_attempts)
        _check_type(check, "backoff", backoff, Backoff, optional=True)
        _check_type(check, "jitter", jitter, Jitter, optional=True)
        check.close()
        self._fill(max_attempts=max_attempts, backoff=backoff, jitter=jitter)


def _check_type(
    check: Checker, field: str, value: object, wanted: type, *, optional: bool = False
) -> None:
    if not isinstance(value, wanted) and not (optional and value is None):
        example = {Backoff: "Backoff.exponential(0.1)", Jitter: "Jitter.percent(0.1)"}
        check.note(field, value, f"a {wanted.__name__}, such as {example.get(wanted, wanted)}")


def _a_backoff(check: Checker, field: str, value: Given) -> Given:
    _check_type(check, field, value, Backoff)
    return value


def _a_jitter(check: Checker, field: str, value: Given) -> Given:
    _check_type(check, field, value, Jitter)
    return value


def a_log_level(check: Checker, field: str, value: object) -> str:
    """The name of a level, given as such or as the number that logging has for it."""
    if type(value) is int and value in _LEVEL_NUMBERS:
        return _LEVEL_NUMBERS[value]
    return check.choice(field, value, LOG_LEVELS)


def _a_function(check: Checker, field: str, value: Given) -> Given:
    check.function(field, value)
    return value


def _a_flag(check: Checker, field: str, value: Given) -> Given:
    if not isinstance(value, bool):
        check.note(field, value, "True or False")
    return value


def _a_plain_function(check: Checker, field: str, value: Given) -> Given:
    """A function that is not async: its answer is needed at once, also in a sync call."""
    check.plain_function(field, value)
    return value


def _rules_or_none(check: Checker, field: str, value: UserValue) -> tuple[Rule, ...] | None:
    return None if value is None else _some_rules(check, field, value)


def _some_rules(check: Checker, field: str, value: UserValue) -> tuple[Rule, ...]:
    single = isinstance(value, str | type) or callable(value)
    if not single and not hasattr(value, "__iter__"):
        check.note(field, value, _RULES_ALLOWED)
        return ()
    given = (value,) if single else tuple(value)
    rules = tuple(rule for each in given for rule in (each if isinstance(each, tuple) else (each,)))
    for rule in rules:
        _check_rule(check, field, rule)
    return rules


_KIND_VALUES = frozenset(kind.value for kind in Kind)
_RULES_ALLOWED = (
    "exception classes, names or error codes as text, Kinds, or functions of the exception"
)


_NOT_MEMORY = "another class; a MemoryError is never retried, since a retry needs memory too"


def _check_rule(check: Checker, field: str, rule: object) -> None:
    if isinstance(rule, type):
        if not issubclass(rule, BaseException):
            check.note(field, rule, "an exception class")
        elif field == "retry_on" and not issubclass(rule, Exception):
            allowed = "Exception or a class derived from it; KeyboardInterrupt, SystemExit,"
            check.note(field, rule, f"{allowed} GeneratorExit and cancellation are never retried")
        elif field == "retry_on" and issubclass(rule, MemoryError):
            check.note(field, rule, _NOT_MEMORY)
    elif isinstance(rule, str) and not isinstance(rule, Kind):
        if not rule.strip():
            check.note(field, rule, "a name that is not empty")
        elif rule in _KIND_VALUES:
            check.note(field, rule, f"Kind.{rule.upper()} for the kind; text names a class or code")
        elif field == "retry_on" and rule in ("MemoryError", "builtins.MemoryError"):
            check.note(field, rule, _NOT_MEMORY)
    elif not isinstance(rule, Kind) and not callable(rule):
        check.note(field, rule, _RULES_ALLOWED)


def a_kind(check: Checker, field: str, value: object) -> Kind:
    """A kind by its member or its value."""
    return Kind(check.choice(field, value, [kind.value for kind in Kind]))


def _a_classify(check: Checker, field: str, value: UserValue) -> Mapping[Rule, Kind] | None:
    if value is None:
        return None
    if not hasattr(value, "items"):
        check.note(field, value, 'a mapping such as {MyError: "throttled"}')
        return None
    for rule in value:
        _check_rule(check, field, rule)
        if isinstance(rule, Kind):
            check.note(field, rule, "keyed by exception classes, names or functions, not by a Kind")
    return _Frozen({rule: a_kind(check, field, kind) for rule, kind in value.items()}) or None


def _a_per_kind(check: Checker, field: str, value: UserValue) -> Mapping[Kind, KindRule] | None:
    if value is None:
        return None
    if not hasattr(value, "items"):
        check.note(field, value, 'a mapping such as {"throttled": KindRule(max_attempts=8)}')
        return None
    for kind, rule in value.items():
        if not isinstance(rule, KindRule):
            check.note(f"{field}[{kind}]", rule, "a KindRule")
    return _Frozen({a_kind(check, field, kind): rule for kind, rule in value.items()}) or None


class _Frozen(dict):  # type: ignore[type-arg]
    """A mapping that can be hashed and is not meant to change."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted((repr(k), repr(v)) for k, v in self.items())))

    def _refuse(self, *_: object, **__: object) -> None:
        raise TypeError("a policy is frozen: use replace()")

    __setitem__ = __delitem__ = pop = popitem = clear = update = setdefault = _refuse  # type: ignore[assignment]
    __ior__ = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type, tuple[dict[UserValue, UserValue]]]:
        return dict, (dict(self),)  # the policy that is built anew freezes it


DEFAULTS: dict[str, UserValue] = {
    "name": "default",
    "max_attempts": 3,
    "backoff": Backoff.exponential(0.1, factor=2.0, max_delay=5.0),
    "jitter": Jitter.percent(0.10),
    "retry_on": None,
    "never_retry_on": (),
    "classify": None,
    "per_kind": None,
    "retry_if_result": None,
    "on_exhausted": "return",
    "wait_from": None,
    "attempt_timeout": None,
    "timeout_by": "client",
    "deadline": None,
    "max_retry_after": 60.0,
    "respect_retry_after": True,
    "nested": "collapse",
    "before_retry": None,
    "after_retry": None,
    "log_level": "WARNING",
}

CHECKS: dict[str, Callable[[Checker, str, UserValue], UserValue]] = {
    "name": Checker.name,
    "max_attempts": Checker.attempts,
    "backoff": _a_backoff,
    "jitter": _a_jitter,
    "retry_on": _rules_or_none,
    "never_retry_on": _some_rules,
    "classify": _a_classify,
    "per_kind": _a_per_kind,
    "retry_if_result": _a_function,
    "on_exhausted": lambda check, field, value: check.choice(field, value, EXHAUSTED_MODES),
    "wait_from": _a_plain_function,
    "attempt_timeout": Checker.optional_seconds,
    "timeout_by": lambda check, field, value: check.choice(field, value, TIMEOUT_MODES),
    "deadline": Checker.optional_seconds,
    "max_retry_after": Checker.seconds,
    "respect_retry_after": _a_flag,
    "nested": lambda check, field, value: check.choice(field, value, NESTED_MODES),
    "before_retry": _a_function,
    "after_retry": _a_function,
    "log_level": a_log_level,
}


def nearest_field(name: str, known: Iterable[str] = DEFAULTS) -> str:
    """What a misspelt field was most likely meant to be.

    >>> nearest_field("max_retries"), nearest_field("atempts")
    ('did you mean max_attempts, which counts the first call too?', 'did you mean attempts?')
    """
    import difflib

    fields = tuple(known)
    meant = MEANT.get(name)
    if meant in fields:
        counted = ", which counts the first call too" if name.endswith("retries") else ""
        return f"did you mean {meant}{counted}?"
    others = [short for short, own in OTHER_NAMES.items() if own in fields]
    near = difflib.get_close_matches(name, [*fields, *others], n=1)
    return f"did you mean {near[0]}?" if near else "known fields: " + ", ".join(fields)
