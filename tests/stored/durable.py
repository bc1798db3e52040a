"""What outlives a process besides calls: messages, sagas and runs of pipelines, by the public API.

`fill` writes them into a file of SQLite; `test_durable` opens what each version has written.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

from mainstay import Backoff, Engine, RetryPolicy, Saga, SagaStep
from mainstay.profiles.pipelines import Pipeline, SchemaValidationError, Stage

OUTBOX = RetryPolicy(
    name="outbox", max_attempts=1, retry_on=Exception, backoff=Backoff.constant(0.0)
)
PATIENT = RetryPolicy(
    name="patient", max_attempts=1, retry_on=Exception, backoff=Backoff.constant(0.0)
)
MESSAGES = ("sent", "dead", "pending")


def open_engine(path):
    return Engine(f"sqlite:///{path}", sinks=[], audit=False, policies=[OUTBOX])


def add(engine, path, message):
    """A message in a transaction of an application's."""
    with closing(sqlite3.connect(path)) as connection, connection:
        engine.outbox.add(
            connection, topic="user.created.v1", payload={"id": message}, id=message,
            aggregate_type="User", aggregate_id=message,
        )  # fmt: skip


def fill(path):
    """Messages of each state, sagas that ended, stopped and are stuck, and a run that is halted."""
    with open_engine(path) as engine:
        add(engine, path, "sent")
        engine.outbox.relay(lambda message: None).drain()
        add(engine, path, "dead")
        engine.outbox.relay(_refuse).drain()
        add(engine, path, "pending")
        engine.sagas.run(saga(), {"amount": 5}, id="ended")
        stuck = saga(credit=_fail, undo_debit=_fail)
        try:
            engine.sagas.run(stuck, {"amount": 5}, id="stuck")
        except Exception:
            assert engine.sagas.get("transfer", "stuck").state == "stuck"
    _die_in_a_saga(path)
    halt(path)


def saga(credit=lambda ctx: ctx.results["debit"] * 2, undo_debit=lambda ctx: None):
    return Saga(
        "transfer",
        [
            SagaStep(
                "debit", lambda ctx: ctx.input["amount"], undo_debit, compensate_policy=PATIENT
            ),
            SagaStep("credit", credit),
        ],
        lease=0.05,
    )


def pipeline(engine, check, folder):
    return Pipeline(
        "etl_v1",
        [
            Stage("poll", lambda: [1, 2], idempotency="idempotent", datasets="landsat"),
            Stage("check", check, after="poll", idempotency="idempotent", datasets="landsat"),
        ],
        engine=engine,
        ledgers=folder,
        telemetry=folder / "telemetry.json",
    )


def halt(path):
    """A run that a person must look at."""
    with open_engine(path) as engine:
        try:
            pipeline(engine, _bad_schema, path.parent / "ledgers").run(run_id="halted")
        except SchemaValidationError:
            return
    raise AssertionError("nothing was raised")


def _bad_schema():
    raise SchemaValidationError("no column `id`")


def _refuse(_message):
    raise ValueError("no such topic")


def _fail(_ctx):
    raise ValueError("the account is closed")


def _die_in_a_saga(path):
    program = (
        "import os\nfrom pathlib import Path\nfrom tests.stored import durable\n"
        f"engine = durable.open_engine(Path({str(path)!r}))\n"
        "engine.sagas.run(durable.saga(credit=lambda ctx: os._exit(7)), {'amount': 5}, id='left')"
    )
    done = subprocess.run([sys.executable, "-c", program], env=os.environ, timeout=60, check=False)
    assert done.returncode == 7
