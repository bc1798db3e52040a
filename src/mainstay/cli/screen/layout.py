"""Tables and lists of names and values that never break an id or a state over two lines.

A table that is too wide for the screen gets headings in several lines; if that is not enough, each
row becomes a list. Only free text is wrapped. In a list a value that is longer than the screen is
written whole, so that it can be copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult

FREE = frozenset(["what", "why", "what happened", "with", "delays", "backoff", "to install it"])
"""Columns of free text: they may be wrapped."""
WHOLE = frozenset(["item", "circuit", "state", "store", "status", "log"])
"""Names whose values are ids and states: they are not wrapped."""
_LEAST = 16
"""Characters of a column of free text, if there are as many."""
_WIDE = 100_000
_GAP = "  "


class Rows:
    """A table of which the first `left` columns are text and the others numbers."""

    def __init__(
        self, columns: Sequence[str], rows: Sequence[Sequence[RenderableType]], left: int
    ) -> None:
        self.columns = columns
        self.rows = rows
        self._left = left

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unbounded = options.update(max_width=_WIDE)
        for breaks in (False, True):
            made = self._table(breaks)
            if Measurement.get(console, unbounded, made).minimum <= options.max_width:
                yield made
                return
        width = max(map(cell_len, self.columns))
        for number, row in enumerate(self.rows):
            if number:
                yield Text("")
            for name, value in zip(self.columns, row, strict=True):
                if str(value):
                    yield from _named(name, value, width, console, is_free=name in FREE)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._table(breaks=True))

    def _table(self, breaks: bool) -> Table:
        """The table; with `breaks` each word of a heading has a line."""
        made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        for number, column in enumerate(self.columns):
            side: JustifyMethod = "left" if number < self._left else "right"
            heading = column.replace(" ", "\n") if breaks else column
            widest = max(_width(heading), *(_width(row[number]) for row in self.rows), 1)
            is_free = column in FREE
            made.add_column(
                heading,
                justify=side,
                overflow="fold",
                no_wrap=not is_free,
                min_width=min(widest, _LEAST) if is_free else widest,
            )
        for row in self.rows:
            made.add_row(*row)
        return made


class Fields:
    """Names and values, without a frame."""

    def __init__(self, rows: Sequence[tuple[str, RenderableType]]) -> None:
        self.rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max((_width(name) for name, _ in self.rows), default=0)
        longest = max((_longest_part(name, value) for name, value in self.rows), default=0)
        if width + len(_GAP) + longest <= options.max_width:
            yield self._grid()
            return
        for name, value in self.rows:
            yield from _named(name, value, width, console, is_free=name not in WHOLE)

    def _grid(self) -> Table:
        made = Table.grid(padding=(0, len(_GAP)))
        made.add_column(style="dim", no_wrap=True)
        made.add_column(overflow="fold")
        for row in self.rows:
            made.add_row(*row)
        return made


def _named(
    name: str, value: RenderableType, width: int, console: Console, *, is_free: bool
) -> Iterator[Text]:
    """A name and its value, beside each other if there is room; otherwise one below the other."""
    content = value if isinstance(value, Text) else Text(str(value))
    room = console.width - width - len(_GAP)
    is_beside = room >= _LEAST
    heading = Text(name, "dim")
    if not is_beside:
        yield _whole(heading)
        room, width = console.width - len(_GAP), 0
    indent = " " * width
    lines = list(_wrapped(content, room)) if is_free else [content]
    for number, line in enumerate(lines):
        is_first = is_beside and not number
        start = Text.assemble(heading, " " * (width - heading.cell_len)) if is_first else indent
        yield _whole(Text.assemble(start, _GAP, line))


def _wrapped(content: Text, width: int) -> Iterator[Text]:
    """The text in lines of whole words; a word that is longer than a line has one of its own."""
    for part in content.split("\n"):
        line = Text()
        for word in part.split(" "):
            if line and line.cell_len + 1 + word.cell_len > width:
                yield line
                line = Text()
            line = Text.assemble(line, " ", word) if line else word
        yield line


def _whole(text: Text) -> Text:
    """A line that is neither wrapped nor cut."""
    text.no_wrap, text.overflow = True, "ignore"
    text.rstrip()
    return text


def _width(cell: RenderableType) -> int:
    return max(map(cell_len, str(cell).splitlines()), default=0)


def _longest_part(name: str, value: RenderableType) -> int:
    return _width(value) if name in WHOLE else max(map(cell_len, str(value).split()), default=0)
