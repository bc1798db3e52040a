"""Which writers of a log have closed: a law over all orders of their blocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.audit.chain import Tail, header_of, seal, tail_of
from mainstay.core.audit.writers import Writers

STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["opened", "batch", "lost", "closed"])),
    max_size=30,
)
NOTES = {"opened": {"opened": {}}, "closed": {"closed": {"lost": 0}}}


def headers(steps):
    """The headers of a log in which writers take these steps, one after the other."""
    tail = Tail()
    for time, (writer, step) in enumerate(steps):
        lost = 3 if step == "lost" else 0
        records = [b"{}"] if step in ("batch", "lost") else []
        block = seal(
            tail,
            records,
            writer=f"host:{ord(writer)}:{writer}",
            time=f"{time:04}",
            log="a1",
            note=NOTES.get(step),
            lost=lost,
        )
        tail = tail_of(block)
        yield header_of(block)


@given(STEPS)
def test_a_writer_is_open_if_its_last_block_does_not_close_it(steps):
    """Whatever others write between; it is named with its host, its process and its times."""
    writers = Writers()
    for header in headers(steps):
        writers.feed(header)
    last = {writer: (time, step) for time, (writer, step) in enumerate(steps)}
    expected = {writer: time for writer, (time, step) in last.items() if step != "closed"}
    found = {each.writer[-1]: int(each.last) for each in writers.unclosed}
    assert found == expected
    for each in writers.unclosed:
        ends = [t for t, step in enumerate(steps) if step == (each.writer[-1], "closed")]
        begins = [t for t, (w, _) in enumerate(steps) if w == each.writer[-1]]
        since = min(t for t in begins if t > max(ends, default=-1))
        assert (each.host, each.pid, int(each.since)) == ("host", ord(each.writer[-1]), since)


def test_a_writer_of_version_1_does_not_count():
    """Its blocks do not state whether it closed."""
    writers = Writers()
    (header,) = headers([("a", "batch")])
    writers.feed(type(header)(**{**_plain(header), "version": 1}))
    assert writers.unclosed == []


def test_a_name_without_host_and_process_is_kept_as_it_is():
    """A Journal of one's own may be written by anything."""
    writers = Writers()
    block = seal(Tail(), [], writer="me", time="now", log="a1")
    writers.feed(header_of(block))
    assert [(each.writer, each.host, each.pid) for each in writers.unclosed] == [("me", "", 0)]


def _plain(header):
    return {name: getattr(header, name) for name in header.__struct_fields__}
