"""What an engine has reaches the front doors: policies by operation, circuits, log, audit."""

import logging

import pytest

from mainstay import Backoff, BreakerSettings, Engine, Jitter, RetryPolicy
from mainstay.core.effects.contract import OrchestratorContract
from mainstay.errors import CircuitOpenError, CommandFailed, PolicyError
from mainstay.profiles import agents, clients
from mainstay.profiles.effects import DatabaseRetryConfig, Orchestrator, effect
from mainstay.testing import virtual_time

ONCE = RetryPolicy(name="once", max_attempts=1)
QUICK = RetryPolicy(
    name="quick", max_attempts=2, retry_on=CommandFailed, backoff=Backoff.constant(0),
    jitter=Jitter.none(),
)  # fmt: skip


@effect(kind="database", name="orders.read")
def failing_effect():
    raise ConnectionError("down")


@effect(kind="database", name="orders.charge", idempotency="unsafe")
def unsafe_effect():
    raise ConnectionError("down")


def counted(made, called=failing_effect):
    """How often an orchestrator on an engine of its own calls an effect."""
    events = []
    with virtual_time(), made([events.append]) as orchestrator:
        orchestrator.execute(called)
    return sum(event.event_type == "attempt_failed" for event in events)


def engine_of(sinks, **options):
    return Engine(sinks=sinks, policies=[ONCE, QUICK], operations={"orders.*": "once"}, **options)


def test_the_policies_of_an_engine_reach_an_orchestrator():
    """What an engine maps wins over the parameter table; an effect that is not mapped has that."""
    assert counted(lambda sinks: Orchestrator(sinks=sinks)) > 1
    assert counted(lambda sinks: Orchestrator(engine=engine_of(sinks))) == 1
    own = effect(kind="database", name="users.read")(_down)
    with pytest.warns(match="mapped to no policy"):
        Engine(sinks=[], policies=[ONCE], operations={"orders.*": "once"}).policies.of("users.read")
    assert counted(lambda sinks: Orchestrator(engine=engine_of(sinks)), own) == 3


def _down():
    raise ConnectionError("down")


def test_what_an_orchestrator_is_given_wins_over_the_engine():
    """A contract, or settings of the effect's kind; an unsafe effect is called once in any case."""
    contract = OrchestratorContract(max_retries=1)
    settings = DatabaseRetryConfig(max_attempts=3)
    assert counted(lambda sinks: Orchestrator(contract, engine=engine_of(sinks))) == 2
    assert counted(lambda sinks: Orchestrator(settings=settings, engine=engine_of(sinks))) == 3
    mapped = {"policies": [QUICK], "operations": {"orders.*": "quick"}, "sinks": []}
    made = Orchestrator(engine=Engine(**mapped))._operation(unsafe_effect.mainstay_effect)
    assert (made.policy.name, made.policy.max_attempts) == ("quick", 1)


def levels_of(caplog):
    """The levels of the retries in a log."""
    return {each.levelname for each in caplog.records if "next in" in each.getMessage()}


def test_an_orchestrator_has_a_log_level(caplog):
    """Retries are logged at it; a wrong one is refused at once."""
    caplog.set_level(logging.DEBUG, "mainstay")
    with (
        virtual_time(),
        Orchestrator(OrchestratorContract(max_retries=1), log_level="INFO") as made,
    ):
        made.execute(failing_effect)
    assert levels_of(caplog) == {"INFO"}
    with pytest.raises(PolicyError, match="log_level"):
        Orchestrator(log_level="LOUD")


@pytest.mark.usefixtures("logged")
def test_tools_and_files_are_logged_by_their_names(caplog, tmp_path):
    """Without an engine, too: a tool by its command, a file as "file", or as `operation` has it."""
    caplog.set_level(logging.DEBUG, "mainstay")

    def operations():
        found = {each.mainstay["operation"] for each in caplog.records if hasattr(each, "mainstay")}
        caplog.clear()
        return found

    for command, options in ((["false"], {}), (["sh", "-c", "exit 3"], {"operation": "report"})):
        with pytest.raises(CommandFailed):
            agents.run_tool(command, policy=QUICK, **options)
        assert operations() == {options.get("operation", command[0])}
    with pytest.raises(FileNotFoundError):
        agents.read_file(tmp_path / "missing")
    assert operations() == {"file"}
    with pytest.raises(FileNotFoundError):
        agents.write_file(tmp_path / "missing" / "note", b"", operation="notes")
    assert operations() == {"notes"}


def test_a_policy_that_a_tool_is_given_wins_over_the_engine(tmp_path):
    """Without one the engine's decides, as for any operation."""
    events = []
    given = {"engine": Engine(sinks=[events.append], policies=[ONCE], operations={"*": "once"})}
    for call in (
        lambda **options: agents.run_tool(["false"], escalate=False, **given, **options),
        lambda **options: agents.read_file(tmp_path / "no", escalate=False, **given, **options),
        lambda **options: agents.write_file(
            tmp_path / "no" / "note", b"", escalate=False, **given, **options
        ),
    ):
        for options, attempts in (({}, 1), ({"policy": QUICK.replace(retry_on=Exception)}, 2)):
            events.clear()
            with pytest.raises((CommandFailed, OSError)):
                call(**options)
            assert sum(event.event_type == "attempt_failed" for event in events) == attempts


WITH = [clients.with_s3_retry, clients.with_api_retry]


class UnavailableError(ConnectionError):
    status_code = 503


def down():
    raise UnavailableError("down")


def attempts_of(decorator, call=lambda decorator: decorator(down)()):
    with virtual_time(), pytest.raises(ConnectionError):
        call(decorator)
    return decorator.attempt_counter.total()


@pytest.mark.usefixtures("logged")
@pytest.mark.parametrize("made", WITH)
def test_the_decorators_of_clients_have_a_log_level_and_a_circuit(made, caplog):
    """As a RetryDecorator has them."""
    caplog.set_level(logging.DEBUG, "mainstay")
    assert attempts_of(made(2, log_level="INFO")) == 2
    assert levels_of(caplog) == {"INFO"}
    settings = clients.CircuitBreakerConfiguration(failure_threshold=2)
    guarded = made(2, circuit_breaker=clients.CircuitBreaker("orders", settings))
    attempts_of(guarded)
    with pytest.raises(clients.CircuitOpenException):
        guarded(down)()
    with pytest.raises(PolicyError, match="log_level"):
        made(log_level="LOUD")


@pytest.mark.parametrize("made", [*WITH, clients.RetryDecorator])
def test_the_policies_and_the_sinks_of_an_engine_reach_the_decorators_of_clients(made):
    """By the function's name, or by the one that is given; what is given wins over a mapping."""
    events = []
    engine = Engine(
        sinks=[events.append], policies=[ONCE], operations={"down": "once", "orders.*": "once"}
    )
    assert attempts_of(made(engine=engine)) == 1
    assert {event.operation for event in events} == {"down"}
    events.clear()
    named = made(engine=engine, operation="orders.read")
    assert attempts_of(named) == 1
    assert attempts_of(named, lambda each: each.call(down)) == 2
    assert {event.operation for event in events} == {"orders.read"}
    assert attempts_of(made(engine=engine, operation="users.read")) > 1
    own = clients.RetryConfiguration(max_attempts=2)
    given = {"config": own} if made is clients.RetryDecorator else {"max_attempts": 2}
    assert attempts_of(made(**given, engine=engine, operation="orders.read")) == 2


@pytest.mark.parametrize("made", [*WITH, clients.RetryDecorator])
def test_the_circuits_of_an_engine_and_of_a_decorator_guard_a_client(made):
    """Both: either of them refuses a call."""
    engine = Engine(sinks=[], breaker=BreakerSettings(failure_threshold=2))
    settings = clients.CircuitBreakerConfiguration(failure_threshold=2)
    own = clients.CircuitBreaker("own", settings)
    function = made(engine=engine, operation="orders", circuit_breaker=own)(down)
    with virtual_time(), pytest.raises((ConnectionError, CircuitOpenError)):
        function()
    assert not own.allow_request()
    assert [each.state.name for each in engine.circuits.of("orders")] == ["OPEN"]
    own.reset()
    with pytest.raises(CircuitOpenError, match="orders"):
        function()


def test_what_is_no_engine_is_refused():
    """All problems at once."""
    with pytest.raises(PolicyError, match=r"(?s)engine.*operation"):
        clients.with_api_retry(engine="memory://", operation="")
