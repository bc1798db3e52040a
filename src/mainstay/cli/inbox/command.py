"""`mainstay inbox`: the items that an operator must decide about."""

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
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import shielded, write, write_json
from mainstay.cli.screen.text_file import text_of

if TYPE_CHECKING:
    from typing import Any

    from mainstay import Engine, Item
    from mainstay.core.inbox.actions import Answer

_ACTIONS = {
    "retry": ("retry", "Allow another attempt."),
    "done": ("mark_done", "Mark it as done, with --evidence: the outcome, as JSON."),
    "abandon": ("abandon", "Give it up, with --why."),
    "release": ("release", "Release it from quarantine."),
    "skip": ("skip", "Let a saga go on without the step, with --why."),
}


@click.group(
    "inbox",
    invoke_without_command=True,
    epilog=example(
        "mainstay inbox --store sqlite:///app.db",
        "mainstay inbox show 3f2a9c0011223344 --store sqlite:///app.db",
        "mainstay inbox done 3f2a9c0011223344 --as ann --evidence '{\"id\": 7}' --store …",
    ),
)
@store_option
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show open items, the worst first, and decide about them."""
    if ctx.invoked_subcommand is not None:
        return
    with opened() as engine:
        items, now = _waiting(engine), _now(engine)
    if as_json:
        write_json([_plain(item, now) for item in items])
        return
    write_default_place()
    if not items:
        write("no item is open")
        return
    from mainstay.cli.screen.console import Screen, table

    columns = ("id", "age", "severity", "kind", "operation", "times", "what")
    Screen().show(table(columns, [_row(item, now) for item in items], left=7))


@command.command(epilog=example("mainstay inbox show 3f2a9c0011223344 --store sqlite:///app.db"))
@click.argument("item_id", metavar="ID")
@store_option
@json_option
def show(item_id: str, as_json: bool) -> None:
    """Show one item: what happened, and what can be done."""
    with opened() as engine:
        item, now = engine.inbox.get(item_id), _now(engine)
    if item is None:
        raise _no_such(item_id)
    if as_json:
        write_json(_plain(item, now))
        return
    from mainstay.cli.screen.console import Screen, fields, table

    screen = Screen()
    screen.show(fields(_fields(item, now)), "")
    happened = [(_when(each.at), shielded(each.text)) for each in item.history]
    screen.show(table(("when", "what happened"), happened, left=2))


def _acting(word: str, action: str, text: str) -> None:
    """Makes the command of one action."""

    @click.argument("item_id", metavar="ID")
    @click.option("--why", default="", metavar="TEXT", help="The reason; it enters the audit.")
    @click.option(
        "--evidence", default="", metavar="JSON|@FILE", help="The outcome as JSON, or a file of it."
    )
    @click.option(
        "--revision", type=int, metavar="N", help="Only if the item still has this revision."
    )
    @who_options
    @store_option
    @json_option
    def act(as_json: bool, **given: Any) -> None:
        _act(action, as_json, **given)

    act.__doc__ = text
    lines = f"mainstay inbox {word} 3f2a9c0011223344 --as ann --why 'it is back' --store …"
    command.command(word, epilog=example(lines))(act)


def _act(
    action: str,
    as_json: bool,
    *,
    item_id: str,
    why: str,
    evidence: str,
    revision: int | None,
    who: str | None,
    key_file: str | None,
    secret_file: str | None,
) -> None:
    given = _evidence(evidence)
    with opened() as engine:
        _check(engine, item_id, action, why, given, revision)
        proof = proof_of(who, key_file, secret_file)
        answer = engine.inbox.act(
            item_id, action, by=who or "", proof=proof, why=why, evidence=given, revision=revision
        )
        now = _now(engine)
    warn_if_short(proof)
    _write_answer(item_id, answer, now, as_json)


def _check(
    engine: Engine, item_id: str, action: str, why: str, evidence: str, revision: int | None
) -> None:
    """Ends the command if the action is not legal, before a secret is asked for.

    What was decided before is carried out, if that was not done: any process may.
    """
    refused = engine.inbox.check(item_id, action, why=why, evidence=evidence, revision=revision)
    if refused is not None:
        engine.inbox.carry_out(item_id)
        _write_answer(item_id, refused, _now(engine), as_json=False)


def _write_answer(item_id: str, answer: Answer, now: float, as_json: bool) -> None:
    from mainstay.core.inbox.actions import Already, Gone, Illegal, Won

    if isinstance(answer, Won):
        if as_json:
            write_json(_plain(answer.item, now))
        else:
            write(f"{item_id}: {shielded(answer.text)}")
        return
    if isinstance(answer, Gone):
        raise _no_such(item_id)
    hint = f"mainstay inbox show {item_id}"
    if isinstance(answer, Illegal):
        hint = f"legal for this item: {', '.join(answer.actions)}"
    text = _decided_before(answer, now) if isinstance(answer, Already) else answer.text
    raise CommandError(f"{item_id}: {text}", hint=hint, exit_code=Exit.NEGATIVE)


def _decided_before(answer: Any, now: float) -> str:
    """Who decided before, when, and what."""
    decision = answer.item.decision
    if decision is None:
        return str(answer.text)
    why = f": {shielded(decision.why)}" if decision.why else ""
    return f"{answer.text}, {_age(now - decision.at)} ago ({_when(decision.at)}){why}"


def _no_such(item_id: str) -> CommandError:
    message = f"there is no item {item_id!r}"
    return CommandError(message, hint="mainstay inbox", exit_code=Exit.NEGATIVE)


def _evidence(given: str) -> str:
    return text_of(given[1:]) if given.startswith("@") else given


def _waiting(engine: Engine) -> list[Item]:
    """What is open, and what was decided and not carried out; the worst and oldest first."""
    from mainstay.core.inbox.items import RANKS

    def rank(item: Item) -> tuple[int, float]:
        known = item.severity in RANKS
        return (RANKS.index(item.severity) if known else len(RANKS), item.created)

    return sorted((item for item in engine.inbox.all() if not item.is_over), key=rank)


def _now(engine: Engine) -> float:
    """The store's time: ages are of its clock."""
    from mainstay.core.base.spaces import Space

    return engine.store.read(Space.INBOX.value, "")[1]


def _plain(item: Item, now: float) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(item)
    ours = {"id": item.id, "age": item.age(now), "actions": list(item.actions)}
    return {**ours, **plain}


def _row(item: Item, now: float) -> tuple[str, ...]:
    text = item.text
    if item.decision is not None:
        text = f"[{item.decision.by}: {item.decision.action}, not carried out] {text}"
    cells = (item.severity, item.kind, item.operation, str(item.times), text)
    return (item.id, _age(item.age(now)), *map(shielded, cells))


def _fields(item: Item, now: float) -> list[tuple[str, str]]:
    rows = [
        ("item", f"{item.id}, revision {item.revision}"),
        ("kind", f"{item.kind}, {item.severity}"),
        ("operation", item.operation),
        ("what", item.text),
        ("raised", f"{_age(item.age(now))} ago, {item.times} times; {item.attempts} attempts"),
        ("status", item.status),
        ("actions", ", ".join(item.actions) or "none"),
    ]
    decision = item.decision
    if decision is not None:
        rows.append(("decided", f"{decision.action} by {decision.by}, {_when(decision.at)}"))
        rows += [(n, v) for n, v in (("why", decision.why), ("evidence", decision.evidence)) if v]
    rows += [("result", item.result)] if item.result else []
    return [(name, shielded(value)) for name, value in rows]


def _age(seconds: float) -> str:
    """An age in its largest unit."""
    for size, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _when(at: float) -> str:
    from mainstay.core.base.timestamps import stamp

    return stamp(at)[:19].replace("T", " ") + " UTC"


for _word, (_action, _text) in _ACTIONS.items():
    _acting(_word, _action, _text)
