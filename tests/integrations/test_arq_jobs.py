"""mainstay.integrations.arq: jobs whose retries are driven by a policy, on a real Valkey."""

import asyncio
import doctest
import os

import pytest

from mainstay import Backoff, Jitter, RetryPolicy
from mainstay.errors import UsageError
from tests.integrations.workers import CASES, EXECUTIONS, TASK, WELL, Worker, made
from tests.processes import wait_until

if "MAINSTAY_APART" not in os.environ:
    pytest.skip(
        "arq needs redis < 6, and the other tests redis 8; `python tools/apart.py`, which is part"
        " of `make test-all`, runs these with the versions of tests/integrations/apart.txt",
        allow_module_level=True,
    )

import arq  # only in the folder of tools/apart.py
import redis
from arq.connections import RedisSettings

import mainstay.integrations.arq
from mainstay.integrations.arq import task

WORK = TASK.replace("ENGINE = mainstay.Engine(URL)\nSTORE = ENGINE.store\n", "")
TASKS = """
import asyncio, sys
from arq.connections import RedisSettings
from arq.worker import Worker
from mainstay.integrations.arq import task

async def run(ctx, key, script):
    work(key, script)

async def main():
    worker = Worker(
        [task(run, POLICY, name="work")], redis_settings=RedisSettings.from_dsn(URL),
        handle_signals=False, max_jobs=1, poll_delay=0.05, keep_result=3600,
    )
    worker.in_progress_timeout_s = 1.5  # by default ten seconds more than the job may take
    await worker.async_run()

asyncio.run(main())
"""


@pytest.fixture
def control(valkey_url):
    """An empty database."""
    with redis.Redis.from_url(f"{valkey_url.rpartition('/')[0]}/13") as control:
        control.flushdb()
        yield control


def on_pool(url, use):
    """Runs something with a connection of arq's."""

    async def main():
        pool = await arq.create_pool(RedisSettings.from_dsn(url))
        try:
            return await use(pool)
        finally:
            await pool.aclose()

    return asyncio.run(main())


async def send(pool):
    for key, (script, _) in CASES.items():
        await pool.enqueue_job("work", key, script, _job_id=f"job of {key}")


async def results_of(pool):
    jobs = {key: arq.jobs.Job(f"job of {key}", pool) for key in CASES}
    return {key: await job.result_info() for key, job in jobs.items()}


class Workers:
    """Three workers, each begun again when it was killed."""

    def __init__(self, folder, url):
        self._make = lambda: Worker(folder, url, "tasks.py")
        self._running = [self._make() for _ in range(3)]

    def keep(self):
        dead = [each for each in self._running if each.process.poll() is not None]
        for each in dead:
            each.kill()
            self._running.remove(each)
            self._running.append(self._make())

    def close(self):
        for each in self._running:
            each.kill()


@pytest.fixture
def results(tmp_path, valkey_url, control):
    """The result of each case."""
    (tmp_path / "tasks.py").write_text(WORK + TASKS)
    url = f"{valkey_url.rpartition('/')[0]}/13"
    on_pool(url, send)
    workers = Workers(tmp_path, url)

    def is_over():
        workers.keep()
        return all(control.exists(f"arq:result:job of {key}") for key in CASES)

    try:
        try:
            wait_until(is_over, "the jobs", 120.0)
        except AssertionError as error:
            raise AssertionError((tmp_path / "worker.log").read_text()) from error
        yield on_pool(url, results_of)
    finally:
        workers.close()


def test_a_job_is_executed_as_often_as_the_policy_allows(results, control):
    """Failures and deaths of the worker count; no attempt is lost, none is beyond.

    If the last attempt was killed, arq ends the job. A retry inside has its own attempts.
    """
    assert made(control) == EXECUTIONS
    assert {key for key, result in results.items() if result.success} == WELL
    assert "max 2 retries exceeded" in str(results["always killed"].result)
    assert int(control.get("inner:inside")) == 2 * 2


def tried(error, policy, number):
    """What a try with this number does."""

    async def job(ctx, order):
        assert order == 7
        raise error

    made = task(job, policy, timeout=9)
    assert (made.name, made.max_tries, made.timeout_s) == (job.__qualname__, 3, 9)
    with pytest.raises(Exception) as caught:
        asyncio.run(made.coroutine({"job_id": "j", "job_try": number}, 7))
    return caught.value


def three(**fields):
    waits = {"backoff": Backoff.constant(4.0), "jitter": Jitter.none()}
    return RetryPolicy(**{"on": ConnectionError, "attempts": 3, **waits, **fields})


def test_a_failure_that_is_retried_is_deferred_by_the_policy():
    """By arq's own exception, whose cause is the failure."""
    error = ConnectionError("gone")
    asked = tried(error, three(), 2)
    assert isinstance(asked, arq.Retry)
    assert (asked.defer_score, asked.__cause__) == (4000, error)


def test_what_is_final_is_the_result():
    """The last attempt, a failure that is not retried, and what the job itself asks for."""
    error = ConnectionError("gone")
    assert tried(error, three(), 3) is error
    assert error.__notes__ == [
        "mainstay: gave up on tried.<locals>.job after 3 attempts: no attempt left"
    ]
    wrong = ValueError("wrong")
    assert tried(wrong, three(), 1) is wrong
    own = arq.Retry(defer=1)
    assert tried(own, three(on=Exception), 1) is own


def test_the_examples_run():
    """As tests/test_api.py runs those of the other modules."""
    assert doctest.testmod(mainstay.integrations.arq).failed == 0


def test_two_numbers_of_tries_are_refused():
    """And what a queue cannot carry out."""
    with pytest.raises(UsageError, match="max_tries = 5 beside a policy of 3 attempts"):
        task(tried, three(), max_tries=5)
    with pytest.raises(UsageError, match="policy = 'once': must be a RetryPolicy"):
        task(tried, "once", max_tries=5)
    with pytest.raises(UsageError, match="does not carry out deadline"):
        task(tried, three(deadline=1.0))
