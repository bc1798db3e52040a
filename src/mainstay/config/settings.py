"""The settings as one frozen value; and the rules between fields."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from mainstay.config.blame import ConfigMapping
from mainstay.config.breakers import breaker_of
from mainstay.config.fields import (
    ALERT_RULE,
    BREAKERS,
    BUDGETS,
    CONFIG,
    REDACTION,
    RETRY,
    SINKS_SECTION,
)
from mainstay.config.files.load_file import is_agents
from mainstay.config.policies import BUILT_IN, policies_of
from mainstay.config.report import nearest
from mainstay.config.retry_fields import BREAKER, NAMED_BREAKER
from mainstay.config.shapes import snake
from mainstay.core.circuit.settings import BreakerSettings  # noqa: TC001 -- a field's type
from mainstay.core.events.describe import usual_redactor
from mainstay.core.retry.policy import Policy  # noqa: TC001 -- a field's type

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mainstay.config.report import Report
    from mainstay.config.tree import Node

EMPTY: Mapping[str, Any] = MappingProxyType({})


class SharedBreaker(Struct, frozen=True):
    """A circuit that operations share: its name, their patterns, its settings."""

    name: str
    operations: tuple[str, ...]
    settings: BreakerSettings


class Settings(Struct, frozen=True, kw_only=True):
    """A configuration that was read and checked. It never changes; nothing is read again."""

    file: str | None = None
    """Where it was read from; None if there is no file."""
    policies: tuple[Policy, ...] = ()
    operations: Any = EMPTY
    """Operations, or patterns of them, to the names of policies."""
    default: str = BUILT_IN
    breaker: BreakerSettings | None = None
    """From which each operation gets a circuit of its own."""
    global_breaker: BreakerSettings | None = None
    breakers: tuple[SharedBreaker, ...] = ()
    budgets: Any = EMPTY
    """By their names in the file, each with its options."""
    store: Any = EMPTY
    sinks: Any = EMPTY
    """Those that are on, each with its options."""
    audit: Any = None
    """None if not given; False; or options, of which `where` may be missing."""
    redaction: Any = EMPTY
    alerts: Any = EMPTY
    inbox: Any = EMPTY
    outbox: Any = EMPTY

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__)
        return usual_redactor().text(f"Settings({shown})")


def settings_of(
    checked: Mapping[str, Any], tree: Node, report: Report, file: str | None, make: type[Policy]
) -> Settings:
    """The value of what was checked; what does not fit together is reported."""
    place = ConfigMapping(CONFIG, tree, (), report)
    retry = checked.get("retry", EMPTY)
    named = place.below(RETRY, "retry").below(RETRY.keys["policies"][1], "policies")
    policies = policies_of(retry.get("policies", EMPTY), named, retry.get("nested"), make)
    _check_names(retry, place)
    _check_redaction(checked.get("redaction", EMPTY), place)
    _check_alerts(checked.get("alerts", EMPTY), place)
    breakers, count = checked.get("breakers", EMPTY), _counted_in(file)
    return Settings(
        file=file,
        policies=tuple(policies),
        operations=_frozen(retry.get("operation_policies", EMPTY)),
        default=retry.get("default_policy", BUILT_IN),
        breaker=_each(checked, place, count),
        global_breaker=_global(breakers, place, count),
        breakers=_shared(breakers.get("named", EMPTY), place, count),
        budgets=_frozen(_budgets(checked.get("budgets", EMPTY), place)),
        store=_frozen(checked.get("store", EMPTY)),
        sinks=_frozen(_sinks(checked.get("sinks", EMPTY), place)),
        audit=_audit(checked, place),
        redaction=_frozen(checked.get("redaction", EMPTY)),
        alerts=_frozen(checked.get("alerts", EMPTY)),
        inbox=_frozen(checked.get("inbox", EMPTY)),
        outbox=_frozen(checked.get("outbox", EMPTY)),
    )


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType({key: _frozen(each) for key, each in value.items()})
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _check_names(retry: Mapping[str, Any], place: ConfigMapping) -> None:
    """Every policy that is named somewhere is there; one with problems of its own is, too."""
    node, _, is_there = place.at("retry", "policies")
    named = list(node.value) if is_there and isinstance(node.value, dict) else []
    known = dict.fromkeys((*named, BUILT_IN))
    mapped = retry.get("operation_policies", EMPTY)
    wanted: list[tuple[tuple[str, ...], str]]
    wanted = [(("operation_policies", op), name) for op, name in mapped.items()]
    if "default_policy" in retry:
        wanted.append((("default_policy",), retry["default_policy"]))
    for names, name in wanted:
        if name not in known:
            shown = ", ".join(islice(known, 10)) + (", …" if len(known) > 10 else "")
            allowed = f"the name of a policy; there are {shown}"
            place.wrong(("retry", *names), name, allowed, nearest(name, known))


def _check_redaction(redaction: Mapping[str, Any], place: ConfigMapping) -> None:
    if redaction:
        from mainstay.core.redact.redactor import Redactor  # it takes long to load

        place.below(REDACTION, "redaction").build(lambda: Redactor(**redaction))


def _check_alerts(alerts: Mapping[str, Any], place: ConfigMapping) -> None:
    """Each rule, at its own line."""
    node, path, _ = place.at("alerts", "rules")
    rules = alerts.get("rules", ())
    if type(node.value) is not list or len(rules) != len(node.value):
        return  # one of them is wrong already
    from mainstay.core.analytics.alerts import AlertRule

    for number, (rule, own) in enumerate(zip(rules, node.value, strict=True)):
        here = ConfigMapping(ALERT_RULE, own, (*path, number), place.report)
        here.build(lambda rule=rule: AlertRule(**rule), {"threshold": (("above",), ("below",))})  # type: ignore[misc]


_EACH = (("circuit_breaker",), ("retry", "circuit_breaker"), ("breakers", "default"))


def _counted_in(file: str | None) -> str:
    """Which failures count in the circuits of a file, unless it has `count`.

    The agent's document records every failure before it asks whether that is retryable.
    """
    with suppress(OSError):  # the working directory was removed under us
        if file is not None and is_agents(Path(file).absolute()):
            return "all"
    return "dependency"


def _each(checked: Mapping[str, Any], place: ConfigMapping, count: str) -> BreakerSettings | None:
    """The one section for the circuits of single operations, wherever it stands."""
    given = []
    for names in _EACH:
        value: Any = checked
        for name in names:
            value = value.get(name) if value is not None else None
        if value is not None:
            given.append((names, value))
    for names, _ in given[1:]:
        first = ".".join(place.at(*given[0][0])[1])  # type: ignore[arg-type]
        place.problem(names, f"means the same as {first}, which is given too; keep one of them")
    if not given:
        return None
    return breaker_of(given[0][1], place.below(BREAKER, *given[0][0]), count)


def _global(
    breakers: Mapping[str, Any], place: ConfigMapping, count: str
) -> BreakerSettings | None:
    if "global" not in breakers:
        return None
    return breaker_of(breakers["global"], place.below(BREAKER, "breakers", "global"), count)


def _shared(
    named: Mapping[str, Any], place: ConfigMapping, count: str
) -> tuple[SharedBreaker, ...]:
    found, taken = [], {}  # type: list[SharedBreaker], dict[str, str]
    here = place.below(BREAKERS, "breakers")
    for name, checked in named.items():
        settings = breaker_of(checked, here.below(NAMED_BREAKER, "named", name), count)
        operations = tuple(checked.get("operations", (name,)))
        for each in operations:
            if taken.setdefault(each, name) != name:
                text = f"{each!r} is guarded by the circuit {taken[each]!r} already"
                here.problem(("named", name, "operations"), text)
        if settings is not None:
            found.append(SharedBreaker(name, operations, settings))
    return tuple(found)


def _rules() -> dict[str, Any]:
    """The rules of budgets; loaded for a configuration that has some."""
    from mainstay.core.limits.budget import RatioRule, TokenRule
    from mainstay.core.limits.throttle import MemoryRule, RateRule, ThrottleRule

    return {
        "retries": RatioRule, "tokens": TokenRule, "rate": RateRule, "throttle": ThrottleRule,
        "memory": MemoryRule,
    }  # fmt: skip


def _budgets(budgets: Mapping[str, Any], place: ConfigMapping) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rules = _rules() if budgets else {}
    for name, options in budgets.items():
        here = place.below(BUDGETS, "budgets").below(BUDGETS.keys[name][1], name)
        fields = dict(options)
        if not fields.pop("enabled", True):
            continue
        if fields.pop("preset", None) and fields:
            here.problem(("preset",), "excludes the other options: it has numbers of its own")
        elif here.build(lambda name=name, fields=fields: rules[name](**fields)) is not None:  # type: ignore[misc]
            found[name] = {key: value for key, value in options.items() if key != "enabled"}
    return found


def _sinks(sinks: Mapping[str, Any], place: ConfigMapping) -> dict[str, Any]:
    """Those that are on; the log is, unless it is switched off."""
    found: dict[str, Any] = {} if "logging" in sinks else {"logging": {}}
    for name, options in sinks.items():
        if not options.get("enabled", True):
            continue
        here = place.below(SINKS_SECTION, "sinks")
        fields = found[name] = {}
        for key, value in options.items():
            if snake(key) in fields:
                here.problem(
                    (name, snake(key)), "is given twice, in two spellings; keep one of them"
                )
            if key != "enabled":
                fields[snake(key)] = value
    return found


def _audit(checked: Mapping[str, Any], place: ConfigMapping) -> Any:
    if "audit" not in checked:
        return None
    options = dict(checked["audit"])
    is_on = options.pop("enabled", True)
    if is_on and checked.get("sinks", EMPTY).get("audit", {"enabled": False}).get("enabled", True):
        place.problem(("sinks", "audit"), "means the same as audit, which is given too; keep one")
    return _frozen(options) if is_on else False
