"""The engine that `mainstay exec` runs a command on: its policy, its circuit, its store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.cli.errors import CommandError
from mainstay.cli.exec.exit_codes import rules_of
from mainstay.cli.exits import Exit
from mainstay.cli.state import default_store
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.engine.engine import Engine
from mainstay.engine.from_config import build_from, settings_in
from mainstay.engine.registry import PolicyRegistry
from mainstay.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from typing import Any

    from mainstay import RetryPolicy
    from mainstay.cli.exec.report import Reporter
    from mainstay.cli.exec.request import ExecRequest
    from mainstay.config.load import Loaded


def engine_of(request: ExecRequest, loaded: Loaded, reporter: Reporter) -> Engine:
    """The engine; if the configuration or the store has a problem, a warning, and one without it.

    A key needs the store: without it a command might run twice.
    """
    usable = _usable(loaded, reporter)
    url = _store_of(request, usable, reporter)
    try:
        return _under(_made(request, usable, url), request, reporter)
    except (StoreUnavailable, OSError) as error:
        if request.key is not None:
            raise CommandError(
                f"not run: the key cannot be looked up: {error}",
                hint="check the store, or name another with --store",
                exit_code=Exit.STORE_UNAVAILABLE,
            ) from error
        _warn_without_store(reporter, error)
    return _under(_made(request, usable, "memory://"), request, reporter)


def _usable(loaded: Loaded, reporter: Reporter) -> Loaded | None:
    """The configuration; None if it has problems."""
    try:
        settings_in(loaded)
    except ConfigError as error:
        reporter.warn(f"{error}\nmainstay: the built-in policy is used instead")
        return None
    return loaded


def _made(request: ExecRequest, loaded: Loaded | None, url: str | None) -> Engine:
    """The engine of the configuration; without a circuit there, each operation gets one.

    It counts every failure, as the agent's document does; but a command that could not be run and
    an exit that is final do not count against it.
    """
    ignored = ["CommandNotRun", *rules_of(request.never_on)]
    if loaded is None:
        return Engine(url or "memory://", breaker=BreakerSettings(count="all", ignore=ignored))
    overrides = [] if url is None else [f"store={url}"]
    if settings_in(loaded).breaker is None:
        overrides.append("circuitBreaker.failureThreshold=5")
        overrides.append("circuitBreaker.count=all")
        overrides.append(f"circuitBreaker.ignore=[{', '.join(ignored)}]")
    loaded.override(overrides)
    return build_from(Engine, loaded)


def _store_of(request: ExecRequest, loaded: Loaded | None, reporter: Reporter) -> str | None:
    """The URL of the store, if it is not the configuration's."""
    if request.store is not None or (loaded is not None and settings_in(loaded).store):
        return request.store
    try:
        return default_store()
    except (OSError, RuntimeError) as error:
        if request.key is not None:
            raise CommandError(
                f"there is no store for the key: {error}",
                hint="--store sqlite:////a/folder/of/yours/mainstay.db",
                exit_code=Exit.STORE_UNAVAILABLE,
            ) from error
        _warn_without_store(reporter, error)
        return "memory://"


def _warn_without_store(reporter: Reporter, error: BaseException) -> None:
    reporter.warn(
        f"the store is unavailable, so circuits are not shared and nothing is recorded: {error}",
        event="store_away",
    )


def _under(engine: Engine, request: ExecRequest, reporter: Reporter) -> Engine:
    """The engine with the operation's policy as the command line changes it."""
    try:
        chosen = _policy(engine, request)
        changes: dict[str, Any] = {"before_retry": reporter.retry}
        if chosen.nested == "collapse":
            changes["nested"] = "allow"  # a command is patient: what it calls may retry for itself
        if request.timeout is not None:
            changes["attempt_timeout"] = request.timeout
        if request.deadline is not None:
            changes["deadline"] = request.deadline
        if request.retry_on:
            changes["retry_on"] = rules_of(request.retry_on)
        if request.never_on:
            changes["never_retry_on"] = (*chosen.never_retry_on, *rules_of(request.never_on))
        changed = chosen.replace(**changes)
        engine.policies = PolicyRegistry([changed], {request.operation: changed.name}, changed.name)
    except BaseException:
        engine.close()
        raise
    return engine


def _policy(engine: Engine, request: ExecRequest) -> RetryPolicy:
    if request.policy is None:
        return engine.policies.of(request.operation)
    if request.policy in engine.policies:
        return engine.policies[request.policy]
    known = ", ".join(engine.policies.names)
    raise CommandError(f"there is no policy {request.policy!r}", hint=f"there are {known}")
