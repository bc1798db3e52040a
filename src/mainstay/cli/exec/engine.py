"""The engine that `mainstay exec` runs a command on: its policy, its circuit, its store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainstay.cli.errors import CommandError
from mainstay.cli.exec.circuit import circuit_of
from mainstay.cli.exec.exit_codes import rules_of
from mainstay.cli.exec.problems import problems_in, store_for_one_run
from mainstay.cli.exits import Exit
from mainstay.drivers.policy import RetryPolicy, states_nested
from mainstay.engine.engine import Engine
from mainstay.engine.from_config import build_from, settings_in
from mainstay.engine.registry import PolicyRegistry
from mainstay.engine.user_store import default_store
from mainstay.errors import StoreUnavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.cli.exec.report import Reporter
    from mainstay.cli.exec.request import ExecRequest
    from mainstay.config.load import Loaded


def engine_of(request: ExecRequest, loaded: Loaded, reporter: Reporter) -> Engine:
    """The engine; if the store is unavailable, a warning, and one without it.

    A key needs the store: without it a command might run twice. A mistake in the configuration or
    an option is an error: under another policy a command might run more often than was meant.
    """
    try:
        problems_in(request, loaded).close()
        url = _store_of(request, loaded, reporter)
        return _opened(request, loaded, url, reporter)
    except UsageError as error:
        if request.on_config_error != "once":
            raise
        reporter.warn(" ".join(line.strip() for line in str(error).splitlines()))
    return _for_one_run(request, reporter)


def _opened(request: ExecRequest, loaded: Loaded, url: str | None, reporter: Reporter) -> Engine:
    """The engine; on the memory store if its own is unavailable and no key needs it."""
    return _with_store(request, reporter, lambda other: _made(request, loaded, other or url))


def _for_one_run(request: ExecRequest, reporter: Reporter) -> Engine:
    """An engine that runs the command exactly once, whatever the configuration has meant."""
    url, once = store_for_one_run(request), RetryPolicy(name="once", max_attempts=1)
    reporter.warn("the command is run once, without retries")
    return _with_store(
        replace(request, policy=None),
        reporter,
        lambda other: Engine(other or url, policies=[once], default=once.name),
    )


def _with_store(
    request: ExecRequest, reporter: Reporter, make: Callable[[str | None], Engine]
) -> Engine:
    """What `make` makes with its own store, or else with the memory store."""
    try:
        return _under(make(None), request, reporter)
    except (StoreUnavailable, OSError) as error:
        if request.key is not None:
            raise CommandError(
                f"not run: the key cannot be looked up: {error}",
                hint="check the store, or name another with --store",
                exit_code=Exit.STORE_UNAVAILABLE,
            ) from error
        _warn_without_store(reporter, error)
    return _under(make("memory://"), request, reporter)


def _made(request: ExecRequest, loaded: Loaded, url: str | None) -> Engine:
    """The engine of the configuration, with the circuit of the command if it has one."""
    breaker, circuit = circuit_of(request, loaded)
    loaded.override([] if url is None else [f"store={url}"])
    engine = build_from(lambda **parts: Engine(**{**parts, "breaker": breaker}), loaded)
    if breaker is not None:
        engine.circuits.own_names[request.operation] = circuit
    return engine


def _store_of(request: ExecRequest, loaded: Loaded, reporter: Reporter) -> str | None:
    """The URL of the store, if it is not the configuration's."""
    if request.store is not None or settings_in(loaded).store:
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
        if not states_nested(chosen):
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
    return engine.policies[request.policy]
