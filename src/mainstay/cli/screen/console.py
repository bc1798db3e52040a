"""Tables and live displays, for people. Imports rich, and is itself imported when used."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from mainstay.cli.screen.layout import Fields, Rows
from mainstay.cli.screen.output import shielded_lines, shown, write
from mainstay.core.redact.redactor import REDACTOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from rich.console import RenderableType

__all__ = ["Screen", "fields", "table"]

PIPE_WIDTH = 160
"""In a pipe a table is as wide as its contents, not as the 80 columns rich assumes."""


class Screen(Console):
    """stdout for a person: colours unless NO_COLOR, live if it is a terminal."""

    def __init__(self) -> None:
        plain = bool(os.environ.get("NO_COLOR"))
        # rich's own no_color keeps bold and dim; without a colour system nothing is styled.
        super().__init__(highlight=False, markup=False, color_system=None if plain else "auto")
        if not self.is_terminal and not os.environ.get("COLUMNS"):
            self.width = PIPE_WIDTH

    @property
    def is_live(self) -> bool:
        """Whether what was written can be written over."""
        return self.is_terminal and not self.is_dumb_terminal and sys.stdout.isatty()

    def print(self, *objects: Any, **options: Any) -> None:
        """Prints texts without secrets; a table's are taken out where it is made."""
        visible = [shown(each) if isinstance(each, str) else each for each in objects]
        super().print(*visible, **{"crop": False, **options})

    def show(self, *renderables: RenderableType) -> None:
        """Prints each; without the spaces that rich puts at the end of lines, in a pipe."""
        for renderable in renderables:
            if self.is_terminal:
                self.print(renderable)
                continue
            with self.capture() as capture:
                self.print(renderable)
            write("\n".join(line.rstrip() for line in capture.get().splitlines()))

    def on_broken_pipe(self) -> None:
        """Left to cli/guard.py; rich itself would exit with 1."""
        raise  # noqa: PLE0704  called by rich while it handles the BrokenPipeError


def table(
    columns: Sequence[str], rows: Iterable[Sequence[RenderableType]], *, left: int = 1
) -> Rows:
    """A table of which the first `left` columns are text and the others numbers."""
    cells = [[shown(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    return Rows(columns, cells, left)


def fields(rows: Iterable[tuple[str, RenderableType]]) -> Fields:
    """Names and values, without a frame."""
    return Fields([_pair(*REDACTOR.data(row)) for row in rows])


def _pair(name: str, value: RenderableType) -> tuple[str, RenderableType]:
    """A name and its value, without what a terminal obeys."""
    return shielded_lines(name), shielded_lines(value) if isinstance(value, str) else value
