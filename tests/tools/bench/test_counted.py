"""`python -m bench --counted`: what is counted instead of timed, with a verdict."""

import json
import types

import pytest

from bench import __main__ as bench
from bench import circuit_memory, counts, memory
from bench.table import Row, Table, at_most


def module(name, *values):
    """A table of the benchmark with these figures, each with a goal of 10."""
    rows = [Row("frames", value, at_most(10), "entered") for value in values]
    return types.SimpleNamespace(
        __name__=f"bench.{name}", counted=lambda: Table(name, "", "", rows)
    )


def test_goals_that_are_met_are_a_success(tmp_path, capsys):
    """With a report of the tables, for the trace of requirements."""
    report = tmp_path / "counted.json"
    modules = {"a": module("a", 9, 10), "timed": types.SimpleNamespace(__name__="bench.timed")}
    assert bench.count(modules, report) == 0
    assert json.loads(report.read_text("utf-8")) == {"met": {"bench/a.py": True}}
    assert capsys.readouterr().out == "2 of 2 goals that are counted are met\n"


@pytest.mark.parametrize("value", [11, None])
def test_a_goal_that_is_missed_or_not_measured_is_a_failure(tmp_path, capsys, value):
    """It is shown with its figure, and its table is not among those that show anything."""
    report = tmp_path / "counted.json"
    assert bench.count({"a": module("a", value), "b": module("b", 1)}, report) == 1
    assert json.loads(report.read_text("utf-8"))["met"] == {"bench/a.py": False, "bench/b.py": True}
    out = capsys.readouterr().out
    assert "frames" in out
    assert "1 of 2 goals" in out


def test_the_tables_that_count_are_found():
    """Those of memory, and that of frames, C functions and statements."""
    found = {m.__name__ for m in bench.find_tables().values() if hasattr(m, "counted")}
    assert found == {m.__name__ for m in (circuit_memory, counts, memory)}


def test_policies_in_the_table_of_memory_share_nothing():
    """Each has every field of the document, and no object of it is another's."""
    make = memory._alone([f"policy-{number}" for number in range(memory.COUNT)])
    one, other = make(1), make(2)
    names = ("name", "backoff", "jitter", "retry_on", "never_retry_on")
    for name in names:
        assert getattr(one, name) != getattr(other, name)
    numbers = ("initial", "factor", "max_delay")
    assert not {getattr(one.backoff, n) for n in numbers} & {
        getattr(other.backoff, n) for n in numbers
    }
    assert one.jitter.amount != other.jitter.amount


def test_a_row_that_was_noisy_keeps_the_steadier_of_two_measurements():
    """A quiet row stays as it was, and so does one that the second time has no value."""

    def table(*rows):
        return Table("t", "", "", [Row(*row) for row in rows])

    goal = at_most(3)
    first = table(
        ("quiet", 1.0, goal, "×", 0.05),
        ("noisy", 2.0, goal, "×", 0.4),
        ("gone", 5.0, goal, "×", 0.3),
    )
    second = table(
        ("quiet", 9.0, goal, "×", 0.01),
        ("noisy", 3.0, goal, "×", 0.1),
        ("gone", None, goal, "×", 0.0),
    )
    assert [row.value for row in bench.steadier(first, second).rows] == [1.0, 3.0, 5.0]
    assert [row.value for row in bench.steadier(second, first).rows] == [9.0, 3.0, None]
