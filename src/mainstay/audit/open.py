"""Opens the journal of an audit log: a URL, a path, a store with one, or a Journal."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstay.errors import StoreError, UsageError
from mainstay.runtime.fork import load_before_fork
from mainstay.runtime.private_files import open_regular
from mainstay.runtime.reports.known_secrets import know_url

if TYPE_CHECKING:
    from typing import TypeAlias

    from mainstay.ports import Journal, Store

    Where: TypeAlias = "str | os.PathLike[str] | Journal | Store"

_HINT = "sqlite:///audit.db, postgresql://…, or the path of a .jsonl file"
_MAGIC = b"SQLite format 3\x00"


def open_journal(
    where: Where, *, reads_only: bool = False, durable: bool = False, rotate: int | None = None
) -> Journal:
    """The journal of a log.

    Args:
        where: a URL, a path, a store or a Journal.
        reads_only: whether nothing may be changed there, or made.
        durable: whether each block outlives a power cut, not only a kill.
        rotate: bytes after which another file is begun.
    """
    if not isinstance(where, str | os.PathLike):
        return _journal_of(where, durable)
    url = os.fspath(where)
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme in ("postgresql", "postgres"):
        from mainstay.stores.postgres.store import PostgresStore

        return PostgresStore(url).journal(closes=True)
    if scheme == "sqlite" or (not scheme and _is_sqlite(url)):
        return _in_sqlite(url if scheme else f"sqlite:///{url}", reads_only, durable)
    if scheme:
        raise StoreError(f"no audit log can be at {scheme}://", hint=_HINT)
    from mainstay.stores.jsonl.journal import JsonlJournal

    return JsonlJournal(url, rotate=rotate, syncs=durable, reads_only=reads_only)


def _journal_of(where: Any, durable: bool) -> Journal:
    """A journal as it is, or that of a store."""
    _check_object(where)
    if not hasattr(where, "abilities"):
        return where  # type: ignore[no-any-return]
    return where.journal(synchronous="FULL" if durable else "NORMAL")  # type: ignore[no-any-return]


def _check_object(where: Any) -> None:
    abilities = getattr(where, "abilities", None)
    if abilities is None and not (hasattr(where, "append") and hasattr(where, "blocks")):
        raise UsageError(f"{where!r} is no place for an audit log", hint=_HINT)
    if abilities is not None and "audit" not in abilities:
        raise StoreError(f"{where.url} cannot keep an audit log", hint=_HINT)


def _in_sqlite(url: str, reads_only: bool, durable: bool) -> Journal:
    from mainstay.stores.sqlite.store import SqliteStore, path_of

    if reads_only:
        from mainstay.stores.sqlite.journal import SqliteJournal

        path = path_of(url)
        if not Path(path).exists():
            raise StoreError(f"there is no audit log at {path}")
        return SqliteJournal(path, reads_only=True)
    return SqliteStore(url).journal(closes=True, synchronous="FULL" if durable else "NORMAL")


def load(where: Where) -> None:
    """Imports what the journal needs, so that a library that is missing is an error at once.

    What SQLite's needs is loaded with the first block: most processes write none. A fork during
    that import would leave half a module to the child, so it is loaded before a fork.
    """
    url = os.fspath(where) if isinstance(where, str | os.PathLike) else where.url
    scheme = url.partition(":")[0]
    know_url(url)
    if scheme in ("postgresql", "postgres"):
        import_module("mainstay.stores.postgres.journal")
    elif scheme == "sqlite" or _is_sqlite(url):
        import_module("mainstay.stores.sqlite.store")
        load_before_fork("mainstay.stores.sqlite.journal")
    else:
        import_module("mainstay.stores.jsonl.journal")


def _is_sqlite(path: str) -> bool:
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def identity_of(where: Where) -> str:
    """The name of a log, the same from every folder and without secrets.

    Raises if it is already known that no log can be there.
    """
    if not isinstance(where, str | os.PathLike):
        _check_object(where)
        return _absolute(where.url)
    url = os.fspath(where)
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme in ("postgresql", "postgres"):
        from mainstay.stores.postgres import store as postgres  # checks that psycopg is there
        from mainstay.stores.postgres.url import PostgresUrl

        assert postgres is not None
        return PostgresUrl(url).shown
    if scheme not in ("", "sqlite"):
        raise StoreError(f"no audit log can be at {scheme}://", hint=_HINT)
    path = Path(_absolute(url))
    if path.name == ":memory:" or not path.parent.is_dir():
        raise StoreError(f"no audit log can be at {url}: {path.parent} is no folder", hint=_HINT)
    return str(path)


def _absolute(url: str) -> str:
    """The path of a file, the same from every folder; another URL as it is."""
    if url.startswith("sqlite:"):
        from mainstay.stores.sqlite.store import path_of

        url = path_of(url)
    return url if "://" in url else str(Path(url).absolute())
