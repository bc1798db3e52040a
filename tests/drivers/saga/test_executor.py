"""The plain executor of the effects document. Its own sample runs in tests/conformance."""

import asyncio
import logging
from uuid import uuid4

import pytest

from mainstay import CompensationFailedError, SagaExecutor, SagaStep


class Accounts:
    """The service of the document's sample: it keeps balances, and fails if asked to."""

    def __init__(self, fail=()):
        self.balances = {"a": 100.0, "b": 0.0}
        self.fail = set(fail)

    async def debit(self, account, amount):
        await self._move(account, -amount)

    async def credit(self, account, amount):
        await self._move(account, amount)

    async def _move(self, account, amount):
        if (account, amount) in self.fail:
            raise ConnectionError(f"no answer for {account}")
        self.balances[account] += amount


async def transfer(accounts, giver, taker, amount, correlation_id):
    """Two steps, each with what undoes it."""
    steps = [
        SagaStep(
            name="debit",
            action=lambda: accounts.debit(giver, amount),
            compensate=lambda: accounts.credit(giver, amount),
        ),
        SagaStep(
            name="credit",
            action=lambda: accounts.credit(taker, amount),
            compensate=lambda: accounts.debit(taker, amount),
        ),
    ]
    await SagaExecutor().execute(steps, correlation_id)


@pytest.mark.req("EF-09")
@pytest.mark.parametrize(
    ("fail", "balances"),
    [((), {"a": 95.0, "b": 5.0}), ([("b", 5.0)], {"a": 100.0, "b": 0.0})],
)
def test_a_transfer_as_the_document_has_it(fail, balances):
    """Both accounts change, or neither does."""
    service = Accounts(fail)
    if fail:
        with pytest.raises(ConnectionError, match="no answer for b"):
            asyncio.run(transfer(service, "a", "b", 5.0, uuid4()))
    else:
        asyncio.run(transfer(service, "a", "b", 5.0, uuid4()))
    assert service.balances == balances


@pytest.mark.req("EF-09")
def test_compensations_that_fail_are_collected(caplog):
    """All are tried, in reverse order; the error has them in that order, and each is logged."""
    calls = []

    def step(name, error=None, undo_error=None):
        async def act():
            calls.append(name)
            if error:
                raise error

        async def undo():
            calls.append(f"-{name}")
            if undo_error:
                raise undo_error

        return SagaStep(name, act, undo)

    first, second, failure = OSError("one"), OSError("two"), ValueError("closed")
    steps = [
        step("a", undo_error=second),
        step("b"),
        step("c", undo_error=first),
        step("d", error=failure),
    ]
    correlation = uuid4()
    with caplog.at_level(logging.ERROR), pytest.raises(CompensationFailedError) as caught:
        asyncio.run(SagaExecutor().execute(steps, correlation))
    assert str(caught.value) == "Saga failed and 2 compensation(s) also failed"
    assert caught.value.failed_steps == ["c", "a"]
    assert caught.value.errors == [first, second]
    assert caught.value.__cause__ is failure
    assert calls == ["a", "b", "c", "d", "-c", "-b", "-a"]
    lines = [(each.message, each.correlation_id, each.error) for each in caplog.records]
    assert lines == [
        ("Compensation failed for step c", str(correlation), "one"),
        ("Compensation failed for step a", str(correlation), "two"),
    ]


def test_plain_steps_and_contexts():
    """Plain functions are accepted, and one that takes an argument gets the context."""
    seen = []

    def second(ctx):
        seen.append((ctx.results["a"], ctx.saga_id, ctx.attempt))

    def undo(ctx):
        seen.append(("undone", ctx.step))

    def fail():
        raise ValueError("closed")

    steps = [
        SagaStep("a", lambda: 5, undo),
        SagaStep("b", second),
        SagaStep("c", fail, undo),
    ]
    with pytest.raises(ValueError, match="closed"):
        asyncio.run(SagaExecutor().execute(steps, "c-1"))
    assert seen == [(5, "c-1", 1), ("undone", "a")]
