"""The front door for agents: tools and files under a policy."""

import errno
import os
import shutil
import stat
import subprocess
import threading

import pytest

import mainstay
from mainstay import Backoff, CircuitState, Engine, RetryPolicy
from mainstay.errors import AttemptTimeout, CallCancelled, CommandFailed, UsageError
from mainstay.profiles import agents
from mainstay.profiles.agents import (
    AGGRESSIVE,
    CIRCUIT_BREAKER,
    NO_RETRY,
    STANDARD,
    file_operation,
    read_file,
    run_tool,
    write_file,
)
from mainstay.testing import scripted, virtual_time
from tests.processes import wait_until

posix = pytest.mark.skipif(os.name == "nt", reason="commands of a POSIX shell")
AT_ONCE = RetryPolicy(name="at once", max_attempts=3, backoff=Backoff.constant(0.0))


# --- tools ----------------------------------------------------------------------------------------


@posix
@pytest.mark.req("AG-03.policy")
def test_a_tool_is_retried_and_what_it_wrote_comes_back(tmp_path):
    """Of the attempt that succeeded; its input is the same in each."""
    script = "cat; echo oops >&2; echo x >> ran; test $(wc -l < ran) = 2"
    done = run_tool(["sh", "-c", script], policy=AT_ONCE, input=b"hello", cwd=tmp_path)
    assert (done.text, done.stderr, done.attempts, done.lost) == ("hello", b"oops\n", 2, "")


@posix
def test_a_tool_reads_nothing_unless_it_is_given_something():
    """An agent's tool must not wait for a person at the terminal."""
    assert run_tool(["cat"]).stdout == b""


@posix
def test_a_tool_that_fails_for_good_says_how():
    """The last exit, and what it wrote then."""
    with pytest.raises(CommandFailed) as caught:
        run_tool(["sh", "-c", "echo why; exit 3"], policy=AT_ONCE)
    assert caught.value.exit_code == 3
    assert b"why\n" in caught.value.output["tape"]


@posix
def test_a_tool_has_its_time():
    """Each attempt; then it is ended."""
    with pytest.raises(AttemptTimeout):
        run_tool(["sleep", "1000"], policy=NO_RETRY, timeout=0.2)


@posix
def test_the_time_of_a_tool_has_both_names():
    """`attempt_timeout` is `timeout`, as in a policy; both at once are refused."""
    with pytest.raises(AttemptTimeout):
        run_tool(["sleep", "1000"], policy=NO_RETRY, attempt_timeout=0.2)
    with pytest.raises(mainstay.UsageError, match="one field"):
        run_tool(["true"], timeout=1.0, attempt_timeout=1.0)


@posix
def test_a_tool_runs_on_an_engine():
    """Under the operation's policy; the name is the command's unless it is given."""
    with Engine(policies=[AT_ONCE], operations={"sh": "at once"}, sinks=[]) as engine:
        with pytest.raises(CommandFailed):
            run_tool(["/bin/sh", "-c", "exit 1"], engine=engine)
        assert run_tool(["sh", "-c", "echo $A"], engine=engine, env={"A": "b"}).text == "b\n"
        with pytest.warns(mainstay.PolicyNotFoundWarning):
            run_tool(["true"], engine=engine, operation="other")


@posix
def test_a_cancel_event_of_the_context_ends_a_tool(tmp_path):
    """And a wait between attempts."""
    stop = threading.Event()
    up = tmp_path / "up"
    thread = threading.Thread(target=lambda: (wait_until(up.exists, "the tool"), stop.set()))
    thread.start()
    with mainstay.context(cancel=stop), pytest.raises(CallCancelled):
        run_tool(["sh", "-c", f"touch {up}; exec sleep 1000"])
    thread.join()


@pytest.mark.parametrize("command", ["ls -l", b"ls", []])
def test_a_tool_is_a_list_of_words(command):
    """A text would be taken apart by nobody."""
    with pytest.raises(UsageError, match="must be a list of a program and its arguments"):
        run_tool(command)


def test_the_documents_policies_are_here():
    """As its table has them; the engine's own is the default."""
    assert (AGGRESSIVE.max_attempts, AGGRESSIVE.backoff.initial, AGGRESSIVE.jitter.amount) == (
        5,
        0.05,
        0.2,
    )
    assert (STANDARD.max_attempts, STANDARD.name, NO_RETRY.max_attempts) == (3, "standard", 1)
    assert all(hasattr(agents, name) for name in agents.__all__)


@pytest.mark.req("NFR-041-13")
def test_the_documents_circuit_records_every_failure():
    """Retryable or not, as its loop does: five forbidden files in a row open it for 30 s."""
    engine = Engine(breaker=CIRCUIT_BREAKER, sinks=[])
    with engine, virtual_time() as time:
        for _ in range(5):
            engine.run("file", scripted(PermissionError))
        assert engine.breaker("file").state is CircuitState.OPEN
        assert engine.breaker("file").retry_after == 30.0
        time.advance(30.0)
        assert engine.run("file", scripted("read")).value == "read"
        assert engine.breaker("file").state is CircuitState.CLOSED


@pytest.mark.req("NFR-041-13")
def test_the_documents_circuit_records_no_cancellation():
    """Ctrl+C, five times, says nothing of the tool."""
    engine = Engine(breaker=CIRCUIT_BREAKER, sinks=[])
    with engine:
        for _ in range(5):
            with pytest.raises(KeyboardInterrupt):
                engine.call("tool", scripted(KeyboardInterrupt))
        assert engine.breaker("tool").snapshot().failure_count == 0


# --- files ----------------------------------------------------------------------------------------


def failing(*errors):
    """A function that raises these in turn, and then says how often it was called."""
    left, calls = list(errors), []

    def function():
        calls.append(1)
        if left:
            raise left.pop(0)
        return len(calls)

    return function


def sharing_violation(number):
    """What Windows raises for a file that somebody else has open."""
    error = PermissionError(errno.EACCES, "in use")
    error.winerror = number
    return error


@pytest.mark.req("AG-04")
@pytest.mark.parametrize(
    "make",
    [
        lambda: OSError(errno.EAGAIN, "again"),
        lambda: OSError(errno.EBUSY, "busy"),
        lambda: OSError(errno.ETXTBSY, "text file busy"),
        lambda: sharing_violation(32),
        lambda: sharing_violation(33),
    ],
    ids=["EAGAIN", "EBUSY", "ETXTBSY", "sharing violation", "lock violation"],
)
def test_a_locked_or_busy_file_is_tried_again(make):
    """It may be free the next time."""
    with virtual_time():
        assert file_operation(failing(make(), make())) == 3


@pytest.mark.req("AG-04")
@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "?"),
        PermissionError(errno.EACCES, "?"),
        OSError(errno.ENOSPC, "?"),
        OSError(errno.EROFS, "?"),
        IsADirectoryError(errno.EISDIR, "?"),
    ],
    ids=lambda error: errno.errorcode[error.errno],
)
def test_a_file_that_is_missing_forbidden_or_without_room_is_not(error):
    """It would be the same the next time."""
    with virtual_time() as time, pytest.raises(type(error)):
        file_operation(failing(error))
    assert time.sleeps == []


@posix
@pytest.mark.req("AG-04")
def test_a_lock_that_is_held_for_a_while_is_waited_for(tmp_path):
    """A real one, of another open file."""
    import fcntl

    path = tmp_path / "file"
    path.touch()
    holder = path.open()
    fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    tries = []

    def locked():
        tries.append(1)
        if len(tries) == 3:
            holder.close()
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    with virtual_time():
        file_operation(locked)
    assert len(tries) == 3


@posix
@pytest.mark.req("AG-04")
def test_a_program_that_runs_is_busy_until_it_ends(tmp_path):
    """ETXTBSY, as the system says it."""
    path = tmp_path / "sleep"
    shutil.copy(shutil.which("sleep"), path)
    process = subprocess.Popen([path, "1000"])
    tries = []

    def overwrite():
        tries.append(1)
        if len(tries) == 2:
            process.kill()
            process.wait()
        with path.open("r+b") as file:
            file.write(b"new")

    with virtual_time():
        file_operation(overwrite)
    assert len(tries) == 2


def test_a_file_is_written_whole_and_keeps_its_permissions(tmp_path):
    """Nothing is left beside it; a link stays one."""
    path = tmp_path / "note"
    write_file(path, b"old")
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    write_file(link, b"new")
    assert (read_file(path), link.is_symlink()) == (b"new", True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "note"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    """And nothing beside it, however often it was tried."""
    path = tmp_path / "note"
    path.write_bytes(b"old")

    def busy(*_):
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr("pathlib.Path.replace", busy)
    with virtual_time(), pytest.raises(OSError, match="busy"):
        write_file(path, b"new")
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])


def test_a_new_file_has_the_permissions_that_any_new_file_has(tmp_path):
    """Not those of a temporary one."""
    write_file(tmp_path / "a", b"")
    (tmp_path / "b").touch()
    modes = {(tmp_path / name).stat().st_mode for name in "ab"}
    assert len(modes) == 1
