"""A status that an exception carries, beside what its table has for the class."""

import pytest

from mainstay.core.known.kind import Kind
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.table import Row, Table
from mainstay.core.retry.kinds import kind_of


class Redirects(Exception):
    """As TooManyRedirects of requests: the answer that it was raised for is beside it."""

    def __init__(self, status):
        self.status = status


@pytest.fixture(autouse=True)
def _table():
    name = f"{Redirects.__module__}.{Redirects.__qualname__}"
    row = Row(Kind.PERMANENT, "the redirects do not end")
    REGISTRY.register(Table("redirects", {name: row}, packages=(Redirects.__module__,)))
    yield
    REGISTRY.unregister("redirects")


@pytest.mark.parametrize("status", [200, 302])
def test_a_status_that_is_no_error_leaves_the_decision_to_the_class(status):
    """The class is what failed; the answer itself was a good one."""
    known = kind_of(Redirects(status))
    assert (known.kind, known.reason) == (Kind.PERMANENT, "the redirects do not end")
    assert not known.by_code


def test_a_status_of_an_error_goes_before_the_class():
    """A class of a user's own may carry the status of the answer that it stands for."""
    known = kind_of(Redirects(503))
    assert (known.kind, known.reason, known.by_code) == (Kind.OVERLOAD, "status 503", True)
