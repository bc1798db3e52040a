"""Numbers from a key: the same everywhere and for ever, spread evenly, each one alone."""

import itertools
import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.entropy import MULTIPLIER, key_of, uniform

KEYS = st.integers(min_value=0, max_value=2**52 - 1)
NUMBERS = st.one_of(st.integers(0, 200), st.integers(0, 10**6), st.integers(0, 2**64))


def splitmix64(state):
    """The published generator, written down a second time."""
    state = (state + 0x9E3779B97F4A7C15) % 2**64
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % 2**64
    return state ^ (state >> 31)


def test_the_second_writing_of_splitmix64_is_the_published_one():
    """The reference in this file gives the published first numbers of two seeds."""
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    assert splitmix64(1234567) == 6457827717110365317


@pytest.mark.req("FR-041-50", "NFR-041-19", "CP-16")
@given(seed=st.integers(-(2**70), 2**70), call=st.integers(0, 2**70))
def test_a_key_is_splitmix64_of_seed_and_call(seed, call):
    """A key can be worked out from the paper: the top 52 bits of the mixed seed and call."""
    state = (splitmix64(seed % 2**64) + call * 0x9E3779B97F4A7C15) % 2**64
    assert key_of(seed, call) == (splitmix64(state) >> 12) | 1


@given(seed=st.integers(), call=st.integers(min_value=0))
def test_a_key_is_an_odd_number_of_52_bits(seed, call):
    """Whatever the seed, negative and huge ones too, the key is odd and fits in 52 bits."""
    key = key_of(seed, call)
    assert key % 2 == 1
    assert 0 < key < 2**52


@pytest.mark.req("NFR-041-12")
@given(key=st.one_of(KEYS, st.integers(), st.sampled_from([0, 1, 2**51, 2**52 - 1])), n=NUMBERS)
def test_every_number_is_at_least_0_and_below_1(key, n):
    """The number is in [0, 1) for any key and any n, the extremes included."""
    assert 0.0 <= uniform(key, n) < 1.0


def test_the_largest_number_is_still_below_1():
    """52 one-bits are not rounded up to 1.0."""
    assert uniform(2**52 - 1, 0) == 1.0 - 2.0**-52


def test_the_smallest_numbers():
    """Every bit counts: the lowest is worth 2**-52; those above the 52 take no part."""
    assert uniform(0, 0) == 0.0
    assert uniform(1, 0) == 2.0**-52
    assert uniform(2**52, 0) == 0.0


@pytest.mark.req("CP-16")
@given(key=KEYS, n=st.integers(0, 300))
def test_jumping_ahead_is_stepping(key, n):
    """The n-th number alone is what n steps of the generator lead to, past the table as well."""
    state = key
    for _ in range(n):
        state = state * 0x57AEA2E62A9C5 % 2**52
    assert uniform(key, n) == state / 2**52


def test_the_period_is_the_longest_there_is():
    """A multiplier that is 5 modulo 8 runs through 2**50 odd numbers before it repeats."""
    assert MULTIPLIER % 8 == 5
    assert pow(MULTIPLIER, 2**50, 2**52) == 1
    assert pow(MULTIPLIER, 2**49, 2**52) != 1


@given(key=KEYS, n=st.integers(60, 2**64))
def test_a_jump_of_any_length_is_one_more_step_than_the_one_before(key, n):
    """Far out, too, number n + 1 of a key is number n of the key one step on."""
    assert uniform(key, n + 1) == uniform(key * MULTIPLIER % 2**52, n)


@pytest.mark.req("FR-041-50", "NFR-041-19", "AC-024", "CP-16", "CP-22")
@pytest.mark.parametrize(
    ("seed", "call", "key", "numbers"),
    [
        (
            0,
            0,
            0xA706DD2F4D197,
            (
                0.01908714533739153,
                0.6495311303539351,
                0.3192260015305617,
                0.4942857081029268,
                0.8021949774803596,
            ),
        ),
        (
            7,
            0,
            0xB8B4C2977EABD,
            (
                0.908161064965068,
                0.18775136950671123,
                0.43496051169652206,
                0.5031584472998099,
                0.14514252274726336,
            ),
        ),
        (
            7,
            1,
            0xA65305FD338ED,
            (
                0.8386731700922712,
                0.7333226941683872,
                0.28401664627858936,
                0.6700357510978805,
                0.7921978794322471,
            ),
        ),
        (
            -1,
            3,
            0xED4D5ED4A6EA5,
            (
                0.9993817749792682,
                0.5879450912064847,
                0.8177101045556798,
                0.8107155466110296,
                0.01789233587906236,
            ),
        ),
        (
            2**64 - 1,
            3,
            0xED4D5ED4A6EA5,
            (
                0.9993817749792682,
                0.5879450912064847,
                0.8177101045556798,
                0.8107155466110296,
                0.01789233587906236,
            ),
        ),
        (
            123456789,
            10**9,
            0x93CA82CD1EDE9,
            (
                0.4426498591913799,
                0.0021177028289260935,
                0.665480465017301,
                0.04658598331053043,
                0.4599574052052111,
            ),
        ),
    ],
)
def test_golden_numbers(seed, call, key, numbers):
    """These numbers never change: a record of today replays on every later version."""
    assert key_of(seed, call) == key
    assert tuple(uniform(key, n) for n in (1, 2, 63, 64, 10**6)) == numbers


_PROGRAM = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from mainstay.core.base.entropy import key_of, uniform
print(json.dumps([[key_of(s, c), uniform(key_of(s, c), n).hex()]
                  for s in (0, 7, -5, 2**65) for c in (0, 1, 99) for n in (1, 2, 64, 10**5)]))
"""


@pytest.mark.req("FR-041-50", "NFR-041-19", "CP-16")
@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_another_process_draws_the_same(hash_seed):
    """Keys and numbers do not depend on the process, nor on the seed of its hashes."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(sys.path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    here = [
        [key_of(s, c), uniform(key_of(s, c), n).hex()]
        for s in (0, 7, -5, 2**65)
        for c in (0, 1, 99)
        for n in (1, 2, 64, 10**5)
    ]
    assert json.loads(done.stdout) == here


def chi_square(cells, count):
    """The statistic for cells that should all be equally full."""
    cells = list(cells)
    expected = len(cells) / count
    full = Counter(cells)
    return sum((full[cell] - expected) ** 2 / expected for cell in range(count))


# 64 cells have 63 degrees of freedom: the mean is 63, the deviation 11. Outside 25..120 lies one
# sample in about 100,000; nothing here is drawn anew, so a pass today is a pass for ever.
LIKELY = (25.0, 120.0)


@pytest.mark.req("NFR-041-12")
@pytest.mark.parametrize("seed", [0, 1, 7, 2**63])
@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_the_calls_of_a_seed_are_spread_evenly(seed, n):
    """Ten thousand calls that fail together do not return together."""
    cells = (int(uniform(key_of(seed, call), n) * 64) for call in range(10_000))
    assert LIKELY[0] < chi_square(cells, 64) < LIKELY[1]


@pytest.mark.parametrize("seed", [0, 1, 7, 2**63])
def test_the_numbers_of_one_key_are_spread_evenly(seed):
    """The delays of one call are no pattern of their own."""
    key = key_of(seed, 0)
    cells = (int(uniform(key, n) * 64) for n in range(1, 10_001))
    assert LIKELY[0] < chi_square(cells, 64) < LIKELY[1]


@pytest.mark.parametrize("n", [1, 2])
def test_neighbouring_calls_and_seeds_are_independent(n):
    """A call tells nothing about the next one, and a seed nothing about its neighbour."""
    calls = [int(uniform(key_of(7, call), n) * 8) for call in range(10_000)]
    seeds = [int(uniform(key_of(seed, 0), n) * 8) for seed in range(10_000)]
    for row in (calls, seeds):
        pairs = (8 * a + b for a, b in itertools.pairwise(row))
        assert LIKELY[0] < chi_square(pairs, 64) < LIKELY[1]


def test_one_retry_tells_nothing_about_the_next():
    """Over many keys, the first two numbers of each are independent."""
    keys = [key_of(3, call) for call in range(10_000)]
    pairs = (8 * int(uniform(k, 1) * 8) + int(uniform(k, 2) * 8) for k in keys)
    assert LIKELY[0] < chi_square(pairs, 64) < LIKELY[1]
