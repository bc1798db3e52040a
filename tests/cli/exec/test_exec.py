"""`mainstay exec` with pipes around it: what it passes on, retries, and ends with."""

import json
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from functools import partial
from types import SimpleNamespace

import pytest

from mainstay import Engine, RetryPolicy
from mainstay.cli.exec import engine as exec_engine
from mainstay.cli.exec.engine import engine_of
from mainstay.cli.exec.report import Reporter
from mainstay.cli.exec.request import ExecRequest
from mainstay.config.load import load
from tests.cli.conftest import RUN
from tests.processes import assert_nobody_is_left, in_session, needs_proc, wait_until
from tests.servers import commands

pytestmark = pytest.mark.skipif(os.name == "nt", reason="commands of a POSIX shell")


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    """A state folder, and a working directory without a configuration."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def mainstay():
    """Runs `mainstay exec` with these arguments; bytes in and out."""

    def mainstay(*arguments, stdin=b"", **env):
        return commands.run("exec", *arguments, input=stdin, timeout=90, env=os.environ | env)

    return mainstay


@pytest.fixture
def started():
    """Starts `mainstay exec` in a session of its own, so that everybody in it can be found."""
    processes = []

    def started(*arguments, **env):
        process = subprocess.Popen(
            [*RUN, "exec", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | env,
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=30)


QUICK = ("--set", "retry.policies.standard.initialDelayMs=1")
FOREVER = "sleep 1000 & echo $$; wait"


def sh(script):
    """A command that is a script of the shell's."""
    return "--", "sh", "-c", script


# --- passing through ------------------------------------------------------------------------------


@pytest.mark.req("AG-03.policy", "IT-041-09")
def test_a_command_that_succeeds_is_as_if_it_ran_alone(mainstay):
    """Its input, its output and its error output are its own, and nothing is added."""
    done = mainstay(*sh("cat; echo oops >&2"), stdin=b"hello\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hello\n", b"oops\n")


BYTES = bytes(range(256))
TWICE = "import os; b = bytes(range(256)); os.write(1, b); os.write(2, b[::-1])"


@pytest.mark.parametrize("key", [(), ("--key", "k")], ids=["streamed", "kept"])
def test_output_is_passed_on_byte_for_byte(mainstay, key):
    """Whatever bytes they are, on the stream they came on; replayed too."""
    command = (*key, "--", sys.executable, "-c", TWICE)
    for _ in range(2):
        done = mainstay(*command)
        assert (done.returncode, done.stdout, done.stderr) == (0, BYTES, BYTES[::-1])


@pytest.mark.parametrize("key", [(), ("--key", "k")], ids=["streamed", "kept"])
def test_output_comes_as_it_is_written(started, key):
    """Not only when the command has ended."""
    process = started(*key, *sh("echo first; exec sleep 1000"))
    assert process.stdout.readline() == b"first\n"
    process.terminate()
    assert process.wait(30) == 128 + signal.SIGTERM


MUCH = "import os\nfor _ in range({}): os.write(1, b'x' * 65536)"
MEASURED = (
    "import resource, sys; from mainstay.cli import main; code = main(sys.argv[1:]);"
    " print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
)


@pytest.mark.parametrize("key", [(), ("--key", "k", "--keep-output", "1M")], ids=["plain", "kept"])
def test_much_output_takes_little_memory(key):
    """1 GB goes through in the memory that 100 kB take; what is too long is not kept."""
    peaks = []
    for chunks in (2, 16_384):
        command = ("exec", *key, "--operation", f"o{chunks}")
        arguments = [*command, "--", sys.executable, "-c", MUCH.format(chunks)]
        with subprocess.Popen(
            [sys.executable, "-c", MEASURED, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        ) as process:
            size = sum(map(len, iter(partial(process.stdout.read, 1_048_576), b"")))
            told = process.stderr.read()
        assert (process.returncode, size) == (0, chunks * 65_536), told
        peaks.append(int(told.split()[-1]))
    assert peaks[1] - peaks[0] < 8 * 1024, "KiB"
    if key:
        assert b"the output is not kept under the key 'k': it was longer than" in told


@pytest.mark.parametrize("key", [(), ("--key", "k")], ids=["streamed", "kept"])
def test_a_reader_who_leaves_ends_the_command_as_it_would_without_us(key):
    """`| head -1`: the command dies of SIGPIPE, and is not retried."""
    script = " ".join([*RUN, "exec", *key, "--", "yes"]) + " | head -1; exit ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=90, check=False)
    assert (done.returncode, done.stdout) == (141, b"y\n"), done.stderr


# --- exits ----------------------------------------------------------------------------------------


def test_an_exit_is_retried_and_the_last_one_is_ours(mainstay):
    """Three attempts, a line for each retry, and the command's own exit code."""
    done = mainstay(*QUICK, *sh("echo run; exit 3"))
    assert (done.returncode, done.stdout) == (3, b"run\n" * 3)
    lines = done.stderr.decode().splitlines()
    assert lines[0] == "mainstay: sh: attempt 1 of 3: exit 3; next in 0.00 s"
    assert lines[-1] == "mainstay: sh: gave up after 3 attempts: exit 3"
    assert len(lines) == 3


def test_a_command_that_recovers_exits_with_0(mainstay, tmp_path):
    """The second attempt finds what the first has made."""
    done = mainstay(*QUICK, "--quiet", *sh("test -e made || { touch made; exit 1; }; echo ok"))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", b"")


@pytest.mark.parametrize(
    ("script", "code", "told"),
    [
        ("exit 126", 126, b""),
        ("exit 127", 127, b""),
        ("kill -9 $$", 137, b"mainstay: sh: killed by SIGKILL\n"),
    ],
)
def test_what_could_not_run_or_was_killed_is_not_retried(mainstay, script, code, told):
    """126, 127 and a death by signal: it would be the same the next time."""
    done = mainstay(*QUICK, *sh(f"echo run; {script}"))
    assert (done.returncode, done.stdout, done.stderr) == (code, b"run\n", told)


def test_a_command_that_is_not_there_is_127_and_one_that_cannot_run_126(mainstay, tmp_path):
    """As the shell has it, in one line."""
    done = mainstay("--", "no-such-command")
    assert (done.returncode, done.stderr) == (
        127,
        b"mainstay: no-such-command: command not found\n",
    )
    (tmp_path / "file").write_text("no program")
    done = mainstay("--", str(tmp_path / "file"))
    assert (done.returncode, done.stderr) == (
        126,
        b"mainstay: file: cannot be run: Permission denied\n",
    )


@pytest.mark.parametrize(
    ("option", "codes", "runs"),
    [
        ("--retry-on-exit", "1,3-5", 3),
        ("--retry-on-exit", "1,5", 1),
        ("--retry-on-exit", "137", 1),
        ("--never-on-exit", "4", 1),
        ("--never-on-exit", "1,5-255", 3),
    ],
)
def test_which_exits_are_retried_can_be_said(mainstay, option, codes, runs):
    """Only these, or all but these."""
    done = mainstay(*QUICK, option, codes, *sh("echo run; exit 4"))
    assert (done.returncode, done.stdout) == (4, b"run\n" * runs)


def test_a_death_by_signal_is_retried_where_it_is_named(mainstay):
    """137 is SIGKILL, as of the system's memory killer."""
    done = mainstay(*QUICK, "--quiet", "--retry-on-exit", "137", *sh("echo run; kill -9 $$"))
    assert (done.returncode, done.stdout) == (137, b"run\n" * 3)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--retry-on-exit", "x"), "'x' is no exit code; write them as 1,3-5"),
        (("--retry-on-exit", "3-1"), "'3-1': exit codes are from 1 to 255"),
        (("--never-on-exit", "0"), "'0': exit codes are from 1 to 255"),
        (("--retry-on-exit", "1", "--never-on-exit", "2"), "exclude each other"),
        (("--policy", "nope"), "'nope': must be the name of a policy; there are standard"),
        (("--timeout", "0"), "'0' must be a number of seconds above 0"),
        (("--attempt-timeout", "0"), "'0' must be a number of seconds above 0"),
        (("--key", " "), "--key is empty"),
        (("--keep-output", "8X"), "'8X' is no size"),
        (("--store", "floppy://a"), "floppy"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(mainstay, tmp_path, arguments, told):
    """Exit 2, and the command was not run."""
    done = mainstay(*arguments, *sh("touch ran"))
    assert (done.returncode, told in done.stderr.decode()) == (2, True), done.stderr
    assert not (tmp_path / "ran").exists()


def test_messages_are_json_where_it_is_asked_for(mainstay):
    """One object a line, on stderr."""
    done = mainstay(*QUICK, "--json", *sh("exit 3"))
    first, *_, last = map(json.loads, done.stderr.splitlines())
    wanted = {"event": "retry", "operation": "sh", "attempt": 1, "max_attempts": 3, "exit_code": 3}
    assert first.items() >= wanted.items()
    assert (last["event"], last["attempts"], last["exit_code"]) == ("given_up", 3, 3)


# --- time -----------------------------------------------------------------------------------------


@needs_proc
@pytest.mark.req("AG-03.policy")
def test_an_attempt_that_takes_too_long_is_ended_with_all_it_started(started):
    """124; TERM is enough for these."""
    process = started("--timeout", "0.5", "--policy", "once", *ONCE, *sh(FOREVER))
    _, told = process.communicate(timeout=60)
    assert process.returncode == 124
    limit = re.fullmatch(rb"mainstay: sh: timed out after (0\.\d+) s\n", told)
    assert limit is not None, told
    assert 0.3 < float(limit[1]) <= 0.5, "to start the command counts too"
    assert_nobody_is_left(process.pid)


ONCE = ("--set", "retry.policies.once.maxAttempts=1")
DEAF = "trap '' TERM INT HUP; (trap '' TERM; while :; do sleep 0.1; done) & echo deaf; wait"


@needs_proc
def test_who_does_not_end_on_term_is_killed(started):
    """Also a grandchild, after the grace time."""
    process = started("--timeout", "1", "--grace", "0.2", "--policy", "once", *ONCE, *sh(DEAF))
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (124, b"deaf\n")
    assert_nobody_is_left(process.pid)


def test_the_deadline_bounds_all_attempts(mainstay):
    """What does not end within it is 124; what fails before keeps its code."""
    done = mainstay("--deadline", "0.5", "--quiet", *sh("exec sleep 1000"))
    assert done.returncode == 124
    slow = ("--set", "retry.policies.standard.initialDelayMs=5000")
    done = mainstay("--deadline", "3", *slow, *sh("exit 9"))
    assert done.returncode == 9
    assert b"the deadline leaves no time for another attempt" in done.stderr


@needs_proc
def test_what_a_command_leaves_in_its_group_ends_with_it(started):
    """An attempt is over when its whole group is; nobody holds its pipes open."""
    process = started(*sh("sleep 1000 & echo done"))
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"done\n")
    assert_nobody_is_left(process.pid)


# --- signals to mainstay itself -------------------------------------------------------------------


@needs_proc
@pytest.mark.req("AG-03.cancel")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
@pytest.mark.parametrize("script", [FOREVER, DEAF], ids=["willing", "deaf"])
def test_a_signal_ends_the_command_too(started, name, script):
    """128 and its number; nobody is left, without any terminal."""
    number = getattr(signal, name)
    process = started("--grace", "0.2", *sh(script))
    process.stdout.readline()
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert_nobody_is_left(process.pid)


@needs_proc
def test_a_signal_while_it_waits_ends_it_at_once(started):
    """The next attempt, a minute away, is not made."""
    slow = ("--set", "retry.policies.standard.initialDelayMs=60000")
    more = ("--set", "retry.policies.standard.maxDelayMs=60000")
    process = started(*slow, *more, *sh("exit 1"))
    assert b"next in" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM
    assert_nobody_is_left(process.pid)


@needs_proc
def test_what_was_ignored_stays_ignored(started):
    """Under nohup a hangup ends nothing."""
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *RUN, "exec", *sh("echo on; exec sleep 1000")],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        assert process.stdout.readline() == b"on\n"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert_nobody_is_left(process.pid)


@needs_proc
@pytest.mark.parametrize("script", [FOREVER, DEAF], ids=["willing", "deaf"])
def test_a_kill_of_mainstay_leaves_nobody_either(started, script):
    """`kill -9`: whoever leads the group ends it."""
    process = started("--grace", "0.3", *sh(script))
    process.stdout.readline()
    assert len(in_session(process.pid)) >= 3
    process.kill()
    process.wait(30)
    assert_nobody_is_left(process.pid)


# --- the circuit ----------------------------------------------------------------------------------


@pytest.mark.req("IT-041-09")
def test_processes_count_failures_together_until_the_circuit_opens(mainstay, tmp_path):
    """3 and 2 are 5: the third process does not run its command, and exits with 75."""
    fail = (*QUICK, "--operation", "job", *sh("echo x >> ran; exit 1"))
    assert mainstay(*fail).returncode == 1
    done = mainstay(*fail)
    assert done.returncode == 1
    assert b"gave up after 2 attempts: exit 1 (circuit 'job' is open)" in done.stderr
    done = mainstay(*fail)
    assert done.returncode == 75
    assert b"mainstay: not run: circuit 'job' is open" in done.stderr
    assert (tmp_path / "ran").read_text() == "x\n" * 5
    assert mainstay("--operation", "other", *sh("exit 0")).returncode == 0


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ("", "all"),
        ("store: memory://", "all"),
        ("circuitBreaker: {failureThreshold: 7}", "dependency"),
    ],
)
def test_its_own_circuit_counts_every_failure(tmp_path, config, count):
    """As the agent's document does; a circuit of the configuration is as it is there."""
    path = tmp_path / "mainstay.yml"
    path.write_text(config, encoding="utf-8")
    request = ExecRequest(command=("true",), operation="t", is_named=True, store="memory://")
    with engine_of(request, load(path), Reporter(quiet=True, as_json=False)) as engine:
        assert engine.breaker("t").settings.count == count


def test_failures_count_together_beside_a_process_that_goes_on(mainstay, started):
    """One that runs long keeps nobody from taking over from those that have ended."""
    job = (*QUICK, "--quiet", "--operation", "job")
    long = started(*job, *sh("echo here; exec sleep 1000"))
    assert long.stdout.readline() == b"here\n"
    for code in (1, 1, 75):
        assert mainstay(*job, *sh("exit 1")).returncode == code
    long.terminate()
    long.wait(30)


def test_a_circuit_is_half_open_when_its_time_is_over_and_closes(mainstay):
    """One probe is let through; it succeeds, and the next run is as if nothing had been."""
    short = (*QUICK, "--set", "circuitBreaker.openDurationMs=300", "--quiet", "--operation", "o")
    brittle = (*short, "--set", "circuitBreaker.failureThreshold=1")
    assert mainstay(*brittle, *sh("exit 1")).returncode == 1
    wait_until(lambda: mainstay(*brittle, *sh("exit 0")).returncode == 0, "the probe")
    assert mainstay(*brittle, *sh("exit 0")).returncode == 0


def test_the_circuit_can_be_turned_off(mainstay):
    """By configuration."""
    for _ in range(3):
        off = ("--set", "circuitBreaker.enabled=false")
        named = ("--quiet", "--operation", "job")
        assert mainstay(*QUICK, *off, *named, *sh("exit 1")).returncode == 1


# --- the store ------------------------------------------------------------------------------------


def test_what_is_remembered_is_the_users_own(mainstay, tmp_path):
    """A folder that only its user can enter."""
    mainstay(*sh("exit 0"))
    folder = tmp_path / "state" / "mainstay"
    assert (folder / "mainstay.db").exists()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_without_a_place_to_remember_it_warns_and_runs(mainstay):
    """A store that cannot be opened keeps no command from running; only a key needs it."""
    done = mainstay(*sh("echo ran"), XDG_STATE_HOME="/dev/null/none")
    assert (done.returncode, done.stdout) == (0, b"ran\n")
    assert done.stderr.startswith(
        b"mainstay: the store is unavailable, so circuits are not shared and nothing is recorded: "
    )
    done = mainstay("--key", "k", *sh("echo ran"), XDG_STATE_HOME="/dev/null/none")
    assert (done.returncode, done.stdout) == (69, b"")
    assert b"--store" in done.stderr


def test_a_file_that_is_no_store_keeps_nothing_from_running(mainstay, tmp_path):
    """A warning, and the command runs; with a key it does not."""
    (tmp_path / "bad.db").write_bytes(b"this is no database at all, whatever its name" * 100)
    url = f"sqlite:///{tmp_path}/bad.db"
    done = mainstay("--store", url, *sh("echo ran"))
    assert (done.returncode, done.stdout) == (0, b"ran\n"), done.stderr
    assert b"circuits are not shared" in done.stderr
    done = mainstay("--store", url, "--key", "k", *sh("echo ran"))
    assert (done.returncode, done.stdout) == (69, b""), done.stderr


def test_a_locked_store_keeps_nothing_from_running(mainstay, tmp_path):
    """Somebody holds its lock all the time: the command runs, and ends."""
    mainstay(*sh("exit 0"))
    path = tmp_path / "state" / "mainstay" / "mainstay.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        done = mainstay(*QUICK, *sh("echo ran; exit 5"))
        connection.execute("ROLLBACK")
    assert (done.returncode, done.stdout) == (5, b"ran\n" * 3), done.stderr


# --- configuration --------------------------------------------------------------------------------


def test_a_configuration_names_the_policy_of_an_operation(mainstay, tmp_path):
    """Found in the working directory; rules name exits."""
    (tmp_path / "mainstay.yml").write_text(
        "retry:\n"
        "  policies:\n"
        "    picky: {maxAttempts: 2, initialDelayMs: 1, retryOn: ['exit:75']}\n"
        "  operationPolicies: {sync: picky}\n"
    )
    done = mainstay("--quiet", "--operation", "sync", *sh("echo run; exit 75"))
    assert (done.returncode, done.stdout) == (75, b"run\n" * 2), done.stderr
    done = mainstay("--quiet", "--operation", "sync", *sh("echo run; exit 1"))
    assert (done.returncode, done.stdout) == (1, b"run\n")


def test_a_command_is_run_exactly_once_on_request_if_the_file_is_wrong(mainstay, tmp_path):
    """By default it is not run at all; neither way it has the built-in policy's three attempts."""
    (tmp_path / "mainstay.yml").write_text(
        "retry:\n  policies: {once: {maxAtempts: 1}}\n  operationPolicies: {charge: once}\n"
    )
    command = ("--operation", "charge", *sh("echo charged; exit 3"))
    done = mainstay(*command)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"maxAtempts: unknown key; did you mean maxAttempts?" in done.stderr
    done = mainstay("--on-config-error=once", *command)
    assert (done.returncode, done.stdout) == (3, b"charged\n")
    assert b"maxAtempts" in done.stderr
    assert b"is run once, without retries" in done.stderr


# --- a person -------------------------------------------------------------------------------------


@pytest.mark.req("IT-041-09")
def test_what_gives_up_can_ask_a_person(mainstay, tmp_path):
    """76, and an item without secrets; the same matter again is the same item.

    By the option, or by the configuration.
    """
    from mainstay import Engine

    command = (*sh("exit 4"), "--password", "hunter2")
    first = mainstay(*QUICK, "--escalate", *command)
    again = mainstay("--set", "inbox.escalate=true", *QUICK, *command)
    assert (first.returncode, again.returncode) == (76, 76)
    path = tmp_path / "state" / "mainstay" / "mainstay.db"
    with Engine(f"sqlite:///{path}", sinks=[]) as engine:
        (item,) = list(engine.inbox)
    assert f"mainstay inbox show {item.id}".encode() in first.stderr
    assert (item.kind, item.operation, item.attempts, item.times) == ("exhausted", "sh", 3, 2)
    assert "gave up after 3 attempt(s) (exit 4, exit 4, exit 4): sh -c" in item.text
    assert "hunter2" not in item.text


def test_colours_are_for_terminals_only(mainstay):
    """A pipe gets plain text, whatever TERM says."""
    done = mainstay(*QUICK, *sh("exit 1"), TERM="xterm-256color")
    assert b"\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("own", "used"),
    [({}, "allow"), *(({"nested": mode}, mode) for mode in ("collapse", "warn", "refuse"))],
)
def test_a_command_may_retry_inside_by_default(own, used):
    """A command is patient; a policy that states `nested` is taken as it is."""
    request = SimpleNamespace(
        operation="op", policy="standard", timeout=None, deadline=None, retry_on=(), never_on=()
    )
    engine = Engine(policies=[RetryPolicy(name="standard", **own)], sinks=[])
    chosen = exec_engine._under(engine, request, SimpleNamespace(retry=None))
    assert chosen.policies.of("op").nested == used
