"""`mainstay pipelines`: list, show, resume."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import click

from mainstay.cli.application import loaded
from mainstay.cli.errors import CommandError
from mainstay.cli.exits import Exit
from mainstay.cli.inbox.identity import opened, store_option
from mainstay.cli.listing import print_list
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import shielded, write, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from mainstay.profiles.pipelines import Pipeline, RunView

_STATES = ("running", "halted", "succeeded", "abandoned", "damaged")
_MOST = 1000
_HINT = "--app module:attribute, of a Pipeline, a list of them, or a function that returns one"
_EVERY = 0.5
"""Seconds between two looks at a run that is being resumed."""


@click.group(
    "pipelines",
    invoke_without_command=True,
    epilog=example(
        "mainstay pipelines list --state halted --store sqlite:///runs.db",
        "mainstay pipelines resume etl/2026-11-17 --app jobs.etl:pipeline",
    ),
)
@store_option
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:  # noqa: ARG001  for what is inside
    """Show runs of pipelines, and resume those that were halted."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(Exit.USAGE)


@command.command("list", epilog=example("mainstay pipelines list --store sqlite:///runs.db"))
@click.option("--state", type=click.Choice(_STATES), help="Only runs in this state.")
@click.option("--pipeline", "name", metavar="NAME", help="Only runs of this pipeline.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=_MOST, show_default=True)
@store_option
@json_option
def list_(as_json: bool, state: str | None, name: str | None, limit: int) -> None:
    """List the runs in the store."""
    with opened(looks=True) as engine:
        from mainstay.cli.screen.progress import watched

        every = watched(engine.pipelines.all(name), "runs")
        found = list(islice((each for each in every if state in (None, each.state)), limit))
    columns = ("run", "state", "done", "began", "resumed", "halted at", "why")
    print_list(found, "run", columns, _row, as_json=as_json)


@command.command(epilog=example("mainstay pipelines show etl/2026-11-17 --store sqlite:///runs.db"))
@click.argument("address", metavar="PIPELINE/RUN")
@store_option
@json_option
def show(as_json: bool, address: str) -> None:
    """Show one run: its stages, ledger entries, and halt."""
    with opened(looks=True) as engine:
        found = _found(engine, address)
    if as_json:
        write_json(found.to_dict())
        return
    from mainstay.cli.screen.console import Screen, fields, table

    screen = Screen()
    screen.show(fields(_facts(found)), "")
    stages = [
        (shielded(each.name), each.status, shielded(", ".join(each.after)),
         str(each.attempts or ""),
         "" if each.seconds is None else f"{each.seconds:.3g} s", shielded(each.note))
        for each in found.stages
    ]  # fmt: skip
    columns = ("stage", "status", "after", "attempts", "took", "note")
    screen.show(table(columns, stages, left=6), "")
    entries = sorted([*found.retries, *found.versions], key=lambda each: each.timestamp)
    rows = [
        (each.timestamp, each.kind.replace("_", " "), shielded(each.stage),
         str(each.attempts or ""),
         shielded(", ".join(each.error_classes)), shielded(each.by or each.reason))
        for each in entries
    ]  # fmt: skip
    screen.show(
        table(("when", "ledger entry", "stage", "attempts", "errors", "note"), rows, left=6)
    )


@command.command(epilog=example("mainstay pipelines resume etl/r-1 --app jobs.etl:pipeline"))
@click.argument("address", metavar="PIPELINE/RUN")
@click.option(
    "--app", required=True, metavar="MODULE:ATTRIBUTE",
    help="A Pipeline, a list of them, or a function that returns one of these.",
)  # fmt: skip
@click.option("--by", default="", metavar="NAME", help="Who resumes it, for the ledger.")
@json_option
def resume(as_json: bool, address: str, app: str, by: str) -> None:
    """Go on with one run where it stopped.

    What is in quarantine is resumed once it was released: mainstay inbox.
    """
    from mainstay import MainstayError

    with _pipeline(app, address) as (pipeline, run_id):
        _found(pipeline.engine, address)
        try:
            with _progress(pipeline, run_id):
                _resumed(pipeline, run_id, by)
        except Exception as error:
            after = _found(pipeline.engine, address)
            again = "repair it, and resume it again"
            hint = error.hint if isinstance(error, MainstayError) else again
            text = f"{shielded(address)}: {after.state}: {type(error).__name__}: {error}"
            raise CommandError(text, hint=hint, exit_code=Exit.NEGATIVE) from error
        after = _found(pipeline.engine, address)
    if as_json:
        write_json(after.to_dict())
    else:
        write(f"{shielded(address)}: {after.state}")


def _resumed(pipeline: Pipeline, run_id: str, by: str) -> None:
    if any(stage.is_async for stage in pipeline.stages):
        import asyncio

        asyncio.run(pipeline.aresume(run_id, by=by))
    else:
        pipeline.resume(run_id, by=by)


@contextmanager
def _progress(pipeline: Pipeline, run_id: str) -> Iterator[None]:
    """Shows how many stages are done, for a person who waits."""
    from mainstay.cli.screen.progress import Watch

    shown, ended = Watch("stages", len(pipeline.stages)), threading.Event()

    def look() -> None:
        while not ended.wait(_EVERY):
            view = pipeline.get(run_id)
            shown(0 if view is None else sum(each.status == "done" for each in view.stages))

    thread = threading.Thread(target=look, name="mainstay-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10.0)
        shown.close()


@contextmanager
def _pipeline(app: str, address: str) -> Iterator[tuple[Pipeline, str]]:
    """The pipeline of a run; the engines of the application are closed at the end."""
    several = _pipelines(app)
    name, _, run_id = address.partition("/")
    try:
        for each in several:
            if each.pipeline_id == name:
                yield each, run_id
                return
        known = ", ".join(each.pipeline_id for each in several)
        raise CommandError(f"--app {app!r} has no pipeline {name!r}", hint=f"it has {known}")
    finally:
        for engine in {id(each.engine): each.engine for each in several}.values():
            engine.close()


def _pipelines(app: str) -> Sequence[Pipeline]:
    from mainstay.profiles.pipelines import Pipeline

    found = loaded(app, _HINT, (Pipeline, list, tuple))
    several = [found] if isinstance(found, Pipeline) else found
    if not isinstance(several, list | tuple) or not all(isinstance(x, Pipeline) for x in several):
        kind = type(found).__name__
        raise CommandError(f"--app {app!r} is a {kind}, and no pipeline", hint=_HINT)
    return several


def _found(engine: Any, address: str) -> RunView:
    name, _, run_id = address.partition("/")
    found: RunView | None = engine.pipelines.get(name, run_id)
    if found is None:
        message = f"there is no run {address!r}"
        raise CommandError(message, hint="mainstay pipelines list", exit_code=Exit.NEGATIVE)
    return found


def _row(found: RunView) -> tuple[str, ...]:
    done = sum(stage.status == "done" for stage in found.stages)
    return (
        shielded(f"{found.pipeline_id}/{found.run_id}"),
        found.state,
        f"{done} of {len(found.stages)}" if found.stages else "",
        _when(found.began) if found.began else "",
        str(found.resumes),
        shielded(found.halted_at),
        shielded(found.why),
    )


def _facts(found: RunView) -> list[tuple[str, str]]:
    rows = [
        ("pipeline", shielded(found.pipeline_id)),
        ("run", shielded(found.run_id)),
        ("state", found.state + (", a process runs it" if found.is_leased else "")),
        ("began", _when(found.began)),
        ("ended", "" if found.ended is None else _when(found.ended)),
        ("resumed", str(found.resumes)),
        ("halted at", shielded(found.halted_at)),
        ("cause", found.cause),
        ("why", shielded(found.why)),
        ("quarantine", shielded(", ".join(found.quarantine))),
        ("review", found.quarantine_status),
    ]
    return [(name, text) for name, text in rows if text]


def _when(moment: float) -> str:
    from mainstay.core.base.timestamps import stamp

    return stamp(moment)
