"""Half-open probes of circuits that processes share: as many as allowed, over all of them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from itertools import pairwise

import pytest
import trio

from mainstay import BreakerSettings, CircuitOpenError, Engine, RetryPolicy
from mainstay.core.circuit.permits import decode
from mainstay.runtime.store_clock import StoreClock
from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time
from tests.drivers.guards.waits import wait_longer
from tests.processes import at_some_speed, wait_until

ONCE = RetryPolicy(name="once", max_attempts=1)
RULES = BreakerSettings(failure_threshold=1, recovery_timeout=30.0)


class Shared(MemoryStore):
    """A store that several engines have, on the clock of the test; it counts its steps."""

    abilities = MemoryStore.abilities | {"durable"}

    def __init__(self):
        super().__init__()
        self.asked = []
        self.answers = threading.Event()
        self.answers.set()

    def transact(self, space, key, decide):
        self.asked.append(space)
        self.answers.wait(60.0)
        return super().transact(space, key, decide)

    def close(self):
        """Others use it."""

    @property
    def permits(self):
        value, _ = self.read("circuits.permits", "pay")
        return None if value is None else decode(value)


class Node:
    """One process's engine: its steps are taken by hand, and its changes are noted."""

    def __init__(self, store, rules=RULES):
        self.states = []
        self.engine = Engine(
            store, breaker=rules, policies=[ONCE], default="once", share=3600.0,
            sinks=[self.note],
        )  # fmt: skip
        self.engine._sharing.longest_hold, self.engine._sharing.silence = 1.0, 10.0

    def note(self, event):
        if event.event_type == "circuit_state_changed":
            self.states.append(event.to_state)

    @property
    def state(self):
        return self.engine.breaker("pay").state.value

    def call(self, function):
        return self.engine.call("pay", function)

    def fail(self):
        with pytest.raises(ConnectionError):
            self.call(down)

    def step(self):
        assert self.engine.catch_up()

    def is_refused(self):
        made = []
        try:
            self.call(lambda: made.append(1))
        except CircuitOpenError:
            return True
        return False


def down():
    raise ConnectionError("down")


def quiet(node):
    """Waits until what the node has posted is in the store."""
    job = node.engine._sharing._jobs.post(lambda: None)
    wait_until(lambda: job.is_done, "the background thread")


@pytest.fixture
def patient(monkeypatch):
    """A loaded machine may need more than a tenth of a second."""
    wait_longer(monkeypatch.setattr)


@pytest.fixture
def fleet():
    """Makes nodes whose circuits are open, and whose time is over."""
    engines = []
    with virtual_time() as clock:

        def make(count=5, rules=RULES):
            store = Shared()
            nodes = [Node(store, rules) for _ in range(count)]
            engines.extend(node.engine for node in nodes)
            for node in nodes:
                node.fail()
                node.states.clear()
            clock.advance(30.0)
            store.asked.clear()
            return clock, store, nodes

        yield make
        for engine in engines:
            engine.close()


@pytest.mark.usefixtures("patient")
def test_while_one_node_probes_the_others_are_refused(fleet):
    """One probe, and not one of each process."""
    _, _, nodes = fleet()
    refused = []

    def probe():
        refused.extend(node.is_refused() for node in nodes[1:])
        return "well"

    assert nodes[0].call(probe) == "well"
    assert refused == [True] * 4
    assert nodes[0].state == "closed"


@pytest.mark.usefixtures("patient")
def test_as_many_as_are_allowed_probe_at_once(fleet):
    """Over all processes."""
    _, _, nodes = fleet(4, RULES.replace(half_open_probes=2))
    reached = []

    def first():
        assert nodes[1].call(second) == "well"
        return "well"

    def second():
        reached.extend(node.is_refused() for node in nodes[2:])
        return "well"

    nodes[0].call(first)
    assert reached == [True, True]


@pytest.mark.usefixtures("patient")
def test_a_probe_keeps_its_permit_when_the_clock_of_the_store_is_set_ahead(fleet):
    """A node that has seen the clock before knows by how much it was set."""
    clock, _, nodes = fleet(2)
    refused = []

    def probe():
        clock._wall += 86_400.0
        refused.append(nodes[1].is_refused())
        return "well"

    for node in nodes:
        node.engine._sharing._clock = watched = StoreClock("kept://")
        watched._steady = clock.monotonic
        node.step()
    assert nodes[0].call(probe) == "well"
    assert refused == [True]


@pytest.mark.usefixtures("patient")
def test_when_the_probe_succeeds_the_others_close_at_their_next_step(fleet):
    """Each with one change; none of them has asked for anything."""
    _, store, nodes = fleet()
    nodes[0].call(int)
    quiet(nodes[0])
    store.asked.clear()
    for node in nodes[1:]:
        node.step()
        assert node.states[-1:] == ["closed"]
        assert not node.is_refused()
        node.step()
        assert [state for state in node.states if state != "half_open"] == ["closed"]
    assert store.asked.count("circuits.permits") == 0


@pytest.mark.usefixtures("patient")
def test_a_node_that_asks_after_that_closes_at_once(fleet):
    """It need not wait for its step, and its call is made."""
    _, _, nodes = fleet(2)
    nodes[0].call(int)
    quiet(nodes[0])
    assert nodes[1].call(int) == 0
    assert nodes[1].states == ["half_open", "closed"]


@pytest.mark.usefixtures("patient")
def test_when_the_probe_fails_the_others_open_again_with_it(fleet):
    """No other process reaches the service until the time is over; each changes twice."""
    clock, store, nodes = fleet()
    nodes[0].fail()
    clock.advance(10.0)
    assert [node.is_refused() for node in nodes] == [True] * 5
    assert 19.0 < nodes[1].engine.breaker("pay").retry_after <= 20.0
    for _ in range(3):
        assert [node.is_refused() for node in nodes] == [True] * 5
        for node in nodes:
            node.step()
    assert {tuple(node.states) for node in nodes} == {("half_open", "open")}
    clock.advance(20.0)
    assert nodes[3].call(int) == 0
    quiet(nodes[3])
    assert [node.call(int) for node in nodes] == [0] * 5
    assert store.permits.held == {}


@pytest.mark.usefixtures("patient")
def test_callers_that_are_refused_do_not_ask(fleet):
    """One caller of a process asks, and again when the permit may be free."""
    clock, store, nodes = fleet(2)

    def probe():
        assert [nodes[1].is_refused() for _ in range(50)] == [True] * 50
        assert store.asked.count("circuits.permits") == 2
        clock.advance(1.0)
        assert [nodes[1].is_refused() for _ in range(50)] == [True] * 50
        assert store.asked.count("circuits.permits") == 3

    nodes[0].call(probe)


def test_a_closed_circuit_asks_for_nothing(fleet):
    """Healthy calls and failures that do not open it."""
    _, store, nodes = fleet(1, RULES.replace(failure_threshold=1))
    nodes[0].call(int)
    quiet(nodes[0])
    store.asked.clear()
    for _ in range(10):
        nodes[0].call(int)
    quiet(nodes[0])
    assert store.asked == []


@pytest.mark.usefixtures("patient")
def test_the_permit_of_a_prober_that_died_runs_out(fleet):
    """Another node probes when its lease is over; that of a live one is renewed by its steps."""
    clock, _, nodes = fleet(2)
    assert nodes[0].engine.breaker("pay").allow_request()
    for _ in range(4):
        clock.advance(5.0)
        assert nodes[1].is_refused()
        nodes[0].step()
    clock.advance(9.0)
    assert nodes[1].is_refused()
    clock.advance(2.0)
    assert nodes[1].call(int) == 0


def test_without_an_answer_each_process_probes_by_itself(fleet):
    """After a tenth of a second; as without a store."""
    _, store, nodes = fleet(2)
    store.answers.clear()
    try:
        began = time.monotonic()
        assert [node.call(int) for node in nodes] == [0, 0]
        assert time.monotonic() - began < 30.0
        assert [node.engine.circuits.sharing()["alone"] for node in nodes] == [1, 1]
    finally:
        store.answers.set()


def test_an_unavailable_store_is_no_answer(fleet, monkeypatch):
    """Each goes on with what it has."""
    _, store, nodes = fleet(2)

    def gone(*_):
        raise OSError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(store, "transact", gone)
        assert [node.call(int) for node in nodes] == [0, 0]


@pytest.mark.usefixtures("patient")
def test_the_successes_of_all_processes_add_up(fleet):
    """Two probes close it, by any two of them."""
    clock, _, nodes = fleet(3, RULES.replace(success_threshold=2))
    for node in nodes[:2]:
        assert node.call(int) == 0
        quiet(node)
        clock.advance(1.0)
    assert nodes[2].call(int) == 0
    assert nodes[2].states == ["half_open", "closed"]


@pytest.mark.usefixtures("patient")
def test_a_probe_that_does_not_count_returns_its_permit(fleet):
    """A mistake of the caller says nothing of the service: the next node may probe."""
    clock, _, nodes = fleet(2)
    with pytest.raises(ValueError, match="mistake"):
        nodes[0].call(lambda: int("mistake"))
    quiet(nodes[0])
    clock.advance(1.0)
    assert nodes[1].call(int) == 0


@pytest.mark.usefixtures("patient")
def test_a_refused_probe_is_counted_and_its_event_names_the_circuit(fleet):
    """By what the permits came to."""
    _, _, nodes = fleet(2)
    nodes[0].call(nodes[1].is_refused)
    quiet(nodes[0])
    opened = {"granted": 0, "denied": 0, "alone": 0, "stored": 1, "late": 0}
    assert nodes[0].engine.circuits.sharing() == {**opened, "granted": 1, "stored": 2}
    assert nodes[1].engine.circuits.sharing() == {**opened, "denied": 1}
    assert nodes[1].engine.breaker("pay").snapshot().refused == 1


@pytest.mark.usefixtures("patient")
def test_a_bad_node_with_a_long_backoff_keeps_no_other_from_probing(fleet):
    """An open period of its own, however long the failing one has to wait."""
    clock, store, nodes = fleet(2)
    nodes[0].fail()
    quiet(nodes[0])
    row = store.permits

    def longer(value, now):
        from msgspec.json import encode
        from msgspec.structs import replace

        from mainstay.core.base.change import Change

        return Change(encode(replace(row, wait=3000.0))), None

    store.transact("circuits.permits", "pay", longer)
    assert nodes[1].is_refused()
    clock.advance(31.0)
    assert nodes[1].call(int) == 0


# --- event loops ----------------------------------------------------------------------------------


async def awaited(node, function):
    return await node.engine.acall("pay", function)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("run", [asyncio.run, trio.run])
def test_an_event_loop_awaits_the_permit(run, fleet):
    """A probe of one node, and refusals of the others meanwhile."""
    _, _, nodes = fleet(3)
    refused = []

    async def probe():
        for node in nodes[1:]:
            with pytest.raises(CircuitOpenError):
                await awaited(node, probe)
            refused.append(node)
        return "well"

    assert run_in(run, awaited, nodes[0], probe) == "well"
    assert len(refused) == 2


def run_in(run, function, *args):
    return run(function, *args) if run is trio.run else run(function(*args))


def real_fleet(tmp_path, count, rules):
    """Nodes in real time, whose circuits are open."""
    store = Shared()
    nodes = [Node(store, rules) for _ in range(count)]
    for node in nodes:
        node.fail()
    wait_until(lambda: all(node.state == "half_open" for node in nodes), "the open time")
    return store, nodes


@pytest.mark.parametrize("run", [asyncio.run, trio.run])
def test_the_loop_runs_on_while_the_store_hangs(run, tmp_path):
    """The call probes by itself after a tenth of a second."""
    store, (node,) = real_fleet(tmp_path, 1, RULES.replace(recovery_timeout=0.01))
    sleep = trio.sleep if run is trio.run else asyncio.sleep
    ticks = []

    async def answer():
        return 42

    async def main():
        ended = []

        async def tick():
            while not ended:
                ticks.append(1)
                await sleep(0.001)

        async def probe():
            ended.append(await awaited(node, answer))

        if run is trio.run:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(tick)
                nursery.start_soon(probe)
        else:
            await asyncio.gather(tick(), probe())
        return ended

    store.answers.clear()
    try:
        assert run_in(run, main) == [42]
        assert len(ticks) > 5, "the loop was blocked"
    finally:
        store.answers.set()
        node.engine.close()


@pytest.mark.usefixtures("patient")
def test_a_call_that_is_cancelled_while_it_waits_returns_its_permit(tmp_path):
    """The step is under way: it is taken back after it."""
    store, (one, two) = real_fleet(tmp_path, 2, RULES.replace(recovery_timeout=0.01))

    async def main():
        store.answers.clear()
        task = asyncio.create_task(awaited(one, asyncio.sleep))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task])
        store.answers.set()

    asyncio.run(main())
    quiet(one)
    assert store.permits.held == {}
    assert two.call(int) == 0
    for node in (one, two):
        node.engine.close()


def test_what_cannot_be_awaited_in_a_loop_is_refused_once_and_then_admitted(tmp_path):
    """`with breaker:` and `allow_request()` ask, do not wait, and use the answer the next time."""
    rules = RULES.replace(recovery_timeout=0.01)
    store, nodes = real_fleet(tmp_path, 2, rules)

    async def by_hand(breaker):
        answers = []
        while True not in answers:
            answers.append(breaker.allow_request())
            await asyncio.sleep(0.03)
        breaker.record_success()
        return answers

    async def block(breaker):
        answers = []
        while True not in answers:
            try:
                with breaker:
                    answers.append(True)
            except CircuitOpenError:
                answers.append(False)
            await asyncio.sleep(0.03)
        return answers

    for way, node in zip((by_hand, block), nodes, strict=True):
        answers = asyncio.run(way(node.engine.breaker("pay")))
        assert answers[0] is False
        assert len(answers) >= 2
        wait_until(lambda node=node: not store.permits.held, "the permit")
        node.engine.close()


@pytest.mark.usefixtures("patient")
def test_an_async_block_of_a_breaker_awaits_its_permit(tmp_path):
    """It is the one that can."""
    _, nodes = real_fleet(tmp_path, 2, RULES.replace(recovery_timeout=0.01))
    one, two = (node.engine.breaker("pay") for node in nodes)

    async def main():
        async with one:
            with pytest.raises(CircuitOpenError):
                async with two:
                    pass
            return "well"

    assert asyncio.run(main()) == "well"
    assert one.state.value == "closed"
    for node in nodes:
        node.engine.close()


# --- real processes -------------------------------------------------------------------------------

WORKERS = """
    import gc, json, os, sys, time
    from pathlib import Path
    from mainstay import BreakerSettings, Engine, RetryPolicy
    import mainstay.stores.nats.store, mainstay.stores.postgres.store
    import mainstay.stores.redis.store, mainstay.stores.sqlite.store
    from tests.drivers.guards.waits import wait_longer
    wait_longer()
    url, folder, recovery = sys.argv[1], Path(sys.argv[2]), float(sys.argv[4])
    name = f"pay {folder}"
    gc.freeze()
    for _ in range(int(sys.argv[3]) - 1):
        if os.fork() == 0:
            break
    states = []
    def noted(event):
        if event.event_type == "circuit_state_changed":
            states.append(event.to_state)
    engine = Engine(url, policies=[RetryPolicy(name="once", max_attempts=1)], default="once",
                    sinks=[noted], share=0.5,
                    breaker=BreakerSettings(failure_threshold=1, recovery_timeout=recovery))
    engine.breaker(name)
    def note(word):
        with open(folder / "calls", "a") as file:
            file.write(f"{word} {time.time()}\\n")
    def service():
        note("began")
        time.sleep(0.3)
        if not (folder / "up").exists():
            note("failed")
            raise ConnectionError("down")
        note("ended")
        return 42
    os.write(1, b"ready\\n")
    while not (folder / "go").exists():
        time.sleep(0.01)
    while not (folder / "stop").exists():
        engine.run(name, service)
        time.sleep(0.02)
    os.write(1, json.dumps(states).encode() + b"\\n")  # whole: others write there too
    engine.close()
"""


def start(url, folder, *numbers):
    """So many processes, forked by one that has loaded the library and has opened nothing."""
    program = [sys.executable, "-c", textwrap.dedent(WORKERS), url, folder, *numbers]
    with (folder / "stderr").open("w") as stderr:
        return subprocess.Popen(
            [str(word) for word in program],
            stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True,
        )  # fmt: skip


def calls(folder):
    """What the service has noted, in order."""
    lines = (folder / "calls").read_text().splitlines()
    return sorted((float(line.split()[1]), line.split()[0]) for line in lines)


def probes_of(url, folder, count, recovery):
    """Runs so many processes on a service that is down, then up; what it noted, and the states."""
    processes = start(url, folder, count, recovery)
    try:
        assert [processes.stdout.readline() for _ in range(count)] == ["ready\n"] * count
        (folder / "go").touch()

        def failed():
            return [at for at, word in calls(folder) if word == "failed"]

        wait_until(lambda: (folder / "calls").exists() and len(failed()) >= count, "an opening", 60)
        wait_until(lambda: len(failed()) >= count + 3, "three probes", 60)
        (folder / "up").touch()
        wait_until(
            lambda: len([1 for _, word in calls(folder) if word == "ended"]) >= count,
            "it is up",
            60,
        )
        time.sleep(1.0)
        (folder / "stop").touch()
        ended = [processes.stdout.readline() for _ in range(count)]
        assert all(ended), (folder / "stderr").read_text()
        return calls(folder), [json.loads(line) for line in ended]
    finally:
        os.killpg(processes.pid, signal.SIGKILL)
        processes.wait(60)
        processes.stdout.close()


def check_probes(url, folder, count):
    """Of so many processes one probes at a time, and after a failure none for a while.

    The while must be longer than the first calls of all of them take.
    """

    def check(recovery):
        where = folder / str(recovery)
        where.mkdir()
        noted, states = probes_of(url, where, count, recovery)
        check_notes(noted, states, count, recovery)

    at_some_speed(check, 0.8, 4.0, 12.0)


def check_notes(noted, states, count, recovery):
    words = [word for _, word in noted]
    opened = [index for index, word in enumerate(words) if word == "failed"][count - 1]
    recovered = words.index("ended")
    probing = noted[opened + 1 : recovered + 1]
    assert [word for _, word in probing[0::2]] == ["began"] * (len(probing) // 2), probing
    assert [word for _, word in probing[1::2]][:-1] == ["failed"] * (len(probing) // 2 - 1)
    for (ended, _), (began, _) in zip(probing[1::2], probing[2::2], strict=False):
        assert began - ended > 0.95 * recovery
    for each in states:
        assert each[-1] == "closed"
        assert all(a != b for a, b in pairwise(each))


@pytest.mark.req("FR-041-65")
def test_of_twenty_processes_one_probes(tmp_path):
    """An oracle outside counts the calls that reach the service while they are half open."""
    check_probes(f"sqlite:///{tmp_path}/shared.db", tmp_path, 20)


@pytest.mark.parametrize("server", ["postgres_url", "valkey_url", "nats_url"])
def test_of_some_processes_on_each_server_one_probes(server, request, tmp_path):
    """The same on every store."""
    check_probes(request.getfixturevalue(server), tmp_path, 5)
