"""`mainstay outbox dead`: dead letters, shown, replayed and discarded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from mainstay.cli.errors import CommandError
from mainstay.cli.exits import Exit
from mainstay.cli.inbox.identity import opened, proof_of, store_option, who_options
from mainstay.cli.options import example, json_option
from mainstay.cli.outbox.show import outbox_option, outbox_url, plain, row, when
from mainstay.cli.screen.output import shielded, write, write_json
from mainstay.cli.screen.progress import Watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from mainstay import Engine
    from mainstay.core.outbox.entry import Entry

    F = TypeVar("F", bound=Callable[..., Any])

_FILTERS = (
    click.option("--topic", metavar="TEXT", help="Only those of a topic."),
    click.option("--aggregate", metavar="ID", help="Only those of an aggregate."),
    click.option("--error", metavar="TEXT", help="Only those whose last error has this text."),
)

_SLOWEST, _FASTEST = 0.001, 1e6
"""Messages in a second."""


def _filtered(function: F) -> F:
    for add in reversed(_FILTERS):
        function = add(function)
    return function


@click.group("dead", epilog=example("mainstay outbox dead list --store sqlite:///app.db"))
@store_option
@outbox_option
@json_option
def dead(as_json: bool) -> None:
    """Messages that were given up."""


@dead.command("list", epilog=example("mainstay outbox dead list --topic user.created.v1"))
@_filtered
@store_option
@outbox_option
@json_option
def list_dead(as_json: bool, topic: str | None, aggregate: str | None, error: str | None) -> None:
    """List the dead letters, with the error of the last attempt."""
    with opened(looks=True, outbox=outbox_url()) as engine:
        found = _find(engine, (), topic, aggregate, error)
    if as_json:
        write_json([plain(entry) for entry in found])
        return
    if not found:
        write("no message is dead")
        return
    from mainstay.cli.screen.console import Screen, table

    columns = ("id", "state", "topic", "aggregate", "added", "attempts", "error")
    rows = [(*row(entry), shielded(_error(entry))) for entry in found]
    Screen().show(table(columns, rows, left=7))


@dead.command(epilog=example("mainstay outbox dead show 01a1e75c-55de-7465-a3d1-e599d2006fc1"))
@click.argument("entry_id", metavar="ID")
@store_option
@outbox_option
@json_option
def show(entry_id: str, as_json: bool) -> None:
    """Show one message and its history; of its payload only the size."""
    with opened(looks=True, outbox=outbox_url()) as engine:
        entry = engine.outbox.get(entry_id)
    if entry is None:
        raise _no_such(entry_id)
    if as_json:
        write_json(plain(entry))
        return
    from mainstay.cli.screen.console import Screen, fields, table

    known = plain(entry)
    known.pop("history")
    screen = Screen()
    screen.show(fields([(name, shielded(str(value))) for name, value in known.items()]), "")
    happened = [
        (when(each.at), str(each.attempt), each.kind, shielded(each.text)) for each in entry.history
    ]
    screen.show(table(("when", "attempt", "kind", "what happened"), happened, left=4))


def _checked_rate(
    _ctx: click.Context, _parameter: click.Parameter, value: float | None
) -> float | None:
    if value is not None and not _SLOWEST <= value <= _FASTEST:  # nan is refused, too
        raise click.BadParameter(f"{value} must be a number from {_SLOWEST} to {_FASTEST:,.0f}")
    return value


def _acting(function: F) -> F:
    """The arguments of what changes dead letters."""
    for add in (
        click.argument("ids", nargs=-1, metavar="[ID]..."),
        click.option("--all", "every", is_flag=True, help="All that the filters leave."),
        *_FILTERS,
        click.option("--dry-run", is_flag=True, help="Only list them."),
        click.option("--rate", type=float, callback=_checked_rate, metavar="N",
                     help="At most N in a second."),
        who_options, store_option, outbox_option, json_option,
    ):  # fmt: skip
        function = add(function)
    return function


@dead.command(epilog=example("mainstay outbox dead replay --all --topic user.created.v1 --rate 10"))
@_acting
def replay(**given: Any) -> None:
    """Publish dead letters again, with the same ids.

    They come after what is in the outbox by now: out of order.
    """
    _act("retry", "replayed", why="", **given)


@dead.command(epilog=example("mainstay outbox dead discard 01a1e75c-… --why 'a test' --as ann"))
@click.option("--why", required=True, metavar="TEXT", help="The reason; it enters the audit.")
@_acting
def discard(why: str, **given: Any) -> None:
    """Give dead letters up for ever.

    The rows stay until they are purged.
    """
    _act("abandon", "discarded", why=why, **given)


def _act(  # noqa: PLR0913 -- the options of a command
    action: str,
    word: str,
    *,
    why: str,
    ids: tuple[str, ...],
    every: bool,
    topic: str | None,
    aggregate: str | None,
    error: str | None,
    dry_run: bool,
    rate: float | None,
    who: str | None,
    key_file: str | None,
    secret_file: str | None,
    as_json: bool,
) -> None:
    if bool(ids) == every:
        raise CommandError("name messages by their ids, or all of them", hint="--all, or ID…")
    with opened(looks=dry_run, outbox=outbox_url()) as engine:
        found = _find(engine, ids, topic, aggregate, error)
        if not dry_run:
            from mainstay.drivers.inbox.private_store import private_owner  # not for --help

            is_open = engine.operators.is_empty and not who
            by = private_owner(engine.store) if is_open else who or ""
            proof = None if is_open else proof_of(who, key_file, secret_file)
            watch = Watch("messages", len(found))
            try:
                for number, entry in enumerate(found):
                    if rate is not None and number:
                        time.sleep(1.0 / rate)
                    _act_on(engine, entry, action, by, proof, why)
                    watch(number + 1)
            finally:
                watch.close()
    if as_json:
        write_json({word: [entry.id for entry in found], "dry_run": dry_run})
        return
    for entry in found:
        write(f"{entry.id} ({shielded(entry.message.topic)}): " + ("would be " * dry_run) + word)
    if not found:
        write("no message is dead")


def _act_on(engine: Engine, entry: Entry, action: str, who: str, proof: Any, why: str) -> None:
    """Decides about the item of the inbox, if it is open; without an account it is just closed."""
    from mainstay import Item

    item = engine.inbox.get(Item(kind="dead_letter", subject=entry.id, operation="", text="").id)
    if proof is not None and item is not None and item.status == "open":
        engine.inbox.act(item.id, action, by=who, proof=proof, why=why)
        return
    if proof is not None:
        engine.operators.verify(who, proof, "act", (entry.id, action), f"{action} {entry.id}")
    if action == "retry":
        engine.outbox.replay(entry.id, by=who)
    else:
        engine.outbox.discard(entry.id, by=who, why=why)


def _find(
    engine: Engine,
    ids: tuple[str, ...],
    topic: str | None,
    aggregate: str | None,
    error: str | None,
) -> list[Entry]:
    if ids:
        found = []
        for entry_id in dict.fromkeys(ids):
            entry = engine.outbox.get(entry_id)
            if entry is None or entry.state != "DEAD":
                raise _no_such(entry_id)
            found.append(entry)
        return found
    every = engine.outbox.entries("DEAD", topic=topic, aggregate_id=aggregate)
    return [entry for entry in every if error is None or error in _error(entry)]


def _error(entry: Entry) -> str:
    return entry.history[-1].text if entry.history else ""


def _no_such(entry_id: str) -> CommandError:
    return CommandError(
        f"there is no dead message {entry_id!r}",
        hint="mainstay outbox dead list",
        exit_code=Exit.NEGATIVE,
    )
