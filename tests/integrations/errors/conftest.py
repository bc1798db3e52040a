"""One HTTP server for all tests of clients, emptied before each."""

import pytest

from tests.servers.certificate import make_certificate, server_side
from tests.servers.http_faults import HttpFaults


@pytest.fixture(scope="session")
def _http_faults():
    with HttpFaults() as server:
        yield server


@pytest.fixture
def server(_http_faults):
    _http_faults.clear()
    return _http_faults


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tls_server(certificate):
    with HttpFaults(tls=server_side(certificate)) as server:
        yield server
