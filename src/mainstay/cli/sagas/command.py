"""`mainstay sagas`: list, show, resume, recover, graph."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from mainstay.cli.errors import CommandError
from mainstay.cli.exits import Exit
from mainstay.cli.inbox.identity import opened, store_option
from mainstay.cli.listing import print_list
from mainstay.cli.options import Seconds, example, json_option
from mainstay.cli.sagas.application import app_option, working_engine
from mainstay.cli.screen.output import shielded, shielded_lines, write, write_json, write_ours

if TYPE_CHECKING:
    from typing import Any

    from mainstay import Engine, Recovery, SagaView

_STATES = ("running", "compensating", "succeeded", "compensated", "stuck")
_MOST = 1000


@click.group(
    "sagas",
    invoke_without_command=True,
    epilog=example(
        "mainstay sagas list --store sqlite:///app.db",
        "mainstay sagas recover --watch --app shop.sagas:engine",
    ),
)
@store_option
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:  # noqa: ARG001  for what is inside
    """Show sagas, and recover those that were interrupted."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(Exit.USAGE)


@command.command("list", epilog=example("mainstay sagas list --state stuck --store sqlite:///a.db"))
@click.option("--state", type=click.Choice(_STATES), help="Only sagas in this state.")
@click.option("--saga", "name", metavar="NAME", help="Only sagas of this name.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=_MOST, show_default=True)
@store_option
@json_option
def list_(as_json: bool, state: str | None, name: str | None, limit: int) -> None:
    """List the sagas in the store."""
    with opened(looks=True) as engine:
        from mainstay.cli.screen.progress import watched

        every = watched(engine.sagas.all(), "sagas")
        chosen = (e for e in every if state in (None, e.state) and name in (None, e.saga))
        found = list(islice(chosen, limit))
    columns = ("saga", "state", "version", "done", "began", "recoveries", "why")
    print_list(found, "saga", columns, _row, as_json=as_json)


@command.command(epilog=example("mainstay sagas show transfer/t-1 --store sqlite:///app.db"))
@click.argument("address", metavar="SAGA/ID")
@store_option
@json_option
def show(as_json: bool, address: str) -> None:
    """Show one saga: its steps, and what happened to each."""
    with opened(looks=True) as engine:
        found = _found(engine, address)
    if as_json:
        write_json(found.to_dict())
        return
    from mainstay.cli.screen.console import Screen, fields, table

    screen = Screen()
    screen.show(fields(_facts(found)), "")
    steps = [
        (shielded(each.name), each.status.replace("_", " "), str(each.attempts or ""),
         "" if each.seconds is None else f"{each.seconds:.3g} s", shielded(each.note))
        for each in found.steps
    ]  # fmt: skip
    screen.show(table(("step", "status", "attempts", "took", "note"), steps, left=5), "")
    log = [
        (_when(each.at), each.what.replace("_", " "), shielded(each.step), shielded(each.note))
        for each in found.log
    ]
    screen.show(table(("when", "what happened", "step", "note"), log, left=4))


@command.command(epilog=example("mainstay sagas graph transfer/t-1 --format svg > t-1.svg"))
@click.argument("address", metavar="SAGA/ID")
@click.option(
    "--format", "kind", type=click.Choice(["mermaid", "svg"]), default="mermaid", show_default=True
)
@store_option
@json_option
def graph(as_json: bool, address: str, kind: str) -> None:
    """Draw what happened to a saga."""
    with opened(looks=True) as engine:
        found = _found(engine, address)
        drawn = engine.sagas.graph(address, kind)
    if as_json:
        write_json({"saga": found.address, "format": kind, "graph": drawn})
    else:
        write_ours(shielded_lines(drawn.rstrip("\n")))


@command.command(epilog=example("mainstay sagas resume transfer/t-1 --app shop.sagas:engine"))
@click.argument("address", metavar="SAGA/ID")
@app_option
@store_option
@json_option
def resume(as_json: bool, address: str, app: str) -> None:
    """Run one saga to its end, if no process runs it."""
    with working_engine(app) as engine:
        found = _found(engine, address)
        if found.state in ("running", "compensating") and not _resumed(engine, address):
            message = f"{address}: a process runs it"
            raise CommandError(message, hint="it ends by itself", exit_code=Exit.NEGATIVE)
        after = _found(engine, address)
    if as_json:
        write_json(after.to_dict())
    else:
        write(f"{shielded(after.address)}: {after.state}")


@command.command(
    epilog=example(
        "mainstay sagas recover --app shop.sagas:engine",
        "mainstay sagas recover --watch --app shop.sagas:sagas --store postgresql://localhost/app",
    )
)
@app_option
@click.option("--watch", is_flag=True, help="Go on until the command is stopped.")
@click.option(
    "--every", type=Seconds(0.01, 86_400.0), default=5.0, show_default=True, metavar="SECONDS",
    help="With --watch: seconds between two recoveries.",
)  # fmt: skip
@click.option(
    "--workers", type=click.IntRange(1, 1000), default=8, show_default=True, metavar="N",
    help="How many sagas run at the same time, if they take longer than a moment.",
)  # fmt: skip
@store_option
@json_option
def recover(as_json: bool, app: str, watch: bool, every: float, workers: int) -> None:
    """Run the sagas to their end whose processes are gone.

    With --watch, SIGTERM and Ctrl+C end it: the sagas at hand have 30 seconds.
    """
    from mainstay.cli.screen.progress import Watch

    shown = Watch("sagas", 0)
    try:
        with working_engine(app) as engine:
            watched = every if watch else None
            found = _recovered(engine, watched, workers, lambda done: shown(done.recovered))
    finally:
        shown.close()
    if as_json:
        write_json(found.to_dict())
        return
    write(
        f"{found.recovered:,} recovered: {found.succeeded:,} succeeded,"
        f" {found.compensated:,} compensated, {found.stuck:,} stuck;"
        f" {found.busy:,} in other processes, {found.failed:,} failed"
    )
    for name, count in found.unknown.items():
        write(f"{count:,} of {shielded(name)}: the definition is not known in this application")


def _resumed(engine: Engine, address: str) -> bool:
    try:
        return engine.sagas.resume(address)
    except SystemExit as error:  # no handler of a signal raises it here: it is a step's
        message = f"{address}: a step has ended the run with SystemExit: {error}"
        hint = "mend the step; that counts as a recovery without progress"
        raise CommandError(message, hint=hint, exit_code=Exit.NEGATIVE) from error


def _recovered(engine: Engine, every: float | None, workers: int, progress: Any) -> Recovery:
    if every is None:
        return engine.sagas.recover(progress=progress, workers=workers)
    import signal
    import threading

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return engine.sagas.watch(stop, every=every, progress=progress, workers=workers)


def _found(engine: Engine, address: str) -> SagaView:
    found = engine.sagas.at(address)
    if found is None:
        message = f"there is no saga {address!r}"
        raise CommandError(message, hint="mainstay sagas list", exit_code=Exit.NEGATIVE)
    return found


def _row(found: SagaView) -> tuple[str, ...]:
    done = sum(step.status == "done" for step in found.steps)
    return (
        shielded(found.address),
        found.state,
        str(found.version),
        f"{done} of {len(found.steps)}",
        _when(found.began),
        str(found.recoveries),
        shielded(found.stuck or found.failure),
    )


def _facts(found: SagaView) -> list[tuple[str, str]]:
    rows = [
        ("saga", shielded(found.saga)),
        ("id", shielded(found.id)),
        ("version", str(found.version)),
        ("state", found.state),
        ("began", _when(found.began)),
        ("ended", "" if found.ended is None else _when(found.ended)),
        ("recoveries", str(found.recoveries)),
        ("tenant", shielded(found.tenant_id or "")),
        ("cancelled", shielded(found.cancelled)),
        ("failed", shielded(found.failure)),
        ("stuck", shielded(found.stuck)),
    ]
    return [(name, text) for name, text in rows if text]


def _when(moment: float) -> str:
    from mainstay.core.base.timestamps import stamp

    return stamp(moment)
