"""The telemetry of pipelines: a record for each attempt, and what they come to, as values.

The fields of a record are those of the pipeline document, by its names. What is kept is bounded:
the latest records, a total for each stage, and a count of what found no room. Merging two of these
is adding them up, in any order.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple, replace

from mainstay.core.base.change import ready
from mainstay.core.base.sums import in_order
from mainstay.core.telemetry.energy import EnergyModel, Statement  # noqa: TC001 -- msgspec reads them

MOST_STAGES = 1_000
MOST_CLASSES = 50
REST = "(others)"
"""Where stages and error classes are summed up for which there is no room."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"

Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]


class TelemetryRecord(Struct, frozen=True, kw_only=True):
    """One attempt of a call, or a call that was refused before its first.

    `attempt` counts from 1; 0 is a call that was not made. `delay_ms` is the wait that followed.
    `energy_wh` and `co2_g` are what the attempt and the wait before it took because of retrying: of
    a first attempt that is nothing.

    >>> first_try("etl", "poll").outcome
    'success'
    """

    pipeline_id: str
    stage_name: str
    attempt: Count
    delay_ms: Amount
    error_class: str | None
    retryable: bool
    outcome: Literal["success", "failure"]
    circuit_open: bool
    energy_wh: Amount
    co2_g: Amount
    cpu_seconds: Amount = 0.0
    waiting_seconds: Amount = 0.0
    energy_model: str = ""
    """The name of the statement of how energy and CO2 were computed."""
    sequence: str = ""
    """What the attempts of one call have in common."""
    is_final: bool = True
    """Whether the call has ended with it."""
    timestamp: str = ""
    policy: str = ""
    """The name of the policy that the call ran under."""
    retry_policy: str = ""
    """That policy by its curve and jitter, as the document names them: `exp_full_jitter`."""


def label_of(backoff: str, jitter: str) -> str:
    """What the document calls a policy with such a curve and such a jitter.

    >>> label_of("exponential", "full"), label_of("linear", "none")
    ('exp_full_jitter', 'linear_no_jitter')
    """
    curve = "exp" if backoff == "exponential" else backoff
    spread = "no" if jitter == "none" else jitter
    return f"{curve}_{spread}_jitter"


def first_try(pipeline_id: str, stage_name: str) -> TelemetryRecord:
    """The record of a call that succeeded at once; others differ from it.

    >>> first_try("etl", "poll").attempt
    1
    """
    return TelemetryRecord(
        pipeline_id=pipeline_id,
        stage_name=stage_name,
        attempt=1,
        delay_ms=0.0,
        error_class=None,
        retryable=False,
        outcome="success",
        circuit_open=False,
        energy_wh=0.0,
        co2_g=0.0,
    )


class StageTotals(Struct, frozen=True, kw_only=True):
    """What the calls of one stage come to, under one energy model."""

    pipeline_id: str
    stage_name: str
    energy_model: str
    sequences: Count = 0
    """Calls that have ended."""
    retried: Count = 0
    """Those that took more than one attempt."""
    successes: Count = 0
    failures: Count = 0
    attempts: Count = 0
    circuit_open: Count = 0
    """Records that met an open circuit."""
    delay_ms: Amount = 0.0
    cpu_seconds: Amount = 0.0
    waiting_seconds: Amount = 0.0
    energy_wh: Amount = 0.0
    co2_g: Amount = 0.0
    error_classes: dict[str, Count] = {}


class Telemetry(Struct, frozen=True, kw_only=True):
    """Everything that is kept: statements on energy by name, totals, and the latest records.

    >>> Telemetry().totals
    []
    """

    version: Literal[1] = 1
    energy_models: dict[str, Statement] = {}
    totals: list[StageTotals] = []
    records: list[TelemetryRecord] = []
    records_left_out: Count = 0
    """Older records that were dropped; they are in the totals."""


def with_energy(record: TelemetryRecord, model: EnergyModel, name: str) -> TelemetryRecord:
    """The record with what its computing and waiting come to.

    >>> record = replace(first_try("etl", "poll"), attempt=2, cpu_seconds=360.0)
    >>> with_energy(record, EnergyModel(watts=10.0, pue=1.0, grid_g_per_kwh=400.0), "m").co2_g
    0.4
    """
    energy = model.energy_wh(record.cpu_seconds, record.waiting_seconds)
    return replace(record, energy_wh=energy, co2_g=model.co2_g(energy), energy_model=name)


def total_of(record: TelemetryRecord) -> StageTotals:
    """The totals of one record; what a call came to is counted with its last."""
    is_final, success = record.is_final, record.outcome == "success"
    return StageTotals(
        pipeline_id=record.pipeline_id,
        stage_name=record.stage_name,
        energy_model=record.energy_model,
        sequences=int(is_final),
        retried=int(is_final and record.attempt > 1),
        successes=int(is_final and success),
        failures=int(is_final and not success),
        attempts=record.attempt if is_final else 0,
        circuit_open=int(record.circuit_open),
        delay_ms=record.delay_ms,
        cpu_seconds=record.cpu_seconds,
        waiting_seconds=record.waiting_seconds,
        energy_wh=record.energy_wh,
        co2_g=record.co2_g,
        error_classes={} if record.error_class is None else {record.error_class: 1},
    )


def merged(one: Telemetry, other: Telemetry, most: int) -> Telemetry:
    """Both together, with at most `most` records: the latest of both, in the order given."""
    records = [*one.records, *other.records]
    dropped = max(0, len(records) - most)
    return Telemetry(
        energy_models={**one.energy_models, **other.energy_models},
        totals=summed([*one.totals, *other.totals]),
        records=records[dropped:],
        records_left_out=one.records_left_out + other.records_left_out + dropped,
    )


def summed(totals: list[StageTotals]) -> list[StageTotals]:
    """One total for each stage and energy model; those past the limit share one."""
    found: dict[tuple[str, str, str], list[StageTotals]] = {}
    for each in totals:
        key = (each.pipeline_id, each.stage_name, each.energy_model)
        if key not in found and len(found) >= MOST_STAGES:
            key = (REST, REST, each.energy_model)
        found.setdefault(key, []).append(each)
    return [_sum(*key, group) for key, group in found.items()]


def _sum(pipeline_id: str, stage_name: str, model: str, group: list[StageTotals]) -> StageTotals:
    columns = zip(*map(astuple, group), strict=True)
    named = dict(zip(StageTotals.__struct_fields__, columns, strict=True))
    return StageTotals(
        pipeline_id=pipeline_id,
        stage_name=stage_name,
        energy_model=model,
        error_classes=_classes(named["error_classes"]),
        **{name: in_order(named[name]) for name in _NUMBERS},
    )


def _classes(several: tuple[dict[str, int], ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for classes in several:
        for name, count in classes.items():
            known = name if name in found or len(found) < MOST_CLASSES else REST
            found[known] = found.get(known, 0) + count
    return found


_NAMES = ("pipeline_id", "stage_name", "energy_model", "error_classes")
_NUMBERS = tuple(name for name in StageTotals.__struct_fields__ if name not in _NAMES)


def sequences(telemetry: Telemetry) -> list[list[TelemetryRecord]]:
    """The records of each call that has ended and of which all are there, in order.

    >>> last = replace(first_try("etl", "poll"), attempt=2, sequence="7f")
    >>> first = replace(last, attempt=1, outcome="failure", is_final=False)
    >>> [len(each) for each in sequences(Telemetry(records=[first, last]))]
    [2]
    >>> sequences(Telemetry(records=[last]))
    []
    """
    found: dict[tuple[str, str, str], list[TelemetryRecord]] = {}
    ended = []
    for index, record in enumerate(telemetry.records):
        name = record.sequence or str(index)
        key = (record.pipeline_id, record.stage_name, name)
        found.setdefault(key, []).append(record)
        if record.is_final:
            ended.append(found.pop(key))
    return [records for records in ended if records[0].attempt <= 1]


def encode(telemetry: Telemetry) -> bytes:
    """The telemetry as the file holds it: JSON that a person can read."""
    return msgspec.json.format(msgspec.json.encode(telemetry), indent=2) + b"\n"


def decode(data: bytes) -> Telemetry:
    """The telemetry of such a file."""
    return msgspec.json.decode(data, type=Telemetry)


def schema_of(cls: type[Struct], title: str) -> dict[str, Any]:
    """The JSON Schema of a record, made of its type.

    >>> schema_of(TelemetryRecord, "A record")["title"]
    'A record'
    """
    (body,), parts = msgspec.json.schema_components([cls], ref_template="#/$defs/{name}")
    for part in parts.values():
        part["description"] = " ".join(part["description"].partition("\n\n")[0].split())
    return {"$schema": DIALECT, "title": title, **body, "$defs": dict(sorted(parts.items()))}


ready(Telemetry)
