"""The telemetry sink: a record for every attempt, in a file that several processes add to."""

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import jsonschema
import pytest
import trio

from mainstay import BreakerSettings, CallCancelled, Engine, RetryPolicy, UsageError
from mainstay.core.telemetry.record import encode
from mainstay.profiles.pipelines import EnergyModel, TelemetrySink, read_telemetry, schema
from mainstay.sinks.telemetry import records as telemetry_records
from mainstay.testing import scripted, virtual_time

FIELDS = ("pipeline_id", "stage_name", "attempt", "delay_ms", "error_class", "retryable",
          "outcome", "circuit_open")  # fmt: skip
MODEL = EnergyModel(watts=36.0, waiting_share=0.5, pue=1.0, grid_g_per_kwh=500.0)


class Unavailable(Exception):
    """What an HTTP client raises."""

    status_code = 503


class Cpu:
    """A CPU clock that is moved by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def path(tmp_path):
    return tmp_path / "releases" / "focus-telemetry.json"


@pytest.fixture
def sink(path):
    """A sink whose thread writes once in an hour, and whose CPU clock stands still."""
    return TelemetrySink(path, pipeline_id="etl_v10", model=MODEL, every=3600.0, cpu=Cpu())


@pytest.fixture
def engine(sink):
    with Engine(sinks=[sink], seed=1) as engine, virtual_time():
        yield engine


def validate(path):
    """The file is what its schema says, and so is each record by itself."""
    told = json.loads(path.read_bytes())
    rules = schema("pipelines-retries-rules-v1.json")
    jsonschema.Draft202012Validator.check_schema(rules)
    jsonschema.Draft202012Validator(rules).validate(told)
    for record in told["records"]:
        part = {**rules, "$ref": "#/$defs/TelemetryRecord"}
        jsonschema.Draft202012Validator(part).validate(record)
        assert record["energy_model"] in told["energy_models"]
    return told


def records_of(sink):
    assert sink.flush()
    validate(sink.path)
    return read_telemetry(sink.path).records


def told_of(sink):
    return [tuple(getattr(each, name) for name in FIELDS[2:]) for each in records_of(sink)]


@pytest.mark.req("PL-10")
def test_every_attempt_of_a_sequence_is_recorded(engine, sink):
    """Two failures and a success: all fields of the document, in a file that its schema accepts."""
    engine.call("poll", scripted(Unavailable, ConnectionError, "page"))
    first, second = engine.policies.default.delays(seed=1)
    records = records_of(sink)
    assert {(each.pipeline_id, each.stage_name) for each in records} == {("etl_v10", "poll")}
    assert told_of(sink) == [
        (1, first * 1000, "HTTP_503", True, "failure", False),
        (2, second * 1000, "ConnectionError", True, "failure", False),
        (3, 0.0, None, False, "success", False),
    ]
    assert [each.is_final for each in records] == [False, False, True]
    assert len({each.sequence for each in records}) == 1
    assert all(each.timestamp for each in records)


@pytest.mark.req("PL-10")
def test_a_status_names_the_error_whatever_rule_decided(engine, sink):
    """Also where the policy retries by class, and a class that has none is called by its name."""
    policy = RetryPolicy(retry_on=Exception)
    engine.operation("poll", policy=policy).call(scripted(Unavailable, KeyError, "page"))
    assert [each[2] for each in told_of(sink)] == ["HTTP_503", "KeyError", None]


@pytest.mark.req("PL-10")
def test_the_ends_of_failed_calls_are_recorded(engine, sink):
    """Given up after retries, final at once, refused, cancelled."""
    engine.run("poll", scripted(*[TimeoutError] * 3))
    engine.run("parse", scripted(ValueError))
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(CallCancelled):
        engine.operation("wait", cancel=cancel).call(scripted(ConnectionError, "page"))
    found = [(each[0], each[2], each[3], each[4]) for each in told_of(sink)]
    assert found == [
        (1, "TimeoutError", True, "failure"),
        (2, "TimeoutError", True, "failure"),
        (3, "TimeoutError", True, "failure"),
        (1, "ValueError", False, "failure"),
        (1, "ConnectionError", True, "failure"),
        (1, "CallCancelled", False, "failure"),
    ]
    totals = {each.stage_name: each for each in read_telemetry(sink.path).totals}
    assert (totals["poll"].failures, totals["poll"].attempts, totals["poll"].retried) == (1, 3, 1)
    assert (totals["wait"].failures, totals["wait"].attempts) == (1, 1)


@pytest.mark.req("PL-10")
def test_a_result_that_is_not_accepted_is_a_failed_attempt(engine, sink):
    """There is no exception to name."""
    policy = RetryPolicy(retry_if_result=lambda value: value is None)
    engine.operation("poll", policy=policy).call(scripted(None, "page"))
    assert [each[2] for each in told_of(sink)] == ["ResultNotAccepted", None]


@pytest.mark.req("PL-10")
def test_an_open_circuit_shows(sink):
    """In the attempt that opened it, in the call that it ended, and in each that it refused."""
    settings = BreakerSettings(failure_threshold=2, recovery_timeout=60.0)
    with virtual_time() as moment, Engine(sinks=[sink], breaker=settings) as engine:
        engine.run("poll", scripted(*[ConnectionError] * 3))
        engine.run("poll", scripted("page"))
        assert [(each[0], each[2], each[5]) for each in told_of(sink)] == [
            (1, "ConnectionError", False),
            (2, "ConnectionError", True),
            (0, "CircuitOpenError", True),
        ]
        moment.advance(61.0)
        engine.run("poll", scripted("page"))
    assert told_of(sink)[-1] == (1, 0.0, None, False, "success", False)


@pytest.mark.req("PL-10")
def test_energy_is_of_retries_and_waits_by_the_stated_model(path):
    """Of a first attempt nothing; of the others the thread's CPU time, and a share of the wait."""
    cpu = Cpu()
    sink = TelemetrySink(path, pipeline_id="etl", model=MODEL, every=3600.0, cpu=cpu)
    left = [ConnectionError, ConnectionError, "page"]

    def work():
        cpu.now += 100.0
        outcome = left.pop(0)
        if outcome is ConnectionError:
            raise outcome
        return outcome

    with virtual_time(), Engine(sinks=[sink]) as engine:
        engine.call("poll", work)
    told = validate(path)
    first, second, third = told["records"]
    assert (first["cpu_seconds"], first["energy_wh"], first["co2_g"]) == (0.0, 0.0, 0.0)
    for before, each in ((first, second), (second, third)):
        assert each["cpu_seconds"] == 100.0
        assert each["waiting_seconds"] == pytest.approx(before["delay_ms"] / 1000)
        energy = (100.0 + each["waiting_seconds"] * 0.5) * 36.0 / 3600
        assert each["energy_wh"] == pytest.approx(energy)
        assert each["co2_g"] == pytest.approx(energy / 1000 * 500)
    (statement,) = told["energy_models"].values()
    assert statement["parameters"] == {
        "watts": 36.0, "waiting_share": 0.5, "pue": 1.0, "grid_g_per_kwh": 500.0,
    }  # fmt: skip
    assert statement["method"]
    assert statement["scope"]
    (total,) = told["totals"]
    assert total["energy_wh"] == pytest.approx(second["energy_wh"] + third["energy_wh"])


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_in_an_event_loop_what_others_use_while_a_call_waits_is_not_its_own(path, loop):
    """Of the thread's time it has the part of its attempts, by the clock."""
    cpu = Cpu()
    sink = TelemetrySink(path, pipeline_id="etl", every=3600.0, cpu=cpu)
    sleep = asyncio.sleep if loop == "asyncio" else trio.sleep

    async def work():
        await sleep(0.1)
        if cpu.now == 0.0:
            cpu.now = 8.0
            raise ConnectionError
        cpu.now = 16.0
        return "page"

    with virtual_time() as moment, Engine(sinks=[sink], seed=1) as engine:
        if loop == "asyncio":
            asyncio.run(engine.acall("poll", work))
        else:
            trio.run(engine.acall, "poll", work, clock=moment.trio_clock())
    first, last = read_telemetry(path).records
    wait = first.delay_ms / 1000
    assert last.cpu_seconds == pytest.approx(8.0 * 0.1 / (wait + 0.1))


@pytest.mark.req("PL-10")
def test_calls_at_once_in_a_loop_do_not_count_the_thread_twice(path):
    """A hundred retried calls together have at most what the thread used."""
    sink = TelemetrySink(path, pipeline_id="etl", every=3600.0)
    started = time.thread_time()

    async def main(engine):
        async def work(n, left):
            sum(range(2000))
            if left:
                left.pop()
                raise ConnectionError(n)

        calls = [engine.acall("poll", work, n, [1, 2]) for n in range(100)]
        await asyncio.gather(*calls)

    with virtual_time(), Engine(sinks=[sink]) as engine:
        asyncio.run(main(engine))
    (total,) = read_telemetry(path).totals
    assert total.sequences == total.retried == 100
    assert 0.0 < total.cpu_seconds <= time.thread_time() - started


def test_calls_that_succeed_at_once_are_counted_unless_not_wanted(path, engine, sink):
    """Also where another sink wants to hear of them."""
    engine.call("poll", int)
    assert told_of(sink) == [(1, 0.0, None, False, "success", False)]
    other = TelemetrySink(path.with_name("b"), pipeline_id="etl", hears_successes=False,
                          every=3600.0)  # fmt: skip
    with Engine(sinks=[other, lambda event: None]) as both, virtual_time():
        both.call("poll", int)
        both.call("poll", scripted(ConnectionError, 1))
    assert [each.attempt for each in read_telemetry(other.path).records] == [1, 2]
    assert other.wants.successes is False


def test_a_call_that_never_ends_is_not_remembered_for_ever(path, monkeypatch):
    """The oldest is given up; what comes of it later is recorded as far as it is known."""
    monkeypatch.setattr(telemetry_records, "_MOST", 3)
    cpu = Cpu()
    recorder = telemetry_records.Recorder("etl", cpu)

    def event(cls, call, **fields):
        return recorder.record_of(cls(operation="poll", call_id=call, **fields))

    for n in range(5):
        event(telemetry_records.AttemptFailed, f"c{n}", attempt_number=1)
    assert len(recorder._sequences) == 3
    assert event(telemetry_records.RetryAttempt, "c0", attempt_number=1) is None
    late = event(telemetry_records.RetryExhausted, "c0", total_attempts=2,
                 final_exception_type="ConnectionError")  # fmt: skip
    assert (late.attempt, late.error_class, late.cpu_seconds) == (2, "ConnectionError", 0.0)
    for n in range(5):
        recorder.record_of(telemetry_records.CircuitStateChanged(operation=f"{n}", to_state="open"))
    assert list(recorder._open_circuits) == ["0", "1", "2"]


def test_memory_and_file_are_bounded(path):
    """Ten thousand calls: the totals hold them all, the file the latest records."""
    sink = TelemetrySink(path, pipeline_id="etl", keep=20, every=3600.0)
    with Engine(sinks=[sink]) as engine:
        for n in range(10_000):
            engine.call("poll", int, n)
        assert len(sink._waiting) < 300
        assert len(sink._sum.records) <= 20
    told = validate(path)
    assert (told["totals"][0]["sequences"], len(told["records"])) == (10_000, 20)
    assert told["records_left_out"] == 9_980


def test_the_file_is_written_in_the_background(path):
    """Within the interval, without a flush; the thread ends when there is nothing new."""
    sink = TelemetrySink(path, pipeline_id="etl", every=0.02)
    engine = Engine(sinks=[sink])
    for n in (1, 2):
        engine.call("poll", int)
        end = time.monotonic() + 20
        while time.monotonic() < end and (sink._thread or not path.exists()):
            time.sleep(0.01)
        assert read_telemetry(path).totals[0].sequences == n


def test_a_file_that_cannot_be_written_costs_no_call_and_no_total(tmp_path, caplog):
    """It is said once, and once that it is over; what was counted meanwhile is there then."""
    caplog.set_level(logging.INFO, logger="mainstay")
    folder = tmp_path / "taken"
    folder.write_text("a file where a folder should be")
    sink = TelemetrySink(folder / "t.json", pipeline_id="etl", every=3600.0)
    engine = Engine(sinks=[sink])
    for _ in range(3):
        engine.call("poll", int)
        assert sink.flush() is False
    folder.unlink()
    assert sink.flush() is True
    assert read_telemetry(sink.path).totals[0].sequences == 3
    said = [record.getMessage() for record in caplog.records if "telemetry" in record.getMessage()]
    assert len(said) == 2
    assert said[0].startswith("telemetry is kept in memory for now")
    assert said[1].startswith("telemetry is written again")


@pytest.mark.parametrize("text", ["not json", '{"version": 2}', "[]", ""])
def test_a_file_of_another_sort_is_not_overwritten(path, sink, text, caplog):
    """It may be somebody's."""
    path.parent.mkdir()
    path.write_text(text)
    Engine(sinks=[sink]).call("poll", int)
    assert sink.flush() is False
    assert path.read_text() == text
    with pytest.raises(UsageError, match="no telemetry that this version reads"):
        read_telemetry(path)
    path.unlink()
    assert sink.flush() is True


def test_options_that_cannot_be_are_refused(path):
    """All at once."""
    with pytest.raises(ValueError, match=r"pipeline_id[\s\S]*keep[\s\S]*every"):
        TelemetrySink(path, pipeline_id="", keep=-1, every=0)


# --- several processes ----------------------------------------------------------------------------

WORKER = """
import sys
from mainstay import Engine, RetryPolicy, Backoff
from mainstay.sinks.telemetry.sink import TelemetrySink
path, calls = sys.argv[1], int(sys.argv[2])
sink = TelemetrySink(path, pipeline_id="etl", every=0.01, keep=50)
policy = RetryPolicy(name="p", backoff=Backoff.constant(0))
engine = Engine(sinks=[sink], policies=[policy], default="p")
left = []
def work():
    if left:
        raise left.pop()
for number in range(calls):
    left.append(ConnectionError())
    engine.call("poll", work)
    if number % 25 == 24:
        assert sink.flush()
        print(number + 1, flush=True)
"""


def start(path, calls):
    command = [sys.executable, "-c", WORKER, str(path), str(calls)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.req("PL-10")
def test_processes_add_to_one_file(path):
    """Nothing of anybody's is lost or counted twice; the end of a process writes the rest."""
    processes = [start(path, 110) for _ in range(4)]
    for process in processes:
        process.communicate(timeout=100)
        assert process.returncode == 0
    (total,) = validate(path)["totals"]
    assert (total["sequences"], total["retried"], total["attempts"]) == (440, 440, 880)
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, f"{path.name}.lock"]


@pytest.mark.req("PL-10")
def test_a_kill_leaves_the_last_whole_file(path):
    """What a process was told is written is there; the others go on, and the schema holds."""
    processes = [start(path, 100_000) for _ in range(3)]
    try:
        written = [0] * 3
        for _ in range(6):
            written = [int(process.stdout.readline()) for process in processes]
        for process in processes[:2]:
            process.send_signal(signal.SIGKILL)
            process.wait(60)
        before = validate(path)["totals"][0]["sequences"]
        assert before >= sum(written)
        for _ in range(3):
            written[2] = int(processes[2].stdout.readline())
        assert validate(path)["totals"][0]["sequences"] >= sum(written)
    finally:
        for process in processes:
            process.kill()
            process.wait(60)
            process.stdout.close()
    validate(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_write_what_its_parent_heard(path):
    """It begins empty, with locks of its own."""
    sink = TelemetrySink(path, pipeline_id="etl", every=3600.0)
    engine = Engine(sinks=[sink])
    engine.call("poll", int)

    def child():
        engine.call("poll", int)
        assert sink.flush()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert read_telemetry(path).totals[0].sequences == 1
    assert sink.flush()
    assert read_telemetry(path).totals[0].sequences == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_end_of_a_child_of_multiprocessing_writes_what_is_new(path):
    """Such a child runs no atexit handlers; its records reach the file all the same."""
    engine = Engine(sinks=[TelemetrySink(path, pipeline_id="etl", every=3600.0)])
    process = multiprocessing.get_context("fork").Process(target=engine.call, args=("poll", int))
    process.start()
    process.join(30)
    assert process.exitcode == 0
    assert read_telemetry(path).totals[0].sequences == 1


def test_a_draft_left_by_a_kill_is_no_obstacle(path, sink):
    """It is overwritten; a half-written file never has the file's name."""
    path.parent.mkdir()
    path.with_name(f"{path.name}.new").write_bytes(b'{"half')
    Engine(sinks=[sink]).call("poll", int)
    assert sink.flush()
    assert encode(read_telemetry(path)) == path.read_bytes()
