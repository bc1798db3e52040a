"""Where the demo keeps its store and its audit log: a folder of its own, gone afterwards.

Nothing of the user's is read or written. Ctrl+C while the folder is made or removed waits until
that is done, and whatever is left by then is removed when Python ends.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mainstay.cli.demo.interrupt import undisturbed
from mainstay.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "mainstay-demo-"
STORE, AUDIT, HEADS = "store.db", "audit.jsonl", "heads.jsonl"
_TRIES = 20
_PAUSE = 0.05


@contextmanager
def place(keep: str | None) -> Iterator[Path]:
    """The folder: that one, which stays; or a temporary one, which does not."""
    if keep is not None:
        yield _kept(Path(keep))
        return
    made: list[Path] = []
    try:
        with undisturbed():
            made.append(Path(tempfile.mkdtemp(prefix=PREFIX)))
            atexit.register(_remove, made[0])
        yield made[0]
    finally:
        with undisturbed():
            for folder in made:
                _remove(folder)


def _kept(folder: Path) -> Path:
    """A folder to keep; one with something in it is not ours to write to."""
    folder.mkdir(parents=True, exist_ok=True)
    if next(folder.iterdir(), None) is not None:
        raise CommandError(f"{folder} is not empty", hint="name a new folder: --keep FOLDER")
    return folder


def _remove(folder: Path) -> None:
    """Removes it; again where a thread that ends meanwhile put something into it."""
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(_PAUSE)
