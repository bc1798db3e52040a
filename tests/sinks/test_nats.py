"""Events in a JetStream stream of a real server: each once, in order, also through restarts."""

from __future__ import annotations

import asyncio
import os
import time
from uuid import uuid4

import nats
import pytest

from mainstay import Engine
from mainstay.errors import PolicyError, UsageError
from mainstay.events import CallSucceeded, decode
from mainstay.sinks.nats import NatsSink
from mainstay.testing import scripted, virtual_time
from tests.crash.forks import lines, run
from tests.servers.nats import start_nats


@pytest.fixture
def make(tmp_path):
    """Makes sinks with a stream of their own, and closes them."""
    made = []

    def sink(url, **options):
        name = f"T{uuid4().hex}"
        options = {"stream": name, "subject": f"{name}.events", **options}
        made.append(NatsSink(url, spill=tmp_path / "spill", **options))
        return made[-1]

    yield sink
    for each in made:
        each.close()


@pytest.fixture
def server(tmp_path):
    """A server of the test's own."""
    started = start_nats(tmp_path)
    yield started
    started.kill()


def event(number):
    return CallSucceeded(operation=f"op-{number}")


def stored(url, sink):
    """Everything in the stream, in order."""

    async def read():
        client = await nats.connect(url)
        stream = client.jetstream()
        info = await stream.stream_info(sink.stream)
        found = [
            (await stream.get_msg(sink.stream, seq=number)).data
            for number in range(1, info.state.last_seq + 1)
        ]
        await client.close()
        return found

    return [decode(data) for data in asyncio.run(read())]


def numbers(url, sink):
    return [int(each.operation[3:]) for each in stored(url, sink)]


def until(condition, seconds=30.0):
    """Waits for something that another thread brings about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def test_every_event_is_a_message_that_is_read_again(nats_url, make):
    """Also while time is virtual; the stream is made where it is not there."""
    heard, sink = [], make(nats_url)
    with virtual_time(), Engine(sinks=[sink, heard.append]) as engine:
        engine.run("api", scripted(ConnectionError("token=hunter2"), "up"))
    assert stored(nats_url, sink) == heard
    assert len(heard) == 3


def test_a_batch_that_is_sent_again_is_stored_once(nats_url, make):
    """Messages have an id; events that are alike are two all the same."""
    sink = make(nats_url)
    batch = [event(1), event(2), event(2), event(3)]
    names = sink._named([event(2).operation.encode()] * 2)
    assert names[0][0] != names[1][0]
    sink._deliver(batch)
    sink._known.clear()  # as another process that takes over, which has not heard the answer
    sink._deliver(batch)
    sink._deliver([event(2)])
    assert numbers(nats_url, sink) == [1, 2, 2, 3, 2]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_nothing_is_lost_or_doubled_through_a_restart(server, make, how):
    """Events of before, during and after are there once, in their order."""
    sink = make(server.url, timeout=2.0)
    for number in range(100):
        sink(event(number))
    assert sink.flush()
    for number in range(100, 300):
        sink(event(number))
    getattr(server, how)()
    for number in range(300, 500):
        sink(event(number))
    until(lambda: sink.stats()["failures"])
    server.start()
    for number in range(500, 600):
        sink(event(number))
    until(lambda: len(stored(server.url, sink)) >= 600)
    assert numbers(server.url, sink) == list(range(600))
    assert sink.stats()["lost"] == 0


@pytest.mark.req("CP-14.publishers")
def test_a_server_that_stands_still_is_waited_for(server, make):
    """Calls go on meanwhile; what it took before it answered is not stored twice."""
    sink = make(server.url, timeout=0.5)
    sink(event(0))
    assert sink.flush()
    server.pause()
    for number in range(1, 50):
        sink(event(number))
    until(lambda: sink.stats()["failures"])
    server.resume()
    until(lambda: len(stored(server.url, sink)) >= 50)
    assert numbers(server.url, sink) == list(range(50))


def test_closing_waits_for_a_delivery_that_is_under_way(server, make):
    """The connection is nobody's to end while it is used."""
    sink = make(server.url, timeout=0.5)
    sink(event(0))
    assert sink.flush()
    server.pause()
    sink(event(1))
    until(sink._turn.locked)
    sink.close()
    assert sink._loop is None or sink._turn.locked()
    server.resume()
    until(lambda: len(stored(server.url, sink)) >= 2)


@pytest.mark.parametrize(
    ("settings", "login"),
    [("{user: ann, password: hunter2}", "ann:hunter2@"), ("{token: s3cr3t}", "s3cr3t@")],
)
def test_credentials_are_given_and_never_shown(tmp_path, make, settings, login, caplog):
    """A password or a token; a wrong one is told of without it."""
    server = start_nats(tmp_path, authorization=settings)
    try:
        url = server.url.replace("nats://", f"nats://{login}")
        sink = make(url)
        sink(event(1))
        assert sink.flush()
        assert numbers(url, sink) == [1]
        assert login[:-1].rpartition(":")[2] not in sink.name
        wrong = make(server.url.replace("nats://", "nats://ann:s3cr3t-too@"), timeout=0.5)
        wrong(event(1))
        until(lambda: "uthorization" in caplog.text)
        assert wrong.stats()["failures"]
        assert "s3cr3t" not in caplog.text
    finally:
        server.kill()


def test_a_password_is_not_given_to_a_server_without_tls(nats_url, make, caplog):
    """Whoever writes tls:// means it."""
    sink = make(nats_url.replace("nats://", "tls://ann:hunter2@"))
    sink(event(1))
    until(lambda: "the server offers no TLS" in caplog.text)
    assert sink.stats()["failures"]


def test_an_idle_connection_is_replaced(nats_url, make, monkeypatch):
    """Nobody answered the server's pings meanwhile."""
    sink = make(nats_url)
    sink._deliver([event(1)])
    first = sink._client
    sink._deliver([event(2)])
    assert sink._client is first
    monkeypatch.setattr(sink, "_used", time.monotonic() - 60.0)
    sink._deliver([event(3)])
    assert sink._client is not first
    assert numbers(nats_url, sink) == [1, 2, 3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_a_connection_of_its_own(nats_url, make):
    """Both sides go on."""
    sink = make(nats_url)
    sink._deliver([event(1)])
    child = os.fork()
    if not child:
        try:
            sink._deliver([event(2)])
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    sink._deliver([event(3)])
    assert numbers(nats_url, sink) == [1, 2, 3]


IN_C_CODE = """
from mainstay import Backoff, RetryPolicy
from mainstay.sinks.nats import NatsSink
name = sys.argv[3]
sink = NatsSink(sys.argv[2], stream=name, subject=f"{name}.events", spill=where, strict=IS_STRICT)
policy = RetryPolicy(name="p", max_attempts=1, retry_on=OSError)
engine = Engine(sinks=[sink], policies=[policy], default="p")

def fail(name):
    try:
        engine.call(name, down)
    except OSError:
        pass

def down():
    raise ConnectionError("down")

def work():
    fail("child")
    engine.close()

for _ in range(3):
    fail("parent")
    assert sink.flush()
    assert reap(in_child(work, fork=fork_in_c)) == 0
    assert reap(in_child(engine.close, fork=fork_in_c)) == 0
fail("parent")
engine.close()
note("lost", sink.stats()["lost"])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("is_strict", [False, True])
def test_events_of_a_child_that_c_code_has_forked_arrive_once(nats_url, tmp_path, is_strict):
    """Through a buffer, a thread and a connection of its own; the parent loses none."""
    name = f"T{uuid4().hex}"
    run(IN_C_CODE.replace("IS_STRICT", str(is_strict)), tmp_path, nats_url, name)
    assert (lines(tmp_path, "errors"), lines(tmp_path, "lost")) == ([], ["0"])

    async def read():
        client = await nats.connect(nats_url)
        stream = client.jetstream()
        last = (await stream.stream_info(name)).state.last_seq
        found = [(await stream.get_msg(name, seq=n)).data for n in range(1, last + 1)]
        await client.close()
        return [decode(each) for each in found]

    given_up = [
        each.operation for each in asyncio.run(read()) if each.event_type != "attempt_failed"
    ]
    assert given_up == ["parent", "child"] * 3 + ["parent"]


def test_wrong_options_are_told_at_once():
    """A URL without a server, a name that is none."""
    for url in ("redis://ann:hunter2@db", "nats://"):
        with pytest.raises(UsageError, match="is no NATS server") as caught:
            NatsSink(url)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(PolicyError) as caught:
        NatsSink("nats://127.0.0.1", stream="", timeout=0)
    assert [problem.field for problem in caught.value.problems] == ["stream", "timeout"]
