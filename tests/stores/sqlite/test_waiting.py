"""How long a step waits for SQLite's lock, counted on a clock that only the waits move."""

import sqlite3

import pytest

from mainstay.runtime.clock import SystemClock
from mainstay.stores.sqlite.waiting import SLICE, LockTimeoutError, until_free


class Locked:
    """A file that another process has locked: each try waits for a slice, and gets nothing."""

    def __init__(self, monkeypatch):
        self.waited, self.tries = 0.0, 0
        monkeypatch.setattr(SystemClock, "monotonic", staticmethod(lambda: 1000.0 + self.waited))
        monkeypatch.setattr(SystemClock, "sleep", lambda _, seconds: self.passes(seconds))

    def passes(self, seconds):
        self.waited += seconds

    def attempt(self):
        self.tries += 1
        self.passes(SLICE)
        busy = sqlite3.OperationalError("database is locked")
        busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
        raise busy


@pytest.mark.parametrize("timeout", [0.05, 0.06, 0.1, 0.11, 1.0, 5.0])
def test_a_step_waits_for_as_long_as_its_store_allows(monkeypatch, timeout):
    """The slice before the lock is found taken counts, and the last one: the limit is one."""
    locked = Locked(monkeypatch)
    with pytest.raises(LockTimeoutError, match=f"for more than {timeout:g} s"):
        until_free(locked.attempt, timeout)
    assert timeout - SLICE - 1e-9 <= locked.waited <= timeout + 0.003
    assert locked.tries <= timeout / SLICE + 1e-9
