"""The lines of an audit log in a file: how they are written, and how they are read.

| line | is |
| --- | --- |
| `{"link":"…","block":{…}}` | a block's header |
| `{"link":"…","record":{…}}` | a record; a header has the number of records that follow |
| `{"link":"…","anchor":{…}}` | the first line of a file that goes on from another |
| `{"head":{…}}` | a head, between blocks |
| `{"torn":{"bytes":n}}` | the n bytes before are what a killed writer has left |

Links stand at the same place in every line: a reader needs no JSON to check a record. Nothing is
ever taken out of a file: what a killed writer has left stays, and the next writer marks it.

A line has one way to be written, and each is compared with it. What stands between two blocks is
hashed in the header of the second (`gap`), and a header announces its head: so each byte of a file
is under the chain, or a flaw of the reading. Between blocks of version 1 heads and marks may come
and go unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mainstay.core.audit.chain import (
    SIZE,
    START,
    Anchor,
    Block,
    Tail,
    decode_head,
    encode_head,
    is_intact,
    linked,
    read_header,
    tail_of,
)
from mainstay.stores.jsonl.torn import (
    AFTER,
    BEGINS,
    BLOCK,
    HEAD,
    RECORD,
    TORN,
    is_begun,
    is_json,
    is_left_by_a_kill,
    torn_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from mainstay.core.audit.chain import Entry, Head, Header

_LINK = slice(len(BEGINS), AFTER)
_ANCHOR = b'","anchor":'
_HEADER_AT, _RECORD_AT = AFTER + len(BLOCK), AFTER + len(RECORD)
_record, _link = itemgetter(slice(_RECORD_AT, -2)), itemgetter(_LINK)
_frame = itemgetter(slice(0, len(BEGINS)), slice(AFTER, _RECORD_AT), slice(-2, None))
_FRAMES = {(BEGINS, RECORD, b"}\n")}
_SEARCHED = 64 * 1024 * 1024
"""How far to look for the mark of a torn write: a block is never as long."""


# --- writing --------------------------------------------------------------------------------------


def lines_of(entry: Entry) -> bytes:
    """A block and a head as lines."""
    parts: list[bytes] = []
    if entry.block is not None:
        header, records, links = entry.block
        digits = links.hex().encode()
        step = 2 * SIZE
        parts.append(b'{"link":"%b","block":%b}\n' % (digits[:step], header))
        parts += [
            b'{"link":"%b","record":%b}\n' % (digits[at : at + step], record)
            for at, record in zip(range(step, len(digits), step), records, strict=True)
        ]
    if entry.head is not None:
        parts.append(_head_line(entry.head))
    return b"".join(parts)


def _head_line(head: Head) -> bytes:
    return b'{"head":%b}\n' % encode_head(head)


def anchor_line(tail: Tail) -> bytes:
    """The first line of a file that goes on from another one."""
    where = msgspec.json.encode({"block": tail.block, "log": tail.log, "number": tail.number})
    return b'{"link":"%b","anchor":%b}\n' % (tail.link.hex().encode(), where)


# --- reading --------------------------------------------------------------------------------------


class Records(Sequence[bytes]):
    """The records in lines, each cut out when it is asked for.

    Verification needs none of them for longer than a hash takes.
    """

    __slots__ = ("_lines",)

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    def __iter__(self) -> Iterator[bytes]:
        return map(_record, self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]


class Found(NamedTuple):
    """One thing that a reader found, and where it ends in the file."""

    end: int
    block: Block | None = None
    anchor: Anchor | None = None
    head: Head | None = None
    torn: int = 0
    flaw: str = ""
    """What is not as it is written, where the blocks themselves do not show it."""


class Reader:
    """Goes through a file, from its beginning or that of a block on.

    What is neither a block nor marked as torn is returned as a block that fails verification. What
    a killed writer left at the very end is skipped; `end` is where that begins.

    Args:
        file: open for reading.
        start: where to begin.
        tail: where the log ended before that, where it is known.
        goes_on: whether the file goes on from another one, and begins with an anchor.

    Attributes:
        tail: where the log ends, as far as it was read.
        end: where what was read ends in the file.
        gap_from: where the last block ends, with its head; None until that is known.
        awaits_head: whether the last block announces a head that has not come.
    """

    def __init__(
        self, file: BinaryIO, start: int = 0, tail: Tail | None = None, *, goes_on: bool = False
    ) -> None:
        self._file = file
        self._goes_on = goes_on and not start
        self.tail = tail
        self.end = start
        self.gap_from: int | None = None if start else 0
        self.awaits_head = False
        file.seek(start)

    def __iter__(self) -> Iterator[Found]:
        line = self._file.readline()
        while line:
            found, line = self._look(line)
            if found is None:
                return
            if self._goes_on and not self.end and found.anchor is None:
                found = found._replace(flaw="a file does not begin with what it goes on from")
            if found.block is not None:
                found = self._follow(found, found.block)
            elif found.anchor is not None:
                self.tail, self.gap_from = found.anchor.tail, found.end
            self.end = found.end
            yield found
            del found  # and its lines, before the next are read

    def _follow(self, found: Found, block: Block) -> Found:
        """Goes on to the end of a block, and looks at what stands before it."""
        header = _header_of(block)
        flaw = found.flaw
        if header is not None:
            flaw = flaw or self._unframed(header)
            number = header.first + header.count - 1
            self.tail = Tail(header.log, header.block, number, block.link)
        self.gap_from = found.end
        self.awaits_head = header is not None and header.head
        return found._replace(flaw=flaw) if flaw else found

    def _unframed(self, header: Header) -> str:
        """What is wrong between the block before and this one, if the header states that."""
        if header.version < 2 or self.gap_from is None:
            return ""
        if self.lacks_head:
            return "the head that the block before announces is missing"
        if self.gap() != header.gap:
            return "what stands before the block is not what stood there when it was written"
        return ""

    @property
    def lacks_head(self) -> bool:
        """Whether a head was announced, and nothing follows that a kill may have left of it."""
        return self.awaits_head and self.gap_from == self.end

    def gap(self) -> str:
        """The hash of what stands behind the last block and its head."""
        start = self.end if self.gap_from is None else self.gap_from
        return gap_hash(self._file, start, self.end, awaits_head=self.awaits_head)

    def _look(self, line: bytes) -> tuple[Found | None, bytes]:
        """What begins with this line, and the line after it."""
        end = self.end + len(line)
        if line[-1:] != b"\n":
            return self._odd(Block(line, (), b""), end, may_be_cut=is_begun(line))
        if line[AFTER:_HEADER_AT] == BLOCK:
            return self._block(line)
        if line.startswith(HEAD):
            return self._head(line, end)
        if line[AFTER:].startswith(_ANCHOR):
            return self._anchor(line, end), self._file.readline()
        if line.startswith(TORN):
            return self._lone_mark(line, end), self._file.readline()
        return self._odd(Block(line, (), b""), end, may_be_cut=is_begun(line))

    def _head(self, line: bytes, end: int) -> tuple[Found | None, bytes]:
        """A head, or what is left of one whose writer was killed, and the mark behind it."""
        head, after = _head_of(line), self._file.readline()
        if head is None or (after and not _goes_on(after)):
            found, after = self._odd(Block(line, (), b""), end, may_be_cut=False)
            if found is not None and found.torn:
                return found, after
        if head is None:
            return Found(end, flaw="a head is not as it was written"), after
        return self._whole_head(head, end), after

    def _whole_head(self, head: Head, end: int) -> Found:
        """A head: the one that its block announces, or one of version 1."""
        is_announced, self.awaits_head = self.awaits_head, False
        is_behind = self.gap_from in (None, self.end)
        if is_announced:
            self.gap_from = end
        if is_announced and not is_behind:
            return Found(end, head=head, flaw="something stands between a block and its head")
        if is_announced and not self._is_of_block(head):
            return Found(end, head=head, flaw="a head is not the one that the block announces")
        if head.version > 1 and not is_announced:
            return Found(end, head=head, flaw="a head stands where no block announces it")
        return Found(end, head=head)

    def _is_of_block(self, head: Head) -> bool:
        """Whether a head is one of version 2 and of the last block, which has announced it."""
        tail = self.tail
        return head.version > 1 and tail is not None and head.block == tail.block

    def _anchor(self, line: bytes, end: int) -> Found:
        """The first line of a file, which repeats where the one before it ended."""
        anchor, tail = _anchor_of(line), self.tail
        if anchor is None or line != anchor_line(anchor.tail) or self.end:
            return Found(
                end, anchor=anchor, flaw="the beginning of a file is not as it was written"
            )
        if tail is not None and tail.block and anchor.tail != tail:
            return Found(end, anchor=anchor, flaw="a file does not go on from the one before it")
        if not anchor.block and not self._goes_on:
            return Found(end, anchor=anchor, flaw="a file that is the first one goes on from none")
        return Found(end, anchor=anchor)

    def _lone_mark(self, line: bytes, end: int) -> Found:
        """A mark with nothing torn before it: a head was not written at all, or what was is gone.

        Reading may also have begun in the middle of what is torn.
        """
        if self.lacks_head and torn_bytes(line) == 0:
            return Found(end, torn=1)
        is_flaw = self.gap_from is not None
        return Found(end, flaw="what a mark calls torn is missing" if is_flaw else "")

    def _block(self, line: bytes) -> tuple[Found | None, bytes]:
        """A header and the records it promises."""
        header = line[_HEADER_AT:-2]
        try:
            count = read_header(header).count
        except msgspec.MsgspecError:
            return self._odd(Block(header, (), b""), self.end + len(line))
        lines = list(islice(self._file, count))
        after = self._file.readline()
        end = self.end + len(line) + sum(map(len, lines))
        links = _links(line, lines)
        is_cut = len(lines) < count or not (_goes_on(after) or _is_whole((lines or [line])[-1]))
        if links and not is_cut and not after.startswith(TORN):
            flaw = "" if _is_framed(line, lines, links) else "a line is not as it was written"
            return Found(end, Block(header, Records(lines), links), flaw=flaw), after
        whole = lines[:-1] if is_cut and lines and not _is_whole(lines[-1]) else lines
        each_link = b"".join(_links(each, []) or START for each in (line, *whole))
        block = Block(header, Records(whole), each_link)
        return self._odd(block, end, may_be_cut=is_cut and self._may_be_prefix(block))

    def _may_be_prefix(self, block: Block) -> bool:
        """Whether this may be the beginning of a block; if the tail is known, that is checked."""
        linked_so = linked(block.links[:SIZE], block.records) == block.links[SIZE:]
        return self.tail is not None or linked_so

    def _odd(
        self, block: Block, end: int, *, may_be_cut: bool = True
    ) -> tuple[Found | None, bytes]:
        """What is left of a write that was cut off, if it is marked, or the file ends with it."""
        file, here = self._file, self.end
        file.seek(here)
        while here - self.end < _SEARCHED and (line := file.readline()):
            if here > self.end and torn_bytes(line) == here - self.end:
                return self._torn(here + len(line), line)
            may_be_cut = may_be_cut and (here < end or not _goes_on(line))
            here += len(line)
        if may_be_cut and self._is_left_by_a_kill(here - self.end):
            return None, b""
        file.seek(end)
        return Found(end, block), file.readline()

    def _torn(self, end: int, mark: bytes) -> tuple[Found, bytes]:
        """What is torn, with its mark; one whose writer was killed is marked with it."""
        after = self._file.readline()
        while torn_bytes(after) == end - self.end:
            end, mark, after = end + len(after), after, self._file.readline()
        size = end - len(mark) - self.end
        is_torn = self._is_left_by_a_kill(size)
        flaw = "" if is_torn else "what a mark calls torn is not what a killed writer leaves"
        self._file.seek(end + len(after))
        return Found(end, torn=size, flaw=flaw), after

    def _is_left_by_a_kill(self, size: int) -> bool:
        """Whether the next bytes are the beginning of a write, if the log before is known."""
        if self.tail is None:
            return True
        self._file.seek(self.end)
        data = self._file.read(size)
        data += b"" if data[-1:] == b"\n" else b"\n"
        is_head = _head_of(data[: data.find(b"\n") + 1]) is not None
        return is_left_by_a_kill(data, self.tail, is_head=is_head)


def _goes_on(line: bytes) -> bool:
    """Whether a line begins a write; its writer has found everything before it in order."""
    return line[AFTER:_HEADER_AT] == BLOCK or line.startswith(HEAD)


def _is_whole(line: bytes) -> bool:
    """Whether a line was written to its end; a later writer may have added the line break."""
    return line[-1:] == b"\n" and is_json(line)


def _links(first: bytes, lines: list[bytes]) -> bytes:
    """The links of lines; none at all where one of them has no link."""
    try:
        return bytes.fromhex((first[_LINK] + b"".join(map(_link, lines))).decode())
    except ValueError:
        return b""


def _is_framed(first: bytes, lines: list[bytes], links: bytes) -> bool:
    """Whether lines are as they are written around what the chain covers."""
    digits = first[_LINK] + b"".join(map(_link, lines))
    return (
        digits == links.hex().encode()
        and first.startswith(BEGINS)
        and first.endswith(b"}\n")
        and not set(map(_frame, lines)) - _FRAMES
    )


def _header_of(block: Block) -> Header | None:
    try:
        return read_header(block.header)
    except msgspec.MsgspecError:
        return None


def gap_hash(file: BinaryIO, start: int, end: int, *, awaits_head: bool) -> str:
    """The hash of what stands between two places of a file; empty if nothing does.

    That a head is missing before it is hashed with it. The file is then where it was.
    """
    if start == end:
        return ""
    here = file.tell()
    file.seek(start)
    data = file.read(end - start)
    file.seek(here)
    return sha256((b"no head\n" if awaits_head else b"") + data).hexdigest()


def _anchor_of(line: bytes) -> Anchor | None:
    try:
        found = msgspec.json.decode(line)
        where = found["anchor"]
        link = bytes.fromhex(found["link"])
        return Anchor(str(where["log"]), int(where["block"]), int(where["number"]), link)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return None


def _head_of(line: bytes) -> Head | None:
    """The head of a line; None if the line is not as it was written."""
    try:
        head = decode_head(line[len(HEAD) : -2])
    except msgspec.MsgspecError:
        return None
    is_as_written = line == _head_line(head) and is_intact(head)
    return head if is_as_written else None


# --- looking from the end -------------------------------------------------------------------------

_CHUNK = 1024 * 1024


def start_before(file: BinaryIO, size: int, block: int | None = None) -> int:
    """Where a block begins from which on to read: near the end, or not after a block's number."""
    chunk = _CHUNK
    while chunk < size:
        start = size - chunk
        file.seek(start)
        file.readline()
        for line in iter(file.readline, b""):
            if line[AFTER:_HEADER_AT] == BLOCK and line[-1:] == b"\n":
                if block is None or _number_of(line) <= block:
                    return file.tell() - len(line)
                break
        chunk *= 8
    return 0


def _number_of(line: bytes) -> int:
    try:
        return read_header(line[_HEADER_AT:-2]).block
    except msgspec.MsgspecError:
        return 0


def tail_after(found: Found, tail: Tail) -> Tail:
    """Where a log ends after what was found; what cannot be right changes nothing."""
    if found.block is not None:
        try:
            return tail_of(found.block)
        except msgspec.MsgspecError:
            return tail
    return found.anchor.tail if found.anchor is not None else tail
