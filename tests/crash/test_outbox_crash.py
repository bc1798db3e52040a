"""A sample of the crash campaign of the outbox; `make crash` kills a thousand relays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.outbox import problems

ROOT = Path(__file__).resolve().parents[2]


LIMIT = 840.0
"""Seconds for what takes ten on a quiet machine; `STUCK` of the campaign shows first what hangs."""


def printed(*command, **options):
    """Runs a program of the campaign; its exit status and what it printed, also if it hangs."""
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options,
    ) as program:  # fmt: skip
        try:
            return program.communicate(timeout=LIMIT)[0], program.returncode
        except subprocess.TimeoutExpired:
            program.kill()
            return program.communicate()[0], "did not end"


@pytest.mark.timeout(900)
@pytest.mark.req("EF-14", "EF-10")
def test_relays_that_are_killed_lose_nothing_and_keep_the_order(postgres_url):
    """On SQLite and PostgreSQL, with 1, 2 and 4 relays; what was rolled back never arrives."""
    server = {**os.environ, "MAINSTAY_TEST_POSTGRES_URL": postgres_url}
    output, status = printed("-m", "tests.crash.outbox", "36", env=server)
    assert status == 0, output
    assert output.count("ok") == 6, output


SLOW = """
import sys, time
from pathlib import Path
import tests.crash.outbox as outbox
from tests.servers.databases import sqlite_place

add = outbox.add

def slow(*args):
    outbox.time = type("Slow", (), {"sleep": lambda s: time.sleep(s * 10)})
    add(*args)

outbox.add, folder = slow, Path(sys.argv[1])
print(outbox.campaign(sqlite_place(folder).url, folder, workers=4, kills=6, seed=5, pauses=0.0)[0])
"""


@pytest.mark.timeout(900)
def test_what_is_added_after_the_last_kill_is_waited_for(tmp_path):
    """The last relay ends if it finds nothing to send: all has to be added before it starts."""
    assert printed("-c", SLOW, str(tmp_path)) == ("[]\n", 0)


ADDED = """["a", "x", 1, true]
["b", "x", 2, true]
["c", "x", 3, false]
"""


@pytest.mark.parametrize(
    ("received", "problem"),
    [
        ('["a", "x", 1]\n["a", "x", 1]\n["b", "x", 2]\n', ""),
        ('["a", "x", 1]\n', "lost"),
        ('["a", "x", 1]\n["b", "x", 2]\n["c", "x", 3]\n', "never committed"),
        ('["b", "x", 2]\n["a", "x", 1]\n', "order"),
        ('["a", "x", 1]\n["b", "y", 2]\n', "changed"),
    ],
)
def test_the_oracle_finds_what_is_wrong(tmp_path, received, problem):
    """It compares two files, and nothing of the library."""
    (tmp_path / "added").write_text(ADDED)
    (tmp_path / "received").write_text(received)
    found = problems(tmp_path)
    assert bool(found) == bool(problem)
    assert problem in " ".join(found)
