"""The configuration files that this user trusts: path and hash of the content, in a private file.

`mainstay config trust` writes it, in the state folder. If it cannot be read as this user's own
file, nothing is trusted.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct, json

from mainstay.core.base.change import ready
from mainstay.runtime.filelock import lock
from mainstay.runtime.private_files import (
    check_private,
    create_anew,
    make_private,
    open_private,
    read_private,
    state_folder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "trusted-configurations.json"
_LARGEST = 10 * 1024 * 1024
_PATIENCE = 10.0
"""Seconds to wait for another process that changes the list."""


class Trusted(Struct, frozen=True):
    """A file that was trusted: its real path, the hash of its content, and when."""

    path: str
    sha256: str
    at: str = ""


class _List(Struct):
    version: int = 1
    trusted: list[Trusted] = []


def trusted_files() -> list[Trusted]:
    """Every file that this user trusts.

    Raises:
        OSError: the list is not this user's own, or cannot be read.
        RuntimeError: the user's home is unknown.
        ValueError: it is damaged.
    """
    folder = state_folder()
    try:
        check_private(folder, 1)
        content = read_private(folder / NAME, _LARGEST)
    except FileNotFoundError:
        return []
    try:
        return json.decode(content, type=_List).trusted
    except DecodeError as error:
        raise ValueError(f"{folder / NAME} is damaged: {error}") from error


def add_trusted(entry: Trusted) -> None:
    """Adds a file; a content of it that was trusted before stays so, for another branch of it."""
    with _changing() as entries:
        same = [e for e in entries if (e.path, e.sha256) == (entry.path, entry.sha256)]
        for each in same:
            entries.remove(each)
        entries.append(entry)


def revoke_trusted(path: str) -> int:
    """Removes every content of a file; how many there were."""
    with _changing() as entries:
        left = [each for each in entries if each.path != path]
        removed = len(entries) - len(left)
        entries[:] = left
    return removed


@contextmanager
def _changing() -> Iterator[list[Trusted]]:
    """The list, written back afterwards; one process at a time."""
    folder = state_folder()
    make_private(folder, 1)
    held = open_private(folder / f"{NAME}.lock", os.O_RDWR | os.O_CREAT)
    try:
        if not lock(held, _PATIENCE):
            raise TimeoutError(f"{folder / NAME}: another process is changing it")
        entries = trusted_files()
        yield entries
        _replace(folder / NAME, json.encode(_List(trusted=entries)))
    finally:
        os.close(held)


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f"{path.name}.new")
    with os.fdopen(create_anew(draft), "wb") as file:
        file.write(content + b"\n")
        file.flush()
        os.fsync(file.fileno())  # or a loss of power leaves an empty list
    draft.replace(path)


ready(_List)
