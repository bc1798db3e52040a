"""S3 through the real boto3, against moto's server behind a front that answers with S3's errors.

The bodies are those of "Error responses" in the Amazon S3 API Reference; DynamoDB's are those of
"Error handling with DynamoDB" in its developer guide.
"""

import io
import json
import socket
import ssl

import boto3
import boto3.exceptions
import botocore.exceptions
import botocore.parsers
import pytest
import urllib3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from moto.server import ThreadedMotoServer

import mainstay
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.integrations.errors import table
from mainstay.profiles.clients import RetryConfiguration
from mainstay.testing import virtual_time
from tests.integrations.errors.service_stub import (
    CUT,
    DATE,
    HAS_REQUESTS,
    LATER,
    RESET,
    SILENCE,
    Answer,
    ServiceStub,
    dead_port,
    seen,
)
from tests.processes import wait_until

BUCKET = "shop"
ONE_ATTEMPT = {"total_max_attempts": 1}


def client(service, url, retries=ONE_ATTEMPT, timeout=60):
    config = Config(retries=retries, read_timeout=timeout, s3={"addressing_style": "path"})
    return boto3.client(
        service, endpoint_url=url, region_name="us-east-1", config=config,
        aws_access_key_id="testing", aws_secret_access_key="testing",
    )  # fmt: skip


@pytest.fixture(scope="module")
def moto():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()
    server.stop()


@pytest.fixture(scope="module")
def front(moto):
    """S3 behind a front that injects answers."""
    with ServiceStub(upstream=moto) as stub:
        s3 = client("s3", stub.url)
        s3.create_bucket(Bucket=BUCKET)
        s3.put_object(Bucket=BUCKET, Key="here", Body=b"stored")
        yield stub


@pytest.fixture(scope="module")
def s3(front):
    return client("s3", front.url)


@pytest.fixture(scope="module")
def dynamodb():
    with ServiceStub() as stub:
        yield stub, client("dynamodb", stub.url)


def s3_error(status, code, **headers):
    body = f"<Error><Code>{code}</Code><Message>m</Message><RequestId>1</RequestId></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml", **headers})


def dynamodb_error(status, code, **content):
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "m", **content}
    return Answer(status, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("status", "code", "kind", "ambiguous"),
    [
        (503, "SlowDown", Kind.THROTTLED, False),
        (400, "ThrottlingException", Kind.THROTTLED, False),
        (503, "RequestLimitExceeded", Kind.THROTTLED, False),
        (503, "ServiceUnavailable", Kind.OVERLOAD, False),
        (500, "InternalError", Kind.TRANSIENT, True),
        (400, "RequestTimeout", Kind.TIMEOUT, False),
        (400, "IncompleteBody", Kind.TRANSIENT, False),
        (409, "OperationAborted", Kind.TRANSIENT, False),
        (409, "ConditionalRequestConflict", Kind.TRANSIENT, False),
        (502, "NobodyKnows", Kind.TRANSIENT, True),
        (509, "NobodyKnows", Kind.THROTTLED, False),
        (429, "NobodyKnows", Kind.THROTTLED, False),
    ],
)
@pytest.mark.req("PL-01.provider")
def test_what_s3_asks_to_repeat_is_repeated(front, s3, status, code, kind, ambiguous):
    """The code decides before the status: S3's 503 SlowDown is a request for fewer requests."""
    front.answers(*[s3_error(status, code)] * 5)
    error = seen(lambda: s3.put_object(Bucket=BUCKET, Key="new", Body=b"x"))
    known = kind_of(error)
    assert (known.kind, known.is_ambiguous, front.count) == (kind, ambiguous, 3)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AccessDenied", Kind.AUTH),
        (400, "ExpiredToken", Kind.AUTH),
        (403, "SignatureDoesNotMatch", Kind.AUTH),
        (403, "InvalidAccessKeyId", Kind.AUTH),
        (403, "RequestTimeTooSkewed", Kind.AUTH),
        (412, "PreconditionFailed", Kind.PERMANENT),
        (400, "EntityTooLarge", Kind.PERMANENT),
        (400, "NobodyKnows", Kind.PERMANENT),
        (401, "NobodyKnows", Kind.AUTH),
    ],
)
def test_what_would_fail_again_is_not_repeated(front, s3, status, code, kind):
    """One request, whatever the status."""
    front.answers(*[s3_error(status, code)] * 5)
    error = seen(lambda: s3.put_object(Bucket=BUCKET, Key="new", Body=b"x"))
    assert (kind_of(error).kind, front.count) == (kind, 1)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda s3: s3.get_object(Bucket=BUCKET, Key="gone"), "NoSuchKey"),
        (lambda s3: s3.get_object(Bucket="nowhere", Key="here"), "NoSuchBucket"),
        (lambda s3: s3.head_object(Bucket=BUCKET, Key="gone"), "404"),
    ],
)
def test_what_is_not_in_s3_is_asked_for_once(front, s3, call, code):
    """The answers are moto's own; botocore makes a class for NoSuchKey at run time."""
    front.answers()
    error = seen(lambda: call(s3))
    assert error.response["Error"]["Code"] == code
    assert (kind_of(error).kind, front.count) == (Kind.PERMANENT, 1)


@pytest.mark.parametrize("rule", ["NoSuchKey", "the class"])
def test_a_rule_that_names_the_code_covers_it(front, s3, rule):
    """An object that another program is about to write is waited for, if the code says so."""
    front.answers()
    on = s3.exceptions.NoSuchKey if rule == "the class" else rule
    with virtual_time(), pytest.raises(s3.exceptions.NoSuchKey):
        mainstay.retry(on=on, attempts=3)(s3.get_object)(Bucket=BUCKET, Key="gone")
    assert front.count == 3


def test_a_rule_that_names_the_base_does_not(front, s3):
    """`on=ClientError` is no word about NoSuchKey."""
    front.answers()
    retried = mainstay.retry(on=botocore.exceptions.ClientError, attempts=3)(s3.get_object)
    with virtual_time(), pytest.raises(s3.exceptions.NoSuchKey):
        retried(Bucket=BUCKET, Key="gone")
    assert front.count == 1


def test_the_call_succeeds_when_s3_has_recovered(front, s3):
    """Two failures, then moto's own answer."""
    front.answers(s3_error(503, "SlowDown"), RESET)
    retried = mainstay.retry(on=mainstay.transient, attempts=3)(s3.get_object)
    with virtual_time():
        assert retried(Bucket=BUCKET, Key="here")["Body"].read() == b"stored"
    assert front.count == 3


@pytest.mark.parametrize(
    ("answer", "error", "kind"),
    [
        (RESET, botocore.exceptions.ConnectionClosedError, Kind.TRANSIENT),
        (SILENCE, botocore.exceptions.ReadTimeoutError, Kind.TIMEOUT),
    ],
)
def test_an_answer_that_does_not_come_leaves_a_write_in_doubt(front, answer, error, kind):
    """A PUT is idempotent, so it is repeated."""
    front.answers(answer, answer, answer)
    s3 = client("s3", front.url, timeout=0.2 if answer is SILENCE else 60)
    raised = seen(lambda: s3.put_object(Bucket=BUCKET, Key="new", Body=b"x"), attempts=2)
    known = kind_of(raised)
    wait_until(lambda: front.count >= 2, "the requests")
    assert isinstance(raised, error)
    assert (known.kind, known.is_ambiguous, front.count) == (kind, True, 2)


@pytest.mark.parametrize("answer", [RESET, SILENCE])
def test_a_lost_answer_to_a_post_is_asked_for_again_only_if_it_reads(dynamodb, answer):
    """Every call to DynamoDB is a POST; the operation is in a header of the request."""
    stub, _ = dynamodb
    db = client("dynamodb", stub.url, timeout=0.2 if answer is SILENCE else 60)
    stub.answers(answer, answer)
    error = seen(lambda: db.delete_item(TableName="t", Key={"id": {"S": "1"}}), attempts=2)
    assert kind_of(error).unsafe.startswith("POST without a token or a condition (ClientToken,")
    (note,) = [each for each in error.__notes__ if "ambiguous" in each]
    assert "may have been carried out; give the call one, and name this very class in on=" in note
    assert "header" not in note, "AWS knows none for that"
    wait_until(lambda: stub.count == 1, "the request")
    stub.answers(answer, answer)
    error = seen(lambda: db.get_item(TableName="t", Key={"id": {"S": "1"}}), attempts=2)
    assert (kind_of(error).is_ambiguous, kind_of(error).unsafe) == (True, "")
    wait_until(lambda: stub.count == 2, "the requests")


def test_a_body_that_ends_early_is_read_again(front, s3):
    """The object comes in part; the whole call is repeated, reading included."""
    front.answers(CUT, CUT, CUT)

    def read():
        return s3.get_object(Bucket=BUCKET, Key="here")["Body"].read()

    error = seen(read, attempts=2)
    known = kind_of(error)
    assert (known.kind, known.is_ambiguous, front.count) == (Kind.TRANSIENT, True, 2)


def test_a_dead_port_is_tried_again():
    """Nothing was sent, so nothing is in doubt."""
    dead = client("s3", f"http://127.0.0.1:{dead_port()}")
    tries = []
    error = seen(lambda: (tries.append(1), dead.list_buckets()))
    known = kind_of(error)
    assert isinstance(error, botocore.exceptions.EndpointConnectionError)
    assert (known.kind, known.is_ambiguous, len(tries)) == (Kind.TRANSIENT, False, 3)


def test_no_credentials_is_an_authentication_failure(front, monkeypatch):
    """Nothing is sent, and nothing repeated."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "missing")
    monkeypatch.setenv("AWS_CONFIG_FILE", "missing")
    front.answers()
    bare = boto3.Session().client("s3", endpoint_url=front.url, region_name="us-east-1")
    error = seen(bare.list_buckets)
    assert (kind_of(error).kind, front.count) == (Kind.AUTH, 0)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": LATER, "Date": DATE}, 7.0),
        ({"x-amz-retry-after": "1500"}, 1.5),
    ],
)
def test_the_wait_that_the_service_asks_for_is_kept(front, s3, headers, wait):
    """Seconds, a date, or AWS's own header with milliseconds."""
    front.answers(*[s3_error(503, "SlowDown", **headers)] * 2)
    error = seen(lambda: s3.get_object(Bucket=BUCKET, Key="here"), attempts=2)
    assert mainstay.RetryPolicy().classification(error).retry_after == wait
    assert error.waits[0] >= wait


IN_JSON, IN_XML = b'{"__type": "InternalFailure"}', b"<Error><Code>InternalError</Code></Error>"
MESSAGE = {"QueueUrl": "http://127.0.0.1/1/q", "MessageBody": "m"}
UPLOAD = {"Bucket": "b", "Key": "k"}
INSTANCE = {"ImageId": "i", "MinCount": 1, "MaxCount": 1}


@pytest.mark.parametrize(
    ("service", "operation", "arguments", "body", "count"),
    [
        ("sqs", "send_message", MESSAGE, IN_JSON, 1),
        ("dynamodb", "delete_item", {"TableName": "t", "Key": {"id": {"S": "1"}}}, IN_JSON, 1),
        ("dynamodb", "get_item", {"TableName": "t", "Key": {"id": {"S": "1"}}}, IN_JSON, 3),
        ("ec2", "run_instances", INSTANCE, IN_XML, 1),
        ("ec2", "describe_instances", {}, IN_XML, 3),
        ("s3", "create_multipart_upload", UPLOAD, IN_XML, 3),
        ("s3", "put_object", UPLOAD, IN_XML, 3),
    ],
)
@pytest.mark.parametrize("fault", ["500", "reset"])
def test_a_post_that_may_have_been_carried_out_is_repeated_if_it_reads(
    dynamodb, service, operation, arguments, body, count, fault
):
    """After a status as after a reset. The POSTs of S3 can be repeated as its PUTs can."""
    stub, _ = dynamodb
    stub.answers(RESET if fault == "reset" else Answer(500, body))
    send = getattr(client(service, stub.url), operation)
    if "QueueUrl" in arguments:
        arguments = {**arguments, "QueueUrl": f"{stub.url}/1/q"}
    error = seen(lambda: send(**arguments))
    known = kind_of(error)
    assert (known.kind, known.is_ambiguous, stub.count) == (Kind.TRANSIENT, True, count)


@pytest.mark.parametrize(
    ("code", "reasons", "kind", "count"),
    [
        ("ProvisionedThroughputExceededException", None, Kind.THROTTLED, 3),
        ("ConditionalCheckFailedException", None, Kind.PERMANENT, 1),
        ("TransactionConflictException", None, Kind.TRANSIENT, 3),
        ("TransactionCanceledException", ["None", "TransactionConflict"], Kind.TRANSIENT, 3),
        ("TransactionCanceledException", ["ThrottlingError"], Kind.THROTTLED, 3),
        (
            "TransactionCanceledException",
            ["TransactionConflict", "ConditionalCheckFailed"],
            Kind.PERMANENT,
            1,
        ),
        ("ExpiredTokenException", None, Kind.AUTH, 1),
    ],
)
def test_dynamodb_by_its_codes(dynamodb, code, reasons, kind, count):
    """A cancelled transaction is repeated if nothing but other transactions was in its way."""
    stub, db = dynamodb
    content = {"CancellationReasons": [{"Code": each} for each in reasons]} if reasons else {}
    stub.answers(dynamodb_error(400, code, **content))
    item = {"TableName": "t", "Key": {"id": {"S": "1"}}}
    error = seen(lambda: db.transact_write_items(TransactItems=[{"Delete": item}]))
    assert (kind_of(error).kind, stub.count) == (kind, count)


def test_a_failed_upload_is_judged_by_what_failed(front, s3):
    """`upload_fileobj` raises an error of its own around the one of S3."""
    front.answers(*[s3_error(503, "SlowDown")] * 5)
    plain = TransferConfig(use_threads=False)

    def upload():
        s3.upload_fileobj(io.BytesIO(b"x"), BUCKET, "new", Config=plain)

    error = seen(upload)
    assert (kind_of(error).kind, front.count) == (Kind.THROTTLED, 3)


def test_a_file_that_s3_refuses_is_judged_by_why(front, s3, tmp_path):
    """`upload_file` wraps the error once more."""
    (tmp_path / "file").write_bytes(b"x")
    front.answers(*[s3_error(403, "AccessDenied")] * 5)
    error = seen(lambda: s3.upload_file(str(tmp_path / "file"), BUCKET, "new"))
    assert isinstance(error, boto3.exceptions.S3UploadFailedError)
    assert (kind_of(error).kind, front.count) == (Kind.AUTH, 1)


def test_retries_of_botocore_multiply(front):
    """Three attempts of ours and three of botocore's are nine requests: turn one of them off."""
    front.answers(*[s3_error(503, "SlowDown")] * 20)
    own = client("s3", front.url, {"mode": "standard", "total_max_attempts": 3})
    seen(lambda: own.get_object(Bucket=BUCKET, Key="here"))
    assert front.count == 9


@pytest.mark.req("CL-03")
@pytest.mark.parametrize(
    "rule",
    ["ThrottlingException", "ClientError", botocore.exceptions.ClientError],
    ids=["code", "name", "class"],
)
def test_the_front_door_takes_a_code_a_name_and_a_class(front, s3, rule):
    """Through a real ClientError; another code is not covered by the code's name."""
    front.answers(s3_error(400, "ThrottlingException"))
    policy = RetryConfiguration(retry_on_exceptions=(rule,)).policy()
    with virtual_time():
        policy.call(s3.get_object, Bucket=BUCKET, Key="here")
    assert front.count == 2
    front.answers(s3_error(400, "EntityTooLarge"))
    with pytest.raises(botocore.exceptions.ClientError):
        policy.call(s3.get_object, Bucket=BUCKET, Key="here")
    assert front.count == 1


def test_the_front_door_repeats_what_s3_asks_it_to(front, s3):
    """The rules of the client document do not name SlowDown; what is known of S3 does."""
    for answer in (s3_error(503, "SlowDown"), s3_error(400, "RequestTimeout"), RESET):
        front.answers(answer)
        with virtual_time():
            got = RetryConfiguration().policy().call(s3.get_object, Bucket=BUCKET, Key="here")
        assert got["Body"].read() == b"stored"
        assert front.count == 2, answer


def test_a_download_that_is_cut_has_been_begun_five_times(front, s3, tmp_path):
    """What s3transfer gives up on is judged by its last failure; then the whole is repeated."""
    front.answers(Answer(200, b"x" * 10, {"ETag": '"1"'}), *[CUT] * 20)
    error = seen(lambda: s3.download_file(BUCKET, "here", str(tmp_path / "file")), attempts=1)
    known = kind_of(error)
    assert isinstance(error, boto3.exceptions.RetriesExceededError)
    assert (known.kind, known.is_ambiguous, front.count) == (Kind.TRANSIENT, True, 1 + 5)


PARSER = botocore.parsers.create_parser("rest-xml")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (307, "TemporaryRedirect", Kind.TRANSIENT),
        (301, "PermanentRedirect", Kind.PERMANENT),
        (0, "NobodyKnows", Kind.UNKNOWN),
    ],
)
def test_answers_that_botocore_does_not_hand_on_are_read_by_its_parser(status, code, kind):
    """It follows a redirect of S3 until the stack ends; so no server can provoke the error."""
    answer = s3_error(status, code)
    response = {"status_code": status or 500, "headers": {}, "body": answer.body}
    parsed = PARSER.parse(response, None)
    parsed["ResponseMetadata"]["HTTPStatusCode"] = status
    assert kind_of(botocore.exceptions.ClientError(parsed, "PutObject")).kind is kind


@pytest.mark.parametrize(
    ("state", "kind"), [("CREATING", Kind.TIMEOUT), ("FAILED", Kind.PERMANENT)]
)
def test_a_waiter_by_why_it_ended(dynamodb, state, kind):
    """Not reached in time, or a state from which it cannot be reached."""
    stub, _ = dynamodb
    eks = client("eks", stub.url)
    stub.answers(Answer(200, json.dumps({"cluster": {"status": state}}).encode()))
    with virtual_time(), pytest.raises(botocore.exceptions.WaiterError) as caught:
        eks.get_waiter("cluster_active").wait(name="c", WaiterConfig={"MaxAttempts": 2})
    assert kind_of(caught.value).kind is kind


def test_an_error_that_a_waiter_meets_is_judged_by_its_code(dynamodb):
    """A waiter stops at an error that it does not expect."""
    stub, db = dynamodb
    stub.answers(dynamodb_error(400, "ThrottlingException"))
    error = seen(lambda: db.get_waiter("table_exists").wait(TableName="t"))
    assert (kind_of(error).kind, stub.count) == (Kind.THROTTLED, 3)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (403, Kind.AUTH),
        (429, Kind.THROTTLED),
        (500, Kind.TRANSIENT),
        (503, Kind.OVERLOAD),
        (504, Kind.TIMEOUT),
    ],
)
def test_an_answer_to_the_head_of_a_waiter_is_judged_by_its_status(dynamodb, status, kind):
    """It has no body, and so no code: botocore has the status in that place."""
    stub, _ = dynamodb
    stub.answers(Answer(status, b""))
    s3 = client("s3", stub.url)
    error = seen(lambda: s3.get_waiter("object_exists").wait(Bucket=BUCKET, Key="here"))
    assert isinstance(error, botocore.exceptions.WaiterError)
    assert kind_of(error).kind is kind
    assert stub.count == (1 if kind is Kind.AUTH else 3)


def test_a_certificate_that_is_not_trusted_is_final(front):
    """What the `ssl` module raised decides; a server cannot make botocore trust it later."""
    with pytest.raises(botocore.exceptions.SSLError) as caught:
        client("s3", front.url.replace("http:", "https:")).list_buckets()
    wrapped = caught.value.kwargs["error"]
    assert isinstance(wrapped, urllib3.exceptions.SSLError)
    assert isinstance(wrapped.args[0], ssl.SSLError)
    untrusted = urllib3.exceptions.SSLError(ssl.SSLCertVerificationError("self-signed"))
    error = botocore.exceptions.SSLError(endpoint_url=front.url, error=untrusted)
    assert kind_of(error).kind is Kind.PERMANENT


def test_every_code_of_the_table_through_the_parser_of_a_response(dynamodb):
    """Each is sent by a server once, and comes to its row, whatever the status is."""
    stub, db = dynamodb
    rows = table("botocore").entries["botocore.exceptions.ClientError"].rows
    for code, row in rows.items():
        stub.answers(dynamodb_error(400, code.removesuffix("*")))
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            db.list_tables()
        known = kind_of(caught.value)
        assert (known.kind, known.reason, stub.count) == (row.kind, row.why, 1), code
    assert len(rows) > 70


CALLS = {
    "ParamValidationError": lambda s3: s3.get_object(Bucket=BUCKET),
    "NoRegionError": lambda _: boto3.client("dynamodb"),
    "UnknownServiceError": lambda _: boto3.client("nothing"),
    "ProfileNotFound": lambda _: boto3.Session(profile_name="nobody"),
    "InvalidRetryModeError": lambda _: Config(retries={"mode": "never"}),
    "InvalidMaxRetryAttemptsError": lambda _: Config(retries={"max_attempts": -1}),
    "InvalidRetryConfigurationError": lambda _: Config(retries={"often": 1}),
    "InvalidS3AddressingStyleError": lambda _: Config(s3={"addressing_style": "up"}),
    "InvalidRegionError": lambda _: boto3.client("s3", region_name="not a region"),
    "OperationNotPageableError": lambda s3: s3.get_paginator("get_object"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_mistake_in_the_call_or_the_configuration_is_final(s3, name, monkeypatch):
    """Nothing is sent."""
    for variable in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "missing")
    tries = []
    error = seen(lambda: (tries.append(1), CALLS[name](s3)))
    assert type(error).__name__ == name
    assert (kind_of(error).kind, len(tries)) == (Kind.PERMANENT, 1)


@pytest.mark.skipif(not HAS_REQUESTS, reason="the table of urllib3 judges the name lookup")
def test_a_name_that_no_host_has_is_final(monkeypatch):
    """The resolver decides; it is asked by the real client, and its answer is scripted."""

    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    known = kind_of(seen(lambda: client("s3", "http://shop.invalid").list_buckets()))
    assert (known.kind, known.is_ambiguous) == (Kind.PERMANENT, False)
