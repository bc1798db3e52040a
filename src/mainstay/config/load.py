"""From a file, the environment and options to Settings: all the steps, one after the other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mainstay.config.check import BAD, check
from mainstay.config.fields import CONFIG
from mainstay.config.files.load_file import Read, read_file
from mainstay.config.files.search import candidates, search_folders
from mainstay.config.overrides import from_environment, from_options
from mainstay.config.report import Report
from mainstay.config.settings import settings_of
from mainstay.config.tree import Node
from mainstay.core.retry.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from mainstay.config.settings import Settings


_WAY_OUT = "Change the owner or the mode if it is yours; if you trust it, "


class Loaded:
    """A configuration that was read: the tree, the settings made of it, and its problems."""

    def __init__(self, found: Read, report: Report, make: type[Policy] = Policy) -> None:
        self.file = found.source
        self.tree = found.tree or Node({}, None, found.source or "")
        self.text = found.text
        """The file as it was read, also if it is broken."""
        self.report = report
        self.options: list[str] = []
        """Those that were given, right or not."""
        self.checked: dict[str, Any] = {}
        self.settings: Settings | None = None
        self._make = make

    def override(self, options: Iterable[str]) -> None:
        """Sets values as `--set` does, and checks the whole again; the file is not read again."""
        given = list(options)
        self.options += given
        from_options(self.tree, given, self.report)
        found = check(CONFIG, self.tree, (), self.report)
        self.checked = {} if found is BAD else found
        self.settings = settings_of(self.checked, self.tree, self.report, self.file, self._make)


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    overrides: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    make: type[Policy] = Policy,
) -> Loaded:
    """Reads, overrides, checks and builds; every problem is in the report.

    `make` is the class that policies are made of: the public one is one floor up.
    """
    report = Report(os.environ if env is None else env)
    loaded = Loaded(_read(path, report), report, make)
    tree = loaded.tree
    if type(tree.value) is not dict:
        report.wrong(tree, (), "a mapping of sections, such as retry:")
        return loaded
    from_environment(tree, report)
    loaded.override(overrides)
    return loaded


def _read(path: str | os.PathLike[str] | None, report: Report) -> Read:
    """The file that was named or found; without a tree if there is none, or a broken one."""
    given = path if path is not None else report.env.get("MAINSTAY_CONFIG") or None
    if given is not None:
        source = os.fspath(given)
        return read_file(Path(os.path.expanduser(source)), source, report)  # noqa: PTH111 -- never raises
    found = search(report)
    return Read(None) if found is None else _if_safe(found, report)


class Found(Struct, frozen=True):
    """A file that was found by searching: its path, the last folder of the search, what it has."""

    path: Path
    root: Path
    read: Read
    problems: int
    """How many there were before it was read."""


def search(report: Report) -> Found | None:
    """The first file that has something of ours, as it is: nobody has trusted it yet."""
    try:
        here = Path.cwd()
    except OSError:  # it was removed under us
        return None
    root, before = search_folders(here)[-1], len(report.problems)
    for path in candidates(here):
        read = read_file(path, shown(path, here), report, is_given=False)
        if read.tree is not None or len(report.problems) > before:
            return Found(path, root, read, before)
    return None


def _if_safe(found: Found, report: Report) -> Read:
    """What was found by searching; without its tree, and with the reason, if it may not decide."""
    import shlex

    from mainstay.config.files.trust import NAME_IT, why_not_safe, why_not_trusted

    path, root, read, before = found.path, found.root, found.read, found.problems
    source = read.source or ""
    if read.status is not None and (reason := why_not_safe(path, root, read.status)):
        del report.problems[before:]
        text = f"was found by searching and is not used: {reason}. {_WAY_OUT}{NAME_IT}"
    elif read.tree is not None and (reason := why_not_trusted(path, read.tree)):
        text = (
            f"was found by searching and is not used: it {reason}. Look at it, then run:"
            f" mainstay config trust {shlex.quote(source)}; or {NAME_IT}"
        )
    else:
        return read
    report.file(source, None, text)
    return replace(read, tree=None)


def shown(path: Path, here: Path) -> str:
    """A file's name for messages: relative to the working directory if it is in it."""
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
