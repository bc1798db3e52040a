"""The models on pydantic: their bounds, their policies, and the door without pydantic."""

import subprocess
import sys
from uuid import UUID

import pytest
from pydantic import BaseModel, ValidationError

from mainstay.profiles import effects

SETTINGS = {
    effects.DatabaseRetryConfig: {
        "max_attempts": (3, 1, 10), "initial_delay_seconds": (0.5, 0.01, 10.0),
        "max_delay_seconds": (30.0, 1.0, 120.0), "exponential_base": (2.0, 1.5, 4.0),
        "connection_timeout_seconds": (10.0, 1.0, 60.0),
        "query_timeout_seconds": (30.0, 1.0, 300.0),
    },
    effects.KafkaRetryConfig: {
        "max_attempts": (5, 1, 10), "initial_delay_seconds": (1.0, 0.1, 30.0),
        "max_delay_seconds": (60.0, 1.0, 300.0), "exponential_base": (2.0, 1.5, 4.0),
        "producer_timeout_ms": (30_000, 1_000, 300_000),
        "delivery_timeout_ms": (120_000, 10_000, 600_000),
    },
    effects.HttpRetryConfig: {
        "max_attempts": (3, 1, 10), "initial_delay_seconds": (0.5, 0.1, 10.0),
        "max_delay_seconds": (30.0, 1.0, 120.0), "exponential_base": (2.0, 1.5, 4.0),
        "connect_timeout_seconds": (10.0, 1.0, 60.0), "read_timeout_seconds": (30.0, 1.0, 300.0),
    },
    effects.VaultRetryConfig: {
        "max_attempts": (3, 1, 10), "initial_backoff_seconds": (0.1, 0.01, 10.0),
        "max_backoff_seconds": (10.0, 1.0, 60.0), "exponential_base": (2.0, 1.5, 4.0),
    },
    effects.ConsulRetryConfig: {
        "max_attempts": (3, 1, 10), "initial_delay_seconds": (1.0, 0.1, 60.0),
        "max_delay_seconds": (30.0, 1.0, 300.0), "exponential_base": (2.0, 1.5, 4.0),
    },
}  # fmt: skip
"""Default, least and most of each field, as the document has them."""


def refused(model, **values):
    """The fields that are refused."""
    with pytest.raises(ValidationError) as error:
        model(**values)
    return [problem["loc"][0] for problem in error.value.errors()]


@pytest.mark.req("EF-07.settings", "EF-04")
@pytest.mark.parametrize("model", SETTINGS, ids=lambda model: model.__name__)
def test_the_bounds_of_the_settings(model):
    """Both ends are accepted; beyond them, and what is no number, is refused; all at once."""
    beyond = {}
    for name, (default, low, high) in SETTINGS[model].items():
        assert getattr(model(), name) == default
        assert getattr(model(**{name: low}), name) == low
        assert getattr(model(**{name: high}), name) == high
        step = 1 if isinstance(low, int) else 0.001
        for value in (low - step, high + step, None, "much", float("nan"), float("inf")):
            assert refused(model, **{name: value}) == [name]
        beyond[name] = high + step
    assert sorted(refused(model, **beyond)) == sorted(beyond)


@pytest.mark.req("EF-07.settings")
@pytest.mark.parametrize("model", SETTINGS, ids=lambda model: model.__name__)
def test_a_name_that_is_not_known_and_a_wrong_assignment_are_refused(model):
    """Nothing is dropped in silence."""
    assert refused(model, max_atempts=5) == ["max_atempts"]
    settings = model()
    settings.max_attempts = 4
    with pytest.raises(ValidationError):
        settings.max_attempts = 11
    assert settings.policy().max_attempts == 4
    assert model.model_validate(settings.model_dump()) == settings
    assert model.model_validate_json(settings.model_dump_json()) == settings


def test_a_policy_of_settings_takes_other_fields_too():
    """And a name."""
    policy = effects.VaultRetryConfig().policy("secrets", deadline=60.0)
    assert (policy.name, policy.deadline, policy.attempt_timeout) == ("secrets", 60.0, 30.0)


class Created(BaseModel):
    """A payload."""

    user_id: str


def test_an_envelope_has_an_id_and_a_time_of_its_own():
    """And is written with all of its payload."""
    one, other = (effects.ModelEventEnvelope[Created](payload=Created(user_id="u")) for _ in "12")
    assert one.envelope_id != other.envelope_id
    assert one.envelope_timestamp.tzinfo is not None
    assert '"user_id":"u"' in one.model_dump_json()
    with pytest.raises(ValidationError):
        one.payload = Created(user_id="v")
    assert refused(effects.ModelEventEnvelope, payload={}, correlation_id="no") == [
        "correlation_id"
    ]


def test_an_entry_of_the_outbox_is_written_with_all_of_its_payload():
    """A model that is only known as a BaseModel would lose its fields."""
    entry = effects.OutboxEntry(
        id=UUID(int=1), aggregate_type="User", aggregate_id=UUID(int=2),
        event_type="user.created.v1", payload=Created(user_id="u"), created_at="2026-11-17T00:00Z",
    )  # fmt: skip
    assert '"user_id":"u"' in entry.model_dump_json()
    assert (entry.published_at, entry.retry_count) == (None, 0)
    wrong = ["id", "aggregate_type", "aggregate_id", "event_type", "created_at"]
    assert refused(effects.OutboxEntry, id="no", payload=Created(user_id="u")) == wrong


WITHOUT = """
import sys
sys.modules["pydantic"] = None
import mainstay
from mainstay.profiles import effects
from mainstay.profiles.effects import EffectResult, Orchestrator, effect, is_retryable

@effect(kind="http")
def fetch():
    return "page"

assert Orchestrator(sinks=[]).execute(fetch).value == "page"
assert not hasattr(effects, "NoSuchName")
try:
    effects.HttpRetryConfig
except mainstay.MissingExtraError as error:
    print(error)
"""


def test_without_pydantic_the_rest_works_and_the_error_names_the_extra():
    """The models are asked for by name, and then the extra is named."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout == "pydantic is not installed. pip install 'mainstay[pydantic]'\n"


def test_the_door_does_not_load_pydantic_by_itself():
    """Nor anything else that is an extra."""
    code = "import sys, mainstay.profiles.effects; print('pydantic' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "False\n", done.stderr
