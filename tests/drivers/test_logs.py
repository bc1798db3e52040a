"""Calls without an engine are logged as an engine logs its calls; without a handler nothing is."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
from contextlib import suppress

import pytest

import mainstay
from mainstay import (
    Backoff,
    BreakerSettings,
    CircuitBreaker,
    CircuitOpenError,
    Engine,
    Fallback,
    Jitter,
    RetryPolicy,
)
from mainstay.profiles import agents
from mainstay.profiles.clients import RetryConfiguration
from mainstay.profiles.control_plane import RetryPolicy as ControlPlanePolicy
from mainstay.profiles.effects import EffectRetryConfig
from mainstay.runtime.reports import logs
from mainstay.sinks.logging import LoggingSink
from mainstay.testing import scripted, virtual_time
from tests.costs import costs

POLICY = RetryPolicy(
    name="api", retry_on=ConnectionError, backoff=Backoff.constant(1.0), jitter=Jitter.none()
)
RECOVERED = [
    ("DEBUG", "attempt_failed"),
    ("WARNING", "retry_attempt"),
    ("INFO", "call_succeeded"),
]
pytestmark = pytest.mark.usefixtures("logged")


def flaky():
    return scripted(ConnectionError("down"), "up")


def by_decorator(policy):
    mainstay.retry(policy=policy)(flaky())()


def by_policy_decorator(policy):
    policy(flaky())()


def by_call(policy):
    policy.call(flaky())


def by_run(policy):
    policy.run(flaky())


def by_block(policy):
    work = flaky()
    for attempt in policy.attempts():
        with attempt:
            work()


def by_async_call(policy):
    work = flaky()

    async def fetch():
        return work()

    asyncio.run(policy.acall(fetch))


def by_async_decorator(policy):
    work = flaky()

    @mainstay.retry(policy=policy)
    async def fetch():
        return work()

    asyncio.run(fetch())


def by_async_block(policy):
    work = flaky()

    async def main():
        async for attempt in policy.attempts():
            with attempt:
                work()

    asyncio.run(main())


def by_engine(policy):
    with Engine(policies=[policy]) as engine:
        engine.call("api", flaky())


WAYS = (
    by_decorator, by_policy_decorator, by_call, by_run, by_block, by_async_call,
    by_async_decorator, by_async_block, by_engine,
)  # fmt: skip


def records(caplog):
    return [(each.levelname, each.mainstay["event_type"]) for each in caplog.records]


@pytest.mark.req("FR-041-31", "FR-041-32", "NFR-041-21", "NFR-041-22", "CL-05.log-level")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_of_calling_logs_as_an_engine_does(caplog, way):
    """Each attempt DEBUG, a scheduled retry WARNING, the success INFO; each of them once."""
    caplog.set_level(logging.DEBUG, "mainstay")
    with virtual_time():
        way(POLICY)
    assert records(caplog) == RECOVERED
    assert {each.name for each in caplog.records} == {"mainstay"}
    assert "attempt 1 of 3 failed with ConnectionError: down; next in 1.000 s" in (
        caplog.records[1].getMessage()
    )


@pytest.mark.req("FR-041-33", "NFR-041-22")
def test_a_decorated_call_that_is_given_up_is_logged_as_an_error(caplog):
    """With the root logger as programs have it, only what went wrong is logged."""

    @POLICY
    def fetch():
        raise ConnectionError("down")

    with virtual_time(), pytest.raises(ConnectionError):
        fetch()
    assert records(caplog) == [("WARNING", "retry_attempt")] * 2 + [("ERROR", "retry_exhausted")]


def test_a_failure_that_is_final_at_once_is_logged_as_an_error(caplog):
    """A call that was not retried is followed too."""
    with pytest.raises(ValueError, match="no"):
        POLICY.call(scripted(ValueError("no")))
    assert records(caplog) == [("ERROR", "call_failed")]


@pytest.mark.req("CL-05.log-level")
@pytest.mark.parametrize("level", ["INFO", logging.INFO])
def test_the_log_level_of_a_policy_may_be_a_number(caplog, level):
    """`logging.INFO` is as good as "INFO", in every door that has a policy of its own."""
    policies = [
        POLICY.replace(log_level=level),
        RetryConfiguration(log_level=level, retry_on_exceptions=(ConnectionError,)).policy(),
        ControlPlanePolicy().policy(log_level=level),
        EffectRetryConfig().policy(log_level=level),
    ]
    caplog.set_level(logging.INFO, "mainstay")
    for policy in policies:
        assert policy.log_level == "INFO"
        caplog.clear()
        with virtual_time():
            by_decorator(policy)
        assert records(caplog)[0] == ("INFO", "retry_attempt")


@pytest.mark.parametrize("level", [25, True, 20.0, "info", None])
def test_a_level_that_logging_does_not_have_is_refused(level):
    """The problem names the field and the levels there are."""
    with pytest.raises(mainstay.PolicyError, match=r"log_level = .*: must be one of DEBUG, INFO"):
        RetryPolicy(log_level=level)


def test_a_call_with_a_log_of_its_own_is_logged_once(caplog):
    """A listener that writes a log takes the place of the usual one."""
    with virtual_time():
        mainstay.retry(policy=POLICY, listener=LoggingSink("app.retries"))(flaky())()
    assert {each.name for each in caplog.records} == {"app.retries"}


def test_an_engine_without_sinks_logs_nothing(caplog):
    """`sinks=[]` is a choice; the log of calls without an engine does not come in its place."""
    with virtual_time(), Engine(sinks=[], policies=[POLICY]) as engine:
        engine.call("api", flaky())
    assert caplog.records == []


def test_other_listeners_receive_what_the_log_receives(caplog):
    """The log comes beside the listeners of a call, and changes nothing for them."""
    events = []
    with virtual_time():
        mainstay.retry(policy=POLICY, listener=events.append)(flaky())()
    assert [each.event_type for each in events] == [name for _, name in RECOVERED]
    assert records(caplog) == [("WARNING", "retry_attempt")]


def test_a_first_success_is_logged_if_debug_is_on_when_a_function_is_decorated(caplog):
    """A decorated call that succeeds at once costs nothing: DEBUG is asked for once, before."""
    caplog.set_level(logging.DEBUG, "mainstay")
    mainstay.retry(policy=POLICY)(lambda: "up")()
    assert records(caplog) == [("DEBUG", "call_succeeded")]


@pytest.mark.req("FR-041-60", "NFR-041-23")
def test_a_circuit_without_an_engine_is_logged_in_the_words_of_its_events(caplog):
    """At INFO, through the logger of security events; a refused call at WARNING."""
    caplog.set_level(logging.INFO, "mainstay")
    breaker = CircuitBreaker("pay", BreakerSettings(failure_threshold=1))
    with pytest.raises(ConnectionError):
        breaker.call(scripted(ConnectionError("down")))
    with pytest.raises(CircuitOpenError):
        breaker.call(scripted("up"))
    opened = caplog.records[0]
    assert (opened.name, opened.levelname) == ("mainstay.security", "INFO")
    assert opened.getMessage().startswith("pay: circuit closed -> open")
    assert records(caplog)[-1] == ("WARNING", "call_refused")


def test_a_fallback_without_a_listener_is_logged_in_the_words_of_its_event(caplog):
    """One wording for logs, audit and events."""
    fetch = Fallback("cached")(scripted(ConnectionError("down")))
    assert fetch() == "cached"
    assert "the fallback answered for ConnectionError: down" in caplog.records[-1].getMessage()


def test_the_agents_front_door_logs_without_an_engine(caplog, tmp_path):
    """A file that cannot be read is an error in the log."""
    with pytest.raises(FileNotFoundError):
        agents.read_file(tmp_path / "missing")
    assert records(caplog) == [("ERROR", "call_failed")]


@pytest.mark.parametrize("switch", ["level", "disabled", "propagate", "disable"])
def test_a_logger_that_is_switched_off_takes_nothing(caplog, monkeypatch, switch):
    """A level above ERROR, a disabled logger, one that does not propagate: no event is built."""
    own = logging.getLogger("mainstay")
    monkeypatch.setattr(own, "propagate", switch != "propagate")
    monkeypatch.setattr(own, "disabled", switch == "disabled")
    if switch == "level":
        caplog.set_level(logging.CRITICAL, "mainstay")
    if switch == "disable":
        logging.disable()
    try:
        assert logs.LOGS.listeners == ()
    finally:
        logging.disable(logging.NOTSET)
    own.manager._clear_cache()


def test_a_handler_of_the_logger_itself_is_enough(monkeypatch):
    """`logging.getLogger("mainstay").addHandler(...)` alone turns the log on."""
    taken = []
    handler = logging.Handler()
    handler.emit = taken.append
    own = logging.getLogger("mainstay")
    monkeypatch.setattr(own, "propagate", False)
    own.addHandler(handler)
    try:
        with virtual_time():
            by_decorator(POLICY)
    finally:
        own.removeHandler(handler)
    assert [each.mainstay["event_type"] for each in taken] == ["retry_attempt"]


def test_without_a_handler_a_failing_call_enters_no_function_of_the_log(monkeypatch):
    """The look is made in the frame of the driver: two lists, and nothing is called."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    fetch = POLICY.replace(backoff=Backoff.constant(0.0))(scripted(*[ConnectionError()] * 2, "up"))
    fetch_again = POLICY.replace(backoff=Backoff.constant(0.0))(
        scripted(*[ConnectionError()] * 4, "up", "up")
    )
    fetch()
    with pytest.raises(ConnectionError):
        fetch_again()  # the type is settled from here on
    entered = costs(fetch_again)
    assert not {"takes", "load", "handlers", "isEnabledFor"} & set(entered)


@pytest.mark.parametrize("name", [None, "mainstay"])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_null_handler_of_the_program_makes_no_event(monkeypatch, name, colour):
    """A library's habit: nothing would be written, and a failing call entered 108 frames of 12."""
    target, nothing = logging.getLogger(name), POLICY.replace(backoff=Backoff.constant(0.0))
    for each in (logging.getLogger(), logging.getLogger("mainstay")):
        monkeypatch.setattr(each, "handlers", [*logs.QUIET] * (each.name == "mainstay"))
    monkeypatch.setattr(target, "handlers", [*target.handlers, logging.NullHandler()])
    work = scripted(*[ConnectionError()] * 5, "up")

    async def fetch():
        return work()

    call = nothing(work) if colour == "sync" else lambda: asyncio.run(nothing(fetch)())
    with pytest.raises(ConnectionError):
        call()
    assert not {"attempt_failed", "makeRecord", "_send"} & set(costs(call))


def test_a_handler_that_calls_what_is_retried_logs_no_records_about_that(monkeypatch):
    """A handler that posts records to a dead server: its own call is retried, and not logged."""
    posted = []

    class Posting(logging.Handler):
        @POLICY.replace(backoff=Backoff.constant(0.0), max_attempts=2)
        def post(self, line):
            posted.append(line)
            if len(posted) < 100:  # or it would not end
                raise ConnectionError("the log server is down")

        def emit(self, record):
            with suppress(ConnectionError):
                self.post(record.mainstay["event_type"])

    monkeypatch.setattr(logging.getLogger(), "handlers", [Posting()])
    with virtual_time(), pytest.raises(ConnectionError):
        POLICY.replace(max_attempts=2).call(scripted(*[ConnectionError("down")] * 2))
    assert posted == ["retry_attempt"] * 2 + ["retry_exhausted"] * 2


@pytest.mark.parametrize("broken", ["handler", "filter"])
def test_a_log_that_raises_costs_no_call(monkeypatch, capsys, broken):
    """What a handler or a filter raises is printed, as logging does; the call is retried."""

    def fail(_record):
        raise RuntimeError("no request at hand")

    handler = logging.Handler()
    if broken == "filter":
        handler.addFilter(fail)
    handler.emit = fail
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    with virtual_time():
        by_decorator(POLICY)
    assert "RuntimeError: no request at hand" in capsys.readouterr().err


# --- in a program of its own ----------------------------------------------------------------------


def program(text, *flags):
    """What a program prints, both streams together."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(text)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


FAILING = """
    import mainstay
    from mainstay import Backoff, RetryPolicy
    POLICY = RetryPolicy(retry_on=ConnectionError, backoff=Backoff.constant(0.0))
    def fail():
        raise ConnectionError("down")
    @POLICY
    def fetch():
        fail()
    POLICY.run(fail)
    try:
        fetch()
    except ConnectionError:
        pass
"""


def test_without_a_handler_nothing_is_printed():
    """Neither by a decorator nor by an engine: logging's last resort has nothing to print."""
    more = """
    with mainstay.Engine(policies=[POLICY]) as engine:
        engine.run("default", fail)
    """
    assert program(FAILING) == ""
    assert program(FAILING + more) == ""


def test_a_failing_call_does_not_load_logging():
    """A program without logging has no handler, and does not pay for the module."""
    text = FAILING + "    import sys; print('logging' in sys.modules, 'msgspec' in sys.modules)"
    assert program(text).split() == ["False", "False"]


def test_logging_that_is_loaded_after_the_first_failure_is_found():
    """The loggers are looked for until they are there."""
    more = """
    import logging
    logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
    try:
        fetch()
    except ConnectionError:
        pass
    """
    lines = program(FAILING + more).splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["WARNING", "mainstay"], ["WARNING", "mainstay"], ["ERROR", "mainstay"],
    ]  # fmt: skip
