"""Writes what this version stores, for the tests of every later one: a folder for each version.

    python -m tests.stored.generate v2

It is run once for a version, and what it wrote is committed. Nothing that is there is overwritten:
a version that can be written anew proves nothing. Tables of circuits and budgets name the host.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import pickle
import shutil
import socket
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from mainstay import Engine
from mainstay.audit import make_key, replay_log, verify_log
from mainstay.core.codec.outcome import Succeeded, encode_outcome
from mainstay.profiles.pipelines import TelemetrySink
from tests.servers.nats import start_nats
from tests.servers.postgres import start_postgres
from tests.servers.valkey import start_valkey
from tests.stored import cases, content, dumps, durable

HERE = Path(__file__).parent
PROTOCOLS = (2, 4, 5)


def main(version):
    """Writes a version, whole or not at all."""
    folder = HERE / version
    if folder.exists():
        sys.exit(f"{folder} is there already: what is stored is never written anew")
    socket.gethostname = lambda: "host"
    with tempfile.TemporaryDirectory() as made:
        os.environ["XDG_STATE_HOME"] = f"{made}/state"
        draft = Path(made, version)
        draft.mkdir()
        generate(draft, Path(made))
        for lock in draft.rglob("*.lock"):
            lock.unlink()
        shutil.copytree(draft, folder)


def generate(folder, scratch):
    """Everything of one version."""
    key, _ = make_key(folder / "key.pem")
    (folder / "pickles.json").write_text(json.dumps(pickles(), indent=0))
    (folder / "fingerprints.json").write_text(json.dumps(fingerprints(), indent=0))
    (folder / "witnessed.json").write_text(json.dumps(witnessed(), indent=0))
    sqlite(folder, key, scratch)
    outlives(folder)
    jsonl(folder, key)
    rotated(folder, key)
    pruned(folder, key)
    spilled(folder)
    telemetry(folder)
    for name, start, dump in SERVERS:
        place = scratch / name
        place.mkdir()
        server = start(place) if name != "postgres" else start()
        try:
            content.fill(server.url, scratch, key)
            if name == "postgres":
                audit(server.url, folder / "postgres", key)
            packed = gzip.compress(json.dumps(dump(server.url)).encode(), mtime=0)
            (folder / f"{name}.json.gz").write_bytes(packed)
        finally:
            server.kill()


SERVERS = (
    ("postgres", start_postgres, dumps.dump_postgres),
    ("redis", start_valkey, dumps.dump_redis),
    ("nats", start_nats, dumps.dump_nats),
)


def pickles():
    """Each value by the protocols that are in use."""
    return {
        name: {str(p): base64.b64encode(pickle.dumps(value, p)).decode() for p in PROTOCOLS}
        for name, value in cases.PICKLED.items()
    }


def witnessed():
    """An event with what a guard has decided on, which no constructor of the public API makes."""
    event = cases.witnessed()
    return {
        "event": event.to_dict(),
        "fingerprint": fingerprint({"event": event}),
        "record": encode_outcome(Succeeded(event)).decode(),
        "pickles": {p: base64.b64encode(pickle.dumps(event, p)).decode() for p in PROTOCOLS},
    }


def fingerprints():
    """The fingerprint of each case's arguments: without a key, it is the key."""
    return {name: fingerprint(arguments) for name, arguments in cases.ARGUMENTS.items()}


def fingerprint(arguments):
    """The fingerprint of the arguments of a call, as its record is named by it."""
    with Engine(sinks=[]) as engine:
        engine.idempotent(operation="pay")(lambda **given: 1)(**arguments)
        [(address, _)] = engine.store.scan("records")
        return json.loads(address)[2]


def sqlite(folder, key, scratch):
    """A store of every kind of thing, with a signed log in it."""
    path = folder / "store.sqlite"
    content.fill(f"sqlite:///{path}", scratch, key)
    audit(f"sqlite:///{path}", folder / "sqlite", key)
    _tidy(path)


def outlives(folder):
    """Messages, sagas and a run of a pipeline, and its ledgers."""
    durable.fill(folder / "durable.sqlite")
    _tidy(folder / "durable.sqlite")


def audit(url, heads, key):
    """A signed log in the store itself; its heads lie outside."""
    heads.mkdir()
    content.audited("memory://", content.audit_log(url, key, heads), key)


def jsonl(folder, key):
    """A signed log of lines, with the successes."""
    place = folder / "jsonl"
    place.mkdir()
    log = content.audit_log(place / "audit.jsonl", key, place, successes=True)
    content.audited("memory://", log, key)


def rotated(folder, key):
    """A log that was ended and begun anew, several times."""
    place = folder / "rotated"
    place.mkdir()
    log = content.audit_log(place / "audit.jsonl", key, place, rotate=30_000, durability="call")
    content.audited("memory://", log, key)
    assert len(list(place.glob("*.jsonl"))) > 2, list(place.iterdir())


def pruned(folder, key):
    """A log whose oldest records were dropped, with an anchor in their place."""
    place = folder / "pruned"
    place.mkdir()
    log = content.audit_log(
        f"sqlite:///{place / 'audit.sqlite'}", key, place, keep=0.2, durability="call"
    )
    with content.open_engine("memory://", audit=log) as engine:
        for _ in range(3):
            content.calls(engine)
            time.sleep(0.3)
    _tidy(place / "audit.sqlite")
    assert verify_log(f"sqlite:///{place / 'audit.sqlite'}").begins_after > 0
    left = replay_log(f"sqlite:///{place / 'audit.sqlite'}").calls
    assert left > 5, f"{left} calls are left: the machine was too busy, run it again"


def _tidy(path):
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")


def spilled(folder):
    """What a log could not take, as the next process finds it."""
    place = folder / "spilled"
    place.mkdir()
    content.spill(Path(tempfile.mkdtemp()), place)
    [home] = place.iterdir()
    home.rename(place / "home")
    for lock in place.rglob("lock"):
        lock.unlink()
    assert list(place.rglob("*.jsonl"))


def telemetry(folder):
    """The telemetry of some calls."""
    sink = TelemetrySink(folder / "telemetry.json", pipeline_id="etl_v1")
    with content.open_engine("memory://", sinks=[sink]) as engine:
        content.calls(engine)
    for beside in folder.glob("telemetry.json.*"):
        beside.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
