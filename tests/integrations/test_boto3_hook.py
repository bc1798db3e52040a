"""Real boto3 clients whose calls end at the deadline, against a server that fails or is slow."""

import base64
import io
import warnings
from urllib.parse import parse_qs

import boto3
import botocore
import botocore.exceptions
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

import mainstay
from mainstay import deadline
from mainstay.errors import MainstayWarning
from mainstay.integrations import http_headers
from mainstay.integrations.boto3 import attach
from mainstay.testing import virtual_time
from tests.integrations.errors.service_stub import (
    HALF,
    RESET,
    SILENCE,
    TRICKLE,
    Answer,
    ServiceStub,
    dead_port,
)
from tests.processes import at_some_speed

SLOW_DOWN = Answer(503, b"<Error><Code>SlowDown</Code></Error>")
MISSING = Answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
THREE = mainstay.RetryPolicy(attempts=3)


@pytest.fixture
def stub():
    with ServiceStub() as made:
        yield made


def client(url, service="s3", **retries):
    settings = Config(
        retries={"mode": "standard", **retries}, read_timeout=60, connect_timeout=60,
        s3={"addressing_style": "path"},
    )  # fmt: skip
    return boto3.client(
        service, endpoint_url=url, region_name="us-east-1", config=settings,
        aws_access_key_id="testing", aws_secret_access_key="testing",
    )  # fmt: skip


def test_the_policy_repeats_and_botocore_does_not(stub):
    """Three requests, not nine; the error is botocore's own."""
    stub.answers(SLOW_DOWN)
    s3 = attach(client(stub.url), THREE)
    with virtual_time(), pytest.raises(botocore.exceptions.ClientError, match="SlowDown"):
        s3.get_object(Bucket="shop", Key="k")
    assert stub.count == 3


def test_what_is_final_is_sent_once(stub):
    """As the table of botocore has it."""
    stub.answers(MISSING)
    s3 = attach(client(stub.url), THREE)
    with virtual_time(), pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="shop", Key="k")
    assert stub.count == 1


def test_without_a_policy_the_retry_around_it_is_the_only_one(stub):
    """The decorated function has the attempts, and botocore none."""
    stub.answers(SLOW_DOWN)
    s3 = attach(client(stub.url))
    retried = mainstay.retry(on=mainstay.transient, attempts=2)(s3.list_buckets)
    with virtual_time(), pytest.raises(botocore.exceptions.ClientError):
        retried()
    assert stub.count == 2


def test_the_product_is_stated_once(stub, monkeypatch):
    """If botocore's retries stay, a warning has the number of requests."""
    monkeypatch.setattr(http_headers, "_warned", set())
    with pytest.warns(MainstayWarning, match="3 x 3 = 9 requests; leave out own_retries"):
        s3 = attach(client(stub.url, total_max_attempts=3), THREE, own_retries=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attach(client(stub.url, total_max_attempts=3), THREE, own_retries=True)
    stub.answers(SLOW_DOWN)
    with virtual_time(), pytest.raises(botocore.exceptions.ClientError):
        s3.list_buckets()
    assert stub.count == 9


@pytest.mark.parametrize("answer", [SILENCE, TRICKLE])
@pytest.mark.parametrize("operation", ["get_object", "put_object"])
def test_a_server_that_is_too_slow_is_given_up_at_the_deadline(stub, answer, operation):
    """Whatever the timeout of a read is: the client's is 60 s, and bytes keep coming."""
    s3 = attach(client(stub.url))
    arguments = {"get_object": {}, "put_object": {"Body": b"x"}}[operation]

    def check(seconds):
        stub.answers(answer)
        with deadline.within(seconds), pytest.raises(botocore.exceptions.ReadTimeoutError):
            getattr(s3, operation)(Bucket="shop", Key="k", **arguments)
        ((_, _, headers, _),) = stub.requests
        assert "Expect" not in headers, "botocore would wait a second for a 100 Continue"

    at_some_speed(check, 0.5, 4.0)


def test_nothing_is_sent_after_the_deadline(stub):
    """No connection is made any more."""
    stub.answers(Answer(200, b""))
    s3 = attach(client(stub.url))
    with deadline.within(1e-9), pytest.raises(botocore.exceptions.ConnectTimeoutError):
        s3.list_buckets()
    assert stub.count == 0


def test_a_dead_port_and_a_reset_are_as_before(stub):
    """The connections are botocore's own in everything else."""
    with deadline.within(30.0), virtual_time():
        dead = attach(client(f"http://127.0.0.1:{dead_port()}"))
        with pytest.raises(botocore.exceptions.EndpointConnectionError):
            dead.list_buckets()
        stub.answers(RESET)
        with pytest.raises(botocore.exceptions.ConnectionClosedError):
            attach(client(stub.url)).list_buckets()


def test_a_file_is_sent_from_where_it_was(stub):
    """The second attempt has the same bytes as the first, not what was left of the file."""
    stub.answers(SLOW_DOWN, Answer(200, b""))
    file = io.BytesIO(b"head+body")
    file.seek(5)
    s3 = attach(client(stub.url), THREE)
    with virtual_time():
        s3.put_object(Bucket="shop", Key="k", Body=file, ContentLength=4)
    bodies = [body for *_, body in stub.requests]
    assert len(bodies) == 2
    assert all(b"body" in body and b"head" not in body for body in bodies)


@pytest.mark.parametrize("body", [b"data", "data", bytearray(b"data")])
@pytest.mark.parametrize("fault", [SLOW_DOWN, RESET])
def test_bytes_are_sent_again_whole(stub, fault, body):
    """A file is made of them in the parameters; another attempt would find it read."""
    stub.answers(fault, Answer(200, b""))
    s3 = attach(client(stub.url), THREE)
    with virtual_time():
        s3.put_object(Bucket="shop", Key="k", Body=body)
    assert [sent for *_, sent in stub.requests] == [b"data"] * 2


def test_each_attempt_is_given_what_the_caller_gave(stub):
    """Parameters are encoded in their place; a token that botocore adds stays the same."""
    error = b"<Error><Code>Unavailable</Code></Error>"
    busy = Answer(503, b"<Response><Errors>" + error + b"</Errors></Response>")
    started = Answer(200, b"<RunInstancesResponse><instancesSet/></RunInstancesResponse>")
    stub.answers(busy, started)
    ec2 = attach(client(stub.url, service="ec2"), THREE)
    given = {"ImageId": "i", "MinCount": 1, "MaxCount": 1, "UserData": "#!/bin/sh"}
    with virtual_time():
        ec2.run_instances(**given)
    first, second = (parse_qs(body.decode()) for *_, body in stub.requests)
    assert first == second
    assert first["UserData"] == [base64.b64encode(b"#!/bin/sh").decode()]
    assert first["ClientToken"]


@pytest.mark.parametrize("fault", [SLOW_DOWN, RESET])
@pytest.mark.parametrize("size", [4, 9 * 1024 * 1024], ids=["whole", "in parts"])
def test_a_file_that_is_uploaded_is_sent_again(stub, tmp_path, fault, size):
    """upload_file hands over parts of the file, which can be sought but do not state it."""
    path = tmp_path / "file"
    path.write_bytes(b"data" + bytes(size - 4))
    start = Answer(
        200, b"<CreateMultipartUploadResult><UploadId>u</UploadId></CreateMultipartUploadResult>"
    )
    stored = Answer(200, b"", {"ETag": '"tag"'})
    stub.answers(*([start] if size > 4 else []), fault, stored)
    s3 = attach(
        client(stub.url), mainstay.RetryPolicy(attempts=3, backoff=mainstay.Backoff.constant(0))
    )
    s3.upload_file(str(path), "shop", "k", Config=TransferConfig(max_concurrency=1))
    sent = [body for method, *_, body in stub.requests if method == "PUT" and b"data" in body]
    assert len(sent) == 2
    assert sent[0] == sent[1]


class Pipe(io.RawIOBase):
    """A body that can be read once."""

    def readable(self):
        return True

    def readinto(self, buffer):
        return 0


def test_a_body_that_cannot_be_read_again_is_sent_once(stub):
    """The second attempt would send nothing; a note on the error has the reason."""
    stub.answers(SLOW_DOWN)
    settings = Config(
        signature_version=botocore.UNSIGNED, request_checksum_calculation="when_required"
    )
    bare = boto3.client("s3", endpoint_url=stub.url, region_name="us-east-1", config=settings)
    s3 = attach(bare, THREE)
    with virtual_time(), pytest.raises(botocore.exceptions.ClientError) as caught:
        s3.put_object(Bucket="shop", Key="k", Body=Pipe(), ContentLength=0)
    assert stub.count == 1
    assert "PutObject whose body cannot be read again" in caught.value.__notes__[0]


def test_a_body_that_streams_ends_at_the_deadline_too(stub):
    """The object is read after the call has returned, over the same connection."""
    s3 = attach(client(stub.url))

    def check(seconds):
        stub.answers(HALF)
        with deadline.within(seconds):
            body = s3.get_object(Bucket="shop", Key="k")["Body"]
            with pytest.raises(botocore.exceptions.ReadTimeoutError):
                body.read()

    at_some_speed(check, 0.5, 20.0)


def test_a_transfer_without_threads_ends_at_the_deadline(stub):
    """Those of s3transfer do not have the deadline of the caller."""
    s3 = attach(client(stub.url))
    here = TransferConfig(use_threads=False)

    def check(seconds):
        stub.answers(SILENCE)
        with deadline.within(seconds), pytest.raises(botocore.exceptions.ReadTimeoutError):
            s3.upload_fileobj(io.BytesIO(b"x"), "shop", "k", Config=here)

    at_some_speed(check, 0.5, 20.0)
