"""The innermost retry owns its attempts; an outer one does not repeat what it has given up on.

What counts as given up, since when, and where the outer one looks for it. That the leaf is called
as often as one policy allows, however one retry is inside another, is in test_nested.py.
"""

# ruff: noqa: PLW0108 -- the lambda is the layer between one retry and the other

import asyncio
import concurrent.futures
import contextlib
import copy
import multiprocessing
import pickle
import random
import threading
import warnings
from unittest import mock

import pytest
import trio

from mainstay import (
    Backoff,
    BreakerSettings,
    Engine,
    Fallback,
    Jitter,
    KindRule,
    NestedRetryError,
    NestedRetryWarning,
    RetryBudget,
    RetryPolicy,
)
from mainstay.errors import AttemptTimeout
from mainstay.runtime import enclosing as frames
from mainstay.testing import virtual_time

POLICY = RetryPolicy(
    name="op", retry_on=OSError, max_attempts=3, backoff=Backoff.constant(1.0), jitter=Jitter.none()
)
ALLOW = POLICY.replace(nested="allow")


def attempts(n, **fields):
    """A policy of n attempts."""
    return POLICY.replace(max_attempts=n, **fields)


class Service:
    """Fails so many times, then answers; counts its calls."""

    def __init__(self, failures=1_000, error=ConnectionError):
        self.failures = failures
        self.error = error
        self.calls = 0

    def __call__(self, *_):
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error(f"call {self.calls}")
        return "answer"

    async def coloured(self):
        return self()


@pytest.fixture(autouse=True)
def time():
    """Virtual time, and no warning of nested retries unless a test asks for it."""
    with virtual_time() as time, warnings.catch_warnings():
        warnings.simplefilter("ignore", NestedRetryWarning)
        yield time


@contextlib.contextmanager
def collected():
    """The texts of the warnings of nested retries."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(each.message) for each in caught if each.category is NestedRetryWarning]


def calls_of(outer, service):
    """How often the service is called until the outer one raises."""
    with pytest.raises((OSError, RuntimeError, ExceptionGroup)):
        outer()
    return service.calls


# --- an inner retry is never robbed ---------------------------------------------------------------


def test_a_fail_over_in_a_handler_has_all_its_attempts():
    """What was given up on before is the context of its failure, and not its failure."""
    reconnect = Service(failures=9)
    poll, again = attempts(3)(Service()), attempts(10)(lambda: reconnect())
    try:
        poll()
    except ConnectionError:
        assert again() == "answer"
    assert reconnect.calls == 10


def test_a_fail_over_inside_an_outer_retry_has_all_its_attempts():
    """Also if the outer one would retry its failure."""
    reconnect = Service(failures=9)
    poll, again = attempts(3)(Service()), attempts(10)(lambda: reconnect())

    @attempts(4)
    def job():
        try:
            poll()
        except ConnectionError:
            return again()

    assert job() == "answer"
    assert reconnect.calls == 10


def test_a_rollback_in_exit_has_all_its_attempts():
    """A context manager that is left by a failure which a retry gave up on."""
    undo = Service(failures=4)

    class Transaction:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            attempts(5)(undo)()

    with pytest.raises(ConnectionError), Transaction():
        attempts(3)(Service())()
    assert undo.calls == 5


def test_an_unlock_in_finally_has_all_its_attempts():
    """The same for a `finally` clause, inside an outer retry too."""
    unlock = Service(failures=4)

    @attempts(3)
    def job():
        try:
            attempts(3)(Service())()
        finally:
            attempts(5)(unlock)()

    with pytest.raises(ConnectionError):
        job()
    assert unlock.calls == 5


def test_a_fallback_that_is_decorated_has_all_its_attempts():
    """It is called while the failure of the call that it replaces is handled."""
    second = Service(failures=4)
    engine_call = Fallback(function=attempts(5)(second))(attempts(3)(Service()))
    assert engine_call() == "answer"
    assert second.calls == 5


def test_a_report_of_the_error_has_all_its_attempts():
    """Error reporting runs in a handler, and its own service may be down for a moment."""
    report = Service(failures=2)

    @attempts(3)
    def job():
        try:
            attempts(3)(Service())()
        except ConnectionError:
            attempts(3)(report)()
            raise

    with pytest.raises(ConnectionError):
        job()
    assert report.calls == 3


def test_a_failure_that_is_swallowed_had_all_its_attempts():
    """Nobody else repeats what a handler swallows."""
    cache = Service(failures=4)

    @attempts(3)
    def job():
        with contextlib.suppress(ConnectionError):
            return attempts(5)(cache)()

    assert job() == "answer"
    assert cache.calls == 5


def test_every_item_of_a_batch_has_all_its_attempts():
    """A loop with a handler for each item, under a retry of the whole."""
    items = [Service(failures=2), Service(failures=9), Service(failures=2)]

    @attempts(2)
    def batch():
        done = []
        for item in items:
            try:
                done.append(attempts(3)(item)())
            except ConnectionError:
                done.append(None)
        return done

    assert batch() == ["answer", None, "answer"]
    assert [item.calls for item in items] == [3, 3, 3]


def test_a_worker_loop_under_a_supervisor_retries_each_task():
    """The supervisor repeats the loop, and never a single task of it."""
    tasks = [Service(failures=2) for _ in range(5)]

    @attempts(3)
    def supervise():
        for task in tasks:
            attempts(3)(task)()
        return "done"

    assert supervise() == "done"
    assert [task.calls for task in tasks] == [3] * 5


def test_a_server_in_asyncio_run_under_a_retry_retries_its_calls():
    """The retry around the server is on the stack of every call that it makes."""
    backend = Service(failures=2)

    async def serve():
        return await attempts(3)(backend.coloured)()

    assert attempts(3)(lambda: asyncio.run(serve()))() == "answer"
    assert backend.calls == 3


def test_a_job_of_many_calls_succeeds_as_if_each_retried_alone():
    """20 calls with 5 attempts each, 5 % failures, under 3 attempts: all jobs succeed."""
    draw = random.Random(13)
    made = failed = 0

    @attempts(5)
    def call():
        nonlocal made
        made += 1
        if draw.random() < 0.05:
            raise ConnectionError

    @attempts(3)
    def job():
        for _ in range(20):
            call()

    for _ in range(100):
        try:
            job()
        except ConnectionError:
            failed += 1
    assert failed == 0
    assert made < 2_000 / 0.93


# --- what counts as given up ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deadline", "budget", "circuit", "retry after"])
def test_a_first_attempt_that_is_stopped_by_what_is_its_own_is_given_up_on(how):
    """One attempt was made, and the inner one would have retried: the outer one stands back."""
    service = Service(error=Throttled if how == "retry after" else ConnectionError)
    inner = {
        "deadline": lambda: attempts(3, deadline=0.5)(service),
        "budget": lambda: guarded(service, budget=RetryBudget(ratio=0.0, floor=0)),
        "circuit": lambda: guarded(service, breaker=BreakerSettings(failure_threshold=1)),
        "retry after": lambda: attempts(3)(service),
    }[how]()
    assert calls_of(attempts(4)(lambda: inner()), service) == 1


class Throttled(ConnectionError):
    """Asks for a longer wait than allowed."""

    retry_after = 6_000.0


def guarded(function, **guards):
    return Engine(policies=[POLICY], sinks=[], **guards).protect("op")(function)


def test_the_end_of_an_enclosing_attempt_counts_only_after_a_second_attempt(time):
    """The outer one's time was up, not the inner one's: it may try again."""
    made = []

    def slow_from(n):
        def function():
            made.append(1)
            if len(made) >= n:
                time.advance(7.0)
            raise ConnectionError

        return function

    outer = attempts(3, attempt_timeout=5.0)
    with pytest.raises(ConnectionError):
        outer(lambda: POLICY(slow_from(1))())()
    assert len(made) == 3  # one in each outer attempt
    made.clear()
    with pytest.raises(ConnectionError):
        outer(lambda: POLICY(slow_from(2))())()
    assert len(made) == 2  # two in the first


def test_a_failure_that_the_inner_would_not_retry_is_the_outer_ones_to_retry():
    """However many attempts came before it."""
    errors = [ConnectionError, KeyError] * 3
    made = []

    @POLICY
    def inner():
        made.append(1)
        raise errors[len(made) - 1]

    outer = attempts(3, retry_on=KeyError)
    with pytest.raises(KeyError):
        outer(lambda: inner())()
    assert len(made) == 6


@pytest.mark.parametrize(
    "inner",
    [
        attempts(1),
        attempts(3, per_kind={"transient": KindRule(max_attempts=1)}),
        attempts(1, deadline=0.5),
    ],
    ids=["one attempt", "one of this kind", "and a deadline"],
)
def test_a_policy_of_one_attempt_never_gives_up(inner):
    """It is no retry, so the outer one has all its attempts."""
    service = Service()
    assert calls_of(attempts(3)(lambda: inner(service)()), service) == 3


def test_one_attempt_of_a_kind_never_counts_after_attempts_of_another():
    """The last failure is of a kind that is never retried here."""
    made = []

    def function():
        made.append(1)
        raise TimeoutError if len(made) % 2 == 0 else ConnectionError

    inner = attempts(5, per_kind={"timeout": KindRule(max_attempts=1)})
    with pytest.raises(TimeoutError):
        attempts(3)(lambda: inner(function)())()
    assert len(made) == 6


def test_a_failure_that_a_layer_between_does_not_retry_stays_given_up_on():
    """The layer between adds its own note, and the mark of the inner one is still there."""
    service = Service(error=ConnectionError)
    made = []

    @attempts(3, retry_on=KeyError)
    def between():
        made.append(1)
        if len(made) == 1:
            raise KeyError
        return POLICY(service)()

    with pytest.raises(ConnectionError) as caught:
        attempts(4)(lambda: between())()
    assert service.calls == 3
    assert "an inner retry has given up on it" in caught.value.__notes__[-1]


# --- since when -----------------------------------------------------------------------------------


def test_one_exception_object_that_a_mock_raises_costs_nobody_a_retry():
    """A mark of before the attempt began does not count, whichever function left it."""
    stub = mock.Mock(side_effect=ConnectionError("the same"))
    fetches = [POLICY(lambda: stub()), attempts(3, name="other")(lambda: stub())]
    made = []
    for fetch in (*fetches, *fetches):
        stub.reset_mock()
        with pytest.raises(ConnectionError):
            fetch()
        made.append(stub.call_count)
    assert made == [3, 3, 3, 3]
    assert len(stub.side_effect.__notes__) == 1


def test_one_exception_object_costs_a_sibling_inside_an_outer_retry_nothing():
    """Two siblings in an attempt of an outer one: the second began after the mark of the first."""
    error = ConnectionError("the same")
    first, second = mock.Mock(side_effect=error), mock.Mock(side_effect=error)

    @attempts(2)
    def job():
        with contextlib.suppress(ConnectionError):
            POLICY(lambda: first())()
        POLICY(lambda: second())()

    with pytest.raises(ConnectionError):
        job()
    assert (first.call_count, second.call_count) == (3, 3)


def test_a_stream_that_keeps_its_exception_costs_nobody_a_retry():
    """asyncio.StreamReader raises one object at every read."""

    async def main():
        reader = asyncio.StreamReader()
        reader.set_exception(ConnectionResetError("peer"))
        made = []

        @POLICY
        async def read():
            made.append(1)
            return await reader.read()

        for _ in range(3):
            with pytest.raises(ConnectionResetError):
                await read()
        return len(made)

    assert asyncio.run(main()) == 9


def test_five_tasks_on_one_shared_task_all_stand_back():
    """The mark is not consumed: each of them gets the failure that was given up on."""
    service = Service()

    async def main():
        shared = []

        @attempts(3)
        async def wait():
            if not shared or shared[-1].done():  # one flight for all that ask meanwhile
                shared.append(asyncio.create_task(POLICY(service.coloured)()))
            return await asyncio.shield(shared[-1])

        return await asyncio.gather(*(wait() for _ in range(5)), return_exceptions=True)

    ended = asyncio.run(main())
    assert service.calls == 3
    assert {type(each) for each in ended} == {ConnectionError}


def test_tasks_on_one_shared_task_all_name_the_retry_that_gave_up():
    """One that stands back marks the failure too, and is no retry inside its siblings."""
    service = Service()

    async def main():
        shared = asyncio.create_task(POLICY(service.coloured)())

        @attempts(4)
        async def outer():
            return await asyncio.shield(shared)

        return await asyncio.gather(*(outer() for _ in range(5)), return_exceptions=True)

    with collected() as texts:
        asyncio.run(main())
    assert service.calls == 3
    (only,) = texts
    assert "coloured retries inside" in only
    assert "outer: avoided 3 x 4 = 12 calls" in only


def test_a_retry_that_stands_back_names_the_one_further_in_to_the_next():
    """Also through a pickle: what made the attempts is what is named, at every level."""
    service = Service()

    def leaf():
        return service()

    @attempts(2)
    def between():
        return POLICY(leaf)()

    @attempts(4)
    def outer():
        try:
            between()
        except ConnectionError as error:
            raise pickle.loads(pickle.dumps(error)) from None

    with collected() as texts, pytest.raises(ConnectionError):
        outer()
    assert any("leaf retries inside" in each and "3 x 4 = 12 calls" in each for each in texts)
    assert not any("between retries inside" in each for each in texts)


def test_recursion_in_threads_calls_the_leaf_as_often_as_one_policy_allows():
    """Another call of the same function counts."""
    service = Service()

    @POLICY
    def descend(depth):
        if not depth:
            return service()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(descend, depth - 1).result()

    with pytest.raises(ConnectionError):
        descend(3)
    assert service.calls == 3


def test_a_failure_that_is_kept_and_raised_in_a_later_attempt_is_retried():
    """It was given up on before that attempt began."""
    service, kept = Service(), []

    @attempts(3)
    def job():
        if not kept:
            try:
                POLICY(service)()
            except ConnectionError as error:
                kept.append(error)
            raise ConnectionError("plain")
        raise kept[0]

    with pytest.raises(ConnectionError) as caught:
        job()
    assert service.calls == 3
    assert "after 3 attempts: no attempt left" in caught.value.__notes__[-1]


@pytest.mark.parametrize("way", ["decorated", "call", "run", "block", "whole", "keyed"])
def test_each_way_of_calling_knows_when_its_attempts_began(way):
    """As an outer retry: a mark of before is not counted, one of since is."""
    error = ConnectionError("the same")
    stub = mock.Mock(side_effect=error)
    with pytest.raises(ConnectionError):
        attempts(2)(lambda: attempts(2)(lambda: stub())())()
    assert error.__notes__[0].moment >= 0
    stub.reset_mock()
    calling(way, attempts(3), lambda: stub())
    assert stub.call_count == 3  # of before, at each attempt
    service = Service()
    plain = [ConnectionError("plain")]

    def later():
        if plain:
            raise plain.pop()
        return POLICY(service)()

    calling(way, attempts(3), later)
    assert service.calls == 3  # since the second attempt began


@pytest.mark.parametrize(
    "way",
    ["decorated", "call", "run", "block", "whole", "keyed", "async", "async block", "async keyed"],
)
def test_each_way_of_calling_knows_when_its_later_attempts_began(way):
    """A failure that was kept from the first attempt is one of before in the second and third."""
    made, service, kept = [], Service(), []

    def job():
        made.append(1)
        if not kept:
            with pytest.raises(ConnectionError) as caught:
                POLICY(service)()
            kept.append(caught.value)
            raise ConnectionError("plain")
        raise kept[0]

    calling(way, attempts(3), job)
    assert (len(made), service.calls) == (3, 3)


async def calling_async(way, policy, function):
    """The same from a coroutine."""

    async def awaited(*_):
        function()

    if way == "async":
        await policy(awaited)()
    elif way == "async block":
        async for attempt in policy.attempts():
            with attempt:
                function()
    else:
        engine = Engine(policies=[policy], default="op", sinks=[])
        await engine.idempotent(key=str, operation="op")(awaited)("k")


def calling(way, policy, function):
    """Calls the function under the policy, one way or another, until it gives up."""
    if way.startswith("async"):
        with contextlib.suppress(ConnectionError):
            asyncio.run(calling_async(way, policy, function))
        return
    with contextlib.suppress(ConnectionError):
        if way == "decorated":
            policy(lambda: function())()
        elif way == "call":
            policy.call(function)
        elif way == "run":
            policy.run(function)
        elif way == "block":
            for attempt in policy.attempts():
                with attempt:
                    function()
        elif way == "whole":
            policy.replace(retry_if_result=lambda value: False)(lambda: function())()
        else:
            engine = Engine(policies=[policy], default="op", sinks=[])
            engine.idempotent(key=str, operation="op")(lambda _: function())("k")


# --- where the outer one looks --------------------------------------------------------------------


def translated(how, service):
    """A layer that makes another failure of the one that it gets."""

    def function():
        try:
            POLICY(service)()
        except ConnectionError as error:
            if how == "from":
                raise RuntimeError from error
            if how == "from None":
                raise RuntimeError from None
            raise RuntimeError  # noqa: B904 -- the context is what is tested

    return function


@pytest.mark.parametrize(("how", "calls"), [("from", 3), ("anew", 12), ("from None", 12)])
def test_a_translated_failure_was_given_up_on_only_if_it_was_raised_from_it(how, calls):
    """Without `from` it is a new failure, and both retry."""
    service = Service()
    outer = attempts(4, retry_on=RuntimeError)(translated(how, service))
    assert calls_of(outer, service) == calls


def test_a_failure_that_is_raised_anew_warns_once_with_the_product():
    """Both run; the developer learns how many calls that can be, and how to allow it."""
    service = Service()
    outer = attempts(4, retry_on=RuntimeError)(translated("anew", service))
    with collected() as texts:
        calls_of(outer, service)
        calls_of(outer, service)
    (text,) = texts
    assert "up to 3 x 4 = 12 calls" in text
    assert 'nested="allow"' in text


def test_a_failure_that_is_raised_anew_is_silent_if_it_is_allowed():
    service = Service()
    outer = attempts(4, retry_on=RuntimeError, nested="allow")(translated("anew", service))
    with collected() as texts:
        assert calls_of(outer, service) == 12
    assert texts == []


def test_the_failure_of_a_plain_handler_is_retried_by_the_outer_one():
    """Its context is further away than one step, or nobody gave up on it: no warning either."""
    service = Service()

    @attempts(3)
    def job():
        try:
            try:
                POLICY(service)()
            except ConnectionError:
                raise KeyError  # noqa: B904 -- the context is what is tested
        except KeyError:
            raise ConnectionError("new")  # noqa: B904 -- the same

    with collected() as texts:
        assert calls_of(job, service) == 9
    assert texts == []


def test_a_result_that_is_rejected_multiplies():
    """A value has no mark: the inner one returned it, and the outer one wants another."""
    made = []

    def function():
        made.append(1)
        if len(made) % 2:
            raise ConnectionError

    outer = attempts(3, retry_if_result=lambda value: value is None)
    outer(lambda: POLICY(function)())()
    assert len(made) == 6


def test_a_group_is_given_up_on_if_a_member_was():
    """The members that a task group raises together, in another group even."""
    service, other = Service(), Service()

    @attempts(4)
    def job():
        failures = []
        for call in (other, POLICY(service)):
            try:
                call()
            except ConnectionError as error:
                failures.append(error)
        raise ExceptionGroup("outer", [failures[0], ExceptionGroup("inner", failures[1:])])

    assert calls_of(job, service) == 3
    assert other.calls == 1


def test_a_group_that_is_named_itself_is_given_up_on_if_a_member_was():
    """Who retries a group repeats each member, also one whose own type is not named."""
    service, other = Service(), Service()

    @attempts(4, retry_on=ExceptionGroup)
    def job(inner):
        failures = []
        for call in (inner, other):
            try:
                call()
            except ConnectionError as error:
                failures.append(error)
        raise ExceptionGroup("both", failures)

    assert calls_of(lambda: job(POLICY(service)), service) == 3
    assert other.calls == 1
    assert calls_of(lambda: job(other), other) == 1 + 8


def test_a_group_without_such_a_member_is_retried():
    """Of what was given up on, only the context is left."""
    service, other = Service(), Service()

    @attempts(4)
    def job():
        with contextlib.suppress(ConnectionError):
            POLICY(service)()
        try:
            other()
        except ConnectionError as error:
            raise ExceptionGroup("g", [error]) from None

    assert calls_of(job, service) == 12
    assert other.calls == 4


# --- cut off by an enclosing attempt --------------------------------------------------------------


def sleeping(driver):
    return asyncio.sleep if driver.name == "asyncio" else trio.sleep


@pytest.mark.parametrize("limits", [{}, {"deadline": 500.0}], ids=["plain", "bounded"])
@pytest.mark.parametrize("cut_in", ["attempt", "wait"])
def test_an_inner_retry_that_is_cut_after_its_second_attempt_has_given_up(
    async_driver, cut_in, limits
):
    """What cut it is the cause of the outer one's AttemptTimeout."""
    made = []

    @attempts(9, **limits, backoff=Backoff.constant(1.0 if cut_in == "attempt" else 4.0))
    async def inner():
        made.append(1)
        if cut_in == "attempt" and len(made) % 2 == 0:
            await sleeping(async_driver)(60.0)
        raise ConnectionError

    @attempts(3, attempt_timeout=5.0)
    async def outer():
        await inner()

    with pytest.raises((AttemptTimeout, ConnectionError)):
        async_driver.run(outer)
    assert len(made) == 2


def test_an_inner_retry_that_is_cut_in_its_first_attempt_has_not_given_up(async_driver):
    """It has not retried: the outer one may."""
    made = []

    @POLICY
    async def inner():
        made.append(1)
        await sleeping(async_driver)(60.0)

    @attempts(3, attempt_timeout=5.0)
    async def outer():
        await inner()

    with pytest.raises(AttemptTimeout):
        async_driver.run(outer)
    assert len(made) == 3


# --- other processes ------------------------------------------------------------------------------


def give_up_in_child():
    """Runs in another process: two attempts, and the failure is pickled on its way back."""
    calls = []

    def leaf():
        calls.append(1)
        raise ConnectionError(f"{len(calls)} calls")

    RetryPolicy(retry_on=OSError, max_attempts=2, backoff=Backoff.constant(0)).call(leaf)


def test_a_failure_from_another_process_keeps_its_mark():
    """It counts as made when it arrives; what it was raised from does not arrive."""
    submitted = []
    method = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=method) as pool:

        @attempts(3)
        def outer():
            submitted.append(1)
            return pool.submit(give_up_in_child).result(60)

        with pytest.raises(ConnectionError, match="2 calls"):
            outer()
    assert len(submitted) == 1


def test_a_mark_that_was_made_alone_counts_from_its_arrival_on(alone):
    """Nothing else was under way in its process, so it had no moment there."""
    service = Service()
    with pytest.raises(ConnectionError) as caught:
        POLICY(service)()
    sent = pickle.dumps(caught.value)
    assert caught.value.__notes__[0].moment < 0

    made = []

    @attempts(3)
    def outer():
        made.append(1)
        raise pickle.loads(sent)

    with pytest.raises(ConnectionError):
        outer()
    assert len(made) == 1


def test_a_copy_keeps_the_moment_of_its_mark():
    """It is the same failure, and no arrival."""
    service = Service()
    with pytest.raises(ConnectionError) as caught:
        attempts(2)(lambda: POLICY(service)())()
    (note,) = caught.value.__notes__
    assert copy.deepcopy(note).moment == note.moment


# --- the outer one's word -------------------------------------------------------------------------


def nest(service, **outer):
    inner = attempts(3, name="inner", nested=outer.pop("inner", "collapse"))(lambda: service())
    return attempts(4, name="outer", **outer)(lambda: inner())


@pytest.mark.parametrize(
    ("mode", "calls"), [("collapse", 3), ("warn", 12), ("allow", 12), ("refuse", 1)]
)
@pytest.mark.parametrize("inner", ["collapse", "warn", "allow", "refuse"])
def test_the_outer_policy_decides(mode, calls, inner):
    """Whatever the inner one has in its own policy."""
    service = Service()
    outer = nest(service, nested=mode, inner=inner)
    with pytest.raises(NestedRetryError if mode == "refuse" else ConnectionError):
        outer()
    assert service.calls == calls


@pytest.mark.parametrize(
    ("mode", "word"), [("collapse", "avoided 3 x 4 = 12"), ("warn", "up to 3 x 4 = 12")]
)
def test_one_warning_names_both_and_how_to_allow_it(mode, word):
    """Once for a pair, with the product."""
    outer = nest(Service(), nested=mode)
    with collected() as texts:
        for _ in range(2):
            with pytest.raises(ConnectionError):
                outer()
    (text,) = texts
    assert word in text
    assert text.count("<lambda>") >= 2
    assert 'nested="allow"' in text


def test_allow_is_silent():
    with collected() as texts, pytest.raises(ConnectionError):
        nest(Service(), nested="allow")()
    assert texts == []


def test_refuse_acts_when_the_inner_one_schedules_its_second_attempt():
    """A nest of which every first attempt succeeds, or fails for good, is not refused."""
    assert nest(Service(failures=0), nested="refuse")() == "answer"
    with pytest.raises(KeyError):
        nest(Service(error=KeyError), nested="refuse")()
    once = attempts(4, nested="refuse")(lambda: attempts(1)(Service())())
    with pytest.raises(ConnectionError):
        once()


def test_refuse_holds_for_every_enclosing_retry_that_would_retry_it():
    """Not only for the nearest one; and not for one that would not."""
    service = Service()
    outer = attempts(4, nested="refuse")(lambda: nest(service)())
    with pytest.raises(NestedRetryError) as caught:
        outer()
    assert service.calls == 1
    assert caught.value.product == 12
    assert isinstance(caught.value.__cause__, ConnectionError)
    other = attempts(4, nested="refuse", retry_on=KeyError)(lambda: nest(Service())())
    with pytest.raises(ConnectionError):
        other()


@pytest.mark.parametrize("way", ["decorated", "call", "run", "block", "whole", "keyed"])
def test_each_way_of_calling_refuses(way):
    """The walk of the stack finds each of them."""
    service = Service()
    caught = []

    def function():
        try:
            POLICY(service)()
        except NestedRetryError as error:
            caught.append(error)
            raise

    with contextlib.suppress(NestedRetryError):
        calling(way, attempts(4, nested="refuse"), function)
    assert service.calls == 1
    assert len(caught) == 1


def test_refuse_acts_on_a_mark_from_a_thread():
    """There the stack does not show the outer one: the inner one has made its attempts."""
    service = Service()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        outer = attempts(4, nested="refuse")(lambda: pool.submit(POLICY(service)).result())
        with pytest.raises(NestedRetryError) as caught:
            outer()
    assert service.calls == 3
    assert caught.value.product == 12


def test_a_refusal_is_not_retried():
    """Not even by a policy that retries everything."""
    service = Service()
    everything = attempts(4, retry_on=Exception, nested="refuse")
    with pytest.raises(NestedRetryError):
        everything(lambda: POLICY(service)())()
    assert service.calls == 1


# --- moments --------------------------------------------------------------------------------------


def test_a_call_that_is_alone_numbers_nothing(alone):
    """No code could honour its mark: the note is cached, and nothing advances."""
    fetch = POLICY(Service())
    now = frames.FRAMES["ms_active"].moment
    notes = []
    for _ in range(2):
        with pytest.raises(ConnectionError) as caught:
            fetch()
        notes.append(caught.value.__notes__[0])
    assert frames.FRAMES["ms_active"].moment == now
    assert notes[0] is notes[1]


def test_a_mark_of_a_nested_call_has_the_moment_and_the_next_begins():
    """What began before can honour it; what begins now can not."""
    began = frames.FRAMES["ms_active"].moment
    with pytest.raises(ConnectionError) as caught:
        ALLOW.replace(max_attempts=2)(lambda: POLICY(Service())())()
    assert caught.value.__notes__[0].is_mark
    assert frames.FRAMES["ms_active"].moment > began


def test_moments_of_threads_are_all_different(alone):
    """Each mark takes one number, and the numbers only grow."""
    taken = []

    def take():
        here = frames.FRAMES["ms_active"]
        taken.extend(frames.mark_moment() for _ in range(200))
        del here

    threads = [threading.Thread(target=take) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(taken) - {-1}) == len([each for each in taken if each != -1])
    assert frames._count_active() == 0


def test_wrappers_that_began_before_a_mark_are_still_counted(alone):
    """They hold an older number; then there are too many, and the stack is walked."""
    seen = []

    @POLICY
    def outer():
        frames.mark_moment()
        seen.append(frames._count_active())
        return POLICY(lambda: [each.name for each in frames.enclosures()])()

    assert len(outer()) == 2
    assert seen[0] > 1
    assert frames._count_active() == 0
