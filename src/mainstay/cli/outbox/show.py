"""How entries are shown, and which database they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainstay.cli.inbox.identity import is_store_named
from mainstay.cli.options import configured
from mainstay.cli.screen.output import shielded

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.outbox.entry import Entry

F = TypeVar("F", bound="Callable[..., Any]")
_OUTBOX = "mainstay.cli.outbox"


def outbox_option(function: F) -> F:
    """Adds `--outbox`, for outbox_url(); on a group for what is inside."""
    add = click.option(
        "--outbox", metavar="URL", callback=_remember, expose_value=False,
        help="The database of the outbox, if it is not the store's.",
    )  # fmt: skip
    return add(function)


def _remember(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value:
        ctx.meta[_OUTBOX] = value
    return value


def outbox_url() -> str | None:
    """The database that was named; that of the configuration, if no store is named either.

    None for the store's.
    """
    found: str | None = click.get_current_context().meta.get(_OUTBOX)
    if found is None and not is_store_named():
        found = configured().outbox.get("url")
    return found


def when(at: float | None) -> str:
    """A time as text."""
    from mainstay.core.base.timestamps import stamp

    return "" if at is None else stamp(at)


def row(entry: Entry) -> tuple[str, ...]:
    """The cells of a table."""
    message = entry.message
    about = f"{message.aggregate_type} {message.aggregate_id}".strip()
    return (
        shielded(entry.id), entry.state, shielded(message.topic), shielded(about),
        when(entry.created_at), str(entry.attempts),
    )  # fmt: skip


def plain(entry: Entry) -> dict[str, Any]:
    """The entry as data, without its payload, which may hold anything."""
    import msgspec

    message = entry.message
    return {
        "id": entry.id,
        "state": entry.state,
        "phase": entry.phase.value,
        "topic": message.topic,
        "aggregate_type": message.aggregate_type,
        "aggregate_id": message.aggregate_id,
        "event_type": message.type or message.topic,
        "attributes": message.attributes,
        "payload_bytes": len(message.payload),
        "created_at": when(entry.created_at),
        "published_at": when(entry.published_at) or None,
        "next_at": when(entry.next_at) or None,
        "attempts": entry.attempts,
        "retry_count": entry.retry_count,
        "crashes": entry.crashes,
        "is_replay": message.is_replay,
        "history": msgspec.to_builtins(entry.history),
    }
