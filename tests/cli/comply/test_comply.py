"""`mainstay comply` on files, stores and audit logs that generated runs leave behind."""

import json
import os
import random
import threading
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from msgspec.structs import replace

from mainstay.audit import AuditLog
from mainstay.cli import guard
from mainstay.core.base.change import Change
from mainstay.core.base.spaces import Space
from mainstay.core.base.timestamps import stamp
from mainstay.core.comply.check import RULES
from mainstay.core.pipeline.ledger_file import encode as encode_ledger
from mainstay.core.pipeline.state import encode as encode_run
from mainstay.core.telemetry.record import Telemetry, first_try
from mainstay.core.telemetry.record import encode as encode_telemetry
from mainstay.runtime.private_files import LARGEST
from mainstay.stores.open import open_store
from tests.core.comply.runs import PIPELINE, telemetry_of, world

TELEMETRY = "releases/focus-telemetry.json"
LOG = "docs/reports/audit/pipeline_retry_log.json"
LEDGER = "docs/reports/audit/versioning_ledger.json"
STORE = "sqlite:///etl.db"
pytestmark = pytest.mark.req("PL-13")


@pytest.fixture
def found():
    """A world with a halted and a finished run, and entries in both ledgers."""
    return world(7, runs=4)


@pytest.fixture
def folder(tmp_path, monkeypatch, found):
    """A folder with all that the world leaves behind, at the places of the document."""
    monkeypatch.chdir(tmp_path)
    write(TELEMETRY, encode_telemetry(found.telemetry))
    write(LOG, encode_ledger(found.retry_log))
    write(LEDGER, encode_ledger(found.versioning))
    return tmp_path


def write(path, data):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(data)


def put(store, space, key, value):
    store.transact(space, key, lambda _value, _now: (Change(value), None))


def fill(found, open_runs=()):
    """A store with the runs."""
    store = open_store(STORE)
    for run in found.runs:
        put(store, Space.RUNS, f"{run.pipeline}/{run.run}", encode_run(run))
    for run in open_runs:
        put(store, Space.OPEN_RUNS, f"{run.pipeline}/{run.run}", b"me")
    store.close()


def comply(capsys, *arguments):
    code = guard.run(["comply", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def findings(capsys, *arguments):
    code, out, err = comply(capsys, *arguments, "--json")
    assert err == ""
    document = json.loads(out)
    assert document["ok"] == (not document["findings"])
    assert code == (1 if document["findings"] else 0)
    return document["findings"]


# --- clean ----------------------------------------------------------------------------------------


def test_the_places_of_the_document_are_read_if_nothing_is_named(folder, capsys, found):
    """A clean run exits with 0, and the output shows what was checked."""
    code, out, err = comply(capsys)
    entries = len(found.retry_log.entries) + len(found.versioning.entries)
    assert (code, err) == (0, "")
    records = len(found.telemetry.records)
    assert out == (
        f"findings: 0; runs: 4, telemetry records: {records}, ledger entries: {entries},"
        " audit records: 0\n"
    )


def test_the_telemetry_of_every_release_is_read(folder, capsys, found):
    """A release has a file of its own, and the ledgers are of all of them."""
    records = found.telemetry.records
    write("releases/v10.3.0/focus-telemetry.json", encode_telemetry(telemetry_of(records[:5])))
    write(TELEMETRY, encode_telemetry(telemetry_of(records[5:])))
    assert findings(capsys) == []
    write("releases/v10.3.0/other/focus-telemetry.json", b"not read")
    assert findings(capsys) == []


def test_store_and_audit_log_are_read_too(folder, capsys, found):
    fill(found)
    with_log(found)
    code, out, _ = comply(capsys, "--store", STORE, "--audit", "audit.jsonl", "--json")
    document = json.loads(out)
    assert (code, document["ok"], document["findings"]) == (0, True, [])
    assert document["checked"]["audit_records"] >= len(found.events)
    assert document["checked"]["runs"] == 4
    assert document["rules"] == [rule.id for rule in RULES]


def with_log(found, extra=()):
    log = AuditLog("audit.jsonl")
    for _, event in [*found.events, *extra]:
        log(event)
    log.close()


def test_the_configuration_names_store_and_audit_log(folder, capsys, found):
    fill(found)
    with_log(found)
    text = f"store:\n  url: {STORE}\naudit:\n  where: audit.jsonl\n"
    Path("mainstay.yml").write_text(text, encoding="utf-8")
    code, out, _ = comply(capsys, "--config", "mainstay.yml", "--json")
    checked = json.loads(out)["checked"]
    assert code == 0
    assert checked["audit_records"] >= len(found.events)


def test_files_are_recognized_by_their_content(folder, capsys, found):
    for number, path in enumerate((TELEMETRY, LOG, LEDGER)):
        Path(path).rename(f"{number}.json")
    with_log(found)
    assert findings(capsys, "0.json", "1.json", "2.json", "audit.jsonl") == []


def test_the_form_of_the_json_changes_nothing(folder, capsys):
    """Unknown fields of telemetry, one line or many, another order of fields."""
    telemetry = json.loads(Path(TELEMETRY).read_bytes())
    for record in telemetry["records"]:
        record["host"] = "h-1"
    telemetry["exported_by"] = "ci"
    backwards = dict(reversed(list(telemetry.items())))
    Path(TELEMETRY).write_text(json.dumps(backwards), encoding="utf-8")
    for path in (LOG, LEDGER):
        ledger = json.loads(Path(path).read_bytes())
        Path(path).write_text(json.dumps(ledger, indent=7, sort_keys=True), encoding="utf-8")
    assert findings(capsys) == []


# --- one offence ----------------------------------------------------------------------------------


def test_a_deleted_telemetry_record_turns_it_red_in_every_format(folder, capsys, found):
    records = found.telemetry.records[:-1]
    write(TELEMETRY, encode_telemetry(replace(found.telemetry, records=records)))
    code, out, _ = comply(capsys)
    assert code == 1
    assert f"{TELEMETRY}: missing-telemetry: stage" in out
    assert "next, for missing-telemetry:" in out
    assert {each["rule"] for each in findings(capsys)} == {"missing-telemetry"}
    code, out, _ = comply(capsys, "--format", "junit")
    assert code == 1
    failed = [case for case in cases(out) if case.find("failure") is not None]
    assert {case.find("failure").get("type") for case in failed} == {"missing-telemetry"}


def test_a_retried_schema_error_is_named_with_its_line(folder, capsys, found):
    base = replace(first_try(PIPELINE, "s0"), sequence="5eed", timestamp=stamp(1.9e9))
    failed = replace(base, outcome="failure", error_class="SchemaValidationError", retryable=True,
                     is_final=False, delay_ms=9.0)  # fmt: skip
    added = telemetry_of([*found.telemetry.records, failed, replace(base, attempt=2)])
    write(TELEMETRY, encode_telemetry(added))
    shown = {each["rule"]: each for each in findings(capsys)}
    assert set(shown) == {"forbidden-class", "unlogged-retry"}
    line = Path(TELEMETRY).read_text(encoding="utf-8").splitlines()
    at = shown["forbidden-class"]["line"]
    assert line[at - 1].strip() == "{"
    assert '"SchemaValidationError"' in "".join(line[at : at + 6])


def test_a_removed_ledger_entry_is_named_with_its_line(folder, capsys, found):
    lines = Path(LOG).read_text(encoding="utf-8").splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if '"kind"' in line)
    Path(LOG).write_text("".join(lines[:first] + lines[first + 1 :]), encoding="utf-8")
    shown = findings(capsys)
    altered = [each for each in shown if each["rule"] == "altered-ledger" and each["file"] == LOG]
    assert altered
    assert altered[0]["line"] == first + 1


def test_a_ledger_that_differs_from_the_store_is_named(folder, capsys, found):
    fill(found)
    shorter = type(found)(found.telemetry, found.runs[:-1], found.events)
    write(LEDGER, encode_ledger(shorter.versioning))
    write(LOG, encode_ledger(shorter.retry_log))
    shown = findings(capsys, "--store", STORE)
    assert {(each["rule"], each["run_id"]) for each in shown} == {
        ("altered-ledger", found.runs[-1].run)
    }
    assert findings(capsys, "--store", STORE, "--run", found.runs[0].run) == []


def test_a_run_whose_end_is_not_carried_over_yet_is_clean(folder, capsys, found):
    fill(found, open_runs=found.runs[-1:])
    shorter = type(found)(found.telemetry, found.runs[:-1], found.events)
    write(LEDGER, encode_ledger(shorter.versioning))
    write(LOG, encode_ledger(shorter.retry_log))
    assert findings(capsys, "--store", STORE) == []


def test_missing_telemetry_is_a_finding_not_an_error(folder, capsys):
    """Named or not: that telemetry is not there is what the rule is about."""
    Path(TELEMETRY).unlink()
    for arguments in ([], ["--telemetry", "other.json"]):
        shown = findings(capsys, *arguments)
        assert shown[0]["rule"] == "missing-telemetry"
        assert shown[0]["text"] == "there is no such file"


def test_a_ledger_that_is_named_and_not_there_is_a_finding(folder, capsys):
    shown = findings(capsys, "--ledger", LOG, "--ledger", "gone.json")
    assert [(each["rule"], each["file"]) for each in shown] == [("altered-ledger", "gone.json")]


def test_the_limits_can_be_given(folder, capsys, found):
    base = replace(first_try("alone", "s0"), sequence="5eed", timestamp=stamp(1.9e9))
    failed = replace(base, outcome="failure", error_class="TimeoutError", retryable=True,
                     is_final=False)  # fmt: skip
    records = [failed, replace(failed, attempt=2), replace(base, attempt=3)]
    write(TELEMETRY, encode_telemetry(telemetry_of([*found.telemetry.records, *records])))
    assert findings(capsys) == []
    assert findings(capsys, "--max-attempts", "2")[0]["rule"] == "attempts-exceeded"
    assert findings(capsys, "--max-attempts", "2", "--since", "2031-01-01") == []


# --- formats --------------------------------------------------------------------------------------


def cases(text):
    """The test cases of JUnit XML; what readers of it rely on is checked."""
    suites = ET.fromstring(text)
    assert suites.tag == "testsuites"
    (suite,) = suites
    assert suite.tag == "testsuite"
    found = suite.findall("testcase")
    failures = [case for case in found if case.findall("failure")]
    for each in (suites, suite):
        assert each.get("tests") == str(len(found))
        assert each.get("failures") == str(len(failures))
        assert (each.get("errors"), each.get("skipped")) == ("0", "0")
        assert float(each.get("time")) >= 0
    for case in found:
        assert case.get("name")
        assert case.get("classname").startswith("mainstay.comply.")
        assert len(case.findall("failure")) <= 1
        assert {child.tag for child in case} <= {"failure"}
    return found


def test_junit_has_a_passed_case_for_each_rule(folder, capsys):
    code, out, _ = comply(capsys, "--format", "junit")
    assert code == 0
    assert out.startswith('<?xml version="1.0" encoding="UTF-8"?>\n')
    assert [case.get("name") for case in cases(out)] == [rule.id for rule in RULES]


def test_no_text_of_a_file_breaks_the_xml_or_the_terminal(folder, capsys, found):
    """Control characters and markup in names are shown as text."""
    bad = replace(first_try("e\x1b[2J<&\x00", "s\x07"), sequence="5eed", attempt=7)
    write(TELEMETRY, encode_telemetry(telemetry_of([*found.telemetry.records, bad])))
    code, out, _ = comply(capsys, "--format", "junit")
    failed = [case for case in cases(out) if case.find("failure") is not None]
    assert code == 1
    assert "<&" in failed[0].get("name")
    _, out, _ = comply(capsys)
    assert "\x1b" not in out
    assert "\x07" not in out


def test_secrets_are_not_printed(folder, capsys, found):
    secret = "password=hunter2hunter2"
    bad = replace(first_try(PIPELINE, "s0"), sequence="5eed", attempt=1, outcome="failure",
                  error_class=secret, is_final=False, delay_ms=1.0)  # fmt: skip
    write(TELEMETRY, encode_telemetry(telemetry_of([*found.telemetry.records, bad])))
    for kind in ("text", "json", "junit"):
        code, out, _ = comply(capsys, "--format", kind)
        assert code == 1
        assert "hunter2" not in out


def test_records_that_were_left_out_are_noted(folder, capsys, found):
    write(TELEMETRY, encode_telemetry(telemetry_of(found.telemetry.records, keep=2)))
    code, out, _ = comply(capsys)
    left = len(found.telemetry.records) - 2
    assert code == 0
    assert f"note: {TELEMETRY}: {left} older records were left out" in out
    _, out, _ = comply(capsys, "--format", "junit")
    assert "older records were left out" in ET.fromstring(out).find("testsuite/system-out").text


# --- bad input ------------------------------------------------------------------------------------


def refused(capsys, *arguments):
    before = {path: path.read_bytes() for path in Path().rglob("*.json")}
    code, out, err = comply(capsys, *arguments)
    assert {path: path.read_bytes() for path in Path().rglob("*.json")} == before
    assert (code, out) == (2, "")
    assert "next: " in err
    return err


@pytest.mark.parametrize("path", [TELEMETRY, LOG, LEDGER])
def test_a_truncated_file_is_refused_with_file_and_line(folder, capsys, path):
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: len(data) // 2])
    line = data[: len(data) // 2].rstrip().count(b"\n") + 1
    assert f"{path}, line {line}: " in refused(capsys)
    assert f"{path}, line {line}: " in refused(capsys, path)


@pytest.mark.parametrize("path", [TELEMETRY, LOG])
def test_a_file_of_a_later_version_is_refused(folder, capsys, path):
    text = Path(path).read_text(encoding="utf-8").replace('"version": 1', '"version": 2', 1)
    Path(path).write_text(text, encoding="utf-8")
    error = refused(capsys)
    assert f"{path}, line 2: it has version 2, and this mainstay reads version 1" in error


def test_a_damaged_telemetry_record_is_refused_with_its_line(folder, capsys):
    document = json.loads(Path(TELEMETRY).read_bytes())
    document["records"][2]["attempt"] = -1
    text = json.dumps(document, indent=2)
    Path(TELEMETRY).write_text(text, encoding="utf-8")
    line = text[: text.index('"attempt": -1')].count("\n") - 2  # three lines above
    assert f"{TELEMETRY}, line {line}: this is no telemetry record: " in refused(capsys)


@pytest.mark.parametrize("text", ["", "{}", "[]", "\xff", '{"records": 7}', "[" * 100_000])
def test_what_is_no_telemetry_is_refused(folder, capsys, text):
    Path(TELEMETRY).write_bytes(text.encode("latin-1"))
    assert f"{TELEMETRY}, line 1: it holds no telemetry: " in refused(capsys)


def test_other_bad_input_is_refused(folder, capsys, found):
    assert "no ledger and no store has a run 'r-99'" in refused(capsys, "--run", "r-99")
    assert "'soon' is no moment" in refused(capsys, "--since", "soon")
    assert "gone.db: no such file" in refused(capsys, "--store", "sqlite:///gone.db")
    assert "gone.json" in refused(capsys, "gone.json")
    code, _, err = comply(capsys, "--audit", "gone.jsonl")
    assert (code, err) == (2, "mainstay: there is no audit log at gone.jsonl\n")
    fill(found)
    store = open_store(STORE)
    put(store, Space.RUNS, "etl/bad", b'{"pipeline": 7')
    store.close()
    assert "run etl/bad of the store cannot be read" in refused(capsys, "--store", STORE)


def test_a_damaged_audit_log_is_refused(folder, capsys, found):
    with_log(found)
    text = Path("audit.jsonl").read_text(encoding="utf-8")
    broken = text.replace('"event_type":"call_succeeded"', '"event_type":7', 1)
    broken = broken.replace('"attempt_number":1', '"attempt_number":"x"')
    Path("audit.jsonl").write_text(broken, encoding="utf-8")
    assert "audit.jsonl, record 1: it cannot be read" in refused(capsys, "--audit", "audit.jsonl")


def test_a_store_that_is_unavailable_is_no_finding(folder, capsys):
    """Exit code 2: 1 is for findings."""
    nowhere = "redis://127.0.0.1:1/0"
    assert "127.0.0.1:1" in refused(capsys, "--store", nowhere)


def test_nothing_to_check_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "there is nothing to check" in refused(capsys)


# --- size -----------------------------------------------------------------------------------------


def test_large_telemetry_keeps_only_what_rules_ask_for(folder, capsys, found):
    """20,000 calls that succeeded at once, and the few that did not."""
    quick = [first_try(PIPELINE, f"s{number % 4}") for number in range(20_000)]
    mixed = [*quick, *found.telemetry.records]
    random.Random(1).shuffle(mixed)
    data = msgspec.json.encode(telemetry_of(mixed, keep=100_000))
    write(TELEMETRY, data)
    code, out, _ = comply(capsys, "--json")
    document = json.loads(out)
    assert (code, document["checked"]["telemetry_records"]) == (0, len(mixed))


def test_a_ledger_in_the_place_of_the_other_is_refused(folder, capsys):
    """By its name: the entries of the other one would not be missed otherwise."""
    write(LEDGER, Path(LOG).read_bytes())
    assert guard.run(["comply", TELEMETRY, LOG, LEDGER]) == 2
    assert "versioning_ledger.json, line 1: it is the ledger pipeline_retry_log" in (
        capsys.readouterr().err
    )


PLACES = [TELEMETRY, "releases/x/focus-telemetry.json", LOG, LEDGER]


@pytest.mark.parametrize("plant", ["pipe", "zero", "huge", "outside", "folder"])
@pytest.mark.parametrize("place", PLACES)
def test_a_planted_file_is_an_error_with_a_hint(folder, tmp_path_factory, capsys, place, plant):
    """A pipe stopped the command for ever; /dev/zero filled the memory, and was called a bug."""
    path = folder / place
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    match plant:
        case "pipe":
            os.mkfifo(path)
        case "zero":
            path.symlink_to("/dev/zero")
        case "huge":
            with path.open("wb") as file:
                file.truncate(LARGEST + 1)
        case "outside":
            path.symlink_to(tmp_path_factory.mktemp("elsewhere") / "mine")
            path.resolve().write_bytes(encode_telemetry(Telemetry()))
        case "folder":
            path.mkdir()
    watch = threading.Timer(5.0, lambda: os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK)))
    watch.start()
    code, _, err = comply(capsys)
    assert watch.is_alive(), "waited for the other side of the pipe"
    watch.cancel()
    if plant == "folder" and place.startswith("releases"):
        assert code != 70  # it is none of the files of a release
        return
    assert code == 2
    assert err.startswith(f"mainstay: {place}")
    whys = {
        "pipe": "no regular file",
        "huge": f"has {LARGEST + 1} bytes, more than {LARGEST}",
        "folder": "no regular file",
    }
    assert whys.get(plant, "a link out of this folder") in err
    assert "next: look where it comes from" in err


@pytest.mark.parametrize("place", PLACES)
def test_a_link_inside_the_folder_is_followed(folder, capsys, place):
    """A checkout may have one file under two names; so may its folders."""
    path = folder / place
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.rename(folder / "kept.json")
    else:
        (folder / "kept.json").write_bytes(encode_telemetry(Telemetry()))
    path.symlink_to(os.path.relpath(folder / "kept.json", path.parent))
    assert findings(capsys) == []


def test_a_named_file_may_be_a_link_or_a_pipe(folder, tmp_path_factory, capsys):
    """It is the user's own choice; a file that is recognized by its content is opened twice."""
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "t.json"
    Path(TELEMETRY).rename(elsewhere)
    Path(TELEMETRY).symlink_to(elsewhere)
    assert findings(capsys, TELEMETRY) == []
    assert findings(capsys, "--telemetry", TELEMETRY) == []
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_bytes(elsewhere.read_bytes()))
    writer.start()
    assert findings(capsys, "--telemetry", "pipe") == []
    writer.join()
    code, _, err = comply(capsys, "pipe")
    assert code == 2
    assert "pipe is no regular file" in err


@pytest.mark.parametrize("option", [(), ("--telemetry",), ("--ledger",)])
@pytest.mark.parametrize("target", ["huge", "/dev/zero"])
def test_a_named_file_is_bounded_too(folder, capsys, monkeypatch, option, target):
    """A mistake that would fill the memory is no bug of mainstay."""
    monkeypatch.setattr("mainstay.cli.comply.files.LARGEST", 1 << 20)
    if target == "huge":
        Path("huge").write_bytes(encode_telemetry(Telemetry()) + b" " * (1 << 20))
    code, _, err = comply(capsys, *option, target)
    assert code == 2
    assert f"{target} has " in err or f"{target} is no regular file" in err


def test_a_planted_ledger_of_a_folder_that_a_run_names_is_an_error(
    found, tmp_path, monkeypatch, capsys
):
    """Its name is computed from the store."""
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "ledgers"
    elsewhere.mkdir()
    found.runs = [replace(run, ledgers=str(elsewhere)) for run in found.runs]
    fill(found)
    os.mkfifo(elsewhere / "pipeline_retry_log.json")
    code, _, err = comply(capsys, "--store", STORE)
    assert code == 2
    assert "pipeline_retry_log.json is no regular file" in err
