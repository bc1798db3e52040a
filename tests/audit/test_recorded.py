"""A log that was written once is verified, read and replayed by every later version."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstay.audit import read_log, replay_log, verify_log

RECORDED = sorted((Path(__file__).parent / "recorded").iterdir())


@pytest.mark.req("CP-22")
@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_an_old_log_verifies_with_its_heads_and_signatures(folder):
    """The chain, the canonical form of headers and heads, and the signature stay what they were."""
    verdict = verify_log(
        folder / "audit.jsonl", heads=folder / "heads.jsonl", public_key=folder / "key.pub.pem"
    )
    assert verdict.ok, verdict.problem
    assert verdict.signed_until == verdict.ends_with == verdict.records > 20
    assert verdict.heads >= 4


@pytest.mark.req("CP-22")
@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_an_old_log_is_read_and_replayed(folder):
    """Every record is an event, and every decision in it comes out as it was recorded."""
    events = [record.event for record in read_log(folder / "audit.jsonl")]
    assert {"plan_declared", "attempt_failed", "retry_attempt"} <= {e.event_type for e in events}
    report = replay_log(folder / "audit.jsonl")
    assert report.ok, report.divergence
    assert report.calls == 7
