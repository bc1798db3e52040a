"""Every event: exact fields, canonical JSON, and records that decode for ever."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mainstay.core as core_room
from mainstay import events
from mainstay.core.base.event import Event
from mainstay.core.base.proof import Evidence, Opening, Proof
from mainstay.core.events.builder import EventBuilder
from mainstay.core.events.catalogue import CATALOGUE, FEATURES
from mainstay.core.events.codec import decode, encode
from mainstay.core.events.describe import describe, usual_redactor
from mainstay.core.events.evidence import evidence_of
from mainstay.core.idempotency.events import Idempotency
from mainstay.core.known.kind import Kind
from mainstay.core.redact.redactor import Redactor
from mainstay.core.retry.classify import Classification
from mainstay.core.retry.effects import (
    COLLAPSED,
    EXHAUSTED,
    GIVEN_UP_INSIDE,
    KIND_EXHAUSTED,
    MAY_BE_APPLIED,
    NOT_RETRYABLE,
    OUT_OF_TIME,
    RETRY_AFTER,
    Returned,
)
from mainstay.core.retry.events import (
    AttemptFailed,
    CallFailed,
    CallInterrupted,
    CallSucceeded,
    HookFailed,
    RetryAttempt,
    RetryExhausted,
)
from mainstay.core.retry.plan import Plan
from mainstay.core.retry.policy import Policy
from mainstay.core.retry.retry_after import Hint
from mainstay.errors import CallShed, CircuitOpenError

RECORDED = sorted((Path(__file__).parent / "recorded").glob("v*/*.json"))
RECORD_IDS = [f"{path.parent.name}-{path.stem}" for path in RECORDED]

COMMON = {
    "event_type", "version", "operation", "policy", "call_id", "retry_category", "tenant_id",
    "correlation_id", "trace_id", "timestamp",
}  # fmt: skip
OWN = {
    "alert_fired": {"alert", "metric", "value", "threshold", "window_seconds", "group"},
    "alert_cleared": {
        "alert", "metric", "value", "threshold", "window_seconds", "group", "lasted_seconds",
    },
    "attempt_failed": {
        "attempt_number", "max_attempts", "exception_type", "exception_message", "kind", "reason",
        "retryable", "retry_after_seconds", "attempt_seconds",
    },
    "retry_attempt": {
        "attempt_number", "max_attempts", "delay_seconds", "exception_type", "exception_message",
        "kind", "key", "log_level",
    },
    "retry_exhausted": {
        "total_attempts", "total_seconds", "final_exception_type", "final_exception_message",
        "kind", "reason",
    },
    "call_failed": {
        "total_attempts", "total_seconds", "final_exception_type", "final_exception_message",
        "kind", "reason",
    },
    "attempt_hedged": {"waited_seconds", "hedge_number"},
    "call_refused": {"by", "reason", "retry_after_seconds"},
    "circuit_state_changed": {
        "from_state", "to_state", "reason", "failure_count", "success_count", "generation",
        "retry_after_seconds",
    },
    "fallback_used": {"exception_type", "exception_message"},
    "call_succeeded": {"total_attempts", "total_seconds"},
    "calls_counted": {"calls"},
    "call_interrupted": {"total_attempts", "by"},
    "hook_failed": {"hook", "exception_type", "exception_message"},
    "idempotency": {"idempotency_key", "action"},
    "lease_expired": {"idempotency_key", "lease", "taken"},
    "inbox_raised": {"item", "item_kind", "severity", "text"},
    "inbox_decided": {
        "item", "item_kind", "decision", "operator", "why", "decided_evidence", "revision",
    },
    "outbox_dead": {"message", "topic", "total_attempts", "reason"},
    "outbox_discarded": {"message", "topic", "operator", "why"},
    "outbox_lease_lost": {"message", "topic"},
    "outbox_purged": {"purged", "older_than_seconds"},
    "outbox_replayed": {"message", "topic", "operator", "is_out_of_order"},
    "outbox_retry": {"message", "topic", "attempt_number", "delay_seconds", "reason"},
    "inbox_closed": {"item", "item_kind", "decision", "operator", "result"},
    "circuit_ordered": {"order", "operator", "why"},
    "circuit_call": {
        "outcome", "state", "duration_seconds", "exception_type", "exception_message"
    },
    "operator_refused": {"operator", "about", "reason"},
    "operator_added": {"operator", "authorised_by"},
    "operator_changed": {"operator", "change", "authorised_by"},
    "plan_declared": {"plan", "fields", "idempotency", "guards"},
    "records_lost": {"records", "first_at", "last_at", "reason"},
    "saga_step_failed": {
        "saga_id", "step", "exception_type", "exception_message", "completed", "in_doubt",
    },
    "effect_partially_failed": {"effect_key", "exception_type", "exception_message"},
    "effect_compensated": {
        "effect_key", "success", "is_undone", "is_published", "exception_type",
        "exception_message", "item",
    },
    "saga_step_undone": {"saga_id", "step", "success", "exception_type", "exception_message"},
    "saga_recovered": {"saga_id", "state", "recoveries"},
    "saga_stuck": {"saga_id", "step", "phase", "text"},
    "saga_ended": {"saga_id", "state", "recoveries"},
    "pipeline_halted": {
        "run_id", "stage", "cause", "exception_type", "exception_message", "total_attempts",
        "datasets", "care_labels",
    },
    "pipeline_resumed": {"run_id", "stage", "resumes"},
    "pipeline_ended": {"run_id", "stages"},
    "governance_escalated": {"run_id", "stage", "datasets", "text"},
}  # fmt: skip

# The three examples of the control-plane document, word by word.
CONTROL_PLANE = [
    {
        "event_type": "retry_attempt",
        "retry_category": "RETRY_NATS_PUBLISH",
        "operation": "Publish to exoarmur.audit.append.v1",
        "attempt_number": 2,
        "max_attempts": 3,
        "delay_seconds": 1.05,
        "exception_type": "TimeoutError",
        "exception_message": "Connection timeout",
        "tenant_id": "tenant-123",
        "correlation_id": "corr-456",
        "trace_id": "trace-789",
        "timestamp": "2026-01-25T21:15:00Z",
    },
    {
        "event_type": "retry_exhausted",
        "retry_category": "RETRY_KV_GET",
        "operation": "Get kill switch status",
        "total_attempts": 3,
        "final_exception_type": "TimeoutError",
        "final_exception_message": "KV operation timeout",
        "tenant_id": "tenant-123",
        "correlation_id": "corr-456",
        "trace_id": "trace-789",
        "timestamp": "2026-01-25T21:15:00Z",
    },
    {
        "event_type": "idempotency",
        "retry_category": "RETRY_KV_PUT",
        "operation": "Store kill switch state",
        "idempotency_key": "abc123def456...",
        "action": "hit",
        "tenant_id": "tenant-123",
        "correlation_id": "corr-456",
        "trace_id": "trace-789",
        "timestamp": "2026-01-25T21:15:00Z",
    },
]


# --- names and fields -----------------------------------------------------------------------------


def test_the_catalogue_holds_every_event_by_its_name():
    """Every event class is in it, under the name its records carry."""
    waiting, leaves = [Event], set()
    while waiting:
        cls = waiting.pop()
        below = [each for each in cls.__subclasses__() if each.__module__.startswith("mainstay.")]
        waiting += below
        leaves |= set() if below else {cls}  # a class with others below it is what they share
    assert set(CATALOGUE.values()) == leaves
    assert set(CATALOGUE) == set(OWN)
    for name, cls in CATALOGUE.items():
        assert cls().event_type == name


def test_every_feature_with_events_is_in_the_catalogue():
    """A folder of the core that has an `events.py` is one of the features."""
    core = Path(core_room.__file__).parent
    found = {path.parent.name for path in core.glob("*/events.py")}
    assert found == {feature.__name__.split(".")[-2] for feature in FEATURES}


def test_what_a_feature_declares_is_public():
    """`mainstay.events` has every event, and nothing that is none but the codec."""
    named = {cls.__name__ for cls in CATALOGUE.values()}
    assert set(events.__all__) == named | {"CATALOGUE", "Event", "decode", "encode"}


@pytest.mark.req("CP-22", "CP-23")
@pytest.mark.parametrize("name", OWN)
def test_an_event_has_exactly_its_fields(name):
    """No field is missing, none is new without this table knowing."""
    plain = json.loads(encode(CATALOGUE[name]()))
    assert set(plain) == COMMON | OWN[name]
    assert CATALOGUE[name]().to_dict() == plain
    assert plain["event_type"] == name
    assert plain["version"] == 1


@pytest.mark.req("CP-22")
@pytest.mark.parametrize("example", CONTROL_PLANE, ids=lambda example: example["event_type"])
def test_the_examples_of_the_control_plane_are_our_events(example):
    """Each field of the document is a field of ours, by that very name, with that value."""
    event = decode(json.dumps(example))
    assert type(event) is CATALOGUE[example["event_type"]]
    assert example.items() <= event.to_dict().items()


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("attempt_failed", "DEBUG"),
        ("retry_attempt", "WARNING"),
        ("retry_exhausted", "ERROR"),
        ("call_failed", "ERROR"),
        ("call_succeeded", "INFO"),
        ("call_interrupted", "INFO"),
        ("hook_failed", "ERROR"),
        ("idempotency", "DEBUG"),
        ("lease_expired", "WARNING"),
        ("saga_step_failed", "WARNING"),
        ("saga_stuck", "ERROR"),
    ],
)
def test_an_event_has_its_level(name, level):
    """Attempts at DEBUG, retries at WARNING, success INFO, exhaustion ERROR (decision 14)."""
    assert CATALOGUE[name].level == level
    assert "level" not in CATALOGUE[name]().to_dict()


def test_an_event_cannot_be_changed():
    """What happened, happened."""
    with pytest.raises(AttributeError):
        CallSucceeded().operation = "other"


# --- the codec ------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = {
    int: st.integers(0, 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: TEXT,
    bool: st.booleans(),
    list[str]: st.lists(TEXT, max_size=3),
    str | None: st.none() | TEXT,
    float | None: st.none() | st.floats(allow_nan=False, allow_infinity=False),
    dict[str, Any]: st.dictionaries(TEXT, st.integers(0, 9) | TEXT, max_size=3),
    list[dict[str, Any]]: st.lists(st.dictionaries(TEXT, st.integers(0, 9)), max_size=2),
    Proof | msgspec.UnsetType: st.just(msgspec.UNSET)
    | st.builds(
        Proof,
        plan=TEXT,
        opening=st.none() | st.builds(Opening, until=st.none() | st.floats(0.0, 1e9)),
        evidence=st.none() | st.builds(Evidence, classes=st.tuples(TEXT), asked=st.tuples()),
        answers=st.lists(st.none() | st.floats(0.0, 1e9) | st.integers(0, 2**52), max_size=3),
    ),
}


def made_of(cls):
    fields = {f.name: VALUES[hint] for f, hint in zip(
        msgspec.structs.fields(cls), (f.type for f in msgspec.structs.fields(cls)), strict=True,
    )}  # fmt: skip
    return st.builds(cls, **fields)


@pytest.mark.req("CP-22")
@given(event=st.one_of([made_of(cls) for cls in CATALOGUE.values()]))
def test_an_event_comes_back_from_its_record(event):
    """Encode and decode are inverse, for every event and any values."""
    back = decode(encode(event))
    assert type(back) is type(event)
    assert back == event
    assert encode(back) == encode(event)


@given(event=st.one_of([made_of(cls) for cls in CATALOGUE.values()]))
def test_a_record_is_canonical_json(event):
    """Sorted keys, UTF-8, no spaces, no line breaks: two writers agree to the byte."""
    data = encode(event)
    keys = [key for key, _ in json.loads(data, object_pairs_hook=list)]
    assert keys == sorted(keys)
    assert b"\n" not in data
    assert decode(data.decode("utf-8")) == event


def test_a_key_of_64_bits_survives():
    """No digit of a call's key is lost on the way."""
    for key in (0, 2**52 - 1, 2**64 - 1):
        assert decode(encode(RetryAttempt(key=key))).key == key


def test_a_record_as_a_person_would_write_it():
    """The bytes themselves, once."""
    assert (
        encode(Idempotency(operation="é", action="hit", idempotency_key="k"))
        == (
            '{"action":"hit","call_id":"","correlation_id":null,"event_type":"idempotency",'
            '"idempotency_key":"k","operation":"é","policy":"","retry_category":null,'
            '"tenant_id":null,"timestamp":"","trace_id":null,"version":1}'
        ).encode()
    )


@pytest.mark.parametrize(
    "data", ["", "[]", "{}", '{"event_type":"unheard_of"}', '{"operation":"x"}', b"\xff", "nul"]
)
def test_what_is_no_record_is_refused(data):
    """A broken line is an error, not an event."""
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        decode(data)


# --- records --------------------------------------------------------------------------------------


@pytest.mark.req("CP-22")
def test_every_event_has_a_record():
    """A new event comes with a record of its first version."""
    assert {path.stem for path in RECORDED if path.parent.name == "v1"} == set(CATALOGUE)


@pytest.mark.req("CP-22", "CP-16")
@pytest.mark.parametrize("path", RECORDED, ids=RECORD_IDS)
def test_a_record_decodes_to_its_exact_values_for_ever(path):
    """These files are never edited: what they say is what the event says."""
    text = path.read_text(encoding="utf-8")
    plain = json.loads(text)
    event = decode(text)
    assert type(event) is CATALOGUE[path.stem]
    for name, value in plain.items():
        assert getattr(event, name) == value
        assert type(getattr(event, name)) is type(value)
    assert f"v{event.version}" == path.parent.name


@pytest.mark.req("CP-22")
@pytest.mark.parametrize("path", RECORDED, ids=RECORD_IDS)
def test_a_field_of_a_later_version_is_tolerated(path):
    """An older program reads what a newer one wrote, and leaves out what it does not know."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    later = {**plain, "colour": "red", "nested": {"a": [1]}, "version": 2}
    event = decode(json.dumps(later))
    assert event.version == 2
    assert {**event.to_dict(), "version": 1} == {**CATALOGUE[path.stem]().to_dict(), **plain}


@pytest.mark.req("CP-22")
@pytest.mark.parametrize("path", RECORDED, ids=RECORD_IDS)
def test_a_record_of_an_earlier_writer_may_lack_fields(path):
    """Every field has a default: an old record decodes without the newer fields."""
    event = decode(json.dumps({"event_type": path.stem}))
    assert event == CATALOGUE[path.stem]()


# --- the teller -----------------------------------------------------------------------------------

PLAN = Plan(Policy(name="api", log_level="INFO"), "fetch", token=1)
WHO = {"tenant_id": "t", "correlation_id": "c", "trace_id": "x"}
SAME = {"operation": "fetch", "policy": "api", "retry_category": "cat", **WHO}
VERDICT = Classification(Kind.THROTTLED, True, "status 429", Hint(2.5))
FAILURE = ConnectionError("down")


def builder(started=100.0):
    return EventBuilder(PLAN, started, category="cat", **WHO)


def told(event):
    """What an event says beyond who, what and when."""
    plain = event.to_dict()
    assert SAME.items() <= plain.items()
    assert plain["timestamp"] == ""
    return type(event), {name: plain[name] for name in plain if name not in COMMON}


def test_a_failed_attempt_is_told_with_its_verdict():
    """The attempt that just ended, and all that classification found."""
    assert told(builder().attempt_failed(FAILURE, VERDICT, 2, 3, 255)) == (
        AttemptFailed,
        {
            "attempt_number": 2, "max_attempts": 3, "exception_type": "ConnectionError",
            "exception_message": "down", "kind": "throttled", "reason": "status 429",
            "retryable": True, "retry_after_seconds": 2.5, "attempt_seconds": None,
        },
    )  # fmt: skip


@pytest.mark.req("FR-041-47", "AC-022")
def test_a_scheduled_retry_is_told_with_its_delay():
    """The attempt that just failed, the wait before the next, the key and the level."""
    assert told(builder().retry_scheduled(FAILURE, VERDICT, 2, 3, 0.25, 255)) == (
        RetryAttempt,
        {
            "attempt_number": 2, "max_attempts": 3, "delay_seconds": 0.25,
            "exception_type": "ConnectionError", "exception_message": "down",
            "kind": "throttled", "key": 255, "log_level": "INFO",
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stop", "attempt", "cls"),
    [
        (EXHAUSTED, 1, RetryExhausted),
        (EXHAUSTED, 3, RetryExhausted),
        (KIND_EXHAUSTED, 1, RetryExhausted),
        (OUT_OF_TIME, 1, RetryExhausted),
        (RETRY_AFTER, 1, RetryExhausted),
        (NOT_RETRYABLE, 1, CallFailed),
        (NOT_RETRYABLE, 2, CallFailed),
        (COLLAPSED, 1, CallFailed),
        (GIVEN_UP_INSIDE, 1, CallFailed),
        (MAY_BE_APPLIED, 1, CallFailed),
    ],
    ids=lambda value: getattr(value, "text", None),
)
def test_the_end_is_told_as_exhausted_or_as_failed(stop, attempt, cls):
    """Exhausted where retries ran out of attempts or time; failed where none was due."""
    assert told(builder().gave_up(FAILURE, VERDICT, attempt, stop, 104.5)) == (
        cls,
        {
            "total_attempts": attempt, "total_seconds": 4.5,
            "final_exception_type": "ConnectionError", "final_exception_message": "down",
            "kind": "throttled", "reason": f"{stop.text}; status 429",
        },
    )  # fmt: skip


def test_success_interruption_and_a_broken_hook_are_told():
    """Each with what a person asks first."""
    assert told(builder().call_succeeded(2, 104.5)) == (
        CallSucceeded,
        {"total_attempts": 2, "total_seconds": 4.5},
    )
    assert told(builder().call_interrupted(2, "KeyboardInterrupt")) == (
        CallInterrupted,
        {"total_attempts": 2, "by": "KeyboardInterrupt"},
    )
    assert told(builder().hook_failed("before_retry", KeyError("user"))) == (
        HookFailed,
        {"hook": "before_retry", "exception_type": "KeyError", "exception_message": "'user'"},
    )


def test_a_clock_that_jumps_back_gives_no_negative_time():
    """Durations are never below zero."""
    assert builder(started=100.0).call_succeeded(1, 90.0).total_seconds == 0.0
    assert builder(100.0).gave_up(FAILURE, VERDICT, 1, EXHAUSTED, 90.0).total_seconds == 0.0


def test_the_events_of_one_call_carry_its_id_from_the_first_failure_on():
    """The id is the key in hexadecimal; before a failure there is none."""
    voice = builder()
    assert voice.call_succeeded(1, 100.0).call_id == ""
    assert voice.attempt_failed(FAILURE, VERDICT, 1, 3, 255).call_id == "ff"
    assert voice.retry_scheduled(FAILURE, VERDICT, 1, 3, 0.1, 255).call_id == "ff"
    assert voice.call_succeeded(2, 100.0).call_id == "ff"
    assert builder().call_succeeded(1, 100.0).call_id == ""


def test_who_is_left_out_is_none():
    """Without a context the fields are there, and null."""
    event = EventBuilder(PLAN, 0.0).call_succeeded(1, 0.0)
    assert (event.tenant_id, event.correlation_id, event.trace_id) == (None, None, None)
    assert event.retry_category is None


# --- describing a failure -------------------------------------------------------------------------


class Odd(Exception):
    def __str__(self):
        raise RuntimeError("broken")


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
def test_a_failure_is_described_without_its_secrets():
    """By the usual rules, or by those of the plan; its error codes too."""
    own = Redactor(patterns=["EMP-[0-9]+"])
    error = ConnectionError("EMP-7: redis://:hunter2@db is away")
    assert describe(error)[1] == "EMP-7: redis://:[redacted]@db is away"
    assert describe(error, own)[1] == "[redacted]: redis://:[redacted]@db is away"
    plan = Plan(Policy(), "fetch", 1)
    assert plan.shown("EMP-7 token=abc") == "EMP-7 token=[redacted]"
    plan.redact = own
    assert plan.shown("EMP-7 token=abc") == "[redacted] token=[redacted]"
    error.code = "token=abc"
    assert evidence_of(error).codes == ("token=[redacted]",)


def test_a_failure_is_described_by_type_and_message():
    """Built-in types by name, others in full; a result that was not accepted has no type."""
    assert describe(ConnectionError("down")) == ("ConnectionError", "down")
    assert describe(msgspec.DecodeError("bad")) == ("msgspec.DecodeError", "bad")
    assert describe(Returned(5)) == ("", "the result was not accepted")


def test_a_broken_message_does_not_cost_the_event():
    """An exception whose text cannot be made is told without it."""
    assert describe(Odd()) == (f"{__name__}.Odd", "")


def test_a_message_that_is_no_text_of_utf8_can_still_be_recorded():
    """A file name with stray bytes in a message does not lose the event."""
    event = builder().gave_up(OSError("bad name \udcff"), VERDICT, 1, EXHAUSTED, 0.0)
    assert decode(encode(event)).final_exception_message.startswith("bad name ")


def test_a_refusal_is_told_with_its_reason_and_when_to_ask_again():
    """Who refused, why, and how long it may last; None where nobody can say."""
    builder = EventBuilder(Plan(Policy(name="api"), "pay", 1), 0.0)
    event = builder.call_refused(CircuitOpenError("pay", "open", 2.5))
    assert (event.operation, event.policy, event.retry_after_seconds) == ("pay", "api", 2.5)
    assert event.by == "mainstay.errors.CircuitOpenError"
    assert event.reason.startswith("circuit 'pay' is open")
    assert builder.call_refused(CallShed("pay", 0.5)).retry_after_seconds is None


@pytest.mark.parametrize("cls", [*CATALOGUE.values(), Evidence, Opening, Proof])
def test_the_garbage_collector_does_not_track_what_is_recorded(cls):
    """A batch holds thousands of them; frozen values refer to nothing that refers back."""
    assert not cls.__struct_config__.gc


class SlyError(OSError):
    """Has a number of its own, which cannot be read."""

    @property
    def errno(self):
        raise RuntimeError("no number")


@pytest.mark.parametrize("times", [1, 2], ids=["first", "remembered"])
@pytest.mark.parametrize(
    ("number", "kept"),
    [(2, 2), (-3, -3), (104, 104), (None, None), (True, None), (1 << 70, None), ([2], None)],
)
def test_the_evidence_of_an_oserror_has_its_number_if_that_is_one(number, kept, times):
    """Whatever was asked before: what is remembered is remembered for the number, too."""
    for _ in range(times):
        found = evidence_of(OSError(number, "gone"))
        assert found.errno == kept
        assert "builtins:OSError" in found.classes


def test_the_evidence_of_an_oserror_whose_number_cannot_be_read():
    """It has none, and its class is recorded."""
    for _ in range(2):
        found = evidence_of(SlyError(2, "gone"))
        assert found.errno is None
        assert found.classes[0].endswith("SlyError")


def test_the_usual_redactor_is_loaded_once():
    """It serves wherever no redactor is given."""
    assert usual_redactor() is usual_redactor()
    assert usual_redactor().text("password=hunter2") == "password=[redacted]"
