"""The group `mainstay audit`: each of its commands is in `cli/audit/<name>.py`.

LOG is the place of an audit log: the path of a .jsonl or SQLite file, or a URL.
"""

from __future__ import annotations

import click

from mainstay.cli.exits import Exit
from mainstay.cli.lazy import LazyGroup
from mainstay.cli.options import example, json_option

COMMANDS = ("verify", "tail", "replay", "whatif", "stats", "keygen")


@click.command(
    "audit",
    cls=LazyGroup,
    homes={name: f"mainstay.cli.audit.{name}" for name in COMMANDS},
    invoke_without_command=True,
    epilog=example("mainstay audit verify audit.jsonl", "mainstay audit tail sqlite:///app.db"),
)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:  # noqa: ARG001 -- it holds for what is inside
    """Verify, follow, replay and analyse audit logs.

    A log is named by the path of its file, or by a URL: sqlite:///app.db, postgresql://…
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(Exit.USAGE)
