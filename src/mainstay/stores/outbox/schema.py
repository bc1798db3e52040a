"""The schema of the outbox: its scripts by version, for us and for migrations of other tools."""

from __future__ import annotations

import re
import sqlite3

from mainstay.errors import StoreError
from mainstay.stores.package_files import read_texts

DIALECTS = ("postgresql", "sqlite")
_OLDEST = 1
"""The version with which this mainstay works, if it must not change the tables: what is newer
guards more, and leaves every statement as it was."""


def scripts(dialect: str) -> dict[int, str]:
    """The scripts of a dialect by version; each sets the version when it has been applied.

    >>> sorted(scripts("sqlite"))[0]
    1
    """
    if dialect not in DIALECTS:
        raise StoreError(
            f"there is no outbox for {dialect!r}", hint=f"dialects: {', '.join(DIALECTS)}"
        )
    found = read_texts("mainstay.stores.outbox", "sql", dialect)
    return {int(name.partition("_")[0]): found[name] for name in sorted(found)}


def newest(dialect: str) -> int:
    """The version that this mainstay brings.

    >>> newest("sqlite") <= newest("postgresql")
    True
    """
    return max(scripts(dialect))


def pending(dialect: str, version: int, url: str) -> dict[int, str]:
    """What is still to be applied to a database of that version; refuses one that is newer."""
    known = scripts(dialect)
    if version > max(known):
        raise StoreError(
            f"{url} has version {version} of the outbox, and this mainstay knows up to"
            f" {max(known)}",
            hint="upgrade mainstay",
        )
    return {number: script for number, script in known.items() if number > version}


def check(dialect: str, version: int, url: str) -> None:
    """Refuses a database whose tables are too old or too new, if we must not change them."""
    if pending(dialect, version, url) and version < _OLDEST:
        raise StoreError(
            f"{url} has version {version} of the outbox, and this mainstay needs {newest(dialect)}",
            hint=f"apply the output of `mainstay outbox schema --dialect {dialect}"
            f" --after {version}` to it",
        )


def exported(dialect: str, after: int = 0) -> str:
    """The schema as one script for a migration, from a version on.

    >>> exported("sqlite").splitlines()[0]
    '-- The outbox of mainstay: messages that were added in a transaction, for a relay to publish.'
    """
    return "\n".join(script for number, script in scripts(dialect).items() if number > after)


def statements(dialect: str, script: str) -> list[str]:
    """The statements of a script; the body of a function or trigger is part of its statement.

    >>> statements("sqlite", "SELECT 1; SELECT 2;")
    ['SELECT 1', 'SELECT 2']
    """
    plain = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("--"))
    if dialect == "sqlite":
        return _of_sqlite(plain)
    parts = re.split(r"(\$\$.*?\$\$)|;", plain, flags=re.DOTALL)
    found, current = [], ""
    for index, part in enumerate(parts):
        if index % 2 == 0 or part is not None:
            current += part
        else:
            found.append(current.strip())
            current = ""
    return [each for each in [*found, current.strip()] if each]


def _of_sqlite(script: str) -> list[str]:
    found, current = [], ""
    for part in re.split("(;)", script):
        current += part
        if part == ";" and sqlite3.complete_statement(current):
            found.append(current.strip().removesuffix(";"))
            current = ""
    return [each for each in found if each]


def missing(url: str, dialect: str, error: BaseException | None = None) -> StoreError:
    """The error for a database without the tables, with the command that prints them."""
    reason = f" ({' '.join(str(error).split())})" if error is not None else ""
    return StoreError(
        f"{url} has no table mainstay_outbox{reason}",
        hint=f"apply the output of `mainstay outbox schema --dialect {dialect}` to it, in a"
        " migration of your own or as a role that may create tables",
    )
