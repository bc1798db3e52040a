"""Saga workers killed at write boundaries: a sample of what `make crash` does as a whole."""

import pytest

from tests.crash.saga_worker import SCENARIOS
from tests.crash.sagas import Trial, Workers

URL = "sqlite:///{folder}/kept.db"


@pytest.fixture(scope="module")
def workers():
    made = Workers(2)
    yield made
    made.close()


def check(workers, trials):
    """No trial violates a property; how many kills there were."""
    reports = list(workers.run(trials))
    assert [each for report in reports for each in report.violations] == []
    return sum(report.kills for report in reports)


@pytest.mark.req("EF-14")
@pytest.mark.parametrize("scenario", ["fails", "pivot"])
def test_killed_at_every_boundary(workers, scenario):
    """No step is lost, none that is done runs again, and the undo runs for what may have been."""
    trials = workers.enumerated(URL, scenario)
    assert check(workers, trials) >= len(trials) - 2


@pytest.mark.req("EF-14")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_twice_with_two_workers(workers, scenario):
    """Workers that recover the same saga at once, of which one is killed, do not undo it twice."""
    assert check(workers, [Trial(URL, scenario, 2, (7, 5))]) >= 1


@pytest.mark.req("EF-14")
def test_killed_on_postgresql(workers, postgres_database):
    """The same where several machines share a database."""
    trials = [Trial(postgres_database, name, 2, (n,)) for n, name in enumerate(SCENARIOS, 5)]
    assert check(workers, trials) >= 3
