"""What is written to a terminal: nothing in a text from elsewhere is obeyed, whichever command."""

from __future__ import annotations

import pytest
from rich.text import Text

from mainstay.cli import guard
from mainstay.cli.screen.console import fields, table
from mainstay.cli.screen.output import shielded_lines, shown

EVIL = "e\x1b]0;a\x07\u202e\x9b\r\u2028w"
KEYS = '"x\\u001b]0;a\\u0007\\u202e\\u009b"'
FILE = f'"mainstay": {{}}\nretry: {{policies: {{{KEYS}: {{maxAttempts: {KEYS}}}}}}}\nstroe: 1\n'
COMMANDS = [
    ["config", "check", "FILE"],
    ["config", "show", "FILE"],
    ["config", "trust", "FILE"],
    ["config", "trust", EVIL],
    ["policies", "--config", "FILE"],
    ["policies", "show", EVIL],
    ["status", "--config", "FILE"],
    ["doctor", "--config", "FILE"],
    ["audit", "verify", EVIL],
    ["audit", "tail", EVIL],
    ["audit", "whatif", "LOG", "--policy", "FILE"],
    ["exec", "--config", "FILE", "--", "true"],
    ["exec", "--set", f"{EVIL}=1", "--", "true"],
    ["exec", "--policy", EVIL, "--", "true"],
    ["exec", "--", f"./{EVIL}"],
    ["inbox", "list", "--store", f"sqlite:///{EVIL}.db"],
    ["explain-error", EVIL],
    ["spill", "list", "--folder", EVIL],
    [EVIL],
    ["inbox", f"--{EVIL}"],
]


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A configuration whose name and keys hold what a terminal obeys; the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "f\x1b]0;a\x07\u202e.yml"
    path.write_text(FILE, encoding="utf-8")
    return path


def given(words, file):
    """The words of a command, with the paths of its files."""
    paths = {"FILE": str(file), "LOG": str(file.with_name("audit.jsonl"))}
    return [paths.get(word, word) for word in words]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]).encode())
def test_no_command_writes_what_a_terminal_obeys(file, capsys, words):
    """Keys and values of a file, its name, and what was typed; on both streams."""
    guard.run(given(words, file))
    out, err = capsys.readouterr()
    assert out + err
    assert [each for each in out + err if not each.isprintable() and each not in "\n\t"] == []


def test_on_a_terminal_nothing_passes_either(file, terminal):
    """There click takes out no escape sequence, as it does in a pipe."""
    checked = terminal("config", "check", str(file), NO_COLOR="1")
    assert checked.wait() == 1
    assert "\\x1b]0;a\\x07" in checked.text
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(checked.text)


def test_a_table_and_a_list_of_fields_are_shielded_where_they_are_made():
    """Not only where a command has thought of it; a text with a style is the command's own."""
    made = table(("a", "b"), [(EVIL, Text(EVIL))])
    assert made.rows == [[shown(EVIL), Text(EVIL)]]
    assert shown(EVIL).isprintable()
    assert list(fields([("a\x1b", "b\x07")]).rows) == [("a\\x1b", "b\\x07")]


def test_lines_stay_lines():
    """Line breaks and tabs are ours."""
    assert shielded_lines("a\n\tb") == "a\n\tb"
    assert shielded_lines("a\x1b\n\tb") == "a\\x1b\n\tb"
