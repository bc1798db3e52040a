"""Which policies hold if a configuration has problems: no operation runs more often than was meant.

The built-in policy holds for what the file does not name. An operation that the file maps, or that
has the name of one of its policies, has that policy if nothing is wrong with it or with those it
extends; otherwise one attempt. What stands under a key that is unknown may be such a map, and so
may every key of a file that cannot be parsed.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from mainstay.config.fields import CONFIG, RETRY
from mainstay.config.retry_fields import POLICY
from mainstay.config.tree import Node, joined
from mainstay.drivers.policy import RetryPolicy
from mainstay.engine.registry import STANDARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from mainstay.config.load import Loaded

ONE_ATTEMPT = "one attempt"
"""The policy of operations whose own is not valid."""
_MOST = 10_000
"""Names that are taken from a file which cannot be parsed."""
_LONGEST = 1000
"""Characters of such a name."""
_SEPARATORS = 8
"""Colons and equals signs of a line that may end a key: a key may have some itself."""
_QUOTED = re.compile(r"""("[^"\n]+"|'[^'\n]+')[ \t]*[:=]""")
_WORD = re.compile(r"""(?<![^\s"'{}\[\],:=#])([^\s"'{}\[\],:=#]+)[ \t]*[:=]""")
"""A word is tried from its beginning alone, so that a long one takes linear time."""
_PARTS = re.compile(r"[{}\[\],]")
_AROUND = "\"' \t-?;#"
"""What may stand around a key and be no part of it."""
_NOTHING = Node({}, None, "")
_HARMLESS = ("policies", "operation_policies", "default_policy", "circuit_breaker")
"""The parts of `retry` in which a problem makes no other policy invalid."""


def careful_policies(loaded: Loaded) -> dict[str, Any]:
    """The policies and operations of an engine whose configuration has problems."""
    named = _named(loaded.tree)
    mapped = {**dict.fromkeys(_unclear(loaded, named), ""), **dict(_mapped(loaded))}
    valid = _valid(loaded, named)
    policies = [valid.get(name) or RetryPolicy(name=name, max_attempts=1) for name in named
                if name in valid or name != STANDARD.name]  # fmt: skip
    known = {policy.name for policy in policies}
    operations = {op: name if name in known else ONE_ATTEMPT for op, name in mapped.items()}
    if ONE_ATTEMPT in operations.values() and ONE_ATTEMPT not in known:
        policies.append(RetryPolicy(name=ONE_ATTEMPT, max_attempts=1))
    return {"policies": policies, "operations": operations}


def _mapped(loaded: Loaded) -> Iterator[tuple[str, str]]:
    """Operations, or patterns of them, and the names of their policies; empty if not known."""
    paths = [problem.path for problem in loaded.report.problems]
    for key, child in _entries(loaded.tree):
        if key == "retry":
            yield from _mapped_in(child, paths)
        elif key not in CONFIG.keys and not key.startswith("x-"):
            yield from ((name, "") for name, _ in _leaves(child, key))


def _mapped_in(retry: Node, paths: list[str]) -> Iterator[tuple[str, str]]:
    for key, child in _entries(retry):
        if key not in RETRY.keys:
            yield from ((name, "") for name, _ in _leaves(child, key))
        elif RETRY.keys[key][0].name == "operation_policies":
            for name, leaf in _leaves(child, key):
                is_right = isinstance(leaf.value, str)
                is_right &= not _is_below(("retry", key, name), paths)
                yield name, leaf.value if is_right else ""
        elif RETRY.keys[key][0].name == "policies":  # entries of a map whose own key is missing
            others = ((n, leaf) for n, leaf in _leaves(child, key) if n not in POLICY.keys)
            yield from ((name, "") for name, leaf in others if isinstance(leaf.value, str))


def _leaves(node: Node, key: str) -> Iterator[tuple[str, Node]]:
    """The keys that have no mapping below them, at any depth."""
    if isinstance(node.value, dict):
        for name, child in node.value.items():
            yield from _leaves(child, name)
    elif isinstance(node.value, list):
        for child in node.value:
            yield from _leaves(child, key)
    elif key.strip():
        yield key, node


def _unclear(loaded: Loaded, named: list[str]) -> Iterator[str]:
    """What may be an operation in a file whose structure is broken: each of its keys."""
    if loaded.report.is_sound:
        return
    for name in islice(_possible_keys(loaded.text.replace("\0", "")), _MOST):
        if name not in named:
            yield name


def _possible_keys(text: str) -> Iterator[str]:
    """Each text that is a key in some reading of a text which is neither YAML nor TOML.

    What stands before a colon or an equals sign: a quoted text, a word, all of the line, all since
    the last bracket or comma. And a line's first word, whose colon may be missing.
    """
    for line in text.splitlines():
        found = [*_QUOTED.findall(line), *_WORD.findall(line)]
        for part in (line, *_PARTS.split(line)):
            ends = islice(re.finditer(r"[:=]", part), _SEPARATORS)
            found += [part[: end.start()] for end in ends if end.start() <= _LONGEST]
        found += [word for word in line.lstrip(_AROUND).split(maxsplit=1)[:1] if word.strip(_ANY)]
        names = (name.strip(_AROUND) for name in found)
        yield from (name for name in names if name and len(name) <= _LONGEST)


_ANY = "*?\"'#[]{}"
"""A word of these alone is a pattern of everything, or none: only before a colon is it a key."""


def _named(tree: Node) -> list[str]:
    """The policies that the file names, valid or not."""
    return [name for name, _ in _policies_in(tree) if name and name == name.strip()]


def _policies_in(tree: Node) -> Iterable[tuple[str, Node]]:
    for key in ("retry", "policies"):
        tree = dict(_entries(tree)).get(key) or _NOTHING
    return _entries(tree)


def _valid(loaded: Loaded, named: list[str]) -> dict[str, RetryPolicy]:
    """The policies without a problem of their own, of one they extend, or of all of them."""
    if loaded.settings is None or any(_concerns_all(p, loaded) for p in loaded.report.problems):
        return {}
    made = {p.name: p for p in loaded.settings.policies if isinstance(p, RetryPolicy)}
    paths = [problem.path for problem in loaded.report.problems]
    wrong = {name for name in named if _is_below(("retry", "policies", name), paths)}
    parents = {n: o.get("extends") for n, o in _checked(loaded).items()}
    while more := {n for n, parent in parents.items() if parent in wrong} - wrong:
        wrong |= more
    return {name: policy for name, policy in made.items() if name not in wrong}


def _concerns_all(problem: Any, loaded: Loaded) -> bool:
    """Whether it may be about any policy: of an override, or in `retry` outside of one policy."""
    if problem.file != loaded.file:
        return True
    if problem.path != "retry" and not problem.path.startswith("retry."):
        return False
    if _is_stray_field(problem.path, loaded):
        return True
    key = problem.path.removeprefix("retry").lstrip(".").partition(".")[0].partition("[")[0]
    return key not in RETRY.keys or RETRY.keys[key][0].name not in _HARMLESS


def _is_stray_field(path: str, loaded: Loaded) -> bool:
    """Whether it stands among the policies and is none: a field whose indentation is wrong."""
    stray = (n for n, child in _policies_in(loaded.tree) if not isinstance(child.value, dict))
    return any(path == joined(("retry", "policies", name)) for name in stray)


def _checked(loaded: Loaded) -> dict[str, dict[str, Any]]:
    policies: dict[str, dict[str, Any]] = loaded.checked.get("retry", {}).get("policies", {})
    return policies


def _is_below(path: tuple[str, ...], paths: Iterable[str]) -> bool:
    start = joined(path)
    return any(p == start or p.startswith((f"{start}.", f"{start}[")) for p in paths)


def _entries(node: Node) -> Iterable[tuple[str, Node]]:
    return node.value.items() if isinstance(node.value, dict) else ()
