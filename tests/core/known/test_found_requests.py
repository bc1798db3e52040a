"""The request of an exception that does not carry it, as a table finds it."""

import pytest

from mainstay.core.known.http import unsafe_request


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


def test_what_the_exception_carries_goes_before():
    """Nobody looks for a request that is there."""
    error = TimeoutError()
    error.request = Request("GET")
    assert unsafe_request(error, lambda _error: Request("POST")) == ""


def test_a_search_that_fails_has_found_nothing():
    """The library may be another version than the table knows."""
    assert unsafe_request(TimeoutError(), lambda error: error.no_such_attribute) == ""
