"""Kill -9 while 8 processes write to one audit log: it verifies, and nothing promised is gone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mainstay.audit import AuditLog, read_log, verify_log
from mainstay.events import CallSucceeded

WRITERS, ROUNDS, ENOUGH = 8, 2, 5

WRITER = """
import os, sys
from mainstay.audit import AuditLog
from mainstay.events import CallSucceeded

where, how, name = sys.argv[1:]
log = AuditLog(where, durability="call" if how == "call" else "buffered", every=50, spill=False)
log._buffer.timeout = 60.0
number = 0
while True:
    for _ in range(1 if how == "call" else 20):
        number += 1
        log(CallSucceeded(operation=f"{name}-{number}", correlation_id="x" * (number * 37 % 400)))
    if how == "call" or log.flush(60):
        os.write(1, f"{number}\\n".encode())
"""


def write_until_killed(where, name):
    """Starts writers, kills each after some acknowledgements, in the midst of its work.

    Half of them promise what a flush has brought into the log, half what a call went on with.
    """
    hows = ("buffered", "call")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, where, hows[writer % 2], f"{name}-{writer}"],
            stdout=subprocess.PIPE,
        )
        for writer in range(WRITERS)
    ]
    acknowledged = {}
    try:
        for writer, child in enumerate(children):
            for _ in range(ENOUGH):
                line = child.stdout.readline()
                assert line, "a writer ended by itself"
                acknowledged[f"{name}-{writer}"] = int(line)
    finally:
        for child in children:
            child.kill()
    for writer, child in enumerate(children):
        rest, _ = child.communicate(timeout=60)
        whole = rest[: rest.rfind(b"\n") + 1].split()
        if whole:
            acknowledged[f"{name}-{writer}"] = int(whole[-1])
    return {f"{who}-{n}" for who, last in acknowledged.items() for n in range(1, last + 1)}


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "jsonl"])
def test_nothing_that_was_acknowledged_is_missing(kind, request, tmp_path):
    """Several rounds of killing: one chain, with everything that a flush or a call has promised."""
    where = {
        "sqlite": f"sqlite:///{tmp_path}/a.db",
        "jsonl": str(tmp_path / "a.jsonl"),
    }.get(kind) or request.getfixturevalue("postgres_database")
    promised = set()
    for number in range(ROUNDS):
        promised |= write_until_killed(where, f"round-{number}")
        verdict = verify_log(where)
        assert verdict.ok, verdict.problem
    last = AuditLog(where)
    last(CallSucceeded(operation="afterwards"))
    last.close()
    assert verify_log(where).ok
    kept = [record.event.operation for record in read_log(where)]
    assert len(kept) == len(set(kept)), "nothing is there twice"
    assert promised <= set(kept)
    assert len(promised) >= ROUNDS * WRITERS * ENOUGH
    assert kept[-1] == "afterwards"
