"""One command as one attempt: what it raises, how it is ended, what it leaves behind: nothing."""

import errno
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import mainstay
from mainstay import RetryPolicy
from mainstay.drivers.process import windows as process_windows
from mainstay.drivers.process.capture import stream_of
from mainstay.drivers.process.command import failure_of, not_run
from mainstay.drivers.process.group import Group, members
from mainstay.drivers.process.interrupt import Interrupt
from mainstay.drivers.process.options import ProcessOptions
from mainstay.drivers.process.run import run
from mainstay.errors import (
    AttemptTimeout,
    CallCancelled,
    CommandFailed,
    CommandKilled,
    CommandNotRun,
)
from tests.processes import needs_proc, wait_until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="commands of a POSIX shell")

QUIET = ProcessOptions(keep=1000, through=False, grace=0.2)


def sh(script):
    """A command that is a script of the shell's."""
    return ["sh", "-c", script]


def times_out(command, manner, folder, run=run):
    """Runs out of its time, but not before it has made `up`: a busy machine gets more of it."""
    for seconds in (0.3, 3.0, 30.0):
        for each in folder.iterdir():
            each.unlink()
        with mainstay.deadline.within(seconds), pytest.raises(AttemptTimeout) as caught:
            run(command, manner)
        assert 0.0 < caught.value.timeout <= seconds
        if (folder / "up").exists():
            return
    raise AssertionError("it did not come so far")


def _children():
    """The children of this process, zombies too; a worker may have servers of other tests."""
    own = str(os.getpid())
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == own:
                found.add(stat.parent.name)
    return found


@pytest.fixture(autouse=True)
def _no_child_is_left():
    """Neither a process nor a zombie; the conftest sees to threads."""
    before = _children()
    yield
    assert _children() <= before


# --- how it ended ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "error", "code", "told"),
    [
        ("exit 3", CommandFailed, 3, "sh: exit 3"),
        ("exit 126", CommandNotRun, 126, "sh: exit 126"),
        ("exit 127", CommandNotRun, 127, "sh: exit 127"),
        ("kill -9 $$", CommandKilled, 137, "sh: killed by SIGKILL"),
        ("kill -40 $$", CommandKilled, 168, "sh: killed by signal 40"),
    ],
)
def test_how_a_command_failed_is_an_exception(script, error, code, told):
    """With its exit code, and what it wrote where that was kept."""
    with pytest.raises(CommandFailed) as caught:
        run(sh(f"echo why; {script}"), QUIET)
    assert (type(caught.value), caught.value.exit_code, str(caught.value)) == (error, code, told)
    assert stream_of(caught.value.output["tape"], 1) == b"why\n"
    assert caught.value.error_code == f"exit:{code}"


def test_a_command_that_is_not_there_is_told_by_its_name_alone():
    """Arguments may hold secrets."""
    with pytest.raises(CommandNotRun, match=r"^no-such: command not found$") as caught:
        run(["/no/where/no-such", "--password=x"])
    assert caught.value.exit_code == 127


def test_a_command_whose_interpreter_is_missing_says_so(tmp_path):
    """It is there, and is not found: the shell's most puzzling message."""
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(CommandNotRun, match="its interpreter or folder is missing") as caught:
        run([str(script)])
    assert caught.value.exit_code == 126


@pytest.mark.req("AG-04")
@pytest.mark.parametrize("number", [errno.ETXTBSY, errno.EAGAIN, errno.ENOMEM])
def test_what_may_be_gone_the_next_time_is_told_as_it_is(number):
    """A program that is just being written, or too many processes: the errno says it is retried."""
    error = OSError(number, os.strerror(number))
    assert not_run(["a"], error) is error
    assert RetryPolicy().classification(error).retryable


def test_a_status_of_0_is_no_failure():
    """And a null byte in an argument is no command."""
    assert failure_of("x", 0) is None
    with pytest.raises(CommandNotRun, match="embedded null byte"):
        run(["echo", "a\0b"])


def test_a_policy_retries_exits_by_name():
    """As a rule names them; also after they were recorded."""
    policy = RetryPolicy(retry_on=["exit:75"], never_retry_on=["exit:2"])
    judged = [policy.classification(CommandFailed("x", code)) for code in (75, 2, 1)]
    assert [each.retryable for each in judged] == [True, False, False]
    plain = RetryPolicy()
    failures = [CommandFailed("x", 1), CommandKilled("x", 9), CommandNotRun("x", 127)]
    assert [plain.classification(each).retryable for each in failures] == [True, False, False]


# --- ending it ------------------------------------------------------------------------------------


@needs_proc
def test_the_time_of_the_attempt_ends_it(tmp_path):
    """AttemptTimeout, as of any attempt; its family too."""
    script = f"echo $$ > {tmp_path}/pid; sleep 1000 & touch {tmp_path}/up; wait"
    times_out(sh(script), QUIET, tmp_path)
    assert not _is_there(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("make", [threading.Event, Interrupt])
def test_a_cancel_event_ends_it(tmp_path, make):
    """One of the standard library's is looked at; one of ours tells."""
    cancel = make()
    wait = f"touch {tmp_path}/up; exec sleep 1000"
    timer = threading.Thread(
        target=lambda: (wait_until((tmp_path / "up").exists, "it"), cancel.set())
    )
    timer.start()
    with pytest.raises(CallCancelled):
        run(sh(wait), ProcessOptions(cancel=cancel, grace=0.2))
    timer.join()
    with pytest.raises(CallCancelled):
        run(sh(f"touch {tmp_path}/again"), ProcessOptions(cancel=cancel))
    assert not (tmp_path / "again").exists()


@needs_proc
@pytest.mark.parametrize("deaf", ["", "trap '' TERM; "], ids=["willing", "deaf"])
def test_an_exception_out_of_the_blue_ends_it_too(tmp_path, deaf):
    """KeyboardInterrupt in a program that uses the library."""
    script = f"{deaf}echo $$ > {tmp_path}/pid; touch {tmp_path}/up; while :; do sleep 0.05; done"

    def strike():
        wait_until((tmp_path / "up").exists, "it")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=strike)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(sh(script), QUIET)
    thread.join()
    assert not _is_there(int((tmp_path / "pid").read_text()))


@needs_proc
def test_an_exception_while_it_is_started_ends_it_too(monkeypatch):
    """Ctrl+C after the fork, and before the caller has the number of the process."""

    class Struck(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            started.append(self)  # as a traceback would keep it
            raise KeyboardInterrupt

    started, before = [], _children()
    monkeypatch.setattr("mainstay.drivers.process.group.subprocess.Popen", Struck)
    with pytest.raises(KeyboardInterrupt):
        run(sh("exec sleep 1000"), ProcessOptions(grace=0.2))
    assert not _is_there(started[0].pid)
    assert _children() <= before
    started[0].poll()


def test_an_exception_before_anybody_reads_leaves_no_pipe_open(monkeypatch):
    """Ctrl+C just after the start: nobody has taken its output yet."""

    def strike(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("mainstay.drivers.process.run.pumps_of", strike)
    before = len(list(Path("/dev/fd").iterdir()))
    with pytest.raises(KeyboardInterrupt):
        run(sh("exec sleep 1000"), QUIET)
    assert len(list(Path("/dev/fd").iterdir())) == before


@needs_proc
def test_a_command_and_its_family_have_time_to_clean_up(tmp_path):
    """TERM comes first, to everybody; who is still at it within the grace time is not killed."""
    loop = f"touch {tmp_path}/up; while :; do sleep 0.05; done"
    child = f"trap 'sleep 0.3; touch {tmp_path}/child; exit' TERM; {loop}"
    parent = f'trap "touch {tmp_path}/parent; wait; exit" TERM; sh -c "{child}" & wait'
    times_out(sh(parent), ProcessOptions(grace=60.0), tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"up", "child", "parent"}


@needs_proc
def test_a_stopped_command_is_ended_all_the_same():
    """It could not hear TERM while it is stopped."""
    with mainstay.deadline.within(1.5), pytest.raises(AttemptTimeout):
        run(sh("kill -STOP $$"), ProcessOptions(grace=60.0))


@needs_proc
def test_what_leaves_the_group_does_not_hold_up_the_attempt(tmp_path):
    """A daemon with a session of its own keeps our pipe open: what it writes later is its own."""
    script = (
        "import subprocess; p = subprocess.Popen(['sleep', '1000'], start_new_session=True);"
        f" open('{tmp_path}/pid', 'w').write(str(p.pid)); print('started')"
    )
    output = run([sys.executable, "-c", script], QUIET)
    assert stream_of(output["tape"], 1) == b"started\n"
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@needs_proc
def test_without_a_shell_to_lead_the_command_leads_its_group(monkeypatch):
    """As in an image that has none."""

    def spawn(*_args, **_options):
        raise FileNotFoundError(errno.ENOENT, "no such file")

    monkeypatch.setattr(os, "posix_spawn", spawn)
    assert run(["true"]) == {"tape": b"", "lost": ""}
    with mainstay.deadline.within(1.5), pytest.raises(AttemptTimeout):
        run(sh("trap '' TERM; sleep 1000 & wait"), QUIET)


def test_without_proc_the_group_is_ended_with_its_command(monkeypatch):
    """Elsewhere nobody can list a group: whoever is left is killed when the command has ended."""
    monkeypatch.setattr("mainstay.drivers.process.group.members", lambda _: None)
    output = run(sh("sleep 1000 & echo $!"), QUIET)
    pid = int(stream_of(output["tape"], 1))
    assert wait_until(lambda: not _is_there(pid), "its end")


@needs_proc
def test_the_leader_is_deaf_and_dies_with_its_maker():
    """It outlives TERM and Ctrl+Z, and is told apart from the others."""
    group = Group(0.2, lambda _: None)
    group.start(["sleep", "1000"])
    assert len(members(group.id)) == 2
    for number in (signal.SIGTSTP, signal.SIGQUIT, signal.SIGTERM):
        group.signal(number)
    group.signal(signal.SIGCONT)
    wait_until(group.is_empty, "the command's end")
    assert len(members(group.id)) == 1
    assert group.was_interrupted() == 0
    group.signal(signal.SIGINT)
    wait_until(group.was_interrupted, "the leader's end")
    group.close()
    assert not members(group.id)


def test_the_exit_of_a_child_that_somebody_else_reaped_is_unknown(monkeypatch):
    """Where SIGCHLD is ignored nobody hears how a command ended: that is no success."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(CommandFailed) as caught:
            run(["true"])
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert caught.value.exit_code == 255


def _is_there(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


# --- Windows, as far as it can be told here -------------------------------------------------------


class Sent(list):
    """The signals that were sent, and whether a command was started."""

    def __init__(self):
        super().__init__()
        self.started = threading.Event()


@pytest.fixture
def windows(monkeypatch):
    """The way that Windows goes, with what this system has: what was sent to whom it started."""
    sent = Sent()
    real = subprocess.Popen

    class Popen(real):
        def __init__(self, command, creationflags=0, **options):
            assert creationflags == 0x200
            super().__init__(command, **options)
            sent.started.set()

        def send_signal(self, number):
            sent.append(number)
            super().send_signal(signal.SIGTERM if number == 1 else number)

    monkeypatch.setattr(process_windows.subprocess, "Popen", Popen)
    monkeypatch.setattr(process_windows.subprocess, "run", lambda *a, **_: sent.append(a[0][0]))
    return sent


@pytest.mark.req("AG-09.fallback")
def test_on_windows_a_command_is_asked_to_end_and_then_ended(windows, tmp_path):
    """CTRL_BREAK, the grace time, taskkill of its tree; and nothing where it ends by itself."""
    assert stream_of(process_windows.run(sh("echo hi"), QUIET)["tape"], 1) == b"hi\n"
    with pytest.raises(CommandFailed, match="exit 3"):
        process_windows.run(sh("exit 3"), QUIET)
    with pytest.raises(CommandNotRun):
        process_windows.run(["no-such-command"], QUIET)
    assert windows == []
    with mainstay.deadline.within(1.0), pytest.raises(AttemptTimeout):
        process_windows.run(["sleep", "1000"], ProcessOptions(grace=60.0))
    assert windows == [1]
    deaf = sh(f"trap '' TERM; touch {tmp_path}/up; while :; do sleep 0.1; done")
    times_out(deaf, QUIET, tmp_path, process_windows.run)
    assert windows[-3:] == [1, "taskkill", signal.SIGKILL]


@pytest.mark.req("AG-09.fallback")
def test_on_windows_a_cancel_event_ends_it(windows):
    """Before it began, or while it runs."""
    cancel = threading.Event()
    thread = threading.Thread(target=lambda: windows.started.wait(30.0) and cancel.set())
    thread.start()
    for _ in range(2):
        with pytest.raises(CallCancelled):
            process_windows.run(["sleep", "1000"], ProcessOptions(cancel=cancel, grace=60.0))
    thread.join()
    assert windows == [1]
