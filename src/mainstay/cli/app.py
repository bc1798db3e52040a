"""The group `mainstay`: which commands there are, each loaded from its own file when it is used.

To add a command: write `cli/<feature>/command.py` with a click command called `command`, and add
its name here. The file imports click and the light modules of cli/ at its top; the library and
rich inside its functions, so that `mainstay --version` and `--help` stay quick.
"""

from __future__ import annotations

import click

from mainstay import __version__
from mainstay.cli.exits import Exit
from mainstay.cli.lazy import LazyGroup
from mainstay.cli.options import example

HOMES = {
    "audit": "mainstay.cli.audit.command",
    "circuits": "mainstay.cli.circuits.command",
    "comply": "mainstay.cli.comply.command",
    "config": "mainstay.cli.config.command",
    "demo": "mainstay.cli.demo.command",
    "doctor": "mainstay.cli.doctor",
    "exec": "mainstay.cli.exec.command",
    "explain-error": "mainstay.cli.explain_error",
    "inbox": "mainstay.cli.inbox.command",
    "operators": "mainstay.cli.inbox.operators",
    "outbox": "mainstay.cli.outbox.command",
    "pipelines": "mainstay.cli.pipelines.command",
    "policies": "mainstay.cli.config.policies",
    "sagas": "mainstay.cli.sagas.command",
    "spill": "mainstay.cli.spill.command",
    "status": "mainstay.cli.status.command",
    "store": "mainstay.cli.store.command",
}


@click.command(
    "mainstay",
    cls=LazyGroup,
    homes=HOMES,
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
