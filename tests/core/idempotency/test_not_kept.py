"""Outcomes that a store cannot take: what is recorded, and that the call is never made again."""

from dataclasses import make_dataclass
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.codec.outcome import Failed, decode_outcome
from mainstay.core.idempotency.call import (
    EmitEvent,
    Invoke,
    Keyed,
    Notice,
    Recorded,
    SizeLimit,
    StoreCommand,
    keyed,
)
from mainstay.core.idempotency.fast_replay import MISS, hit
from mainstay.core.idempotency.record import Begin, Lost, RecordState, Replay, glimpse, reduce
from mainstay.core.retry.effects import Question, Returned
from mainstay.core.retry.policy import Policy
from mainstay.errors import (
    LeaseLost,
    ResultNotKept,
    StoredFailure,
    StoreUnavailable,
    ValueTooLarge,
)

POLICY = Policy(name="p", max_attempts=3, retry_on=(ConnectionError,))
NOW = 1_800_000_000.0
LARGE = "x" * 2_000_000


class Store:
    """One record, on the reducer itself; refuses outcomes that are too large for it."""

    def __init__(self, takes=None, refusal=None):
        self.takes = takes
        self.refusal = refusal
        self.record = None
        self.written = []

    def step(self, command, now=NOW):
        change, answer = reduce(self.record, command, now)
        if change.value is not None and self.takes is not None and len(change.value) > self.takes:
            return self.refusal or ValueTooLarge("nats://a", len(change.value), self.takes)
        if change.value != b"keep":
            self.record = change.value
            self.written.append(type(command).__name__)
        return answer


def make(store, outcome, *, limit=None, key="k", owner="me", **options):
    """The effects of one call that ends so; and what it ended with."""
    flow = keyed(Keyed("charge", key, "f", owner, **options), POLICY)
    effects, answer = [], None
    while True:
        effect = flow.send(answer)
        effects.append(effect)
        answer = None
        if isinstance(effect, StoreCommand):
            answer = store.step(effect.command)
        elif isinstance(effect, Invoke):
            answer = outcome
        elif isinstance(effect, SizeLimit):
            answer = limit
        elif effect is Question.WALL:
            answer = NOW
        elif isinstance(effect, Recorded):
            return effects, effect.outcome
        elif isinstance(effect, Returned | Replay | BaseException):
            return effects, effect


def replayed(store, key="k"):
    """What the next call with that key ends with; it must not be made."""
    effects, end = make(store, None, key=key, owner="other")
    assert not any(isinstance(effect, Invoke) for effect in effects)
    assert isinstance(end, Replay)
    return end.state, decode_outcome(end.outcome)


def not_kept(store, key="k"):
    """The error of the next call."""
    state, outcome = replayed(store, key)
    assert state is RecordState.SUCCEEDED
    assert isinstance(outcome.exception, ResultNotKept)
    return outcome.exception


# --- a value --------------------------------------------------------------------------------------


def test_a_value_over_the_limit_is_returned_and_recorded_as_not_kept():
    """The caller has it and a warning; the next caller learns when that was, and why."""
    store, returned = Store(), Returned("x" * 5000)
    effects, end = make(store, returned, limit=4999)
    assert end is returned
    *_, told, notice, _ = effects
    assert told == EmitEvent("not_kept")
    assert isinstance(notice, Notice)
    assert "the result of charge is not kept: it has 5018 bytes" in notice.text
    error = not_kept(store)
    assert (error.operation, error.key) == ("charge", "k")
    assert error.at == datetime.fromtimestamp(NOW, UTC)
    assert "4999 are kept at most" in error.reason


def test_the_record_is_written_before_the_caller_is_warned():
    """A warning may be made an error: that must not leave the record running."""
    effects, _ = make(Store(), Returned(object()))
    kinds = [type(effect).__name__ for effect in effects]
    assert kinds[-4:] == ["StoreCommand", "EmitEvent", "Notice", "Returned"]
    assert EmitEvent("record") not in effects


def test_a_value_within_the_limit_is_kept():
    """To the byte."""
    data = len(b'{"v":1,"value":""}') + 5000
    store = Store()
    make(store, Returned("x" * 5000), limit=data)
    assert replayed(store)[1].value == "x" * 5000
    store = Store()
    make(store, Returned("x" * 5000), limit=data - 1)
    assert not_kept(store)


def test_a_small_value_asks_for_no_limit():
    """Every store takes it; the question would be one step more for every call."""
    effects, _ = make(Store(), Returned("x" * 4000), limit=1)
    assert SizeLimit() not in effects
    effects, _ = make(Store(), Returned("x" * 200), limit=100, small=100)
    assert SizeLimit() in effects


def test_a_value_that_the_store_refuses_is_settled_without_it():
    """Its limit was not known, or is less than it declares."""
    store, returned = Store(takes=3000), Returned("x" * 3500)
    effects, end = make(store, returned)
    assert end is returned
    assert EmitEvent("not_kept") in effects
    assert "too large for nats://a" in not_kept(store).reason


def test_a_large_value_on_which_the_store_failed_is_settled_without_it():
    """It may have timed out, or been cut off, because of the size: a second run is worse."""
    away = StoreUnavailable("redis://a", "write", "no answer within 5 s")
    store, returned = Store(takes=100_000, refusal=away), Returned(LARGE)
    assert make(store, returned)[1] is returned
    assert "no answer within 5 s" in not_kept(store).reason


def test_a_small_value_on_which_the_store_failed_is_not_given_up():
    """The store is unavailable, and the size is not why: the caller learns of the store."""
    away = StoreUnavailable("redis://a", "write", "no answer within 5 s")
    store = Store(takes=1000, refusal=away)
    assert make(store, Returned("x" * 2000))[1] is away
    assert store.written == ["Begin"]


def test_a_store_that_takes_nothing_at_all_is_reported():
    """Neither the value nor the record without it."""
    store = Store(takes=300)
    end = make(store, Returned("x" * 3500))[1]
    assert isinstance(end, ValueTooLarge)
    assert "charge ran and returned" in end.__notes__[0]


def test_a_late_value_that_is_not_kept_overwrites_nothing():
    """The lease was lost meanwhile: the record is another call's."""
    store = Store()
    store.step = lambda command: reduce(None, command, NOW)[1]
    end = make(store, Returned(object()))[1]
    assert isinstance(end, LeaseLost)
    assert reduce(None, Begin("me", "f", 1.0, 1), NOW)[1] != Lost()


def test_a_value_that_is_no_data_is_not_kept():
    """With the reason that it could not be encoded."""
    store = Store()
    make(store, Returned(object()))
    assert "cannot be recorded" in not_kept(store).reason


def test_a_value_that_fails_while_it_is_encoded_is_no_reason_to_run_again():
    """Whatever it raises is in the record."""
    cls = make_dataclass("Odd", ["x"])
    cls.__module__, cls.__qualname__ = __name__, "OddOne"
    globals()["OddOne"] = cls
    odd = cls(1)
    cls.x = property(lambda _: 1 / 0)
    store = Store()
    make(store, Returned(odd))
    assert "ZeroDivisionError" in not_kept(store).reason


def test_long_keys_and_metadata_do_not_make_the_record_too_large():
    """What is written in place of a result has a bounded size."""
    store = Store(takes=4000)
    make(store, Returned(LARGE), key="k" * 100_000, metadata='"' + "m" * 100_000 + '"', limit=1)
    error = not_kept(store, "k" * 100_000)
    assert error.key == "k" * 500
    store = Store()
    make(store, Returned(LARGE), metadata='{"a":1}', limit=1)
    assert msgspec.json.decode(store.record)["metadata"] == '{"a":1}'


def test_a_clock_beyond_the_calendar_is_no_reason_to_run_again(monkeypatch):
    """The record has the last moment there is."""
    monkeypatch.setattr(f"{__name__}.NOW", 1e300)
    store = Store()
    make(store, Returned(object()))
    assert not_kept(store).at.year == 9999


# --- a failure ------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 5000])
def test_a_failure_that_is_too_large_is_recorded_by_its_class_and_text(limit):
    """The caller has the exception itself; the next one a StoredFailure, and nothing runs."""
    failure = ValueError("no such order", LARGE)
    store = Store(takes=None if limit else 5000)
    effects, end = make(store, failure, limit=limit, metadata='"' + "m" * 500 + '"')
    assert end is failure
    assert EmitEvent("record") in effects
    state, outcome = replayed(store)
    assert state is RecordState.FAILED
    assert isinstance(outcome.exception, StoredFailure)
    assert outcome.exception.type_name == "ValueError"
    assert "no such order" in outcome.exception.message
    assert "too large for the store" in outcome.exception.__notes__[0]


def test_a_large_failure_within_the_limit_is_whole():
    """As any other."""
    store = Store()
    make(store, ValueError("x" * 5000), limit=50_000)
    assert repr(replayed(store)[1].exception) == repr(ValueError("x" * 5000))


def test_a_failure_that_the_store_takes_in_no_form_is_the_cause_of_what_is_raised():
    """As any final failure that could not be recorded: the key may run again."""
    failure = ValueError(LARGE)
    raised = make(Store(takes=300), failure)[1]
    assert isinstance(raised, ValueTooLarge)
    assert raised.__cause__ is failure
    assert "could not be recorded" in raised.__notes__[0]


@pytest.mark.parametrize(
    ("on_crash", "then"), [("retry", "it may run again"), ("unknown", "its outcome is unknown")]
)
def test_the_note_of_an_outcome_that_was_not_recorded_has_what_follows(on_crash, then):
    """Once the lease is over: another run, or a question to a person."""
    raised = make(Store(takes=300), ValueError(LARGE), on_crash=on_crash)[1]
    assert raised.__notes__[0].endswith(f"once its lease of 30 s is over {then}")


# --- laws -----------------------------------------------------------------------------------------

OUTCOMES = st.one_of(
    st.text(max_size=30),
    st.integers(0, 3_000_000).map("x".__mul__),
    st.builds(object),
    st.integers(0, 20_000).map(lambda size: ValueError("x" * size)),
)


@given(
    outcome=OUTCOMES,
    takes=st.one_of(st.none(), st.integers(4000, 100_000)),
    limit=st.one_of(st.none(), st.integers(1, 100_000)),
    refusal=st.sampled_from([None, StoreUnavailable("a", "write", "cut off")]),
)
def test_a_call_whose_caller_has_a_result_is_never_made_again(outcome, takes, limit, refusal):
    """Whatever the result, the limit and the store: it is replayed, or raises why it is not."""
    store = Store(takes, refusal)
    is_value = not isinstance(outcome, ValueError)
    given_back = Returned(outcome) if is_value else outcome
    _, end = make(store, given_back, limit=limit)
    if end is given_back and not getattr(outcome, "__notes__", None):
        state, again = replayed(store)
        assert state is (RecordState.SUCCEEDED if is_value else RecordState.FAILED)
        assert isinstance(again, Failed) or again.value == outcome


# --- an older process on the same store -----------------------------------------------------------


def old_process_ends_with(record, fingerprint):
    """How a process of the version before ResultNotKept reads a record: a frozen copy of its rules.

    A terminal record of the same payload is replayed and nothing is run. An outcome has a value, or
    names an exception; a class that is not found becomes a StoredFailure.
    """
    kept = msgspec.json.decode(record)
    if kept["state"] not in ("succeeded", "failed") or kept["fingerprint"] != fingerprint:
        return "runs or refuses"
    outcome = kept["outcome"]
    assert outcome["v"] == 1
    if "value" in outcome:
        return "a value"
    failed = outcome["failed"]
    assert set(failed) == {"type", "text", "notes", "args", "own", "held", "whole"}
    module, name = failed["type"]
    known = {("builtins", "ValueError"), ("mainstay.errors", "UsageError")}
    if (module, name) in known and failed["whole"] is True:
        return name
    assert all(isinstance(note, str) for note in failed["notes"])
    return f"StoredFailure: {module}.{name}: {failed['text']}"


@pytest.mark.parametrize("value", [object(), LARGE], ids=["no data", "too large"])
def test_an_older_process_raises_for_a_key_whose_result_is_not_kept(value):
    """It does not know the class, raises StoredFailure with its text, and never runs the call."""
    store = Store(takes=10_000)
    make(store, Returned(value))
    end = old_process_ends_with(store.record, "f")
    assert end.startswith("StoredFailure: mainstay.errors.ResultNotKept: charge was done at ")


def test_an_older_process_raises_for_a_failure_that_was_shortened():
    """With its class and the beginning of its text."""
    store = Store(takes=10_000)
    make(store, ValueError(LARGE))
    assert old_process_ends_with(store.record, "f").startswith("StoredFailure: builtins.ValueError")


def test_neither_quick_reading_takes_it_for_a_value():
    """The fast path leaves it to the full reading, which finds that the call has ended."""
    store = Store()
    make(store, Returned(object()))
    assert hit(store.record, "f", NOW) is MISS
    assert glimpse(store.record, "f", NOW).state is RecordState.SUCCEEDED
