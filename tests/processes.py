"""Who is there: the processes of a session, as /proc tells."""

import os
import time

import pytest

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc")


def in_session(session):
    """The processes of a session that have not been reaped: pid to (state, command)."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                head, _, tail = stat.read().rpartition(b")")
        except OSError:
            continue
        state, _, _, its_session = tail.split()[:4]
        if int(its_session) == session:
            found[int(name)] = (state.decode(), head.partition(b"(")[2].decode())
    return found


def wait_until(condition, what, timeout=30.0):
    """Waits for a condition, so long at most."""
    end = time.monotonic() + timeout
    while not (answer := condition()):
        assert time.monotonic() < end, f"waited {timeout} s for {what}"
        time.sleep(0.01)
    return answer


def assert_nobody_is_left(session, timeout=10.0):
    """Nobody of the session is there any more; what init has yet to reap gets a moment."""
    wait_until(lambda: not in_session(session), f"an empty session: {in_session(session)}", timeout)
