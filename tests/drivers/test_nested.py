"""A retry inside a retry: the leaf is called as often as one policy allows, never the product.

And never fewer: the inner one has all its attempts. What counts as given up, and since when, is in
test_nested_given_up.py.
"""

# ruff: noqa: PLW0108 -- the lambda is the layer between one retry and the other

import asyncio
import concurrent.futures
import contextlib
import gc
import sys
import threading
import warnings
from unittest import mock

import pytest
import trio

import mainstay
import mainstay.runtime.enclosing as frames
from mainstay import (
    Backoff,
    Engine,
    Jitter,
    KindRule,
    NestedRetryError,
    NestedRetryWarning,
    RetryPolicy,
)
from mainstay.drivers.call import sync
from mainstay.testing import Trace, virtual_time

POLICY = RetryPolicy(
    name="op",
    retry_on=OSError,
    max_attempts=3,
    backoff=Backoff.constant(1.0),
    jitter=Jitter.none(),
)
OTHER = POLICY.replace(name="other")


class Failed(Exception):
    """What a layer makes of what it was given."""


class Leaf:
    """Counts its calls and fails, each time anew."""

    def __init__(self, error=ConnectionError):
        self.calls = 0
        self.error = error

    def __call__(self):
        self.calls += 1
        raise self.error(f"call {self.calls}")

    async def coloured(self):
        await asyncio.sleep(0)
        self()

    async def in_trio(self):
        await trio.lowlevel.checkpoint()
        self()


@pytest.fixture
def leaf():
    """A failing leaf, in virtual time, with nested retries as they are by default."""
    with virtual_time() as time, warnings.catch_warnings():
        warnings.simplefilter("ignore", NestedRetryWarning)
        leaf = Leaf()
        leaf.time = time
        yield leaf


# --- scenarios: each makes two layers around the leaf ---------------------------------------------


def direct(leaf):
    POLICY(lambda: OTHER(leaf)())()


def the_same_policy(leaf):
    POLICY(lambda: POLICY(leaf)())()


def decorated_twice(leaf):
    POLICY(POLICY(leaf))()


def three_layers(leaf):
    POLICY(lambda: OTHER(lambda: POLICY(leaf)())())()


def through_a_generator(leaf):
    def numbers():
        yield OTHER(leaf)()

    POLICY(lambda: list(numbers()))()


def translated(leaf):
    def outer():
        try:
            OTHER(leaf)()
        except OSError as error:
            raise Failed from error

    POLICY.replace(retry_on=Failed)(outer)()


def methods(leaf):
    class Client:
        @POLICY
        def get(self):
            return self.send()

        @OTHER
        def send(self):
            leaf()

    Client().get()


def call_in_decorated(leaf):
    POLICY(lambda: OTHER.call(leaf))()


def decorated_in_call(leaf):
    POLICY.call(OTHER(leaf))


def call_in_call_of_one_policy(leaf):
    POLICY.call(lambda: POLICY.call(leaf))


def run_in_decorated(leaf):
    def outer():
        result = OTHER.run(leaf)
        raise result.last_exception

    POLICY(outer)()


def decorated_in_run(leaf):
    raise POLICY.run(OTHER(leaf)).last_exception


def run_in_run(leaf):
    def outer():
        raise POLICY.run(leaf).last_exception

    raise POLICY.run(outer).last_exception


def block_in_decorated(leaf):
    def outer():
        for attempt in OTHER.attempts():
            with attempt:
                leaf()

    POLICY(outer)()


def decorated_in_block(leaf):
    for attempt in OTHER.attempts():
        with attempt:
            POLICY(leaf)()


def block_in_block(leaf):
    for outer in POLICY.attempts():
        with outer:
            for inner in OTHER.attempts():
                with inner:
                    leaf()


def block_after_block(leaf):
    for outer in POLICY.attempts():
        with outer:
            for inner in OTHER.attempts():
                with inner:
                    pass
            OTHER(leaf)()


def engine_in_engine(leaf):
    engine = Engine(policies=[POLICY, OTHER], sinks=[])
    engine.protect("op")(lambda: engine.call("other", leaf))()


def one_operation_in_itself(leaf):
    engine = Engine(policies=[POLICY], sinks=[])
    engine.call("op", lambda: engine.call("op", leaf))


def with_listeners(leaf):
    engine = Engine(policies=[POLICY, OTHER], sinks=[Trace()])
    engine.call("op", lambda: engine.call("other", leaf))


def with_limits(leaf):
    limits = {"attempt_timeout": 500.0, "deadline": 900.0}
    POLICY.replace(**limits)(lambda: OTHER.replace(**limits)(leaf)())()


def recursion(leaf):
    @POLICY
    def descend(depth):
        return descend(depth - 1) if depth else leaf()

    descend(3)


def a_thread_pool(leaf):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        POLICY(lambda: pool.submit(OTHER(leaf)).result())()


def a_thread_pool_and_one_policy(leaf):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        POLICY(lambda: pool.submit(POLICY(leaf)).result())()


def a_thread_pool_and_calls_of_one_policy(leaf):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        POLICY.call(lambda: pool.submit(POLICY.call, leaf).result())


def three_through_pools(leaf):
    """The middle one stands back, and the outermost must still find that one has given up."""
    with (
        concurrent.futures.ThreadPoolExecutor(1) as near,
        concurrent.futures.ThreadPoolExecutor(1) as far,
    ):
        middle = OTHER.replace(max_attempts=4)(lambda: near.submit(OTHER(leaf)).result())
        POLICY.replace(max_attempts=5)(lambda: far.submit(middle).result())()


def a_carrying_pool(leaf):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        POLICY(lambda: mainstay.carrying(pool).submit(OTHER(leaf)).result())()


def a_thread_pool_mapped(leaf):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        POLICY(lambda: list(pool.map(lambda _: OTHER(leaf)(), [1])))()


def timed_by_threads(leaf):
    outer = POLICY.replace(timeout_by="thread", attempt_timeout=500.0)
    outer(lambda: OTHER(leaf)())()


def timed_by_threads_inside(leaf):
    inner = POLICY.replace(timeout_by="thread", attempt_timeout=500.0)
    POLICY(lambda: inner(leaf)())()


def asyncio_run_inside(leaf):
    POLICY(lambda: asyncio.run(OTHER(leaf.coloured)()))()


def in_asyncio(body):
    def scenario(leaf):
        asyncio.run(body(leaf))

    scenario.__name__ = body.__name__
    return scenario


@in_asyncio
async def an_await_chain(leaf):
    @OTHER
    async def inner():
        await leaf.coloured()

    async def between():
        await inner()

    @POLICY
    async def outer():
        await between()

    await outer()


@in_asyncio
async def an_await_chain_with_limits(leaf):
    limits = {"attempt_timeout": 500.0, "deadline": 900.0}
    inner = OTHER.replace(**limits)(leaf.coloured)

    @POLICY.replace(**limits)
    async def outer():
        await inner()

    await outer()


@in_asyncio
async def an_async_generator(leaf):
    async def numbers():
        yield await OTHER(leaf.coloured)()

    @POLICY
    async def outer():
        return [each async for each in numbers()]

    await outer()


@in_asyncio
async def create_task(leaf):
    @POLICY
    async def outer():
        await asyncio.create_task(OTHER(leaf.coloured)())

    await outer()


@in_asyncio
async def create_task_and_acall_of_one_policy(leaf):
    async def outer():
        await asyncio.create_task(POLICY.acall(leaf.coloured))

    await POLICY.acall(outer)


@in_asyncio
async def gather(leaf):
    @POLICY
    async def outer():
        await asyncio.gather(OTHER(leaf.coloured)(), asyncio.sleep(0.1))

    await outer()


@in_asyncio
async def wait_for(leaf):
    @POLICY
    async def outer():
        await asyncio.wait_for(OTHER(leaf.coloured)(), 500.0)

    await outer()


@in_asyncio
async def a_task_group(leaf):
    @POLICY
    async def outer():
        async with asyncio.TaskGroup() as group:
            group.create_task(OTHER(leaf.coloured)())

    await outer()


@in_asyncio
async def to_thread(leaf):
    @POLICY
    async def outer():
        await asyncio.to_thread(OTHER(leaf))

    await outer()


@in_asyncio
async def run_in_executor(leaf):
    @POLICY
    async def outer():
        await asyncio.get_running_loop().run_in_executor(None, OTHER(leaf))

    await outer()


@in_asyncio
async def acall_in_decorated(leaf):
    @POLICY
    async def outer():
        await OTHER.acall(leaf.coloured)

    await outer()


@in_asyncio
async def arun_in_acall(leaf):
    async def outer():
        raise (await OTHER.arun(leaf.coloured)).last_exception

    await POLICY.acall(outer)


@in_asyncio
async def an_async_block_in_a_block(leaf):
    async for outer in POLICY.attempts():
        with outer:
            async for inner in OTHER.attempts():
                with inner:
                    await leaf.coloured()


@in_asyncio
async def a_sync_call_in_an_async_one(leaf):
    @POLICY
    async def outer():
        OTHER(leaf)()

    await outer()


def in_trio(body):
    def scenario(leaf):
        trio.run(body, leaf, clock=leaf.time.trio_clock())

    scenario.__name__ = body.__name__
    return scenario


@in_trio
async def a_trio_await_chain(leaf):
    @POLICY
    async def outer():
        await OTHER(leaf.in_trio)()

    await outer()


@in_trio
async def a_trio_nursery(leaf):
    @POLICY
    async def outer():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(OTHER(leaf.in_trio))

    await outer()


@in_trio
async def a_trio_thread(leaf):
    @POLICY
    async def outer():
        await trio.to_thread.run_sync(OTHER(leaf))

    await outer()


SCENARIOS = [
    direct, the_same_policy, decorated_twice, three_layers, through_a_generator, translated,
    methods, call_in_decorated, decorated_in_call,
    call_in_call_of_one_policy, run_in_decorated, decorated_in_run, run_in_run,
    block_in_decorated, decorated_in_block, block_in_block, block_after_block, engine_in_engine,
    one_operation_in_itself, with_listeners, with_limits, recursion, a_thread_pool,
    a_thread_pool_and_one_policy, a_thread_pool_and_calls_of_one_policy, three_through_pools,
    a_carrying_pool,
    a_thread_pool_mapped, timed_by_threads, timed_by_threads_inside, asyncio_run_inside,
    an_await_chain, an_await_chain_with_limits, an_async_generator, create_task,
    create_task_and_acall_of_one_policy, gather, wait_for, a_task_group, to_thread,
    run_in_executor, acall_in_decorated, arun_in_acall, an_async_block_in_a_block,
    a_sync_call_in_an_async_one, a_trio_await_chain, a_trio_nursery, a_trio_thread,
]  # fmt: skip


@pytest.mark.req("EF-02")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_leaf_is_called_as_often_as_one_policy_allows(scenario, leaf):
    """Three attempts and three attempts are three, in every way one retry can be inside another."""
    with pytest.raises((OSError, Failed, ExceptionGroup)):
        scenario(leaf)
    assert leaf.calls == 3


# --- never fewer ----------------------------------------------------------------------------------


@pytest.mark.req("EF-02")
@pytest.mark.parametrize(
    "outer",
    [
        POLICY.replace(retry_on=KeyError),
        POLICY.replace(max_attempts=1),
        POLICY.replace(never_retry_on=ConnectionError),
        POLICY.replace(retry_on=lambda error: False),
        POLICY.replace(retry_on=lambda error: 1 / 0),
        POLICY.replace(retry_on="NoSuchName"),
    ],
    ids=["another error", "one attempt", "never", "predicate", "bad predicate", "name"],
)
def test_an_outer_retry_that_would_not_retry_leaves_the_inner_its_retries(driver, outer):
    """A retry that is no retry of this failure does not rob the one inside."""
    function = driver.scripted(ConnectionError, ConnectionError, "third time lucky")
    inner = POLICY(function)
    called = outer(driver.colour(inner) if not driver.is_async else inner)
    assert driver.run(called) == "third time lucky"


def test_an_outer_limit_by_kind_that_allows_no_retry_leaves_the_inner_its_retries(driver):
    """The same where only the outer's limit for that kind of failure says so."""
    outer = POLICY.replace(per_kind={"transient": KindRule(max_attempts=1)})
    function = driver.scripted(ConnectionError, ConnectionError, "third time lucky")
    assert driver.run(outer(POLICY(function))) == "third time lucky"


def test_a_task_that_nobody_awaits_keeps_its_retries():
    """Fire and forget: the task's failure is nobody else's to retry."""
    calls = []

    async def flaky():
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError
        return "third time lucky"

    tasks = []

    @POLICY
    async def outer():
        tasks.append(asyncio.create_task(OTHER(flaky)()))
        await asyncio.sleep(0.5)
        return "done"

    async def main():
        assert await outer() == "done"
        return await tasks[0]

    with virtual_time():
        assert asyncio.run(main()) == "third time lucky"


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="eager tasks came in 3.12")
def test_an_eager_task_that_nobody_awaits_keeps_its_retries():
    """Its first step runs on its parent's stack, and is not inside its parent's retry."""
    calls = []

    async def flaky():
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError
        return "third time lucky"

    @POLICY
    async def outer():
        return asyncio.create_task(OTHER(flaky)())

    async def main():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        return await (await outer())

    with virtual_time():
        assert asyncio.run(main()) == "third time lucky"


def test_a_thread_that_nobody_joins_keeps_its_retries():
    """The same for a thread."""
    results, calls = [], []

    def flaky():
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError
        return "third time lucky"

    threads = []

    def outer():
        threads.append(threading.Thread(target=lambda: results.append(OTHER(flaky)())))
        threads[-1].start()

    with virtual_time():
        POLICY(outer)()
        threads[0].join()
    assert results == ["third time lucky"]


def test_what_follows_a_nested_call_is_retried_by_its_own_right(driver):
    """An inner call that recovered, or was handled, does not cost a later failure its retries."""
    later = driver.scripted(TimeoutError, TimeoutError, "third time lucky")
    inner = POLICY.replace(retry_on=ConnectionError)(driver.scripted(*[ConnectionError] * 20))

    def plain():
        with contextlib.suppress(ConnectionError):
            inner()
        return later()

    async def coloured():
        with contextlib.suppress(ConnectionError):
            await inner()
        return await later()

    outer = POLICY.replace(retry_on=TimeoutError)(coloured if driver.is_async else plain)
    assert driver.run(outer) == "third time lucky"


@pytest.mark.parametrize("hook", ["before_retry", "after_retry", "listener", "predicate"])
def test_a_call_made_by_a_hook_keeps_its_retries(driver, hook):
    """What a hook, listener or predicate calls is not inside an attempt: nobody retries it."""
    calls = []

    @POLICY.replace(name="notify")
    def notify():
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError
        return True

    def told(_):
        if not calls:
            notify()
        return False

    chosen = POLICY
    listener = None
    if hook == "listener":
        listener = told
    elif hook == "predicate":
        chosen = POLICY.replace(never_retry_on=told)
    else:
        chosen = POLICY.replace(**{hook: told})
    function = driver.scripted(OSError, OSError, "ok")
    driver.run(mainstay.retry(policy=chosen, listener=listener)(function))
    assert len(calls) == 3


# --- exceptions that are raised again and again ---------------------------------------------------


@pytest.mark.req("EF-02")
def test_one_exception_instance_raised_again_and_again_is_retried_each_time():
    """A mock's side_effect is one object: each call of one function gets all its attempts."""
    stub = mock.Mock(side_effect=ConnectionError("the same"), __qualname__="stub")
    fetch = POLICY(lambda: stub())
    with virtual_time():
        for n in range(1, 4):
            with pytest.raises(ConnectionError):
                fetch()
            assert stub.call_count == 3 * n
    assert len(stub.side_effect.__notes__) == 1


@pytest.mark.req("EF-02")
def test_one_exception_instance_shared_by_two_functions_costs_neither_a_retry():
    """A mock's side_effect used for two functions: the mark was made before the other began."""
    stub = mock.Mock(side_effect=ConnectionError("the same"))
    first, second = POLICY(lambda: stub()), OTHER(lambda: stub())
    made = []
    with virtual_time(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fetch in (first, second, second):
            stub.reset_mock()
            with pytest.raises(ConnectionError):
                fetch()
            made.append(stub.call_count)
    assert made == [3, 3, 3]


def test_an_exception_class_as_side_effect_is_no_trouble(leaf):
    """The usual case, for comparison."""
    stub = mock.Mock(side_effect=ConnectionError)
    for n, fetch in enumerate([POLICY(lambda: stub()), OTHER(lambda: stub())], 1):
        with pytest.raises(ConnectionError):
            fetch()
        assert stub.call_count == 3 * n


# --- warned of, or refused ------------------------------------------------------------------------


@pytest.mark.req("EF-02")
@pytest.mark.parametrize("times", [1, 2])
def test_collapsing_warns_once_with_the_product(times):
    """The developer is told once how many calls were avoided, at his own line."""
    leaf = Leaf()
    outer = POLICY.replace(max_attempts=4)(lambda: OTHER.replace(max_attempts=5)(leaf)())
    with virtual_time(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(times):
            with pytest.raises(ConnectionError):
                outer()
    assert leaf.calls == 5 * times
    (warning,) = caught
    assert warning.category is NestedRetryWarning
    assert "5 x 4 = 20" in str(warning.message)
    assert "avoided" in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.req("EF-02")
def test_the_product_is_told_across_threads_too(leaf):
    """Where only the mark shows the inner retry, the warning gives the product all the same."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        outer = POLICY.replace(max_attempts=4)(lambda: pool.submit(OTHER(leaf)).result())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with pytest.raises(ConnectionError):
                outer()
    assert leaf.calls == 3
    (warning,) = caught
    assert "3 x 4 = 12" in str(warning.message)


@pytest.mark.req("EF-02")
def test_a_warning_that_is_an_error_costs_nobody_the_exception():
    """Under `-W error` the user's exception is raised, with the warning as a note."""
    leaf = Leaf()
    with virtual_time(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConnectionError) as caught:
            POLICY(lambda: OTHER(leaf)())()
    assert leaf.calls == 3
    assert caught.value.__notes__


@pytest.mark.req("EF-02")
def test_a_warning_that_is_an_error_costs_nobody_an_exception_that_takes_no_note():
    """Under `-W error` a frozen exception, raised by a handler inside, is raised as it is."""

    class Frozen(Failed):
        def __setattr__(self, name, value):
            raise AttributeError("frozen")

    def outer():
        try:
            OTHER(Leaf())()
        except ConnectionError:
            raise Frozen  # noqa: B904 -- a new failure, whose context has the mark

    with virtual_time(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Frozen):
            POLICY.replace(retry_on=Frozen)(outer)()


@pytest.mark.req("EF-02")
def test_warn_retries_both_and_warns_once():
    """nested="warn" of the outer one lets both retry, and warns once."""
    leaf = Leaf()
    inner = OTHER(leaf)
    outer = POLICY.replace(nested="warn")(lambda: inner())
    with virtual_time(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ConnectionError):
            outer()
    assert leaf.calls == 9
    (warning,) = caught
    assert "up to 3 x 3 = 9" in str(warning.message)


@pytest.mark.req("EF-02")
@pytest.mark.parametrize("how", ["direct", "pool"])
def test_refuse_raises_with_the_product_and_the_cause(how, leaf):
    """nested="refuse" of the outer one stops at the first failure, and the failure is the cause."""
    inner = OTHER(leaf)
    if how == "direct":
        outer, calls = POLICY.replace(nested="refuse")(lambda: inner()), 1
    else:
        pool = concurrent.futures.ThreadPoolExecutor(1)
        outer, calls = POLICY.replace(nested="refuse")(lambda: pool.submit(inner).result()), 3
    with pytest.raises(NestedRetryError) as caught:
        outer()
    if how == "pool":
        pool.shutdown()
    assert caught.value.product == 9
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert leaf.calls == calls


def test_an_inner_success_is_nobodys_business(driver):
    """No warning, no note, no cost where nothing fails."""
    inner = POLICY(driver.scripted("ok"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert driver.run(OTHER(inner)) == "ok"


# --- the count that saves the walk ----------------------------------------------------------------


def test_wrappers_under_way_are_counted_and_forgotten(driver):
    """One frame inside one more; none is left when a call has returned, recovered or given up."""
    seen = []
    gc.collect()  # frames of another test that only it can free
    for script in (["ok"], [OSError, "ok"], [OSError] * 3):
        function = driver.scripted(*script)
        before = frames._count_active()
        with contextlib.suppress(OSError):
            driver.run(POLICY(counting(driver, function, seen)))
        assert frames._count_active() == before
    assert min(seen) >= 1


def counting(driver, function, seen):
    """The function, noting how many wrappers are under way when it is called."""
    if not driver.is_async:
        return lambda: (seen.append(frames._count_active()), function())[1]

    async def coloured():
        seen.append(frames._count_active())
        return await function()

    return coloured


def test_where_references_cannot_be_counted_the_stack_is_always_walked(monkeypatch):
    """PyPy has no getrefcount: the nest is seen all the same."""
    for module in (frames, sync):
        monkeypatch.setattr(module, "references", lambda _: sys.maxsize)
    calls = []

    def leaf():
        calls.append(1)
        raise ConnectionError

    with virtual_time(), warnings.catch_warnings(), pytest.raises(ConnectionError):
        warnings.simplefilter("ignore")
        POLICY(lambda: OTHER(leaf)())()
    assert len(calls) == 3
