"""The chain of an audit log: links, blocks and heads. Bytes in, bytes out.

A log is a row of blocks. A block is a header and records, each of them canonical JSON, and a link
for each: `link = SHA-256(link before + bytes)`, where the first header's link before is 32 zero
bytes. So each link covers everything before it. A block keeps all of its links: if one
differs from what its bytes give, that record is the first bad one.

A head is the link that a log had at the end of a block. Kept elsewhere, or signed, it shows that a
log was cut or rewritten, which the chain alone cannot: a process that may write the log may also
compute new links. Signatures are bytes that come from outside.

Version 2 of the format has the same links as version 1. Its headers also state what stands between
two blocks of a file, whether a head follows, how many records are reported as lost, and when a
writer closes; its heads have a checksum. So nothing can be changed, added or removed between
blocks without a finding. Blocks of both versions may follow each other in one log.

| part | holds |
| --- | --- |
| `Tail` | where a log ends: what the next block goes on from |
| `Header` | which block it is, its first record's number, how many, its writer and time |
| `Anchor` | where a log begins whose older blocks were pruned, and what was kept of them |
| `Head` | what the tail was at some time, with a signature |
| `Flaw` | the first thing that is not as it was written |
"""

from __future__ import annotations

from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from mainstay.core.codec.reader import reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SIZE = 32
"""The bytes of a link."""
START = bytes(SIZE)
"""The link before the first block."""
VERSION = 2
"""The version of what is written; every version before is read."""
MOST = 2**53
"""No log has as many blocks or records: other numbers were never written."""
PLAN = b'"event_type":"plan_declared"'
"""How a record begins that later ones need: it is carried along if older ones are dropped.
Inside a text the quotes would be escaped."""


class Tail(NamedTuple):
    """Where a log ends: its id, the last block's number, the last record's, and the link.

    `gap` is the hash of what stands after that block in a file and is no part of it; else empty.
    """

    log: str = ""
    block: int = 0
    number: int = 0
    link: bytes = START
    gap: str = ""


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands before the records of a block, linked as they are.

    Attributes:
        batch: the writer's own count, by which it recognises its block.
        note: what else happened to the log: `{"opened": {}}` in the first block of a writer,
            `{"closed": {...}}` in its last one, `{"pruned": {...}}`.
        version: of the format.
        head: whether a head of this block is written with it.
        lost: how many records are reported as lost by records of this block.
        gap: SHA-256 of what stands in a file between the block before and this one: what a killed
            writer left, its mark, heads of version 1. Empty if nothing does.
    """

    block: Annotated[int, Meta(ge=1, le=MOST)]
    first: Annotated[int, Meta(ge=1, le=MOST)]
    count: Annotated[int, Meta(ge=0, le=MOST)]
    log: str
    writer: str
    time: str
    batch: int = 0
    note: dict[str, Any] | None = None
    version: Annotated[int, Meta(ge=1)] = 1
    head: bool = False
    lost: Annotated[int, Meta(ge=0, le=MOST)] = 0
    gap: str = ""


class Block(NamedTuple):
    """A header, its records, and the link of each, the header's first."""

    header: bytes
    records: Sequence[bytes]
    links: bytes

    @property
    def link(self) -> bytes:
        return self.links[-SIZE:]


class Anchor(NamedTuple):
    """Where a pruned log begins: the tail of what was dropped, and the records that were kept."""

    log: str
    block: int
    number: int
    link: bytes
    carried: tuple[bytes, ...] = ()

    @property
    def tail(self) -> Tail:
        return Tail(self.log, self.block, self.number, self.link)


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a log's tail was at some time. `link` and `signature` are hexadecimal.

    From version 2 on `check` is a checksum of all other fields.

    >>> head = head_of(Tail("a1", 2, 17, bytes(32)), "2026-01-01T00:00:00Z")
    >>> head.number, decode_head(encode_head(head)) == head
    (17, True)
    """

    log: str
    block: int
    number: int
    link: str
    time: str
    key: str = ""
    signature: str = ""
    version: int = 1
    check: str = ""


class Entry(NamedTuple):
    """What is appended in one step: a block, a head, both, or nothing."""

    block: Block | None = None
    head: Head | None = None


class Flaw(NamedTuple):
    """The first thing that is wrong: in which block, at which record, and what."""

    block: int
    number: int
    problem: str


_encode = msgspec.json.Encoder(order="sorted").encode
_header: Callable[[bytes], Header] = reader(Header)
_head: Callable[[bytes | str], Head] = reader(Head)


# --- writing --------------------------------------------------------------------------------------


def seal(
    tail: Tail,
    records: Sequence[bytes],
    *,
    writer: str,
    time: str,
    log: str = "",
    batch: int = 0,
    note: dict[str, Any] | None = None,
    head: bool = False,
    lost: int = 0,
) -> Block:
    """The block that follows a tail; `log` names the log if there is none yet.

    `head`: whether a head of it is appended in the same step.

    >>> block = seal(Tail(), [b"{}"], writer="me", time="now", log="a1")
    >>> verify_block(Tail(), block).number
    1
    """
    header = _encode(
        Header(
            block=tail.block + 1,
            first=tail.number + 1,
            count=len(records),
            log=tail.log or log,
            writer=writer,
            time=time,
            batch=batch,
            note=note,
            version=VERSION,
            head=head,
            lost=lost,
            gap=tail.gap,
        )
    )
    return Block(header, records, linked(tail.link, (header, *records)))


def linked(link: bytes, parts: Iterable[bytes]) -> bytes:
    """The link of each part, one after the other, after the link before."""
    return b"".join([link := sha256(link + part).digest() for part in parts])


def header_of(block: Block) -> Header:
    """The block's header, read."""
    return _header(block.header)


def read_header(data: bytes) -> Header:
    """A header, read."""
    return _header(data)


def tail_of(block: Block) -> Tail:
    """Where a log ends whose last block this is."""
    header = _header(block.header)
    return Tail(header.log, header.block, header.first + header.count - 1, block.link)


# --- checking -------------------------------------------------------------------------------------


def verify_block(tail: Tail, block: Block) -> Tail | Flaw:
    """The tail after a block that follows as it was written; or the first thing that is wrong.

    >>> block = seal(Tail(), [b'{"a":1}', b'{"a":2}'], writer="me", time="now", log="a1")
    >>> verify_block(Tail(), block._replace(records=[b'{"a":1}', b'{"a":3}'])).number
    2
    """
    try:
        header = _header(block.header)
    except msgspec.MsgspecError:
        return Flaw(tail.block + 1, tail.number + 1, "the block's header cannot be read")
    problem = _misplaced(tail, header)
    if problem:
        return Flaw(header.block, tail.number + 1, problem)
    links = linked(tail.link, chain((block.header,), block.records))
    if links == block.links and len(block.records) == header.count:
        return Tail(header.log, header.block, tail.number + header.count, links[-SIZE:])
    return _flaw(header, block, links)


def _misplaced(tail: Tail, header: Header) -> str:
    """Why this block cannot stand here; empty if it can."""
    if tail.log and header.log != tail.log:
        return f"block {header.block} is of another log"
    if header.block != tail.block + 1:
        return f"block {header.block} stands where block {tail.block + 1} should"
    if header.first != tail.number + 1:
        return f"block {header.block} begins with record {header.first}, not {tail.number + 1}"
    return ""


def _flaw(header: Header, block: Block, links: bytes) -> Flaw:
    """Which link is the first that differs."""
    if links[:SIZE] != block.links[:SIZE]:
        return Flaw(header.block, header.first, "the block's header is not what was written")
    for index in range(1, min(len(links), len(block.links)) // SIZE):
        here = slice(index * SIZE, (index + 1) * SIZE)
        if links[here] != block.links[here]:
            number = header.first + index - 1
            return Flaw(header.block, number, "the record is not what was written")
    number = header.first + min(len(links), len(block.links)) // SIZE - 1
    written = f"{header.count} were written and {len(block.records)} are there"
    return Flaw(header.block, number, f"records of the block are missing or were added: {written}")


# --- heads ----------------------------------------------------------------------------------------


def head_of(tail: Tail, time: str) -> Head:
    """The head of a tail, not signed yet."""
    return Head(
        log=tail.log,
        block=tail.block,
        number=tail.number,
        link=tail.link.hex(),
        time=time,
        version=VERSION,
    )


def checked(head: Head) -> Head:
    """The head with its checksum: the last thing that is done to it.

    >>> head = checked(head_of(Tail("a1", 2, 17, bytes(32)), "2026-01-01T00:00:00Z"))
    >>> is_intact(head), is_intact(msgspec.structs.replace(head, time="2027"))
    (True, False)
    """
    return msgspec.structs.replace(head, check=_checksum(head))


def is_intact(head: Head) -> bool:
    """Whether a head is as it was written; of version 1 that is not known, and assumed."""
    return head.check == (_checksum(head) if head.version > 1 else "")


def _checksum(head: Head) -> str:
    return sha256(_encode(msgspec.structs.replace(head, check=""))).hexdigest()[:32]


def signed(head: Head, key: str, signature: bytes) -> Head:
    """The head with a signature, and which key made it."""
    return msgspec.structs.replace(head, key=key, signature=signature.hex())


def message_of(head: Head) -> bytes:
    """What is signed: the head without its signature and checksum."""
    bare = msgspec.structs.replace(head, key="", signature="", check="")
    return b"mainstay audit head\n" + _encode(bare)


def encode_head(head: Head) -> bytes:
    """A head as one line of canonical JSON."""
    return _encode(head)


def decode_head(data: bytes | str) -> Head:
    """The head of such a line."""
    return _head(data)


# --- what is carried along ------------------------------------------------------------------------


def carried(records: Iterable[bytes]) -> list[bytes]:
    """The plans among records, the last of each; later records cannot be understood without.

    >>> carried([b'{"event_type":"plan_declared","plan":"p1"}', b'{"event_type":"call_failed"}'])
    [b'{"event_type":"plan_declared","plan":"p1"}']
    """
    found: dict[str, bytes] = {}
    for record in records:
        if PLAN in record and (plan := _plan_in(record)):
            found.pop(plan, None)
            found[plan] = record
    return list(found.values())


class _Plan(msgspec.Struct):
    plan: str = ""


_plan: Callable[[bytes], _Plan] = reader(_Plan)


def _plan_in(record: bytes) -> str:
    """Which plan a record declares; none if it was changed and cannot be read.

    The log must go on all the same.
    """
    try:
        return _plan(record).plan
    except msgspec.MsgspecError:
        return ""
