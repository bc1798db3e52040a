"""How long to wait: every formula and every table of the documents, to the digit."""

import math
import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.entropy import key_of, uniform
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.policy import Policy
from mainstay.errors import PolicyError

BELOW_ONE = 1.0 - 2.0**-53
"""The largest u there is."""

U = st.floats(0.0, 1.0, exclude_max=True)
SECONDS = st.floats(0.0, 1000.0)
RETRIES = st.integers(1, 1_000_000)


def short(value):
    """A name for a test case, where the value has 400 digits."""
    return repr(value)[:9]


def spread(jitter, backoff, n, u, previous=0.0):
    return jitter.spread(backoff.base(n), u, previous, backoff.part(n))


def bounds(jitter, backoff, n):
    """The least and the greatest delay before retry n."""
    return spread(jitter, backoff, n, 0.0), spread(jitter, backoff, n, BELOW_ONE)


# --- the tables of the effects document: its attempt 0 is our retry 1 -----------------------------

DEFAULT_TABLE = [
    (0, 1.0, 0.75, 1.25),
    (1, 2.0, 1.50, 2.50),
    (2, 4.0, 3.00, 5.00),
    (3, 8.0, 6.00, 10.00),
    (4, 16.0, 12.00, 20.00),
    (5, 32.0, 24.00, 40.00),
    (6, 60.0, 45.00, 75.00),
    (7, 60.0, 45.00, 75.00),
    (50, 60.0, 45.00, 75.00),
    (5_000, 60.0, 45.00, 75.00),
]
AGGRESSIVE_TABLE = [
    (0, 0.1, 0.075, 0.125),
    (1, 0.3, 0.225, 0.375),
    (2, 0.9, 0.675, 1.125),
    (3, 2.7, 2.025, 3.375),
    (4, 8.1, 6.075, 10.125),
    (5, 24.3, 18.225, 30.375),
    (6, 30.0, 22.50, 37.50),
    (7, 30.0, 22.50, 37.50),
    (50, 30.0, 22.50, 37.50),
    (5_000, 30.0, 22.50, 37.50),
]


@pytest.mark.req("EF-06", "NFR-041-12", "FR-041-38", "FR-041-41", "FR-041-42", "AC-018", "AC-021")
@pytest.mark.parametrize(("attempt", "base", "low", "high"), DEFAULT_TABLE)
def test_the_default_table_of_the_effects_document(attempt, base, low, high):
    """Base 2, 1 s, at most 60 s, ±25 %: every row, capped rows included."""
    backoff = Backoff.exponential(1.0, factor=2.0, max_delay=60.0)
    assert backoff.base(attempt + 1) == base
    assert bounds(Jitter.percent(0.25), backoff, attempt + 1) == pytest.approx((low, high), 1e-12)


@pytest.mark.req("EF-06", "NFR-041-12", "FR-041-39", "UT-041-04", "AC-019")
@pytest.mark.parametrize(("attempt", "base", "low", "high"), AGGRESSIVE_TABLE)
def test_the_aggressive_table_of_the_effects_document(attempt, base, low, high):
    """Base 3, 0.1 s, at most 30 s, ±25 %: every row, capped rows included."""
    backoff = Backoff.exponential(0.1, factor=3.0, max_delay=30.0)
    assert backoff.base(attempt + 1) == pytest.approx(base, rel=1e-12)
    assert bounds(Jitter.percent(0.25), backoff, attempt + 1) == pytest.approx((low, high), 1e-12)


@pytest.mark.req("EF-06")
@given(attempt=st.integers(0, 1_000), u=U)
def test_the_formula_of_the_effects_document(attempt, u):
    """Our delay is min(initial × base^attempt, max) × (1 ± jitter), attempt from 0."""
    backoff = Backoff.exponential(0.1, factor=3.0, max_delay=30.0)
    capped = min(0.1 * 3.0 ** min(attempt, 600), 30.0)
    expected = capped * (1.0 + (-0.25 + 0.5 * u))
    assert spread(Jitter.percent(0.25), backoff, attempt + 1, u) == pytest.approx(expected, 1e-12)


@pytest.mark.req("CP-04", "NFR-041-12", "FR-041-46")
@pytest.mark.parametrize(
    ("n", "base", "low", "high"),
    [(1, 1.0, 0.9, 1.1), (2, 2.0, 1.8, 2.2), (3, 4.0, 3.6, 4.4), (4, 8.0, 7.2, 8.8)],
)
def test_the_delay_examples_of_the_control_plane(n, base, low, high):
    """1 s × 2 with ±10 %: 1, 2, 4 and 8 seconds, each within its tenth."""
    backoff = Backoff.exponential(1.0, factor=2.0, max_delay=30.0)
    assert backoff.base(n) == base
    assert bounds(Jitter.percent(0.1), backoff, n) == pytest.approx((low, high), rel=1e-12)


@pytest.mark.req("CP-04")
@given(
    initial=SECONDS,
    factor=st.floats(1.0, 10.0),
    extra=SECONDS,
    n=st.integers(1, 60),
    u=U,
    share=st.floats(0.0, 1.0),
)
def test_the_formula_of_the_control_plane(initial, factor, extra, n, u, share):
    """Min(base × multiplier^(n−1), max), then ± its share, never below 0."""
    backoff = Backoff.exponential(initial, factor=factor, max_delay=initial + extra)
    capped = min(initial * factor ** (n - 1), initial + extra)
    delay = spread(Jitter.percent(share), backoff, n, u)
    assert delay == pytest.approx(max(0.0, capped + capped * share * (2 * u - 1)), 1e-9, 1e-9)
    assert delay >= 0.0


# --- the curves ---------------------------------------------------------------------------------


@pytest.mark.req("FR-041-36", "FR-041-03", "UT-041-03", "AC-017", "AC-003")
@given(delay=st.floats(0.0, 31_622_400.0), n=RETRIES)
def test_constant_is_the_same_each_time(delay, n):
    """A constant backoff waits as long each time, also beyond the usual minute."""
    assert Backoff.constant(delay).base(n) == delay


@pytest.mark.req("FR-041-48", "FR-041-49", "AC-023")
@pytest.mark.parametrize(
    "backoff",
    [
        Backoff.constant(0),
        Backoff.linear(0, step=0),
        Backoff.exponential(0),
        Backoff.custom(lambda n: 0),
    ],
    ids=lambda backoff: backoff.kind,
)
@pytest.mark.parametrize("kind", ["none", "percent", "full", "equal", "decorrelated"])
def test_zero_delay_retries_at_once(backoff, kind):
    """A delay of zero stays zero: every curve, every jitter of a share, any retry."""
    for n in (1, 2, 1_000, 1_000_000):
        assert spread(Jitter(kind, 0.5 if kind == "percent" else 0.0), backoff, n, 0.9) == 0.0


@pytest.mark.req("FR-041-37", "UT-041-03")
@given(initial=SECONDS, step=SECONDS, extra=SECONDS, n=RETRIES)
def test_linear_grows_by_its_step_up_to_the_cap(initial, step, extra, n):
    """Linear is d + (n − 1) · step, and no more than the cap."""
    ceiling = initial + extra
    backoff = Backoff.linear(initial, step=step, max_delay=ceiling)
    assert backoff.base(n) == min(initial + (n - 1) * step, ceiling)


@pytest.mark.req("FR-041-37")
def test_linear_without_a_step_grows_by_its_first_delay():
    """Linear(2) is 2, 4, 6."""
    assert [Backoff.linear(2.0).base(n) for n in (1, 2, 3)] == [2.0, 4.0, 6.0]


@pytest.mark.req("FR-041-38", "FR-041-39", "FR-041-41", "UT-041-03", "UT-041-05", "AC-020")
@given(initial=SECONDS, factor=st.floats(1.0, 1000.0), extra=SECONDS, n=st.integers(1, 100))
def test_exponential_multiplies_up_to_the_cap(initial, factor, extra, n):
    """Exponential is initial · factor^(n−1), and no more than the cap."""
    ceiling = initial + extra
    backoff = Backoff.exponential(initial, factor=factor, max_delay=ceiling)
    assert backoff.base(n) == min(initial * factor ** (n - 1), ceiling)


@pytest.mark.req("FR-041-38", "FR-041-40")
def test_a_curve_is_exponential_by_two_unless_told_otherwise():
    """The default is 0.1 s, doubled each time, up to a minute."""
    for backoff in (Backoff(), Backoff.exponential()):
        assert (backoff.kind, backoff.initial, backoff.factor) == ("exponential", 0.1, 2.0)
        assert backoff.max_delay == 60.0
        assert [backoff.base(n) for n in (1, 2, 3)] == [0.1, 0.2, 0.4]


@pytest.mark.req("FR-041-41", "NFR-041-12")
@pytest.mark.parametrize("n", [1_024, 1_025, 1_026, 10_000, 1_000_000, 2**63])
def test_a_power_past_what_a_float_holds_is_the_cap(n):
    """Retry number one million waits the cap; it does not overflow."""
    assert Backoff.exponential(1.0, max_delay=30.0).base(n) == 30.0
    assert Backoff.exponential(1.0, factor=1000.0, max_delay=30.0).base(n) == 30.0
    assert Backoff.linear(1.0, step=5.0, max_delay=30.0).base(n) == 30.0
    assert Backoff.exponential(0.0, max_delay=30.0).base(n) == 0.0


def test_a_product_that_becomes_infinite_is_the_cap():
    """Initial × factor^n may pass the largest float without an error; the cap holds."""
    backoff = Backoff.exponential(1000.0, factor=2.0, max_delay=2000.0)
    assert backoff.base(1_020) == 2000.0


def test_a_factor_of_one_never_grows():
    """Factor 1 is a constant, at the millionth retry too."""
    assert Backoff.exponential(0.5, factor=1.0, max_delay=30.0).base(1_000_000) == 0.5


@pytest.mark.req("FR-041-41")
@given(
    backoff=st.builds(
        lambda kind, initial, factor, step, extra: Backoff(
            kind, initial, factor=factor, step=step, max_delay=initial + extra
        ),
        st.sampled_from(["constant", "linear", "exponential"]),
        SECONDS,
        st.floats(1.0, 1000.0),
        SECONDS,
        SECONDS,
    ),
    n=RETRIES,
)
def test_no_curve_falls_passes_its_cap_or_goes_below_zero(backoff, n):
    """Every curve stays in [0, max_delay] and never shrinks from one retry to the next."""
    assert 0.0 <= backoff.base(n) <= backoff.base(n + 1) <= backoff.max_delay


def test_the_cap_is_a_minute_unless_told_otherwise():
    """For every curve; a longer constant delay is its own cap."""
    for backoff in (Backoff.constant(1), Backoff.linear(1), Backoff.custom(lambda n: n)):
        assert backoff.max_delay == 60.0
    assert Backoff.constant(90).max_delay == 90.0
    assert Backoff.custom(lambda n: n).initial == 0.0


def test_a_custom_curve_is_asked_with_the_number_of_the_retry():
    """The user's function gives the seconds before retry n, up to the cap."""
    backoff = Backoff.custom(lambda n: n * 2, max_delay=5.0)
    delays = [backoff.base(n) for n in (1, 2, 3)]
    assert delays == [2.0, 4.0, 5.0]
    assert {type(delay) for delay in delays} == {float}


@pytest.mark.parametrize(
    "answer",
    [math.nan, math.inf, -math.inf, -0.001, None, "3", True, 1 + 0j, 10**400, -(10**400)],
    ids=short,
)
def test_a_custom_curve_that_answers_nonsense_waits_the_cap(answer):
    """What is no finite number, or below zero, counts as max_delay."""
    assert Backoff.custom(lambda _: answer, max_delay=7.0).base(1) == 7.0


def test_a_custom_curve_that_answers_zero_waits_not_at_all():
    """Zero is a delay."""
    assert Backoff.custom(lambda _: 0, max_delay=7.0).base(1) == 0.0


# --- jitter -------------------------------------------------------------------------------------

CURVE = Backoff.exponential(2.0, factor=2.0, max_delay=10.0)
"""2, 4, 8, 10, 10, …"""


@pytest.mark.req("FR-041-06", "AC-006")
@given(n=RETRIES, u=U, previous=SECONDS)
def test_no_jitter_is_the_delay_as_it_is(n, u, previous):
    """Without jitter, chance and the past play no part."""
    assert spread(Jitter.none(), CURVE, n, u, previous) == CURVE.base(n)


@pytest.mark.req("FR-041-42", "UT-041-06", "AC-021")
@given(n=RETRIES, u=U, share=st.floats(0.0, 1.0), previous=SECONDS)
def test_percent_is_a_share_around_the_capped_delay(n, u, share, previous):
    """Percent is ±p of the capped delay: it may pass the cap by p, and never goes below zero."""
    delay = spread(Jitter.percent(share), CURVE, n, u, previous)
    base = CURVE.base(n)
    assert delay == pytest.approx(base * (1.0 - share + 2.0 * share * u), abs=1e-12)
    assert 0.0 <= delay <= base * (1.0 + share) * (1.0 + 1e-15)  # the last bit may round up


@pytest.mark.req("FR-041-41", "FR-041-42")
def test_the_cap_comes_first_and_the_jitter_after():
    """Clients at the cap still spread: 10 s ± 20 % reaches from 8 s to 12 s."""
    assert bounds(Jitter.percent(0.2), CURVE, 50) == pytest.approx((8.0, 12.0))
    assert bounds(Jitter.full(), CURVE, 50) == pytest.approx((0.0, 10.0))
    assert bounds(Jitter.equal(), CURVE, 50) == pytest.approx((5.0, 10.0))


@pytest.mark.req("CL-01")
@given(n=RETRIES, u=U, seconds=SECONDS, previous=SECONDS)
def test_additive_adds_seconds_and_is_capped_again(n, u, seconds, previous):
    """Additive is min(delay + u · seconds, max_delay)."""
    delay = spread(Jitter.additive(seconds), CURVE, n, u, previous)
    assert delay == min(CURVE.base(n) + u * seconds, 10.0)


@pytest.mark.req("FR-041-44")
@given(n=RETRIES, u=U, previous=SECONDS)
def test_full_is_anything_up_to_the_delay(n, u, previous):
    """Full is u · delay."""
    assert spread(Jitter.full(), CURVE, n, u, previous) == u * CURVE.base(n)


@given(n=RETRIES, u=U, previous=SECONDS)
def test_equal_is_half_the_delay_and_up_to_the_other_half(n, u, previous):
    """Equal is delay/2 + u · delay/2."""
    base = CURVE.base(n)
    assert spread(Jitter.equal(), CURVE, n, u, previous) == base / 2 + u * base / 2


@pytest.mark.req("FR-041-45")
@given(n=RETRIES, u=U, previous=st.floats(0.001, 1000.0))
def test_decorrelated_grows_from_the_delay_before(n, u, previous):
    """Between the initial delay and three times the one before, of which the cap is the most."""
    delay = spread(Jitter.decorrelated(), CURVE, n, u, previous)
    assert delay == 2.0 + u * (min(10.0, 3.0 * max(2.0, previous)) - 2.0)


@pytest.mark.req("FR-041-45")
def test_decorrelated_delays_do_not_pile_up_at_the_cap():
    """Of the delays 5 to 8 of 2,000 clients none is the cap, and no tenth has twice its share."""
    curve = Backoff.exponential(0.1, max_delay=5.0)
    found = []
    for client in range(2000):
        key, previous = key_of(3, client), 0.0
        for n in range(1, 9):
            previous = spread(Jitter.decorrelated(), curve, n, uniform(key, n), previous)
            found += [previous] * (n >= 5)
    assert curve.max_delay not in found
    assert sum(delay > 4.51 for delay in found) < 0.1 * len(found)


@pytest.mark.req("FR-041-45")
@given(u=U)
def test_the_first_decorrelated_delay_grows_from_the_initial_one(u):
    """Before the first retry nothing was waited: the initial delay stands for it."""
    assert spread(Jitter.decorrelated(), CURVE, 1, u) == 2.0 + u * 4.0


@pytest.mark.req("FR-041-45", "NFR-041-12")
@given(us=st.lists(U, min_size=1, max_size=30))
def test_a_row_of_decorrelated_delays_stays_between_initial_and_cap(us):
    """Whatever is drawn, each delay of the row lies in [initial, max_delay]."""
    previous = 0.0
    for n, u in enumerate(us, 1):
        previous = spread(Jitter.decorrelated(), CURVE, n, u, previous)
        assert 2.0 <= previous <= 10.0


@given(delay=SECONDS, u=U)
def test_a_ramp_is_the_spread_worked_out_ahead(delay, u):
    """For jitters that take a share, low + span · u is the delay, whatever came before."""
    for jitter in (Jitter.none(), Jitter.percent(0.3), Jitter.full(), Jitter.equal()):
        low, span = jitter.ramp(delay)
        assert jitter.is_share
        assert low + span * u == jitter.spread(delay, u, 5.0, CURVE)


def test_additive_and_decorrelated_have_no_ramp():
    """They depend on more than the delay, and say so."""
    for jitter in (Jitter.additive(1.0), Jitter.decorrelated()):
        assert not jitter.is_share
        assert jitter.ramp(4.0) == (0.0, 0.0)


def test_a_jitter_without_arguments_spreads_nothing():
    """Jitter() is ±0 %."""
    assert Jitter() == Jitter.percent(0.0)
    assert spread(Jitter(), CURVE, 1, 0.9) == 2.0


# --- wrong values ---------------------------------------------------------------------------------

NOT_SECONDS = [-1, -0.001, math.nan, math.inf, -math.inf, True, "1", None, 31_622_401, 10**400]


def problems(function, *args, **kwargs):
    """The problems of a value that is refused, as (field, value, allowed)."""
    with pytest.raises(PolicyError) as caught:
        function(*args, **kwargs)
    return [(p.field, p.value, p.allowed) for p in caught.value.problems]


@pytest.mark.req("FR-041-14", "FR-041-15", "CL-01")
@pytest.mark.parametrize("value", NOT_SECONDS, ids=short)
def test_a_wrong_initial_delay_is_refused(value):
    """What is no number of seconds from 0 to a year is refused by name, in every curve."""
    for make in (Backoff.constant, Backoff.linear, Backoff.exponential):
        [(field, shown, allowed)] = problems(make, value)
        assert (field, allowed) == ("initial", "a finite number of seconds from 0 to 31622400")
        assert shown is value


@pytest.mark.req("FR-041-15")
@pytest.mark.parametrize("value", NOT_SECONDS, ids=short)
def test_a_wrong_max_delay_is_refused(value):
    """The cap is a number of seconds as well."""
    [(field, shown, _)] = problems(Backoff.exponential, 0.0, max_delay=value)
    assert field == "max_delay"
    assert shown is value


@pytest.mark.parametrize("value", [v for v in NOT_SECONDS if v is not None], ids=short)
def test_a_wrong_step_is_refused(value):
    """So is the step; None means the initial delay."""
    [(field, shown, _)] = problems(Backoff.linear, 1.0, step=value)
    assert field == "step"
    assert shown is value


@pytest.mark.req("FR-041-15", "CL-01")
@pytest.mark.parametrize("value", [0.999, 0, -2, 1000.1, math.nan, math.inf, True, "2", None])
def test_a_wrong_factor_is_refused(value):
    """A factor below 1 would shrink the delay, one above 1000 is a mistake."""
    [(field, shown, allowed)] = problems(Backoff.exponential, 1.0, factor=value)
    assert (field, allowed) == ("factor", "a finite number from 1 to 1000")
    assert shown is value


@pytest.mark.req("FR-041-15", "CL-01")
def test_a_cap_below_the_initial_delay_is_refused():
    """Max_delay must be at least the initial delay, and may equal it."""
    assert problems(Backoff.exponential, 2.0, max_delay=1.5) == [
        ("max_delay", 1.5, "at least the initial delay, 2")
    ]
    assert Backoff.exponential(2.0, max_delay=2.0).base(3) == 2.0


@pytest.mark.req("FR-041-15")
@pytest.mark.parametrize("kind", ["zigzag", "", "Exponential", None, 3, [], {}])
def test_an_unknown_curve_or_jitter_is_refused_with_the_known_ones(kind):
    """An unknown kind of any type is refused, and the message lists the kinds there are."""
    assert problems(Backoff, kind) == [
        ("kind", kind, "one of constant, linear, exponential, custom, chain")
    ]
    assert problems(Jitter, kind) == [
        ("kind", kind, "one of none, percent, additive, full, equal, decorrelated")
    ]


@pytest.mark.parametrize("function", [3, "n", int, Backoff()], ids=repr)
def test_a_custom_curve_must_be_a_function(function):
    """A number, a text, a class or a value is no curve."""
    assert problems(Backoff.custom, function) == [("function", function, "a function, or None")]


def test_a_custom_curve_needs_its_function():
    """The kind alone is not enough."""
    assert problems(Backoff, "custom") == [("function", None, "a function of the retry's number")]


@pytest.mark.req("FR-041-15", "FR-041-42")
@pytest.mark.parametrize("value", [-0.01, 1.01, 10, math.nan, math.inf, True, "10", None])
def test_a_wrong_share_is_refused(value):
    """A share is between 0 and 1: 10 for ten percent is a mistake."""
    [(field, shown, allowed)] = problems(Jitter.percent, value)
    assert (field, allowed) == ("amount", "a finite number from 0 to 1")
    assert shown is value


@pytest.mark.req("CL-01")
@pytest.mark.parametrize("value", NOT_SECONDS, ids=short)
def test_a_wrong_additive_jitter_is_refused(value):
    """Additive jitter is a number of seconds, not below 0."""
    [(field, shown, _)] = problems(Jitter.additive, value)
    assert field == "amount"
    assert shown is value


@pytest.mark.req("FR-041-14", "FR-041-15")
def test_all_problems_of_a_backoff_come_at_once():
    """Nobody mends a backoff one error at a time; the subject is named too."""
    with pytest.raises(PolicyError) as caught:
        Backoff("linear", -1, factor=0, step=-2, max_delay=math.nan, function=3)
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["initial", "factor", "step", "max_delay", "function"]
    assert caught.value.subject == "Backoff.linear"


def test_the_subject_is_the_value_that_was_asked_for():
    """The message begins with what was being built, where that is known."""
    for make, subject in [
        (lambda: Backoff.constant(-1), "Backoff.constant"),
        (lambda: Backoff("zigzag"), "Backoff"),
        (lambda: Jitter.percent(2), "Jitter.percent"),
        (lambda: Jitter("zigzag"), "Jitter"),
        (lambda: Backoff.from_dict({"x": 1}), "Backoff"),
        (lambda: Jitter.from_dict({"x": 1}), "Jitter"),
    ]:
        with pytest.raises(PolicyError) as caught:
            make()
        assert caught.value.subject == subject


# --- as data --------------------------------------------------------------------------------------

BACKOFFS = [
    Backoff.constant(0),
    Backoff.constant(3600),
    Backoff.linear(1, step=0.5, max_delay=9),
    Backoff.exponential(0.05, factor=3, max_delay=30),
]
JITTERS = [
    Jitter.none(),
    Jitter.percent(0.25),
    Jitter.additive(1.5),
    Jitter.full(),
    Jitter.equal(),
    Jitter.decorrelated(),
]


@pytest.mark.req("FR-041-17")
@pytest.mark.parametrize("value", [*BACKOFFS, *JITTERS], ids=repr)
def test_a_value_comes_back_from_its_dictionary_and_from_pickle(value):
    """Backoff and jitter survive both forms as equal values that wait as long."""
    for other in (type(value).from_dict(value.to_dict()), pickle.loads(pickle.dumps(value))):
        assert other == value
        assert hash(other) == hash(value)
    if isinstance(value, Backoff):
        assert pickle.loads(pickle.dumps(value)).base(3) == value.base(3)


@pytest.mark.req("FR-041-17")
def test_the_dictionary_of_a_backoff():
    """Every field is in it, under its own name."""
    assert Backoff.linear(1, step=0.5, max_delay=9).to_dict() == {
        "kind": "linear", "initial": 1.0, "factor": 2.0, "step": 0.5, "max_delay": 9.0,
    }  # fmt: skip
    assert Jitter.additive(2).to_dict() == {"kind": "additive", "amount": 2.0}


def test_numbers_become_floats():
    """1 and 1.0 are the same backoff."""
    assert Backoff.constant(1) == Backoff.constant(1.0)
    assert type(Backoff.constant(1).initial) is float
    assert type(Jitter.additive(1).amount) is float


def test_an_unknown_key_of_a_dictionary_is_refused_with_the_known_ones():
    """A misspelt or foreign key is named; nothing is dropped in silence."""
    assert problems(Backoff.from_dict, {"kind": "constant", "inital": 2.0, 7: 1}) == [
        ("inital", 2.0, "left out; known: kind, initial, factor, step, max_delay, delays, then"),
        ("7", 1, "left out; known: kind, initial, factor, step, max_delay, delays, then"),
    ]
    assert problems(Jitter.from_dict, {"share": 0.1}) == [
        ("share", 0.1, "left out; known: kind, amount")
    ]
    assert problems(Backoff.from_dict, {"function": abs})[0][0] == "function"


# --- chains ---------------------------------------------------------------------------------------


@given(delays=st.lists(SECONDS, min_size=1, max_size=10), n=RETRIES)
def test_a_chain_is_one_delay_after_the_other_and_the_last_repeats(delays, n):
    """Retry n waits the n-th delay; beyond them, the last."""
    assert Backoff.chain(*delays).base(n) == delays[min(n, len(delays)) - 1]


@given(delays=st.lists(SECONDS, max_size=10), n=RETRIES)
def test_a_chain_goes_on_by_a_curve_that_counts_from_one(delays, n):
    """The last may be a Backoff: it begins where the delays end."""
    chain = Backoff.chain(*delays, CURVE)
    own = n - len(delays)
    assert chain.base(n) == (delays[n - 1] if own < 1 else CURVE.base(own))


def test_a_backoff_in_the_middle_of_a_chain_is_its_first_delay():
    """Each but the last is for one retry."""
    chain = Backoff.chain(Backoff.linear(3), CURVE, Backoff.constant(7))
    assert [chain.base(n) for n in (1, 2, 3, 4)] == [3.0, 2.0, 7.0, 7.0]


def test_chains_may_be_part_of_chains():
    """The last one goes on in its own way."""
    assert [Backoff.chain(1, Backoff.chain(2, 3)).base(n) for n in (1, 2, 3, 4)] == [1, 2, 3, 3]


def test_a_chain_knows_its_first_and_its_longest_delay():
    """Jitters and `explain` go by them."""
    for chain, first, longest in (
        (Backoff.chain(2, 0.5), 2.0, 60.0),
        (Backoff.chain(90, 5), 90.0, 90.0),
        (Backoff.chain(2, CURVE), 2.0, 10.0),
        (Backoff.chain(CURVE), 2.0, 10.0),
        (Backoff.chain(30, CURVE), 30.0, 30.0),
    ):
        assert (chain.initial, chain.max_delay) == (first, longest)


def test_decorrelated_jitter_keeps_to_the_chain():
    """Each delay of the chain is the least, so that a first delay of 0 does not stay."""
    chain = Backoff.chain(0, 4, 8)
    assert spread(Jitter.decorrelated(), chain, 1, 0.5) == 0.0
    assert spread(Jitter.decorrelated(), chain, 2, 0.5, previous=0.0) == 8.0
    assert spread(Jitter.decorrelated(), chain, 3, 0.5, previous=8.0) == 16.0


@pytest.mark.parametrize(
    "jitter",
    [Jitter.percent(0.1), Jitter.full(), Jitter.equal(), Jitter.additive(3), Jitter.decorrelated()],
    ids=lambda jitter: jitter.kind,
)
@pytest.mark.parametrize("chain", [Backoff.chain(5), Backoff.chain(0.1, 1, 5)])
def test_clients_at_the_end_of_a_chain_do_not_wait_alike(chain, jitter):
    """Its last delay is spread as a constant one is; capped at itself, all waited exactly that."""
    waits = {spread(jitter, chain, 9, n / 50, previous=5.0) for n in range(50)}
    assert len(waits) == 50
    assert waits == {
        spread(jitter, Backoff.constant(5), 9, n / 50, previous=5.0) for n in range(50)
    }


@given(
    delays=st.lists(SECONDS, max_size=3), n=RETRIES, u=U, previous=SECONDS,
    kind=st.sampled_from(["none", "percent", "additive", "full", "equal", "decorrelated"]),
)  # fmt: skip
def test_the_curve_at_the_end_of_a_chain_is_spread_as_it_is_by_itself(delays, n, u, previous, kind):
    """Its own first delay and its own cap count, not those of the chain."""
    jitter = Jitter(kind, 0.5)
    chained = spread(jitter, Backoff.chain(*delays, CURVE), len(delays) + n, u, previous)
    assert chained == spread(jitter, CURVE, n, u, previous)


def test_a_chain_within_a_chain_is_spread_by_the_part_that_serves():
    """The curve of the inner one, once all fixed delays are used up."""
    chain = Backoff.chain(1, Backoff.chain(2, CURVE))
    assert [chain.part(n) is CURVE for n in (1, 2, 3, 4)] == [False, False, True, True]
    assert chain.part(2).kind == "chain"


def test_decorrelated_delays_of_a_curve_in_a_chain_do_not_pile_up_at_its_cap():
    """Each that had reached the cap waited exactly that: clients came back together."""
    chain = Backoff.chain(0.1, 0.1, Backoff.exponential(1.0, max_delay=30.0))
    waits = [
        Policy(max_attempts=12, backoff=chain, jitter=Jitter.decorrelated()).delays(seed)[-1]
        for seed in range(200)
    ]
    assert len(set(waits)) > 190


def test_decorrelated_delays_after_a_short_wait_differ():
    """The first of a curve that begins after short delays, or after a Retry-After."""
    waits = {spread(Jitter.decorrelated(), CURVE, 1, n / 50, previous=0.1) for n in range(50)}
    assert len(waits) == 50
    assert (min(waits), max(waits) < 6.0) == (2.0, True)


def test_a_chain_that_was_recorded_with_another_cap_keeps_it():
    """So calls under it replay with the delays that they had."""
    recorded = Backoff.chain(1, 5).to_dict() | {"max_delay": 5.0}
    assert Backoff.from_dict(recorded).max_delay == 5.0
    assert spread(Jitter.additive(3), Backoff.from_dict(recorded), 9, 0.5) == 5.0


@pytest.mark.parametrize(
    "chain", [Backoff.chain(1, 2), Backoff.chain(0.5, CURVE), Backoff.chain(1, Backoff.chain(2))]
)
def test_a_chain_is_a_value(chain):
    """Equal, hashed, pickled, and the same after JSON."""
    again = Backoff.from_dict(chain.to_dict())
    assert again == chain == pickle.loads(pickle.dumps(chain))
    assert hash(again) == hash(chain)
    assert chain != Backoff.chain(9)


def test_the_plain_form_of_other_curves_is_as_it_was():
    """Records number their plans by it."""
    assert "delays" not in Backoff.constant(1).to_dict()
    assert Backoff.chain(1).to_dict()["delays"] == [1.0]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (Backoff.chain, "delays"),
        (lambda: Backoff.chain(1, -2), "delays"),
        (lambda: Backoff.chain(1, "2"), "delays"),
        (lambda: Backoff.chain(Backoff.custom(len), 2), "delays"),
        (lambda: Backoff.chain(1, Backoff.custom(len)), "then"),
        (lambda: Backoff("chain", delays=7), "delays"),
        (lambda: Backoff("chain", delays=[1], then=2), "then"),
        (lambda: Backoff("constant", 1, delays=[1]), "delays"),
        (lambda: Backoff("constant", 1, then=CURVE), "delays"),
        (lambda: Backoff.from_dict({"kind": "chain", "then": {"kind": "x"}}), "kind"),
    ],
)  # fmt: skip
def test_a_wrong_chain_is_refused(make, field):
    """With the field, once."""
    [(name, _, _)] = problems(make)
    assert name == field


# --- timedelta ------------------------------------------------------------------------------------


def test_a_length_of_time_may_be_a_timedelta():
    """In every curve and in additive jitter; the fields are seconds."""
    half, minute = timedelta(milliseconds=500), timedelta(minutes=1)
    assert Backoff.constant(half) == Backoff.constant(0.5)
    assert Backoff.constant(2 * minute).base(1) == 120.0
    assert Backoff.linear(half, step=minute, max_delay=2 * minute).base(2) == 60.5
    assert Backoff.exponential(half, max_delay=minute) == Backoff.exponential(0.5, max_delay=60)
    assert Backoff.chain(half, minute).delays == (0.5, 60.0)
    assert Backoff.custom(lambda n: n * half).base(3) == 1.5
    assert Jitter.additive(half) == Jitter.additive(0.5)


@pytest.mark.parametrize("value", [timedelta(seconds=-1), timedelta(days=400)])
def test_a_timedelta_has_the_bounds_of_seconds(value):
    """Not below 0, not above a year."""
    [(field, _, _)] = problems(Backoff.exponential, value, max_delay=timedelta(days=366))
    assert field == "initial"
