"""What `mainstay doctor` finds out about files: who else can read them, and what is not used."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from mainstay.config.settings import Settings
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
    from mainstay.engine.user_store import NAME
    from mainstay.runtime.private_files import state_folder

    yield from _files_of_url(url)
    with suppress(RuntimeError):
        yield from _with_logs(str(state_folder() / NAME))


def files_of_settings(settings: Settings) -> Iterator[str]:
    """The files that a configuration names and that are there; and folders for spilled events."""
    yield from _files_of_url(settings.store.get("url"))
    yield from _files_of_url(settings.outbox.get("url"))
    for options in (settings.audit or {}, *settings.sinks.values()):
        yield from _files_of_options(options)


def _files_of_options(options: Mapping[str, Any]) -> Iterator[str]:
    """Those of a sink or an audit log: what is written, its copies, and keys."""
    for place in _texts(options, "where", "path"):
        yield from _files_of_url(place)
        if "://" not in place:
            yield from _with_logs(place)
            yield from _rotated(place)
    for file in _texts(options, "key", "heads"):
        if os.path.isfile(file):  # noqa: PTH113  pathlib loads slowly
            yield file
    for spill in _texts(options, "spill"):
        key = os.path.join(spill, "spill.key")  # noqa: PTH118  pathlib loads slowly
        yield from (each for each in (spill, key) if os.path.exists(each))  # noqa: PTH110  the same


def _texts(options: Mapping[str, Any], *names: str) -> Iterator[str]:
    """The texts of options, each of which may be a list; nobody has checked those of a sink."""
    for name in names:
        value = options.get(name)
        several = value if isinstance(value, tuple) else (value,)
        yield from (each for each in several if isinstance(each, str) and "\0" not in each)


def _rotated(path: str) -> Iterator[str]:
    """The files that it was before: `events.jsonl.1` and `audit.000001.jsonl`."""
    from glob import escape, glob

    start, end = os.path.splitext(path)  # noqa: PTH122  pathlib loads slowly
    for pattern in (f"{escape(path)}.[0-9]*", f"{escape(start)}.[0-9]*{escape(end)}"):
        yield from sorted(glob(pattern))  # noqa: PTH207  pathlib loads slowly


def _files_of_url(url: object) -> Iterator[str]:
    """The files of a SQLite database, if they are there."""
    from urllib.parse import unquote, urlsplit

    if isinstance(url, str) and url.startswith("sqlite:///"):
        yield from _with_logs(unquote(urlsplit(url).path.removeprefix("/")))


def warnings_of(file: str) -> Iterator[str]:
    """Whether others can read or write a file, or a folder."""
    import stat

    if os.name != "posix":
        return
    try:
        status = os.stat(file)  # noqa: PTH116  pathlib loads slowly
    except OSError as error:
        yield f"{file}: {error.strerror}"
        return
    mode = stat.S_IMODE(status.st_mode)
    can = "write" if mode & 0o022 else "read"
    if mode & 0o077:
        own = "700" if stat.S_ISDIR(status.st_mode) else "600"
        yield f"{file}: other users can {can} it (mode {mode:04o}); chmod {own} {file}"


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
