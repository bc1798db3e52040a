"""Events as Prometheus metrics: names, labels and numbers, and what never becomes a label."""

import gc
import json
import os
import subprocess
import sys
import threading

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

import mainstay
from mainstay import (
    Backoff,
    BreakerSettings,
    CircuitBreaker,
    CircuitOpenError,
    Engine,
    Fallback,
    RetryBudget,
    RetryPolicy,
    TokenBudget,
    UsageError,
    events,
)
from mainstay.core.circuit.breaker import CircuitState
from mainstay.core.known.kind import Kind
from mainstay.sinks.metrics.catalogue import METRICS
from mainstay.sinks.metrics.meter import RULES
from mainstay.sinks.prometheus import PrometheusSink
from mainstay.testing import scripted, virtual_time

DOCUMENT = {
    "effect_retry_total": ("counter", ("effect_type", "attempt", "outcome")),
    "effect_retry_delay_seconds": ("histogram", ("effect_type",)),
    "effect_compensation_total": ("counter", ("effect_type", "outcome")),
    "effect_partial_failure_total": ("counter", ("effect_type",)),
}
"""The table of the effects document."""

POLICY = RetryPolicy(name="quick", retry_on=OSError, backoff=Backoff.constant(2.0))


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def sink(registry):
    return PrometheusSink(registry)


def value(registry, name, **labels):
    return registry.get_sample_value(name, labels)


def samples(registry):
    """Every sample but the moments at which a metric was made."""
    return [
        (sample.name, sample.labels, sample.value)
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]


def engine_with(sink, **options):
    return Engine(policies=[POLICY], default="quick", sinks=[sink], **options)


# --- what is counted ------------------------------------------------------------------------------


@pytest.mark.req("EF-12")
@pytest.mark.parametrize("name", DOCUMENT)
def test_the_metrics_of_the_effects_document_are_there_with_their_labels(name, sink):
    """The four of its table: the same names, types and labels."""
    kind, labels = DOCUMENT[name]
    made = sink._metrics[name]
    assert (made._type, made._labelnames) == (kind, labels)
    assert sink.named(METRICS[name]) == name


@pytest.mark.req("EF-12", "NFR-041-25")
def test_retries_are_counted_by_attempt_and_outcome(sink, registry):
    """Attempt 2 is the first retry; its delay goes into the histogram."""
    with virtual_time(), engine_with(sink) as engine:
        engine.call("db", scripted(OSError("1"), OSError("2"), "ok"))
        engine.run("db", scripted(OSError("1"), OSError("2"), OSError("3")))
    retries = "effect_retry_total"
    assert value(registry, retries, effect_type="db", attempt="2", outcome="failure") == 2.0
    assert value(registry, retries, effect_type="db", attempt="3", outcome="success") == 1.0
    assert value(registry, retries, effect_type="db", attempt="3", outcome="failure") == 1.0
    assert value(registry, retries, effect_type="db", attempt="1", outcome="failure") is None
    assert value(registry, "effect_retry_delay_seconds_count", effect_type="db") == 4.0
    assert value(registry, "effect_retry_delay_seconds_sum", effect_type="db") > 6.0
    labels = {"operation": "db", "category": "", "kind": "transient"}
    assert value(registry, "mainstay_retries_total", **labels) == 4.0
    failed = {"operation": "db", "kind": "transient"}
    assert value(registry, "mainstay_failed_attempts_total", **failed) == 5.0


@pytest.mark.req("EF-12")
def test_compensations_and_partial_failures_are_counted_by_whoever_runs_them(sink, registry):
    """Sagas do it by their events, any other program by itself."""
    sink.compensated("vault")
    sink.compensated("vault", "failure")
    sink.partially_failed("kafka")
    done = {"effect_type": "vault", "outcome": "success"}
    assert value(registry, "effect_compensation_total", **done) == 1.0
    undone = {"effect_type": "vault", "outcome": "failure"}
    assert value(registry, "effect_compensation_total", **undone) == 1.0
    assert value(registry, "effect_partial_failure_total", effect_type="kafka") == 1.0


def test_calls_are_counted_by_how_they_ended(sink, registry):
    """Succeeded, failed for good, exhausted, refused, cancelled."""
    breaker = CircuitBreaker("shut")
    breaker.force_open()

    def interrupted():
        raise KeyboardInterrupt

    with virtual_time(), engine_with(sink, breakers={"pay": breaker}) as engine:
        engine.call("db", int, "1")
        engine.run("db", scripted(ValueError("no")))
        engine.run("db", scripted(*[OSError("down")] * 3))
        with pytest.raises(CircuitOpenError):
            engine.call("pay", int, "1")
        with pytest.raises(KeyboardInterrupt):
            engine.call("db", interrupted)
    calls = {
        (labels["operation"], labels["outcome"]): number
        for name, labels, number in samples(registry)
        if name == "mainstay_calls_total"
    }
    assert calls == {
        ("db", "success"): 1.0, ("db", "failed"): 1.0, ("db", "exhausted"): 1.0,
        ("db", "cancelled"): 1.0, ("pay", "refused"): 1.0,
    }  # fmt: skip


@pytest.mark.req("NFR-041-26")
def test_the_success_rate_is_taken_over_a_window(registry):
    """What is older than the window is forgotten, and without calls there is no rate."""
    sink = PrometheusSink(registry, window=60.0)
    with virtual_time(1000.0) as time, engine_with(sink) as engine:
        for outcome in ("1", "2", "x", "4"):
            engine.run("parse", int, outcome)
        assert value(registry, "mainstay_success_ratio", operation="parse") == 0.75
        time.advance(59.0)
        engine.run("parse", int, "x")
        time.advance(6.0)
        assert value(registry, "mainstay_success_ratio", operation="parse") == 0.0
        time.advance(60.0)
        assert value(registry, "mainstay_success_ratio", operation="parse") is None


@pytest.mark.req("NFR-041-27")
def test_the_state_of_a_circuit_is_a_gauge(sink, registry):
    """0 closed, 2 open, 1 half open; read when Prometheus asks."""
    settings = BreakerSettings(failure_threshold=1, recovery_timeout=30.0)
    policy = RetryPolicy(name="once", retry_on=OSError, max_attempts=1)
    with (
        virtual_time() as time,
        Engine(policies=[policy], default="once", breaker=settings, sinks=[sink]) as engine,
    ):
        sink.watch(engine)
        labels = {"engine": "main", "circuit": "pay"}
        engine.call("pay", int, "1")
        assert value(registry, "mainstay_circuit_state", **labels) == 0.0
        engine.run("pay", scripted(OSError("down")))
        assert value(registry, "mainstay_circuit_state", **labels) == 2.0
        engine.run("pay", int, "1")
        assert value(registry, "mainstay_circuit_refused_total", **labels) == 1.0
        time.advance(31.0)
        assert value(registry, "mainstay_circuit_state", **labels) == 1.0
    opened = {"circuit": "pay", "state": "open"}
    assert value(registry, "mainstay_circuit_changes_total", **opened) == 1.0


def test_what_the_store_answered_to_shared_circuits_is_counted(registry, sink, tmp_path):
    """Permits of probes and openings, by their result; none without sharing."""
    settings = BreakerSettings(failure_threshold=1)
    url = f"sqlite:///{tmp_path}/shared.db"
    with Engine(url, breaker=settings, sinks=[sink], audit=False) as engine:
        sink.watch(engine)
        engine.run("pay", scripted(OSError("down")))
        engine.close()
        found = {
            result: value(registry, "mainstay_circuit_shared_total", engine="main", result=result)
            for result in ("granted", "denied", "alone", "stored", "late")
        }
    assert (found["granted"], found["denied"], found["alone"]) == (0.0, 0.0, 0.0)
    assert found["stored"] + found["late"] == 1.0


def test_what_a_budget_has_left_is_read(sink, registry):
    """Retries of a share, or tokens; and calls that were given up for it are counted."""
    budgets = [RetryBudget("share", floor=2, ratio=0.0), TokenBudget("tokens", capacity=100)]
    with virtual_time(), engine_with(sink, guards=budgets) as engine:
        sink.watch(engine, "shop")
        for _ in range(2):
            engine.run("db", scripted(*[OSError("down")] * 3))
        share, tokens = ({"engine": "shop", "budget": name} for name in ("share", "tokens"))
        assert value(registry, "mainstay_budget_left", **share) == 0.0
        assert value(registry, "mainstay_budget_limit", **share) == 2.0
        assert value(registry, "mainstay_budget_left", **tokens) == 90.0
        assert value(registry, "mainstay_budget_limit", **tokens) == 100.0
    assert value(registry, "mainstay_budget_denied_total", operation="db") == 1.0
    ended = {"operation": "db", "outcome": "exhausted"}
    assert value(registry, "mainstay_calls_total", **ended) == 2.0


def test_a_spent_token_budget_counts_as_denied(sink, registry):
    """Both sorts of budget say so, and both are understood."""
    budget = TokenBudget("few", capacity=10, cost=10)
    with virtual_time(), engine_with(sink, budget=budget) as engine:
        engine.run("db", scripted(OSError("1"), OSError("2")))
    assert value(registry, "mainstay_budget_denied_total", operation="db") == 1.0


def test_what_becomes_of_keyed_calls_is_read(sink, registry):
    """Hits, records, conflicts, lost leases and outcomes nobody knows."""
    with Engine(sinks=[sink]) as engine:
        sink.watch(engine)
        for _ in range(3):
            engine.operation("charge", key="order-7").call(int, "5")
        found = {
            result: value(registry, "mainstay_idempotency_total", engine="main", result=result)
            for result in ("hit", "record", "conflict", "lost", "unknown", "not_kept")
        }
    assert found == {
        "hit": 2.0, "record": 1.0, "conflict": 0.0, "lost": 0.0, "unknown": 0.0, "not_kept": 0.0,
    }  # fmt: skip
    steps = {"store": "memory", "step": "transact", "outcome": "ok"}
    assert value(registry, "mainstay_store_seconds_count", **steps) >= 2.0


def test_losses_of_a_buffered_sink_are_read(registry):
    """Whatever sink of the engine has stats(), or a buffer that has."""

    class Buffered:
        def __call__(self, event):
            pass

        def stats(self):
            return {"waiting": 3, "delivered": 5, "spilled": 2, "lost": 1, "taken": 11}

    class Behind(Buffered):
        stats = None
        buffer = Buffered()

    sink = PrometheusSink(registry)
    with Engine(sinks=[sink, Buffered(), Behind()]) as engine:
        sink.watch(engine)
        for name in ("Buffered", "Behind"):
            labels = {"engine": "main", "sink": name}
            assert value(registry, "mainstay_sink_queued", **labels) == 3.0
            assert value(registry, "mainstay_sink_delivered_total", **labels) == 5.0
            assert value(registry, "mainstay_sink_spilled_total", **labels) == 2.0
            assert value(registry, "mainstay_sink_lost_total", **labels) == 1.0


def test_the_audit_log_of_an_engine_is_watched_too(sink, registry, tmp_path):
    """What it has delivered, and that it has lost nothing."""
    with Engine(f"sqlite:///{tmp_path}/a.db", sinks=[sink]) as engine:
        sink.watch(engine)
        engine.run("parse", int, "x")
        assert engine.audit.flush()
        labels = {"engine": "main", "sink": "AuditLog"}
        assert value(registry, "mainstay_sink_delivered_total", **labels) >= 1.0
        assert value(registry, "mainstay_sink_lost_total", **labels) == 0.0


def test_the_age_of_the_outbox_is_exported_only_where_there_is_one(sink, registry):
    """An engine without an outbox has no such series, and an empty outbox neither."""
    ages = [7.5, None]
    with Engine(sinks=[]) as plain, Engine(sinks=[]) as other:
        sink.watch(plain, "plain")
        sink.watch(other, "other", outbox_age=lambda: ages.pop(0))
        found = [each for each in samples(registry) if "outbox" in each[0]]
        assert found == [("mainstay_outbox_age_seconds", {"engine": "other"}, 7.5)]
        assert not [each for each in samples(registry) if "outbox" in each[0]]


def test_hedges_fallbacks_and_broken_hooks_are_counted(sink, registry):
    """By the operation they belong to."""

    @Fallback(value=0, listener=sink)
    def broken():
        raise OSError("down")

    assert broken() == 0
    sink(events.AttemptHedged(operation="fetch"))
    sink(events.HookFailed(operation="fetch"))
    assert sum(v for n, _, v in samples(registry) if n == "mainstay_fallbacks_total") == 1.0
    assert value(registry, "mainstay_hedges_total", operation="fetch") == 1.0
    assert value(registry, "mainstay_hook_failures_total", operation="fetch") == 1.0


# --- what never becomes a label -------------------------------------------------------------------

SECRET = "id-4711-"


def planted(**fields):
    """Every event, with an id wherever an id, a key or a text can be."""
    for cls in events.CATALOGUE.values():
        values = {
            name: f"{SECRET}{name}"
            for name, value in cls().to_dict().items()
            if (isinstance(value, str) or value is None) and name not in ("event_type", "operation")
        }
        values = {n: v for n, v in values.items() if not n.endswith(("_seconds", "_level"))}
        for name in ("retry_category", "alert"):  # named by a program, and counted: see below
            values.pop(name, None)
        yield cls(**{**values, "operation": "fetch", **fields})


@pytest.mark.req("AG-02.redacted-metrics")
def test_no_id_key_tenant_or_text_becomes_a_label(sink, registry):
    """Ids in every field of every event; none is in a label of any metric."""
    for event in planted():
        sink(event)
    who = mainstay.context(tenant_id=SECRET, correlation_id=SECRET, trace_id=SECRET)
    with who, virtual_time(), engine_with(sink) as engine:
        sink.watch(engine)
        engine.call("fetch", scripted(OSError(SECRET), "ok"))
        engine.run("fetch", scripted(ValueError(SECRET)))
        engine.operation("charge", key=SECRET).call(int, "5")
        scraped = generate_latest(registry).decode()
    assert SECRET not in scraped
    assert "mainstay_calls_total" in scraped


FIXED = {
    "kind": {kind.value for kind in Kind},
    "state": {state.value for state in CircuitState} | {"other", "fired", "cleared"},
    "attempt": {*map(str, range(1, 11)), "10+"},
    "outcome": {
        "success", "failure", "failed", "exhausted", "refused", "cancelled", "ok", "error",
    },
    "step": {"transact", "read", "scan", "purge"},
    "store": {"memory"},
    "result": {"hit", "record", "conflict", "lost", "unknown"}
    | {"retry", "dead", "replayed", "discarded"},
}  # fmt: skip


def test_the_values_of_every_label_are_few(registry, caplog):
    """A thousand operations, attempts and categories: so many labels, then "other", said once."""
    sink = PrometheusSink(registry, max_names=5)
    for number in range(1000):
        for event in planted(operation=f"order-{number}", retry_category=f"category-{number}"):
            sink(event)
        sink(events.AttemptFailed(operation="a", attempt_number=number, kind=SECRET))
        sink.compensated(f"effect-{number}", f"outcome-{number % 2}")
    seen = {}
    for _, labels, _ in samples(registry):
        for label, found in labels.items():
            seen.setdefault(label, set()).add(found)
    for label, found in seen.items():
        chosen = found - FIXED.get(label, set()) - {"other", ""}
        if label in FIXED and label != "outcome":
            assert chosen == set(), label
        elif label != "le":
            assert len(chosen) <= 5, label
    told = [record.message for record in caplog.records if "further ones" in record.message]
    assert len([text for text in told if "'operation'" in text]) == 1
    assert value(registry, "mainstay_calls_total", operation="other", outcome="refused") == 998.0


def test_circuits_past_the_limit_are_one_with_the_worst_state(registry):
    """No two samples with the same labels: Prometheus would refuse them all."""
    sink = PrometheusSink(registry, max_names=1)
    breakers = {f"op-{n}": CircuitBreaker(f"circuit-{n}") for n in range(4)}
    breakers["op-2"].force_open()
    with Engine(breakers=breakers, sinks=[]) as engine:
        sink.watch(engine)
        found = [each for each in samples(registry) if each[0] == "mainstay_circuit_state"]
    assert found == [
        ("mainstay_circuit_state", {"engine": "main", "circuit": "circuit-0"}, 0.0),
        ("mainstay_circuit_state", {"engine": "main", "circuit": "other"}, 2.0),
    ]


# --- standing in the registry ---------------------------------------------------------------------


def test_every_metric_of_the_catalogue_can_be_exported(sink, registry):
    """And nothing is exported that the catalogue does not know."""
    described = {family.name for family in sink._collector.describe()}
    made = {metric._name for metric in sink._metrics.values()}
    names = {metric.name.removesuffix("_total") for metric in METRICS.values()}
    assert described | made == names


def test_every_event_is_counted_or_left_out_on_purpose():
    """A new event is thought of here."""
    left_out = {
        events.Idempotency,  # read from the records, which know conflicts and losses too
        events.LeaseExpired,  # the same
        events.PlanDeclared,  # says nothing of any call
        events.RecordsLost,  # read from the sink, which counts them as they are lost
        events.CallsCounted,  # for those who do not hear of each success, as metrics do
        events.InboxRaised,  # people's matters are few, and told by their own ways
        events.InboxDecided,
        events.InboxClosed,
        events.OutboxPurged,  # the operator who purges sees the number
        events.CircuitCall,  # calls are counted already, and circuits show their state
        events.CircuitOrdered,
        events.OperatorAdded,
        events.OperatorChanged,
        events.OperatorRefused,
        events.PipelineRunHalted,  # `mainstay pipelines list` counts them; stages are operations
        events.PipelineRunResumed,
        events.PipelineRunEnded,
        events.GovernanceEscalated,  # it is an item of the inbox
        events.SagaEnded,  # `mainstay sagas list` counts them, and steps are operations
        events.SagaRecovered,
        events.SagaStuck,  # an inbox item
    }
    assert set(RULES) == set(events.CATALOGUE.values()) - left_out


def test_a_prefix_renames_all_but_the_four_of_the_document(registry):
    """Two sinks of one program need two prefixes, and two registries for those four."""
    sink = PrometheusSink(registry, prefix="shop")
    sink(events.CallSucceeded(operation="a", total_attempts=2))
    names = {name for name, _, _ in samples(registry)}
    assert names == {"shop_calls_total", "shop_success_ratio", "effect_retry_total"}


def test_a_second_sink_on_the_same_registry_is_refused_and_leaves_no_trace(sink, registry):
    """It says what to do instead, and the first goes on."""
    with pytest.raises(UsageError, match="one sink serves every engine"):
        PrometheusSink(registry)
    sink(events.CallSucceeded(operation="a", total_attempts=1))
    assert value(registry, "mainstay_calls_total", operation="a", outcome="success") == 1.0


def test_a_metric_of_somebody_elses_with_such_a_name_undoes_the_whole(registry):
    """A sink is registered as a whole or not at all."""
    mine = Counter("mainstay_hedges_total", "mine", registry=registry)
    with pytest.raises(UsageError, match="mainstay_hedges"):
        PrometheusSink(registry)
    assert [family.name for family in registry.collect()] == [mine._name]


def test_two_engines_have_two_names(sink):
    """One name for two engines would give two samples with the same labels."""
    with Engine(sinks=[]) as first, Engine(sinks=[]) as second:
        sink.watch(first)
        sink.watch(first)
        with pytest.raises(UsageError, match="another engine is watched as 'main'"):
            sink.watch(second)
        sink.watch(second, "second")


def test_an_engine_that_is_gone_is_watched_no_more(sink, registry):
    """The sink keeps no engine alive, and its name is free again."""
    engine = Engine(sinks=[], budget=RetryBudget("b"))
    sink.watch(engine)
    assert [each for each in samples(registry) if "budget" in each[0]]
    engine.close()
    del engine
    gc.collect()
    assert not [each for each in samples(registry) if "budget" in each[0]]
    with Engine(sinks=[]) as other:
        sink.watch(other)


def test_what_cannot_be_read_is_left_out_and_reported_once(sink, registry, caplog):
    """The rest of the page is still there."""

    def broken():
        raise OSError("no database")

    with Engine(sinks=[]) as engine:
        sink.watch(engine, outbox_age=broken)
        for _ in range(3):
            assert [each for each in samples(registry) if "idempotency" in each[0]]
    assert caplog.text.count("the outbox of engine main cannot be read") == 1


def test_threads_lose_no_count(sink, registry):
    """Eight threads, and every call is there."""

    def work():
        for number in range(500):
            sink(events.CallSucceeded(operation=f"op-{number % 7}", total_attempts=1))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    total = sum(v for name, _, v in samples(registry) if name == "mainstay_calls_total")
    assert total == 4000.0


def test_in_multiprocess_mode_counters_are_added_up(tmp_path):
    """The counters of two processes are one; what is read when asked is not there."""
    program = """
import sys
from mainstay.events import CallSucceeded, RetryAttempt
from mainstay.sinks.prometheus import PrometheusSink
sink = PrometheusSink()
for _ in range(3):
    sink(CallSucceeded(operation="fetch", total_attempts=2))
    sink(RetryAttempt(operation="fetch", delay_seconds=0.5))
"""
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], check=True, env=env, timeout=60)
    reader = """
import json
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
registry = CollectorRegistry()
MultiProcessCollector(registry)
print(json.dumps([(s.name, s.labels, s.value) for f in registry.collect() for s in f.samples]))
"""
    done = subprocess.run(
        [sys.executable, "-c", reader], check=True, env=env, timeout=60, capture_output=True
    )
    found = {(name, labels.get("outcome")): v for name, labels, v in json.loads(done.stdout)}
    assert found["mainstay_calls_total", "success"] == 6.0
    assert found["effect_retry_delay_seconds_count", None] == 6.0
    assert ("mainstay_success_ratio", None) not in found


def test_without_the_library_the_extra_is_named():
    """What to install, in the error."""
    program = (
        "import sys; sys.modules['prometheus_client'] = None\nimport mainstay.sinks.prometheus"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, timeout=60, capture_output=True, text=True
    )
    assert "pip install 'mainstay[prometheus]'" in done.stderr
