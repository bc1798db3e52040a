"""What is remembered of failures is bounded, and gone without a trace when it is forgotten."""

from mainstay.core.base.attributes import CACHE_SIZE
from mainstay.core.known import resolve
from mainstay.core.known.kind import Kind
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.table import Cases, Row, Table, by_status
from mainstay.core.retry import kinds
from mainstay.core.retry.kinds import kind_of


class Coded(Exception):
    """Of a table: its code is a row of its own."""


def test_what_rows_state_is_bounded():
    rows = {str(code): Row(Kind.TRANSIENT, f"code {code}") for code in range(CACHE_SIZE + 5)}
    cases = Cases(lambda error: [error.code], rows, otherwise=Row(Kind.UNKNOWN, "no code"))
    table = Table("tests", {f"{Coded.__module__}.Coded": cases}, packages=(Coded.__module__,))
    REGISTRY.register(table)
    try:
        for code in range(CACHE_SIZE + 5):
            failure = Coded()
            failure.code = code
            assert kind_of(failure).reason == f"code {code}"
    finally:
        REGISTRY.unregister("tests")
    assert 0 < len(resolve._known) <= CACHE_SIZE


def test_what_rows_of_classes_state_is_bounded():
    module = "tests_of_bounds"
    named = {f"Made{number}": number for number in range(CACHE_SIZE + 5)}
    rows = {
        f"{module}.{name}": Row(Kind.TRANSIENT, f"row {number}") for name, number in named.items()
    }
    REGISTRY.register(Table("tests", rows, packages=(module,)))
    try:
        for name, number in named.items():
            cls = type(name, (Exception,), {"__module__": module})
            assert kind_of(cls()).reason == f"row {number}"
    finally:
        REGISTRY.unregister("tests")
    assert 0 < len(resolve._of_rows) <= CACHE_SIZE


def test_what_is_known_of_classes_is_bounded():
    for number in range(CACHE_SIZE + 5):
        cls = type(f"Made{number}", (ConnectionError,), {})
        assert kind_of(cls()).kind is Kind.TRANSIENT
    assert 0 < len(kinds._facts) <= CACHE_SIZE


def test_rows_of_other_statuses_are_bounded():
    cases = by_status(read=lambda error: [error.code])
    failure = Coded()
    for number in range(CACHE_SIZE + 5):
        failure.code = f"4{number:04}"
        assert cases.row(failure).why == f"status 4{number:04}"
    assert 0 < len(cases._others) <= CACHE_SIZE
