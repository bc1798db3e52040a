"""Opens the outbox of a database by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.events.describe import usual_redactor
from mainstay.errors import StoreError
from mainstay.runtime.reports.known_secrets import know_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.ports import Store
    from mainstay.stores.outbox.expected import ExpectedDatabase
    from mainstay.stores.outbox.postgres import PostgresOutbox
    from mainstay.stores.outbox.sqlite import SqliteOutbox


def expected_database(url: str, identity: Callable[[], tuple[Any, ...]]) -> ExpectedDatabase | None:
    """What connections of callers must lead to; None if no relay of this engine could read there.

    A file of SQLite is not opened: the transaction of the caller may have its lock.
    """
    from mainstay.stores.outbox.expected import ExpectedDatabase

    scheme, shown = url.partition("://")[0], usual_redactor().text(url)
    if scheme in ("postgresql", "postgres"):
        return ExpectedDatabase("postgresql", shown, identity)
    if scheme != "sqlite":
        return None
    from mainstay.stores.sqlite.store import path_of

    path = path_of(url)
    is_file = path != ":memory:" and not path.startswith("file:")
    return ExpectedDatabase("sqlite", shown, lambda: (path,)) if is_file else None


def open_outbox(place: str | Store, *, creates: bool = True) -> PostgresOutbox | SqliteOutbox:
    """The outbox of a database, by its URL or that of a store.

    Its tables are created if they are missing and that is allowed.
    """
    url = place if isinstance(place, str) else place.url
    scheme = url.partition("://")[0]
    know_url(url)
    if scheme in ("postgresql", "postgres"):
        from mainstay.stores.outbox.postgres import PostgresOutbox

        address = getattr(place, "address", None)  # a store shows its URL without the password
        return PostgresOutbox(address or url, creates=creates)
    if scheme == "sqlite":
        from mainstay.stores.outbox.sqlite import SqliteOutbox

        return SqliteOutbox(url, creates=creates)
    raise StoreError(
        f"{usual_redactor().text(url)} cannot keep an outbox: it has no transactions that your own"
        " statements take part in",
        hint='Engine(outbox="postgresql://…") or Engine(outbox="sqlite:///app.db")',
    )
