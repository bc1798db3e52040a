"""A table as rows for people."""

import pytest

from mainstay.core.known.kind import Kind
from mainstay.core.known.listing import lines, lines_of, lines_of_carried, reads_status
from mainstay.core.known.table import Cases, Inner, Row, Same, Table, by_status

BUSY = Row(Kind.OVERLOAD, "the queue is full")
LOST = Row(Kind.TIMEOUT, "no answer", ambiguous=True)
TABLE = Table(
    "acme",
    {
        "acme.Busy": BUSY,
        "acme.Alias": Same("acme.Busy"),
        "acme.Coded": Cases(lambda _: (), {"A": LOST}, otherwise=Inner("orig", otherwise=BUSY)),
        "acme.Likewise": Same("acme.Coded"),
        "acme.Wrapped": Inner(lambda _: None, otherwise=LOST),
    },
)


def test_every_row_that_an_entry_may_come_to_is_listed():
    """Cases first, then what is wrapped, then what decides otherwise."""
    found = [(line.name, line.case, line.kind, line.is_retried) for line in lines(TABLE)]
    assert found == [
        ("acme.Busy", "", "overload", True),
        ("acme.Alias", "", "overload", True),
        ("acme.Coded", "code A", "timeout", True),
        ("acme.Coded", "wraps `orig`", "of what it wraps", None),
        ("acme.Coded", "otherwise", "overload", True),
        ("acme.Likewise", "", "of what it wraps", None),
        ("acme.Wrapped", "wraps another", "of what it wraps", None),
        ("acme.Wrapped", "otherwise", "timeout", True),
    ]


def test_a_line_has_the_reason_and_the_ancestor():
    """What people ask next: why, and whose entry it is."""
    alias, wrapped = list(lines(TABLE))[1], list(lines(TABLE))[6]
    assert (alias.ancestor, alias.why, alias.is_ambiguous) == ("acme.Busy", BUSY.why, False)
    assert (wrapped.why, wrapped.is_ambiguous) == ("what it wraps decides", False)
    assert next(lines_of("acme.Lost", LOST, "acme.Base")).is_ambiguous


CODED = Cases(lambda _: (), {"A": LOST}, otherwise=by_status())
MIXED = Cases(lambda _: (), {"A": LOST, **by_status().rows}, otherwise=BUSY)
WRAPPING = Cases(lambda _: (), {"A": LOST}, otherwise=Inner("orig", otherwise=BUSY))


@pytest.mark.parametrize(
    ("entry", "status", "code", "case", "why"),
    [
        (CODED, 400, "A", "code A", "no answer"),
        (CODED, 503, "B", "status 503", "status 503"),
        (CODED, None, "503", "status 503", "status 503"),
        (CODED, 418, None, "status 418", "status 418"),
        (CODED, 200, "B", "status 200, which no row has", "no status of a failure"),
        (CODED, None, "B", "code B, which no row has", "no status of a failure"),
        (MIXED, 429, "A", "code A", "no answer"),
        (MIXED, 429, "B", "code 429", "status 429"),
        (BUSY, None, "A", "", "the queue is full"),
        (BUSY, 200, "A", "", "the queue is full"),
        (BUSY, 404, None, "status 404", "status 404"),
    ],
)
def test_what_an_exception_carries_chooses_the_row(entry, status, code, case, why):
    """A code goes before a status, and a status of a failure before the class."""
    (line,) = lines_of_carried("acme.Error", entry, "acme.Base", status, code)
    assert (line.case, line.why, line.ancestor) == (case, why, "acme.Base")


def test_one_that_may_wrap_another_has_all_that_is_left():
    """What is inside decides then, and nobody knows it here."""
    found = lines_of_carried("acme.Error", WRAPPING, "", 503, "B")
    assert [line.case for line in found] == ["wraps `orig`", "otherwise"]


def test_statuses_may_be_among_codes():
    """By the rows for those that have none of their own."""
    assert [reads_status(each) for each in (CODED, MIXED, by_status())] == [False, True, True]
