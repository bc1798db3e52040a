"""One trial: entries are committed while a relay publishes them to a broker that fails.

The properties, read from the broker: every committed id was received, none of a transaction that
was rolled back, and of each aggregate the first receipts are in the order of the commits. An id may
be received more than once.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from mainstay import Backoff, Engine, Jitter, RetryPolicy
from mainstay.publishers import open_publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstay.ports import Publisher
    from tests.crash.brokers.places import BrokerPlace
    from tests.servers.databases import Place

POLICY = RetryPolicy(
    max_attempts=100_000, backoff=Backoff.constant(0.02), jitter=Jitter.none(), attempt_timeout=1.0
)
_LONGEST = 120.0
"""Seconds for anything here, on a busy machine."""
_FAULT = 3.0
"""Seconds that a fault lasts if the relay does not notice it."""
_AGGREGATES = "abcdef"


class RolledBackError(Exception):
    """What ends a transaction that must leave nothing."""


@dataclass
class Outcome:
    """What a trial has found."""

    committed: int
    received: int
    duplicates: int
    retried: int
    problems: list[str] = field(default_factory=list)


def run_trial(
    broker: BrokerPlace,
    place: Place,
    faults: Sequence[str],
    seed: int,
    size: int = 20,
    publisher: Publisher | None = None,
) -> Outcome:
    """Breaks the broker in these ways, one after the other, under a relay."""
    chance = random.Random(seed)
    topic, writer = broker.topic(), None
    with Engine(place.url, sinks=[], audit=False) as engine:
        engine.outbox.counts()  # creates the tables
        writer = _Writer(engine, place, topic, chance)
        publish = publisher or open_publisher(broker.url)
        with engine.outbox.relay(publish, policy=POLICY, poll=0.05) as relay:
            for fault in faults:
                writer.add(size)
                _until(lambda: relay.counts.published > 0, "nothing was published")
                before = relay.counts.retried
                with broker.fault(fault):
                    writer.add(size)
                    _until(lambda: relay.counts.retried > before, limit=_FAULT)  # noqa: B023
                writer.add(size // 4)
            wanted = {"SENT": len(writer.committed)}
            _until(lambda: engine.outbox.counts() == wanted)
            counts, states = relay.counts, engine.outbox.counts()
            if states != wanted:
                problem = f"not all were sent: {states}, {counts}, {_failures(engine)}"
                return Outcome(len(writer.committed), 0, 0, counts.retried, [problem])
    return _judged(writer, broker, topic, counts.retried)


def _failures(engine: Engine) -> list[str]:
    """What the first entries that were not sent have last failed with."""
    left = [each for each in engine.outbox.entries() if each.phase != "sent"]
    return [f"{each.phase}: {each.history[-1:]}" for each in left[:3]]


class _Writer:
    """Commits entries, and remembers which; some transactions are rolled back."""

    def __init__(self, engine: Engine, place: Place, topic: str, chance: random.Random) -> None:
        self._engine, self._place, self._topic = engine, place, topic
        self._chance = chance
        self.committed: list[tuple[str, str]] = []
        """Id and aggregate, in the order of the commits."""

    def add(self, count: int) -> None:
        left = count
        while left > 0:
            size = min(left, self._chance.randint(1, 4))
            self._transaction(size, is_rolled_back=self._chance.random() < 0.2)
            left -= size

    def _transaction(self, size: int, *, is_rolled_back: bool) -> None:
        added = []
        try:
            with self._place.connect() as connection:
                for _ in range(size):
                    aggregate = self._chance.choice(_AGGREGATES)
                    entry = f"{self._chance.getrandbits(128):032x}"
                    self._engine.outbox.add(
                        connection, topic=self._topic, id=entry, aggregate_id=aggregate,
                        aggregate_type="T", payload={"aggregate": aggregate},
                    )  # fmt: skip
                    added.append((entry, aggregate))
                if is_rolled_back:
                    raise RolledBackError
        except RolledBackError:
            return
        self.committed += added


def _judged(writer: _Writer, broker: BrokerPlace, topic: str, retried: int) -> Outcome:
    received = broker.received(topic)
    ids = [each.id for each in received]
    first = list(dict.fromkeys(ids))
    outcome = Outcome(len(writer.committed), len(ids), len(ids) - len(first), retried)
    lost = {entry for entry, _ in writer.committed} - set(ids)
    strange = set(ids) - {entry for entry, _ in writer.committed}
    if lost:
        outcome.problems.append(f"{len(lost)} committed entries were not received: {min(lost)}")
    if strange:
        outcome.problems.append(f"{len(strange)} were received that were not committed")
    expected, found = defaultdict(list), defaultdict(list)
    for entry, aggregate in writer.committed:
        expected[aggregate].append(entry)
    aggregates = {each.id: msgspec.json.decode(each.payload)["aggregate"] for each in received}
    for entry in first:
        found[aggregates[entry]].append(entry)
    outcome.problems += [
        f"aggregate {name} is out of order" for name in expected if expected[name] != found[name]
    ]
    return outcome


def _until(condition: Callable[[], bool], problem: str = "", limit: float = _LONGEST) -> None:
    """Waits for what other threads do; without a problem to report, no longer than the limit."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            assert not problem, problem
            return
        time.sleep(0.01)
