"""A partial failure is compensated: the undo, the event, the item, the original failure."""

import asyncio
import logging
import sqlite3
import threading

import pytest
import trio

from mainstay import Engine, RetryPolicy, UsageError, context, deadline, events
from mainstay.errors import StoreUnavailable
from mainstay.stores.memory import MemoryStore

ONCE = RetryPolicy(name="once", max_attempts=1)


class Effect:
    """Creates a user in two parts, of which the second fails."""

    def __init__(self, run, undo=(), publish=(), **options):
        self.calls, self.failures, self.seen = (
            [],
            {"undo": list(undo), "publish": list(publish)},
            [],
        )
        self.error, self.run, self.options = ConnectionError("no broker"), run, options
        self.engine = Engine(sinks=[self.seen.append], policies=[ONCE], operations={"*": "once"})

    def handler(self, name):
        def act(failure):
            self.calls.append((name, failure.key, failure.is_undone))
            if self.failures[name]:
                raise self.failures[name].pop(0)

        async def aact(failure):
            await asyncio.sleep(0) if self.run is run_asyncio else await trio.lowlevel.checkpoint()
            act(failure)

        return act if self.run is run_sync else aact

    def block(self):
        given = {"undo": self.handler("undo"), "publish": self.handler("publish"), "key": "u-1"}
        return self.engine.compensation("create_user", **{**given, **self.options})

    def of(self, kind):
        return [event for event in self.seen if isinstance(event, kind)]

    @property
    def item(self):
        (item,) = self.engine.inbox
        return item


def run_sync(effect):
    with effect.block():
        raise effect.error


def run_asyncio(effect):
    async def main():
        async with effect.block():
            raise effect.error

    asyncio.run(main())


def run_trio(effect):
    async def main():
        async with effect.block():
            raise effect.error

    trio.run(main)


@pytest.fixture(params=[run_sync, run_asyncio, run_trio])
def run(request):
    return request.param


def failed(effect):
    with pytest.raises(BaseException) as caught:
        effect.run(effect)
    assert caught.value is effect.error
    return effect


@pytest.mark.req("EF-08")
def test_a_partial_failure(run):
    """The undo runs, then the event is published; the original failure is raised with a note."""
    effect = failed(Effect(run))
    assert effect.calls == [("undo", "u-1", True), ("publish", "u-1", True)]
    assert (effect.item.kind, effect.item.severity) == ("partial_failure", "low")
    assert effect.item.id in effect.error.__notes__[0]
    (began,), (ended,) = (effect.of(e) for e in (events.EffectPartiallyFailed,
                                                 events.EffectCompensated))  # fmt: skip
    assert (began.operation, began.effect_key, began.exception_type) == (
        "create_user", "u-1", "ConnectionError",
    )  # fmt: skip
    assert (ended.success, ended.is_undone, ended.is_published) == (True, True, True)


@pytest.mark.req("EF-08")
def test_the_compensating_event_cannot_be_published(run, caplog):
    """It is logged for a person, who has an item; the undo has run, the original is raised."""
    with caplog.at_level(logging.ERROR):
        effect = failed(Effect(run, publish=[ConnectionError("still no broker")]))
    assert [name for name, *_ in effect.calls] == ["undo", "publish"]
    assert "the compensating event failed, and needs a person" in caplog.text
    assert "still no broker" in effect.item.text
    assert (effect.item.severity, effect.item.subject) == ("high", "create_user/u-1")
    (ended,) = effect.of(events.EffectCompensated)
    assert (ended.success, ended.is_undone, ended.is_published) == (False, True, False)


@pytest.mark.req("EF-08")
def test_the_undo_fails(run, caplog):
    """The event is published all the same, and knows it; the item is critical."""
    with caplog.at_level(logging.ERROR):
        effect = failed(Effect(run, undo=[OSError("locked")]))
    assert effect.calls == [("undo", "u-1", True), ("publish", "u-1", False)]
    assert "the undo failed, and needs a person" in caplog.text
    assert "it could not be undone: OSError: locked" in effect.item.text
    assert effect.item.severity == "critical"
    (ended,) = effect.of(events.EffectCompensated)
    assert (ended.success, ended.is_undone, ended.is_published) == (False, False, True)


def test_both_fail(run):
    effect = failed(Effect(run, undo=[OSError("locked")], publish=[OSError("no broker")]))
    assert "locked" in effect.item.text
    assert "no broker" in effect.item.text


def test_the_inbox_cannot_be_reached(caplog):
    """That is logged; the undo has run, and the original failure is raised."""

    class Down(MemoryStore):
        def transact(self, space, *given):
            if space == "inbox":
                raise StoreUnavailable("memory://", "write", "down")
            return super().transact(space, *given)

    effect = Effect(run_sync)
    effect.engine = Engine(Down(), sinks=[])
    with caplog.at_level(logging.ERROR):
        failed(effect)
    assert "no item could be put into the inbox" in caplog.text
    assert [name for name, *_ in effect.calls] == ["undo", "publish"]


def test_compensated_failures_of_one_effect_are_one_item():
    """A broker that is down for an hour does not fill the inbox with what needs nobody."""
    effect = Effect(run_sync)
    for number in range(3):
        effect.options = {"key": f"u-{number}"}
        failed(effect)
    assert effect.item.times == 3


def test_nothing_happens_without_a_failure(run):
    effect = Effect(run)

    async def through():
        async with effect.block() as block:
            assert block.key == "u-1"

    if run is run_sync:
        with effect.block():
            pass
    else:
        {run_asyncio: asyncio.run, run_trio: lambda main: trio.run(lambda: main)}[run](through())
    assert (effect.calls, effect.seen) == ([], [])


def test_only_what_is_named_is_compensated(run):
    effect = failed(Effect(run, on=(TimeoutError,)))
    assert effect.calls == []


def test_undo_and_event_are_retried(run):
    """Each under the policy of its own operation."""
    effect = Effect(run, undo=[OSError()], publish=[OSError()])
    twice = RetryPolicy(name="twice", max_attempts=2, retry_on=(OSError,), backoff=_at_once())
    effect.engine = Engine(
        sinks=[], policies=[twice],
        operations={"create_user.undo": "twice", "create_user.compensate": "twice"},
    )  # fmt: skip
    failed(effect)
    assert [name for name, *_ in effect.calls] == ["undo", "undo", "publish", "publish"]
    assert effect.item.severity == "low"


def _at_once():
    from mainstay import Backoff

    return Backoff.constant(0.0)


def test_a_deadline_of_the_caller_does_not_end_it(run):
    """Nor does its cancel event: what is half done is undone."""
    effect, cancel, left = Effect(run), threading.Event(), []
    effect.options = {"publish": lambda: left.append(deadline.remaining())}
    cancel.set()
    with deadline.within(1e-9), context(cancel=cancel):
        failed(effect)
    assert [name for name, *_ in effect.calls] == ["undo"]
    assert left == [None]


def test_a_cancelled_task_is_compensated():
    """The undo runs to its end, although the task is cancelled twice; that is raised then."""
    calls = []

    async def undo():
        for _ in range(3):
            await asyncio.sleep(0)
        calls.append("undone")

    async def main():
        async def work():
            async with Engine(sinks=[]).compensation("create_user", undo=undo):
                started.set()
                await asyncio.Event().wait()

        started = asyncio.Event()
        task = asyncio.ensure_future(work())
        await started.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert calls == ["undone"]


def test_an_interrupt_in_the_undo():
    """The event is published, the item exists, and the interrupt is raised."""
    effect = Effect(run_sync, undo=[KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt) as caught:
        run_sync(effect)
    assert caught.value.__context__ is effect.error
    assert [name for name, *_ in effect.calls] == ["undo", "publish"]
    assert effect.item.severity == "critical"


def test_handlers_without_an_argument():
    calls = []
    engine = Engine(sinks=[])
    with (
        context(correlation_id="c-1"),
        pytest.raises(KeyError),
        engine.compensation("e", undo=lambda: calls.append(1)) as block,
    ):
        assert block.key == "c-1"
        raise KeyError
    assert calls == [1]
    assert engine.compensation("e", undo=print).key != engine.compensation("e", undo=print).key


def test_what_is_refused():
    engine = Engine(sinks=[])
    with pytest.raises(UsageError, match="undo = 5"):
        engine.compensation("e", undo=5)
    with pytest.raises(UsageError, match="publish = 'topic'"):
        engine.compensation("e", undo=print, publish="topic")


def test_an_async_undo_in_a_plain_block(caplog):
    """It cannot run: that is logged, and a person has an item."""

    async def undo():
        raise AssertionError

    engine = Engine(sinks=[])
    with caplog.at_level(logging.ERROR), pytest.raises(KeyError):  # noqa: SIM117
        with engine.compensation("e", undo=undo):
            raise KeyError
    assert "has to be awaited" in caplog.text
    assert [item.severity for item in engine.inbox] == ["critical"]


@pytest.mark.req("EF-08")
def test_the_event_goes_to_the_outbox(tmp_path):
    """In the transaction of the undo: both are committed, or neither."""
    path = tmp_path / "app.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE users (id TEXT)")

    def undo():
        with connection:
            connection.execute("DELETE FROM users")
            engine.outbox.add(connection, topic="user.creation-failed.v1", payload={"id": "u-1"})

    with Engine(f"sqlite:///{path}", sinks=[], audit=False) as engine:
        with connection:
            connection.execute("INSERT INTO users VALUES ('u-1')")
        with pytest.raises(OSError, match="no broker"), engine.compensation("c", undo=undo):
            raise OSError("no broker")
        got = []
        engine.outbox.relay(got.append).drain()
        assert [message.topic for message in got] == ["user.creation-failed.v1"]
    connection.close()


@pytest.mark.req("EF-12")
def test_metrics():
    """Partial failures and compensations are counted under the document's names."""
    from prometheus_client import CollectorRegistry

    from mainstay.sinks.prometheus import PrometheusSink

    registry = CollectorRegistry()
    sink = PrometheusSink(registry=registry)
    for fail in ([], [OSError()]):
        effect = Effect(run_sync, publish=fail)
        effect.engine = Engine(sinks=[sink], policies=[ONCE], operations={"*": "once"})
        failed(effect)
    value = registry.get_sample_value
    assert value("effect_partial_failure_total", {"effect_type": "create_user"}) == 2.0
    for outcome in ("success", "failure"):
        labels = {"effect_type": "create_user", "outcome": outcome}
        assert value("effect_compensation_total", labels) == 1.0
