"""The compliance record of each call of a stage, made of its telemetry; the JSON Schemas.

Energy and CO2 are a model's figures, never a measurement: the telemetry file that a record refers
to holds method, parameters and scope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from mainstay.core.base.sums import in_order
from mainstay.core.telemetry.record import (
    Telemetry,
    TelemetryRecord,
    label_of,
    schema_of,
    sequences,
)
from mainstay.errors import UsageError
from mainstay.sinks.telemetry.file import read_telemetry

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from mainstay.core.retry.policy import Policy


class ComplianceRecord(Struct, frozen=True, kw_only=True):
    """What became of one call of a stage, with exactly the fields of the document's example.

    >>> from mainstay.core.telemetry.record import first_try
    >>> record = ComplianceRecord.of([first_try("etl", "poll")], "exp_full_jitter", "t.json")
    >>> record.stage, record.attempts, record.final_status
    ('poll', 1, 'success')
    """

    pipeline_id: str
    stage: str
    attempts: Annotated[int, Meta(ge=0)]
    retry_policy: str
    errors: list[str]
    final_status: Literal["success", "failure"]
    circuit_open: bool
    energy_wh: Annotated[float, Meta(ge=0)]
    co2_g: Annotated[float, Meta(ge=0)]
    telemetry_ref: str

    @classmethod
    def of(
        cls,
        records: Sequence[TelemetryRecord],
        retry_policy: Policy | str | None,
        telemetry_ref: str | os.PathLike[str],
    ) -> ComplianceRecord:
        """The record of one call, from the telemetry of all its attempts.

        Args:
            records: the attempts, in order; the last one is final.
            retry_policy: what it ran under, a policy or its label, if the records do not name
                it: those of older versions.
            telemetry_ref: where the telemetry is.

        >>> ComplianceRecord.of([], "exp_full_jitter", "t.json")
        Traceback (most recent call last):
        mainstay.errors.UsageError: no call has ended in these records. ...
        """
        if not records or not records[-1].is_final:
            raise UsageError(
                "no call has ended in these records",
                hint="give all the records of one call, in order",
            )
        last = records[-1]
        return cls(
            pipeline_id=last.pipeline_id,
            stage=last.stage_name,
            attempts=last.attempt,
            retry_policy=_named(last, retry_policy),
            errors=[each.error_class for each in records if each.error_class is not None],
            final_status=last.outcome,
            circuit_open=any(each.circuit_open for each in records),
            energy_wh=in_order(each.energy_wh for each in records),
            co2_g=in_order(each.co2_g for each in records),
            telemetry_ref=str(telemetry_ref),
        )


def _named(last: TelemetryRecord, given: Policy | str | None) -> str:
    """The policy that a call ran under: what the telemetry has, or else what was given."""
    if last.retry_policy:
        return last.retry_policy
    if not given:
        raise UsageError(
            f"the telemetry of stage {last.stage_name!r} does not name its policy",
            hint="it is of an older version: give retry_policy",
        )
    return given if isinstance(given, str) else label(given)


def compliance_records(
    path: str | os.PathLike[str], retry_policy: Policy | str | None = None
) -> list[ComplianceRecord]:
    """A record for each call in a telemetry file that has ended and of which all is there.

    Each names the policy that its stage ran under, which is in the telemetry. `retry_policy` is for
    records of older versions, which do not have it.

    >>> import tempfile
    >>> from mainstay import Engine
    >>> from mainstay.profiles.pipelines import TelemetrySink
    >>> path = tempfile.mkdtemp() + "/telemetry.json"
    >>> with Engine(sinks=[TelemetrySink(path, pipeline_id="etl")]) as engine:
    ...     engine.call("poll", int, "7")
    7
    >>> [(record.retry_policy, record.final_status) for record in compliance_records(path)]
    [('exp_percent_jitter', 'success')]
    """
    return records_in(read_telemetry(path), path, retry_policy)


def records_in(
    telemetry: Telemetry,
    path: str | os.PathLike[str],
    retry_policy: Policy | str | None = None,
) -> list[ComplianceRecord]:
    """The same of telemetry that has been read from a path."""
    ended = sequences(telemetry)
    return [ComplianceRecord.of(records, retry_policy, path) for records in ended]


def label(policy: Policy) -> str:
    """What the document calls a policy of this sort.

    >>> from mainstay import Jitter, RetryPolicy
    >>> label(RetryPolicy(jitter=Jitter.full()))
    'exp_full_jitter'
    """
    return label_of(policy.backoff.kind, policy.jitter.kind)


SCHEMAS: dict[str, tuple[type[Struct], str]] = {
    "pipelines-retries-rules-v1.json": (Telemetry, "Retry telemetry of pipelines"),
    "pipelines-compliance-record-v1.json": (ComplianceRecord, "Retry compliance record"),
}
"""The JSON Schemas, by the names of their files in `mainstay/schemas`: of what, and what it is."""


def schema(name: str) -> dict[str, Any]:
    """A JSON Schema, made of the type it describes.

    >>> sorted(schema("pipelines-compliance-record-v1.json")["$defs"])
    ['ComplianceRecord']
    """
    if name not in SCHEMAS:
        raise UsageError(f"no schema is named {name!r}", hint=f"known: {', '.join(SCHEMAS)}")
    cls, title = SCHEMAS[name]
    return schema_of(cls, title)
