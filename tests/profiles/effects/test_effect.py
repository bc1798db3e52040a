"""`@effect`, the taxonomy of errors with its context, and what is worth retrying."""

import asyncio
import inspect
import pickle
from uuid import UUID

import pytest

import mainstay
from mainstay import ConfigError, NestedRetryError, PolicyError
from mainstay.core.codec.exceptions import read_failure, record_failure
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.profiles import effects
from mainstay.profiles.effects import (
    EffectRetryConfig,
    EnumInfraTransportType,
    InfraConnectionError,
    InfraDataIntegrityError,
    InfraError,
    InfraTimeoutError,
    ModelInfraErrorContext,
    effect,
    infra_error,
    is_retryable,
)
from mainstay.testing import virtual_time

WHO = UUID(int=7)
CONTEXT = ModelInfraErrorContext(
    transport_type=EnumInfraTransportType.KAFKA, operation="publish", target_name="broker-1",
    correlation_id=WHO,
)  # fmt: skip
ERRORS = {
    effects.InfraConnectionError: (True, Kind.TRANSIENT),
    effects.InfraTimeoutError: (True, Kind.TIMEOUT),
    effects.InfraUnavailableError: (True, Kind.OVERLOAD),
    effects.InfraDataIntegrityError: (False, Kind.PERMANENT),
    effects.InfraAuthenticationError: (False, Kind.AUTH),
    effects.ProtocolConfigurationError: (False, Kind.PERMANENT),
    effects.SecretResolutionError: (False, Kind.PERMANENT),
}


@pytest.mark.req("EF-05.tables")
@pytest.mark.parametrize(("cls", "expected"), ERRORS.items())
def test_an_error_of_the_taxonomy_is_retried_or_is_not(cls, expected):
    """By `is_retryable`, by the policies of the door, and by any other policy."""
    retried, kind = expected
    error = cls("failed")
    assert is_retryable(error) is retried
    assert kind_of(error).kind is kind
    for policy in (EffectRetryConfig().policy(), mainstay.RetryPolicy()):
        assert policy.classification(error).retryable is retried
    named = mainstay.RetryPolicy(retry_on=mainstay.transient)
    assert named.classification(error).retryable is retried


@pytest.mark.req("EF-05.unknown")
@pytest.mark.parametrize("error", [Exception("?"), RuntimeError("?"), ValueError("?"), KeyError()])
def test_an_unknown_error_is_not_retried(error):
    """Neither by the function, nor by a policy of the door, nor by an orchestrator."""
    calls = []

    @effect(kind="http")
    def work():
        calls.append(1)
        raise error

    assert not is_retryable(error)
    assert not EffectRetryConfig().policy().classification(error).retryable
    with virtual_time():
        assert effects.Orchestrator(sinks=[]).execute(work).exception is error
    assert calls == [1]


class Answer(Exception):
    """The failure of an HTTP client."""

    def __init__(self, status, **headers):
        super().__init__(f"status {status}")
        self.status_code, self.headers = status, headers


@pytest.mark.req("EF-05.tables")
def test_the_taxonomy_and_the_policy_agree_on_every_status():
    """What is_retryable answers for the error of the taxonomy is what is retried (decision 12)."""
    policy = EffectRetryConfig().policy()
    retried = set()
    for status in range(400, 600):
        error = Answer(status)
        verdict = policy.classification(error).retryable
        assert is_retryable(infra_error(error)) is verdict, status
        retried |= {status} if verdict else set()
    assert retried == {429, 500, 502, 503, 504}


@pytest.mark.req("EF-05.context")
def test_an_error_carries_its_context():
    """And what else is given, by its name."""
    error = InfraTimeoutError("no answer", context=CONTEXT, timeout_seconds=30.0)
    assert str(error) == "no answer"
    assert (error.context.target_name, error.correlation_id) == ("broker-1", WHO)
    assert error.timeout_seconds == 30.0
    assert InfraTimeoutError("no answer").correlation_id is None
    with pytest.raises(PolicyError, match="ModelInfraErrorContext"):
        InfraTimeoutError("no answer", context={"operation": "publish"})


@pytest.mark.req("EF-05.context")
def test_an_exception_of_a_library_becomes_an_error_of_the_taxonomy():
    """Raised from it, with the context and the wait that was asked for."""
    refused = ConnectionRefusedError("port 5432")
    error = infra_error(refused, CONTEXT)
    assert type(error) is InfraConnectionError
    assert (error.__cause__, error.context) == (refused, CONTEXT)
    busy = infra_error(Answer(429, **{"Retry-After": "7"}))
    assert (type(busy), busy.retry_after) == (InfraConnectionError, 7.0)
    own = InfraDataIntegrityError("duplicate key")
    assert infra_error(own, CONTEXT) is own
    assert own.context is CONTEXT
    assert infra_error(infra_error(own)).context is CONTEXT
    bug = TypeError("?")
    assert infra_error(bug, CONTEXT) is bug


@pytest.mark.req("EF-05.context")
@pytest.mark.parametrize("cls", ERRORS)
def test_an_error_survives_a_pickle_and_a_record(cls):
    """With its class, its words and its context."""
    error = cls("failed", context=CONTEXT)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.context) == (cls, "failed", CONTEXT)
    record = record_failure(error)
    assert record["type"] == ["mainstay.profiles.effects", cls.__name__]
    again = read_failure(record)
    assert (type(again), str(again), again.context) == (cls, "failed", CONTEXT)


def test_an_open_circuit_is_both_errors():
    """The document's and the engine's, with the time after which it may be asked again."""
    error = effects.InfraCircuitOpenError("pg", retry_after=12.0, context=CONTEXT)
    assert isinstance(error, effects.InfraUnavailableError)
    assert isinstance(error, mainstay.CircuitOpenError)
    assert (error.retry_after, error.operation, error.context) == (12.0, "pg", CONTEXT)
    assert is_retryable(error)
    assert kind_of(error).kind is Kind.OVERLOAD
    assert pickle.loads(pickle.dumps(error)).retry_after == 12.0


# --- @effect --------------------------------------------------------------------------------------


@pytest.mark.req("EF-01")
@pytest.mark.parametrize("kind", [*EnumInfraTransportType, "database"])
def test_an_effect_has_a_kind(kind):
    """By its member or its value."""

    @effect(kind=kind)
    def work(a, *, b=2):
        """Adds."""
        return a + b

    assert work(1, b=4).value == 5
    assert (work.__name__, work.__doc__) == ("work", "Adds.")
    assert list(inspect.signature(work).parameters) == ["a", "b"]


@pytest.mark.req("EF-01")
def test_an_async_effect_is_awaited():
    """It stays a coroutine function."""

    @effect(kind="kafka")
    async def publish(topic):
        raise InfraTimeoutError(f"{topic}: no acknowledgement")

    assert inspect.iscoroutinefunction(publish)
    result = asyncio.run(publish("users"))
    assert (result.success, result.error_type) == (False, "InfraTimeoutError")
    assert result.duration_ms >= 0.0


@pytest.mark.req("EF-01", "EF-02")
def test_a_retry_inside_an_effect_is_refused():
    """Also of a client that the effect calls."""

    @mainstay.retry(on=OSError, attempts=3)
    def fetch():
        raise OSError("down")

    @effect(kind="http")
    def work():
        return fetch()

    with virtual_time(), pytest.raises(NestedRetryError, match="fetch retries inside"):
        work()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "floppy"}, "kind"),
        ({"kind": None}, "kind"),
        ({"kind": "http", "name": " "}, "name"),
        ({"kind": "http", "idempotency": "maybe"}, "idempotency"),
    ],
)
def test_a_wrong_declaration_is_refused(given, words):
    """By the name of the argument."""
    with pytest.raises(PolicyError, match=words):
        effect(**given)


@pytest.mark.req("EF-03")
def test_a_contract_with_retries_is_refused_when_the_effect_is_declared(tmp_path):
    """With file and line."""
    path = tmp_path / "contract.yaml"
    path.write_text("name: insert\nerror_handling:\n  retry_policy:\n    max_retries: 3\n")
    with pytest.raises(ConfigError, match=r"contract.yaml:3.*orchestrator"):
        effect(kind="database", contract=path)
    path.write_text("name: insert\n")
    assert effect(kind="database", contract=path)(lambda: 7)().value == 7


def test_the_base_class_is_known_as_such():
    """Nothing raises it; it is not retried."""
    assert not is_retryable(InfraError("?"))
    assert kind_of(InfraError("?")).kind is Kind.UNKNOWN
