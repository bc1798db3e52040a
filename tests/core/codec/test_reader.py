"""JSON that anybody may have written: what cannot be read has one error."""

from __future__ import annotations

import msgspec
import pytest

from mainstay.core.audit.chain import Tail, carried, decode_head, read_header, seal, verify_block
from mainstay.core.codec.reader import reader
from mainstay.core.events.codec import decode

ODD = [
    b"",
    b"{",
    b'"\xff"',
    b'{"log":"\xff"}',
    b"[" * 5000,
    b'{"block":' + b"[" * 5000,
    b"9" * 5000,
]


@pytest.mark.parametrize("read", [reader(object), read_header, decode_head, decode])
@pytest.mark.parametrize("data", ODD, ids=lambda data: data[:12].decode("latin1"))
def test_what_cannot_be_read_is_one_error(read, data):
    """Text that is no UTF-8 and nesting without an end are as any other."""
    with pytest.raises(msgspec.MsgspecError):
        read(data)


def test_a_plan_that_cannot_be_read_is_not_carried():
    """The log goes on all the same."""
    assert carried([b'{"event_type":"plan_declared","plan":"\xff"}']) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"count":1', b'"count":-1'),
        (b'"count":1', b'"count":1.0'),
        (b'"count":1', b'"count":99999999999999999999'),
        (b'"first":1', b'"first":0'),
        (b'"block":1', b'"block":-1'),
        (b'"version":2', b'"lost":-1,"version":2'),
    ],
)
def test_numbers_that_no_log_has_are_a_flaw(old, new):
    """Of the block, whose links may have been computed anew."""
    block = seal(Tail(), [b"{}"], writer="me", time="now", log="a1")
    assert old in block.header
    flaw = verify_block(Tail(), block._replace(header=block.header.replace(old, new)))
    assert (flaw.block, flaw.number, flaw.problem) == (1, 1, "the block's header cannot be read")
