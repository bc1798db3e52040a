"""From a failure to a decision: the order of the rules, and what each of them matches."""

import asyncio
import concurrent.futures
import contextlib
import errno
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.attributes import KEEPS_SIGNALS
from mainstay.core.known import http, resolve
from mainstay.core.known.codes import codes_of
from mainstay.core.known.kind import Kind
from mainstay.core.known.naming import show_rule
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.table import Cases, Inner, Row, Table, by_status
from mainstay.core.retry import kinds
from mainstay.core.retry.classify import CACHE_SIZE, Classification, Rules, classify
from mainstay.core.retry.retry_after import HINTS_ARE_CARRIED, Hint
from mainstay.errors import AttemptTimeout, CallCancelled, WrapError


class ApiError(Exception):
    def __init__(self, message="", **attributes):
        super().__init__(message)
        for name, value in attributes.items():
            setattr(self, name, value)


class Throttling(ApiError):
    pass


class Outer:
    class Nested(Exception):
        """Named through another class."""


def with_attribute(error, **attributes):
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def verdict(exception, retry_on=None, never_retry_on=(), **more):
    """(kind, retryable) under such rules."""
    found = classify(exception, Rules(retry_on, never_retry_on, **more))
    return found.kind.value, found.retryable


def is_retried(exception, *retry_on, never=()):
    return classify(exception, Rules(retry_on, never)).retryable


def reason(exception, retry_on=None, never_retry_on=(), **more):
    return classify(exception, Rules(retry_on, never_retry_on, **more)).reason


# --- without rules --------------------------------------------------------------------------------


@pytest.mark.req("FR-041-23", "FR-041-24", "FR-041-25", "UT-041-08", "EF-05.unknown")
@pytest.mark.parametrize(
    ("exception", "wanted"),
    [
        (ConnectionResetError(), ("transient", True)),
        (TimeoutError(), ("timeout", True)),
        (ApiError(status_code=429), ("throttled", True)),
        (ApiError(status_code=503), ("overload", True)),
        (ApiError(status_code=404), ("permanent", False)),
        (ApiError(status_code=401), ("auth", False)),
        (ValueError(), ("permanent", False)),
        (PermissionError(), ("auth", False)),
        (RuntimeError(), ("unknown", False)),
        (ApiError(), ("unknown", False)),
    ],
    ids=lambda v: getattr(v, "args", v) and repr(v),
)
def test_without_retry_on_the_kind_decides(exception, wanted):
    """Transient, throttled, timeout and overload are retried; unknown, wrong and forbidden not."""
    assert verdict(exception) == wanted


def test_an_ambiguous_failure_is_left_to_the_call():
    """It may be repeated where the operation is idempotent: the verdict says both."""
    found = classify(ApiError(), Rules(classify={ApiError: Kind.AMBIGUOUS}))
    assert (found.kind, found.retryable, found.is_ambiguous) == (Kind.AMBIGUOUS, True, True)
    assert not classify(ConnectionError(), Rules()).is_ambiguous


@pytest.mark.req("AG-09.errno", "FR-041-23", "PL-01.contention")
def test_a_busy_file_is_retried_and_a_forbidden_one_is_not():
    """Sharing violations and EBUSY are transient even where Python calls them PermissionError."""
    shared = PermissionError(errno.EACCES, "in use")
    shared.winerror = 32
    assert verdict(shared) == ("transient", True)
    assert verdict(OSError(errno.EBUSY, "busy")) == ("transient", True)
    assert verdict(PermissionError(errno.EACCES, "no")) == ("auth", False)


# --- what a rule matches --------------------------------------------------------------------------


@pytest.mark.req("FR-041-07", "FR-041-24", "UT-041-08")
@pytest.mark.parametrize(
    "rule",
    [
        Throttling,
        ApiError,
        Exception,
        "Throttling",
        "ApiError",
        "Exception",
        f"{__name__}.Throttling",
        f"{__name__}.ApiError",
        "builtins.Exception",
        "SlowDown",
        "53300",
        lambda error: error.args == ("slow",),
        lambda error: "truthy",
    ],
    ids=show_rule,
)
def test_a_rule_matches_by_class_name_code_or_predicate(rule):
    """A class or a base of it, their names short and full, a service's code, or a function."""
    failure = Throttling("slow", code="SlowDown", sqlstate="53300")
    assert is_retried(failure, rule)
    assert reason(failure, (rule,)) == f"retry_on: {show_rule(rule)}"
    assert not is_retried(failure, rule, never=(rule,))
    assert reason(failure, (), (rule,)) == f"never_retry_on: {show_rule(rule)}"


@pytest.mark.req("FR-041-08", "FR-041-25")
@pytest.mark.parametrize(
    "rule",
    [
        ConnectionError,
        "throttling",
        "Throttlin",
        "SlowDow",
        "mainstay.Throttling",
        "test_classify",
        "",
        lambda error: False,
        lambda error: None,
        Kind.THROTTLED,
    ],
    ids=show_rule,
)
def test_what_a_rule_does_not_match(rule):
    """Names and codes match whole and in their own case; parts of them do not."""
    failure = Throttling("slow", code="SlowDown")
    assert not is_retried(failure, rule)
    assert reason(failure, (rule,)) == "not in retry_on; nothing is known of it"


def test_a_nested_class_is_named_with_or_without_its_outer_one():
    """Both `Nested` and `Outer.Nested` name it."""
    for name in ("Nested", "Outer.Nested", f"{__name__}.Outer.Nested"):
        assert is_retried(Outer.Nested(), name)


def test_a_rule_of_a_kind_matches_what_is_known():
    """Kind.THROTTLED matches a 429, by its status."""
    assert is_retried(ApiError(status_code=429), Kind.THROTTLED)
    assert not is_retried(ApiError(status_code=503), Kind.THROTTLED)
    assert not is_retried(ConnectionError(), Kind.TRANSIENT, never=(Kind.TRANSIENT,))
    assert is_retried(RuntimeError(), Kind.UNKNOWN)


def test_the_first_rule_that_matches_gives_the_reason():
    """Rules are asked in their order."""
    assert reason(Throttling(), (KeyError, ApiError, Throttling)) == "retry_on: ApiError"


@pytest.mark.req("FR-041-07")
def test_what_retry_on_names_is_transient_unless_more_is_known():
    """A ValueError that is asked for is retried; a 429 stays throttled."""
    assert verdict(ValueError(), (ValueError,)) == ("transient", True)
    assert verdict(RuntimeError(), (Exception,)) == ("transient", True)
    assert verdict(ApiError(status_code=429), (ApiError,)) == ("throttled", True)
    assert verdict(TimeoutError(), (OSError,)) == ("timeout", True)


def test_with_retry_on_nothing_else_is_retried():
    """Who names what to retry means nothing else; the kind is still told."""
    assert verdict(ConnectionError(), (KeyError,)) == ("transient", False)
    assert reason(ConnectionError(), (KeyError,)) == "not in retry_on; a ConnectionError"
    assert verdict(ConnectionError(), ()) == ("transient", False)


@pytest.mark.req("FR-041-25", "CP-21", "AC-013")
def test_never_retry_on_comes_first_and_is_final():
    """A class in both lists is not retried: the control plane's rule, not its example."""
    both = (ValueError,)
    assert verdict(ValueError(), both, both) == ("permanent", False)
    assert verdict(ConnectionResetError(), (ConnectionResetError,), (OSError,))[1] is False
    assert verdict(ConnectionError(), None, ("ConnectionError",)) == ("permanent", False)
    assert reason(ValueError(), both, both) == "never_retry_on: ValueError"


@pytest.mark.req("AG-02.authentication")
def test_never_retry_on_keeps_a_kind_that_is_not_retried_anyway():
    """An authentication failure stays one; what would be retried becomes permanent."""
    assert verdict(PermissionError(), None, (OSError,)) == ("auth", False)
    assert verdict(RuntimeError(), None, (Exception,)) == ("unknown", False)
    assert verdict(ApiError(status_code=429), None, (ApiError,)) == ("permanent", False)


def test_a_policy_may_know_better():
    """`classify` gives an exception its kind before anything else is known of it."""
    told = {"Throttling": Kind.THROTTLED, ApiError: Kind.PERMANENT, ValueError: Kind.TRANSIENT}
    assert verdict(Throttling(), classify=told) == ("throttled", True)
    assert verdict(ApiError(status_code=503), classify=told) == ("permanent", False)
    assert verdict(ValueError(), classify=told) == ("transient", True)
    assert verdict(KeyError(), classify=told) == ("permanent", False)
    assert reason(Throttling(), classify=told) == "classify: 'Throttling'"
    assert is_retried(ValueError(), Kind.TRANSIENT) is False
    rules = Rules((Kind.TRANSIENT,), classify=told)
    assert classify(ValueError(), rules).retryable


# --- authentication -------------------------------------------------------------------------------

FORBIDDEN = [PermissionError(), PermissionError(errno.EPERM, "no"), ApiError(status_code=403)]


@pytest.mark.req("AG-02.authentication")
@pytest.mark.parametrize("failure", FORBIDDEN, ids=repr)
@pytest.mark.parametrize(
    "rule", [Exception, OSError, "Exception", "OSError", "builtins.OSError", lambda error: True],
    ids=show_rule,
)  # fmt: skip
def test_a_base_class_does_not_cover_an_authentication_failure(failure, rule):
    """Wrong credentials are not tried again because their base class is, as class or as text."""
    found = classify(failure, Rules((rule, rule)))
    assert (found.kind, found.retryable) == (Kind.AUTH, False)


@pytest.mark.parametrize(
    ("failure", "rule"),
    [
        (PermissionError(), PermissionError),
        (PermissionError(), "PermissionError"),
        (PermissionError(), "builtins.PermissionError"),
        (ApiError(status_code=403), "status:403"),
        (ApiError(status_code=401, code="TokenExpired"), "TokenExpired"),
        (ApiError(status_code=401), "401"),
        (PermissionError(), Kind.AUTH),
        (ApiError(status_code=401), Kind.AUTH),
    ],
    ids=repr,
)
def test_an_authentication_failure_is_retried_where_it_is_named(failure, rule):
    """That very class, its name, its code, or the kind itself."""
    found = classify(failure, Rules((rule,)))
    assert (found.kind, found.retryable) == (Kind.AUTH, True)
    assert found.reason == f"retry_on: {show_rule(rule)}"


def test_a_later_rule_may_name_what_an_earlier_one_does_not_cover():
    """The base class before it does not hide the rule that names an authentication failure."""
    assert is_retried(PermissionError(), OSError, PermissionError)
    assert is_retried(PermissionError(), PermissionError, OSError)


def test_the_reason_of_an_authentication_failure_says_why_the_rule_does_not_count():
    """Whoever wrote the rule learns what to write instead."""
    text = reason(PermissionError(), (OSError,))
    assert "authentication" in text
    assert "OSError" in text


# --- cancellation ---------------------------------------------------------------------------------


class OwnCancelled(concurrent.futures.CancelledError):
    pass


@pytest.mark.req("FR-041-25", "NFR-041-11")
@pytest.mark.parametrize(
    "failure",
    [
        KeyboardInterrupt(),
        SystemExit(1),
        GeneratorExit(),
        asyncio.CancelledError(),
        concurrent.futures.CancelledError(),
        OwnCancelled(),
        CallCancelled("fetch", 1),
        BaseException(),
        BaseExceptionGroup("both", [KeyboardInterrupt(), ConnectionError()]),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_cancellation_is_never_retried_whatever_the_rules_say(failure):
    """No class, name, predicate or kind makes a cancellation a failure to repeat."""
    cls = type(failure)
    everything = (BaseException, cls, cls.__name__, *Kind, lambda error: True)
    for rules in (Rules(), Rules(everything), Rules(None, (), {cls: Kind.TRANSIENT})):
        found = classify(failure, rules)
        assert (found.kind, found.retryable) == (Kind.PERMANENT, False)
        assert found.reason == "a cancellation is never retried"


def test_our_own_attempt_timeout_is_retried_whatever_retry_on_says():
    """Whoever sets attempt_timeout wants the next attempt; never_retry_on still wins."""
    assert verdict(AttemptTimeout(1.0), (KeyError,)) == ("timeout", True)
    assert verdict(AttemptTimeout(1.0), ()) == ("timeout", True)
    assert verdict(AttemptTimeout(1.0), (), (TimeoutError,))[1] is False
    assert reason(AttemptTimeout(1.0)) == "the attempt timed out"


# --- groups ---------------------------------------------------------------------------------------


def group(*exceptions):
    return ExceptionGroup("several", exceptions)


@pytest.mark.parametrize(
    ("failure", "wanted"),
    [
        (group(ConnectionError()), ("transient", True)),
        (group(TimeoutError(), ConnectionError()), ("timeout", True)),
        (group(ConnectionError(), ValueError()), ("permanent", False)),
        (group(ConnectionError(), PermissionError()), ("auth", False)),
        (group(ConnectionError(), group(TimeoutError())), ("transient", True)),
        (group(ConnectionError(), group(KeyError())), ("permanent", False)),
        (group(RuntimeError()), ("unknown", False)),
        (group(ConnectionError(), CallCancelled("f", 1)), ("permanent", False)),
    ],
    ids=repr,
)
def test_a_group_is_as_bad_as_its_worst_member(failure, wanted):
    """A group is retried only if each of its members would be."""
    assert verdict(failure) == wanted


def test_the_rules_go_for_the_members_of_a_group():
    """Lists name members; never_retry_on may name the group as well."""
    assert is_retried(group(KeyError(), KeyError()), KeyError)
    assert not is_retried(group(KeyError(), IndexError()), KeyError)
    assert not is_retried(group(KeyError()), KeyError, never=(LookupError,))
    assert not is_retried(group(ConnectionError()), ConnectionError, never=(ExceptionGroup,))


def test_the_reason_of_a_group_is_that_of_a_member():
    """It says that it was in a group, and why."""
    assert reason(group(ConnectionError())) == (
        "a group of which each is retryable; a ConnectionError"
    )
    assert reason(group(ConnectionError(), ValueError())) == "in a group: a ValueError"


# --- predicates -----------------------------------------------------------------------------------


def broken(error):
    raise LookupError("bug in the predicate")


def test_a_predicate_that_raises_has_not_matched_and_is_reported():
    """Its trouble is told, the other rules are still asked, the failure is judged."""
    found = classify(ConnectionError(), Rules((broken, OSError)))
    assert found.retryable
    assert [str(error) for error in found.errors] == ["bug in the predicate"]
    assert not is_retried(ConnectionError(), broken)
    assert is_retried(ConnectionError(), OSError, never=(broken,))


def test_an_answer_without_truth_has_not_matched():
    """A predicate's answer whose truth cannot be told counts as an error of the predicate."""

    class Untrue:
        def __bool__(self):
            raise TypeError("ambiguous")

    found = classify(ConnectionError(), Rules((lambda error: Untrue(),)))
    assert not found.retryable
    assert len(found.errors) == 1


def test_a_predicate_is_asked_each_time():
    """Two failures of one type may differ in what a predicate sees."""
    rules = Rules((lambda error: error.args == ("again",),))
    assert classify(RuntimeError("again"), rules).retryable
    assert not classify(RuntimeError("stop"), rules).retryable
    assert classify(RuntimeError("again"), rules).retryable


# --- memory ---------------------------------------------------------------------------------------


class WithProperty(Exception):
    @property
    def status_code(self):
        return self.args[0]


class Slow(Exception):
    @property
    def retry_after(self):
        return self.args[0]


class DiskError(OSError):
    pass


def make_shared():
    error = PermissionError(errno.EACCES, "in use")
    error.winerror = 32
    return error


FAILURES = st.sampled_from(
    [
        ConnectionError,
        lambda: with_attribute(ConnectionError(), status_code=401),
        lambda: with_attribute(ConnectionError(), status=404),
        lambda: with_attribute(ConnectionError(), response=SimpleNamespace(status_code=429)),
        lambda: with_attribute(ConnectionError(), retry_after=3),
        TimeoutError,
        ValueError,
        lambda: with_attribute(ValueError(), code="Odd"),
        RuntimeError,
        lambda: with_attribute(RuntimeError(), status_code=503),
        ApiError,
        lambda: ApiError(status_code=429),
        lambda: ApiError(status_code=503),
        lambda: ApiError(status_code=401),
        lambda: ApiError(code="Odd"),
        lambda: WithProperty(429),
        lambda: WithProperty(401),
        lambda: Slow(1),
        lambda: Slow(2),
        lambda: OSError(errno.EBUSY, ""),
        lambda: OSError(errno.EMFILE, ""),
        lambda: OSError(errno.EIO, ""),
        lambda: DiskError(errno.EBUSY, ""),
        lambda: DiskError(errno.EMFILE, ""),
        lambda: DiskError(errno.EACCES, ""),
        lambda: PermissionError(errno.EACCES, ""),
        make_shared,
        lambda: group(ConnectionError()),
        lambda: group(ValueError()),
        lambda: AttemptTimeout(1.0),
    ]
)
RULES = st.lists(
    st.sampled_from(
        [
            ConnectionError,
            OSError,
            PermissionError,
            DiskError,
            ApiError,
            WithProperty,
            Slow,
            ValueError,
            Exception,
            "ApiError",
            "OSError",
            "Odd",
            Kind.THROTTLED,
            Kind.TRANSIENT,
            Kind.AUTH,
        ]
    ),
    max_size=3,
).map(tuple)


def shown(found):
    hint = found.hint and (found.hint.seconds, found.hint.at)
    return found.kind.value, found.retryable, found.reason, hint, found.is_ambiguous


@pytest.mark.req("CP-16", "NFR-041-11", "FR-041-23")
@given(
    makers=st.lists(FAILURES, min_size=1, max_size=12),
    retry_on=st.none() | RULES,
    never_retry_on=RULES,
    told=st.sampled_from([None, {ApiError: Kind.AMBIGUOUS}, {"Odd": Kind.THROTTLED}]),
)
def test_a_verdict_does_not_depend_on_what_was_asked_before(makers, retry_on, never_retry_on, told):
    """Remembered answers never change a decision: a shared memory and an empty one agree."""
    shared = Rules(retry_on, never_retry_on, told)
    for make in makers:
        failure = make()
        alone = classify(failure, Rules(retry_on, never_retry_on, told))
        assert shown(classify(failure, shared)) == shown(alone)


@pytest.mark.parametrize(
    ("first", "second", "retry_on", "wanted"),
    [
        (ConnectionError(), with_attribute(ConnectionError(), status_code=401), None, "auth"),
        (with_attribute(RuntimeError(), status=503), RuntimeError(), None, "unknown"),
        (ApiError(status_code=429), ApiError(status_code=503), (ApiError,), "overload"),
        (WithProperty(429), WithProperty(503), (WithProperty,), "overload"),
        (DiskError(errno.EBUSY, ""), DiskError(errno.EMFILE, ""), (DiskError,), "overload"),
        (DiskError(errno.EBUSY, ""), DiskError(errno.EACCES, ""), (Kind.TRANSIENT,), "auth"),
        (group(ConnectionError()), group(ValueError()), None, "permanent"),
        (RuntimeError(), with_attribute(RuntimeError(), code="Odd"), ("Odd",), "transient"),
        (OSError(errno.EIO, ""), OSError(errno.EMFILE, ""), (Kind.OVERLOAD,), "overload"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("never_retry_on", [(), (OwnCancelled,)])
def test_one_failure_does_not_settle_the_next(first, second, retry_on, wanted, never_retry_on):
    """Two instances of a type that carry different things are judged each for itself."""
    rules = Rules(retry_on, never_retry_on)
    classify(first, rules)
    assert classify(second, rules).kind.value == wanted
    assert shown(classify(second, rules)) == shown(
        classify(second, Rules(retry_on, never_retry_on))
    )


def test_what_the_type_settles_is_remembered():
    """The second failure of a built-in type costs a look-up."""
    rules = Rules()
    first = classify(ConnectionError("a"), rules)
    assert classify(ConnectionError("b"), rules) is first
    assert set(rules.settled) == {ConnectionError}


def test_a_class_that_retry_on_names_is_remembered():
    """So is the user's own class, where the rule names that very class."""
    rules = Rules((ApiError,))
    first = classify(ApiError(), rules)
    assert classify(ApiError(), rules) is first
    assert first.retryable


def test_the_memory_is_bounded():
    """A program that makes exception classes as it goes does not fill the memory."""
    rules = Rules((Exception,))
    for index in range(3 * CACHE_SIZE):
        made = type(f"Made{index}", (ValueError,), {"__module__": "builtins"})
        assert classify(made(), rules).retryable
        assert 1 <= len(rules.settled) <= CACHE_SIZE


@pytest.mark.parametrize("name", ["retry_after", "response", "headers"])
def test_a_class_that_may_carry_a_hint_is_not_remembered(name):
    """A property of the class may answer differently for each instance."""
    made = type("Made", (ValueError,), {"__module__": "builtins", name: None})
    rules = Rules((made,))
    classify(made(), rules)
    assert rules.settled == {}


def test_a_class_that_answers_for_any_name_is_not_remembered():
    """It may ask for a wait, each time for another one."""

    class Answering(ValueError):
        def __getattr__(self, name):
            if name == "retry_after":
                return 7
            raise AttributeError(name)

    rules = Rules((Answering,))
    assert [classify(Answering(), rules).retry_after for _ in range(2)] == [7.0, 7.0]


def test_a_hint_of_one_failure_is_not_given_to_the_next():
    """What is remembered is the type's, not the instance's."""
    rules = Rules()
    assert classify(with_attribute(ConnectionError(), retry_after=7), rules).retry_after == 7.0
    assert classify(ConnectionError(), rules).retry_after is None


# --- what a verdict holds -------------------------------------------------------------------------


def test_a_verdict_carries_the_hint():
    """Kind, reason and trouble stay; seconds show in retry_after, a date in hint.at only."""
    failure = with_attribute(ConnectionError(), retry_after="7")
    found = classify(failure, Rules((broken, OSError)))
    assert (found.retry_after, found.hint.seconds, found.hint.at) == (7.0, 7.0, None)
    assert (found.kind, found.retryable) == (Kind.TRANSIENT, True)
    assert found.reason == "retry_on: OSError"
    assert len(found.errors) == 1
    dated = Classification(Kind.THROTTLED, True, "x", Hint(at=5.0))
    assert (dated.retry_after, dated.hint.at) == (None, 5.0)
    assert Classification(Kind.THROTTLED, True, "x").retry_after is None


def test_a_verdict_shows_itself():
    """For people: kind, retryable or final, and why."""
    assert repr(classify(ConnectionError(), Rules())) == (
        "Classification(transient, retryable, 'a ConnectionError')"
    )
    assert (
        repr(classify(ValueError(), Rules())) == "Classification(permanent, final, 'a ValueError')"
    )


# --- codes ----------------------------------------------------------------------------------------


class GrpcCode:
    name = "UNAVAILABLE"


@pytest.mark.parametrize(
    ("attributes", "codes"),
    [
        ({}, ()),
        ({"code": "Throttled"}, ("Throttled",)),
        ({"error_code": "E7"}, ("E7",)),
        ({"sqlstate": "40001"}, ("40001",)),
        ({"pgcode": "40P01"}, ("40P01",)),
        ({"code": 1213}, ("1213",)),
        ({"status_code": 429}, ("429",)),
        ({"code": True}, ()),
        ({"code": 1.5}, ()),
        ({"code": None}, ()),
        ({"code": GrpcCode()}, ("UNAVAILABLE",)),
        ({"code": GrpcCode}, ("UNAVAILABLE",)),
        ({"code": lambda: "text"}, ("text",)),
        ({"code": lambda: 1 / 0}, ()),
        ({"code": SimpleNamespace(name=5)}, ()),
        ({"response": {"Error": {"Code": "SlowDown"}}}, ("SlowDown",)),
        ({"response": {"Error": {}}}, ()),
        ({"response": {"Error": "text"}}, ()),
        ({"response": {}}, ()),
        ({"response": SimpleNamespace()}, ()),
        (
            {"code": "a", "error_code": "b", "sqlstate": "c", "pgcode": "d",
             "response": {"Error": {"Code": "e"}}},
            ("a", "b", "c", "d", "e"),
        ),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, dict) else "-".join(value),
)  # fmt: skip
def test_codes_are_found_where_libraries_put_them(attributes, codes):
    """Botocore, PostgreSQL drivers, MySQL numbers and gRPC; odd shapes are no code, no error."""
    assert codes_of(ApiError(**attributes)) == codes


def test_an_exception_with_a_code_matches_its_text():
    """A botocore ClientError with code ThrottlingException matches "ThrottlingException"."""
    failure = ApiError(response={"Error": {"Code": "ThrottlingException"}})
    assert is_retried(failure, "ThrottlingException")
    assert not is_retried(failure, "AccessDeniedException")
    assert is_retried(ApiError(code=1213), "1213")


def test_a_rule_is_shown_as_people_write_it():
    """Classes and functions by name, texts in quotes, kinds by their value."""

    class Predicate:
        def __call__(self, error):
            return True

        def __repr__(self):
            return "Predicate()"

    assert show_rule(ConnectionError) == "ConnectionError"
    assert show_rule(Outer.Nested) == "Outer.Nested"
    assert show_rule("X") == "'X'"
    assert show_rule(Kind.AUTH) == "auth"
    assert show_rule(broken) == "broken"
    assert show_rule(Predicate()) == "Predicate()"


def test_a_group_that_retry_on_names_is_retried_whatever_is_in_it():
    """Naming ExceptionGroup itself speaks of the group; naming Exception does not."""
    group = ExceptionGroup("g", [ValueError("a"), ConnectionError("b")])
    assert verdict_of(group, retry_on=(ExceptionGroup,)).retryable
    assert not verdict_of(group, retry_on=(ConnectionError,)).retryable
    assert not verdict_of(group, retry_on=(ExceptionGroup,), never_retry_on=(Exception,)).retryable


def test_a_hint_inside_a_group_is_heeded_and_the_longest_wins():
    """A task group that met two throttles waits as long as the slower one asks."""
    members = [ConnectionError("a"), ConnectionError("b"), ConnectionError("c")]
    members[0].retry_after, members[1].retry_after = 2.0, 7.0
    assert verdict_of(ExceptionGroup("g", members), retry_on=(OSError,)).retry_after == 7.0
    assert verdict_of(ExceptionGroup("g", members[2:]), retry_on=(OSError,)).retry_after is None


def verdict_of(error, **rules):
    return classify(error, Rules(**rules))


def test_a_pickled_verdict_of_version_1_is_read():
    """What its predicates raised was called otherwise there."""
    verdict = Classification(Kind.UNKNOWN, False, "a test", errors=(ValueError("x"),))
    state = {name: getattr(verdict, name) for name in Classification.__slots__}
    state["trouble"] = state.pop("errors")
    old = Classification.__new__(Classification)
    old.__setstate__((None, state))
    assert old.errors == verdict.errors
    assert repr(old) == repr(verdict)


def test_a_function_that_cannot_be_retried_as_it_is_is_never_retried():
    """Also under a rule that covers everything; and it is no cancellation."""
    verdict = classify(WrapError("a generator"), Rules(retry_on=(Exception,)))
    assert (verdict.kind, verdict.retryable) == (Kind.PERMANENT, False)
    assert verdict.reason == "a function that cannot be retried as it is"


class NoSuchKey(ApiError):
    """Made at run time for an error code, as botocore does."""


@pytest.mark.parametrize("rule", ["NoSuchKey", NoSuchKey, f"{__name__}.NoSuchKey"])
def test_a_class_that_is_named_after_the_code_names_the_code(rule):
    """Such a rule covers the failure, which a rule with the base class does not."""
    error = NoSuchKey(response={"Error": {"Code": "NoSuchKey"}}, status_code=404)
    assert classify(error, Rules(retry_on=(rule,))).retryable
    assert not classify(error, Rules(retry_on=(ApiError,))).retryable


class ByCode(Exception):
    """Of a library whose table looks at a code."""

    def __init__(self, code):
        self.code = code


def test_a_class_that_is_named_is_not_settled_by_an_instance_without_a_known_code():
    """The next instance of it may carry a code that is final."""
    name = f"{__name__}.ByCode"
    entry = Cases(
        lambda error: [error.code],
        {127: Row(Kind.PERMANENT, "there is no such command")},
        otherwise=Row(Kind.UNKNOWN, "each program's own"),
    )
    REGISTRY.register(Table("by code", {name: entry}, packages=(__name__,)))
    try:
        rules = Rules(retry_on=(ByCode,))
        assert [classify(ByCode(code), rules).retryable for code in (1, 127, 1)] == [1, 0, 1]
    finally:
        REGISTRY.unregister("by code")


class Reply:
    def __init__(self, status):
        self.status_code = status


class Sent:
    def __init__(self, method):
        self.method, self.headers = method, {}


class Broken(Exception):
    """Of a table: its code decides, then what it wraps, then its class."""


class Coded(Exception):
    """Of a table: its code decides, then its status."""


class SlowDown(Coded):
    """Has the name of an error code, as classes that botocore makes have."""


class Gone(Broken):
    """Has the name of a code that may be inside."""


class Lost(Exception):
    """Of a table: ambiguous, so its request decides too."""


class Property(Exception):
    """Its status is no attribute of the instance."""

    def __init__(self, *args):
        super().__init__(*args)
        self.code = None

    @property
    def status(self):
        return self.code if isinstance(self.code, int) else None


OWN_TABLE = Table(
    "tests",
    {
        f"{Broken.__module__}.Broken": Cases(
            lambda error: [getattr(error, "code", None)],
            {"busy": Row(Kind.OVERLOAD, "busy"), "no*": Row(Kind.PERMANENT, "refused")},
            otherwise=Inner("inner", otherwise=Row(Kind.TRANSIENT, "broken")),
        ),
        f"{Coded.__module__}.Coded": Cases(
            lambda error: [getattr(error, "code", None)],
            {"busy": Row(Kind.OVERLOAD, "busy"), "no*": Row(Kind.PERMANENT, "refused")},
            otherwise=by_status(),
        ),
        f"{Lost.__module__}.Lost": Row(Kind.TRANSIENT, "no answer", ambiguous=True),
    },
    packages=(Broken.__module__,),
)

OTHER = {"Error": {"Code": "no"}, "ResponseMetadata": {"HTTPStatusCode": 404}}
AWS = {"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}
ATTRIBUTES = (
    *({"status_code": status} for status in (401, 404, 429, 503, 504, 42, "503")),
    *({"response": response} for response in (Reply(503), Reply(404), AWS)),
    *({"code": code} for code in ("busy", "nope", "no", "Broken", "503", 503, 7)),
    *({"code": "busy", "status_code": status} for status in (404, 503)),
    *({"code": "no", "response": response} for response in (AWS, OTHER, Reply(503))),
    *({"retry_after": seconds} for seconds in (1, 2.5, "x")),
    *({"headers": {"Retry-After": seconds}} for seconds in ("3", "x")),
    {"headers": {"Retry-After": "3"}, "response": None},
    *({"request": Sent(method)} for method in ("GET", "POST")),
    *({"code": "no", "inner": with_attribute(Coded(), code=code)} for code in ("Gone", "busy")),
    *({"inner": cls()} for cls in (ConnectionResetError, PermissionError, KeyError)),
    {"ms_once": "PUT whose body is spent"},
    *({"winerror": number} for number in (5, 32)),
    {},
)
RAISED = (
    ConnectionError,
    OSError,
    Broken,
    Gone,
    Coded,
    SlowDown,
    Lost,
    Property,
    ValueError,
    PermissionError,
    TimeoutError,
)
NUMBERS = ((), ("text",), (104, "reset"), (2, "gone"), (13, "denied"), ([2], "x"))
FAILURES = st.tuples(*map(st.sampled_from, (RAISED, NUMBERS, ATTRIBUTES)))
NAMED = (
    OSError, Broken, Gone, Coded, SlowDown, Lost, Exception, "Broken", "busy", "status:503", "404",
    "SlowDown", Kind.TRANSIENT, Kind.OVERLOAD, Kind.AUTH,
)  # fmt: skip
ON = st.lists(st.sampled_from(NAMED), max_size=3).map(tuple)


def _made(cls, args, attributes):
    failure = cls(*args)
    for name, value in attributes.items():
        setattr(failure, name, value)
    return failure


def _all_of(answer):
    known = answer.known
    fields = [getattr(answer, name) for name in Classification.__slots__ if name != "known"]
    fields[fields.index(answer.hint)] = answer.hint and (answer.hint.seconds, answer.hint.at)
    names = ("by_code", "is_ambiguous", "kind", "once", "reason", "table", "unsafe")
    return fields, known and [getattr(known, name) for name in names]


@contextlib.contextmanager
def _nothing_remembered():
    """Inside, nothing is known of classes and rows that were met before."""
    caches = (
        resolve._known, resolve._of_rows, KEEPS_SIGNALS, REGISTRY.found, http.KEEPS_REQUESTS,
        kinds._facts, HINTS_ARE_CARRIED,
    )  # fmt: skip
    before = [dict(each) for each in caches]
    for each in caches:
        each.clear()
    try:
        yield
    finally:
        for each, kept in zip(caches, before, strict=True):
            each.clear()
            each.update(kept)


@given(
    failures=st.lists(FAILURES, min_size=10, max_size=40),
    on=st.none() | ON,
    never=ON,
    version=st.sampled_from([1, 2, 3]),
)
def test_what_is_remembered_is_what_would_be_decided_anew(failures, on, never, version):
    """A law: rules that have seen other failures, and rules that have seen none, agree."""
    _agree(failures, on, never, version)


@pytest.mark.parametrize("rule", [None, *NAMED], ids=str)
@pytest.mark.parametrize("cls", RAISED)
def test_each_failure_of_a_class_is_decided_as_if_it_were_the_first(cls, rule):
    """The same for every attribute that decides, one after the other."""
    failures = [(cls, (), attributes) for attributes in ATTRIBUTES]
    _agree(failures, None if rule is None else (rule,), (), 3)


def _agree(failures, on, never, version):
    REGISTRY.register(OWN_TABLE)
    try:
        warm = Rules(on, never, version=version)
        for made in (*failures, *failures):
            remembered = _all_of(classify(_made(*made), warm))
            with _nothing_remembered():
                fresh = Rules(on, never, version=version)
                assert remembered == _all_of(classify(_made(*made), fresh))
    finally:
        REGISTRY.unregister(OWN_TABLE.library)


def test_what_is_remembered_is_bounded():
    rules = Rules(("SlowDown",))
    for code in range(CACHE_SIZE + 5):
        failure = Broken()
        failure.code = f"code-{code}"
        classify(failure, rules)
    assert 0 < len(rules.decided) <= CACHE_SIZE


class Numbered(OSError):
    pass


@pytest.mark.parametrize("args", [(), (5, "of the disk")])
def test_a_table_that_is_registered_later_decides_what_numbers_did(args):
    """What was remembered by the number of the system is forgotten as well."""
    rules = Rules((OSError,))
    assert classify(Numbered(*args), rules).retryable
    row = Row(Kind.PERMANENT, "gone")
    name = f"{Numbered.__module__}.Numbered"
    for hint in (None, lambda _error: 7):
        entries = {name: Cases(lambda _error: ["x"], {"x": row}, otherwise=row)}
        REGISTRY.register(Table("disks", entries, packages=(Numbered.__module__,), hint=hint))
        try:
            verdict = classify(Numbered(*args), rules)
            assert not verdict.retryable
            assert verdict.retry_after == (None if hint is None else 7.0)
        finally:
            REGISTRY.unregister("disks")
    assert classify(Numbered(*args), rules).retryable


def test_a_table_that_is_registered_later_decides():
    rules = Rules()
    failure = Broken()
    failure.code = "busy"
    assert not classify(failure, rules).retryable
    REGISTRY.register(OWN_TABLE)
    try:
        assert classify(failure, rules).kind is Kind.OVERLOAD
    finally:
        REGISTRY.unregister(OWN_TABLE.library)
    assert not classify(failure, rules).retryable
