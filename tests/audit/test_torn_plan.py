"""A kill while a plan was being written must not keep the file from being ended later."""

from __future__ import annotations

import pytest

from mainstay.audit import verify_log
from mainstay.core.audit.chain import PLAN, Entry, seal
from mainstay.stores.jsonl.journal import JsonlJournal
from mainstay.stores.jsonl.lines import lines_of

PLANS = [b'{%b,"plan":"p%d"}' % (PLAN, number) for number in (1, 2)]


def block(tail, records):
    """A block of records."""
    return seal(tail, records, writer="me", time="2026-01-01T00:00:00Z", log="a1")


@pytest.mark.parametrize("left", [30, 5, 3])
def test_a_plan_that_a_kill_cut_off_does_not_stop_a_file_from_being_ended(tmp_path, left):
    """Whole plans are carried into the next file; the torn one is none, and writing goes on."""
    path = tmp_path / "audit.jsonl"
    journal = JsonlJournal(path, rotate=400)
    tail = journal.append(lambda tail, _: Entry(block(tail, PLANS[:1])))
    with path.open("ab") as file:
        file.write(lines_of(Entry(block(tail, PLANS[1:])))[:-left])
    seen = []

    def make(tail, plans):
        seen.append(plans)
        return Entry(block(tail, [*plans, b"{}"]))

    for _ in range(4):
        journal.append(make)
    journal.close()
    assert next(filter(None, seen)) == PLANS[:1]
    verdict = verify_log(path)
    assert verdict.ok, verdict.problem


def test_a_plan_that_somebody_made_unreadable_does_not_stop_the_log(tmp_path):
    """It shows when the log is verified; until then the others still can write."""
    path = tmp_path / "audit.jsonl"
    journal = JsonlJournal(path, rotate=400)
    journal.append(lambda tail, _: Entry(block(tail, PLANS)))
    path.write_bytes(path.read_bytes().replace(b'"plan":"p2"', b'"plan":"p2 '))
    for _ in range(3):
        journal.append(lambda tail, plans: Entry(block(tail, [*plans, b"{}"])))
    journal.close()
    assert not verify_log(path).ok
