"""What a command wrote, kept and carried."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.drivers.process.capture import IN_MEMORY, Tape, frames, stream_of
from mainstay.drivers.process.pump import Pump


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(min_size=1, max_size=40))))
def test_a_tape_gives_back_what_it_took_down(written):
    """In order, by stream, byte for byte."""
    tape = Tape()
    for stream, data in written:
        tape.add(stream, data)
    taken = tape.taken()
    assert list(frames(taken)) == written
    for stream in (1, 2):
        assert stream_of(taken, stream) == b"".join(d for s, d in written if s == stream)


@pytest.mark.parametrize(("size", "lost"), [(95, ""), (96, "it was longer than 100 bytes")])
def test_a_tape_has_a_length(size, lost):
    """To the byte; what is too long is not kept at all."""
    tape = Tape(100)
    tape.add(1, b"x" * size)
    assert (len(tape.taken()) > 0, tape.lost) == (not lost, lost)


def test_a_long_tape_is_on_the_disk():
    """Memory holds its beginning only."""
    tape = Tape(10 * IN_MEMORY)
    for _ in range(8):
        tape.add(1, b"x" * (IN_MEMORY // 4))
    assert tape._spool._rolled
    assert len(stream_of(tape.taken(), 1)) == 2 * IN_MEMORY


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("size", [10, 100_000], ids=["seen at the end", "seen at once"])
def test_a_full_disk_loses_the_tape_and_nothing_else(size):
    """Nothing is raised; why is said."""
    tape = Tape(spool=lambda: Path("/dev/full").open("w+b"))  # noqa: SIM115  the tape closes it
    for _ in range(3):
        tape.add(1, b"x" * size)
    assert tape.taken() == b""
    assert tape.lost == "it could not be kept: No space left on device"


def pumped(target, *chunks, tape=None):
    """A pump that has carried these, and what it kept."""
    theirs, ours = os.pipe()
    tape = tape or Tape()
    pump = Pump(theirs, 1, target, tape)
    pump.start()
    for chunk in chunks:
        os.write(ours, chunk)
    return pump, ours, tape


def test_a_pump_carries_what_comes_and_keeps_it():
    """Until the end of the pipe."""
    with tempfile.TemporaryFile() as out:
        pump, ours, tape = pumped(out.fileno(), b"one", b"two")
        os.close(ours)
        pump.finish(None)
        out.seek(0)
        assert out.read() == b"onetwo"
    assert stream_of(tape.taken(), 1) == b"onetwo"


def test_a_pump_ends_though_somebody_keeps_the_pipe_open():
    """When it is told that nobody who matters is left; what is in the pipe comes first."""
    with tempfile.TemporaryFile() as out:
        pump, ours, tape = pumped(out.fileno(), b"x" * 60_000)
        pump.finish(None)
        os.close(ours)
        assert out.tell() == 60_000
    assert len(stream_of(tape.taken(), 1)) == 60_000


def test_a_reader_who_is_gone_closes_the_pipe():
    """Whoever writes meets what they would have met; half an output is not kept."""
    gone, target = os.pipe()
    os.close(gone)
    pump, ours, tape = pumped(target, b"x")
    pump.join(30)
    with pytest.raises(BrokenPipeError):
        os.write(ours, b"y")
    pump.finish(None)
    os.close(ours)
    os.close(target)
    assert isinstance(pump.error, BrokenPipeError)
    assert tape.lost == "it was cut off: Broken pipe"


def test_a_reader_who_does_not_read_is_waited_for_so_long_only():
    """Past its patience a pump lets the rest go."""
    reader, target = os.pipe()
    pump, ours, tape = pumped(target, *[b"x" * 50_000] * 3)
    os.close(ours)
    pump.finish(0.05)
    assert pump.is_alive()
    assert tape.lost == "nobody read it in time"
    while pump.is_alive() and os.read(reader, 65536):
        pump.join(0.1)
    for descriptor in (reader, target, pump._stop_reader):
        os.close(descriptor)


def test_a_stream_without_room_for_now_is_waited_for():
    """Somebody who shares it has made it non-blocking."""
    reader, target = os.pipe()
    os.set_blocking(target, False)
    pump, ours, tape = pumped(target, *[b"x" * 50_000] * 3)
    os.close(ours)
    read = 0
    while read < 150_000:
        read += len(os.read(reader, 65536))
    pump.finish(None)
    os.close(reader)
    os.close(target)
    tape.close()
    assert (read, pump.error) == (150_000, None)
