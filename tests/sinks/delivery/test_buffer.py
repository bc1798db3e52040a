"""The buffer: calls go on at once, nothing is lost in silence, and the order is kept."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time

import pytest

from mainstay import Engine, RetryPolicy, SinkError
from mainstay.errors import PolicyError
from mainstay.events import CallSucceeded
from mainstay.sinks.delivery.backlog import Backlog
from mainstay.sinks.delivery.buffer import Buffer
from mainstay.testing import scripted, virtual_time


class OtherSide:
    """A place to deliver to, which can be away, slow, or stuck."""

    def __init__(self):
        self.kept = []
        self.is_away = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def __call__(self, events):
        self.entered.set()
        assert self.gate.wait(100)
        if self.is_away:
            raise ConnectionError("nobody is there")
        self.kept += [event.operation for event in events]


@pytest.fixture
def other():
    side = OtherSide()
    yield side
    side.is_away = False
    side.gate.set()


@pytest.fixture
def buffer(other, tmp_path):
    made = []

    def make(**options):
        options = {"name": "test", "spill": tmp_path / "spill", "every": 0.01, **options}
        made.append(Buffer(other, **options))
        return made[-1]

    yield make
    other.is_away = False
    other.gate.set()
    for each in made:
        each.flush(5)


def event(number):
    return CallSucceeded(operation=str(number))


def numbers(count, first=0):
    return [str(number) for number in range(first, first + count)]


def eventually(is_so, seconds=30.0):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.005)


def files_in(folder):
    return sorted(path for path in folder.rglob("*.jsonl"))


def test_events_are_delivered_in_order_without_a_flush(buffer, other):
    """What is put arrives by itself, in batches, in the order it was put."""
    made = buffer(batch=7)
    for number in range(100):
        made.put(event(number))
    eventually(lambda: len(other.kept) == 100)
    assert other.kept == numbers(100)
    assert made.stats() == {
        "taken": 100, "delivered": 100, "spilled": 0, "recovered": 0, "failures": 0, "lost": 0,
        "waiting": 0, "held": 0,
    }  # fmt: skip


def test_a_flush_waits_until_everything_is_delivered(buffer, other):
    """After flush() nothing waits any more, however rare deliveries are."""
    made = buffer(every=60.0)
    for number in range(10):
        made.put(event(number))
    assert made.flush()
    assert other.kept == numbers(10)


def test_a_buffer_that_is_flushed_is_closed_with_its_thread(buffer, monkeypatch):
    """Also if the thread has not cleared its batch yet when the flush is over."""
    taken = buffer()
    taken.put(CallSucceeded(operation="a"))
    thread = taken._thread
    monkeypatch.setattr(Backlog, "is_safe", property(lambda _: False))
    assert taken.close()
    assert not thread.is_alive()


def test_the_end_of_a_process_starts_no_thread_for_a_closed_buffer(buffer, other, monkeypatch):
    """There is nothing to flush; what came after it was closed is delivered."""
    made = buffer()
    made.put(event(0))
    assert made.close()
    with monkeypatch.context() as patched:
        patched.setattr(made, "_start", lambda: pytest.fail("a thread was started"))
        made.end()
    made.put(event(1))
    made.end()
    assert other.kept == numbers(2)


def test_putting_never_waits_for_the_other_side(buffer, other):
    """While a delivery is stuck, thousands of events are taken, and all arrive in order."""
    made = buffer(size=100, batch=10)
    other.gate.clear()
    made.put(event(0))
    assert other.entered.wait(60)
    for number in range(1, 301):
        made.put(event(number))
    eventually(lambda: made.stats()["spilled"] > 0)
    for number in range(301, 350):
        made.put(event(number))
    other.gate.set()
    eventually(lambda: len(other.kept) == 350)
    assert other.kept == numbers(350)
    assert made.stats()["lost"] == 0


@pytest.mark.req("CP-15.spilled")
def test_what_finds_no_room_is_spilled_and_comes_back_first(buffer, other, tmp_path, caplog):
    """The other side is away: memory, then disk; when it is back, all of it in order."""
    caplog.set_level(logging.INFO, "mainstay")
    made = buffer(size=20, batch=5)
    other.is_away = True
    for number in range(200):
        made.put(event(number))
        if number % 20 == 0:
            eventually(lambda: made.stats()["failures"] > 0)
        if number % 20 == 19:
            eventually(lambda: made.stats()["waiting"] <= 25)
    assert files_in(tmp_path)
    other.is_away = False
    eventually(lambda: len(other.kept) == 200)
    assert other.kept == numbers(200)
    assert made.flush()
    assert not files_in(tmp_path)
    stats = made.stats()
    assert stats["delivered"] == 200
    assert stats["lost"] == 0
    assert stats["failures"] > 0
    said = [record.getMessage() for record in caplog.records]
    assert len([text for text in said if "not delivered for now" in text]) == 1
    assert said[-1] == "test: everything is delivered again"


@pytest.mark.req("CP-15.spilled")
def test_a_flush_while_the_other_side_is_away_ends_with_everything_on_disk(buffer, other, tmp_path):
    """flush() is True when nothing is in memory only, and what is on disk is delivered later."""
    made = buffer()
    other.is_away = True
    for number in range(5):
        made.put(event(number))
    assert made.flush(60)
    assert made.stats()["waiting"] == 0
    assert files_in(tmp_path)
    other.is_away = False
    eventually(lambda: other.kept == numbers(5))
    eventually(lambda: not files_in(tmp_path))


def test_a_flush_while_a_delivery_is_stuck_brings_it_to_disk(buffer, other, tmp_path):
    """Also the batch under way is safe after flush(), and is not delivered twice."""
    made = buffer()
    other.gate.clear()
    made.put(event(0))
    assert other.entered.wait(60)
    made.put(event(1))
    assert made.flush(0.05)
    assert len(files_in(tmp_path)) == 2
    other.gate.set()
    assert made.flush(60)
    eventually(lambda: other.kept == numbers(2))
    assert not files_in(tmp_path)


@pytest.mark.req("CP-15.counted", "CP-15.reported")
def test_without_a_spill_folder_what_finds_no_room_is_counted_and_reported(buffer, other, caplog):
    """spill=False: the bound holds, and what is lost is known."""
    made = buffer(size=10, spill=False)
    other.is_away = True
    for number in range(50):
        made.put(event(number))
    stats = made.stats()
    assert stats["taken"] == 50
    assert stats["lost"] > 0
    assert stats["taken"] == stats["waiting"] + stats["lost"] + stats["delivered"]
    assert any("being lost" in record.getMessage() for record in caplog.records)
    assert not made.flush(0.05)


def test_a_disk_that_refuses_costs_only_what_finds_no_room(buffer, other, tmp_path, caplog):
    """Where even the disk refuses, the bound holds, the loss is counted, the rest arrives."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, where a folder would have to be")
    made = buffer(size=10, spill=blocked)
    other.is_away = True
    for number in range(100):
        made.put(event(number))
    lost = made.stats()["lost"]
    assert lost >= 20
    for _ in range(1200):  # the thread reports it when it gets a turn
        assert not made.flush(0.05)
        if "cannot be spilled either" in caplog.text:
            break
    assert "cannot be spilled either" in caplog.text
    other.is_away = False
    assert made.flush(60)
    # The thread may take a batch out of the queue in between, which makes room for later ones.
    assert other.kept[:40] == numbers(40)
    assert other.kept == sorted(set(other.kept), key=int)
    assert len(other.kept) == 100 - lost


def test_an_event_without_a_written_form_costs_no_other(buffer, other, tmp_path):
    """A lone surrogate has no UTF-8: that event is counted as lost, the others are kept."""
    made = buffer()
    other.is_away = True
    made.put(event(0))
    made.put(CallSucceeded(operation="\ud800"))
    made.put(event(2))
    assert made.flush(60)
    assert made.stats()["lost"] == 1
    assert made.stats()["spilled"] == 2


KILLED = """
import os, sys
from mainstay.events import CallSucceeded
from mainstay.sinks.delivery.buffer import Buffer

def away(events):
    raise ConnectionError("nobody is there")

buffer = Buffer(away, name=sys.argv[2], spill=sys.argv[1])
for number in range(3):
    buffer.put(CallSucceeded(operation=str(number)))
if sys.argv[3] == "killed":
    assert buffer.flush(60)
    os.kill(os.getpid(), 9)
if sys.argv[3] == "lives":
    assert buffer.flush(60)
    print("ready", flush=True)
    sys.stdin.read()
"""


def run_other(folder, name="test", how="ends"):
    return subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder), name, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.req("CP-15.spilled")
@pytest.mark.parametrize("how", ["ends", "killed"])
def test_the_next_process_takes_up_what_a_dead_one_has_spilled(buffer, other, tmp_path, how):
    """What was on disk when a process ended, or was killed, is delivered first by the next."""
    with run_other(tmp_path / "spill", how=how) as gone:
        gone.communicate(timeout=60)
    assert len(files_in(tmp_path)) == 1
    made = buffer()
    made.put(event(3))
    assert made.flush(60)
    assert other.kept == numbers(4)
    assert made.stats()["recovered"] == 3
    assert not list((tmp_path / "spill").rglob("*.jsonl"))


def test_the_files_of_a_living_process_are_left_alone(buffer, other, tmp_path):
    """Only who holds no lock any more is taken over."""
    with run_other(tmp_path / "spill", how="lives") as living:
        assert living.stdout.readline() == "ready\n"
        made = buffer()
        made.put(event(7))
        assert made.flush(60)
        assert other.kept == ["7"]
        assert len(files_in(tmp_path)) == 1
        living.communicate("", timeout=60)


def test_the_files_of_another_destination_are_left_alone(buffer, other, tmp_path):
    """The name says where events go: nobody takes over what was meant for another place."""
    with run_other(tmp_path / "spill", name="another") as gone:
        gone.communicate(timeout=60)
    made = buffer()
    assert made.flush(60)
    assert other.kept == []
    assert len(files_in(tmp_path)) == 1


def test_a_file_that_cannot_be_read_is_set_aside(buffer, other, tmp_path, caplog):
    """A damaged file keeps nobody from being delivered, and is left for a person."""
    with run_other(tmp_path / "spill") as gone:
        gone.communicate(timeout=60)
    files_in(tmp_path)[0].write_bytes(b"no JSON at all\n")
    made = buffer()
    made.put(event(1))
    assert made.flush(60)
    assert other.kept == ["1"]
    assert len(list(tmp_path.rglob("*.bad"))) == 1
    assert any("set aside" in record.getMessage() for record in caplog.records)


AT_EXIT = """
import sys
from mainstay.events import CallSucceeded
from mainstay.sinks.delivery.buffer import Buffer

def deliver(events):
    print(*[event.operation for event in events], flush=True)

buffer = Buffer(deliver, name="exit", every=60.0, spill=False)

def work():
    buffer.put(CallSucceeded(operation="0"))
    buffer.put(CallSucceeded(operation="1"))

if sys.argv[1] == "plainly":
    work()
elif sys.argv[1] == "in a late handler":
    import atexit, mainstay.runtime.fork
    atexit.unregister(mainstay.runtime.fork.flush_all)
    atexit.register(mainstay.runtime.fork.flush_all)
    atexit.register(work)
elif sys.argv[1] == "in a child":
    import multiprocessing
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join(30)
else:
    work()
    sys.exit("an error")
"""


@pytest.mark.parametrize("how", ["plainly", "in a late handler", "in a child", "by an exception"])
def test_the_end_of_a_process_flushes(how):
    """What was put just before the end arrives, also in a child of multiprocessing."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", AT_EXIT, how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "0 1\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("fork", ["os.fork()", "ctypes.PyDLL(None).fork()"])
@pytest.mark.parametrize("end", ["assert buffer.flush(60)", "buffer.close()", "buffer.end()"])
def test_a_forked_child_delivers_its_own_and_nothing_of_its_parents(tmp_path, fork, end):
    """What the parent has taken is the parent's to deliver, once; also if C code forks."""
    script = """
import ctypes, os, sys, time
from mainstay.events import CallSucceeded
from mainstay.sinks.delivery.buffer import Buffer

def deliver(events):
    for event in events:
        os.write(1, f"{os.getpid() == parent} {event.operation}\\n".encode())

parent = os.getpid()
buffer = Buffer(deliver, name="fork", every=60.0, spill=sys.argv[1])
buffer.put(CallSucceeded(operation="before"))
time.sleep(0.3)  # a thread that waits for the interpreter's lock would be a phantom in the child
child = FORK
if child == 0:
    buffer.put(CallSucceeded(operation="child"))
    END
    os._exit(0)
os.waitpid(child, 0)
"""
    script = script.replace("FORK", fork).replace("END", end)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert sorted(done.stdout.splitlines()) == ["False child", "True before"]


def test_a_strict_buffer_returns_when_the_event_is_delivered(buffer, other):
    """put() of a strict buffer is an acknowledgement."""
    made = buffer(strict=True, every=60.0)
    for number in range(3):
        made.put(event(number))
        assert other.kept == numbers(number + 1)


def test_a_strict_buffer_raises_rather_than_go_on(buffer, other):
    """What could not be delivered in time is said, with the reason."""
    made = buffer(strict=True, timeout=1.5)
    other.is_away = True
    with pytest.raises(SinkError, match=r"did not keep a call_succeeded within 1\.5 s") as caught:
        made.put(event(0))
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert caught.value.sink == "test"


def test_where_the_disk_will_do_nobody_waits_for_an_other_side_that_is_away(
    buffer, other, tmp_path
):
    """After the first failure an event is safe on disk at once, and arrives later, in order."""
    made = buffer(timeout=60.0)
    other.is_away = True
    for number in range(5):
        assert made.commit(event(number), kept_will_do=True)
        assert len(files_in(tmp_path)) == number + 1
    other.is_away = False
    eventually(lambda: other.kept == numbers(5))


def test_strict_callers_share_deliveries(buffer, other):
    """Who waits at the same time is delivered together."""
    made = buffer(strict=True)
    other.gate.clear()
    threads = [threading.Thread(target=made.put, args=(event(n),)) for n in range(8)]
    threads[0].start()
    assert other.entered.wait(60)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: made.stats()["taken"] == 8)
    sizes, was = [], other.kept
    other.kept = type(
        "Kept", (list,), {"__iadd__": lambda s, x: (sizes.append(len(x)), s.extend(x), s)[2]}
    )(was)
    other.gate.set()
    for thread in threads:
        thread.join(60)
    assert sorted(other.kept) == numbers(8)
    assert sizes[-1] > 1


def test_the_error_of_a_strict_sink_reaches_the_caller(buffer, other):
    """The caller gets SinkError, with the call's own failure as its context; others still hear."""
    made = buffer(strict=True, timeout=0.05)
    other.is_away = True
    heard = []
    engine = Engine(sinks=[made.put, heard.append], policies=[RetryPolicy(name="p")])
    with pytest.raises(SinkError) as caught, virtual_time():
        engine.call("p", scripted(ConnectionError("the call's own"), 1))
    assert str(caught.value.__context__) == "the call's own"
    assert [each.event_type for each in heard] == ["attempt_failed"]


def test_virtual_time_neither_hangs_it_nor_is_moved_by_it(buffer, other):
    """A buffer lives in real time: a test's clock stands still while it delivers and fails."""
    made = buffer()
    other.is_away = True
    with virtual_time() as clock:
        made.put(event(0))
        eventually(lambda: made.stats()["failures"] > 1)
        other.is_away = False
        assert made.flush(60)
        assert clock.sleeps.count(0.005) == len(clock.sleeps)
    assert other.kept == ["0"]


def test_a_thread_with_nothing_to_do_ends_and_another_is_started(buffer, other, monkeypatch):
    """An engine nobody uses holds no thread; the next event finds one all the same."""
    monkeypatch.setattr("mainstay.sinks.delivery.buffer._QUIET_ROUNDS", 2)
    made = buffer(every=0.001)
    for number in range(5):
        made.put(event(number))
        eventually(lambda: made._thread is None)
    assert other.kept == numbers(5)


def test_wrong_options_are_all_named():
    """Every problem at once, as everywhere."""
    with pytest.raises(PolicyError) as caught:
        Buffer(print, name="", size=0, batch=0, every=-1.0, timeout=0)
    assert [p.field for p in caught.value.problems] == ["name", "size", "every", "timeout", "batch"]


def test_a_closed_buffer_leaves_its_files_to_the_next(tmp_path):
    """No thread is left, and whoever delivers to the same place next delivers them."""

    def refuse(_events):
        raise ConnectionError("away")

    first = Buffer(refuse, name="same place", spill=tmp_path, timeout=0.3)
    first.put(CallSucceeded(operation="kept"))
    assert first.close()
    assert not [each for each in threading.enumerate() if "same place" in each.name]
    kept = []
    second = Buffer(kept.extend, name="same place", spill=tmp_path)
    second.put(CallSucceeded(operation="new"))
    assert second.close()
    assert [event.operation for event in kept] == ["kept", "new"]
    assert second.stats()["recovered"] == 1


def test_an_event_starts_another_thread_if_the_last_one_died(tmp_path, monkeypatch):
    """Even a SystemExit of the other side costs nothing: what was under way is delivered."""
    kept, deaths, ended = [], [SystemExit(1)], []
    monkeypatch.setattr("threading.excepthook", ended.append)

    def deliver(events):
        if deaths:
            raise deaths.pop()
        kept.extend(each.operation for each in events)

    taker = Buffer(deliver, name="test", spill=tmp_path, every=0.01)
    taker.put(event(0))
    eventually(lambda: ended)
    assert ended[0].exc_type is SystemExit
    eventually(lambda: taker._thread is None)
    taker.put(event(1))
    eventually(lambda: kept == numbers(2))


def test_a_spilled_file_that_cannot_be_deleted_does_not_end_the_thread(
    buffer, other, tmp_path, monkeypatch
):
    """What comes after it is delivered without a flush."""
    other.is_away = True
    taker = buffer()
    taker.put(event(0))
    assert taker.flush()
    assert files_in(tmp_path)

    def refuse(*_, **__):
        raise PermissionError("read-only")

    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    other.is_away = False
    eventually(lambda: other.kept == numbers(1))
    taker.put(event(1))
    eventually(lambda: other.kept == numbers(2))
