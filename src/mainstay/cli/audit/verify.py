"""`mainstay audit verify`: whether a log is as it was written, and else what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.exits import Exit
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import write, write_json

if TYPE_CHECKING:
    from mainstay.audit import Verdict


@click.command(
    "verify",
    epilog=example(
        "mainstay audit verify audit.jsonl --heads heads.jsonl",
        "mainstay audit verify sqlite:///app.db --public-key audit.pub.pem --json",
    ),
)
@click.argument("log")
@click.option("--heads", metavar="FILE", help="Heads that were kept outside the log.")
@click.option("--public-key", metavar="FILE", help="Checks the signatures of heads.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, log: str, heads: str | None, public_key: str | None, as_json: bool
) -> None:
    """Check that a log is as it was written.

    Names the first record that is not, and exits with 1. A log alone cannot show that its tail was
    cut, or that all of it was rewritten: heads that were kept outside it can.
    """
    verdict = _verify(log, heads, public_key)
    if as_json:
        write_json({"log": log, **verdict.to_dict()})
    else:
        write("\n".join(_lines(log, verdict, has_heads=heads is not None)))
    if not verdict.ok:
        ctx.exit(Exit.NEGATIVE)


def _verify(log: str, heads: str | None, public_key: str | None) -> Verdict:
    from contextlib import closing

    from mainstay.audit import verify_log
    from mainstay.audit.open import open_journal
    from mainstay.cli.screen.progress import Watch

    with closing(open_journal(log, reads_only=True)) as journal:
        total = journal.tail().number
    with closing(Watch("records", total)) as watch:
        return verify_log(log, heads=heads, public_key=public_key, progress=watch)


def _lines(log: str, verdict: Verdict, *, has_heads: bool) -> list[str]:
    lines = [_title(log, verdict)]
    if not verdict.ok:
        lines += [f"  {verdict.problem}", *_facts(verdict)]
        return [*lines, *(f"  next: {step}" for step in _steps(verdict))]
    lines += _facts(verdict)
    if not has_heads:
        lines.append("  only heads from outside can show that the tail was not cut: --heads FILE")
    return lines


def _title(log: str, verdict: Verdict) -> str:
    counts = f"{verdict.records:,} records in {verdict.blocks:,} blocks"
    if verdict.ok:
        return f"{log}: {counts}, as they were written"
    return f"{log}: changed after it was written; {counts} before that verify"


def _facts(verdict: Verdict) -> list[str]:
    lines = []
    if verdict.heads:
        lines.append(f"  heads that agree: {verdict.heads:,}")
    if verdict.other_heads:
        lines.append(
            f"  heads of another log: {verdict.other_heads:,}; if that log is not elsewhere, this"
            " one has replaced it"
        )
    if verdict.signed_until:
        later = verdict.ends_with - verdict.signed_until
        rest = f"; {later:,} later ones are not signed yet" if later else ""
        lines.append(f"  signed up to record {verdict.signed_until:,}{rest}")
    if verdict.begins_after:
        lines.append(f"  begins after record {verdict.begins_after:,}: older ones were pruned")
    if verdict.torn:
        lines.append(
            f"  writes that a kill cut off, and that no caller got an answer to: {verdict.torn:,}"
        )
    return lines


def _steps(verdict: Verdict) -> list[str]:
    """What to do about it."""
    steps = ["keep the log and its heads as they are now: make a copy before anything else"]
    if verdict.truncated:
        steps.append(f"look for a copy that has record {verdict.first_bad:,} and later ones")
    elif verdict.unsigned:
        steps.append("check that this is the right key; else compare the log with a copy of it")
    else:
        steps.append(f"compare record {verdict.first_bad:,} and what follows with a copy")
    return [*steps, "find out who could write to the log since the last good head"]
