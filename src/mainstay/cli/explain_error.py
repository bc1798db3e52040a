"""`mainstay explain-error`: what is known of an exception class, and whether it is retried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.errors import CommandError
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import write_json

if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.known.listing import Line

MAX_SHOWN = 30
"""Cases in a table; JSON has all of them."""


@click.command(
    "explain-error",
    epilog=example(
        "mainstay explain-error httpx.ReadTimeout",
        "mainstay explain-error httpx.HTTPStatusError --status 404",
        "mainstay explain-error botocore.exceptions.ClientError --code SlowDown",
    ),
)
@click.argument("name", metavar="MODULE.CLASS")
@click.option("--status", type=click.IntRange(100, 599), help="The HTTP status that it carries.")
@click.option("--code", help="The error code that it carries.")
@json_option
def command(name: str, status: int | None, code: str | None, as_json: bool) -> None:
    """Show whether an exception class is retried, and why."""
    case = code if status is None else str(status)
    table, lines = _found(name, case)
    if as_json:
        write_json({"name": name, "table": table, "case": case, "rows": list(map(_plain, lines))})
        return
    from mainstay.cli.screen.console import Screen, fields
    from mainstay.cli.screen.console import table as columns

    screen = Screen()
    if len(lines) == 1:
        screen.show(fields(_fields(name, table, lines[0])))
        return
    shown = [_row(line) for line in lines[:MAX_SHOWN]]
    screen.show(columns(("case", "kind", "retried", "ambiguous", "why"), shown, left=5))
    if len(lines) > MAX_SHOWN:
        more = f"{len(lines) - MAX_SHOWN} more; --json has all, --status or --code chooses one"
        screen.show(more)


def _found(name: str, case: str | None) -> tuple[str, list[Line]]:
    """The table that knows the class, empty if none does, and the rows that apply."""
    import mainstay.integrations.errors  # noqa: F401 -- tables are found by it
    from mainstay.core.known.listing import Line, lines_of
    from mainstay.core.known.registry import REGISTRY
    from mainstay.core.known.table import Cases

    found = REGISTRY.entry_named(name)
    cls = _loaded(name) if found is None else None
    if cls is not None:
        found = REGISTRY.entry_of(cls)
    if found is None:
        return "", [_by_type(name, cls, case)]
    table, owner, entry = found
    ancestor = "" if owner == name else owner
    if case is not None:
        while isinstance(entry, Cases):
            row = entry.of_case(case)
            if row is not None:
                return table.library, [Line(name, f"{entry.of} {case}", row, ancestor)]
            entry = entry.otherwise
    return table.library, list(lines_of(name, entry, ancestor))


def _loaded(name: str) -> type[BaseException] | None:
    """The class, if its library is installed: of a class without an entry the ancestors count."""
    from importlib import import_module

    module, _, short = name.rpartition(".")
    try:
        found = getattr(import_module(module or "builtins"), short, None)
    except Exception:  # whatever a module does when it is imported
        return None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _by_type(name: str, cls: type[BaseException] | None, case: str | None) -> Line:
    from mainstay.core.known.listing import Line
    from mainstay.core.known.table import Row
    from mainstay.core.retry.kinds import kind_of

    if cls is None:
        near = _nearest(name)
        meant = f"; did you mean {near}?" if near else ""
        raise CommandError(
            f"no exception class is named {name!r}, in a table or in a module that is"
            f" installed{meant}",
            hint="write the name as a traceback does, such as httpx.ReadTimeout; for a library"
            " without a table, install it where mainstay runs",
        )
    failure: Any = cls.__new__(cls)
    if case is not None and case.isdigit():
        failure.status_code = int(case)
    known = kind_of(failure)
    return Line(name, "", Row(known.kind, known.reason, ambiguous=known.is_ambiguous))


def _nearest(name: str) -> str:
    """The class that was most likely meant: one of its library's tables, or of Python's own."""
    import builtins

    from mainstay.config.report import nearest
    from mainstay.core.known.registry import REGISTRY

    known = [each for table in REGISTRY.tables(name) for each in table.entries]
    return nearest(name, known or [each for each in vars(builtins) if _loaded(each)])


def _plain(line: Line) -> dict[str, object]:
    return {
        "case": line.case,
        "kind": line.kind,
        "retried": line.is_retried,
        "ambiguous": line.is_ambiguous,
        "why": line.why,
        "ancestor": line.ancestor,
    }


def _row(line: Line) -> tuple[str, ...]:
    return (line.case, line.kind, _yes(line.is_retried), _yes(line.is_ambiguous), line.why)


def _yes(answer: bool | None) -> str:
    return {True: "yes", False: "no", None: "-"}[answer]


_REPEATED = "yes, by a policy without on= and by on=mainstay.transient"
_UNSAFE = "; not a POST or PATCH without an Idempotency-Key"


def _fields(name: str, table: str, line: Line) -> list[tuple[str, str]]:
    retried = f"{_REPEATED}{_UNSAFE if line.is_ambiguous else ''}" if line.is_retried else "no"
    carried = "the request may have been carried out" if line.is_ambiguous else "no"
    known = f"the table of {table}" if table else "its type"
    if line.ancestor:
        known += f", by its ancestor {line.ancestor}"
    return [
        ("error", f"{name} {line.case}".strip()),
        ("kind", line.kind),
        ("retried", retried),
        ("ambiguous", carried),
        ("why", line.why),
        ("known by", known),
    ]
