"""A table as rows for people."""

from mainstay.core.known.kind import Kind
from mainstay.core.known.listing import lines, lines_of
from mainstay.core.known.table import Cases, Inner, Row, Same, Table

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
