"""An audit log in a file of JSON lines, for several processes at once.

Writers share the lock of a file beside it (`audit.jsonl.lock`). A writer reads what others have
appended since, marks what a killed one left behind, and appends a block with one write. A file that
has grown to `rotate` bytes becomes `audit.000001.jsonl`, and the next one begins with its last link
and with the plans that were declared in it.
"""

from __future__ import annotations

import mmap
import os
import re
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mainstay.core.audit.chain import PLAN, Tail, carried, decode_head, header_of
from mainstay.errors import StoreError, StoreUnavailable
from mainstay.runtime.filelock import lock as wait_for_lock
from mainstay.runtime.filelock import unlock
from mainstay.runtime.fork import make_rlock
from mainstay.runtime.private_files import open_beside
from mainstay.stores.jsonl.files import JournalFile, Snapshot
from mainstay.stores.jsonl.lines import Reader, lines_of, start_before, tail_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    from mainstay.core.audit.chain import Anchor, Block, Entry, Head
    from mainstay.stores.jsonl.lines import Found

_TRIES = 10
"""How often files are opened if one is ended meanwhile."""


class JsonlJournal:
    """The audit log of a file.

    Args:
        path: the file; its folder is there already.
        rotate: bytes after which a new file is begun; None for never.
        syncs: whether each block is brought to the disk itself, so that it outlives a power cut.
        timeout: seconds to wait for the lock.
        reads_only: whether nothing may be written.

    Attributes:
        torn: how many writes that were cut off the last reading has passed over.
        passed: the heads that a reading of blocks has passed by, until a reader removes them.
        flaws: what it found that is not as it was written, beside the blocks.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        rotate: int | None = None,
        syncs: bool = False,
        timeout: float = 5.0,
        reads_only: bool = False,
    ) -> None:
        self.path = Path(path)
        self.url = str(path)
        self.torn = 0
        self.passed: list[Head] = []
        self.flaws: list[str] = []
        self._rotate = rotate
        self._syncs = syncs
        self._timeout = timeout
        self._reads_only = reads_only
        self._lock = make_rlock()
        self._target = JournalFile()

    # --- writing ---------------------------------------------------------------------------------

    def append(self, make: Callable[[Tail, Sequence[bytes]], Entry]) -> Tail:
        """Seals and keeps what comes next, as one step; where the log ends then."""
        with self._writing("append") as target:
            plans: list[bytes] = []
            if self._rotate is not None and target.end >= self._rotate:
                plans = self._rotate_file(target)
            tail = target.tail_to_seal()
            _put(target, make(tail, plans), syncs=self._syncs)
            return target.tail

    def prune(self, before: str, make: Callable[[Tail, Anchor], Entry]) -> int:
        """Deletes the oldest files that were ended before a time; how many records were dropped."""
        with self._writing("prune") as target:
            old = list(takewhile(lambda file: _was_ended(file, before), self._older()))
            starts = self._starts()
            first, begins = starts[0], starts[len(old)]
            if not old or begins is None:
                return 0
            _put(target, make(target.tail_to_seal(), begins), syncs=True)
            target.forget()
            for file in old:
                file.unlink()
            return begins.number - (first.number if first is not None else 0)

    def _rotate_file(self, target: JournalFile) -> list[bytes]:
        """Ends the file and begins another; the plans that were declared in it."""
        files = self._older()
        number = _number_in(files[-1]) + 1 if files else 1
        plans = carried(_plans_in(self.path))
        ended = self.path.with_name(f"{self.path.stem}.{number:06d}{self.path.suffix}")
        self.path.rename(ended)
        tail = target.tail
        target.open(self.path, ends=tail)
        return plans

    # --- reading ---------------------------------------------------------------------------------

    def tail(self) -> Tail:
        """Where the log ends."""
        with ExitStack() as opened:
            for file in reversed(self._files(opened)):
                tail = _tail_in(file)
                if tail.block:
                    return tail
        return Tail()

    def blocks(self, after: int = 0) -> Iterator[Block]:
        """The blocks after a number, in order, from file to file."""
        self.torn = 0
        self.passed.clear()
        self.flaws.clear()
        tail: Tail | None = None if after else Tail()
        with ExitStack() as opened:
            for index, file in enumerate(self._files(opened)):
                start = start_before(file, file.size, after) if after else 0
                reader = Reader(file, start, tail, goes_on=index > 0)
                for found in reader:
                    self._pass(found)
                    if found.block is not None and not (after and _is_before(found.block, after)):
                        yield found.block
                    del found  # and its lines, before the next are read
                tail = reader.tail
                self.torn += reader.end < file.size or reader.lacks_head

    def _pass(self, found: Found) -> None:
        """Keeps what a reading has found beside a block."""
        self.torn += bool(found.torn)
        if found.head is not None:
            self.passed.append(found.head)
        if found.flaw:
            self.flaws.append(found.flaw)

    def heads(self) -> list[Head]:
        """The heads that are kept in the log."""
        with ExitStack() as opened:
            return [head for file in self._files(opened) for head in _heads_in(file)]

    def anchor(self) -> Anchor | None:
        """Where the log begins, if older files were deleted."""
        return self._starts()[0]

    def close(self) -> None:
        """Closes the file; the next use opens it again."""
        with self._lock:
            self._target.forget()

    # --- files -----------------------------------------------------------------------------------

    def _older(self) -> list[Path]:
        """The files that were ended, the oldest first."""
        pattern = re.compile(
            re.escape(self.path.stem) + r"\.\d{6,}" + re.escape(self.path.suffix) + "$"
        )
        try:
            names = [each for each in self.path.parent.iterdir() if pattern.match(each.name)]
        except FileNotFoundError:
            return []
        return sorted(names, key=_number_in)

    def _files(self, opened: ExitStack) -> list[Snapshot]:
        """All files, open, the oldest first; again if one is ended meanwhile."""
        found: list[Snapshot] = []
        for _ in range(_TRIES):
            with ExitStack() as attempt:
                found = self._files_now(attempt)
                opened.enter_context(attempt.pop_all())
            if _is_at(self.path, found[-1] if found else None):
                break
        if not found and self._reads_only:
            raise StoreError(f"there is no audit log at {self.path}")
        return found

    def _files_now(self, opened: ExitStack) -> list[Snapshot]:
        """The same, from the newest on: pruning begins with the oldest."""
        found = [_opened(self.path, opened)]
        found += [_opened(path, opened) for path in reversed(self._older())]
        by_number: dict[int, Snapshot] = {}
        for each in reversed(found):
            by_number.update(each)
        return list(by_number.values())

    def _starts(self) -> list[Anchor | None]:
        """What each file goes on from, the oldest first."""
        with ExitStack() as opened:
            firsts = [next(iter(Reader(file)), None) for file in self._files(opened)]
        return [first.anchor if first is not None else None for first in firsts] or [None]

    @contextmanager
    def _writing(self, what: str) -> Iterator[JournalFile]:
        """The file to write to, with the lock that all writers share."""
        if self._reads_only:
            raise StoreError(f"{self.path} was opened to be read")
        with self._lock, _translated(self.url, what):
            name = self.path.with_name(f"{self.path.name}.lock")
            lock = open_beside(name, os.O_RDWR | os.O_CREAT)
            try:
                if not wait_for_lock(lock, self._timeout):
                    raise TimeoutError(f"another process held {name} for {self._timeout:g} s")
                try:
                    is_new = not self.path.exists() or not self.path.stat().st_size
                    ends = self.tail() if is_new and self._older() else None
                    self._target.open(self.path, ends=ends)
                    yield self._target
                finally:
                    unlock(lock)  # a child that was forked meanwhile has the file open, too
            finally:
                os.close(lock)


def _opened(path: Path, opened: ExitStack) -> dict[int, Snapshot]:
    """The file at a path by its number; nothing if there is none."""
    try:
        file = opened.enter_context(Snapshot(path))
    except FileNotFoundError:
        return {}
    return {os.fstat(file.fileno()).st_ino: file}


def _is_at(path: Path, file: Snapshot | None) -> bool:
    """Whether a file stands at a path still."""
    try:
        number = path.stat().st_ino
    except FileNotFoundError:
        return True
    return file is not None and os.fstat(file.fileno()).st_ino == number


def _put(target: JournalFile, entry: Entry, *, syncs: bool) -> None:
    tail = target.tail
    if entry.block is not None:
        header = header_of(entry.block)
        number = header.first + header.count - 1
        tail = Tail(header.log, header.block, number, entry.block.link)
    target.append(lines_of(entry), tail, syncs=syncs)


def _tail_in(file: Snapshot) -> Tail:
    tail = Tail()
    for start in (start_before(file, file.size), 0):
        for found in Reader(file, start):
            tail = tail_after(found, tail)
        if tail.block:
            break
    return tail


def _was_ended(path: Path, before: str) -> bool:
    """Whether the last block of a file was written before a time."""
    last = ""
    with Snapshot(path) as file:
        for found in Reader(file, start_before(file, file.size)):
            last = header_of(found.block).time if found.block is not None else last
    return bool(last) and last < before


def _is_before(block: Block, after: int) -> bool:
    try:
        return header_of(block).block <= after
    except msgspec.MsgspecError:
        return False


def _number_in(path: Path) -> int:
    return int(path.stem.rpartition(".")[2])


def _plans_in(path: Path) -> Iterator[bytes]:
    """The records of a file that declare a plan; what a killed writer has left is none."""
    with Snapshot(path) as file:
        for found in Reader(file):
            if found.block is not None:
                yield from (record for record in found.block.records if PLAN in record)


def _heads_in(file: BinaryIO) -> list[Head]:
    """The heads of a file, without reading the records between them."""
    found: list[Head] = []
    if not os.fstat(file.fileno()).st_size:
        return found
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        at = memory.find(b'\n{"head":')
        while at >= 0:
            end = memory.find(b"\n", at + 1)
            with suppress(msgspec.MsgspecError):
                found.append(decode_head(memory[at + 9 : end - 1]))
            at = memory.find(b'\n{"head":', at + 1)
    return found


@contextmanager
def _translated(url: str, what: str) -> Iterator[None]:
    """Raises StoreUnavailable for an error of the operating system."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(url, what, str(error)) from error
