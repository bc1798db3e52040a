"""The pipelines' front door: the compliance record, and the JSON Schemas that come along."""

import json
from importlib import resources

import jsonschema
import msgspec
import pytest

from mainstay import Backoff, BreakerSettings, Engine, Jitter, RetryPolicy, UsageError
from mainstay.core.telemetry.record import first_try
from mainstay.profiles.pipelines import (
    SCHEMAS,
    ComplianceRecord,
    TelemetrySink,
    compliance_records,
    read_telemetry,
    schema,
)
from mainstay.testing import scripted, virtual_time
from tools import schemas

EXAMPLE = """{
  "pipeline_id": "etl_stac_ingest_v10.3.1",
  "stage": "poll_stac_api",
  "attempts": 3,
  "retry_policy": "exp_full_jitter",
  "errors": ["HTTP_503", "HTTP_503"],
  "final_status": "success",
  "circuit_open": false,
  "energy_wh": 0.48,
  "co2_g": 0.0009,
  "telemetry_ref": "releases/v10.3.0/focus-telemetry.json"
}"""
POLICY = RetryPolicy(name="stac", max_attempts=5, backoff=Backoff.exponential(0.5, max_delay=30.0),
                     jitter=Jitter.full())  # fmt: skip


class Unavailable(Exception):
    status_code = 503


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return "releases/v10.3.0/focus-telemetry.json"


def ran(path, *outcomes):
    """The compliance records of one call with these outcomes, under the document's policy."""
    sink = TelemetrySink(path, pipeline_id="etl_stac_ingest_v10.3.1", every=3600.0)
    with Engine(sinks=[sink], policies=[POLICY], default="stac") as engine, virtual_time():
        engine.run("poll_stac_api", scripted(*outcomes))
    return compliance_records(path)


@pytest.mark.req("PL-11")
def test_the_example_of_the_document_is_made_by_a_run(path):
    """Two 503s and a success: every field, and no other; energy and CO2 are the model's."""
    (record,) = ran(path, Unavailable, Unavailable, "page")
    told = msgspec.to_builtins(record)
    example = json.loads(EXAMPLE)
    assert list(told) == list(example)
    figures = {"energy_wh", "co2_g"}
    assert {n: v for n, v in told.items() if n not in figures} == {
        n: v for n, v in example.items() if n not in figures
    }
    kept = read_telemetry(path)
    assert 0.0 < record.energy_wh == pytest.approx(sum(each.energy_wh for each in kept.records))
    assert 0.0 < record.co2_g == pytest.approx(sum(each.co2_g for each in kept.records))
    jsonschema.validate(told, schema("pipelines-compliance-record-v1.json"))
    assert kept.energy_models, "method, parameters and scope are where it refers to"


@pytest.mark.req("PL-11")
def test_the_schema_takes_the_example_and_nothing_less():
    """Each field is demanded, and of its type."""
    rules, example = schema("pipelines-compliance-record-v1.json"), json.loads(EXAMPLE)
    jsonschema.validate(example, rules)
    for name in example:
        less = {key: value for key, value in example.items() if key != name}
        with pytest.raises(jsonschema.ValidationError, match=name):
            jsonschema.validate(less, rules)
    for wrong in ({"final_status": "maybe"}, {"attempts": -1}, {"errors": "HTTP_503"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**example, **wrong}, rules)
    assert msgspec.json.decode(EXAMPLE, type=ComplianceRecord).stage == "poll_stac_api"


@pytest.mark.req("PL-11")
def test_a_run_that_failed_says_so(path):
    """With the error of each attempt."""
    (record,) = ran(path, *[TimeoutError] * 5)
    assert (record.attempts, record.final_status) == (5, "failure")
    assert record.errors == ["TimeoutError"] * 5


def test_the_energy_of_the_attempts_is_added_in_order():
    """The same in every version of Python, to the bit: `sum` is not."""
    attempts = [msgspec.structs.replace(first_try("etl", "poll"), energy_wh=0.1, co2_g=0.1)] * 10
    record = ComplianceRecord.of(attempts, "exp_full_jitter", "t.json")
    assert (record.energy_wh, record.co2_g) == (0.9999999999999999,) * 2


def test_a_call_that_has_not_ended_has_no_record():
    """What to give instead is said."""
    with pytest.raises(UsageError, match="in order"):
        ComplianceRecord.of([], "exp_full_jitter", "t.json")


@pytest.mark.req("PL-11")
def test_a_record_names_the_policy_that_its_stage_ran_under(path):
    """Stages of one file ran under several policies; the telemetry has each, by its label."""
    sink = TelemetrySink(path, pipeline_id="etl", every=3600.0)
    policies = {
        "poll": (Backoff.exponential(1.0), Jitter.full(), "exp_full_jitter"),
        "load": (Backoff.exponential(1.0), Jitter.none(), "exp_no_jitter"),
        "index": (Backoff.linear(1.0), Jitter.equal(), "linear_equal_jitter"),
    }
    made = [RetryPolicy(name=n, backoff=b, jitter=j) for n, (b, j, _) in policies.items()]
    with Engine(sinks=[sink], policies=made) as engine, virtual_time():
        for stage in policies:
            engine.run(stage, scripted("page"))
            engine.run(stage, scripted(TimeoutError, "page"))
            engine.run(stage, scripted(*[TimeoutError] * 3))
    found = [(each.stage, each.retry_policy) for each in compliance_records(path)]
    assert found == [(stage, policies[stage][2]) for stage in policies for _ in range(3)]
    named = {(each.stage_name, each.policy) for each in read_telemetry(path).records}
    assert named == {(stage, stage) for stage in policies}


@pytest.mark.req("PL-11")
def test_nobody_can_claim_another_policy_than_the_one_that_ran(path):
    """The telemetry is evidence, an argument is not."""
    ran(path, Unavailable, "page")
    (record,) = compliance_records(path, RetryPolicy(jitter=Jitter.none()))
    assert record.retry_policy == "exp_full_jitter"


@pytest.mark.req("PL-11")
@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_call_that_is_interrupted_names_its_policy_too(path, failures):
    """In its first attempt by the name alone: no failure before it has referred to the plan."""
    sink = TelemetrySink(path, pipeline_id="etl", every=3600.0)
    stage = scripted(*[Unavailable] * failures, KeyboardInterrupt)
    engine = Engine(sinks=[sink], policies=[POLICY], default="stac")
    with engine, virtual_time(), pytest.raises(KeyboardInterrupt):
        engine.call("poll", stage)
    (record,) = compliance_records(path)
    assert record.retry_policy == ("exp_full_jitter" if failures else "stac")


@pytest.mark.req("PL-11")
def test_a_call_that_a_circuit_refuses_names_its_policy_too(path):
    """It made no attempt."""
    sink = TelemetrySink(path, pipeline_id="etl", every=3600.0)
    with Engine(sinks=[sink], policies=[POLICY], default="stac",
                breaker=BreakerSettings()) as engine, virtual_time():  # fmt: skip
        engine.breaker("poll").force_open()
        engine.run("poll", scripted("page"))
    (record,) = compliance_records(path)
    assert (record.attempts, record.retry_policy) == (0, "exp_full_jitter")


@pytest.mark.req("PL-11")
def test_telemetry_of_an_older_version_needs_the_policy():
    """Without it the record would name none, and a record without a policy proves nothing."""
    with pytest.raises(UsageError, match="stage 'poll' does not name its policy"):
        ComplianceRecord.of([first_try("etl", "poll")], None, "t.json")
    record = ComplianceRecord.of([first_try("etl", "poll")], POLICY, "t.json")
    assert record.retry_policy == "exp_full_jitter"


@pytest.mark.req("PL-10", "PL-11")
@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schemas_that_come_along_are_those_of_the_types(name):
    """In the package and in the docs: run tools/schemas.py --write."""
    wanted = schemas.render(name)
    assert (resources.files("mainstay") / "schemas" / name).read_text(encoding="utf-8") == wanted
    for place in schemas.PLACES:
        assert (place / name).read_text(encoding="utf-8") == wanted
    jsonschema.Draft202012Validator.check_schema(json.loads(wanted))


def test_there_are_no_other_schemas():
    """A file that nobody makes would go stale."""
    for place in schemas.PLACES:
        assert sorted(each.name for each in place.iterdir()) == sorted(SCHEMAS)
    with pytest.raises(UsageError, match="known: pipelines"):
        schema("other.json")
