"""The tracer, on small repositories made for each test."""

import json

import pytest

from tools import trace


@pytest.fixture
def repository(tmp_path):
    """Writes files below a root and returns what the tracer makes of them."""

    def write(claimed="", every="CP-01..03\nFR-041-01", **files):
        texts = {"tests/requirements.txt": claimed, "tests/requirements-all.txt": every}
        texts |= {name.replace("__", "/") + ".py": text for name, text in files.items()}
        for name, text in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return trace.collect(tmp_path)

    write.root = tmp_path
    return write


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
