"""Commands that the tests fork are like those that a user starts."""

import os
import subprocess

import pytest

from tests.servers import commands

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
SHOW = ("exec", "--never-on-exit", "3", "--", "sh", "-c", 'umask; pwd; echo "$WHO"; cat; exit 3')


def test_a_forked_command_has_what_a_started_one_has(tmp_path, monkeypatch):
    """Arguments, environment, folder, umask, streams and exit code."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("WHO", "ann")
    given = {"input": b"a\xffb", "cwd": tmp_path}
    before = os.umask(0o027)
    try:
        forked = commands.run(*SHOW, **given)
        started = commands.run(*SHOW, **given, close_fds=True)
    finally:
        os.umask(before)
    assert forked.stdout == f"0027\n{tmp_path}\nann\n".encode() + b"a\xffb"
    for name in ("returncode", "stdout", "stderr"):
        assert getattr(forked, name) == getattr(started, name)
    assert forked.returncode == 3


def test_what_a_fork_cannot_change_is_started():
    """Another setting of Python, or another locale."""
    env = dict(os.environ)
    assert commands._can_fork(env)
    assert not commands._can_fork(env | {"PYTHONWARNINGS": "error"})
    assert not commands._can_fork(env | {"LC_ALL": "POSIX"})


def test_a_command_that_takes_too_long_is_killed():
    """As `subprocess.run` does; the next one runs."""
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        commands.run("demo", timeout=0.0)
    assert caught.value.timeout == 0.0
    assert commands.run("--version").returncode == 0
