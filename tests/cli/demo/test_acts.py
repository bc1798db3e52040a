"""What `mainstay demo` shows after its calls: circuits, a charge, a person, the audit log."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest

from mainstay import CircuitBreaker, CircuitState
from mainstay.audit import replay_log, verify_log
from mainstay.cli.demo import command as places
from mainstay.cli.demo.command import PREFIX, folder_for
from mainstay.cli.demo.summary import Lines, frame
from mainstay.cli.demo.tally import Tally
from mainstay.cli.demo.traffic import (
    BREAKER,
    OPERATIONS,
    REFUSED,
    Traffic,
    break_circuit,
    prove,
)
from mainstay.cli.screen.console import Screen
from mainstay.drivers.process.interrupt import Interrupt
from mainstay.errors import CallCancelled
from mainstay.events import CallRefused, CircuitStateChanged
from tests.processes import wait_until

ROUND = ["closed", "open", "half-open", "closed"]
FEW = ("demo", "--calls", "8", "--seed", "1")
TEMPORARY = "TMPDIR"


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """One run with --json and --keep: what it said, and its folder."""
    folder = tmp_path_factory.mktemp("demo") / "kept"
    done = subprocess.run(
        [sys.executable, "-m", "mainstay", *FEW, "--json", "--keep", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout), folder


def test_every_circuit_opens_and_recovers(kept):
    """Each operation's circuit goes round once, and refuses calls while it is open."""
    circuits = kept[0]["circuits"]
    assert (circuits["opened"], circuits["recovered"]) == (4, 4)
    each = {"states": ROUND, "refused": REFUSED}
    assert circuits["operations"] == dict.fromkeys(OPERATIONS, each)


def test_two_calls_with_one_key_charge_once(kept):
    """The service counted one charge; the second call returned the first one's receipt."""
    assert kept[0]["charge"] == {
        "order": "order-7",
        "calls": 2,
        "requests": 2,
        "charged": 1,
        "receipts": ["receipt 1", "receipt 1"],
        "replayed": True,
    }


def test_a_person_resolves_what_was_given_up(kept):
    """The item is raised, decided by the demo's operator, closed, and the order charged."""
    inbox = kept[0]["inbox"]
    assert "charge with key 'order-8': gave up after 3 attempts" in inbox["raised"]
    assert (inbox["decision"], inbox["by"]) == ("retry", "demo-operator")
    assert inbox["result"].startswith("counted attempts are forgotten")
    assert (inbox["charged"], inbox["still_open"]) == (1, 0)


def test_the_log_of_the_demo_verifies_and_replays(kept):
    """The figures are those of the log itself, which was kept."""
    said, folder = kept
    log = folder / "audit.jsonl"
    verdict, replay = verify_log(log, heads=folder / "heads.jsonl"), replay_log(log)
    assert verdict.ok
    assert replay.ok
    assert said["audit"] == {
        "ok": True,
        "verified_records": verdict.records,
        "replayed_calls": replay.calls,
        "replayed_decisions": replay.decisions,
        "unfinished_calls": 0,
        "unproved": 0,
    }
    assert said["kept_in"] == str(folder)


def test_the_same_seed_gives_the_same_figures(kept, run):
    """Of the acts too, to the number of records; only the folder differs.

    The demo runs in real time: if the machine stands still, an attempt is cut by its timeout, and
    that run has other figures than any other one.
    """
    parts = ("circuits", "charge", "inbox", "audit", "retries", "failures")
    seen = [{part: kept[0][part] for part in parts}]
    for _ in range(4):
        again = json.loads(run(*FEW, "--json").stdout)
        assert again["kept_in"] is None
        figures = {part: again[part] for part in parts}
        if figures in seen:
            return
        seen.append(figures)
    assert seen == seen[:1]


def test_a_changed_log_is_found(kept, tmp_path):
    """The proof is of the log, not of good intentions: one changed record, and it fails."""
    for name in ("audit.jsonl", "heads.jsonl"):
        text = (kept[1] / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("order-8", "order-9"), encoding="utf-8")
    assert prove(kept[1])["ok"] is True
    assert prove(tmp_path)["ok"] is False


def test_a_log_that_is_not_right_ends_the_demo_with_1(monkeypatch, run_here, kept, tmp_path):
    """Who runs it in a script can tell."""
    text = (kept[1] / "audit.jsonl").read_text(encoding="utf-8")
    (tmp_path / "audit.jsonl").write_text(text.replace("order-8", "order-9"), encoding="utf-8")
    (tmp_path / "heads.jsonl").touch()
    monkeypatch.setattr("mainstay.cli.demo.traffic.prove", lambda _: prove(tmp_path))
    code, output = run_here(*FEW)
    assert code == 1
    assert re.search(r"ok +no\nproblem +record ", output)


@pytest.fixture
def run_here(capsys):
    """Runs the command in this process."""
    from mainstay.cli import guard

    def run(*arguments):
        return guard.run(list(arguments)), capsys.readouterr().out

    return run


def test_a_folder_with_something_in_it_is_refused(kept, run):
    """A second run would meet the keys of the first one; and nobody's files are mixed up."""
    done = run(*FEW, "--keep", str(kept[1]))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert "Traceback" not in done.stderr


# --- what is shown --------------------------------------------------------------------------------


def test_a_person_watches_the_acts(terminal, tmp_path):
    """Circuits change on the live screen; the summary tells of charge, person and log."""
    screen = terminal(*FEW, **{TEMPORARY: str(tmp_path)})
    assert screen.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.text)
    assert "circuit of search: closed → open" in text
    assert "the service is down" in text
    summary = text[text.rindex("8 calls in ") :]
    assert summary.count(" → ".join(ROUND)) == len(OPERATIONS)
    assert re.search(r"receipts +receipt 1, receipt 1\s+replayed +yes", summary)
    assert re.search(r"requests +2\s+charged +1\s", summary)
    assert re.search(r"decision +retry\s+by +demo-operator\s+why +the bank is back", summary)
    assert re.search(r"ok +yes\s+verified records +\d+\s+replayed calls +\d+", summary)
    assert re.search(r"replayed decisions +\d+\s+unfinished calls +0\s+unproved +0", summary)
    assert re.search(rf"were in \S*{PREFIX}\w+, which is removed", summary.replace("\n", ""))
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_gets_a_line_for_each_act(run, tmp_path):
    """Each change of a circuit once, in order, and the count of the calls not again and again."""
    done = run(*FEW, **{TEMPORARY: str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")})
    assert done.returncode == 0
    assert done.stdout.count(" 8 of 8 calls: ") == 1
    for name in OPERATIONS:
        changes = re.findall(rf"circuit of {name}: (\S+) → (\S+)", done.stdout)
        assert changes == list(pairwise(ROUND))
    assert done.stdout.index("order-7 is charged") < done.stdout.index("order-8 cannot be charged")
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == [], "neither a temporary folder nor the user's own store"


def test_the_screen_while_the_service_is_down(tmp_path):
    """The table has each circuit's state; what was said of the act is below it."""
    traffic = Traffic(10, 1, tmp_path)
    traffic.begun, traffic.service.is_down = 10, True
    traffic.tally.lines.append("the service goes down for every caller")
    traffic.tally(
        CircuitStateChanged(operation="search", from_state="closed", to_state="half_open")
    )
    screen = Screen()
    with screen.capture() as capture:
        screen.print(frame(traffic))
    text = capture.get()
    assert re.search(r"search +eager +half-open", text)
    assert "the service goes down for every caller" in text
    assert "   the service is down" in text
    traffic.engine.close()


def test_lines_are_said_once(tmp_path, capsys):
    """However often the display is asked."""
    traffic = Traffic(10, 1, tmp_path)
    lines = Lines()
    traffic.tally.lines.append("first")
    lines(traffic)
    traffic.tally.lines.append("second")
    lines(traffic)
    lines(traffic)
    assert capsys.readouterr().out.split() == ["first", "second"]
    traffic.engine.close()


# --- circuits -------------------------------------------------------------------------------------


def test_circuits_of_others_are_not_counted():
    """That of the charges is none of the table's."""
    tally = Tally(["search"])
    tally(CircuitStateChanged(operation="charge", to_state="open"))
    tally(CallRefused(operation="charge"))
    tally(CallRefused(operation="search"))
    assert (tally.states, tally.refused) == ({"search": ["closed"]}, {"search": 1})
    assert tally.lines == []


def test_a_circuit_that_does_not_open_is_not_called_for_ever():
    """The calls are bounded, whatever the circuit does."""
    circuit, calls = CircuitBreaker("search", BREAKER), []

    async def call(name):
        calls.append(name)

    asyncio.run(break_circuit(circuit, call))
    assert circuit.state is CircuitState.CLOSED
    assert len(calls) == 10 + REFUSED


def test_an_interrupted_demo_charges_nothing(tmp_path):
    """No charge, no operator: a user who presses Ctrl+C does not wait for them."""
    traffic = Traffic(10, 1, tmp_path)
    traffic.wire.fetch = lambda *_: pytest.fail("it was charged")
    traffic.stop.set()
    with traffic.engine:
        with pytest.raises(CallCancelled):
            traffic.resolve("order-8")
        assert traffic.engine.operators.is_empty


# --- the folder -----------------------------------------------------------------------------------


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    """A folder of our own for temporary ones."""
    monkeypatch.setattr(places.tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ZeroDivisionError])
def test_the_folder_is_gone_whatever_happened(temporary, error):
    """Also with something in it."""
    try:
        with folder_for(None) as folder:
            (folder / "store.db").touch()
            assert folder.parent == temporary
            if error is not None:
                raise error
    except (KeyboardInterrupt, ZeroDivisionError):
        pass
    assert list(temporary.iterdir()) == []


def test_ctrl_c_while_the_folder_is_made_or_removed_waits(temporary, monkeypatch):
    """The folder is gone, and the interrupt is not lost: the command looks at it afterwards."""
    make, remove = places.tempfile.mkdtemp, places.shutil.rmtree

    def interrupted_make(**options):
        signal.raise_signal(signal.SIGINT)
        return make(**options)

    def interrupted_remove(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        remove(*arguments, **options)

    monkeypatch.setattr(places.shutil, "rmtree", interrupted_remove)
    with Interrupt() as removing, folder_for(None):
        assert not removing.is_set()
    monkeypatch.setattr(places.tempfile, "mkdtemp", interrupted_make)
    with Interrupt() as making, folder_for(None):
        assert making.number == signal.SIGINT
    assert removing.number == signal.SIGINT
    assert list(temporary.iterdir()) == []


def test_a_thread_that_still_writes_does_not_keep_the_folder(temporary, monkeypatch):
    """What is put into it while it is removed is removed too."""
    remove, rounds = places.shutil.rmtree, []

    def beaten(folder, **options):
        remove(folder, **options)
        rounds.append(folder)
        if len(rounds) < 3:
            folder.mkdir()

    monkeypatch.setattr(places.shutil, "rmtree", beaten)
    with folder_for(None):
        pass
    assert list(temporary.iterdir()) == []


def test_a_thread_has_a_folder_too(temporary):
    """Signals are the main thread's; the folder is made and removed all the same."""
    seen = []

    def use():
        with folder_for(None) as folder:
            seen.append(folder.is_dir())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join(60)
    assert seen == [True]
    assert list(temporary.iterdir()) == []


@pytest.mark.req("UVS-6", "IT-041-15")
@pytest.mark.parametrize(
    "moment",
    [
        "of 8 calls",
        "the service goes down",
        "circuit of report.export",
        "the service is back",
        "order-7 is charged",
        "order-8 cannot be charged",
        "the audit log is verified",
    ],
)
def test_ctrl_c_in_every_act_leaves_nothing(terminal, tmp_path, moment):
    """No process, no folder, no traceback; exit code 130, unless it had just come to its end."""
    screen = terminal(*FEW, **{TEMPORARY: str(tmp_path)})
    screen.wait_for(moment)
    screen.press(b"\x03")
    is_last = moment.startswith("the audit")
    ended = (0, 130, -signal.SIGINT)  # the last: Python has given up its handler by then
    assert screen.wait() in (ended if is_last else (130,))
    assert "Traceback" not in screen.text
    assert not screen.has_left_something()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("UVS-6")
@pytest.mark.parametrize("pause", [0.0, 0.003, 0.05])
@pytest.mark.parametrize("moment", ["the service goes down", "order-8 cannot be charged"])
def test_ctrl_c_twice_does_not_disturb_the_tidying_up(terminal, tmp_path, moment, pause):
    """It ends soon and leaves nothing; a second one that comes too late ends Python at once."""
    screen = terminal(*FEW, **{TEMPORARY: str(tmp_path)})
    screen.wait_for(moment)
    screen.press(b"\x03")
    time.sleep(pause)
    screen.press(b"\x03")
    assert screen.wait(60) in (130, -signal.SIGINT)
    assert "Traceback" not in screen.text
    assert not screen.has_left_something()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("presses", [1, 3])
def test_an_interrupt_ends_the_calls_and_leaves_nothing(tmp_path, presses):
    """However often it comes: the first ends the run, no other disturbs the tidying up."""
    before, seen = set(threading.enumerate()), signal.getsignal(signal.SIGINT)

    def press(traffic):
        if traffic.begun > 2:
            for _ in range(presses):
                signal.raise_signal(signal.SIGINT)

    with Interrupt() as stop:
        traffic = Traffic(300, 1, tmp_path, stop)
        assert traffic.run(press) is False
    assert (stop.number, stop.times >= presses) == (signal.SIGINT, True)
    assert 2 < traffic.begun < 300
    assert traffic.acts == {}
    assert set(threading.enumerate()) <= before | _renewals()
    assert signal.getsignal(signal.SIGINT) is seen


def _renewals():
    """One thread renews the leases of the whole process, once there are any."""
    return {each for each in threading.enumerate() if each.daemon}


@pytest.mark.skipif(os.name == "nt", reason="SIGTERM ends a process at once there")
def test_sigterm_leaves_nothing_either(tmp_path):
    """A supervisor that stops the demo finds 143, no output and no folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mainstay", "demo", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {TEMPORARY: str(tmp_path)},
    )
    wait_until(lambda: any(tmp_path.glob("*/audit.jsonl")), "the audit log")
    process.terminate()
    assert process.communicate(timeout=20) == (b"", b"")
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_keeps_what_is_to_be_kept(terminal, tmp_path):
    """With --keep the files are there, and their place is said."""
    screen = terminal(*FEW, "--keep", str(tmp_path / "kept"), COLUMNS="200")
    screen.wait_for("the service goes down")
    screen.press(b"\x03")
    assert screen.wait() == 130
    assert f"its files are in {tmp_path / 'kept'}" in screen.text
    assert (tmp_path / "kept" / "audit.jsonl").exists()


def test_a_reader_that_leaves_leaves_no_folder(tmp_path):
    """`mainstay demo | head -1`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mainstay", *FEW],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {TEMPORARY: str(tmp_path)},
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(60) == 141
    process.stderr.close()
    assert list(tmp_path.iterdir()) == []
