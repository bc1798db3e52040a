"""The request of an exception that does not carry it, as a table finds it."""

import pytest

from mainstay.core.known.http import unsafe_request
from mainstay.core.retry.not_retried import may_be_applied


class Request:
    def __init__(self, method, **headers):
        self.method = method
        self.headers = headers


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request("POST"), "POST without an Idempotency-Key"),
        (Request("POST", **{"idempotency-key": "7"}), ""),
        (Request("GET"), ""),
        (None, ""),
    ],
)
def test_a_request_that_is_found_decides_as_one_that_is_carried(request_, expected):
    """If nothing is found, nothing is known against repeating it."""
    assert unsafe_request(TimeoutError(), lambda _error: request_) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [("idempotency-key", "POST without a token"), ("Repeatability-Request-ID", "")],
)
def test_a_service_has_its_own_header(header, expected):
    """One that it does not know lets nothing be repeated."""
    sent, own = Request("POST", **{header: "7"}), ("repeatability-request-id",)
    assert unsafe_request(TimeoutError(), lambda _: sent, "a token", own) == expected
    assert unsafe_request(TimeoutError(), lambda _: sent, "a token", ()) == "POST without a token"


def test_the_note_advises_what_the_service_has():
    """A header is enough; what a call is given is not seen, so its class is named as well."""
    header = may_be_applied("POST without an Idempotency-Key")
    assert header.endswith("carried out; send that header, or name this very class in on=")
    token = may_be_applied("POST without a token (ClientToken)", by_code=True)
    assert token.endswith("out; give the call one, and name its status or error code in on=")


def test_what_the_exception_carries_goes_before():
    """Nobody looks for a request that is there."""
    error = TimeoutError()
    error.request = Request("GET")
    assert unsafe_request(error, lambda _error: Request("POST")) == ""


def test_a_search_that_fails_has_found_nothing():
    """The library may be another version than the table knows."""
    assert unsafe_request(TimeoutError(), lambda error: error.no_such_attribute) == ""
