"""The control-plane front door: categories, the policy matrix, and the manager of both."""

import asyncio
import json
import random

import pytest

from mainstay import (
    AttemptTimeout,
    Backoff,
    PolicyError,
    PolicyNotFoundWarning,
    WrapError,
    events,
)
from mainstay import RetryPolicy as EnginePolicy
from mainstay.profiles.control_plane import (
    POLICIES,
    IdempotencyManager,
    RetryCategory,
    RetryError,
    RetryManager,
    RetryPolicy,
    get_retry_manager,
)
from mainstay.testing import virtual_time

CODES = """
NATS_CONNECT = "RETRY_NATS_CONNECT"
NATS_PUBLISH = "RETRY_NATS_PUBLISH"
NATS_SUBSCRIBE = "RETRY_NATS_SUBSCRIBE"
NATS_STREAM_CREATE = "RETRY_NATS_STREAM_CREATE"
KV_CREATE = "RETRY_KV_CREATE"
KV_GET = "RETRY_KV_GET"
KV_PUT = "RETRY_KV_PUT"
KV_DELETE = "RETRY_KV_DELETE"
EXECUTION_INTENT = "RETRY_EXECUTION_INTENT"
EXECUTION_CONTAINMENT = "RETRY_EXECUTION_CONTAINMENT"
EXECUTION_EXPIRATION = "RETRY_EXECUTION_EXPIRATION"
APPROVAL_CHECK = "RETRY_APPROVAL_CHECK"
APPROVAL_GRANT = "RETRY_APPROVAL_GRANT"
REPLAY_PROCESSING = "REPLAY_REPLAY_PROCESSING"
REPLAY_VALIDATION = "REPLAY_REPLAY_VALIDATION"
API_REQUEST = "RETRY_API_REQUEST"
API_VALIDATION = "RETRY_API_VALIDATION"
"""
MATRIX = """
NATS_CONNECT | 5 | 1.0s | 30.0s | 2.0x | 10%
NATS_PUBLISH | 3 | 0.5s | 10.0s | 2.0x | 10%
NATS_SUBSCRIBE | 3 | 0.5s | 10.0s | 2.0x | 10%
NATS_STREAM_CREATE | 2 | 2.0s | 60.0s | 2.0x | 10%
KV_CREATE | 2 | 1.0s | 30.0s | 2.0x | 10%
KV_GET | 3 | 0.5s | 10.0s | 2.0x | 10%
KV_PUT | 3 | 0.5s | 10.0s | 2.0x | 10%
KV_DELETE | 2 | 1.0s | 30.0s | 2.0x | 10%
EXECUTION_INTENT | 2 | 2.0s | 60.0s | 2.0x | 10%
EXECUTION_CONTAINMENT | 2 | 2.0s | 60.0s | 2.0x | 10%
EXECUTION_EXPIRATION | 1 | 1.0s | 30.0s | 2.0x | 10%
APPROVAL_CHECK | 3 | 1.0s | 30.0s | 2.0x | 10%
APPROVAL_GRANT | 2 | 2.0s | 60.0s | 2.0x | 10%
REPLAY_PROCESSING | 1 | 1.0s | 30.0s | 2.0x | 10%
REPLAY_VALIDATION | 2 | 1.0s | 30.0s | 2.0x | 10%
API_REQUEST | 3 | 1.0s | 30.0s | 2.0x | 10%
API_VALIDATION | 2 | 0.5s | 10.0s | 2.0x | 10%
"""
ROWS = [row.split(" | ") for row in MATRIX.strip().splitlines()]
WHO = {"tenant_id": "tenant-123", "correlation_id": "corr-456", "trace_id": "trace-789"}


def execute(manager, *args, **fields):
    """One call, in virtual time."""
    with virtual_time():
        return asyncio.run(manager.execute_with_retry(*args, **fields))


def failing(*outcomes):
    """An async function with these outcomes, one after the other; and how often it was called."""
    left, calls = list(outcomes), []

    async def work():
        calls.append(1)
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return work, calls


# --- categories and policies ----------------------------------------------------------------------


@pytest.mark.req("CP-01")
def test_the_categories_have_the_codes_of_the_document():
    """Seventeen, each a str, with the two odd ones as they are."""
    wanted = dict(line.replace('"', "").split(" = ") for line in CODES.strip().splitlines())
    assert {category.name: category.value for category in RetryCategory} == wanted
    assert len(wanted) == 17
    assert all(isinstance(category, str) for category in RetryCategory)
    assert RetryCategory.KV_GET == "RETRY_KV_GET"
    assert json.dumps(RetryCategory.KV_GET) == '"RETRY_KV_GET"'


@pytest.mark.req("CP-02")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_matrix_is_the_documents(row):
    """Attempts, base and longest delay, factor and jitter of each row; by member and by code."""
    name, attempts, base, longest, factor, jitter = row
    manager, category = RetryManager(), RetryCategory[name]
    policy = manager.get_policy(category)
    assert policy == RetryPolicy(
        max_attempts=int(attempts),
        base_delay=float(base[:-1]),
        max_delay=float(longest[:-1]),
        backoff_multiplier=float(factor[:-1]),
        jitter_enabled=True,
        jitter_factor=int(jitter[:-1]) / 100,
        retryable_exceptions=[Exception],
    )
    assert manager.get_policy(category.value) is policy
    assert len(POLICIES) == len(ROWS) == 17


@pytest.mark.req("CP-02")
def test_an_unknown_category_gets_the_default_and_a_warning():
    """A call of it is made all the same, and its events carry the code."""
    heard = []
    manager = RetryManager(sinks=[heard.append])
    with pytest.warns(PolicyNotFoundWarning, match="'RETRY_TEA'"):
        assert manager.get_policy("RETRY_TEA") == RetryPolicy()
    work, _ = failing(OSError(), 7)
    with pytest.warns(PolicyNotFoundWarning):
        assert execute(manager, "RETRY_TEA", "brew", work) == 7
    assert {event.retry_category for event in heard} == {"RETRY_TEA"}


def test_a_manager_may_have_policies_of_its_own():
    """By member or code; the others are the matrix's."""
    own = {
        RetryCategory.KV_GET: RetryPolicy(9),
        "RETRY_KV_PUT": RetryPolicy(8),
        "X": RetryPolicy(7),
    }
    manager = RetryManager(policies=own)
    names = ("RETRY_KV_GET", "RETRY_KV_PUT", "X", "RETRY_KV_CREATE")
    assert [manager.get_policy(name).max_attempts for name in names] == [9, 8, 7, 2]


@pytest.mark.req("CP-03")
def test_a_policy_has_the_documents_fields_and_defaults():
    """By name and in the document's order; lists are taken, and held as they were."""
    policy = RetryPolicy(5, 2.0, 60.0, 1.5, True, 0.2, [OSError], [ValueError])
    assert policy.max_attempts == 5
    assert (policy.base_delay, policy.max_delay, policy.backoff_multiplier) == (2.0, 60.0, 1.5)
    assert (policy.jitter_enabled, policy.jitter_factor) == (True, 0.2)
    assert policy.retryable_exceptions == (OSError,)
    assert policy.non_retryable_exceptions == (ValueError,)
    assert RetryPolicy() == RetryPolicy(3, 1.0, 30.0, 2.0, True, 0.1, [Exception], [])
    assert hash(RetryPolicy()) == hash(RetryPolicy())


@pytest.mark.req("CP-03")
def test_every_problem_of_a_policy_is_reported_at_once():
    """Each by the document's own field name."""
    with pytest.raises(PolicyError) as caught:
        RetryPolicy(0, -1.0, float("nan"), 0.5, "yes", 2.0, OSError, "OSError")
    assert [problem.field for problem in caught.value.problems] == [
        "max_attempts", "base_delay", "max_delay", "backoff_multiplier", "jitter_factor",
        "jitter_enabled", "retryable_exceptions", "non_retryable_exceptions",
    ]  # fmt: skip
    with pytest.raises(PolicyError) as caught:
        RetryPolicy(0, retryable_exceptions=[42], non_retryable_exceptions=[int, " "])
    assert [problem.field for problem in caught.value.problems] == [
        "max_attempts", "retryable_exceptions", "non_retryable_exceptions",
        "non_retryable_exceptions",
    ]  # fmt: skip


@pytest.mark.req("CP-04")
@pytest.mark.parametrize("policy", [
    RetryPolicy(6, 1.0, 5.0, 2.0, False), RetryPolicy(6, 9.0, 5.0, 3.0, False),
    RetryPolicy(6, 0.0, 5.0, 3.0, False), RetryPolicy(6, 0.5, 60.0, 1.5, False),
])  # fmt: skip
def test_delays_are_the_documents_formula(policy):
    """Min(base × multiplier^(n−1), max); also where the base is past the maximum."""
    wanted = [min(policy.base_delay * policy.backoff_multiplier**n, policy.max_delay)
              for n in range(5)]  # fmt: skip
    assert policy.policy().delays() == pytest.approx(wanted)


@pytest.mark.req("CP-04")
def test_jitter_is_around_the_capped_delay():
    """Plus or minus its factor, which is 10 %, and nothing where it is turned off."""
    rng = random.Random(7)
    spread = RetryPolicy(5, 1.0, 3.0).policy()
    for _ in range(100):
        u = rng.random()
        for n, base in enumerate([1.0, 2.0, 3.0, 3.0], start=1):
            assert spread.delay(n, u) == pytest.approx(base * (0.9 + 0.2 * u))


class NetworkError(Exception):
    """As the document's sample has it."""


LENIENT = RetryPolicy(
    non_retryable_exceptions=[ValueError], retryable_exceptions=[ValueError, NetworkError]
)
STRICT = RetryPolicy(non_retryable_exceptions=[ValueError, TypeError, KeyError])


@pytest.mark.req("CP-05", "CP-21")
@pytest.mark.parametrize(
    ("policy", "failure", "is_retried"),
    [
        (RetryPolicy(), ValueError(), True),
        (RetryPolicy(), KeyError(), True),
        (RetryPolicy(), NetworkError(), True),
        (RetryPolicy(retryable_exceptions=[]), NetworkError(), True),
        (RetryPolicy(retryable_exceptions=[OSError]), ConnectionError(), True),
        (RetryPolicy(retryable_exceptions=[OSError]), ValueError(), False),
        (STRICT, ValueError(), False),
        (STRICT, json.JSONDecodeError("", "", 0), False),
        (STRICT, NetworkError(), True),
        (LENIENT, ValueError(), False),
        (LENIENT, NetworkError(), True),
        (RetryPolicy(), PermissionError(), False),
        (RetryPolicy(retryable_exceptions=[PermissionError]), PermissionError(), True),
    ],
)
def test_what_is_not_retryable_is_checked_first_and_is_final(policy, failure, is_retried):
    """Named in both lists it is not retried: the rule stands where the sample contradicts it."""
    work, calls = failing(failure, "done")
    manager = RetryManager(sinks=[])
    with virtual_time() as time:
        call = manager.execute_with_retry(RetryCategory.API_REQUEST, "op", work, policy)
        if is_retried:
            assert asyncio.run(call) == "done"
        else:
            with pytest.raises(type(failure)):
                asyncio.run(call)
    assert len(calls) == 1 + is_retried
    assert (time.elapsed > 0.5) is is_retried


# --- the manager ----------------------------------------------------------------------------------


@pytest.mark.req("CP-10")
def test_a_function_that_makes_coroutines_is_taken():
    """A coroutine function, a lambda around one; a plain function is as good."""

    async def work(value=7):
        return value

    for function in (work, lambda: work(7), lambda: 7):
        assert execute(RetryManager(), RetryCategory.KV_GET, "get", function) == 7


@pytest.mark.req("CP-10")
def test_a_coroutine_object_is_refused():
    """It can be awaited once only, and the error says so; none is left never awaited."""
    work, calls = failing(7)
    with pytest.raises(WrapError, match="awaited once only"):
        execute(RetryManager(), RetryCategory.KV_GET, "get", work())
    assert calls == []


@pytest.mark.req("CP-11")
def test_retries_that_run_out_end_in_a_retry_error():
    """With category, attempts and operation, chained from the last failure."""
    work, calls = failing(TimeoutError("1"), TimeoutError("2"), TimeoutError("3"))
    with pytest.raises(RetryError) as caught:
        execute(RetryManager(sinks=[]), RetryCategory.KV_GET, "Get kill switch status", work,
                additional_context={"bucket": "switches"})  # fmt: skip
    error = caught.value
    assert error.category is RetryCategory.KV_GET
    assert (error.attempts, error.operation) == (3, "Get kill switch status")
    assert error.additional_context == {"bucket": "switches"}
    assert str(error.__cause__) == "3"
    assert str(error) == "'Get kill switch status' (RETRY_KV_GET) was given up after 3 attempts"
    assert len(calls) == 3


@pytest.mark.req("CP-11")
def test_one_attempt_is_exhausted_after_one():
    """A category without retries ends the same way."""
    work, _ = failing(OSError("no"))
    with pytest.raises(RetryError) as caught:
        execute(RetryManager(sinks=[]), RetryCategory.REPLAY_PROCESSING, "replay", work)
    assert caught.value.attempts == 1


def test_what_calls_inside_ended_in_is_not_this_calls_end():
    """The inner one ran out of retries; the outer one's failure is final, and raised as it is."""
    manager = RetryManager(sinks=[])
    final = RetryPolicy(non_retryable_exceptions=[RetryError])

    async def outer():
        return await manager.execute_with_retry(
            RetryCategory.REPLAY_PROCESSING, "inner", failing(OSError())[0]
        )

    with pytest.raises(RetryError) as caught:
        execute(manager, RetryCategory.KV_GET, "outer", outer, final)
    assert caught.value.operation == "inner"


def test_a_policy_of_the_engines_own_brings_its_timeouts():
    """For what the document's fields cannot say."""
    policy = EnginePolicy(retry_on=TimeoutError, max_attempts=2, attempt_timeout=0.5,
                          backoff=Backoff.constant(0.1))  # fmt: skip
    with pytest.raises(RetryError) as caught:
        execute(RetryManager(sinks=[]), RetryCategory.API_REQUEST, "slow",
                lambda: asyncio.sleep(60), policy)  # fmt: skip
    assert caught.value.attempts == 2
    assert isinstance(caught.value.__cause__, TimeoutError)


# --- events ---------------------------------------------------------------------------------------

RETRY_ATTEMPT = {
    "event_type": "retry_attempt",
    "retry_category": "RETRY_NATS_PUBLISH",
    "operation": "Publish to exoarmur.audit.append.v1",
    "attempt_number": 2,
    "max_attempts": 3,
    "delay_seconds": 1.05,
    "exception_type": "TimeoutError",
    "exception_message": "Connection timeout",
    "tenant_id": "tenant-123",
    "correlation_id": "corr-456",
    "trace_id": "trace-789",
    "timestamp": "2026-01-25T21:15:00Z",
}
RETRY_EXHAUSTED = {
    "event_type": "retry_exhausted",
    "retry_category": "RETRY_KV_GET",
    "operation": "Get kill switch status",
    "total_attempts": 3,
    "final_exception_type": "TimeoutError",
    "final_exception_message": "KV operation timeout",
    "tenant_id": "tenant-123",
    "correlation_id": "corr-456",
    "trace_id": "trace-789",
    "timestamp": "2026-01-25T21:15:00Z",
}
IDEMPOTENCY = {
    "event_type": "idempotency",
    "retry_category": "RETRY_KV_PUT",
    "operation": "Store kill switch state",
    "idempotency_key": "abc123def456...",
    "action": "hit",
    "tenant_id": "tenant-123",
    "correlation_id": "corr-456",
    "trace_id": "trace-789",
    "timestamp": "2026-01-25T21:15:00Z",
}


def told(example, heard):
    """The events of the example's sort, with the fields of the example, as they are recorded."""
    plain = [json.loads(events.encode(event)) for event in heard]
    alike = [each for each in plain if each["event_type"] == example["event_type"]]
    return [{name: each[name] for name in example} for each in alike]


@pytest.mark.req("CP-12")
def test_every_retry_is_told_with_the_documents_fields():
    """The document's example, made by a call: all its fields, for each retry and no other."""
    heard = []
    manager = RetryManager(sinks=[heard.append], seed=1)
    failure = TimeoutError("Connection timeout")
    work, _ = failing(failure, failure, "published")
    start = 1_769_375_700.0  # 2026-01-25T21:15:00Z
    with virtual_time(start=start):
        asyncio.run(
            manager.execute_with_retry(
                RetryCategory.NATS_PUBLISH, RETRY_ATTEMPT["operation"], work, **WHO
            )
        )
    first, second = told(RETRY_ATTEMPT, heard)
    assert [each["attempt_number"] for each in (first, second)] == [1, 2]
    assert 0.45 <= first["delay_seconds"] <= 0.55
    assert 0.9 <= second["delay_seconds"] <= 1.1
    assert first["timestamp"] == RETRY_ATTEMPT["timestamp"]
    changing = {"attempt_number", "delay_seconds", "timestamp"}
    for each in (first, second):
        assert each | dict.fromkeys(changing) == RETRY_ATTEMPT | dict.fromkeys(changing)


@pytest.mark.req("CP-13")
def test_exhaustion_is_told_with_the_documents_fields():
    """The document's example, made by a call that fails three times."""
    heard = []
    manager = RetryManager(sinks=[heard.append])
    work, _ = failing(*[TimeoutError("KV operation timeout")] * 3)
    with pytest.raises(RetryError):
        execute(manager, RetryCategory.KV_GET, RETRY_EXHAUSTED["operation"], work, **WHO)
    (each,) = told(RETRY_EXHAUSTED, heard)
    assert each.pop("timestamp")
    assert each.items() <= RETRY_EXHAUSTED.items()
    assert len(told(RETRY_ATTEMPT, heard)) == 2


@pytest.mark.req("CP-09")
def test_hits_and_records_are_told_with_category_operation_key_and_context():
    """The document's example; a record first, then a hit for every later call."""
    heard = []
    manager = RetryManager(sinks=[heard.append])
    work, calls = failing("stored")
    for _ in range(3):
        fields = {"idempotency_key": IDEMPOTENCY["idempotency_key"], **WHO}
        operation = IDEMPOTENCY["operation"]
        assert execute(manager, RetryCategory.KV_PUT, operation, work, **fields) == "stored"
    found = told(IDEMPOTENCY, heard)
    assert [each.pop("action") for each in found] == ["record", "hit", "hit"]
    assert all(each.pop("timestamp") for each in found)
    assert all(each.items() <= IDEMPOTENCY.items() for each in found)
    assert len(calls) == 1


@pytest.mark.req("CP-20.nested")
def test_what_a_call_is_for_travels_into_calls_inside_it():
    """And is gone afterwards."""
    heard = []
    manager = RetryManager(sinks=[heard.append])

    work, _ = failing(OSError(), 1)

    async def outer():
        return await manager.execute_with_retry(RetryCategory.KV_GET, "inner", work)

    execute(manager, RetryCategory.API_REQUEST, "outer", outer, **WHO)
    inner = [event for event in heard if event.operation == "inner"]
    assert inner
    assert {event.retry_category for event in inner} == {"RETRY_KV_GET"}
    assert {event.tenant_id for event in heard} == {"tenant-123"}
    heard.clear()
    execute(manager, RetryCategory.API_REQUEST, "later", failing(1)[0])
    assert {event.tenant_id for event in heard} == {None}


# --- results by key -------------------------------------------------------------------------------


@pytest.mark.req("CP-06.check", "CP-06.reachable", "CP-08")
@pytest.mark.parametrize("value", [None, 0, "", [], {}, False])
def test_a_call_and_the_idempotency_manager_see_the_same_results(value):
    """What a call recorded the manager finds, with its context; and the other way round."""
    manager = RetryManager(sinks=[])
    results, (work, calls) = manager.idempotency_manager, failing(value)
    assert isinstance(results, IdempotencyManager)
    key = results.compute_idempotency_key("op", "t", "c", {"n": 1})
    fields = {"idempotency_key": key, "additional_context": {"by": "test"}}
    assert execute(manager, RetryCategory.KV_PUT, "put", work, **fields) == value
    hit = asyncio.run(results.check_idempotency(key))
    assert (hit.value, hit.metadata) == (value, {"by": "test"})
    assert execute(manager, RetryCategory.API_REQUEST, "another", work, **fields) == value
    asyncio.run(results.record_result("by hand", value))
    by_hand = {"idempotency_key": "by hand"}
    assert execute(manager, RetryCategory.KV_PUT, "put", work, **by_hand) == value
    assert len(calls) == 1


@pytest.mark.req("CP-06.clear", "CP-06.reachable")
def test_a_result_that_is_cleared_is_made_again():
    """By the next call."""
    manager = RetryManager(sinks=[])
    work, _ = failing(1, 2)
    assert execute(manager, RetryCategory.KV_PUT, "put", work, idempotency_key="k") == 1
    asyncio.run(manager.idempotency_manager.clear_idempotency("k"))
    assert execute(manager, RetryCategory.KV_PUT, "put", work, idempotency_key="k") == 2


@pytest.mark.req("CP-06.check")
def test_calls_with_one_key_at_once_run_once():
    """The others wait for the first one's result."""
    manager, ran = RetryManager(sinks=[]), []

    async def work():
        ran.append(1)
        await asyncio.sleep(0.2)
        return len(ran)

    async def main():
        calls = [
            manager.execute_with_retry(RetryCategory.KV_PUT, "put", work, idempotency_key="k")
            for _ in range(5)
        ]
        return await asyncio.gather(*calls)

    with virtual_time():
        assert asyncio.run(main()) == [1] * 5


def test_a_failure_leaves_no_result():
    """The next call runs again."""
    manager = RetryManager(sinks=[])
    work, _ = failing(OSError(), OSError(), OSError(), "done")
    with pytest.raises(RetryError):
        execute(manager, RetryCategory.KV_PUT, "put", work, idempotency_key="k")
    assert asyncio.run(manager.idempotency_manager.check_idempotency("k")) is None
    assert execute(manager, RetryCategory.KV_PUT, "put", work, idempotency_key="k") == "done"


def test_a_final_failure_is_recorded_and_raised_again():
    """As the engine does; it is no result, and no retries have run out."""
    manager = RetryManager(sinks=[])
    work, calls = failing(ValueError("no such switch"))
    for _ in range(2):
        with pytest.raises(ValueError, match="no such switch"):
            execute(manager, RetryCategory.KV_PUT, "put", work, STRICT, idempotency_key="k")
    assert len(calls) == 1
    assert asyncio.run(manager.idempotency_manager.check_idempotency("k")) is None


def test_context_that_cannot_be_kept_is_refused_before_anything_runs():
    """It would be recorded with the result, which could then not be."""
    work, calls = failing(1)
    with pytest.raises(Exception, match="object"):
        execute(RetryManager(), RetryCategory.KV_PUT, "put", work, idempotency_key="k",
                additional_context={"thing": object()})  # fmt: skip
    assert calls == []


# --- the process's own ----------------------------------------------------------------------------


def test_a_process_has_one_manager(tmp_path, monkeypatch):
    """Made by the first call, which may say where results are kept; a later one may not."""
    from mainstay.profiles.control_plane import manager as module

    monkeypatch.setattr(module, "_MANAGERS", [])
    first = get_retry_manager(f"sqlite:///{tmp_path}/kept.db")
    assert get_retry_manager() is first
    assert first.idempotency_manager.store.url.startswith("sqlite:")
    with pytest.raises(Exception, match="retry manager already"):
        get_retry_manager("memory://")
    first.close()


# --- bounded attempts -----------------------------------------------------------------------------


def waited(manager, category, policy=None):
    """How long one attempt that never ends was waited for, and what it ended in."""
    own = policy or RetryPolicy(max_attempts=1)
    with virtual_time() as time, pytest.raises(RetryError) as caught:
        asyncio.run(
            manager.execute_with_retry(category, "hang", lambda: asyncio.sleep(1e6), policy=own)
        )
    assert isinstance(caught.value.__cause__, AttemptTimeout)
    return time.elapsed


@pytest.mark.req("CP-14.attempt")
@pytest.mark.parametrize("category", RetryCategory)
def test_every_attempt_ends_without_a_policy_of_the_users(category):
    """After 30 s; batches and large replays have five minutes."""
    is_batch = category.name in ("EXECUTION_EXPIRATION", "REPLAY_PROCESSING")
    assert waited(RetryManager(sinks=[]), category) == pytest.approx(300.0 if is_batch else 30.0)


@pytest.mark.req("CP-14.attempt")
def test_the_time_of_an_attempt_may_be_set():
    """For a manager, or by a policy of the engine's own, which keeps what it has."""
    manager = RetryManager(sinks=[], attempt_timeout=2.0)
    assert waited(manager, RetryCategory.REPLAY_PROCESSING) == pytest.approx(2.0)
    own = EnginePolicy(max_attempts=1, retry_on=Exception, attempt_timeout=7.0)
    assert waited(manager, RetryCategory.KV_GET, own) == pytest.approx(7.0)
    own = EnginePolicy(max_attempts=1, retry_on=Exception)
    assert waited(manager, RetryCategory.KV_GET, own) == pytest.approx(2.0)
    with pytest.raises(PolicyError, match="attempt_timeout"):
        RetryManager(attempt_timeout=0)


@pytest.mark.req("CP-14.attempt")
def test_an_attempt_that_takes_too_long_is_followed_by_the_next():
    """It is cancelled, and the policy of the category goes on."""
    ends = []

    async def work():
        ends.append(1)
        if len(ends) < 3:
            await asyncio.sleep(1e6)
        return "done"

    assert execute(RetryManager(sinks=[]), RetryCategory.KV_GET, "slow", work) == "done"
    assert len(ends) == 3
