"""Policies from what was checked: `extends` followed, delays put together, values made."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from mainstay.config.report import nearest
from mainstay.config.retry_fields import PER_KIND
from mainstay.core.base.validate import Checker
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.policy_codec import from_plain
from mainstay.core.retry.policy_fields import KindRule

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from mainstay.config.blame import ConfigMapping
    from mainstay.core.retry.policy import Policy

BUILT_IN = "standard"
_CHAIN = ("delays", "then")
_CURVE = ("kind", "initial", "factor", "step", "max_delay", *_CHAIN)
_RULES = ("retry_on", "never_retry_on", "classify")
_DIRECT = (
    "max_attempts", "attempt_timeout", "timeout_by", "deadline", "max_retry_after",
    "respect_retry_after", "nested", "log_level", "on_exhausted",
)  # fmt: skip
_STANDS_AS: dict[str, tuple[tuple[str, ...], ...]] = {
    "initial": (("initial_delay",), ("backoff", "initial")),
    "max_delay": (("max_delay",), ("backoff", "max_delay")),
    "factor": (("factor",), ("backoff", "factor")),
    "step": (("step",), ("backoff", "step")),
    "amount": (("jitter", "amount"), ("jitter",)),
    "delays": (("backoff", "delays"), ("backoff",)),
    "then": (("backoff", "then"), ("backoff",)),
}

Draft = dict[str, "Any"]


def policies_of(
    checked: Mapping[str, Draft], place: ConfigMapping, nested: str | None, make: type[Policy]
) -> list[Policy]:
    """The policies; `place` is that of the mapping of names."""
    drafts = {name: _draft(own, place, (name,)) for name, own in checked.items()}
    if nested is not None:
        drafts.setdefault(BUILT_IN, {})
    resolved = _resolve(drafts, place)
    made = []
    for name, fields in resolved.items():
        if nested is not None:
            fields.setdefault("nested", nested)
        policy = _policy(name, fields, place, make)
        if policy is not None:
            made.append(policy)
    return made


def _draft(own: Draft, place: ConfigMapping, names: tuple[str, ...] = ()) -> Draft:
    """The fields with the curve's parts beside the others, whichever way they were written."""
    draft = dict(own)
    if "initial_delay" in draft:
        draft["initial"] = draft.pop("initial_delay")
    for part, value in draft.pop("backoff", {}).items():
        if part in draft:
            flat = "initial_delay" if part == "initial" else part
            place.problem((*names, flat), "is given in backoff too; keep one of them")
        draft[part] = value
    return draft


def _resolve(drafts: dict[str, Draft], place: ConfigMapping) -> dict[str, Draft]:
    """Each with the fields of those it extends; without recursion, however long the chain."""
    done: dict[str, Draft] = {}
    for name in drafts:
        chain: dict[str, None] = {}  # in order; very many may extend each other
        current: str | None = name
        while current is not None and current not in done:
            chain[current] = None
            current = _parent(current, drafts, chain, place)
        fields = done[current] if current is not None else {}
        for each in reversed(chain):
            fields = done[each] = {**_without_chain(fields, drafts[each]), **drafts[each]}
    return {name: done[name] for name in drafts}


def _without_chain(inherited: Draft, own: Draft) -> Draft:
    """What is inherited; a chain is not if the policy has a curve of its own."""
    replaced = _CHAIN if own.get("kind", "chain") != "chain" else ()
    return {name: value for name, value in inherited.items() if name not in replaced}


def _parent(
    name: str, drafts: dict[str, Draft], chain: dict[str, None], place: ConfigMapping
) -> str | None:
    parent: str | None = drafts[name].get("extends")
    if parent is None or (parent == BUILT_IN and parent not in drafts):
        return None
    if parent in chain:
        steps = list(chain)
        circle = " → ".join([*steps[steps.index(parent) :], parent])
        place.problem((name, "extends"), f"leads back to itself: {circle}")
        return None
    if parent not in drafts:
        if place.at(parent)[2]:
            return None  # it is there, and its problems are reported
        known = {**drafts, BUILT_IN: {}}.keys() if len(drafts) < _FEW else drafts.keys()
        near = nearest(parent, known)
        place.wrong((name, "extends"), parent, f"one of {_some(known)}", near)
        return None
    return parent


_FEW = 1_000
"""Policies whose names are copied for each that extends none of them."""


def _some(names: Collection[str]) -> str:
    shown = ", ".join(islice(names, 10))
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"


def _policy(name: str, draft: Draft, place: ConfigMapping, make: type[Policy]) -> Policy | None:
    own = place.below(place.shape.shape, name)  # type: ignore[attr-defined]
    before = len(place.report.problems)
    fields = {field: draft[field] for field in _DIRECT if field in draft}
    fields |= _delays(draft, own)
    for field in _RULES:
        if field in draft:
            fields[field] = own.build(lambda f=field: _rules(f, draft[f]))  # type: ignore[misc]
    if "per_kind" in draft:
        fields["per_kind"] = _per_kind(draft["per_kind"], own)
    if len(place.report.problems) > before:
        return None
    return own.build(lambda: make(name=name, **fields))


def _rules(field: str, value: Any) -> Any:
    check = Checker(field)
    found = from_plain(check, field, value)
    check.close()
    return found


def _per_kind(rules: Mapping[str, Draft], place: ConfigMapping) -> dict[str, KindRule | None]:
    return {kind: _kind_rule(kind, own, place) for kind, own in rules.items()}


def _kind_rule(kind: str, own: Draft, place: ConfigMapping) -> KindRule | None:
    here = place.below(PER_KIND, "per_kind", kind)
    draft = _draft(own, here)
    delays = _delays(draft, here)
    return here.build(lambda: KindRule(draft.get("max_attempts"), **delays))


def _delays(draft: Draft, place: ConfigMapping) -> dict[str, Any]:
    """Backoff and jitter, if any part of them is given."""
    found: dict[str, Any] = {}
    if any(part in draft for part in _CURVE):
        found["backoff"] = place.build(lambda: backoff_of(draft), _STANDS_AS)
    if "jitter" in draft:
        found["jitter"] = jitter_of(draft["jitter"], place, "jitter")
    return found


def backoff_of(draft: Mapping[str, Any]) -> Backoff:
    """A curve of its parts; those not given are the built-in policy's."""
    get = draft.get
    kind, then = get("kind", "exponential"), get("then")
    longest = 60.0 if kind == "chain" else 5.0
    return _backoff(
        kind, get("initial", 0.1), get("factor", 2.0), get("step"),
        get("max_delay", longest), tuple(get("delays", ())),
        None if then is None else backoff_of(then),
    )  # fmt: skip


@lru_cache(maxsize=256)  # many policies have the same curve, and a value is a value
def _backoff(
    kind: str,
    initial: float,
    factor: float,
    step: float | None,
    max_delay: float,
    delays: tuple[float, ...],
    then: Backoff | None,
) -> Backoff:
    if kind == "constant" and not delays and then is None:
        return Backoff.constant(initial)
    return Backoff(
        kind, initial, factor=factor, step=step, max_delay=max_delay, delays=delays, then=then
    )


@lru_cache(maxsize=256)
def _percent(share: float) -> Jitter:
    return Jitter.percent(share)


def jitter_of(value: Any, place: ConfigMapping, field: str) -> Jitter | None:
    """A jitter of a share, or of its parts."""
    if isinstance(value, float):
        return _percent(value)
    kind = value.get("kind", "percent")
    if kind == "additive" and "amount" not in value:
        text = "additive needs an amount of seconds: {kind: additive, amount: 0.5}"
        place.problem((field,), text)
    node, _, is_there = place.at(field, "amount")
    if is_there and kind != "additive" and type(node.value) is str:
        place.problem((field, "amount"), "is a share here: a duration is for additive alone")
        return None
    amount = value.get("amount", 0.1 if kind == "percent" else 0.0)
    return place.build(lambda: Jitter(kind, amount), _STANDS_AS | {"amount": ((field, "amount"),)})
