"""Circuits and budgets of an engine: by operation, by group, for everything; health and log."""

import json
import logging

import pytest

from mainstay import (
    BreakerSettings,
    CircuitBreaker,
    CircuitOpenError,
    CircuitRegistry,
    CircuitState,
    Engine,
    RateLimit,
    RetryBudget,
    RetryPolicy,
    UsageError,
    retry,
)
from mainstay.runtime.fork import PROCESS
from mainstay.sinks.metrics.gauges import WatchingMeter
from mainstay.testing import record, scripted, virtual_time
from tests.processes import wait_until

ONCE = RetryPolicy(name="once", max_attempts=1)
DOWN = ConnectionError("down")


def engine_of(**fields):
    return Engine(policies=[ONCE], default="once", sinks=[], **fields)


def fail(engine, operation, times=1):
    """Failing calls of an operation; how often the function ran."""
    ran = []

    def down():
        ran.append(operation)
        raise ConnectionError("down")

    for _ in range(times):
        engine.run(operation, down)
    return len(ran)


@pytest.mark.req("UVS-4", "FR-041-62", "AC-025", "AC-026", "AC-027")
def test_a_circuit_opens_after_repeated_failures_and_fails_fast():
    """Failures are counted, the threshold opens it, and the function is not called any more."""
    engine = engine_of(breaker=BreakerSettings(failure_threshold=5))
    assert fail(engine, "tool.fetch", 5) == 5
    assert engine.breaker("tool.fetch").state is CircuitState.OPEN
    assert fail(engine, "tool.fetch", 3) == 0
    assert isinstance(engine.run("tool.fetch", int).last_exception, CircuitOpenError)
    assert fail(engine, "tool.other") == 1, "each operation has its own"


@pytest.mark.req("UVS-5", "FR-041-57", "FR-041-58", "AC-028", "AC-029")
def test_a_circuit_recovers_when_a_probe_succeeds():
    """After the open time one probe is made; it succeeds, and the circuit is closed."""
    engine = engine_of(breaker=BreakerSettings(failure_threshold=1, recovery_timeout=60.0))
    with virtual_time() as time:
        fail(engine, "tool.fetch")
        time.advance(60.0)
        assert engine.breaker("tool.fetch").state is CircuitState.HALF_OPEN
        assert engine.call("tool.fetch", int, "7") == 7
        assert engine.breaker("tool.fetch").state is CircuitState.CLOSED


@pytest.mark.req("FR-041-63", "FR-041-62")
def test_operation_group_and_everything_have_circuits_of_their_own():
    """A failure counts in each circuit that guards the operation, and in no other."""
    group, everything = CircuitBreaker("pay"), CircuitBreaker("all")
    engine = engine_of(
        breaker=BreakerSettings(), breakers={"pay.*": group}, global_breaker=everything
    )
    fail(engine, "pay.card", 2)
    fail(engine, "search")
    counts = {circuit.name: circuit.snapshot().failure_count for circuit in engine.circuits}
    assert counts == {"pay": 2, "all": 3, "pay.card": 2, "search": 1}


@pytest.mark.req("FR-041-63")
def test_the_global_circuit_stops_everything():
    """Whatever fails, once it is open no operation is called; a place taken elsewhere is freed."""
    everything = CircuitBreaker("all", failure_threshold=2)
    own = BreakerSettings(failure_threshold=1, recovery_timeout=1.0)
    engine = engine_of(breaker=own, global_breaker=everything)
    with virtual_time() as time:
        fail(engine, "a")
        fail(engine, "b")
        assert fail(engine, "c") == 0
        time.advance(1.0)
        assert fail(engine, "a") == 0, "its own circuit would have let a probe through"
        assert engine.breaker("a").snapshot().probes == 0


def test_a_circuit_in_a_list_guards_the_operation_of_its_name():
    """The shortest way to write it."""
    engine = engine_of(breakers=[CircuitBreaker("search", failure_threshold=1)])
    fail(engine, "search")
    assert fail(engine, "search") == 0
    assert fail(engine, "other") == 1


@pytest.mark.req("FR-041-64", "AC-031", "NFR-041-30")
def test_health_is_fit_for_an_endpoint():
    """Healthy, or degraded with the circuit that is open, as plain data that JSON can hold."""
    engine = engine_of(breaker=BreakerSettings(failure_threshold=1))
    engine.call("search", int)
    assert engine.health().to_dict()["status"] == "healthy"
    fail(engine, "pay")
    report = json.loads(json.dumps(engine.health().to_dict()))
    assert report["status"] == "degraded"
    assert {each["name"]: each["state"] for each in report["circuits"]} == {
        "search": "closed",
        "pay": "open",
    }
    assert engine.health().is_healthy is False


def test_health_has_the_forks_of_the_process_and_the_files_it_has_lost(
    tmp_path, caplog, monkeypatch
):
    """Neither changes the status, which nothing but a restart would mend; the log has a warning."""
    monkeypatch.setattr(PROCESS, "forks", 0)
    monkeypatch.setattr(PROCESS, "replaced", 0)
    log = f"sqlite:///{tmp_path}/log.db"
    with Engine(f"sqlite:///{tmp_path}/kept.db", sinks=[], audit=log, purge=None) as engine:
        assert engine.health().process == {}
        engine.operation("pay", key="a").call(int)
        assert engine.audit.flush(10.0)
        for each in tmp_path.glob("*.db*"):
            each.unlink()
        assert engine.operation("pay", key="b").call(int) == 0
        wait_until(lambda: engine.health().process.get("files_replaced") == 2, "both files")
        PROCESS.forks += 1
        report = engine.health()
        meter = WatchingMeter(10, 60.0)
        meter.watch(engine)
        assert meter.readings()["mainstay_files_replaced_total"] == {(): 2.0}
    assert report.process == {"forks": 1, "files_replaced": 2}
    assert report.to_dict()["process"] == report.process
    assert report.status == "healthy"
    assert "kept.db: the file was deleted" in caplog.text


@pytest.mark.req("FR-041-64", "NFR-041-30")
def test_one_open_circuit_neither_restarts_a_process_nor_stops_its_traffic():
    """Degraded, and live and ready all the same: the other operations work."""
    engine = engine_of(
        breaker=BreakerSettings(failure_threshold=1),
        global_breaker=CircuitBreaker("all", failure_threshold=100),
    )
    fail(engine, "pay")
    report = engine.health()
    assert (report.status, report.is_live, report.is_ready) == ("degraded", True, True)
    assert {"live": True, "ready": True}.items() <= report.to_dict().items()
    assert "unready" not in report.to_dict()


def test_the_open_circuit_for_everything_makes_a_process_unready_until_it_may_probe():
    """No call can succeed then; a half-open circuit is ready, because it needs a probe to close."""
    everything = CircuitBreaker("all", failure_threshold=1, recovery_timeout=5.0)
    with virtual_time() as time:
        engine = engine_of(global_breaker=everything)
        fail(engine, "pay")
        report = engine.health()
        assert (report.is_live, report.is_ready) == (True, False)
        assert report.to_dict()["unready"] == report.unready
        assert "'all'" in report.unready
        time.advance(6.0)
        assert engine.health().is_ready
        everything.force_open(reason="planned")
        assert not engine.health().is_ready


def test_a_closed_engine_is_neither_live_nor_ready():
    """It takes no more calls, and only a restart changes that."""
    engine = engine_of()
    assert (engine.health().is_live, engine.health().is_ready) == (True, True)
    engine.close()
    assert (engine.health().is_live, engine.health().is_ready) == (False, False)
    assert engine.health().unready == "the engine is closed"


@pytest.mark.req("NFR-041-27")
def test_the_state_is_a_number_for_a_gauge():
    """Closed, half open, open: 0, 1, 2; an operator's orders by what they do with calls."""
    assert {state.name: state.gauge for state in CircuitState} == {
        "CLOSED": 0, "OPEN": 2, "HALF_OPEN": 1, "FORCED_OPEN": 2, "FORCED_CLOSED": 0,
        "DISABLED": 0, "METRICS_ONLY": 0,
    }  # fmt: skip


@pytest.mark.usefixtures("logged")
@pytest.mark.req("FR-041-60", "NFR-041-23", "AC-030")
def test_every_change_of_state_is_logged_at_info(caplog):
    """The log of an engine tells of its circuits, and so does a breaker on its own."""
    caplog.set_level(logging.INFO, logger="mainstay")
    engine = Engine(policies=[ONCE], default="once", breaker=BreakerSettings(failure_threshold=1))
    fail(engine, "pay")
    engine.breaker("pay").reset("by hand")
    CircuitBreaker("alone").force_open()
    lines = [(r.levelname, r.getMessage()) for r in caplog.records if "->" in r.getMessage()]
    assert lines == [
        ("INFO", "pay: circuit closed -> open (1 failure)"),
        ("INFO", "pay: circuit open -> closed (by hand)"),
        ("INFO", "alone: circuit closed -> forced_open (force open)"),
    ]


def test_sinks_hear_of_circuits_and_refusals():
    """One listener gets the failure, the change and the refusal, in the order they happened."""
    heard = []
    engine = Engine(
        policies=[ONCE], default="once", breaker=BreakerSettings(failure_threshold=1),
        sinks=[heard.append],
    )  # fmt: skip
    fail(engine, "pay", 2)
    names = [event.event_type for event in heard]
    assert names == ["circuit_state_changed", "attempt_failed", "retry_exhausted", "call_refused"]
    assert heard[-1].by.endswith("CircuitOpenError")
    assert heard[-1].retry_after_seconds > 0


@pytest.mark.req("AG-01.storm")
def test_a_budget_is_shared_by_all_operations():
    """A retry storm is throttled: past the budget the original error is raised, with a note."""
    policy = RetryPolicy(name="storm", max_attempts=10)
    budget = RetryBudget("all", ratio=0.0001, floor=4)
    engine = Engine(policies=[policy], default="storm", budget=budget, sinks=[])
    with virtual_time():
        ran = fail(engine, "a") + fail(engine, "b", 3)
        result = engine.run("c", scripted(DOWN))
    assert ran == 4 + 4, "four calls and four retries between them"
    assert result.last_exception is DOWN
    assert DOWN.__notes__ == [
        "mainstay: gave up on c after 1 attempt: the retry budget 'all' is spent"
    ]


@pytest.mark.req("AG-01.loop")
def test_an_endless_loop_of_failing_calls_meets_the_breaker():
    """A caller that never stops costs the service five calls and one probe a minute."""
    settings = BreakerSettings(failure_threshold=5, recovery_timeout=60.0)
    engine = engine_of(breaker=settings)
    with virtual_time() as time:
        ran = 0
        for _ in range(600):
            ran += fail(engine, "loop")
            time.advance(1.0)
    assert ran <= 5 + 10


def test_what_is_no_guard_is_refused_when_the_engine_is_built():
    """The error says what would be one."""
    with pytest.raises(UsageError, match="is no guard"):
        Engine(budget=3)
    with pytest.raises(UsageError, match="'payments' is no guard"):
        retry(on=OSError, breaker="payments")
    with pytest.raises(UsageError, match="must be BreakerSettings"):
        Engine(breaker=CircuitBreaker("a"))
    with pytest.raises(UsageError, match="is no CircuitBreaker"):
        Engine(breakers=["payments"])
    with pytest.raises(UsageError, match="two circuits are named 'a'"):
        Engine(breakers={"x": CircuitBreaker("a")}, global_breaker=CircuitBreaker("a"))


def test_a_circuit_nobody_made_is_not_invented():
    """The error names those there are."""
    with pytest.raises(UsageError, match=r"no circuit guards 'pay'. known circuits: all"):
        CircuitRegistry(groups={"search": CircuitBreaker("all")})["pay"]


def test_dynamic_operation_names_do_not_fill_the_memory(monkeypatch):
    """Circuits that are well are forgotten past a limit; an open one is kept."""
    from mainstay.drivers.guards import registry as circuits

    monkeypatch.setattr(circuits, "_MOST", 10)
    registry = CircuitRegistry(each=BreakerSettings(failure_threshold=1))
    (bad,) = registry.of("bad")
    bad.record_failure()
    for number in range(100):
        registry.of(f"user-{number}")
    assert len(registry) <= 10
    assert registry["bad"] is bad


def test_a_flood_of_failing_names_does_not_fill_the_memory(monkeypatch):
    """Past the limit those that were not used for long go, also if they fail."""
    from mainstay.drivers.guards import registry as circuits

    monkeypatch.setattr(circuits, "_MOST", 100)
    registry = CircuitRegistry(each=BreakerSettings(failure_threshold=3))
    for number in range(5000):
        registry.of(f"host-{number}")[0].record_failure()
    assert len(registry) <= 100
    assert registry.of("host-4999")[0].is_failing


def test_a_new_name_does_not_look_at_all_others(monkeypatch):
    """The looks at other circuits are a few for each name, however many there are."""
    from mainstay.drivers.guards import registry as circuits

    looks, worth = [], circuits._worth

    def counted(circuit):
        looks.append(1)
        return worth(circuit)

    monkeypatch.setattr(circuits, "_MOST", 1000)
    monkeypatch.setattr(circuits, "_worth", counted)
    registry = CircuitRegistry(each=BreakerSettings(failure_threshold=3))
    for number in range(5000):
        registry.of(f"host-{number}")[0].record_failure()
    assert len(looks) <= 2 * 5000


@pytest.mark.parametrize("is_forced", [False, True])
def test_circuits_that_refuse_outlast_a_flood_of_names(monkeypatch, is_forced):
    """Of the oldest, those go first with which least is lost."""
    from mainstay.drivers.guards import registry as circuits

    monkeypatch.setattr(circuits, "_MOST", 100)
    registry = CircuitRegistry(each=BreakerSettings(failure_threshold=3))
    (bad,) = registry.of("bad")
    if is_forced:
        bad.force_open()
    for _ in range(3):
        bad.record_failure()
    state = bad.state
    del bad
    for number in range(105):
        registry.of(f"host-{number}")[0].record_failure()
    assert registry.of("bad")[0].state is state


def test_a_function_keeps_its_circuit_while_others_come_and_go(monkeypatch):
    """The registry may forget it; it is found again as long as something is guarded by it."""
    from mainstay.drivers.guards import registry as circuits

    monkeypatch.setattr(circuits, "_MOST", 10)
    registry = CircuitRegistry(each=BreakerSettings(failure_threshold=3))
    (mine,) = registry.of("mine")
    for number in range(100):
        registry.of(f"host-{number}")[0].record_failure()
    assert "mine" not in registry.names
    assert registry["mine"] is mine
    assert "mine" in registry.names
    assert len(registry) <= 10


def test_a_trace_holds_what_the_guards_said():
    """Listening to everything shows the refusal in its place."""
    engine = engine_of(breaker=BreakerSettings(failure_threshold=1))
    with record() as trace:
        fail(engine, "pay", 2)
    assert trace.names == ["attempt_failed", "retry_exhausted", "call_refused"]


def test_a_trace_holds_the_refusal_of_a_decorated_function_too():
    """The shortcut for an open circuit is not taken where somebody listens."""
    breaker = CircuitBreaker("pay")
    breaker.force_open()
    with record() as trace, pytest.raises(CircuitOpenError):
        breaker(len)("abc")
    assert trace.names == ["call_refused"]


def test_explaining_makes_no_circuit():
    """An engine is looked at, not used: nothing is attached, nothing appears in its registry."""
    everything = CircuitBreaker("all")
    engine = Engine(
        operations={"db.*": "standard"}, breaker=BreakerSettings(), global_breaker=everything,
        budget=RetryBudget(ratio=0.1), sinks=[],
    )  # fmt: skip
    explained = engine.explain()
    assert explained.worst == "db.*"
    assert engine.circuits.names == ("all",)
    (_, it) = explained.operations[0]
    assert it.order == ("retry", "breaker", "budget", "function")
    assert it.added_load == pytest.approx(0.1)


def test_an_operation_explains_itself_with_its_guards():
    """The same numbers from the operation, under its own name."""
    engine = Engine(breaker=BreakerSettings(), budget=RetryBudget(ratio=0.3), sinks=[])
    it = engine.operation("search").explain()
    assert (it.subject, it.attempts, it.added_load) == ("search", 3, pytest.approx(0.3))
    assert it.order == ("retry", "breaker", "budget", "function")


def is_bad(result):
    return result == "bad"


def test_an_explanation_has_what_makes_a_first_call_wait_or_a_result_count():
    """Of an engine and of an operation: both guards were named by their layer alone."""
    engine = Engine(
        operations={"search": "standard"},
        breakers={"search": CircuitBreaker("search", failure_if_result=is_bad)},
        guards=[RateLimit("search", first_calls=True, max_wait=4.0)],
        sinks=[],
    )
    for it in (engine.explain().operations[0][1], engine.operation("search").explain()):
        notes = {note.code: note.text for note in it.notes}
        assert "breaker 'search' counts results" in notes["breaker-judges-results"]
        assert "up to 4 s or the deadline" in notes["first-calls-wait"]
