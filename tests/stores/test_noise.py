"""Restarts of a server: callers get their errors, and client libraries print nothing besides."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from mainstay import StoreUnavailable
from mainstay.core.base.change import Change
from mainstay.stores.postgres.store import PostgresStore
from mainstay.testing.proxy import FaultProxy
from tests.servers.nats import start_nats
from tests.servers.postgres import start_postgres
from tests.servers.valkey import start_valkey

WORKER = """
import asyncio, gc, itertools, sys, threading, time, warnings
warnings.simplefilter("always")
from mainstay import Engine
from mainstay.errors import MainstayError
engine = Engine(sys.argv[1], sinks=[], audit=False)
numbers, stopped, made = itertools.count(), threading.Event(), []

def sync():
    while not stopped.is_set():
        try:
            made.append(engine.operation("op", key=f"s{next(numbers)}").call(int))
        except MainstayError:
            pass

async def one():
    async def work():
        return 0
    try:
        await asyncio.wait_for(engine.operation("op", key=f"a{next(numbers)}").acall(work), 0.2)
    except (MainstayError, TimeoutError):
        pass

async def many():
    while not stopped.is_set():
        await asyncio.gather(*(one() for _ in range(10)))

threads = [threading.Thread(target=sync), threading.Thread(target=lambda: asyncio.run(many()))]
for thread in threads:
    thread.start()
for line in sys.stdin:
    if line == "end\\n":
        break
    wanted = len(made) + 30
    while len(made) < wanted:
        time.sleep(0.01)
    print("more", flush=True)
stopped.set()
for thread in threads:
    thread.join()
gc.collect()
engine.close()
gc.collect()
"""


@pytest.fixture(params=["nats", "valkey", "postgres"])
def server(request, tmp_path):
    starts = {"nats": start_nats, "valkey": start_valkey}
    server = starts[request.param](tmp_path) if request.param in starts else start_postgres()
    yield server
    server.kill()


def test_nothing_is_printed_of_a_server_that_is_restarted_under_load(server):
    """No task whose failure nobody retrieved, no connection that was left open, no traceback."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, f"{server.url}?timeout=1"],
        env={**os.environ, "PYTHONWARNINGS": "always"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        for number in range(8):
            worker.stdin.write("more\n")
            worker.stdin.flush()
            assert worker.stdout.readline() == "more\n"
            end = server.stop if number % 2 else getattr(server, "crash", server.kill)
            end()
            server.start()
        _, printed = worker.communicate("end\n", timeout=120)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
    assert printed == ""


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_connection_lost_within_a_pipeline_is_reported_to_the_caller_alone(
    postgres_database, colour, caplog
):
    """The library would log for each step that the pipeline could not be ended either."""
    caplog.set_level(logging.DEBUG)
    parts = urlsplit(postgres_database)
    near = PostgresStore(postgres_database)
    with FaultProxy(parts.hostname, parts.port) as proxy:
        far = PostgresStore(f"{proxy.url(postgres_database)}")
        calls = []

        def decide(value, now):
            calls.append(value)
            if len(calls) == 1:  # it loses the race, and locks the row the next time
                near.transact("s", "k", lambda *_: (Change(b"other"), None))
            else:
                proxy.refuse()
            return Change(b"mine"), None

        with pytest.raises(StoreUnavailable):
            if colour == "sync":
                far.transact("s", "k", decide)
            else:
                asyncio.run(far.atransact("s", "k", decide))
        proxy.heal()
        far.close()
    near.close()
    assert len(calls) == 2
    loud = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.getMessage() for each in loud] == []
