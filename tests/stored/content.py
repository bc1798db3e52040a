"""What `generate` writes into a store, through the public API, and with what it was written.

One function for each kind of thing that a store keeps. Everything here has a name or a key that the
tests know; what they expect of it stands in `cases`, or beside the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import uuid
import warnings
from urllib.parse import urlsplit, urlunsplit

import psycopg

from mainstay import (
    AuditLog,
    BreakerSettings,
    Engine,
    Item,
    OutcomeUnknown,
    RetryBudget,
    RetryPolicy,
    TokenBudget,
    context,
)
from mainstay.integrations.asgi import IdempotencyKeyMiddleware
from tests.servers.commands import run as run_mainstay
from tests.servers.nats import start_nats
from tests.servers.postgres import create_database
from tests.servers.valkey import start_valkey
from tests.stored import cases

SECRET, OTHER_SECRET = "correct horse", "battery staple"
ONCE = RetryPolicy(name="once", max_attempts=1, classify={Exception: "permanent"})
TWICE = RetryPolicy(name="twice", max_attempts=2, retry_on=Exception, classify={KeyError: "auth"})
CIRCUITS = {"opened": "open", "ordered": "forced_open", "held": "forced_open", "working": "closed"}
COMMAND = ["sh", "-c", "printf 'a\\377b'; printf '\\376c' >&2"]
REQUEST = b'{"order": 1}'


class Ran(Exception):
    """A call that should have been replayed has run."""


def take(**arguments):
    """Stands for a function of a user's: its calls are recorded, and must not run again."""
    raise Ran(arguments)


def returning(value):
    """A function without arguments."""
    return lambda: value


def raising(make):
    """A function without arguments that fails."""

    def fail():
        raise make()

    return fail


def open_engine(url, **options):
    """An engine on the store, with what the content was written with."""
    settings = BreakerSettings(failure_threshold=3, recovery_timeout=31_622_400.0)
    options = {"breaker": settings, "audit": False, "share": 3600.0, **options}
    given = {"policies": [ONCE, TWICE], "default": "once", "sinks": [], **options}
    return Engine(url, **given)


def keyed(engine, key, **options):
    """The operation of the recorded calls, with a key; its records last for ever."""
    return engine.operation("pay", key=key, **{"ttl": None, **options})


def fill(url, folder, key, **options):
    """Everything that is kept in a store."""
    with open_engine(url, share=None, breaker=None, **options) as engine:
        successes(engine)
        failures(engine)
        doubts(engine, url)
        requests(engine)
        inbox(engine)
        operators(engine, key)
        decided(engine)
    shared(url)
    commands(url, folder)


def successes(engine):
    """Records that SUCCEEDED: each value, each argument, one of a tenant, one without a result."""
    for name, value in cases.VALUES.items():
        keyed(engine, f"value {name}").call(returning(value))
    for name, arguments in cases.ARGUMENTS.items():

        def take(**given):
            return len(given)

        keyed(engine, f"arguments {name}").call(take, **arguments)
        recorded = engine.idempotent(operation="by arguments", ttl=None)(take)
        recorded(**arguments)
    with context(tenant_id="t1"):
        keyed(engine, "of a tenant", metadata={"by": "ann"}).call(lambda: "the tenant's")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keyed(engine, "not kept").call(object)


def failures(engine):
    """Records that FAILED, of each failure."""
    for name, make in cases.FAILURES.items():
        result = keyed(engine, f"failure {name}").run(raising(make))
        assert not result.success, name


def doubts(engine, url):
    """A record that is UNKNOWN, and two that are RUNNING by a process that is gone."""

    def doubt():
        raise OutcomeUnknown("pay")

    keyed(engine, "unknown").run(doubt)
    for key in ("left", "left to a person"):
        program = (
            "import os\nfrom tests.stored.content import keyed, open_engine\n"
            f"keyed(open_engine({url!r}, share=None, breaker=None), {key!r}, lease=0.05)"
            ".call(lambda: os._exit(7))"
        )
        done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
        assert done.returncode == 7


def requests(engine):
    """The response to a request with an Idempotency-Key."""
    status, body = asyncio.run(request(engine, "k-1"))
    assert (status, body) == (201, b"made")


async def request(engine, key, is_run=True):
    """Sends a request with a key through the middleware; the status and the body of the answer."""

    async def app(scope, receive, send):
        if not is_run:
            raise Ran(scope)
        while (await receive())["more_body"]:
            pass
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b"made"})

    async def receive():
        return {"type": "http.request", "body": REQUEST, "more_body": False}

    answers = []

    async def send(message):
        answers.append(message)

    headers = [(b"idempotency-key", f'"{key}"'.encode())]
    scope = {
        "type": "http", "method": "POST", "path": "/orders", "raw_path": b"/orders",
        "query_string": b"", "headers": headers, "http_version": "1.1", "scheme": "http",
    }  # fmt: skip
    guarded = IdempotencyKeyMiddleware(app, engine, caller=lambda scope: "ann", ttl=None)
    await guarded(scope, receive, send)
    return answers[0]["status"], b"".join(each.get("body", b"") for each in answers[1:])


KINDS = ("exhausted", "stuck_saga", "dead_letter", "quarantine", "governance", "corrupted_state")


def inbox(engine):
    """Items of each kind, besides the one of the record that is in doubt."""
    for kind in KINDS:
        engine.inbox.put(Item(kind=kind, subject=f"a {kind}", operation="pay", text=f"a {kind}"))
    for _ in range(2):
        engine.inbox.put(Item(kind="alert", subject="twice", operation="pay", text="too slow"))
    engine.inbox.put(cases.ITEM)

    def down():
        raise ConnectionError("down")

    engine.operation("given up", policy=TWICE, escalate=True).run(down)


def operators(engine, key):
    """One with a secret, one with a key, one who is disabled, and tries of one who is nobody."""
    add = engine.operators.add
    add("ann", secret=SECRET)
    add("bob", public_key=key.with_name("key.pub.pem"), by="ann", proof=SECRET)
    add("eve", secret=OTHER_SECRET, by="ann", proof=SECRET)
    engine.operators.disable("eve", by="ann", proof=SECRET)


def decided(engine):
    """An item that is closed."""
    item = engine.inbox.put(Item(kind="governance", subject="done", operation="pay", text="done"))
    engine.inbox.act(item.id, "abandon", by="ann", proof=SECRET, why="no use")
    assert engine.inbox.get(item.id).is_over


def budgets():
    """What guards the calls of several processes."""
    return {"budget": RetryBudget("retries"), "guards": [TokenBudget("tokens")]}


def shared(url):
    """Circuits of each state, a budget and tokens, as a process leaves them."""

    def down():
        raise ConnectionError("down")

    with open_engine(url, **budgets()) as engine:
        for _ in range(3):
            engine.run("opened", down)
        engine.call("ordered", int)
        engine.call("working", int)
        engine.run("working", down)
        engine.breaker("held").force_open("by hand")
        assert engine.catch_up()
        command(url, "circuits", "open", "ordered", "--as", "ann", "--why", "the bank is down")
        assert engine.catch_up()


def command(url, *words, secret=SECRET):
    """Runs `mainstay`; what it wrote."""
    env = os.environ | {"MAINSTAY_OPERATOR_SECRET": secret}
    done = run_mainstay(*words, "--store", url, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_command(url, folder, *words, command=COMMAND):
    """Runs `mainstay exec` with a key."""
    words = ["exec", "--store", url, *words, "--", *command]
    return run_mainstay(*words, cwd=folder)


def commands(url, folder):
    """What a command wrote, under a key; and one that failed for good."""
    done = run_command(url, folder, "--key", "command")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a\xffb", b"\xfec"), done
    failed = run_command(
        url,
        folder,
        "--key",
        "failed",
        "--never-on-exit",
        "3",
        "--quiet",
        command=["sh", "-c", "exit 3"],
    )
    assert failed.returncode == 3, failed


def audited(url, log, key, **options):
    """An engine whose calls, circuits, operators and inbox are recorded in a log."""
    with open_engine(url, audit=log, seed=7, **options) as engine:
        calls(engine)
        engine.operators.add("ann", secret=SECRET)
        item = engine.inbox.put(Item(kind="alert", subject="a", operation="pay", text="slow"))
        engine.inbox.act(item.id, "mark_done", by="ann", proof=SECRET, evidence="seen")
        keyed(engine, "audited").call(int, "7")


QUICK = {"backoff": cases.mainstay.Backoff.constant(0.001), "jitter": cases.mainstay.Jitter.full()}


def calls(engine):
    """Calls of each ending, with rules of each sort."""
    answers = iter([ConnectionError("reset"), TimeoutError("slow"), "ok"])

    def answer():
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    rules = (OSError, cases.mainstay.Kind.TIMEOUT, "shop.Gone", lambda e: "again" in str(e))
    policy = RetryPolicy(name="rules", max_attempts=4, retry_on=rules, **QUICK)
    engine.operation("answered", policy=policy).call(answer)

    def fail(make):
        raise make()

    for name in ("Rejected", "RetryError", "UsageError", "CommandFailed"):
        engine.operation(f"failed {name}", policy=policy).run(fail, cases.FAILURES[name])
    for name in ("AttemptTimeout", "OutcomeUnknown"):
        engine.operation(f"failed {name}", policy=policy).run(fail, cases.ERRORS[name])
    shut = cases.errors.CircuitOpenError("pay", "open", 0.001)
    engine.operation("shut", policy=policy).run(fail, lambda: shut)
    picky = RetryPolicy(
        name="picky",
        max_attempts=2,
        retry_on=Exception,
        retry_if_result=lambda r: r is None,
        **QUICK,
    )
    engine.operation("picky", policy=picky).run(lambda: None)
    for _ in range(4):
        engine.run("opened", fail, lambda: ConnectionError("down"))


def audit_log(where, key, folder, **options):
    """A log whose heads are signed and brought to a file."""
    return AuditLog(where, key=key, heads=folder / "heads.jsonl", every=5, spill=False, **options)


def spill(folder, kept):
    """Calls whose log cannot be written: a file is where its folder was. Where the log is to be."""
    place = folder / "away"
    place.mkdir()
    log = AuditLog(place / "audit.jsonl", spill=kept)
    place.rmdir()
    place.write_text("no folder", encoding="utf-8")
    with open_engine("memory://", audit=log) as engine:
        calls(engine)
    place.unlink()
    place.mkdir()
    return place / "audit.jsonl"


@contextlib.contextmanager
def server(request, name, folders):
    """An empty server or database, for a while."""
    if name == "postgres":
        yield from _database(request.getfixturevalue("postgres_url"))
        return
    start = {"redis": start_valkey, "nats": start_nats}[name]
    started = start(folders.mktemp(name))
    try:
        yield started.url
    finally:
        started.kill()


def _database(url):
    """A database of its own, in the server of the session."""
    name = f"stored_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        create_database(connection, name)
    yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
