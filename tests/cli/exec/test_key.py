"""`mainstay exec --key`: run once, replayed after that; crashes count, mistakes are told."""

import json
import os
import resource
import signal
import subprocess

import pytest

from mainstay import Engine
from tests.cli.conftest import RUN
from tests.processes import assert_nobody_is_left, needs_proc, wait_until
from tests.servers import commands
from tests.servers.nats import start_nats

pytestmark = pytest.mark.skipif(os.name == "nt", reason="commands of a POSIX shell")

ONCE = ("--set", "retry.policies.standard.maxAttempts=1")
QUICK = ("--set", "retry.policies.standard.initialDelayMs=1", "--quiet")


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    """A state folder, and a working directory without a configuration."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def mainstay(*arguments, **options):
    """Runs `mainstay exec` with these arguments."""
    return commands.run("exec", *arguments, timeout=90, **options)


def sh(script):
    """A command that is a script of the shell's, and counts its runs."""
    return "--", "sh", "-c", f"echo x >> ran; {script}"


def runs(tmp_path):
    """How often it ran."""
    return (tmp_path / "ran").read_text().count("x")


def inbox(tmp_path):
    """The items in the inbox."""
    with Engine(f"sqlite:///{tmp_path}/state/mainstay/mainstay.db", sinks=[]) as engine:
        return list(engine.inbox)


# --- once -----------------------------------------------------------------------------------------


def test_a_key_runs_a_command_once_and_replays_what_it_wrote(tmp_path):
    """Byte for byte, on the right stream."""
    command = ("--key", "k", *sh("printf 'a\\377b'; printf '\\376c' >&2"))
    for _ in range(3):
        done = mainstay(*command)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"a\xffb", b"\xfec")
    assert runs(tmp_path) == 1


def test_the_streams_are_replayed_in_their_order():
    """Where both go to one place, what was written first is first."""
    script = "for i in 1 2 3; do echo out$i; sleep 0.2; echo err$i >&2; sleep 0.2; done"
    wanted = b"out1\nerr1\nout2\nerr2\nout3\nerr3\n"
    for _ in range(2):
        done = subprocess.run(
            [*RUN, "exec", "--key", "k", "--", "sh", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=90,
            check=False,
        )
        assert done.stdout == wanted


def test_an_exit_that_is_final_is_replayed_with_its_output(tmp_path):
    """What was said to be final is recorded, as a success is."""
    command = ("--key", "k", "--never-on-exit", "4", *sh("echo no; exit 4"))
    for _ in range(2):
        done = mainstay(*command)
        assert (done.returncode, done.stdout, done.stderr) == (4, b"no\n", b"")
    assert runs(tmp_path) == 1


@pytest.mark.parametrize("script", ["exit 1", "kill -9 $$", "exit 127"])
def test_what_may_end_otherwise_the_next_time_is_not_recorded(tmp_path, script):
    """An exit that was retried in vain, a death by signal, a command that was not found."""
    once = (*ONCE, "--quiet", "--key", "k")
    first = mainstay(*once, *sh(f"test -e ready && exit 0; {script}"))
    assert first.returncode != 0
    (tmp_path / "ready").touch()
    assert mainstay(*once, *sh(f"test -e ready && exit 0; {script}")).returncode == 0
    assert runs(tmp_path) == 2


def test_the_output_of_the_last_attempt_is_kept(tmp_path):
    """What failed before it was shown once, and is not replayed."""
    command = ("--key", "k", *QUICK, *sh("echo $(wc -l < ran); test $(wc -l < ran) = 3"))
    assert mainstay(*command).stdout == b"1\n2\n3\n"
    assert mainstay(*command).stdout == b"3\n"


def test_a_key_stands_for_one_command_line(tmp_path):
    """Another is refused, and nothing is run."""
    assert mainstay("--key", "k", "--operation", "o", *sh("exit 0")).returncode == 0
    done = mainstay("--key", "k", "--operation", "o", "--", "touch", "other")
    assert done.returncode == 2
    assert b"mainstay: the key 'k' was used for another command line\n  next: " in done.stderr
    assert not (tmp_path / "other").exists()
    assert mainstay("--key", "k", "--operation", "p", "--", "touch", "other").returncode == 0


def test_a_second_process_waits_for_the_first_and_replays_it(tmp_path):
    """Two at once run it once."""
    command = [*RUN, "exec", "--key", "k", *sh("sleep 1; echo done")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in both] == [b"done\n"] * 2
    assert runs(tmp_path) == 1


# --- how much is kept -----------------------------------------------------------------------------


def test_output_that_is_too_long_is_not_kept_and_the_replay_says_so(tmp_path):
    """Half of it would be taken for the whole; the command is not run again."""
    command = ("--key", "k", "--keep-output", "1K", *sh("yes | head -c 2000"))
    done = mainstay(*command)
    assert (done.returncode, len(done.stdout)) == (0, 2000)
    told = b"mainstay: the output is not kept under the key 'k': it was longer than 1024 bytes\n"
    assert done.stderr == told
    done = mainstay(*command)
    assert (done.returncode, done.stdout) == (74, b"")
    assert b"ran before under the key 'k' and ended with exit 0, but its output" in done.stderr
    assert runs(tmp_path) == 1


@pytest.mark.parametrize("status", [0, 3])
def test_output_that_the_store_does_not_take_is_not_kept(tmp_path, status):
    """NATS takes a megabyte at most: the command runs once, and a replay exits with 74."""
    server = start_nats(tmp_path, max_payload=1_048_576)
    try:
        script = f"head -c 1500000 /dev/zero; exit {status}"
        final = ("--never-on-exit", "3", "--store", server.url)
        done = mainstay("--key", "k", *final, *sh(script))
        assert (done.returncode, len(done.stdout)) == (status, 1_500_000)
        assert b"the output is not kept under the key 'k': it was longer than" in done.stderr
        for _ in range(2):
            done = mainstay("--key", "k", *final, *sh(script))
            assert (done.returncode, done.stdout) == (74, b"")
    finally:
        server.kill()
    assert runs(tmp_path) == 1


def test_where_no_output_is_to_be_kept_the_exit_code_is_replayed(tmp_path):
    """`--keep-output 0`: then its length does not matter."""
    command = ("--key", "k", "--keep-output", "0", *sh("yes | head -c 2000"))
    assert [len(mainstay(*command).stdout) for _ in range(2)] == [2000, 0]
    assert runs(tmp_path) == 1


def test_a_full_disk_for_the_output_costs_no_output(tmp_path):
    """It is passed on all the same, and not kept; what could not be kept is said."""
    mainstay("--key", "first", *sh("exit 0"))  # makes the store

    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * 1024, 1024 * 1024))

    command = ("--key", "k", *sh("head -c 3000000 /dev/zero"))
    done = mainstay(*command, preexec_fn=little_room)
    assert (done.returncode, len(done.stdout)) == (0, 3_000_000), done.stderr
    assert (
        b"the output is not kept under the key 'k': it could not be kept: File too" in done.stderr
    )
    assert mainstay(*command).returncode == 74
    assert runs(tmp_path) == 2


def test_a_store_that_cannot_write_the_record_costs_no_exit_code(tmp_path):
    """The command has run: that counts; what is not recorded is said."""
    mainstay("--key", "first", *sh("exit 0"))
    path = tmp_path / "state" / "mainstay" / "mainstay.db"
    size = path.stat().st_size

    def no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 65536, size + 65536))

    command = ("--key", "k", *sh("head -c 200000 /dev/zero; exit 0"))
    done = mainstay(*command, preexec_fn=no_room)
    assert (done.returncode, len(done.stdout)) == (0, 200_000), done.stderr
    assert b"could not be recorded under the key 'k'" in done.stderr


# --- crashes --------------------------------------------------------------------------------------


@needs_proc
@pytest.mark.req("AG-05", "IT-041-10")
def test_attempts_survive_a_kill_of_mainstay(tmp_path):
    """Killed in its first attempt of two: the next process with the key makes one more."""
    two = ("--set", "retry.policies.standard.maxAttempts=2", *QUICK)
    command = (*two, "--lease", "1", "--grace", "0.2", "--key", "k")
    script = sh("test -e crashed && exit 7; exec sleep 1000")
    process = subprocess.Popen(
        [*RUN, "exec", *command, *script], start_new_session=True, stderr=subprocess.PIPE
    )
    wait_until((tmp_path / "ran").exists, "the first attempt")
    process.kill()
    process.communicate(timeout=30)
    assert_nobody_is_left(process.pid)
    (tmp_path / "crashed").touch()
    done = mainstay(*command, *script)
    assert (done.returncode, runs(tmp_path)) == (7, 2), done.stderr


@needs_proc
def test_what_was_killed_too_often_needs_a_person(tmp_path):
    """Nobody can say what became of it: 76, and an item in the inbox."""
    command = (*ONCE, "--lease", "1", "--grace", "0.2", "--key", "k", *sh("exec sleep 1000"))
    process = subprocess.Popen([*RUN, "exec", *command], start_new_session=True)
    wait_until((tmp_path / "ran").exists, "the first attempt")
    process.kill()
    process.wait(30)
    done = mainstay(*command)
    (item,) = inbox(tmp_path)
    assert (done.returncode, item.kind) == (76, "unknown_outcome")
    assert f"item {item.id}: mainstay inbox show {item.id}".encode() in done.stderr
    listed = subprocess.run(
        [*RUN, "inbox", "--json", "--store", f"sqlite:///{tmp_path}/state/mainstay/mainstay.db"],
        capture_output=True, check=True, timeout=90,
    )  # fmt: skip
    assert [each["id"] for each in json.loads(listed.stdout)] == [item.id]
    assert runs(tmp_path) == 1
    assert_nobody_is_left(process.pid)


@needs_proc
def test_an_interrupted_command_may_be_run_again_at_once(tmp_path):
    """Ctrl+C gives the key back; it is no crash."""
    command = ("--key", "k", "--grace", "0.2", *sh("test -e second || exec sleep 1000; echo ok"))
    process = subprocess.Popen([*RUN, "exec", *command], start_new_session=True)
    wait_until((tmp_path / "ran").exists, "the first attempt")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    (tmp_path / "second").touch()
    done = mainstay(*command)
    assert (done.returncode, done.stdout) == (0, b"ok\n")


def test_a_key_that_is_being_worked_on_for_too_long_is_75(tmp_path):
    """Try later; nothing was run."""
    first = subprocess.Popen(
        [*RUN, "exec", "--key", "k", "--grace", "0.2", *sh("exec sleep 1000")],
        start_new_session=True,
    )
    wait_until((tmp_path / "ran").exists, "the first")
    done = mainstay("--key", "k", "--lease", "1", *sh("exec sleep 1000"))
    assert done.returncode == 75
    assert b"mainstay: not run: " in done.stderr
    first.terminate()
    first.wait(30)
    assert runs(tmp_path) == 1


@needs_proc
@pytest.mark.parametrize(
    ("action", "told", "code", "out"),
    [
        ("mark_done", '{"id": 7}', 0, b'{"id":7}\n'),
        ("mark_done", '"deployed"', 0, b"deployed\n"),
        ("mark_done", '{"tape": "x", "lost": ""}', 0, b'{"tape":"x","lost":""}\n'),
        ("abandon", "", 1, b""),
    ],
)
def test_what_a_person_decided_of_a_command_stands_for_it(tmp_path, action, told, code, out):
    """The evidence for its output, and never an error of ours; what was given up says so."""
    command = (*ONCE, "--lease", "1", "--grace", "0.2", "--key", "k", *sh("exec sleep 1000"))
    process = subprocess.Popen([*RUN, "exec", *command], start_new_session=True)
    wait_until((tmp_path / "ran").exists, "the first attempt")
    process.kill()
    process.wait(30)
    assert_nobody_is_left(process.pid)
    assert mainstay(*command).returncode == 76
    with Engine(f"sqlite:///{tmp_path}/state/mainstay/mainstay.db", sinks=[]) as engine:
        engine.operators.add("ann", secret="correct horse")
        (item,) = engine.inbox
        given = {"by": "ann", "proof": "correct horse", "why": "so it is", "evidence": told}
        assert engine.inbox.act(item.id, action, **given).won
    done = mainstay(*command)
    assert (done.returncode, done.stdout) == (code, out), done.stderr
    assert b"internal error" not in done.stderr
    assert runs(tmp_path) == 1


def test_a_command_whose_name_is_no_text_is_brought_to_a_person_too(tmp_path):
    """A file's name may be any bytes: it is shown as it can be, and its circuit shared."""
    script = os.fsencode(tmp_path) + b"/x\xff.sh"
    with open(script, "wb") as file:  # noqa: PTH123 -- its name is no text
        file.write(b"#!/bin/sh\nexit 3\n")
    os.chmod(script, 0o700)  # noqa: PTH101 -- as above
    done = mainstay(*ONCE, "--escalate", "--", script)
    (item,) = inbox(tmp_path)
    assert (done.returncode, item.operation) == (76, "x\\udcff.sh"), done.stderr
    assert b"not shared" not in done.stderr
