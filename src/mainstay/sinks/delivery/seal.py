"""The seal of what was spilled: an HMAC of each line, with a key that only this user has.

A spill file is delivered by another process than the one that wrote it. So each line has the proof
that this user's own process wrote it, as this line of this file, for this destination. The key has
32 bytes and lies in the state folder (`spill.key`, 0600), or in the private temporary folder if
there is no state folder. If a user has named the folder of the spill, the key lies in it, in the
destination's own folder (0700), so that it lasts as long as what it seals: a container that starts
anew has another state folder, and the same volume. A user who can read the key can seal: this user,
and root.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstay.runtime.filelock import lock, unlock
from mainstay.runtime.private_files import (
    NotPrivateError,
    check_private,
    create_anew,
    make_private,
    open_private,
    private_folders,
    read_private,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

KEY = "spill.key"
_SIZE = 32
_DIGITS = 64
"""The length of a seal in hexadecimal; a space and the line come after it."""
_PATIENCE = 5.0
"""Seconds to wait for another process that creates the key; it needs milliseconds."""
_NAMES = 3
"""Parts of a path that are sealed: destination, folder of the process, file."""

_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})


class NotSealedError(Exception):
    """A line of a spill file has no seal of this user's.

    Attributes:
        is_old: whether it has no seal at all, as in files of versions before seals.
    """

    def __init__(self, number: int, *, is_old: bool) -> None:
        what = "has no seal" if is_old else "is not sealed with this user's key"
        super().__init__(f"line {number} {what}; `mainstay spill list` shows it")
        self.is_old = is_old


class Seal:
    """Seals lines and checks seals, with the key as it was read last.

    Args:
        home: the folder of a destination if a user has named where it lies; its key is there.
    """

    def __init__(self, home: Path | None = None) -> None:
        self._home = home
        self._own: bytes | None = None
        self._known: list[bytes] = []

    def seal(self, path: Path, lines: Iterable[bytes]) -> bytes:
        """What a file is to hold.

        Raises:
            OSError: there is no folder for the key.
        """
        if self._own is None:
            self._own = own_key(self._home)
        place = _place(path)
        sealed = [
            b"%s %s\n" % (_seal(self._own, place, number, line), line)
            for number, line in enumerate(lines)
        ]
        return b"".join(sealed)

    def lines(self, path: Path, data: bytes) -> list[bytes]:
        """The lines of a file without their seals; what comes after the last break is torn.

        Raises:
            NotSealedError: a line was not sealed by this user, or stood elsewhere.
        """
        whole, _, _ = data.rpartition(b"\n")
        place = _place(path)
        return [
            self._checked(place, number, line) for number, line in enumerate(whole.splitlines())
        ]

    def _checked(self, place: bytes, number: int, sealed: bytes) -> bytes:
        seal, line = sealed[:_DIGITS], without_seal(sealed)
        if line is sealed:
            raise NotSealedError(number + 1, is_old=True)
        if not self._knows(seal, place, number, line):
            self._known = [*known_keys(self._home), *filter(None, [self._own])]
            if not self._knows(seal, place, number, line):
                raise NotSealedError(number + 1, is_old=False)
        return line

    def _knows(self, seal: bytes, place: bytes, number: int, line: bytes) -> bool:
        import hmac  # loads OpenSSL, and most processes seal nothing

        return any(
            hmac.compare_digest(seal, _seal(key, place, number, line)) for key in self._known
        )


def without_seal(line: bytes) -> bytes:
    """A line without its seal, of any key; the same object if it has none."""
    has_seal = line[_DIGITS : _DIGITS + 1] == b" " and not line.startswith(b"{")
    return line[_DIGITS + 1 :] if has_seal else line


def _place(path: Path) -> bytes:
    """Which file of which destination; where the whole of them lies may change."""
    return b"\0".join(os.fsencode(part) for part in path.parts[-_NAMES:])


def _seal(key: bytes, place: bytes, number: int, line: bytes) -> bytes:
    import hmac

    text = b"mainstay spill 1\0%s\0%d\0%s" % (place, number, line)
    return hmac.digest(key, text, "sha256").hex().encode()


# --- the key -------------------------------------------------------------------------------------


def own_key(home: Path | None = None) -> bytes:
    """The key of this user, which is created if there is none.

    Args:
        home: the folder of a destination that keeps a key of its own; None for the user's places.

    Raises:
        OSError: it can be kept nowhere.
    """
    if home is not None:
        return _key_in(home, is_named=True)
    refusals: list[OSError] = []
    for folder in private_folders():
        try:
            return _key_in(folder, is_named=False)
        except OSError as error:
            refusals.append(error)
    raise refusals[0]


def known_keys(home: Path | None = None) -> list[bytes]:
    """The keys of this user, also that of a destination's folder; nothing is created.

    Raises:
        OSError: there may be one, but the process has no descriptor or memory left to read it.
    """
    found = []
    for folder in (*filter(None, [home]), *private_folders()):
        try:
            check_private(folder, 1, is_named=folder == home)
            found.append(_read(folder))
        except OSError as error:
            if is_shortage(error):
                raise
    return found


def is_shortage(error: Exception) -> bool:
    """Whether a file could not be read for want of means: later it can, and nothing is wrong."""
    return isinstance(error, MemoryError) or getattr(error, "errno", None) in _SHORTAGES


def _key_in(folder: Path, *, is_named: bool) -> bytes:
    """The key of a folder; two processes that create it at once get the same."""
    make_private(folder, 1, is_named=is_named)
    with suppress(FileNotFoundError):
        return _read(folder)
    guard = open_private(folder / f"{KEY}.lock", os.O_RDWR | os.O_CREAT)
    try:
        if not lock(guard, _PATIENCE):
            raise TimeoutError(f"another process held {folder / KEY}.lock for {_PATIENCE:g} s")
        try:
            with suppress(FileNotFoundError):
                return _read(folder)
            return _created(folder)
        finally:
            unlock(guard)  # a child that was forked meanwhile has the file open, too
    finally:
        os.close(guard)


def _read(folder: Path) -> bytes:
    key = read_private(folder / KEY, _SIZE)
    if len(key) != _SIZE:
        hint = "move it elsewhere; `mainstay spill adopt` then seals what waits with a new key"
        raise NotPrivateError(folder / KEY, "is no spill key", hint)
    return key


def _created(folder: Path) -> bytes:
    """A new key, which is there whole or not at all; the lock is held."""
    key = os.urandom(_SIZE)
    draft = folder / f"{KEY}.new"
    with os.fdopen(create_anew(draft), "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / KEY)
    _sync(folder)
    return key


def _sync(folder: Path) -> None:
    """Brings the name to the disk: what is sealed is worth no more than its key."""
    with suppress(OSError):  # Windows opens no folders
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
