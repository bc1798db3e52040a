"""What a shell completes: the names of policies and operations."""

import pytest

from mainstay.cli import guard

FILE = """\
retry:
  policies: {fast: {maxAttempts: 2}, fair: {maxAttempts: 4}}
  operations: {pay.charge: fast, "pay.*": fair}
"""


@pytest.fixture
def complete(tmp_path, monkeypatch, capfd):
    """What bash is offered for these words; nothing else may be written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_MAINSTAY_COMPLETE", "bash_complete")
    (tmp_path / "mainstay.yml").write_text(FILE, encoding="utf-8")

    def complete(*words):
        monkeypatch.setenv("COMP_WORDS", " ".join(["mainstay", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        guard.run([])
        out, err = capfd.readouterr()
        assert err == ""
        return [line.partition(",")[2] for line in out.splitlines() if line]

    return complete


def test_policies_are_completed(complete):
    """For `exec`, and where a policy is an argument."""
    assert complete("exec", "--policy", "fa") == ["fast", "fair"]
    assert complete("policies", "show", "s") == ["standard"]


def test_operations_are_completed_without_their_patterns(complete):
    assert complete("exec", "--operation", "pay") == ["pay.charge"]


def test_what_a_shell_would_expand_is_not_completed(complete, tmp_path):
    """The file may come from anywhere."""
    text = 'retry: {policies: {"a$(id)": {}, "a b": {}, "a\\nb": {}, ab: {}}}\n'
    (tmp_path / "mainstay.yml").write_text(text, encoding="utf-8")
    assert complete("exec", "--policy", "a") == ["ab"]


def test_the_file_that_the_command_line_names_counts(complete, tmp_path):
    (tmp_path / "ci.yml").write_text("retry: {policies: {slow: {}}}\n", encoding="utf-8")
    assert complete("exec", "--config", "ci.yml", "--policy", "s") == ["slow", "standard"]


@pytest.mark.parametrize(
    "text",
    ["retry: [", "a: b", "store: sqlite:///${NOWHERE}.db\n", "retry: {policies: {a: {x: 1}}}\n"],
    ids=["no YAML", "unknown key", "not trusted", "a wrong policy"],
)
def test_a_broken_configuration_prints_nothing_into_a_shell(complete, tmp_path, text):
    """What is built in is completed all the same."""
    (tmp_path / "mainstay.yml").write_text(text, encoding="utf-8")
    assert complete("exec", "--policy", "st") == ["standard"]
    assert complete("exec", "--operation", "p") == []
