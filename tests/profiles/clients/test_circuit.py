"""The client front door: its circuit breaker, configuration and exception."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading

import pytest
import redis

from mainstay import CircuitOpenError, PolicyError, StoreError, retry
from mainstay.events import CallRefused
from mainstay.profiles import clients
from mainstay.profiles.clients import (
    CircuitBreaker,
    CircuitBreakerConfiguration,
    CircuitOpenException,
    CircuitState,
)
from mainstay.sinks.logging import LoggingSink
from mainstay.sinks.telemetry.records import Recorder
from mainstay.testing import virtual_time
from tests.processes import wait_until


@pytest.mark.req("CL-06")
def test_the_configuration_has_the_documents_fields_and_defaults():
    """5 failures, 30 s, 1 success, in memory."""
    values = {f.name: f.default for f in dataclasses.fields(CircuitBreakerConfiguration)}
    assert values == {
        "failure_threshold": 5,
        "recovery_timeout_seconds": 30.0,
        "success_threshold": 1,
        "state_persistence": "memory",
        "redis_key_prefix": "circuit_breaker:",
    }


@pytest.mark.req("CL-06")
def test_every_wrong_value_is_named_at_once():
    """One error with all problems, under the document's names."""
    with pytest.raises(PolicyError) as caught:
        CircuitBreakerConfiguration(
            failure_threshold=0,
            recovery_timeout_seconds=-1.0,
            success_threshold=True,
            state_persistence="disk",
            redis_key_prefix="",
        )
    assert [problem.field for problem in caught.value.problems] == [
        "failure_threshold", "recovery_timeout_seconds", "success_threshold", "state_persistence",
        "redis_key_prefix",
    ]  # fmt: skip


@pytest.mark.req("CL-06")
def test_each_field_of_the_configuration_decides():
    """Opened by the third failure, half open after 7 s, closed by the second success."""
    config = CircuitBreakerConfiguration(
        failure_threshold=3, recovery_timeout_seconds=7.0, success_threshold=2
    )
    breaker, states = CircuitBreaker("s3.get", config), []
    with virtual_time() as time:
        for step in (breaker.record_failure,) * 3:
            step()
            states.append(breaker.state.value)
        for seconds in (6.5, 0.5):
            time.advance(seconds)
            states.append(breaker.state.value)
        for _ in range(2):
            assert breaker.allow_request()
            breaker.record_success()
            states.append(breaker.state.value)
    assert states == ["closed", "closed", "open", "open", "half_open", "half_open", "closed"]


@pytest.mark.req("CL-07")
def test_the_breaker_goes_through_the_documents_states():
    """Closed, open at the threshold, half open by itself after the timeout, closed by success."""
    breaker = CircuitBreaker("s3.get", CircuitBreakerConfiguration(failure_threshold=2))
    with virtual_time() as time:
        assert breaker.operation_name == "s3.get"
        assert (breaker.state, breaker.allow_request()) == (CircuitState.CLOSED, True)
        breaker.record_failure()
        assert breaker.state is CircuitState.CLOSED
        breaker.record_failure()
        assert (breaker.state, breaker.allow_request()) == (CircuitState.OPEN, False)
        time.advance(30.0)
        assert breaker.state is CircuitState.HALF_OPEN
        breaker.record_success()
        assert breaker.state is CircuitState.CLOSED


@pytest.mark.req("CL-07")
def test_a_success_forgets_the_failures_before_it():
    """Failures count in a row; one in half open opens it again."""
    breaker = CircuitBreaker("s3.get", CircuitBreakerConfiguration(failure_threshold=2))
    with virtual_time() as time:
        for step in (breaker.record_failure, breaker.record_success, breaker.record_failure):
            step()
        assert breaker.state is CircuitState.CLOSED
        breaker.record_failure()
        time.advance(30.0)
        assert breaker.allow_request()
        breaker.record_failure()
        assert breaker.state is CircuitState.OPEN


@pytest.mark.req("CL-07")
def test_threads_lose_no_failure():
    """Eight threads, a thousand failures each, one threshold: it opens at the last of them."""
    breaker = CircuitBreaker("s3", CircuitBreakerConfiguration(failure_threshold=8000))
    states = []

    def fail():
        for _ in range(999):
            breaker.record_failure()
        states.append(breaker.state)

    threads = [threading.Thread(target=fail) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert set(states) == {CircuitState.CLOSED}
    for _ in range(8):
        assert breaker.state is CircuitState.CLOSED
        breaker.record_failure()
    assert breaker.state is CircuitState.OPEN


@pytest.mark.req("CL-08")
def test_the_exception_takes_the_documents_arguments_and_has_its_words():
    """By place or by name: the operation's name and the state, and no others are needed."""
    for error in (
        CircuitOpenException("s3.get", CircuitState.OPEN),
        CircuitOpenException(operation_name="s3.get", state=CircuitState.OPEN),
    ):
        assert (error.operation_name, error.state) == ("s3.get", CircuitState.OPEN)
        assert str(error) == "Circuit breaker open for s3.get"
    parameters = inspect.signature(CircuitOpenException).parameters
    assert list(parameters)[:2] == ["operation_name", "state"]


@pytest.mark.req("CL-08")
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_the_exception_is_one_of_ours_and_survives_pickling(again):
    """Code that catches ours catches it, and reads from it how long to wait."""
    error = again(CircuitOpenException("s3.get", CircuitState.HALF_OPEN, 2.5))
    assert type(error) is CircuitOpenException
    assert isinstance(error, CircuitOpenError)
    assert (error.operation_name, error.state) == ("s3.get", CircuitState.HALF_OPEN)
    assert (str(error), error.retry_after) == ("Circuit breaker open for s3.get", 2.5)


@pytest.mark.req("CL-08", "CL-07")
def test_it_guards_a_retry():
    """The document's breaker in place of ours: an open one raises its exception."""
    breaker = CircuitBreaker("s3.get", CircuitBreakerConfiguration(failure_threshold=1))

    @retry(on=ConnectionError, breaker=breaker)
    def get():
        raise ConnectionError

    with virtual_time():
        with pytest.raises(ConnectionError):
            get()
        with pytest.raises(CircuitOpenException, match=r"^Circuit breaker open for s3\.get$") as it:
            get()
        assert (it.value.operation_name, it.value.state) == ("s3.get", CircuitState.OPEN)
        breaker.force_open()
        with pytest.raises(CircuitOpenException) as forced:
            get()
        assert (forced.value.state, forced.value.retry_after) == (CircuitState.FORCED_OPEN, None)


@pytest.mark.req("CL-08")
def test_a_full_half_open_circuit_raises_it_too():
    """The probe is under way; the second call is refused with the same exception."""
    breaker = CircuitBreaker("s3.get", CircuitBreakerConfiguration(failure_threshold=1))
    with virtual_time() as time:
        breaker.record_failure()
        time.advance(30.0)
        assert breaker.allow_request()
        with pytest.raises(CircuitOpenException) as caught, breaker:
            pass
        assert caught.value.state is CircuitState.HALF_OPEN


def test_telemetry_counts_it_as_an_open_circuit():
    """The record of a refused call has `circuit_open` under this name too."""
    recorder = Recorder("etl", cpu=lambda: 0.0)
    names = ("mainstay.CircuitOpenError", "mainstay.profiles.errors.CircuitOpenException")
    for name in names:
        record = recorder.record_of(CallRefused(operation="s3.get", by=name))
        assert record.circuit_open


@pytest.mark.req("CL-06")
def test_a_circuit_in_redis_outlives_the_process(valkey_url):
    """Opened by one, found open by the next; under the configured prefix, in nobody's way."""
    config = CircuitBreakerConfiguration(
        failure_threshold=1, state_persistence="redis", redis_key_prefix="test_clients:"
    )
    first = CircuitBreaker("s3.get", config, redis_url=valkey_url)
    first.record_failure()
    first.close()
    second = CircuitBreaker("s3.get", config, redis_url=valkey_url)
    assert second.state is CircuitState.OPEN
    second.close()
    elsewhere = dataclasses.replace(config, redis_key_prefix="test_clients_2:")
    third = CircuitBreaker("s3.get", elsewhere, redis_url=valkey_url)
    assert third.state is CircuitState.CLOSED
    third.close()


def test_a_circuit_that_is_closed_leaves_no_connection_to_redis(valkey_url):
    """It opened the store itself."""
    config = CircuitBreakerConfiguration(state_persistence="redis")
    with redis.Redis.from_url(valkey_url) as server:

        def connections():
            return {client["id"] for client in server.client_list()}

        before = connections()
        breaker = CircuitBreaker("s3.head", config, redis_url=valkey_url)
        assert connections() > before
        breaker.close()
        wait_until(lambda: connections() <= before, "the connections to be closed")


def test_a_circuit_in_redis_must_know_where_that_is(monkeypatch):
    """The error shows both ways to give it."""
    monkeypatch.delenv("REDIS_URL", raising=False)
    with pytest.raises(StoreError, match=r"REDIS_URL.*redis_url="):
        CircuitBreaker("s3", CircuitBreakerConfiguration(state_persistence="redis"))


@pytest.mark.req("CL-06")
def test_the_environment_has_the_url_of_a_circuit_in_redis(valkey_url, monkeypatch):
    """`CircuitBreaker(operation_name, config)` is enough, as in the document."""
    monkeypatch.setenv("REDIS_URL", valkey_url)
    config = CircuitBreakerConfiguration(
        failure_threshold=1, state_persistence="redis", redis_key_prefix="test_environment:"
    )
    first = CircuitBreaker("s3.put", config)
    first.record_failure()
    first.close()
    second = CircuitBreaker("s3.put", config)
    assert second.state is CircuitState.OPEN
    second.close()


@pytest.mark.req("CL-07")
def test_failures_in_a_row_and_the_time_of_the_last_are_shown():
    """By hand and in a decorated function; what does not count leaves both as they are."""
    breaker = CircuitBreaker("s3.get")
    with virtual_time() as time:
        assert (breaker.failure_count, breaker.last_failure_time) == (0, None)
        breaker.record_failure()
        first = breaker.last_failure_time
        time.advance(5.0)

        @breaker
        def get(error):
            raise error

        for error in (ConnectionError(), ValueError()):
            with pytest.raises(type(error)):
                get(error)
            time.advance(5.0)
        assert breaker.failure_count == 2
        assert breaker.last_failure_time == pytest.approx(first + 5.0)
        breaker.record_success()
        assert breaker.failure_count == 0
        assert breaker.last_failure_time == pytest.approx(first + 5.0)


@pytest.mark.req("CL-07")
def test_each_transition_is_logged_in_the_documents_words(caplog):
    """At INFO, once each; the fields are on the record."""
    breaker = CircuitBreaker("s3.get", CircuitBreakerConfiguration(failure_threshold=1))
    with caplog.at_level("INFO", logger="mainstay"), virtual_time() as time:
        breaker.record_failure()
        time.advance(30.0)
        assert breaker.allow_request()
        breaker.record_success()
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    moves = [("closed", "open"), ("open", "half_open"), ("half_open", "closed")]
    assert lines == [
        ("INFO", f"Circuit breaker 's3.get' transitioned from {old} to {new}") for old, new in moves
    ]
    assert caplog.records[0].mainstay["event_type"] == "circuit_state_changed"


def test_a_listener_that_writes_a_log_has_the_transition_to_itself(caplog):
    """One line for a transition, and other listeners receive the event as ever."""
    events, breaker = [], CircuitBreaker("s3.get")
    breaker.listen(events.append)
    breaker.listen(LoggingSink("mine"))
    with caplog.at_level("INFO"):
        breaker.force_open()
    assert [event.to_state for event in events] == ["forced_open"]
    assert [record.name for record in caplog.records] == ["mine.security"]


def test_every_name_of_the_door_is_there():
    """What is listed can be imported."""
    assert all(hasattr(clients, name) for name in clients.__all__)
