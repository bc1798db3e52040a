"""`mainstay audit verify | tail | keygen`, as people and programs use them."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from mainstay.audit import AuditLog, verify_log
from mainstay.audit.keys import Signer
from mainstay.cli import guard
from mainstay.cli.app import app
from mainstay.core.audit.chain import Entry, seal
from mainstay.events import AttemptFailed, CallFailed, RecordsLost, encode
from mainstay.stores.jsonl.journal import JsonlJournal


def invoke(*arguments):
    """The exit code and output of `mainstay audit`."""
    done = CliRunner().invoke(app, ["audit", *map(str, arguments)], catch_exceptions=False)
    return done.exit_code, done.output


def write(where, count=30, **options):
    log = AuditLog(where, **options)
    for number in range(1, count + 1):
        log(
            AttemptFailed(
                operation=f"op-{number % 3}",
                attempt_number=number,
                max_attempts=99,
                exception_type="ConnectionError",
                exception_message=f"failure {number}",
                timestamp="2026-01-02T03:04:05.678901Z",
            )
        )
        if number % 7 == 0:
            assert log.flush(60)
    log.close()


@pytest.fixture
def log(tmp_path):
    where = tmp_path / "audit.jsonl"
    write(where, heads=tmp_path / "heads")
    return where


def test_verify_says_what_it_has_verified(log, tmp_path):
    """Exit code 0, how much, and what it cannot know without heads from outside."""
    code, out = invoke("verify", log)
    assert code == 0
    assert "30 records in 7 blocks, as they were written\n  format: version 2\n" in out
    assert "--heads FILE" in out
    code, out = invoke("verify", log, "--heads", tmp_path / "heads")
    assert (code, "--heads" in out) == (0, False)
    assert "heads that agree: 2" in out
    code, out = invoke("verify", log, "--json")
    found = json.dumps({"log": str(log), **verify_log(log).to_dict()})
    assert json.loads(out) == json.loads(found)


def test_verify_names_the_first_bad_record_and_exits_1(log):
    """And says what to do."""
    log.write_bytes(log.read_bytes().replace(b'"failure 13"', b'"failure 31"'))
    code, out = invoke("verify", log)
    assert code == 1
    assert "record 13 (block 3): the record is not what was written" in out
    assert "7 records in 2 blocks before that verify" in out
    assert "next: keep the log" in out
    assert "compare record 13" in out
    code, out = invoke("verify", log, "--json")
    assert code == 1
    assert json.loads(out)["first_bad"] == 13


def test_verify_says_that_the_tail_was_cut(log, tmp_path):
    """With heads from outside: how much there was, and when."""
    lines = log.read_bytes().splitlines(keepends=True)
    headers = [n for n, line in enumerate(lines) if b'","block":' in line[:90]]
    log.write_bytes(b"".join(lines[: headers[-2]]))
    assert invoke("verify", log)[0] == 0
    code, out = invoke("verify", log, "--heads", tmp_path / "heads")
    assert code == 1
    assert "ends with record 28, and had 30" in out
    assert "look for a copy that has record 29" in out


def test_verify_shows_what_may_be_missing(tmp_path):
    """Lost records with their reason, and writers that did not close; bad only if asked."""
    where, now = tmp_path / "audit.jsonl", "2026-01-02T03:04:05Z"
    lost = encode(RecordsLost(records=5, first_at=now, last_at=now, reason="the disk is full"))

    def make(tail, _):
        return Entry(seal(tail, [lost], writer="web-3:4711:a", time=now, log="a1", lost=5))

    journal = JsonlJournal(where)
    for _ in range(2):
        journal.append(make)
    code, out = invoke("verify", where)
    assert code == 0
    assert "as they were written; some may be missing" in out
    assert "records that were lost before they could be written: 10" in out
    assert f"    5 from {now} to {now}: the disk is full" in out
    assert f"did not close: web-3, process 4711, since {now}; up to 100 ms" in out
    assert invoke("verify", where, "--strict")[0] == 1
    code, out = invoke("verify", where, "--json")
    found = json.loads(out)
    assert (found["lost"], found["losses"][0]["reason"]) == (10, "the disk is full")
    assert found["unclosed"][0]["pid"] == 4711
    code, out = invoke("stats", where)
    assert "10 records were lost before they could be written, and are in no figure" in out
    assert "5 records were lost from" in invoke("tail", where)[1]
    assert invoke("replay", where)[0] == 0


def test_verify_knows_whether_a_writer_runs_on_this_machine(tmp_path):
    """Elsewhere it cannot know."""
    where = tmp_path / "audit.jsonl"
    log = AuditLog(where)
    log(CallFailed(operation="first"))
    assert log.flush(60)
    assert "it runs still" in invoke("verify", where)[1]
    log.close()
    assert "did not close" not in invoke("verify", where)[1]
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(60)

    def make(tail, _):
        writer = f"{socket.gethostname()}:{gone.pid}:a"
        return Entry(seal(tail, [], writer=writer, time="now"))

    JsonlJournal(where).append(make)
    assert "may be missing" in invoke("verify", where)[1]


def test_verify_lists_some_of_many_writers(tmp_path):
    """And says how many there are."""
    journal = JsonlJournal(tmp_path / "audit.jsonl")
    for number in range(12):

        def make(tail, _, number=number):
            return Entry(seal(tail, [], writer=f"host:{number}:a", time="now", log="a1"))

        journal.append(make)
    out = invoke("verify", journal.path)[1]
    assert out.count("did not close:") == 10
    assert "2 more writers did not close" in out


def test_verify_names_an_older_format():
    """It states less."""
    where = Path(__file__).parents[2] / "stored" / "v1" / "jsonl" / "audit.jsonl"
    out = invoke("verify", where)[1]
    assert "format: version 1\n    blocks of version 1 do not state losses" in out


def test_verify_with_a_key(tmp_path):
    """What is signed, and how much is not yet; a wrong key says so."""
    code, out = invoke("keygen", tmp_path / "audit.pem")
    assert code == 0
    assert "audit.pub.pem" in out
    assert Signer(tmp_path / "audit.pem").id in out
    assert stat.S_IMODE((tmp_path / "audit.pem").stat().st_mode) == 0o600
    where = tmp_path / "audit.jsonl"
    write(where, key=tmp_path / "audit.pem")
    log = AuditLog(where)
    log(CallFailed(operation="later"))
    log.close()
    code, out = invoke("verify", where, "--public-key", tmp_path / "audit.pub.pem")
    assert code == 0
    assert "signed up to record 30; 1 later ones are not signed yet" in out
    code, out = invoke("keygen", tmp_path / "other.pem", "--json")
    other = json.loads(out)
    assert other["public_key"] == str(tmp_path / "other.pub.pem")
    assert other["path"] == str(tmp_path / "other.pem")
    code, out = invoke("verify", where, "--public-key", other["public_key"])
    assert code == 1
    assert "check that this is the right key" in out


def test_verify_a_database_by_its_path(tmp_path):
    """A SQLite file is known by what is in it."""
    write(f"sqlite:///{tmp_path}/app.db")
    assert invoke("verify", tmp_path / "app.db")[0] == 0
    assert invoke("verify", f"sqlite:///{tmp_path}/app.db")[0] == 0


def test_verify_says_what_was_pruned_and_what_was_torn(tmp_path):
    """What is no fault is said, too."""
    where = tmp_path / "audit.jsonl"
    write(where, rotate=1000, keep=0.000001)
    with where.open("ab") as file:
        file.write(b'{"link":"half a line')
    code, out = invoke("verify", where)
    assert code == 0
    assert "older ones were pruned" in out
    assert "writes that a kill cut off, and that no caller got an answer to: 1" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "no.jsonl"], "there is no audit log at no.jsonl"),
        (["tail", "redis://localhost"], "no audit log can be at redis://"),
        (["verify", "LOG", "--heads", "no.heads"], "no.heads"),
        (["verify", "LOG", "--public-key", "no.pem"], "no.pem"),
        (["keygen", "LOG"], "is there already"),
    ],
)
def test_a_mistake_is_told_with_what_to_do(arguments, message, log, capsys):
    """Exit code 2, on stderr, without a traceback."""
    given = [str(log) if each == "LOG" else each for each in arguments]
    assert guard.run(["audit", *given]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert "Traceback" not in said.err


def test_a_file_that_is_no_log_is_no_log(tmp_path):
    """Named at its first record, not a crash."""
    other = tmp_path / "notes.txt"
    other.write_text("dear diary\n" * 3, "utf-8")
    code, out = invoke("verify", other)
    assert code == 1
    assert "the block's header cannot be read" in out
    assert "check the name: a file that never was an audit log looks like this too" in out


def test_tail_shows_the_last_records(log):
    """Number, time, and what happened, as the log would say it."""
    code, out = invoke("tail", log, "-n", 2)
    assert code == 0
    start = "2026-01-02 03:04:05.678  op-{}: attempt {} of 99 failed (; ): ConnectionError: failure"
    assert out.splitlines() == [
        f"      29  {start.format(2, 29)} 29",
        f"      30  {start.format(0, 30)} 30",
    ]
    assert len(invoke("tail", log)[1].splitlines()) == 20
    assert invoke("tail", log, "-n", 0)[1] == ""
    assert len(invoke("tail", log, "-n", 500)[1].splitlines()) == 30


def test_tail_of_one_operation(log):
    """Or of a pattern; as many as asked for, however far back."""
    _, out = invoke("tail", log, "--operation", "op-1", "-n", 3, "--json")
    assert [each["number"] for each in json.loads(out)] == [22, 25, 28]
    assert json.loads(out)[0]["event"]["exception_message"] == "failure 22"
    assert len(invoke("tail", log, "--operation", "op-[12]", "-n", 99)[1].splitlines()) == 20
    assert invoke("tail", log, "--operation", "none")[1] == ""


def test_tail_shows_what_a_terminal_would_obey(tmp_path):
    """A message may hold anything; the screen is not its own."""
    where = tmp_path / "audit.jsonl"
    log = AuditLog(where)
    log(CallFailed(operation="o", final_exception_message="\x1b[2Jgone\r\nnext"))
    log.close()
    _, out = invoke("tail", where)
    assert "\\x1b[2Jgone\\r\\nnext" in out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 1


def test_tail_shows_records_of_a_version_to_come(tmp_path):
    """What this version does not know has a name and an operation all the same."""
    where = tmp_path / "audit.jsonl"
    write(where, count=1)
    from mainstay.core.audit.chain import Entry, seal
    from mainstay.stores.jsonl.journal import JsonlJournal

    journal = JsonlJournal(where)
    newer = [b'{"event_type":"of_tomorrow","operation":"x"}', b"[1,2]"]
    journal.append(lambda tail, _: Entry(seal(tail, newer, writer="w", time="t")))
    journal.close()
    _, out = invoke("tail", where, "-n", 2)
    assert "x: of_tomorrow" in out
    assert "[1,2]" in out


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
def test_tail_follows_until_ctrl_c(terminal, tmp_path):
    """Records appear as they are written, by whoever writes them."""
    where = tmp_path / "audit.jsonl"
    write(where, count=3)
    shown = terminal("audit", "tail", str(where), "--follow", "-n", "1")
    shown.wait_for("failure 3")
    log = AuditLog(where)
    log(CallFailed(operation="later", reason="because"))
    log.close()
    shown.wait_for("later: gave up")
    assert "failure 2" not in shown.text
    shown.press(b"\x03")
    assert shown.wait() == 130


def test_following_in_json_is_a_line_for_each(tmp_path, monkeypatch):
    """A program reads them one by one."""
    where = tmp_path / "audit.jsonl"
    write(where, count=2)
    from mainstay.cli.audit import tail as audit_tail

    stop = threading.Event()

    def once(journal, last):
        stop.set()
        return iter(())

    monkeypatch.setattr(audit_tail, "_coming", once)
    code, out = invoke("tail", where, "--follow", "--json")
    assert code == 0
    assert stop.is_set()
    assert [json.loads(line)["number"] for line in out.splitlines()] == [1, 2]
