"""How a relay ends, and what it survives: cancellation, failed writes, leases that have run out."""

import asyncio
import threading

import pytest

from mainstay import Backoff, Engine, RetryPolicy
from mainstay.core.outbox.settle import DeadRules
from mainstay.errors import StoreUnavailable
from tests.drivers.outbox.test_relay import QUICK, Broker, add, drained, engine_of, eventually
from tests.servers.databases import outbox_place, sqlite_place

__all__ = ["outbox_place"]


def test_a_relay_ends_if_all_tasks_of_its_loop_are_cancelled(outbox_place):
    """As a program does that shuts its event loop down; nothing stays claimed."""

    async def main(engine):
        began = asyncio.Event()

        async def hangs(_message):
            began.set()
            await asyncio.sleep(3600.0)

        running = asyncio.create_task(engine.outbox.relay(hangs).arun())
        await began.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with engine_of(outbox_place) as engine:
        add(engine, outbox_place, "a", "b")
        add(engine, outbox_place, "c", aggregate="Y")
        asyncio.run(main(engine))
        assert engine.outbox.counts() == {"PENDING": 3}
        assert [each.attempts for each in engine.outbox.entries("PENDING")] == [0, 0, 0]


def test_outcomes_are_written_if_their_write_is_cancelled(tmp_path, monkeypatch):
    """All tasks of the loop are cancelled while outcomes are written."""
    place = sqlite_place(tmp_path)
    writing, go_on = threading.Event(), threading.Event()

    async def main(relay):
        running = asyncio.create_task(relay.arun())
        await asyncio.to_thread(writing.wait)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running

    with engine_of(place) as engine:
        add(engine, place, "a")
        relay = engine.outbox.relay(Broker())
        settle, calls = relay._table.settle, iter(range(9))

        def fails_first(entries, done):
            if next(calls) == 0:
                writing.set()
                go_on.wait()
                raise StoreUnavailable(place.url, "settle", "locked")
            return settle(entries, done)

        monkeypatch.setattr(relay._table, "settle", fails_first)
        asyncio.run(main(relay))
        assert engine.outbox.counts() == {"SENT": 1}


def test_a_relay_that_is_cancelled_ends_even_if_its_claim_fails(tmp_path, monkeypatch):
    """It went on for ever, claiming and giving back what it claimed."""
    place = sqlite_place(tmp_path)
    claiming, go_on = threading.Event(), threading.Event()

    def fails(*_args, **_options):
        claiming.set()
        go_on.wait()
        raise StoreUnavailable(place.url, "claim", "down")

    async def main(relay):
        running = asyncio.create_task(relay.arun())
        await asyncio.to_thread(claiming.wait)
        running.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(running), 30.0)

    with engine_of(place) as engine:
        relay = engine.outbox.relay(Broker(), poll=0.01)
        monkeypatch.setattr(relay._table, "claim", fails)
        asyncio.run(main(relay))


def test_a_write_that_failed_once_does_not_cost_a_later_stop_its_outcomes(tmp_path, monkeypatch):
    place, broker = sqlite_place(tmp_path), Broker()
    go_on = threading.Event()
    with engine_of(place) as engine:
        relay = engine.outbox.relay(broker, poll=0.01)
        settle, calls = relay._table.settle, []

        def sometimes(entries, done):
            calls.append(len(done))
            if len(calls) == 1:
                raise RuntimeError("the disk is full")
            if len(calls) == 3:
                go_on.wait()
            return settle(entries, done)

        monkeypatch.setattr(relay._table, "settle", sometimes)
        relay.start()
        for number, name in enumerate("abc", 1):
            add(engine, place, name, aggregate=name)
            eventually(lambda number=number: len(calls) == number)
        add(engine, place, "d", aggregate="d")
        eventually(lambda: "d" in broker.got)  # and its outcome waits for the write before it
        relay.stop(wait=False)
        go_on.set()
        relay.stop()
        assert [each.id for each in engine.outbox.entries("SENT")] == ["b", "c", "d"]


def test_renewals_go_on_after_any_failure_of_one(tmp_path, monkeypatch):
    place = sqlite_place(tmp_path)
    renewed, go_on = [], threading.Event()
    with engine_of(place) as engine:
        add(engine, place, "a")
        relay = engine.outbox.relay(lambda _message: go_on.wait(), lease=0.6)
        renew = relay._table.renew

        def fails_first(entries, lease):
            renewed.append(lease)
            if len(renewed) == 1:
                raise RuntimeError("no plan")
            return renew(entries, lease)

        monkeypatch.setattr(relay._table, "renew", fails_first)
        with relay:
            eventually(lambda: len(renewed) >= 3)
            go_on.set()


def test_an_entry_that_is_claimed_again_is_not_forgotten_for_its_first_outcome(
    tmp_path, monkeypatch
):
    """The lease ran out while the outcome was written: the second claim is renewed as any other."""
    place = sqlite_place(tmp_path)
    second, go_on = threading.Event(), threading.Event()
    with engine_of(place) as engine:
        add(engine, place, "a")
        table = engine.outbox._opened()

        def publish(message):
            if message.attempt == 2:
                second.set()
                go_on.wait()

        relay = engine.outbox.relay(publish, poll=0.01, lease=300.0)
        settle, written = relay._table.settle, []

        def late(entries, done):
            if not written:
                place.execute("UPDATE mainstay_outbox SET lease_until = 1")
                table.upkeep(DeadRules())
                relay._woken()
                second.wait()
            written.append(settle(entries, done))
            return written[-1]

        monkeypatch.setattr(relay._table, "settle", late)
        monkeypatch.setattr("mainstay.drivers.outbox.relay.Relay._round", _claims_alone)
        with relay:
            eventually(lambda: relay.counts.lost == 1)
            assert [flight.entry.attempts for flight in relay._flights.values()] == [2]
            go_on.set()
        assert written == [set(), {"a"}]
        assert engine.outbox.counts() == {"SENT": 1}


async def _claims_alone(relay, *, until_empty):
    """A round of a relay that has nothing else under way: what has crashed is claimed alone."""
    batch = await relay._claim(1, is_idle=True)
    return 0.0 if batch.entries else 0.01


def test_a_cancellation_that_a_client_library_raises_is_retried(outbox_place):
    """A client whose connection is lost cancels what it has under way: nothing is dead for that."""
    tries = []

    async def publish(message):
        tries.append(message.id)
        if len(tries) < 3:
            raise asyncio.CancelledError

    with engine_of(outbox_place) as engine:
        add(engine, outbox_place, "a")
        drained(engine.outbox.relay(publish, policy=QUICK), engine)
    assert len(tries) == 3


def test_a_relay_that_was_stopped_while_it_did_not_run_can_be_started(tmp_path):
    place, broker = sqlite_place(tmp_path), Broker()
    with Engine(place.url, sinks=[], audit=False) as engine:
        relay = engine.outbox.relay(broker, poll=0.01)
        relay.drain()
        relay.stop()
        add(engine, place, "a")
        with relay:
            eventually(lambda: broker.got or not relay.is_running)
    assert broker.got == ["a"]


def test_an_outcome_may_come_after_that_of_a_later_claim(tmp_path, monkeypatch):
    """The first publish of a message was held up for so long that the second was there before it.

    What is written of it is refused, and the relay goes on: it published and wrote nothing more.
    """
    place = sqlite_place(tmp_path)
    began, go_on = threading.Event(), threading.Event()

    def publish(message):
        if message.id == "a" and message.attempt == 1:
            began.set()
            go_on.wait()

    with engine_of(place) as engine:
        add(engine, place, "a")
        relay = engine.outbox.relay(publish, poll=0.01, lease=300.0)
        monkeypatch.setattr("mainstay.drivers.outbox.relay.Relay._round", _claims_alone)
        with relay:
            began.wait()
            place.execute("UPDATE mainstay_outbox SET lease_until = 1")
            engine.outbox._opened().upkeep(DeadRules())
            eventually(lambda: engine.outbox.counts() == {"SENT": 1})
            eventually(lambda: not relay._flights)
            go_on.set()
            eventually(lambda: relay.counts.lost == 1)
            add(engine, place, "b", aggregate="Y")
            eventually(lambda: engine.outbox.counts() == {"SENT": 2})


@pytest.mark.req("EF-10")
def test_nothing_is_published_beside_a_message_that_has_ended_its_worker(outbox_place):
    """If it does that again, no other message is charged for it."""
    beside = []
    with engine_of(outbox_place) as engine:
        add(engine, outbox_place, "poison")
        table = engine.outbox._opened()
        table.claim(1, 0.001, "dead", is_idle=True)
        eventually(lambda: table.upkeep(DeadRules()).recovered)
        add(engine, outbox_place, "b", aggregate="Y")

        async def publish(message):
            if message.id == "poison":
                await asyncio.sleep(0.3)
                beside.append((await asyncio.to_thread(engine.outbox.get, "b")).phase.value)

        drained(engine.outbox.relay(publish), engine)
    assert beside == ["ready"]


@pytest.mark.req("EF-14")
def test_later_messages_wait_until_a_death_is_written(outbox_place, monkeypatch):
    """The relay fails to write it: what was not dead is published first by the next one."""
    got, dying = [], []

    def publish(message):
        if message.id == "a" and not dying:
            dying.append(message.id)
            raise ValueError("no such topic")
        got.append(message.id)

    def fails(*_args):
        raise RuntimeError("the disk is full")

    with engine_of(outbox_place) as engine:
        add(engine, outbox_place, "a", "b")
        relay = engine.outbox.relay(publish, lease=0.3)
        with monkeypatch.context() as patched:
            patched.setattr(relay._table, "settle", fails)
            with pytest.raises(RuntimeError, match="disk is full"):
                relay.drain()
        drained(engine.outbox.relay(publish), engine)
    assert got == ["a", "b"]


def test_later_messages_of_a_batch_go_on_once_a_death_is_written(outbox_place):
    """In the same claim: a batch of dead ones costs no claim for each."""
    got = []

    def publish(message):
        if message.id in "bd":
            raise ValueError("no such topic")
        got.append(message.id)

    with engine_of(outbox_place) as engine:
        add(engine, outbox_place, *"abcde")
        counts = engine.outbox.relay(publish).drain()
        assert (counts.published, counts.dead, counts.given_back) == (3, 2, 0)
    assert got == ["a", "c", "e"]


def test_retention_keeps_up_with_what_is_published(outbox_place, monkeypatch):
    """What a purge has left over is deleted at the next look, not a minute later."""
    monkeypatch.setattr("mainstay.drivers.outbox.relay._PURGED", 2)
    monkeypatch.setattr("mainstay.drivers.outbox.relay._PURGES", 2)
    with engine_of(outbox_place) as engine:
        for name in "abcdefghijk":
            add(engine, outbox_place, name, aggregate=name)
        engine.outbox.relay(Broker()).drain()
        with engine.outbox.relay(Broker(), retention=0.0, poll=0.02):
            eventually(lambda: engine.outbox.counts() == {})


@pytest.mark.parametrize("how", ["purge", "retention"])
def test_notes_of_consumers_are_purged_without_messages(outbox_place, how):
    """All that are old enough; before, a thousand at each purge."""
    with engine_of(outbox_place) as engine:
        with outbox_place.connect() as connection:
            for number in range(2500):
                connection.execute(
                    "INSERT INTO mainstay_consumed (consumer, message_id)"
                    f" VALUES ('mailer', '{number}')"
                )
            connection.execute("UPDATE mainstay_consumed SET consumed_at = consumed_at - 5")
        if how == "purge":
            assert engine.outbox.purge(3600.0) == engine.outbox.purge(0.0) == 0
        else:
            engine.outbox.relay(Broker(), retention=0.0).drain()
        with outbox_place.connect() as connection:
            found = connection.execute("SELECT count(*) FROM mainstay_consumed").fetchone()
    assert found == (0,)


def test_a_policy_that_raises_keeps_no_message_claimed(tmp_path, caplog):
    """Before, the lane ended, and its claims were renewed for ever: a drain did not end."""

    def backoff(_retry):
        raise ZeroDivisionError("a mistake")

    place = sqlite_place(tmp_path)
    policy = RetryPolicy(max_attempts=4, backoff=Backoff.custom(backoff))
    with engine_of(place) as engine:
        add(engine, place, "a", "b")
        relay = engine.outbox.relay(Broker(a=1), policy=policy)
        thread = threading.Thread(target=relay.drain, daemon=True)
        thread.start()
        thread.join(20.0)
        assert not thread.is_alive()
        assert engine.outbox.counts() == {"PENDING": 2}
        assert "the policy of the relay has failed for message a: ZeroDivisionError" in caplog.text
        (entry,) = [each for each in engine.outbox.entries() if each.history]
        assert "ZeroDivisionError" in entry.history[0].text
