"""A run that a fork has copied into a child stays its parent's."""

import asyncio

import pytest

from mainstay import Engine, LeaseLost
from mainstay.drivers.idempotency.lease_renewal import LEASE_RENEWAL
from mainstay.drivers.pipeline.records import RunRecords
from mainstay.profiles.pipelines import Pipeline, Stage

LEASE = 41.0


@pytest.mark.parametrize("end", [None, SystemExit(0)], ids=repr)
def test_a_pipeline_of_another_process_is_left_alone(end, tmp_path, monkeypatch):
    """A child that was forked in a stage runs no further one, and releases nothing."""
    ran = []

    async def first():
        for lease in LEASE_RENEWAL._queues[LEASE]:
            lease.home = object()  # from here on it is another process's
        if end is not None:
            raise end

    async def second():
        ran.append("second")

    monkeypatch.setattr(RunRecords, "release", lambda *_: ran.append("release"))
    stages = [
        Stage("first", first, idempotency="idempotent"),
        Stage("second", second, after="first", idempotency="idempotent"),
    ]
    telemetry = tmp_path / "telemetry.json"
    with Engine(sinks=[]) as engine:
        pipeline = Pipeline(
            "p", stages, engine=engine, ledgers=tmp_path, telemetry=telemetry, lease=LEASE
        )
        with pytest.raises((LeaseLost, SystemExit)):
            asyncio.run(pipeline.arun(run_id="r-1"))
    assert ran == []
