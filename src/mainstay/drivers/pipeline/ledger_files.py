"""The two ledger files of a folder: copies of what the store has, replaced as a whole.

A file that is missing is written from every run of the store. One that is damaged, altered or of a
later version is left as it is, with an error that names its line.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mainstay.core.base.timestamps import stamp
from mainstay.core.pipeline.ledger import (
    RETRY_LOG,
    VERSIONING,
    Altered,
    Ledger,
    ledger_of,
    merged,
    over_before,
    verify,
)
from mainstay.core.pipeline.ledger_file import decode, encode, line_of
from mainstay.errors import LedgerError
from mainstay.runtime import private_files
from mainstay.runtime.filelock import lock, unlock
from mainstay.runtime.private_files import open_beside, read_beside, read_regular
from mainstay.runtime.replace_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mainstay.core.pipeline.ledger import LedgerEntry
    from mainstay.core.pipeline.state import RunRecord

_PATIENCE = 30.0
"""Seconds to wait for other processes that write the files; each needs milliseconds."""


def read_ledger(path: str | os.PathLike[str], ledger: str = "") -> Ledger:
    """The ledger in a file; LedgerError with the line if it is damaged or was altered.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "versioning_ledger.json")
    >>> _ = path.write_bytes(encode(ledger_of(VERSIONING, [])))
    >>> read_ledger(path).entries
    ()
    """
    return _read(Path(path), ledger, read_regular)[0]


def _read(path: Path, ledger: str, read: Callable[[Path], bytes]) -> tuple[Ledger, bytes]:
    try:
        data = read(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LedgerError(str(path), 0, f"it cannot be read: {error.strerror}") from error
    found = decode(data, str(path), ledger)
    for flaw in verify(found):
        raise LedgerError(str(path), line_of(data, flaw.index), flaw.text)
    return found, data


class LedgerFiles:
    """The ledgers of one folder.

    Args:
        folder: where they are; it is created if it does not exist.
        keep: seconds for which runs that have ended stay in the files; None for ever.
        is_named: whether a user has named the folder; otherwise the files must be this user's or
            root's.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        keep: float | None = None,
        *,
        is_named: bool = True,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.keep = keep
        self.is_named = is_named

    def path_of(self, ledger: str) -> Path:
        """The file of a ledger."""
        return self.folder / f"{ledger}.json"

    def check(self) -> None:
        """Raises LedgerError if a file is damaged, altered or of a later version."""
        for ledger in (RETRY_LOG, VERSIONING):
            self.read(ledger)

    def read(self, ledger: str) -> tuple[Ledger, bytes] | None:
        """A ledger that is whole, and the bytes of its file; None if there is no file."""
        try:
            read = partial(read_beside, is_named=self.is_named)
            return _read(self.path_of(ledger), ledger, read)
        except FileNotFoundError:
            return None

    def refuse_known(self, pipeline: str, run: str, now: float) -> None:
        """Refuses a run that a file has and the store has not: its entries could not be written."""
        found = self.read(VERSIONING)
        if found is None:
            return
        is_over = (pipeline, run) in self._over(found[0], now)
        for index, entry in enumerate(found[0].entries):
            if (entry.pipeline_id, entry.run_id) == (pipeline, run) and not is_over:
                path, line = str(self.path_of(VERSIONING)), line_of(found[1], index)
                text = f"run {run} of {pipeline} is in it, and not in the store; give it another id"
                raise LedgerError(path, line, text)

    def _over(self, versioning: Ledger, now: float) -> frozenset[tuple[str, str]]:
        """The runs that are not kept any longer."""
        if self.keep is None:
            return frozenset()
        return over_before(versioning, stamp(now - self.keep))

    def write(
        self, runs: Sequence[RunRecord], every: Callable[[], Iterable[RunRecord]], now: float
    ) -> None:
        """Brings the files up to date with some runs; with every run, if a file is missing.

        `now` is the store's clock, by which runs that are not kept any longer are dropped.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = self.folder / ".ledgers.lock"
        guard = open_beside(beside, os.O_RDWR | os.O_CREAT)
        try:
            if not lock(guard, _PATIENCE):
                raise TimeoutError(f"{beside} was held by another process for {_PATIENCE:g} s")
            try:
                self._write_locked(runs, every, now)
            finally:
                unlock(guard)
        finally:
            os.close(guard)

    def _write_locked(
        self, runs: Sequence[RunRecord], every: Callable[[], Iterable[RunRecord]], now: float
    ) -> None:
        versions, retries = self.read(VERSIONING), self.read(RETRY_LOG)
        if versions is None or retries is None:
            runs = sorted(every(), key=lambda run: (run.began, run.pipeline, run.run))
        gone = frozenset() if versions is None else self._over(versions[0], now)
        versioning = self._merged(VERSIONING, versions, [run.versions for run in runs], gone)
        log = self._merged(RETRY_LOG, retries, [run.retries for run in runs], gone)
        if self.keep is not None:
            since, gone = stamp(now - self.keep), self._over(versioning, now)
            versioning = merged(versioning, [], gone, since)
            log = merged(log, [], gone, since)
        self._replace(RETRY_LOG, log, retries)  # first: the other refers to it
        self._replace(VERSIONING, versioning, versions)

    def _merged(
        self,
        ledger: str,
        found: tuple[Ledger, bytes] | None,
        chains: list[tuple[LedgerEntry, ...]],
        gone: frozenset[tuple[str, str]],
    ) -> Ledger:
        before = ledger_of(ledger, []) if found is None else found[0]  # type: ignore[arg-type]
        before = merged(before, [], gone) if gone else before  # an id may be used again by now
        try:
            return merged(before, chains)
        except Altered as error:
            line = line_of(found[1] if found else b"", error.index)
            raise LedgerError(str(self.path_of(ledger)), line, error.text) from error

    def _replace(self, ledger: str, new: Ledger, found: tuple[Ledger, bytes] | None) -> None:
        if found is not None and found[0] == new:
            return
        data, path = encode(new), self.path_of(ledger)
        if len(data) > private_files.LARGEST:  # it could not be read again
            text = f"it would have {len(data)} bytes, more than {private_files.LARGEST}; set keep="
            raise LedgerError(str(path), 0, text)
        replace_file(path, data, follows=False)
