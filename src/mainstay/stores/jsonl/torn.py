"""What a killed writer may leave in the file of an audit log, and how the next one marks it.

A write is a block, its head, or a mark. A kill leaves a beginning of it: whole lines that continue
the chain, then a line that is cut. A writer that is killed while it marks that leaves a beginning
of the mark, too. Nothing else may be called torn: else a mark would make a forged record, or a real
one, something that nobody has to look at.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from mainstay.core.audit.chain import SIZE, read_header
from mainstay.core.codec.reader import UNREADABLE

if TYPE_CHECKING:
    from mainstay.core.audit.chain import Header, Tail

BEGINS = b'{"link":"'
HEAD, TORN = b'{"head":', b'{"torn":'
AFTER = len(BEGINS) + 2 * SIZE
BLOCK, RECORD = b'","block":', b'","record":'
_MARK = TORN + b'{"bytes":'
_STRUCTURE = re.compile(rb'[][{}]|"(?:[^"\\]|\\.)*+"?', re.DOTALL)
"""Brackets, and strings, which may hold some."""
_CONTROL = re.compile(rb"[\x01-\x1f]")
"""What JSON escapes; a record separator (0x1e) makes jq begin anew."""
_MARKED = re.compile(re.escape(_MARK) + rb"\d+\}{0,2}")


def torn_line(count: int, *, ends_a_line: bool) -> bytes:
    """The mark behind what a killed writer has left."""
    return b"%b%b%d}}\n" % (b"" if ends_a_line else b"\n", _MARK, count)


def torn_bytes(line: bytes) -> int:
    """How many bytes before a mark are torn; -1 where it is none."""
    if not line.startswith(TORN):
        return -1
    digits = line[len(_MARK) : -3]
    if not digits.isdigit() or len(digits) > 18:
        return -1
    count = int(digits)
    return count if line == torn_line(count, ends_a_line=True) else -1


def is_left_by_a_kill(data: bytes, tail: Tail, *, is_head: bool) -> bool:
    """Whether these bytes are the beginning of a write behind a tail, and of marks of it.

    Args:
        data: what stands before a mark.
        tail: where the log ended.
        is_head: whether the first line is a head as it is written.
    """
    lines = data.split(b"\n")
    if lines.pop():
        return False  # the mark is in a line of its own
    at = 1 if is_head else _chained(lines, tail)
    if at < len(lines) and _is_cut(lines[at]):
        at += 1
    return all(map(_begins_a_mark, lines[at:]))


def _chained(lines: list[bytes], tail: Tail) -> int:
    """How many lines are whole, and those of a block that follows the tail."""
    header, link = _header_in(lines[0], tail), tail.link
    if header is None:
        return 0
    for at, line in enumerate(lines[: header.count + 1]):
        frame = RECORD if at else BLOCK
        link = sha256(link + line[AFTER + len(frame) : -1]).digest()
        if line[: AFTER + len(frame)] != b"%b%b%b" % (BEGINS, link.hex().encode(), frame):
            return at
        if line[-1:] != b"}" or not is_json(line):
            return at
    return min(len(lines), header.count + 1)


def _header_in(line: bytes, tail: Tail) -> Header | None:
    try:
        header = read_header(line[AFTER + len(BLOCK) : -1])
    except msgspec.MsgspecError:
        return None
    follows = header.block == tail.block + 1 and header.first == tail.number + 1
    return header if follows and header.log == (tail.log or header.log) else None


def _is_cut(line: bytes) -> bool:
    """Whether a line begins as ours and has no end; a power cut may leave zeros behind it.

    That is a matter of its brackets: readers of JSON differ in what else they take (`nan`, `1e999`,
    half characters), and what one of them would read is no cut line.
    """
    text = line.rstrip(b"\0")
    if not is_begun(text) or _CONTROL.search(text):
        return False
    depth = 0
    for token in _STRUCTURE.findall(text):
        depth += 1 if token in b"{[" else -1 if token in b"}]" else 0
        if depth <= 0:
            return False
    return True


def is_begun(line: bytes) -> bool:
    """Whether a line begins as one of ours, as far as it goes."""
    text = line.rstrip(b"\n")
    return any(text[: len(each)] == each[: len(text)] for each in (BEGINS, HEAD, TORN))


def _begins_a_mark(line: bytes) -> bool:
    return line == _MARK[: len(line)] or _MARKED.fullmatch(line) is not None


def is_json(text: bytes) -> bool:
    """Whether a text is one value of JSON."""
    try:
        msgspec.json.decode(text)
    except UNREADABLE:
        return False
    return True
