"""A saga as people look at it."""

import pytest
from msgspec import Raw
from msgspec.structs import replace

from mainstay.core.codec.outcome import Failed, encode_outcome
from mainstay.core.saga.commands import Append, Begin
from mainstay.core.saga.context import SagaContext
from mainstay.core.saga.progress import Entry, Mark
from mainstay.core.saga.record import reduce
from mainstay.core.saga.state import SagaState, Stuck, decode
from mainstay.core.saga.view import view_of
from mainstay.errors import UsageError


def record():
    begin = Begin("me", "transfer", 2, "a~ > b! > c", "f", b"null", (0,), 10.0)
    value = reduce(None, begin, 100.0)[0].value
    entries = (Entry(Mark.STEP_DONE, 0, attempts=2), Entry(Mark.STEP_STARTED, 1))
    return decode(reduce(value, Append("me", 1, 0, entries, 10.0), 103.0)[0].value)


def test_view_of_a_running_saga():
    """The view has each step with its status, its attempts and its seconds."""
    view = view_of("acme@transfer/t-1", record(), 104.0)
    assert (view.saga, view.id, view.tenant_id, view.version) == ("transfer", "t-1", "acme", 2)
    assert (view.state, view.is_leased, view.ended) == ("running", True, None)
    first, pivot, last = view.steps
    assert (first.status, first.attempts, first.seconds, first.undoable) == ("done", 2, 3.0, True)
    assert (pivot.status, pivot.pivot, pivot.seconds) == ("started", True, None)
    assert last.status == "pending"
    shown = view.to_dict()
    assert shown["began"] == "1970-01-01T00:01:40Z"
    assert [each["what"] for each in shown["log"]] == ["started", "done", "started"]
    assert shown["steps"][0]["name"] == "a"
    assert view_of("transfer/t-1", record()).is_leased is False


def test_view_of_a_saga_that_is_stuck():
    """The view has why it is stuck, and what failed, also if that cannot be rebuilt."""
    stuck = replace(
        record(),
        state=SagaState.STUCK,
        stuck=Stuck("undo", 0, "the compensation failed", SagaState.COMPENSATING),
        failure=Raw(encode_outcome(Failed(OSError("down")))),
        log=(*record().log, Entry(Mark.ENDED, -1)),
        ended=105.0,
    )
    view = view_of("transfer/t-1", stuck)
    assert (view.stuck, view.failure) == ("the compensation failed", "OSError: down")
    assert view.log[-1].step == ""
    assert view.to_dict()["ended"] == "1970-01-01T00:01:45Z"
    damaged = replace(stuck, failure=Raw(b'{"v":9}'))
    assert view_of("transfer/t-1", damaged).failure.startswith("StoredValueError")


def test_context():
    """A context begins before its first attempt."""
    context = SagaContext("transfer", "t-1", "debit", 5, {}, key="k")
    assert (context.saga_id, context.step, context.attempt) == ("t-1", "debit", 0)


def test_emit():
    """A context hands messages on; without an outbox it refuses them."""
    sent = []

    def send(topic, payload, fields):
        sent.append((topic, payload, fields))
        return "8d0f"

    context = SagaContext("transfer", "t-1", "debit", 5, {}, key="k", send=send)
    assert context.emit("t", [1], aggregate_id="a") == "8d0f"
    assert sent == [("t", [1], {"aggregate_id": "a"})]
    alone = SagaContext("transfer", "t-1", "debit", 5, {}, key="k")
    with pytest.raises(UsageError, match="step debit emits 't', and this saga runs without an"):
        alone.emit("t", [1])
