"""What every command has: `--json`, an example under its help; and `--config`, `--set`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstay.config.load import Loaded
    from mainstay.config.settings import Settings

F = TypeVar("F", bound="Callable[..., Any]")

_JSON = "mainstay.cli.json"
_FILE = "mainstay.cli.file"
_SETS = "mainstay.cli.set"
_LOADED = "mainstay.cli.loaded"


class Seconds(click.ParamType):  # type: ignore[type-arg]  # older ones have none
    """A number of seconds, or a duration such as 500ms, 30s or 1h30m."""

    name = "duration"

    def __init__(self, low: float, high: float, *, above: bool = False) -> None:
        self.low, self.high, self.above = low, high, above

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds."""
        from mainstay.config.durations import bounds, expected, seconds_in

        found = value if type(value) is float else seconds_in(str(value).strip())
        if found is None:
            try:
                found = float(value)
            except ValueError:
                found = float("nan")
        if (self.low < found if self.above else self.low <= found) and found <= self.high:
            return found
        limits = bounds(self.low, self.high, above=self.above)
        return self.fail(f"{value!r} must be {expected(' of seconds', limits)}", param, ctx)


def json_option(function: F) -> F:
    """Adds `--json`; the command gets it as `as_json`. On a group it holds for what is inside."""
    add = click.option(
        "--json", "as_json", is_flag=True, callback=_remember, help="JSON, for programs."
    )
    return add(function)


def _remember(ctx: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    wanted = ctx.meta[_JSON] = value or ctx.meta.get(_JSON, False)
    return bool(wanted)


def config_options(function: F) -> F:
    """Adds `--config` and `--set`, for configured(). On a group they hold for what is inside."""
    return _config_options(function, click.Path(exists=True, dir_okay=False))


def config_file_argument(function: F) -> F:
    """Adds `[FILE]`, which is the same as `--config FILE`."""
    add = click.argument(
        "file",
        required=False,
        type=click.Path(exists=True, dir_okay=False),
        callback=_remember_argument,
        expose_value=False,
    )
    return add(function)


def _remember_argument(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    option = ctx.meta.get(_FILE)
    if value and option and value != option:
        raise click.BadParameter(f"--config names another file: {option}", ctx, parameter)
    _remember_file(ctx, parameter, value)


def lenient_config_options(function: F) -> F:
    """The same; but a file that is not there is a problem of the configuration, as any other."""
    return _config_options(function, click.Path())


def _config_options(function: F, path: click.Path) -> F:
    file = click.option(
        "--config",
        "config_file",
        type=path,
        callback=_remember_file,
        expose_value=False,
        help="The configuration file; by default it is searched for.",
    )
    sets = click.option(
        "--set",
        "config_sets",
        multiple=True,
        metavar="PATH=VALUE",
        callback=_remember_sets,
        expose_value=False,
        help="A value that overrides the file's, such as retry.default=fast.",
    )
    return file(sets(function))


def _remember_file(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    ctx.meta[_FILE] = value or ctx.meta.get(_FILE)


def _remember_sets(ctx: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> None:
    ctx.meta[_SETS] = (*ctx.meta.get(_SETS, ()), *value)


def chosen_configuration(ctx: click.Context) -> tuple[str | None, tuple[str, ...]]:
    """The file that the command line names, and what it sets, as far as it was read."""
    return ctx.meta.get(_FILE), ctx.meta.get(_SETS, ())


def configuration() -> Loaded:
    """The configuration that the command line names or that is found; a command reads it once."""
    ctx = click.get_current_context()
    meta = ctx.meta
    if _LOADED not in meta:
        from mainstay.engine.from_config import read

        file, sets = chosen_configuration(ctx)
        meta[_LOADED] = read(file, overrides=sets)
    loaded: Loaded = meta[_LOADED]
    return loaded


def config_arguments() -> list[str]:
    """The `--config` of this command, for another command that is to read the same file."""
    file = click.get_current_context().meta.get(_FILE)
    return [] if file is None else ["--config", str(file)]


def configured() -> Settings:
    """The settings of that configuration; raises ConfigError with all problems."""
    from mainstay.engine.from_config import settings_in

    return settings_in(configuration())


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether `--json` is among the arguments, also if they cannot be parsed."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def example(*commands: str) -> str:
    r"""The lines under a command's help; \b keeps click from filling them."""
    title = "Example:" if len(commands) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  $ {command}" for command in commands)])
