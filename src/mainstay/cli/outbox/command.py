"""`mainstay outbox`: what is in the outbox, its schema, and purging it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.errors import CommandError
from mainstay.cli.exits import Exit
from mainstay.cli.inbox.identity import opened, store_option
from mainstay.cli.options import Seconds, example, json_option
from mainstay.cli.outbox.dead import dead
from mainstay.cli.outbox.relay import relay
from mainstay.cli.outbox.show import outbox_option, outbox_url, plain, row
from mainstay.cli.screen.output import write, write_json, write_ours
from mainstay.cli.screen.progress import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.outbox.entry import Entry

_STATES = ("pending", "claimed", "sent", "dead", "discarded")
_DECADE = 10 * 366 * 86_400.0


@click.group(
    "outbox",
    invoke_without_command=True,
    epilog=example(
        "mainstay outbox status --store postgresql://app@db/shop",
        "mainstay outbox relay --publish nats://localhost:4222 --store …",
    ),
)
@store_option
@outbox_option
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:  # noqa: ARG001  for what is inside
    """Show, publish, replay and purge the messages of the outbox."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(Exit.USAGE)


command.add_command(dead)
command.add_command(relay)


@command.command(epilog=example("mainstay outbox status --store sqlite:///app.db"))
@store_option
@outbox_option
@json_option
def status(as_json: bool) -> None:
    """Count the messages by state.

    Also the age of the oldest that waits.
    """
    with opened(looks=True, outbox=outbox_url()) as engine:
        counts, age = engine.outbox.counts(), engine.outbox.age()
    if as_json:
        write_json({"counts": counts, "oldest_age_seconds": age})
        return
    from mainstay.cli.screen.console import Screen, table

    rows = [(state, f"{counts[state]:,}") for state in counts] or [("no message", "0")]
    Screen().show(table(("state", "messages"), rows))
    write("nothing waits" if age is None else f"the oldest that waits was added {age:.1f} s ago")


@command.command("list", epilog=example("mainstay outbox list --state pending --store …"))
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Of a state.")
@click.option("--topic", metavar="TEXT", help="Of a topic.")
@click.option("--aggregate", metavar="ID", help="Of an aggregate.")
@click.option("--limit", type=click.IntRange(1), default=100, help="At most that many.")
@store_option
@outbox_option
@json_option
def list_entries(
    as_json: bool, states: tuple[str, ...], topic: str | None, aggregate: str | None, limit: int
) -> None:
    """List messages in the order they are published."""
    with opened(looks=True, outbox=outbox_url()) as engine:
        every = engine.outbox.entries(*states, topic=topic, aggregate_id=aggregate)
        found = list(_first(every, limit))
    if as_json:
        write_json([plain(entry) for entry in found])
        return
    if not found:
        write("no message")
        return
    from mainstay.cli.screen.console import Screen, table

    columns = ("id", "state", "topic", "aggregate", "added", "attempts")
    Screen().show(table(columns, [row(entry) for entry in found], left=5))


def _first(entries: Iterator[Entry], limit: int) -> Iterator[Entry]:
    for _, entry in zip(range(limit), entries, strict=False):
        yield entry


@command.command(epilog=example("mainstay outbox purge --older-than 7d --store sqlite:///app.db"))
@click.option(
    "--older-than", "age", required=True, type=Seconds(0.0, _DECADE), metavar="DURATION",
    help="How long ago they ended, such as 7d.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only count them.")
@store_option
@outbox_option
@json_option
def purge(as_json: bool, age: float, dry_run: bool) -> None:
    """Delete messages that were published or discarded some time ago.

    Nothing else is ever deleted, and nothing by itself.
    """
    watch, total = Watch("messages", 0), 0
    with opened(looks=dry_run, outbox=outbox_url()) as engine:
        if dry_run:
            import time

            ended = engine.outbox.entries("SENT", "DISCARDED")
            total = sum(1 for each in ended if (each.ended_at or 0.0) <= time.time() - age)
        else:
            try:
                while count := engine.outbox.purge(age, limit=10_000):
                    total += count
                    watch(total)
            finally:
                watch.close()
    if as_json:
        write_json({"purged": 0 if dry_run else total, "found": total, "dry_run": dry_run})
    else:
        write(f"{total:,} messages " + ("would be deleted" if dry_run else "were deleted"))


@command.command(epilog=example("mainstay outbox schema --dialect postgresql > outbox.sql"))
@click.option(
    "--dialect", required=True, type=click.Choice(["postgresql", "sqlite"]), help="The database."
)
@click.option("--after", type=click.IntRange(0), default=0, help="Only what is newer.")
@click.option(
    "--for", "tool", type=click.Choice(["alembic", "django"]), help="As the code of a migration."
)
@json_option
def schema(as_json: bool, dialect: str, after: int, tool: str | None) -> None:
    """Print the tables as SQL.

    For a migration of your own, or a role that may create tables.
    """
    from mainstay.cli.outbox.migration import migration
    from mainstay.stores.outbox.schema import exported, newest, statements

    if after > newest(dialect):
        raise CommandError(f"there is no version {after}", hint=f"the newest is {newest(dialect)}")
    script = exported(dialect, after)
    if as_json:
        write_json({
            "dialect": dialect, "version": newest(dialect), "sql": script,
            "statements": statements(dialect, script),
        })  # fmt: skip
    elif tool is not None:
        write_ours(migration(tool, dialect, after).rstrip("\n"))
    else:
        write_ours(script.rstrip("\n"))
