"""Contracts of orchestrators and effects: what is read, and what is refused with file and line."""

import pytest

from mainstay import ConfigError, UsageError
from mainstay.config.effects.contract import read_effect_contract, read_orchestrator_contract

CONTRACT = """\
name: register_node
node_type: orchestrator
coordination_rules:
  execution: sequential
  max_retries: 4
error_handling:
  on_failure: compensate
  retry_policy:
    max_retries: 2
    initial_backoff_seconds: 0.5
    max_backoff_seconds: 20
    exponential_base: 3.0
"""


@pytest.fixture
def contract(tmp_path):
    """Writes a contract; returns its path."""

    def write(text):
        path = tmp_path / "contract.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def problems(read, path):
    """Line, place and text of what is wrong."""
    with pytest.raises(ConfigError) as refused:
        read(path)
    assert all(problem.file == str(path) for problem in refused.value.problems)
    return [(problem.line, problem.field, str(problem)) for problem in refused.value.problems]


@pytest.mark.req("EF-03")
def test_the_documents_fields_are_read(contract):
    """Other sections and keys are left to other code."""
    found = read_orchestrator_contract(contract(CONTRACT))
    assert (found.max_retries, found.total_retries, found.most_attempts) == (2, 4, 5)
    assert (found.initial_backoff_seconds, found.max_backoff_seconds) == (0.5, 20.0)
    assert found.exponential_base == 3.0
    assert found.source.endswith("contract.yaml")


@pytest.mark.req("EF-03")
@pytest.mark.parametrize(
    ("text", "each", "attempts"),
    [
        ("name: orders\n", 2, 3),
        ("coordination_rules: {}\n", 2, 3),
        ("coordination_rules:\n  max_retries: 5\n", 5, 6),
        ("error_handling:\n  retry_policy:\n    max_retries: 0\n", 0, 1),
        ("error_handling: {retry_policy: {max_retries: 1.0}}", 1, 2),
    ],
)
def test_what_is_left_out_has_the_documents_default(contract, text, each, attempts):
    """Three attempts; one of the two numbers stands for both."""
    found = read_orchestrator_contract(contract(text))
    assert (found.max_retries, found.most_attempts) == (each, attempts)


@pytest.mark.req("EF-03")
def test_everything_that_is_wrong_is_reported_at_once(contract):
    """With the line of each; a key that is nearly one of ours would be ignored."""
    text = (
        CONTRACT.replace("max_retries: 4", "max_retries: 12")
        .replace("0.5", "0")
        .replace("max_backoff_seconds: 20", "max_backof_seconds: 20")
        .replace("3.0", "lots")
    )
    found = problems(read_orchestrator_contract, contract(text))
    assert [line for line, *_ in found] == [5, 10, 11, 12]
    assert "coordination_rules.max_retries = 12: must be an integer from 0 to 9" in found[0][2]
    assert "must be a number from 0.01 to 60" in found[1][2]
    assert "did you mean max_backoff_seconds" in found[2][2]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("error_handlng:\n  retry_policy: {}\n", 1, "did you mean error_handling"),
        ("a: 1\nerror_handling:\n  retry-policy: {}\n", 3, "did you mean retry_policy"),
        ("coordination_rules:\n  maxRetries: 3\n", 2, "did you mean max_retries"),
        ("error_handling:\n  retry_policy:\n    colour: red\n", 3, "there are max_retries"),
        ("coordination_rules: 3\n", 1, "must be a mapping"),
        ("- a\n", 1, "must be a mapping"),
        ("", 1, "is empty"),
        ("# orders\n", 1, "is empty"),
        ("name: orders\ncoordination_rules:\n", 2, "coordination_rules: has no value"),
        ("name: orders\nerror_handling:\n", 2, "error_handling: has no value"),
        ("error_handling:\n  retry_policy:\n", 2, "retry_policy: has no value"),
        ("a: [1\nb: 2\n", 2, "is not YAML"),
        ("a: 1\na: 2\n", 2, "given twice"),
        (b"a: \xff\n", 1, "is not UTF-8"),
    ],
)
def test_a_damaged_contract_is_refused_with_file_and_line(contract, text, line, words):
    """Nothing of it is used."""
    found = problems(read_orchestrator_contract, contract(text))
    assert found[0][0] == line
    assert words in found[0][2]


def test_no_part_of_a_contract_allows_more_attempts_than_the_whole(contract):
    """Cut off at any byte, it is refused, or has the number of the whole."""
    whole = "error_handling:\n  retry_policy:\n    max_retries: 0\n"
    for end in range(len(whole)):
        path = contract(whole[:end])
        try:
            found = read_orchestrator_contract(path)
        except ConfigError:
            continue
        assert found.max_retries == 0, whole[:end]


def test_a_contract_that_is_not_there_is_named(tmp_path):
    """Without a line."""
    for read in (read_orchestrator_contract, read_effect_contract):
        ((line, _, text),) = problems(read, tmp_path / "contract.yaml")
        assert line is None
        assert "there is no such file" in text


def test_what_is_no_path_is_refused():
    """By what it is."""
    with pytest.raises(UsageError, match="contract = 7"):
        read_orchestrator_contract(7)


@pytest.mark.req("EF-03")
@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (CONTRACT, [5, 8]),
        ("io:\n  - name: insert\n    retry:\n      max: 3\n", [3]),
        ("io:\n  - name: insert\n    maxAttempts: 3\n", [3]),
        ("retries: 0\nretryOn: [500]\n", [1, 2]),
        ("timeouts:\n  initial_backoff_seconds: 1\n", [2]),
    ],
)
def test_an_effects_contract_with_retries_is_refused(contract, text, lines):
    """Wherever they are, with the line of each, and where they belong."""
    found = problems(read_effect_contract, contract(text))
    assert [line for line, *_ in found] == lines
    assert "retries belong into the contract of its orchestrator" in found[0][2]


@pytest.mark.req("EF-03")
def test_an_effects_contract_without_retries_is_read(contract):
    """As plain data."""
    text = "name: insert_user\nio:\n  - {kind: database, timeout_seconds: 5}\n"
    assert read_effect_contract(contract(text)) == {
        "name": "insert_user",
        "io": [{"kind": "database", "timeout_seconds": 5}],
    }
