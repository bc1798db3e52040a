"""A planted secret reaches no reader: log, event, warning, note, inbox, answer or screen."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import os
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import mainstay
import mainstay.sinks.logging as sink
from mainstay import (
    Backoff,
    CircuitBreaker,
    Engine,
    Fallback,
    Hedge,
    Item,
    Jitter,
    MemoryGuard,
    Redactor,
    RetryPolicy,
    StoreUnavailable,
    UsageError,
)
from mainstay.core.retry.effects import Stop
from mainstay.events import encode
from mainstay.integrations.asgi import IdempotencyKeyMiddleware
from mainstay.runtime.reports.known_secrets import know_environment
from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time
from tests.plants import GITHUB, OWN, notations, only_knowing, owned, planted
from tests.servers import commands

POLICY = RetryPolicy(
    name="api", retry_on=ConnectionError, backoff=Backoff.constant(1.0), jitter=Jitter.none()
)


class Readers(logging.Handler):
    """Everybody who reads: log records as handlers get and format them, events, warnings, notes."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.read: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.read.append(repr(vars(record)))
        self.read.append(logging.Formatter("%(name)s %(message)s").format(record))
        if record.exc_info:
            self.read.append("an exception that nobody looked at")

    def hear(self, event: object) -> None:
        self.read.append(encode(event).decode())
        self.read.append(repr(event))

    def see(self, error: BaseException | None) -> None:
        self.read += getattr(error, "__notes__", [])

    def warned(self, caught: list[warnings.WarningMessage]) -> None:
        self.read += [str(each.message) for each in caught]

    def holds(self, secret: str) -> list[str]:
        """Where it can be read, as it is or as Python or JSON writes it."""
        forms = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]}
        return [text for text in self.read if any(form in text for form in forms)]


class reading:  # noqa: N801 -- used as a function is
    """Listens to the log of mainstay, and to warnings."""

    def __enter__(self) -> Readers:
        self.log, self.readers = logging.getLogger("mainstay"), Readers()
        self.level, self.spread = self.log.level, self.log.propagate
        self.log.addHandler(self.readers)
        self.log.setLevel(logging.DEBUG)
        self.log.propagate = False
        self.catching = warnings.catch_warnings(record=True)
        self.caught = self.catching.__enter__()
        warnings.simplefilter("always")
        return self.readers

    def __exit__(self, *error: object) -> None:
        self.readers.warned(self.caught)
        self.catching.__exit__(*error)
        self.log.removeHandler(self.readers)
        self.log.setLevel(self.level)
        self.log.propagate = self.spread


def failing(text: str, cause: str):
    """A function that fails with a text and its keywords, for a reason."""

    def call(*args: object, **kwargs: object) -> None:
        try:
            raise ValueError(cause)
        except ValueError as why:
            raise ConnectionError(text, kwargs) from why

    return call


def boom(text: str):
    """A hook, predicate or listener that raises."""

    def call(*_: object) -> None:
        raise LookupError(text)

    return call


def planting(test):
    """Runs a test on secrets of every sort."""
    hurried = settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    return hurried(given(planted() | owned())(test))


@pytest.fixture(autouse=True, scope="module")
def own_environment():
    """Variables with secrets, which a process reads when it shows its first text."""
    with pytest.MonkeyPatch.context() as patch, only_knowing():
        for name, value in OWN.items():
            patch.setenv(name, value)
        know_environment()
        yield


@planting
@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs", "AG-02.redacted-inbox", "IT-041-08")
def test_no_log_event_note_or_inbox_item_of_an_engine_holds_it(plant):
    """A call that fails with it, from it and for it, is retried, given up and recorded."""
    secret, text = plant
    with reading() as readers, virtual_time():
        engine = Engine(policies=[POLICY], sinks=[sink.LoggingSink(), readers.hear, boom(text)])
        result = engine.run("api", failing(text, text), secret, token=secret)
        readers.see(result.last_exception)
        hooked = POLICY.replace(name="hooked", before_retry=boom(text), retry_if_result=boom(text))
        Engine(policies=[hooked], sinks=[readers.hear]).run("hooked", failing(text, text))
        Engine(policies=[hooked], sinks=[readers.hear]).run("hooked", int, "1")
        hooked.run(failing(text, text))  # nobody listens: the log hears of the hook
        engine.inbox.put(Item(kind="exhausted", subject="a", operation="b", text=text))
        readers.read += [repr(item) for item in engine.inbox]
        engine.operation("keyed", key=text).call(int, "1")
        engine.operation("keyed", key=text).call(int, "1")
    assert readers.holds(secret) == []
    assert len(readers.read) > 20
    assert result.last_exception.args == (
        text,
        {"token": secret},
    )  # the caller's own, as it was raised


@planting
@pytest.mark.req("AG-02.redacted-logs")
def test_no_guard_layer_or_circuit_tells_of_it(plant):
    """Refusals, circuits, fallbacks, hedges and their notes."""
    secret, text = plant

    class Guard(MemoryGuard):
        def consider(self, failure, delay, now, witness=None):
            return Stop(text)

    with reading() as readers, virtual_time():
        circuit = CircuitBreaker("pay", failure_threshold=1, listener=readers.hear)
        circuit.force_open(text)
        readers.read.append(repr(circuit.snapshot()))
        CircuitBreaker("quiet").force_open(text)
        refused = Engine(policies=[POLICY], sinks=[readers.hear], guards=[Guard(2**60)]).run(
            "api", failing(text, text)
        )
        readers.see(refused.last_exception)
        for listener in (readers.hear, None):
            around = Fallback(value=1, on=[boom(text), ConnectionError], listener=listener)
            around(failing(text, text))()
        both = Hedge(delay=0.0)(failing(text, text))
        with pytest.raises(ConnectionError) as raised:
            both()
        readers.see(raised.value)
    assert readers.holds(secret) == []


@planting
def test_no_keyed_call_or_store_tells_of_it(plant):
    """A store that is away with a text of its own, a result that cannot be kept."""
    secret, text = plant

    class Away(MemoryStore):
        is_away = False

        def transact(self, space, key, decide):
            if self.is_away:
                raise StoreUnavailable("memory://", "write", text)
            return super().transact(space, key, decide)

    class Unkept:
        def __init__(self):
            self.text = text

        def __reduce__(self):
            raise ValueError(text)

    with reading() as readers, virtual_time():
        store = Away()
        engine = Engine(store, policies=[POLICY], sinks=[readers.hear])

        def leaves(*_):
            store.is_away = True
            raise PermissionError(text)

        for function in (leaves, Unkept):
            store.is_away = False
            try:
                engine.operation("api", key=text).call(function)
            except Exception as error:
                readers.see(error)
    assert readers.holds(secret) == []
    assert any("could not be recorded" in text for text in readers.read)


@planting
@pytest.mark.req("AG-02.redacted-audit")
def test_no_audit_log_holds_it(tmp_path_factory, plant):
    """Told later from its facts, or as it goes; with an error code that holds it too."""
    secret, text = plant
    path = tmp_path_factory.mktemp("audit") / "audit.jsonl"

    def refused():
        error = ConnectionError(text)
        error.code = text
        raise error

    with reading() as readers, virtual_time():
        for sinks in ([], [readers.hear]):
            with Engine(policies=[POLICY], sinks=sinks, audit=path) as engine:
                engine.run("api", failing(text, text), secret)
                engine.run("api", refused)
    readers.read.append(path.read_text("utf-8"))
    assert readers.holds(secret) == []
    assert readers.read[-1].count("attempt_failed") == 12


@planting
def test_an_engine_takes_what_is_secret_with_its_user(plant):
    """Patterns and fields of one's own, in events, notes, the log, the inbox and layers."""
    _, text = plant
    redact = Redactor(patterns=["EMP-[0-9]+"], fields=["patient id"])
    own = f"EMP-12345 {text} patientId=ann"
    with reading() as readers, virtual_time():
        sinks = [sink.LoggingSink(), readers.hear, boom(own)]
        engine = Engine(policies=[POLICY], sinks=sinks, redact=redact)
        readers.see(engine.run("api", failing(own, own)).last_exception)
        engine.inbox.put(Item(kind="exhausted", subject="a", operation="b", text=own))
        readers.read += [repr(item) for item in engine.inbox]
        layered = engine.protect(
            "api", fallback=Fallback(value=1, listener=readers.hear), hedge=Hedge(delay=0.0)
        )
        layered(failing(own, own))()
    assert readers.holds("EMP-12345") == []
    assert readers.holds("patientId=ann") == []


def test_an_engine_wants_a_redactor():
    """And says so."""
    with pytest.raises(UsageError, match="must be a Redactor"):
        Engine(redact="secret")


@planting
def test_no_problem_of_the_middleware_holds_it(plant):
    """What a client is told, and what is logged, where the store is away."""
    secret, text = plant

    class Away(MemoryStore):
        async def atransact(self, space, key, decide):
            raise StoreUnavailable("memory://", "write", text)

    answers: list[str] = []

    async def send(message):
        answers.append(repr(message))

    async def receive():
        return {"type": "http.request", "body": secret.encode(), "more_body": False}

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(engine, **options):
        middleware = IdempotencyKeyMiddleware(app, engine, caller=lambda _: "ann", **options)
        headers = [(b"idempotency-key", b"k-1")]
        scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
        await middleware(scope, receive, send)

    with reading() as readers:
        asyncio.run(ask(Engine(Away()), on_store_down="refuse"))
        asyncio.run(ask(Engine(Away()), on_store_down="pass"))
        readers.read += answers
    assert len(answers) == 4
    assert readers.holds(secret) == []


def test_no_warning_of_a_configuration_holds_it(tmp_path):
    """What is wrong is told where the default is used instead; a value or a key may hold one."""
    path = tmp_path / "mainstay.yml"
    path.write_text("store: 'floppy://ann:hunter2@db'\n'api_key=hunter2': 1\n", "utf-8")
    with reading() as readers:
        Engine.from_config(path, on_error="default").close()
    assert readers.holds("hunter2") == []
    assert any("[redacted]" in text for text in readers.read)


# --- every other room ---------------------------------------------------------------------------

SRC = Path(mainstay.__file__).parent
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
ERRORS = {"error", "exc", "e", "failure"}


def leaks(source: str) -> list[str]:
    """Calls that log an exception as it is, with their lines."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        is_log = node.func.attr in LEVELS and "log" in ast.unparse(node.func.value).lower()
        given = {each.id for each in node.args if isinstance(each, ast.Name)}
        shows = node.func.attr == "exception" or any(k.arg == "exc_info" for k in node.keywords)
        if is_log and (shows or given & ERRORS):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.req("AG-02.redacted-logs")
@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda p: str(p.relative_to(SRC)))
def test_no_room_logs_an_exception_as_it_is(path):
    """As report_failure.py does, without secrets; a message takes what `describe` gives."""
    assert leaks(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "planted",
    ["_log.exception('a')", "_log.error('a', exc_info=x)", "logging.getLogger().info('%s', error)"],
)
def test_a_planted_line_is_found(planted):
    """The rule above can fail."""
    assert len(leaks(planted)) == 1


# --- screens --------------------------------------------------------------------------------------

SECRETS = {
    "hunter2-of-ann": "redis://ann:hunter2-of-ann@127.0.0.1:1/0?timeout=0.2",
    "hunter2-of-bob": "postgresql://127.0.0.1:1/x?password=hunter2-of-bob&connect_timeout=1",
    "hunter2-of-eve": "floppy://eve:hunter2-of-eve@127.0.0.1",
    GITHUB: f"sqlite:///{GITHUB}/no/such/folder.db",
}


def screen(*arguments: str, **variables: str) -> str:
    """What the command shows, on both streams."""
    done = commands.run(*arguments, text=True, env=os.environ | variables)
    return done.stdout + done.stderr


@pytest.mark.parametrize(("secret", "url"), SECRETS.items())
@pytest.mark.req("NFR-041-29", "AG-02.redacted-cli")
def test_no_screen_of_the_command_line_holds_it(secret, url):
    """Tables, JSON, errors and the traceback of MAINSTAY_DEBUG."""
    shown = [
        screen("doctor", "--store", url),
        screen("doctor", "--json", "--store", url),
        screen("doctor", "--store", url, MAINSTAY_DEBUG="1"),
        screen(url, MAINSTAY_DEBUG="1"),
        screen("policies", "show", url, "--json"),
    ]
    assert [text for text in shown if secret in text] == []
    assert all("[redacted]" in text or "//" in text for text in shown)


@pytest.mark.parametrize("value", OWN.values(), ids=OWN)
@pytest.mark.req("NFR-041-29", "AG-02.redacted-cli")
def test_no_screen_shows_a_secret_of_the_environment(tmp_path, value):
    """A bare value, which no rule could know: in a URL, a command line, its item and its line."""
    place = f"sqlite:///{tmp_path}/exec.db"
    shown = [
        screen("doctor", "--store", f"sqlite:///{value}/no/such/folder.db", **OWN),
        screen("policies", "show", value, "--json", **OWN),
        screen("exec", "--store", place, "--", "false", value, **OWN),
        screen("exec", "--store", place, "--escalate", "--", "false", value, **OWN),
        screen("inbox", "--json", "--store", place, **OWN),
    ]
    assert [text for text in shown if any(each in text for each in notations(value))] == []
    assert "[redacted]" in shown[0]


def test_an_engine_with_a_redactor_of_its_own_knows_what_the_process_knows():
    """And one without the built-in rules does not."""
    (secret, *_) = OWN.values()
    for redact, is_hidden in ((Redactor(["EMP-[0-9]+"]), True), (Redactor(builtin=False), False)):
        with reading() as readers, virtual_time():
            engine = Engine(policies=[POLICY], sinks=[readers.hear], redact=redact)
            engine.run("api", failing(f"no route to {secret}", ""))
        assert (readers.holds(secret) == []) is is_hidden


def test_the_test_can_fail():
    """A reader without redaction would show it."""
    with reading() as readers:
        logging.getLogger("mainstay").error("password=hunter2")
    assert len(readers.holds("hunter2")) == 2
