"""Telemetry as values: records, totals that add up in any order, and bounds on all of it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainstay.core.telemetry import record as telemetry
from mainstay.core.telemetry.energy import EnergyModel
from mainstay.core.telemetry.record import (
    MOST_CLASSES,
    MOST_STAGES,
    REST,
    StageTotals,
    Telemetry,
    TelemetryRecord,
    decode,
    encode,
    first_try,
    label_of,
    merged,
    schema_of,
    sequences,
    summed,
    total_of,
    with_energy,
)

FIRST = first_try("etl", "poll")
AMOUNT = st.integers(0, 1000).map(lambda n: n / 4)  # adds up exactly, in any order
RECORDS = st.builds(
    TelemetryRecord,
    pipeline_id=st.sampled_from("pq"),
    stage_name=st.sampled_from("stu"),
    attempt=st.integers(0, 5),
    delay_ms=AMOUNT,
    error_class=st.none() | st.sampled_from(["OSError", "HTTP_503"]),
    retryable=st.booleans(),
    outcome=st.sampled_from(["success", "failure"]),
    circuit_open=st.booleans(),
    energy_wh=AMOUNT,
    co2_g=AMOUNT,
    cpu_seconds=AMOUNT,
    waiting_seconds=AMOUNT,
    is_final=st.booleans(),
)


def kept(records):
    """These records and their totals."""
    return Telemetry(totals=summed([total_of(record) for record in records]), records=records)


@pytest.mark.req("PL-10")
def test_a_record_has_the_fields_of_the_document():
    """All ten by their names, each of them required."""
    fields = {"pipeline_id", "stage_name", "attempt", "delay_ms", "error_class", "retryable",
              "outcome", "circuit_open", "energy_wh", "co2_g"}  # fmt: skip
    parts = schema_of(TelemetryRecord, "A record")["$defs"]
    assert set(parts["TelemetryRecord"]["required"]) == fields
    assert parts["TelemetryRecord"]["properties"]["outcome"]["enum"] == ["failure", "success"]
    assert ">>>" not in parts["TelemetryRecord"]["description"]


def test_what_a_call_came_to_is_counted_with_its_last_record():
    """Attempts and outcome once a call; waits, energy and errors with each record."""
    failed = replace(FIRST, outcome="failure", error_class="OSError", delay_ms=500.0,
                     is_final=False)  # fmt: skip
    last = replace(FIRST, attempt=2, energy_wh=0.5, circuit_open=True)
    (total,) = summed([total_of(failed), total_of(last)])
    assert total == StageTotals(
        pipeline_id="etl", stage_name="poll", energy_model="", sequences=1, retried=1,
        successes=1, attempts=2, circuit_open=1, delay_ms=500.0, energy_wh=0.5,
        error_classes={"OSError": 1},
    )  # fmt: skip
    assert total_of(replace(failed, is_final=True)).failures == 1


@given(st.lists(RECORDS, max_size=12), st.lists(st.integers(0, 12), max_size=4))
def test_records_add_up_however_they_are_brought_together(records, cuts):
    """In one go or in parts: the same totals, and the same records."""
    ends = [0, *sorted(cuts), len(records)]
    whole = Telemetry()
    for start, end in pairwise(ends):
        whole = merged(whole, kept(records[start:end]), most=100)
    at_once = merged(Telemetry(), kept(records), most=100)
    assert whole.records == at_once.records == records
    assert whole.totals == at_once.totals
    assert sum(each.sequences for each in whole.totals) == sum(r.is_final for r in records)
    assert decode(encode(whole)) == whole


@given(st.lists(RECORDS, max_size=12), st.integers(0, 12))
def test_the_latest_records_are_kept_and_the_others_counted(records, most):
    """Totals hold all of them."""
    found = merged(kept(records[:5]), kept(records[5:]), most)
    assert found.records == records[len(records) - min(most, len(records)) :]
    assert found.records_left_out == len(records) - len(found.records)
    assert found.totals == summed([total_of(record) for record in records])


def test_stages_without_room_are_summed_up(monkeypatch):
    """No name that a caller makes up lets the file grow for ever."""
    monkeypatch.setattr(telemetry, "MOST_STAGES", 3)
    totals = [total_of(replace(FIRST, stage_name=f"s{n % 7}")) for n in range(70)]
    found = {each.stage_name: each.sequences for each in summed(totals)}
    assert found == {"s0": 10, "s1": 10, "s2": 10, REST: 40}
    assert MOST_STAGES == 1000


def test_error_classes_without_room_are_summed_up():
    """The first fifty have their own count."""
    records = [replace(FIRST, error_class=f"E{n}") for n in range(60)] * 2
    (total,) = summed([total_of(record) for record in records])
    assert len(total.error_classes) == MOST_CLASSES + 1
    assert total.error_classes["E0"] == 2
    assert total.error_classes[REST] == 20


def test_energy_is_computed_from_what_stands_in_the_record():
    """With the name of the model beside it."""
    model = EnergyModel(watts=36.0, waiting_share=0.5, pue=1.0, grid_g_per_kwh=500.0)
    record = with_energy(replace(FIRST, cpu_seconds=100.0, waiting_seconds=200.0), model, "m")
    assert (record.energy_wh, record.co2_g, record.energy_model) == (2.0, 1.0, "m")


def test_calls_of_which_something_is_missing_are_no_sequences():
    """Neither one under way nor one whose beginning was dropped; calls may be mixed."""
    step = replace(FIRST, outcome="failure", is_final=False, sequence="a")
    end = replace(FIRST, attempt=2, sequence="a")
    other = replace(FIRST, sequence="b", attempt=3)
    refused = replace(FIRST, attempt=0, outcome="failure")
    under_way = replace(step, sequence="c")
    records = [other, step, under_way, refused, end, refused, FIRST]
    assert sequences(Telemetry(records=records)) == [[refused], [step, end], [refused], [FIRST]]


@pytest.mark.req("PL-11")
@pytest.mark.parametrize(
    ("backoff", "jitter", "label"),
    [
        ("exponential", "full", "exp_full_jitter"),
        ("exponential", "none", "exp_no_jitter"),
        ("linear", "equal", "linear_equal_jitter"),
    ],
)
def test_a_policy_is_labelled_as_the_document_does(backoff, jitter, label):
    """By its curve and its jitter."""
    assert label_of(backoff, jitter) == label
