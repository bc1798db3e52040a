"""Whoever has no key cannot have records taken for pruned ones."""

from __future__ import annotations

import hashlib
from contextlib import closing

import pytest

from mainstay.audit import AuditLog, make_key, verify_log
from mainstay.audit.open import open_journal
from mainstay.core.audit.chain import Entry, seal
from mainstay.events import CallSucceeded
from mainstay.testing import virtual_time

pytest.importorskip("cryptography")


@pytest.fixture(params=["sqlite:///{}/audit.db", "{}/audit.jsonl"], ids=["sqlite", "jsonl"])
def where(request, tmp_path):
    """The place of a log."""
    return request.param.format(tmp_path)


def write(where, keys, **options):
    """A signed log of ten blocks, written over ten hours."""
    rotate = 300 if where.endswith(".jsonl") else None
    with virtual_time(start=1_800_000_000.0) as time:
        log = AuditLog(where, key=keys[0], every=1, rotate=rotate, **options)
        for number in range(10):
            log(CallSucceeded(operation=f"op {number}", total_attempts=2))
            assert log.flush(60)
            time.advance(3600.0)
        log.close()


def prune(tail, anchor):
    """What a pruning writes, by somebody who knows the format and not the key."""
    kept = hashlib.sha256(b"\n".join(anchor.carried)).hexdigest()
    note = {"number": anchor.number, "link": anchor.link.hex(), "carried": kept}
    time = "2027-01-16T00:00:00Z"
    return Entry(seal(tail, (), writer="x", time=time, note={"pruned": note}))


def test_records_that_were_dropped_without_the_key_are_missed(where, tmp_path):
    """The chain says they were pruned, and nobody with the key has said so."""
    keys = make_key(tmp_path / "key.pem")
    write(where, keys)
    with closing(open_journal(where)) as journal:
        assert journal.prune("2100", prune) > 5
    verdict = verify_log(where, public_key=keys[1])
    assert not verdict.ok
    assert verdict.first_bad == 1
    assert "nothing that this key has signed states" in verdict.problem


def test_what_was_pruned_with_the_key_is_not_missed_at_any_time(where, tmp_path):
    """The head comes with the note, not at the next chance: who verifies meanwhile is told so."""
    keys = make_key(tmp_path / "key.pem")
    write(where, keys, keep=3 * 3600.0)
    verdict = verify_log(where, public_key=keys[1])
    assert verdict.ok, verdict.problem
    assert verdict.begins_after > 3


def test_pruning_brings_its_head_outside_too(where, tmp_path):
    """With few heads between, the last one outside is that of the note."""
    keys = make_key(tmp_path / "key.pem")
    brought = []
    rotate = 300 if where.endswith(".jsonl") else None
    with virtual_time(start=1_800_000_000.0) as time:
        log = AuditLog(where, key=keys[0], keep=3600.0, heads=brought.append, rotate=rotate)
        for number in range(5):
            log(CallSucceeded(operation=f"op {number}", total_attempts=2))
            assert log.flush(60)
            time.advance(3600.0)
        assert brought
        assert verify_log(where, public_key=keys[1], heads=brought).ok
        log.close()
