"""docs/how-to/comply.md has the rules as they are; the workflow files do what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mainstay.cli.exits import Exit
from mainstay.core.comply.check import RULES
from mainstay.core.pipeline.ledger_file import encode as encode_ledger
from mainstay.core.telemetry.record import encode as encode_telemetry
from tests.core.comply.runs import world

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/comply.md").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / "examples/ci").glob("*.yml"))
pytestmark = pytest.mark.req("PL-13")


def table():
    rows = ["| rule | finds | what to do |", "| --- | --- | --- |"]
    return "\n".join(rows + [f"| `{rule.id}` | {rule.finds} | {rule.fix} |" for rule in RULES])


def test_the_table_of_the_page_is_that_of_the_rules():
    """If it fails, put this table into the page."""
    between = PAGE.partition("<!-- rules: src/mainstay/core/comply -->\n")[2]
    assert between.partition("\n<!-- end of rules -->")[0] == table(), table()


def test_there_are_both_workflows_of_the_document():
    names = [yaml.safe_load(path.read_text(encoding="utf-8"))["name"] for path in WORKFLOWS]
    assert names == ["faircare-validate", "telemetry-export"]
    assert [path.stem for path in WORKFLOWS] == names
    assert all(f"examples/ci/{path.name}" in PAGE for path in WORKFLOWS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_whole(path):
    """What GitHub asks of a workflow file: triggers, jobs, a runner, steps that run or use."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert found[True]  # `on`, as YAML 1.1 reads it
    assert found["permissions"]["contents"] == "read"
    for job in found["jobs"].values():
        assert job["runs-on"]
        assert job["timeout-minutes"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert set(step) <= {"name", "run", "uses", "with", "if"}
            assert "run" in step or "@v" in step["uses"]


def commands(path):
    """What a workflow runs, but for the installation."""
    (job,) = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    scripts = [step["run"] for step in job["steps"] if "run" in step]
    assert scripts[0] == "pip install 'mainstay[cli]'"
    return scripts[1:]


def put(folder, found):
    """The files of a world, and a program that stands for the pipeline."""
    for name, data in {
        "releases/focus-telemetry.json": encode_telemetry(found.telemetry),
        "docs/reports/audit/pipeline_retry_log.json": encode_ledger(found.retry_log),
        "docs/reports/audit/versioning_ledger.json": encode_ledger(found.versioning),
        "pipeline.py": b"",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.mark.skipif(os.name == "nt", reason="the workflows run on Linux")
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_the_commands_of_a_workflow_pass_and_fail(path, tmp_path):
    """As GitHub runs them, by `bash -e`: green on clean runs, red if telemetry is missing."""
    found, tools = world(7), Path(sys.executable).parent
    env = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    put(tmp_path, found)
    for is_clean in (True, False):
        if not is_clean:
            del found.telemetry.records[0]
            put(tmp_path, found)
        for script in commands(path):
            done = subprocess.run(
                ["bash", "-e", "-c", script], cwd=tmp_path, env=env, capture_output=True,
                check=False, timeout=120,
            )  # fmt: skip
            is_red = "mainstay" in script and not is_clean
            assert done.returncode == (Exit.NEGATIVE if is_red else Exit.OK), done.stderr
    (report,) = tmp_path.glob("*-report.xml")
    assert b"missing-telemetry" in report.read_bytes()
