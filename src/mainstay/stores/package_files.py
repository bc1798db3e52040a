"""Text files that lie beside our modules: SQL and Lua."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path


def read_texts(package: str, *folders: str) -> dict[str, str]:
    """The files of a folder inside a package, by their names.

    >>> len(read_texts("mainstay.stores.sqlite", "sql")) > 0
    True
    """
    folder = Path(import_module(package).__path__[0], *folders)
    if folder.is_dir():
        return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    from importlib.resources import files  # reads archives, and takes as long to load as sqlite3

    there = files(package).joinpath(*folders).iterdir()
    return {file.name: file.read_text(encoding="utf-8") for file in there}
