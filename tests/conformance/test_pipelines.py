"""The pipeline document: its MUST rules one by one, its tables cell by cell, its lists and paths.

The document has no code. Each of its rules is found by a few of its words, and leads to the tests
that hold it; a rule that is added to the document without a test fails here.
"""

import importlib
import json
import re

import pytest

from mainstay.core.pipeline import rules
from mainstay.engine.pipelines import BREAKER
from mainstay.profiles import pipelines
from mainstay.profiles.pipelines import PATHS, PIPELINE_POLICY, ComplianceRecord, TelemetryRecord
from tests.conformance.document import WHY_NOT, read, tables

TEXT = read("pipeline-retry-compliance-rules.md")
if not TEXT:
    pytest.skip(WHY_NOT, allow_module_level=True)

DOOR, CORE, FLOW = (
    "tests.profiles.pipelines.test_pipeline", "tests.core.pipeline.test_rules",
    "tests.core.pipeline.test_flow",
)  # fmt: skip
CRASH = "tests.crash.pipeline.test_pipeline_crash"
RULES = {
    "halt the pipeline": [
        (DOOR, "test_a_forbidden_class_halts_quarantines_and_is_in_the_ledgers"),
        (FLOW, "test_what_follows_from_a_failure"),
        (CRASH, "test_killed_between_halt_quarantine_and_ledger"),
    ],
    "exponential backoff + full jitter": [(CORE, "test_the_policies_that_are_refused")],
    "hard timeout": [(DOOR, "test_a_hard_timeout_reaches_what_is_called")],
    "must be propagated": [(DOOR, "test_a_hard_timeout_reaches_what_is_called")],
    "logged and counted as retryable": [
        (CORE, "test_a_timeout_is_judged_by_its_cause"),
        (DOOR, "test_an_expiry_is_judged_by_its_cause"),
    ],
    "be idempotent": [
        (DOOR, "test_undeclared_idempotency_is_an_error_before_any_call"),
        (DOOR, "test_a_keyed_stage_has_one_result_for_its_key"),
    ],
    "NEVER be retried unless": [
        (CORE, "test_the_idempotency_gate"),
        (DOOR, "test_an_unsafe_stage_is_called_once"),
        (DOOR, "test_a_stage_guarded_by_outbox_and_state_store"),
    ],
    "Circuit breakers MUST be used": [(DOOR, "test_the_four_situations_of_a_breaker")],
    "the breaker MUST fail fast": [(DOOR, "test_the_four_situations_of_a_breaker")],
    "test attempt": [(DOOR, "test_a_failed_probe_is_in_telemetry_and_ledger")],
    "remain": [(DOOR, "test_a_failed_probe_is_in_telemetry_and_ledger")],
    "Retry behavior MUST never": [
        (DOOR, "test_care_labels_gate_every_attempt"),
        (DOOR, "test_a_restricted_data_set_is_given_once"),
        (DOOR, "test_a_blocked_data_set_makes_no_call_over_a_rerun_and_a_restart"),
        (DOOR, "test_masking_is_never_weakened_by_a_rerun"),
    ],
    "MUST escalate": [
        (DOOR, "test_a_restricted_data_set_is_given_once"),
        (DOOR, "test_an_abandoned_run_stays_in_quarantine"),
    ],
    "ledgers MUST record": [(DOOR, "test_a_stage_that_succeeds_in_the_end")],
    "MUST emit telemetry": [
        (DOOR, "test_a_stage_that_succeeds_in_the_end"),
        (DOOR, "test_two_policies_in_one_file_are_told_apart"),
    ],
    "strictly forbidden": [(DOOR, "test_a_policy_with_a_forbidden_behaviour_is_refused")],
    "Critical CI violation": [("tests.cli.comply.test_comply", "")],
    "MUST fail CI": [("tests.cli.comply.test_comply", "")],
    "Non-retryable": [(CORE, "test_what_fails_fast")],
}
"""A few words of each rule, and what holds it."""
FORBIDDEN = {
    "unbounded retries": (DOOR, "test_a_loop_of_resumptions_is_bounded"),
    "without backoff": (CORE, "test_the_policies_that_are_refused"),
    "non-idempotent steps": (DOOR, "test_undeclared_idempotency_is_an_error_before_any_call"),
    "Retry-After": (DOOR, "test_the_retry_after_of_a_provider_is_waited_for"),
    "CARE or schema": (DOOR, "test_a_policy_cannot_allow_a_forbidden_class"),
    "concurrency": (DOOR, "test_growing_concurrency_is_refused"),
    "Swallowing": (DOOR, "test_every_failure_is_in_telemetry_and_ledger_without_any_sink"),
}


def words(line):
    """A line without its marks of emphasis."""
    return re.sub(r"[*`]", "", line)


def section(title):
    """The lines below a heading, up to the next one."""
    found = re.split(r"^#+ ", TEXT, flags=re.MULTILINE)
    (part,) = [each for each in found if title in each.partition("\n")[0]]
    return part.splitlines()[1:]


def bullets(title):
    return [words(line[2:]).strip() for line in section(title) if line.startswith("- ")]


def exists(module, name):
    """Whether a test is there; without a name, whether its module is."""
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        return False
    return not name or hasattr(found, name)


def test_every_rule_has_a_test():
    """Each line with MUST, must or NEVER is found in the list; each test of the list exists."""
    lines = [words(line) for line in TEXT.splitlines()]
    demands = [
        line for line in lines if re.search(r"\bMUST\b|\bmust\b|\bNEVER\b|\bstrictly\b", line)
    ]
    assert len(demands) >= 15
    left = [line for line in demands if not any(each in line for each in RULES)]
    assert [line for line in left if line.strip() != "MUST fail CI."] == []
    unused = [each for each in RULES if not any(each in line for line in lines)]
    assert unused == []
    known = [test for tests in RULES.values() for test in tests if "comply" not in test[0]]
    assert [test for test in known if not exists(*test)] == []


def test_the_seven_forbidden_behaviours():
    """In their order; each has a name of a rule and a test."""
    listed = bullets("Forbidden Retry Behaviors")
    assert len(listed) == len(rules.FORBIDDEN) == len(FORBIDDEN)
    for line, key in zip(listed, FORBIDDEN, strict=True):
        assert key in line
        assert exists(*FORBIDDEN[key])


@pytest.mark.req("PL-04")
def test_the_defaults_cell_by_cell():
    """Attempts, base, cap and jitter of the policy."""
    (table,) = [rows for name, rows in tables(TEXT).items() if "Required Defaults" in name]
    cells = {row["Parameter"]: row["Value"] for row in table}
    assert set(cells) == {"max_attempts", "base_delay_sec", "max_delay_sec", "jitter"}
    assert int(cells["max_attempts"]) == PIPELINE_POLICY.max_attempts == rules.MAX_ATTEMPTS
    low, high = map(float, re.findall(r"\d+\.\d+", cells["base_delay_sec"]))
    assert (low, high) == (rules.LEAST_BASE, rules.MOST_BASE)
    assert low <= PIPELINE_POLICY.backoff.initial <= high
    assert float(re.search(r"\d+", cells["max_delay_sec"])[0]) == rules.MAX_DELAY
    assert PIPELINE_POLICY.backoff.max_delay == rules.MAX_DELAY
    assert cells["jitter"].startswith(PIPELINE_POLICY.jitter.kind)


@pytest.mark.req("PL-04")
def test_the_formula():
    """A random delay below the base doubled for each attempt; its attempt counts from 0."""
    assert "base_delay * 2 ** attempt" in TEXT
    for attempt in range(4):
        longest = PIPELINE_POLICY.delay(attempt + 1, u=1.0)
        assert longest == PIPELINE_POLICY.backoff.initial * 2**attempt
        assert PIPELINE_POLICY.delay(attempt + 1, u=0.0) == 0.0


@pytest.mark.req("PL-07")
def test_the_circuit_cell_by_cell():
    """Failures and cooldown; a single test call."""
    (table,) = [rows for name, rows in tables(TEXT).items() if "Circuit Breaker Param" in name]
    cells = {row["Parameter"]: row["Value"] for row in table}
    assert set(cells) == {"max_failures", "cooldown_sec"}
    assert int(re.search(r"\d+", cells["max_failures"])[0]) == BREAKER.failure_threshold
    assert float(re.search(r"\d+", cells["cooldown_sec"])[0]) == BREAKER.recovery_timeout.base(1)
    assert BREAKER.half_open_probes == 1
    assert BREAKER.success_threshold == 1


@pytest.mark.req("PL-01.statuses", "PL-02")
def test_the_lists_of_errors():
    """The statuses of the list are retried; each class that fails fast has a name in the door."""
    retryable, final = bullets("Retryable Errors (Allowed)"), bullets("Non-Retryable Errors (Fail")
    assert (len(retryable), len(final)) == (5, 6)
    assert int(re.search(r"HTTP (\d+)", retryable[0])[1]) in rules.STATUSES
    first, last = map(int, re.findall(r"\d{3}", retryable[1]))
    assert set(range(first, last + 1)) <= set(rules.STATUSES)
    names = [
        "SchemaValidationError", "GovernanceViolation", "LineageMismatch", "ImmutabilityViolation",
        "LicenseViolation", "GovernanceBlocked",
    ]  # fmt: skip
    for line, name in zip(final, names, strict=True):
        assert issubclass(getattr(pipelines, name), pipelines.FailFastError), line


@pytest.mark.req("PL-10")
def test_the_fields_of_telemetry():
    """Each field of the list is one of a record; success and failure are its outcome."""
    fields = set(re.findall(r"`(\w+)`", "\n".join(section("Telemetry Requirements"))))
    fields -= {"success", "failure"}
    assert len(fields) >= 8
    assert fields <= set(TelemetryRecord.__struct_fields__)


@pytest.mark.req("PL-11")
def test_the_compliance_record():
    """The example of the document has exactly the fields of a record, and their types."""
    body = re.search(r"~~~~~json\n(.*?)~~~~~", TEXT, re.DOTALL)[1]
    example = json.loads(body)
    assert list(example) == list(ComplianceRecord.__struct_fields__)
    assert example["telemetry_ref"] == PATHS["telemetry"]
    assert example["retry_policy"] == pipelines.label(PIPELINE_POLICY)


@pytest.mark.req("PL-09")
def test_the_paths():
    """The ledgers and the telemetry are where the document has them."""
    for name in ("versioning_ledger.json", "pipeline_retry_log.json"):
        assert f"{PATHS['ledgers']}/{name}" in TEXT
    assert PATHS["telemetry"] in TEXT
