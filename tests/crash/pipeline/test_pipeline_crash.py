"""Pipelines killed at write boundaries: a sample of what `make crash` does as a whole."""

import pytest

from tests.crash.pipeline.__main__ import KILLED, SQLITE, Worker


def sample(url, scenario, least, every):
    """Kills a run at every third boundary or so: nothing is violated."""
    worker = Worker(url, scenario)
    try:
        violations, code, boundaries = worker.trial(0)
        assert (violations, code) == ([], 0)
        assert boundaries >= least
        for number in range(1, boundaries + 1, every):
            violations, code, _ = worker.trial(number)
            assert (number, violations, code) == (number, [], KILLED)
    finally:
        worker.close()


@pytest.mark.req("PL-03", "PL-09")
def test_killed_between_halt_quarantine_and_ledger():
    """All three are there or none; the next start carries over what was left out."""
    sample(SQLITE, "halts", 20, 3)


@pytest.mark.req("PL-03", "PL-09")
def test_killed_between_halt_quarantine_and_ledger_on_postgresql(postgres_database):
    """The same where several machines share a database."""
    sample(postgres_database, "halts", 20, 5)


@pytest.mark.req("PL-03", "PL-09")
def test_killed_with_another_stage_under_way():
    """The halt is carried over all the same; once the lease is over, the run counts as halted."""
    sample(SQLITE, "wide", 24, 4)


@pytest.mark.req("PL-03", "PL-09")
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_killed_while_it_is_resumed(request, store):
    """The next process resumes it: it ends once, and files and store have the same."""
    url = SQLITE if store == "sqlite" else request.getfixturevalue("postgres_database")
    sample(url, "resumes", 10, 5)
