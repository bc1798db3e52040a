"""Which contenders of a race have a second one, and what stands then."""

import pytest

from bench.compare import faster_than, paired, ratios
from bench.measure import Contender, Effort, Timing, _races
from bench.table import at_least, at_most

PARTS = 8
GOALS = {"ours": at_most(3), "steady": at_most(3)}


def raced(shakes, *, is_quick=False):
    """A race in which `ours` costs 2, and 4 in every other part while it shakes; who ran when."""
    runs, results = [], {}

    def contender(name):
        return Contender(name, lambda: runs.append(name) or (), lambda n: None)

    contenders = [contender(name) for name in ("base", "ours", "steady", "peer")]
    effort = Effort(seconds=0.0, parts=PARTS, is_quick=is_quick)
    schedule = _races(contenders, effort, results, GOALS)
    try:
        lane = next(schedule)
        while True:
            part = runs.count(lane.name)
            cost = {"base": 1.0, "ours": 2.0, "steady": 2.5, "peer": 8.0}[lane.name]
            if lane.name == "ours" and shakes(part) and part % 2:
                cost = 4.0
            if part > PARTS:  # a machine that has become slower since
                cost *= 10.0
            lane = schedule.send(cost * lane.count * 10)
    except StopIteration:
        return results, runs[4 * PARTS :]


def test_a_noisy_contender_with_a_goal_is_raced_against_its_base_again():
    """The others are not, and its figure is the ratio of its second race."""
    results, again = raced(lambda part: part <= PARTS)
    assert again == ["base", "ours"] * PARTS
    _, ours, steady, peer = ratios(results, "base", GOALS)
    assert (ours.value, ours.spread, ours.is_repeated) == (2.0, 0.0, True)
    assert (steady.value, steady.is_repeated, peer.is_repeated) == (2.5, False, False)


def test_a_second_race_compares_with_those_of_the_first():
    """Its seconds are those of the first race, by way of the base."""
    results, _ = raced(lambda part: part <= PARTS)
    (row,) = faster_than(
        {"mainstay": results["ours"], "tenacity": results["peer"]}, {"tenacity": at_least(1)}
    )
    assert (row.value, row.is_repeated) == (4.0, True)


def test_the_steadier_race_stands():
    """If the second was no better, the first is judged, and says that it was noisy."""
    results, _ = raced(lambda part: True)
    ours = ratios(results, "base", GOALS)[1]
    assert (ours.value, ours.is_repeated, ours.is_noisy) == (3.0, True, True)


@pytest.mark.parametrize(("shakes", "is_quick"), [(False, False), (True, True)])
def test_a_quiet_race_and_a_quick_one_are_not_repeated(shakes, is_quick):
    """A second race costs time, which a quick run has not."""
    _, again = raced(lambda part: shakes, is_quick=is_quick)
    assert again == []


def test_noisy_pairs_are_measured_as_often_again():
    """Of processes too the steadier figure stands, and only a row with a goal is measured again."""
    noisy = [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]
    row = paired("ours", noisy, at_most(3), lambda: 2.5, Effort())
    assert (row.value, row.spread, row.is_repeated) == (2.5, 0.0, True)
    for goal, effort in ((None, Effort()), (at_most(3), Effort(is_quick=True))):
        row = paired("ours", noisy, goal, pytest.fail, effort)
        assert (row.value, row.is_repeated) == (2.0, False)
    assert paired("ours", [2.0, 2.0, 2.0], at_most(3), pytest.fail, Effort()).value == 2.0
    assert Timing((1.0,)).is_repeated is False
