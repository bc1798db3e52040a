"""`mainstay store`: purges expired records, compacts a SQLite file, shows its identity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.exits import Exit
from mainstay.cli.inbox.identity import (
    default_place,
    opened,
    proof_of,
    store_option,
    warn_if_short,
    who_options,
)
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import write, write_json
from mainstay.cli.screen.progress import Watch

if TYPE_CHECKING:
    from typing import Any

    from mainstay.ports import Store

_BATCH = 1000
"""Records in one step of the store."""


@click.group(
    "store",
    invoke_without_command=True,
    epilog=example("mainstay store compact --store sqlite:///app.db"),
)
@store_option
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:  # noqa: ARG001  for what is inside
    """Purge or compact a store, or show its identity."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(Exit.USAGE)


@command.command(epilog=example("mainstay store purge --store sqlite:///app.db"))
@store_option
@json_option
def purge(as_json: bool) -> None:
    """Delete the records that have expired.

    Engines do so by themselves, in the background; this does it at once.
    """
    with opened(looks=True) as engine:
        done = {"store": default_place() or engine.store.url, "purged": _purged(engine.store)}
    if as_json:
        write_json(done)
    else:
        write(f"{done['store']}: {done['purged']:,} expired records purged")


@command.command(epilog=example("mainstay store compact --store sqlite:///app.db"))
@store_option
@json_option
def compact(as_json: bool) -> None:
    """Purge, and shrink the file of a SQLite store.

    A file of an earlier version is rewritten as a whole. Meanwhile other processes can read it and
    not write to it; the folder needs room for two further copies of what the file holds.
    """
    with opened(looks=True) as engine:
        store: Any = engine.store
        done: dict[str, Any] = {
            "store": default_place() or store.url,
            "purged": _purged(store),
        }
        if hasattr(store, "compact") and store.path != ":memory:":
            done |= _compacted(store)
    if as_json:
        write_json(done)
    else:
        write(_summary(done))


@command.command(epilog=example("mainstay store identity --store sqlite:///app.db"))
@store_option
@json_option
def identity(as_json: bool) -> None:
    """Show the identity of the store.

    Signatures of operators are bound to it.
    """
    with opened(looks=True) as engine:
        _write_identity(engine.store.url, engine.operators.store_identity, as_json)


@command.command(
    "renew-identity",
    epilog=example("mainstay store renew-identity --as ann --store sqlite:///copy.db"),
)
@who_options
@store_option
@json_option
def renew_identity(
    as_json: bool, who: str | None, key_file: str | None, secret_file: str | None
) -> None:
    """Give a copy of a store an identity of its own.

    What operators signed for the original is then refused in the copy. A restored backup keeps its
    identity. While there is no operator, no --as is needed.
    """
    with opened() as engine:
        is_open = engine.operators.is_empty and not who
        proof = None if is_open else proof_of(who, key_file, secret_file)
        made = engine.operators.renew_identity(by=who or "", proof=proof)
        warn_if_short(proof)
        _write_identity(engine.store.url, made, as_json)


def _write_identity(url: str, identity: str, as_json: bool) -> None:
    if as_json:
        write_json({"store": url, "identity": identity})
    else:
        write(f"{url}: its identity is {identity}")


def _purged(store: Store) -> int:
    """Batch after batch, so that no other process waits for long."""
    watch, total = Watch("records", 0), 0
    try:
        while True:
            count = store.purge(_BATCH)
            total += count
            watch(total)
            if count < _BATCH and getattr(store, "is_swept", True):
                return total
    finally:
        watch.close()


def _compacted(store: Any) -> dict[str, int]:
    """The size of the file before and after, in bytes."""
    import os

    before, watch = _size(store.path), Watch("bytes", 0)

    def progress(done: int, total: int) -> None:
        watch.total = total
        watch(done)

    try:
        store.compact(progress)
    finally:
        watch.close()
    return {"before": before, "after": os.stat(store.path).st_size}  # noqa: PTH116  pathlib loads slowly


def _size(path: str) -> int:
    """The file, and its log, which `compact` empties."""
    import os

    files = (path, f"{path}-wal")
    return sum(os.stat(file).st_size for file in files if os.path.exists(file))  # noqa: PTH110, PTH116


def _summary(done: dict[str, Any]) -> str:
    purged = f"{done['store']}: {done['purged']:,} expired records purged"
    if "after" not in done:
        return f"{purged}; this store frees space by itself"
    return f"{purged}; {done['before']:,} bytes before, {done['after']:,} bytes now"
