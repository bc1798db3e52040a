"""Rows of deadlines that are measured at once, beside a bare wait."""

from functools import partial

from bench.lateness import beside_a_bare_wait


def test_rows_keep_their_order_and_one_that_fails_says_why():
    """Each is measured in another process, and none is lost with the one that cannot be."""
    calls = {
        "second of its kind": partial(list, [0.004] * 10),
        "no figure": partial(int, "none"),
        "a first": partial(list, [0.002] * 10),
    }
    with beside_a_bare_wait(0.01) as late:
        late.measure(calls, ("json", "a_library_that_nobody_has"))
        rows = late.finish()
    assert [row.what for row in rows[:3]] == list(calls)
    assert [row.value for row in rows[:3]] == [4.0, None, 2.0]
    assert "invalid literal" in rows[1].note
    assert "beyond it" in rows[0].note


def test_the_largest_distance_to_the_bare_wait_is_a_row():
    """It is what the slowest client adds to what the machine adds."""
    with beside_a_bare_wait(0.01) as late:
        late.measure({"late": partial(list, [9.0] * 10), "in time": partial(list, [0.0] * 10)})
        *_, last = late.finish()
    assert last.value is not None
    assert 8_000.0 < last.value <= 9_000.0
    assert not last.is_met
