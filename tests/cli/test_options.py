"""Options of every command: the configuration that --config and --set name is read once."""

import os

import pytest

from tests.servers import commands

COUNTER = """
import os, sys

def note(event, args):
    if event == "open" and str(args[0]).endswith("mainstay.yml"):
        with open(os.environ["READS"], "a") as reads:
            reads.write("x")

sys.addaudithook(note)
"""
"""What a command runs before it begins."""


@pytest.fixture
def reads(tmp_path, monkeypatch):
    """Runs a command beside a configuration; how often it opened the file, and its exit code."""
    (tmp_path / "mainstay.yml").write_text("store: sqlite:///app.db\nretry: {default: standard}\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MAINSTAY_CONFIG", str(tmp_path / "mainstay.yml"))
    for name in ("MAINSTAY_NEW_SECRET", "MAINSTAY_OPERATOR_SECRET"):
        monkeypatch.setenv(name, "correct horse battery")

    def reads(*arguments):
        log = tmp_path / "reads"
        log.write_text("")
        env = os.environ | {"READS": str(log), commands.FIRST: COUNTER}
        done = commands.run(*arguments, cwd=tmp_path, env=env)
        assert b"internal error" not in done.stderr, done.stderr
        return len(log.read_text()), done.returncode

    return reads


@pytest.mark.skipif(os.name == "nt", reason="commands of a POSIX shell")
def test_exec_reads_the_configuration_once(reads):
    """Engine, policy, circuit and store come of one reading, also of a broken configuration."""
    assert reads("exec", "--", "true") == (1, 0)
    assert reads("exec", "--key", "k", "--store", "sqlite:///own.db", "--", "true") == (1, 0)
    assert reads("exec", "--store", "sqlite:////no/such/folder/a.db", "--", "true") == (1, 0)
    assert reads("exec", "--set", "retry.nested=wern", "--", "true") == (1, 2)
    wrong = ("--on-config-error=once", "--set", "retry.nested=wern")
    assert reads("exec", *wrong, "--", "true") == (1, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        "policies",
        "policies show standard",
        "config check",
        "config show",
        "status",
        "inbox",
        "inbox show 0123456789abcdef",
        "circuits",
        "circuits show pay",
        "circuits open pay --why x --as ann",
        "operators",
        "operators add ann",
        "doctor",
    ],
)
def test_every_command_reads_the_configuration_once(reads, arguments):
    """Whatever of it a command needs: each reading may find another file."""
    reads("exec", "--key", "k", "--", "true")  # makes the store
    assert reads(*arguments.split())[0] == 1


def test_a_command_without_configuration_reads_none(reads):
    """What needs no store and no policy does not fail for a broken file."""
    assert reads("config", "schema") == (0, 0)
