"""`mainstay audit replay`: every recorded decision made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.exits import Exit
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import write, write_json

if TYPE_CHECKING:
    from mainstay.core.audit.replay import ReplayReport


@click.command(
    "replay",
    epilog=example(
        "mainstay audit replay mainstay-audit.jsonl",
        "mainstay audit replay sqlite:///mainstay.db --json",
    ),
)
@click.argument("log")
@json_option
@click.pass_context
def command(ctx: click.Context, log: str, as_json: bool) -> None:
    """Make every decision of a log again, and name what differs.

    Classification, delays to the last bit, breakers, budgets and deadlines are recomputed from
    what was recorded. Exits with 1 if one differs. Decisions without evidence in the log are
    counted, never guessed.
    """
    from mainstay.audit import read_log, replay_records
    from mainstay.cli.screen.progress import watched

    report = replay_records(watched(read_log(log), "records"))
    if as_json:
        write_json({"log": log, **report.to_dict()})
    else:
        write("\n".join(_lines(log, report)))
    if not report.ok:
        ctx.exit(Exit.NEGATIVE)


def _lines(log: str, report: ReplayReport) -> list[str]:
    counts = f"{report.events:,} events, {report.calls:,} calls, {report.decisions:,} decisions"
    lines = [f"{log}: {counts}"]
    if report.unfinished:
        lines.append(f"  {report.unfinished:,} calls have no end in the log")
    lines += [f"  not replayed: {n:,} × {why}" for why, n in sorted(report.unproved.items())]
    found = report.divergence
    if found is None:
        return [*lines, "  every decision is the same as recorded"]
    call = f", call {found.call_id}" if found.call_id else ""
    return [
        *lines,
        f"  record {found.number} differs: {found.event_type} of {found.operation!r}{call}",
        f"    {found.field} as recorded: {found.recorded!r}",
        f"    {found.field} recomputed: {found.recomputed!r}",
        "  next: run mainstay audit verify; if the log is unchanged, the code has changed",
    ]
