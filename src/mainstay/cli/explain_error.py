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
@click.option("--code", help="The error code that it carries, or the errno of an OSError.")
@json_option
def command(name: str, status: int | None, code: str | None, as_json: bool) -> None:
    """Show whether an exception class is retried, and why."""
    table, lines = _found(name, status, code)
    if as_json:
        case = code if code is not None or status is None else str(status)
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


def _found(name: str, status: int | None, code: str | None) -> tuple[str, list[Line]]:
    """The table that knows the class, empty if none does, and the rows that apply."""
    import mainstay.integrations.errors  # noqa: F401 -- tables are found by it
    from mainstay.core.known.listing import lines_of, lines_of_carried
    from mainstay.core.known.registry import REGISTRY

    found = REGISTRY.entry_named(name)
    cls = _loaded(name) if found is None else None
    if cls is not None:
        found = REGISTRY.entry_of(cls)
    if found is None:
        return "", _by_type(name, cls, status, code)
    table, owner, entry = found
    ancestor = "" if owner == name else owner
    if status is None and code is None:
        return table.library, list(lines_of(name, entry, ancestor))
    return table.library, lines_of_carried(name, entry, ancestor, status, code)


def _loaded(name: str) -> type[BaseException] | None:
    """The class, if its library is installed: of a class without an entry the ancestors count."""
    from importlib import import_module

    module, _, short = name.rpartition(".")
    try:
        found = getattr(import_module(module or "builtins"), short, None)
    except Exception:  # whatever a module does when it is imported
        return None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _by_type(
    name: str, cls: type[BaseException] | None, status: int | None, code: str | None
) -> list[Line]:
    """Of a class without a table: its type, its status, or the errno of an OSError."""
    from mainstay.core.known.listing import Line
    from mainstay.core.retry.kinds import ERRNOS, is_decided_by_errno

    if cls is None:
        near = _nearest(name)
        meant = f"; did you mean {near}?" if near else ""
        raise CommandError(
            f"no exception class is named {name!r}, in a table or in a module that is"
            f" installed{meant}",
            hint="write the name as a traceback does, such as httpx.ReadTimeout; for a library"
            " without a table, install it where mainstay runs",
        )
    if issubclass(cls, BaseExceptionGroup):
        return [Line(name, "", None)]
    if status is not None or not is_decided_by_errno(cls):
        return [_judged(name, "" if status is None else f"status {status}", _made(cls, status))]
    if code is not None:
        number = _errno(code)
        return [_judged(name, f"errno {code}", _made(cls, errno=number))]
    numbered = [_judged(name, f"errno {each}", _made(cls, errno=ERRNOS[each])) for each in ERRNOS]
    return [*numbered, _judged(name, "otherwise", _made(cls))]


def _made(
    cls: type[BaseException], status: int | None = None, errno: int | None = None
) -> BaseException:
    """One of the class, as a library that raises it would have made it."""
    if cls is OSError and errno is not None:
        return OSError(errno, "")  # of the class that Python has for the number
    failure: Any = cls.__new__(cls)
    if status is not None:
        failure.status_code = status
    if errno is not None:
        failure.errno = errno
    return failure  # type: ignore[no-any-return]  # Any, for what it is given


def _errno(code: str) -> int:
    import errno

    number = int(code) if code.isdecimal() else getattr(errno, code, None)
    if not isinstance(number, int):
        raise CommandError(
            f"--code {code}: this system has no errno of that name",
            hint="the errno of an OSError decides, such as --code EHOSTUNREACH or --code 113",
        )
    return number


def _judged(name: str, case: str, failure: BaseException) -> Line:
    """What a policy without rules makes of a failure."""
    from mainstay.core.known.listing import Line
    from mainstay.core.known.table import Row
    from mainstay.core.retry.classify import Rules, classify

    found = classify(failure, Rules())
    return Line(name, case, Row(found.kind, found.reason, ambiguous=found.is_ambiguous))


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
    if line.is_retried is None:
        retried = "as that"
    carried = "the request may have been carried out" if line.is_ambiguous else "no"
    known = f"the table of {table}" if table else "what it carries" if line.case else "its type"
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
