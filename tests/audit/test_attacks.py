"""A log is edited by somebody who can write it: what jq then prints cannot differ unnoticed."""

from __future__ import annotations

import json
from hashlib import sha256

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstay.audit import AuditLog, make_key, verify_log
from mainstay.cli.app import app
from mainstay.core.audit.chain import (
    START,
    Block,
    Entry,
    Tail,
    checked,
    encode_head,
    head_of,
    seal,
    tail_of,
)
from mainstay.errors import StoreError
from mainstay.events import CallSucceeded
from mainstay.stores.jsonl.journal import JsonlJournal

FORGED = b'{"forged":1}'
LINK = b'{"link":"%b",' % (b"0" * 64)


def written(path, *, closes=True):
    """A log of all kinds of lines: opened, records, a head, closed; and its last head."""
    journal = JsonlJournal(path)

    def add(*records, note=None, head=False):
        heads = []

        def make(tail, _):
            block = seal(tail, records, writer="h:7:a", time="now", log="a1", note=note, head=head)
            heads.extend([checked(head_of(tail_of(block), "now"))] if head else [])
            return Entry(block, heads[0] if heads else None)

        journal.append(make)
        return heads

    add(note={"opened": {}})
    add(b'{"a":1}', b'{"a":2}', head=True)
    add(b'{"a":3}')
    return add(note={"closed": {}}, head=True)[0] if closes else None


def printed(data):
    """What jq prints of a file, as the page on the audit log shows it: value by value."""
    text, at, found = data.decode("utf-8", "replace").removeprefix("\ufeff"), 0, []
    while rest := text[at:].lstrip(" \t\r\n"):
        try:
            value, size = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError):
            return found
        at = len(text) - len(rest) + size
        found += [value["record"]] if isinstance(value, dict) and value.get("record") else []
    return found


def printed_by_line(data):
    """The same with `jq -R 'fromjson?'`: a line that is no JSON hides none that follow."""
    return [printed(line) for line in data.split(b"\n") if printed(line) and _is_json(line)]


def _is_json(line):
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


# --- any edit -------------------------------------------------------------------------------------

LINES = (
    b'{"record":%b}\n' % FORGED,
    LINK + b'"record":%b}\n' % FORGED,
    b'{"record":%b} ' % FORGED,
    b'{"rec\\u006frd":%b}\n' % FORGED,
    b'{"torn":{"bytes":0},"record":%b}\n' % FORGED,
    b'{"head":{},"record":%b}\n' % FORGED,
    LINK + b'"anchor":{"block":0,"log":"","number":0}}\n',
    LINK + b'"block":{"block":1,"first":1,"count":-5,"log":"a1","writer":"w","time":"n"}}\n',
    LINK + b'"block":{"block":1,"first":1,"count":%d,"log":"a1","writer":"","time":""}}\n' % 10**30,
    LINK + b'"block":%b\n' % (b"[" * 5000),
    b'{"head":%b\n' % (b'{"a":' * 5000),
    b'{"link":"%b","block":{}}\n' % (b"\xff" * 64),
    b'{"torn":{"bytes":0}}\n',
    b'{"torn":{"bytes":-1}}\n',
    b'{"torn":{"bytes":%b}}\n' % (b"9" * 5000),
    b"\xef\xbb\xbf",
    b"\x00",
    b"\r\n",
    b"\x1e{}\n",
    b"null\n",
)
PARTS = (
    (b'"record":', b'"Record":'),
    (b'"record":', b'"rec\\u006frd" :'),
    (b'"record":', b'"record":{"forged":1},"record":'),
    (b'{"link"', b'{"record":{"forged":1},"link"'),
    (b"}\n", b',"record":{"forged":1}}\n'),
    (b"}\n", b',"record":null}\n'),
    (b"}\n", b'}{"record":{"forged":1}}\n'),
    (b"}\n", b"}\r\n"),
    (b'"count":', b'"count":-'),
    (b'"count":', b'"count":1'),
    (b'"count":2', b'"count":2.0'),
    (b'"first":', b'"first":-'),
    (b'"head":true,', b""),
    (b'"version":2', b'"version":1'),
    (b'{"a":1}', b'{"a":1,"a":1}'),
    (b'{"a":1}', b'{"a": 1}'),
    (b'"head":{', b'"record":{"forged":1},"head":{'),
)


def torn(data):
    return b'%b{"torn":{"bytes":%d}}\n' % (data, len(data))


def inserted(lines, at, to, which):
    return [*lines[:at], LINES[which % len(LINES)], *lines[at:]]


def inserted_as_torn(lines, at, to, which):
    return [*lines[:at], torn(LINES[which % len(LINES)]), *lines[at:]]


def replaced(lines, at, to, which):
    old, new = PARTS[which % len(PARTS)]
    return [*lines[:at], lines[at].replace(old, new, 1), *lines[at + 1 :]]


def removed(lines, at, to, which):
    return lines[:at] + lines[to:]


def moved(lines, at, to, which):
    rest = lines[:at] + lines[at + 1 :]
    return [*rest[:to], lines[at], *rest[to:]]


def reversed_(lines, at, to, which):
    return lines[:at] + lines[at:to][::-1] + lines[to:]


def marked(lines, at, to, which):
    return [*lines[:at], torn(b"".join(lines[at:to])), *lines[to:]]


def cut_and_marked(lines, at, to, which):
    line = lines[at][: which % len(lines[at])] + b"\n"
    return [*lines[:at], torn(line), *lines[at + which % 2 :]]


def truncated(lines, at, to, which):
    data = b"".join(lines)
    return [data[: which % len(data)]]


EDITS = [inserted, inserted_as_torn, replaced, removed, moved, reversed_, marked, cut_and_marked]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log, its bytes, and its last head, which was kept elsewhere."""
    path = tmp_path_factory.mktemp("log") / "audit.jsonl"
    head = written(path)
    return path, path.read_bytes(), head


@settings(max_examples=80, deadline=None)
@given(
    edit=st.sampled_from([*EDITS, truncated]),
    at=st.integers(0, 8),
    to=st.integers(0, 9),
    which=st.integers(0, 2000),
)
def test_an_edit_that_changes_what_jq_prints_is_found(log, edit, at, to, which):
    """Whatever line is added, changed, hidden or moved: with a head from outside it is bad."""
    path, data, head = log
    lines = data.splitlines(keepends=True)
    changed = b"".join(edit(lines, at, to, which))
    path.write_bytes(changed)
    verdict = verify_log(path, heads=[head])
    is_another = (printed(changed), printed_by_line(changed)) != (
        printed(data),
        printed_by_line(data),
    )
    assert not (verdict.ok and is_another), (edit.__name__, verdict)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_the_same_is_found_in_the_log_alone(log, edit):
    """Without heads: a change is bad, or a writer did not close. Only its end can be cut off."""
    path, data, _ = log
    lines = data.splitlines(keepends=True)
    unnoticed = []
    for at in range(len(lines)):
        for to, which in ((at + 1, at), (at + 2, at + 9), (len(lines), at + 18)):
            changed = b"".join(edit(lines, at, min(to, len(lines)), which))
            path.write_bytes(changed)
            if changed and changed != data and verify_log(path).is_complete:
                unnoticed.append((at, to, which))
    assert unnoticed == []


# --- cases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["behind the last line", "before a head", "between blocks"])
@pytest.mark.parametrize("line", [LINES[0], LINES[1]], ids=["bare", "linked"])
def test_a_forged_record_cannot_be_called_torn(log, line, at):
    """A mark says what a killed writer left: the beginning of a block that continues the chain."""
    path, data, _ = log
    lines = data.splitlines(keepends=True)
    place = {"behind the last line": 9, "before a head": 4, "between blocks": 5}[at]
    path.write_bytes(b"".join(inserted_as_torn(lines, place, 0, LINES.index(line))))
    assert printed_by_line(path.read_bytes()) != printed_by_line(data)
    assert not verify_log(path).ok


def test_a_forged_record_at_the_end_is_no_cut_write(log):
    """A whole line is not what a kill cuts off."""
    path, data, _ = log
    path.write_bytes(data + LINES[1])
    assert not verify_log(path).ok


@pytest.mark.parametrize(
    "odd", [b"1e999", b"nan", b"01", b"1.", b'"\xff"', b'"\0"', b'"\t"', b"1}}\x1e{"]
)
@pytest.mark.parametrize("is_marked", [True, False])
def test_what_one_reader_of_json_takes_is_no_cut_write(log, odd, is_marked):
    """Readers differ: jq prints a record with 1e999 or with half a character."""
    path, data, _ = log
    forged = LINK + b'"record":{"forged":%b}}\n' % odd
    path.write_bytes(data + (torn(forged) if is_marked else forged))
    assert not verify_log(path).ok


def test_a_first_file_goes_on_from_no_other(log):
    """A line before the first block is found, and be it one of ours."""
    path, data, _ = log
    path.write_bytes(LINES[6] + data)
    assert not verify_log(path).ok


def test_a_writer_that_is_killed_while_it_marks_leaves_no_finding(tmp_path):
    """At any byte of the mark: the next writer marks both, and the log is as it was written."""
    path = tmp_path / "audit.jsonl"
    written(path)
    data, batch = path.read_bytes(), [b'{"a":4}', b'{"a":5}']
    entry = {"writer": "h:8:b", "time": "now"}
    JsonlJournal(path).append(lambda tail, _: Entry(seal(tail, batch, **entry)))
    rest = path.read_bytes()[len(data) :]
    for cut in (1, 100, rest.index(b'"a":4') + 5, len(rest) - 3):
        mark = b'\n{"torn":{"bytes":%d}}\n' % (cut + 1)
        for ends in (1, 2, 9, 18, len(mark) - 2, len(mark) - 1, len(mark)):
            path.write_bytes(data + rest[:cut] + mark[:ends])
            assert verify_log(path).ok, (cut, ends)
            JsonlJournal(path).append(lambda tail, _: Entry(seal(tail, batch, **entry)))
            verdict = verify_log(path)
            assert (verdict.ok, verdict.torn, verdict.records) == (True, 1, 5), (cut, ends, verdict)


def test_an_emptied_log_is_found_with_a_public_key(tmp_path):
    """A key speaks for records: if there are none, nothing that it has signed does."""
    private, public = make_key(tmp_path / "audit.pem")
    for where in (tmp_path / "audit.jsonl", f"sqlite:///{tmp_path}/audit.db"):
        log = AuditLog(where, key=private, spill=False)
        log(CallSucceeded(operation="a"))
        log.close()
        assert verify_log(where, public_key=public).ok
        _empty(where)
        verdict = verify_log(where, public_key=public)
        assert (verdict.ok, verdict.unsigned) == (False, True)
        assert "nothing that this key has signed" in verdict.problem


def _empty(where):
    import sqlite3

    if not isinstance(where, str):
        where.write_bytes(b"")
        return
    connection = sqlite3.connect(where.removeprefix("sqlite:///"))
    for table in ("blocks", "heads", "anchor"):
        connection.execute(f"DELETE FROM mainstay_audit_{table}")
    connection.commit()
    connection.close()


def rotated(folder):
    path = folder / "audit.jsonl"
    log = AuditLog(path, rotate=1, spill=False)
    for number in range(4):
        log(CallSucceeded(operation=str(number), total_attempts=2))
        assert log.flush(30)
    log.close()
    assert verify_log(path).is_complete
    return path, sorted(folder.glob("audit.0*.jsonl"))


def test_blocks_cannot_change_places_between_the_files_of_a_rotation(tmp_path):
    """Two files exchanged, one deleted, one doubled, a block moved to the next file: all bad."""
    path, files = rotated(tmp_path)
    contents = {each: each.read_bytes() for each in [*files, path]}
    one, other = files[1], files[2]
    last = contents[one].splitlines(keepends=True)[-2:]
    edits = {
        "exchanged": {one: contents[other], other: contents[one]},
        "deleted": {one: None},
        "emptied": {one: b""},
        "doubled": {files[-1].with_name("audit.000099.jsonl"): contents[one]},
        "the first deleted": {files[0]: None},
        "moved": {
            one: contents[one].removesuffix(b"".join(last)),
            other: contents[other] + b"".join(last),
        },
        "joined": {one: contents[one] + contents[other], other: None},
    }
    for what, changes in edits.items():
        for file, content in changes.items():
            file.write_bytes(content) if content is not None else file.unlink()
        assert not verify_log(path).ok, what
        for file in set(changes) - set(contents):
            file.unlink()
        for file, content in contents.items():
            file.write_bytes(content)
    assert verify_log(path).ok


@pytest.mark.parametrize("command", ["tail", "stats", "replay"])
def test_a_command_that_reads_a_changed_log_refers_to_verify(log, command):
    """Whatever stands there: an error of the log, and no report of a defect."""
    path, data, _ = log
    lines = data.splitlines(keepends=True)
    for which in range(len(LINES)):
        path.write_bytes(b"".join(inserted(lines, 5, 0, which)))
        done = CliRunner().invoke(app, ["audit", command, str(path)])
        assert done.exception is None or isinstance(done.exception, SystemExit | StoreError), which


# --- headers whose links were computed anew -------------------------------------------------------

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.just("h:" + "9" * 5000 + ":a"),
    st.dictionaries(st.sampled_from(["pruned", "closed", "number"]), st.integers(), max_size=2),
    st.lists(st.integers(), max_size=2),
)
FIELDS = ["block", "first", "count", "log", "writer", "time", "note", "version", "lost", "gap"]


def resealed(tail, header, records):
    """A block with any header, and the links that it then has."""
    data = msgspec.json.encode(header, order="sorted")
    links, link = b"", tail.link
    for part in (data, *records):
        link = sha256(link + part).digest()
        links += link
    return Block(data, records, links)


@settings(max_examples=80, deadline=None)
@given(odd=st.dictionaries(st.sampled_from(FIELDS), ODD, min_size=1, max_size=3))
def test_no_header_that_was_computed_anew_breaks_verify(tmp_path_factory, odd):
    """A negative count, a float, a note of another shape: a verdict, never an exception."""
    path = tmp_path_factory.getbasetemp() / "resealed.jsonl"
    block = resealed(
        Tail(),
        {"block": 1, "first": 1, "count": 1, "log": "a", "writer": "w", "time": "t", **odd},
        (b'{"event_type":"records_lost","records":[]}',),
    )
    step, digits = 64, block.links.hex().encode()
    path.write_bytes(
        b'{"link":"%b","block":%b}\n{"link":"%b","record":%b}\n'
        % (digits[:step], block.header, digits[step:], block.records[0])
    )
    verdict = verify_log(path)
    assert isinstance(verdict.ok, bool)
    if any(isinstance(odd.get(name), int) and odd[name] < 0 for name in ("count", "first", "lost")):
        assert not verdict.ok


def test_a_negative_count_is_a_finding(tmp_path):
    """Of the log, by its number; it is no defect of mainstay."""
    import sqlite3

    where = f"sqlite:///{tmp_path}/audit.db"
    log = AuditLog(where, spill=False)
    log(CallSucceeded(operation="a"))
    log.close()
    connection = sqlite3.connect(where.removeprefix("sqlite:///"))
    connection.execute(
        "UPDATE mainstay_audit_blocks SET header = replace(header, '\"count\":1', '\"count\":-1')"
    )
    connection.commit()
    connection.close()
    verdict = verify_log(where)
    assert (verdict.ok, verdict.first_bad) == (False, 1)


def test_a_chain_that_was_computed_anew_is_found_by_a_signed_head(tmp_path):
    """Whoever has the file and not the key cannot rewrite what was signed."""
    private, public = make_key(tmp_path / "audit.pem")
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, key=private, spill=False)
    log(CallSucceeded(operation="a"))
    log.close()
    link, lines = START, []
    for line in path.read_bytes().splitlines(keepends=True):
        new = line.replace(b'"operation":"a"', b'"operation":"b"')
        if line.startswith(b'{"link"'):
            link = sha256(link + new[new.index(b'":{', 70) + 2 : -2]).digest()
            new = new[:9] + link.hex().encode() + new[73:]
        lines.append(new)
    path.write_bytes(b"".join(lines))
    verdict = verify_log(path, public_key=public)
    assert (verdict.ok, verdict.rewritten) == (False, True)


def test_heads_from_outside_that_cannot_be_read_are_passed_over(tmp_path):
    """Lines that are no UTF-8, nested without end or of another shape: no error, and no head."""
    path, heads = tmp_path / "audit.jsonl", tmp_path / "heads"
    head = written(path)
    odd = [b'{"block":"\xff"}', b'{"block":' + b"[" * 5000 + b"}", b'{"block":-1}']
    heads.write_bytes(b"\n".join([*odd, encode_head(head), b""]))
    verdict = verify_log(path, heads=heads)
    assert (verdict.ok, verdict.other_heads) == (True, 0)
