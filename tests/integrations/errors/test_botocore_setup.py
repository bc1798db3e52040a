"""botocore and boto3: what a wrong configuration or a wrong call raises, through the real library.

Nothing reaches a network but loopback: a call that would be sent has a dead port as its endpoint.
"""

import io
import struct
import zlib

import boto3
import botocore.configloader
import botocore.session
import botocore.utils
import pytest
from boto3.dynamodb.conditions import Attr, Key
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.stub import Stubber

from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from tests.integrations.errors.service_stub import Answer, ServiceStub
from tests.servers.http_faults import dead_port, full_port

NOWHERE = "http://127.0.0.1:1"
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
ROLE = "role_arn=arn:aws:iam::1:role/r\n"
SSO = "sso_account_id=1\nsso_role_name=r\n"


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    """Credentials that nobody checks, and no file of the user."""
    for name in KEYS:
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_PROFILE", raising=False)


def client(service="s3", url=NOWHERE, api_version=None, **config):
    return boto3.client(
        service, region_name="eu-west-1", endpoint_url=url, api_version=api_version,
        config=Config(**config),
    )  # fmt: skip


def raised(call):
    """What a call raises, and its kind."""
    with pytest.raises(Exception) as caught:
        call()
    known = kind_of(caught.value)
    assert known.table == "botocore"
    return type(caught.value).__name__, known.kind


def stubbed(operation=None, parameters=None):
    """A call of another operation, or with other parameters, than a Stubber has."""
    made = client()
    stubber = Stubber(made)
    stubber.activate()
    if operation:
        stubber.add_response(operation, {}, parameters)
    made.get_object(Bucket="b", Key="k")


ARN = "arn:aws:s3:us-west-2:123456789012:accesspoint:ap"
QUEUE = "arn:aws:sqs:us-west-2:123456789012:q"
CALLS = {
    "UnknownClientMethodError": lambda: client().generate_presigned_url("nothing"),
    "UnsupportedS3AccesspointConfigurationError": lambda: client(
        url=None, s3={"use_accelerate_endpoint": True}
    ).get_object(Bucket=ARN, Key="k"),
    "UnsupportedS3ControlArnError": lambda: client("s3control").get_bucket(
        AccountId="123456789012", Bucket=QUEUE
    ),
    "EndpointResolutionError": lambda: client(s3={"use_accelerate_endpoint": True}).list_buckets(),
    "DataNotFoundError": lambda: client(api_version="1999-01-01"),
    "ConfigNotFound": lambda: botocore.configloader.load_config("/none/x"),
    "InvalidDefaultsMode": lambda: client(defaults_mode="x"),
    "InvalidChecksumConfigError": lambda: client(request_checksum_calculation="x"),
    "InvalidEndpointDiscoveryConfigurationError": lambda: client(
        "dynamodb", None, endpoint_discovery_enabled="x"
    ),
    "InvalidIMDSEndpointError": lambda: botocore.utils.InstanceMetadataFetcher(base_url="no url"),
    "InvalidS3UsEast1RegionalEndpointConfigError": lambda: client(
        s3={"us_east_1_regional_endpoint": "x"}
    ),
    "UnknownSignatureVersionError": lambda: client(signature_version="x").list_buckets(),
    "ResourceNotExistsError": lambda: boto3.resource("nothing"),
    "UnknownAPIVersionError": lambda: boto3.resource("s3", api_version="1999-01-01"),
    "MissingDependencyException": lambda: client().upload_fileobj(
        io.BytesIO(), "b", "k", Config=TransferConfig(preferred_transfer_client="crt")
    ),
    "DynamoDBOperationNotSupportedError": lambda: Key("a").eq(1) | 3,
    "DynamoDBNeedsKeyConditionError": lambda: boto3.resource(
        "dynamodb", region_name="eu-west-1", endpoint_url=NOWHERE
    ).Table("t").query(KeyConditionExpression=Attr("a").exists()),
    "UnStubbedResponseError": stubbed,
    "StubResponseError": lambda: stubbed("list_buckets"),
    "StubAssertionError": lambda: stubbed("get_object", {"Bucket": "x", "Key": "k"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_or_configuration_is_final(name):
    """The next attempt would have the same."""
    assert raised(CALLS[name]) == (name, Kind.PERMANENT)


@pytest.mark.parametrize(
    ("variable", "value", "call", "name"),
    [
        ("AWS_STS_REGIONAL_ENDPOINTS", "x", lambda: client("sts", None),
         "InvalidSTSRegionalEndpointsConfigError"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "x",
         lambda: botocore.session.get_session().get_component("credential_provider"),
         "InvalidIMDSEndpointModeError"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_final(monkeypatch, variable, value, call, name):
    """It is read when the client is made."""
    monkeypatch.setenv(variable, value)
    assert raised(call) == (name, Kind.PERMANENT)


PROFILES = {
    "ConfigParseError": ("[profile p\nx", Kind.PERMANENT),
    "InfiniteLoopConfigError": (
        f"[profile p]\n{ROLE}source_profile=q\n[profile q]\n{ROLE}source_profile=p\n",
        Kind.PERMANENT,
    ),
    "InvalidConfigError": (f"[profile p]\n{ROLE}source_profile=nobody\n", Kind.PERMANENT),
    "PartialCredentialsError": ("[profile p]\naws_access_key_id=a\n", Kind.AUTH),
    "CredentialRetrievalError": ("[profile p]\ncredential_process=false\n", Kind.AUTH),
    "SSOTokenLoadError": (
        f"[profile p]\n{SSO}sso_region=eu-west-1\nsso_start_url=https://x\n",
        Kind.AUTH,
    ),
}


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_that_gives_no_credentials_is_final(monkeypatch, tmp_path, name):
    """Each is written into a file, and used by a client."""
    text, kind = PROFILES[name]
    for variable in KEYS:
        monkeypatch.delenv(variable)
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))

    def identify():
        session = boto3.Session(profile_name="p")
        session.client("sts", region_name="eu-west-1", endpoint_url=NOWHERE).get_caller_identity()

    assert raised(identify) == (name, kind)


def test_a_service_without_a_token_is_final():
    """Of those that take no keys."""
    call = client("codecatalyst").verify_session
    assert raised(call) == ("NoAuthTokenError", Kind.AUTH)


def test_a_connection_that_is_not_made_in_time_or_not_to_the_proxy():
    """Nothing was sent."""
    one = {"retries": {"total_max_attempts": 1}}
    with full_port() as port:
        late = client(url=f"http://127.0.0.1:{port}", connect_timeout=0.05, **one)
        assert raised(late.list_buckets) == ("ConnectTimeoutError", Kind.TIMEOUT)
    proxies = {"http": f"http://127.0.0.1:{dead_port()}"}
    behind = client(url="http://a.example", proxies=proxies, **one)
    assert raised(behind.list_buckets) == ("ProxyConnectionError", Kind.TRANSIENT)


def test_a_paginator_that_gets_the_same_page_twice():
    """The server would send it for ever."""
    page = (
        b"<ListBucketResult><IsTruncated>true</IsTruncated>"
        b"<NextContinuationToken>again</NextContinuationToken></ListBucketResult>"
    )
    with ServiceStub() as stub:
        stub.answers(*[Answer(200, page)] * 5)
        pages = client(url=stub.url).get_paginator("list_objects_v2").paginate(Bucket="b")
        assert raised(lambda: list(pages)) == ("PaginationError", Kind.PERMANENT)


def message(headers=b"", payload=b"", **wrong):
    """A message of an event stream; its lengths and checksums may be wrong."""
    total = wrong.get("total", 16 + len(headers) + len(payload))
    prelude = struct.pack("!II", total, wrong.get("declared", len(headers)))
    start = prelude + struct.pack("!I", zlib.crc32(prelude) ^ wrong.get("spoil", 0))
    body = start + headers + payload
    return body + struct.pack("!I", zlib.crc32(body))


NAMED = b"\x01a\x00"
STREAMS = {
    "ChecksumMismatch": message(spoil=1),
    "InvalidHeadersLength": message(declared=200_000),
    "InvalidPayloadLength": message(total=30_000_000),
    "DuplicateHeader": message(NAMED + NAMED),
}


@pytest.mark.parametrize("name", STREAMS)
def test_an_event_stream_that_came_damaged(name):
    """S3 Select answers in events; each message has lengths and checksums."""
    with ServiceStub() as stub:
        stub.answers(*[Answer(200, STREAMS[name])] * 2)
        answer = client(url=stub.url).select_object_content(
            Bucket="b", Key="k", Expression="SELECT 1", ExpressionType="SQL",
            InputSerialization={"JSON": {"Type": "LINES"}}, OutputSerialization={"JSON": {}},
        )  # fmt: skip
        assert raised(lambda: list(answer["Payload"])) == (name, Kind.TRANSIENT)
