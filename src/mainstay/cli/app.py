"""The group `mainstay`: which commands there are, each loaded from its own file when it is used.

To add a command: write `cli/<name>.py` with a click command called `command`, and add its name
here. The file imports click and the light rooms of cli/ at its top; the library and rich inside
its functions, so that `mainstay --version` and `--help` stay quick.
"""

from __future__ import annotations

from importlib import import_module

import click

from mainstay import __version__
from mainstay.cli.exits import Exit
from mainstay.cli.options import example

COMMANDS = ("demo", "doctor", "policies")


class Commands(click.Group):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        found = import_module(f"mainstay.cli.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"there is no command {args[0]!r}{_nearest(args[0])}", ctx)
        return super().resolve_command(ctx, args)


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(COMMANDS)}"


@click.command(
    "mainstay",
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=example("mainstay demo", "mainstay policies show standard --seed 7"),
)
@click.version_option(__version__, prog_name="mainstay", message="%(prog)s %(version)s")
@click.pass_context
def app(ctx: click.Context) -> None:
    """What happens when a call fails: retries, backoff, deadlines.

    Tables are for people, --json is for programs. NO_COLOR is honoured, and MAINSTAY_DEBUG=1
    shows the traceback of an error.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(Exit.USAGE)
