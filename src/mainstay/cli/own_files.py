"""What `mainstay doctor` finds out about files: who else can read them, and what is not used."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.runtime.private_files import NotPrivateError


def problems_of_state() -> Iterator[str]:
    """Why the state folder is not used, if it is there."""
    from mainstay.runtime.private_files import state_folder

    with suppress(RuntimeError):  # the home folder is not known
        if (refusal := _refusal_of(state_folder())) is not None:
            yield f"the state folder is not used: {refusal}"


def warnings_of_state() -> Iterator[str]:
    """What is wrong in the folder that is used without a state folder, and what was set aside."""
    from mainstay.runtime.private_files import private_folders

    *_, temporary = private_folders()
    if (refusal := _refusal_of(temporary)) is not None:
        yield f"without a state folder nothing could be spilled: {refusal}"
    with suppress(ImportError):
        from mainstay.sinks.delivery.spill import spilled

        for each in spilled():
            if each.aside:
                yield f"{each.where}: {each.aside} files were set aside; mainstay spill list"


def files_of_store(url: str | None) -> Iterator[str]:
    """The SQLite files of a store and of the user's own, if they are there."""
    from urllib.parse import unquote

    from mainstay.engine.user_store import NAME
    from mainstay.runtime.private_files import state_folder

    if url is not None and url.startswith("sqlite:///"):
        yield from _with_logs(unquote(url.removeprefix("sqlite:///").partition("?")[0]))
    with suppress(RuntimeError):
        yield from _with_logs(str(state_folder() / NAME))


def warnings_of(file: str) -> Iterator[str]:
    """Whether others can read or write a file."""
    import stat

    if os.name != "posix":
        return
    try:
        mode = stat.S_IMODE(os.stat(file).st_mode)  # noqa: PTH116  pathlib loads slowly
    except OSError as error:
        yield f"{file}: {error.strerror}"
        return
    can = "write" if mode & 0o022 else "read"
    if mode & 0o077:
        yield f"{file}: other users can {can} it (mode {mode:04o}); chmod 600 {file}"


def _with_logs(path: str) -> Iterator[str]:
    for file in (path, f"{path}-wal", f"{path}-shm"):
        if os.path.isfile(file):  # noqa: PTH113  pathlib loads slowly
            yield file


def _refusal_of(folder: os.PathLike[str]) -> NotPrivateError | None:
    from pathlib import Path

    from mainstay.runtime.private_files import NotPrivateError, check_private

    try:
        check_private(Path(folder), 1)
    except NotPrivateError as error:
        return error
    except OSError:  # there is none
        return None
    return None
