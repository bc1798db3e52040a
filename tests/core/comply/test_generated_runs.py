"""Rules over 200 generated worlds: clean runs pass, and each single offence is named."""

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mainstay.core.base.timestamps import stamp
from mainstay.core.comply.audit_facts import AuditFacts
from mainstay.core.comply.check import check
from mainstay.core.comply.evidence import Evidence, LedgerFile, StoredRun
from mainstay.core.comply.telemetry_facts import TelemetryFacts
from mainstay.core.pipeline.ledger import RETRY_LOG, VERSIONING, chains_of, ledger_of, sealed
from mainstay.core.pipeline.state import RUNNING
from mainstay.core.retry.events import AttemptFailed, RetryAttempt
from mainstay.core.telemetry.record import first_try
from tests.core.comply.runs import FORBIDDEN, PIPELINE, telemetry_of, world

SEEDS = range(200)
SOME = SEEDS[::8]
"""For what is shown beside the promise itself."""
LATER = 1_890_000_000.0
made = cache(world)


def evidence(found, *, telemetry=None, retry_log=None, versioning=None, stored=None, events=None):
    """What comply would gather of a world, with some of its parts exchanged."""
    facts, shown = TelemetryFacts(), telemetry or found.telemetry
    facts.begin("t.json", shown.totals, shown.records_left_out)
    for record in shown.records:
        facts.add(record)
    files = [
        LedgerFile(path="retry_log.json", ledger=retry_log or found.retry_log),
        LedgerFile(path="versioning.json", ledger=versioning or found.versioning),
    ]
    runs = found.runs if stored is None else stored
    gathered = Evidence(
        telemetry=facts.files,
        calls=facts.calls,
        ledgers=files,
        store="memory://" if runs else "",
        stored=[StoredRun(record=run) for run in runs],
    )
    log = AuditFacts(gathered, "audit.jsonl")
    for number, (writer, event) in enumerate(found.events if events is None else events, 1):
        log.take(number, writer, event)
    gathered.audit, gathered.audited = log.facts, frozenset(log.audited)
    return gathered


def rules(*gathered, **parts):
    return {finding.rule for finding in check(evidence(*gathered, **parts))}


def without(values, index):
    return (*values[:index], *values[index + 1 :])


# --- what is clean --------------------------------------------------------------------------------


@pytest.mark.req("PL-13")
@pytest.mark.parametrize(
    "parts", [{}, {"stored": []}, {"events": []}, {"stored": [], "events": []}]
)
def test_200_generated_worlds_break_no_rule(parts):
    """With everything at hand, and with the files alone."""
    for seed in SOME if parts else SEEDS:
        assert check(evidence(made(seed), **parts)) == [], seed


@pytest.mark.parametrize("parts", [{"stored": []}, {"events": []}])
def test_generated_worlds_break_no_rule_without_the_store_or_the_audit_log(parts):
    for seed in SOME:
        assert check(evidence(made(seed), **parts)) == [], seed


def test_the_worlds_have_every_kind_of_entry():
    """Otherwise the tests here would show little."""
    runs = [run for seed in SEEDS for run in made(seed).runs]
    kinds = {entry.kind for run in runs for entry in run.retries}
    assert kinds == {"retried", "exhausted", "failed_fast", "refused", "probe_failed"}
    kinds = {entry.kind for run in runs for entry in run.versions}
    assert kinds >= {"began", "resumed", "halted", "quarantined", "reviewed", "completed"}
    assert {run.state.value for run in runs} >= {"succeeded", "halted"}


@pytest.mark.req("PL-13")
def test_the_order_of_records_and_older_records_that_were_left_out_change_nothing():
    """A sink keeps the latest records; several processes write in any order."""
    for seed in SOME:
        found, dice = made(seed), random.Random(seed)
        records = dice.sample(found.telemetry.records, len(found.telemetry.records))
        assert rules(found, telemetry=replace(found.telemetry, records=records)) == set(), seed
        kept = telemetry_of(found.telemetry.records, keep=dice.randint(0, 5))
        assert rules(found, telemetry=kept) == set(), seed


@pytest.mark.req("PL-13")
def test_other_pipelines_and_runs_in_the_same_files_change_nothing():
    """A second pipeline, one that has no ledger at all, and runs that the store has purged."""
    for seed in SOME:
        found, other = made(seed), made(seed + 1000)
        records = [replace(each, pipeline_id="other") for each in other.telemetry.records]
        both = telemetry_of([*found.telemetry.records, *records])
        assert rules(found, telemetry=both) == set(), seed
        assert rules(found, stored=found.runs[1:]) == set(), seed


# --- one offence ----------------------------------------------------------------------------------


@pytest.mark.req("PL-13")
@pytest.mark.parametrize("keep", [1000, 4])
def test_deleting_one_telemetry_record_is_missing_telemetry(keep):
    """Whichever it is, also if older ones were left out before."""
    for seed in SEEDS if keep == 1000 else SOME:
        found, dice = made(seed), random.Random(seed)
        kept = telemetry_of(found.telemetry.records, keep)
        gone = dice.randrange(len(kept.records))
        fewer = replace(kept, records=list(without(kept.records, gone)))
        parts = {"stored": [], "events": []} if seed % 2 else {}
        assert rules(found, telemetry=fewer, **parts) == {"missing-telemetry"}, seed


@pytest.mark.req("PL-13")
def test_deleting_all_records_of_a_stage_with_its_totals_is_missing_telemetry():
    """The stage is done, and nothing has a success of it."""
    for seed in SOME:
        found = made(seed)
        done = [(run, name) for run in found.runs for name, stage in run.stages.items()
                if stage.status == "done" and run.state is not RUNNING]  # fmt: skip
        if done:
            gone = done[0][1]
            records = [each for each in found.telemetry.records if each.stage_name != gone]
            assert "missing-telemetry" in rules(found, telemetry=telemetry_of(records)), seed


def retried_schema_error(dice, name):
    """Two records as a retry of what must not be retried leaves them."""
    base = replace(first_try(PIPELINE, "s0"), sequence="5eed", timestamp=stamp(LATER))
    failed = replace(
        base,
        outcome="failure",
        error_class=name,
        retryable=True,
        is_final=False,
        delay_ms=dice.uniform(1.0, 30_000.0),
    )
    return [failed, replace(base, attempt=2)]


@pytest.mark.req("PL-13")
def test_one_retried_schema_error_in_the_telemetry_is_a_forbidden_class():
    """The totals count it, as a sink would; only a ledger entry is missing beside."""
    for seed in SEEDS:
        found, dice = made(seed), random.Random(seed)
        records = retried_schema_error(dice, dice.choice(FORBIDDEN))
        added = telemetry_of([*found.telemetry.records, *records])
        assert rules(found, telemetry=added) == {"forbidden-class", "unlogged-retry"}, seed


@pytest.mark.req("PL-13")
def test_a_retried_failure_that_was_final_is_a_forbidden_class():
    """Whatever its name is: the policy itself classified it so."""
    found, dice = made(0), random.Random(0)
    first, second = retried_schema_error(dice, "app.BadRow")
    added = telemetry_of([*found.telemetry.records, replace(first, retryable=False), second])
    assert "forbidden-class" in rules(found, telemetry=added)


@pytest.mark.req("PL-13")
def test_one_retried_schema_error_in_the_ledger_is_a_forbidden_class():
    """Also if the chain is whole: it was written so."""
    for seed in SOME:
        found, dice = made(seed), random.Random(seed)
        run = dice.choice(found.runs)
        classes = (dice.choice(FORBIDDEN), "TimeoutError")
        chain = [
            replace(entry, error_classes=classes, kind="retried", hash="", previous="")
            for entry in run.retries[:1]
        ]
        if chain:
            log = ledger_of(RETRY_LOG, [sealed(chain, RETRY_LOG, (), LATER)])
            assert "forbidden-class" in rules(found, retry_log=log, stored=[]), seed


@pytest.mark.req("PL-13")
def test_one_retried_schema_error_in_the_audit_log_is_a_forbidden_class():
    for seed in SEEDS:
        found, dice = made(seed), random.Random(seed)
        same = {"operation": f"{PIPELINE}.s0", "call_id": "5eed", "timestamp": stamp(LATER),
                "attempt_number": 1, "exception_type": dice.choice(FORBIDDEN)}  # fmt: skip
        events = [*found.events, ("w-1", AttemptFailed(retryable=True, **same)),
                  ("w-1", RetryAttempt(**same))]  # fmt: skip
        assert rules(found, events=events) == {"forbidden-class"}, seed


@pytest.mark.req("PL-13")
def test_removing_one_ledger_entry_is_an_altered_ledger():
    """From either ledger, whichever entry it is, with and without the store."""
    for seed in SEEDS:
        found, dice = made(seed), random.Random(seed)
        part = "retry_log" if seed % 4 < 2 and found.retry_log.entries else "versioning"
        ledger = getattr(found, part)
        fewer = without(ledger.entries, dice.randrange(len(ledger.entries)))
        parts = {part: replace(ledger, entries=fewer), "stored": [] if seed % 2 else None}
        assert "altered-ledger" in rules(found, **parts), (seed, part)


@pytest.mark.req("PL-13")
def test_removing_one_entry_and_sealing_the_file_anew_is_an_altered_ledger():
    """The store is the truth, and the versioning ledger has the length of the retry log."""
    for seed in SOME:
        found, dice = made(seed), random.Random(seed)
        chains = chains_of(found.versioning)
        at = dice.choice(list(chains))
        chains[at] = chains[at][:-1]
        forged = ledger_of(VERSIONING, chains.values())
        if forged.runs:
            assert rules(found, versioning=forged) == {"altered-ledger"}, seed
        chains = chains_of(found.retry_log)
        if chains:
            at = dice.choice(list(chains))
            chains[at] = chains[at][:-1]
            forged = ledger_of(RETRY_LOG, chains.values())
            assert "altered-ledger" in rules(found, retry_log=forged), seed
            assert "altered-ledger" in rules(found, retry_log=forged, stored=[]), seed


@pytest.mark.req("PL-13")
def test_one_altered_entry_in_the_store_is_an_altered_ledger():
    for seed in SOME:
        found, dice = made(seed), random.Random(seed)
        runs = list(found.runs)
        index = dice.randrange(len(runs))
        versions = list(runs[index].versions)
        place = dice.randrange(len(versions))
        versions[place] = replace(versions[place], by="mallory")
        runs[index] = replace(runs[index], versions=tuple(versions))
        assert "altered-ledger" in rules(found, stored=runs), seed


@pytest.mark.req("PL-13")
@pytest.mark.parametrize("parts", [{}, {"stored": []}, {"stored": [], "events": []}])
def test_attempts_beyond_the_maximum_without_a_ledger_entry_are_exceeded(parts):
    for seed in SOME:
        found = made(seed)
        base = replace(first_try(PIPELINE, "s0"), sequence="5eed", timestamp=stamp(LATER))
        failed = replace(base, outcome="failure", error_class="TimeoutError", retryable=True)
        records = [
            replace(failed, attempt=number, is_final=False, delay_ms=5.0) for number in range(1, 6)
        ]
        for last in (replace(base, attempt=6), replace(failed, attempt=6)):
            added = telemetry_of([*found.telemetry.records, *records, last])
            assert rules(found, telemetry=added, **parts) == {"attempts-exceeded"}, seed


@pytest.mark.req("PL-13")
def test_attempts_of_a_stage_that_the_retry_log_does_not_have_are_exceeded():
    """The record of the run has more attempts than its entries."""
    for seed in SOME:
        found, dice = made(seed), random.Random(seed)
        runs = list(found.runs)
        index = dice.randrange(len(runs))
        name = dice.choice(list(runs[index].stages))
        stage = runs[index].stages[name]
        more = replace(stage, attempts=stage.attempts + 6)
        runs[index] = replace(runs[index], stages={**runs[index].stages, name: more})
        assert rules(found, stored=runs) == {"attempts-exceeded"}, seed


@pytest.mark.req("PL-13")
def test_an_attempt_through_an_open_circuit_is_named():
    """In the telemetry alone; and a success that the telemetry marks so."""
    for seed in SOME:
        found, dice = made(seed), random.Random(seed)
        base = replace(first_try(PIPELINE, "s0"), sequence="5eed", timestamp=stamp(LATER))
        failed = replace(base, outcome="failure", error_class="TimeoutError", retryable=True,
                         circuit_open=True, is_final=False, delay_ms=5000.0)  # fmt: skip
        after = stamp(LATER + dice.uniform(5.0, 290.0))
        passed = [failed, replace(base, attempt=2, timestamp=after)]
        added = telemetry_of([*found.telemetry.records, *passed])
        assert "open-circuit" in rules(found, telemetry=added, events=[]), seed
        marked = telemetry_of([*found.telemetry.records, replace(base, circuit_open=True)])
        assert "open-circuit" in rules(found, telemetry=marked), seed
        probe = [failed, replace(base, attempt=2, timestamp=stamp(LATER + 301.0))]
        added = telemetry_of([*found.telemetry.records, *probe])
        assert "open-circuit" not in rules(found, telemetry=added, events=[]), seed


# --- laws -----------------------------------------------------------------------------------------


def deleted(found, dice):
    records = found.telemetry.records
    gone = without(records, dice.randrange(len(records)))
    return "missing-telemetry", {"telemetry": replace(found.telemetry, records=list(gone))}


def retried(found, dice):
    records = retried_schema_error(dice, dice.choice(FORBIDDEN))
    return "forbidden-class", {"telemetry": telemetry_of([*found.telemetry.records, *records])}


def removed(found, dice):
    part = dice.choice(("retry_log", "versioning"))
    ledger = getattr(found, part)
    if not ledger.entries:
        return removed(found, dice)
    fewer = without(ledger.entries, dice.randrange(len(ledger.entries)))
    return "altered-ledger", {part: replace(ledger, entries=fewer)}


def forged(found, dice):
    part = dice.choice(("retry_log", "versioning"))
    ledger = getattr(found, part)
    if not ledger.entries:
        return forged(found, dice)
    entries = list(ledger.entries)
    place = dice.randrange(len(entries))
    field, value = dice.choice([("attempts", 99), ("stage", "x"), ("dataset_ids", ("d-9",))])
    entries[place] = replace(entries[place], **{field: value})
    return "altered-ledger", {part: replace(ledger, entries=tuple(entries))}


@pytest.mark.req("PL-13")
@settings(max_examples=60, deadline=None)
@given(st.integers(200, 10**9), st.sampled_from([deleted, retried, removed, forged]), st.booleans())
def test_any_world_is_clean_and_any_offence_in_it_is_found(seed, offence, has_all):
    found, dice = world(seed), random.Random(seed)
    parts = {} if has_all else {"stored": [], "events": []}
    assert rules(found, **parts) == set()
    rule, changed = offence(found, dice)
    assert rule in rules(found, **changed, **parts)
