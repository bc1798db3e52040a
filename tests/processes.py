"""Who is there: the processes of a session, as /proc tells; and how one that was forked ends."""

import atexit
import contextlib
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")


def in_session(session):
    """The processes of a session that have not been reaped: pid to (state, command)."""
    found = {}
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            head, _, tail = (each / "stat").read_bytes().rpartition(b")")
        except OSError:
            continue
        state, _, _, its_session = tail.split()[:4]
        if int(its_session) == session:
            found[int(each.name)] = (state.decode(), head.partition(b"(")[2].decode())
    return found


def wait_until(condition, what, timeout=30.0):
    """Waits for a condition, so long at most."""
    end = time.monotonic() + timeout
    while not (answer := condition()):
        assert time.monotonic() < end, f"waited {timeout} s for {what}"
        time.sleep(0.01)
    return answer


def at_some_speed(check, *limits):
    """Runs a check with the first of these limits that the machine is quick enough for.

    For a promise about a limit that no condition can stand for, such as a lease that is renewed: a
    machine that stands still for as long as the limit breaks it. What is wrong fails with each.
    """
    for limit in limits[:-1]:
        with contextlib.suppress(Exception, pytest.fail.Exception):
            return check(limit)
    return check(limits[-1])


def assert_nobody_is_left(session, timeout=30.0):
    """Nobody of the session is there any more; what init has yet to reap gets a moment."""
    wait_until(lambda: not in_session(session), f"an empty session: {in_session(session)}", timeout)


def leave(status):
    """Ends this process as Python ends, without freeing what the process that forked it has loaded.

    Freeing it copies every page of it, and takes longer than most commands. Threads are waited for,
    exit functions are called, and output is flushed; where that fails, Python reports it.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(status)
    os._exit(status)


FORKED = """
import gc, os, sys
{imports}
gc.freeze()
wait, go = os.pipe()
for number in range({count}):
    if os.fork() == 0:
        break
else:
    os.close(go)
    sys.exit(sum(os.wait()[1] != 0 for _ in range({count})))
os.close(go)
os.read(wait, 1)
{body}
"""


def run_at_once(count, imports, body, *arguments, timeout=90.0):
    """Runs the body in so many processes, which begin at once: none before all are there.

    They are forked by one that has the imports and nothing else. The body has its `number`, and
    the arguments in `sys.argv`. Returns how many failed, and what they wrote to stderr.
    """
    parts = {"imports": textwrap.dedent(imports), "body": textwrap.dedent(body), "count": count}
    done = subprocess.run(
        [sys.executable, "-c", FORKED.format(**parts), *map(str, arguments)],
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr
