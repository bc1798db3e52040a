"""`mainstay audit verify`: whether a log is as it was written, and else what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.exits import Exit
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import shielded, write, write_json

if TYPE_CHECKING:
    from mainstay.audit import LogVerdict
    from mainstay.core.audit.writers import OpenWriter


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
@click.option("--strict", is_flag=True, help="Exit with 1 also if records may be missing.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    log: str,
    heads: str | None,
    public_key: str | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Check that a log is as it was written.

    Names the first record that is not, and exits with 1. A log alone cannot show that its tail was
    cut, or that all of it was rewritten: heads that were kept outside it can.

    Records that were lost before they could be written, and writers that did not close, are shown;
    they are no change of the log, and the exit code is 0 unless --strict is given.
    """
    verdict = _verify(log, heads, public_key)
    if as_json:
        write_json({"log": log, **verdict.to_dict()})
    else:
        write("\n".join(map(shielded, _lines(log, verdict, has_heads=heads is not None))))
    if not verdict.ok or (strict and not verdict.is_complete):
        ctx.exit(Exit.NEGATIVE)


def _verify(log: str, heads: str | None, public_key: str | None) -> LogVerdict:
    from contextlib import closing, suppress

    import msgspec

    from mainstay.audit import verify_log
    from mainstay.audit.open import open_journal
    from mainstay.cli.screen.progress import Watch

    total = 0
    with closing(open_journal(log, reads_only=True)) as journal, suppress(msgspec.MsgspecError):
        total = journal.tail().number  # a last block that cannot be read is found below
    with closing(Watch("records", total)) as watch:
        return verify_log(log, heads=heads, public_key=public_key, progress=watch)


def _lines(log: str, verdict: LogVerdict, *, has_heads: bool) -> list[str]:
    lines = [_title(log, verdict)]
    if not verdict.ok:
        lines += [f"  {verdict.problem}", *_facts(verdict)]
        return [*lines, *(f"  next: {step}" for step in _steps(verdict))]
    lines += _facts(verdict)
    if not has_heads:
        lines.append("  only heads from outside can show that the tail was not cut: --heads FILE")
    return lines


def _title(log: str, verdict: LogVerdict) -> str:
    counts = f"{verdict.records:,} records in {verdict.blocks:,} blocks"
    if verdict.ok:
        missing = "" if verdict.is_complete else "; some may be missing"
        return f"{log}: {counts}, as they were written{missing}"
    return f"{log}: changed after it was written; {counts} before that verify"


def _facts(verdict: LogVerdict) -> list[str]:
    lines = [*_versions(verdict), *_missing(verdict)]
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


def _versions(verdict: LogVerdict) -> list[str]:
    """The versions of the format; one that is not today's is explained."""
    if not verdict.versions:
        return []
    lines = [f"  format: version {' and '.join(map(str, verdict.versions))}"]
    if 1 in verdict.versions:
        lines.append("    blocks of version 1 do not state losses, nor whether their writer closed")
    return lines


def _missing(verdict: LogVerdict) -> list[str]:
    """What was not written: losses, and writers that did not close."""
    lines = []
    if verdict.lost:
        lines.append(f"  records that were lost before they could be written: {verdict.lost:,}")
        lines += [
            f"    {loss.records:,} from {loss.first_at} to {loss.last_at}: {shielded(loss.reason)}"
            for loss in verdict.losses[:_SHOWN]
        ]
    for writer in verdict.unclosed[:_SHOWN]:
        lines.append(
            f"  did not close: {shielded(writer.host or writer.writer)}, process {writer.pid},"
            f" since {writer.since}; {_state_of(writer)}"
        )
    more = len(verdict.unclosed) - _SHOWN
    return [*lines, *([f"  {more:,} more writers did not close"] if more > 0 else [])]


_SHOWN = 10


def _state_of(writer: OpenWriter) -> str:
    """Whether it may still run: known on its own machine."""
    missing = f"up to 100 ms of records after {writer.last} may be missing"
    return "it runs still" if _is_running(writer) else missing


def _is_running(writer: OpenWriter) -> bool:
    import os
    import socket

    if writer.host != socket.gethostname() or not writer.pid or os.name == "nt":
        return False
    try:
        os.kill(writer.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


def _steps(verdict: LogVerdict) -> list[str]:
    """What to do about it."""
    steps = ["keep the log and its heads as they are now: make a copy before anything else"]
    if verdict.truncated:
        steps.append(f"look for a copy that has record {verdict.first_bad:,} and later ones")
    elif verdict.unsigned:
        steps.append("check that this is the right key; else compare the log with a copy of it")
    else:
        steps.append(f"compare record {verdict.first_bad:,} and what follows with a copy")
        if not verdict.records:
            steps.append("check the name: a file that never was an audit log looks like this too")
    return [*steps, "find out who could write to the log since the last good head"]
