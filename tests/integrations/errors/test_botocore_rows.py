"""botocore, boto3 and s3transfer: rows of the table that the other tests do not come to.

Each is raised by the real library: a stub on loopback answers, or the call itself is wrong.
"""

import contextlib
import io
from datetime import UTC, datetime

import boto3
import botocore.awsrequest
import botocore.discovery
import botocore.httpchecksum
import botocore.httpsession
import botocore.model
import botocore.retries.bucket
import botocore.session
import botocore.tokens
import botocore.utils
import botocore.waiter
import pytest
import s3transfer
import s3transfer.bandwidth
import s3transfer.futures
import s3transfer.subscribers
import s3transfer.utils
from boto3.dynamodb.conditions import ConditionExpressionBuilder
from boto3.s3.transfer import TransferConfig
from botocore import credentials
from botocore.config import Config

from tests.integrations.errors.rows import comes_to
from tests.integrations.errors.service_stub import Answer, ServiceStub
from tests.processes import wait_until

NOWHERE = "http://127.0.0.1:1"
SESSION = boto3.Session("testing", "testing", region_name="eu-west-1")


def client(service="s3", url=NOWHERE, **config):
    options = {"retries": {"total_max_attempts": 1}, "s3": {"addressing_style": "path"}}
    return SESSION.client(service, endpoint_url=url, config=Config(**options | config))


@pytest.fixture(scope="module")
def stub():
    with ServiceStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def s3(stub):
    return client(url=stub.url)


def answer(status, code="NobodyKnows"):
    return Answer(status, f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode())


@pytest.mark.parametrize(
    ("status", "row"),
    [
        (status, f"ClientError status {status}")
        for status in (401, 403, 407, 408, 425, 500, 502, 503, 504)
    ]
    + [
        (418, "ClientError status 4*"),
        (505, "ClientError status 5*"),
        (304, "ClientError otherwise"),
    ],
)
def test_a_status_whose_code_nobody_knows(stub, s3, status, row):
    """The status decides."""
    stub.answers(answer(status))
    comes_to(row, lambda: s3.get_object(Bucket="b", Key="k"))
    assert stub.count == 1


# --- what a server does ---------------------------------------------------------------------------


def with_checksum(stub, s3):
    stub.answers(Answer(200, b"body", {"x-amz-checksum-crc32": "AAAAAA=="}))
    s3.get_object(Bucket="b", Key="k", ChecksumMode="ENABLED")["Body"].read()


def damaged_dynamodb(stub, _):
    stub.answers(Answer(200, b"{}", {"x-amz-crc32": "1"}))
    client("dynamodb", stub.url, retries={"mode": "legacy", "total_max_attempts": 1}).list_tables()


def unreadable(stub, _):
    stub.answers(Answer(200, b"<not xml"))
    client("iam", stub.url).list_users()


class Once(io.RawIOBase):
    """A body that can be read once."""

    def readable(self):
        return True

    def readinto(self, buffer):
        buffer[:1] = b"x"
        return 1

    def seek(self, *_):
        raise io.UnsupportedOperation


def sent_twice(stub, _):
    """As botocore does before a second attempt."""
    request = botocore.awsrequest.AWSRequest("PUT", stub.url).prepare()
    request.body = Once()
    request.reset_stream()


def no_token(stub, _):
    stub.answers(Answer(400))
    fetcher = botocore.utils.InstanceMetadataFetcher(num_attempts=1, base_url=stub.url + "/")
    fetcher._fetch_metadata_token()


def no_old_metadata(stub, _):
    stub.answers(Answer(404))
    fetcher = botocore.utils.InstanceMetadataFetcher(
        num_attempts=1, base_url=stub.url + "/", config={"ec2_metadata_v1_disabled": True}
    )
    fetcher.retrieve_iam_role_credentials()


def no_metadata(stub, _):
    stub.answers(Answer(500))
    fetcher = botocore.utils.IMDSFetcher(num_attempts=1, base_url=stub.url + "/")
    fetcher._get_request("latest", None)


def refused_process(_stub, _s3):
    made = credentials.ProcessProvider(
        "p", lambda: {"profiles": {"p": {"credential_process": "printf {}"}}}
    )
    made.load()


def busy_container(stub, _):
    stub.answers(Answer(500, b"{}"))
    fetcher = botocore.utils.ContainerMetadataFetcher(sleep=lambda _seconds: None)
    credentials.ContainerProvider({"AWS_CONTAINER_CREDENTIALS_FULL_URI": stub.url}, fetcher).load()


def unknown_code(stub, _):
    """A waiter ends at a code that it does not wait for."""
    stub.answers(Answer(400, b'{"__type": "NobodyKnows"}'))
    client("dynamodb", stub.url).get_waiter("table_exists").wait(TableName="t")


def unknown_token(stub, _):
    stub.answers(Answer(401, b"{}", {"x-amzn-ErrorType": "UnauthorizedException"}))
    late = {"accessToken": "t", "expiresAt": "2999-01-01T00:00:00Z"}
    fetcher = credentials.SSOCredentialFetcher(
        "url", "eu-west-1", "r", "1", lambda name, **_: client(name, stub.url),
        token_loader=lambda _url: late,
    )  # fmt: skip
    fetcher.fetch_credentials()


def discovered(_stub, _s3):
    """A service that names the address of its operations if it is asked: a dead port."""
    made = client("timestream-query")
    manager = botocore.discovery.EndpointDiscoveryManager(made)
    manager.describe_endpoint(Operation="Query")


def failed_part(stub, s3, tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 20)
    begun = Answer(200, b"<R><UploadId>u</UploadId></R>")
    stub.answers(begun, answer(503, "SlowDown"), Answer(204, b""))
    upload = s3transfer.S3Transfer(
        s3, s3transfer.TransferConfig(multipart_threshold=5, multipart_chunksize=100)
    )
    upload.upload_file(str(tmp_path / "file"), "b", "k")


def vanished(stub, s3, tmp_path):
    """The file is there no more when its parts are read."""
    (tmp_path / "file").write_bytes(b"x" * 20)
    stub.answers(Answer(200, b"<R><UploadId>u</UploadId></R>"), Answer(204, b""))
    event = "after-call.s3.CreateMultipartUpload"
    s3.meta.events.register(event, lambda **_: (tmp_path / "file").unlink(), "vanished")
    try:
        config = s3transfer.TransferConfig(multipart_threshold=5)
        s3transfer.S3Transfer(s3, config).upload_file(str(tmp_path / "file"), "b", "k")
    finally:
        s3.meta.events.unregister(event, unique_id="vanished")


def given_up(_stub, s3, tmp_path):
    """The program leaves the block of a manager with an error of its own, before a request."""
    from s3transfer.manager import TransferManager

    begun = []

    def held(**_):
        wait_until(lambda: begun and begun[0].done(), "the manager to cancel")

    s3.meta.events.register("before-call.s3.HeadObject", held, "held")
    try:
        with contextlib.suppress(ZeroDivisionError), TransferManager(s3) as manager:
            begun.append(manager.download("b", "k", str(tmp_path / "file")))
            raise ZeroDivisionError
    finally:
        s3.meta.events.unregister("before-call.s3.HeadObject", unique_id="held")
    begun[0].result()


def changed_meanwhile(stub, s3, tmp_path):
    headers = {"Content-Length": "20", "ETag": '"a"'}
    stub.answers(Answer(200, b"", headers), answer(412, "PreconditionFailed"))
    config = TransferConfig(multipart_threshold=5, multipart_chunksize=10, use_threads=False)
    s3.download_file("b", "k", str(tmp_path / "file"), Config=config)


def another_part(stub, s3, tmp_path):
    headers = {"Content-Length": "20", "ETag": '"a"'}
    part = Answer(206, b"x" * 10, {"Content-Range": "bytes 10-19/20"})
    stub.answers(Answer(200, b"", headers), part)
    config = TransferConfig(multipart_threshold=5, multipart_chunksize=10, use_threads=False)
    left = []  # bodies, which s3transfer neither reads nor closes if the range is wrong
    s3.meta.events.register(
        "after-call.s3.GetObject", lambda parsed, **_: left.append(parsed["Body"]), "left"
    )
    try:
        s3.download_file("b", "k", str(tmp_path / "file"), Config=config)
    finally:
        s3.meta.events.unregister("after-call.s3.GetObject", unique_id="left")
        for body in left:
            body.close()


def changed_source(stub, s3, _):
    head = Answer(200, b"", {"Content-Length": "20", "ETag": '"a"'})
    begun = Answer(200, b"<R><UploadId>u</UploadId></R>")
    stub.answers(head, begun, answer(412, "PreconditionFailed"), Answer(204, b""))
    config = TransferConfig(multipart_threshold=5, multipart_chunksize=10, use_threads=False)
    s3.copy({"Bucket": "b", "Key": "k"}, "b", "new", Config=config)


def cut_transfers(stub, s3, tmp_path):
    from s3transfer.manager import TransferManager

    stub.answers(Answer(200, b"", {"Content-Length": "20"}), *["cut"] * 6)
    with TransferManager(s3) as manager:
        manager.download("b", "k", str(tmp_path / "file")).result()


ANSWERED = {
    "FlexibleChecksumError": with_checksum,
    "exceptions.ChecksumError": damaged_dynamodb,
    "ResponseParserError": unreadable,
    "UnseekableStreamError": sent_twice,
    "BadIMDSRequestError": no_token,
    "MetadataRetrievalError": no_old_metadata,
    "_RetriesExceededError": no_metadata,
    "CredentialRetrievalError otherwise": refused_process,
    "CredentialRetrievalError wraps": busy_container,
    "WaiterError otherwise": unknown_code,
    "UnauthorizedSSOTokenError": unknown_token,
    "EndpointDiscoveryRefreshFailed": discovered,
}
TRANSFERS = {
    "s3transfer.exceptions.S3UploadFailedError wraps": failed_part,
    "s3transfer.exceptions.S3DownloadFailedError wraps": changed_meanwhile,
    "s3transfer.exceptions.S3UploadFailedError otherwise": vanished,
    "s3transfer.exceptions.FatalError": given_up,
    "S3ValidationError": another_part,
    "S3CopyFailedError": changed_source,
    "s3transfer.exceptions.RetriesExceededError wraps": cut_transfers,
}


@pytest.mark.parametrize("row", ANSWERED)
def test_what_a_service_answers(stub, s3, row):
    """S3, DynamoDB, the metadata of an instance, and what gives credentials."""
    comes_to(row, lambda: ANSWERED[row](stub, s3))


@pytest.mark.parametrize("row", TRANSFERS)
def test_a_transfer_of_s3transfer(stub, s3, tmp_path, row):
    """A file in parts: one of them fails, or the object is another one meanwhile."""
    comes_to(row, lambda: TRANSFERS[row](stub, s3, tmp_path))


def test_a_service_that_does_not_speak_tls(stub):
    """What the `ssl` module raised decides."""
    made = client(url=stub.url.replace("http:", "https:"))
    comes_to("botocore.exceptions.SSLError wraps", made.list_buckets)


def test_a_body_that_cannot_be_sent(stub, s3):
    """Botocore wraps what the client's own body raises."""

    def body():
        yield b"x"
        raise RuntimeError("the body ended")

    request = botocore.awsrequest.AWSRequest("PUT", stub.url, data=None).prepare()
    request.body = body()
    session = botocore.httpsession.URLLib3Session()
    comes_to("HTTPClientError wraps", lambda: session.send(request))


# --- what is wrong in the call or its settings ----------------------------------------------------

AP = "arn:aws:s3:us-we$t-2:123456789012:accesspoint:ap"
LAMBDA = "arn:aws:s3-object-lambda:us-west-2:123456789012:accesspoint:ap"
SHAPES = botocore.model.ShapeResolver({"Bare": {}})
MODEL = botocore.model.ServiceModel({"metadata": {}, "operations": {}}, "s")


def endpoints():
    return botocore.session.get_session()._get_internal_component("endpoint_resolver")


def discovery(**model):
    operation = botocore.model.OperationModel({"endpointdiscovery": model}, MODEL, "o")
    botocore.discovery.block_endpoint_discovery_required_operations(operation)


def bucket_of(arn, **config):
    made = SESSION.client("s3", config=Config(**config))
    return made.get_object(Bucket=arn, Key="k")


def of_control(**config):
    made = SESSION.client("s3control", config=Config(**config))
    arn = "arn:aws:s3-outposts:us-west-2:123456789012:outpost/op-1/bucket/b"
    return made.get_bucket(AccountId="123456789012", Bucket=arn)


def presigned(version):
    made = SESSION.client("s3", config=Config(signature_version=version))
    made.generate_presigned_url("get_object", {"Bucket": "b", "Key": "k"})


def twice(call):
    call()
    return call()


def subscriber():
    methods = {"on_done": lambda self: None}
    type("Wrong", (s3transfer.subscribers.BaseSubscriber,), methods)()


class Shut(s3transfer.ShutdownQueue):
    def _init(self, maxsize):
        super()._init(maxsize)
        self.trigger_shutdown()


def bandwidth():
    bucket = s3transfer.bandwidth.LeakyBucket(1)
    token = s3transfer.bandwidth.RequestToken()
    for _ in range(3):
        bucket.consume(100, token)


def expired_token():
    past = datetime(2000, 1, 1, tzinfo=UTC)
    old = botocore.tokens.FrozenAuthToken("t", expiration=past)
    botocore.tokens.DeferredRefreshableToken("sso", lambda: old).get_frozen_token()


def no_slot():
    slots = s3transfer.utils.TaskSemaphore(1)
    for _ in range(2):
        slots.acquire("t", blocking=False)


def capacity():
    import botocore.retries.throttling

    class Still:
        def current_time(self):
            return 0.0

    bucket = botocore.retries.bucket.TokenBucket(0.5, Still())
    for _ in range(9):
        bucket.acquire(1, block=False)


def expired_sso():
    old = {"accessToken": "t", "expiresAt": "2000-01-01T00:00:00Z"}
    fetcher = credentials.SSOCredentialFetcher(
        "url", "eu-west-1", "r", "1", lambda name, **_: client(name), token_loader=lambda _url: old
    )
    fetcher.fetch_credentials()


WRONG = {
    "InvalidDNSNameError": lambda: botocore.utils.switch_to_virtual_host_style(
        botocore.awsrequest.AWSRequest("GET", f"{NOWHERE}/No_Host/key", auth_path=None), "s3v4"
    ),
    "EndpointVariantError": lambda: endpoints().construct_endpoint(
        "ec2", "us-iso-east-1", partition_name="aws-iso", use_dualstack_endpoint=True
    ),
    "ResourceLoadException": lambda: (
        SESSION.resource("s3").MultipartUpload("b", "k", "i").initiated
    ),
    "EndpointDiscoveryRequired": lambda: discovery(required=True),
    "InvalidArnException": lambda: botocore.utils.ArnParser().parse_arn("none"),
    "AliasConflictParameterError": lambda: client("ec2").describe_flow_logs(Filter=[], Filters=[]),
    "InvalidExpressionError": lambda: botocore.utils.set_value_from_jmespath({}, "a[0]", 1),
    "InvalidHostLabelError": lambda: botocore.utils.S3ControlEndpointSetter(
        None
    )._validate_host_labels("a b"),
    "UnsupportedS3ArnError": lambda: botocore.utils.S3ArnParamHandler()._add_resource_type_and_name(
        AP, {"resource": "nothing"}
    ),
    "UnsupportedOutpostResourceError": lambda: botocore.utils.S3ArnParamHandler()._store_outpost(
        {}, {}, {"resource_name": "nothing"}
    ),
    "AwsChunkedWrapperError": lambda: botocore.httpchecksum.AwsChunkedWrapper(io.BytesIO()).seek(3),
    "InvalidEndpointConfigurationError": lambda: SESSION.client("events").put_events(
        Entries=[], EndpointId="not a label!"
    ),
    "InvalidProxiesConfigError": lambda: botocore.httpsession.URLLib3Session(
        proxies={"https": "https://127.0.0.1:1"}, proxies_config={"proxy_ca_bundle": "/none/x"}
    )._setup_proxy_ssl_context("https://127.0.0.1:1"),
    "MissingServiceIdError": lambda: MODEL.service_id,
    "UndefinedModelAttributeError": lambda: MODEL.api_version,
    "UnknownCredentialError": lambda: credentials.CredentialResolver([]).get_provider("x"),
    "UnknownEndpointResolutionBuiltInName": lambda: SESSION.client(
        "s3"
    )._ruleset_resolver._resolve_param_as_builtin("x", {}),
    "UnknownRegionError": lambda: endpoints().get_partition_for_region("none"),
    "UnknownTokenProviderError": lambda: botocore.tokens.TokenProviderChain([]).get_provider("x"),
    "UnsupportedS3ConfigurationError": lambda: bucket_of(
        LAMBDA, s3={"use_accelerate_endpoint": True}
    ),
    "UnsupportedS3ControlConfigurationError": lambda: of_control(use_dualstack_endpoint=True),
    "UnsupportedServiceProtocolsError": lambda: botocore.model.ServiceModel(
        {"metadata": {"protocols": ["smoke"]}}, "s"
    ).resolved_protocol,
    "UnsupportedSignatureVersionError": lambda: presigned("s3v5"),
    "WaiterConfigError": lambda: botocore.waiter.WaiterModel({"version": 1, "waiters": {}}),
    "RefreshWithMFAUnsupportedError": lambda: twice(
        credentials.create_mfa_serial_refresher(dict)
    ),
    "TokenRetrievalError": expired_token,
    "UnauthorizedSSOTokenError": expired_sso,
    "InvalidShapeError": lambda: SHAPES.get_shape_by_name("Bare"),
    "InvalidShapeReferenceError": lambda: SHAPES.resolve_shape_ref({"a": 1, "b": 2}),
    "NoShapeFoundError": lambda: SHAPES.get_shape_by_name("x"),
    "OperationNotFoundError": lambda: MODEL.operation_model("x"),
    "DynamoDBNeedsConditionError": lambda: ConditionExpressionBuilder().build_expression("x"),
    "QueueShutdownError": lambda: Shut(1).put("item"),
    "RequestExceededException": bandwidth,
    "InvalidSubscriberMethodError": subscriber,
    "TransferNotDoneError": lambda: s3transfer.futures.TransferFuture().set_exception(ValueError()),
    "NoResourcesAvailable": no_slot,
    "CapacityNotAvailableError": capacity,
}  # fmt: skip


@pytest.mark.parametrize("row", WRONG)
def test_a_wrong_call_or_a_limit_of_the_library(row):
    """Nothing is sent."""
    comes_to(row, WRONG[row])
