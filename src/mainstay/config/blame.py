"""What the core refuses, reported with the line in the file that has the value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.config.check import locate
from mainstay.config.shapes import camel
from mainstay.config.tree import Node
from mainstay.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from mainstay.config.report import Path, Report
    from mainstay.config.shapes import Shape
    from mainstay.errors import Problem

    T = TypeVar("T")


def _item(node: Node, path: Path, value: object) -> tuple[Node, Path]:
    """The item of a list that has the wrong value; the node itself if it is no list."""
    if type(node.value) is list:
        for number, item in enumerate(node.value):
            if item.value == value:
                return item, (*path, number)
    return node, path


class ConfigMapping:
    """A mapping in the tree, with its shape and its path."""

    def __init__(self, shape: Shape, node: Node, path: Path, report: Report) -> None:
        self.shape, self.node, self.path, self.report = shape, node, path, report

    def at(self, *names: str) -> tuple[Node, Path, bool]:
        """The node of a field below, its path, and whether it is there."""
        node, keys = locate(self.shape, self.node, names)
        return node, (*self.path, *keys), len(keys) == len(names)

    def below(self, shape: Shape, *names: str) -> ConfigMapping:
        """A mapping below."""
        node, path, _ = self.at(*names)
        return ConfigMapping(shape, node, path, self.report)

    def wrong(self, names: tuple[str, ...], value: object, allowed: str, near: str = "") -> None:
        """A field with a wrong value; if it is not given, the problem is the mapping's."""
        node, path, is_there = self.at(*names)
        if is_there:
            self.report.wrong(*_item(node, path, value), allowed, near)
            return
        missing = names[len(path) - len(self.path) :]
        stand_in = Node(value, node.line, node.source, shown=node.shown)
        self.report.wrong(stand_in, (*path, *map(camel, missing)), allowed, near)

    def problem(self, names: tuple[str, ...], text: str, near: str = "") -> None:
        """Anything else that is wrong with a field."""
        node, path, _ = self.at(*names)
        self.report.problem(node, path, text, nearest=near)

    def build(
        self,
        make: Callable[[], T],
        fields: Mapping[str, tuple[tuple[str, ...], ...]] | None = None,
    ) -> T | None:
        """What `make` makes; what it refuses is reported under the keys that were used.

        `fields` has the names under which a field of the core may be given here.
        """
        try:
            return make()
        except PolicyError as error:
            for problem in error.problems:
                if "," in problem.field:
                    self._together(problem)
                    continue
                names = self._names(problem.field, fields or {})
                self.wrong(names, problem.value, problem.allowed)
        return None

    def _together(self, problem: Problem) -> None:
        """Fields that are right alone and wrong together, reported at the first that is given."""
        names = problem.field.split(", ")
        first = next((name for name in names if self.at(name)[2]), names[0])
        self.problem((first,), f"{' and '.join(map(camel, names))} must be {problem.allowed}")

    def _names(
        self, field: str, fields: Mapping[str, tuple[tuple[str, ...], ...]]
    ) -> tuple[str, ...]:
        first = field.partition("[")[0]
        usual = tuple(first.split("."))
        for names in (*fields.get(first, ()), usual):
            if self.at(*names)[2]:
                return names
        return fields.get(first, (usual,))[0]
