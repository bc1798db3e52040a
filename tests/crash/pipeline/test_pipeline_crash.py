"""Pipelines killed at write boundaries: a sample of what `make crash` does as a whole."""

import pytest

from tests.crash.pipeline.__main__ import KILLED, Worker


@pytest.mark.req("PL-03", "PL-09")
def test_killed_between_halt_quarantine_and_ledger():
    """All three are there or none; the next start carries over what was left out."""
    worker = Worker()
    try:
        violations, code, boundaries = worker.trial(0)
        assert (violations, code) == ([], 0)
        assert boundaries >= 20
        for number in range(1, boundaries + 1, 3):
            violations, code, _ = worker.trial(number)
            assert (number, violations, code) == (number, [], KILLED)
    finally:
        worker.close()
