"""What a sink declares, and what it receives for it."""

import ast
from pathlib import Path

import pytest

from mainstay import AuditLog, Backoff, Engine, RetryPolicy, read_log
from mainstay.errors import UsageError
from mainstay.ports import SinkWants, methods_of, wants_of
from mainstay.sinks.logging import LoggingSink
from mainstay.sinks.telemetry.sink import TelemetrySink
from mainstay.testing import scripted, virtual_time

SRC = Path(__file__).parents[2] / "src/mainstay"
POLICY = RetryPolicy(name="standard", deadline=None, backoff=Backoff.constant(1.0))
PLAIN = SinkWants(facts=False, attempts=False, store_steps=False)


class Collecting:
    """Keeps what it receives."""

    def __init__(self, **wants):
        self.wants = SinkWants(**wants)
        self.events, self.facts, self.attempts, self.steps = [], [], [], []

    def __call__(self, event):
        self.events.append(event)


class Taking(Collecting):
    def take(self, facts):
        self.facts.append(facts)


class Following(Collecting):
    def follow(self, plan):
        self.plan = plan
        return self

    def attempt_began(self, number):
        self.attempts.append(number)

    def attempt_ended(self, outcome):
        pass

    def call_ended(self):
        pass


class Timing(Collecting):
    def store_step(self, store, step, seconds, *, failed):
        self.steps.append((store, step, failed))


def used(sink, *outcomes):
    """The sink after one call of an engine."""
    with virtual_time(), Engine(policies=[POLICY], sinks=[sink], audit=False) as engine:
        engine.call("fetch", scripted(*outcomes))
    return sink


def test_a_plain_function_receives_every_event():
    """A callable that declares nothing receives events, those of immediate successes too."""
    events = []
    used(events.append, "page")
    used(events.append, ConnectionError("reset"), "page")
    assert [each.event_type for each in events] == [
        "call_succeeded", "attempt_failed", "retry_attempt", "call_succeeded",
    ]  # fmt: skip
    assert not any(each.proof for each in events)
    assert wants_of(events.append) == PLAIN


def test_a_sink_that_wants_no_successes_receives_none():
    """A call that succeeds at the first attempt emits nothing; a retried one does."""
    sink = Collecting(successes=False)
    assert used(sink, "page").events == []
    assert len(used(sink, ConnectionError("reset"), "page").events) == 3


def test_a_sink_that_wants_evidence_receives_proof():
    """Every event of a call carries its proof."""
    sink = used(Collecting(evidence=True), ConnectionError("reset"), "page")
    assert len(sink.events) == 3
    assert all(each.proof for each in sink.events)


@pytest.mark.parametrize("facts", [True, None])
def test_a_sink_that_takes_facts_receives_them_in_place_of_events(facts):
    """The events are built later, of the facts; None means: if the sink has `take`."""
    used(print, ConnectionError("reset"), "page")  # the first failure of a class is not deferred
    sink = used(Taking(successes=False, facts=facts), ConnectionError("reset"), "page")
    assert sink.events == []
    (facts,) = sink.facts
    assert [each.event_type for each in facts.events()][-1] == "call_succeeded"


def test_a_method_whose_want_is_declared_false_is_not_called():
    """A `take`, `follow` or `store_step` of another purpose is left alone."""
    sink = used(Taking(facts=False), ConnectionError("reset"), "page")
    assert len(sink.events) == 3
    assert sink.facts == []
    assert used(Following(attempts=False), "page").attempts == []
    assert used(Timing(store_steps=False), "page").steps == []


@pytest.mark.parametrize("attempts", [True, None])
def test_a_sink_that_wants_attempts_follows_each_call(attempts):
    """`follow(plan)` is called for each call; the follower receives every attempt."""
    sink = used(Following(attempts=attempts), ConnectionError("reset"), "page")
    assert sink.attempts == [1, 2]
    assert sink.plan.operation == "fetch"


def test_a_sink_is_known_by_identity_beside_one_that_follows():
    """A comparison that a sink defines, and that fails, costs no call."""

    class Incomparable(Collecting):
        def __eq__(self, other):
            raise ValueError("of several values")

        __hash__ = None

    first, second = Incomparable(), Following()
    with Engine(sinks=[first, second], audit=False) as engine:
        assert engine.call("fetch", str) == ""
    assert (len(first.events), second.attempts) == (1, [1])


@pytest.mark.parametrize("store_steps", [True, None])
def test_a_sink_that_wants_store_steps_receives_them(store_steps):
    """A keyed call is at least one step of the store."""
    sink = Timing(store_steps=store_steps)
    with Engine(sinks=[sink], audit=False) as engine:
        engine.operation("fetch", key="a").call(str)
    assert ("memory", "transact", False) in sink.steps


def test_a_sink_that_escalates_makes_the_site_name_the_keyed_call():
    """Only then the key of a call under way is kept for the sink."""
    site = Engine(sinks=[Collecting(escalates=True)]).operation("fetch")._site
    assert site.escalates is True
    assert Engine(sinks=[print]).operation("fetch")._site.escalates is False


@pytest.mark.parametrize(
    ("want", "method"), [("facts", "take"), ("attempts", "follow"), ("store_steps", "store_step")]
)
def test_a_want_without_its_method_is_refused(want, method):
    """A sink that could not receive what it declares is a mistake of the caller's."""
    with pytest.raises(UsageError, match=rf"Collecting declares .* has no {method}\(\)"):
        wants_of(Collecting(**{want: True}))


# --- attributes from before the declaration -------------------------------------------------------


class Old:
    """A sink as it was written before `wants`."""

    hears_successes = False
    wants_evidence = True

    def __call__(self, event):
        pass

    def take(self, facts):
        pass

    def follow(self, plan):
        return None

    def store_step(self, *_, failed):
        pass


def test_the_old_attributes_are_translated():
    """A sink of before works unchanged."""
    assert wants_of(Old()) == SinkWants(
        successes=False, evidence=True, facts=True, attempts=True, store_steps=True
    )


def test_an_old_attribute_of_a_function_is_translated():
    """A function is given attributes too."""

    def sink(event):
        pass

    sink.hears_successes = False
    assert wants_of(sink).successes is False


def test_a_sink_that_derives_from_ours_may_still_set_an_old_attribute():
    """It overrides what our class declares; so does a method that our class does not have."""

    class Quiet(LoggingSink):
        hears_successes = False

        def follow(self, plan):
            return None

    sink = Quiet()
    sink.logger.setLevel("DEBUG")
    try:
        assert LoggingSink().wants.successes is True
        assert wants_of(sink) == SinkWants(
            successes=False, facts=False, attempts=True, store_steps=False
        )
    finally:
        sink.logger.setLevel("NOTSET")


def test_another_meaning_of_wants_is_no_declaration():
    """A sink of before may have an attribute of that name."""

    class Shop(Old):
        wants = "nothing"

    assert wants_of(Shop()) == wants_of(Old())


def test_the_audit_log_keeps_first_successes_by_an_old_attribute_that_is_set_later(tmp_path):
    """It filters by what it wants now, as the engine does."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, spill=False)
    log.hears_successes = True
    used(log, "page")
    log.close()
    assert [each.event.event_type for each in read_log(path)][-1] == "call_succeeded"


@pytest.mark.parametrize("is_wanted", [False, True])
def test_telemetry_counts_first_successes_by_an_old_attribute_that_is_set_later(
    tmp_path, is_wanted
):
    """Also if another sink wants them, so that they arrive anyway."""
    path = tmp_path / "telemetry.json"
    sink = TelemetrySink(path, pipeline_id="etl", hears_successes=not is_wanted)
    sink.hears_successes = is_wanted
    with Engine(policies=[POLICY], sinks=[sink, print], audit=False) as engine:
        engine.call("fetch", str)
    assert path.exists() is is_wanted


def test_the_old_attribute_for_evidence_is_read_for_each_call():
    """A sink sets it while its engine runs; a follower has it, and its sink has not."""

    class Follower(Following):
        wants_evidence = True

    class Sink(Following):
        def follow(self, plan):
            return follower

    follower, sink = Follower(), Taking(facts=False)
    used(Sink(), ConnectionError("reset"), "page")
    assert [bool(each.proof) for each in follower.events] == [True] * 3
    with virtual_time(), Engine(policies=[POLICY], sinks=[sink], audit=False) as engine:
        for _ in range(2):
            engine.call("fetch", scripted(ConnectionError("reset"), "page"))
            sink.wants_evidence = True
    assert [bool(each.proof) for each in sink.events] == [False] * 3 + [True] * 3


# --- optional methods -----------------------------------------------------------------------------


def test_optional_methods_are_found_or_none():
    """`stats` may be those of a buffer."""

    class Buffer:
        def stats(self):
            return {"lost": 1}

    class Behind:
        buffer = Buffer()

        def __call__(self, event):
            pass

        def flush(self):
            return "flushed"

    found = methods_of(Behind())
    assert found.flush() == "flushed"
    assert found.stats() == {"lost": 1}
    assert (found.close, found.watch) == (None, None)


NAMES = {
    "buffer", "close", "counts_calls", "escalates", "flush", "follow", "hears_successes", "stats",
    "store_step", "take", "wants", "wants_evidence", "watch",
}  # fmt: skip


def test_no_other_code_probes_a_sink_for_attributes():
    """Only ports.py calls getattr or hasattr with the name of an attribute of sinks.

    What integrations probe are objects of other libraries.
    """
    found = []
    for path in sorted(set(SRC.rglob("*.py")) - set(SRC.glob("integrations/*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_probe = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if is_probe and node.func.id in ("getattr", "hasattr") and len(node.args) > 1:
                name = node.args[1]
                if isinstance(name, ast.Constant) and name.value in NAMES:
                    found.append(path.relative_to(SRC).as_posix())
    assert set(found) == {"ports.py"}
