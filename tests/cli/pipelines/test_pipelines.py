"""`mainstay pipelines`: tables, JSON, and resuming with the pipelines of an application."""

import json
from types import SimpleNamespace

import pytest

from mainstay import Engine
from mainstay.cli import guard
from mainstay.profiles.pipelines import Pipeline, SchemaValidationError, Stage

APP = """
from mainstay import Engine
from mainstay.profiles.pipelines import Pipeline, SchemaValidationError, Stage

def check():
    with open("repaired.txt") as file:
        return file.read()

def make(name="etl"):
    engine = Engine("sqlite:///runs.db", sinks=[], audit=False, share=None)
    return Pipeline(name, [
        Stage("poll", lambda: [1, 2], idempotency="idempotent"),
        Stage("check", check, after="poll", idempotency="idempotent", datasets="d-1"),
    ], engine=engine, ledgers="ledgers", telemetry="telemetry.json")

async def wait():
    return 7

def later():
    engine = Engine("sqlite:///runs.db", sinks=[], audit=False, share=None)
    return [Pipeline("slow", [Stage("wait", wait, idempotency="idempotent")], engine=engine,
                     ledgers="ledgers", telemetry="telemetry.json")]

wrong = 5
"""
SECRET = "correct horse battery"


def check():
    raise SchemaValidationError("row 7 has no id")


async def down():
    error = RuntimeError("down")
    error.status_code = 503
    raise error


@pytest.fixture
def cli(capsys):
    """Runs `mainstay` in this process: its exit code and what it wrote."""

    def run(*arguments):
        capsys.readouterr()
        code = guard.run(list(arguments))
        out, err = capsys.readouterr()
        return SimpleNamespace(exit_code=code, stdout=out, stderr=err)

    return run


@pytest.fixture
def url(tmp_path, monkeypatch):
    """A store with a halted run, and an application beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"app_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP, encoding="utf-8")
    monkeypatch.setenv("APP", name)
    place = f"sqlite:///{tmp_path}/runs.db"
    with Engine(place, sinks=[], audit=False, share=None) as engine:
        options = {"engine": engine, "ledgers": "ledgers", "telemetry": "telemetry.json"}
        stages = [
            Stage("poll", lambda: [1, 2], idempotency="idempotent"),
            Stage("check", check, after="poll", idempotency="idempotent", datasets="d-1"),
        ]
        with pytest.raises(SchemaValidationError):
            Pipeline("etl", stages, **options).run(run_id="r-1")
        Pipeline("other", stages[:1], **options).run(run_id="ok")
    return place


@pytest.fixture
def app(url, monkeypatch):
    import os

    return os.environ["APP"]


def release(url):
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        engine.operators.add("ann", secret=SECRET)
        (item,) = engine.inbox
        engine.inbox.act(item.id, "release", by="ann", proof=SECRET, why="repaired")


def test_runs_are_listed(cli, url):
    """With their state, how far they are, and why they are halted."""
    result = cli("pipelines", "list", "--store", url)
    assert result.exit_code == 0, result.stderr
    assert "etl/r-1" in result.stdout
    assert "row 7 has no id" in " ".join(result.stdout.split())
    rows = json.loads(cli("pipelines", "list", "--json", "--store", url).stdout)
    assert {(row["run_id"], row["state"]) for row in rows} == {
        ("r-1", "halted"),
        ("ok", "succeeded"),
    }
    only = cli("pipelines", "list", "--state", "halted", "--pipeline", "other", "--store", url)
    assert only.stdout.strip() == "there is no run"
    one = json.loads(cli("pipelines", "list", "--limit", "1", "--json", "--store", url).stdout)
    assert len(one) == 1


def test_a_run_is_shown(cli, url):
    """Its stages, its ledger entries, its quarantine."""
    result = cli("pipelines", "show", "etl/r-1", "--store", url)
    assert result.exit_code == 0, result.stderr
    for word in ("halted", "fail_fast", "d-1", "poll", "quarantined", "failed fast"):
        assert word in result.stdout
    found = json.loads(cli("pipelines", "show", "etl/r-1", "--json", "--store", url).stdout)
    assert [stage["status"] for stage in found["stages"]] == ["done", "failed"]
    assert cli("pipelines", "show", "etl/x", "--store", url).exit_code == 1
    assert cli("pipelines").exit_code == 2


def test_a_halted_run_is_resumed(cli, url, app, tmp_path):
    """Not while it is in quarantine; then from the stage at which it stopped."""
    result = cli("pipelines", "resume", "etl/r-1", "--app", f"{app}:make")
    assert result.exit_code == 1
    assert "in quarantine until a person" in " ".join(result.stderr.split())
    release(url)
    result = cli("pipelines", "resume", "etl/r-1", "--app", f"{app}:make")
    assert result.exit_code == 1
    assert "FileNotFoundError" in result.stderr
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        (item,) = engine.inbox
        engine.inbox.act(item.id, "release", by="ann", proof=SECRET, why="repaired")
    (tmp_path / "repaired.txt").write_text("yes", encoding="utf-8")
    result = cli("pipelines", "resume", "etl/r-1", "--app", f"{app}:make", "--by", "ann", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["state"] == "succeeded"


def test_async_pipelines_and_lists(cli, url, app):
    """The pipeline is found by its name, and awaited if it must be."""
    with Engine(url, sinks=[], audit=False, share=None) as engine:
        import asyncio

        once = Stage("wait", down, idempotency="idempotent", max_attempts=1)
        slow = Pipeline(
            "slow", [once], engine=engine, ledgers="ledgers", telemetry="telemetry.json"
        )
        with pytest.raises(RuntimeError):
            asyncio.run(slow.arun(run_id="a"))
    result = cli("pipelines", "resume", "slow/a", "--app", f"{app}:later")
    assert (result.exit_code, result.stdout.strip()) == (0, "slow/a: succeeded")


def test_wrong_applications(cli, url, app):
    """Each error names what is wrong, and what to give."""
    for wrong, text in [
        (f"{app}:wrong", "is a int, and no pipeline"),
        (f"{app}:nothing", "nothing"),
        (app, "names no attribute"),
        (f"{app}:later", "has no pipeline 'etl'"),
    ]:
        result = cli("pipelines", "resume", "etl/r-1", "--app", wrong)
        assert result.exit_code == 2, wrong
        assert text in " ".join(result.stderr.split())
    assert cli("pipelines", "resume", "etl/x", "--app", f"{app}:make").exit_code == 1
