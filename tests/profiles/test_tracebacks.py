"""What a traceback shows of a call by a front door: two frames of ours at most, the function."""

import asyncio
import itertools
import traceback
from contextlib import suppress

import pytest
import trio

from mainstay import Backoff, BreakerSettings, Engine, Jitter, RetryPolicy, SagaStep
from mainstay.errors import CommandFailed, RetryError
from mainstay.profiles import agents, clients, control_plane, effects, pipelines
from mainstay.testing import virtual_time
from tests.drivers.test_tracebacks import afailing, assert_short, chained, failing, raised

FAST = RetryPolicy(
    name="standard", retry_on=OSError, backoff=Backoff.constant(0), jitter=Jitter.none()
)
NAMES = ("file", "network", "false")
ENGINE = Engine(sinks=[], policies=[FAST], operations=dict.fromkeys(NAMES, "standard"))
EXECUTOR = agents.RetryExecutor(ENGINE, escalate=False)
CIRCUIT = agents.CircuitBreaker(BreakerSettings(failure_threshold=1_000_000))
GUARDED = agents.RetryExecutor(ENGINE, escalate=False, circuit_breaker=CIRCUIT)
MANAGER = control_plane.RetryManager(sinks=[])
QUICK = control_plane.RetryPolicy(base_delay=0.0, max_delay=0.0, jitter_enabled=False)
FINAL = control_plane.RetryPolicy(non_retryable_exceptions=[OSError])
CONFIG = clients.RetryConfiguration(base_delay=0.0, max_delay=0.0, jitter=0.0)
CLIENT = clients.RetryDecorator(CONFIG)
BREAKER = clients.CircuitBreaker("traced", clients.CircuitBreakerConfiguration(1_000_000))
ORCHESTRATOR = effects.Orchestrator(effects.OrchestratorContract(max_retries=2), sinks=[])
KEYS = itertools.count()
FOLDER = {"ledgers": ".", "telemetry": "telemetry.json"}


def pipeline(function, **options):
    """A pipeline of one stage that is called once."""
    stage = pipelines.Stage("poll", function, idempotency="idempotent", max_attempts=1)
    return of_stage(stage, **options)


def of_stage(stage, **options):
    return pipelines.Pipeline(f"etl{next(KEYS)}", [stage], engine=ENGINE, **FOLDER, **options)


def datasets_by(function):
    return pipelines.Stage(
        "poll", print, idempotency="idempotent", max_attempts=1, datasets=function
    )


def halted(function):
    """A run that is halted, and resumed."""
    made, run = pipeline(function), f"r-{next(KEYS)}"
    with suppress(ConnectionError):
        made.run(run_id=run)
    return made.resume(run)


async def ahalted(function):
    made, run = pipeline(function), f"r-{next(KEYS)}"
    with suppress(ConnectionError):
        await made.arun(run_id=run)
    return await made.aresume(run)


def nats_client(function):
    """A client that cannot connect."""
    made = control_plane.NatsClient(MANAGER)
    made._open = lambda: function(1)
    return made


def compensated(function):
    with ORCHESTRATOR.compensation("create", undo=lambda: None):
        function(1)


async def acompensated(function):
    async with ORCHESTRATOR.compensation("create", undo=lambda: None):
        await function(1)


def effect(function):
    return effects.effect(kind="http", name=f"api{next(KEYS)}")(function)


def orchestrated(function):
    with virtual_time():
        return ORCHESTRATOR.execute(effect(function), 1)


SYNC_DOORS = {
    "execute": lambda f: EXECUTOR.execute(f, "network"),
    "execute by key": lambda f: EXECUTOR.execute(f, "network", key=str(next(KEYS))),
    "execute with a circuit": lambda f: GUARDED.execute(f, "network"),
    "executor.run": lambda f: raised(EXECUTOR.run(f, "network")),
    "file_operation": lambda f: agents.file_operation(f, 1),
    "file_operation of an engine": lambda f: agents.file_operation(
        f, 1, engine=ENGINE, escalate=False
    ),
    "decorator": lambda f: CLIENT(f)(1),
    "decorator with a circuit": lambda f: clients.RetryDecorator(CONFIG, BREAKER)(f)(1),
    "decorator.call": lambda f: CLIENT.call(f, 1),
    "decorator.run": lambda f: raised(CLIENT.run(f, 1)),
    "with_s3_retry": lambda f: clients.with_s3_retry(2, 0, 0, 0)(f)(1),
    "with_api_retry": lambda f: clients.with_api_retry(2, 0, 0, 0)(f)(1),
    "pipeline.run": lambda f: pipeline(f).run(),
    "pipeline.run beside others": lambda f: pipeline(f, max_parallel=2).run(),
    "pipeline.run of data sets": lambda f: of_stage(datasets_by(f)).run(),
    "pipeline.resume": halted,
    "orchestrator": lambda f: orchestrated(f).unwrap(),
    "effect": lambda f: effect(f)(1).unwrap(),
    "compensation": compensated,
}
ASYNC_DOORS = {
    "execute": lambda f: EXECUTOR.execute(f, "network"),
    "execute by key": lambda f: EXECUTOR.execute(f, "network", key=str(next(KEYS))),
    "execute with a circuit": lambda f: GUARDED.execute(f, "network"),
    "decorator": lambda f: CLIENT(f)(1),
    "decorator with a circuit": lambda f: clients.RetryDecorator(CONFIG, BREAKER)(f)(1),
    "decorator.acall": lambda f: CLIENT.acall(f, 1),
    "with_s3_retry": lambda f: clients.with_s3_retry(2, 0, 0, 0)(f)(1),
    "with_api_retry": lambda f: clients.with_api_retry(2, 0, 0, 0)(f)(1),
    "manager": lambda f: MANAGER.execute_with_retry("RETRY_KV_GET", "get", lambda: f(1), FINAL),
    "manager by key": lambda f: MANAGER.execute_with_retry(
        "RETRY_KV_GET", "get", lambda: f(1), FINAL, str(next(KEYS))
    ),
    "nats": lambda f: nats_client(f).publish("orders", policy=FINAL),
    "pipeline.arun": lambda f: pipeline(f).arun(),
    "pipeline.arun beside others": lambda f: pipeline(f, max_parallel=2).arun(),
    "pipeline.aresume": ahalted,
    "pipeline.arun of a plain function": lambda f: pipeline(failing).arun(),
    "pipeline.arun of data sets": lambda _: of_stage(datasets_by(failing)).arun(),
    "compensation": acompensated,
    "saga executor": lambda f: effects.SagaExecutor().execute([SagaStep("pay", f)], "c-1"),
}


def shows_the_function(error, *names):
    """Its own line is last, below at most two frames of ours."""
    assert_short(error)
    assert traceback.extract_tb(error.__traceback__)[-1].name in names


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("function", [failing, chained])
@pytest.mark.parametrize("door", SYNC_DOORS)
def test_a_door_shows_at_most_two_frames_of_ours(door, function):
    """As the other ways to call: the function's own line is last, also of a cause."""
    for _ in range(2):
        with pytest.raises(ConnectionError) as caught:
            SYNC_DOORS[door](function)
        shows_the_function(caught.value, function.__name__)
        assert isinstance(caught.value.__cause__, KeyError) == (function is chained)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("door", ASYNC_DOORS)
def test_an_async_door_shows_at_most_two_frames_of_ours(door, loop):
    """The same for coroutines, under both event loops."""

    async def main():
        await ASYNC_DOORS[door](afailing)

    for _ in range(2):
        with pytest.raises(ConnectionError) as caught:
            trio.run(main) if loop == "trio" else asyncio.run(main())
        shows_the_function(caught.value, "afailing", "failing")


def test_an_async_effect_shows_at_most_two_frames_of_ours():
    """What its result raises was raised by the function."""

    async def main():
        (await ORCHESTRATOR.execute(effect(afailing), 1)).unwrap()

    with virtual_time(), pytest.raises(ConnectionError) as caught:
        asyncio.run(main())
    shows_the_function(caught.value, "afailing")


def test_what_ran_out_of_retries_shows_at_most_two_frames_with_its_cause():
    """A RetryError, and the failure that it comes from."""

    async def by_manager():
        await MANAGER.execute_with_retry("RETRY_KV_GET", "get", lambda: afailing(1), QUICK)

    async def by_client():
        await nats_client(afailing).publish("orders", policy=QUICK)

    for call in (by_manager, by_client):
        with pytest.raises(RetryError) as caught:
            asyncio.run(call())
        shows_the_function(caught.value, "execute_with_retry")
        shows_the_function(caught.value.__cause__, "afailing")


@pytest.mark.parametrize("given", [{}, {"engine": ENGINE, "escalate": False}])
def test_tools_and_files_show_at_most_two_frames_of_ours(given):
    """There is no function of the user's: what is left is what raised it."""
    own = {} if given else {"policy": FAST}
    for call in (
        lambda: agents.run_tool(["false"], **given, **own),
        lambda: agents.run_tool(["false"], timeout=30.0, **given, **own),
        lambda: agents.read_file("missing", **given, **own),
        lambda: agents.write_file("missing/note", b"", **given, **own),
    ):
        with pytest.raises((CommandFailed, OSError)) as caught:
            call()
        assert_short(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: EXECUTOR.run_tool(["false"]),
        lambda: EXECUTOR.read_file("missing"),
        lambda: EXECUTOR.write_file("missing/note", b""),
    ],
)
def test_an_executors_tools_and_files_show_at_most_two_frames_of_ours(call):
    """The methods of an executor, which call the functions of the door."""
    with pytest.raises((CommandFailed, OSError)) as caught:
        call()
    assert_short(caught.value)
