"""Calls as OpenTelemetry traces and metrics: which span is whose child, and what stands on it."""

import asyncio
import gc
import subprocess
import sys

import pytest
import trio
from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import mainstay
from mainstay import (
    Backoff,
    CircuitBreaker,
    CircuitOpenError,
    Engine,
    Fallback,
    NestedRetryError,
    RetryBudget,
    RetryPolicy,
    events,
)
from mainstay.sinks.metrics.catalogue import METRICS
from mainstay.sinks.otel import OpenTelemetrySink
from mainstay.testing import scripted, virtual_time

POLICY = RetryPolicy(name="quick", retry_on=OSError, backoff=Backoff.constant(2.0))


class Telemetry:
    """A sink with exporters in memory."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.sink = OpenTelemetrySink(self.provider, self.meters)
        self.tracer = self.provider.get_tracer("user")

    def spans(self):
        """The spans that have ended, in the order they began."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time)

    def tree(self):
        """The spans as (name, [children])."""
        spans = self.spans()

        def under(parent):
            return [
                (span.name, under(span.context.span_id))
                for span in spans
                if (span.parent.span_id if span.parent else None) == parent
            ]

        return under(None)

    def points(self):
        """Every number of every metric, by its name and attributes."""
        found = {}
        for resource in self.reader.get_metrics_data().resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        key = (metric.name, tuple(sorted(point.attributes.items())))
                        found[key] = getattr(point, "value", None) or getattr(point, "sum", 0.0)
        return found


@pytest.fixture
def telemetry():
    made = Telemetry()
    yield made
    made.provider.shutdown()
    made.meters.shutdown()
    assert otel.get_current() == {}, "a span was left behind as the current one"


def working(telemetry):
    """A function with a span of its own, that fails once."""
    calls = []

    def work():
        with telemetry.tracer.start_as_current_span("user work"):
            calls.append(1)
            if len(calls) == 1:
                raise ConnectionError("reset")
            return "done"

    return work


TREE = [("work", [("work attempt", [("user work", [])]), ("work attempt", [("user work", [])])])]


def engine_of(telemetry, **options):
    return Engine(policies=[POLICY], default="quick", sinks=[telemetry.sink], **options)


def plainly(telemetry):
    with virtual_time(), engine_of(telemetry) as engine:
        engine.call("work", working(telemetry))


def in_a_thread(telemetry):
    policy = POLICY.replace(attempt_timeout=30.0, timeout_by="thread", backoff=Backoff.constant(0))
    with Engine(policies=[policy], default="quick", sinks=[telemetry.sink]) as engine:
        engine.call("work", working(telemetry))


def in_asyncio(telemetry):
    work = working(telemetry)

    async def awork():
        await asyncio.sleep(0)
        return work()

    async def main():
        with engine_of(telemetry) as engine:
            await engine.acall("work", awork)

    with virtual_time():
        asyncio.run(main())


def in_trio(telemetry):
    work = working(telemetry)

    async def awork():
        await trio.lowlevel.checkpoint()
        return work()

    async def main():
        with engine_of(telemetry) as engine:
            await engine.acall("work", awork)

    with virtual_time() as time:
        trio.run(main, clock=time.trio_clock())


def in_a_block(telemetry):
    work = working(telemetry)
    with virtual_time(), engine_of(telemetry) as engine:
        for attempt in engine.operation("work").attempts():
            with attempt:
                work()


def in_an_async_block(telemetry):
    work = working(telemetry)

    async def main():
        with engine_of(telemetry) as engine:
            async for attempt in engine.operation("work").attempts():
                with attempt:
                    work()

    with virtual_time():
        asyncio.run(main())


def with_a_key(telemetry):
    with virtual_time(), engine_of(telemetry) as engine:
        engine.operation("work", key="order-7").call(working(telemetry))


WAYS = [plainly, in_a_thread, in_asyncio, in_trio, in_a_block, in_an_async_block, with_a_key]


# --- spans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_span_per_attempt_under_a_span_per_call(way, telemetry):
    """And the user's own spans are children of the attempt they were made in."""
    way(telemetry)
    assert telemetry.tree() == TREE


def test_the_spans_say_what_happened(telemetry):
    """Attempt, kind, error, delay, how it ended; in the conventions' words where there are any."""
    with (
        virtual_time(),
        engine_of(telemetry) as engine,
        mainstay.context(
            tenant_id="t1", correlation_id="c1", trace_id="request-17", category="RETRY_KV_GET"
        ),
    ):
        engine.call("fetch", scripted(ConnectionError("reset"), "page"))
    call, first, second = telemetry.spans()
    assert dict(call.attributes) == {
        "mainstay.operation": "fetch", "mainstay.policy": "quick", "mainstay.tenant_id": "t1",
        "mainstay.correlation_id": "c1", "mainstay.trace_id": "request-17",
        "mainstay.retry_category": "RETRY_KV_GET", "mainstay.outcome": "success",
        "mainstay.attempts": 2, "mainstay.call_id": call.attributes["mainstay.call_id"],
    }  # fmt: skip
    assert call.status.status_code is StatusCode.UNSET
    (scheduled,) = call.events
    assert scheduled.name == "retry_attempt"
    assert scheduled.attributes["mainstay.attempt_number"] == 1
    assert scheduled.attributes["mainstay.delay_seconds"] == pytest.approx(2.0, rel=0.2)
    assert scheduled.attributes["mainstay.exception_type"] == "ConnectionError"
    assert dict(first.attributes) == {
        "mainstay.operation": "fetch", "mainstay.attempt": 1, "mainstay.kind": "transient",
        "mainstay.reason": "retry_on: OSError", "error.type": "ConnectionError",
    }  # fmt: skip
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "reset")
    (raised,) = first.events
    assert raised.name == "exception"
    assert dict(raised.attributes) == {
        "exception.type": "ConnectionError", "exception.message": "reset",
    }  # fmt: skip
    assert dict(second.attributes) == {"mainstay.operation": "fetch", "mainstay.attempt": 2}
    assert second.status.status_code is StatusCode.UNSET


def test_a_call_that_is_given_up_is_an_error(telemetry):
    """With the failure it ended with, and why there was no further attempt."""
    with virtual_time(), engine_of(telemetry) as engine:
        engine.run("fetch", scripted(*[ConnectionError("down")] * 3))
        engine.run("parse", int, "x")
    exhausted, failed = (span for span in telemetry.spans() if span.parent is None)
    assert exhausted.status.status_code is StatusCode.ERROR
    assert exhausted.attributes["error.type"] == "ConnectionError"
    assert exhausted.attributes["mainstay.outcome"] == "exhausted"
    assert exhausted.attributes["mainstay.attempts"] == 3
    assert failed.attributes["error.type"] == "ValueError"
    assert failed.attributes["mainstay.outcome"] == "failed"
    assert failed.attributes["mainstay.kind"] == "permanent"


class HttpResponse:
    def __init__(self, status_code):
        self.status_code = status_code


class HttpError(OSError):
    def __init__(self, status):
        super().__init__(f"status {status}")
        self.response = HttpResponse(status)


def test_a_resent_http_request_has_its_count(telemetry):
    """From the second attempt on, where an HTTP status is known; other calls have none."""
    with virtual_time(), engine_of(telemetry) as engine:
        engine.call("get", scripted(HttpError(503), HttpError(502), HttpResponse(200)))
        engine.call("query", scripted(ConnectionError("down"), "row"))
    names = ("http.response.status_code", "http.request.resend_count")
    attempts = [span for span in telemetry.spans() if span.parent is not None]
    found = [tuple(span.attributes.get(name) for name in names) for span in attempts]
    assert found == [(503, None), (502, 1), (200, 2), (None, None), (None, None)]


def test_what_is_no_response_is_not_asked_for_a_status(telemetry):
    """A proxy of some service might call it."""

    class Proxy:
        def __getattr__(self, name):
            raise AssertionError(name)

    with engine_of(telemetry) as engine:
        engine.call("rpc", Proxy)
    assert telemetry.tree() == [("rpc", [("rpc attempt", [])])]


def test_a_result_that_is_not_accepted_is_an_error_of_its_attempt(telemetry):
    """There is no exception to name."""
    policy = POLICY.replace(retry_if_result=lambda value: value < 2)
    with (
        virtual_time(),
        Engine(policies=[policy], default="quick", sinks=[telemetry.sink]) as engine,
    ):
        engine.call("poll", scripted(1, 2))
    call, first, second = telemetry.spans()
    assert first.attributes["error.type"] == "result_not_accepted"
    assert second.status.status_code is StatusCode.UNSET
    assert call.attributes["mainstay.outcome"] == "success"


def test_a_refused_call_is_a_span_without_attempts(telemetry):
    """An error, with who refused it."""
    breaker = CircuitBreaker("shut")
    breaker.force_open()
    engine = engine_of(telemetry, breakers={"pay": breaker})
    with engine, pytest.raises(CircuitOpenError):
        engine.call("pay", int, "1")
    (call,) = telemetry.spans()
    assert call.attributes["mainstay.outcome"] == "refused"
    assert call.attributes["error.type"] == "mainstay.errors.CircuitOpenError"
    assert call.status.status_code is StatusCode.ERROR


def test_a_cancelled_call_is_no_error(telemetry):
    """Whoever cut it off did so on purpose; both spans end."""

    async def forever():
        await asyncio.sleep(3600)

    async def main():
        with engine_of(telemetry) as engine:
            task = asyncio.ensure_future(engine.acall("wait", forever))
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with virtual_time():
        asyncio.run(main())
    call, attempt = telemetry.spans()
    assert call.attributes["mainstay.outcome"] == "cancelled"
    assert call.attributes["mainstay.cancelled_by"] == "CancelledError"
    assert attempt.attributes["mainstay.outcome"] == "cancelled"
    assert {span.status.status_code for span in (call, attempt)} == {StatusCode.UNSET}


def test_a_call_that_is_refused_inside_another_has_its_spans_ended(telemetry):
    """A nested retry that is refused raises at once."""
    inner = mainstay.retry(policy=POLICY, listener=telemetry.sink)(
        scripted(ConnectionError("down"))
    )

    @mainstay.retry(policy=POLICY.replace(nested="refuse"))
    def outer():
        inner()

    with pytest.raises(NestedRetryError):
        outer()
    assert [span.name.endswith("attempt") for span in telemetry.spans()] == [False, True]


def test_a_block_that_is_left_and_forgotten_is_ended_too(telemetry):
    """When nobody can go on with it any more."""
    with virtual_time(), engine_of(telemetry) as engine:
        blocks = engine.operation("work").attempts()
        with next(blocks):
            raise ConnectionError("down")
        assert [span.name for span in telemetry.spans()] == ["work attempt"]
        del blocks
        gc.collect()
    assert [span.name for span in telemetry.spans()] == ["work", "work attempt"]


def test_a_coroutine_closed_in_another_context_leaves_that_one_alone(telemetry, caplog):
    """An event loop that is gone: the spans end, and nothing is undone where nothing was done."""

    async def forever():
        await asyncio.get_running_loop().create_future()

    loop = asyncio.new_event_loop()
    engine = engine_of(telemetry)
    task = loop.create_task(engine.acall("wait", forever))
    loop.run_until_complete(asyncio.sleep(0.01))
    coroutine = task.get_coro()
    with telemetry.tracer.start_as_current_span("elsewhere") as here:
        coroutine.close()
        assert trace.get_current_span() is here
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    engine.close()
    assert [span.name for span in telemetry.spans()] == ["wait", "wait attempt", "elsewhere"]
    assert "Failed to detach" not in caplog.text


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_traceparent_in_the_context_is_the_parent(telemetry):
    """Where no span is current, the call belongs to the trace it was told of."""
    with engine_of(telemetry) as engine, mainstay.context(trace_id=PARENT):
        engine.call("parse", int, "7")
    call, attempt = telemetry.spans()
    assert f"{call.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{call.parent.span_id:016x}" == PARENT.split("-")[2]
    assert attempt.context.trace_id == call.context.trace_id


def test_a_traceparent_of_another_trace_is_a_link(telemetry):
    """The current span stays the parent; one of the same trace needs no link."""
    with engine_of(telemetry) as engine, telemetry.tracer.start_as_current_span("web") as web:
        same = web.get_span_context()
        with mainstay.context(trace_id=PARENT):
            engine.call("parse", int, "7")
        with mainstay.context(trace_id=f"00-{same.trace_id:032x}-{same.span_id:016x}-01"):
            engine.call("again", int, "7")
    _, call, _, again, _ = telemetry.spans()
    assert call.parent.span_id == again.parent.span_id == same.span_id
    assert [f"{link.context.trace_id:032x}" for link in call.links] == [PARENT.split("-")[1]]
    assert list(again.links) == []


@pytest.mark.parametrize("odd", ["", "x", "00-zz-yy-01", f"00-{'0' * 32}-{'0' * 16}-00", "-" * 9])
def test_an_id_that_is_no_traceparent_is_only_an_attribute(telemetry, odd):
    """Programs have trace ids of every form."""
    with engine_of(telemetry) as engine, mainstay.context(trace_id=odd):
        engine.call("parse", int, "7")
    call, _ = telemetry.spans()
    assert call.parent is None
    assert call.attributes.get("mainstay.trace_id") == odd


def test_what_happens_beside_a_call_is_noted_on_the_span_around_it(telemetry):
    """A fallback, a change of a circuit, a hit; without a span they are only counted."""

    @Fallback(value=0, listener=telemetry.sink)
    def broken():
        raise OSError("down")

    broken()
    with telemetry.tracer.start_as_current_span("web"):
        broken()
        telemetry.sink(events.CircuitStateChanged(operation="pay", to_state="open"))
    (web,) = telemetry.spans()
    assert [event.name for event in web.events] == ["fallback_used", "circuit_state_changed"]
    assert web.events[1].attributes["mainstay.to_state"] == "open"


class BrokenProcessor(SpanProcessor):
    """Raises wherever it is asked."""

    def on_start(self, span, parent_context=None):
        raise RuntimeError("no exporter")

    def on_end(self, span):
        raise RuntimeError("no exporter")


class BrokenEnd(BrokenProcessor):
    def on_start(self, span, parent_context=None):
        pass


@pytest.mark.parametrize("processor", [BrokenProcessor, BrokenEnd])
def test_what_an_exporter_raises_never_reaches_the_call(processor, caplog):
    """The call ends as it would have, and its events are counted."""
    telemetry = Telemetry()
    telemetry.provider.add_span_processor(processor())
    with virtual_time(), engine_of(telemetry) as engine:
        assert engine.call("fetch", scripted(ConnectionError("1"), "page")) == "page"
    ended = ("mainstay_calls_total", (("operation", "fetch"), ("outcome", "success")))
    assert telemetry.points()[ended] == 1
    assert "was passed over" in caplog.text
    assert otel.get_current() == {}


# --- metrics --------------------------------------------------------------------------------------


def test_the_metrics_have_the_same_names_and_numbers_as_for_prometheus(telemetry):
    """Counters and histograms as they are told, gauges when the reader asks."""
    with virtual_time(), engine_of(telemetry, budget=RetryBudget("share", floor=5)) as engine:
        telemetry.sink.watch(engine)
        engine.call("db", scripted(OSError("down"), "row"))
        points = telemetry.points()

    def point(name, **labels):
        return points.get((name, tuple(sorted(labels.items()))))

    assert point("mainstay_calls_total", operation="db", outcome="success") == 1
    assert point("effect_retry_total", effect_type="db", attempt="2", outcome="success") == 1
    assert point("effect_retry_delay_seconds", effect_type="db") == pytest.approx(2.0, rel=0.2)
    assert point("mainstay_success_ratio", operation="db") == 1.0
    assert point("mainstay_budget_left", engine="main", budget="share") == 4.0
    assert {name for name, _ in points} <= set(METRICS)


def test_no_id_is_in_an_attribute_of_a_metric(telemetry):
    """Spans may carry ids; metrics never do."""
    who = mainstay.context(tenant_id="id-4711", correlation_id="id-4711", trace_id="id-4711")
    with who, virtual_time(), engine_of(telemetry) as engine:
        telemetry.sink.watch(engine)
        engine.call("db", scripted(OSError("id-4711"), "row"))
        engine.operation("pay", key="id-4711").call(int, "5")
        assert "id-4711" not in str(telemetry.points())


def test_without_the_library_the_extra_is_named():
    """What to install, in the error."""
    program = "import sys; sys.modules['opentelemetry'] = None\nimport mainstay.sinks.otel"
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, timeout=60, capture_output=True, text=True
    )
    assert "pip install 'mainstay[otel]'" in done.stderr
