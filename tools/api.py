"""The public API as text, one line a name, for review.

    python tools/api.py            print it
    python tools/api.py --write    write api.txt

Public are the names in `__all__` of `mainstay`, of the other doors below and of any module among
them. A class shows its constructor, and below it what it defines without an underscore. What it
inherits stands with the base that defines it, where that base is public too.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
FILE = ROOT / "api.txt"
DOORS = (
    "mainstay",
    "mainstay.testing",
    "mainstay.publishers",
    "mainstay.integrations.confluent_kafka",
    "mainstay.integrations.errors",
    "mainstay.integrations.psycopg",
    "mainstay.integrations.psycopg2",
    "mainstay.integrations.redis",
    "mainstay.integrations.sqlalchemy",
    "mainstay.profiles.agents",
    "mainstay.profiles.clients",
    "mainstay.profiles.control_plane",
    "mainstay.profiles.effects",
    "mainstay.profiles.pipelines",
)
UNION = re.compile(r"\b(?P<name>Union|Optional)\[")
# Magic methods that a user calls by syntax, and whose absence they would notice.
SYNTAX = frozenset(
    [
        "__aenter__",
        "__aexit__",
        "__aiter__",
        "__anext__",
        "__await__",
        "__bool__",
        "__call__",
        "__contains__",
        "__enter__",
        "__exit__",
        "__getitem__",
        "__iter__",
        "__len__",
        "__next__",
        "__or__",
    ]
)


FOREIGN = frozenset({"builtins", "typing", "enum", "msgspec", "pydantic"})
"""Packages whose members are not ours, though our classes inherit them."""
MODELS = ("__struct_fields__", "__pydantic_fields__")
"""What a class has whose constructor is made of its fields."""


def main(arguments: list[str] | None = None) -> int:
    """Print the API, or write it to api.txt."""
    parser = argparse.ArgumentParser(description="The public API as text.")
    parser.add_argument("--write", action="store_true", help="write api.txt")
    if parser.parse_args(arguments).write:
        FILE.write_text(render(), encoding="utf-8")
    else:
        print(render(), end="")
    return 0


def render(doors: tuple[str, ...] = DOORS) -> str:
    """The text of api.txt."""
    modules = list(reachable(doors))
    public = {id(value) for module in modules for _, value in exports(module)}
    lines = [line for module in modules for line in describe_module(module, public)]
    return "".join(f"{line}\n" for line in lines)


def reachable(doors: tuple[str, ...]) -> Iterator[ModuleType]:
    """The doors, and the public modules that are reached through them."""
    waiting = [importlib.import_module(door) for door in doors]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop(0)
        if module.__name__ not in seen:
            seen.add(module.__name__)
            yield module
            waiting += [v for _, v in exports(module) if isinstance(v, ModuleType)]


def exports(module: ModuleType) -> list[tuple[str, object]]:
    """The public names of a module and what they stand for."""
    return [(name, getattr(module, name)) for name in sorted(getattr(module, "__all__", ()))]


def describe_module(module: ModuleType, public: set[int]) -> Iterator[str]:
    """The lines of one module."""
    for name, value in exports(module):
        path = f"{module.__name__}.{name}"
        if isinstance(value, type):
            yield f"{path}: class{bases(value)}{constructor(value)}"
            yield from describe_members(path, value, public)
        elif isinstance(value, ModuleType):
            yield f"{path}: module"
        elif callable(value):
            yield f"{path}: function{signature(value)}"
        else:
            yield f"{path}: {type(value).__name__} = {plain(repr(value))}"


def bases(cls: type) -> str:
    """The base classes in brackets; nothing where there is only object."""
    names = [b.__name__ for b in cls.__bases__ if b is not object]
    return f"[{', '.join(names)}]" if names else ""


def constructor(cls: type) -> str:
    """The signature of the constructor, where one of ours is written out."""
    if issubclass(cls, enum.Enum) or getattr(cls, "_is_protocol", False):
        return ""
    made = [c for c in cls.__mro__ if is_ours(c) and {"__init__", "__new__"} & vars(c).keys()]
    return signature(cls) if made or any(hasattr(cls, name) for name in MODELS) else ""


def is_ours(cls: type) -> bool:
    """Whether a class is defined in this package or, in a test, beside it."""
    return cls.__module__.partition(".")[0] not in FOREIGN


def describe_members(path: str, cls: type, public: set[int]) -> Iterator[str]:
    """The lines of what a class offers."""
    documented = {c for base in cls.__mro__[1:] if id(base) in public for c in base.__mro__}
    owners = [c for c in cls.__mro__ if is_ours(c) and c not in documented]
    members: dict[str, object] = {}
    types: dict[str, object] = {}
    for owner in reversed(owners):
        types |= inspect.get_annotations(owner)
        members |= dict.fromkeys(inspect.get_annotations(owner)) | vars(owner)
    for name in sorted(members):
        if not name.startswith("_") or name in SYNTAX:
            yield f"{path}.{name}: {describe_member(members[name], types.get(name))}"


def describe_member(member: object, annotation: object) -> str:
    """The kind of a member, and its signature, type or value."""
    if isinstance(member, classmethod | staticmethod):
        return type(member).__name__ + signature(member.__func__, bound=type(member) is classmethod)
    if isinstance(member, property):
        returns = getattr(member.fget, "__annotations__", {}).get("return")
        return f"property{typed(returns)}"
    if isinstance(member, enum.Enum):
        return f"member = {member.value!r}"
    if inspect.isfunction(member):
        return "method" + signature(member, bound=True)
    if isinstance(member, str | int | float):
        return f"attribute{typed(annotation)} = {member!r}"
    return f"attribute{typed(annotation)}"


def typed(annotation: object) -> str:
    """An annotation after a colon; nothing where there is none."""
    return "" if annotation is None else f": {_Text(annotation)!r}"


def signature(function: object, *, bound: bool = False) -> str:
    """A signature as written, without the quotes of postponed annotations."""
    try:
        found = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    parameters = [p.replace(annotation=_Text.of(p.annotation)) for p in found.parameters.values()]
    text = found.replace(
        parameters=parameters[1:] if bound else parameters,
        return_annotation=_Text.of(found.return_annotation),
    )
    return plain(str(text))


def plain(text: str) -> str:
    """The text without addresses of objects, and without the modules that our classes live in.

    A class is public by the name that a user imports; the folder it lives in may change.
    """
    text = re.sub(r"\bmainstay(?:\.[a-z_]\w*)+\.(?=[A-Z])", "", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def on_each_python(text: str) -> str:
    """An annotation as newer Pythons write it: `int | None`, and no `typing.` before a name.

    >>> on_each_python("typing.Union[list[ForwardRef('Row')], None]")
    'list[Row] | None'
    """
    text = re.sub(r"ForwardRef\('([^']*)'[^)]*\)", r"\1", text.replace("typing.", ""))
    while found := UNION.search(text):
        end = closing_bracket(text, found.end())
        members = split_top_level(text[found.end() : end])
        if found["name"] == "Optional":
            members.append("None")
        text = text[: found.start()] + " | ".join(members) + text[end + 1 :]
    return text


def closing_bracket(text: str, start: int) -> int:
    """Where the bracket ends that was opened before `start`."""
    depth = 1
    for at, letter in enumerate(text[start:], start):
        depth += (letter == "[") - (letter == "]")
        if not depth:
            return at
    return len(text)


def split_top_level(text: str) -> list[str]:
    """The members of a list, whose own brackets may hold commas."""
    members, depth = [""], 0
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            members.append("")
        else:
            members[-1] += letter
    return [member.strip() for member in members]


class _Text:
    """An annotation that shows itself as it was written."""

    def __init__(self, annotation: object) -> None:
        is_text = isinstance(annotation, str)
        text = str(annotation) if is_text else inspect.formatannotation(annotation)
        self.text = on_each_python(text)

    @classmethod
    def of(cls, annotation: object) -> object:
        return annotation if annotation is inspect.Signature.empty else cls(annotation)

    def __repr__(self) -> str:
        return self.text


if __name__ == "__main__":
    sys.exit(main())
