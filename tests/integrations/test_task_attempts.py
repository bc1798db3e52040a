"""What a policy makes of a failed task, whatever the queue."""

import asyncio
from email.utils import formatdate

import pytest

import mainstay.runtime.clock as clock
from mainstay import Backoff, Jitter, Kind, RetryPolicy, retry
from mainstay.core.retry.give_up import newest_mark
from mainstay.core.retry.policy import KindRule
from mainstay.errors import OutcomeUnknown, StoreUnavailable, UsageError
from mainstay.integrations.task_attempts import Attempts
from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time

PLAIN = RetryPolicy(
    on=ConnectionError, attempts=4, backoff=Backoff.exponential(1.0), jitter=Jitter.none()
)


def gone(**attributes):
    error = ConnectionError("gone")
    vars(error).update(attributes)
    return error


def test_the_delay_is_that_of_the_policy_for_the_attempt_of_the_message():
    """Nothing is kept between attempts: another worker makes the next one."""
    delays = [Attempts(PLAIN, None).delay("pay", "id", n, gone()) for n in (1, 2, 3, 4)]
    assert delays == [1.0, 2.0, 4.0, None]


def test_a_failure_that_is_final_has_the_note():
    """The last attempt, and a failure that the policy does not retry."""
    last, wrong = gone(), ValueError("wrong")
    assert [Attempts(PLAIN, None).delay("pay", "id", 4, each) for each in (last, wrong)] == [
        None
    ] * 2
    assert last.__notes__ == ["mainstay: gave up on pay after 4 attempts: no attempt left"]
    why = "not retryable: ValueError is not named by on=ConnectionError"
    assert wrong.__notes__ == [f"mainstay: gave up on pay after 4 attempts: {why}"]


def test_a_wait_that_the_server_asks_for_is_kept():
    """As seconds and as a date; one that is longer than allowed is final."""
    attempts = Attempts(PLAIN, None)
    with virtual_time():
        date = formatdate(clock.current.wall() + 30.0, usegmt=True)
        assert attempts.delay("pay", "id", 1, gone(retry_after=30)) == 30.0
        assert 28.0 < attempts.delay("pay", "id", 1, gone(retry_after=date)) < 32.0
    assert attempts.delay("pay", "id", 1, gone(retry_after=61)) is None


def test_an_attempt_that_could_not_be_counted_is_made_later():
    """Whatever the policy retries: nothing was executed. A store of the task's own is another."""
    attempts = Attempts(PLAIN, MemoryStore())
    away = StoreUnavailable(attempts.store.url, "write", "away")
    assert attempts.delay("pay", "id", 1, away) == 1.0
    assert attempts.delay("pay", "id", 4, away) is None
    assert attempts.delay("pay", "id", 1, StoreUnavailable("redis://b", "write", "away")) is None


def test_tasks_that_fail_together_do_not_return_together():
    """The jitter depends on the task's id, and is the same in every process."""
    attempts = Attempts(PLAIN.replace(jitter=Jitter.full()), None)
    delays = {attempts.delay("pay", f"id-{number}", 1, gone()) for number in range(20)}
    assert len(delays) == 20
    assert attempts.delay("pay", "id-1", 1, gone()) in delays


def test_a_jitter_that_depends_on_the_delay_before_has_it():
    """It is worked out again from the task's id."""
    policy = PLAIN.replace(jitter=Jitter.decorrelated(), attempts=50)
    delays = [Attempts(policy, None).delay("pay", "id", n, gone()) for n in range(1, 30)]
    assert max(delays) > 3.0  # the most that there is after a delay of zero


def test_a_limit_for_a_kind_counts_all_attempts():
    """A queue keeps the number of attempts, and not their kinds."""
    policy = RetryPolicy(attempts=9, per_kind={Kind.TRANSIENT: KindRule(max_attempts=2)})
    attempts = Attempts(policy, None)
    assert attempts.delay("pay", "id", 1, gone()) is not None
    assert attempts.delay("pay", "id", 2, gone()) is None


def test_a_retry_inside_does_not_make_the_task_final():
    """Whatever the policy has as `nested`, and though its mark is one that others honour."""
    inner = RetryPolicy(on=ConnectionError, attempts=2, backoff=Backoff.constant(0.0))

    @retry(on=KeyError)  # while it is under way, a mark has a moment
    def given_up():
        with pytest.raises(ConnectionError) as raised:
            inner.call(_raise, gone())
        return raised.value

    error = given_up()
    assert newest_mark(error) is not None
    attempts = Attempts(PLAIN.replace(nested="refuse"), None)
    assert attempts.delay("pay", "id", 1, error) == 1.0


def _raise(error):
    raise error


def test_a_store_counts_by_task():
    """The number of the message counts if it is greater."""
    attempts = Attempts(PLAIN, MemoryStore())
    assert [attempts.begin("pay", "a", n) for n in (1, 1, 3)] == [1, 2, 3]
    assert attempts.begin("pay", "b", 1) == 1
    assert asyncio.run(attempts.abegin("pay", "b", 1)) == 2
    attempts.begin("pay", "a", 1)
    with pytest.raises(OutcomeUnknown) as refused:
        attempts.begin("pay", "a", 1)
    assert refused.value.__notes__ == [
        "mainstay: attempt 4 of 4 at pay has begun, and its worker was lost"
    ]
    assert attempts.delay("pay", "a", 5, refused.value) is None


def test_without_a_store_the_message_counts():
    """In an event loop too."""
    attempts = Attempts(PLAIN, None)
    assert attempts.begin("pay", "a", 2) == asyncio.run(attempts.abegin("pay", "a", 2)) == 2


async def _is_busy(error):
    return True


@pytest.mark.parametrize(
    "policy",
    [
        None,
        PLAIN.replace(attempt_timeout=1.0),
        PLAIN.replace(deadline=1.0),
        PLAIN.replace(retry_if_result=callable),
        PLAIN.replace(before_retry=print),
        RetryPolicy(on=_is_busy),
    ],
)
def test_a_policy_that_a_queue_cannot_carry_out_is_refused(policy):
    """It would be carried out in part."""
    with pytest.raises(UsageError):
        Attempts(policy, None)


def test_a_function_of_the_policy_that_raises_is_warned_of():
    """The failure is decided without it."""

    def broken(n):
        raise KeyError(n)

    policy = PLAIN.replace(backoff=Backoff.custom(broken, max_delay=7.0))
    with pytest.warns(match="raised KeyError"):
        assert Attempts(policy, None).delay("pay", "id", 1, gone()) == 7.0
