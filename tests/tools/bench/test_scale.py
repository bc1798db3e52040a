"""`python -m bench.scale`: exponents, tables of curves, and time that is bounded."""

import json
import queue
import types
from pathlib import Path

import pytest

from bench.measure import child
from bench.scale import __main__ as scale
from bench.scale.curve import BOUNDED, Curve, Point, Series, count, figure, fit, ratio
from bench.scale.fleet import _collected, quantile
from bench.scale.relays import disordered
from bench.scale.sweep import Effort, sweep

has_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="no /proc to read the memory from"
)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found(exponent):
    """With no error, and the same over the last step."""
    found = fit([(n, 3.7e-6 * n**exponent) for n in (1e3, 1e4, 1e5, 1e6)])
    assert found.exponent == pytest.approx(exponent, abs=1e-9)
    assert found.error == pytest.approx(0.0, abs=1e-7)
    assert found.last == pytest.approx(exponent, abs=1e-9)


def test_least_squares_weighs_every_point():
    """The slope, its standard error and the last step of points that are on no line."""
    found = fit([(1, 1.0), (10, 10.0), (100, 1000.0)])  # logs of 10: 0, 1, 3 over 0, 1, 2
    assert found.exponent == pytest.approx(1.5)
    assert found.error == pytest.approx((1 / 6 / 1 / 2) ** 0.5)
    assert found.last == pytest.approx(2.0)


def test_a_knee_at_the_end_is_shown_by_the_last_step():
    """A fit over four decades hides it."""
    found = fit([(1e2, 1.0), (1e3, 1.0), (1e4, 1.0), (1e5, 1.0), (1e6, 100.0)])
    assert found.exponent < 0.5
    assert found.last == pytest.approx(2.0)


@pytest.mark.parametrize("points", [[], [(10, 1.0)], [(10, 1.0), (10, 2.0)], [(1, 0.0), (9, 1.0)]])
def test_less_than_two_sizes_have_no_exponent(points):
    """A cost of zero has no logarithm and does not count."""
    assert fit(points) is None


def test_two_sizes_have_an_exponent_without_an_error():
    """Any line goes through two points."""
    found = fit([(1, 1.0), (10, 10.0)])
    assert (found.exponent, found.error) == (pytest.approx(1.0), None)
    assert found.text() == "1.00"


def curve(**given):
    """Linear time, bounded memory that is not, a ratio and a count."""
    series = [
        Series("call"),
        Series("peak", "B", each=False, limit=BOUNDED, **given),
        ratio("× loop"),
        count("kept"),
    ]
    points = [
        Point(n, {"call": 2e-5 * n, "peak": 3e4 * n, "× loop": 1.25, "kept": min(n, 10_000)})
        for n in (1_000, 10_000, 100_000)
    ]
    return Curve("names", "Names", "names", "How it was measured.", series, points)


def test_a_curve_is_judged_by_its_exponents():
    """What is no cost has neither an exponent nor a verdict."""
    found = curve()
    assert [found.is_met(each) for each in found.series] == [True, False, None, None]


def test_a_curve_is_printed_with_costs_for_each_and_for_all():
    """The columns are as wide as what stands in them."""
    lines = curve().text().splitlines()
    assert lines[0] == "Names  [names]"
    cells = [line.split() for line in lines[2:]]
    assert cells[0] == ["names", "call", "peak", "×", "loop", "kept"]
    assert cells[1] == ["1,000", "20", "µs", "30", "MB", "1.25", "×", "1,000"]
    assert cells[3] == ["100,000", "20", "µs", "3", "GB", "1.25", "×", "10,000"]
    assert cells[4] == ["exponent", "1.00", "±", "0.00", "1.00", "±", "0.00"]
    assert cells[6] == ["at", "most", "1.1", "met", "0.1", "MISSED"]


def test_the_docs_have_ratios_and_exponents_and_no_time_of_this_machine():
    """A cost is a multiple of that at the smallest size."""
    lines = curve().markdown().splitlines()
    assert lines[0] == "How it was measured."
    assert lines[2] == "| names | call | peak | × loop | kept |"
    assert lines[3] == "| --- | --- | --- | --- | --- |"
    assert lines[6] == "| 100,000 | 1 × | 100 × | 1.25 × | 10,000 |"
    assert "µs" not in curve().markdown()
    assert "MB" not in curve().markdown()


def test_the_docs_name_the_sizes_that_are_left_out_without_their_times():
    """How long they would take is a time of this machine."""
    left_out = "not measured: 1,000,000; 1,000,000 would take some 100 s of 3 s left"
    found = Curve("a", "A", "n", "", [Series("call")], curve().points, left_out)
    assert found.markdown().endswith("\nnot measured: 1,000,000")
    assert left_out in found.text()


def test_a_reason_explains_an_exponent_above_its_limit():
    """It stands below the table, and only if the exponent is above."""
    assert "peak: it keeps all" in curve(reason="it keeps all").text()
    assert "EXPLAINED" in curve(reason="it keeps all").text()
    linear = Curve("a", "A", "n", "", [Series("call", reason="never")], curve().points)
    assert "never" not in linear.text()


def test_a_size_without_a_figure_has_a_dash():
    """A column may begin later than another."""
    found = Curve("a", "A", "n", "", [Series("call")], [Point(1, {}), Point(2, {"call": 2.0})])
    assert found.text().splitlines()[2].split() == ["1", "–"]
    assert "| 1 | – |" in found.markdown()


def test_a_curve_is_json():
    """With its points and the exponents."""
    data = json.loads(json.dumps(curve().data()))
    assert data["points"][0] == {
        "n": 1000, "call": 0.02, "peak": 3e7, "× loop": 1.25, "kept": 1000
    }  # fmt: skip
    call, peak, loop, _ = data["series"]
    assert call["exponent"] == pytest.approx(1.0)
    assert (call["met"], peak["met"], loop["met"]) == (True, False, None)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(0.0, "s", "0 ns"), (1.5, "s", "1.5 s"), (512, "B", "512 B"), (12_345, "", "12,345")],
)
def test_a_figure_has_the_unit_that_a_person_would_choose(value, unit, shown):
    """From nanoseconds to gigabytes."""
    assert figure(value, unit) == shown


class Clock:
    """Time that passes only while something is measured."""

    def __init__(self, cost):
        self.now, self.cost = 0.0, cost

    def __call__(self):
        return self.now

    def measure(self, n):
        self.now += self.cost(n)
        return {"call": self.cost(n)}


def test_sizes_that_do_not_fit_into_the_time_are_left_out():
    """The last one that fits is measured; the others are named."""
    clock = Clock(lambda n: n / 1_000)
    points, left_out = sweep("a", [1_000, 10_000, 100_000, 10**6], clock.measure, 60.0, clock)
    assert [point.n for point in points] == [1_000, 10_000]
    assert left_out.startswith("not measured: 100,000, 1,000,000; 100,000 would take some 100 s")


def test_the_smallest_size_is_always_measured():
    """Also if it takes longer than there is."""
    clock = Clock(lambda _: 100.0)
    points, left_out = sweep("a", [1, 2], clock.measure, 1.0, clock)
    assert [point.n for point in points] == [1]
    assert "0 s left" in left_out


def test_what_every_size_takes_does_not_count_as_growth():
    """The start of a process is no reason to leave a size out."""
    clock = Clock(lambda n: 3.0 + n / 100_000)
    points, left_out = sweep("a", [1_000, 10_000, 100_000, 10**6], clock.measure, 30.0, clock)
    assert [point.n for point in points] == [1_000, 10_000, 100_000, 10**6]
    assert left_out == ""


def test_all_sizes_are_measured_in_time_that_suffices(capsys):
    """Each has a line of progress where nobody watches."""
    clock = Clock(lambda n: n / 1_000)
    points, left_out = sweep("names", [10, 1_000], clock.measure, 60.0, clock)
    assert ([point.n for point in points], left_out) == ([10, 1_000], "")
    assert [line.rpartition(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "names: 10", "names: 1,000",
    ]  # fmt: skip


def test_sizes_by_effort():
    """10⁷ records are for those who ask for them."""
    assert Effort(is_quick=True).sizes([1, 2], [1], [1, 2, 3]) == [1]
    assert Effort(is_full=True).sizes([1, 2], [1], [1, 2, 3]) == [1, 2, 3]
    assert Effort(is_full=True).sizes([1, 2], [1]) == [1, 2]
    assert Effort().sizes([1, 2], [1], [1, 2, 3]) == [1, 2]


def test_order_within_an_aggregate():
    """A message may begin when the one before it has ended; other aggregates do not matter."""
    assert disordered([(1, 0, 0.0, 0.1), (1, 1, 0.1, 0.2), (2, 0, 0.05, 0.3)]) == 0
    assert disordered([(1, 1, 0.1, 0.2), (1, 0, 0.0, 0.15)]) == 1
    assert disordered([(1, 0, 5.0, 6.0), (1, 1, 1.0, 2.0), (1, 2, 3.0, 4.0)]) == 2


def test_quantiles():
    """The smallest value that the share does not exceed."""
    values = [float(n) for n in range(100, 0, -1)]
    assert (quantile(values, 0.99), quantile(values, 0.5), quantile([7.0], 0.99)) == (99, 50, 7)


def test_a_process_of_a_fleet_that_fails_is_an_error():
    """So is one that does not answer in time."""
    answers = queue.Queue()
    answers.put(("", 1))
    answers.put(("ValueError: no", None))
    with pytest.raises(RuntimeError, match="ValueError: no"):
        _collected(answers, 2, 1.0)
    with pytest.raises(TimeoutError, match="0 of 1"):
        _collected(queue.Queue(), 1, 0.0)


def test_a_curve_that_fails_does_not_lose_the_others(capsys):
    """It gives the reason."""

    def run(effort):
        raise OSError("no server")

    (found,) = scale.measured(types.SimpleNamespace(run=run), "claims", Effort())
    assert "no server" in found.text()
    assert "no server" in found.markdown()
    assert "no server" in scale.summary([found, curve()])
    assert "above: names: peak: 1.00 ± 0.00" in scale.summary([curve()])
    assert "1 of 2 exponents are within their limits" in scale.summary([curve()])


def test_the_command_prints_json(monkeypatch, capsys):
    """One document, of the curves asked for."""
    monkeypatch.setattr(scale, "measured", lambda module, name, effort: [curve()])
    assert scale.main(["--json", "--only", "names", "--quick"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["curves"]] == ["names"]


def test_tables_are_written_between_the_marks_of_their_curves():
    """The rest of the page stays; a curve without points, or without a section, changes nothing."""
    page = "a\n<!-- curve: names -->\nold\n<!-- end of curve -->\nb <!-- end of curve -->\n"
    new = scale.written(page, [curve(), Curve("other", "", "n", "", [])])
    assert new.startswith("a\n<!-- curve: names -->\nHow it was measured.\n")
    assert new.endswith("|\n<!-- end of curve -->\nb <!-- end of curve -->\n")
    assert "old" not in new
    with pytest.raises(ValueError, match="no section <!-- curve: names -->"):
        scale.written("a", [curve()])


def test_the_page_has_a_section_for_every_curve():
    """So that a run of all curves can be written."""
    page = (Path(__file__).parents[3] / "docs/reference/scale.md").read_text(encoding="utf-8")
    named = [f"names.{kind}" for kind in ("plain", "circuits", "failing", "metrics")]
    for name in [*named, "parked", "audit.jsonl", "audit.sqlite", "claims", "relays"]:
        assert f"<!-- curve: {name} -->" in page


def test_every_curve_is_there():
    """With a run() that takes the effort."""
    for name in scale.CURVES:
        assert callable(__import__(f"bench.scale.{name}", fromlist=["run"]).run)


@has_proc
@pytest.mark.parametrize("kind", ["plain", "circuits", "failing", "metrics"])
def test_names_are_measured_in_a_fresh_process(kind):
    """Each kind of engine calls every name twice."""
    found = child("bench.scale.names", kind, "20", timeout=60.0)
    assert found["first call"] > 0
    kept = "label values kept" if kind == "metrics" else "circuits kept"
    assert found[kept] == (0 if kind == "plain" else 20)


@has_proc
def test_a_log_is_written_and_read_in_fresh_processes(tmp_path):
    """The commands agree with what was written."""
    for step in ("write", "verify", "stats"):
        found = child("bench.scale.audit", step, str(tmp_path / "audit.jsonl"), "60", timeout=60.0)
        assert found["peak"] > 0


def test_calls_in_backoff_have_one_timer_each():
    """Of both sides."""
    for who in ("mainstay", "hand-written loop"):
        assert child("bench.scale.parked", who, "5", timeout=60.0)["timers"] == 5
