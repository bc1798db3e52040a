"""A session of an agent from end to end: flaky tools, an open circuit, a person, and a restart."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples/doors/agent_session.py"
CALLS = {
    1: 1, 2: 2, 3: 3, 4: 5, 5: 1, 6: 1, 7: 3, 8: 2, 9: 2, 10: 1, 11: 1, 12: 2, 13: 1, 14: 5,
    17: 2, 18: 4, 19: 2, 20: 1,
}  # fmt: skip
"""How often each step was carried out, retries included. A refusal for lack of permission is not
recorded, and so met again after the restart; steps 15 and 16 met an open circuit."""


@pytest.fixture
def home(tmp_path):
    """An environment with a state folder of its own."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


def run(home, *words):
    return subprocess.run(
        [sys.executable, *words], env=home, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.req("UVS-1", "UVS-2", "UVS-4", "IT-041-10", "AG-01.exhausted", "AG-05", "AG-08.person")
@pytest.mark.req("AG-08.circuits")
def test_a_session_is_killed_resumed_and_leaves_one_item(home, tmp_path):
    """Twenty calls; those before the kill are not made again, and one needs a person."""
    folder = tmp_path / "work"
    folder.mkdir()
    killed = run(home, EXAMPLE, folder, "--killed-at", "11")
    assert killed.returncode == -signal.SIGKILL
    assert [line.split()[0] for line in killed.stdout.splitlines()] == [
        str(n) for n in range(1, 11)
    ]

    resumed = run(home, EXAMPLE, folder)
    assert resumed.returncode == 0, resumed.stderr
    *steps, last = resumed.stdout.splitlines()
    assert steps[:10] == killed.stdout.splitlines()
    assert [line.split(": ", 1)[1] for line in steps[13:16]] == [
        "failed: the search service is down",
        "refused: Circuit breaker open for search",
        "refused: Circuit breaker open for search",
    ]
    assert steps[8].endswith("push to main: failed: main is protected")
    failed = [line for line in steps if "failed: " in line or "refused: " in line]
    assert (len(steps), len(failed), last) == (20, 4, "for a person: search")
    made = {int(p.name.split("-")[1]): p.stat().st_size for p in folder.glob("calls-*")}
    assert made == CALLS

    (item,) = json.loads(run(home, "-m", "mainstay", "inbox", "--json").stdout)
    assert (item["kind"], item["operation"]) == ("exhausted", "search")
    circuits = json.loads(run(home, "-m", "mainstay", "circuits", "--json").stdout)
    assert "search" in json.dumps(circuits)
    assert "search" in run(home, "-m", "mainstay", "status").stdout
