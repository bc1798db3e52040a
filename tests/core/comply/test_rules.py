"""Single rules on evidence that is written by hand: the cases that generated runs do not have."""

import pytest
from msgspec.structs import replace

from mainstay import errors
from mainstay.core.base.timestamps import stamp
from mainstay.core.circuit.events import CircuitStateChanged
from mainstay.core.comply.audit_facts import AuditFacts
from mainstay.core.comply.check import RULES, check
from mainstay.core.comply.evidence import Evidence, LedgerFile, StoredRun, TelemetryFile
from mainstay.core.comply.forbidden_names import is_forbidden
from mainstay.core.comply.telemetry_facts import TelemetryFacts
from mainstay.core.pipeline.ledger import RETRY_LOG, VERSIONING, LedgerEntry, ledger_of, sealed
from mainstay.core.pipeline.state import HALTED, RUNNING, RunRecord, StageRecord
from mainstay.core.retry.events import (
    AttemptFailed,
    CallFailed,
    CallInterrupted,
    CallSucceeded,
    HookFailed,
    RetryAttempt,
    RetryExhausted,
)
from mainstay.core.telemetry.record import REST, StageTotals, first_try
from tests.core.comply.runs import telemetry_of

NOW = 1_790_000_000.0


def entries(kinds, ledger, **fields):
    drafts = [LedgerEntry(kind=kind, pipeline_id="etl", run_id="r-1", **fields) for kind in kinds]
    return sealed(drafts, ledger, (), NOW)


def versions(*kinds):
    return entries(kinds, VERSIONING)


def failure(number=1, **fields):
    base = first_try("etl", "poll")
    fields = {"sequence": "7f", "timestamp": stamp(NOW + number), "retryable": True} | fields
    fields = {"outcome": "failure", "error_class": "TimeoutError"} | fields
    return replace(base, attempt=number, **fields)


def gathered(records=(), *, log=(), ledger=(), **parts):
    """Evidence of these telemetry records and chains, as files."""
    facts, telemetry = TelemetryFacts(), telemetry_of(records)
    facts.begin("t.json", telemetry.totals, telemetry.records_left_out)
    for record in records:
        facts.add(record)
    files = [
        LedgerFile(path="log.json", ledger=ledger_of(RETRY_LOG, [log])),
        LedgerFile(path="ledger.json", ledger=ledger_of(VERSIONING, [ledger])),
    ]
    kept = {"telemetry": facts.files, "calls": facts.calls, "ledgers": files} | parts
    return Evidence(**kept)


def found(*arguments, **parts):
    return [(each.rule, each.text) for each in check(gathered(*arguments, **parts))]


def stored(**fields):
    fields = {"state": HALTED} | fields
    record = RunRecord("etl", "r-1", "poll", "f", owner="me", epoch=1, began=NOW, **fields)
    return {"store": "memory://", "stored": [StoredRun(record=record)]}


# --- the rules ------------------------------------------------------------------------------------


def test_every_rule_has_an_id_of_its_own_and_its_documentation():
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.finds.endswith(".")
        assert rule.fix


def test_every_class_that_fails_fast_is_forbidden():
    """Those of mainstay, and the schema errors of libraries; a class of a user is not known."""

    class Own(errors.FailFastError):
        pass

    for name in errors.__dict__:
        cls = getattr(errors, name)
        is_fast = isinstance(cls, type) and issubclass(cls, errors.FailFastError)
        assert is_forbidden(name) == is_fast
    assert is_forbidden("pydantic_core._pydantic_core.ValidationError")
    assert not is_forbidden(Own.__name__)


# --- telemetry ------------------------------------------------------------------------------------


def test_a_telemetry_file_that_is_not_there_is_missing_if_there_are_runs():
    gone = [TelemetryFile(path="t.json", is_there=False)]
    assert found(ledger=versions("began", "completed"), telemetry=gone) == [
        ("missing-telemetry", "there is no such file")
    ]
    assert found(telemetry=gone) == []
    assert found(ledger=versions("began", "completed"), telemetry=None) == []


def test_a_call_of_the_retry_log_needs_its_end_and_its_failures():
    log = entries(["exhausted"], RETRY_LOG, stage="poll", call_id="7f", attempts=2,
                  error_classes=("TimeoutError", "TimeoutError"))  # fmt: skip
    ledger = versions("began", "halted")
    whole = [failure(1, is_final=False), failure(2)]
    assert found(whole, log=log, ledger=ledger) == []
    (only,) = found([failure(1, is_final=False)], log=log, ledger=ledger)
    assert only == ("missing-telemetry", "stage poll: the telemetry of call 7f has no end")
    text = "stage poll: the retry log has 2 failures of call 7f, and the telemetry has 1"
    assert found([failure(1)], log=log, ledger=ledger) == [("missing-telemetry", text)]
    text = "stage poll: the retry log has call 7f, and the telemetry has no record of it"
    assert found([], log=log, ledger=ledger) == [("missing-telemetry", text)]
    assert found([], log=log, ledger=versions("began")) == []  # it runs


def test_a_gap_between_two_attempts_is_missing():
    records = [failure(1, is_final=False), failure(3)]
    text = "stage poll: attempt 2 of call 7f is not in the telemetry"
    assert found(records) == [("missing-telemetry", text)]
    assert found([failure(3, sequence="")]) == []  # of an old version: nothing joins its records


def test_totals_of_too_many_stages_are_compared_as_a_whole():
    """Stages past the limit of the file share one total."""
    records = [first_try("etl", "poll"), first_try("etl", "load")]
    totals = [StageTotals(pipeline_id=REST, stage_name=REST, energy_model="", successes=2)]
    stages = {"poll": StageRecord("done", attempts=1)}
    for count, expected in ((2, []), (1, ["missing-telemetry"])):
        facts = TelemetryFacts()
        facts.begin("t.json", totals, left_out=0)
        for record in records[:count]:
            facts.add(record)
        parts = {"telemetry": facts.files, "calls": facts.calls, **stored(stages=stages)}
        assert [rule for rule, _ in found(**parts)] == expected


def test_more_records_than_the_totals_count_are_named():
    facts = TelemetryFacts()
    facts.begin("t.json", [], left_out=0)
    facts.add(first_try("etl", "poll"))
    text = "stage poll of etl: 1 telemetry records, and the totals count 0: the totals do not"
    ((rule, shown),) = found(telemetry=facts.files)
    assert (rule, shown[: len(text)]) == ("missing-telemetry", text)


# --- ledgers --------------------------------------------------------------------------------------


def test_a_call_without_an_entry_is_unlogged_only_in_a_pipeline_with_ledgers():
    last = replace(first_try("etl", "poll"), attempt=2, sequence="7f", timestamp=stamp(NOW))
    records = [failure(1, is_final=False), last]
    ledger = versions("began", "completed")
    assert [rule for rule, _ in found(records, ledger=ledger)] == ["unlogged-retry"]
    assert found(records) == []
    assert found([failure(1, is_final=False)], ledger=ledger) == []  # it has not ended


def test_all_attempts_used_up_without_an_entry_are_exceeded():
    ((rule, text),) = found([failure(1)], ledger=versions("began", "completed"))
    assert rule == "attempts-exceeded"
    assert "1 attempts" in text


def test_a_cancelled_call_has_no_entry():
    """The run was left as it was, and the next process goes on with it."""
    records = [failure(1, is_final=False), failure(1, error_class="CancelledError")]
    assert found(records, ledger=versions("began", "resumed")) == []


def test_a_call_that_ended_before_the_ledger_is_kept_needs_no_entry():
    files = [LedgerFile(path="log.json",
                        ledger=ledger_of(RETRY_LOG, [], kept_since=stamp(NOW + 100)))]  # fmt: skip
    record = StoredRun(record=stored()["stored"][0].record)
    parts = {"ledgers": files, "store": "memory://", "stored": [record]}
    assert found([failure(1)], **parts) == []


def test_a_store_that_drops_runs_cannot_show_that_an_entry_is_missing():
    """Its retry log in a file can: that states since when runs are kept."""
    parts = stored(versions=versions("began", "halted"), keep=60.0)
    assert found([failure(1)], ledgers=[], **parts) == []
    log = LedgerFile(path="log.json", ledger=ledger_of(RETRY_LOG, []))
    rules = [rule for rule, _ in found([failure(1)], ledgers=[log], **parts)]
    assert rules == ["attempts-exceeded"]
    parts = stored(versions=versions("began", "halted"))
    assert [rule for rule, _ in found([failure(1)], ledgers=[], **parts)] == rules


def test_a_ledger_file_that_is_not_there_is_named():
    files = [LedgerFile(path="log.json", ledger=None)]
    parts = stored(versions=versions("began", "halted")) | {"ledgers": files}
    assert found(**parts) == [("altered-ledger", "there is no such file")]


def test_two_retry_logs_are_not_compared_with_one_versioning_ledger():
    files = gathered(ledger=versions("began")).ledgers
    assert found(ledgers=[*files, files[0]]) == []


def test_what_fails_fast_needs_halt_and_quarantine():
    log = entries(["failed_fast"], RETRY_LOG, stage="poll", attempts=1)
    for kinds, count in ((("began",), 2), (("began", "halted"), 1), ((), 0)):
        shown = [rule for rule, _ in found(log=log, ledger=versions(*kinds))]
        assert shown == ["missing-quarantine"] * count


def test_a_run_that_is_resumed_out_of_quarantine_is_named():
    kinds = ["began", "halted", "quarantined", "resumed", "completed"]
    ((rule, text),) = found(ledger=versions(*kinds))
    assert rule == "forbidden-class"
    assert "resumed" in text
    kinds.insert(3, "reviewed")
    assert found(ledger=versions(*kinds)) == []


# --- circuits -------------------------------------------------------------------------------------


def passed(seconds, *, first=True, last=1, **parts):
    """Two calls of a stage in one run: the first finds the circuit open, the second follows."""
    drafts = [
        LedgerEntry(kind="exhausted", pipeline_id="etl", run_id="r-1", stage="poll", attempts=1,
                    circuit_open=first),
        LedgerEntry(kind="retried", pipeline_id="etl", run_id="r-1", stage="poll", attempts=last),
    ]  # fmt: skip
    log = sealed(drafts[:1], RETRY_LOG, (), NOW)
    log = sealed(drafts[1:], RETRY_LOG, log, NOW + seconds)
    return [rule for rule, _ in found(log=log, **parts)]


def test_a_call_within_the_cooldown_of_the_last_is_named():
    """The entry may be written 30 s after the circuit opened."""
    assert passed(200.0) == ["open-circuit"]
    assert passed(271.0) == []
    assert passed(50.0, cooldown=60.0) == []
    assert passed(200.0, first=False) == []
    assert passed(200.0, last=0) == []
    assert passed(200.0, audited=frozenset({("etl", "poll")})) == []


def test_the_times_of_calls_are_those_of_the_telemetry():
    """The clock of the store may be another than that of the circuit."""
    log = [
        entries([kind], RETRY_LOG, stage="poll", attempts=1, call_id=call, circuit_open=True)[0]
        for kind, call in (("exhausted", "7f"), ("probe_failed", "80"))
    ]
    log = sealed(log, RETRY_LOG, (), NOW)  # at one moment
    for seconds, expected in ((299.0, ["open-circuit"]), (301.0, [])):
        later = failure(1, sequence="80", timestamp=stamp(NOW + seconds), circuit_open=True)
        records = [failure(1, timestamp=stamp(NOW), circuit_open=True), later]
        assert [rule for rule, _ in found(records, log=log, ledger=versions("began"))] == expected


def test_records_without_a_time_show_nothing_of_circuits():
    records = [failure(1, circuit_open=True, is_final=False, timestamp=""), failure(2)]
    assert found(records) == []


def test_the_audit_log_decides_if_it_has_the_circuit():
    records = [failure(1, circuit_open=True, is_final=False), failure(2)]
    assert [rule for rule, _ in found(records)] == ["open-circuit"]
    assert found(records, audited=frozenset({("etl", "poll")})) == []


# --- which runs -----------------------------------------------------------------------------------


def test_a_run_is_chosen_by_its_id_or_by_its_address():
    log = entries(["exhausted"], RETRY_LOG, stage="poll", call_id="7f", attempts=1)
    ledger = versions("began", "halted")
    for name in ("r-1", "etl/r-1"):
        assert len(found(log=log, ledger=ledger, run=name)) == 1
    assert found(log=log, ledger=ledger, run="r-2") == []
    assert found([failure(1)], log=log[:0], ledger=ledger, run="r-2") == []


def test_flaws_of_other_runs_are_left_out():
    ledger = versions("began", "halted")
    bad = (replace(ledger[0], by="mallory"), ledger[1])
    assert [rule for rule, _ in found(ledger=bad)] == ["altered-ledger"]
    assert found(ledger=bad, run="other") == []
    assert found(run="other", **stored(versions=bad)) == []


def test_what_ended_before_a_moment_is_left_out():
    assert len(found([failure(1)], ledger=versions("began", "completed"))) == 1
    later = stamp(NOW + 100)
    assert found([failure(1)], ledger=versions("began", "completed"), since=later) == []


def test_a_run_of_the_store_that_runs_is_not_judged_by_its_telemetry():
    stages = {"poll": StageRecord("done", attempts=1)}
    assert found(**stored(state=RUNNING, stages=stages)) == []
    assert [rule for rule, _ in found(**stored(stages=stages))] == ["missing-telemetry"]
    assert found(**stored(stages={"poll": StageRecord("done")})) == []  # replayed, not called


def test_a_run_that_is_not_carried_over_yet_may_be_missing_in_the_files():
    ledger = versions("began", "halted")
    record = stored(versions=ledger)["stored"][0].record
    other = sealed(
        [LedgerEntry(kind="began", pipeline_id="etl", run_id="r-2")], VERSIONING, (), 0.0
    )
    cases = [
        (True, [other], "", []),
        (False, [other], "", ["altered-ledger"]),
        (False, [], "", []),
        (False, [], "/other", []),
        (False, [], "/ledgers", ["altered-ledger"]),
    ]
    for is_open, chains, folder, expected in cases:
        whole = ledger_of(VERSIONING, chains)
        files = [LedgerFile(path="ledger.json", ledger=whole, folder=folder)]
        runs = [StoredRun(record=replace(record, ledgers="/ledgers"), is_open=is_open)]
        assert [rule for rule, _ in found(ledgers=files, store="s", stored=runs)] == expected


# --- audit ----------------------------------------------------------------------------------------


def audited(*events, writers=(), most=99, **parts):
    log = entries(["refused"], RETRY_LOG, stage="poll")
    evidence = gathered(**{"ledger": versions("began", "completed"), "log": log} | parts)
    facts = AuditFacts(evidence, "audit.jsonl", most)
    for number, event in enumerate(events, 1):
        facts.take(number, (writers or ["w"] * 99)[number - 1], event)
    evidence.audit, evidence.audited = facts.facts, frozenset(facts.audited)
    return [(each.rule, each.text) for each in check(evidence)]


def at(kind, seconds, **fields):
    fields = {"operation": "etl.poll", "call_id": "7f"} | fields
    return kind(timestamp=stamp(NOW + seconds), **fields)


def changed(seconds, before, after):
    return at(CircuitStateChanged, seconds, from_state=before, to_state=after)


def test_a_call_of_the_audit_log_needs_telemetry_and_an_entry():
    failed = at(AttemptFailed, 1.0, attempt_number=1, max_attempts=1, retryable=True)
    used_up = at(RetryExhausted, 1.0, total_attempts=1)
    assert [rule for rule, _ in audited(failed, used_up)] == [
        "missing-telemetry",
        "attempts-exceeded",
    ]
    final = at(CallFailed, 1.0, total_attempts=1)
    assert [rule for rule, _ in audited(final)] == ["missing-telemetry", "unlogged-retry"]
    assert audited(at(CallFailed, 1.0, total_attempts=1, call_id="")) == []
    assert audited(at(CallSucceeded, 1.0, total_attempts=1)) == []
    assert audited(final, since=stamp(NOW + 9), ledger=versions("began")) == []
    assert [rule for rule, _ in audited(final, telemetry=None)] == ["unlogged-retry"]


def test_more_attempts_than_the_plan_allows_are_exceeded():
    failed = at(AttemptFailed, 1.0, attempt_number=3, max_attempts=2, retryable=True)
    ended = at(CallSucceeded, 2.0, total_attempts=4)
    assert "attempts-exceeded" in [rule for rule, _ in audited(failed, ended)]


def test_an_entry_is_needed_only_in_a_pipeline_with_ledgers():
    final = at(CallFailed, 1.0, total_attempts=1)
    facts = TelemetryFacts()
    facts.begin("t.json", telemetry_of([first_try("etl", "poll")]).totals, left_out=0)
    facts.add(first_try("etl", "poll"))
    parts = {"ledger": (), "log": (), "telemetry": facts.files}
    assert [rule for rule, _ in audited(final, **parts)] == ["missing-telemetry"]


def test_other_operations_and_events_are_left_out():
    for name in ("shop.pay", "etl.poll.effect", "etl"):
        assert audited(at(CallFailed, 1.0, operation=name, total_attempts=1)) == []
    assert audited(at(HookFailed, 1.0)) == []
    assert audited(at(CallFailed, 1.0, total_attempts=1), run="r-9") == []


def test_a_final_failure_that_is_retried_is_forbidden():
    failed = at(AttemptFailed, 1.0, attempt_number=1, exception_type="app.Bad", retryable=False)
    again = at(RetryAttempt, 1.0, attempt_number=1, exception_type="app.Bad")
    assert audited(failed, again) == [
        ("forbidden-class", "stage poll: app.Bad was retried after attempt 1")
    ]
    assert audited(again) == []
    interrupted = at(CallInterrupted, 1.0, total_attempts=1)
    assert audited(failed, interrupted, again) == []


def test_an_attempt_through_an_open_circuit_is_in_the_audit_log():
    opened = changed(0.0, "closed", "open")
    late = at(AttemptFailed, 9.0, attempt_number=2, attempt_seconds=1.0)
    text = f"stage poll: attempt 2 was made while the circuit was open since {stamp(NOW)}"
    assert audited(opened, late) == [("open-circuit", text)]
    quick = at(CallSucceeded, 9.0, total_attempts=1, total_seconds=1.0)
    assert [rule for rule, _ in audited(opened, quick)] == ["open-circuit"]
    waited = [
        at(AttemptFailed, 0.0, attempt_number=1, retryable=True),
        opened,
        at(RetryAttempt, 0.0, attempt_number=1, delay_seconds=5.0),
        at(CallSucceeded, 9.0, total_attempts=2),
    ]
    assert "open-circuit" in [rule for rule, _ in audited(*waited)]


@pytest.mark.parametrize(
    "events",
    [
        [changed(0.0, "closed", "open"), at(AttemptFailed, 9.0, attempt_seconds=9.5)],
        [changed(0.0, "closed", "open"), at(AttemptFailed, 9.0)],
        [changed(0.0, "closed", "open"), changed(5.0, "open", "half_open"),
         at(AttemptFailed, 9.0, attempt_seconds=1.0)],
        [changed(0.0, "closed", "metrics_only"), at(AttemptFailed, 9.0, attempt_seconds=1.0)],
        [at(CircuitStateChanged, 0.0, from_state="closed", to_state="open", operation="etl.load"),
         at(AttemptFailed, 9.0, attempt_seconds=1.0)],
    ],
)  # fmt: skip
def test_attempts_that_an_open_circuit_allows(events):
    """Begun before it opened, of unknown length, after it half-opened, of another stage."""
    assert audited(*events) == []


def test_circuits_are_followed_by_process():
    """Another process may not know yet that the circuit is open."""
    opened = changed(0.0, "closed", "open")
    late = at(AttemptFailed, 9.0, attempt_number=2, attempt_seconds=1.0)
    assert audited(opened, late, writers=["one", "other"]) == []
    forced = changed(8.5, "open", "forced_open")
    assert len(audited(opened, forced, late)) == 1  # open since 0.0


def test_facts_and_calls_under_way_are_bounded():
    calls = [at(AttemptFailed, 1.0, call_id=f"{number}", retryable=False) for number in range(5)]
    again = [at(RetryAttempt, 1.0, call_id=f"{number}") for number in range(5)]
    assert len(audited(*calls, *again, most=2)) == 2
    forbidden = [
        at(RetryAttempt, 1.0, exception_type="SchemaValidationError", call_id=f"{number}")
        for number in range(5)
    ]
    assert len(audited(*forbidden, most=2)) == 2
