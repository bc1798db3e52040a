"""Verifies an audit log: the chain, block by block, and the heads of it.

The chain alone shows a change, unless all links after it were computed anew. Signed heads in the
log show that too; heads outside the log show that it was truncated or rewritten, even by its own
writer. It is evidence, not a lock.

Two things are found beside changes: records that were lost before they could be written, and
writers that did not close. Neither makes a log bad: the chain holds, and something may be missing.
"""

from __future__ import annotations

import hashlib
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from mainstay.audit.external_heads import read_heads
from mainstay.audit.open import open_journal
from mainstay.core.audit.chain import Flaw, Tail, header_of, is_intact, verify_block
from mainstay.core.audit.writers import OpenWriter, Writers
from mainstay.core.events.codec import decode
from mainstay.core.retry.events import RecordsLost

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


class LogVerdict(Verdict, frozen=True, kw_only=True):
    """A verdict, and what may be missing in the log.

    A class of its own: what is recorded of a Verdict keeps its form.

    Attributes:
        versions: the versions of the format in which its blocks are written, in ascending order.
        lost: how many records were lost before they could be written, as the log states.
        losses: the records that state it, the first hundred: how many, from when to when, and why.
        unclosed: the writers that have begun and not closed: they run still or were killed, and of
            what they had in memory up to 100 ms may be missing.

    >>> LogVerdict(ok=True, lost=3).is_complete
    False
    """

    versions: tuple[int, ...] = ()
    lost: int = 0
    losses: tuple[RecordsLost, ...] = ()
    unclosed: tuple[OpenWriter, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the log is as it was written, and it is certain that nothing is missing."""
        return self.ok and not (self.lost or self.unclosed or self.torn)


def verify_log(
    where: Where,
    *,
    heads: Any = None,
    public_key: Any = None,
    progress: Callable[[int], object] | None = None,
) -> LogVerdict:
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
    >>> verdict.is_complete, verdict.versions
    (True, (2,))
    """
    checker = None
    if public_key is not None:
        from mainstay.audit.keys import Checker

        checker = Checker(public_key)
    outside = read_heads(heads)
    with closing(open_journal(where, reads_only=True)) as journal:
        flaw = _schema_flaw(journal)
        if flaw:
            return LogVerdict(ok=False, problem=flaw, first_bad=1)
        for left in reversed(range(_TRIES)):
            check = _Check(journal, outside, checker)
            verdict = check.run(progress)
            if verdict.ok or not (left and check.was_overtaken()):
                return verdict
    raise AssertionError("the last try returns")


def _schema_flaw(journal: Journal) -> str:
    """What is wrong with the place itself: a database's tables, and where the log begins there."""
    look: Callable[[], list[str]] | None = getattr(journal, "schema_flaws", None)
    flaws = look() if look is not None else []
    if flaws:
        return f"{flaws[0]}: what is read is not what was written"
    try:
        anchor = journal.anchor()
    except msgspec.MsgspecError as error:
        return f"the anchor, with which the log begins, cannot be read: {error}"
    has_more = anchor is not None and not anchor.block and bool(anchor.carried)
    return "records stand before the log that nothing was pruned for" if has_more else ""


class _Check:
    """One verification: what is known so far."""

    def __init__(self, journal: Journal, outside: list[Head], checker: Checker | None) -> None:
        self._journal = journal
        self._checker = checker
        self._outside = outside
        self._passed: list[Head] | None = getattr(journal, "passed", None)
        self._own = journal.heads() if self._passed is None else []
        self._anchor: Anchor | None = journal.anchor()
        self._tail: Tail = self._anchor.tail if self._anchor is not None else Tail()
        self._begins = self._tail
        self._notes: dict[int, dict[str, Any]] = {}
        self._unsigned: set[int] = set()
        """The notes that no signature speaks for yet."""
        self._heads: dict[int, list[Head]] = {}
        self._forged: Head | None = None
        self._altered: Head | None = None
        self._ahead: list[Head] = []
        """Heads of later blocks than the one they stand behind."""
        self._headed: set[int] = set()
        """The blocks that a head of the log itself is of."""
        self._late: dict[int, list[Head]] = {}
        """Heads that were read again, by their block, and the last block that has one."""
        self._late_until = 0
        self._flaws: list[str] = getattr(journal, "flaws", [])
        self._writers, self._versions = Writers(), set[int]()
        self._lost, self._losses = 0, list[RecordsLost]()
        self._agreed = 0
        self._agreed_number = self._begins.number
        self._signed_until = 0

    def run(self, progress: Callable[[int], object] | None) -> LogVerdict:
        self._take(self._outside)
        self._take_own(self._own)
        for block in self._journal.blocks():
            wrong = self._look()
            if wrong is not None:
                return wrong
            after = verify_block(self._tail, block)
            if isinstance(after, Flaw):
                problem = f"record {after.number} (block {after.block}): {after.problem}"
                return self._bad(problem, first_bad=after.number)
            wrong = self._flawed()
            self._tail = after
            wrong = wrong or self._note(block)
            if wrong is not None:
                return wrong
            del block  # before the next is read: memory that is still warm is used again
            if progress is not None:
                progress(after.number)
        return self._look() or self._flawed() or self._end()

    def was_overtaken(self) -> bool:
        """Whether records were pruned meanwhile: what was read then has gaps that are no flaw."""
        return self._journal.anchor() != self._anchor

    def _look(self) -> LogVerdict | None:
        """Compares the log so far with heads; in a file they stand behind the block."""
        if self._passed:
            self._ahead = [head for head in self._passed if head.block > self._tail.block]
            self._take_own(self._passed)
            self._passed.clear()
        return self._compare(self._tail)

    def _flawed(self) -> LogVerdict | None:
        """The verdict if something beside the blocks is not as it was written."""
        if not self._flaws and self._altered is None:
            return None
        problem = self._flaws[0] if self._flaws else _altered(self._altered)
        first = self._tail.number + 1
        bad = self._bad(f"before record {first}: {problem}", first_bad=first)
        return self._cut(self._ahead) or bad

    def _take_own(self, heads: Iterable[Head]) -> None:
        """Takes heads that the log itself has."""
        for head in heads:
            if is_intact(head):
                self._headed.add(head.block)
                self._take((head,))
            else:
                self._altered = head

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

    def _note(self, block: Block) -> LogVerdict | None:
        """Keeps what the header of a block states; the verdict if that is not so."""
        header = header_of(block)
        self._versions.add(header.version)
        self._writers.feed(header)
        pruned = (header.note or {}).get("pruned")
        if isinstance(pruned, dict) and isinstance(pruned.get("number"), int):
            self._notes[pruned["number"]] = pruned
            self._unsigned.add(pruned["number"])
        if header.lost:
            self._lost += header.lost
            self._losses += _losses_in(block)[: _MOST_LOSSES - len(self._losses)]
        if header.head and self._passed is None and not self._has_head(header.block):
            problem = f"the head that block {header.block} announces is missing"
            return self._bad(problem, first_bad=self._agreed_number + 1)
        return None

    def _has_head(self, block: int) -> bool:
        """Whether the log has a head of a block; a writer may have appended both meanwhile."""
        if block not in self._headed and block > self._late_until:
            self._late = {}
            for head in self._journal.heads():
                self._late.setdefault(head.block, []).append(head)
            self._late_until = max(self._late, default=0)
        if block not in self._headed:
            self._take_own(self._late.get(block, ()))
        return block in self._headed

    def _compare(self, tail: Tail) -> LogVerdict | None:
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

    def _end(self) -> LogVerdict:
        """The verdict after the last block."""
        later = [
            head
            for block, heads in self._heads.items()
            for head in heads
            if block > self._tail.block and head.log == (self._tail.log or head.log)
        ]
        return self._cut(later) or self._pruned() or self._signatures() or self._verdict()

    def _cut(self, later: list[Head]) -> LogVerdict | None:
        """The verdict if there are heads of later blocks than the last one."""
        if not later:
            return None
        last = max(later, key=lambda head: head.block)
        problem = (
            f"the log ends with record {self._tail.number}, and had {last.number} at"
            f" {last.time}: its tail was cut"
        )
        return self._bad(problem, first_bad=self._tail.number + 1, truncated=True)

    def _pruned(self) -> LogVerdict | None:
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

    def _signatures(self) -> LogVerdict | None:
        if self._forged is not None:
            head = self._forged
            problem = f"the head of record {head.number} at {head.time} has a wrong signature"
            return self._bad(problem, first_bad=self._agreed_number + 1, rewritten=True)
        if self._outside and all(head.log != self._tail.log for head in self._outside):
            problem = "none of the heads is of this log: it was put in the place of another"
            return self._bad(problem, first_bad=1, rewritten=True)
        if self._checker is not None and not self._signed_until:
            problem = "nothing that this key has signed speaks for the log"
            return self._bad(problem, first_bad=1, unsigned=True)
        return None

    def _bad(self, problem: str, **fields: Any) -> LogVerdict:
        return self._verdict(ok=False, problem=problem, **fields)

    def _verdict(self, *, ok: bool = True, **fields: Any) -> LogVerdict:
        return LogVerdict(
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
            versions=tuple(sorted(self._versions)),
            lost=self._lost,
            losses=tuple(self._losses),
            unclosed=tuple(self._writers.unclosed),
            **fields,
        )


_MOST_LOSSES = 100
_TRIES = 30
"""How often a log is read if writers prune it meanwhile."""


def _losses_in(block: Block) -> list[RecordsLost]:
    """The records of a block that state a loss."""
    found: list[RecordsLost] = []
    for record in block.records:
        if b'"records_lost"' in record:
            with suppress(msgspec.MsgspecError):  # it counts all the same
                event = decode(record)
                found += [event] if isinstance(event, RecordsLost) else []
    return found


def _altered(head: Head | None) -> str:
    when = "" if head is None else f" of record {head.number} at {head.time}"
    return f"the head{when} is not as it was written"
