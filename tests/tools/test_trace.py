"""The tracer, on small repositories made for each test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.ran import Ran
from tools import trace
from tools.marks import marks_in


@pytest.fixture
def repository(tmp_path):
    """Writes files below a root, and what a run of them has shown; returns what the tracer finds.

    `ran` has the outcomes of tests by node id, `counted` those of benchmarks by file. If `ran` is
    not given, every test has passed.
    """

    def write(claimed="", every="CP-01..03\nFR-041-01", parts="", ran=None, counted=None, **files):
        lists = {"": claimed, "-all": every, "-parts": parts}
        texts = {f"tests/requirements{name}.txt": text for name, text in lists.items()}
        texts |= {name.replace("__", "/") + ".py": text for name, text in files.items()}
        for name, text in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        write_reports(tmp_path, ran, counted)
        return trace.collect(tmp_path)

    write.root = tmp_path
    return write


def write_reports(root, ran, counted):
    """What `make test` and `make counts` would leave."""
    tests = {}
    for name, places in marks_in(root).tests.items():
        for place in places:
            tests.setdefault(place, {"outcome": "passed", "req": []})["req"].append(name)
    if ran is not None:
        tests = {
            case: {"outcome": outcome, "req": tests[case.partition("[")[0]]["req"]}
            for case, outcome in ran.items()
        }
    report = {"ended": "2026-01-01T00:00:00+00:00", "arguments": [], "tests": tests}
    (root / trace.RAN).write_text(json.dumps(report), encoding="utf-8")
    if counted is not None:
        (root / trace.COUNTED).write_text(json.dumps({"met": counted}), encoding="utf-8")


def marked(*ids, name="test_a", indent=""):
    shown = ", ".join(map(repr, ids))
    return f"{indent}@pytest.mark.req({shown})\n{indent}def {name}(): pass\n"


def test_a_mark_on_a_function_is_found(repository):
    found = repository(claimed="CP-01", tests__test_x=marked("CP-01", "CP-02"))
    assert found.shown == {i: ["tests/test_x.py::test_a"] for i in ("CP-01", "CP-02")}
    assert found.problems == []
    assert found.unclaimed == ["CP-02", "CP-03", "FR-041-01"]


def test_marks_on_classes_modules_and_parameters_are_found(repository):
    module = (
        'pytestmark = [pytest.mark.req("CP-01")]\n'
        "@pytest.mark.req('CP-02')\nclass TestB:\n" + marked("CP-03", indent="    ")
        + "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.req('FR-041-01'))])\n"
        "async def test_c(x): pass\n"
    )  # fmt: skip
    found = repository(tests__deep__test_x=module)
    b, c = "tests/deep/test_x.py::TestB::test_a", "tests/deep/test_x.py::test_c"
    assert found.shown == {"CP-01": [b, c], "CP-02": [b], "CP-03": [b], "FR-041-01": [c]}
    assert found.problems == []


def test_a_claimed_id_without_a_test_is_a_problem(repository):
    found = repository(claimed="CP-01..02", tests__test_x=marked("CP-01"))
    assert found.problems == ["CP-02 is claimed, but no test shows it"]


def test_an_unknown_id_is_a_problem(repository):
    found = repository(claimed="CP-08", tests__test_x=marked("CP-09"))
    assert found.problems == [
        "tests/test_x.py::test_a: CP-09 is not in tests/requirements-all.txt",
        "CP-08 is claimed, but not in tests/requirements-all.txt",
    ]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("tests__test_x", marked("CP-01", name="helper"), "that no test carries"),
        ("tests__support", marked("CP-01"), "that no test carries"),
        ("tests__test_x", "mark = pytest.mark.req('CP-01')\n", "that no test carries"),
        ("tests__test_x", "pytestmark = pytest.mark.req('CP-01')\n", "that no test carries"),
        ("tests__test_x", "@pytest.mark.req('CP-01')\nclass TestA: pass\n", "that no test carries"),
        ("tests__test_x", "@pytest.mark.req(*IDS)\ndef test_a(): pass\n", "written out as strings"),
        ("tests__test_x", "@pytest.mark.req()\ndef test_a(): pass\n", "without an id"),
    ],
)
def test_a_mark_that_shows_nothing_is_a_problem(repository, name, text, problem):
    found = repository(**{name: text})
    assert found.shown == {}
    assert len(found.problems) == 1
    assert problem in found.problems[0]


def test_a_benchmark_counts(repository):
    text = "# req: CP-01, CP-02\nTITLE = 'import time (req: FR-041-01)'\n"
    found = repository(claimed="CP-01", bench__speed=text)
    assert found.shown == {
        "CP-01": ["bench/speed.py:1"],
        "CP-02": ["bench/speed.py:1"],
        "FR-041-01": ["bench/speed.py:2"],
    }


def test_a_line_that_is_no_id_stops_it(repository):
    with pytest.raises(SystemExit, match="'CP-1 to 3' is neither an id nor a range"):
        repository(claimed="CP-1 to 3")


def test_the_exit_code_and_the_two_forms_agree(repository, capsys):
    repository(claimed="CP-01", tests__test_x=marked("CP-01"))
    assert trace.main([str(repository.root)]) == 0
    assert "1 of 4 requirements claimed, 3 unclaimed" in capsys.readouterr().out
    repository(claimed="CP-01..02")
    assert trace.main([str(repository.root), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["problems"] == ["CP-02 is claimed, but no test shows it"]
    assert document["counts"] == {"all": 4, "claimed": 2}


# --- what ran -------------------------------------------------------------------------------------

A, B = "tests/test_x.py::test_a", "tests/test_x.py::test_b"
TWO = marked("CP-01") + marked("CP-01", name="test_b")


@pytest.mark.parametrize(
    ("ran", "problem"),
    [
        ({}, f"its test did not run: {A}"),
        ({A: "skipped", B: "skipped"}, f"its test was skipped in this run: {A}"),
        ({A: "failed", B: "passed"}, f"its test failed in this run: {A}"),
        ({A: "passed", f"{B}[1]": "passed", f"{B}[2]": "failed"},
         f"its test failed in this run: {B}"),
    ],
)  # fmt: skip
def test_an_id_counts_only_if_its_test_ran_and_passed(repository, ran, problem):
    """A mark alone shows nothing: it may be on a test that was skipped."""
    found = repository(claimed="CP-01", tests__test_x=TWO, ran=ran)
    assert found.problems == [f"CP-01 is claimed, but {problem}"]
    assert found.shown == {}


@pytest.mark.parametrize(
    "ran", [{A: "passed"}, {A: "passed", B: "skipped"}, {f"{A}[1]": "passed", f"{A}[2]": "skipped"}]
)
def test_one_test_that_passed_is_enough(repository, ran):
    """Another may have been skipped; it is not among those that show it."""
    found = repository(claimed="CP-01", tests__test_x=TWO, ran=ran)
    assert found.problems == []
    assert found.shown == {"CP-01": [A]}


def test_without_a_run_nothing_is_shown_and_how_to_get_one_is(repository, capsys):
    """Nobody takes the marks for a result."""
    repository(claimed="CP-01", tests__test_x=TWO)
    (repository.root / trace.RAN).unlink()
    assert trace.main([str(repository.root)]) == 1
    out = capsys.readouterr().out
    assert "there is no report of a test run: `make test` writes .trace.json" in out
    assert A not in out
    (repository.root / trace.RAN).write_text("{", encoding="utf-8")
    assert trace.collect(repository.root).problems == [trace.NO_RUN]


# --- parts ----------------------------------------------------------------------------------------


def test_an_id_with_parts_is_complete_if_all_parts_are(repository):
    """Each part is marked by itself."""
    module = marked("CP-01.memory") + marked("CP-01.storm", name="test_b")
    found = repository("CP-01", parts="CP-01: memory storm  # of a table", tests__test_x=module)
    assert found.problems == []
    assert found.shown == {"CP-01.memory": [A], "CP-01.storm": [B]}


def test_a_part_that_is_missing_is_a_problem(repository):
    """Skipped counts as missing here too."""
    module = marked("CP-01.memory") + marked("CP-01.storm", name="test_b")
    parts = "CP-01: memory storm person"
    found = repository("CP-01", parts=parts, tests__test_x=module, ran={A: "passed", B: "skipped"})
    assert found.problems == [
        f"CP-01.storm is claimed, but its test was skipped in this run: {B}",
        "CP-01.person is claimed, but no test shows it",
    ]
    assert "CP-01" in found.claimed


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("CP-01", "CP-01: mark a part: CP-01.memory, CP-01.storm"),
        ("CP-01.mem", "CP-01.mem: mark a part: CP-01.memory, CP-01.storm"),
        ("CP-02.memory", "CP-02.memory has no such part in tests/requirements-parts.txt"),
        ("CP-09.memory", "CP-09.memory is not in tests/requirements-all.txt"),
    ],
)
def test_a_mark_names_a_part_that_there_is(repository, name, problem):
    """A whole that is marked at once hides which part is missing."""
    found = repository(parts="CP-01: memory storm", tests__test_x=marked(name))
    assert found.problems == [f"{A}: {problem}"]


def test_the_list_of_parts_is_checked(repository):
    """Its ids are known, its lines are read or refused."""
    found = repository(parts="CP-09: memory")
    assert found.problems == ["tests/requirements-parts.txt: CP-09 is no requirement"]
    with pytest.raises(SystemExit, match="'CP-01 memory' is not an id with parts"):
        repository(parts="CP-01 memory")


# --- benchmarks -----------------------------------------------------------------------------------


def test_what_rests_on_a_benchmark_says_so(repository, capsys):
    """And whether that was counted, or is only timed; an id with a test rests on the test."""
    files = {
        "bench__timed": "# req: CP-01, CP-02\n",
        "bench__counts": "# req: CP-03\n",
        "tests__test_x": marked("CP-02"),
    }
    found = repository("CP-01..03", counted={"bench/counts.py": True}, **files)
    assert found.problems == []
    timed = "timed, by `make bench` alone"
    assert found.rests_on_bench() == {"CP-01": timed, "CP-03": "counted"}
    assert trace.main([str(repository.root)]) == 0
    out = capsys.readouterr().out
    assert f"CP-01      → bench/timed.py:1 ({timed})" in out
    assert "rest on bench/, counted: CP-03\n" in out
    assert f"rest on bench/, {timed}: CP-01\n" in out
    assert json.loads(trace.as_json(found))["bench"] == found.rests_on_bench()


def test_a_benchmark_that_missed_a_goal_shows_nothing(repository):
    """Nor does it make good for a test that failed."""
    bench = "# req: CP-01, CP-02\n"
    found = repository("CP-01", counted={"bench/a.py": False}, bench__a=bench)
    assert found.problems == ["CP-01 is claimed, but its benchmark missed a goal: bench/a.py:1"]
    found = repository(
        "CP-02", counted={"bench/a.py": True}, tests__test_x=marked("CP-02"), ran={A: "failed"}
    )
    assert found.problems == [f"CP-02 is claimed, but its test failed in this run: {A}"]


# --- the report of a run --------------------------------------------------------------------------

SUITE = """
import os

import pytest

pytestmark = pytest.mark.req("CP-01")

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.req("CP-02"))])
def test_passes(n): assert "TRACE_REPORT" not in os.environ

@pytest.mark.skip(reason="not here")
def test_is_skipped(): pass

def test_skips_itself(): pytest.skip("not now")

def test_fails(): assert False

@pytest.mark.xfail
def test_is_expected_to_fail(): assert False

@pytest.mark.xfail(strict=False)
def test_passes_unexpectedly(): pass

@pytest.fixture
def broken():
    yield
    raise OSError

def test_is_not_torn_down(broken): pass
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_run_reports_what_its_tests_came_to(tmp_path, workers):
    """From the workers too; of a test, the worst of its phases; what is not marked is left out."""
    (tmp_path / "conftest.py").write_text(
        "from tests.tools.ran import pytest_configure, pytest_itemcollected\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = req(*ids)\n")
    (tmp_path / "test_x.py").write_text(SUITE)
    (tmp_path / "test_y.py").write_text("def test_unmarked(): pass\n")
    report = tmp_path / "ran.json"
    report.write_text("left by another run")
    root = str(Path(__file__).parents[2])
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers],
        cwd=tmp_path,
        env=os.environ | {"TRACE_REPORT": "ran.json", "PYTHONPATH": root},
        capture_output=True,
        timeout=120,
        check=False,
    )
    tests = json.loads(report.read_text("utf-8"))["tests"]
    assert {name.partition("::")[2]: each["outcome"] for name, each in tests.items()} == {
        "test_passes[1]": "passed",
        "test_passes[2]": "passed",
        "test_is_skipped": "skipped",
        "test_skips_itself": "skipped",
        "test_fails": "failed",
        "test_is_expected_to_fail": "skipped",
        "test_passes_unexpectedly": "skipped",
        "test_is_not_torn_down": "failed",
    }
    assert tests["test_x.py::test_passes[2]"]["req"] == ["CP-02", "CP-01"]


def test_a_run_that_is_cut_off_leaves_no_report_of_another(tmp_path):
    """The old one is gone as soon as a new run begins."""
    path = tmp_path / "ran.json"
    path.write_text("{}")
    Ran(path)
    assert not path.exists()


def test_the_lists_of_this_repository_fit_its_marks():
    """Whatever ran: ids, parts and marks are right by themselves."""
    found = trace.collect(Path(__file__).parents[2])
    wrong = [each for each in found.problems if "is claimed, but" not in each]
    assert [each for each in wrong if each != trace.NO_RUN] == []
