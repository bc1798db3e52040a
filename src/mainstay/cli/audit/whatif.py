"""`mainstay audit whatif`: recorded traffic under another policy, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.audit.stats import number, percent, seconds
from mainstay.cli.errors import CommandError
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import shielded, write, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.cli.audit.chart_svg import Bar
    from mainstay.cli.audit.policy_file import PolicyFile
    from mainstay.cli.screen.layout import Rows
    from mainstay.core.audit.comparison import Comparison, Pair
    from mainstay.core.audit.recorded_calls import Traffic

RULES = ("rate", "fail", "succeed")


@click.command(
    "whatif",
    epilog=example(
        "mainstay audit whatif audit.jsonl --policy patient.yml",
        "mainstay audit whatif audit.jsonl --policy patient.yml --chart load.svg",
    ),
)
@click.argument("log")
@click.option("--policy", "file", metavar="FILE", required=True, help="YAML or JSON: the policy.")
@click.option(
    "--operation", multiple=True, help="Only this operation; may be given more than once."
)
@click.option(
    "--assume",
    type=click.Choice(RULES),
    default="rate",
    show_default=True,
    help="How attempts end that were never made: at the recorded rate, all fail, or all succeed.",
)
@click.option(
    "--chart", metavar="FILE", help="Draw a chart: a file name that ends in .svg or .png."
)
@click.option(
    "--top", type=click.IntRange(1, 1000), default=10, show_default=True, help="Rows of the table."
)
@json_option
def command(
    log: str,
    file: str,
    operation: tuple[str, ...],
    assume: str,
    chart: str | None,
    top: int,
    as_json: bool,
) -> None:
    """Run recorded traffic again under another policy.

    The calls of the log are simulated, attempt by attempt, by the code that decides in production.
    If the new policy stops sooner, the outcome is exact; if it goes on, the outcome of an attempt
    that was never made is assumed, and the result shows how many were assumed by which rule.
    """
    from mainstay.cli.audit.policy_file import PolicyFile

    _check_chart(chart)
    policies = PolicyFile(file)
    found, traffic = _compare(log, policies, operation, assume, top)
    if chart is not None:
        _draw(chart, log, found)
    if as_json:
        document = {"log": log, "policy": file, **found.to_dict()}
        write_json({**document, "left_out": dict(+traffic.left_out), "chart": chart})
    else:
        _show(log, file, found, traffic)
        if chart is not None:
            write(f"chart: {chart}")


def _compare(
    log: str, policies: PolicyFile, operations: tuple[str, ...], assume: str, top: int
) -> tuple[Comparison, Traffic]:
    """Two passes: what retried attempts came to, then the calls themselves."""
    from mainstay.audit.stream import AuditStream
    from mainstay.cli.screen.progress import watched
    from mainstay.core.audit.comparison import compare

    stream = AuditStream(log).filter(operation=operations or None)
    return compare(
        lambda: watched(stream.records(plans=True), "events"),
        policies.choose,
        assume=assume,
        top=top,
    )


def _check_chart(chart: str | None) -> None:
    if chart is not None and not chart.lower().endswith((".svg", ".png")):
        raise CommandError(f"--chart {chart}: neither .svg nor .png", hint="--chart load.svg")


def _draw(chart: str, log: str, found: Comparison) -> None:
    from pathlib import Path

    title = f"What if: {Path(log).name}"
    bars, series = list(_bars(found)), found.load.series()
    if chart.lower().endswith(".png"):
        from mainstay.cli.audit.chart_png import save

        save(chart, title, _subtitle(found), bars, series)
        return
    from mainstay.cli.audit.chart_svg import chart as drawn

    picture = drawn(title, _subtitle(found), bars, series)
    Path(chart).write_text(picture, encoding="utf-8")


def _subtitle(found: Comparison) -> str:
    total = found.total
    of = f"{total.assumed_calls:,} of {total.calls:,} {_of(total)}"
    return f"{total.assumed:,} outcomes assumed, in {of}; rule: {found.assume}"


def _of(pair: Pair) -> str:
    """Which calls the figures are of: all, or those that the log has."""
    return str(pair.to_dict()["success_rate_of"])


def _bars(found: Comparison) -> Iterator[Bar]:
    total = found.total
    was, now = total.recorded, total.new
    yield "attempts", was.attempts, now.attempts, f"{was.attempts:,}", f"{now.attempts:,}"
    yield "given up", was.given_up, now.given_up, f"{was.given_up:,}", f"{now.given_up:,}"
    for name, key in (("mean wait", "waited_mean"), ("p99 wait", "waited_p99")):
        one, other = (side.to_dict()[key] or 0.0 for side in (was, now))
        yield name, one, other, seconds(one), seconds(other)
    one, other = found.load.peaks()
    yield "peak load", one, other, f"{one:.3g}/s", f"{other:.3g}/s"


def _show(log: str, file: str, found: Comparison, traffic: Traffic) -> None:
    from mainstay.cli.screen.console import Screen, fields, table

    screen = Screen()
    screen.show(fields([("log", shielded(log)), ("policy", shielded(file))]), "")
    of = "all calls" if found.total.knows_first_successes else _of(found.total)
    screen.show(table((of, "recorded", "new", "change"), _total_rows(found)), "")
    screen.show(_operations(found), "")
    for text in _notes(found, traffic):
        screen.print(text, style="dim", soft_wrap=True)


def _total_rows(found: Comparison) -> Iterator[tuple[str, str, str, str]]:
    total = found.total
    was, now = total.recorded.to_dict(), total.new.to_dict()
    calls = f"{total.calls:,}"
    yield "calls", calls, calls, ""
    for name, key in (
        ("attempts", "attempts"),
        ("succeeded", "succeeded"),
        ("given up", "given_up"),
    ):
        yield name, f"{was[key]:,}", f"{now[key]:,}", f"{now[key] - was[key]:+,}"
    yield "success", percent(was["success_rate"]), percent(now["success_rate"]), ""
    for name, key in (
        ("mean wait", "waited_mean"),
        ("p50 wait", "waited_p50"),
        ("p99 wait", "waited_p99"),
    ):
        yield name, seconds(was[key]), seconds(now[key]), _more(was[key], now[key])
    one, other = found.load.peaks()
    yield "peak attempts a second", number(one), number(other), _more(one, other)


def _more(was: float | None, now: float | None) -> str:
    return f"{(now - was) / was * 100:+.0f} %" if was and now is not None else ""


def _operations(found: Comparison) -> Rows:
    from mainstay.cli.screen.console import table

    rows, other = found.rows()
    shown = [_row(shielded(name) or "(no operation)", pair) for name, pair in rows]
    if other is not None:
        shown.append(_row("(other)", other))
    columns = ("operation", "calls", "attempts", "saved", "success", "p99 wait", "assumed")
    return table(columns, shown)


def _row(name: str, pair: Pair) -> tuple[str, ...]:
    was, now = pair.recorded.to_dict(), pair.new.to_dict()
    return (
        f"{name} †" if pair.missed else name,
        f"{pair.calls:,}",
        f"{was['attempts']:,} → {now['attempts']:,}",
        f"{pair.saved:,}",
        f"{percent(was['success_rate'])} → {percent(now['success_rate'])}"
        + "*" * (not pair.knows_first_successes),
        f"{seconds(was['waited_p99'])} → {seconds(now['waited_p99'])}",
        f"{pair.assumed:,}",
    )


def assumed_text(found: Comparison) -> str:
    """How many outcomes are assumed, and on what rule."""
    from mainstay.core.audit.whatif import RULES as WORDS

    total = found.total
    if not total.assumed:
        return "No outcome is assumed: the record holds every attempt."
    return (
        f"{total.assumed:,} outcomes are assumed, in {total.assumed_calls:,} of {total.calls:,}"
        f" {_of(total)}: an attempt that was never made {WORDS[found.assume]} ({found.assume})."
    )


def _notes(found: Comparison, traffic: Traffic) -> Iterator[str]:
    if not all(pair.knows_first_successes for _, pair in found.rows()[0]):
        yield "* of calls that met a failure: those that succeeded at once are not in the log."
    yield assumed_text(found)
    yield "Attempt n has its recorded outcome, also if it is made at another time."
    if found.unchanged:
        yield f"{found.unchanged:,} calls keep their policy: the file has none for them."
    if found.long_successes:
        yield (
            f"{found.long_successes:,} calls succeeded at once, in more time than an attempt has"
            " now; they are counted as they were."
        )
    for reason, count in traffic.left_out.most_common():
        if count:
            yield f"{count:,} calls are left out on both sides: {reason}."
    if traffic.unreadable:
        yield f"{traffic.unreadable:,} records could not be read and are in no figure."
    if any(pair.missed for _, pair in found.rows()[0]):
        yield "† came late into a full table: some of its calls count as (other)."
