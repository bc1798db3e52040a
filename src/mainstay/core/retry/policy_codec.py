"""A policy as plain data, and back: what JSON and YAML can hold.

Classes become their names. Nothing is imported to turn a name into a class again: a built-in
exception is found, any other name is matched as a name. Functions have no text form.
"""

from __future__ import annotations

import builtins

from mainstay.core.base.validate import Checker
from mainstay.core.known.kind import Kind, qualified_name
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.policy_fields import DEFAULTS, KindRule, a_kind
from mainstay.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.types import Json, UserValue


def to_plain(check: Checker, field: str, value: UserValue) -> Json:
    """A field of a policy as JSON can hold it."""
    if isinstance(value, Backoff | Jitter):
        if isinstance(value, Backoff) and value.kind == "custom":
            check.note(field, value, "a named curve: a function has no text form")
        return value.to_dict()
    if isinstance(value, KindRule):
        fields = {name: getattr(value, name) for name in _KIND_RULE_FIELDS}
        return {n: to_plain(check, field, v) for n, v in fields.items() if v is not None}
    if isinstance(value, dict):
        return {str(to_plain(check, field, k)): to_plain(check, field, v) for k, v in value.items()}
    if isinstance(value, tuple):
        return [to_plain(check, field, rule) for rule in value]
    return _plain_rule(check, field, value)


def _plain_rule(check: Checker, field: str, value: UserValue) -> Json:
    if isinstance(value, Kind):
        return f"kind:{value.value}" if field in ("retry_on", "never_retry_on") else value.value
    if isinstance(value, type):
        return value.__name__ if value.__module__ == "builtins" else qualified_name(value)
    if callable(value):
        check.note(field, value, "left out: a function has no text form")
    plain: Json = value
    return plain


_KIND_RULE_FIELDS = ("max_attempts", "backoff", "jitter")


def from_plain(check: Checker, field: str, value: UserValue) -> UserValue:
    """A field from its plain form; what has the wrong shape is left to the constructor."""
    try:
        return _FROM_PLAIN.get(field, _as_it_is)(value)
    except PolicyError as error:
        for problem in error.problems:
            check.note(f"{field}.{problem.field}", problem.value, problem.allowed)
    return DEFAULTS.get(field)


def _as_it_is(value: UserValue) -> UserValue:
    return value


def _backoff_from(value: UserValue) -> UserValue:
    return Backoff.from_dict(value) if hasattr(value, "items") else value


def _jitter_from(value: UserValue) -> UserValue:
    return Jitter.from_dict(value) if hasattr(value, "items") else value


def _rules_from(value: UserValue) -> UserValue:
    if isinstance(value, list | tuple):
        return [_rule_from(rule) for rule in value]
    return _rule_from(value)


def _rule_from(rule: UserValue) -> UserValue:
    """Built-in exceptions by their class, `kind:throttled` as a Kind, other names as names."""
    if not isinstance(rule, str):
        return rule
    if rule.startswith("kind:"):
        check = Checker("rule")
        kind = a_kind(check, "kind", rule.removeprefix("kind:"))
        check.close()
        return kind
    builtin = getattr(builtins, rule, None)
    is_class = isinstance(builtin, type) and issubclass(builtin, BaseException)
    return builtin if is_class else rule


def _classify_from(value: UserValue) -> UserValue:
    return {_rule_from(k): v for k, v in value.items()} if hasattr(value, "items") else value


def _per_kind_from(value: UserValue) -> UserValue:
    if not hasattr(value, "items"):
        return value
    return {kind: _kind_rule_from(rule) for kind, rule in value.items()}


def _kind_rule_from(value: UserValue) -> UserValue:
    if not hasattr(value, "items"):
        return value
    fields = {str(name): _FROM_PLAIN.get(name, _as_it_is)(v) for name, v in value.items()}
    return KindRule(**fields)


_FROM_PLAIN: dict[str, Callable[[UserValue], UserValue]] = {
    "backoff": _backoff_from,
    "jitter": _jitter_from,
    "retry_on": _rules_from,
    "never_retry_on": _rules_from,
    "classify": _classify_from,
    "per_kind": _per_kind_from,
}
