"""The code of the cookbook's pages on clouds and services, against servers that fail at first."""

import base64
import json

import boto3
import neo4j.exceptions
import pytest
from moto.server import ThreadedMotoServer

from mainstay.testing import virtual_time
from tests.integrations.errors.bolt_stub import BEGIN, BoltStub
from tests.integrations.errors.recipe import run_recipe
from tests.integrations.errors.service_stub import Answer, ServiceStub, in_json

BUSY = Answer(503, b"busy", {"Content-Type": "text/plain"})


@pytest.fixture
def stub():
    with ServiceStub() as made:
        yield made


def test_boto3(monkeypatch):
    """S3 asks to slow down, then has it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    try:
        with ServiceStub(moto.get_host_and_port()) as front:
            boto3.client("s3", endpoint_url=front.url).create_bucket(Bucket="shop")
            front.answers(*[Answer(503, b"<Error><Code>SlowDown</Code></Error>")] * 3)
            page = run_recipe("boto3", **{"http://localhost:9000": front.url})
            assert (page["content"], page["again"], front.count) == (b"1", b"1", 6)
    finally:
        moto.stop()


@pytest.mark.filterwarnings("ignore:Please install grpcio-status:ImportWarning")
def test_google_cloud(stub):
    """Two answers that it is busy."""
    stub.answers(BUSY, BUSY, in_json(200, {"name": "order"}))
    page = run_recipe("google-cloud", **{"http://localhost:8000": stub.url})
    assert (page["found"], stub.count) == ({"name": "order"}, 3)


def test_azure(stub):
    """Two answers that it is busy."""
    stub.answers(BUSY, BUSY, Answer(200, b"1"))
    names = {"http://localhost:8000": stub.url, "BlobServiceClient(url, credential, ": "dict("}
    page = run_recipe("azure", **names)
    assert (page["content"], stub.count) == (b"1", 3)


def test_elasticsearch(stub):
    """A rejected execution, then both requests succeed."""
    product = {"x_elastic_product": "Elasticsearch"}
    rejected = in_json(429, {"error": {"type": "es_rejected_execution_exception"}}, **product)
    done = in_json(200, {"_source": {"paid": True}}, **product)
    stub.answers(rejected, rejected, done, done)
    page = run_recipe("elasticsearch", **{"http://localhost:9200": stub.url})
    assert (page["order"], stub.count) == ({"paid": True}, 4)


def test_vault(stub):
    """Sealed, a quota, then the secret."""
    secret = in_json(200, {"data": {"data": {"password": "hidden"}}})
    stub.answers(BUSY, in_json(429, {"errors": ["quota"]}), secret)
    page = run_recipe("vault", **{"http://localhost:8200": stub.url, '"…"': '"token"'})
    assert page["password"] == "hidden"
    assert stub.count == 4  # the write of the second block too


def test_consul(stub):
    """No leader, then both requests succeed."""
    value = [{"Value": base64.b64encode(b"yes").decode()}]
    found = Answer(200, json.dumps(value).encode(), {"X-Consul-Index": "1"})
    stub.answers(Answer(500, b"No cluster leader"), Answer(200, b"true"), found)
    page = run_recipe("consul", **{"localhost": "127.0.0.1", "8500": stub.port})
    assert (page["value"], stub.count) == (b"yes", 3)


def test_neo4j():
    """The database is not available, and the driver does not repeat by itself."""
    with BoltStub() as server:
        page = run_recipe("neo4j", **{"bolt://localhost:7687": server.url})
        assert server.count == 1
        server.answers({BEGIN: "Neo.TransientError.General.DatabaseUnavailable"})
        with virtual_time(), pytest.raises(neo4j.exceptions.DatabaseUnavailable):
            page["pay"]("2")
        assert server.seen.count(BEGIN) == 4
        page["driver"].close()
