"""Exceptions and policies that were recorded, rebuilt so that the core decides the same on them.

A stand-in has classes of the recorded names in the recorded order, and carries what was looked at.
Built-in exceptions and our own are themselves; of any other, a class of that name is made, and
nothing is imported. If a policy held a function of the user's, its stand-in answers what the
function answered.
"""

from __future__ import annotations

import builtins
from collections import deque
from typing import TYPE_CHECKING, Any

import mainstay.errors as errors
from mainstay.core.audit.plan_codec import PLAIN, RULES
from mainstay.core.base.proof import RULE
from mainstay.core.base.validate import MAX_SECONDS
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.kinds import Kind
from mainstay.core.retry.policy import Policy
from mainstay.core.retry.policy_fields import KindRule
from mainstay.core.retry.retry_after import Hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.proof import Evidence

REJECTED = object()
"""A result that was not accepted."""


# --- exceptions -----------------------------------------------------------------------------------

_MOST_CLASSES = 10_000
_classes: dict[tuple[str, ...], type[BaseException]] = {}


def exception_of(evidence: Evidence) -> BaseException:
    """An exception that classification sees as it saw the one that was recorded.

    >>> from mainstay.core.events.evidence import evidence_of
    >>> class Lost(ConnectionError): pass
    >>> type(exception_of(evidence_of(Lost()))).__name__
    'Lost'
    """
    return _exception(evidence, deque(evidence.asked))


def _exception(evidence: Evidence, asked: deque[bool]) -> BaseException:
    cls = _class_of(evidence.classes)
    failure: Any
    if issubclass(cls, BaseExceptionGroup):
        members = [_exception(each, asked) for each in evidence.members]
        failure = BaseExceptionGroup.__new__(cls, "", members)
    else:
        failure = cls.__new__(cls)
    for name, value in _carried(evidence).items():
        try:
            setattr(failure, name, value)
        except AttributeError:  # CircuitOpenError makes its retry_after of its arguments
            failure.args = ("", "", value)
    failure.ms_asked = asked
    return failure  # type: ignore[no-any-return]


_CODE_NAMES = ("code", "error_code", "sqlstate", "pgcode")


def _carried(evidence: Evidence) -> dict[str, Any]:
    """What the exception carried, under names at which it is looked for."""
    carried: dict[str, Any] = {
        "status": evidence.status,
        "errno": evidence.errno,
        "winerror": evidence.winerror,
        "timeout": evidence.timeout,
        **dict(zip(_CODE_NAMES, evidence.codes, strict=False)),
    }
    if evidence.retry_after is not None or evidence.retry_at is not None:
        carried["retry_after"] = Hint(evidence.retry_after, evidence.retry_at)
    if len(evidence.codes) > len(_CODE_NAMES):
        carried["response"] = {"Error": {"Code": evidence.codes[-1]}}
    if evidence.wrapped is not None:
        carried["reason"] = exception_of(evidence.wrapped)
    return {name: value for name, value in carried.items() if value is not None}


def _class_of(names: tuple[str, ...]) -> type[BaseException]:
    """The class with these names in its order of resolution, itself first."""
    found = _classes.get(names)
    if found is None:
        if len(_classes) >= _MOST_CLASSES:
            _classes.clear()
        found = _classes[names] = _real(names[0]) or _made(names)
    return found


def _real(name: str) -> type[BaseException] | None:
    """The class of that name if it is built in, or one of ours."""
    module, _, short = name.partition(":")
    home = {"builtins": builtins, "mainstay.errors": errors}.get(module)
    found = getattr(home, short, None)
    is_class = isinstance(found, type) and issubclass(found, BaseException)
    return found if is_class else None


class _Ordered(type):
    """A class whose order of resolution is given, not computed."""

    def mro(cls) -> list[type]:
        return [cls, *cls.__dict__.get("_mainstay_order", super().mro()[1:])]


def _made(names: tuple[str, ...]) -> type[BaseException]:
    real = [cls for cls in map(_real, names) if cls is not None] or [BaseException]
    bases = [c for c in real if not any(c is not d and issubclass(d, c) for d in real)]
    order: list[type] = [_real(name) or _named(name, (BaseException,), {}) for name in names[1:]]
    order += [base for base in (BaseException, object) if base not in order]
    content = {"_mainstay_order": tuple(order), "_mainstay_names": frozenset(names)}
    return _named(names[0], tuple(bases), content, _Ordered)


def _named(
    name: str, bases: tuple[type, ...], content: dict[str, Any], meta: type = type
) -> type[BaseException]:
    """A class that is spelled so."""
    module, _, qualname = name.partition(":")
    content = {**content, "__module__": module, "__qualname__": qualname}
    return meta(qualname.rpartition(".")[2], bases, content)  # type: ignore[no-any-return]


# --- policies -------------------------------------------------------------------------------------


class _Matching(type):
    """The class of a rule: what it matches goes by the recorded names."""

    def __instancecheck__(cls, instance: object) -> bool:
        return cls.__dict__["_mainstay_name"] in getattr(type(instance), "_mainstay_names", ())


def policy_of(fields: dict[str, Any], bases: deque[float], version: int = RULE) -> Policy:
    """The policy that was declared; `bases` are the delays that functions of its own gave.

    `version` is that of the rules by which it decides.

    >>> from mainstay import RetryPolicy
    >>> from mainstay.core.audit.plan_codec import declared
    >>> plan = declared(RetryPolicy(max_attempts=7, retry_on=OSError), "idempotent")
    >>> policy_of(plan.fields, deque()).max_attempts
    7
    """
    values: dict[str, Any] = {name: fields[name] for name in PLAIN}
    for name in RULES:
        rules = fields[name]
        values[name] = None if rules is None else tuple(map(_rule, rules))
    values["classify"] = {_rule(rule): kind for rule, kind in fields["classify"]} or None
    values["backoff"], values["jitter"] = _curve(fields["backoff"], fields["jitter"], bases)
    per_kind = fields["per_kind"].items()
    values["per_kind"] = {k: _kind_rule(rule, fields, bases) for k, rule in per_kind} or None
    if fields["retry_if_result"]:
        values["retry_if_result"] = lambda value: value is REJECTED
    return Policy(**values).by_version(version)


def _rule(tagged: list[str]) -> Any:
    sort, text = tagged
    if text.replace(":", ".").removeprefix("builtins.") == "MemoryError":
        return _out_of_memory(repr(text) if sort == "name" else "MemoryError")
    if sort == "kind":
        return Kind(text)
    if sort == "name":
        return text
    if sort == "function":
        return _asked_again(text)
    base = ExceptionGroup if sort == "group" else Exception
    return _real(text) or _named(text, (base,), {"_mainstay_name": text}, _Matching)


def _out_of_memory(shown: str) -> Callable[[Any], bool]:
    """Stands for the class: version 1 of the rules let a policy name it, which is refused now."""

    def predicate(failure: Any) -> bool:
        return any(cls.__name__ == "MemoryError" for cls in type(failure).__mro__)

    predicate.__qualname__ = shown
    return predicate


def _asked_again(name: str) -> Callable[[Any], bool]:
    """A predicate that answers what the recorded one answered."""

    def predicate(failure: Any) -> bool:
        return bool(failure.ms_asked and failure.ms_asked.popleft())

    predicate.__qualname__ = name
    return predicate


def _curve(
    backoff: dict[str, Any], jitter: dict[str, Any], bases: deque[float]
) -> tuple[Backoff, Jitter]:
    """Backoff and jitter; a delay that a function gave was recorded as it was waited."""
    if backoff["kind"] != "custom":
        return Backoff.from_dict(backoff), Jitter.from_dict(jitter)
    recorded = Backoff.custom(lambda _: bases.popleft() if bases else 0.0, max_delay=MAX_SECONDS)
    return recorded, Jitter.none()


def _kind_rule(rule: dict[str, Any], fields: dict[str, Any], bases: deque[float]) -> KindRule:
    backoff, jitter = rule["backoff"] or fields["backoff"], rule["jitter"] or fields["jitter"]
    return KindRule(rule["max_attempts"], *_curve(backoff, jitter, bases))
