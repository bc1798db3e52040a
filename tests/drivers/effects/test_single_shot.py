"""One attempt at a function: what becomes of its value, its failure, and of retries inside."""

import asyncio
import concurrent.futures

import pytest

import mainstay
from mainstay import NestedRetryError, RetryPolicy
from mainstay.core.effects.transport import EnumInfraTransportType
from mainstay.drivers.effects.single_shot import ATTRIBUTE, Effect, failed, single_shot
from mainstay.errors import UsageError, WrapError
from mainstay.testing import virtual_time

POLICY = RetryPolicy(name="inner", max_attempts=3, retry_on=OSError)


def once(function, idempotency="idempotent"):
    """The function as an effect."""
    effect = Effect(function, EnumInfraTransportType.DATABASE, None, idempotency)
    return single_shot(function, effect)


@pytest.mark.req("EF-01")
def test_a_function_is_called_once_and_its_time_is_taken(driver):
    """Sync and async; success has the value, failure the exception as it was raised."""
    calls, error = [], ConnectionError("gone")

    def work(outcome):
        calls.append(outcome)
        if isinstance(outcome, Exception):
            raise outcome
        time.advance(0.25)
        return outcome

    with virtual_time() as time:
        result = driver.run(once(driver.colour(work)), 7)
        assert (result.success, result.value, result.error) == (True, 7, None)
        assert result.duration_ms == pytest.approx(250.0)
        result = driver.run(once(driver.colour(work)), error)
    assert (result.success, result.error, result.error_type) == (
        False, "gone", "InfraConnectionError",
    )  # fmt: skip
    assert result.exception is error
    assert calls == [7, error]


@pytest.mark.req("EF-01")
def test_an_error_that_is_not_known_is_named_by_its_class(driver):
    """And one without a text by its class too; no secret is in the words."""

    def work(error):
        raise error

    run = once(driver.colour(work))
    assert driver.run(run, KeyError("id")).error_type == "KeyError"
    assert driver.run(run, RuntimeError()).error == "RuntimeError"
    shown = driver.run(run, OSError("no route to postgresql://ann:hunter2@db/shop")).error
    assert "no route" in shown
    assert "hunter2" not in shown


@pytest.mark.req("EF-01")
def test_a_cancellation_passes(driver):
    """It ends the task, not the effect."""

    def work():
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        driver.run(once(driver.colour(work)))


@pytest.mark.req("EF-01", "EF-02")
def test_a_retry_inside_is_refused_before_its_second_attempt(driver):
    """By every way to retry, with the name of both and the failure as the cause."""
    for inner in (POLICY, mainstay.retry(on=OSError, attempts=3)):
        function = driver.scripted(OSError("down"), "never")
        retried = inner(function)
        work = retried if driver.is_async else driver.colour(retried)
        with virtual_time(), pytest.raises(NestedRetryError) as refused:
            driver.run(once(work))
        assert len(function.script.calls) == 1
        assert isinstance(refused.value.__cause__, OSError)


@pytest.mark.req("EF-02")
def test_a_block_of_attempts_inside_is_refused_too():
    """Before its second attempt."""
    made = []

    def work():
        for attempt in POLICY.attempts():
            with attempt:
                made.append(attempt.number)
                raise OSError("down")

    with virtual_time(), pytest.raises(NestedRetryError) as refused:
        once(work)()
    assert made == [1]
    assert "an Orchestrator retries an effect" in refused.value.hint
    assert "nested=" not in refused.value.hint, "an effect has no place for it"


@pytest.mark.req("EF-02")
def test_a_retry_in_another_thread_is_seen_by_what_it_gave_up_on():
    """It has made its attempts by then; the mark on its failure names it."""
    function = mainstay.testing.scripted(*[OSError("down")] * 3)
    retried = POLICY(function)

    def work():
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(retried).result()

    with virtual_time(), pytest.raises(NestedRetryError, match="retries inside") as refused:
        once(work)()
    assert refused.value.inner_attempts == 3
    assert "an Orchestrator retries an effect" in refused.value.hint


@pytest.mark.req("EF-02")
def test_a_mark_from_before_is_no_retry_inside():
    """An exception that an earlier retry gave up on may be raised again."""
    error = OSError("down")
    with virtual_time(), pytest.raises(OSError, match="down"):
        POLICY(mainstay.testing.scripted(error, error, error))()

    def work():
        raise error

    assert once(work)().error == "down"


def test_a_retry_that_succeeds_at_once_is_allowed(driver):
    """Nothing was repeated."""
    retried = POLICY(driver.scripted("row"))
    work = retried if driver.is_async else driver.colour(retried)
    assert driver.run(once(work)).value == "row"


def test_a_method_is_an_effect():
    """Bound to its object, with its name."""

    class Users:
        def insert(self, name):
            """Adds a user."""
            return f"{name} of {type(self).__name__}"

        insert = once(insert)

    assert Users().insert("ann").value == "ann of Users"
    assert getattr(Users().insert, ATTRIBUTE).name.endswith("Users.insert")
    assert Users.insert.__doc__ == "Adds a user."


def test_what_cannot_be_called_is_refused():
    """When it is decorated."""
    with pytest.raises(WrapError):
        once(7)


def test_a_mistake_of_the_program_is_raised():
    """It is no failure of the infrastructure."""
    with pytest.raises(UsageError):
        failed(UsageError("wrong"), 0.0)
    assert failed(OSError("down"), 1.5).duration_ms == 1.5
