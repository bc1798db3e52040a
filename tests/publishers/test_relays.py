"""The relay of the outbox with real brokers that fail; `make crash` has many more of these."""

import contextlib

import pytest

from mainstay import Backoff, Engine, RetryPolicy
from mainstay.publishers import open_publisher
from tests.crash.brokers.places import PLACES
from tests.crash.brokers.trial import run_trial
from tests.servers.databases import postgres_place, sqlite_place
from tests.servers.http_faults import Status

SAMPLE = {
    "nats": ["killed", "no acknowledgements"],
    "valkey": ["killed", "one acknowledgement lost"],
    "http": ["black hole", "reset after reading"],
    "kafka": ["down", "lost"],
}
"""RabbitMQ, which takes seconds to start, has its own in the tests of its publisher."""


@pytest.fixture(scope="module", params=SAMPLE)
def broker(request, tmp_path_factory):
    broker = PLACES[request.param](tmp_path_factory.mktemp(request.param))
    broker.name = request.param
    yield broker
    broker.close()


@pytest.mark.req("EF-08")
def test_nothing_is_lost_or_out_of_order_while_a_broker_fails(broker, tmp_path, postgres_url):
    """What was committed is received, what was rolled back is not; duplicates have the same id."""
    is_shared = broker.name in ("nats", "http")
    place = postgres_place(postgres_url) if is_shared else sqlite_place(tmp_path)
    outcome = run_trial(broker, place, SAMPLE[broker.name], seed=7)
    assert outcome.problems == []
    assert outcome.committed > 40


def test_a_message_that_the_broker_refuses_is_dead_alone(broker, tmp_path):
    """At once, without retries; the later ones of its aggregate go on."""
    topic, place = broker.topic(), sqlite_place(tmp_path)
    large = b"x" * 9_000_000
    if broker.name == "http":
        broker.receiver.on(f"/{topic}", lambda seen: Status(410 if seen.body == large else 204))
    policy = RetryPolicy(max_attempts=4, backoff=Backoff.constant(0.0), attempt_timeout=60.0)
    with Engine(place.url, sinks=[], audit=False) as engine:
        engine.outbox.counts()
        with place.connect() as connection:
            for number, payload in enumerate([b"first", large, b"last"]):
                engine.outbox.add(
                    connection, topic=topic, id=f"{topic}-{number}", payload=payload,
                    aggregate_type="T", aggregate_id="a",
                )  # fmt: skip
        engine.outbox.relay(open_publisher(broker.url), policy=policy).drain()
        counts = engine.outbox.counts()
    payloads = [each.payload for each in broker.received(topic)]
    if broker.name == "valkey":  # which takes 512 MB
        assert counts == {"SENT": 3}
    else:
        assert counts == {"SENT": 2, "DEAD": 1}
        assert [each for each in payloads if each != large] == [b"first", b"last"]


class Careless:
    """A publisher that takes every failure for an acknowledgement."""

    def __init__(self, publisher):
        self.publisher, self.url = publisher, publisher.url

    async def publish(self, message):
        with contextlib.suppress(Exception):
            await self.publisher.publish(message)

    async def close(self):
        await self.publisher.close()


class Late(Careless):
    """One that sends the first message of each aggregate after the second."""

    def __init__(self, publisher):
        super().__init__(publisher)
        self.kept = {}

    async def publish(self, message):
        kept = self.kept.pop(message.aggregate_id, None)
        if kept is None and message.aggregate_id not in self.kept:
            self.kept[message.aggregate_id] = message
            return
        await self.publisher.publish(message)
        await self.publisher.publish(kept)


@pytest.mark.parametrize(
    ("kind", "faults", "words"),
    [(Careless, ["refused"], "were not received"), (Late, ["503"], "is out of order")],
)
def test_a_trial_finds_what_is_lost_and_what_is_out_of_order(tmp_path, kind, faults, words):
    """The properties can be violated."""
    broker = PLACES["http"](tmp_path)
    try:
        publisher = kind(open_publisher(broker.url))
        outcome = run_trial(broker, sqlite_place(tmp_path), faults, 7, publisher=publisher)
    finally:
        broker.close()
    assert words in " ".join(outcome.problems)
