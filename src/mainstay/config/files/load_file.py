"""A configuration file: read, decoded, and turned into a tree of what is ours in it.

mainstay.yml        everything in it is ours
agent/config.yml    the agent's own file: sections that are not ours are passed over
pyproject.toml      the table [tool.mainstay]
anything else       as its ending expected: .toml is TOML, all others are YAML (and so JSON)
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from mainstay.config.fields import CONFIG
from mainstay.config.report import nearest
from mainstay.config.tree import Node, joined

if TYPE_CHECKING:
    from mainstay.config.report import Report

LARGEST = 10 * 1024 * 1024
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_OPEN: int = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)

_CLOSE = 0.85
"""How like a name of ours another is, at most a few letters apart."""
_OF_RETRY = ("operationPolicies", "operation_policies")
"""A part of `retry` that means nothing else: one level too high it is a mistake in indentation."""


class Read(Struct, frozen=True):
    """A file as it was read: its name in messages, the tree of what is ours in it, its text."""

    source: str | None
    tree: Node | None = None
    """None if the file is broken, or holds nothing of ours and was not given."""
    text: str = ""
    status: os.stat_result | None = None
    """Of the file that was opened."""


def read_file(path: Path, source: str, report: Report, *, is_given: bool = True) -> Read:
    """The tree of a file, and its text."""
    opened = _content(path, source, report)
    if opened is None:
        return Read(source)
    content, status = opened
    text = _text(content, source, report)
    if text is None:
        is_utf16 = content[:2] in _UTF16
        return Read(
            source, None, content.decode("utf-16" if is_utf16 else "utf-8", "replace"), status
        )
    tree = _tree(path, text, source, report, is_given=is_given)
    return Read(source, tree, text, status)


def _tree(path: Path, text: str, source: str, report: Report, *, is_given: bool) -> Node | None:
    if path.suffix == ".toml":
        return _of_toml(path, text, source, report, is_given=is_given)
    from mainstay.config.files.yaml import read_yaml  # both load where such a file is read

    tree = read_yaml(text, source, report)
    if tree is None or not is_agents(path):
        return tree
    return _of_agent(tree, is_given=is_given)


def is_agents(path: Path) -> bool:
    """Whether it is the agent's own file, of which only a part is ours."""
    return path.name in ("config.yml", "config.yaml") and path.parent.name == "agent"


def _text(content: bytes, source: str, report: Report) -> str | None:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{content[error.start]:02X}"
        if content[:2] in _UTF16:
            line, found = 1, "it begins as UTF-16 does"
        report.file(source, line, f"is not UTF-8: {found}; save it as UTF-8")
    return None


def _content(path: Path, source: str, report: Report) -> tuple[bytes, os.stat_result] | None:
    """The bytes of a file, and the state of what was opened; a pipe is not waited for."""
    try:
        if path == Path(os.devnull):
            return b"", path.stat()
        problem = _not_read(path.stat())  # a device is not opened at all
        if problem is None:
            with os.fdopen(os.open(path, _OPEN), "rb") as file:
                status = os.fstat(file.fileno())
                problem = _not_read(status)
                if problem is None:
                    return file.read(LARGEST), status
        report.file(source, None, problem)
    except FileNotFoundError:
        is_link = path.is_symlink()
        text = "is a link to a file that is not there" if is_link else "there is no such file"
        report.file(source, None, text)
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or str(error)
        report.file(source, None, f"cannot be read: {words}")
    return None


def _not_read(status: os.stat_result) -> str | None:
    """Why something is not read as a configuration."""
    if stat.S_ISDIR(status.st_mode):
        return "is a directory; name the file in it"
    if not stat.S_ISREG(status.st_mode):
        return "is not a file"
    if status.st_size > LARGEST:
        return f"is larger than {LARGEST // 1024**2} MB: no configuration"
    return None


def _of_toml(path: Path, text: str, source: str, report: Report, *, is_given: bool) -> Node | None:
    is_project = path.name == "pyproject.toml"
    if is_project and not is_given and "mainstay" not in text:
        return None
    from mainstay.config.files.toml import read_toml

    tree = read_toml(text, source, report)
    if tree is None or not is_project:
        return tree
    _report_elsewhere(tree, (), report)
    tool = tree.value.get("tool")
    tables = tool.value if tool is not None and isinstance(tool.value, dict) else {}
    if "mainstay" in tables:
        ours = tables["mainstay"]
        assert isinstance(ours, Node)
        return ours
    if is_given:
        report.file(source, None, "has no table [tool.mainstay]")
    return None


def _report_elsewhere(node: Node, path: tuple[str, ...], report: Report) -> None:
    """Reports tables that look like ours and have another name: they would not be read."""
    for key, child in node.value.items():
        at = (*path, key)
        if not isinstance(child.value, dict) or at == ("tool", "mainstay"):
            continue
        if _is_close(key, child.value) or child.value.keys() & set(_OF_RETRY):
            text = f"has [{joined(at)}], which is not read: the table is [tool.mainstay]"
            report.file(child.source, child.line, text)
        else:
            _report_elsewhere(child, at, report)


def _is_close(key: str, table: dict[str, Node]) -> bool:
    """Whether it has a name like ours, and a section of ours."""
    from difflib import get_close_matches

    is_close = bool(get_close_matches(key.lower(), ("mainstay",), cutoff=_CLOSE))
    return is_close and not table.keys().isdisjoint(CONFIG.keys)


def _of_agent(tree: Node, *, is_given: bool) -> Node | None:
    """Our part of the agent's file; a key that looks like one of ours is kept, to be reported."""
    if not isinstance(tree.value, dict):
        return tree
    kept = {key: child for key, child in tree.value.items() if _is_ours(key, tree.value)}
    return Node(kept, tree.line, tree.source) if kept or is_given else None


def _is_ours(key: str, there: dict[str, Node]) -> bool:
    from difflib import get_close_matches

    if key in CONFIG.keys or get_close_matches(key, _OF_RETRY, cutoff=_CLOSE):
        return True
    meant = nearest(key, CONFIG.names)
    return bool(meant) and meant not in there and len(meant) > 4 and abs(len(meant) - len(key)) < 2
