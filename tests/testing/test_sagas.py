"""`run_saga`: what a test of a saga runs, as the engine would."""

import asyncio

import pytest

from mainstay import Saga, SagaStep
from mainstay.testing import run_saga


async def fetched(result):
    await asyncio.sleep(60.0)
    return result


async def later():
    return await fetched(1)


@pytest.mark.parametrize("beside", [lambda: 1, later], ids=["sync", "async"])
def test_a_lambda_that_returns_a_coroutine_is_awaited_as_arun_awaits_it(beside):
    """Before, a saga of such lambdas alone was compensated: `run` refuses what must be awaited."""
    undo = [SagaStep("a", lambda: fetched(7), lambda: fetched(7)), SagaStep("b", beside)]
    done = run_saga(Saga("s", undo))
    assert (done.state, done.results["a"]) == ("succeeded", 7)
    undone = run_saga(Saga("s", undo), fail={"b": ValueError("no")})
    assert (undone.state, undone.calls) == ("compensated", ["a", "b", "-a"])


def test_a_lambda_that_returns_a_coroutine_is_awaited_after_a_crash():
    saga = Saga("s", [SagaStep("a", lambda: fetched(7)), SagaStep("b", lambda: fetched(7))])
    trace = run_saga(saga, crash_at=2)
    assert (trace.state, trace.calls) == ("succeeded", ["a", "a", "b"])
