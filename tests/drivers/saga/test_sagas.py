"""Sagas of an engine: results, compensation, recovery, people; one script on each driver."""

import asyncio
import threading
from functools import partial, wraps
from itertools import count

import pytest
import trio

from mainstay import (
    Backoff,
    CallCancelled,
    CompensationFailedError,
    Conflict,
    DeadlineExceeded,
    Engine,
    LeaseLost,
    PayloadMismatch,
    PolicyError,
    ResultNotKept,
    RetryPolicy,
    Saga,
    SagaStep,
    SagaStuckError,
    StoredValueError,
    StoreUnavailable,
    UsageError,
    context,
    deadline,
)
from mainstay.core.base.change import Change
from mainstay.core.saga.commands import Take
from mainstay.core.saga.state import decode
from mainstay.drivers.saga.records import OPEN_SAGAS, SPACE
from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time
from tests.processes import wait_until

SECRET = "correct horse battery"
ONCE = RetryPolicy(max_attempts=1)


def run_sync(engine, saga, *args, **kwargs):
    return engine.sagas.run(saga, *args, **kwargs)


def run_asyncio(engine, saga, *args, **kwargs):
    return asyncio.run(engine.sagas.arun(saga, *args, **kwargs))


def run_trio(engine, saga, *args, **kwargs):
    async def main():
        return await engine.sagas.arun(saga, *args, **kwargs)

    return trio.run(main)


@pytest.fixture(autouse=True)
def _engines_are_closed(monkeypatch):
    """Each engine of a test has a thread that removes entries, until it is closed."""
    made, make = [], Engine.__init__

    def note(self, *args, **kwargs):
        make(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(Engine, "__init__", note)
    yield
    for engine in made:
        engine.close()


@pytest.fixture(params=[run_sync, run_asyncio, run_trio])
def run(request):
    return request.param


@pytest.fixture
def engine():
    with Engine(sinks=[]) as made:
        yield made


class Steps:
    """Steps that are listed as they run, plain or async, and fail as they are told to."""

    def __init__(self, run=run_sync):
        self.is_async, self.calls, self.contexts = run is not run_sync, [], []

    def __call__(self, name, fail=None, fail_undo=None, undo=True, **options):
        options.setdefault("policy", ONCE)
        options.setdefault("compensate_policy", ONCE)
        undoing = self.made(f"-{name}", fail_undo) if undo else None
        return SagaStep(name, self.made(name, fail), undoing, **options)

    def made(self, name, fail):
        def act(ctx):
            self.calls.append(name)
            self.contexts.append(ctx)
            error = fail.pop(0) if isinstance(fail, list) and fail else fail
            if isinstance(error, BaseException):
                raise error
            return f"{name} done"

        async def aact(ctx):
            return act(ctx)

        return aact if self.is_async else act


@pytest.mark.req("EF-09")
def test_success(engine, run):
    """The results of all steps are returned, and earlier ones are there for later ones."""
    steps = Steps(run)
    saga = Saga("transfer", [steps("debit"), steps("credit")])
    result = run(engine, saga, {"amount": 5}, id="t-1")
    assert dict(result.results) == {"debit": "debit done", "credit": "credit done"}
    assert (result.saga, result.saga_id) == ("transfer", "t-1")
    ctx = steps.contexts[1]
    assert (ctx.input, ctx.saga_id, ctx.step, ctx.attempt) == ({"amount": 5}, "t-1", "credit", 1)
    assert ctx.results["debit"] == "debit done"
    assert ctx.key != steps.contexts[0].key


@pytest.mark.req("EF-09")
def test_compensation(engine, run):
    """The steps that are done are undone, the last first; the original failure is raised."""
    steps = Steps(run)
    error = ValueError("closed")
    saga = Saga("transfer", [steps("a"), steps("b"), steps("c", fail=error), steps("d")])
    with pytest.raises(ValueError, match="closed") as caught:
        run(engine, saga, id="t-1")
    assert caught.value is error
    assert "the saga transfer t-1 was compensated" in error.__notes__
    assert steps.calls == ["a", "b", "c", "-b", "-a"]
    assert engine.sagas.get("transfer", "t-1").state == "compensated"


def test_the_same_id_is_one_saga(engine, run):
    """What was run before is not run again: its result or its failure is that of the record."""
    steps = Steps(run)
    saga = Saga("transfer", [steps("a")])
    for _ in range(2):
        assert run(engine, saga, {"b": 1, "a": (2,)}, id="t-1").results["a"] == "a done"
    assert steps.calls == ["a"]
    with pytest.raises(PayloadMismatch):
        run(engine, saga, {"b": 2}, id="t-1")
    failing = Saga("fails", [steps("x", fail=ValueError("no"))])
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            run(engine, failing, id="t-1")
    assert steps.calls == ["a", "x"]


def test_ids_of_tenants_and_sagas(engine):
    """An id belongs to one saga of one tenant; without an id each saga is a new one."""
    steps = Steps()
    first, second = Saga("one", [steps("a")]), Saga("two", [steps("b")])
    with context(tenant_id="acme"):
        engine.sagas.run(first, id=7)
        assert engine.sagas.get(first, 7).tenant_id == "acme"
    engine.sagas.run(first, id=7)
    engine.sagas.run(second, id=7)
    engine.sagas.run(second)
    engine.sagas.run(second)
    assert steps.calls == ["a", "a", "b", "b", "b"]
    assert engine.sagas.get("one", "7", tenant_id="acme").address == "acme@one/7"
    assert len(list(engine.sagas.all())) == 5


def test_retries_have_one_key(engine, run):
    """A step is retried by its policy, with the same key and a new number for each attempt."""
    steps = Steps(run)
    errors = [ConnectionRefusedError(), ConnectionRefusedError()]
    saga = Saga("transfer", [steps("a", fail=errors, policy=RetryPolicy(max_attempts=3))])
    seen = []
    action = saga.steps[0].action
    with virtual_time():
        run(engine, Saga("transfer", [noting(saga.steps[0], seen)]), id="t-1")
    assert action is not None
    assert [attempt for _, attempt in seen] == [1, 2, 3]
    assert len({key for key, _ in seen}) == 1


def noting(step, seen):
    from mainstay.core.base.functions import is_async

    def note(ctx):
        seen.append((ctx.key, ctx.attempt))
        return step.action(ctx)

    async def anote(ctx):
        seen.append((ctx.key, ctx.attempt))
        return await step.action(ctx)

    return SagaStep(step.name, anote if is_async(step.action) else note, policy=step.policy)


def test_both_levels_may_retry(engine):
    """What an action has given up on after its own retries is still retried by its step."""
    calls = []
    inner = RetryPolicy(max_attempts=2, retry_on=OSError)

    def fetch():
        calls.append(1)
        raise ConnectionRefusedError

    step = SagaStep("a", lambda: inner.call(fetch), policy=RetryPolicy(max_attempts=3))
    with virtual_time(), pytest.raises(ConnectionRefusedError):
        engine.sagas.run(Saga("transfer", [step]))
    assert len(calls) == 6


@pytest.mark.parametrize(
    ("error", "undone"),
    [
        (TimeoutError("no answer"), ["-b", "-a"]),
        (ConnectionResetError(), ["-b", "-a"]),
        (ConnectionRefusedError(), ["-a"]),
        (ValueError("wrong"), ["-a"]),
    ],
)
def test_a_step_that_may_have_happened_is_undone(engine, run, error, undone):
    """A failure after which the outcome is open undoes the step that failed, too."""
    steps = Steps(run)
    saga = Saga("transfer", [steps("a"), steps("b", fail=error)])
    with pytest.raises(type(error)):
        run(engine, saga, id="t-1")
    assert steps.calls[2:] == undone


def test_an_earlier_attempt_in_doubt_counts(engine):
    """If the first attempt timed out and the second was refused, the step may have happened."""
    steps = Steps()
    errors = [TimeoutError(), ConnectionRefusedError(), ValueError("x")]
    saga = Saga("transfer", [steps("a", fail=errors, policy=RetryPolicy(max_attempts=5))])
    with virtual_time(), pytest.raises(ValueError, match="x"):
        engine.sagas.run(saga)
    assert steps.calls == ["a", "a", "a", "-a"]


def test_group(engine, run):
    """Steps of a group run at the same time; they are undone in reverse order of their ends."""
    order, both = [], threading.Barrier(2, timeout=20.0)
    first_ended = threading.Event()

    def quick():
        both.wait()
        first_ended.set()

    def slow():
        both.wait()
        first_ended.wait(20.0)

    async def fails():
        raise ValueError("closed")

    def plain_fails():
        raise ValueError("closed")

    last = plain_fails if run is run_sync else fails
    saga = Saga(
        "order",
        [
            [
                SagaStep("slow", slow, lambda: order.append("slow"), policy=ONCE),
                SagaStep("quick", quick, lambda: order.append("quick"), policy=ONCE),
            ],
            SagaStep("last", last, policy=ONCE),
        ],
    )
    with pytest.raises(ValueError, match="closed"):
        run(engine, saga, id="1")
    log = engine.sagas.get("order", "1").log
    ends = [entry.step for entry in log if entry.what == "done"]
    assert sorted(ends) == ["quick", "slow"]
    assert order == ends[::-1]


def test_plain_steps_among_async_ones_run_in_a_thread(engine):
    """A plain function does not hold up the event loop."""
    where = []

    async def first():
        return threading.current_thread().name

    saga = Saga(
        "mixed",
        [
            SagaStep("a", first),
            SagaStep("b", lambda: where.append(threading.current_thread().name)),
        ],
    )
    result = run_asyncio(engine, saga)
    assert where[0] != result.results["a"]


def hidden(function):
    """As a lambda: nothing shows that what it returns is to be awaited."""
    return lambda: function()  # noqa: PLW0108  that is what it is about


class Callable:
    def __init__(self, function):
        self.function = function

    async def __call__(self):
        return await self.function()


class Awaitable:
    def __init__(self, function):
        self.function = function

    def __await__(self):
        return self.function().__await__()


def decorated(function):
    @wraps(function)
    def inner(*args):
        return function(*args)

    return inner


def sometimes(function):
    """Async at every other call."""
    calls = count()
    return lambda: "plain" if next(calls) % 2 else function()


WRAPPERS = [
    hidden, partial, Callable, decorated, sometimes,
    lambda function: lambda: Awaitable(function),
]  # fmt: skip


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("run", [run_asyncio, run_trio])
def test_what_is_returned_is_awaited(engine, run, wrap):
    """Whatever wraps an async function; before, the step failed with "use arun"."""
    calls, thread = [], threading.current_thread()

    async def act(name="act"):
        assert threading.current_thread() is thread
        calls.append(name)
        if calls == ["act"]:
            raise OSError("again")  # a retry of the same call
        return 5

    async def undo():
        calls.append("undo")

    once = RetryPolicy(max_attempts=2, retry_on=OSError, backoff=Backoff.constant(0.0))
    steps = [SagaStep("a", wrap(act), wrap(undo), policy=once, compensate_policy=ONCE)]
    saga = Saga("t", [*steps, SagaStep("b", dies_of_value_error, policy=ONCE)])
    with virtual_time(), pytest.raises(ValueError, match="closed"):
        run(engine, saga, id="1")
    assert engine.sagas.get("t", "1").state == "compensated"
    assert calls[:1] == ["act"]
    assert calls[-1] == "undo"
    assert run(engine, Saga("u", steps)).results["a"] in (5, "plain")


def dies_of_value_error():
    raise ValueError("closed")


@pytest.mark.parametrize("limit", [None, 60.0])
def test_what_is_returned_can_be_cancelled(engine, limit):
    """As an async step: it is cut off, and undone."""
    undone = []

    async def hang():
        await asyncio.Event().wait()

    async def main():
        saga = Saga("t", [SagaStep("a", hidden(hang), lambda: undone.append("a"))], deadline=limit)
        task = asyncio.ensure_future(engine.sagas.arun(saga, id="1"))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert undone == ["a"]


def test_what_is_returned_is_awaited_by_a_recovery():
    """No recovery can know how the saga was begun: its threads have an event loop for it."""
    store, calls = MemoryStore(), []

    async def act():
        await asyncio.sleep(0)
        calls.append("a")
        return 5

    with virtual_time() as time:
        begin_and_die(store, Saga("t", [SagaStep("a", dies)]))
        engine = Engine(store, sinks=[])
        engine.sagas.register(Saga("t", [SagaStep("a", hidden(act))]))
        time.advance(31.0)
        assert engine.sagas.recover().succeeded == 1
    assert calls == ["a"]


def test_async_steps_need_arun(engine):
    """`run` refuses steps that have to be awaited, and what has to be: that is not retried."""

    async def debit():
        return 1

    with pytest.raises(UsageError, match="arun"):
        engine.sagas.run(Saga("a", [SagaStep("debit", debit)]))
    text = "step debit of b returned coroutine, which has to be awaited. use `await engine.sagas"
    with virtual_time() as time:
        patient = RetryPolicy(max_attempts=9, retry_on=Exception)
        with pytest.raises(UsageError, match=text):
            engine.sagas.run(Saga("b", [SagaStep("debit", hidden(debit), policy=patient)]))
        steps = [
            SagaStep("debit", lambda: 1, hidden(debit)),
            SagaStep("x", dies_of_value_error, policy=ONCE),
        ]
        with pytest.raises(CompensationFailedError) as raised:
            engine.sagas.run(Saga("c", steps), id="1")
        assert isinstance(raised.value.errors[0], UsageError)
        assert time.sleeps == []


def test_deadline_of_a_saga(engine, run):
    """After the deadline nothing is begun before the pivot; what is done is undone."""
    steps = Steps(run)
    with virtual_time() as time:

        def wait():
            time.advance(6.0)

        saga = Saga(
            "slow", [SagaStep("a", wait, policy=ONCE), steps("b"), steps("c")], deadline=5.0
        )
        with pytest.raises(DeadlineExceeded):
            run(engine, saga, id="1")
    assert steps.calls == []
    assert engine.sagas.get("slow", "1").state == "compensated"


def test_steps_see_the_deadline(engine):
    """A step reads how much time is left; a step behind the pivot has no limit."""
    seen = []
    saga = Saga(
        "timed",
        [
            SagaStep("a", lambda: seen.append(deadline.remaining())),
            SagaStep("p", lambda: None, pivot=True),
            SagaStep("b", lambda: seen.append(deadline.remaining())),
        ],
        deadline=50.0,
    )
    engine.sagas.run(saga)
    assert 40.0 < seen[0] <= 50.0


def test_compensation_ignores_the_deadline_and_the_cancel_event_of_the_caller(engine, run):
    """What is undone is undone, however little time the caller has left."""
    steps, cancel, seen = Steps(run), threading.Event(), []

    def fail():
        cancel.set()
        raise ValueError("closed")

    def undo():
        seen.append(deadline.remaining())

    flaky = [ConnectionRefusedError(), ConnectionRefusedError()]
    saga = Saga(
        "transfer",
        [
            SagaStep("a", lambda: 1, undo),
            steps("b", fail_undo=flaky, compensate_policy=RetryPolicy(max_attempts=5)),
            SagaStep("c", fail, policy=ONCE),
        ],
    )
    with virtual_time() as time, context(cancel=cancel), deadline.within(5.0):
        time.advance(4.99)
        with pytest.raises(ValueError, match="closed"):
            run(engine, saga, id="1")
    assert steps.calls == ["b", "-b", "-b", "-b"]
    assert seen == [None]


def test_the_context_of_the_caller_after_a_compensation(engine):
    """A deadline of the caller's holds again after the saga."""
    steps = Steps()
    with deadline.within(50.0):
        with pytest.raises(ValueError, match="x"):
            engine.sagas.run(Saga("a", [steps("a"), steps("b", fail=ValueError("x"))]))
        assert deadline.remaining() is not None


# --- stuck ----------------------------------------------------------------------------------------


@pytest.fixture
def ann(engine):
    engine.operators.add("ann", secret=SECRET)

    def decide(action, **options):
        (item,) = engine.inbox
        return engine.inbox.act(item.id, action, by="ann", proof=SECRET, **options)

    return decide


@pytest.mark.req("EF-09")
@pytest.mark.parametrize(
    ("action", "options", "calls"),
    [
        ("retry", {}, ["-b", "-a"]),
        ("skip", {"why": "by hand"}, ["-a"]),
        ("mark_done", {"evidence": "ticket 7"}, ["-a"]),
    ],
)
def test_a_compensation_that_fails_waits_for_a_person(engine, run, ann, action, options, calls):
    """The saga is stuck, with an item; after the decision, recovery takes it to its end."""
    steps, error = Steps(run), OSError("down")
    failure = ValueError("closed")
    undo = [KeyError("gone")]
    saga = Saga("transfer", [steps("a"), steps("b", fail_undo=undo), steps("c", fail=failure)])
    with pytest.raises(CompensationFailedError) as caught:
        run(engine, saga, id="t-1")
    assert caught.value.failed_steps == ["b"]
    assert isinstance(caught.value.errors[0], KeyError)
    assert caught.value.__cause__ is failure
    (item,) = engine.inbox
    assert (item.kind, item.id, item.severity) == ("stuck_saga", caught.value.item_id, "critical")
    assert item.actions == ("retry", "skip", "mark_done")
    with pytest.raises(CompensationFailedError) as again:
        run(engine, saga, id="t-1")
    assert again.value.item_id == item.id
    assert isinstance(again.value.__cause__, ValueError)
    assert engine.sagas.recover().recovered == 0
    steps.calls.clear()
    assert error is not None
    assert "when the saga is recovered" in ann(action, **options).text
    recovered = engine.sagas.recover()
    assert (recovered.recovered, recovered.compensated) == (1, 1)
    assert steps.calls == calls
    assert list(engine.inbox) == []
    with pytest.raises(ValueError, match="closed"):
        run(engine, saga, id="t-1")


def test_skip_needs_a_reason(engine, ann):
    """A step is skipped with a reason, or not at all."""
    steps = Steps()
    saga = Saga("transfer", [steps("a", fail_undo=OSError()), steps("b", fail=ValueError())])
    with pytest.raises(CompensationFailedError):
        engine.sagas.run(saga)
    assert ann("skip").text == "to skip needs a reason"


@pytest.mark.parametrize(
    ("action", "options", "result"),
    [
        ("retry", {}, "c done"),
        ("mark_done", {"evidence": '{"id": 7}'}, {"id": 7}),
        ("mark_done", {"evidence": "by hand"}, "by hand"),
    ],
)
def test_a_step_behind_the_pivot_that_fails(engine, run, ann, action, options, result):
    """Nothing is undone behind the pivot; a person decides, and the later steps follow."""
    steps = Steps(run)
    saga = Saga(
        "order",
        [
            steps("a"),
            steps("b", pivot=True),
            steps("c", fail=[ValueError("closed")]),
            SagaStep("d", (lambda ctx: ctx.results["c"])),
        ],
    )
    with pytest.raises(SagaStuckError, match="step c failed behind the pivot") as caught:
        run(engine, saga, id="1")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(SagaStuckError, match="step c failed behind the pivot"):
        run(engine, saga, id="1")
    ann(action, **options)
    assert engine.sagas.recover().succeeded == 1
    assert run(engine, saga, id="1").results["d"] == result
    assert "-a" not in steps.calls


def test_a_decision_after_the_saga_has_moved_on(engine, ann):
    """A decision about another occasion changes nothing."""
    steps = Steps()
    saga = Saga("transfer", [steps("a", fail_undo=OSError()), steps("b", fail=ValueError())])
    with pytest.raises(CompensationFailedError):
        engine.sagas.run(saga, id="1")
    engine.store.transact(SPACE, "transfer/1", lambda _value, _now: (Change(None), None))
    assert ann("retry").text == "nothing was changed: the record has moved on"


def test_two_operators_decide_on_one_stuck_saga(engine):
    """One decision counts, the other operator learns whose; the log has it once."""
    from concurrent.futures import ThreadPoolExecutor

    from mainstay.core.inbox.actions import Already, Won

    steps, barrier = Steps(), threading.Barrier(3)
    saga = Saga("t", [steps("a", fail_undo=[OSError()]), steps("b", fail=ValueError("x"))])
    engine.operators.add("ann", secret=SECRET)
    for name in ("ben", "eve"):
        engine.operators.add(name, secret=SECRET, by="ann", proof=SECRET)
    with pytest.raises(CompensationFailedError):
        engine.sagas.run(saga, id="1")
    (item,) = engine.inbox
    choices = {"ann": ("retry", {}), "ben": ("skip", {"why": "by hand"}),
               "eve": ("mark_done", {"evidence": "ticket 7"})}  # fmt: skip

    def decide(name):
        action, options = choices[name]
        barrier.wait(60.0)
        return engine.inbox.act(item.id, action, by=name, proof=SECRET, **options)

    with ThreadPoolExecutor(3) as pool:
        answers = dict(zip(choices, pool.map(decide, choices), strict=True))
    (winner,) = [name for name, answer in answers.items() if isinstance(answer, Won)]
    assert sum(isinstance(answer, Already) for answer in answers.values()) == 2
    view = engine.sagas.get("t", "1")
    decided = [entry.what for entry in view.log if entry.what.startswith("undo_")][2:]
    expected = {"ann": "undo_retried", "ben": "undo_skipped", "eve": "undo_done"}
    assert decided == [expected[winner]]
    assert engine.sagas.recover().compensated == 1
    assert steps.calls.count("-a") == (2 if winner == "ann" else 1)


def test_patient_by_default(engine):
    """A compensation without a policy of its own is tried eight times, whatever it raises."""
    calls = []

    def undo():
        calls.append(1)
        raise KeyError("gone")

    saga = Saga("t", [SagaStep("a", lambda: 1, undo), Steps()("b", fail=ValueError("x"))])
    with virtual_time(), pytest.raises(CompensationFailedError):
        engine.sagas.run(saga)
    assert len(calls) == 8


@pytest.mark.parametrize("given", [None, RetryPolicy(max_attempts=3, retry_on=OSError)])
def test_a_compensation_and_what_it_calls_may_both_retry(engine, given):
    """Whether the policy is the patient one or its own: no warning, and nobody stands back."""
    calls = []
    inner = RetryPolicy(max_attempts=2, retry_on=OSError)

    def fetch():
        calls.append(1)
        raise ConnectionRefusedError

    step = SagaStep("a", lambda: 1, lambda: inner.call(fetch), compensate_policy=given)
    saga = Saga("t", [step, Steps()("b", fail=ValueError("x"))])
    with virtual_time(), pytest.raises(CompensationFailedError):
        engine.sagas.run(saga)
    assert len(calls) == 2 * (8 if given is None else 3)


# --- recovery -------------------------------------------------------------------------------------


class Died(BaseException):
    """The process is gone."""


def dies(ctx):
    raise Died


def begin_and_die(store, saga, saga_id="1", given=None):
    """A process that dies in a step: nothing of it is written after that."""

    class Dead(MemoryStore):
        def transact(self, space, key, decide):
            return store.transact(space, key, decide)

        def transact_many(self, steps):
            if steps and steps[0][0] == SPACE:  # the lease is not given up
                raise RuntimeError("the process is gone")
            return store.transact_many(steps)

        def read(self, space, key):
            return store.read(space, key)

    engine = Engine(Dead(), sinks=[])
    with pytest.raises(Died):
        engine.sagas.run(saga, given, id=saga_id)


def killed(saga, step):
    """The same saga with a step that kills its process."""
    steps = [
        SagaStep(each.name, dies if each.name == step else each.action, each.compensate,
                 pivot=each.pivot, policy=each.policy)
        for each in saga.steps
    ]  # fmt: skip
    return Saga(saga.name, steps, version=saga.version)


@pytest.mark.req("EF-14")
def test_recovery(run):
    """Another process goes on where the first has died, with its results and its input."""
    store, steps = MemoryStore(), Steps(run)
    saga = Saga("transfer", [steps("a"), steps("b"), steps("c")])
    dying = killed(Saga("transfer", [Steps()("a"), Steps()("b"), Steps()("c")]), "b")
    with virtual_time() as time:
        begin_and_die(store, dying, given={"amount": 5})
        engine = Engine(store, sinks=[])
        engine.sagas.register(saga)
        assert engine.sagas.recover().busy == 1
        time.advance(31.0)
        recovered = engine.sagas.recover()
        assert (recovered.recovered, recovered.succeeded) == (1, 1)
        assert steps.calls == ["b", "c"]
        ctx = steps.contexts[1]
        assert (ctx.input, ctx.results["a"], ctx.results["b"]) == (
            {"amount": 5}, "a done", "b done",
        )  # fmt: skip
        assert engine.sagas.get("transfer", "1").recoveries == 1
        assert engine.sagas.recover().to_dict()["recovered"] == 0


def test_a_caller_takes_over():
    """A call with the same id goes on with a saga whose process is gone."""
    store, steps = MemoryStore(), Steps()
    saga = Saga("transfer", [steps("a"), steps("b")])
    with virtual_time() as time:
        begin_and_die(store, killed(saga, "b"))
        time.advance(31.0)
        result = Engine(store, sinks=[]).sagas.run(saga, id="1")
        assert dict(result.results) == {"a": "a done", "b": "b done"}
        assert steps.calls == ["a", "b"]


@pytest.mark.parametrize("run", [run_sync, run_asyncio])
def test_a_caller_waits_for_another_process(run):
    """While another process runs the saga, a second call waits, and takes over or gives up."""
    store, steps = MemoryStore(), Steps(run)
    saga = Saga("transfer", [steps("a")])
    dying = killed(Saga("transfer", [Steps()("a")]), "a")
    with virtual_time():
        begin_and_die(store, dying)
        with pytest.raises(Conflict):
            run(Engine(store, sinks=[]), saga, id="1", wait=5.0)
        assert run(Engine(store, sinks=[]), saga, id="1").results["a"] == "a done"


def test_interrupted_sagas_are_given_up_at_once():
    """Ctrl+C in a step leaves the saga to the next recovery, without waiting for the lease."""
    store, steps = MemoryStore(), Steps()
    saga = Saga("transfer", [steps("a"), steps("b", undo=False)])
    engine = Engine(store, sinks=[])
    with pytest.raises(Died):
        engine.sagas.run(killed(saga, "b"), id="1")
    engine.sagas.close()
    after = Engine(store, sinks=[])
    after.sagas.register(saga)
    assert after.sagas.recover().succeeded == 1


def test_a_changed_definition_is_stuck(ann, engine):
    """A definition that differs from that of the record is an item with the difference."""
    steps = Steps()
    store = engine.store
    with virtual_time() as time:
        begin_and_die(store, killed(Saga("transfer", [steps("a"), steps("b")]), "b"))
        time.advance(31.0)
        changed = Saga("transfer", [steps("a"), steps("z")])
        engine.sagas.register(changed)
        assert engine.sagas.recover().stuck == 1
        (item,) = engine.inbox
        assert "part 2 was 'b~' and is 'z~'" in item.text
        with pytest.raises(SagaStuckError, match="has changed since the saga was begun"):
            engine.sagas.run(changed, id="1")
        again = Engine(store, sinks=[])
        again.sagas.register(Saga("transfer", [steps("a"), steps("b")]))
        ann("retry")
        assert again.sagas.recover().succeeded == 1


def test_versions_side_by_side():
    """Each saga goes on with the version of its definition; one that is not known is left."""
    store, steps = MemoryStore(), Steps()
    old = Saga("transfer", [steps("a"), steps("b")])
    new = Saga("transfer", [steps("a"), steps("z")], version=2)
    with virtual_time() as time:
        begin_and_die(store, killed(old, "b"))
        time.advance(31.0)
        engine = Engine(store, sinks=[])
        engine.sagas.register(new)
        assert engine.sagas.recover().unknown == {"transfer version 1": 1}
        with pytest.raises(UsageError, match="version 1 of the saga transfer is not known"):
            engine.sagas.run(new, id="1")
        assert list(engine.inbox) == []
        time.advance(3700.0)
        engine.sagas.recover()
        engine.sagas.recover()
        (item,) = engine.inbox
        assert item.times == 1
        engine.sagas.register(old)
        assert engine.sagas.recover().succeeded == 1
    with pytest.raises(UsageError, match="two definitions"):
        engine.sagas.register(Saga("transfer", [steps("x")]))


def test_recovery_raises_the_item_that_a_process_did_not():
    """A process that died between the record and the item leaves the item to recovery."""
    store, steps = MemoryStore(), Steps()
    saga = Saga("transfer", [steps("a", fail_undo=OSError()), steps("b", fail=ValueError())])
    engine = Engine(store, sinks=[])

    def broken(_item, **_):
        raise StoreUnavailable("memory://", "write", "gone")

    engine.inbox.put = broken
    with pytest.raises(StoreUnavailable):
        engine.sagas.run(saga, id="1")
    after = Engine(store, sinks=[])
    assert list(after.inbox) == []
    after.sagas.recover()
    after.sagas.recover()
    assert len(list(after.inbox)) == 1
    assert list(after.store.scan(OPEN_SAGAS)) == []


@pytest.mark.req("AG-01.corrupted")
def test_a_damaged_record_is_a_matter_for_a_person(engine, run):
    """A record that nothing can read raises that, and an item; recovery goes on with others."""
    steps = Steps(run)
    saga = Saga("transfer", [steps("a")])
    engine.store.transact(SPACE, "transfer/1", lambda _value, _now: (Change(b"{"), None))
    with pytest.raises(StoredValueError) as caught:
        run(engine, saga, id="1")
    (item,) = engine.inbox
    assert (item.kind, item.id) == ("corrupted_state", caught.value.item_id)
    engine.store.transact(OPEN_SAGAS, "transfer/1", lambda _value, _now: (Change(b"x"), None))
    assert engine.sagas.recover().failed == 1
    assert steps.calls == []


def test_an_entry_without_a_saga():
    """A process that died before its record leaves an entry; it is removed after a minute."""
    store = MemoryStore()
    with virtual_time() as time:
        store.transact(OPEN_SAGAS, "transfer/1", lambda _value, _now: (Change(b"x"), None))
        engine = Engine(store, sinks=[])
        engine.sagas.recover()
        assert store.scan(OPEN_SAGAS) != []
        time.advance(61.0)
        engine.sagas.recover()
        assert store.scan(OPEN_SAGAS) == []


def test_results_that_were_not_kept():
    """A result that is no data is there for later steps, but not after a recovery."""
    store, seen = MemoryStore(), []
    token = object()

    def use(ctx):
        seen.append(ctx.results["a"])

    saga = Saga("t", [SagaStep("a", lambda: token), SagaStep("b", use, policy=ONCE)])
    Engine(store, sinks=[]).sagas.run(saga, id="whole")
    assert seen == [token]
    with virtual_time() as time:
        begin_and_die(store, Saga("t", [saga.steps[0], SagaStep("b", dies)]))
        time.advance(31.0)
        engine = Engine(store, sinks=[])
        engine.sagas.register(saga)
        assert engine.sagas.recover().compensated == 1
        with pytest.raises(ResultNotKept):
            engine.sagas.run(saga, id="1")


def test_recovery_of_many_is_paged():
    """Hundreds of sagas are recovered; a limit ends it, and progress is reported."""
    store, steps = MemoryStore(), Steps()
    saga = Saga("t", [steps("a"), steps("b")])
    with virtual_time() as time:
        for number in range(230):
            begin_and_die(store, killed(saga, "b"), f"{number}")
        time.advance(31.0)
        engine, seen = Engine(store, sinks=[]), []
        engine.sagas.register(saga)
        assert engine.sagas.recover(limit=5).recovered == 5
        found = engine.sagas.recover(progress=lambda found: seen.append(found.recovered))
        assert (found.recovered, seen[-1]) == (225, 225)


def test_watch():
    """Recovery is repeated until the event is set, and its counts are added up."""
    store, steps, stop = MemoryStore(), Steps(), threading.Event()
    saga = Saga("t", [steps("a"), SagaStep("b", stop.set)])
    with virtual_time():
        begin_and_die(store, Saga("t", [saga.steps[0], SagaStep("b", dies)]))
        engine = Engine(store, sinks=[])
        engine.sagas.register(saga)
        assert engine.sagas.watch(stop, every=7.0).recovered == 1


def test_async_recovery():
    """Async sagas are recovered in the event loop that runs, or in one of their own."""
    store, steps = MemoryStore(), Steps(run_asyncio)
    saga = Saga("t", [steps("a"), steps("b")])
    dying = killed(Saga("t", [Steps()("a"), Steps()("b")]), "b")
    with virtual_time() as time:
        begin_and_die(store, dying, "1")
        begin_and_die(store, dying, "2")
        time.advance(31.0)
        engine = Engine(store, sinks=[])
        engine.sagas.register(saga)

        async def main():
            with pytest.raises(UsageError, match="arecover"):
                engine.sagas.recover()
            time.advance(31.0)
            return await engine.sagas.arecover(limit=1)

        assert asyncio.run(main()).succeeded == 1
        assert engine.sagas.recover().succeeded == 1


def hanging(number=3):
    """A store with interrupted sagas, and a definition of which the first one's step hangs."""
    store, go_on, ended = MemoryStore(), threading.Event(), []

    def act(ctx):
        if ctx.saga_id == "0":
            assert go_on.wait(60.0)
        ended.append(ctx.saga_id)
        if len(ended) == number - 1:
            go_on.set()  # the others have ended: before, they waited for the first one

    for each in range(number):
        begin_and_die(store, Saga("t", [SagaStep("a", dies)]), f"{each}")
    engine = Engine(store, sinks=[])
    engine.sagas.register(Saga("t", [SagaStep("a", act)]))
    return engine, ended


def test_a_saga_that_hangs_holds_up_no_other():
    """Each runs in a thread of its own, if those at hand take longer than a moment."""
    with virtual_time() as time:
        engine, ended = hanging()
        time.advance(31.0)
        assert engine.sagas.recover().succeeded == 3
    assert ended == ["1", "2", "0"]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_saga_that_hangs_in_an_event_loop(loop):
    """Each runs in a task of its own."""
    with virtual_time() as time:
        engine, ended = hanging()
        time.advance(31.0)
        main = engine.sagas.arecover
        found = asyncio.run(main()) if loop == "asyncio" else trio.run(main)
        assert found.succeeded == 3
    assert ended[-1] == "0"


def test_watch_goes_on_beside_a_saga_that_hangs():
    """Sagas that are interrupted later are recovered; when it is stopped, it waits for the rest."""
    stop = threading.Event()
    with virtual_time() as time:
        engine, ended = hanging(4)
        engine.sagas._parts.records.drop("t/3", entry_of(engine, "t/3"))
        time.advance(31.0)

        def progress(found):
            if len(ended) == 2:  # the next look finds one that was not there
                engine.sagas._parts.records.enter("t/3", "late")
            if len(ended) == 4:
                stop.set()

        found = engine.sagas.watch(stop, every=7.0, progress=progress)
    assert (found.succeeded, set(ended[:3]), ended[3]) == (4, {"1", "2", "3"}, "0")


def entry_of(engine, address):
    return dict(engine.sagas._parts.records.entries())[address]


@pytest.mark.parametrize("workers", [0, -1, 1001, 1.5, True])
def test_workers_are_checked(engine, workers):
    with pytest.raises(PolicyError, match="workers"):
        engine.sagas.recover(workers=workers)


def test_no_more_at_once_than_workers():
    """Nor more than the limit; with one worker they run one after the other."""
    running, most, lock = [], [], threading.Lock()

    def act():
        with lock:
            running.append(1)
            most.append(len(running))
        moment.wait(0.03)  # longer than a moment: another thread is used, if there may be one
        with lock:
            running.pop()

    moment = threading.Event()
    store, saga = MemoryStore(), Saga("t", [SagaStep("a", act)])
    with virtual_time() as time:
        for number in range(6):
            begin_and_die(store, Saga("t", [SagaStep("a", dies)]), f"{number}")
        engine = Engine(store, sinks=[])
        engine.sagas.register(saga)
        time.advance(31.0)
        assert engine.sagas.recover(workers=1, limit=2).succeeded == 2
        assert max(most) == 1
        assert engine.sagas.recover(workers=2, limit=3).succeeded == 3
        assert max(most) <= 2
        assert asyncio.run(engine.sagas.arecover(workers=1)).succeeded == 1
        assert len(most) == 6


def test_a_cancelled_recovery_cancels_its_sagas():
    """They are compensated, shielded; then the cancellation is raised."""
    store, undone = MemoryStore(), []
    dying = Saga("t", [SagaStep("a", dies, lambda: None)])

    async def main():
        began = asyncio.Event()

        async def act(ctx):
            if len(waiting) == 2:
                began.set()
            waiting.append(ctx.saga_id)
            await asyncio.Event().wait()

        async def undo(ctx):
            await asyncio.sleep(0)
            undone.append(ctx.saga_id)

        waiting = []
        engine.sagas.register(Saga("t", [SagaStep("a", act, undo)]))
        task = asyncio.ensure_future(engine.sagas.arecover())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with virtual_time() as time:
        for number in range(3):
            begin_and_die(store, dying, f"{number}")
        engine = Engine(store, sinks=[])
        time.advance(31.0)
        asyncio.run(main())
    assert sorted(undone) == ["0", "1", "2"]


# --- cancelling -----------------------------------------------------------------------------------


def test_cancel(engine, run):
    """A saga that is cancelled begins no further step, and undoes what is done."""
    steps = Steps(run)

    def cancel(ctx):
        assert engine.sagas.cancel(ctx.saga, ctx.saga_id, why="withdrawn") == ""

    saga = Saga("order", [steps("a"), SagaStep("b", cancel), steps("c")])
    with pytest.raises(CallCancelled) as caught:
        run(engine, saga, id="1")
    assert "withdrawn" in caught.value.__notes__
    assert steps.calls == ["a", "-a"]
    assert engine.sagas.get(saga, "1").cancelled == "withdrawn"
    assert engine.sagas.cancel(saga, "1", why="again") == "it is compensated"
    with pytest.raises(UsageError, match="needs a reason"):
        engine.sagas.cancel(saga, "1", why=" ")


def test_a_cancelled_task_is_compensated(engine):
    """If the task is cancelled, the saga is undone, shielded, and the cancellation is raised."""
    steps, undone = Steps(run_asyncio), []

    async def main():
        began = asyncio.Event()

        async def wait():
            began.set()
            await asyncio.sleep(60.0)

        async def undo():
            await asyncio.sleep(0)
            undone.append("b")

        saga = Saga("order", [steps("a"), SagaStep("b", wait, undo), steps("c")])
        task = asyncio.ensure_future(engine.sagas.arun(saga, id="1"))
        await began.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert undone == ["b"]
    assert steps.calls == ["a", "-a"]
    assert engine.sagas.get("order", "1").state == "compensated"


def test_a_cancelled_group_is_compensated(engine):
    """The steps of a group are cancelled with their task, and undone."""
    undone = []

    async def main():
        began = asyncio.Event()

        async def wait():
            began.set()
            await asyncio.sleep(60.0)

        group = [
            SagaStep("a", wait, lambda: undone.append("a")),
            SagaStep("b", wait, lambda: undone.append("b")),
        ]
        task = asyncio.ensure_future(engine.sagas.arun(Saga("order", [group]), id="1"))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert sorted(undone) == ["a", "b"]


def test_a_cancelled_scope_is_compensated(engine):
    """The same under trio."""
    steps, undone = Steps(run_trio), []

    async def main():
        async def undo():
            await trio.sleep(0.01)
            undone.append("b")

        async def wait():
            scope.cancel()
            await trio.sleep_forever()

        saga = Saga("order", [steps("a"), SagaStep("b", wait, undo), steps("c")])
        with trio.CancelScope() as scope:
            await engine.sagas.arun(saga, id="1")
        return scope.cancelled_caught

    assert trio.run(main)
    assert undone == ["b"]
    assert engine.sagas.get("order", "1").state == "compensated"


# --- leases and stores ----------------------------------------------------------------------------


def test_a_process_that_stood_still_loses_its_saga(engine, run):
    """What another process has taken over is refused to the first one."""
    store = engine.store

    def lose(ctx):
        from mainstay.core.saga.record import reduce

        def decide(value, now):
            return reduce(value, Take("another", "a > b", 30.0), now + 31.0)

        store.transact(SPACE, "t/1", decide)

    saga = Saga("t", [SagaStep("a", lose, policy=ONCE), SagaStep("b", lambda: 1)])
    with pytest.raises(LeaseLost):
        run(engine, saga, id="1")


@pytest.mark.req("EF-14")
@pytest.mark.parametrize("passes", ["advance", "suspend"])
@pytest.mark.parametrize("is_undo", [False, True])
def test_a_retry_after_the_saga_was_taken_over_is_not_made(run, is_undo, passes):
    """The lease is looked at before each attempt: another process may run the step by now."""
    attempts, store = [], MemoryStore()
    patient = RetryPolicy(max_attempts=5, retry_on=Exception, backoff=Backoff.constant(1.0))

    def lose():
        attempts.append(1)
        getattr(time, passes)(31.0)  # this process stands still, its renewal too
        store.transact(SPACE, "t/1", take)
        raise OSError("down")

    def take(value, now):
        from mainstay.core.saga.record import reduce

        return reduce(value, Take("another", decode(value).shape, 300.0), now)

    with virtual_time() as time, Engine(store, sinks=[]) as engine:
        if is_undo:
            first = SagaStep("a", lambda: 1, lose, compensate_policy=patient)
            saga = Saga("t", [first, Steps()("b", fail=ValueError("x"))])
        else:
            saga = Saga("t", [SagaStep("a", lose, policy=patient)])
        with pytest.raises(LeaseLost):
            run(engine, saga, id="1")
        assert attempts == [1]
        assert decode(store.read(SPACE, "t/1")[0]).owner == "another"


class Late(MemoryStore):
    """A store whose next answers come late: `delay` is called before each of them."""

    def __init__(self):
        super().__init__()
        self.delays = []

    def transact(self, space, key, decide):
        reply = super().transact(space, key, decide)
        if space == SPACE and self.delays:
            self.delays.pop()()
        return reply


@pytest.mark.req("EF-14")
@pytest.mark.parametrize("passes", ["advance", "suspend"])
@pytest.mark.parametrize(("is_taken", "times"), [(True, 1), (False, 2), (False, 9)])
def test_a_renewal_that_is_answered_after_its_lease_is_none(run, is_taken, times, passes):
    """The store has renewed the lease, and by the time of its answer that is over as well."""
    attempts, store = [], Late()
    patient = RetryPolicy(max_attempts=5, retry_on=Exception, backoff=Backoff.constant(1.0))

    def stand_still():
        attempts.append(1)
        if len(attempts) == 1:
            getattr(time, passes)(31.0)
            store.delays += [late] * times
            raise OSError("down")
        return "done"

    def late():
        getattr(time, passes)(31.0)
        if is_taken:
            store.transact(SPACE, "t/1", take)

    def take(value, now):
        from mainstay.core.saga.record import reduce

        return reduce(value, Take("another", decode(value).shape, 300.0), now)

    with virtual_time() as time, Engine(store, sinks=[]) as engine:
        saga = Saga("t", [SagaStep("a", stand_still, policy=patient)])
        if times == 2:  # the third renewal is answered in time
            assert run(engine, saga, id="1").results["a"] == "done"
            assert attempts == [1, 1]
            return
        with pytest.raises(LeaseLost):
            run(engine, saga, id="1")
        assert attempts == [1]


@pytest.mark.req("EF-14")
@pytest.mark.parametrize("passes", ["advance", "suspend"])
def test_the_first_renewal_counts_from_when_the_claim_was_sent(run, passes):
    """The answer took most of the lease: another third of it would be after its end."""
    store = Late()

    def left():
        ((_, value),) = store.scan(SPACE)
        return decode(value).lease_until - time.wall()

    with virtual_time() as time, Engine(store, sinks=[]) as engine:
        store.delays.append(lambda: getattr(time, passes)(250.0))
        step = SagaStep("a", lambda: wait_until(lambda: left() > 290.0, "a renewal", 15.0))
        assert run(engine, Saga("t", [step], lease=300.0), id="1").results["a"]


def test_a_lease_that_may_be_over_is_renewed_before_a_step(engine, run):
    """A step that took longer than the lease is followed by the next, if nobody took over."""
    with virtual_time() as time:
        saga = Saga(
            "t",
            [
                SagaStep("a", lambda: time.advance(100.0), policy=ONCE),
                SagaStep("b", lambda: time.advance(100.0), policy=ONCE),
                SagaStep("c", lambda: "done"),
            ],
        )
        assert run(engine, saga, id="1").results["c"] == "done"


class Flaky(MemoryStore):
    """A store that is unavailable for some steps of sagas."""

    def __init__(self, failures):
        super().__init__()
        self.failures = failures

    def transact(self, space, key, decide):
        if space == SPACE and self.failures > 0:
            self.failures -= 1
            raise StoreUnavailable("memory://", "write", "down")
        return super().transact(space, key, decide)


@pytest.mark.parametrize(("failures", "is_done"), [(2, True), (5, False)])
def test_an_unavailable_store(run, failures, is_done):
    """A write is tried three times; then the saga is left to recovery."""
    with virtual_time():
        store = Flaky(0)
        engine = Engine(store, sinks=[])
        steps = Steps(run)

        def fail_next():
            store.failures = failures

        saga = Saga("t", [SagaStep("a", fail_next, policy=ONCE), steps("b")])
        if is_done:
            run(engine, saga, id="1")
        else:
            with pytest.raises(StoreUnavailable):
                run(engine, saga, id="1")
            assert steps.calls == []


def test_events(run):
    """What happens to a saga is emitted, in its order."""
    events = []
    steps = Steps(run)
    with Engine(sinks=[events.append]) as engine:
        saga = Saga("t", [steps("a"), steps("b", fail=ValueError("closed"))])
        with pytest.raises(ValueError, match="closed"):
            run(engine, saga, id="1")
    names = [each.event_type for each in events if each.event_type.startswith("saga")]
    assert names == ["saga_step_failed", "saga_step_undone", "saga_ended"]


def test_unsafe_steps_are_not_retried(engine):
    """A step that is declared unsafe has one attempt, and its doubtful failure is undone."""
    steps = Steps()
    saga = Saga("t", [steps("a", fail=TimeoutError(), idempotency="unsafe", policy=None)])
    with pytest.raises(TimeoutError):
        engine.sagas.run(saga)
    assert steps.calls == ["a", "-a"]


def test_graph(engine):
    """A diagram is drawn of a saga that is there, in a format that is known."""
    engine.sagas.run(Saga("t", [Steps()("a")]), id="1")
    assert engine.sagas.graph("t/1", "svg").startswith("<svg")
    for arguments in (("t/2",), ("t/1", "png")):
        with pytest.raises(UsageError):
            engine.sagas.graph(*arguments)


@pytest.mark.req("EF-12")
def test_metrics():
    """Partial failures and compensations of sagas are counted under the document's names."""
    from prometheus_client import CollectorRegistry

    from mainstay.sinks.prometheus import PrometheusSink

    registry, steps = CollectorRegistry(), Steps()
    undo_fails = steps("c", fail_undo=OSError("down"))
    with Engine(sinks=[PrometheusSink(registry=registry)]) as engine:
        for first in (steps("a"), undo_fails):
            saga = Saga(f"t{first.name}", [first, steps("b", fail=ValueError("x"))])
            with pytest.raises((ValueError, CompensationFailedError)):
                engine.sagas.run(saga, id="1")
        with pytest.raises(ValueError, match="x"):
            engine.sagas.run(Saga("alone", [steps("d", fail=ValueError("x"))]))

    def value(name, **labels):
        return registry.get_sample_value(name, labels)

    assert value("effect_partial_failure_total", effect_type="ta") == 1.0
    assert value("effect_partial_failure_total", effect_type="alone") is None
    assert value("effect_compensation_total", effect_type="ta", outcome="success") == 1.0
    assert value("effect_compensation_total", effect_type="tc", outcome="failure") == 1.0
