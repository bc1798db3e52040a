"""Vault through hvac, against a stub with the error bodies of Vault's HTTP API.

The bodies are those of "HTTP API: error response" and "Rate limit quotas" in Vault's documentation.
"""

import hvac
import hvac.exceptions
import pytest

from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from tests.integrations.errors.service_stub import (
    HAS_REQUESTS,
    RESET,
    SILENCE,
    ServiceStub,
    dead_port,
    in_json,
    seen,
)
from tests.processes import wait_until


@pytest.fixture(scope="module")
def vault():
    with ServiceStub() as stub:
        yield stub


def read(url, timeout=60):
    client = hvac.Client(url=url, token="t", timeout=timeout)
    return client.secrets.kv.v2.read_secret_version(path="shop", raise_on_deleted_version=True)


@pytest.mark.parametrize(
    ("status", "message", "kind", "ambiguous", "count"),
    [
        (429, "request path: rate limit quota exceeded", Kind.THROTTLED, False, 3),
        (503, "Vault is sealed", Kind.OVERLOAD, False, 3),
        (500, "internal error", Kind.TRANSIENT, True, 3),
        (502, "bad gateway", Kind.TRANSIENT, True, 3),
        (412, "required index state not present", Kind.TRANSIENT, False, 3),
        (401, "unauthorized", Kind.AUTH, False, 1),
        (403, "permission denied", Kind.AUTH, False, 1),
        (404, "no handler for route", Kind.PERMANENT, False, 1),
        (400, "missing client token", Kind.PERMANENT, False, 1),
        (501, "Vault is not initialized", Kind.PERMANENT, False, 1),
        (418, "teapot", Kind.UNKNOWN, False, 1),
    ],
)
def test_what_vault_answers(vault, status, message, kind, ambiguous, count):
    """Hvac keeps no status, so the class decides, and for a 412 the message."""
    vault.answers(in_json(status, {"errors": [message]}))
    known = kind_of(seen(lambda: read(vault.url)))
    assert (known.kind, known.is_ambiguous, vault.count) == (kind, ambiguous, count)


def test_the_wait_that_vault_asks_for_is_kept(vault):
    """Hvac drops the header Retry-After; the function that read the answer still has it."""
    vault.answers(in_json(429, {"errors": ["quota"]}, retry_after="7"))
    problem = seen(lambda: read(vault.url), attempts=2)
    assert isinstance(problem, hvac.exceptions.RateLimitExceeded)
    assert problem.waits[0] >= 7


@pytest.mark.skipif(not HAS_REQUESTS, reason="the table of requests judges a lost connection")
@pytest.mark.parametrize(("answer", "kind"), [(RESET, Kind.TRANSIENT), (SILENCE, Kind.TIMEOUT)])
def test_an_answer_that_does_not_come_leaves_it_in_doubt(vault, answer, kind):
    """Hvac hands on the errors of requests."""
    vault.answers(answer)
    timeout = 0.2 if answer is SILENCE else 60
    known = kind_of(seen(lambda: read(vault.url, timeout), attempts=2))
    wait_until(lambda: vault.count >= 2, "the requests")
    assert (known.kind, known.is_ambiguous, vault.count) == (kind, True, 2)


@pytest.mark.skipif(not HAS_REQUESTS, reason="the table of requests judges a lost connection")
def test_a_dead_port_is_tried_again():
    """Nothing was sent, so nothing is in doubt."""
    tries, url = [], f"http://127.0.0.1:{dead_port()}"
    known = kind_of(seen(lambda: (tries.append(1), read(url))))
    assert (known.kind, known.is_ambiguous, len(tries)) == (Kind.TRANSIENT, False, 3)


@pytest.mark.parametrize(
    ("status", "raised"),
    [(status, type(hvac.exceptions.VaultError.from_status(status))) for status in (400, 503)],
)
def test_errors_that_vault_does_not_answer_with_are_made_by_hvac_itself(status, raised):
    """The library's own parser, for the classes that no status leads to."""
    assert isinstance(hvac.exceptions.VaultError.from_status(status, "m"), raised)
    kinds = {
        hvac.exceptions.PreconditionFailed: Kind.TRANSIENT,
        hvac.exceptions.ParamValidationError: Kind.PERMANENT,
        hvac.exceptions.UnsupportedOperation: Kind.PERMANENT,
    }
    assert {each: kind_of(each("m")).kind for each in kinds} == kinds
