"""`mainstay comply`: fails if pipeline runs break the rules on retries."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

from mainstay.cli.errors import CommandError
from mainstay.cli.exits import Exit
from mainstay.cli.inbox.identity import is_store_named, opened, store_option
from mainstay.cli.options import Seconds, configured, example, json_option
from mainstay.cli.screen.output import write, write_json, write_ours
from mainstay.errors import DependencyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from mainstay import Engine
    from mainstay.cli.comply.read import Sources
    from mainstay.core.comply.finding import Finding


@click.command(
    "comply",
    epilog=example(
        "mainstay comply",
        "mainstay comply --store sqlite:///etl.db --audit audit.jsonl",
        "mainstay comply telemetry.json retry_log.json ledger.json --format junit > comply.xml",
    ),
)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@click.option("--telemetry", multiple=True, metavar="FILE", help="A telemetry file.")
@click.option("--ledger", multiple=True, metavar="FILE", help="A ledger: retry log or versioning.")
@click.option("--audit", multiple=True, metavar="LOG", help="An audit log: a file or a URL.")
@click.option("--run", metavar="ID", help="Only this run: its id, or PIPELINE/ID.")
@click.option("--since", metavar="TIME", help="Only what ended since: 2026-01-25, or 2h ago as 2h.")
@click.option(
    "--max-attempts", type=click.IntRange(1, 1000), default=5, show_default=True,
    help="Attempts of a call beyond which a ledger entry must be there.",
)  # fmt: skip
@click.option(
    "--cooldown", type=Seconds(0.0, 604_800.0), default=300.0, show_default=True, metavar="SECONDS",
    help="How long a circuit stays open; an audit log knows it.",
)  # fmt: skip
@click.option(
    "--format", "kind", type=click.Choice(["text", "json", "junit"]), default="text",
    show_default=True, help="Text for people, JSON for programs, JUnit XML for CI.",
)  # fmt: skip
@store_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    as_json: bool,
    files: tuple[str, ...],
    telemetry: tuple[str, ...],
    ledger: tuple[str, ...],
    audit: tuple[str, ...],
    run: str | None,
    since: str | None,
    max_attempts: int,
    cooldown: float,
    kind: str,
) -> None:
    """Fail if pipeline runs break the rules on retries.

    Reads telemetry, ledgers, the runs of a store and audit logs, and changes none of them. FILES
    are recognized by their content. If none is named, the files at the places of the pipeline
    document are read: focus-telemetry.json in releases or a folder of it, and both ledgers in
    docs/reports/audit.

    Exits with 0 if no rule is broken, with 1 if one is, and with 2 if something cannot be read.
    """
    from mainstay.cli.comply.read import Sources, gathered, stored_runs
    from mainstay.core.comply.check import check

    sources = Sources(list(telemetry), list(ledger), list(audit))
    sources.sort(files)
    with _readable(), _store() as engine:
        if engine is not None:
            sources.store = engine.store.url
        sources.audit += [] if sources.audit else _configured_audit(sources.store)
        stored = [] if engine is None else stored_runs(engine.store)
        sources.complete(stored)
        evidence = gathered(
            sources,
            stored,
            run=run or "",
            since=_moment(since),
            max_attempts=max_attempts,
            cooldown=cooldown,
        )
    findings = sources.lined(check(evidence))
    _write(findings, sources, "json" if as_json else kind)
    if findings:
        ctx.exit(Exit.NEGATIVE)


@contextmanager
def _readable() -> Iterator[None]:
    """What cannot be read is exit code 2, a store that is unavailable too: 1 is for findings."""
    try:
        yield
    except DependencyError as error:
        raise CommandError(error.message, hint=error.hint or "check the store") from error


def _write(findings: Sequence[Finding], sources: Sources, kind: str) -> None:
    from mainstay.cli.comply.report import document_of, junit_of, text_of

    if kind == "json":
        write_json(document_of(findings, sources))
    elif kind == "junit":
        write_ours(junit_of(findings, sources))
    else:
        write(text_of(findings, sources))


def _store() -> AbstractContextManager[Engine | None]:
    """The store that the command line or the configuration names; no other."""
    if is_store_named() or configured().store.get("url"):
        return opened(looks=True)
    return nullcontext()


def _configured_audit(store: str) -> list[str]:
    """The audit log of the configuration; that is in the store, unless it names another place."""
    options = configured().audit
    if options is None or options is False:
        return []
    where = options.get("where") or store
    return [str(where)] if where else []


def _moment(since: str | None) -> str:
    if since is None:
        return ""
    from datetime import UTC, datetime

    from mainstay.core.base.timestamps import parse_moment, written

    try:
        return f"{written(parse_moment(since, datetime.now(UTC)))}Z"
    except ValueError as error:
        raise CommandError(str(error), hint="check --since") from error
