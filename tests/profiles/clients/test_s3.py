"""The client front door with the real boto3: S3 of moto, behind a front and the fault proxy.

    boto3 --> FaultProxy (reset, black hole) --> ServiceStub (S3's errors, counts) --> moto

Requests are counted at the front, connections at the proxy.
"""

import asyncio
import os
import subprocess
import sys
import uuid
from pathlib import Path

import boto3
import botocore.exceptions
import pytest
from botocore.config import Config
from moto.server import ThreadedMotoServer

from mainstay.profiles.clients import (
    CircuitBreaker,
    CircuitBreakerConfiguration,
    CircuitOpenException,
    CircuitState,
    with_s3_retry,
)
from mainstay.testing import FaultProxy, virtual_time
from tests.integrations.errors.service_stub import Answer, ServiceStub
from tests.servers.http_faults import HttpFaults, Status

BUCKET = "shop"
LOST = (botocore.exceptions.ConnectionClosedError, botocore.exceptions.EndpointConnectionError)
"""A connection that is reset: after the handshake, or as part of it."""


@pytest.fixture(scope="module")
def front():
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    with ServiceStub(upstream=moto.get_host_and_port()) as stub:
        client(stub.url).create_bucket(Bucket=BUCKET)
        yield stub
    moto.stop()


@pytest.fixture
def proxy(front):
    front.answers()
    with FaultProxy(front.host, front.port) as made:
        yield made


def client(url, timeout=60):
    """A client without retries of its own: they would multiply ours."""
    config = Config(
        retries={"total_max_attempts": 1}, read_timeout=timeout, connect_timeout=5,
        s3={"addressing_style": "path"},
    )  # fmt: skip
    return boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", config=config,
        aws_access_key_id="testing", aws_secret_access_key="testing",
    )  # fmt: skip


def through(proxy, timeout=60):
    return client(f"http://{proxy.host}:{proxy.port}", timeout)


def s3_error(status, code):
    """As in "Error responses" of the Amazon S3 API Reference."""
    return Answer(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())


@pytest.mark.req("CL-10", "CL-12", "CL-03")
@pytest.mark.parametrize(
    "refused",
    [(503, "SlowDown"), (503, "ServiceUnavailable"), (500, "InternalError"),
     (429, "ThrottlingException"), (400, "ProvisionedThroughputExceededException")],
)  # fmt: skip
def test_what_s3_asks_to_repeat_is_repeated(front, proxy, refused):
    """Refused twice, stored by the third request."""
    s3 = through(proxy)

    @with_s3_retry()
    def upload(key, data):
        s3.put_object(Bucket=BUCKET, Key=key, Body=data)

    front.answers(s3_error(*refused), s3_error(*refused))
    with virtual_time() as time:
        upload("invoice", b"whole")
    assert (front.count, len(time.sleeps)) == (3, 2)
    assert s3.get_object(Bucket=BUCKET, Key="invoice")["Body"].read() == b"whole"


@pytest.mark.req("CL-10", "CL-12")
@pytest.mark.parametrize(("fault", "error"), [
    ("reset", LOST),
    ("black_hole", botocore.exceptions.ReadTimeoutError),
    ("refuse", botocore.exceptions.EndpointConnectionError),
])  # fmt: skip
def test_a_network_that_fails_is_tried_again(front, proxy, fault, error):
    """Until the attempts are spent, and with success if it heals meanwhile; sync and async."""
    s3, broken = through(proxy, timeout=2.0 if fault == "black_hole" else 60), []

    def download(key):
        broken.append(1)
        if len(broken) == 3:
            proxy.heal()
        return s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    client(front.url).put_object(Bucket=BUCKET, Key="here", Body=b"stored")
    front.answers()
    getattr(proxy, fault)()
    with virtual_time():
        with pytest.raises(error):
            with_s3_retry(max_attempts=2)(download)("here")
        assert (front.count, len(broken)) == (0, 2)
        assert with_s3_retry()(download)("here") == b"stored"

        @with_s3_retry()
        async def adownload(key):
            return await asyncio.to_thread(s3.get_object, Bucket=BUCKET, Key=key)

        assert asyncio.run(adownload("here"))["ContentLength"] == 6
    assert front.count == 2


@pytest.mark.req("CL-10", "CL-12", "CL-03")
@pytest.mark.parametrize(
    ("refused", "code"),
    [(None, "NoSuchKey"), ((403, "AccessDenied"), "AccessDenied"),
     ((403, "AccessDeniedException"), "AccessDeniedException"),
     ((403, "InvalidSignatureException"), "InvalidSignatureException")],
)  # fmt: skip
def test_what_is_missing_or_forbidden_is_sent_once(front, proxy, refused, code):
    """One request at the server; a missing key is answered by moto itself."""
    front.answers(*([s3_error(*refused)] if refused else []))
    get = with_s3_retry()(through(proxy).get_object)
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        get(Bucket=BUCKET, Key="nobody has put it")
    assert caught.value.response["Error"]["Code"] == code
    assert (front.count, proxy.connections) == (1, 1)


UPLOAD = """
import sys
from mainstay.profiles.clients import (
    CircuitBreaker, CircuitBreakerConfiguration, CircuitOpenException, with_s3_retry,
)
from tests.profiles.clients.test_s3 import BUCKET, client

config = CircuitBreakerConfiguration(state_persistence="redis", redis_key_prefix=sys.argv[2])
breaker = CircuitBreaker("s3.put", config)

@with_s3_retry(circuit_breaker=breaker)
def upload():
    client(sys.argv[1]).put_object(Bucket=BUCKET, Key="k", Body=b"x")

try:
    upload()
except CircuitOpenException as error:
    print(error, error.state.value)
breaker.close()
"""


@pytest.mark.req("CL-06", "CL-07", "CL-10")
def test_a_shared_breaker_opens_after_five_failed_uploads(front, proxy, valkey_url, monkeypatch):
    """The sixth makes no connection, in this process and in another one."""
    monkeypatch.setenv("REDIS_URL", valkey_url)
    prefix = f"test_s3-{uuid.uuid4().hex}:"
    config = CircuitBreakerConfiguration(state_persistence="redis", redis_key_prefix=prefix)
    breaker = CircuitBreaker("s3.put", config)
    s3 = through(proxy)

    @with_s3_retry(max_attempts=1, circuit_breaker=breaker)
    def upload():
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")

    try:
        proxy.reset()
        for number in range(1, 6):
            assert breaker.state is CircuitState.CLOSED
            with pytest.raises(LOST):
                upload()
            assert breaker.failure_count == number
        proxy.heal()
        before = proxy.connections
        with pytest.raises(CircuitOpenException, match=r"^Circuit breaker open for s3\.put$"):
            upload()
        url = f"http://{proxy.host}:{proxy.port}"
        other = subprocess.run(
            [sys.executable, "-c", UPLOAD, url, prefix], capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert other.stdout == "Circuit breaker open for s3.put open\n", other.stderr
        assert (front.count, proxy.connections) == (0, before)
    finally:
        breaker.close()


# --- the example ----------------------------------------------------------------------------------

EXAMPLE = Path(__file__).parents[3] / "examples/doors/upload_clients.py"


def ran_example(proxy, api, *names, **settings):
    environment = {
        **os.environ, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_CONFIG_FILE": os.devnull, "API_URL": api.url,
        "AWS_ENDPOINT_URL": f"http://{proxy.host}:{proxy.port}", **settings,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, EXAMPLE, BUCKET, *names], env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.req("CL-10", "CL-11")
def test_the_example_uploads_and_reports_through_faults(front, proxy, tmp_path):
    """S3 is slow once and a key of the API is throttled once; the next file is reported in vain."""
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(name.encode())
    front.answers(s3_error(503, "SlowDown"))
    with HttpFaults() as api:
        api.on("/uploads/one", Status(429, {"Retry-After": "0"}), Status(200))
        api.on("/uploads/two", Status(409))
        done = ran_example(proxy, api, tmp_path / "one", tmp_path / "two")
    lines = done.stdout.splitlines()
    assert lines[0] == "uploaded one, reported (attempts: 2)", done.stderr
    assert lines[1].startswith("uploaded two, not reported: 409 Client Error")
    assert lines[1].endswith("(attempts: 1)")
    assert front.count == 3
    assert client(front.url).get_object(Bucket=BUCKET, Key="two")["Body"].read() == b"two"


def test_the_example_ends_at_an_open_circuit(front, proxy, valkey_url, tmp_path):
    """Which another process has opened; nothing is sent."""
    (tmp_path / "one").write_bytes(b"1")
    url = f"{valkey_url.rpartition('/')[0]}/7"
    config = CircuitBreakerConfiguration(state_persistence="redis")
    breaker = CircuitBreaker("s3.put", config, redis_url=url)
    try:
        for _ in range(5):
            breaker.record_failure()
        with HttpFaults() as api:
            done = ran_example(proxy, api, tmp_path / "one", REDIS_URL=url)
        assert done.returncode == 1
        assert done.stderr.startswith("Circuit breaker open for s3.put; try again in ")
        assert (front.count, proxy.connections) == (0, 0)
    finally:
        breaker.reset()
        breaker.close()
