"""Verifies an audit log: the chain, block by block, and the heads of it.

The chain alone shows a change, unless all links after it were computed anew. Signed heads in the
log show that too; heads outside the log show that it was truncated or rewritten, even by its own
writer. It is evidence, not a lock.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec

from mainstay.audit.external_heads import read_heads
from mainstay.audit.open import open_journal
from mainstay.core.audit.chain import Flaw, Tail, header_of, verify_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstay.audit.keys import Checker
    from mainstay.audit.open import Where
    from mainstay.core.audit.chain import Anchor, Block, Head
    from mainstay.ports import Journal


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What verifying a log came to.

    Attributes:
        ok: whether nothing speaks against it.
        records: how many were verified.
        blocks: how many were verified.
        first_bad: the number of the first record that is not as it was written.
        problem: what is wrong, in words.
        truncated: whether a head speaks of more than there is.
        rewritten: whether a head speaks of something else than there is.
        unsigned: whether a public key was given, and nothing it has signed speaks for the log.
        heads: how many heads agree with the log.
        other_heads: how many heads from outside are of another log: of one that is elsewhere, or
            of one that stood here before.
        signed_until: the last record that a valid signature speaks for; 0 for none.
        begins_after: the last record that was pruned; 0 for none.
        ends_with: the last record there is.
        torn: how many writes were cut off by a kill; no caller was acknowledged for them.
        log: the log's id.

    >>> Verdict(ok=True, records=3).ok
    True
    """

    ok: bool
    records: int = 0
    blocks: int = 0
    first_bad: int | None = None
    problem: str = ""
    truncated: bool = False
    rewritten: bool = False
    unsigned: bool = False
    heads: int = 0
    other_heads: int = 0
    signed_until: int = 0
    begins_after: int = 0
    ends_with: int = 0
    torn: int = 0
    log: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The verdict as plain data.

        >>> Verdict(ok=True).to_dict()["ok"]
        True
        """
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]


def verify_log(
    where: Where,
    *,
    heads: Any = None,
    public_key: Any = None,
    progress: Callable[[int], object] | None = None,
) -> Verdict:
    """Checks a log against itself, and against heads.

    Args:
        where: the place of the log.
        heads: heads that were kept outside: the path of a file, or a list of them.
        public_key: checks the signatures of heads: PEM, or the path of it.
        progress: is called with the number of the last record, block by block.

    >>> import tempfile
    >>> from mainstay.audit import AuditLog
    >>> from mainstay.events import CallSucceeded
    >>> where = tempfile.mkdtemp() + "/audit.jsonl"
    >>> log = AuditLog(where, heads=where + ".heads")
    >>> log(CallSucceeded(operation="fetch")); log.close()
    >>> verdict = verify_log(where, heads=where + ".heads")
    >>> verdict.ok, verdict.records, verdict.heads
    (True, 1, 2)
    """
    checker = None
    if public_key is not None:
        from mainstay.audit.keys import Checker

        checker = Checker(public_key)
    with closing(open_journal(where, reads_only=True)) as journal:
        return _Check(journal, read_heads(heads), checker).run(progress)


class _Check:
    """One verification: what is known so far."""

    def __init__(self, journal: Journal, outside: list[Head], checker: Checker | None) -> None:
        self._journal = journal
        self._checker = checker
        self._outside = outside
        self._anchor: Anchor | None = journal.anchor()
        self._tail: Tail = self._anchor.tail if self._anchor is not None else Tail()
        self._begins = self._tail
        self._notes: dict[int, dict[str, Any]] = {}
        self._unsigned: set[int] = set()
        """The notes that no signature speaks for yet."""
        self._heads: dict[int, list[Head]] = {}
        self._passed: list[Head] | None = getattr(journal, "passed", None)
        self._forged: Head | None = None
        self._agreed = 0
        self._agreed_number = self._begins.number
        self._signed_until = 0

    def run(self, progress: Callable[[int], object] | None) -> Verdict:
        self._take(self._outside)
        if self._passed is None:
            self._take(self._journal.heads())
        for block in self._journal.blocks():
            wrong = self._look()
            if wrong is not None:
                return wrong
            after = verify_block(self._tail, block)
            if isinstance(after, Flaw):
                problem = f"record {after.number} (block {after.block}): {after.problem}"
                return self._bad(problem, first_bad=after.number)
            self._note(block)
            self._tail = after
            del block  # before the next is read: memory that is still warm is used again
            if progress is not None:
                progress(after.number)
        return self._look() or self._end()

    def _look(self) -> Verdict | None:
        """Compares the log so far with heads; in a file they stand behind the block."""
        if self._passed:
            self._take(self._passed)
            self._passed.clear()
        return self._compare(self._tail)

    def _take(self, heads: Iterable[Head]) -> None:
        for head in heads:
            if self._is_trusted(head):
                self._heads.setdefault(head.block, []).append(head)

    def _is_trusted(self, head: Head) -> bool:
        """Whether a head counts: what comes from outside does; what is inside, where it is signed.

        Without a public key that cannot be checked, and all of them count.
        """
        checker = self._checker
        if checker is None:
            return True
        if head.key == checker.id:
            if checker.is_signed(head):
                return True
            self._forged = head
            return False
        return any(head is each for each in self._outside)

    def _note(self, block: Block) -> None:
        if b'"note"' in block.header:
            pruned = (header_of(block).note or {}).get("pruned") or {}
            if isinstance(pruned.get("number"), int):
                self._notes[pruned["number"]] = pruned
                self._unsigned.add(pruned["number"])

    def _compare(self, tail: Tail) -> Verdict | None:
        """The verdict if a head disagrees with the log at this point; None if all agree."""
        for head in self._heads.pop(tail.block, ()):
            if head.log != tail.log:
                self._heads.setdefault(-1, []).append(head)
                continue
            if head.link != tail.link.hex():
                first = self._agreed_number + 1
                problem = (
                    f"the log is not what it was at {head.time}: something from record {first}"
                    f" to {head.number} was changed, and the links after it made anew"
                )
                return self._bad(problem, first_bad=first, rewritten=True)
            self._agreed += 1
            self._agreed_number = max(self._agreed_number, tail.number)
            if self._checker is not None and head.key == self._checker.id:
                self._signed_until = tail.number
                self._unsigned.clear()
        return None

    def _end(self) -> Verdict:
        """The verdict after the last block."""
        later = [
            head
            for block, heads in self._heads.items()
            for head in heads
            if block > self._tail.block and head.log == (self._tail.log or head.log)
        ]
        if later:
            last = max(later, key=lambda head: head.block)
            problem = (
                f"the log ends with record {self._tail.number}, and had {last.number} at"
                f" {last.time}: its tail was cut"
            )
            return self._bad(problem, first_bad=self._tail.number + 1, truncated=True)
        return self._pruned() or self._signatures() or self._verdict()

    def _pruned(self) -> Verdict | None:
        """The verdict if the log begins late and the chain has no record of the pruning."""
        anchor = self._anchor
        if anchor is None or not anchor.block:
            return None
        notes = dict(self._notes)
        if self._checker is not None:
            notes = {number: notes[number] for number in notes.keys() - self._unsigned}
        note = notes.get(anchor.number)
        if note is None and any(number > anchor.number for number in notes):
            return None  # the pruning was recorded, and stopped before its end
        kept = hashlib.sha256(b"\n".join(anchor.carried)).hexdigest()
        if note is not None and note.get("carried") == kept:
            return None
        nothing = "nothing that this key has signed" if self._notes and not notes else "no record"
        problem = (
            f"the log begins with record {anchor.number + 1}, and {nothing} states that the ones"
            " before were pruned"
        )
        if note is not None:
            problem = "the plans that were kept when older records were pruned are not as they were"
        return self._bad(problem, first_bad=min(1, anchor.number))

    def _signatures(self) -> Verdict | None:
        if self._forged is not None:
            head = self._forged
            problem = f"the head of record {head.number} at {head.time} has a wrong signature"
            return self._bad(problem, first_bad=self._agreed_number + 1, rewritten=True)
        if self._outside and all(head.log != self._tail.log for head in self._outside):
            problem = "none of the heads is of this log: it was put in the place of another"
            return self._bad(problem, first_bad=1, rewritten=True)
        if self._checker is not None and self._tail.block and not self._signed_until:
            problem = "nothing that this key has signed speaks for the log"
            return self._bad(problem, first_bad=1, unsigned=True)
        return None

    def _bad(self, problem: str, **fields: Any) -> Verdict:
        return self._verdict(ok=False, problem=problem, **fields)

    def _verdict(self, *, ok: bool = True, **fields: Any) -> Verdict:
        return Verdict(
            ok=ok,
            records=self._tail.number - self._begins.number,
            blocks=self._tail.block - self._begins.block,
            heads=self._agreed,
            other_heads=sum(head.log != self._tail.log for head in self._outside),
            signed_until=self._signed_until,
            begins_after=self._begins.number,
            ends_with=self._tail.number,
            torn=getattr(self._journal, "torn", 0),
            log=self._tail.log,
            **fields,
        )
