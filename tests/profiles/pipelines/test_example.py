"""The worked example with real servers: an HTTP source, PostgreSQL and S3 (moto).

It fails in each of the ways of the document, and is resumed.
"""

import importlib.util
import json
from pathlib import Path

import boto3
import psycopg
import pytest
from moto.server import ThreadedMotoServer

from mainstay.profiles.pipelines import read_ledger, read_telemetry, verify_together
from tests.integrations.errors.service_stub import Answer, ServiceStub
from tests.servers.http_faults import HttpFaults, Status

EXAMPLE = Path(__file__).parents[3] / "examples/doors/ingest_pipeline.py"
GOOD = Status(200, body=b'[{"id": "a"}, {"id": "b"}]')
BAD = Status(200, body=b'[{"id": "a"}, {"name": "b"}]')
DOWN = Status(503)
SLOW_DOWN = Answer(503, b"<Error><Code>SlowDown</Code><Message>no</Message></Error>")
SECRET = "correct horse battery"


@pytest.fixture
def s3(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    with ServiceStub(upstream=moto.get_host_and_port()) as stub:
        monkeypatch.setenv("AWS_ENDPOINT_URL", stub.url)
        boto3.client("s3").create_bucket(Bucket="items")
        stub.answers()
        yield stub
    moto.stop()


@pytest.fixture
def source(monkeypatch):
    with HttpFaults() as server:
        monkeypatch.setenv("SOURCE_URL", server.url)
        yield server


@pytest.fixture
def example(postgres_database, s3, source, tmp_path, monkeypatch):
    """The module, in a folder of its own."""
    monkeypatch.setenv("DATABASE_URL", postgres_database)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("ingest_pipeline", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def released(example):
    """A person releases what is in quarantine."""
    pipeline = example.make_pipeline()
    with pipeline.engine as engine:
        if not list(engine.operators):
            engine.operators.add("ann", secret=SECRET)
        for item in list(engine.inbox):
            action = "release" if item.kind == "quarantine" else "mark_done"
            more = {"why": "repaired", "evidence": "repaired"}
            assert engine.inbox.act(item.id, action, by="ann", proof=SECRET, **more).won


def state(capsys):
    return capsys.readouterr().out.splitlines()[-1]


@pytest.mark.req("PL-01.statuses", "PL-03", "PL-07", "PL-08", "PL-09", "PL-10")
def test_it_fails_in_each_way_and_is_resumed(example, source, s3, capsys, tmp_path, monkeypatch):
    """Retried, failed fast, halted by an outage and resumed; what is blocked is never fetched."""
    source.on("/items/d1", DOWN, GOOD)
    s3.answers(SLOW_DOWN)
    assert example.main("run", "d1") == 0
    assert state(capsys) == (
        "d1: succeeded : fetch done (2), validate done (1), load done (1), upload done (2)"
    )

    source.on("/items/d2", BAD)
    assert example.main("run", "d2") == 1
    assert state(capsys).startswith(
        "d2: halted fail_fast: fetch done (1), validate failed (1), load"
    )
    assert example.main("resume", "d2") == 1  # it is in quarantine
    released(example)
    monkeypatch.setenv("REQUIRED", "")  # the schema is repaired
    assert example.main("resume", "d2") == 0
    monkeypatch.delenv("REQUIRED")
    assert source.count("/items/d2") == 1

    source.on("/items/d3", DOWN, DOWN, DOWN, GOOD)
    assert example.main("run", "d3") == 1
    assert state(capsys).startswith("d3: halted exhausted: fetch failed (3)")
    assert example.main("resume", "d3") == 1  # the circuit is open: nothing is sent
    assert source.count("/items/d3") == 3
    pipeline = example.make_pipeline()
    with pipeline.engine as engine:
        engine.pipelines.prepare(pipeline._setup)
        for circuit in pipeline.engine.pipelines._parts.circuits("ingest.fetch", None):
            circuit.reset()
        assert pipeline.resume("d3").results["upload"] == "d3.json"

    Path("governance.yml").write_text("datasets: {items-d4: {status: blocked}}", encoding="utf-8")
    source.on("/items/d4", GOOD)
    assert example.main("run", "d4") == 1
    assert example.main("resume", "d4") == 1
    assert source.count("/items/d4") == 0

    check_what_is_left(example, tmp_path)


def check_what_is_left(example, folder):
    """Rows, objects and messages of the days that went well; whole ledgers; telemetry of all."""
    with psycopg.connect(example.os.environ["DATABASE_URL"]) as connection:
        days = connection.execute("SELECT DISTINCT day FROM items ORDER BY day").fetchall()
        assert days == [("d3",)]  # the same rows were written again
    keys = [each["Key"] for each in boto3.client("s3").list_objects(Bucket="items")["Contents"]]
    assert keys == ["d1.json", "d2.json", "d3.json"]
    audit = folder / "docs/reports/audit"
    log = read_ledger(audit / "pipeline_retry_log.json")
    versions = read_ledger(audit / "versioning_ledger.json")
    assert verify_together(log, versions) == []
    found = {(entry.run_id, entry.stage, entry.kind) for entry in log.entries}
    assert {
        ("d1", "fetch", "retried"), ("d1", "upload", "retried"), ("d2", "validate", "failed_fast"),
        ("d3", "fetch", "exhausted"), ("d3", "fetch", "refused"), ("d4", "fetch", "failed_fast"),
    } <= found  # fmt: skip
    assert json.loads((audit / "versioning_ledger.json").read_bytes())["version"] == 1
    stages = {each.stage_name for each in read_telemetry(
        folder / "releases/v10.3.0/focus-telemetry.json").records}  # fmt: skip
    assert stages == {"fetch", "validate", "load", "upload"}
