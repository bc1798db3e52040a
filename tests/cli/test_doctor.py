"""`mainstay doctor`: what it says is installed is, and what it finds wrong shows in its code."""

import json
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

import mainstay
from mainstay.cli import doctor
from mainstay.cli.app import app

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))


def invoke(*arguments):
    """The exit code and output of `mainstay doctor`."""
    done = CliRunner().invoke(app, ["doctor", *arguments], catch_exceptions=False)
    return done.exit_code, done.output


def test_the_json_is_true():
    """Versions are those of the installed packages; the extras are those of the project."""
    code, out = invoke("--json")
    found = json.loads(out)
    assert (code, found["problems"]) == (0, [])
    assert found["mainstay"] == mainstay.__version__
    assert {lib["name"].lower() for lib in found["base"]} == {"msgspec", "pyyaml"}
    assert set(found["extras"]) == set(PROJECT["project"]["optional-dependencies"]) - {"all"}
    for lib in found["extras"]["cli"]["libraries"]:
        assert lib["installed"] == metadata.version(lib["name"])
    assert found["clock"]["resolution_seconds"] > 0
    assert found["clock"]["sleep_overshoot_seconds"] >= 0


def test_a_missing_extra_has_its_command_and_is_no_problem(monkeypatch):
    real = doctor._version_of
    monkeypatch.setattr(doctor, "_version_of", lambda n: None if n == "psycopg" else real(n))
    code, out = invoke("--json")
    assert code == 0
    assert json.loads(out)["extras"]["postgres"]["install"] == "pip install 'mainstay[postgres]'"
    assert "pip install 'mainstay[postgres]'" in invoke()[1]


@pytest.mark.parametrize(
    ("versions", "problem"),
    [
        ({"rich": "13.2.1"}, "rich 13.2.1 is older than 13.9; pip install --upgrade 'rich>=13.9'"),
        ({"msgspec": None}, "msgspec is missing; pip install mainstay"),
    ],
)
def test_what_cannot_work_is_a_problem(versions, problem, monkeypatch):
    """Exit code 1, with the command that helps."""
    monkeypatch.setattr(doctor, "_version_of", lambda name: versions.get(name, "999"))
    code, out = invoke()
    assert code == 1
    assert f"problem: {problem}" in out
    code, out = invoke("--json")
    assert (code, json.loads(out)["problems"]) == (1, [problem])


def test_a_folder_is_not_an_installation(monkeypatch):
    def absent(_name):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", absent)
    code, out = invoke()
    assert code == 1
    assert "not installed" in out


@pytest.mark.parametrize(
    ("installed", "minimum", "is_old"),
    [("8.10", "8.9", False), ("8.1", "8.1.0", False), ("0.9", "1", True), ("2.0rc1", "2", False)],
)
def test_versions_are_compared_as_numbers(installed, minimum, is_old):
    assert doctor.Library("x", "", minimum, installed).is_old is is_old


def test_it_runs_without_the_engine(run):
    """The doctor comes when the library is ill: nothing of it is imported."""
    done = run("doctor")
    assert done.returncode == 0
    assert "No problems found" in done.stdout
    source = Path(doctor.__file__).read_text("utf-8")
    assert "from mainstay import __version__\n" in source
    assert "import Engine" not in source


def test_a_store_is_described():
    """Version, schema and latency, for people and for programs."""
    code, out = invoke("--json", "--store", "sqlite:///:memory:")
    store = json.loads(out)["store"]
    assert code == 0
    assert (store["store"], store["schema"]) == ("sqlite", 2)
    assert store["latency_ms"] >= 0
    assert "records" in store["abilities"]
    code, out = invoke("--store", "sqlite:///:memory:")
    assert code == 0
    assert "latency in ms" in out
    assert json.loads(invoke("--json")[1])["store"] is None


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("floppy://a", "there is no store for 'floppy://a'"),
        ("sqlite:////no/such/folder/a.db", "does its folder exist"),
    ],
)
def test_a_store_that_does_not_work_is_a_problem(url, told):
    """Exit code 1, and what went wrong; no traceback."""
    code, out = invoke("--store", url)
    assert code == 1
    assert told in out.replace("\n", " ")


def test_a_server_that_is_down_is_a_problem_in_one_sentence():
    """Which does not refer to this very command."""
    code, out = invoke("--json", "--store", "redis://127.0.0.1:1?timeout=1")
    (problem,) = json.loads(out)["problems"]
    assert code == 1
    assert problem.startswith("redis://127.0.0.1:1 is unavailable: ")
    assert problem.endswith("Connection refused: nothing listens there; is the server running?")
