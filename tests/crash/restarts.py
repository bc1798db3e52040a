"""PostgreSQL is ended and started again under load, every few seconds, with relays and sagas.

    python -m tests.crash.restarts 10

One process adds messages, two relays publish them, two processes run sagas and two recover them.
The server is stopped or killed by turns, and started again. No process of ours may end by it. Then
the rest is published and recovered, and compared with files that are outside of the library:

- every message that was committed arrived, none that was rolled back did, and those of one
  aggregate arrived in their order; of a commit whose reply was lost either is right;
- every saga that was begun ends as its definition has it, with the properties of tests/crash/sagas;
- the outbox has the events of exactly the steps and compensations whose end is in a log.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from pathlib import Path

from tests.crash import outbox as relays
from tests.crash.saga_worker import SCENARIOS, Boundaries, definition
from tests.crash.sagas import Report, Trial, _Run

EVERY = (1.0, 3.0)
"""Seconds for which the server runs between two ends."""
STOPPED = ("add", "run_sagas", "recover", "relay")
"""The jobs as they are stopped: relays last, because they end once nothing is left to send."""


def add(url, folder, seed):
    """Adds messages until it is stopped; notes each when its fate is certain, or that it is not."""
    import psycopg

    draw, numbers = random.Random(seed), defaultdict(int)
    with _engine(url) as engine, (folder / "added").open("a") as notes:
        connection = None
        while not (folder / "stop-add").exists():
            aggregate = str(draw.randrange(relays.AGGREGATES))
            numbers[aggregate] += 1
            made, is_kept = "", False
            try:
                connection = connection or psycopg.connect(url, connect_timeout=2)
                made = engine.outbox.add(
                    connection, topic="t", payload={"n": numbers[aggregate]}, aggregate_id=aggregate
                )
                if draw.random() < 0.8:
                    is_kept = None  # until the reply is there
                    connection.commit()
                    is_kept = True
                else:
                    connection.rollback()
            except Exception:
                connection = _closed(connection)
                time.sleep(0.05)
            if made:
                notes.write(json.dumps([made, aggregate, numbers[aggregate], is_kept]) + "\n")
                notes.flush()
            time.sleep(draw.random() * 0.01)


def _closed(connection):
    if connection is not None:
        connection.close()


def run_sagas(url, folder, seed):
    """Runs sagas until it is stopped; notes each before it is begun."""
    draw = random.Random(seed)
    with _engine(url) as engine, (folder / "sagas").open("a", buffering=1) as notes:
        while not (folder / "stop-run_sagas").exists():
            scenario, saga_id = draw.choice(list(SCENARIOS)), uuid.uuid4().hex
            notes.write(f"{scenario} {saga_id}\n")
            try:
                engine.sagas.run(_saga(folder, scenario), {"n": 1}, id=saga_id)
            except Exception:
                time.sleep(0.05)  # it has failed as it should, or the store is unavailable


def recover(url, folder):
    """Recovers sagas until it is stopped, and then until none is open."""
    import threading

    stop = threading.Event()
    threading.Thread(target=_wait_for, args=(folder / "stop-recover", stop), daemon=True).start()
    with _engine(url) as engine:
        engine.sagas.register(*(_saga(folder, scenario) for scenario in SCENARIOS))
        engine.sagas.watch(stop, every=0.1)
        while list(engine.sagas.open()):
            engine.sagas.recover()
            time.sleep(0.05)


def relay(url, folder, seed):
    """Publishes until it is stopped, and then until nothing is left."""
    import threading

    draw = random.Random(seed)
    broker = os.open(folder / "received", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def publish(message):
        if draw.random() < 0.02:
            raise ConnectionError("the broker is restarted")
        if message.topic == "t":
            line = [message.id, message.aggregate_id, json.loads(message.payload)["n"]]
            os.write(broker, json.dumps(line).encode() + b"\n")

    with _engine(url) as engine:
        made = engine.outbox.relay(publish, policy=_patient(), lease=2.0, poll=0.05, batch=20)
        thread = threading.Thread(target=made.run)
        thread.start()
        while not (folder / "stop-relay").exists():
            assert thread.is_alive(), "the relay has ended"
            time.sleep(0.05)
        made.stop()
        thread.join()
        while set(engine.outbox.counts()) - {"SENT"}:
            made.drain()
            time.sleep(0.05)


def _patient():
    from mainstay import Backoff, RetryPolicy

    return RetryPolicy(max_attempts=10_000, backoff=Backoff.constant(0.01), attempt_timeout=30.0)


def _engine(url):
    from mainstay import Engine

    return Engine(url, sinks=[], audit=False, share=None, purge=None)


def _saga(folder, scenario):
    return definition(scenario, folder / "effects", Boundaries(0, folder / "counted"))


def _wait_for(path, stop):
    while not path.exists():
        time.sleep(0.05)
    stop.set()


def campaign(server, folder, *, restarts, seed):
    """Ends the server that often under load; what is wrong, and counts."""
    (folder / "effects").mkdir()
    with _engine(server.url) as engine:
        engine.outbox.counts()
    draw = random.Random(seed)
    jobs = [(add, seed), (relay, 1), (relay, 2), (run_sagas, 1), (run_sagas, 2)]
    children = {
        relays.forked(work, server.url, folder, given): work.__name__ for work, given in jobs
    }
    children |= {relays.forked(recover, server.url, folder): "recover" for _ in range(2)}
    try:
        for number in range(restarts):
            time.sleep(draw.uniform(*EVERY))
            (server.crash if number % 2 else server.stop)()
            time.sleep(draw.uniform(0.0, 1.0))
            server.start()
        time.sleep(EVERY[0])
        found = [each for name in STOPPED for each in _stopped(name, children, folder)]
    finally:
        for child in [each for each in children if _is_running(each)]:
            os.kill(child, signal.SIGKILL)
    return found + relays.problems(folder), _check_sagas(server.url, folder)


def _stopped(name, children, folder):
    """Lets the processes of a job end, and waits for them; which of them failed."""
    (folder / f"stop-{name}").touch()
    ours = [child for child, job in children.items() if job == name]
    ended = [(child, os.waitpid(child, 0)[1]) for child in ours]
    return [f"{children.pop(child)} ended with {status}" for child, status in ended if status]


def _is_running(child):
    try:
        return os.waitpid(child, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False


def _check_sagas(url, folder):
    """The reports of all sagas that were begun."""
    reports: list[Report] = []
    for line in (folder / "sagas").read_text().splitlines():
        scenario, saga_id = line.split()
        checked = _Run(Trial(url, scenario), folder, folder / "effects", None)
        checked.id = saga_id
        checked._check()
        reports.append(checked.result)
    return reports


def main(restarts):
    """One campaign, and its table."""
    from tests.servers.postgres import start_postgres

    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    folder, server = Path(tempfile.mkdtemp(prefix="mainstay-restarts-")), start_postgres(fsync=True)
    try:
        began = time.monotonic()
        found, reports = campaign(server, folder, restarts=restarts, seed=seed)
    finally:
        server.kill()
    added = [json.loads(line) for line in (folder / "added").read_text().splitlines()]
    fates = Counter(is_kept for _, _, _, is_kept in added)
    received = (folder / "received").read_text().splitlines()
    found += [each for report in reports for each in report.violations]
    rows = {
        "restarts of PostgreSQL": restarts,
        "messages committed": fates[True],
        "messages rolled back": fates[False],
        "commits whose reply was lost": fates[None],
        "messages received": len(received),
        "sagas": len(reports),
        "violations": len(found),
    }
    for name, count in rows.items():
        sys.stdout.write(f"{name:30} {count:8,}\n")
    sys.stdout.write(f"{time.monotonic() - began:.0f} s, seed {seed}\n")
    sys.stdout.writelines(f"{each}\n" for each in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
