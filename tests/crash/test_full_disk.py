"""A disk that is full: messages and sagas wait for space, and nothing is lost or half done.

The program below runs on a small disk of its own; this process fills and empties the disk between
its steps.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.faults.disk import SmallDisk

ROOT = Path(__file__).parents[2]
PROGRAM = '''
import json, sqlite3, sys
from mainstay import Engine, RetryPolicy, Saga, SagaStep
from mainstay.errors import MainstayError

path, got, undone = sys.argv[1], [], []
big = "x" * 200_000

def place(ctx):
    ctx.emit("order.placed.v1", big)

def cancel(ctx):
    undone.append(ctx.saga_id)
    ctx.emit("order.cancelled.v1", big)

def pack(ctx):
    raise KeyError("sold out")

saga = Saga("order", [SagaStep("place", place, cancel), SagaStep("pack", pack)], lease=0.2)
engine = Engine(f"sqlite:///{path}/app.db", sinks=[], audit=False, share=None, purge=None)
engine.sagas.register(saga)
engine.outbox.counts()

def tried(work):
    """What it raises, by name."""
    try:
        work()
    except (MainstayError, sqlite3.Error, KeyError) as error:
        return type(error).__name__
    return ""

def add():
    connection = sqlite3.connect(f"{path}/app.db")
    try:
        with connection:
            engine.outbox.add(connection, topic="t", payload=big)
    finally:
        connection.close()

def drain():
    engine.outbox.relay(lambda message: got.append((message.topic, message.id))).drain()

STEPS = {
    "add": lambda: tried(add),
    "saga": lambda: tried(lambda: engine.sagas.run(saga, id=f"{len(undone)}", wait=0.1)),
    "drain": lambda: tried(drain),
    "recover": lambda: engine.sagas.recover().to_dict(),
    "got": lambda: sorted(topic for topic, _ in set(got)),
    "open": lambda: [view.state for view in engine.sagas.open()],
    "states": lambda: [view.state for view in engine.sagas.all()],
    "undone": lambda: undone,
}
for line in sys.stdin:
    print(json.dumps(STEPS[line.strip()]()), flush=True)
'''


class Program:
    """The program, a step at a time."""

    def __init__(self, disk, folder):
        command = [*disk.prefix, sys.executable, "-c", PROGRAM, str(folder)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def __call__(self, step):
        self._process.stdin.write(f"{step}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.communicate(timeout=60.0)


@pytest.fixture
def disk(tmp_path):
    made = SmallDisk(tmp_path, 16)
    yield made
    made.close()


@pytest.mark.req("EF-14")
def test_a_full_disk(disk, tmp_path):
    """Adding and running raise; once there is space, what was committed goes on to its end."""
    program = Program(disk, tmp_path)
    try:
        assert [program("add"), program("saga")] == ["", "KeyError"]
        disk.fill()
        assert [program("add"), program("saga")] == ["OperationalError", "StoreUnavailable"]
        assert program("drain") in ("", "StoreUnavailable")  # a claim may fit into the log
        disk.empty()
        while program("open"):
            program("recover")
        assert program("drain") == ""
        states = program("states")
        assert set(states) == {"compensated"}
        events = ["order.cancelled.v1"] * len(states) + ["order.placed.v1"] * len(states)
        assert program("got") == [*events, "t"]  # the second one was not committed
    finally:
        program.close()
