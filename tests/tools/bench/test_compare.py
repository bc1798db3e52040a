"""The rank of a contender among the libraries of a table."""

from bench.compare import rank
from bench.measure import Absent, Timing


def test_the_rank_is_among_the_libraries_the_fastest_first():
    """The base is none of them, and one that could not run has no place."""
    results = {
        "loop": Timing((1.0, 1.0, 1.0)),
        "mainstay": Timing((2.0, 9.0, 2.0)),
        "slow": Timing((5.0, 5.0, 5.0)),
        "quick": Timing((1.5, 1.5, 1.5)),
        "gone": Absent("not installed"),
    }
    assert rank(results, "mainstay", "loop") == "rank 2 of 3, after quick"
    assert rank(results, "quick", "loop") == "rank 1 of 3"
    assert rank(results, "gone", "loop") == ""
