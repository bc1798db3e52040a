"""Results, contexts, the taxonomy and the settings of effects: data in, decisions out."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.validate import Checker
from mainstay.core.effects.contract import OrchestratorContract, kind_fields
from mainstay.core.effects.result import EffectResult, result_of
from mainstay.core.effects.settings import (
    attempt_timeout,
    by_kind,
    client_options,
    curve,
    policy_fields,
    seconds_given,
    status_fields,
)
from mainstay.core.effects.taxonomy import FINAL, RETRYABLE, STATUSES, infra_name
from mainstay.core.effects.transport import (
    EnumInfraTransportType,
    ModelInfraErrorContext,
    transport_of,
)
from mainstay.core.known.http import STATUS_KINDS
from mainstay.core.known.kind import Kind
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.table import Row, Table
from mainstay.core.retry.policy import Policy
from mainstay.errors import DependencyError, PolicyError, UsageError

# --- results --------------------------------------------------------------------------------------


@pytest.mark.req("EF-01")
def test_a_result_has_success_error_and_duration_and_no_number_of_retries():
    """As the document has it; the field `retries` was removed from there."""
    result = EffectResult(success=False, error="timeout")
    assert (result.success, result.error, result.duration_ms) == (False, "timeout", 0.0)
    assert EffectResult(success=True, duration_ms=45.2).duration_ms == 45.2
    assert not hasattr(result, "retries")


@pytest.mark.req("EF-01")
def test_unwrapping_gives_the_value_or_raises_what_was_raised():
    """The same object; without one, an error with the words of the result."""
    error = OSError("no route")
    assert EffectResult(success=True, value=7).unwrap() == 7
    with pytest.raises(OSError) as raised:
        EffectResult(success=False, error="no route", exception=error).unwrap()
    assert raised.value is error
    with pytest.raises(DependencyError, match="the effect has failed: timeout"):
        EffectResult(success=False, error="timeout").unwrap()
    with pytest.raises(DependencyError, match="without a reason"):
        EffectResult(success=False).unwrap()


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"success": "yes"}, {"success"}),
        ({"success": True, "error": "timeout"}, {"success"}),
        ({"success": True, "exception": OSError()}, {"success"}),
        ({"success": False, "error": OSError()}, {"error"}),
        ({"success": False, "duration_ms": -1.0}, {"duration_ms"}),
        ({"success": None, "duration_ms": "1", "error_type": 7, "exception": "x"},
         {"success", "duration_ms", "error_type", "exception"}),
    ],
)  # fmt: skip
def test_a_result_that_contradicts_itself_is_refused(fields, wrong):
    """All problems at once."""
    with pytest.raises(PolicyError) as refused:
        EffectResult(**fields)
    assert {problem.field for problem in refused.value.problems} == wrong


@given(st.integers() | st.none() | st.text(), st.floats(0.0, 1e6))
def test_what_a_function_returns_is_the_value(value, duration):
    """A result that it made itself is taken, and gets the time if it has none."""
    assert result_of(value, duration) == EffectResult(True, None, duration, value)
    own = EffectResult(success=False, error="timeout")
    assert result_of(own, duration) == replace(own, duration_ms=duration)
    assert result_of(replace(own, duration_ms=3.0), duration).duration_ms == 3.0


# --- transports and contexts ----------------------------------------------------------------------


@pytest.mark.req("EF-05.context")
def test_a_context_names_transport_operation_target_and_request():
    """Each of them may be left out."""
    kafka = ModelInfraErrorContext(
        transport_type="kafka", operation="publish", target_name="broker", correlation_id="c-1"
    )
    assert kafka.transport_type is EnumInfraTransportType.KAFKA
    assert str(kafka) == "kafka, operation publish, target broker, request c-1"
    assert str(ModelInfraErrorContext()) == ""
    assert str(kafka.transport_type) == "kafka"


@pytest.mark.req("EF-05.context")
def test_a_wrong_context_is_refused():
    """The transport by the kinds there are."""
    with pytest.raises(PolicyError, match="one of database, kafka, http, vault, consul"):
        ModelInfraErrorContext(transport_type="floppy")
    with pytest.raises(PolicyError) as refused:
        ModelInfraErrorContext(operation=7, target_name=8)
    assert len(refused.value.problems) == 2
    assert transport_of(EnumInfraTransportType.VAULT) is EnumInfraTransportType.VAULT


# --- the taxonomy ---------------------------------------------------------------------------------


class Answer(Exception):
    """The failure of an HTTP client."""

    def __init__(self, status):
        super().__init__(status)
        self.status_code = status


def of_class(name, *bases, **attributes):
    """An exception of a class of that name, as a library would raise it."""
    module, _, own = name.rpartition(".")
    error = type(own, bases or (Exception,), {"__module__": module})()
    vars(error).update(attributes)
    return error


@pytest.mark.req("EF-05.tables")
@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ConnectionRefusedError(), "InfraConnectionError"),
        (ConnectionResetError(), "InfraConnectionError"),
        (TimeoutError(), "InfraTimeoutError"),
        (PermissionError(), "InfraAuthenticationError"),
        (of_class("psycopg.errors.UniqueViolation", type("IntegrityError", (Exception,), {})),
         "InfraDataIntegrityError"),
        (of_class("asyncpg.exceptions.IntegrityConstraintViolationError"),
         "InfraDataIntegrityError"),
        (of_class("hvac.exceptions.InvalidPath"), "SecretResolutionError"),
        (of_class("consul.exceptions.NotFound"), "SecretResolutionError"),
        (of_class("cryptography.fernet.InvalidToken"), "InfraAuthenticationError"),
        (ValueError(), ""),
        (KeyError(), ""),
        (RuntimeError(), ""),
    ],
)  # fmt: skip
def test_a_failure_is_an_error_of_the_taxonomy_or_none(error, name):
    """By class or kind; a mistake of the program stays what it is."""
    assert infra_name(error) == name


@pytest.mark.req("EF-05.tables")
def test_statuses_decide_before_anything_else():
    """Those of decision 12 are retried, and no others."""
    found = {status: infra_name(Answer(status)) for status in range(400, 600)}
    assert {status for status, name in found.items() if name in RETRYABLE} == set(STATUSES)
    assert found[404] == "SecretResolutionError"
    assert (found[408], found[418]) == ("", "")
    assert set(found.values()) - {""} <= {*RETRYABLE, *FINAL}


def test_what_a_table_has_as_permanent_is_a_wrong_configuration():
    """What no table knows is not."""
    row = Row(Kind.PERMANENT, "the table does not exist")
    REGISTRY.register(Table("shop", {"shop.NoSuchTable": row}, packages=("shop",)))
    try:
        assert infra_name(of_class("shop.NoSuchTable")) == "ProtocolConfigurationError"
    finally:
        REGISTRY.unregister("shop")


# --- settings -------------------------------------------------------------------------------------

DATABASE = SimpleNamespace(
    kind="database", max_attempts=3, initial_delay_seconds=0.5, max_delay_seconds=30.0,
    exponential_base=2.0, connection_timeout_seconds=2.4, query_timeout_seconds=1.5,
)  # fmt: skip
KAFKA = SimpleNamespace(kind="kafka", producer_timeout_ms=30_000, delivery_timeout_ms=20_000)
HTTP = SimpleNamespace(kind="http", connect_timeout_seconds=3.0, read_timeout_seconds=5.0)
VAULT = SimpleNamespace(
    kind="vault", max_attempts=3, initial_backoff_seconds=0.1, max_backoff_seconds=10.0,
    exponential_base=2.0, attempt_timeout_seconds=4.0,
)  # fmt: skip
CONSUL = SimpleNamespace(kind="consul", attempt_timeout_seconds=6.0)


@pytest.mark.req("EF-07.settings")
@pytest.mark.parametrize(
    ("settings", "library", "options"),
    [
        (DATABASE, "psycopg", {"connect_timeout": 3, "options": "-c statement_timeout=1500"}),
        (DATABASE, "asyncpg", {"timeout": 2.4, "command_timeout": 1.5}),
        (DATABASE, "sqlalchemy", {
            "connect_args": {"connect_timeout": 3, "options": "-c statement_timeout=1500"},
            "pool_timeout": 2.4}),
        (KAFKA, "confluent_kafka", {
            "request.timeout.ms": 20_000, "socket.timeout.ms": 20_000,
            "delivery.timeout.ms": 20_000}),
        (KAFKA, "aiokafka", {"request_timeout_ms": 20_000}),
        (HTTP, "httpx", {"timeout": (3.0, 5.0, 5.0, 3.0)}),
        (HTTP, "requests", {"timeout": (3.0, 5.0)}),
        (VAULT, "hvac", {"timeout": 4.0}),
        (CONSUL, "consul", {"connections_timeout": 6.0}),
    ],
)  # fmt: skip
def test_each_library_has_its_own_words_for_a_timeout(settings, library, options):
    """Libpq takes whole seconds, rounded up, and at least two."""
    assert client_options(settings, library) == options


def test_a_library_that_is_not_known_is_named_with_those_that_are():
    """Of that kind."""
    with pytest.raises(UsageError, match="known libraries: psycopg, asyncpg, sqlalchemy"):
        client_options(DATABASE, "httpx")


@pytest.mark.req("EF-07.settings")
def test_one_attempt_may_take_as_long_as_its_timeouts_together():
    """Connecting and the query; Kafka's delivery; the attempt timeout of Vault and Consul."""
    found = [attempt_timeout(each) for each in (DATABASE, KAFKA, HTTP, VAULT, CONSUL)]
    assert found == pytest.approx([3.9, 20.0, 8.0, 4.0, 6.0])


@pytest.mark.req("EF-07.settings")
def test_settings_are_the_fields_of_a_policy():
    """Delays under either name."""
    policy = Policy(**policy_fields(VAULT))
    assert (policy.max_attempts, policy.attempt_timeout) == (3, 4.0)
    assert policy.delay(1, 0.5) == 0.1
    assert Policy(**policy_fields(DATABASE)).delay(1, 0.5) == 0.5


def model(kind):
    """Settings of a kind, as far as an orchestrator looks at them."""
    return SimpleNamespace(kind=kind, client_options=client_options)


def test_settings_are_found_by_their_kind():
    """One model, or several."""
    http, vault = model("http"), model("vault")
    check = Checker("Orchestrator")
    assert by_kind(check, http) == {"http": http}
    assert by_kind(check, iter([http, vault])) == {"http": http, "vault": vault}
    check.close()


def test_what_is_no_model_and_a_kind_twice_are_problems():
    """All of them."""
    check = Checker("Orchestrator")
    by_kind(check, [model("http"), model("http"), "vault", None])
    by_kind(check, 7)
    assert [problem.field for problem in check.problems] == ["settings"] * 4
    assert "two for http" in str(check.problems[0])


@given(st.sets(st.integers(400, 599), max_size=8))
def test_the_statuses_of_the_settings_are_retried_and_no_others(statuses):
    """Whichever they are, apart from authentication, which is never retried by a kind."""
    policy = Policy(**status_fields(statuses))
    for status in {*statuses, *STATUS_KINDS, 404, 418}:
        verdict = policy.classification(Answer(status))
        assert verdict.retryable is (status in statuses), status


@given(st.floats(0.01, 60.0), st.floats(1.5, 4.0), st.floats(1.0, 300.0), st.integers(1, 30))
def test_the_curve_is_capped_from_the_first_delay_on(initial, base, most, n):
    """`min(initial × base^attempt, most)`."""
    assert curve(initial, base, most).base(n) == pytest.approx(min(initial * base ** (n - 1), most))


def test_a_delay_that_is_no_number_is_refused():
    """Taking the lower of two values hides no wrong one."""
    with pytest.raises(PolicyError):
        curve("1", 2.0, 60.0)


# --- contracts ------------------------------------------------------------------------------------


@pytest.mark.req("EF-03")
@pytest.mark.parametrize(
    ("each", "together", "attempts", "of_a_kind"),
    [(3, 3, 4, None), (3, None, 4, None), (1, 3, 4, 2), (5, 2, 3, None), (0, 0, 1, None),
     (0, 2, 3, 1)],
)  # fmt: skip
def test_retries_are_one_less_than_attempts(each, together, attempts, of_a_kind):
    """Decision 19: one number caps each kind of error, the other their sum."""
    fields = OrchestratorContract(max_retries=each, total_retries=together).policy_fields()
    policy = Policy(**fields)
    assert policy.max_attempts == attempts
    rules = policy.per_kind or {}
    assert {rule.max_attempts for rule in rules.values()} == (
        set() if of_a_kind is None else {of_a_kind}
    )


def test_a_kind_has_the_policy_of_its_settings_or_else_of_the_contract():
    """Settings are capped at the attempts that the contract allows in all."""
    contract = OrchestratorContract(max_retries=1)
    own = policy_fields(DATABASE)
    assert kind_fields(DATABASE, contract, 99) == own
    assert kind_fields(DATABASE, contract, 2) == {**own, "max_attempts": 2}
    assert kind_fields(None, contract, 1) == {**contract.policy_fields(), **status_fields(STATUSES)}


@pytest.mark.req("EF-03", "EF-04")
def test_a_contract_has_the_bounds_of_the_parameter_table():
    """All problems at once."""
    with pytest.raises(PolicyError) as refused:
        OrchestratorContract(
            max_retries=10, total_retries=-1, initial_backoff_seconds=0.0,
            max_backoff_seconds=301.0, exponential_base=1.0,
        )  # fmt: skip
    assert len(refused.value.problems) == 5
    assert OrchestratorContract().most_attempts == 3


def test_a_timedelta_is_read_where_a_field_holds_seconds():
    """As it is elsewhere, by its name."""
    five = timedelta(seconds=5)
    assert seconds_given(five, SimpleNamespace(field_name="initial_delay_seconds")) == 5.0
    assert seconds_given(five, SimpleNamespace(field_name="max_attempts")) is five
