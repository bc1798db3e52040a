"""Sagas on Temporal: one contract on both executors, and what only Temporal has."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from mainstay import (
    Backoff,
    CallCancelled,
    Engine,
    Jitter,
    KindRule,
    PayloadMismatch,
    RetryPolicy,
    Saga,
    SagaStep,
    UsageError,
)

temporalio = pytest.importorskip("temporalio", reason="pip install temporalio")

from temporalio.client import Client  # noqa: E402

from mainstay.core.saga.context import address_of, key_of  # noqa: E402
from mainstay.integrations import temporal  # noqa: E402

QUEUE, SECRET = "sagas", "correct horse battery"
ONCE = RetryPolicy(max_attempts=1, attempt_timeout=20.0)
QUICK = RetryPolicy(
    max_attempts=3, backoff=Backoff.constant(0.01), retry_on=Exception, attempt_timeout=20.0
)


class Steps:
    """Steps that are listed as they run."""

    def __init__(self):
        self.calls, self.keys = [], []

    def __call__(self, name, fail=(), fail_undo=(), undo=True, **options):
        options.setdefault("policy", ONCE)
        options.setdefault("compensate_policy", ONCE)
        undoing = self.made(f"-{name}", list(fail_undo)) if undo else None
        return SagaStep(name, self.made(name, list(fail)), undoing, **options)

    def made(self, name, errors):
        def act(ctx):
            self.calls.append(name)
            self.keys.append((name, ctx.key))
            if errors:
                raise errors.pop(0)
            return {"name": name, "amount": (ctx.input or {}).get("amount"), "of": set(ctx.results)}

        return act


class OnStore:
    """The engine's own executor."""

    def __init__(self, engine):
        self.engine = engine

    def run(self, saga, given=None, saga_id="1", is_async=False):
        """The results, or what is raised; "stuck" if it waits for a person."""
        sagas = self.engine.sagas
        try:
            if is_async:
                return dict(asyncio.run(sagas.arun(saga, given, id=saga_id)).results)
            return dict(sagas.run(saga, given, id=saga_id).results)
        except Exception as error:
            return "stuck" if sagas.get(saga, saga_id).state == "stuck" else error
        except SystemExit as error:  # the process has ended: others take the saga over
            while sagas.get(saga, saga_id).state in ("running", "compensating"):
                sagas.recover()
            return "stuck" if sagas.get(saga, saga_id).state == "stuck" else error

    def go_on(self, saga, saga_id="1"):
        """What it came to after a decision."""
        self.engine.sagas.recover()
        return self.engine.sagas.get(saga, saga_id).state


class OnTemporal:
    """The same on Temporal."""

    def __init__(self, engine, address):
        self.engine, self.address = engine, address

    def run(self, saga, given=None, saga_id="1", is_async=False):
        return asyncio.run(self._run(saga, given, saga_id))

    async def _run(self, saga, given, saga_id):
        client = await Client.connect(self.address)
        async with temporal.saga_worker(client, self.engine, [saga], task_queue=QUEUE):
            running = asyncio.ensure_future(
                temporal.run_saga(client, self.engine, saga, given, id=saga_id, task_queue=QUEUE)
            )
            while not running.done():
                await asyncio.wait([running], timeout=0.1)
                if list(self.engine.inbox):
                    running.cancel()
                    return "stuck"
            try:
                return running.result()
            except Exception as error:
                return error

    def go_on(self, saga, saga_id="1"):
        async def main():
            client = await Client.connect(self.address)
            async with temporal.saga_worker(client, self.engine, [saga], task_queue=QUEUE):
                assert await temporal.forward_decisions(client, self.engine) == 1
                handle = client.get_workflow_handle(f"{saga.name}/{saga_id}")
                return (await handle.result())["state"]

        return asyncio.run(main())


@pytest.fixture
def engine():
    with Engine(sinks=[]) as made:
        made.operators.add("ann", secret=SECRET)
        yield made


@pytest.fixture(params=["store", "temporal"])
def executor(request, engine):
    if request.param == "store":
        return OnStore(engine)
    return OnTemporal(engine, request.getfixturevalue("temporal_address"))


def decide(engine, action, **options):
    (item,) = engine.inbox
    assert item.kind == "stuck_saga"
    engine.inbox.act(item.id, action, by="ann", proof=SECRET, **options)


def named(request, *steps, **options):
    """A saga of a name of its own: workflows of all tests share a server."""
    name = request.node.name.replace("[", ".").replace("]", "")[-60:]
    return Saga(name, steps, **options)


# --- the contract ---------------------------------------------------------------------------------


def test_results(request, executor):
    """Results and input keep their types, and reach the later steps."""
    steps = Steps()
    saga = named(request, steps("a"), [steps("b"), steps("c")], steps("d"))
    results = executor.run(saga, {"amount": 5})
    assert results["d"] == {"name": "d", "amount": 5, "of": {"a", "b", "c"}}
    assert (steps.calls[0], steps.calls[-1]) == ("a", "d")


def test_compensation(request, executor):
    """What is done is undone, the last first; the failure is raised."""
    steps = Steps()
    saga = named(request, steps("a"), steps("b"), steps("c", fail=[ValueError("closed")]))
    error = executor.run(saga)
    assert (type(error), str(error)) == (ValueError, "closed")
    assert steps.calls == ["a", "b", "c", "-b", "-a"]


def test_the_same_id_is_one_saga(request, executor):
    """What was run before is not run again; another input is refused."""
    steps = Steps()
    saga = named(request, steps("a"))
    for _ in range(2):
        assert executor.run(saga, {"amount": 5})["a"]["amount"] == 5
    assert isinstance(executor.run(saga, {"amount": 6}), PayloadMismatch)
    assert steps.calls == ["a"]


def test_doubt(request, executor):
    """A step that may have happened is undone, too."""
    steps = Steps()
    saga = named(request, steps("a"), steps("b", fail=[TimeoutError("no answer")]))
    assert isinstance(executor.run(saga), TimeoutError)
    assert steps.calls == ["a", "b", "-b", "-a"]


def test_retries_have_one_key(request, executor):
    """A step is retried by its policy, with one key."""
    steps = Steps()
    saga = named(request, steps("a", fail=[OSError("1"), OSError("2")], policy=QUICK))
    assert executor.run(saga)["a"]["name"] == "a"
    assert len(steps.calls) == 3
    assert len(set(steps.keys)) == 1


def test_what_a_policy_calls_final_is_not_retried(request, executor):
    """The policy decides what is retried, whoever carries the retries out."""
    steps, policy = Steps(), QUICK.replace(never_retry_on=(KeyError,))
    saga = named(request, steps("a", fail=[KeyError("x")], policy=policy))
    assert isinstance(executor.run(saga), KeyError)
    assert steps.calls == ["a"]


@pytest.mark.parametrize(("action", "state"), [("retry", "succeeded"), ("skip", "succeeded")])
def test_behind_the_pivot(request, engine, executor, action, state):
    """Behind the pivot nothing is undone: an item, and after a decision the rest."""
    steps = Steps()
    saga = named(
        request,
        steps("a"),
        steps("b", pivot=True),
        steps("c", fail=[ValueError("closed")]),
        steps("d"),
    )
    assert executor.run(saga) == "stuck"
    decide(engine, action, why="by hand")
    assert executor.go_on(saga) == state
    assert "-a" not in steps.calls
    assert steps.calls[-1] == "d"


def test_a_compensation_that_fails(request, engine, executor):
    """The saga is stuck with an item; after a decision the other compensations follow."""
    steps = Steps()
    saga = named(
        request,
        steps("a"),
        steps("b", fail_undo=[OSError("down")]),
        steps("c", fail=[ValueError("closed")]),
    )
    assert executor.run(saga) == "stuck"
    assert steps.calls == ["a", "b", "c", "-b"]
    decide(engine, "retry")
    assert executor.go_on(saga) == "compensated"
    assert steps.calls[4:] == ["-b", "-a"]


def test_a_deadline_ends_the_retries_of_a_step(request, executor):
    """What is done is undone; before, a step on Temporal was retried for as long as its policy."""
    steps, down = Steps(), [OSError("down")] * 10_000
    patient = QUICK.replace(max_attempts=9_000, backoff=Backoff.constant(0.2))
    saga = named(request, steps("a"), steps("b", fail=down, policy=patient), deadline=2.0)
    assert isinstance(executor.run(saga), Exception)
    assert steps.calls[-1] == "-a"
    assert steps.calls.count("b") < 20


def test_a_group_is_undone_in_reverse_order_of_completion(request, executor):
    """Steps of a group run at the same time; the last to be done is undone first."""
    steps, is_done = Steps(), threading.Event()
    first = steps("a")

    def wait_for_b(ctx):
        assert is_done.wait(30.0)
        time.sleep(0.3)  # until the end of b was written
        return first.action(ctx)

    def end(ctx):
        is_done.set()

    saga = named(
        request,
        [SagaStep("a", wait_for_b, first.compensate, policy=ONCE, compensate_policy=ONCE),
         SagaStep("b", end, steps("b").compensate, policy=ONCE, compensate_policy=ONCE)],
        steps("c", fail=[ValueError("closed")]),
    )  # fmt: skip
    assert isinstance(executor.run(saga), ValueError)
    assert steps.calls == ["a", "c", "-a", "-b"]


@pytest.mark.parametrize("error", [ValueError("closed"), TimeoutError("no answer")])
def test_a_group_in_which_one_step_fails(request, executor, error):
    """The others end first; what may have happened is undone, the failed step only if in doubt."""
    steps = Steps()
    saga = named(request, steps("a"), [steps("b"), steps("c", fail=[error]), steps("d")])
    assert isinstance(executor.run(saga), type(error))
    assert sorted(steps.calls[1:4]) == ["b", "c", "d"]
    undone = ["-b", "-c", "-d"] if isinstance(error, TimeoutError) else ["-b", "-d"]
    assert sorted(steps.calls[4:-1]) == undone
    assert steps.calls[-1] == "-a"


def test_a_group_behind_the_pivot(request, engine, executor):
    """It goes forward only: a step that fails waits for a person, the others keep their results."""
    steps = Steps()
    saga = named(
        request,
        steps("a", pivot=True),
        [steps("b", fail=[ValueError("closed")]), steps("c")],
        steps("d"),
    )
    assert executor.run(saga) == "stuck"
    decide(engine, "retry")
    assert executor.go_on(saga) == "succeeded"
    assert sorted(steps.calls) == ["a", "b", "b", "c", "d"]


def test_a_pivot_that_fails(request, executor):
    """If it has certainly not happened, what was done is undone."""
    steps = Steps()
    saga = named(request, steps("a"), steps("b", fail=[ValueError("no")], pivot=True, undo=False))
    assert isinstance(executor.run(saga), ValueError)
    assert steps.calls == ["a", "b", "-a"]


@pytest.mark.parametrize(
    ("action", "options", "state", "last"),
    [
        ("skip", {"why": "it has not happened"}, "compensated", "-a"),
        ("mark_done", {"evidence": "receipt 7"}, "succeeded", "c"),
    ],
)
def test_a_pivot_in_doubt(request, engine, executor, action, options, state, last):
    """A person decides which way the saga goes."""
    steps = Steps()
    pivot = steps("b", fail=[TimeoutError("no answer")], pivot=True, undo=False)
    saga = named(request, steps("a"), pivot, steps("c"))
    assert executor.run(saga) == "stuck"
    decide(engine, action, **options)
    assert executor.go_on(saga) == state
    assert steps.calls == ["a", "b", last]


def test_a_deadline_begins_no_further_step(request, executor):
    """Once it has passed; what is done is undone."""
    steps = Steps()
    slow = SagaStep("b", lambda: time.sleep(1.5), lambda: None, policy=ONCE)
    saga = named(request, steps("a"), slow, steps("c"), deadline=1.0)
    assert isinstance(executor.run(saga), Exception)
    assert steps.calls == ["a", "-a"]


def test_a_deadline_counts_no_more_behind_the_pivot(request, executor):
    """From there on the saga goes to its end."""
    steps = Steps()
    slow = SagaStep("b", lambda: time.sleep(1.5), policy=ONCE)
    saga = named(request, steps("a", pivot=True), slow, steps("c"), deadline=1.0)
    assert executor.run(saga)["c"]["name"] == "c"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_step_that_exits(request, executor, is_async):
    """SystemExit: whether it has happened is not known, so it is undone, by whoever goes on."""
    steps = Steps()
    bad = steps("b", fail=[SystemExit(3)] * 9)

    async def act(ctx):
        await asyncio.sleep(0)
        return bad.action(ctx)

    step = SagaStep("b", act, bad.compensate, policy=ONCE) if is_async else bad
    saga = named(request, steps("a"), step, steps("c"), max_recoveries=2)
    assert isinstance(executor.run(saga, is_async=is_async), BaseException)
    assert list(dict.fromkeys(steps.calls)) == ["a", "b", "-b", "-a"]
    assert steps.calls.count("a") == 1


def test_a_compensation_that_exits(request, engine, executor):
    """The saga is stuck with an item, and goes on as a person decides."""
    steps = Steps()
    bad = steps("a", fail_undo=[SystemExit(3)] * (3 if isinstance(executor, OnStore) else 1))
    saga = named(request, bad, steps("b", fail=[ValueError("closed")]), max_recoveries=2)
    assert executor.run(saga) == "stuck"
    decide(engine, "retry")
    assert executor.go_on(saga) == "compensated"


def test_a_wrapper_of_an_async_function(request, executor):
    """What is returned is awaited, though nothing shows before that the function is async."""
    calls = []

    async def act(name):
        await asyncio.sleep(0)
        calls.append(name)
        return name

    step = SagaStep("a", lambda: act("a"), lambda: act("-a"), policy=ONCE)
    saga = named(request, step, Steps()("b", fail=[ValueError("closed")]))
    assert isinstance(executor.run(saga, is_async=True), ValueError)
    assert calls == ["a", "-a"]


@pytest.mark.parametrize("saga_id", ["order 7/ü", "1~2", "%2F"], ids=["space", "tilde", "percent"])
def test_ids_and_keys(request, executor, saga_id):
    """The address of the saga and the keys of its steps are the same on both."""
    steps, seen = Steps(), []
    ids = SagaStep("b", lambda ctx: seen.append((ctx.saga, ctx.saga_id, ctx.step)), policy=ONCE)
    saga = named(request, steps("a"), ids)
    executor.run(saga, saga_id=saga_id)
    address = address_of(saga.name, saga_id)
    assert steps.keys == [("a", key_of(address, "a", is_undo=False))]
    assert seen == [(saga.name, saga_id, "b")]
    if isinstance(executor, OnTemporal):
        assert asyncio.run(described(executor.address, address)).id == address


async def described(where, address):
    return await (await Client.connect(where)).get_workflow_handle(address).describe()


def test_the_item_of_a_stuck_saga(request, engine, executor):
    """It appears in the inbox of the engine, with the step, why, and what may be done."""
    steps = Steps()
    saga = named(request, steps("a", fail_undo=[OSError("down")]), steps("b", fail=[ValueError()]))
    assert executor.run(saga, saga_id="7") == "stuck"
    (item,) = engine.inbox
    assert (item.kind, item.operation) == ("stuck_saga", saga.name)
    assert f"{saga.name} 7: the compensation of step a failed: OSError: down" in item.text
    assert (item.data["step"], item.data["phase"]) == ("a", "undo")
    assert item.data["address"] == address_of(saga.name, "7")
    assert item.actions == ("retry", "skip", "mark_done")


# --- Temporal alone -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (RetryPolicy(backoff=Backoff.linear(0.1)), "a linear backoff"),
        (RetryPolicy(jitter=Jitter.full()), "jitter"),
        (RetryPolicy(retry_if_result=lambda result: result is None), "retry_if_result"),
        (RetryPolicy(per_kind={"throttled": KindRule(max_attempts=9)}), "per_kind"),
        (RetryPolicy(backoff=Backoff.custom(lambda retry: 0.1)), "a custom backoff"),
        (RetryPolicy(backoff=Backoff.chain(0.1, 0.2)), "a chain backoff"),
        (RetryPolicy(timeout_by="thread", attempt_timeout=1.0), "timeout_by"),
    ],
)
def test_what_cannot_be_translated_is_refused(engine, policy, name):
    """A policy that Temporal has no counterpart for is refused, with the name of the field."""
    saga = Saga("a", [SagaStep("debit", print, policy=policy)])
    with pytest.raises(
        UsageError, match=f"debit: {name} .*cannot be translated|debit: {name} cannot"
    ):
        temporal.request_of(engine, saga, "1", None)
    undoing = Saga("a", [SagaStep("debit", print, print, compensate_policy=policy)])
    with pytest.raises(UsageError, match="debit: "):  # when the worker is made: before any call
        temporal.saga_worker(None, engine, [undoing], task_queue=QUEUE)


def test_cancel(request, engine, temporal_address):
    """A workflow that is signalled begins no further step, and undoes what was done."""
    steps, saga_id = Steps(), "1"

    async def cancel():
        client = await Client.connect(temporal_address)
        handle = client.get_workflow_handle(f"{saga.name}/{saga_id}")
        await handle.signal(temporal.SagaWorkflow.cancel, "withdrawn")

    def act(ctx):
        asyncio.run(cancel())

    saga = named(request, steps("a"), SagaStep("b", act, policy=ONCE), steps("c"))
    assert isinstance(OnTemporal(engine, temporal_address).run(saga), CallCancelled)
    assert steps.calls == ["a", "-a"]


def test_a_decision_that_arrives_twice_is_one(request, engine, temporal_address):
    """Two processes forward it at once: the saga is stuck again, and waits for another decision."""
    steps = Steps()
    saga = named(
        request,
        steps("a", fail_undo=[OSError("down")]),
        steps("b", fail_undo=[OSError("down")]),
        steps("c", fail=[ValueError("closed")]),
    )
    assert OnTemporal(engine, temporal_address).run(saga) == "stuck"
    decide(engine, "retry")

    async def main():
        client = await Client.connect(temporal_address)
        async with temporal.saga_worker(client, engine, [saga], task_queue=QUEUE):
            (item,) = [each for each in engine.inbox.all() if each.status == "decided"]
            handle = client.get_workflow_handle(f"{saga.name}/1")
            assert await temporal.forward_decisions(client, engine) == 1
            while not list(engine.inbox):  # noqa: ASYNC110 -- raised by an activity
                await asyncio.sleep(0.05)
            order = {"action": "retry", "token": item.decision.token}
            order["occasion"] = item.data["occasion"]
            await handle.signal(temporal.SagaWorkflow.decide, order)
            await asyncio.sleep(1.0)
            assert steps.calls[3:] == ["-b", "-b", "-a"]
            decide(engine, "retry")
            assert await temporal.forward_decisions(client, engine) == 1
            return (await asyncio.wait_for(handle.result(), 60.0))["state"]

    assert asyncio.run(main()) == "compensated"
    assert steps.calls[3:] == ["-b", "-b", "-a", "-a"]


WORKER = """
    import asyncio, os, sys, time
    from datetime import timedelta
    from temporalio.client import Client
    from mainstay import Backoff, Engine, RetryPolicy, Saga, SagaStep
    from mainstay.integrations import temporal

    address, effects, name, where = sys.argv[1:]
    POLICY = RetryPolicy(max_attempts=5, backoff=Backoff.constant(0.05), retry_on=Exception,
                         attempt_timeout=2.0)

    def act(step):
        def run(ctx):
            with open(effects, "a") as file:
                file.write(step + chr(10))
            with open(effects) as file:
                if step == where and file.read().split().count(step) == 1:
                    time.sleep(60)
            if step == "c":
                raise RuntimeError("closed") if ctx.attempt == 5 else OSError("again")
        return run

    ONCE = POLICY.replace(never_retry_on=(OSError, RuntimeError))
    saga = Saga(name, [
        SagaStep("a", act("a"), act("-a"), policy=POLICY, compensate_policy=POLICY),
        SagaStep("b", act("b"), act("-b"), policy=POLICY, compensate_policy=POLICY),
        SagaStep("c", act("c"), policy=ONCE),
    ], lease=1.0)

    def on_postgresql():
        engine = Engine(address, sinks=[])
        print("ready", flush=True)
        try:
            engine.sagas.run(saga, id="1")
        except Exception:
            pass
        print(engine.sagas.get(saga, "1").state, flush=True)

    async def main():
        client, engine = await Client.connect(address), Engine(sinks=[])
        # For so long the server keeps a workflow for the worker that had it, and is dead.
        dead = {"sticky_queue_schedule_to_start_timeout": timedelta(seconds=1)}
        async with temporal.saga_worker(client, engine, [saga], task_queue=name, **dead):
            try:
                await temporal.start_saga(client, engine, saga, id="1", task_queue=name)
            except Exception:
                pass
            print("ready", flush=True)
            found = await client.get_workflow_handle(name + "/1").result()
            print(found["state"], flush=True)

    on_postgresql() if address.startswith("postgresql") else asyncio.run(main())
    os._exit(0)
"""


@pytest.mark.req("EF-14")
@pytest.mark.parametrize("where", ["b", "-b"])
@pytest.mark.parametrize("place", ["temporal_address", "postgres_database"])
def test_a_worker_that_is_killed(request, tmp_path, place, where):
    """Killed in a step, and in a compensation: another takes the saga to the same end, on both."""
    effects, address = tmp_path / "effects", request.getfixturevalue(place)
    command = [sys.executable, "-c", textwrap.dedent(WORKER), address, str(effects)]
    command += [f"killed.{where.replace('-', 'undo')}", where]
    root = Path(__file__).parents[2]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    try:
        end = time.monotonic() + 60.0
        while time.monotonic() < end:
            if effects.exists() and where in effects.read_text().split():
                break
            time.sleep(0.05)
        assert where in effects.read_text().split()
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=root, timeout=100, check=False
    )
    assert done.stdout.split()[-1:] == ["compensated"], done.stderr
    lines = effects.read_text().split()
    assert list(dict.fromkeys(lines)) == ["a", "b", "c", "-b", "-a"]
    assert lines.count("a") == 1
    assert lines.count(where) == 2
