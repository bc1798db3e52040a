"""Writes a file whole: a reader sees the old content or all of the new."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_file(path: Path, data: bytes, *, follows: bool = True) -> None:
    """Writes a file beside it and puts it in place; what a failed attempt left is removed.

    A link that a user has named stays one. A path that is computed is not followed: a link there is
    replaced.
    """
    target = path.resolve() if follows else path
    beside = target.with_name(f".{target.name[:100]}.{os.urandom(6).hex()}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):  # a new one has what any new file has
            mode = target.lstat().st_mode
            if stat.S_ISREG(mode):
                beside.chmod(stat.S_IMODE(mode))
        beside.replace(target)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
