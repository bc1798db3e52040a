"""`mainstay exec` in a terminal: Ctrl+C at every phase, Ctrl+Z, keys for the command, a hangup."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import RUN
from tests.processes import assert_nobody_is_left, in_session, needs_proc, wait_until

pytestmark = [
    needs_proc,
    pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals"),
]

CTRL_C, CTRL_Z, ENTER = b"\x03", b"\x1a", b"\n"
DEAF = "trap '' TERM INT HUP; (trap '' TERM INT; while :; do sleep 0.1; done) & echo deaf; wait"
STEADY = ("--set", "circuitBreaker.enabled=false")


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    """A state folder, and a working directory without a configuration."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shell(terminal):
    """A shell that waits for commands, with job control."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    shown = terminal("--norc", "--noprofile", "-i", run=[bash], PS1="$ ", HISTFILE="")
    shown.wait_for("$ ")
    return shown


def sh(script):
    """A command that is a script of the shell's."""
    return "--", "sh", "-c", script


# --- Ctrl+C ---------------------------------------------------------------------------------------


@pytest.mark.req("AG-03.cancel", "UVS-6", "FR-041-34", "FR-041-35")
@pytest.mark.parametrize("key", [(), ("--key", "k")], ids=["plain", "keyed"])
@pytest.mark.parametrize(
    "script",
    [
        "echo up; exec sleep 1000",
        "sleep 1000 & sleep 1000 & echo up; wait",
        "trap 'exit 1' INT TERM; echo up; while :; do sleep 0.05; done",
        "trap 'exit 0' INT TERM; echo up; while :; do sleep 0.05; done",
        DEAF.replace("deaf", "up"),
    ],
    ids=["plain", "family", "exits with 1", "exits with 0", "deaf"],
)
def test_ctrl_c_while_the_command_runs_ends_it_and_is_not_retried(terminal, script, key):
    """130 at once, whatever the command makes of it; nobody is left."""
    shown = terminal("exec", "--grace", "0.3", *key, *sh(script))
    shown.wait_for("up")
    shown.press(CTRL_C)
    assert shown.wait() == 130, shown.text
    assert "next in" not in shown.text
    assert_nobody_is_left(shown.process.pid)


@pytest.mark.req("AG-03.cancel-wait", "UVS-6")
def test_ctrl_c_while_it_waits_ends_the_wait(terminal):
    """The next attempt is a minute away, and is not made."""
    slow = ("--set", "retry.policies.standard.initialDelayMs=60000")
    more = ("--set", "retry.policies.standard.maxDelayMs=60000")
    shown = terminal("exec", *slow, *more, *sh("echo run; exit 1"))
    shown.wait_for("next in")
    shown.press(CTRL_C)
    assert shown.wait() == 130
    assert shown.text.count("run\n") == 1
    assert_nobody_is_left(shown.process.pid)


@pytest.mark.req("AG-03.cancel", "UVS-6")
@pytest.mark.parametrize("attempt", range(2, 7))
def test_ctrl_c_between_attempts_leaves_nobody(terminal, attempt):
    """Attempts follow each other without a pause; wherever it strikes, it ends."""
    endless = ("--set", "retry.policies.standard.maxAttempts=1000")
    at_once = ("--set", "retry.policies.standard.initialDelayMs=0")
    shown = terminal("exec", *STEADY, *endless, *at_once, *sh("sleep 0.01; exit 1"))
    shown.wait_for(f"attempt {attempt} of")
    shown.press(CTRL_C)
    assert shown.wait() == 130, shown.text
    assert_nobody_is_left(shown.process.pid)


def test_a_second_ctrl_c_does_not_wait_for_the_grace_time(terminal):
    """Who is deaf to TERM is killed at once."""
    shown = terminal("exec", "--grace", "3000", *sh(DEAF))
    shown.wait_for("deaf")
    shown.press(CTRL_C)
    wait_until(lambda: _is_foreground(shown.process.pid) or shown.press(CTRL_C), "the way back")
    shown.press(CTRL_C)
    assert shown.wait() == 130
    assert_nobody_is_left(shown.process.pid)


def _is_foreground(pid):
    """Whether a process has its terminal, or is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return True
    return fields[2] == fields[5]


# --- keys for the command -------------------------------------------------------------------------


@pytest.mark.parametrize("key", [(), ("--key", "k")], ids=["plain", "keyed"])
def test_a_command_reads_the_terminal(terminal, key):
    """Though it is in a group of its own."""
    shown = terminal("exec", *key, *sh("echo ready; read word; echo got:$word"))
    shown.wait_for("ready")
    shown.press(b"hello\n")
    assert shown.wait() == 0
    assert "got:hello" in shown.text


def test_a_command_in_a_pipeline_gets_the_terminal_when_it_asks(shell):
    """Its output is a pipe, so the terminal may be somebody else's; the job is not stopped."""
    command = " ".join([*RUN, "exec", "--", "sh", "-c"])
    shell.press(f"{command} 'echo ready; read word < /dev/tty; echo got:$word' | cat\n".encode())
    shell.wait_for("ready\r\n")
    shell.press(b"hello\n")
    shell.wait_for("got:hello")
    assert "Stopped" not in shell.text
    shell.press(b"exit\n")
    shell.wait()


def test_a_terminal_is_mended_after_a_command_that_was_cut_off(terminal):
    """One that turned off the echo, as an editor does, and was killed."""
    script = f"{' '.join(RUN)} exec --timeout 1 --quiet --policy once"
    script += " --set retry.policies.once.maxAttempts=1 -- sh -c 'stty -echo; sleep 1000'; stty -a"
    shown = terminal("-c", script, run=[shutil.which("sh")])
    shown.wait()
    assert re.search(r" echo ", shown.text), shown.text


# --- Ctrl+Z ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("redirected", ["", " < /dev/null"], ids=["given", "not given"])
def test_ctrl_z_stops_the_command_and_fg_continues_it(shell, redirected):
    """As any job of a shell's; and then Ctrl+C ends it."""
    shown = shell
    # One that starts nobody: a shell that just did is not seen to stop (vfork).
    beat = f"{sys.executable} -uc \"import time\nwhile 1: print(chr(98) + 'eat'); time.sleep(.05)\""
    shown.press(f"{' '.join(RUN)} exec -- {beat}{redirected}\n".encode())
    shown.wait_for("beat\n".replace("\n", "\r\n"))
    shown.press(CTRL_Z)
    shown.wait_for("Stopped")
    names = ("python", Path("/proc/self/comm").read_text(encoding="utf-8").strip())
    found = in_session(shown.process.pid).values()
    states = [state for state, name in found if any(each in name for each in names)]
    assert states == ["T", "T"], "mainstay and the command"
    shown.output = b""
    shown.press(b"fg\n")
    shown.wait_for("beat\r\n")
    shown.press(CTRL_C)
    shown.press(b"echo rc=$?\n")
    shown.wait_for("rc=130")
    shown.press(b"exit\n")
    shown.wait()
    assert_nobody_is_left(shown.process.pid)


def test_ctrl_z_where_no_shell_could_continue_it_is_passed_over(terminal):
    """Nothing may stand still for ever."""
    shown = terminal("exec", *sh("echo up; read word; echo got:$word"))
    shown.wait_for("up")
    shown.press(CTRL_Z)
    shown.press(b"hello\n")
    assert shown.wait() == 0
    assert "got:hello" in shown.text


# --- the terminal goes ----------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["echo up; exec sleep 1000", DEAF.replace("deaf", "up")])
def test_a_closed_terminal_ends_everybody(terminal, script):
    """As when its window is closed."""
    shown = terminal("exec", "--grace", "0.3", *sh(script))
    shown.wait_for("up")
    shown.hang_up()
    assert shown.process.wait(30) == 128 + 1
    assert_nobody_is_left(shown.process.pid)


# --- what is said ---------------------------------------------------------------------------------


def test_retries_are_told_in_colour_on_a_terminal(terminal):
    """Unless NO_COLOR is set."""
    quick = ("--set", "retry.policies.standard.initialDelayMs=1")
    shown = terminal("exec", *quick, *sh("exit 1"))
    assert shown.wait() == 1
    assert "\x1b[36mmainstay: sh: attempt 1 of 3: exit 1; next in 0.00 s\x1b[0m" in shown.text
    shown = terminal("exec", *STEADY, *quick, *sh("exit 1"), NO_COLOR="1")
    assert shown.wait() == 1
    assert "\x1b" not in shown.text
