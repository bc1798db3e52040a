"""Which policies hold if a configuration has problems: no operation runs more often than was meant.

The built-in policy holds for what the file does not name. An operation that the file maps, or that
has the name of one of its policies, has that policy if nothing is wrong with it or with those it
extends; otherwise one attempt. Whatever stands where a problem is may be such a map, and so may
every key of a file that cannot be parsed (doubtful.py). If a file cannot be read, every operation
has one attempt.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from mainstay.config.fields import RETRY
from mainstay.config.overrides import PREFIX
from mainstay.config.tree import Node, joined
from mainstay.drivers.policy import RetryPolicy
from mainstay.engine.doubtful import Doubts, names_in
from mainstay.engine.registry import STANDARD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from mainstay.config.load import Loaded

ONE_ATTEMPT = "one attempt"
"""The policy of operations whose own is not valid."""
_MOST = 10_000
"""Names that may be operations; if there are more, every operation counts as mapped."""
_NOTHING = Node({}, None, "")
_HARMLESS = ("policies", "operation_policies", "default_policy", "circuit_breaker")
"""The parts of `retry` in which a problem makes no other policy invalid."""


def careful_policies(loaded: Loaded) -> dict[str, Any]:
    """The policies and operations of an engine whose configuration has problems."""
    named = _named(loaded.tree)
    valid = _valid(loaded, named)
    policies = [valid.get(name) or RetryPolicy(name=name, max_attempts=1) for name in named
                if name in valid or name != STANDARD.name]  # fmt: skip
    known = {policy.name for policy in policies} | valid.keys()
    mapped = _everything(loaded, set(named))
    operations = {op: name if name in known else ONE_ATTEMPT for op, name in mapped.items()}
    if ONE_ATTEMPT in operations.values() and ONE_ATTEMPT not in known:
        policies.append(RetryPolicy(name=ONE_ATTEMPT, max_attempts=1))
    return {"policies": policies, "operations": operations}


def _everything(loaded: Loaded, named: set[str]) -> dict[str, str]:
    """Operations, or patterns of them, and the names of their policies; empty if not known.

    A key where a problem is comes before the map, which may be incomplete; a text comes after it.
    """
    if _is_unread(loaded):
        return {"*": ""}
    problems = loaded.report.problems
    doubts = Doubts(loaded.tree, (p.path for p in problems if p.path or p.file == loaded.file))
    keys: dict[str, str] = {}
    texts: dict[str, str] = {}
    for name, is_key in chain(doubts.names(), _unclear(loaded)):
        if is_key or name not in named:
            (keys if is_key else texts)[name] = ""
        if len(keys) + len(texts) > _MOST:
            return {"*": ""}
    mapped = {op: "" if op in keys else name for op, name in _mapped(loaded, doubts)}
    before = {name: "" for name in keys if name not in mapped}
    return {**before, **mapped, **{name: "" for name in texts if name not in mapped}}


def _is_unread(loaded: Loaded) -> bool:
    """Whether there is a file of which nothing is known."""
    return loaded.file is not None and not loaded.report.is_sound and not loaded.text


def _mapped(loaded: Loaded, doubts: Doubts) -> Iterator[tuple[str, str]]:
    """The entries of the map, in its order."""
    right = loaded.checked.get("retry", {}).get("operation_policies", {})
    retry = dict(_entries(loaded.tree)).get("retry") or _NOTHING
    for key, child in _entries(retry):
        if key in RETRY.keys and RETRY.keys[key][0].name == "operation_policies":
            is_wrong = doubts.has(joined(("retry", key)))
            for name, _ in _entries(child):
                yield name, "" if is_wrong else right.get(name, "")


def _unclear(loaded: Loaded) -> Iterator[tuple[str, bool]]:
    """What may be an operation in a file whose structure is broken, and in overrides."""
    if not loaded.report.is_sound:
        for name in names_in(loaded.text.replace("\0", "")):
            yield name.replace("\ufffd", "?"), False
    yield from ((name, True) for name in _overridden(loaded))


def _overridden(loaded: Loaded) -> Iterator[str]:
    """The ends of the paths of overrides with a problem, and what their values may name."""
    wrong = {p.file for p in loaded.report.problems if p.file != loaded.file}
    if any(source.startswith("--set") for source in wrong):
        for option in loaded.options:
            path, _, value = option.partition("=")
            yield from (path[n + 1 :].strip("\"'") for n, c in enumerate(path) if c == ".")
            yield from names_in(value)
    for name in wrong & loaded.report.env.keys():
        segments = name.removeprefix(PREFIX).split("__")
        yield from (_in_any_case("_".join(segments[n:])) for n in range(len(segments)))
        yield from names_in(loaded.report.env[name])


def _in_any_case(name: str) -> str:
    """A pattern of the names that a variable may mean: their case and signs are unknown."""
    return "".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else "*" for c in name)


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
    made.setdefault(STANDARD.name, STANDARD)
    return {name: policy for name, policy in made.items() if name not in wrong}


def _concerns_all(problem: Any, loaded: Loaded) -> bool:
    """Whether it may be about any policy: of an override, or in `retry` outside of one policy."""
    if problem.file != loaded.file or problem.path in ("", "retry.policies"):
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
