"""Servers for the tests of HTTP clients."""

import pytest

from tests.servers.certificate import make_certificate, server_side
from tests.servers.http_faults import HttpFaults


@pytest.fixture
def server():
    """One for each test: what a client that gave up has sent may arrive after its test."""
    with HttpFaults() as server:
        yield server


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tls_server(certificate):
    with HttpFaults(tls=server_side(certificate)) as server:
        yield server
