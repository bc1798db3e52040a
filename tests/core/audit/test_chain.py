"""The chain: what was written verifies, and the first thing that was changed is named."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.audit import chain
from mainstay.core.audit.chain import (
    SIZE,
    VERSION,
    Anchor,
    Flaw,
    Head,
    Tail,
    carried,
    decode_head,
    encode_head,
    head_of,
    header_of,
    is_intact,
    message_of,
    read_header,
    seal,
    signed,
    tail_of,
    verify_block,
)

RECORDS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=8)
LOGS = st.lists(RECORDS, min_size=1, max_size=5)


def written(batches):
    """The blocks of a log, and its tail."""
    tail, blocks = Tail(), []
    for count, batch in enumerate(batches):
        block = seal(tail, batch, writer="w", time="t", log="a1", batch=count)
        tail = tail_of(block)
        blocks.append(block)
    return blocks, tail


def checked(blocks):
    """What a reader comes to."""
    tail = Tail()
    for block in blocks:
        tail = verify_block(tail, block)
        if isinstance(tail, Flaw):
            break
    return tail


@given(LOGS)
def test_what_was_written_verifies(batches):
    """From the first block to the last, and the tail says how many records there are."""
    blocks, tail = written(batches)
    assert checked(blocks) == tail
    assert tail.number == sum(map(len, batches))
    assert tail.log == "a1"


@given(LOGS, st.data())
def test_one_changed_byte_names_its_record(batches, data):
    """Whatever is changed in a record, that record is the first bad one."""
    blocks, _ = written(batches)
    where = data.draw(st.integers(0, len(blocks) - 1))
    block = blocks[where]
    index = data.draw(st.integers(0, len(block.records) - 1))
    record = bytearray(block.records[index])
    record[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    records = [*block.records]
    records[index] = bytes(record)
    blocks[where] = block._replace(records=records)
    flaw = checked(blocks)
    assert isinstance(flaw, Flaw)
    assert flaw.number == header_of(block).first + index
    assert read_header(block.header) == header_of(block)
    assert flaw.block == where + 1


@given(LOGS, st.data())
def test_a_removed_inserted_or_exchanged_record_is_named(batches, data):
    """The chain holds the order: the first record that is not in its place is the one named."""
    blocks, _ = written(batches)
    where = data.draw(st.integers(0, len(blocks) - 1))
    block = blocks[where]
    records = [*block.records]
    index = data.draw(st.integers(0, len(records) - 1))
    how = data.draw(st.sampled_from(["remove", "insert", "exchange"]))
    if how == "remove":
        del records[index]
    elif how == "insert":
        records.insert(index, b"new")
    else:
        records[index], records[-1] = records[-1], records[index]
    blocks[where] = block._replace(records=records)
    flaw = checked(blocks)
    if records == [*block.records]:
        assert not isinstance(flaw, Flaw)
        return
    assert isinstance(flaw, Flaw)
    first = next(
        (i for i, (a, b) in enumerate(zip(records, block.records, strict=False)) if a != b),
        min(len(records), len(block.records)),
    )
    assert flaw.number == header_of(block).first + first


@given(LOGS, st.data())
def test_a_link_that_was_changed_is_seen(batches, data):
    """The links are part of the log: a changed one names its record, or the header."""
    blocks, _ = written(batches)
    where = data.draw(st.integers(0, len(blocks) - 1))
    links = bytearray(blocks[where].links)
    links[data.draw(st.integers(0, len(links) - 1))] ^= 1
    blocks[where] = blocks[where]._replace(links=bytes(links))
    assert isinstance(checked(blocks), Flaw)


@pytest.mark.parametrize(
    ("drop", "problem"),
    [(0, "block 2 stands where block 1 should"), (1, "block 3 stands where block 2 should")],
)
def test_a_removed_block_is_named(drop, problem):
    """Blocks are counted, so that a missing one shows at once."""
    blocks, _ = written([[b"1"], [b"2"], [b"3"]])
    del blocks[drop]
    assert checked(blocks) == Flaw(drop + 2, drop + 1, problem)


def test_a_header_that_was_changed_is_named():
    """Who wrote a block, and when, is linked as its records are."""
    blocks, _ = written([[b"1"], [b"2"]])
    blocks[1] = blocks[1]._replace(header=blocks[1].header.replace(b'"w"', b'"x"'))
    assert checked(blocks) == Flaw(2, 2, "the block's header is not what was written")


def test_a_header_that_cannot_be_read_is_named():
    """What is no header is no block."""
    blocks, _ = written([[b"1"]])
    blocks[0] = blocks[0]._replace(header=b"{")
    assert checked(blocks) == Flaw(1, 1, "the block's header cannot be read")


def test_a_count_that_was_changed_is_named():
    """A header that promises another number of records is not what was written."""
    blocks, _ = written([[b"1", b"2"], [b"3"]])
    blocks[1] = blocks[1]._replace(header=blocks[1].header.replace(b'"first":3', b'"first":4'))
    assert checked(blocks) == Flaw(2, 3, "block 2 begins with record 4, not 3")


def test_a_block_of_another_log_is_named():
    """A block that was taken from elsewhere does not fit, whatever its links are."""
    blocks, _ = written([[b"1"]])
    other = seal(Tail("b2", 1, 1, blocks[0].link), [b"2"], writer="w", time="t")
    assert checked([blocks[0], other]) == Flaw(2, 2, "block 2 is of another log")


def test_records_beyond_the_links_are_named():
    """A record without a link was added, one without bytes is missing."""
    blocks, _ = written([[b"1", b"2"]])
    cut = blocks[0]._replace(links=blocks[0].links[:-SIZE])
    assert "2 were written and 2 are there" in checked([cut]).problem
    recounted = seal(Tail(), [b"1", b"2"], writer="w", time="t", log="a1")
    fewer = recounted._replace(records=[b"1"], links=recounted.links[: 2 * SIZE])
    flaw = checked([fewer])
    assert flaw.number == 2
    assert "2 were written and 1 are there" in flaw.problem


def test_a_log_may_go_on_from_an_anchor():
    """What was pruned is spoken for by its last link."""
    blocks, tail = written([[b"1"], [b"2"], [b"3"]])
    first = tail_of(blocks[0])
    anchor = Anchor(first.log, first.block, first.number, first.link)
    after = verify_block(anchor.tail, blocks[1])
    assert verify_block(after, blocks[2]) == tail


def test_a_block_may_have_a_note_and_no_records():
    """What happens to the log itself is in the chain, and takes no number."""
    _, tail = written([[b"1"]])
    block = seal(tail, [], writer="w", time="t", note={"pruned": {"number": 1}})
    after = verify_block(tail, block)
    assert (after.number, after.block) == (1, 2)
    assert header_of(block).note == {"pruned": {"number": 1}}
    assert read_header(block.header) == header_of(block)


def test_a_head_is_a_line_that_reads_back():
    """What is signed does not hold the signature, and changes with everything else."""
    _, tail = written([[b"1"]])
    head = head_of(tail, "2026-01-01T00:00:00Z")
    both = signed(head, "k1", b"\x01\x02")
    assert decode_head(encode_head(both)) == both
    assert both.signature == "0102"
    assert message_of(both) == message_of(head)
    for field, value in (("number", 2), ("block", 2), ("log", "b"), ("link", "00"), ("time", "x")):
        other = Head(**{**{f: getattr(head, f) for f in head.__struct_fields__}, field: value})
        assert message_of(other) != message_of(head)


def test_the_last_declaration_of_each_plan_is_carried_along():
    """In the order in which they were declared; nothing else is."""
    one = b'{"event_type":"plan_declared","plan":"p1","version":1}'
    two = b'{"event_type":"plan_declared","plan":"p2","version":1}'
    again = b'{"event_type":"plan_declared","plan":"p1","version":2}'
    message = b'{"event_type":"call_failed","reason":"\\"event_type\\":\\"plan_declared\\""}'
    assert carried([one, message, two, again]) == [two, again]


def test_a_plan_that_nobody_can_read_is_not_carried_along():
    """Somebody changed it, or a kill cut it off; the log goes on."""
    good = b'{"event_type":"plan_declared","plan":"p1"}'
    assert carried([good, good[:-3], good.replace(b"p1", b"\xff")]) == [good]


@given(LOGS, st.text(max_size=8), st.booleans(), st.integers(0, 9))
def test_a_header_states_what_stands_before_it_and_with_it(batches, gap, head, lost):
    """Its version, the hash of the gap, whether a head follows, how many records were lost."""
    _, tail = written(batches)
    block = seal(tail._replace(gap=gap), (), writer="w", time="t", head=head, lost=lost)
    header = header_of(block)
    assert (header.version, header.gap, header.head, header.lost) == (VERSION, gap, head, lost)
    assert verify_block(tail, block).link == block.link


def test_a_header_of_version_1_states_none_of_it():
    """It has no version, and reads as version 1."""
    plain = b'{"block":1,"count":0,"first":1,"log":"a1","time":"t","writer":"w"}'
    header = read_header(plain)
    assert (header.version, header.gap, header.head, header.lost) == (1, "", False, 0)


@given(st.sampled_from(["log", "time", "link", "key", "signature"]), st.text(min_size=1))
def test_a_head_whose_fields_were_changed_is_not_intact(field, text):
    """The checksum is of all fields; it is no signature, and no part of what is signed."""
    head = signed(head_of(Tail("a1", 2, 3), "now"), "k", b"s")
    whole = chain.checked(head)
    assert is_intact(whole)
    assert message_of(whole) == message_of(head)
    changed = msgspec.structs.replace(whole, **{field: getattr(whole, field) + text})
    assert not is_intact(changed)
    assert not is_intact(head), "one of this version has a checksum"


def test_a_head_of_version_1_has_no_checksum():
    """What it was when it was written is not known."""
    head = Head(log="a1", block=1, number=1, link="00", time="now")
    assert is_intact(head)
    assert not is_intact(msgspec.structs.replace(head, check="00"))
