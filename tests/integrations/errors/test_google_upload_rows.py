"""Google: rows of uploads that can be resumed, of operations and of certificates.

google-api-core speaks its protocol of uploads to a stub on loopback, with the headers that its
documentation names.
"""

import warnings

import google.auth.exceptions
import google.auth.transport.mtls
import google.oauth2.id_token
import pytest
import requests
from google.auth.credentials import AnonymousCredentials
from google.auth.transport import _mtls_helper
from google.auth.transport.requests import Request

from tests.integrations.errors.rows import comes_to
from tests.integrations.errors.service_stub import SILENCE, Answer, ServiceStub, in_json

with warnings.catch_warnings():  # it asks for grpcio-status if there is grpcio
    warnings.simplefilter("ignore", ImportWarning)
    from google.api_core import operation
    from google.api_core.operations_v1.transports import rest_asyncio
    from google.api_core.resumable_transfer import ResumableUploadConfig, ResumableUploadSession
    from google.api_core.retry import StreamingRetry
    from google.longrunning import operations_pb2
    from google.protobuf.empty_pb2 import Empty

CALL = "GoogleAPICallError class or reason"
AT_ONCE = StreamingRetry(initial=0.001, maximum=0.001)


@pytest.fixture(scope="module")
def stub():
    with ServiceStub() as stub:
        yield stub


def state(name, **headers):
    named = {f"X-Goog-Upload-{key.replace('_', '-')}": value for key, value in headers.items()}
    return Answer(200, b"", {"X-Goog-Upload-Status": name, **named} if name else named)


def upload(stub, *answers, stream=b"x" * 10, timeout=30.0, **config):
    """In parts of five bytes; the first answer is to the request that begins it."""
    stub.answers(state("active", URL=f"{stub.url}/upload"), *answers)
    options = ResumableUploadConfig(chunk_size=5, **config)
    with requests.Session() as transport:
        session = ResumableUploadSession(stub.url, options, transport)
        session.upload(stream, retry=AT_ONCE, timeout=timeout)


def rewound(stub):
    """The service has lost a part that a generator does not give again."""
    answers = state("active"), in_json(412, {}), state("active", Size_Received="0")
    upload(stub, *answers, stream=iter([b"x" * 5, b"x" * 5]))


def stalled(stub):
    upload(stub, SILENCE, timeout=0.02, stall_timeout=0.001)


def not_begun(stub):
    stub.answers(state(""))
    with requests.Session() as transport:
        ResumableUploadSession(stub.url, transport=transport).upload(b"x")


def neither(_stub):
    """An operation that is done, without an answer and without an error."""
    done = operations_pb2.Operation(name="operations/7", done=True)
    operation.Operation(done, lambda: done, lambda: None, Empty).result(timeout=1)


def certificates(stub):
    stub.answers(Answer(404))
    google.oauth2.id_token._fetch_certs(Request(), stub.url)


def no_certificate(_stub):
    with pytest.MonkeyPatch.context() as patch:
        has_one = "has_default_client_cert_source"
        patch.setattr(google.auth.transport.mtls, has_one, lambda **_: False)
        google.auth.transport.mtls.default_client_cert_source()


CALLS = {
    f"{CALL} UnseekableStreamError": rewound,
    f"{CALL} TransferStalledError": stalled,
    f"{CALL} UploadCancelledError": lambda stub: upload(stub, state("cancelled")),
    f"{CALL} MissingStatusHeaderError": not_begun,
    "GoogleAPICallError otherwise": neither,
    "AsyncRestUnsupportedParameterError": lambda _: rest_asyncio.AsyncOperationsRestTransport(
        credentials=AnonymousCredentials(), scopes=["s"]
    ),
    "google.auth.exceptions.TransportError otherwise": certificates,
    "MutualTLSChannelError": no_certificate,
}


@pytest.mark.parametrize("row", CALLS)
def test_google(stub, row):
    """The libraries raise it themselves."""
    comes_to(row, lambda: CALLS[row](stub))


def test_a_file_of_certificates_that_is_no_json(tmp_path):
    """It is named by a variable of the environment, or is where gcloud puts it."""
    (tmp_path / "certificates.json").write_text("{")
    path = str(tmp_path / "certificates.json")
    comes_to(
        "google.auth.exceptions.ClientCertError",
        lambda: _mtls_helper._get_workload_cert_and_key(certificate_config_path=path),
    )
