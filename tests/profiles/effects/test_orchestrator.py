"""The orchestrator: who retries, how often, with which delays; its circuits, events and metrics."""

import asyncio

import pytest

from mainstay import ConfigError, Engine, NestedRetryError, PolicyError, UsageError, events
from mainstay.profiles import effects
from mainstay.profiles.effects import (
    EffectResult,
    HttpRetryConfig,
    InfraConnectionError,
    InfraTimeoutError,
    InfraUnavailableError,
    Orchestrator,
    OrchestratorContract,
    effect,
)
from mainstay.sinks.metrics.meter import Meter
from mainstay.testing import virtual_time

CONTRACT = """\
coordination_rules:
  max_retries: {total}
error_handling:
  retry_policy:
    max_retries: {each}
    initial_backoff_seconds: 1.0
    max_backoff_seconds: 60.0
    exponential_base: 2.0
"""


def scripted_effect(*outcomes, kind="database", **options):
    """An effect with these outcomes, one after the other; the last is repeated."""
    left, calls = list(outcomes), []

    @effect(kind=kind, **options)
    def work(*args, **kwargs):
        calls.append((args, kwargs))
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    work.calls = calls
    return work


@pytest.fixture
def contract(tmp_path):
    """The path of a contract with these numbers of retries."""

    def write(total, each):
        path = tmp_path / "contract.yaml"
        path.write_text(CONTRACT.format(total=total, each=each), encoding="utf-8")
        return path

    return write


@pytest.mark.req("EF-02", "EF-03")
@pytest.mark.parametrize(
    ("total", "each", "errors", "attempts"),
    [
        (3, 3, [InfraTimeoutError], 4),
        (0, 3, [InfraTimeoutError], 1),
        (5, 1, [InfraTimeoutError], 2),
        (5, 1, [InfraTimeoutError, InfraConnectionError, InfraUnavailableError], 4),
        (2, 1, [InfraTimeoutError, InfraConnectionError, InfraUnavailableError], 3),
    ],
)
def test_the_contract_caps_each_kind_of_error_and_their_sum(
    contract, total, each, errors, attempts
):
    """Decision 19: r retries are r + 1 attempts, of a kind and of all together."""
    work = scripted_effect(*[cls("failed") for cls in errors])
    with (
        virtual_time(),
        Orchestrator(contract(total, each), sinks=[], breaker=None) as orchestrator,
    ):
        result = orchestrator.execute(work)
    assert not result.success
    assert len(work.calls) == attempts


@pytest.mark.req("EF-03", "EF-06")
def test_the_delays_are_the_contracts(contract):
    """1 s, 2 s, 4 s, each plus or minus a quarter, whichever errors there are in between."""
    errors = [InfraTimeoutError("a"), InfraConnectionError("b"), InfraTimeoutError("c"), "row"]
    work = scripted_effect(*errors)
    with virtual_time() as time, Orchestrator(contract(3, 3), sinks=[]) as orchestrator:
        assert orchestrator.execute(work, 7, name="ann").value == "row"
    assert work.calls == [((7,), {"name": "ann"})] * 4
    assert all(0.75 * w <= s <= 1.25 * w for w, s in zip([1, 2, 4], time.sleeps, strict=True))


def test_without_a_contract_the_parameter_table_holds():
    """Three attempts."""
    work = scripted_effect(InfraTimeoutError("slow"))
    with virtual_time():
        Orchestrator(sinks=[]).execute(work)
    assert len(work.calls) == 3


@pytest.mark.req("EF-02")
def test_an_async_effect_is_retried_too():
    """Awaited; with the correlation id in its events, and its kind as their category."""
    seen, calls = [], []

    @effect(kind="kafka", name="broker-1")
    async def publish(topic, *, correlation_id):
        calls.append(topic)
        if len(calls) == 1:
            raise InfraConnectionError("leader election")
        return "acknowledged"

    async def main():
        with Orchestrator(sinks=[seen.append]) as orchestrator:
            return await orchestrator.execute(publish, "users", correlation_id=7)

    with virtual_time():
        assert asyncio.run(main()).value == "acknowledged"
    retry = next(event for event in seen if isinstance(event, events.RetryAttempt))
    assert (retry.operation, retry.retry_category, retry.correlation_id) == (
        "broker-1", "kafka", "7",
    )  # fmt: skip


@pytest.mark.req("EF-01", "EF-02")
def test_results_that_an_effect_makes_itself_are_decided_on():
    """By the error of the taxonomy that they name; one without it is unknown, and not retried."""
    retried = scripted_effect(
        EffectResult(success=False, error="timeout", error_type="InfraTimeoutError"),
        EffectResult(success=True, duration_ms=45.2),
    )
    unknown = scripted_effect(EffectResult(success=False, error="timeout"))
    with virtual_time():
        orchestrator = Orchestrator(sinks=[])
        assert orchestrator.execute(retried) == EffectResult(success=True, duration_ms=45.2)
        assert orchestrator.execute(unknown).error == "timeout"
    assert (len(retried.calls), len(unknown.calls)) == (2, 1)


def test_the_last_result_keeps_the_last_exception():
    """As it was raised."""
    errors = [InfraTimeoutError("first"), InfraConnectionError("second")]
    work = scripted_effect(*errors)
    with virtual_time():
        result = Orchestrator(OrchestratorContract(max_retries=1), sinks=[]).execute(work)
    assert result.exception is errors[1]
    assert (result.error, result.error_type) == ("second", "InfraConnectionError")


@pytest.mark.req("EF-02")
def test_a_retry_inside_an_effect_is_refused_also_here():
    """It is a mistake of the program, and no result."""
    inner = effects.EffectRetryConfig().policy()

    @effect(kind="http")
    def work():
        return inner.call(lambda: (_ for _ in ()).throw(InfraTimeoutError("slow")))

    with virtual_time(), pytest.raises(NestedRetryError):
        Orchestrator(sinks=[]).execute(work)


def test_an_unsafe_effect_is_called_once():
    """Whatever it fails with."""
    work = scripted_effect(InfraTimeoutError("slow"), idempotency="unsafe")
    with virtual_time():
        assert Orchestrator(sinks=[]).execute(work).error == "slow"
    assert len(work.calls) == 1


# --- settings of a kind ---------------------------------------------------------------------------


@pytest.mark.req("EF-07.settings")
def test_settings_are_of_their_kind(contract):
    """Attempts as far as the contract allows; other kinds have the contract's."""
    settings = [HttpRetryConfig(max_attempts=5, initial_delay_seconds=0.1)]
    free = Orchestrator(settings=settings, sinks=[])
    assert (free.policy("http").max_attempts, free.policy("vault").max_attempts) == (5, 3)
    assert free.policy("http").attempt_timeout == 40.0
    capped = Orchestrator(contract(2, 1), settings=settings, sinks=[])
    assert capped.policy("http").max_attempts == 3
    assert capped.policy("http").delay(1, 0.5) == 0.1


class Answer(Exception):
    """The failure of an HTTP client."""

    def __init__(self, status, **headers):
        super().__init__(f"status {status}")
        self.status_code, self.headers = status, headers


@pytest.mark.req("EF-07.settings")
@pytest.mark.parametrize(
    ("settings", "retried"),
    [
        (HttpRetryConfig(), {429, 500, 502, 503, 504}),
        (HttpRetryConfig(retry_on_status_codes=[418, 503]), {418, 503}),
    ],
)
def test_the_statuses_of_the_settings_are_retried(settings, retried):
    """And no others."""
    seen = set()
    with virtual_time():
        for status in [400, 401, 403, 404, 408, 409, 418, 425, 429, 500, 501, 502, 503, 504]:
            work = scripted_effect(Answer(status), kind="http")
            Orchestrator(settings=[settings], sinks=[], breaker=None).execute(work)
            seen |= {status} if len(work.calls) > 1 else set()
    assert seen == retried


def test_a_retry_after_is_waited_for():
    """What the exception of the client carries reaches the engine."""
    work = scripted_effect(Answer(429, **{"Retry-After": "20"}), "page", kind="http")
    with virtual_time() as time:
        Orchestrator(sinks=[]).execute(work)
    assert time.sleeps[0] >= 20.0


# --- circuits -------------------------------------------------------------------------------------


@pytest.mark.req("EF-11")
def test_five_failures_in_a_row_open_the_circuit_for_60_s():
    """Every failure counts before it is asked whether to retry; a success resets, and closes."""
    work = scripted_effect(*[ValueError("bug")] * 4, "row", *[ValueError("bug")] * 5, "row")
    with virtual_time() as time, Orchestrator(sinks=[]) as orchestrator:
        for _ in range(10):
            orchestrator.execute(work)
        refused = orchestrator.execute(work)
        assert (refused.error_type, len(work.calls)) == ("InfraUnavailableError", 10)
        assert refused.exception.retry_after == 60.0
        time.advance(60.0)
        assert orchestrator.execute(work).value == "row"
        assert orchestrator.engine.breaker(refused.exception.operation).state.name == "CLOSED"


@pytest.mark.req("EF-11")
def test_the_circuit_is_asked_again_before_each_retry():
    """The fifth failure opens it: there is no sixth attempt, though the policy has more."""
    work = scripted_effect(InfraUnavailableError("down"))
    with virtual_time(), Orchestrator(OrchestratorContract(max_retries=9), sinks=[]) as made:
        result = made.execute(work)
    assert len(work.calls) == 5
    assert result.exception.args == ("down",)


def test_effects_of_one_name_share_a_circuit():
    """As those on one service do."""
    bad = scripted_effect(ValueError("bug"), name="pg")
    good = scripted_effect("row", name="pg")
    with virtual_time(), Orchestrator(sinks=[]) as orchestrator:
        for _ in range(5):
            orchestrator.execute(bad)
        assert not orchestrator.execute(good).success
    assert good.calls == []


def test_an_engine_of_the_users_is_used_and_left_open():
    """With its own circuits, sinks and store."""
    seen = []
    with Engine(sinks=[seen.append]) as engine:
        with Orchestrator(engine=engine) as orchestrator:
            assert orchestrator.execute(scripted_effect("row")).value == "row"
        assert engine.call("parse", int, "7") == 7
    assert seen


# --- metrics --------------------------------------------------------------------------------------


class Counts(Meter):
    """Keeps what is added, by name and labels."""

    def __init__(self):
        super().__init__(100, 60.0)
        self.added = {}

    def _adder(self, metric, labels):
        def add(amount):
            self.added.setdefault(metric.name, {}).setdefault(labels, []).append(amount)

        return add


@pytest.mark.req("EF-12")
def test_retries_are_counted_by_the_kind_of_the_effect():
    """The labels of the document: effect type, attempt, outcome."""
    counts = Counts()
    work = scripted_effect(InfraTimeoutError("a"), InfraTimeoutError("b"), "row", kind="vault")
    with virtual_time() as time:
        Orchestrator(sinks=[counts]).execute(work)
    assert counts.added["effect_retry_total"] == {
        ("vault", "2", "failure"): [1.0],
        ("vault", "3", "success"): [1.0],
    }
    assert counts.added["effect_retry_delay_seconds"] == {("vault",): pytest.approx(time.sleeps)}


@pytest.mark.req("EF-12")
@pytest.mark.parametrize("undo_fails", [False, True])
def test_partial_failures_and_compensations_of_the_plain_executor_are_counted(undo_fails):
    """If a step was applied before; each compensation with its outcome."""
    counts = Counts()
    executor = effects.SagaExecutor("transfer", sinks=[counts])

    async def act():
        return None

    async def fail():
        raise OSError("down")

    undo = fail if undo_fails else act
    steps = [effects.SagaStep("debit", act, undo), effects.SagaStep("credit", fail, act)]
    with pytest.raises((OSError, effects.CompensationFailedError)):
        asyncio.run(executor.execute(steps, "c-1"))
    with pytest.raises(OSError, match="down"):
        asyncio.run(executor.execute(steps[1:], "c-2"))  # nothing was applied
    assert counts.added == {
        "effect_partial_failure_total": {("transfer",): [1.0]},
        "effect_compensation_total": {("transfer", "failure" if undo_fails else "success"): [1.0]},
    }


# --- what is wrong --------------------------------------------------------------------------------


def test_what_is_no_effect_is_refused():
    """With what to do."""
    with pytest.raises(UsageError, match="@effect"):
        Orchestrator(sinks=[]).execute(len, "abc")


def test_a_wrong_orchestrator_is_refused(tmp_path):
    """All problems at once; a contract with file and line."""
    with pytest.raises(PolicyError) as refused:
        Orchestrator(settings=["http"], engine="mine", sinks=[])
    assert {p.field for p in refused.value.problems} == {"settings", "engine", "options"}
    with pytest.raises(PolicyError, match="two for http"):
        Orchestrator(settings=[HttpRetryConfig(), HttpRetryConfig(max_attempts=5)])
    with pytest.raises(PolicyError, match="kind"):
        Orchestrator(sinks=[]).policy("floppy")
    with pytest.raises(UsageError, match="contract = 7"):
        Orchestrator(7)
    assert Orchestrator(settings=HttpRetryConfig(max_attempts=7)).policy("http").max_attempts == 7
    path = tmp_path / "contract.yaml"
    path.write_text("error_handling:\n  retry_policy:\n    max_retries: many\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"contract.yaml:3: error_handling.retry_policy.max_retr"):
        Orchestrator(path)
