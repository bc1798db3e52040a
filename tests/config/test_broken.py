"""Broken files with the exact messages they get: <name>.yml, and <name>.txt beside it."""

import os
from pathlib import Path

import pytest

from mainstay import ConfigError, Engine
from mainstay.config.load import load

FOLDER = Path(__file__).parent / "broken"
FILES = sorted(FOLDER.glob("*.yml"))


@pytest.mark.req("FR-041-14", "FR-041-15", "FR-041-71")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_broken_file_gets_exactly_these_messages(path, monkeypatch):
    """Every problem is told, with its file and line, what it is, and what was meant."""
    monkeypatch.chdir(FOLDER)
    loaded = load(path.name, env={})
    loaded.report.sort(loaded.file)
    told = "".join(f"{problem}\n" for problem in loaded.report.problems)
    assert told == path.with_suffix(".txt").read_text(encoding="utf-8")


@pytest.mark.req("FR-041-70")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_engine_starts_on_a_broken_file(path):
    """What cannot be right stops the program when it starts, not when something fails."""
    with pytest.raises(ConfigError) as caught:
        Engine.from_config(path, env={})
    assert caught.value.problems


def test_there_are_at_least_twenty():
    assert len(FILES) >= 20
    assert {path.stem for path in FOLDER.glob("*.txt")} == {path.stem for path in FILES}


def test_a_problem_has_its_parts():
    """A program need not take the sentence apart."""
    loaded = load(FOLDER / "unknown_choice.yml", env={})
    problem = loaded.report.problems[0]
    assert problem.to_dict() == {
        "file": str(FOLDER / "unknown_choice.yml"),
        "line": 2,
        "path": "retry.nested",
        "value": "colapse",
        "text": "must be one of collapse, warn, allow, refuse",
        "allowed": "one of collapse, warn, allow, refuse",
        "nearest": "collapse",
    }
    key = load(FOLDER / "misspelt_key.yml", env={}).report.problems[0]
    assert (key.line, key.nearest, key.value) == (4, "maxAttempts", None)
    assert "maxAttempts" in key.allowed


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: None, "there is no such file"),
        (lambda path: path.mkdir(), "is a directory; name the file in it"),
        (lambda path: path.write_bytes(b"#" * (11 * 1024**2)), "is larger than 10 MB"),
        (lambda path: path.symlink_to("/dev/null"), "is not a file"),
    ],
)
def test_what_is_no_file_is_told(make, text, tmp_path):
    """A missing file, a directory and others are problems like any other."""
    path = tmp_path / "mainstay.yml"
    make(path)
    (problem,) = load(path, env={}).report.problems
    assert str(problem).startswith(f"{path}: {text}")
    assert problem.line is None


def test_a_file_that_may_not_be_read_is_told(tmp_path, monkeypatch):
    """The system's own word for it stands in the message."""

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "mainstay.yml"
    path.write_text("retry: {}")
    monkeypatch.setattr(os, "open", refuse)
    (problem,) = load(path, env={}).report.problems
    assert str(problem) == f"{path}: cannot be read: Permission denied"


def test_aliases_cannot_fill_the_memory(tmp_path):
    """Nine aliases of nine aliases, and so on, are refused and not multiplied out."""
    lines = ["x-0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path = tmp_path / "mainstay.yml"
    path.write_text("\n".join(lines))
    (problem,) = load(path, env={}).report.problems
    assert "has more than 500000 values, aliases included" in str(problem)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "retry:\n", "retry: {policies: }"])
def test_an_empty_file_configures_nothing(text, tmp_path):
    """Nothing in it is nothing wrong with it."""
    path = tmp_path / "mainstay.yml"
    path.write_text(text)
    loaded = load(path, env={})
    assert loaded.report.problems == []
    assert loaded.settings.policies == ()
