"""`mainstay spill`: lists events that wait on disk, and adopts those that have no seal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from mainstay.cli.exits import Exit
from mainstay.cli.options import config_options, configured, example, json_option
from mainstay.cli.screen.output import shielded, write, write_json

if TYPE_CHECKING:
    from mainstay.sinks.delivery.adopt import SpillFile

_FOLDER = click.option(
    "--folder",
    "folders",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    help="A spill folder; by default the user's own and those that the configuration names.",
)


def spill_places() -> list[str]:
    """Folders that the configuration names, beside the user's, for what cannot be delivered."""
    settings = configured()
    options = [settings.audit, *settings.sinks.values()]
    found = [each.get("spill") for each in options if isinstance(each, Mapping)]
    return sorted({each for each in found if isinstance(each, str)})


@click.group("spill", invoke_without_command=True, epilog=example("mainstay spill list"))
@config_options
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:  # noqa: ARG001  for what is inside
    """List events that wait on disk, or adopt those without a seal."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(Exit.USAGE)


@command.command("list", epilog=example("mainstay spill list", "mainstay spill list --json"))
@_FOLDER
@config_options
@json_option
def list_(folders: tuple[str, ...], as_json: bool) -> None:
    """Show the files of events that could not be delivered.

    A sealed file is delivered by the next process with the same destination. One that is not sealed
    was written by an earlier version, or by another user: it waits for `mainstay spill adopt`.
    """
    found = _found(folders)
    if as_json:
        write_json({"files": [_plain(each) for each in found]})
    elif found:
        _show(found)
    else:
        write("nothing waits on disk")


@command.command(epilog=example("mainstay spill adopt", "mainstay spill adopt --yes"))
@_FOLDER
@click.option("--yes", is_flag=True, help="Adopt them; without it they are only shown.")
@config_options
@json_option
@click.pass_context
def adopt(ctx: click.Context, folders: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Seal files of an earlier version, so that they are delivered.

    Look at them first: a user who could write to the folder can have put them there. Exits with 1
    if something still waits for a person.
    """
    found = _found(folders)
    ours = [each for each in found if each.can_be_adopted]
    adopted = [each for each in ours if _adopted(each)] if yes else []
    left = [each for each in found if each not in adopted and not each.is_ready]
    if as_json:
        write_json({"adopted": [*map(_plain, adopted)], "left": [*map(_plain, left)]})
    else:
        _report(adopted, left, is_asked=bool(ours) and not yes)
    ctx.exit(Exit.NEGATIVE if left else Exit.OK)


def _found(folders: tuple[str, ...]) -> list[SpillFile]:
    from mainstay.sinks.delivery.adopt import spill_files_in

    places: tuple[str | None, ...] = folders or (None, *spill_places())
    return [found for place in places for found in spill_files_in(place)]


def _adopted(file: SpillFile) -> bool:
    from pathlib import Path

    from mainstay.cli.errors import CommandError
    from mainstay.sinks.delivery.adopt import adopt

    try:
        return adopt(Path(file.path))
    except OSError as error:
        raise CommandError(f"cannot be sealed: {error}", hint="check the folder") from error


def _report(adopted: list[SpillFile], left: list[SpillFile], *, is_asked: bool) -> None:
    if adopted:
        records = sum(each.records for each in adopted)
        files = "1 file" if len(adopted) == 1 else f"{len(adopted):,} files"
        write(f"{files} sealed ({records:,} events); the next process delivers them")
    if left:
        _show(left)
    if is_asked:
        write("nothing was changed; --yes adopts what can be adopted")
    elif left:
        write("what is left needs a person, or a process that runs has its folder")
    elif not adopted:
        write("nothing waits to be adopted")


def _show(found: list[SpillFile]) -> None:
    from mainstay.cli.screen.console import Screen, table

    rows = [
        (shielded(each.path), each.state, f"{each.records:,}", each.first[:19],
         shielded(", ".join(each.operations)), shielded(each.reason))
        for each in found
    ]  # fmt: skip
    columns = ("file", "state", "events", "first", "operations", "reason")
    Screen().show(table(columns, rows, left=len(columns)))


def _plain(file: SpillFile) -> dict[str, object]:
    import msgspec

    return {**msgspec.to_builtins(file), "can_be_adopted": file.can_be_adopted}
