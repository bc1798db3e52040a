"""botocore and boto3: rows of what they do with awscrt, which is not installed.

A stand-in signs in its place; botocore and boto3 raise the errors themselves. A stub on loopback
is the service that renews the token of a login.
"""

import base64
import importlib
import sys
import types

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore import UNSIGNED, credentials
from botocore.config import Config

from mainstay.core.retry.kinds import kind_of
from tests.integrations.errors.rows import comes_to
from tests.integrations.errors.service_stub import ServiceStub, in_json

SESSION = boto3.Session("testing", "testing", region_name="eu-west-1")
TOKEN = {
    "accessToken": {}, "refreshToken": "r", "clientId": "c",
    "dpopKey": base64.b64encode(b"key").decode(),
}  # fmt: skip


@pytest.fixture(scope="module")
def stub():
    with ServiceStub() as stub:
        yield stub


class Curve:
    """What awscrt.crypto.EC does for botocore."""

    @classmethod
    def new_key_from_der_data(cls, _data):
        return cls()

    def get_public_coords(self):
        return b"x" * 32, b"y" * 32

    def sign(self, digest):
        return digest

    @staticmethod
    def decode_der_signature_to_padded_pair(signature, pad_to):
        return signature * (pad_to // 16)


def renewed(stub, token):
    """The credentials of `aws login`, as a client asks for them."""

    def client(name, **_):
        config = Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1})
        return SESSION.client(name, endpoint_url=stub.url, config=config)

    loader = types.SimpleNamespace(load_token=lambda _name: token)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(credentials, "EC", Curve)
        return credentials.LoginCredentialFetcher("login", loader, client).refresh_credentials()


REFUSED = {
    "LoginRefreshRequired": "TOKEN_EXPIRED",
    "LoginInsufficientPermissions": "INSUFFICIENT_PERMISSIONS",
    "LoginError": "AUTHCODE_EXPIRED",
}


@pytest.mark.parametrize("row", REFUSED)
def test_a_login_that_is_not_renewed(stub, row):
    """By what the service has in `error`."""
    headers = {"x_amzn_errortype": "AccessDeniedException"}
    stub.answers(in_json(400, {"error": REFUSED[row], "message": "m"}, **headers))
    comes_to(f"botocore.exceptions.{row}", lambda: renewed(stub, TOKEN))
    assert stub.count == 1


def test_a_login_that_is_not_there():
    """Nothing is asked of a service."""
    row = "botocore.exceptions.LoginTokenLoadError"
    comes_to(row, lambda: renewed(None, {"accessToken": {}}))


@pytest.fixture
def crt(monkeypatch):
    """boto3's module for awscrt, beside modules in its place that have any name and do nothing."""

    class Any(types.ModuleType):
        def __getattr__(self, name):
            return type(name, (), {})

    for name in ("", ".http", ".s3", ".auth", ".io"):
        monkeypatch.setitem(sys.modules, f"awscrt{name}", Any(f"awscrt{name}"))
    kept = {name: sys.modules.get(name) for name in ("s3transfer.crt", "boto3.crt")}
    yield importlib.import_module("boto3.crt")
    for name, module in kept.items():
        sys.modules.pop(name)
        if module is not None:
            sys.modules[name] = module


def test_a_setting_that_awscrt_does_not_have(crt):
    """boto3 looks before it makes a client of awscrt."""
    config = TransferConfig(preferred_transfer_client="crt", io_chunksize=5)
    error = comes_to(
        "boto3.exceptions.InvalidCrtTransferConfigError",
        lambda: crt._validate_crt_transfer_config(config),
    )
    assert kind_of(error).table == "botocore"
