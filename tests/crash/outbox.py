"""Kills relays at every write boundary, and compares what arrived with what was committed.

The oracle is outside of the library: a program adds messages and notes in a file what it has
committed and what it has rolled back; relays append what they publish to another file. Each relay
ends itself with SIGKILL at a boundary that was drawn: before or after a statement of PostgreSQL,
around a transaction of SQLite, before or after a message is handed to the broker. Some are stopped
for longer than their lease instead, and continued.

    python -m tests.crash.outbox 1000
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

LEASE = 0.4
AGGREGATES = 5
MOST = 40
"""Boundaries that a relay passes at most before it ends itself."""
STUCK = 300.0
"""Seconds after which a program of the campaign prints what its threads are doing."""


class Boundaries:
    """Counts write boundaries, and kills this process at one of them."""

    def __init__(self, last):
        self.left = last

    def __call__(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def watch(boundary):
    """Puts boundaries around whatever the library writes, in this process."""
    import mainstay.stores.postgres.store as postgres
    import mainstay.stores.sqlite.statements as sqlite

    execute, whole = postgres._execute, sqlite.whole

    def executed(connection, round_trip):
        boundary()
        rows = execute(connection, round_trip)
        boundary()
        return rows

    def transaction(connection, work, *args):
        def worked(*given):
            done = work(*given)
            boundary()  # the transaction is open
            return done

        boundary()
        done = whole(connection, worked, *args)
        boundary()
        return done

    postgres._execute, sqlite.whole = executed, transaction


def relay(url, folder, last, seed):
    """A relay in a process of its own; without `last` it ends when everything was sent."""
    from mainstay import Backoff, Engine, RetryPolicy

    draw = random.Random(seed)
    boundary = Boundaries(last or -1)
    watch(boundary)
    broker = os.open(folder / "received", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def publish(message):
        boundary()
        if draw.random() < 0.05:
            raise ConnectionError("the broker is restarted")
        line = [message.id, message.aggregate_id, json.loads(message.payload)["n"]]
        os.write(broker, json.dumps(line).encode() + b"\n")
        boundary()

    policy = RetryPolicy(max_attempts=1000, backoff=Backoff.constant(0.01), attempt_timeout=30.0)
    with Engine(url, sinks=[], audit=False, share=None, purge=None) as engine:
        made = engine.outbox.relay(publish, policy=policy, lease=LEASE, poll=0.02, batch=10)
        if last:
            made.run()
        while set(engine.outbox.counts()) - {"SENT"}:
            made.drain()


def add(url, folder, messages, seed):
    """Adds messages, of which some are rolled back; notes each when its fate is certain."""
    from mainstay import Engine

    draw = random.Random(seed)
    numbers = defaultdict(int)
    with (
        Engine(url, sinks=[], audit=False, share=None, purge=None) as engine,
        (folder / "added").open("a") as notes,
    ):
        engine.outbox.counts()
        connection = _connect(url)
        for _ in range(messages):
            aggregate = str(draw.randrange(AGGREGATES))
            numbers[aggregate] += 1
            made = engine.outbox.add(
                connection, topic="t", payload={"n": numbers[aggregate]}, aggregate_id=aggregate
            )
            is_kept = draw.random() < 0.8
            (connection.commit if is_kept else connection.rollback)()
            notes.write(json.dumps([made, aggregate, numbers[aggregate], is_kept]) + "\n")
            notes.flush()
            time.sleep(draw.random() * 0.01)
        connection.close()


def _connect(url):
    if url.startswith("sqlite"):
        import sqlite3

        return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60.0)
    import psycopg

    return psycopg.connect(url)


def forked(function, *args):
    """The process id of a child that calls a function."""
    child = os.fork()
    if child:
        return child
    code = 1
    faulthandler.dump_traceback_later(STUCK)
    try:
        function(*args)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def campaign(url, folder, *, workers, kills, seed, pauses=0.1):
    """Runs relays until that many were killed, then one to the end; returns what is wrong.

    This process opens nothing: every child is forked from it.
    """
    import mainstay.engine.outbox
    import mainstay.stores.outbox.postgres
    import mainstay.stores.outbox.sqlite  # noqa: F401 -- loaded once for all children

    draw = random.Random(seed)
    adder = forked(add, url, folder, 3 * kills + 20, seed)
    while not (folder / "added").exists():
        time.sleep(0.01)
    running, killed, paused = set(), 0, 0
    while killed < kills:
        while len(running) < workers:
            running.add(forked(relay, url, folder, draw.randrange(1, MOST), draw.random()))
        if draw.random() < pauses:
            _pause(draw.choice(sorted(running)))
            paused += 1
        child, status = os.waitpid(-1, 0)
        if child == adder:
            assert status == 0, "the program that adds has failed"
            adder = None
        else:
            running.discard(child)
            killed += 1
            assert os.WIFSIGNALED(status), f"a relay failed: {status}"
    for child in running:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    _ended_well(adder)  # before the last relay: it ends once it finds nothing more to send
    _ended_well(forked(relay, url, folder, 0, seed))
    return problems(folder), {"killed": killed, "paused": paused}


def _ended_well(child):
    """Waits for a child; None for one that has ended already."""
    assert child is None or os.waitpid(child, 0)[1] == 0, "the program that adds or sends failed"


def _pause(child):
    """Stops a relay for longer than its lease; it may be killed by itself then, or go on."""
    try:
        os.kill(child, signal.SIGSTOP)
        time.sleep(LEASE * 2)
        os.kill(child, signal.SIGCONT)
    except ProcessLookupError:
        pass


def problems(folder):
    """What differs between what was committed and what arrived."""
    added = [json.loads(line) for line in (folder / "added").read_text().splitlines()]
    committed = {made: (aggregate, n) for made, aggregate, n, is_kept in added if is_kept}
    uncertain = {made for made, _, _, is_kept in added if is_kept is None}
    arrived = [json.loads(line) for line in (folder / "received").read_text().splitlines()]
    received, order = {}, defaultdict(list)
    for made, aggregate, n in arrived:
        if made not in received:  # a repetition has the same id
            received[made] = (aggregate, n)
            order[aggregate].append(n)
    found = []
    if lost := committed.keys() - received.keys():
        found.append(f"lost: {sorted(lost)[:3]}")
    if ghosts := received.keys() - committed.keys() - uncertain:
        found.append(f"never committed: {sorted(ghosts)[:3]}")
    if any(received[made] != committed[made] for made in received.keys() & committed.keys()):
        found.append("a message arrived changed")
    found += [f"order of {each}: {ns}" for each, ns in order.items() if ns != sorted(ns)]
    return found


def main(kills):
    """Every combination of databases and workers, with as many kills in all."""
    from tests.servers.databases import postgres_place, sqlite_place
    from tests.servers.postgres import start_postgres

    given = os.environ.get("MAINSTAY_TEST_POSTGRES_URL")
    server = None if given else start_postgres()
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    each, failures = -(-kills // 6), 0
    try:
        for dialect in ("sqlite", "postgresql"):
            for workers in (1, 2, 4):
                folder = Path(tempfile.mkdtemp(prefix="mainstay-outbox-"))
                place = (
                    sqlite_place(folder)
                    if dialect == "sqlite"
                    else postgres_place(given or server.url)
                )
                began = time.monotonic()
                found, counts = campaign(
                    place.url, folder, workers=workers, kills=each, seed=seed + workers
                )
                failures += bool(found)
                sys.stdout.write(
                    f"outbox {dialect:10} workers {workers}  killed {counts['killed']}"
                    f"  paused {counts['paused']}  {time.monotonic() - began:.0f} s"
                    f"  seed {seed + workers}  {'; '.join(found) or 'ok'}\n"
                )
                sys.stdout.flush()
    finally:
        if server is not None:
            server.kill()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
