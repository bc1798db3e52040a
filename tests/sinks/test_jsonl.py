"""Events in a file: whole lines, from any number of processes, through rotation and trouble."""

from __future__ import annotations

import os
import time

import pytest

from mainstay import Engine, SinkError
from mainstay.errors import PolicyError
from mainstay.events import CallSucceeded, decode
from mainstay.sinks.jsonl import JsonlSink
from mainstay.testing import scripted, virtual_time
from tests.processes import run_at_once


@pytest.fixture
def path(tmp_path):
    return tmp_path / "logs" / "events.jsonl"


@pytest.fixture
def make(path, tmp_path):
    """Makes sinks that spill to the test's own folder."""

    def sink(**options):
        return JsonlSink(path, spill=tmp_path / "spill", **options)

    return sink


def event(number):
    return CallSucceeded(operation=f"op-{number}")


def numbers(*paths):
    return [
        int(decode(line).operation[3:]) for each in paths for line in each.read_bytes().splitlines()
    ]


def until(condition, seconds=30.0):
    """Waits for something that another thread brings about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def test_every_event_is_a_line_that_is_read_again(make, path):
    """The folder is made; nobody else may read the file."""
    heard, sink = [], make()
    with virtual_time(), Engine(sinks=[sink, heard.append]) as engine:
        engine.run("api", scripted(ConnectionError("token=hunter2"), "up"))
    assert [decode(line) for line in path.read_bytes().splitlines()] == heard
    assert "hunter2" not in path.read_text("utf-8")
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_there_stays(make, path):
    """A file is appended to, and a half line of a killed process is ended."""
    path.parent.mkdir()
    path.write_bytes(b'{"event_type":"call_succeeded","operation":"op-0"}\n{"event_ty')
    sink = make(fsync=True)
    sink(event(1))
    sink.close()
    lines = path.read_bytes().splitlines()
    assert [decode(lines[0]).operation, lines[1], decode(lines[2]).operation] == [
        "op-0", b'{"event_ty', "op-1"
    ]  # fmt: skip


def test_files_are_rotated_by_their_size(make, path):
    """None is larger than told, the newest is the plain one, and the oldest goes."""
    sink = make(rotate=2000, keep=2)
    for number in range(60):
        sink(event(number))
        assert sink.flush()
    sink.close()
    files = [path.with_name(f"events.jsonl{end}") for end in (".2", ".1", "")]
    assert all(each.stat().st_size <= 2000 for each in files)
    assert not path.with_name("events.jsonl.3").exists()
    found = numbers(*files)
    assert found == list(range(found[0], 60))


IMPORTS = """
from mainstay.events import CallSucceeded
from mainstay.sinks.jsonl import JsonlSink
"""
WRITES = """
sink = JsonlSink(sys.argv[1], spill=sys.argv[2], rotate=int(sys.argv[3]), keep=1000)
for each in range(500):
    sink(CallSucceeded(operation=f"op-{1000 * number + each}"))
    if each % 20 == 0:
        sink.flush()
"""


@pytest.mark.parametrize("rotate", [1 << 40, 20_000])
def test_several_processes_write_whole_lines_to_one_file(path, tmp_path, rotate):
    """At once, also while the file is rotated; each one's own order is kept."""
    arguments = (path, tmp_path / "spill", rotate)
    assert run_at_once(4, IMPORTS, WRITES, *arguments) == (0, "")
    old = sorted(path.parent.glob("events.jsonl.[0-9]*"), key=lambda p: -int(p.suffix[1:]))
    found = numbers(*old, path)
    assert bool(old) is (rotate == 20_000)
    for start in range(0, 4000, 1000):
        assert [n for n in found if start <= n < start + 1000] == list(range(start, start + 500))


def test_nothing_is_lost_while_the_file_cannot_be_written(make, path):
    """Calls go on, and all lines are there afterwards, in order."""
    path.mkdir(parents=True)  # where the file should be
    sink = make()
    for number in range(20):
        sink(event(number))
    until(lambda: sink.stats()["failures"])
    path.rmdir()
    for number in range(20, 40):
        sink(event(number))
    until(lambda: path.is_file() and len(path.read_bytes().splitlines()) == 40)
    assert numbers(path) == list(range(40))
    sink.close()
    assert sink.stats()["lost"] == 0


def test_a_disk_that_is_full_leaves_no_half_line(make, path, monkeypatch):
    """What was written of a batch is taken back, and comes again as a whole."""
    write, room = os.write, [30]

    def full(file, data):
        if not room[0]:
            raise OSError(28, "No space left on device")
        room[0], here = 0, bytes(data[: room[0]])
        return write(file, here)

    sink = make()
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        sink._deliver([event(1)])
    assert path.read_bytes() == b""
    monkeypatch.undo()
    sink._deliver([event(1)])
    assert numbers(path) == [1]


def test_a_strict_sink_fails_the_call_rather_than_lose_its_record(make, path):
    """And says which sink."""
    path.mkdir(parents=True)
    sink = make(strict=True, timeout=0.2)
    with pytest.raises(SinkError, match="jsonl"):
        Engine(sinks=[sink]).call("api", scripted(ValueError("no")))
    path.rmdir()
    sink.close()


def test_a_writer_that_holds_the_lock_too_long_is_told_of(make, path, monkeypatch):
    """Another process that stands still is no reason to wait for ever."""
    from mainstay.runtime.filelock import try_lock
    from mainstay.sinks import jsonl

    monkeypatch.setattr(jsonl, "_PATIENCE", 0.05)
    sink = make()
    path.parent.mkdir()
    with path.with_name("events.jsonl.lock").open("w") as other:
        assert try_lock(other.fileno())
        with pytest.raises(TimeoutError, match="another process"):
            sink._deliver([event(1)])
    sink._deliver([event(1)])
    assert numbers(path) == [1]


def test_wrong_options_are_told_at_once(path):
    """All of them."""
    with pytest.raises(PolicyError) as caught:
        JsonlSink(path, rotate=0, keep=-1)
    assert [problem.field for problem in caught.value.problems] == ["rotate", "keep"]
