"""Which file it is: the one that was named, or the first that is found.

1. The file that was given: `Engine.from_config(path)`, `--config FILE`.
2. `MAINSTAY_CONFIG`.
3. In the working directory, then in each directory above it: `mainstay.yml`, `mainstay.yaml`,
   `agent/config.yml`, `agent/config.yaml`, and `pyproject.toml` if it has `[tool.mainstay]`.

Whether the file that is found may be used is decided in trust.py. The search ends with the first
directory that is the root of a project (it has `.git`, `.hg` or `pyproject.toml`), or the user's
home. Outside of both only the working directory is looked into: what lies above it, such as a
shared folder of temporary files, is not the user's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = (
    "mainstay.yml",
    "mainstay.yaml",
    "agent/config.yml",
    "agent/config.yaml",
    "pyproject.toml",
)
ROOTS = (".git", ".hg", "pyproject.toml")


def candidates(start: Path, home: Path | None = None) -> Iterator[Path]:
    """The files that are there, in the order in which they are looked at."""
    for folder in search_folders(start, home):
        for name in NAMES:
            path = folder / name
            if _is_there(path):
                yield path


def search_folders(start: Path, home: Path | None = None) -> list[Path]:
    """The working directory and those above it, as far as they are the project's or the user's."""
    found, home = [], _home() if home is None else home
    homes = () if home is None else (home, Path(os.path.realpath(home)))  # cwd is without links
    for folder in (start, *start.parents):
        found.append(folder)
        if folder in homes or any(_is_there(folder / root) for root in ROOTS):
            return found
    return [start]


def _is_there(path: Path) -> bool:
    """Also a link that leads nowhere: what it led to may have decided.

    False in a folder that may not be looked into.
    """
    return os.path.lexists(path)


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # the user's home is unknown
        return None
