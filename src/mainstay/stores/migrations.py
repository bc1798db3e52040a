"""Schema changes as .sql files, applied in order and once, under the database's own lock."""

from __future__ import annotations

from mainstay.errors import StoreError
from mainstay.stores.package_files import read_texts


def scripts(dialect: str) -> dict[int, str]:
    """The scripts of a dialect by version: `sql/<dialect>/0001_kept.sql` is version 1."""
    found = read_texts(f"mainstay.stores.{dialect}", "sql")
    return {int(name.partition("_")[0]): found[name] for name in sorted(found)}


def pending(dialect: str, version: int, url: str) -> dict[int, str]:
    """What is still to be applied to a database of that version; refuses one that is newer."""
    known = scripts(dialect)
    newest = max(known)
    if version > newest:
        raise StoreError(
            f"{url} has schema version {version}, and this mainstay knows up to {newest}",
            hint="upgrade mainstay, or use another database",
        )
    return {number: script for number, script in known.items() if number > version}


def statements(script: str) -> list[str]:
    """The statements of a script; none of ours has a semicolon inside."""
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]
