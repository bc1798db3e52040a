"""The parts that a configuration names: found first, all of them, and made when an engine is.

A part that does not exist, a library that is missing and an option that no part takes are problems
of the configuration, reported with the line that names them.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING

from mainstay.config.blame import ConfigMapping
from mainstay.config.fields import CONFIG
from mainstay.config.report import nearest
from mainstay.config.shapes import camel
from mainstay.errors import MainstayError, MissingExtraError, PolicyError, UsageError
from mainstay.ports import methods_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Protocol

    from mainstay.config.load import Loaded
    from mainstay.config.settings import Settings
    from mainstay.core.circuit.settings import BreakerSettings
    from mainstay.drivers.guards.breaker import CircuitBreaker
    from mainstay.drivers.guards.budget import TokenBudget
    from mainstay.ports import Sink, Store

    class Configured(Protocol):
        """What a configuration makes: an engine."""

        settings: Settings | None

        @property
        def sinks(self) -> tuple[Sink, ...]: ...


HOMES = {
    "logging": ("mainstay.sinks.logging", "LoggingSink"),
    "jsonl": ("mainstay.sinks.jsonl", "JsonlSink"),
    "nats": ("mainstay.sinks.nats", "NatsSink"),
    "prometheus": ("mainstay.sinks.prometheus", "PrometheusSink"),
    "otel": ("mainstay.sinks.otel", "OpenTelemetrySink"),
    "audit": ("mainstay.audit.log", "AuditLog"),
    "redaction": ("mainstay.core.redact.redactor", "Redactor"),
    "alerts": ("mainstay.sinks.alerts", "Alerts"),
    "rule": ("mainstay.core.analytics.alerts", "AlertRule"),
    "notify": ("mainstay.sinks.notify.sink", "NotifySink"),
}
"""The module of each part. None is loaded before a configuration names it."""


_OF_THE_STORE = {
    "share": "share", "wait": "store_wait", "max_result": "max_result", "purge": "purge",
}  # fmt: skip
"""Options of the section `store`, and the arguments of an Engine that they are."""


class Parts:
    """The parts of one configuration."""

    def __init__(self, loaded: Loaded) -> None:
        assert loaded.settings is not None
        self.settings: Settings = loaded.settings
        self.report = loaded.report
        self._place = ConfigMapping(CONFIG, loaded.tree, (), loaded.report)
        self._store: Store | None = None
        self._sinks: list[Any] = []
        self._alarm: Any = None
        self._alert_inbox: Any = None
        """The inbox that alerts go to."""

    def find(self) -> None:
        """Looks for every part, and holds its options against what it takes."""
        settings = self.settings
        for name, options in settings.sinks.items():
            self._found(name, options, ("sinks", name))
        if settings.audit:
            self._found("audit", {"where": "", **settings.audit}, ("audit",))
        if settings.redaction:
            self._found("redaction", settings.redaction, ("redaction",))
        if settings.alerts:
            self._found("alerts", {}, ("alerts",))
        if settings.inbox.get("notify"):
            self._found("notify", {}, ("inbox", "notify"))

    def _found(self, name: str, options: Mapping[str, Any], where: tuple[str, ...]) -> None:
        """Whether a part can be had, with these options."""
        try:
            taken = inspect.signature(_part(name)).parameters
        except MainstayError as error:
            self._place.problem(where, str(error))
            return
        takes = [n for n in taken if n != "self"]
        for option in options:
            if option not in takes:
                near = nearest(option, takes)
                text = "unknown option" + ("" if near else f"; there are {_camels(takes)}")
                self._place.problem((*where, option), text, camel(near) if near else "")
        needed = [n for n in takes if taken[n].default is inspect.Parameter.empty]
        if name not in ("alerts", "notify"):
            for option in needed:
                if option not in options and taken[option].kind not in _SEVERAL:
                    self._place.problem(where, f"{camel(option)} is missing")

    # --- making -----------------------------------------------------------------------------------

    def made(self) -> dict[str, Any]:
        """The arguments of an Engine."""
        settings = self.settings
        budgets = self._guards()
        made: dict[str, Any] = {
            "policies": settings.policies,
            "operations": dict(settings.operations),
            "default": settings.default,
            "breaker": settings.breaker,
            "breakers": self._circuits(),
            "global_breaker": self._global(),
            "budget": budgets.pop("retries", None),
            "guards": tuple(budgets.values()),
        }
        if "escalate" in settings.inbox:
            made["escalate"] = settings.inbox["escalate"]
        if "url" in settings.outbox:
            made["outbox"] = settings.outbox["url"]
        for name, argument in _OF_THE_STORE.items():
            if name in settings.store:
                made[argument] = settings.store[name]
        made["store"] = self._opened()
        made["sinks"] = self._made_sinks()
        if settings.audit is not None:
            made["audit"] = self._audit()
        if settings.redaction:
            made["redact"] = self._one("redaction", settings.redaction, ("redaction",))
        self.report.close()
        return made

    def _guards(self) -> dict[str, Any]:
        """Budgets and limits, by their names in the file."""
        if not self.settings.budgets:
            return {}
        from mainstay.drivers.guards.budget import RetryBudget
        from mainstay.drivers.guards.throttle import AdaptiveThrottle, MemoryGuard, RateLimit

        kinds: dict[str, Callable[..., Any]] = {
            "retries": RetryBudget, "tokens": _tokens, "rate": RateLimit,
            "throttle": AdaptiveThrottle, "memory": MemoryGuard,
        }  # fmt: skip
        return {name: kinds[name](**options) for name, options in self.settings.budgets.items()}

    def _circuits(self) -> dict[str, CircuitBreaker]:
        found = {}
        for shared in self.settings.breakers:
            circuit = _circuit(shared.name, shared.settings)
            found.update(dict.fromkeys(shared.operations, circuit))
        return found

    def _global(self) -> CircuitBreaker | None:
        settings = self.settings.global_breaker
        return None if settings is None else _circuit("global", settings)

    def _opened(self) -> Store:
        from mainstay.stores.open import open_store

        store = self.settings.store
        try:
            self._store = open_store(store.get("url", "memory://"), store.get("needs", ()))
        except UsageError as error:
            self._place.problem(("store",), str(error))
            self.report.close()
            raise
        return self._store

    def _made_sinks(self) -> list[Any]:
        settings = self.settings
        for name, options in settings.sinks.items():
            self._make(name, options, ("sinks", name))
        if settings.alerts:
            self._alerts()
        if settings.inbox.get("notify"):
            self._make("notify", settings.inbox["notify"], ("inbox", "notify"))
        return self._sinks

    def _alerts(self) -> None:
        from mainstay.drivers.inbox.inbox import Inbox

        options = dict(self.settings.alerts)
        made = [self._one("rule", r, ("alerts", "rules")) for r in options.pop("rules", ())]
        assert self._store is not None
        inbox = self._alert_inbox = Inbox(self._store) if options.pop("inbox", True) else None
        self._alarm = self._one("alerts", {**options, "rules": made, "inbox": inbox}, ("alerts",))
        if self._alarm is not None:
            self._sinks.append(self._alarm)

    def _make(self, name: str, options: Mapping[str, Any], where: tuple[str, ...]) -> None:
        made = self._one(name, options, where)
        if made is not None:
            self._sinks.append(made)

    def _one(self, name: str, options: Mapping[str, Any], where: tuple[str, ...]) -> Any:
        """A part; what it refuses is a problem at its own place."""
        try:
            return _part(name)(**{key: _thawed(value) for key, value in options.items()})
        except PolicyError as error:
            for problem in error.problems:
                self._place.wrong((*where, problem.field), problem.value, problem.allowed)
        except (UsageError, TypeError, ValueError) as error:
            self._place.problem(where, str(error))
        return None

    def _audit(self) -> Any:
        options = self.settings.audit
        if options is False or not options:
            return options is not False
        return self._one("audit", {"where": self._store, **options}, ("audit",))

    def introduce(self, engine: Configured) -> None:
        """Gives the engine to sinks that read it, and to alerts the sinks that may lose events."""
        if self._alert_inbox is not None:
            self._alert_inbox.listeners = engine.sinks
        for sink in self._sinks:
            watch = methods_of(sink).watch
            if sink is not self._alarm and watch is not None:
                watch(engine)
        if self._alarm is not None:
            able = [sink for sink in self._sinks if methods_of(sink).stats is not None]
            self._alarm.watch(*(sink for sink in able if sink is not self._alarm))

    def close(self) -> None:
        """Closes what was opened for an engine that was never made."""
        for sink in self._sinks:
            close = methods_of(sink).close
            if close is not None:
                close()
        if self._store is not None:
            self._store.close()


_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _part(name: str) -> Callable[..., Any]:
    """The class of a part; raises MainstayError if there is none."""
    home, attribute = HOMES[name]
    try:
        found: Callable[..., Any] = getattr(import_module(home), attribute)
    except MissingExtraError:
        raise
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("mainstay"):
            raise UsageError("is not part of this version of mainstay") from None
        raise UsageError(f"{name} needs {missing.name}, which is not installed") from None
    return found


def _circuit(name: str, settings: BreakerSettings) -> CircuitBreaker:
    from mainstay.drivers.guards.breaker import CircuitBreaker

    return CircuitBreaker(name, settings)


def _tokens(preset: str = "", **options: Any) -> TokenBudget:
    from mainstay.drivers.guards.budget import TokenBudget

    if preset == "grpc":
        return TokenBudget.grpc()
    return TokenBudget.aws() if preset else TokenBudget(**options)


def _thawed(value: Any) -> Any:
    """Plain lists and dicts again, of what Settings keep frozen."""
    if hasattr(value, "items") and not isinstance(value, dict):
        return {key: _thawed(each) for key, each in value.items()}
    return [_thawed(each) for each in value] if type(value) is tuple else value


def _camels(names: Iterable[str]) -> str:
    return ", ".join(camel(name) for name in names) or "none"
