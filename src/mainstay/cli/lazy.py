"""A group whose commands are each loaded from a file of their own, when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping


class LazyGroup(click.Group):
    """A group that imports a command when it is asked for.

    Args:
        homes: the commands by name, and the module in which each is called `command`.
    """

    def __init__(self, *args: Any, homes: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._homes = dict(homes)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(self._homes)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._homes:
            return None
        found = import_module(self._homes[cmd_name]).command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._homes and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"there is no command {name!r}{self._nearest(name)}", ctx)
        return super().resolve_command(ctx, args)

    def _nearest(self, name: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(name, self._homes, n=1)
        return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(self._homes)}"
