"""What a configuration that can be used most likely does not mean; for `mainstay config check`.

A rule names an exception by its class, whose module need not be there when the file is read: so a
name that nobody knows is no problem, and an engine starts. But one that is nearly that of a
built-in exception or of a kind is a slip, and so is a class that its module does not have. Modules
of the standard library and of mainstay are imported to look; a module of anybody else is not, since
importing it would run its code. If there is a table of its exceptions, their names are in it.
"""

from __future__ import annotations

import builtins
import re
import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mainstay import errors
from mainstay.config.blame import ConfigMapping
from mainstay.config.fields import CONFIG, RETRY
from mainstay.config.report import Report
from mainstay.config.retry_fields import KINDS
from mainstay.config.shapes import Listing, NameMap, Section, Text
from mainstay.core.known.kind import qualified_name
from mainstay.integrations.errors import find

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from mainstay.config.load import Loaded
    from mainstay.config.report import Path
    from mainstay.config.shapes import Shape
    from mainstay.config.tree import Node
    from mainstay.errors import ConfigProblem

_NEAR = 0.9
"""How alike two names are if one is a slip for the other: httpx's ConnectError is none (0.89)."""
_OTHER = "{} never matches: the class has another name"
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_NOT_IMPORTED = ("antigravity", "this", "idlelib", "turtledemo", "tkinter", "turtle", "__main__")
"""Modules of the standard library that do something when they are imported."""


class Doubts:
    """Warnings, which are certain to be slips; and notes, of what cannot be known here."""

    def __init__(self) -> None:
        self._warnings, self._notes = Report({}), Report({})

    @property
    def warnings(self) -> list[ConfigProblem]:
        """Each names what was most likely meant."""
        return self._warnings.problems

    @property
    def notes(self) -> list[ConfigProblem]:
        """Nothing need be wrong."""
        return self._notes.problems

    def look_at(self, rule: str, node: Node, path: Path) -> None:
        """Looks at one rule: the name of a class, or a code, about which nothing is known."""
        if not _NAME.fullmatch(rule):
            return
        if "." in rule:
            self._look_at_dotted(rule, node, path)
        elif (wrong := _wrong_name(rule)) is not None:
            self._warnings.problem(node, path, wrong[0], nearest=wrong[1])

    def _look_at_dotted(self, rule: str, node: Node, path: Path) -> None:
        top = rule.partition(".")[0]
        if top in sys.stdlib_module_names or top == "mainstay":
            wrong = None if top in _NOT_IMPORTED else _wrong_class(rule)
            if wrong is not None:
                self._warnings.problem(node, path, wrong[0], nearest=wrong[1])
        elif (meant := _meant_of_library(rule)) is not None:
            self._warnings.problem(node, path, f"no exception is known as {rule!r}", nearest=meant)
        elif top not in sys.modules and find_spec(top) is None:
            text = f"{rule} is of the module {top}, which is not installed here"
            self._notes.problem(node, path, text)

    def look_at_times(self, loaded: Loaded) -> None:
        """Looks for an attempt that may take longer than the whole call."""
        if loaded.settings is None:
            return
        place = ConfigMapping(CONFIG, loaded.tree, (), self._warnings)
        named = place.below(RETRY, "retry").below(RETRY.keys["policies"][1], "policies")
        for policy in loaded.settings.policies:
            timeout, deadline = policy.attempt_timeout, policy.deadline
            if timeout is None or deadline is None or timeout <= deadline:
                continue
            text = (
                f"an attempt may take {timeout:g} s (attemptTimeout), and the whole call"
                f" {deadline:g} s (deadline): the first attempt that hangs is the last"
            )
            own = ("attempt_timeout", "deadline")
            there = next((f for f in own if named.at(policy.name, f)[2]), "")
            named.problem((policy.name, there) if there else (policy.name,), text)


def doubts_of(loaded: Loaded) -> Doubts:
    """What is most likely not meant."""
    found = Doubts()
    for rule, node, path in _rules(CONFIG, loaded.tree, ()):
        found.look_at(rule, node, path)
    found.look_at_times(loaded)
    for report in (found._warnings, found._notes):  # noqa: SLF001  its own
        report.sort(loaded.file)
    return found


def _rules(shape: Shape, node: Node, path: Path) -> Iterator[tuple[str, Node, Path]]:
    """Every rule in a tree: the values and keys whose shape is that of one."""
    value = node.value
    if isinstance(shape, Text) and shape.is_rule and type(value) is str:
        yield value, node, path
    elif isinstance(shape, Listing):
        for number, item in enumerate(value) if isinstance(value, list) else ((None, node),):
            yield from _rules(shape.shape, item, path if number is None else (*path, number))
    elif isinstance(value, dict):
        for key, child in value.items():
            if isinstance(shape, Section) and key in shape.keys:
                yield from _rules(shape.keys[key][1], child, (*path, key))
            elif isinstance(shape, NameMap):
                if shape.key.is_rule:
                    yield key, child, (*path, key)
                yield from _rules(shape.shape, child, (*path, key))


def _exceptions(module: object) -> dict[str, type[BaseException]]:
    found = vars(module).items()
    return {n: c for n, c in found if isinstance(c, type) and issubclass(c, BaseException)}


def _wrong_name(rule: str) -> tuple[str, str] | None:
    """Why a name without a module is a slip, and what was meant; None if it need not be one."""
    known = {**_exceptions(errors), **_exceptions(builtins)}
    if rule in known:
        name = known[rule].__name__
        return None if name == rule else (_OTHER.format(rule), name)
    words = {**{name.lower(): name for name in known}, **{kind: f"kind:{kind}" for kind in KINDS}}
    near = get_close_matches(rule.lower(), words, n=1, cutoff=_NEAR)
    return (f"no exception is known as {rule!r}", words[near[0]]) if near else None


def _wrong_class(rule: str) -> tuple[str, str] | None:
    """Why the class of a known module is never raised under this name, and what was meant."""
    holder, name = _module_of(rule)
    found: object = holder
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        own = qualified_name(found).removeprefix("builtins.")
        is_same = own == rule.removeprefix("builtins.")
        return None if is_same else (_OTHER.format(rule), own)
    known = {f"{holder.__name__}.{each}": each for each in _exceptions(holder)}
    near = get_close_matches(rule, known, n=1, cutoff=0.6)
    return f"there is no exception {name} in {holder.__name__}", near[0] if near else ""


def _meant_of_library(rule: str) -> str | None:
    """The exception of a library with a table that is nearly of this name; None if it has none.

    The table judges every class of the library, which need not be imported to look.
    """
    table = find(rule)
    known = [] if table is None else sorted(table.entries, key=len, reverse=True)
    top, last = rule.partition(".")[0], rule.rpartition(".")[2]
    names = {each.rpartition(".")[2]: each for each in known if each.partition(".")[0] == top}
    near = [] if last in names else get_close_matches(last, names, n=1, cutoff=_NEAR)
    return names[near[0]] if near else None


def _module_of(rule: str) -> tuple[ModuleType, str]:
    """The longest part of a name that is a module, and the rest."""
    parts = rule.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            return import_module(".".join(parts[:count])), ".".join(parts[count:])
        except ImportError:
            continue
    return builtins, rule
