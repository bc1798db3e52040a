"""What waits in spill folders, file by file, and sealing what this user's key has not sealed.

Files of versions before seals, and files whose key is lost, are delivered only after a person has
looked at them: `mainstay spill list` and `mainstay spill adopt`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from mainstay.core.events.codec import decode
from mainstay.core.events.describe import reason_of
from mainstay.runtime.filelock import try_lock
from mainstay.runtime.private_files import NotPrivateError, create_anew, open_private, read_private
from mainstay.sinks.delivery.seal import NotSealedError, Seal, without_seal
from mainstay.sinks.delivery.spill import (
    LARGEST,
    LOCK,
    homes_in,
    own_folders,
    spill_files,
    spill_folders,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mainstay.core.base.event import Event

SEALED = "sealed"
UNSEALED = "not sealed"
FOREIGN = "sealed with another key"
UNREADABLE = "unreadable"
REFUSED = "refused"
_MOST = 5
"""Operations that are named."""


class SpillFile(msgspec.Struct, frozen=True):
    """A file, and what may be done with it."""

    path: str
    destination: str
    """The folder of its destination."""
    state: str
    """sealed, not sealed, sealed with another key, unreadable or refused."""
    reason: str = ""
    records: int = 0
    operations: list[str] = []
    """The first that its records name."""
    first: str = ""
    last: str = ""
    """When the first and last of its records were emitted."""
    size: int = 0
    is_aside: bool = False
    """Whether a process has set it aside."""

    @property
    def can_be_adopted(self) -> bool:
        """Whether it has records that wait for a person."""
        return self.state in (UNSEALED, FOREIGN) or (self.state == SEALED and self.is_aside)

    @property
    def is_ready(self) -> bool:
        """Whether the next process delivers it."""
        return self.state == SEALED and not self.is_aside


def spill_files_in(folder: str | os.PathLike[str] | None = None) -> list[SpillFile]:
    """Every file that waits; nothing is changed.

    Args:
        folder: where to look; None for the user's own places.
    """
    found: list[SpillFile] = []
    refused: list[NotPrivateError] = []
    is_named = folder is not None
    for place in spill_folders(folder):
        for home in homes_in(place, is_named=is_named, refused=refused):
            for each in own_folders(home, is_named=is_named, refused=refused):
                found += [described(path) for path in spill_files(each)]
    return found + [SpillFile(error.filename, "", REFUSED, str(error)) for error in refused]


def described(path: Path) -> SpillFile:
    """One file; it is opened as a delivering process opens it."""
    home, is_aside = str(path.parent.parent), path.suffix == ".bad"
    try:
        data = read_private(path, LARGEST)
    except OSError as error:
        return SpillFile(str(path), home, REFUSED, str(error), is_aside=is_aside)
    state, reason = SEALED, ""
    try:
        Seal(path.parent.parent).lines(path.with_suffix(".jsonl"), data)
    except NotSealedError as error:
        state, reason = (UNSEALED if error.is_old else FOREIGN), str(error)
    try:
        events = [decode(line) for line in _plain(data)]
    except Exception as error:  # whatever it holds, it is no event
        reason = f"a line is no event: {reason_of(error)}"
        return SpillFile(str(path), home, UNREADABLE, reason, size=len(data), is_aside=is_aside)
    return SpillFile(
        str(path), home, state, reason, len(events), _operations(events), *_span(events),
        len(data), is_aside,
    )  # fmt: skip


def adopt(path: Path) -> bool:
    """Seals a file with this user's key, so that the next process delivers it.

    False if a process that runs has its folder.
    """
    guard = open_private(path.parent / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        if not try_lock(guard) or not (path.parent / LOCK).exists():
            return False
        whole = _free(path)
        home = path.parent.parent
        seal = Seal(None if home.parent in spill_folders() else home)
        data = seal.seal(whole, _plain(read_private(path, LARGEST)))
        draft = path.with_suffix(".new")
        with os.fdopen(create_anew(draft), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)  # at each moment there is one file with these records
        if path != whole:
            path.rename(whole)
        return True
    finally:
        os.close(guard)


def _free(path: Path) -> Path:
    """The name under which a file is delivered; one that another file has is not taken."""
    whole, number = path.with_suffix(".jsonl"), 1
    while whole != path and os.path.lexists(whole):
        number += 1
        whole = path.with_name(f"{path.stem}-{number}.jsonl")
    return whole


def _plain(data: bytes) -> list[bytes]:
    """The lines without seals; what comes after the last break is torn."""
    return [without_seal(line) for line in data.rpartition(b"\n")[0].splitlines()]


def _operations(events: list[Event]) -> list[str]:
    return list(dict.fromkeys(each.operation for each in events))[:_MOST]


def _span(events: list[Event]) -> tuple[str, str]:
    times = [each.timestamp for each in events]
    return (min(times), max(times)) if times else ("", "")
