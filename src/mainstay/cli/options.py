"""What every command has: `--json`, and an example under its help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

F = TypeVar("F", bound="Callable[..., Any]")

_JSON = "mainstay.cli.json"


def json_option(function: F) -> F:
    """Adds `--json`; the command gets it as `as_json`. On a group it holds for what is inside."""
    add = click.option(
        "--json", "as_json", is_flag=True, callback=_remember, help="JSON, for programs."
    )
    return add(function)


def _remember(ctx: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    wanted = ctx.meta[_JSON] = value or ctx.meta.get(_JSON, False)
    return bool(wanted)


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether `--json` is among the arguments, also where they could not be parsed."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def example(*commands: str) -> str:
    r"""The lines under a command's help; \b keeps click from filling them."""
    title = "Example:" if len(commands) == 1 else "Examples:"
    return "\n".join(["\b", title, *(f"  $ {command}" for command in commands)])
