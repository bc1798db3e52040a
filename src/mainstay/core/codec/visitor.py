"""The walk through a value that `canonical` and `recorder` share: place, depth and cycles.

A subclass says in `encode` what becomes of each value, and in `verdict` and `hint` what a refusal
tells. The walk knows the way to the value at hand, so that the message can name it.
"""

from __future__ import annotations

from mainstay.core.codec.introspect import a_type
from mainstay.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

MAX_DEPTH = 100
"""Deeper nesting is a mistake or an attack; it also keeps a walk within Python's own stack."""

LEAST, MOST = -(2**63), 2**64 - 1
"""The integers that a JSON reader of 64 bits takes; others are written apart."""

ROOT = ("", None)
ITEM = "[{}]"
FIELD = ".{}"
MEMBER = "{{{}}}"
"""Steps of a walk: `[0]` or `['name']`, `.name`, `{a Point}` for members of sets and keys."""


class Walk:
    """Goes through a value and knows where it is: for messages, and against cycles."""

    __slots__ = ("steps", "within")

    root = ""
    verdict: str
    hint: str

    def __init__(self) -> None:
        self.steps: list[tuple[str, object]] = []
        self.within: set[int] = set()

    def visit(self, step: tuple[str, object], value: Any) -> Any:
        """What `encode` makes of a value one step further in."""
        self.steps.append(step)
        if len(self.steps) > MAX_DEPTH + 1:
            self.refuse(f"nested more than {MAX_DEPTH} deep, it {self.verdict}")
        if id(value) in self.within:
            self.refuse(f"it holds itself, so it {self.verdict}")
        encoded = self.encode(value)
        self.steps.pop()
        return encoded

    if TYPE_CHECKING:

        def encode(self, value: Any) -> Any: ...

    def inside(self, value: object, encoder: Callable[[Any, Any], Any]) -> Any:
        """What an encoder makes of a container, which must not turn up inside itself."""
        self.within.add(id(value))
        encoded = encoder(self, value)
        self.within.discard(id(value))
        return encoded

    def items(self, values: Iterable[object]) -> list[Any]:
        return [self.visit((ITEM, n), value) for n, value in enumerate(values)]

    def members(self, values: Iterable[object]) -> list[Any]:
        return [self.visit((MEMBER, value), value) for value in values]

    def fields(self, value: object, names: Iterable[str]) -> dict[str, Any]:
        return {name: self.visit((FIELD, name), self.field(value, name)) for name in names}

    def field(self, value: object, name: str) -> object:
        try:
            return getattr(value, name)
        except AttributeError:
            self.refuse(f"{a_type(type(value))} whose field {name} is not set {self.verdict}")

    def refuse(self, why: str) -> NoReturn:
        raise UsageError(f"{self.path()}: {why}", hint=self.hint)

    def path(self) -> str:
        """Where the walk is, `order.items[2].lock`; a dict at the root names the arguments."""
        root, steps = self.root, self.steps[1:]
        if not root and steps and isinstance(steps[0][1], str) and steps[0][0] == ITEM:
            root, steps = steps[0][1], steps[1:]
        return (root or "value") + "".join(form.format(_shown(form, at)) for form, at in steps)


def _shown(form: str, at: object) -> str:
    if form == FIELD or type(at) is int:
        return str(at)
    return repr(at) if type(at) is str else a_type(type(at))


def refused(walk: Walk, value: object) -> NoReturn:
    """The encoder of a class that has none."""
    walk.refuse(f"{a_type(type(value))} {walk.verdict}")
