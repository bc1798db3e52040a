"""Who is there: the processes of a session, as /proc tells."""

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


def assert_nobody_is_left(session, timeout=30.0):
    """Nobody of the session is there any more; what init has yet to reap gets a moment."""
    wait_until(lambda: not in_session(session), f"an empty session: {in_session(session)}", timeout)
