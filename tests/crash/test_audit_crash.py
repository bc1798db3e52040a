"""Kill -9 while 8 processes write to one audit log: it verifies, and nothing promised is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from mainstay.audit import AuditLog, read_log, verify_log
from mainstay.events import CallSucceeded

WRITERS, ROUNDS, ENOUGH = 8, 2, 5

FORKING = """
import os, sys
from mainstay.audit import AuditLog
from mainstay.events import CallSucceeded

def write(where, how, name, pipe):
    log = AuditLog(where, durability="call" if how == "call" else "buffered", every=50, spill=False)
    log._buffer.timeout = 60.0
    number = 0
    while True:
        for _ in range(1 if how == "call" else 20):
            number += 1
            big = "x" * (number * 37 % 400)
            log(CallSucceeded(operation=f"{name}-{number}", correlation_id=big))
        if how == "call" or log.flush(60):
            os.write(pipe, f"{number}\\n".encode())

where, name, *pipes = sys.argv[1:]
if where.startswith("postgresql"):
    import psycopg_pool
for writer, pipe in enumerate(pipes):
    pid = os.fork()
    if pid == 0:
        for other in pipes[writer + 1:]:
            os.close(int(other))
        write(where, ("buffered", "call")[writer % 2], f"{name}-{writer}", int(pipe))
    print(pid, flush=True)
    os.close(int(pipe))
for _ in pipes:
    os.wait()
"""
"""Forks a writer for each pipe, and ends after them: an interpreter for each costs more."""


def write_until_killed(where, name):
    """Starts writers, kills each after some acknowledgements, in the midst of its work.

    Half of them promise what a flush has brought into the log, half what a call went on with.
    """
    pipes = [os.pipe() for _ in range(WRITERS)]
    theirs = [write for _, write in pipes]
    parent = subprocess.Popen(
        [sys.executable, "-c", FORKING, where, name, *map(str, theirs)],
        pass_fds=theirs, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    for each in theirs:
        os.close(each)
    acknowledged = {}
    with contextlib.ExitStack() as stack:
        answers = [stack.enter_context(os.fdopen(read, "rb")) for read, _ in pipes]
        stack.callback(parent.communicate, timeout=60)
        pids = [int(parent.stdout.readline()) for _ in pipes]
        try:
            for writer, answer in enumerate(answers):
                for _ in range(ENOUGH):
                    line = answer.readline()
                    assert line, "a writer ended by itself"
                    acknowledged[f"{name}-{writer}"] = int(line)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        for writer, answer in enumerate(answers):
            rest = answer.read()
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
