"""`mainstay operators`: who may act on the inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.inbox.identity import (
    NEW_VARIABLE,
    VARIABLE,
    opened,
    proof_of,
    secret_of,
    store_option,
    warn_if_short,
    who_options,
    write_default_place,
)
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import write, write_json

if TYPE_CHECKING:
    from typing import Any

    from mainstay import Engine
    from mainstay.core.inbox.operators import Operator

_NEW = click.option(
    "--new-secret-file", metavar="FILE",
    help=f"Where the new secret is. Without it, the environment's {NEW_VARIABLE}, or a prompt.",
)  # fmt: skip
_PUBLIC = click.option(
    "--public-key", metavar="FILE", help="The public part of an Ed25519 key, instead of a secret."
)


@click.group(
    "operators",
    invoke_without_command=True,
    epilog=example(
        "mainstay operators --store sqlite:///app.db",
        "mainstay operators add ann --store sqlite:///app.db",
        "mainstay operators add bob --public-key bob.pub.pem --as ann --store sqlite:///app.db",
    ),
)
@store_option
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show, add and change the operators of the inbox."""
    if ctx.invoked_subcommand is not None:
        return
    with opened() as engine:
        found, now = list(engine.operators), _now(engine)
    if as_json:
        write_json([_plain(each, now) for each in found])
        return
    write_default_place()
    if not found:
        write("there is no operator yet; mainstay operators add NAME")
        return
    from mainstay.cli.screen.console import Screen, table

    rows = [tuple(map(str, _plain(each, now).values())) for each in found]
    Screen().show(table(("name", "proves it by", "state", "added by", "added"), rows, left=5))


def _plain(operator: Operator, now: float) -> dict[str, Any]:
    """An operator as plain data, without hash and salt."""
    from mainstay.core.base.timestamps import stamp

    state = "enabled" if operator.is_enabled else "disabled"
    return {
        "name": operator.name,
        "proof": "key" if operator.public_key else "secret",
        "state": "locked" if operator.locked_until > now else state,
        "added_by": operator.added_by,
        "added": stamp(operator.created),
    }


@command.command(epilog=example("mainstay operators add ann --store sqlite:///app.db"))
@click.argument("name")
@_PUBLIC
@_NEW
@who_options
@store_option
@json_option
def add(
    name: str, public_key: str | None, new_secret_file: str | None, as_json: bool, **who: Any
) -> None:
    """Add an operator, with a secret or a public key.

    Any user of the store may add the first operator; an operator adds the others: --as NAME.
    """
    with opened(makes=True) as engine:
        engine.operators.check(name, "add", by=who["who"] or "")
        by = {} if who["who"] is None else _by(who)
        new = _new(name, public_key, new_secret_file, who)
        engine.operators.add(name, **new, **by)
        warn_if_short(by.get("proof"))
        _write_done(engine, name, f"{name} may act on the inbox from now on", as_json)


@command.command(epilog=example("mainstay operators passwd ann --as ann --store sqlite:///app.db"))
@click.argument("name")
@_PUBLIC
@_NEW
@who_options
@store_option
@json_option
def passwd(
    name: str, public_key: str | None, new_secret_file: str | None, as_json: bool, **who: Any
) -> None:
    """Give an operator another secret, or a public key."""
    with opened() as engine:
        engine.operators.check(name, "change")
        by = _by({**who, "who": who["who"] or name})
        engine.operators.change(name, **_new(name, public_key, new_secret_file, by), **by)
        _write_done(engine, name, f"{name} has another secret", as_json)


def _changing(word: str, text: str, done: str) -> None:
    """Makes the command of one change."""

    @click.argument("name")
    @who_options
    @store_option
    @json_option
    def change(name: str, as_json: bool, **who: Any) -> None:
        with opened() as engine:
            engine.operators.check(name, word)
            by = _by(who)
            _verb(engine, word)(name, **by)
            warn_if_short(by["proof"])
            _write_done(engine, name, f"{name} {done}", as_json)

    change.__doc__ = text
    shown = example(f"mainstay operators {word} bob --as ann --store sqlite:///app.db")
    command.command(word, epilog=shown)(change)


def _now(engine: Engine) -> float:
    """The store's time: ages are of its clock."""
    from mainstay.core.base.spaces import Space

    return engine.store.read(Space.OPERATORS.value, "")[1]


def _write_done(engine: Engine, name: str, text: str, as_json: bool) -> None:
    """What became of it: a line, or the operator as they are now; null once they are removed."""
    if not as_json:
        write(text)
        return
    found, now = engine.operators.get(name), _now(engine)
    write_json(None if found is None else _plain(found, now))


def _verb(engine: Engine, word: str) -> Any:
    return getattr(engine.operators, word)


def _by(who: dict[str, Any]) -> dict[str, Any]:
    proof = proof_of(who["who"], who["key_file"], who["secret_file"])
    return {"by": who["who"], "proof": proof}


def _new(
    name: str, public_key: str | None, new_secret_file: str | None, who: dict[str, Any]
) -> dict[str, Any]:
    """The operator's credential; the first operator's secret comes as their own does later."""
    if public_key is not None:
        return {"public_key": public_key}
    if who.get("who") is None and who.get("by") is None and new_secret_file is None:
        file, variable = who["secret_file"], VARIABLE
    else:
        file, variable = new_secret_file, NEW_VARIABLE
    return {"secret": secret_of(file, variable, f"new secret of {name}", is_new=True)}


_changing("enable", "Let an operator act again.", "may act again")
_changing("disable", "Let an operator act no more.", "can act no more")
_changing("remove", "Remove an operator.", "is no operator any more")
