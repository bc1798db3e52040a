"""Relays beside an independent model of the outbox: transactions, brokers, crashes, operators.

Each relay has an event loop of its own, which is run only when a step of the test asks for it: a
relay that is not run is a process that was stopped. Time is virtual; on PostgreSQL the schema of
the test has a `clock_timestamp()` of its own.
"""

import asyncio
from contextlib import contextmanager
from datetime import UTC, datetime

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import mainstay.runtime.clock as clock
from mainstay import Backoff, RetryPolicy
from mainstay.core.events.describe import usual_redactor
from mainstay.core.outbox.entry import STATES, Phase
from mainstay.core.outbox.settle import DeadRules, discarded, replayed
from mainstay.drivers.call.site import Entropy
from mainstay.drivers.outbox.publish import Attempts
from mainstay.drivers.outbox.relay import Relay, RelayOptions
from mainstay.drivers.outbox.reports import Reports
from mainstay.stores.outbox.insert import add
from mainstay.stores.outbox.new_row import new_row
from mainstay.stores.outbox.postgres import PostgresOutbox
from mainstay.stores.outbox.sqlite import SqliteOutbox
from mainstay.testing.time import VirtualTime
from tests.drivers.outbox.model import MAX_ATTEMPTS, Model, Told
from tests.servers.databases import Place, postgres_place, sqlite_place

LEASE = 30.0
POLICY = RetryPolicy(max_attempts=MAX_ATTEMPTS, backoff=Backoff.constant(5.0))
ALL = [each.value for each in Phase]
ANSWERS = st.sampled_from(["acknowledged", "acknowledged", "transient", "permanent"])


# --- databases in virtual time --------------------------------------------------------------------


class Sqlite:
    """A file; its outbox is given the clock."""

    writers = 1

    def __init__(self, folder, time):
        self._place, self._time = sqlite_place(folder), time
        self.advanced = lambda: None
        self.now = time.wall

    def open(self):
        return SqliteOutbox(f"{self._place.url}?synchronous=NORMAL", now=self._time.wall)

    @contextmanager
    def connect(self):
        with self._place.connect() as connection:
            connection.execute("PRAGMA synchronous = OFF")  # a test need not wait for the disk
            yield connection


class Postgres:
    """A schema with a clock of its own, which is looked for before the server's."""

    writers = 3

    def __init__(self, server_url, time):
        plain = postgres_place(server_url)
        url = f"{plain.url}%2Cpg_catalog"
        self._place = Place(url, lambda: psycopg.connect(url))
        self.connect, self._time = self._place.connect, time
        for statement in (
            "CREATE TABLE moment AS SELECT 0::float8 AS now",
            (
                "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS"
                " 'SELECT to_timestamp(now) FROM moment'"
            ),
        ):
            self._place.execute(statement)
        self.now = time.wall
        self.advanced()

    def advanced(self):
        self._place.execute(f"UPDATE moment SET now = {self._time.wall()!r}")

    def open(self):
        return PostgresOutbox(self._place.url)


# --- relays that are run step by step -------------------------------------------------------------


class GoneError(Exception):
    """The process of a relay has ended."""


class Watched:
    """The table, as a relay uses it; the model notes what is seen, claimed and renewed."""

    def __init__(self, table, relay, model, now):
        self._table, self._relay, self._model, self._now = table, relay, model, now
        self.is_gone = False

    def __getattr__(self, name):
        if self.is_gone:
            raise GoneError
        return getattr(self._table, name)

    def upkeep(self, rules):
        found = self.__getattr__("upkeep")(rules)
        self._model.seen(self._now())
        return found

    def claim(self, limit, lease, token, *, is_idle):
        found = self.__getattr__("claim")(limit, lease, token, is_idle=is_idle)
        self._model.claimed(self._relay, [each.id for each in found.entries], self._now() + lease)
        return found

    def renew(self, entries, lease):
        kept = self.__getattr__("renew")(entries, lease)
        self._model.renewed(self._relay, kept, self._now() + lease)
        return kept


class Inline(Relay):
    """Takes the steps of the table at once, without threads."""

    async def _step(self, step):
        return step()


class Loop(asyncio.SelectorEventLoop):
    """Runs what can be run now, and returns."""

    def __init__(self):
        super().__init__()
        self._clock_resolution = 1e-6  # a step of a float at this time: what is due now runs

    def time(self):
        return clock.current.monotonic()

    def pump(self):
        self._once()
        while self._ready or (self._scheduled and self._scheduled[0]._when <= self.time()):
            self._once()

    def _once(self):
        self.call_soon(self.stop)
        self.run_forever()


class Inbox:
    """Keeps which messages have had an item."""

    def __init__(self):
        self.put_of = set()

    def put(self, item):
        self.put_of.add(item.subject)

    def resolve(self, *_):
        pass


class Process:
    """A process with one relay, and what its broker has not answered yet."""

    url = "test:broker"

    def __init__(self, outbox, batch):
        self._outbox, self.loop, self.waiting = outbox, Loop(), []
        model, now = outbox.model, outbox.now
        self.table = Watched(outbox.table, self, model, now)
        attempts = Attempts(
            self.publish, POLICY, DeadRules(MAX_ATTEMPTS, holds=model.holds), gate=None,
            entropy=Entropy(1), redact=usual_redactor(), idle=1.0,
        )  # fmt: skip
        reports = Reports(self.table, outbox.inbox, (), None)
        options = RelayOptions(batch=batch, lease=LEASE)
        self.relay = Inline(self.table, self, attempts, reports, options)
        self.task = None

    async def publish(self, message):
        self._outbox.begins(self, message)
        answer = self.loop.create_future()
        self.waiting.append((message, answer))
        await answer

    async def close(self):
        pass

    def step(self):
        """Runs the relay until it has nothing to do; one that has drained drains again."""
        if self.task is None or self.task.done():
            self.ended()
            self.task = self.loop.create_task(self.relay.adrain())
        self.loop.pump()
        self._outbox.raises()

    def answer(self, number, answer):
        message, future = self.waiting.pop(number % len(self.waiting))
        self._outbox.model.answered(self, message.id, answer)
        if answer == "acknowledged":
            future.set_result(None)
        else:
            error = ConnectionError if answer == "transient" else ValueError
            future.set_exception(error(answer))

    def dies(self):
        """Nothing that it does from now on is seen by anybody."""
        self.table.is_gone = True
        self._outbox.model.gone(self)
        self.ended(gone=True)

    def ended(self, *, gone=False):
        if self.task is None:
            return
        while gone and (tasks := asyncio.all_tasks(self.loop)):
            for each in tasks:
                each.cancel()
            self.loop.pump()
        error = None if self.task.cancelled() else self.task.exception()
        assert gone or error is None

    def close_loop(self):
        self.loop.close()


# --- the machine ----------------------------------------------------------------------------------


class Transaction:
    """What an application is about to commit; on SQLite it is written at the commit."""

    def __init__(self, connection=None):
        self.connection, self.rows, self.messages, self.keys = connection, [], [], {}

    def add(self, message, row):
        if self.connection is None:
            self.rows.append((message, row))
            return
        self._write(self.connection, message, row)

    def _write(self, connection, message, row):
        found = add(connection, row, creates=False)
        if found == message.id:
            self.messages.append(message)
            if row.dedupe_key is not None:
                self.keys[row.dedupe_key] = message.id

    def end(self, connect, *, commits):
        if self.connection is not None:
            (self.connection.commit if commits else self.connection.rollback)()
            self.connection.close()
            return
        with connect() as connection:
            for message, row in self.rows:
                self._write(connection, message, row)
            if not commits:
                connection.rollback()


class OutboxMachine(RuleBasedStateMachine):
    """Steps of applications, relays, brokers and operators, in any order."""

    database = staticmethod(lambda time: None)

    def __init__(self):
        super().__init__()
        self.time = VirtualTime(1_900_000_000.0)
        self.before = clock.install(self.time)
        self.place = self.database(self.time)
        self.now = self.place.now
        self.table = self.place.open()
        self.inbox, self.open, self.dead_processes, self.failures = Inbox(), {}, [], []
        self.count = 0

    @initialize(holds=st.booleans(), batches=st.lists(st.integers(1, 6), min_size=2, max_size=3))
    def begin(self, holds, batches):
        self.model = Model(holds)
        self.batches = batches
        self.processes = [Process(self, batch) for batch in batches]

    # --- applications ---

    @rule(
        which=st.integers(0, 2),
        aggregate=st.sampled_from(["X", "X", "X", "Y", ""]),
        delay=st.sampled_from([None, None, None, 7.0, 40.0]),
        key=st.sampled_from([None, None, None, "one", "two"]),
        count=st.integers(1, 3),
        commits=st.booleans(),
    )
    def adds(self, which, aggregate, delay, key, count, commits):
        which %= self.place.writers
        others = [each for name, each in self.open.items() if name != which]
        if key is not None and any(key in each.keys for each in others):
            return  # PostgreSQL waits for the end of that transaction
        for _ in range(count):
            self._adds(which, aggregate, delay, key)
        if commits:
            self.ends(which, commits=True)

    def _adds(self, which, aggregate, delay, key):
        self.count += 1
        due = None if delay is None else self.now() + delay + self.count / 1024  # no two are equal
        message = Told(f"m{self.count}", aggregate, due)
        fields = {"id": message.id, "aggregate_id": aggregate, "dedupe_key": key}
        if due is not None:
            fields["due"] = datetime.fromtimestamp(due, UTC)
        transaction = self.open.get(which) or self.open.setdefault(which, self._begun())
        transaction.add(message, new_row("t", {"n": message.id}, fields))

    def _begun(self):
        return Transaction(self.place.connect() if self.place.writers > 1 else None)

    @rule(which=st.integers(0, 2), commits=st.sampled_from([True, True, False]))
    def ends(self, which, commits):
        transaction = self.open.pop(which % self.place.writers, None)
        if transaction is None:
            return
        transaction.end(self.place.connect, commits=commits)
        if commits:
            self.model.committed(transaction.messages, transaction.keys)

    # --- relays and brokers ---

    @rule(which=st.integers(0, 2))
    def runs(self, which):
        self._process(which).step()

    @rule(which=st.integers(0, 2), answers=st.lists(ANSWERS, min_size=2, max_size=6))
    def works(self, which, answers):
        """Runs a relay while its broker answers at once."""
        process = self._process(which)
        process.step()
        for answer in answers:
            if process.waiting:
                process.answer(0, answer)
            process.step()

    @rule(which=st.integers(0, 2), number=st.integers(0, 3), answer=ANSWERS, runs=st.booleans())
    def answers(self, which, number, answer, runs):
        process = self._process(which)
        if process.waiting:
            process.answer(number, answer)
        if runs:
            process.step()

    @rule(which=st.integers(0, 2))
    def dies(self, which):
        which %= len(self.processes)
        self.processes[which].dies()
        self.dead_processes.append(self.processes[which])
        self.processes[which] = Process(self, self.batches[which])

    @rule(seconds=st.sampled_from([0.01, 1.0, 6.0, 11.0, 35.0]))
    def passes(self, seconds):
        self.time.advance(seconds)
        self.place.advanced()

    # --- operators ---

    @rule(number=st.integers(0, 5), is_replay=st.booleans())
    def decides(self, number, is_replay):
        dead = self.table.list(["dead", "holding"])
        if not dead:
            return
        found = dead[number % len(dead)].id
        if is_replay:
            self.table.decide(found, lambda entry, now: replayed(entry, now, "ann"))
            self.model.replayed(found)
        else:
            self.table.decide(found, lambda entry, now: discarded(entry, now, "ann", "no"))
            self.model.discarded(found)

    # --- laws ---

    def _process(self, which):
        return self.processes[which % len(self.processes)]

    def begins(self, process, message):
        """A relay takes what its publisher raises for a failure: the machine raises it."""
        try:
            assert message.payload == f'{{"n":"{message.id}"}}'.encode()
            self.model.began(process, message, self.now(), self.is_dead)
        except (AssertionError, KeyError) as error:
            self.failures.append(error)
            raise

    def raises(self):
        if self.failures:
            raise self.failures[0]

    def is_dead(self, message_id):
        return self.table.get(message_id).state == "DEAD"

    def _states(self):
        return {e.id: e.phase for e in self.table.list(ALL, limit=1000)}

    def _settles(self):
        """Brokers acknowledge everything, until there is nothing left to publish."""
        ended = {Phase.SENT, Phase.DEAD, Phase.HOLDING, Phase.DISCARDED}
        for number in range(300):
            states = self._states()
            left = set(states.values()) - ended
            if not left or (self.model.holds and left == {Phase.PARKED} and number > 20):
                return
            for process in self.processes:
                process.step()
                while process.waiting:
                    process.answer(0, "acknowledged")
                    process.step()
            self.passes(1.0 if number % 10 else 35.0)
        raise AssertionError(f"not all is published in the end: {states}")

    def teardown(self):
        try:
            if hasattr(self, "model"):
                self._ends()
        finally:
            clock.install(self.before)
            self.table.close()

    def _ends(self):
        for transaction in self.open.values():
            if transaction.connection is not None:
                transaction.connection.close()
        try:
            self._settles()
            states = {name: STATES[phase] for name, phase in self._states().items()}
            self.model.left(states)
            dead = {name for name, state in states.items() if state == "DEAD"}
            assert dead <= self.inbox.put_of
        finally:
            for process in [*self.processes, *self.dead_processes]:
                process.dies()
                process.close_loop()


def machine(make):
    return type("Machine", (OutboxMachine,), {"database": staticmethod(make)})


@pytest.mark.req("EF-08")
@pytest.mark.req("EF-10")
def test_relays_publish_what_the_model_of_the_outbox_promises_on_sqlite(tmp_path_factory):
    """Committed messages in their order, each until it is sent, dead or discarded."""

    def make(time):
        return Sqlite(tmp_path_factory.mktemp("outbox"), time)

    run_state_machine_as_test(machine(make), settings=_settings(60))


@pytest.mark.req("EF-08")
@pytest.mark.req("EF-10")
def test_relays_publish_what_the_model_of_the_outbox_promises_on_postgresql(postgres_url):
    """Transactions end in any order, and beside each other."""
    make = lambda time: Postgres(postgres_url, time)  # noqa: E731
    run_state_machine_as_test(machine(make), settings=_settings(8))


def _settings(examples):
    return settings(
        max_examples=examples, stateful_step_count=50, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
