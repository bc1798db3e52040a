"""Alerts, live: who is told, from where, and what a slow or broken one costs."""

import gc
import logging
import threading
import time as real
import weakref

import pytest
from prometheus_client import CollectorRegistry

from mainstay import Backoff, CircuitBreaker, Engine, RetryBudget, RetryPolicy
from mainstay.core.analytics.events import AlertCleared, AlertFired
from mainstay.core.retry.events import CallFailed, RetryAttempt
from mainstay.errors import PolicyError
from mainstay.sinks.alerts import AlertRule, Alerts
from mainstay.sinks.prometheus import PrometheusSink
from mainstay.testing import scripted, virtual_time

POLICY = RetryPolicy(name="quick", retry_on=OSError, backoff=Backoff.constant(0.5))
STORM = AlertRule("storm", "retries_per_minute", above=2.0, per="operation")
FAILING = AlertRule("failing", "failure_rate", above=0.5, minimum=2)


def engine_with(*sinks, **options):
    return Engine(policies=[POLICY], default="quick", sinks=sinks, **options)


def down(count=3):
    return scripted(*[OSError("down")] * count)


@pytest.mark.req("CP-17.alert")
def test_a_retry_rate_over_the_threshold_fires_and_clears(caplog):
    """Per minute and operation; by callback and log, on the process's clock."""
    caplog.set_level(logging.INFO, "mainstay")
    told = []
    alerts = Alerts([STORM], notify=told.append, interval=None)
    with virtual_time(1000.0) as time, engine_with(alerts) as engine:
        engine.run("kv.get", down())
        engine.call("kv.put", int, "1")
        assert alerts.check() == []
        engine.run("kv.get", down())
        (fired,) = alerts.check()
        assert alerts.firing == [("storm", "kv.get")]
        time.advance(70.0)
        (cleared,) = alerts.check()
        assert alerts.firing == []
    assert told == [fired, cleared]
    assert (type(fired), fired.operation, fired.value) == (AlertFired, "kv.get", 4.0)
    assert (type(cleared), round(cleared.lasted_seconds, 6)) == (AlertCleared, 70.0)
    assert fired.timestamp.startswith("1970-01-01T00:16:4")
    levels = [(r.levelname, r.message) for r in caplog.records if "alert" in r.message]
    assert levels == [
        (
            "WARNING",
            "kv.get: alert storm fired: retries_per_minute is 4, threshold 2, over 60 s",
        ),
        ("INFO", "kv.get: alert storm cleared after 70 s: retries_per_minute is 0"),
    ]


@pytest.mark.req("CP-17.alert")
def test_an_alert_that_fires_becomes_an_item_of_the_inbox():
    """One for each alert; when it fires again, the item is counted, not repeated."""
    with virtual_time() as time, Engine(sinks=[]) as engine:
        alerts = Alerts([STORM], inbox=engine.inbox, interval=None, logger=None)
        for _ in range(2):
            for _ in range(3):
                alerts(RetryAttempt(operation="fetch"))
            alerts.check()
            time.advance(100.0)
            alerts.check()
        (item,) = engine.inbox
    assert (item.kind, item.operation, item.times, item.severity) == ("alert", "fetch", 2, "high")
    assert item.text.startswith("fetch: alert storm fired: retries_per_minute is 3")
    assert item.actions == ("mark_done",)


def test_every_metric_can_fire_from_a_real_engine():
    """Failure rate, exhausted, circuits, budgets and losses, each by what the engine does."""

    class Lossy:
        lost = 0

        def stats(self):
            return {"lost": self.lost}

    class Behind:
        def __init__(self, buffer):
            self.buffer = buffer

    metrics = ["failure_rate", "exhausted_per_minute", "circuits_opened", "budget_denied"]
    rules = [AlertRule(metric, metric, above=0.2) for metric in [*metrics, "lost_events"]]
    alerts, lossy, behind = Alerts(rules, interval=None), Lossy(), Lossy()
    alerts.watch(lossy, Behind(behind))
    breaker = CircuitBreaker("b", failure_threshold=1)
    options = {"breakers": {"pay": breaker}, "budget": RetryBudget("b", floor=0, ratio=0.0)}
    with virtual_time(), engine_with(alerts, **options) as engine:
        engine.run("pay", down())
        fired = {event.alert for event in alerts.check()}
        assert fired == {"failure_rate", "exhausted_per_minute", "circuits_opened"} | (
            fired & {"budget_denied"}
        )
        engine.run("db", down())
        fired |= {event.alert for event in alerts.check()}
        assert fired == set(metrics)
        lossy.lost, behind.lost = 2, 3
        (loss,) = alerts.check()
        assert (loss.alert, loss.value) == ("lost_events", 5.0)


def test_only_a_rule_on_the_failure_rate_makes_successes_cost_anything():
    """Where nobody wants to hear of them, the happy path stays as it is."""
    assert Alerts([FAILING]).wants.successes is True
    assert Alerts([STORM]).wants.successes is False


def test_a_thread_looks_by_itself_and_ends_with_its_alerts():
    """Nobody needs to call check; and nothing is left when the alerts are gone."""
    told = threading.Event()
    alerts = Alerts([STORM], notify=lambda _: told.set(), interval=0.01, logger=None)
    for _ in range(3):
        alerts(RetryAttempt(operation="fetch"))
    assert told.wait(30.0)
    thread, gone = alerts._thread, weakref.ref(alerts)
    del alerts
    end = real.monotonic() + 30.0
    while thread.is_alive() and real.monotonic() < end:
        gc.collect()
        real.sleep(0.01)
    assert not thread.is_alive()
    assert gone() is None


def test_closing_ends_the_thread_and_no_other_is_started():
    """What is told afterwards is counted, and seen by check()."""
    alerts = Alerts([STORM], interval=0.01, logger=None)
    alerts(RetryAttempt(operation="fetch"))
    thread = alerts._thread
    alerts.close()
    assert not thread.is_alive()
    for _ in range(3):
        alerts(RetryAttempt(operation="fetch"))
    assert alerts._thread is thread
    assert len(alerts.check()) == 1


def test_an_engine_that_closes_looks_once_more():
    """The last calls of a program count."""
    told = []
    with virtual_time(), engine_with(Alerts([STORM], notify=told.append, interval=None)) as engine:
        engine.run("a", down())
        engine.run("a", down())
        assert told == []
    assert [event.alert for event in told] == ["storm"]


def test_no_call_waits_for_a_slow_callback():
    """The thread does; the calls only count."""
    entered, release = threading.Event(), threading.Event()

    def slow(event):
        entered.set()
        assert release.wait(60.0)

    alerts = Alerts([STORM], notify=slow, interval=0.01, logger=None)
    with engine_with(alerts) as engine:
        for _ in range(3):
            alerts(RetryAttempt(operation="fetch"))
        assert entered.wait(30.0)
        assert engine.call("parse", int, "7") == 7
        assert alerts.firing == [("storm", "fetch")]
        release.set()
    alerts.close()


def test_a_callback_may_ask_for_another_look():
    """Nothing is called back under a lock; one is told after the other, in order."""
    told = []

    def nosy(event):
        told.append((event.event_type, event.group))
        alerts.check()
        told.append("told")

    alerts = Alerts([STORM], notify=nosy, interval=None, logger=None)
    with virtual_time() as time:
        for _ in range(3):
            alerts(RetryAttempt(operation="fetch"))
            alerts(RetryAttempt(operation="store"))
        alerts.check()
        time.advance(100.0)
        alerts.check()
    assert told == [
        ("alert_fired", "fetch"), "told", ("alert_fired", "store"), "told",
        ("alert_cleared", "fetch"), "told", ("alert_cleared", "store"), "told",
    ]  # fmt: skip


def test_one_that_raises_keeps_the_others_from_nothing(caplog):
    """A callback, an inbox and a buffer: each is reported, and the rest is told."""
    told = []

    class Away:
        def put(self, item):
            raise OSError("no store")

    class Broken:
        said = False

        def stats(self):
            if self.said:
                raise OSError("no disk")
            self.said = True
            return {}

    def broken(event):
        raise RuntimeError("no network")

    alerts = Alerts([STORM], notify=[broken, told.append], inbox=Away(), interval=None)
    alerts.watch(Broken())
    for _ in range(3):
        alerts(RetryAttempt(operation="fetch"))
    alerts.check()
    assert [event.alert for event in told] == ["storm"]
    assert "a listener raised on alert storm" in caplog.text
    assert "alert storm could not be put into the inbox" in caplog.text


def test_alerts_of_others_are_not_counted():
    """Two that tell each other do not go on for ever."""
    first = Alerts([FAILING], interval=None, logger=None)
    second = Alerts([FAILING], notify=first, interval=None, logger=None)
    for _ in range(2):
        second(CallFailed(operation="a"))
    assert len(second.check()) == 1
    assert first.check() == []


def test_alerts_are_counted_by_a_metrics_sink():
    """notify= takes any sink."""
    registry = CollectorRegistry()
    alerts = Alerts([STORM], notify=PrometheusSink(registry), interval=None, logger=None)
    with virtual_time() as time:
        for _ in range(3):
            alerts(RetryAttempt(operation="fetch"))
        alerts.check()
        time.advance(100.0)
        alerts.check()
    for state in ("fired", "cleared"):
        labels = {"alert": "storm", "state": state}
        assert registry.get_sample_value("mainstay_alerts_total", labels) == 1.0


def test_what_cannot_be_meant_is_refused():
    """Rules, names that are used twice, callbacks, intervals."""
    for wrong in (
        lambda: Alerts(["storm"]),
        lambda: Alerts([STORM, STORM]),
        lambda: Alerts([], notify=["x"]),
        lambda: Alerts([], interval=0.0),
    ):
        with pytest.raises(PolicyError):
            wrong()


def test_a_clock_outside_the_calendar_costs_no_alert():
    """The event has no time then."""
    alerts = Alerts([STORM], interval=None, logger=None)
    with virtual_time(1e15):
        for _ in range(3):
            alerts(RetryAttempt(operation="fetch"))
        (fired,) = alerts.check()
    assert fired.timestamp == ""
