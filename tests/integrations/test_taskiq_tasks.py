"""mainstay.integrations.taskiq: tasks whose retries are driven by a policy."""

import asyncio

import pytest
import redis
import taskiq
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

import mainstay.runtime.clock as clock
from mainstay import Backoff, RetryPolicy
from mainstay.errors import StoreUnavailable, UsageError
from mainstay.integrations.taskiq import RetryMiddleware, _Refusing
from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time
from tests.integrations.workers import CASES, EXECUTIONS, TASK, WELL, Worker, made
from tests.processes import wait_until

TASKS = """
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker
from mainstay.integrations.taskiq import RetryMiddleware

broker = RedisStreamBroker(
    URL, consumer_id="0", xread_block=50, xread_count=1, idle_timeout=4000,
    unacknowledged_lock_timeout=10.0,
)
broker = broker.with_result_backend(RedisAsyncResultBackend(URL))
broker = broker.with_middlewares(RetryMiddleware(POLICY, store=STORE))

@broker.task("work")
async def task(key, script):
    work(key, script)

@broker.task("tick")
async def tick():
    pass
"""
POLICY = RetryPolicy(on=ConnectionError, attempts=3, backoff=Backoff.constant(0.0))


@pytest.fixture
def control(valkey_url):
    """An empty database."""
    with redis.Redis.from_url(f"{valkey_url.rpartition('/')[0]}/12") as control:
        control.flushdb()
        yield control


async def send(url):
    """Sends the cases; their ids."""
    broker = RedisStreamBroker(url, consumer_id="0")
    await broker.startup()
    sent = {}
    for key, (script, _) in CASES.items():
        kicker = taskiq.kicker.AsyncKicker("work", broker, {})
        sent[key] = (await kicker.kiq(key, script)).task_id
    await broker.shutdown()
    return sent


def tick(control):
    """One more message if all have been fetched.

    taskiq-redis looks for what a dead worker has left only after it has fetched something new.
    """
    if control.xinfo_groups("taskiq")[0]["lag"] == 0:
        message = taskiq.TaskiqMessage(
            task_id="tick", task_name="tick", labels={}, args=[], kwargs={}
        )
        data = taskiq.InMemoryBroker().formatter.dumps(message).message
        control.xadd("taskiq", {"data": data})


async def results_of(url, sent):
    backend = RedisAsyncResultBackend(url)
    found = {key: await backend.get_result(task_id) for key, task_id in sent.items()}
    await backend.shutdown()
    return found


@pytest.fixture
def results(tmp_path, valkey_url, control):
    """The result of each case, by workers that are killed and started again by Taskiq itself."""
    (tmp_path / "tasks.py").write_text(TASK + TASKS)
    url = f"{valkey_url.rpartition('/')[0]}/12"
    sent = asyncio.run(send(url))
    worker = Worker(
        tmp_path, url, "-m", "taskiq", "worker", "tasks:broker", "--workers", "3",
        "--max-async-tasks", "1", "--max-fails", "-1",
    )  # fmt: skip

    def is_over():
        tick(control)
        return control.exists(*sent.values()) == len(sent)

    try:
        try:
            wait_until(is_over, "the tasks", 240.0)
        except AssertionError as error:
            raise AssertionError(worker.log.read_text()) from error
        yield asyncio.run(results_of(url, sent))
    finally:
        worker.kill()


def test_a_task_is_executed_as_often_as_the_policy_allows(results, control):
    """Failures and deaths of the worker count; no attempt is lost, none is beyond.

    If the last attempt was killed, the outcome is unknown. A retry inside has its own attempts.
    """
    assert made(control) == EXECUTIONS
    assert {key for key, result in results.items() if not result.is_err} == WELL
    assert "work may or may not have been applied" in str(results["always killed"].error)
    assert int(control.get("inner:inside")) == 2 * 2


class Broker:
    """A broker in memory with tasks that fail, and what was sent."""

    def __init__(self, error, *middlewares):
        self.broker = taskiq.InMemoryBroker(await_inplace=True).with_middlewares(*middlewares)
        self.calls = []

        @self.broker.task("fail")
        async def fail(*, order=1):
            self.calls.append(order)
            raise error

        self.task = fail

    def run(self):
        """The result, after all attempts."""
        return asyncio.run(self._run())

    async def _run(self):
        await self.broker.startup()
        sent = await self.task.kiq(order=7)
        result = await sent.get_result()
        await self.broker.shutdown()
        return result


def test_the_last_failure_is_the_result_with_the_note():
    """Those before it leave no result."""
    broker = Broker(ConnectionError("gone"), RetryMiddleware(POLICY, store=None))
    assert broker.run().error.__notes__ == [
        "mainstay: gave up on fail after 3 attempts: no attempt left"
    ]
    assert broker.calls == [7, 7, 7]


def test_a_message_that_begins_below_zero_has_no_more_attempts():
    """The number of retries is part of a message, which anybody may send."""
    broker = Broker(ConnectionError("gone"), RetryMiddleware(POLICY, store=None))
    broker.task = broker.task.kicker().with_labels(_retries=-5)
    assert broker.run().is_err
    assert broker.calls == [7, 7, 7]


@pytest.mark.parametrize("error", [taskiq.exceptions.TaskRejectedError(), KeyboardInterrupt()])
def test_what_is_no_failure_is_not_retried(error):
    """A task that rejects its message, and what ends a program."""
    policy = POLICY.replace(on=Exception)
    broker = Broker(error, RetryMiddleware(policy, store=None))
    assert broker.run().is_err
    assert broker.calls == [7]


class Away(MemoryStore):
    """A store that does not answer the first time."""

    is_away = True

    async def atransact(self, space, key, decide):
        if self.is_away:
            self.is_away = False
            raise StoreUnavailable(self.url, "write", "away")
        return await super().atransact(space, key, decide)


def test_an_attempt_that_cannot_be_counted_is_made_later():
    """With its arguments: a task that ran uncounted could exceed the policy."""
    broker = Broker(ConnectionError("gone"), RetryMiddleware(POLICY, store=Away()))
    assert isinstance(broker.run().error, ConnectionError)
    assert broker.calls == [7, 7]  # of three, one was not begun


@pytest.mark.parametrize("use", [{}.update, list, lambda given: dict(**given)])
def test_arguments_that_refuse_raise_however_they_are_handed_over(use):
    """Taskiq copies them into others; a copy that skipped them would run the task."""
    with pytest.raises(OSError, match="refused"):
        use(_Refusing({"order": 7}, OSError("refused")))


def test_an_attempt_waits_in_the_worker_until_it_is_due():
    """Not longer than the delay, if the clocks of two machines differ."""
    waits = []

    async def attempt(until, delay):
        message = taskiq.TaskiqMessage(
            task_id="a", task_name="fail", args=[], kwargs={},
            labels={"delay": delay, "mainstay_until": until, "_retries": 1},
        )  # fmt: skip
        before = clock.current.monotonic()
        message = await RetryMiddleware(POLICY, store=None).pre_execute(message)
        waits.append(round(clock.current.monotonic() - before, 3))
        return message.labels["mainstay_attempt"]

    with virtual_time():
        wall = clock.current.wall()
        for until, delay in ((wall + 5.0, 5.0), (wall + 3600.0, 5.0), (wall - 5.0, 5.0)):
            assert asyncio.run(attempt(until, delay)) == 2
    assert waits == [5.0, 5.0, 0.0]


class Source(taskiq.ScheduleSource):
    """Keeps what was scheduled."""

    def __init__(self):
        self.added = []

    async def get_schedules(self):
        return self.added

    async def add_schedule(self, schedule):
        self.added.append(schedule)


def test_a_schedule_source_holds_a_task_back():
    """With its id, its arguments and the number of retries."""
    source = Source()
    retries = RetryMiddleware(POLICY, store=None, schedule_source=source)
    broker = Broker(ConnectionError("gone"), retries)

    async def once():
        await broker.broker.startup()
        return await broker.task.kiq(order=7)

    sent = asyncio.run(once())
    (held,) = source.added
    assert (held.task_id, held.kwargs) == (sent.task_id, {"order": 7})
    assert (int(held.labels["_retries"]), held.time is None) == (1, False)


@pytest.mark.parametrize("other", [taskiq.SimpleRetryMiddleware(), taskiq.SmartRetryMiddleware()])
def test_a_broker_that_would_retry_by_two_rules_is_refused(other):
    """When it starts."""
    with pytest.raises(UsageError, match="sent twice"):
        Broker(ConnectionError("gone"), RetryMiddleware(POLICY, store=None), other).run()
