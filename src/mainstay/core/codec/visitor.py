"""The walk through a value that `canonical` and `encode` share: path, depth, cycles, dispatch.

Which encoder a value gets is decided here, once. A subclass has the encoders in tables, and in
`verdict` and `hint` the words of a refusal. The walk keeps the path to the value at hand, so that
a message can name it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from mainstay.core.codec.introspect import a_type, mro_of, record_kind, static
from mainstay.core.known.kind import qualified_name
from mainstay.errors import UsageError

Form = TypeVar("Form")
"""What a walk makes of a value: canonical text, or JSON data."""

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import NoReturn, TypeAlias

    from mainstay.core.base.types import UserValue
    from mainstay.core.codec.introspect import RecordKind

    Encode: TypeAlias = Callable[["Walk[Form]", UserValue], Form]

MAX_DEPTH = 100
"""Deeper nesting is a mistake or an attack; it also keeps a walk within Python's own stack."""

LEAST, MOST = -(2**63), 2**64 - 1
"""The integers that a JSON reader of 64 bits takes; others are written apart."""

ROOT = ("", None)
ITEM = "[{}]"
FIELD = ".{}"
MEMBER = "{{{}}}"
"""Parts of a path: `[0]` or `['name']`, `.name`, `{a Point}` for members of sets and keys."""


class Walk(Generic[Form]):
    """Goes through a value, keeps the path to where it is, and refuses cycles.

    The tables of a subclass: `scalars` hold nothing, so that no cycle goes through them;
    `containers` do; `named` are classes that the core does not import; `records` have fields.
    """

    __slots__ = ("steps", "within")

    root = ""
    verdict: str
    hint: str
    scalars: Mapping[type, Encode[Form]]
    containers: Mapping[type, Encode[Form]]
    named: Mapping[str, Encode[Form]]
    records: Mapping[RecordKind, Encode[Form]]
    methods: Mapping[str, Encode[Form]] = {}
    """Encoders of classes that have a method of this name, whatever else they are."""
    by_base = False
    """Whether an instance of a subclass is encoded as its base is."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, object]] = []
        self.within: set[int] = set()

    def visit(self, step: tuple[str, object], value: object) -> Form:
        """What becomes of a value one step further in."""
        self.steps.append(step)
        if len(self.steps) > MAX_DEPTH + 1:
            self.refuse(f"nested more than {MAX_DEPTH} deep, it {self.verdict}")
        cls = type(value)
        scalar = self.scalars.get(cls)
        encoded = scalar(self, value) if scalar is not None else self._inside(cls, value)
        self.steps.pop()
        return encoded

    def _inside(self, cls: type, value: object) -> Form:
        """What becomes of a value that holds others, and must not turn up inside itself."""
        if id(value) in self.within:
            self.refuse(f"it holds itself, so it {self.verdict}")
        self.within.add(id(value))
        encoded = self.encoder_of(cls)(self, value)
        self.within.discard(id(value))
        return encoded

    def encoder_of(self, cls: type) -> Encode[Form]:
        """By the class itself, its own method, the kind of record that it is, or a base of it."""
        found = self._exact(cls)
        if found is not None:
            return found
        for method, encode in self.methods.items():
            if static(cls, method) is not None:
                return encode
        kind = record_kind(cls)
        if kind is not None:
            return self.records[kind]
        for base in mro_of(cls)[1:] if self.by_base else ():
            found = self.scalars.get(base) or self._exact(base)
            if found is not None:
                return found
        return refused

    def _exact(self, cls: type) -> Encode[Form] | None:
        return self.containers.get(cls) or self.named.get(qualified_name(cls))

    def items(self, values: Iterable[object]) -> list[Form]:
        return [self.visit((ITEM, n), value) for n, value in enumerate(values)]

    def members(self, values: Iterable[object]) -> list[Form]:
        return [self.visit((MEMBER, value), value) for value in values]

    def fields(self, value: object, names: Iterable[str]) -> dict[str, Form]:
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


def refused(walk: Walk[Form], value: object) -> NoReturn:
    """The encoder of a class that has none."""
    walk.refuse(f"{a_type(type(value))} {walk.verdict}")
