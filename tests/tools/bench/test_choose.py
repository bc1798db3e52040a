"""Which tables `python -m bench` measures, and which of them twice."""

import types

import pytest

from bench import __main__ as bench
from bench.measure import Effort
from bench.table import Row, Table, at_most


def tables():
    return {
        "short": types.SimpleNamespace(),
        "long": types.SimpleNamespace(IS_LONG=True),
    }


@pytest.mark.parametrize(
    ("names", "is_long", "chosen"),
    [
        ([], False, ["short"]),
        ([], True, ["long"]),
        (["long"], False, ["long"]),
        (["long", "short"], True, ["short", "long"]),
    ],
)
def test_the_long_tables_are_apart(names, is_long, chosen):
    """Without names those of five minutes, or the others; a name is always found."""
    assert list(bench.choose(tables(), names, is_long=is_long)) == chosen


def test_every_table_that_needs_a_server_is_long():
    """`make bench` starts no server and waits for no real deadline."""
    waiting = {"servers", "http_deadlines", "client_deadlines", "lease_renewal", "store_hangs"}
    found = bench.find_tables()
    assert not waiting & set(bench.choose(found, [], is_long=False))
    assert waiting <= set(bench.choose(found, [], is_long=True))


def test_a_noisy_row_is_measured_again_before_it_is_judged():
    """The steadier of two figures is the one that is judged.

    A quiet table is measured once, and so is one that has measured its noisy rows again itself.
    """
    calls = []

    def noisy(effort):
        calls.append("noisy")
        value, spread = (9.0, 0.5) if len(calls) == 1 else (3.0, 0.02)
        return Table("noisy", "", "", [Row("ours", value, at_most(4), spread=spread)])

    def repeated(effort):
        calls.append("repeated")
        row = Row("ours", 5.0, at_most(4), spread=0.5, is_repeated=True)
        return Table("repeated", "", "", [row])

    def quiet(effort):
        calls.append("quiet")
        return Table("quiet", "", "", [Row("ours", 1.0, at_most(4), spread=0.01)])

    modules = {
        "noisy": types.SimpleNamespace(run=noisy),
        "repeated": types.SimpleNamespace(run=repeated),
        "quiet": types.SimpleNamespace(run=quiet),
    }
    measured = bench.measure(modules, Effort(), is_json=True)
    assert calls == ["noisy", "noisy", "repeated", "quiet"]
    assert [table.rows[0].is_met for table in measured] == [True, False, True]
