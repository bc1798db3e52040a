"""mainstay.integrations.dramatiq: actors whose retries are driven by a policy."""

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.brokers.stub import StubBroker

from mainstay import Backoff, RetryPolicy
from mainstay.errors import OutcomeUnknown, StoreUnavailable, UsageError
from mainstay.integrations.dramatiq import Retries, attach
from mainstay.stores.memory import MemoryStore
from tests.integrations.workers import CASES, EXECUTIONS, TASK, WELL, Worker, made
from tests.processes import wait_until

ACTORS = """
import sys, time
import dramatiq
from dramatiq.brokers.redis import RedisBroker
from mainstay.integrations.dramatiq import attach

broker = RedisBroker(url=URL, heartbeat_timeout=4000, maintenance_chance=1_000_000)
attach(broker, POLICY, store=STORE)
dramatiq.set_broker(broker)

@dramatiq.actor(actor_name="work")
def actor(key, script):
    work(key, script)

if __name__ == "__main__":
    worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=100)
    worker.start()
    time.sleep(300)
"""
POLICY = RetryPolicy(on=ConnectionError, attempts=3, backoff=Backoff.constant(0.0))
WORKERS = 3


@pytest.fixture
def control(valkey_url):
    """An empty database."""
    with redis.Redis.from_url(f"{valkey_url.rpartition('/')[0]}/11") as control:
        control.flushdb()
        yield control


def dead(control):
    """The keys of what is left as dead."""
    left = map(dramatiq.Message.decode, control.hvals("dramatiq:default.XQ.msgs"))
    return {message.args[0] for message in left}


@pytest.fixture
def failed(tmp_path, valkey_url, control):
    """What is left as dead of the cases, by workers that die and are started again."""
    (tmp_path / "actors.py").write_text(TASK + ACTORS)
    url = f"{valkey_url.rpartition('/')[0]}/11"
    broker = RedisBroker(url=url)
    for key, (script, _) in CASES.items():
        broker.enqueue(dramatiq.Message("default", "work", (key, script), {}, {}))
    workers = [Worker(tmp_path, url, "actors.py") for _ in range(WORKERS)]

    def is_over():
        for number, each in enumerate(workers):
            if each.process.poll() is not None:
                workers[number] = Worker(tmp_path, url, "actors.py")
        return len(control.keys("done:*")) + len(dead(control)) >= len(CASES)

    try:
        wait_until(is_over, "the messages", 240.0)
        yield dead(control)
    finally:
        for each in workers:
            each.kill()
        broker.close()


def test_an_actor_is_executed_as_often_as_the_policy_allows(failed, control):
    """Failures and deaths of the worker count; no attempt is lost, none is beyond.

    A retry inside has its own attempts.
    """
    assert made(control) == EXECUTIONS
    assert failed == EXECUTIONS.keys() - WELL
    assert int(control.get("inner:inside")) == 2 * 2


@pytest.fixture
def broker():
    broker = attach(StubBroker(), POLICY, store=MemoryStore())
    broker.emit_after("process_boot")
    yield broker
    broker.close()


def run(broker, actor):
    """Sends a message, and waits until the queues are empty."""
    worker = dramatiq.Worker(broker, worker_timeout=10, worker_threads=1)
    worker.start()
    message = actor.send()
    broker.join("default", fail_fast=False)
    worker.join()
    worker.stop()
    return message


def failing(broker, error, **options):
    """An actor that raises that each time, and its calls."""
    calls = []

    @dramatiq.actor(broker=broker, **options)
    def fail():
        calls.append(1)
        raise error

    return fail, calls


def test_a_message_that_begins_below_zero_has_no_more_attempts(broker):
    """The number of retries is part of a message, which anybody may send."""
    fail, calls = failing(broker, ConnectionError("gone"))
    fail.send = lambda: fail.send_with_options(retries=-5)
    run(broker, fail)
    assert len(calls) == 3


def test_an_actor_may_have_a_policy_of_its_own(broker):
    """The policy of the broker is for those that have none."""
    fail, calls = failing(broker, ConnectionError("gone"), policy=POLICY.replace(attempts=2))
    run(broker, fail)
    assert len(calls) == 2


@pytest.mark.parametrize(("delay", "executions"), [(0, 3), (None, 1)])
def test_a_retry_that_an_actor_asks_for_is_within_the_same_attempts(broker, delay, executions):
    """One without a delay is a failure like others, which this policy does not name."""
    fail, calls = failing(broker, dramatiq.Retry("later", delay=delay))
    run(broker, fail)
    assert len(calls) == executions


def test_what_an_actor_throws_is_not_retried(broker):
    """Dramatiq's own option stays as it is."""
    fail, calls = failing(broker, ConnectionError("gone"), throws=ConnectionError)
    run(broker, fail)
    assert len(calls) == 1


def test_the_actor_for_what_is_exhausted_gets_the_message(broker):
    """Dramatiq's own option stays as it is."""
    given = []

    @dramatiq.actor(broker=broker)
    def exhausted(message, retries):
        given.append(message["message_id"])

    fail, _ = failing(broker, ConnectionError("gone"), on_retry_exhausted="exhausted")
    message = run(broker, fail)
    assert given == [message.message_id]


def test_the_outcome_of_the_last_attempt_that_was_killed_is_unknown(broker):
    """It is not executed again, and that is what the message failed with."""
    fail, calls = failing(broker, ConnectionError("gone"))
    message = fail.message()
    ours = next(each for each in broker.middleware if isinstance(each, Retries))
    for _ in range(3):  # as many as were begun by workers that are gone
        ours.before_process_message(broker, message)
    worker = dramatiq.Worker(broker, worker_timeout=10, worker_threads=1)
    worker.start()
    message.options.pop("mainstay_attempt")
    broker.enqueue(message)
    with pytest.raises(OutcomeUnknown, match=r"fail may or may not.*before it is sent again"):
        broker.join("default", fail_fast=True)
    worker.stop()
    assert calls == []


class Away(MemoryStore):
    """A store that does not answer the first time."""

    is_away = True

    def transact(self, space, key, decide):
        if self.is_away:
            self.is_away = False
            raise StoreUnavailable(self.url, "write", "away")
        return super().transact(space, key, decide)


def test_an_attempt_that_cannot_be_counted_is_made_later():
    """An actor that ran uncounted could exceed the policy."""
    broker = attach(StubBroker(), POLICY, store=Away())
    broker.emit_after("process_boot")
    fail, calls = failing(broker, ConnectionError("gone"))
    run(broker, fail)
    assert len(calls) == 2  # of three, one was not begun
    broker.close()


def test_what_would_retry_by_two_rules_is_refused(broker):
    """When it is declared."""
    with pytest.raises(UsageError, match="max_retries"):
        failing(broker, ValueError(), max_retries=5)
    twice = StubBroker()
    twice.add_middleware(Retries(POLICY, store=None))
    with pytest.raises(UsageError, match="another middleware"):
        failing(twice, ValueError())
    failing(broker, ValueError())
    with pytest.raises(UsageError, match="has actors"):
        attach(broker, POLICY, store=None)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (POLICY.replace(deadline=5.0), "fail: a queue does not carry out deadline of a policy"),
        (POLICY.replace(attempt_timeout=5.0), "does not carry out attempt_timeout"),
        ("once", "fail: policy = 'once': must be a RetryPolicy"),
        (None, "policy = None: must be a RetryPolicy"),
    ],
)
def test_a_policy_of_an_actor_that_cannot_be_carried_out_is_refused(broker, policy, text):
    """Dramatiq logs what else a middleware raises, and the policy of the broker was used."""
    with pytest.raises(UsageError, match=text):
        failing(broker, ConnectionError("gone"), policy=policy)
    assert not broker.actors


def test_a_broker_without_dramatiqs_own_middleware_gets_ours():
    """Then nothing is replaced."""
    broker = attach(StubBroker(middleware=[]), POLICY, store=None)
    assert [type(each) for each in broker.middleware] == [Retries]
