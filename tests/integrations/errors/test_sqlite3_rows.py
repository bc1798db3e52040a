"""sqlite3: rows of its table that only a system or another process brings about (Linux)."""

import contextlib
import ctypes
import os
import platform
import signal
import sqlite3
import struct
import threading

import pytest

from tests.integrations.errors.rows import comes_to

MAKE_A_FOLDER = {"x86_64": (83, 258), "aarch64": (34,)}
"""The numbers of mkdir and mkdirat (Linux, arch/*/include/asm/unistd.h)."""
SET_NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
REFUSE, ALLOW = 0x0005_0001, 0x7FFF_0000
"""Of a filter (Linux, seccomp(2)): fail with EPERM, or go on."""


def refuse_folders():
    """From now on the kernel refuses to make a folder, to this thread alone."""
    numbers = MAKE_A_FOLDER[platform.machine()]
    last = len(numbers)
    rules = [(LOAD, 0, 0, 0)]
    rules += [(IF_EQUAL, last - at, 0, number) for at, number in enumerate(numbers)]
    rules += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
    kept = ctypes.create_string_buffer(code)
    program = struct.pack("H6xP", len(rules), ctypes.addressof(kept))
    prctl = ctypes.CDLL(None).prctl
    prctl(SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    assert prctl(SET_SECCOMP, FILTER, ctypes.c_char_p(program), 0, 0) == 0


@pytest.mark.skipif(platform.machine() not in MAKE_A_FOLDER, reason="another system")
def test_a_lock_that_the_system_refuses(tmp_path):
    """Locks are folders here, as SQLite has them for a file system without locks."""
    file = f"file:{tmp_path / 'shop.db'}?vfs=unix-dotfile"

    def run():
        def call():
            with contextlib.closing(sqlite3.connect(file, uri=True)) as made:
                made.execute("SELECT * FROM sqlite_master")

        refuse_folders()
        found.append(comes_to("sqlite3.Error code SQLITE_PERM", call))

    found = []
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found


@contextlib.contextmanager
def woken():
    """Signals to this thread, which end the sleeps of C in it, while the block runs."""
    over = threading.Event()
    thread_id = threading.get_ident()

    def wake():
        while not over.wait(0.001):
            signal.pthread_kill(thread_id, signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    thread = threading.Thread(target=wake)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR2, before)


def test_a_log_that_is_never_at_rest(tmp_path):
    """Another connection writes, and the index of the log is half written: SQLite tries 100 times.

    It sleeps ten seconds in all meanwhile, which signals cut short.
    """
    path, index_path = tmp_path / "shop.db", tmp_path / "shop.db-shm"
    with (
        contextlib.closing(sqlite3.connect(path)) as other,
        contextlib.closing(sqlite3.connect(path, timeout=0.0)) as made,
    ):
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE rows (n)")
        other.execute("INSERT INTO rows VALUES (1)")
        made.execute("SELECT * FROM rows").fetchall()
        with index_path.open("r+b") as index:
            first = os.pread(index.fileno(), 4, 8)
            os.pwrite(index.fileno(), bytes(each ^ 1 for each in first), 8)
            with woken():
                comes_to(
                    "sqlite3.Error code SQLITE_PROTOCOL",
                    lambda: made.execute("SELECT * FROM rows").fetchall(),
                )
            os.pwrite(index.fileno(), first, 8)
