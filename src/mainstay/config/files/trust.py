"""Whether a configuration may decide: one that was named may; one that was found is looked at.

A file that is found by searching may have been put there by another user, or may have come with a
repository that nobody has read. So:

- It and each folder up to the root of the search belong to this user or root, and no one else can
  write to them; the real path of a link is looked at too.
- If it has only policies, circuits and budgets, nothing more is needed: they reach nothing.
- If it names anything else (a store, a sink, a webhook), or takes `${NAME}` from the environment,
  its content must be trusted: `mainstay config trust` keeps the hash (trusted.py).

The hash covers what is ours in the file, as it was parsed: neither comments nor the other tables of
a pyproject.toml change it. What is parsed is what was hashed: the file is read once.
"""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from typing import TYPE_CHECKING

from mainstay.config.fields import CONFIG
from mainstay.config.files.trusted import Trusted, add_trusted, trusted_files
from mainstay.config.tree import Template
from mainstay.runtime.private_files import is_link, levels_of, why_not_mine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mainstay.config.tree import Node

REACHES_NOTHING = ("retry", "circuit_breaker", "breakers", "budgets")
"""The sections that open, write and send nothing."""
NAME_IT = "name it with --config, MAINSTAY_CONFIG or Engine.from_config(path)"


def why_not_safe(path: Path, root: Path, opened: os.stat_result) -> str:
    """Why another user could have written a file that was found, or replaced it; or nothing.

    `root` is the last folder of the search; `opened` is the state of the file that was read.
    """
    if os.name != "posix":
        return ""
    ways = [path, *path.parents]
    try:
        for each in reversed(ways[: ways.index(root) + 1]):
            found = each.lstat()
            if (reason := why_not_mine(found) or _acl(each, found)) is not None:
                return f"{each} {reason}"
            if is_link(found) and (reason := _behind_link(each, root)):
                return reason
    except OSError as error:
        return f"{error.filename} cannot be looked at: {error.strerror}"
    behind = why_not_mine(opened)
    return "" if behind is None else f"{path} {behind}"


def _behind_link(link: Path, root: Path) -> str:
    """What is wrong with a folder, link or file that a link leads through; also above the root."""
    for each, found in levels_of(link):
        is_shared = bool(found.st_mode & stat.S_ISVTX) and not each.is_relative_to(root)
        reason = why_not_mine(found, is_sticky=is_shared)
        if reason is None and not is_shared:
            reason = _acl(each, found)
        if reason is not None:
            return f"{link} is a link, and on its way {each} {reason}"
    return ""


def _acl(path: Path, found: os.stat_result) -> str | None:
    """A list of access rights beyond owner and group: then the group's bits are its mask."""
    if is_link(found) or not found.st_mode & stat.S_IWGRP or not hasattr(os, "listxattr"):
        return None
    try:
        names = os.listxattr(path)
    except OSError:  # a file system without them
        return None
    has = "system.posix_acl_access" in names
    return "has an access control list that lets others write" if has else None


def reach(tree: Node) -> list[str]:
    """What a file names beyond policies, circuits and budgets; nothing if it needs no trust."""
    entries = tree.value if isinstance(tree.value, dict) else {}
    known = {key: CONFIG.keys[key][0].name for key in entries if key in CONFIG.keys}
    sections = [key for key, name in known.items() if name not in REACHES_NOTHING]
    taken = {name for key in known for name in _variables(entries[key])}
    return [*sections, *(f"${{{name}}}" for name in sorted(taken))]


def in_short(names: list[str]) -> str:
    """The names for a message."""
    return ", ".join(names[:6]) + (", …" if len(names) > 6 else "")


def _variables(node: Node) -> Iterator[str]:
    if type(node.value) is Template:
        yield from node.value.names
    elif isinstance(node.value, dict | list):
        for child in node.value.values() if isinstance(node.value, dict) else node.value:
            yield from _variables(child)


def digest(tree: Node) -> str:
    """The hash of a tree: of its values and their order, without lines and comments."""
    hashed = sha256()
    for part in _parts(tree):
        hashed.update(part)
    return hashed.hexdigest()


def _parts(node: Node) -> Iterator[bytes]:
    """The tree as bytes; each value has its sort and its length before it."""
    value = node.value
    if isinstance(value, dict):
        yield b"mapping %d;" % len(value)
        for key, child in value.items():
            yield from _scalar("key", key)
            yield from _parts(child)
    elif isinstance(value, list):
        yield b"list %d;" % len(value)
        for child in value:
            yield from _parts(child)
    else:
        text = hex(value) if type(value) is int else str(value)  # no limit of digits
        yield from _scalar(type(value).__name__, text)


def _scalar(sort: str, text: str) -> Iterator[bytes]:
    content = text.encode("utf-8", "surrogatepass")
    yield f"{sort} {len(content)};".encode()
    yield content


def why_not_trusted(path: Path, tree: Node) -> str:
    """Why the content of a file that was found is not used; or nothing."""
    shown = in_short(reach(tree))
    if not shown:
        return ""
    try:
        real = os.path.realpath(path)
        known = [each for each in trusted_files() if each.path == real]
    except (OSError, RuntimeError, ValueError) as error:
        return f"names {shown}, and which files are trusted cannot be read: {error}"
    found = digest(tree)
    if any(each.sha256 == found for each in known):
        return ""
    if known:
        return f"names {shown}, and has changed since it was trusted ({known[-1].at})"
    return f"names {shown}, and was not trusted yet"


def trust(path: Path, tree: Node) -> Trusted:
    """Trusts the content of a file from now on; what was noted of it."""
    from datetime import UTC, datetime  # only here, and a program that starts need not load it

    now = datetime.now(UTC).isoformat(timespec="seconds")
    entry = Trusted(os.path.realpath(path), digest(tree), now)
    add_trusted(entry)
    return entry
