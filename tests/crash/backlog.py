"""A backlog of 100,000 messages: two relays publish it, each message once and in order.

    python -m tests.crash.backlog 100000

On SQLite and PostgreSQL. What arrived is read from a file; the memory of a relay is measured.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from tests.crash.outbox import _connect, forked

AGGREGATES = 500


def fill(url, count):
    """Adds the messages in one transaction."""
    from mainstay import Engine

    with Engine(url, sinks=[], audit=False, share=None, purge=None) as engine:
        engine.outbox.counts()
        connection = _connect(url)
        for number in range(count):
            engine.outbox.add(
                connection, topic="t", payload=number, aggregate_id=str(number % AGGREGATES)
            )
        connection.commit()
        connection.close()


def relay(url, folder):
    """Publishes until nothing is left; notes by how much its memory has grown."""
    from mainstay import Engine

    broker = os.open(folder / "received", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def publish(message):
        line = [message.id, message.aggregate_id, json.loads(message.payload)]
        os.write(broker, json.dumps(line).encode() + b"\n")

    with Engine(url, sinks=[], audit=False, share=None, purge=None) as engine:
        made, before = engine.outbox.relay(publish), _peak()
        while set(engine.outbox.counts()) - {"SENT"}:
            made.drain()
    (folder / f"grown-{os.getpid()}").write_text(str(_peak() - before))


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def problems(folder, count):
    """What differs between what was added and what arrived."""
    seen, order = set(), defaultdict(list)
    lines = (folder / "received").read_text().splitlines()
    for made, aggregate, number in map(json.loads, lines):
        if made not in seen:
            seen.add(made)
            order[aggregate].append(number)
    found = [] if len(seen) == count else [f"{count - len(seen)} messages did not arrive"]
    if len(lines) != count:
        found.append(f"{len(lines) - count} arrived twice")
    return found + [f"order of {each}" for each, ns in order.items() if ns != sorted(ns)]


def main(count):
    """Each database, and a line of the table for it."""
    from tests.servers.databases import postgres_place, sqlite_place
    from tests.servers.postgres import start_postgres

    server, failures = start_postgres(), 0
    try:
        for dialect in ("sqlite", "postgresql"):
            folder = Path(tempfile.mkdtemp(prefix="mainstay-backlog-"))
            place = sqlite_place(folder) if dialect == "sqlite" else postgres_place(server.url)
            assert os.waitpid(forked(fill, place.url, count), 0)[1] == 0
            began = time.monotonic()
            children = [forked(relay, place.url, folder) for _ in range(2)]
            codes = [os.waitpid(child, 0)[1] for child in children]
            found = problems(folder, count) + [
                f"a relay ended with {code}" for code in codes if code
            ]
            grown = max(int(file.read_text()) for file in folder.glob("grown-*"))
            failures += bool(found)
            sys.stdout.write(
                f"backlog {dialect:10}  {count:,} messages  {time.monotonic() - began:.0f} s"
                f"  a relay grew by {grown} MB  {'; '.join(found[:3]) or 'ok'}\n"
            )
            sys.stdout.flush()
    finally:
        server.kill()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
