"""An engine of a configuration: what Settings name is found, made, and handed to the engine."""

from __future__ import annotations

import logging
import os
import warnings
from typing import TYPE_CHECKING

from mainstay.config.fields import CONFIG
from mainstay.config.load import load
from mainstay.config.settings import Settings
from mainstay.core.base.printable import printable_lines
from mainstay.core.events.describe import describe
from mainstay.drivers.policy import RetryPolicy
from mainstay.engine.known_secrets import know_configured
from mainstay.engine.parts import Parts
from mainstay.errors import ConfigError, ConfigWarning, UsageError
from mainstay.runtime.reports.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeVar

    from mainstay.config.load import Loaded
    from mainstay.engine.parts import Configured

    E = TypeVar("E", bound=Configured)

_log = logger("mainstay.config")
_DEFAULT = (
    "The built-in default policy is used, and nothing else of it; but an operation that it maps has"
    " its own policy if that is valid, and one attempt if it is not."
)


def engine_of(
    build: Callable[..., E],
    path: str | os.PathLike[str] | None,
    *,
    on_error: str,
    overrides: Iterable[str],
    env: Mapping[str, str] | None,
) -> E:
    """What `Engine.from_config` does; `build` is the class of the engine."""
    if on_error not in ("raise", "default"):
        raise UsageError(f'on_error = {on_error!r}: must be "raise" or "default"')
    loaded = read(path, overrides=overrides, env=env)
    try:
        return build_from(build, loaded)
    except ConfigError as error:
        if on_error == "raise":
            raise
        problems = printable_lines(describe(error)[1])  # a wrong value may be a secret one
        _log.error("%s", "; ".join(line.strip() for line in problems.split("\n")))
        warnings.warn(f"{problems}\n{_DEFAULT}", ConfigWarning, stacklevel=3)
    from mainstay.engine.mapped import careful_policies  # for a mistake

    engine = build(**careful_policies(loaded))
    engine.settings = Settings()
    return engine


def read(
    path: str | os.PathLike[str] | None = None,
    *,
    overrides: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
) -> Loaded:
    """A configuration as far as it can be judged without starting anything.

    Besides the values, whatever it names is looked for: sinks and the libraries they need. The
    problems are in its report.
    """
    loaded = load(path, overrides=overrides, env=env, make=RetryPolicy)
    if loaded.settings is not None:
        Parts(loaded).find()
    loaded.report.sort(loaded.file)
    know_configured(loaded)
    _log_values(loaded)
    return loaded


def settings_from(
    path: str | os.PathLike[str] | None = None,
    *,
    overrides: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a configuration; raises ConfigError with all problems."""
    return settings_in(read(path, overrides=overrides, env=env))


def settings_in(loaded: Loaded) -> Settings:
    """The settings of a configuration that was read; raises ConfigError with all problems."""
    loaded.report.close()
    assert loaded.settings is not None
    return loaded.settings


def _log_values(loaded: Loaded) -> None:
    """The configuration goes to the log, without its secrets."""
    if _log.isEnabledFor(logging.DEBUG) and isinstance(loaded.tree.value, dict):
        import json

        from mainstay.config.show import visible  # loads what removes secrets

        shown = json.dumps(visible(CONFIG, loaded.tree), ensure_ascii=False, default=str)
        _log.debug("configuration from %s: %s", loaded.file or "no file", shown)


def build_from(build: Callable[..., E], loaded: Loaded) -> E:
    """The engine of a configuration that was read; raises ConfigError with all problems."""
    settings = settings_in(loaded)
    know_configured(loaded)  # again: options may have come since
    parts = Parts(loaded)
    try:
        engine = build(**parts.made())
    except BaseException:
        parts.close()
        raise
    engine.settings = settings
    parts.introduce(engine)
    return engine
