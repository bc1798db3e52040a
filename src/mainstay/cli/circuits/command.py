"""`mainstay circuits`: the circuits that processes share through a store, and orders for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.errors import CommandError
from mainstay.cli.exits import Exit
from mainstay.cli.inbox.identity import (
    opened,
    proof_of,
    store_option,
    warn_if_short,
    who_options,
    write_default_place,
)
from mainstay.cli.options import Seconds, example, json_option
from mainstay.cli.screen.output import shielded, write, write_json

if TYPE_CHECKING:
    from typing import Any

    from mainstay import Engine
    from mainstay.core.circuit.breaker import Signal
    from mainstay.core.circuit.cluster_status import Standing

_ORDERS = {
    "reset": ("RESET", "Close a circuit and forget its failures."),
    "open": ("FORCE_OPEN", "Refuse every call, until another order."),
    "close": ("FORCE_CLOSE", "Let every call through, until another order."),
}
_FOLLOWS = "Every process that shares it follows at its next step, within a second by default."
_ALONE = """

While there is no operator, the owner of a private SQLite file (mode 0600) needs no --as."""


@click.group(
    "circuits",
    invoke_without_command=True,
    epilog=example(
        "mainstay circuits --store sqlite:///app.db",
        "mainstay circuits watch --store sqlite:///app.db",
        "mainstay circuits open payments --as ann --why 'the bank is down' --store …",
    ),
)
@store_option
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show the circuits of every process, the open ones first.

    The state is that of the worst process; if no process has the circuit now, that of the last one.
    """
    if ctx.invoked_subcommand is None:
        _list(as_json)


@command.command("list", epilog=example("mainstay circuits list --store sqlite:///app.db"))
@store_option
@json_option
def list_(as_json: bool) -> None:
    """Show the circuits of every process."""
    _list(as_json)


def _list(as_json: bool) -> None:
    from mainstay.cli.circuits.tables import listed, ranked
    from mainstay.drivers.inbox.circuit_admin import shared_circuits

    with opened(looks=True) as engine:
        found = ranked(shared_circuits(engine.store))
    if as_json:
        write_json([each.to_dict() for each in found])
        return
    write_default_place()
    if not found:
        write("no process has shared a circuit through this store")
        return
    from mainstay.cli.screen.console import Screen

    Screen().show(listed(found))


@command.command(epilog=example("mainstay circuits show payments --store sqlite:///app.db"))
@click.argument("name")
@store_option
@json_option
def show(name: str, as_json: bool) -> None:
    """Show one circuit, process by process."""
    from mainstay.cli.circuits.tables import facts, places
    from mainstay.drivers.inbox.circuit_admin import shared_circuit

    with opened(looks=True) as engine:
        found = shared_circuit(engine.store, name)
        if found is None:
            raise _no_such(engine, name)
    if as_json:
        import msgspec

        write_json({**found.to_dict(), "places": msgspec.to_builtins(found.places)})
        return
    write_default_place()
    from mainstay.cli.screen.console import Screen, fields

    screen = Screen()
    screen.show(fields(facts(found)), "")
    screen.show(places(found))


@command.command(epilog=example("mainstay circuits watch --store sqlite:///app.db"))
@click.option(
    "--every", type=Seconds(0.1, 3600.0), default="1s", show_default=True,
    metavar="TIME", help="The time between two readings, such as 500ms.",
)  # fmt: skip
@store_option
@json_option
def watch(every: float, as_json: bool) -> None:
    """Show the circuits as they change, until Ctrl+C.

    In a terminal the table is redrawn in place; in a pipe each change is a line, or an object with
    --json.
    """
    from mainstay.cli.circuits.watch import watch_lines, watch_screen
    from mainstay.cli.screen.console import Screen

    with opened(looks=True) as engine:
        screen = None if as_json else Screen()
        if screen is not None and screen.is_live:
            watch_screen(engine.store, screen, every)
        else:
            watch_lines(engine.store, every, as_json)


def _ordering(word: str, signal: str, text: str) -> None:
    """Makes the command of one order."""

    @click.argument("name")
    @click.option("--why", required=True, metavar="TEXT", help="The reason; it enters the audit.")
    @who_options
    @store_option
    @json_option
    def give(as_json: bool, **given: Any) -> None:
        _order(signal, as_json, **given)

    give.__doc__ = f"{text}\n\n{_FOLLOWS}{_ALONE if signal == 'RESET' else ''}"
    line = f"mainstay circuits {word} payments --as ann --why 'the bank is down' --store …"
    command.command(word, epilog=example(line))(give)


def _order(
    signal: str,
    as_json: bool,
    *,
    name: str,
    why: str,
    who: str | None,
    key_file: str | None,
    secret_file: str | None,
) -> None:
    from mainstay.core.circuit.breaker import Signal
    from mainstay.drivers.inbox.circuit_admin import order_circuit, shared_circuit

    with opened() as engine:
        if shared_circuit(engine.store, name) is None:
            raise _no_such(engine, name)
        order = Signal[signal]
        proof = proof_of(who, key_file, secret_file) if who else None
        if proof is None:
            _check_owner(engine, order)
        found = order_circuit(
            engine.store, engine.operators, name, order, by=who or "", proof=proof, why=why
        )
        if found is None:
            raise _no_such(engine, name)
    warn_if_short(proof)
    _write_state(found, as_json)


def _check_owner(engine: Engine, order: Signal) -> None:
    """Who names no operator must be the owner of a private store, and may give this order."""
    from mainstay.drivers.inbox.circuit_admin import owner_without_account

    owner, reason = owner_without_account(engine.store, engine.operators, order)
    if not owner:
        raise CommandError(f"no operator is named: {reason}", hint="--as NAME, of an operator")


def _write_state(found: Standing, as_json: bool) -> None:
    if as_json:
        write_json(found.to_dict())
        return
    assert found.order is not None
    name = shielded(found.name)
    there = len(found.live)
    processes = f"{there} processes are" if there > 1 else f"{there or 'no'} process is"
    then = "it applies at the next step" if there else "it applies to the next one that starts"
    write(f"{name}: {found.order.signal.value} is ordered; {processes} running, {then}")


def _no_such(engine: Engine, name: str) -> CommandError:
    from difflib import get_close_matches

    from mainstay.drivers.inbox.circuit_admin import shared_circuits

    known = [each.name for each in shared_circuits(engine.store)]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "mainstay circuits lists those there are"
    message = f"no process has shared a circuit {name!r}"
    return CommandError(message, hint=hint, exit_code=Exit.NEGATIVE)


for _word, (_signal, _text) in _ORDERS.items():
    _ordering(_word, _signal, _text)
