"""The effects document: every block and every table of it, on the front door.

A block runs with only its imports changed, and with the names of PRELUDE, which it leaves open.
What it defines is compared with what the door has. Decisions of DESIGN.md that a case names are
those by which it differs.
"""

import asyncio
import dataclasses
import logging
import random
import re
import sqlite3
import types
from contextlib import asynccontextmanager
from datetime import datetime
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, ValidationError

from mainstay import ConfigError, Engine, events
from mainstay.engine.outbox import Outbox
from mainstay.profiles import effects
from mainstay.profiles.effects import effect, infra_error, is_retryable
from mainstay.sinks.metrics.catalogue import METRICS
from mainstay.testing import virtual_time
from tests.conformance.document import WHY_NOT, blocks, read, run, tables

TEXT = read("effects-retry-backoff-compensation.md")
if not TEXT:
    pytest.skip(WHY_NOT, allow_module_level=True)

IMPORTS = re.compile(r"from omnibase_\w+(?:\.\w+)* import")
PRELUDE = {
    "BaseModel": BaseModel, "DatabaseClient": object, "DatabaseConfig": object, "EventBus": object,
    "Field": Field, "UUID": UUID, "asyncio": asyncio, "datetime": datetime,
    "logger": logging.getLogger("sample"),
}  # fmt: skip
"""What a sample leaves open."""
WHO = UUID(int=7)


def ran(block, **names):
    """What a block defines, with its imports changed."""
    text = IMPORTS.sub("from mainstay.profiles.effects import", block.text)
    return run(dataclasses.replace(block, text=text), **{**PRELUDE, **names})


class Log:
    """Keeps what is logged: level, message, and fields."""

    def __init__(self):
        self.lines = []

    def log(self, level, message, *args, extra):
        self.lines.append((level, message % args, extra))

    def warning(self, message, *args, extra):
        self.log(logging.WARNING, message, *args, extra=extra)

    def error(self, message, *args, extra):
        self.log(logging.ERROR, message, *args, extra=extra)


# --- contracts and the flow -----------------------------------------------------------------------


def the_contract(block, tmp_path):
    """It is an orchestrator's: three retries are four attempts. As an effect's it is refused."""
    path = tmp_path / "contract.yaml"
    path.write_text(block.text, encoding="utf-8")
    policy = effects.Orchestrator(path, sinks=[]).policy("database")
    assert (policy.max_attempts, policy.per_kind) == (4, None)
    assert [policy.delay(n, 0.5) for n in range(1, 8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
    with pytest.raises(ConfigError) as refused:
        effect(kind="database", contract=path)
    keys = ("max_retries:", "retry_policy:")
    lines = [
        n for n, line in enumerate(block.text.splitlines(), 1) if line.strip().startswith(keys)
    ]
    assert [problem.line for problem in refused.value.problems] == lines[:2]


def the_flow(block, tmp_path):
    """The same failures, waits and results, in the same order."""
    waits = [float(found) for found in re.findall(r"\[Backoff (\d+)s\]", block.text)]
    errors = re.findall(r'error="([^"]+)"', block.text)
    outcomes = iter(
        [effects.InfraTimeoutError(errors[0]), effects.InfraConnectionError(errors[1]), "row"]
    )
    seen = []

    @effect(kind="database")
    def query():
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    sinks = [lambda e: seen.append(e) if isinstance(e, events.RetryAttempt) else None]
    with virtual_time() as time:
        result = effects.Orchestrator(sinks=sinks).execute(query)
    assert result.success
    assert [event.exception_message for event in seen] == errors
    assert all(0.75 * w <= s <= 1.25 * w for w, s in zip(waits, time.sleeps, strict=True))


def the_decision(block, tmp_path):
    """The same answers; decision 11 for what its table calls an InfraConnectionError."""
    theirs = ran(block)["is_retryable"]
    classes = [getattr(effects, name) for name in effects.__all__ if name.endswith("Error")]
    for cls in [*classes, ValueError, ConnectionError, TimeoutError, Exception]:
        if cls is not effects.CompensationFailedError:
            error = cls("failed")
            is_other = cls is effects.InfraDataIntegrityError
            assert is_retryable(error) is (theirs(error) and not is_other), cls


def the_formula(block, tmp_path):
    assert "min(initial_delay * (exponential_base ^ attempt), max_delay)" in block.text


def the_delay(block, tmp_path):
    """For the same draws the same delays."""
    made = ran(block)
    theirs, draw = made["calculate_backoff_delay"], random.Random(1)
    for _ in range(1000):
        u = draw.random()
        theirs.__globals__["random"] = types.SimpleNamespace(
            uniform=lambda a, b, u=u: a + (b - a) * u
        )
        arguments = {
            "attempt": draw.randint(0, 40), "initial_delay": draw.uniform(0.01, 60.0),
            "max_delay": draw.uniform(1.0, 300.0), "exponential_base": draw.uniform(1.5, 4.0),
            "jitter_factor": draw.uniform(0.0, 0.5),
        }  # fmt: skip
        ours = effects.calculate_backoff_delay(**arguments, u=u)
        assert ours == pytest.approx(theirs(**arguments))


# --- compensation ---------------------------------------------------------------------------------


def the_principle(block, tmp_path):
    """Nothing in the outbox deletes or changes an event that was added."""
    assert "NEVER DO THIS" in block.text
    public = {name for name in vars(Outbox) if not name.startswith("_")}
    assert not {name for name in public if re.search("delete|update|change|edit", name)}


class Database:
    """The document's client: users, an outbox, and a transaction."""

    def __init__(self):
        self.users, self.outbox, self.dead, self.retries = {}, [], [], {}

    async def insert_user(self, user_id, data):
        self.users[user_id] = data

    async def delete_user(self, user_id):
        del self.users[user_id]

    @asynccontextmanager
    async def transaction(self):
        yield

    async def insert_outbox(self, entry):
        self.outbox.append(entry)

    async def get_unpublished_outbox_entries(self, limit):
        return [each for each in self.outbox if each.published_at is None][:limit]

    async def mark_outbox_published(self, entry_id):
        for each in self.outbox:
            if each.id == entry_id:
                each.published_at = datetime.now()  # noqa: DTZ005 -- as the document's own

    async def increment_outbox_retry(self, entry_id):
        for each in self.outbox:
            each.retry_count += each.id == entry_id

    async def move_outbox_to_dlq(self, entry_id):
        self.dead += [each for each in self.outbox if each.id == entry_id]
        self.outbox = [each for each in self.outbox if each.id != entry_id]


class Bus:
    """The document's event bus; it fails for these topics."""

    def __init__(self, *failing):
        self.failing, self.published = failing, []
        self.has_published = asyncio.Event()

    async def publish(self, *, topic, event, correlation_id):
        if topic in self.failing:
            raise effects.InfraConnectionError(f"{topic}: broker down")
        self.published.append((topic, event, correlation_id))
        self.has_published.set()


def the_compensating_event(block, tmp_path):
    """The user is there with the event, or neither is; the failed event is published, or logged."""
    for failing, topics, lines in [
        ((), ["user.created.v1"], 0),
        (("user.created.v1",), ["user.creation-failed.v1"], 1),
        (("user.created.v1", "user.creation-failed.v1"), [], 2),
    ]:
        log, database, bus = Log(), Database(), Bus(*failing)
        made = ran(block, logger=log)
        user = made["ModelUserData"](email="ann@example.com", username="ann")
        coroutine = made["create_user_with_compensation"](user, database, bus, WHO)
        if failing:
            with pytest.raises(effects.InfraConnectionError, match="broker down"):
                asyncio.run(coroutine)
        else:
            asyncio.run(coroutine)
        assert [topic for topic, _, _ in bus.published] == topics
        assert (len(database.users), len(log.lines)) == (0 if failing else 1, lines)
        assert all(line[2]["transport_type"] == "kafka" for line in log.lines)


def the_saga(block, tmp_path):
    """The same calls, exceptions and log lines for the same steps, and its use with our classes."""
    log = Log()
    made = ran(block, logger=log)
    draw = random.Random(2)
    for _ in range(200):
        script = [(draw.random() < 0.25, draw.random() < 0.4) for _ in range(draw.randint(0, 5))]
        log.lines.clear()
        theirs = saga_run(made["SagaStep"], made["SagaExecutor"], script)
        assert saga_run(effects.SagaStep, effects.SagaExecutor, script) == theirs
    _the_use_of_the_saga(made["transfer_funds"])


def saga_run(step, executor, script):
    """What a saga of such steps calls, and what it raises."""
    calls = []

    def function(name, fails):
        async def call():
            calls.append(name)
            if fails:
                raise OSError(name)

        return call

    steps = [
        step(name=f"s{n}", action=function(f"s{n}", act), compensate=function(f"-s{n}", undo))
        for n, (act, undo) in enumerate(script)
    ]
    try:
        asyncio.run(executor().execute(steps, WHO))
    except Exception as error:
        fields = [getattr(error, "failed_steps", None), str(getattr(error, "errors", None))]
        return calls, type(error).__name__, str(error), fields, repr(error.__cause__)
    return calls


def _the_use_of_the_saga(transfer):
    balances = {"a": 10.0, "b": 0.0}

    class Accounts:
        async def debit(self, account, amount):
            balances[account] -= amount

        async def credit(self, account, amount):
            if account == "b" and amount > 5.0:
                raise OSError("limit")
            balances[account] += amount

    transfer.__globals__.update(
        SagaStep=effects.SagaStep, SagaExecutor=effects.SagaExecutor, accounts_service=Accounts()
    )
    asyncio.run(transfer("a", "b", 4.0, WHO))
    with pytest.raises(OSError, match="limit"):
        asyncio.run(transfer("a", "b", 6.0, WHO))
    assert balances == {"a": 6.0, "b": 4.0}


def the_outbox(block, tmp_path):
    """Its own worker, and ours on its entry: the same topics, events and correlation ids."""
    rounds = iter(range(6))

    async def sleep(_):
        next(rounds)

    user = types.SimpleNamespace(email="ann@example.com")
    made = ran(block, asyncio=types.SimpleNamespace(sleep=sleep), ModelUserData=object)
    database, bus = Database(), Bus()
    user_id = asyncio.run(made["create_user_with_outbox"](user, database, WHO))
    with pytest.raises(RuntimeError):  # the sixth round is the last
        asyncio.run(made["outbox_publisher_worker"](database, bus))
    ((topic, payload, entry_id),) = bus.published
    theirs, ours = made["OutboxEntry"].model_fields, effects.OutboxEntry.model_fields
    assert list(theirs) == list(ours)
    for name, field in theirs.items():
        assert field.is_required() == ours[name].is_required()
        assert field.default == ours[name].default
    own = effects.OutboxEntry(**{name: getattr(database.outbox[0], name) for name in theirs})
    assert own.aggregate_id == user_id
    assert published(own, tmp_path) == [(topic, payload.model_dump(), entry_id)]
    assert user_id in database.users


def published(entry, tmp_path):
    """What our worker publishes of an entry."""
    path, bus = tmp_path / "app.db", Bus()

    async def main(engine):
        worker = asyncio.create_task(effects.outbox_publisher_worker(engine, bus))
        await bus.has_published.wait()
        worker.cancel()
        await asyncio.wait([worker])

    with Engine(f"sqlite:///{path}", sinks=[], audit=False) as engine:
        connection = sqlite3.connect(path)
        with connection:
            entry.add(engine, connection)
        connection.close()
        asyncio.run(main(engine))
    return bus.published


# --- settings -------------------------------------------------------------------------------------

OWN = {"attempt_timeout_seconds"}
"""A field that the document does not have: Vault and Consul have no timeout in it."""


def the_settings(block, tmp_path):
    """The same fields, types, defaults and bounds; the same values are accepted and refused."""
    ((name, theirs),) = [(n, v) for n, v in ran(block).items() if n.startswith("Model")]
    ours = getattr(effects, name)
    assert ours is getattr(effects, name.removeprefix("Model"))
    fields = theirs.model_fields
    assert fields.keys() == ours.model_fields.keys() - OWN
    wrong = {}
    for field, known in fields.items():
        own = ours.model_fields[field]
        assert own.annotation is known.annotation or own.annotation == known.annotation
        default = known.get_default(call_default_factory=True)
        assert own.get_default(call_default_factory=True) == default
        assert sorted(map(repr, own.metadata)) == sorted(map(repr, known.metadata)), field
        if known.metadata:
            low, high = (vars_of(known)[bound] for bound in ("ge", "le"))
            step = 1 if known.annotation is int else 0.001
            for value in (low, high):
                assert getattr(ours(**{field: value}), field) == value
            for value in (low - step, high + step, float("nan"), None, "much"):
                refused(theirs, **{field: value})
                assert refused(ours, **{field: value}) == [field]
            wrong[field] = high + step
    assert sorted(refused(ours, **wrong)) == sorted(refused(theirs, **wrong)) == sorted(wrong)


def vars_of(field):
    return {key: value for each in field.metadata for key, value in vars_in(each).items()}


def vars_in(bound):
    return {slot: getattr(bound, slot) for slot in ("ge", "le") if hasattr(bound, slot)}


def refused(model, **values):
    """The fields that a model refuses, all at once."""
    with pytest.raises(ValidationError) as error:
        model(**values)
    return [problem["loc"][0] for problem in error.value.errors()]


# --- the circuit and the log ----------------------------------------------------------------------


def the_client(block, tmp_path):
    """With our mixin: opens after five failures, refuses without a query, and closes again."""
    names = ("calculate_backoff_delay", "is_retryable", "ModelDatabaseRetryConfig")
    made = ran(block, **{name: getattr(effects, name) for name in names})
    outcomes, queries = [], []

    class Client(made["ResilientDatabaseClient"]):
        async def _do_query(self, query):
            queries.append(query)
            if outcomes:
                raise outcomes.pop(0)
            return [{"id": 1}]

    async def main():
        client = Client(None, effects.ModelDatabaseRetryConfig(max_attempts=3))
        outcomes[:] = [effects.InfraTimeoutError("slow"), effects.InfraConnectionError("gone")]
        assert await client.execute_query("SELECT 1", WHO) == [{"id": 1}]
        outcomes[:] = [effects.InfraAuthenticationError("no"), *[OSError("unknown")] * 3]
        for _ in range(4):  # not retried, and recorded all the same
            with pytest.raises((effects.InfraAuthenticationError, OSError)):
                await client.execute_query("SELECT 1", WHO)
        outcomes[:] = [effects.InfraUnavailableError("down")]
        with pytest.raises(effects.InfraUnavailableError, match="postgresql-primary") as error:
            await client.execute_query("SELECT 1", WHO)  # the fifth opens it before its retry
        assert error.value.context.operation == "query"
        before = len(queries)
        with pytest.raises(effects.InfraUnavailableError, match="postgresql-primary"):
            await client.execute_query("SELECT 1", WHO)
        assert len(queries) == before
        await asyncio.sleep(60.0)
        assert await client.execute_query("SELECT 1", WHO) == [{"id": 1}]
        assert client._circuit_breaker.state.name == "CLOSED"

    with virtual_time():
        asyncio.run(main())


def the_log(block, tmp_path, caplog):
    """The same levels, messages and fields."""
    caplog.set_level(logging.INFO)
    made = ran(block)
    made["log_retry_attempt"].__globals__["logger"] = log = Log()
    calls = [
        ("log_retry_attempt", ("database", 1, 3, 2.345, TimeoutError("no reply"), WHO)),
        ("log_retry_exhausted", ("kafka", 3, 12.5, ConnectionError("broker gone"), WHO)),
        ("log_compensation_action", ("database", "delete_user", True, WHO)),
        ("log_compensation_action", ("database", "delete_user", False, WHO)),
    ]
    usual = set(vars(logging.makeLogRecord({}))) | {"message", "taskName"}
    for name, arguments in calls:
        made[name](*arguments)
        caplog.clear()
        getattr(effects, name)(*arguments)
        (record,) = caplog.records
        own = {key: value for key, value in vars(record).items() if key not in usual}
        assert log.lines[-1] == (record.levelno, record.getMessage(), own)


CASES = {
    "Configuration Location": the_contract,
    "Example Flow": the_flow,
    "Retry Decision Logic": the_decision,
    "Exponential Backoff Formula": the_formula,
    "Jitter Specification": the_delay,
    "Domain Event Immutability Principle": the_principle,
    "Pattern 1: Compensating Event": the_compensating_event,
    "Pattern 2: Saga with Compensation Steps": the_saga,
    "Pattern 3: Outbox Pattern (Preferred for Transactional Consistency)": the_outbox,
    "Database (PostgreSQL)": the_settings,
    "Kafka": the_settings,
    "HTTP/REST API": the_settings,
    "Vault (Secret Management)": the_settings,
    "Consul (Service Discovery)": the_settings,
    "Integration with Circuit Breaker": the_client,
    "Logging Guidelines": the_log,
}


@pytest.mark.req("EF-03", "EF-06", "EF-09", "EF-10", "EF-11", "EF-07.settings")
@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")
@pytest.mark.parametrize("block", blocks(TEXT), ids=lambda block: block.key)
def test_a_block_of_the_document_holds(block, tmp_path, caplog):
    """Each one has a case; one that is added to the document fails until it has."""
    case = CASES[block.key]
    case(block, tmp_path, caplog) if case is the_log else case(block, tmp_path)


def test_no_case_is_left_over():
    """A block that is gone from the document leaves the list; twelve of them are Python."""
    assert [block.key for block in blocks(TEXT)] == list(CASES)
    assert sum(block.language == "python" for block in blocks(TEXT)) == 12


# --- the tables -----------------------------------------------------------------------------------

TABLES = tables(TEXT)
PARAMETERS = TABLES["Default Configuration"]


@pytest.mark.req("EF-04")
@pytest.mark.parametrize("row", PARAMETERS, ids=lambda row: row["Parameter"].strip("`"))
def test_a_row_of_the_parameters_holds(row):
    """Its default, and both ends of its range."""
    name = row["Parameter"].strip("`")
    sort = int if name == "max_attempts" else float
    low, high = map(sort, row["Range"].split("-"))
    assert getattr(effects.EffectRetryConfig(), name) == sort(row["Default"])
    for value in (low, high):
        effects.EffectRetryConfig(**{name: value})
    step = sort(1) if sort is int else 0.001
    for value in (low - step, high + step):
        with pytest.raises(ValueError, match=name):
            effects.EffectRetryConfig(**{name: value})


ERRORS = TABLES["Retryable vs Non-Retryable Errors"]


class Answer(Exception):
    """The failure of an HTTP client."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status_code = status


@pytest.mark.req("EF-05.tables")
@pytest.mark.parametrize("row", ERRORS, ids=lambda row: row["Error Type"])
def test_a_row_of_the_errors_holds(row):
    """Its class is retried, or is not; a status in it is that class (decision 11 for one row)."""
    name = row["Error Class"].strip("`")
    if row["Error Type"] == "Data integrity violation":
        name = "InfraDataIntegrityError"
    assert is_retryable(getattr(effects, name)("failed")) is (ERRORS.index(row) < 8)
    status = re.search(r"\((\d{3})\)", row["Error Type"])
    if status:
        assert type(infra_error(Answer(int(status[1])))).__name__ == name


def test_all_rows_of_the_errors_are_found():
    """Eight are retried, eight are not."""
    assert len(ERRORS) == 16


SEQUENCES = TABLES["Backoff Sequence Examples"]
AGGRESSIVE = {"exponential_base": 3.0, "initial_delay": 0.1, "max_delay": 30.0}


@pytest.mark.req("EF-06")
@pytest.mark.parametrize("place", range(len(SEQUENCES)))
def test_a_row_of_the_sequences_holds(place):
    """Base delay, lower and upper end."""
    row, settings = SEQUENCES[place], {} if place < 7 else AGGRESSIVE
    attempt = int(row["Attempt"].rstrip("+"))
    ends = row["With Jitter (+/-25%)"].split(" - ")
    shown = [float(row["Base Delay"].split("s")[0]), *(float(each.rstrip("s")) for each in ends)]
    found = [effects.calculate_backoff_delay(attempt, u=u, **settings) for u in (0.5, 0.0, 1.0)]
    assert found == pytest.approx(shown)


MATRIX = TABLES["Configuration Comparison Matrix"]


@pytest.mark.req("EF-07.settings")
@pytest.mark.parametrize("row", MATRIX, ids=lambda row: row["Effect Type"])
def test_a_row_of_the_matrix_holds(row):
    """Attempts, delays and base of the policy that the settings are."""
    policy = getattr(effects, f"{row['Effect Type'].title()}RetryConfig")().policy()
    seconds = [float(row[name].rstrip("s")) for name in ("Initial Delay", "Max Delay")]
    assert policy.max_attempts == int(row["Max Attempts"])
    assert [policy.backoff.base(1), policy.backoff.base(40)] == seconds
    assert policy.backoff.base(2) / policy.backoff.base(1) == float(row["Exponential Base"])


@pytest.mark.req("EF-12")
@pytest.mark.parametrize(
    "row", TABLES["Metrics to Track"], ids=lambda row: row["Metric"].strip("`")
)
def test_a_row_of_the_metrics_holds(row):
    """Name, type and labels."""
    metric = METRICS[row["Metric"].strip("`")]
    assert metric.kind == row["Type"].lower()
    assert ", ".join(metric.labels) == row["Labels"]


def test_every_name_of_the_document_is_importable():
    """What it imports from its own packages, and every model and class that it names in words."""
    named = {
        name.strip()
        for block in blocks(TEXT)
        for listed in re.findall(r"from omnibase_[\w.]+ import (\([^)]*\)|.*)", block.text)
        for name in listed.strip("()").split(",")
        if name.strip()
    }
    named |= set(re.findall(r"`((?:Infra|Protocol|Secret|Model|Mixin|Enum|Saga|Outbox)\w+)`", TEXT))
    elsewhere = {"ModelKafkaEventBusConfig", "ProtocolPolicy"}  # only a reference to a file
    assert {name for name in named - elsewhere if not hasattr(effects, name)} == set()
    assert len(named) > 12
