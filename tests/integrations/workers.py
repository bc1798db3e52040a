"""Workers of task queues as processes, and what their tasks count in Valkey."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

TASK = '''
import os, signal, time
import redis
import mainstay
from mainstay import Backoff, RetryPolicy

URL = os.environ["BROKER"]
ENGINE = mainstay.Engine(URL)
STORE = ENGINE.store
COUNTS = redis.Redis.from_url(URL)
POLICY = RetryPolicy(on=ConnectionError, attempts=2, backoff=Backoff.constant(0.02))

def work(key, script):
    """One execution: k is killed, t fails as a lost connection, p permanently; others end well."""
    number = COUNTS.rpush(f"made:{key}", os.getpid())
    act = script[min(number, len(script)) - 1]
    if act == "k":
        time.sleep(0.3)  # until what was done before is acknowledged: Dramatiq does that later
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "i":
        RetryPolicy(on=ConnectionError, attempts=2, backoff=Backoff.constant(0.01)).call(inner, key)
    if act == "t":
        raise ConnectionError("gone")
    if act == "p":
        raise ValueError("wrong")
    COUNTS.set(f"done:{key}", "well")

def inner(key):
    COUNTS.incr(f"inner:{key}")
    raise ConnectionError("gone")
'''

CASES = {
    "well": ("w", 1),
    "lost once": ("tw", 2),
    "always lost": ("t", 2),
    "wrong": ("p", 1),
    "lost, then wrong": ("tp", 2),
    "killed once": ("kw", 2),
    "killed, then lost": ("kt", 2),
    "lost, then killed": ("tk", 2),
    "always killed": ("k", 2),
    "inside": ("i", 2),
}
"""What the executions of a task do, and how many the policy of two attempts allows."""
EXECUTIONS = {key: executions for key, (_, executions) in CASES.items()}
WELL = {key for key, (script, _) in CASES.items() if script[-1] == "w"}


class Worker:
    """A worker's process; what it prints is kept in a file."""

    def __init__(self, folder, url, *command):
        apart = filter(None, [os.environ.get("MAINSTAY_APART")])  # of tools/apart.py
        paths = os.pathsep.join((*apart, str(ROOT / "src"), str(folder)))
        env = {**os.environ, "PYTHONPATH": paths, "BROKER": url}
        self.log = folder / "worker.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                env=env, cwd=folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self):
        """Ends it with the processes that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def made(control):
    """How many executions of each case there were."""
    return {key: control.llen(f"made:{key}") for key in CASES}
