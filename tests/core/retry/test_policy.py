"""The policy: one frozen value, checked as a whole, with its delays and its plain form."""

import copy
import json
import math
import os
import pickle
import subprocess
import sys
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.entropy import key_of, uniform
from mainstay.core.known.kind import Kind
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.policy import KindRule, Policy
from mainstay.core.retry.policy_fields import OTHER_NAMES
from mainstay.errors import PolicyError


class ApiError(Exception):
    pass


def predicate(error):
    return True


def hook(info):
    return None


def problems(make, *args, **kwargs):
    """The problems of what is refused, as (field, value, allowed)."""
    with pytest.raises(PolicyError) as caught:
        make(*args, **kwargs)
    return [(p.field, p.value, p.allowed) for p in caught.value.problems]


def fields_of(found):
    return [field for field, _, _ in found]


FULL = {
    "name": "aggressive",
    "max_attempts": 5,
    "backoff": Backoff.exponential(0.05, factor=2.0, max_delay=30.0),
    "jitter": Jitter.percent(0.20),
    "retry_on": (ConnectionError, "ThrottlingException", Kind.OVERLOAD),
    "never_retry_on": (PermissionError,),
    "classify": {ValueError: Kind.THROTTLED, "SlowDown": Kind.OVERLOAD},
    "per_kind": {Kind.THROTTLED: KindRule(8, Backoff.constant(2.0), Jitter.full())},
    "retry_if_result": None,
    "on_exhausted": "raise",
    "wait_from": None,
    "attempt_timeout": 2.0,
    "timeout_by": "thread",
    "deadline": 20.0,
    "max_retry_after": 10.0,
    "respect_retry_after": False,
    "nested": "warn",
    "before_retry": None,
    "after_retry": None,
    "log_level": "INFO",
}


# --- making one -----------------------------------------------------------------------------------


@pytest.mark.req(
    "FR-041-01", "FR-041-02", "FR-041-03", "FR-041-04", "FR-041-05", "FR-041-06", "FR-041-07",
    "FR-041-08", "FR-041-16", "AC-001", "AC-002", "AC-003", "AC-004", "AC-005", "AC-006",
    "UT-041-01", "UT-041-02",
)  # fmt: skip
def test_a_policy_holds_what_it_was_given():
    """Name, attempts, curve, first and greatest delay, jitter, what to retry and what never."""
    policy = Policy(**FULL)
    assert {name: getattr(policy, name) for name in FULL} == FULL
    assert policy.name == "aggressive"
    assert policy.max_attempts == 5
    assert (policy.backoff.kind, policy.backoff.initial) == ("exponential", 0.05)
    assert (policy.backoff.factor, policy.backoff.max_delay) == (2.0, 30.0)
    assert (policy.jitter.kind, policy.jitter.amount) == ("percent", 0.2)
    assert Policy._fields() == tuple(sorted(FULL))


@pytest.mark.req("FR-041-02", "FR-041-09", "FR-041-40", "FR-041-43", "AC-007")
def test_the_built_in_policy_is_the_agents_standard():
    """3 attempts, exponential 0.1 s × 2 up to 5 s, ±10 %; a minute of Retry-After; collapse."""
    policy = Policy()
    assert policy.max_attempts == 3
    assert policy.backoff == Backoff.exponential(0.1, factor=2.0, max_delay=5.0)
    assert policy.jitter == Jitter.percent(0.10)
    assert (policy.name, policy.retry_on, policy.never_retry_on) == ("default", None, ())
    assert (policy.classify, policy.per_kind, policy.retry_if_result) == (None, None, None)
    assert (policy.attempt_timeout, policy.deadline, policy.max_retry_after) == (None, None, 60.0)
    assert policy.respect_retry_after is True
    assert (policy.timeout_by, policy.nested, policy.log_level) == ("client", "collapse", "WARNING")
    assert (policy.before_retry, policy.after_retry) == (None, None)
    assert (policy.on_exhausted, policy.wait_from) == ("return", None)


@pytest.mark.parametrize(
    ("given_as", "rules"),
    [
        (OSError, (OSError,)),
        ("Throttled", ("Throttled",)),
        (predicate, (predicate,)),
        (Kind.TIMEOUT, (Kind.TIMEOUT,)),
        ([OSError, "X"], (OSError, "X")),
        ({OSError: 1}.keys(), (OSError,)),
        ((), ()),
    ],
    ids=["class", "name", "function", "kind", "list", "view", "none"],
)
def test_rules_may_be_given_alone_or_in_any_row(given_as, rules):
    """One rule needs no parentheses; many become a tuple."""
    assert Policy(retry_on=given_as).retry_on == rules


def test_never_retry_on_may_be_given_alone_too():
    """The same shapes go for both lists."""
    assert Policy(never_retry_on=KeyError).never_retry_on == (KeyError,)
    assert Policy(never_retry_on=[KeyboardInterrupt]).never_retry_on == (KeyboardInterrupt,)


def test_kinds_may_be_given_as_their_values():
    """In classify and per_kind a kind is a member or its text."""
    policy = Policy(classify={ApiError: "throttled"}, per_kind={"timeout": KindRule(2)})
    assert policy.classify == {ApiError: Kind.THROTTLED}
    assert policy.per_kind == {Kind.TIMEOUT: KindRule(2)}
    assert all(type(kind) is Kind for kind in (*policy.classify.values(), *policy.per_kind))
    assert policy.classification(ApiError()).kind is Kind.THROTTLED


def test_an_empty_mapping_is_none():
    """No entry is the same as no mapping."""
    assert Policy(classify={}, per_kind={}) == Policy()


@pytest.mark.req("EF-04")
@pytest.mark.parametrize("attempts", [1, 3, 10])
@pytest.mark.parametrize("initial", [0.01, 1.0, 60.0])
@pytest.mark.parametrize("ceiling", [60.0, 300.0])
@pytest.mark.parametrize("base", [1.5, 2.0, 4.0])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5])
def test_the_parameter_table_of_the_effects_document_can_be_said(
    attempts, initial, ceiling, base, share
):
    """Defaults and both ends of every range of its table make a policy that holds them."""
    policy = Policy(
        max_attempts=attempts,
        backoff=Backoff.exponential(initial, factor=base, max_delay=ceiling),
        jitter=Jitter.percent(share),
    )
    assert policy.max_attempts == attempts
    assert (policy.backoff.initial, policy.backoff.max_delay) == (initial, ceiling)
    assert (policy.backoff.factor, policy.jitter.amount) == (base, share)
    assert len(policy.delays()) == attempts - 1


@pytest.mark.req("CL-01")
def test_the_defaults_of_the_client_document_can_be_said():
    """5 attempts, 1 s, at most 30 s, base 2, up to 1 s more each time and never past the cap."""
    policy = Policy(
        max_attempts=5,
        backoff=Backoff.exponential(1.0, factor=2.0, max_delay=30.0),
        jitter=Jitter.additive(1.0),
    )
    for n, delay in enumerate(policy.delays(seed=3), 1):
        assert 2.0 ** (n - 1) <= delay < 2.0 ** (n - 1) + 1.0


# --- wrong values ---------------------------------------------------------------------------------

LONG_LIMIT = "a finite number of seconds from 0 to 31622400"
NOT_A_FUNCTION = "a function, or None"
RULES_ALLOWED = (
    "exception classes, names or error codes as text, Kinds, or functions of the exception"
)
NOT_ATTEMPTS = [0, -1, 1_000_001, True, 3.0, math.nan, "3", None]
NOT_A_LIMIT = [-1, math.nan, math.inf, True, "5", 31_622_401]


@pytest.mark.req("FR-041-14", "FR-041-15", "UT-041-02", "CL-01")
@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        *(("max_attempts", v, "an integer from 1 to 1000000") for v in NOT_ATTEMPTS),
        *(("name", v, "a text that is not empty") for v in ("", "  ", " a", None, 7)),
        *(("backoff", v, "a Backoff, such as Backoff.exp") for v in (1.0, None, "constant", {})),
        *(("jitter", v, "a Jitter, such as Jitter.percent(0.1)") for v in (0.1, None, "full")),
        *(("attempt_timeout", v, LONG_LIMIT) for v in NOT_A_LIMIT),
        *(("deadline", v, LONG_LIMIT) for v in NOT_A_LIMIT),
        *(("max_retry_after", v, LONG_LIMIT) for v in (*NOT_A_LIMIT, None)),
        *(("respect_retry_after", v, "True or False") for v in (0, None, "no")),
        ("attempt_timeout", 0, "more than 0 seconds"),
        ("deadline", 0.0, "more than 0 seconds"),
        *(("timeout_by", v, "one of client, thread") for v in ("signal", None, [])),
        *(("nested", v, "one of collapse, warn, allow, refuse") for v in ("ignore", None, True)),
        *(("log_level", v, "one of DEBUG, INFO, WARNING, ERROR, CRITICAL") for v in ("info", 25)),
        *(("before_retry", v, NOT_A_FUNCTION) for v in (3, "print", int)),
        *(("after_retry", v, NOT_A_FUNCTION) for v in (3, "print", int)),
        *(("retry_if_result", v, NOT_A_FUNCTION) for v in (False, "x", bool)),
        *(("retry_on", v, RULES_ALLOWED) for v in (3, 1.5, ConnectionError())),
        *(("never_retry_on", v, RULES_ALLOWED) for v in (3, None, ConnectionError())),
        *(("retry_on", v, "an exception class") for v in (int, object)),
        *(("never_retry_on", v, "an exception class") for v in (int, object)),
        *(("retry_on", v, "a name that is not empty") for v in ("", "  ")),
        ("retry_on", "throttled", "Kind.THROTTLED"),
        ("never_retry_on", "auth", "Kind.AUTH"),
        *(("classify", v, "a mapping such as") for v in (3, "x", [ApiError])),
        *(("per_kind", v, "a mapping such as") for v in (3, "x", [Kind.AUTH])),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_wrong_value_is_refused_by_field_value_and_what_is_allowed(field, value, allowed):
    """Every wrong value is one problem that says all three, in the message too."""
    with pytest.raises(PolicyError) as caught:
        Policy(**{field: value})
    [problem] = caught.value.problems
    assert problem.field == field
    assert problem.value is value
    assert problem.allowed.startswith(allowed)
    assert field in str(caught.value)
    assert problem.allowed in str(caught.value)


@pytest.mark.parametrize("wrong", [0, False, "", (), []], ids=repr)
@pytest.mark.parametrize("field", ["classify", "per_kind"])
def test_what_is_empty_but_no_mapping_is_refused(field, wrong):
    """Zero, False and an empty list are mistakes, not an empty mapping."""
    assert fields_of(problems(Policy, **{field: wrong})) == [field]


@pytest.mark.req("FR-041-15", "FR-041-25")
@pytest.mark.parametrize(
    "cls", [BaseException, KeyboardInterrupt, SystemExit, GeneratorExit, BaseExceptionGroup]
)
def test_what_is_never_retried_cannot_be_asked_for(cls):
    """Interrupts and exits in retry_on are refused when the policy is made."""
    [(field, value, allowed)] = problems(Policy, retry_on=(OSError, cls))
    assert (field, value) == ("retry_on", cls)
    assert allowed == (
        "Exception or a class derived from it; KeyboardInterrupt, SystemExit,"
        " GeneratorExit and cancellation are never retried"
    )
    assert Policy(never_retry_on=cls).never_retry_on == (cls,)


def test_every_wrong_rule_of_a_row_is_a_problem():
    """Each is shown; the good ones are not."""
    found = problems(Policy, retry_on=(OSError, 3, int, "", "ok"), never_retry_on=[None])
    assert found == [
        ("retry_on", 3, RULES_ALLOWED),
        ("retry_on", int, "an exception class"),
        ("retry_on", "", "a name that is not empty"),
        ("never_retry_on", None, RULES_ALLOWED),
    ]


def test_wrong_entries_of_the_mappings_are_problems():
    """Keys and values of classify and per_kind are checked one by one."""
    kinds = "one of transient, throttled, timeout, permanent, auth, ambiguous, overload, unknown"
    assert problems(Policy, classify={ApiError: "slow", OSError: Kind.AUTH}) == [
        ("classify", "slow", kinds)
    ]
    assert problems(Policy, classify={int: "auth"}) == [("classify", int, "an exception class")]
    assert problems(Policy, classify={Kind.AUTH: "throttled"}) == [
        ("classify", Kind.AUTH, "keyed by exception classes, names or functions, not by a Kind")
    ]
    assert problems(Policy, classify=3) == [
        ("classify", 3, 'a mapping such as {MyError: "throttled"}')
    ]
    assert problems(Policy, per_kind=3) == [
        ("per_kind", 3, 'a mapping such as {"throttled": KindRule(max_attempts=8)}')
    ]
    assert problems(Policy, per_kind={"throttled": 3, "slow": KindRule()}) == [
        ("per_kind[throttled]", 3, "a KindRule"),
        ("per_kind", "slow", kinds),
    ]


@pytest.mark.req("FR-041-15")
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_attempt", "max_attempts"),
        ("retries_on", "retry_on"),
        ("attempt_timout", "attempt_timeout"),
        ("Jitter", "jitter"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest(name, meant):
    """A misspelt field says what was most likely meant."""
    assert problems(Policy, **{name: 5}) == [(name, 5, f"left out; did you mean {meant}?")]


def test_an_unknown_field_like_no_other_is_refused_with_all():
    """Where nothing is near, the known fields are listed."""
    [(field, value, allowed)] = problems(Policy, qqq=5)
    assert (field, value) == ("qqq", 5)
    assert allowed == "left out; known fields: " + ", ".join(FULL)


@pytest.mark.req("FR-041-14", "FR-041-15")
def test_all_problems_come_at_once_and_nothing_half_built_remains():
    """One error holds them all, in the order of the fields; no policy comes out of it."""
    made = []

    class Spy(Policy):
        __slots__ = ()

        def _fill(self, **fields):
            made.append(fields)

    with pytest.raises(PolicyError) as caught:
        Spy(name="", max_attempts=0, backoff=1, deadline=-1, nested="x", colour="red")
    assert sorted(fields_of((p.field, 0, 0) for p in caught.value.problems)) == [
        "backoff", "colour", "deadline", "max_attempts", "name", "nested",
    ]  # fmt: skip
    assert made == []
    assert caught.value.subject == "Spy ''"


def test_the_subject_is_the_policy_by_its_name():
    """In a file with forty policies the message says which."""
    with pytest.raises(PolicyError, match=r"^Policy 'api' is not valid:"):
        Policy(name="api", max_attempts=0)
    with pytest.raises(PolicyError, match=r"^Policy 'default' is not valid:"):
        Policy(max_attempts=0)


def test_a_kind_rule_is_checked_too():
    """Attempts, backoff and jitter of a kind follow the same rules; None is the policy's own."""
    assert problems(KindRule, 0, 1.0, "full") == [
        ("max_attempts", 0, "an integer from 1 to 1000000"),
        ("backoff", 1.0, "a Backoff, such as Backoff.exponential(0.1)"),
        ("jitter", "full", "a Jitter, such as Jitter.percent(0.1)"),
    ]
    with pytest.raises(PolicyError, match=r"^KindRule is not valid"):
        KindRule(0)
    empty = KindRule()
    assert (empty.max_attempts, empty.backoff, empty.jitter) == (None, None, None)
    assert fields_of(problems(KindRule, True)) == ["max_attempts"]


# --- one vocabulary -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("short", "own", "value", "other"),
    [
        ("attempts", "max_attempts", 7, 2),
        ("on", "retry_on", (OSError,), (KeyError,)),
        ("timeout", "attempt_timeout", 1.5, 9.0),
    ],
)
def test_a_field_is_known_by_its_short_name_everywhere(short, own, value, other):
    """A policy, its copies, `a | b`, plain data: all take both names, and mean one field."""
    assert Policy(**{short: value}) == Policy(**{own: value})
    assert Policy(**{own: other}).replace(**{short: value}) == Policy(**{own: value})
    assert Policy(**{short: other}).replace(**{own: value}) == Policy(**{own: value})
    assert Policy() | Policy(**{short: value}) == Policy(**{own: value})
    plain = Policy(**{own: value}).to_dict(defaults=False)
    assert Policy.from_dict({short: plain[own]}) == Policy(**{own: value})


@pytest.mark.parametrize(("short", "own"), OTHER_NAMES.items())
@pytest.mark.parametrize("values", [(3, 3), (3, 4)])
def test_a_field_that_is_given_under_both_names_is_refused(short, own, values):
    """Also if the values are the same: one of them would be changed later, and the other not."""
    allowed = f"left out: {short} and {own} are one field, given twice"
    for names in ((short, own), (own, short)):
        fields = dict(zip(names, values, strict=True))
        found = problems(Policy, **fields)
        assert (names[1], values[1], allowed) in found
        found = problems(Policy.from_dict, fields)
        assert (names[1], values[1], allowed) in found


def test_a_kind_rule_has_the_same_names():
    """`attempts` there is max_attempts; both, or a wrong name, are refused."""
    assert KindRule(attempts=4) == KindRule(max_attempts=4) == KindRule(4)
    plain = {"per_kind": {"throttled": {"attempts": 4}}}
    assert Policy.from_dict(plain) == Policy(per_kind={"throttled": KindRule(4)})
    assert problems(KindRule, 3, attempts=4) == [
        ("attempts", 4, "left out: attempts and max_attempts are one field, given twice")
    ]
    assert problems(KindRule, tries=4) == [("tries", 4, "left out; did you mean max_attempts?")]
    assert problems(KindRule, giveup=4) == [
        ("giveup", 4, "left out; known fields: backoff, jitter, max_attempts")
    ]
    [(field, _, allowed)] = problems(Policy.from_dict, {"per_kind": {"timeout": {"atempts": 2}}})
    assert (field, allowed) == ("per_kind.atempts", "left out; did you mean attempts?")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("attempt", "attempts"),
        ("timeouts", "timeout"),
        ("max_tries", "max_attempts"),
        ("max_retries", "max_attempts, which counts the first call too"),
        ("exceptions", "retry_on"),
        ("wait", "backoff"),
        ("max_time", "deadline"),
        ("giveup", "never_retry_on"),
        ("before_sleep", "before_retry"),
    ],
)
def test_a_word_of_another_library_leads_to_the_field(word, meant):
    """A user of tenacity or backoff reads what the field is called here."""
    assert problems(Policy, **{word: 5}) == [(word, 5, f"left out; did you mean {meant}?")]


# --- frozen ---------------------------------------------------------------------------------------


@pytest.mark.req("FR-041-13")
def test_a_policy_cannot_be_changed():
    """No field can be set or deleted, old or new."""
    policy = Policy(**FULL)
    for name in (*FULL, "other", "_rules"):
        with pytest.raises(AttributeError, match="is frozen"):
            setattr(policy, name, 1)
        with pytest.raises(AttributeError, match="is frozen"):
            delattr(policy, name)
    assert policy == Policy(**FULL)


@pytest.mark.req("FR-041-13")
@pytest.mark.parametrize("field", ["per_kind", "classify"])
@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.__setitem__("x", 1),
        lambda m: m.__delitem__(next(iter(m))),
        lambda m: m.clear(),
        lambda m: m.pop(next(iter(m))),
        lambda m: m.popitem(),
        lambda m: m.update(x=1),
        lambda m: m.setdefault("x", 1),
        lambda m: m.__ior__({"x": 1}),
    ],
)
def test_its_mappings_cannot_be_changed_either(field, change):
    """Every way to change a dictionary is refused."""
    policy = Policy(**FULL)
    with pytest.raises(TypeError, match=r"^a policy is frozen: use replace\(\)$"):
        change(getattr(policy, field))
    assert policy == Policy(**FULL)


@pytest.mark.req("FR-041-13")
def test_what_a_policy_was_made_from_may_change_afterwards():
    """A list or mapping of the caller's is copied."""
    rules, told, limits = [OSError], {ApiError: "auth"}, {"timeout": KindRule(2)}
    policy = Policy(retry_on=rules, classify=told, per_kind=limits)
    rules.append(KeyError)
    told[KeyError] = "auth"
    limits.clear()
    assert policy.retry_on == (OSError,)
    assert policy.classify == {ApiError: Kind.AUTH}
    assert policy.per_kind == {Kind.TIMEOUT: KindRule(2)}


def test_equal_policies_have_equal_hashes():
    """Policies can be keys; the mappings inside them count."""
    assert Policy(**FULL) == Policy(**FULL)
    assert hash(Policy(**FULL)) == hash(Policy(**FULL))
    swapped = dict(reversed(FULL["classify"].items()))
    assert Policy(**{**FULL, "classify": swapped}) == Policy(**FULL)
    assert hash(Policy(**{**FULL, "classify": swapped})) == hash(Policy(**FULL))
    for other in ({"auth": KindRule(8)}, {"throttled": KindRule(7)}):
        assert Policy(**{**FULL, "per_kind": other}) != Policy(**FULL)
    hashes = {
        hash(Policy(per_kind={k: KindRule(n)}).per_kind)
        for k in ("auth", "timeout")
        for n in (1, 2)
    }
    assert len(hashes) == 4
    assert Policy() != Policy(max_attempts=4)


@pytest.mark.req("FR-041-17")
@pytest.mark.parametrize(
    "fields",
    [{}, {"name": "a"}, FULL, {"retry_on": predicate, "before_retry": hook}],
    ids=["default", "name", "full", "functions"],
)
def test_a_policy_survives_pickle_and_copy(fields):
    """Process pools carry policies, with what was set explicitly still known to be."""
    policy = Policy(**fields)
    back = pickle.loads(pickle.dumps(policy))
    assert back == policy
    assert back._explicit == policy._explicit
    assert (Policy(max_attempts=9) | back).max_attempts == fields.get("max_attempts", 9)
    assert copy.deepcopy(policy) is policy


# --- composition ----------------------------------------------------------------------------------


@pytest.mark.req("AG-06.replace", "FR-041-18", "FR-041-13")
def test_replace_changes_some_fields_of_a_new_policy():
    """The old one stays; what is not named is kept; wrong values are refused as ever."""
    policy = Policy(**FULL)
    other = policy.replace(max_attempts=2, name="calm")
    assert (other.max_attempts, other.name) == (2, "calm")
    assert other == Policy(**{**FULL, "max_attempts": 2, "name": "calm"})
    assert policy == Policy(**FULL)
    assert fields_of(problems(policy.replace, max_attempts=0)) == ["max_attempts"]


@pytest.mark.req("AG-06.join", "FR-041-18")
def test_joined_policies_take_what_the_second_sets_explicitly():
    """In a | b the fields set in b win, set to their default included; the others are a's."""
    a = Policy(name="a", max_attempts=9, deadline=5.0)
    assert (a | Policy()) == a
    assert (a | Policy(deadline=7.0)) == Policy(name="a", max_attempts=9, deadline=7.0)
    assert (a | Policy(max_attempts=3)).max_attempts == 3
    assert (a | Policy(deadline=None)).deadline is None
    assert (Policy() | a) == a


@pytest.mark.req("AG-06.join", "FR-041-18")
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "max_attempts": st.integers(1, 9),
                "deadline": st.none() | st.floats(1, 9),
                "nested": st.sampled_from(["collapse", "warn"]),
            },
        ),
        min_size=3,
        max_size=3,
    )
)
def test_joining_is_the_joining_of_what_was_set(rows):
    """It is associative, and the same as joining the explicit fields."""
    a, b, c = (Policy(**row) for row in rows)
    joined = Policy(**{**rows[0], **rows[1], **rows[2]})
    assert (a | b) | c == a | (b | c) == joined
    assert ((a | b) | c).to_dict(defaults=False) == joined.to_dict(defaults=False)


def test_a_policy_joins_policies_only():
    """Anything else is a TypeError, as for other operators."""
    with pytest.raises(TypeError):
        Policy() | {"max_attempts": 3}


def test_composition_keeps_the_class():
    """A subclass with verbs stays one."""

    class Loud(Policy):
        __slots__ = ()

    assert type(Loud().replace(max_attempts=2)) is Loud
    assert type(Loud() | Policy(max_attempts=2)) is Loud
    assert type(Loud.from_dict({})) is Loud


# --- delays ---------------------------------------------------------------------------------------

POLICIES = st.builds(
    lambda attempts, kind, jitter, amount, initial: Policy(
        max_attempts=attempts,
        backoff=Backoff(kind, initial, max_delay=initial + 20.0),
        jitter=Jitter(jitter, amount),
    ),
    st.integers(1, 12),
    st.sampled_from(["constant", "linear", "exponential"]),
    st.sampled_from(["none", "percent", "additive", "full", "equal", "decorrelated"]),
    st.floats(0.0, 1.0),
    st.floats(0.0, 5.0),
)


@pytest.mark.req("FR-041-46", "FR-041-50", "NFR-041-12", "NFR-041-19", "AC-024", "CP-16")
@given(policy=POLICIES, seed=st.integers())
def test_any_delay_of_a_seed_can_be_recomputed_alone(policy, seed):
    """Delay n needs the key, n, and for decorrelated jitter the delay before; nothing else."""
    delays = policy.delays(seed)
    assert len(delays) == policy.max_attempts - 1
    key = key_of(seed, 0)
    for n, delay in reversed(list(enumerate(delays, 1))):
        previous = delays[n - 2] if n > 1 else 0.0
        base = policy.backoff.base(n)
        assert delay == policy.jitter.spread(base, uniform(key, n), previous, policy.backoff)
        assert delay == policy.delay(n, uniform(key, n), previous)
        assert delay >= 0.0
    assert policy.delays(seed) == delays


@pytest.mark.req("FR-041-50", "AC-024", "FR-041-42")
def test_another_seed_gives_other_delays():
    """Seeds matter, and the default seed is 0."""
    policy = Policy(max_attempts=5)
    assert policy.delays(1) != policy.delays(2)
    assert policy.delays() == policy.delays(0)


@pytest.mark.req("FR-041-36", "FR-041-38", "FR-041-46", "AC-014", "AC-017", "AC-018")
def test_delays_without_jitter_are_the_curve():
    """What the tables say, whatever the seed."""
    plain = Policy(max_attempts=5, jitter=Jitter.none())
    assert plain.delays(9) == [0.1, 0.2, 0.4, 0.8]
    assert plain.replace(backoff=Backoff.constant(2)).delays(9) == [2.0] * 4
    assert plain.replace(backoff=Backoff.linear(1)).delays(9) == [1.0, 2.0, 3.0, 4.0]
    assert plain.replace(max_attempts=1).delays(9) == []


GOLDEN = {
    "percent": [
        1.408161064965068,
        1.3755027390134225,
        2.3751934416096754,
        11.5796698515289,
        20.527635174969763,
    ],
    "additive": [
        1.4540805324825339,
        2.0938756847533555,
        4.046899180201209,
        8.473729365720557,
        16.391488599217805,
    ],
    "full": [
        0.908161064965068,
        0.37550273901342246,
        0.3751934416096754,
        7.5796698515289,
        12.527635174969763,
    ],
    "equal": [
        0.954080532482534,
        1.1877513695067112,
        2.1875967208048377,
        7.78983492576445,
        14.263817587484882,
    ],
    "decorrelated": [
        2.816322129930136,
        2.3985536410926116,
        1.5811428362127975,
        4.546744026035027,
        10.897013500090647,
    ],
}


@pytest.mark.req("FR-041-50", "NFR-041-19", "CP-16", "CP-22", "AC-024")
@pytest.mark.parametrize("kind", GOLDEN)
def test_golden_delays(kind):
    """The delays of seed 7, for ever: a record of today replays on every later version."""
    amount = 0.5 if kind in ("percent", "additive") else 0.0
    policy = Policy(max_attempts=6, backoff=Backoff.exponential(1.0), jitter=Jitter(kind, amount))
    assert policy.delays(seed=7) == GOLDEN[kind]


_PROGRAM = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.policy import Policy
print(json.dumps([Policy(max_attempts=20, backoff=Backoff.exponential(1.0), jitter=Jitter(kind))
                  .delays(seed) for kind in ("full", "decorrelated") for seed in (0, 7, -3)]))
"""


@pytest.mark.req("FR-041-50", "NFR-041-19", "CP-16")
@pytest.mark.parametrize("hash_seed", ["0", "1", "77"])
def test_another_process_waits_the_same(hash_seed):
    """A seed gives the same delays in any process, whatever the seed of its hashes."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(sys.path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    here = [
        Policy(max_attempts=20, backoff=Backoff.exponential(1.0), jitter=Jitter(kind)).delays(seed)
        for kind in ("full", "decorrelated")
        for seed in (0, 7, -3)
    ]
    assert json.loads(done.stdout) == here


def test_a_kind_rule_has_its_own_curve_and_jitter():
    """What the rule leaves out comes from the policy."""
    policy = Policy(backoff=Backoff.constant(1.0), jitter=Jitter.none())
    slow = Backoff.linear(10.0, max_delay=100.0)
    assert policy.delay(2, 0.5) == 1.0
    assert policy.delay(2, 0.5, 0.0, KindRule(backoff=slow)) == 20.0
    assert policy.delay(2, 0.5, 0.0, KindRule(jitter=Jitter.full())) == 0.5
    assert policy.delay(2, 0.5, 0.0, KindRule(backoff=slow, jitter=Jitter.full())) == 10.0
    assert policy.delay(2, 0.5, 0.0, KindRule(max_attempts=3)) == 1.0
    wild = KindRule(backoff=slow, jitter=Jitter.decorrelated())
    assert policy.delay(2, 0.5, 12.0, wild) == 10.0 + 0.5 * (36.0 - 10.0)


# --- what others ask of it ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"attempt_timeout": 2.0}, 2.0),
        ({"deadline": 3.0}, 3.0),
        ({"attempt_timeout": 2.0, "deadline": 3.0}, 2.0),
        ({"attempt_timeout": 4.0, "deadline": 3.0}, 3.0),
    ],
)
def test_a_first_attempt_is_limited_by_the_smaller_of_two(fields, limit):
    """Attempt_timeout or deadline, whichever ends first."""
    assert Policy(**fields).first_limit == limit


@pytest.mark.parametrize(
    ("fields", "is_demanding"),
    [
        ({}, False),
        ({"before_retry": hook}, True),
        ({"after_retry": hook}, True),
        ({"retry_if_result": predicate}, True),
        ({"wait_from": predicate}, True),
        ({"attempt_timeout": 1.0}, True),
        ({"deadline": 1.0}, True),
        ({"per_kind": {"timeout": KindRule()}}, True),
        ({"backoff": Backoff.custom(lambda n: 1.0)}, True),
    ],
)
def test_a_policy_that_needs_more_than_attempts_and_waits_says_so(fields, is_demanding):
    """A glance at a failure is enough where nobody else has a say."""
    assert Policy(**fields).is_demanding is is_demanding


def test_a_policy_classifies():
    """The rules of the policy, applied to one exception."""
    policy = Policy(retry_on=(OSError, ValueError), never_retry_on=(TimeoutError,))
    assert policy.classification(ValueError()).retryable
    assert not policy.classification(TimeoutError()).retryable
    assert not policy.classification(KeyError()).retryable


# --- as plain data --------------------------------------------------------------------------------


@pytest.mark.req("FR-041-17")
def test_a_policy_as_plain_data():
    """What JSON can hold: classes by name, kinds marked as such, values in full."""
    assert Policy(**FULL).to_dict() == {
        "name": "aggressive",
        "max_attempts": 5,
        "backoff": {"kind": "exponential", "initial": 0.05, "factor": 2.0, "step": 0.05,
                    "max_delay": 30.0},
        "jitter": {"kind": "percent", "amount": 0.2},
        "retry_on": ["ConnectionError", "ThrottlingException", "kind:overload"],
        "never_retry_on": ["PermissionError"],
        "classify": {"ValueError": "throttled", "SlowDown": "overload"},
        "per_kind": {"throttled": {
            "max_attempts": 8,
            "backoff": {"kind": "constant", "initial": 2.0, "factor": 2.0, "step": 2.0,
                        "max_delay": 60.0},
            "jitter": {"kind": "full", "amount": 0.0}}},
        "retry_if_result": None,
        "on_exhausted": "raise",
        "wait_from": None,
        "attempt_timeout": 2.0,
        "timeout_by": "thread",
        "deadline": 20.0,
        "max_retry_after": 10.0,
        "respect_retry_after": False,
        "nested": "warn",
        "before_retry": None,
        "after_retry": None,
        "log_level": "INFO",
    }  # fmt: skip


@pytest.mark.req("FR-041-17")
@pytest.mark.parametrize("fields", [{}, {"max_attempts": 4}, FULL], ids=["none", "one", "all"])
@pytest.mark.parametrize("defaults", [True, False])
def test_a_policy_comes_back_from_json(fields, defaults):
    """Through JSON text and back it is an equal policy."""
    policy = Policy(**fields)
    text = json.dumps(policy.to_dict(defaults=defaults))
    assert Policy.from_dict(json.loads(text)) == policy


@pytest.mark.req("FR-041-17")
def test_without_defaults_only_what_was_set_is_written():
    """A file stays as short as it was, set-to-default fields included."""
    assert Policy().to_dict(defaults=False) == {}
    assert Policy(deadline=None, name="a").to_dict(defaults=False) == {
        "name": "a",
        "deadline": None,
    }


def test_a_kind_rule_writes_only_what_it_has():
    """None is left out and comes back as None."""
    policy = Policy(per_kind={"timeout": KindRule(), "auth": KindRule(jitter=Jitter.none())})
    plain = policy.to_dict(defaults=False)["per_kind"]
    assert plain == {"timeout": {}, "auth": {"jitter": {"kind": "none", "amount": 0.0}}}
    assert Policy.from_dict({"per_kind": plain}) == policy


def test_a_class_of_the_users_becomes_its_full_name():
    """Nothing is imported to find it again: the name matches it all the same."""
    policy = Policy(retry_on=(ApiError,), classify={ApiError: "overload"})
    plain = policy.to_dict(defaults=False)
    name = f"{ApiError.__module__}.ApiError"
    assert plain == {"retry_on": [name], "classify": {name: "overload"}}
    back = Policy.from_dict(plain)
    assert back.retry_on == (name,)
    found = back.classification(ApiError())
    assert (found.kind, found.retryable) == (Kind.OVERLOAD, True)


def test_built_in_exceptions_come_back_as_classes():
    """So their subclasses match too; other built-ins and unknown words stay words."""
    policy = Policy.from_dict({"retry_on": ["OSError", "print", "int", "Gone"]})
    assert policy.retry_on == (OSError, "print", "int", "Gone")
    assert policy.classification(ConnectionError()).retryable
    assert Policy.from_dict({"retry_on": ("OSError", KeyError)}).retry_on == (OSError, KeyError)
    assert Policy.from_dict({"retry_on": [Kind.TIMEOUT]}).retry_on == (Kind.TIMEOUT,)


@pytest.mark.req("FR-041-17")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"retry_on": predicate}, "retry_on"),
        ({"never_retry_on": (OSError, predicate)}, "never_retry_on"),
        ({"classify": {predicate: "auth"}}, "classify"),
        ({"retry_if_result": predicate}, "retry_if_result"),
        ({"wait_from": predicate}, "wait_from"),
        ({"before_retry": hook}, "before_retry"),
        ({"after_retry": hook}, "after_retry"),
        ({"backoff": Backoff.custom(lambda n: n)}, "backoff"),
        ({"per_kind": {"auth": KindRule(backoff=Backoff.custom(lambda n: n))}}, "per_kind"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_function_has_no_text_form(fields, field):
    """A policy that holds one is refused as data, and the error names the field."""
    [(named, value, allowed)] = problems(Policy(**fields).to_dict)
    assert named == field
    if isinstance(value, Backoff):
        assert allowed == "a named curve: a function has no text form"
    else:
        assert value in (predicate, hook)
        assert allowed == "left out: a function has no text form"


def test_kinds_in_both_lists_are_marked_as_kinds():
    """A word in a list is a name or a code; a kind has its prefix, and comes back as a kind."""
    policy = Policy(retry_on=[Kind.TIMEOUT], never_retry_on=[Kind.OVERLOAD])
    plain = policy.to_dict(defaults=False)
    assert plain == {"retry_on": ["kind:timeout"], "never_retry_on": ["kind:overload"]}
    assert Policy.from_dict(plain) == policy


def test_a_nested_problem_says_as_much_as_any_other():
    """Field, value and what is allowed, from inside a mapping."""
    assert problems(Policy.from_dict, {"backoff": {"initial": -1}}) == [
        ("backoff.initial", -1, "a finite number of seconds from 0 to 31622400")
    ]
    assert problems(Policy.from_dict, {"per_kind": {"auth": {"qqq": 3}}}) == [
        ("per_kind.qqq", 3, "left out; known fields: backoff, jitter, max_attempts")
    ]


def test_all_functions_are_named_at_once():
    """The subject says that it was the plain form that failed."""
    with pytest.raises(PolicyError, match="Policy 'a' as a dictionary") as caught:
        Policy(name="a", before_retry=hook, after_retry=hook).to_dict()
    assert [p.field for p in caught.value.problems] == ["before_retry", "after_retry"]


@pytest.mark.req("FR-041-14", "FR-041-15")
def test_every_problem_of_a_mapping_comes_at_once():
    """Nested problems are told beside the others, each under its full name."""
    found = problems(
        Policy.from_dict,
        {
            "name": "api",
            "max_attempts": 0,
            "backoff": {"kind": "zigzag", "initial": -1},
            "jitter": {"amount": 2},
            "retry_on": ["kind:slow", "OSError"],
            "per_kind": {"throttled": {"max_attempts": 0}},
            "max_atempts": 3,
        },
    )
    assert sorted(fields_of(found)) == [
        "backoff.initial", "backoff.kind", "jitter.amount", "max_atempts", "max_attempts",
        "per_kind.max_attempts", "retry_on.kind",
    ]  # fmt: skip


@pytest.mark.req("FR-041-15")
@pytest.mark.parametrize(
    ("values", "fields"),
    [
        ({"max_attempts": 0, "backoff": {"kind": "zigzag"}}, ["backoff.kind", "max_attempts"]),
        ({"backoff": {"kind": "zigzag"}}, ["backoff.kind"]),
        ({"backoff": {"inital": 1}}, ["backoff.inital"]),
        ({"backoff": "exponential"}, ["backoff"]),
        ({"jitter": 0.1}, ["jitter"]),
        ({"jitter": {"kind": "full", "share": 1}}, ["jitter.share"]),
        ({"retry_on": "kind:slow"}, ["retry_on.kind"]),
        ({"never_retry_on": ["kind:"]}, ["never_retry_on.kind"]),
        ({"retry_on": ["KeyboardInterrupt"]}, ["retry_on"]),
        ({"retry_on": "KeyboardInterrupt"}, ["retry_on"]),
        ({"retry_on": 3}, ["retry_on"]),
        ({"classify": 3}, ["classify"]),
        ({"classify": {"X": "slow"}}, ["classify"]),
        ({"per_kind": 3}, ["per_kind"]),
        ({"per_kind": {"throttled": 3}}, ["per_kind[throttled]"]),
        ({"per_kind": {"throttled": {"tries": 3}}}, ["per_kind.tries"]),
        ({"per_kind": {"throttled": {"backoff": {"kind": "x"}}}}, ["per_kind.kind"]),
        ({"colour": "red"}, ["colour"]),
    ],
    ids=str,
)
def test_a_wrong_mapping_is_refused_by_field(values, fields):
    """Whatever is wrong in a file is named where it stands."""
    found = problems(Policy.from_dict, values)
    assert sorted(fields_of(found)) == fields


def test_a_single_rule_in_a_mapping_is_read_like_one_in_a_row():
    """`retry_on: OSError` and `retry_on: [OSError]` are the same file."""
    assert Policy.from_dict({"retry_on": "OSError"}) == Policy.from_dict({"retry_on": ["OSError"]})
    assert Policy.from_dict({"retry_on": "kind:timeout"}).retry_on == (Kind.TIMEOUT,)
    assert Policy.from_dict({"retry_on": None}) == Policy()


@pytest.mark.parametrize("values", [[], None, "text", 3], ids=repr)
def test_what_is_no_mapping_is_refused(values):
    """A file that holds a list where a policy should be gets an error that says so."""
    assert problems(Policy.from_dict, values) == [("values", values, "a mapping of fields")]
    with pytest.raises(PolicyError, match=r"^Policy is not valid"):
        Policy.from_dict(values)


def test_a_key_that_is_no_text_is_refused():
    """YAML makes numbers of keys."""
    assert fields_of(problems(Policy.from_dict, {3: 1, "name": "a"})) == ["3"]


def test_the_subject_of_a_wrong_mapping_is_the_policy_by_its_name():
    """As for a policy made in code."""
    with pytest.raises(PolicyError, match=r"^Policy 'api' is not valid:"):
        Policy.from_dict({"name": "api", "backoff": {"kind": "x"}})
    with pytest.raises(PolicyError, match=r"^Policy 'default' is not valid:"):
        Policy.from_dict({"max_attempts": 0})


@pytest.mark.req("CL-05.log-level")
@pytest.mark.parametrize(
    ("number", "name"),
    [(10, "DEBUG"), (20, "INFO"), (30, "WARNING"), (40, "ERROR"), (50, "CRITICAL")],
)
def test_a_log_level_may_be_the_number_that_logging_has_for_it(number, name):
    """The policy has the name: so have its plain form and its records."""
    policy = Policy(log_level=number)
    assert policy.log_level == name
    assert policy == Policy(log_level=name)
    assert policy.to_dict()["log_level"] == name


def test_seconds_of_a_policy_may_be_timedeltas():
    """Every field that is a length of time; it is kept as seconds."""
    minute = timedelta(minutes=1)
    policy = Policy(attempt_timeout=minute / 2, deadline=minute, max_retry_after=2 * minute)
    assert (policy.attempt_timeout, policy.deadline, policy.max_retry_after) == (30.0, 60.0, 120.0)
    assert fields_of(problems(Policy, deadline=timedelta(0), attempt_timeout=-minute)) == [
        "attempt_timeout",
        "deadline",
    ]


# --- memory ---------------------------------------------------------------------------------------


@given(n=st.integers(1, 6), u=st.floats(0.0, 1.0, exclude_max=True))
def test_the_first_delay_of_a_policy_is_the_same_as_every_later_one(n, u):
    """What the fast path reads is made at the first retry; before it the policy is small."""
    policy = Policy(max_attempts=9, backoff=Backoff.exponential(0.1, max_delay=3.0))
    assert not policy._ramps
    first = policy.delay(n, u)
    assert len(policy._ramps) == 4
    assert policy.delay(n, u) == first
    assert policy.delay(n, u, rule=KindRule(max_attempts=2)) == first


@pytest.mark.parametrize("fields", [{"jitter": Jitter.decorrelated()}, {"max_attempts": 1}])
def test_a_policy_without_such_delays_has_none_to_read(fields):
    """Asking again changes nothing."""
    policy = Policy(**fields)
    assert policy.delay(1, 0.5) == policy.delay(1, 0.5)
    assert policy._ramps == ()
