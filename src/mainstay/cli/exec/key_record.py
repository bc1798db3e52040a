"""Where the record of a key is, and which command line it stands for.

A key stands for one command line, and for the working directory too if a word of it is a relative
path. Its record holds a hash of that, never the text. The same key of another command finds the
same record, so it is refused: only a named operation has keys of its own.

Earlier versions kept keys by the name of the command and hashed its words alone; such a record is
found and replayed as long as it is kept.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

import mainstay.runtime.clock as clock
from mainstay.core.codec.arguments import key_text
from mainstay.core.codec.canonical import canonical, fingerprint
from mainstay.core.idempotency.record import decode
from mainstay.drivers.idempotency.keyed_call import SPACE
from mainstay.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstay.cli.exec.request import ExecRequest
    from mainstay.drivers.idempotency.records import Records

OPERATION = "exec"
"""In place of an operation, in the address of a key of a command without a name."""
_POLL = 0.2
"""Seconds between two tries to read a store that is unavailable."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class KeyRecord(NamedTuple):
    """The place of a record, and the folder that belongs to what it stands for."""

    name: str
    """What stands for the operation in the address of the record."""
    folder: bytes | None
    """The working directory, if it counts."""

    def place(self, key: str) -> str:
        """The address of a key's record."""
        return address(self.name, key)


def address(name: str, key: str) -> str:
    """Where the record of a key is: tenant, operation and key, as `drivers/idempotency` has it.

    >>> address("exec", "release-42")
    '[null,"exec","release-42"]'
    """
    return canonical([None, name, key]).decode()


def record_of(request: ExecRequest, records: Records) -> KeyRecord:
    """The record that the key of a request has, or will have."""
    folder = _working_directory()
    counts = folder if folder is not None and has_relative_path(request.command) else None
    own = request.operation if request.is_named else OPERATION
    words, key = tuple(map(os.fsencode, request.command)), key_text(request.key)
    for name in dict.fromkeys((own, request.operation)):
        kept = _fingerprint_at(records, address(name, key))
        if kept == fingerprint({"command": words}):
            return KeyRecord(name, None)
        if kept is not None:
            is_here = kept == fingerprint({"command": words, "folder": folder})
            return KeyRecord(name, folder if is_here else counts)
    return KeyRecord(own, counts)


def _fingerprint_at(records: Records, where: str) -> str | None:
    """The fingerprint of a record that has not expired; None if there is none, or no readable one.

    The claim that follows reports a damaged one.
    """
    value, now = _read(records, where)
    try:
        record = None if value is None else decode(value)
    except (ValueError, RecursionError):
        return ""
    if record is None or (record.expires is not None and record.expires <= now):
        return None
    return record.fingerprint


def _read(records: Records, where: str) -> tuple[bytes | None, float]:
    end = clock.current.monotonic() + records.store_wait
    while True:
        try:
            return records.store.read(SPACE, where)
        except StoreUnavailable:
            if clock.current.monotonic() >= end:
                raise
        clock.current.sleep(_POLL)


def has_relative_path(command: Sequence[str]) -> bool:
    """Whether a word of a command names a file relative to the working directory.

    The program does if it has a folder that is not absolute; an argument, or its value after `=` or
    `@`, if it begins with a dot and a slash, or names something that is there now.

    >>> has_relative_path(["./deploy.sh", "42"]), has_relative_path(["/bin/echo", "released"])
    (True, False)
    """
    program, *arguments = command
    if os.path.dirname(program) and not os.path.isabs(program):  # noqa: PTH117, PTH120  as a text
        return True
    return any(map(_is_relative_path, arguments))


def _is_relative_path(word: str) -> bool:
    value = word.rpartition("=")[2].removeprefix("@")
    if not value or os.path.isabs(value) or _URL.match(value):  # noqa: PTH117  as a text
        return False
    first = re.split(r"[/\\]" if os.name == "nt" else "/", value, maxsplit=1)[0]
    if first in (".", ".."):
        return True
    try:
        return os.path.lexists(first)
    except ValueError:  # a NUL: no file has such a name
        return False


def _working_directory() -> bytes | None:
    try:
        return os.getcwdb()  # noqa: PTH109  as the bytes that it is
    except OSError:  # it was removed under us
        return None
