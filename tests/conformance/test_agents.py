"""The agent document: its files, its configuration and its C# sample, on the front door.

The sample cannot be run: each name and call of it has its place in a list, and one that the list
does not have fails.
"""

import re

import pytest

import mainstay
from mainstay import Engine
from mainstay.config.load import load
from mainstay.drivers.policy import RetryPolicy
from mainstay.events import CallFailed, CallSucceeded, RetryAttempt, RetryExhausted
from mainstay.profiles import agents
from tests.conformance.document import ROOT, WHY_NOT, blocks, read, tables

TEXT = read("agent-retry-policy-framework.md")
if not TEXT:
    pytest.skip(WHY_NOT, allow_module_level=True)

CALLS = {
    "ExecuteAsync": agents.RetryExecutor.execute_async,
    "GetPolicy": agents.PolicyRegistry.get_policy,
    "IsOpen": agents.CircuitBreaker.is_open,
    "RecordSuccess": agents.CircuitBreaker.record_success,
    "RecordFailure": agents.CircuitBreaker.record_failure,
    "Calculate": agents.BackoffCalculator.calculate,
    "IsRetryable": mainstay.RetryPolicy.classification,
    "MaxAttempts": mainstay.RetryPolicy.max_attempts,
    "CircuitOpenException": agents.CircuitOpenException,
    "LogDebug": agents.AgentLog.text_of,
    "LogError": agents.AgentLog.text_of,
}
"""What the sample calls, and what the door has for it."""
INSIDE = {"ShouldRetry", "Delay"}
"""What the engine does inside: it decides, and waits."""
TYPES = {"RetryExecutor", "IRetryExecutor", "RetryPolicy", "CircuitOpenException"}


def the_files(block):
    """Each file is a name of the door."""
    names = re.findall(r"(\w+)\.cs", block.text)
    assert len(names) == 12
    assert [name for name in names if name not in agents.__all__] == []


def the_configuration(block, folder):
    """It loads to its values, and an executor runs by them."""
    file = folder / "agent" / "config.yml"
    file.parent.mkdir()
    file.write_text(block.text, encoding="utf-8")
    settings = load(file, make=RetryPolicy, env={}).settings
    policies = {policy.name: policy for policy in settings.policies}
    for ours in (agents.STANDARD, agents.AGGRESSIVE, agents.NO_RETRY):
        theirs = policies[ours.name]
        assert theirs.max_attempts == ours.max_attempts
        if ours is not agents.NO_RETRY:
            assert (theirs.backoff, theirs.jitter) == (ours.backoff, ours.jitter)
    breaker = settings.breaker
    assert (breaker.failure_threshold, breaker.half_open_probes, breaker.count) == (5, 1, "all")
    store = f"sqlite:///{folder}/agent.db"
    found = agents.RetryExecutor(options=agents.RetryOptions(config=file, store=store))
    file.unlink()  # the next one does not find it
    own = agents.RetryExecutor(options=agents.RetryOptions(store=store))
    with found, own:
        for kind in ("network", "file", "permission"):
            with_file, without = (each.engine.policies.of(kind) for each in (found, own))
            assert with_file.name == without.name
            assert with_file.max_attempts == without.max_attempts


def the_sample(block):
    """Names, calls and the three messages of the log."""
    called = set(re.findall(r"\b(\w+)(?:<\w+>)?\(", block.text)) - {"catch", "if", "when", "while"}
    called |= set(re.findall(r"policy\.(\w+)", block.text))
    functions = {"operation"}  # the argument
    assert called - functions - INSIDE == set(CALLS)
    types = set(re.findall(r"\b(I?Retry[A-Z]\w+|CircuitOpenException)\b", block.text))
    assert types <= {*agents.__all__}
    assert types == TYPES & types
    templates = [each.replace("\n", "") for each in re.findall(r'"([A-Z][^"]+)"', block.text)]
    values = {"Op": "network", "Attempt": 2, "Max": 5, "Delay": 100}
    messages = {template.format(**values) for template in templates}
    log = agents.AgentLog()
    ours = {
        log.text_of(CallSucceeded(operation="network", total_attempts=2)),
        log.text_of(RetryAttempt(
            operation="network", attempt_number=2, max_attempts=5, delay_seconds=0.1
        )),
        log.text_of(RetryExhausted(operation="network", total_attempts=2)),
        log.text_of(CallFailed(operation="network", total_attempts=2)),
    }  # fmt: skip
    assert messages == ours


CASES = {
    "File Structure": lambda block, _: the_files(block),
    "Configuration Schema": the_configuration,
    "Key Implementation": lambda block, _: the_sample(block),
}


@pytest.mark.req("AG-07", "FR-041-66", "FR-041-67", "FR-041-68", "FR-041-69")
@pytest.mark.parametrize("block", blocks(TEXT), ids=lambda block: block.key)
def test_a_block_of_the_document_holds(block, tmp_path, monkeypatch):
    """Each one has a case; one that is added to the document fails until it has."""
    monkeypatch.chdir(tmp_path)
    CASES[block.key](block, tmp_path)


def test_no_case_is_left_over():
    """A block that is gone from the document leaves the list."""
    assert [block.key for block in blocks(TEXT)] == list(CASES)


def test_every_requirement_of_the_tables_is_known():
    """Each id of a row is in the list of all requirements."""
    known = (ROOT / "tests/requirements-all.txt").read_text(encoding="utf-8")
    ids = [row["ID"] for rows in tables(TEXT).values() for row in rows if "ID" in row]
    assert len(ids) == 75 + 30 + 15 + 15
    assert [each for each in ids if each not in _expanded(known)] == []


def _expanded(text):
    """Every id; `FR-041-01..75` stands for all of them."""
    found = set()
    for line in text.splitlines():
        if match := re.match(r"(.*?)(\d+)\.\.(\d+)", line):
            width = len(match[2])
            numbers = range(int(match[2]), int(match[3]) + 1)
            found |= {f"{match[1]}{n:0{width}}" for n in numbers}
        found.add(line.split()[0] if line.split() else "")
    return found


def test_the_defaults_that_the_requirements_name_hold():
    """A factor of 2.0, a jitter of 10 %, and the default policy of an engine."""
    assert re.search(r"Default factor MUST be 2\.0", TEXT)
    assert re.search(r"Default jitter MUST be 10%", TEXT)
    policy = Engine().policies.default
    assert (policy.backoff.factor, policy.jitter.amount) == (2.0, 0.1)
