"""Prints a list of what a store keeps, such as sagas and runs of pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.cli.inbox.identity import write_default_place
from mainstay.cli.screen.output import write, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol, TypeVar

    class View(Protocol):
        """What is listed."""

        def to_dict(self) -> dict[str, Any]: ...

    V = TypeVar("V", bound=View)


def print_list(
    found: Sequence[V],
    name: str,
    columns: tuple[str, ...],
    row: Callable[[V], Sequence[str]],
    *,
    as_json: bool,
) -> None:
    """A table with a row for each, the columns of which are text; or JSON."""
    if as_json:
        write_json([each.to_dict() for each in found])
        return
    write_default_place()
    if not found:
        write(f"there is no {name}")
        return
    from mainstay.cli.screen.console import Screen, table

    Screen().show(table(columns, [row(each) for each in found], left=len(columns)))
