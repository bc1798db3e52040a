"""Pulls items from an HTTP source, validates them, and writes them to PostgreSQL and S3.

SOURCE_URL=http://... DATABASE_URL=postgresql://... AWS_ENDPOINT_URL=http://... \
    ingest_pipeline.py run DAY | resume DAY | show DAY

The runs are in the database. A run that halts exits with 1: repair it, have a quarantine released
(mainstay inbox --store DATABASE_URL), and resume it where it stopped.
"""

import json
import os
import sys
from pathlib import Path

import boto3
import psycopg
import requests
from botocore.config import Config

from mainstay import Engine
from mainstay.profiles.pipelines import Pipeline, SchemaValidationError, Stage

BUCKET = "items"


def fetch(ctx):
    url = f"{os.environ['SOURCE_URL']}/items/{ctx.input}"
    answer = requests.get(url, timeout=ctx.timeout)
    answer.raise_for_status()
    return answer.json()


def validate(ctx):
    """REQUIRED has the names of the fields that each item must have: by default its id."""
    for number, item in enumerate(ctx.results["fetch"]):
        for name in os.environ.get("REQUIRED", "id").split():
            if name not in item:
                raise SchemaValidationError(f"item {number} of {ctx.input} has no {name}")
    return ctx.results["fetch"]


def connect():
    return psycopg.connect(os.environ["DATABASE_URL"])


def load(ctx):
    """Rows and message are one transaction with the record of the stage."""
    ctx.connection.execute("CREATE TABLE IF NOT EXISTS items (id text PRIMARY KEY, day text)")
    for item in ctx.results["validate"]:
        ctx.connection.execute(
            "INSERT INTO items VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET day = excluded.day",
            (item.get("id") or item["name"], ctx.input),
        )
    ctx.publish("items.loaded.v1", {"day": ctx.input, "items": len(ctx.results["validate"])})
    return len(ctx.results["validate"])


def upload(ctx):
    """The same key each time: a second upload changes nothing."""
    timeout = max(1.0, ctx.timeout)
    config = Config(retries={"total_max_attempts": 1}, read_timeout=timeout, connect_timeout=5)
    key = f"{ctx.input}.json"
    body = json.dumps(ctx.results["validate"]).encode()
    boto3.client("s3", config=config).put_object(Bucket=BUCKET, Key=key, Body=body)
    return key


def day_of(ctx):
    return [f"items-{ctx.input}"]


def make_pipeline(folder="."):
    engine = Engine(os.environ["DATABASE_URL"], sinks=[])
    governance = Path(folder, "governance.yml")
    each = {"idempotency": "idempotent", "datasets": day_of}
    guarded = {"idempotency": "outbox", "connect": connect, "datasets": day_of}
    stages = [
        Stage("fetch", fetch, kind="source", timeout=10, **each),
        Stage("validate", validate, kind="transform", after="fetch", **each),
        Stage("load", load, kind="sink", after="validate", **guarded),
        Stage("upload", upload, kind="sink", after="validate", **each),
    ]
    return Pipeline(
        "ingest",
        stages,
        engine=engine,
        governance=governance if governance.exists() else None,
        ledgers=Path(folder, "docs/reports/audit"),
        telemetry=Path(folder, "releases/v10.3.0/focus-telemetry.json"),
    )


def main(verb, day):
    pipeline = make_pipeline()
    with pipeline.engine:
        try:
            if verb == "run":
                pipeline.run(day, run_id=day)
            elif verb == "resume":
                pipeline.resume(day, by=os.environ.get("USER", ""))
        except Exception as error:
            print(f"{day}: {type(error).__name__}: {error}", file=sys.stderr)
        view = pipeline.get(day)
        stages = ", ".join(f"{each.name} {each.status} ({each.attempts})" for each in view.stages)
        print(f"{day}: {view.state} {view.cause}: {stages}")
    return view.state != "succeeded"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
