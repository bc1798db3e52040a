"""mainstay.integrations.celery: tasks whose retries are driven by a policy."""

import celery
import pytest
import redis

import mainstay
from mainstay.errors import UsageError
from mainstay.integrations.celery import Task
from mainstay.stores.memory import MemoryStore
from tests.integrations.workers import CASES, EXECUTIONS, TASK, WELL, Worker, made
from tests.processes import wait_until

TASKS = """
from celery import Celery
from mainstay.integrations.celery import Task
app = Celery("tasks", broker=URL, backend=URL)
app.conf.update(broker_connection_retry_on_startup=True, worker_prefetch_multiplier=1)

@app.task(
    base=Task, policy=POLICY, store=STORE, acks_late=True, reject_on_worker_lost=True, name="work"
)
def task(key, script):
    work(key, script)
"""
POLICY = mainstay.RetryPolicy(on=ConnectionError, attempts=3)


@pytest.fixture
def control(valkey_url):
    """An empty database."""
    with redis.Redis.from_url(f"{valkey_url.rpartition('/')[0]}/10") as control:
        control.flushdb()
        yield control


@pytest.fixture
def outcomes(tmp_path, valkey_url, control):
    """The result of each case, by a prefork worker whose processes kill themselves."""
    (tmp_path / "tasks.py").write_text(TASK + TASKS)
    url = f"{valkey_url.rpartition('/')[0]}/10"
    worker = Worker(
        tmp_path, url, "-m", "celery", "-A", "tasks", "worker", "--pool", "prefork",
        "--concurrency", "2", "--without-gossip", "--without-mingle", "--without-heartbeat",
    )  # fmt: skip
    app = celery.Celery("sender", broker=url, backend=url, set_as_current=False)
    try:
        sent = {key: app.send_task("work", (key, script)) for key, (script, _) in CASES.items()}
        try:
            wait_until(lambda: all(each.ready() for each in sent.values()), "the tasks", 90.0)
        except AssertionError as error:
            states = {key: each.state for key, each in sent.items()}
            raise AssertionError(f"{states}\n{worker.log.read_text()}") from error
        yield {key: (each.state, str(each.result)) for key, each in sent.items()}
    finally:
        worker.kill()
        app.close()


def test_a_task_is_executed_as_often_as_the_policy_allows(outcomes, control):
    """Failures and deaths of the worker's process count; no attempt is lost, none is beyond.

    If the last attempt was killed, the outcome is unknown. A retry inside has its own attempts.
    """
    assert made(control) == EXECUTIONS
    assert {key for key, (state, _) in outcomes.items() if state == "SUCCESS"} == WELL
    assert outcomes["always killed"][1].startswith("work may or may not have been applied")
    assert int(control.get("inner:inside")) == 2 * 2


@pytest.fixture
def app():
    with celery.Celery("shop", set_as_current=False) as app:
        yield app


def nothing():
    """A task that is never run."""


def test_the_note_is_on_what_a_task_is_given_up_with(app):
    """What is final at once has the rule that decided; the last attempt has their number."""
    errors = [ConnectionError("gone"), ValueError("wrong")]

    @app.task(base=Task, policy=POLICY)
    def fail(number):
        raise errors[number]

    notes = [fail.apply((number,)).result.__notes__ for number in (0, 1)]
    assert notes[0] == [f"mainstay: gave up on {fail.name} after 3 attempts: no attempt left"]
    assert notes[1] == ["mainstay: not retried: ValueError is not named by on=ConnectionError"]


def test_a_call_without_a_worker_is_a_plain_call(app):
    """Also inside a task: it has no message that could be delivered again."""
    calls = []

    @app.task(base=Task, policy=POLICY)
    def fail(depth):
        calls.append(depth)
        if depth:
            return fail(depth - 1)
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        fail(0)
    assert calls == [0]
    assert fail.apply((1,)).state == "FAILURE"
    assert calls[1:] == [1, 0] * 3


def test_what_a_task_asks_celery_for_is_done_within_the_same_attempts(app):
    """`self.retry()`, Ignore and Reject are no failures."""
    calls = []

    @app.task(base=Task, policy=POLICY, bind=True)
    def again(self):
        calls.append(self.request.retries)
        raise self.retry(countdown=0)

    assert again.apply().state == "FAILURE"
    assert calls == [0, 1, 2]


@pytest.mark.parametrize(("most", "executions"), [(50, 3), (1, 2)])
def test_a_task_cannot_ask_for_more_attempts_than_the_policy_has(app, most, executions):
    """Nor does a limit of Celery's go beyond it; one below it holds."""
    calls = []

    @app.task(base=Task, policy=POLICY, bind=True)
    def again(self):
        calls.append(1)
        raise self.retry(countdown=0, max_retries=most)

    assert again.apply().state == "FAILURE"
    assert len(calls) == executions


def test_a_message_that_begins_below_zero_has_no_more_attempts(app):
    """The number of retries is part of a message, which anybody may send."""
    calls = []

    @app.task(base=Task, policy=POLICY)
    def fail():
        calls.append(1)
        raise ConnectionError("gone")

    assert fail.apply(retries=-5).state == "FAILURE"
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "must be a RetryPolicy"),
        ({"policy": POLICY, "autoretry_for": (OSError,)}, "autoretry_for"),
        ({"policy": POLICY, "acks_late": True}, "acks_late and no store"),
        ({"policy": POLICY, "store": "redis://localhost"}, "must be a store"),
        ({"policy": POLICY.replace(deadline=5.0)}, "does not carry out deadline"),
    ],
)
def test_a_task_that_could_exceed_its_policy_is_refused(app, options, text):
    """When it is made, and not when it fails."""
    with pytest.raises(UsageError, match=text):
        app.task(base=Task, lazy=False, **options)(nothing)


def test_acks_late_of_the_application_needs_a_store_too(app):
    """The setting is read when the task is made."""
    app.conf.task_acks_late = True
    with pytest.raises(UsageError, match="acks_late"):
        app.task(base=Task, lazy=False, policy=POLICY, name="without")(nothing)
    app.task(base=Task, lazy=False, policy=POLICY, store=MemoryStore(), name="with")(nothing)
