"""The ledgers: chains, their verification, and files that are damaged or newer."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainstay.core.pipeline.ledger import (
    RETRY_LOG,
    VERSIONING,
    Altered,
    LedgerEntry,
    chains_of,
    genesis,
    hash_of,
    head_of,
    ledger_of,
    merged,
    over_before,
    sealed,
    verify,
    verify_together,
)
from mainstay.core.pipeline.ledger_file import decode, encode, line_of
from mainstay.errors import LedgerError


def chain(length=3, run="r-1", pipeline="etl", ledger=RETRY_LOG):
    drafts = [
        LedgerEntry(
            kind="retried", pipeline_id=pipeline, run_id=run, stage="poll", attempts=each + 2
        )
        for each in range(length)
    ]
    return sealed(drafts, ledger, (), now=5.0)


def ledger(*chains, name=RETRY_LOG):
    return ledger_of(name, chains)


def test_entries_are_numbered_dated_and_chained():
    """Each entry holds the hash of the one before, and the first what names ledger and run."""
    one, two, three = chain()
    assert [each.sequence for each in (one, two, three)] == [1, 2, 3]
    assert one.previous == genesis(RETRY_LOG, "etl", "r-1")
    assert (two.previous, three.previous) == (one.hash, two.hash)
    assert one.timestamp == "1970-01-01T00:00:05Z"
    assert one.hash == hash_of(one)
    assert len(one.hash) == 64
    assert head_of((one, two)) == two.hash
    assert head_of(()) == ""


def test_a_whole_ledger_has_no_flaw():
    """Several runs of several pipelines, in one file, each a chain of its own."""
    found = ledger(chain(), chain(2, "r-2"), chain(1, pipeline="other"), ())
    assert verify(found) == []
    assert [len(each) for each in chains_of(found).values()] == [3, 2, 1]
    assert [each.length for each in found.runs] == [3, 2, 1]


@pytest.mark.parametrize(
    "field", [name for name in LedgerEntry.__struct_fields__ if name != "hash"]
)
def test_an_altered_field_shows(field):
    """Whatever field of an entry is changed, its hash does not fit any more."""
    others = {int: 99, str: "x", bool: True, tuple: ("x",)}
    one, two, three = chain()
    value = "exhausted" if field == "kind" else others[type(getattr(two, field))]
    flaws = verify(ledger([one, replace(two, **{field: value}), three]))
    assert any("was altered" in flaw.text for flaw in flaws)


@given(st.integers(1, 5), st.integers(1, 4), st.data())
def test_a_missing_entry_shows(length, runs, data):
    """Removing any one entry, or exchanging two, makes a flaw; whichever it is."""
    found = ledger(*[chain(length, f"r-{each}") for each in range(runs)])
    gone = data.draw(st.integers(0, length * runs - 1))
    entries = [entry for index, entry in enumerate(found.entries) if index != gone]
    assert verify(replace(found, entries=tuple(entries)))
    if length > 1:
        at = gone - 1 if gone % length else gone
        swapped = list(found.entries)
        swapped[at], swapped[at + 1] = swapped[at + 1], swapped[at]
        assert verify(replace(found, entries=tuple(swapped)))


def test_an_entry_with_a_new_hash_is_not_chained():
    """An entry that was altered and hashed anew does not fit the one behind it, nor the list."""
    one, two, three = chain()
    forged = replace(two, attempts=1)
    forged = replace(forged, hash=hash_of(forged))
    (flaw,) = verify(ledger([one, forged, three]))
    assert flaw.text == "entry 3 of run r-1 of etl is not chained to the entry before it"
    assert (flaw.index, flaw.pipeline_id, flaw.run_id) == (2, "etl", "r-1")
    last = replace(three, attempts=1)
    last = replace(last, hash=hash_of(last))
    whole = ledger((one, two, three))
    (flaw,) = verify(replace(whole, entries=(one, two, last)))
    assert "is not the one that is listed" in flaw.text


def test_the_list_of_runs_is_sealed():
    """A run that was removed with its line in the list shows by the seal."""
    whole = ledger(chain(), chain(2, "r-2"))
    less = replace(whole, runs=whole.runs[:1], entries=whole.entries[:3])
    assert [flaw.text for flaw in verify(less)] == ["the list of runs was altered"]
    assert verify(replace(whole, entries=whole.entries[:3]))[0].text == (
        "run r-2 of etl has 0 entries, and 2 are listed"
    )


def test_the_two_ledgers_are_compared():
    """The versioning ledger knows how long the retry log was."""
    log = chain(2)
    halted = LedgerEntry(
        kind="halted",
        pipeline_id="etl",
        run_id="r-1",
        retry_log_length=2,
        retry_log_head=log[1].hash,
    )
    versions = ledger(sealed([halted], VERSIONING, (), 6.0), name=VERSIONING)
    assert verify_together(ledger(log), versions) == []
    assert verify_together(ledger([*log, *chain(3)[2:]]), versions) == []
    (flaw,) = verify_together(ledger(log[:1]), versions)
    assert "the retry log had 2 entries then, and has 1" in flaw.text
    assert verify_together(ledger(), versions)


@given(st.lists(st.text(max_size=8), max_size=4), st.text(max_size=20))
def test_a_file_reads_back(names, reason):
    """What is written is JSON, one entry on a line, and reads back to the same ledger."""
    draft = LedgerEntry(
        kind="halted", pipeline_id="etl", run_id="r", dataset_ids=tuple(names), reason=reason
    )
    found = ledger(sealed([draft], VERSIONING, (), 1.0), name=VERSIONING)
    data = encode(found)
    assert decode(data, ledger=VERSIONING) == found
    assert msgspec.json.decode(data)["entries"][0]["reason"] == reason
    assert verify(decode(data)) == []


def lines(data=None):
    return (encode(ledger(chain())) if data is None else data).split(b"\n")


def refused(data, **options):
    with pytest.raises(LedgerError) as caught:
        decode(data, "retry_log.json", **options)
    assert caught.value.path == "retry_log.json"
    assert "nothing was overwritten" in str(caught.value)
    return caught.value


def test_a_file_that_was_cut_off():
    """A truncated file names the line at which it ends."""
    data = encode(ledger(chain()))
    error = refused(data[: data.index(b'"sequence":2')])
    assert error.line == len(data[: data.index(b'"sequence":2')].split(b"\n"))
    assert "damaged or cut off" in error.reason
    assert refused(b"").line == 1


def test_a_file_that_is_damaged():
    """A broken entry, a broken byte, a missing and a foreign field: each with its line."""
    rows = lines()
    entry = next(index for index, row in enumerate(rows) if b'"sequence":2' in row)
    wrong = [
        *rows[:entry],
        rows[entry].replace(b'"attempts":3', b'"attempts":-1'),
        *rows[entry + 1 :],
    ]
    error = refused(b"\n".join(wrong))
    assert (error.line, "this is no entry" in error.reason) == (entry + 1, True)
    broken = [
        *rows[:entry],
        rows[entry].replace(b'"attempts":3', b'"attempts":!'),
        *rows[entry + 1 :],
    ]
    assert refused(b"\n".join(broken)).line == entry + 1
    foreign = b"\n".join(rows).replace(b'"seal"', b'"sale"')
    assert "it is no ledger" in refused(foreign).reason
    unsealed = b"\n".join(rows).replace(b'"seal": "', b'"seal": 7, "x": "')
    assert refused(unsealed).line == 8
    numbered = b"\n".join(rows).replace(b'"kept_since": ""', b'"kept_since": 7')
    assert refused(numbered).line == 4


def test_a_file_of_a_later_version():
    """It names both versions, and is not read further."""
    data = encode(ledger(chain())).replace(b'"version": 1', b'"version": 2')
    error = refused(data)
    assert error.reason == "it has version 2, and this mainstay reads version 1"
    assert error.line == 2


def test_the_other_ledger():
    """A file that holds the other ledger is not taken for this one."""
    error = refused(encode(ledger(chain())), ledger=VERSIONING)
    assert error.reason == "it is the ledger pipeline_retry_log, not versioning_ledger"


def test_an_empty_ledger():
    """It is JSON too, and whole."""
    found = decode(encode(ledger()))
    assert (found.entries, verify(found)) == ((), [])


def ended(run, now, reason="", kind="completed"):
    draft = LedgerEntry(kind=kind, pipeline_id="etl", run_id=run, reason=reason)
    return sealed([draft], VERSIONING, (), now)


def test_runs_are_merged_into_a_ledger():
    """Chains grow, new runs come behind, and what differs is an error with its entry."""
    short, whole = chain(2), chain(3)
    found = merged(ledger(chain(1, "r-0"), short), [whole, (), chain(1, "r-9")])
    assert [each.length for each in found.runs] == [1, 3, 1]
    assert verify(found) == []
    with pytest.raises(Altered, match="entries of run r-1 of etl are not those") as caught:
        merged(found, [chain(2, ledger=VERSIONING)])
    assert caught.value.index == 1


def test_runs_that_ended_long_ago_are_dropped():
    """Those that are completed or abandoned; what was released may still go on."""
    chains = [
        ended("a", 10.0), ended("b", 90.0), ended("c", 10.0, "abandon: no", "reviewed"),
        ended("d", 10.0, "release", "reviewed"), ended("e", 10.0, kind="halted"),
    ]  # fmt: skip
    versions = ledger(*chains, name=VERSIONING)
    gone = over_before(versions, "1970-01-01T00:01:00Z")
    assert gone == {("etl", "a"), ("etl", "c")}
    kept = merged(versions, [], gone, "1970-01-01T00:01:00Z")
    assert [each.run_id for each in kept.runs] == ["b", "d", "e"]
    assert (kept.kept_since, verify(kept)) == ("1970-01-01T00:01:00Z", [])


def test_the_line_of_an_entry():
    """As an editor counts; of the whole it is the first."""
    data = encode(ledger(chain()))
    rows = data.split(b"\n")
    for index in range(3):
        assert b'"sequence":%d' % (index + 1) in rows[line_of(data, index) - 1]
    assert line_of(data, None) == 1
