"""Whether a file or folder is this user's own, for everything that is used by a computed name.

A name that can be computed can be taken by another user first: with a folder of theirs, a link to a
file of ours, a pipe that nobody writes to, or a device. So folders are created for this user alone
and looked at level by level, and a file is opened without following a link or waiting, and what was
opened is looked at, not what the name led to before.

A path that a user names (`audit: /var/log/app.jsonl`) may be a link; what is derived from it (a
lock, a draft) is opened by `open_beside` and `create_anew`. Windows has no owners and modes in this
sense: there, links and everything but regular files are refused (docs/how-to/platforms.md).
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_LINKS: int = getattr(os, "O_NOFOLLOW", 0)
_OPEN: int = (
    _NO_LINKS
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_HAS_OWNERS = hasattr(os, "geteuid")
_MOVE = "look where it comes from, and move it elsewhere"
LARGEST = 512 << 20
"""Bytes of telemetry or of a ledger beyond which it is not read: more than any has.

Telemetry of 100,000 records, the most that is kept, takes 50 to 200 MB. A ledger of this size has
about a million entries, and is rewritten with each run.
"""
_LINKS = 40
"""How many links a path may lead through, as on Linux."""
_REPARSE_LINKS = frozenset({0xA000000C, 0xA0000003})
"""The tags of symbolic links and junctions on Windows."""


class NotPrivateError(PermissionError):
    """A file or folder is not this user's own.

    Attributes:
        reason: what is wrong with it.
        hint: what to do.
    """

    def __init__(self, path: object, reason: str, hint: str) -> None:
        super().__init__(errno.EPERM, f"{reason}; {hint}", str(path))
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.filename} {self.reason}; {self.hint}"


# --- where things are ----------------------------------------------------------------------------


def state_folder() -> Path:
    """The folder of this user's state; it need not exist.

    `$XDG_STATE_HOME/mainstay`, by default under `~/.local/state`; `%LOCALAPPDATA%` on Windows. A
    path that is not absolute does not count, as the XDG specification demands.

    Raises:
        RuntimeError: the user's home is unknown.
    """
    given = (os.environ.get(name, "") for name in ("XDG_STATE_HOME", "LOCALAPPDATA"))
    base = next((Path(each) for each in given if each and Path(each).is_absolute()), None)
    if base is None:
        base = Path.home().absolute() / ".local" / "state"
    return base / "mainstay"


def private_folders() -> Iterator[Path]:
    """The folders for what a process must keep, the best one first; they need not exist.

    The state folder, then one in the system's temporary folder, which is used only if it is this
    user's own: `make_private(folder, 1)`.
    """
    with suppress(RuntimeError):  # the home folder is not known
        yield state_folder()
    user = os.geteuid() if _HAS_OWNERS else "user"
    yield _temporary_folder().absolute() / f"mainstay-{user}"


def _temporary_folder() -> Path:
    """The folder of `tempfile`, which is loaded only to find one in an unusual place.

    It loads every compression, and a process that spills nothing only looks whether another has
    left something there.
    """
    if "tempfile" not in sys.modules:
        named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
        first = Path(next(filter(None, named), "/tmp"))  # noqa: S108 -- the one of tempfile
        if _HAS_OWNERS and first.is_dir() and os.access(first, os.W_OK | os.X_OK):
            return first
    import tempfile

    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:  # no folder can be written: so a caller finds, who needs one
        return Path(os.sep, "tmp")


# --- folders -------------------------------------------------------------------------------------


def make_private(folder: Path, levels: int, *, is_named: bool = False) -> None:
    """Creates a folder for this user alone, and refuses one that is not.

    Args:
        folder: an absolute path.
        levels: how many of its last levels are ours: no links, of this user, closed to others. One
            that others can read is closed; one that others can write is refused, because what is in
            it may be theirs.
        is_named: whether a user has named the folder above our levels, which is then not checked.

    Raises:
        NotPrivateError: another user could have put something there.
        OSError: it cannot be created.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp(), "mainstay", "spill")
    >>> make_private(folder, 2)
    >>> folder.is_dir()
    True
    """
    ours = [folder, *folder.parents][:levels]
    above = ours[-1].parent
    if not is_named:
        _check_above(_nearest(above))  # before anything is created there
    _create(above)
    if not is_named:
        _check_above(above)
    for each in reversed(ours):
        _create(each)
        found = check_own_folder(each)
        if _HAS_OWNERS and found.st_mode & 0o077:
            _close_to_others(each)


def check_private(folder: Path, levels: int, *, is_named: bool = False) -> None:
    """The check of `make_private` for a reader: nothing is created or changed.

    Raises:
        NotPrivateError: another user could have put something there.
        FileNotFoundError: there is no such folder.
    """
    ours = [folder, *folder.parents][:levels]
    if not is_named:
        _check_above(ours[-1].parent)
    for each in reversed(ours):
        check_own_folder(each)


def check_own_folder(folder: Path) -> os.stat_result:
    """Raises NotPrivateError unless it is a real folder of this user that others cannot write."""
    found = folder.lstat()
    if is_link(found):
        raise NotPrivateError(folder, "is a link", "remove it: mainstay creates the folder")
    if not stat.S_ISDIR(found.st_mode):
        raise NotPrivateError(folder, "is no folder", "remove it: mainstay creates the folder")
    if _HAS_OWNERS and found.st_uid != os.geteuid():
        raise NotPrivateError(folder, _owner(found), "have it removed, or set XDG_STATE_HOME")
    if (reason := why_not_mine(found)) is not None:
        hint = f"look through what is in it, then: chmod 700 {folder}"
        raise NotPrivateError(folder, reason, hint)
    return found


def _create(folder: Path) -> None:
    """Creates a folder and those above it, each closed to others; one that is there is left."""
    there = _nearest(folder)
    missing = [each for each in (folder, *folder.parents) if each.is_relative_to(there)]
    for each in reversed(missing[: missing.index(there)]):
        with suppress(FileExistsError):
            each.mkdir(mode=0o700)


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that is there."""
    return next(each for each in (folder, *folder.parents) if _is_there(each))


def _is_there(path: Path) -> bool:
    return os.path.lexists(path) or path.parent == path


def _close_to_others(folder: Path) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY | _OPEN
    file = os.open(folder, flags)
    try:
        if os.fstat(file).st_uid == os.geteuid():
            os.fchmod(file, 0o700)
    finally:
        os.close(file)


def _check_above(folder: Path) -> None:
    """Each level above ours: of this user or root, and nobody else can rename what is in it."""
    if not _HAS_OWNERS:
        return
    for path, found in levels_of(folder):
        is_sticky = bool(found.st_mode & stat.S_ISVTX)
        if (reason := why_not_mine(found, is_sticky=is_sticky)) is not None:
            hint = f"change its owner or mode (chmod +t {path}), or set XDG_STATE_HOME"
            raise NotPrivateError(path, reason, hint)


def levels_of(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder and link that a path leads through, from the root on."""
    left = list(reversed(path.parts[1:]))
    at, links = Path(path.anchor), 0
    yield at, at.lstat()
    while left:
        name = left.pop()
        if name == "..":
            at = at.parent
            continue
        found = (at / name).lstat()
        yield at / name, found
        if not is_link(found):
            at = at / name
            continue
        links += 1
        if links > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = (at / name).readlink()
        at = Path(target.anchor) if target.is_absolute() else at
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)


# --- files ---------------------------------------------------------------------------------------


def open_private(path: Path, flags: int, *, limit: int | None = None) -> int:
    """Opens a file that must be this user's own; its descriptor.

    Args:
        path: a file in a folder that `make_private` or `check_private` has passed.
        flags: as for `os.open`; a file that is created is readable for this user alone.
        limit: the most bytes that it may have.

    Raises:
        NotPrivateError: it is a link, no regular file, another user's, has a second name, can be
            written by others, or is larger than the limit.
        OSError: as `os.open`.
    """
    file = _open_without_links(path, flags & ~os.O_TRUNC)
    try:
        found = os.fstat(file)
        if (reason := _not_private(found, limit)) is not None:
            raise NotPrivateError(path, reason, _MOVE)
        if flags & os.O_TRUNC:
            os.ftruncate(file, 0)
    except BaseException:
        os.close(file)
        raise
    return file


def check_own_file(path: Path) -> None:
    """The check of `open_private` for a file that another library opens; one may be missing.

    The file is not opened: to close it would drop the locks of SQLite.

    Raises:
        NotPrivateError: as `open_private`.
    """
    with suppress(FileNotFoundError):
        found = path.lstat()
        kind = "is a link" if is_link(found) else "is no regular file"
        reason = _not_private(found, None) if stat.S_ISREG(found.st_mode) else kind
        if reason is not None:
            raise NotPrivateError(path, reason, _MOVE)


def read_private(path: Path, limit: int) -> bytes:
    """The bytes of a file that must be this user's own, at most `limit`."""
    return read_bounded(path, open_private(path, os.O_RDONLY, limit=limit), limit)


def open_beside(path: Path, flags: int) -> int:
    """Opens a file beside a path that a user has named, or in a folder: not through a link.

    Its owner may be any user who may write to that folder: it is a lock, or what such users share.
    """
    return _open_without_links(path, flags & ~os.O_TRUNC)


def open_regular(path: str, flags: int) -> int:
    """Opens a regular file at a path that may be a link; an `opener` of `open` and `FileIO`.

    A pipe that nobody writes to does not stop the process.
    """
    file = os.open(path, flags | (_OPEN & ~_NO_LINKS), 0o600)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise NotPrivateError(path, "is no regular file", "give the path of a file")


def read_regular(path: str | os.PathLike[str], limit: int = LARGEST) -> bytes:
    """The bytes of a regular file at a path that a user has named, which may be a link."""
    return read_bounded(path, open_regular(os.fspath(path), os.O_RDONLY), limit)


def read_beside(path: Path, limit: int = LARGEST, *, is_named: bool = True) -> bytes:
    """The bytes of a regular file whose name is computed: not through a link.

    Args:
        path: a file in a folder.
        limit: the most bytes that it may have.
        is_named: whether a user has named the folder: then the file may have any owner. Otherwise
            it must be this user's or root's.

    Raises:
        NotPrivateError: it is a link, no regular file, larger than the limit, or another user's.
        OSError: as `os.open`.
    """
    file = open_beside(path, os.O_RDONLY)
    found = os.fstat(file)
    if _HAS_OWNERS and not is_named and found.st_uid not in (os.geteuid(), 0):
        os.close(file)
        raise NotPrivateError(path, _owner(found), "look where it comes from, or name its path")
    return read_bounded(path, file, limit)


def create_anew(path: Path) -> int:
    """Creates an empty file of this user's own in place of what has the name; its descriptor.

    For drafts, whose name is the same each time: a link is removed, not followed.
    """
    for _ in range(_LINKS):
        with suppress(FileNotFoundError):
            path.unlink()
        with suppress(FileExistsError):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o600)
    raise NotPrivateError(path, "comes back whenever it is removed", "look who creates it")


def _open_without_links(path: Path, flags: int) -> int:
    """Opens a regular file; a link, a pipe or a device is not waited for."""
    hint = "look where it comes from, and remove it"
    with suppress(FileNotFoundError):
        found = path.lstat()  # a device is not opened at all, unless it comes a moment later
        if is_link(found):
            raise NotPrivateError(path, "is a link", hint)
        if not stat.S_ISREG(found.st_mode):
            raise NotPrivateError(path, "is no regular file", hint)
    try:
        file = os.open(path, flags | _OPEN, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotPrivateError(path, "is a link or no regular file", hint) from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotPrivateError(path, "is no regular file", hint)
    return file


def read_bounded(path: object, file: int, limit: int) -> bytes:
    """Reads an opened file to its end and closes it; it may grow meanwhile, up to the limit.

    Raises:
        NotPrivateError: it is larger than the limit.
    """
    with os.fdopen(file, "rb") as opened:
        size = os.fstat(file).st_size
        if size > limit:
            raise NotPrivateError(path, _too_large(size, limit), _MOVE)
        data = opened.read(size + 1)
        if len(data) > size:
            data += opened.read(limit + 1 - len(data))
    if len(data) > limit:
        raise NotPrivateError(path, f"has more than {limit} bytes", _MOVE)
    return data


def _too_large(size: int, limit: int) -> str:
    return f"has {size} bytes, more than {limit}"


def _not_private(found: os.stat_result, limit: int | None) -> str | None:
    if _HAS_OWNERS and found.st_uid != os.geteuid():
        return _owner(found)
    if found.st_nlink > 1:
        return "has a second name (a hard link)"
    if limit is not None and found.st_size > limit:
        return _too_large(found.st_size, limit)
    return why_not_mine(found)


# --- owner and mode ------------------------------------------------------------------------------


def why_not_mine(found: os.stat_result, *, is_sticky: bool = False) -> str | None:
    """Why another user could change a file or folder; None if only this user and root can.

    The group may write if it is this user's private group, as many Linux systems set it up: of the
    user's own name, their primary group, without another member.

    Args:
        found: of `os.fstat` or `os.lstat`. A link has no mode: its owner counts.
        is_sticky: whether it is a folder of which others may change only what is theirs.

    >>> import tempfile
    >>> why_not_mine(Path(tempfile.mkdtemp()).lstat()) is None
    True
    """
    if not _HAS_OWNERS:
        return None
    if found.st_uid not in (os.geteuid(), 0):
        return _owner(found)
    if is_link(found) or is_sticky:
        return None
    mode = f"(mode {stat.S_IMODE(found.st_mode):04o})"
    if found.st_mode & stat.S_IWOTH:
        return f"can be written by every user {mode}"
    if found.st_mode & stat.S_IWGRP and not is_private_group(found.st_gid):
        return f"can be written by group {found.st_gid} {mode}"
    return None


def is_private_group(gid: int) -> bool:
    """Whether a group is this user's own: their name, their primary group, no other member."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    if user.pw_gid != gid or group.gr_name != user.pw_name or set(group.gr_mem) - {user.pw_name}:
        return False
    return all(each.pw_gid != gid or each.pw_uid == user.pw_uid for each in pwd.getpwall())


def is_link(found: os.stat_result) -> bool:
    """Whether `lstat` has found a link, or on Windows a junction."""
    return stat.S_ISLNK(found.st_mode) or getattr(found, "st_reparse_tag", 0) in _REPARSE_LINKS


def _owner(found: os.stat_result) -> str:
    return f"belongs to user {found.st_uid}, not to user {os.geteuid()} who runs this"
