"""The heaviest names in a table of one size: sums are exact, and what may be missing is told."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.analytics.top_k import Ranking


class Count:
    """The smallest row there is."""

    def __init__(self):
        self.weight = self.missed = self.n = 0

    def merge(self, other):
        self.n += other.n


def ranked(names, size):
    ranking = Ranking(size, Count)
    for name in names:
        ranking.row(name).n += 1
    return ranking


NAMES = st.lists(st.sampled_from("abcdefghij"), max_size=200)


@given(NAMES, st.integers(1, 12))
def test_rows_and_the_rest_are_all_there_is(names, size):
    ranking = ranked(names, size)
    assert sum(row.n for row in ranking.rows.values()) + ranking.other.n == len(names)
    assert len(ranking.rows) <= size


@given(NAMES, st.integers(1, 12))
def test_a_row_misses_no_more_than_it_says(names, size):
    true = Counter(names)
    for name, row in ranked(names, size).rows.items():
        assert row.n <= true[name] <= row.n + row.missed


@given(NAMES, st.integers(1, 12))
def test_whoever_has_more_than_its_share_is_kept(names, size):
    """More than 1/size of the stream."""
    kept = ranked(names, size).rows
    assert all(name in kept for name, n in Counter(names).items() if n > len(names) / size)


@given(NAMES)
def test_with_room_for_all_every_row_is_exact(names):
    ranking = ranked(names, 10)
    assert {name: row.n for name, row in ranking.rows.items()} == Counter(names)
    assert (ranking.gone, ranking.other.n) == (0, 0)


def test_a_million_names_take_no_more_room():
    """The frequent one among many that come once is found, and is exact."""
    names = (("often" if n % 3 == 0 else f"once-{n}") for n in range(30_000))
    ranking = ranked(names, 16)
    assert ranking.rows["often"].n == 10_000
    assert ranking.rows["often"].missed == 0
    assert len(ranking.rows) == len(ranking._heap) == 16
