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
from mainstay.core.known.codes import RECORDED_CODES
from mainstay.core.known.http import ONCE
from mainstay.core.known.kind import Kind, Known
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.kinds import RECORDED
from mainstay.core.retry.past_rules import backoff_of, jitter_of
from mainstay.core.retry.policy import Policy
from mainstay.core.retry.policy_fields import KindRule
from mainstay.core.retry.retry_after import Hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.proof import Evidence, KnownThen
    from mainstay.core.base.types import Fields, UserValue


class Rejected:
    """A result that was not accepted, with the wait that it asked for."""

    __slots__ = ("retry_after",)

    def __init__(self, retry_after: Hint | None) -> None:
        self.retry_after = retry_after


def result_of(evidence: Evidence) -> Rejected:
    """A result that the policy does not accept, as it did not accept the one that was recorded."""
    after, at = evidence.retry_after, evidence.retry_at
    return Rejected(None if after is None and at is None else Hint(after, at))


class Recollection:
    """What the user's own functions answered: delays of a backoff, and waits of `wait_from`."""

    __slots__ = ("bases", "waits")

    def __init__(self) -> None:
        self.bases: deque[float] = deque()
        self.waits: deque[float | None] = deque()

    def base(self, _n: int) -> float:
        return self.bases.popleft() if self.bases else 0.0

    def wait(self, _outcome: object) -> float | None:
        return self.waits.popleft() if self.waits else None


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


def _exception(evidence: Evidence, asked: deque[bool | None]) -> BaseException:
    cls = _class_of(evidence.classes)
    failure: UserValue
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
    setattr(failure, RECORDED, _known(evidence.known))
    if evidence.known is not None:
        setattr(failure, ONCE, evidence.known.once)
    setattr(failure, RECORDED_CODES, evidence.codes)
    return failure  # type: ignore[no-any-return]


def _known(then: KnownThen | None) -> Known | None:
    """What a table of then had for it; nothing that a table of now has for its name."""
    if then is None:
        return None
    return Known(
        Kind(then.kind),
        then.reason,
        by_code=then.by_code,
        is_ambiguous=then.ambiguous,
        unsafe=then.unsafe,
        once=then.once,
        table=then.table,
    )


def _carried(evidence: Evidence) -> Fields:
    """What the exception carried, under names at which it is looked for."""
    carried: Fields = {
        "status": evidence.status,
        "errno": evidence.errno,
        "winerror": evidence.winerror,
        "timeout": evidence.timeout,
    }
    if evidence.retry_after is not None or evidence.retry_at is not None:
        carried["retry_after"] = Hint(evidence.retry_after, evidence.retry_at)
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
    name: str, bases: tuple[type, ...], content: Fields, meta: type = type
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


def policy_of(fields: Fields, recalled: Recollection, rule: int = RULE) -> Policy:
    """The policy that was declared, as a version of the rules reads it.

    If it held functions that compute delays, `recalled` has what they answered.

    >>> from mainstay import RetryPolicy
    >>> from mainstay.core.audit.plan_codec import declared
    >>> plan = declared(RetryPolicy(max_attempts=7, retry_on=OSError), "idempotent")
    >>> policy_of(plan.fields, Recollection()).max_attempts
    7
    """
    values: Fields = {name: fields[name] for name in PLAIN}
    for name in RULES:
        rules = fields[name]
        values[name] = None if rules is None else tuple(map(_rule, rules))
    values["classify"] = {_rule(rule): kind for rule, kind in fields["classify"]} or None
    curve = _Curves(fields, recalled, rule)
    values["backoff"], values["jitter"] = curve.of(fields)
    per_kind = fields["per_kind"].items()
    values["per_kind"] = {kind: curve.kind_rule(own) for kind, own in per_kind} or None
    if fields["retry_if_result"]:
        values["retry_if_result"] = lambda value: isinstance(value, Rejected)
    if fields.get("wait_from"):
        values["wait_from"] = recalled.wait
    values["respect_retry_after"] = fields.get("respect_retry_after", True)
    return Policy(**values).by_version(rule)


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


def _out_of_memory(shown: str) -> Callable[[UserValue], bool]:
    """Stands for the class: version 1 of the rules let a policy name it, which is refused now."""

    def predicate(failure: UserValue) -> bool:
        return any(cls.__name__ == "MemoryError" for cls in type(failure).__mro__)

    predicate.__qualname__ = shown
    return predicate


def _asked_again(name: str) -> Callable[[UserValue], object]:
    """A predicate that answers what the recorded one answered."""

    def predicate(failure: UserValue) -> object:
        answer = failure.ms_asked.popleft() if failure.ms_asked else False
        return _Unawaited() if answer is None else answer

    predicate.__qualname__ = name
    return predicate


class _Unawaited:
    """Stands for what a recorded predicate returned and nothing could await; nor does replay."""

    __await__ = None


class _Curves:
    """The backoffs and jitters of one plan, as a version of the rules reads them."""

    def __init__(self, fields: Fields, recalled: Recollection, rule: int) -> None:
        self._fields, self._recalled, self._rule = fields, recalled, rule

    def of(self, own: Fields) -> tuple[Backoff, Jitter]:
        """Backoff and jitter; a delay that a function gave was recorded as it was waited."""
        backoff = own["backoff"] or self._fields["backoff"]
        jitter = jitter_of(own["jitter"] or self._fields["jitter"], self._rule)
        if backoff["kind"] != "custom":
            return backoff_of(backoff, self._rule), jitter
        recorded = Backoff.custom(self._recalled.base, max_delay=MAX_SECONDS)
        return recorded, _AsWaited(jitter, backoff["max_delay"])

    def kind_rule(self, own: Fields) -> KindRule:
        return KindRule(own["max_attempts"], *self.of(own))


class _AsWaited(Jitter):
    """The jitter of a backoff that is a function: its delays are recorded with the jitter in."""

    __slots__ = ("_longest",)
    _longest: float

    def __init__(self, jitter: Jitter, longest: float) -> None:
        super().__init__(jitter.kind, jitter.amount)
        self._fill(_longest=longest)

    def spread(self, delay: float, _u: float, _previous: float, _backoff: Backoff) -> float:
        return delay

    def on_top(self, asked: float, u: float, _longest: float) -> float:
        return super().on_top(asked, u, self._longest)
