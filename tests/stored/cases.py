"""What is stored, by name: values, failures, arguments and pickles. A case is added, never changed.

A stored version holds the cases of its day. The tests take the names from what is stored, and the
expected value from here; so each case is built of the public API, and stays for ever.
"""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import json
import pathlib
import typing
import uuid
import zoneinfo

import msgspec

import mainstay
from mainstay import audit, errors, events, testing
from mainstay.profiles import agents, clients, control_plane, effects, pipelines
from tests.stored import shapes


def _event(cls):
    """An event with a value in each field that has no default."""
    hints = typing.get_type_hints(cls)
    given = {}
    for field in msgspec.structs.fields(cls):
        if field.required:
            given[field.name] = _filled(hints[field.name])
    return cls(**given)


def _filled(hint):
    plain = {str: "a text", int: 3, float: 0.5, bool: True, dict: {}, list: [], tuple: ()}
    return plain[typing.get_origin(hint) or hint]


PROOF = {
    "plan": "0683814a7d06fc69",
    "opening": {"attempt": 1, "delay": 0.0, "limit": 0, "started": 739.25, "until": None},
    "evidence": {
        "classes": ["mainstay.errors:AttemptTimeout", "builtins:TimeoutError"], "timeout": 1.5,
    },
    "answers": [2926008207620333],
}  # fmt: skip


def _proved(event):
    """The event as a sink gets it that wants the evidence."""
    plain = json.loads(events.encode(event))
    return events.decode(json.dumps({**plain, "proof": PROOF}).encode())


class _Proving:
    """Keeps events with their proof."""

    wants_evidence = True

    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(event)


def witnessed():
    """An event that holds the circuit on which a retry was decided, as only a call makes it."""
    breaker = mainstay.BreakerSettings(window=mainstay.Window.seconds(20.0))
    policy = mainstay.RetryPolicy(name="standard", max_attempts=2, deadline=None)
    sink, down = _Proving(), testing.scripted(*[ConnectionError("reset")] * 2)
    with (
        testing.virtual_time(start=1000.0),
        mainstay.Engine(
            policies=[policy], sinks=[sink], audit=False, seed=1, breaker=breaker
        ) as engine,
    ):
        engine.run("fetch", down)
    return next(each for each in sink.events if each.event_type == "retry_attempt")


BARE = {f"event {name}": _event(cls) for name, cls in sorted(events.CATALOGUE.items())}
EVENTS = {name: _proved(event) for name, event in BARE.items()}
ITEM = mainstay.Item(
    kind="unknown_outcome", subject="charge o-1", operation="charge", text="nobody knows",
    attempts=2, created=1.5, seen=2.5, data={"at": "records"},
)  # fmt: skip
SNAPSHOT = mainstay.CircuitSnapshot(
    name="pay", state=mainstay.CircuitState.OPEN, reason="3 failures in a row", failure_count=3
)
TOOL = agents.ToolResult(stdout=b"out", stderr=b"", attempts=2)
COMPLIANCE = pipelines.ComplianceRecord(
    pipeline_id="etl_v1", stage="load", attempts=2, retry_policy="standard", errors=["OSError"],
    final_status="success", circuit_open=False, energy_wh=0.5, co2_g=0.25, telemetry_ref="t.json",
)  # fmt: skip
UTC = dt.UTC
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")

OURS = {
    "Kind": mainstay.Kind.THROTTLED,
    "CircuitState": mainstay.CircuitState.HALF_OPEN,
    "Item": ITEM,
    "CircuitSnapshot": SNAPSHOT,
    "HealthReport": mainstay.HealthReport(status="healthy", circuits=(SNAPSHOT,)),
    "ToolResult": TOOL,
    "RetryConfiguration": clients.RetryConfiguration(
        max_attempts=7, retry_on_exceptions=("shop.Gone",), ignore_on_exceptions=()
    ),
    "CircuitBreakerConfiguration": clients.CircuitBreakerConfiguration(failure_threshold=9),
    "EffectRetryConfig": effects.EffectRetryConfig(max_attempts=4),
    "RetryCategory": next(iter(control_plane.RetryCategory)),
    "ComplianceRecord": COMPLIANCE,
    "Hit": control_plane.Hit({"a": 1}, {"by": "ann"}),
    "Verdict": mainstay.Verdict(ok=True, records=3, blocks=1),
    "Record": audit.Record(1, "me", b'{"event_type":"call_succeeded"}', 1),
    "inside": {"kinds": [mainstay.Kind.AUTH], "items": (ITEM,)},
    **EVENTS,
}
"""Values of mainstay's own that are data."""

THEIRS = {
    "Enum": shapes.Colour.BLUE,
    "IntEnum": shapes.Level.HIGH,
    "Flag": shapes.Right.READ | shapes.Right.WRITE,
    "dataclass": shapes.Order("o-1", (1, 2)),
    "NamedTuple": shapes.Point(1.0, -0.5),
    "Struct": shapes.Parcel("ann", 2.5),
    "pydantic": shapes.Invoice(number=7),
    "nested": {"orders": [shapes.Order("o-2")], "colour": shapes.Colour.RED},
}
"""Values of classes of a user's own."""

PLAIN = {
    "None": None,
    "bool": True,
    "str": "text é",
    "list": [1, 2.5, "x", None],
    "dict": {"a": {"b": [1]}},
    "big int": 2**80,
    "bytes": b"\x00\xff",
    "date": dt.date(2024, 2, 29),
    "datetime": dt.datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    "naive datetime": dt.datetime(2024, 2, 29, 12, 30),  # noqa: DTZ001 -- a case of its own
    "time": dt.time(1, 2, 3),
    "timedelta": dt.timedelta(days=1, microseconds=5),
    "Decimal": decimal.Decimal("1.10"),
    "UUID": uuid.UUID(int=5),
    "path": pathlib.PurePosixPath("/a/b"),
    "tuple": (1, (2,)),
    "set": {1, 2},
    "frozenset": frozenset({"a"}),
    "dict of ints": {1: "a", 2: "b"},
}
"""Plain values, which are also arguments."""

ONLY_VALUES = {
    "surrogate": "half \ud800",
    "infinity": float("inf"),
    "complex": 1 + 2j,
    "bytearray": bytearray(b"ab"),
    "zoned": dt.datetime(2024, 7, 1, 12, 0, tzinfo=BERLIN),
    "zoned time": dt.time(1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    "Fraction": fractions.Fraction(1, 3),
    "windows path": pathlib.PureWindowsPath("c:/a"),
    "tag": {"$tuple": [1]},
}

VALUES = {**PLAIN, **ONLY_VALUES, **THEIRS, **OURS}
"""What a keyed call returned."""

ARGUMENTS = {name: {"value": value} for name, value in {**PLAIN, **THEIRS, **OURS}.items()} | {
    "none": {},
    "several": {"order": shapes.Order("o-1"), "kind": mainstay.Kind.AUTH, "amount": 5},
    "own key": {"value": shapes.Keyed("k")},
    "members": {"value": {mainstay.Kind.AUTH, mainstay.Kind.TIMEOUT}},
    "keys": {"value": {mainstay.CircuitState.OPEN: 1}},
}
"""What a keyed call was called with."""


def _caused():
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        return error


def _noted():
    error = ValueError("with a note")
    error.add_note("seen at noon")
    return error


def _given_up():
    policy = mainstay.RetryPolicy(
        max_attempts=2, retry_on=ValueError, backoff=mainstay.Backoff.constant(0.0)
    )
    return policy.run(int, "x").last_exception


PROBLEM = errors.Problem("max_attempts", -1, "an integer")
ERRORS = {
    "AttemptTimeout": lambda: errors.AttemptTimeout(1.5),
    "BulkheadFull": lambda: errors.BulkheadFull("pool", 3, 2, 0.5),
    "CallAbandoned": lambda: errors.CallAbandoned("pay", "ann", "no use"),
    "CallCancelled": lambda: errors.CallCancelled("pay", 2),
    "CallShed": lambda: errors.CallShed("pay", 0.25),
    "CircuitOpenError": lambda: errors.CircuitOpenError("pay", "open", 4.5),
    "CommandFailed": lambda: errors.CommandFailed("ls", 3, "no such file"),
    "CommandKilled": lambda: errors.CommandKilled("ls", 9, "SIGKILL"),
    "CommandNotRun": lambda: errors.CommandNotRun("ls", 127, "not found"),
    "ConfigError": lambda: errors.ConfigError([errors.ConfigProblem("retry", 1, "a mapping")]),
    "CompensationFailedError": lambda: errors.CompensationFailedError(
        "it failed", ["debit"], [KeyError("x")]
    ),
    "Conflict": lambda: errors.Conflict("pay", "o-1", 2.5),
    "DeadlineExceeded": lambda: errors.DeadlineExceeded(3.0),
    "DependencyError": lambda: errors.DependencyError("it broke", hint="try again"),
    "IdentityRefused": lambda: errors.IdentityRefused("no", operator="ann", retry_after=60.0),
    "LeaseLost": lambda: errors.LeaseLost("pay", "o-1", 5),
    "MainstayError": lambda: errors.MainstayError("it broke"),
    "MissingExtraError": lambda: errors.MissingExtraError("nats", "nats"),
    "NestedRetryError": lambda: errors.NestedRetryError("in", "out", 2, 3),
    "OutcomeUnknown": lambda: errors.OutcomeUnknown("pay"),
    "RateLimited": lambda: errors.RateLimited("search", 2.5),
    "ResultRejected": lambda: errors.ResultRejected("poll", 3, "pending"),
    "PayloadMismatch": lambda: errors.PayloadMismatch("pay", "o-1"),
    "LedgerError": lambda: errors.LedgerError("a.json", 7, "it is cut off"),
    "RetryForbidden": lambda: errors.RetryForbidden("busy-loop", "no wait"),
    "PipelineHalted": lambda: errors.PipelineHalted("etl", "r-1", "poll", "it failed"),
    "FailFastError": lambda: errors.FailFastError("no"),
    "SchemaValidationError": lambda: errors.SchemaValidationError("no id"),
    "GovernanceViolation": lambda: errors.GovernanceViolation("no consent"),
    "GovernanceBlocked": lambda: errors.GovernanceBlocked("d-1 is blocked"),
    "LineageMismatch": lambda: errors.LineageMismatch("sha256"),
    "ImmutabilityViolation": lambda: errors.ImmutabilityViolation("published"),
    "LicenseViolation": lambda: errors.LicenseViolation("no license"),
    "PolicyError": lambda: errors.PolicyError("RetryPolicy", [PROBLEM]),
    "Refused": lambda: errors.Refused("no"),
    "ResultNotKept": lambda: errors.ResultNotKept(
        "pay", "o-1", dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "it is too large"
    ),
    "RetryError": lambda: errors.RetryError("network", 3, "pay", {"order": 1}),
    "SagaStuckError": lambda: errors.SagaStuckError("transfer", "t-1", "it failed", "3f2a"),
    "SinkError": lambda: errors.SinkError("audit", "call_failed", 2.0),
    "StoreError": lambda: errors.StoreError("no store", hint="memory://"),
    "StoreUnavailable": lambda: errors.StoreUnavailable("nats://x", "read", "away"),
    "StoredFailure": lambda: errors.StoredFailure("shop.Error", "no", ["a note"]),
    "StoredValueError": lambda: errors.StoredValueError("no class"),
    "UsageError": lambda: errors.UsageError("wrong", hint="right"),
    "ValueTooLarge": lambda: errors.ValueTooLarge("nats://x", 2_000_000, 1_048_576),
    "WrapError": lambda: errors.WrapError("no function"),
    "MainstayWarning": lambda: errors.MainstayWarning("careful"),
    "NestedRetryWarning": lambda: errors.NestedRetryWarning("careful"),
    "PolicyNotFoundWarning": lambda: errors.PolicyNotFoundWarning("careful"),
    "ConfigWarning": lambda: errors.ConfigWarning("careful"),
}
"""Every exception of mainstay's own."""

FAILURES = {
    "ArithmeticError": lambda: ZeroDivisionError("division by zero"),
    "KeyError": lambda: KeyError("x"),
    "OSError": lambda: FileNotFoundError(2, "No such file", "a.txt"),
    "ImportError": lambda: ImportError("no", name="shop"),
    "caused": _caused,
    "noted": _noted,
    "Rejected": lambda: shapes.Rejected("no", order="o-1"),
    "with values of ours": lambda: shapes.Rejected("no", order=mainstay.Kind.AUTH),
    "with an item": lambda: shapes.Rejected("no", order=ITEM),
    "stands for": lambda: shapes.Gone("kept in a slot"),
    "ConfigWarning": ERRORS["ConfigWarning"],
    "UsageError": ERRORS["UsageError"],
    "StoredFailure": ERRORS["StoredFailure"],
    "RetryError": ERRORS["RetryError"],
    "WrapError": ERRORS["WrapError"],
    "CommandFailed": ERRORS["CommandFailed"],
}
"""What a keyed call raised, and a policy calls final."""

PICKLED = {
    **{f"ours {name}": value for name, value in OURS.items()},
    **{f"bare {name}": value for name, value in BARE.items()},
    **{f"error {name}": make() for name, make in ERRORS.items()},
    "Backoff": mainstay.Backoff.exponential(0.5, factor=3.0, max_delay=9.0),
    "Backoff linear": mainstay.Backoff.linear(0.5, step=0.25),
    "Backoff chain": mainstay.Backoff.chain(0.1, 1.0, mainstay.Backoff.linear(2.0)),
    "Jitter": mainstay.Jitter.percent(0.2),
    "Jitter full": mainstay.Jitter.full(),
    "KindRule": mainstay.KindRule(max_attempts=2, backoff=mainstay.Backoff.constant(1.0)),
    "RetryPolicy": mainstay.RetryPolicy(
        name="api", max_attempts=5, retry_on=(OSError, mainstay.Kind.TIMEOUT, "shop.Gone"),
        never_retry_on=(errors.PolicyError,), classify={ValueError: "throttled"},
        per_kind={"throttled": mainstay.KindRule(max_attempts=8)},
        backoff=mainstay.Backoff.constant(0.1), jitter=mainstay.Jitter.none(), deadline=5.0,
    ),
    "RetryPolicy plain": mainstay.RetryPolicy(),
    "BreakerSettings": mainstay.BreakerSettings(
        failure_threshold=7, window=mainstay.Window.seconds(60.0, buckets=6), ignore=[ValueError]
    ),
    "Window": mainstay.Window.calls(50),
    "Context": mainstay.Context("t1", "c1", "tr1", "network"),
    "RetryInfo": mainstay.RetryInfo("fetch", 1, 3, 0.1, None, mainstay.Kind.TIMEOUT, "slow"),
    "Redactor": mainstay.Redactor(patterns=["EMP-[0-9]+"], fields=["patient id"]),
    "RetryResult": mainstay.RetryResult(True, 2, None, 3.5, {"a": 1}),
    "Classification": mainstay.RetryPolicy().classification(ConnectionResetError("peer")),
    "Problem": PROBLEM,
    "ConfigProblem": errors.ConfigProblem("retry", 1, "a mapping", file="a.yml", line=3),
    "ScriptEnded": testing.ScriptEnded("no more"),
    "Explanation": mainstay.RetryPolicy(max_attempts=3).explain(),
    "control_plane.RetryPolicy": control_plane.RetryPolicy(),
    "agents.STANDARD": agents.STANDARD,
    "given up": _given_up(),
    "Fallback": mainstay.Fallback({"a": 1}),
    "BulkheadSnapshot": mainstay.Bulkhead("pool", 2).snapshot(),
    "Saga": mainstay.Saga(
        "transfer", [mainstay.SagaStep("debit", print, print), [mainstay.SagaStep("bill", len)]]
    ),
    "SagaStep": mainstay.SagaStep("debit", print, pivot=True),
    "SagaResult": mainstay.SagaResult("transfer", "t-1", {"debit": 5}),
    "SagaView": mainstay.SagaView(
        address="a/1", saga="a", id="1", tenant_id=None, version=1, state="running", steps=(),
        log=(), began=0.0, ended=None, recoveries=0, cancelled="", failure="", stuck="",
        is_leased=False,
    ),
    "PolicyRegistry": mainstay.Engine(sinks=[], operations={"db.*": "standard"}).policies,
    "EngineExplanation": mainstay.Engine(sinks=[], operations={"a": "standard"}).explain(),
}  # fmt: skip
"""Every public value that can be pickled."""
