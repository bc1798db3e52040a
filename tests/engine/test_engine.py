"""The engine: names lead to policies, calls to events, seeds to delays."""

from __future__ import annotations

import asyncio
import warnings

import pytest

from mainstay import (
    Backoff,
    Engine,
    Jitter,
    OutcomeUnknown,
    PolicyError,
    PolicyNotFoundWarning,
    PolicyRegistry,
    RetryPolicy,
    StoreError,
    UsageError,
)
from mainstay.testing import Trace, scripted, scripted_async, virtual_time

FAST = RetryPolicy(name="fast", max_attempts=2, backoff=Backoff.constant(0.5))
SLOW = RetryPolicy(name="slow", max_attempts=5, backoff=Backoff.exponential(1.0))


@pytest.mark.req("FR-041-09", "AC-007")
def test_the_built_in_policy_is_the_documents_standard():
    """Without a word of configuration: 3 attempts, 0.1 s doubled up to 5 s, plus or minus 10 %."""
    standard = Engine().policies["standard"]
    assert standard.max_attempts == 3
    assert standard.backoff == Backoff.exponential(0.1, factor=2.0, max_delay=5.0)
    assert standard.jitter == Jitter.percent(0.10)
    assert Engine().policies.of("anything") is standard


@pytest.mark.req("FR-041-10")
def test_the_default_policy_can_be_another():
    """`default=` names the policy of every operation that has none of its own."""
    engine = Engine(policies=[FAST], default="fast")
    assert engine.operation("anything").policy is FAST


@pytest.mark.req("FR-041-11", "AC-008", "UT-041-07")
def test_an_operations_own_policy_decides_how_often_it_is_tried():
    """The exact name first, then the first pattern that fits, then a policy of that name."""
    operations = {"db.*": "slow", "db.read": "fast", "*.write": "fast"}
    engine = Engine(policies=[FAST, SLOW], operations=operations, sinks=[])
    tried = {}
    with virtual_time():
        for name in ("db.read", "db.write", "mail.write", "slow"):
            failing = scripted(*[ConnectionError("down")] * 9)
            tried[name] = engine.run(name, failing).attempts
    assert tried == {"db.read": 2, "db.write": 5, "mail.write": 2, "slow": 5}


@pytest.mark.req("FR-041-19", "FR-041-20", "UT-041-15")
def test_the_registry_can_be_asked():
    """By name, by operation, one after the other, and for what there is."""
    registry = PolicyRegistry([FAST, SLOW], {"db.*": "slow"})
    assert registry["fast"] is FAST
    assert registry.of("db.read") is SLOW
    assert registry.names == ("standard", "fast", "slow")
    assert [policy.name for policy in registry] == ["standard", "fast", "slow"]
    assert len(registry) == 3
    assert "fast" in registry
    assert "fats" not in registry
    assert registry.operations == {"db.*": "slow"}


@pytest.mark.req("FR-041-12", "NFR-041-01", "NFR-041-10")
def test_a_lookup_searches_the_patterns_once():
    """Of a thousand policies the right one is found, and found again without a search."""
    policies = [RetryPolicy(name=f"p{n}") for n in range(1000)]
    operations = {f"op{n}.*": f"p{n}" for n in range(1000)}
    registry = PolicyRegistry(policies, operations)
    assert registry.of("op999.read").name == "p999"
    registry._operations = None  # a second search would fail
    assert registry.of("op999.read").name == "p999"


def test_an_operation_that_nobody_mapped_is_told_of_once():
    """It runs under the default, and a warning at the caller's line says so."""
    engine = Engine(policies=[FAST], operations={"db.*": "fast"}, sinks=[])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert engine.call("mail", int, "1") == 1
        assert engine.call("mail", int, "2") == 2
    (warning,) = caught
    assert warning.category is PolicyNotFoundWarning
    assert "'mail'" in str(warning.message)
    assert "'standard'" in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"policies": [FAST, FAST]}, ["two policies", "'fast'"]),
        ({"policies": ["fast"]}, ["'fast'", "no RetryPolicy", "policies=[RetryPolicy(name="]),
        ({"policies": {"fast": FAST}}, ["a list", "not a dict", "policies=[RetryPolicy(name="]),
        ({"policies": FAST}, ["a list", "not a RetryPolicy", "policies=[RetryPolicy(name="]),
        ({"policies": "fast"}, ["a list", "not a str", "policies=[RetryPolicy(name="]),
        ({"operations": {"db": "fats"}}, ["db", "'fats'", "known: standard"]),
        ({"operations": {"db": FAST}}, ["db: the name", "'fast'", "policies=[...]"]),
        ({"default": "fats"}, ["default", "'fats'", "known: standard"]),
        ({"default": FAST}, ["default: the name", "'fast'", "policies=[...]"]),
        ({"seed": "7"}, ["seed", "'7'", "integer"]),
        ({"seed": True}, ["seed", "True"]),
        ({"sinks": [3]}, ["listener", "3"]),
        ({"store": "floppy://a"}, ["'floppy://a'", "memory://"]),
        ({"store": ""}, ["''", "memory://"]),
    ],
)
def test_a_wrong_argument_is_named(wrong, words):
    """What is wrong, with its value and what there is instead, when the engine is built."""
    with pytest.raises((UsageError, PolicyError, StoreError)) as caught:
        Engine(**wrong)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_an_operation_needs_a_name(name):
    """An empty name, or none, is refused."""
    with pytest.raises(UsageError, match="operation"):
        Engine().operation(name)


@pytest.mark.req("FR-041-50", "NFR-041-19")
def test_a_seed_gives_the_same_delays_whoever_listens():
    """The first failing call waits what `policy.delays(seed)` says; a listener changes nothing."""
    expected = SLOW.delays(seed=7)
    for sinks in ([], [Trace()]):
        engine = Engine(policies=[SLOW], seed=7, sinks=sinks)
        with virtual_time() as time:
            engine.call("slow", int, "1")  # a success draws nothing
            engine.run("slow", scripted(*[ConnectionError] * 5))
        assert time.sleeps == expected


def test_one_after_the_other_draws_other_delays():
    """The second failing call of a seeded engine waits other times than the first."""
    engine = Engine(policies=[SLOW], seed=7, sinks=[])
    waited = []
    for _ in range(2):
        with virtual_time() as time:
            engine.run("slow", scripted(*[ConnectionError] * 5))
        waited.append(time.sleeps)
    assert waited[0] != waited[1]


def test_every_verb_runs_under_the_operations_policy():
    """call, acall, run, arun, attempts and protect."""
    engine = Engine(policies=[FAST], sinks=[])

    async def asynchronously():
        first = await engine.acall("fast", scripted_async(OSError(11, "busy"), "a"))
        second = await engine.arun("fast", scripted_async(*[ConnectionError] * 5))
        return first, second.attempts

    @engine.protect("fast")
    def protected(function):
        return function()

    with virtual_time():
        assert engine.call("fast", scripted(ConnectionError, "a")) == "a"
        assert engine.run("fast", scripted(*[ConnectionError] * 5)).attempts == 2
        assert asyncio.run(asynchronously()) == ("a", 2)
        assert protected(scripted(ConnectionError, "a")) == "a"
        numbers = []
        with pytest.raises(ConnectionError):
            for attempt in engine.operation("fast").attempts():
                with attempt:
                    numbers.append(attempt.number)
                    raise ConnectionError
        assert numbers == [1, 2]


def test_sinks_hear_every_call_with_its_operation():
    """A success, a retry and a failure, each under the operation's name and its policy's."""
    trace = Trace()
    engine = Engine(policies=[FAST], sinks=[trace])
    with virtual_time():
        engine.call("fast", int, "1")
        engine.run("fast", scripted(ConnectionError, "a"))
        engine.run("fast", int, "x")
    assert trace.names == [
        "call_succeeded",
        "attempt_failed", "retry_attempt", "call_succeeded",
        "attempt_failed", "call_failed",
    ]  # fmt: skip
    assert {(event.operation, event.policy) for event in trace.events} == {("fast", "fast")}


def test_a_sink_that_wants_no_successes_is_not_told_of_first_ones():
    """`hears_successes = False`: a call that never failed costs it nothing; a saved one is told."""

    class Quiet(Trace):
        hears_successes = False

    sink = Quiet()
    engine = Engine(policies=[FAST], sinks=[sink])
    with virtual_time():
        engine.call("fast", int, "1")
        engine.call("fast", scripted(ConnectionError, "a"))
    assert sink.names == ["attempt_failed", "retry_attempt", "call_succeeded"]


def test_an_unsafe_operation_may_not_be_repeated():
    """Declaring it so with more than one attempt is refused; a cut one ends in OutcomeUnknown."""
    engine = Engine(policies=[FAST, RetryPolicy(name="once", max_attempts=1)], sinks=[])
    with pytest.raises(PolicyError, match="max_attempts = 2"):
        engine.operation("fast", idempotency="unsafe")
    with pytest.raises(PolicyError, match="one of idempotent, keyed, unsafe"):
        engine.protect("fast", idempotency="surely")
    ambiguous = RetryPolicy(name="pay", max_attempts=1, classify={"ReplyLost": "ambiguous"})

    class ReplyLost(Exception):
        pass

    def pay():
        raise ReplyLost("no answer")

    paying = Engine(policies=[ambiguous], sinks=[]).operation("pay", idempotency="unsafe")
    with pytest.raises(OutcomeUnknown, match="pay") as caught:
        paying.call(pay)
    assert isinstance(caught.value.__cause__, ReplyLost)


def test_strict_demands_the_word():
    """`Engine(strict=True)` refuses an operation that does not say how safe repeating it is."""
    engine = Engine(strict=True, sinks=[])
    with pytest.raises(UsageError, match="idempotency"):
        engine.call("read", int, "1")
    assert engine.operation("read", idempotency="idempotent").call(int, "1") == 1


def test_a_closed_engine_flushes_and_takes_no_more_calls():
    """Closing flushes each sink once, closes the store, and is final."""
    flushed = []

    class Sink(Trace):
        def flush(self):
            flushed.append(len(self.events))

    with Engine(sinks=[Sink()]) as engine:
        engine.call("parse", int, "1")
    engine.close()
    assert flushed == [1]
    with pytest.raises(UsageError, match="closed"):
        engine.call("parse", int, "1")


def test_a_store_of_ones_own_is_taken_as_it_is():
    """Anything with `transact` and `close` is a store."""

    class Mine:
        url = "mine://"
        abilities = frozenset()
        closed = False

        def transact(self, space, key, decide):
            return decide(None, 0.0)[1]

        def close(self):
            self.closed = True

    store = Mine()
    with Engine(store, sinks=[]) as engine:
        assert engine.store is store
    assert store.closed
