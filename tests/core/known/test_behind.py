"""Python's own errors that come through a client: the request behind them decides."""

import http.client
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay import RetryPolicy
from mainstay.core.base.attributes import comes_through, is_direct
from mainstay.core.known.kind import Kind, Known
from mainstay.core.known.registry import REGISTRY, Registry
from mainstay.core.known.table import Row, Table
from mainstay.core.retry.classify import Rules, classify
from mainstay.core.retry.kinds import kind_of
from mainstay.core.retry.plan import GIVE_UP, Plan, fast_decision


class Request:
    def __init__(self, method, **headers):
        self.method = method
        self.headers = headers


def table(request, first=None):
    return Table("acme", {}, request=lambda _error: request, first=lambda _error: first)


def raised(error):
    """An error that comes through a function of a client."""

    def client():
        raise error

    def function():
        client()

    try:
        function()
    except BaseException as caught:
        return caught


class Behind:
    """A client behind every error of Python's own."""

    def __init__(self, found):
        self.found = found

    def __enter__(self):
        self.before, REGISTRY.behind = REGISTRY.behind, lambda _error: self.found

    def __exit__(self, *_):
        REGISTRY.behind = self.before


POST, GET = Request("POST"), Request("GET")
KEYED = Request("POST", **{"Idempotency-Key": "7"})


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(104, "reset")])
@pytest.mark.parametrize(
    ("request_", "first", "is_sent", "is_retried"),
    [
        (POST, None, True, False),
        (POST, None, False, True),
        (KEYED, None, True, True),
        (GET, None, True, True),
        (GET, POST, True, False),
        (GET, POST, False, False),
        (GET, KEYED, True, True),
    ],
)
def test_a_request_that_may_have_been_carried_out_is_not_repeated(
    error, request_, first, is_sent, is_retried
):
    """Nor is the POST that was answered with a redirect; also if an error like it was decided."""
    rules = Rules(retry_on=(Kind.TIMEOUT, Kind.TRANSIENT))
    assert classify(type(error)(*error.args), rules).retryable
    caught = raised(error)
    with Behind((table(request_, first), caught, is_sent)):
        for _ in range(2):
            verdict = classify(caught, rules)
            assert verdict.retryable is is_retried
            assert verdict.is_ambiguous is (is_sent or not is_retried)
            assert verdict.known.table == "acme"
    assert classify(type(error)(*error.args), rules).retryable


def test_a_class_that_was_settled_leads_to_no_other_decision():
    """The fast path takes what a class has settled only of errors that came through no client."""
    plan = Plan(RetryPolicy(name="p", retry_on=(OSError,), max_attempts=3), "pay", 1)
    assert fast_decision(plan, ConnectionResetError(), 1, 7, 0.0) > 0.0
    assert plan.policy._rules.settled
    caught = raised(ConnectionResetError())
    with Behind((table(POST), caught, True)):
        for by_type in (False, True):
            decision = fast_decision(plan, caught, 1, 7, 0.0, keeps=Keeps(by_type=by_type))
            assert decision == (None if by_type else GIVE_UP)
    with Behind(None):
        keeps, error = Keeps(by_type=True), raised(ConnectionResetError())
        assert fast_decision(plan, error, 1, 7, 0.0, keeps=keeps) > 0.0
        assert keeps.verdict.retryable


class Keeps:
    """What listeners of a call keep of it: the classification."""

    def __init__(self, by_type):
        self.by_type, self.verdict = by_type, None


def test_an_error_with_a_note_is_looked_at_as_well():
    """What an exception carries does not lead past its traceback."""
    rules, caught = Rules(retry_on=(Kind.TIMEOUT,)), raised(TimeoutError())
    assert classify(TimeoutError(), rules).retryable
    caught.add_note("while paying")
    with Behind((table(POST), caught, True)):
        assert not classify(caught, rules).retryable
    assert classify(caught, rules).retryable


@pytest.mark.parametrize(("status", "is_retried"), [(500, False), (503, True), (404, False)])
def test_a_status_says_whether_it_was_carried_out(status, is_retried):
    """As with every client: 500 leaves it open, 503 is a refusal."""
    error = OSError("answered")
    error.status = status
    caught = raised(error)
    with Behind((table(POST), caught, True)):
        assert classify(caught, Rules()).retryable is is_retried


def test_the_very_class_may_be_named():
    """As with the errors of a table."""
    caught = raised(TimeoutError())
    with Behind((table(POST), caught, True)):
        assert classify(caught, Rules(retry_on=(TimeoutError,))).retryable
        assert not classify(caught, Rules(retry_on=(OSError,))).retryable


class Own(Exception):
    pass


class OwnTimeout(TimeoutError):
    pass


MADE = [
    Own, KeyError, MemoryError, OSError, TimeoutError, OwnTimeout, ConnectionResetError,
    lambda: OSError("broken"), lambda: OSError(5, "of the disk"), lambda: OSError(104, "reset"),
    lambda: OwnTimeout(110, "late"), lambda: OwnTimeout(2, "odd"),
    http.client.RemoteDisconnected, lambda: http.client.IncompleteRead(b""),
]  # fmt: skip
NAMED = [
    Own, OSError, TimeoutError, OwnTimeout, ConnectionError, ConnectionResetError, Exception,
    http.client.HTTPException, Kind.TIMEOUT, Kind.TRANSIENT, "OSError",
]  # fmt: skip
TOLD = [None, {TimeoutError: Kind.PERMANENT}, {OSError: Kind.TIMEOUT}, {Own: Kind.TRANSIENT}]
FAILURES = st.tuples(
    st.sampled_from(MADE),
    st.sampled_from(["direct", "noted", "deep", "POST", "GET", "after a POST", "not sent"]),
)


def failed(make, way):
    """A failure, and what is behind it."""
    error = make() if way == "direct" else raised(make())
    if way == "noted":
        error.add_note("while paying")
    request = GET if way in ("GET", "after a POST") else POST
    found = table(request, POST if way == "after a POST" else None)
    has_client = way not in ("direct", "deep")
    return error, Behind((found, error, way != "not sent") if has_client else None)


def decided(failure, plan):
    verdict = classify(failure, plan.policy._rules)
    unsafe = verdict.known and verdict.known.unsafe
    shown = verdict.kind, verdict.retryable, verdict.reason, verdict.is_ambiguous, verdict.note
    return shown, unsafe, fast_decision(plan, failure, 1, 7, 0.0)


@given(
    failures=st.lists(FAILURES, min_size=1, max_size=12),
    on=st.none() | st.lists(st.sampled_from(NAMED), min_size=1, max_size=3).map(tuple),
    never=st.lists(st.sampled_from(NAMED), max_size=1).map(tuple),
    told=st.sampled_from(TOLD),
    idempotency=st.sampled_from(["idempotent", "unsafe"]),
)
def test_what_is_remembered_leads_past_no_client(failures, on, never, told, idempotency):
    """A law: rules that have seen other failures, and rules that have seen none, agree."""

    def plan():
        given = {} if on is None else {"retry_on": on}
        policy = RetryPolicy(name="p", never_retry_on=never, classify=told, **given)
        made = Plan(policy, "pay", 1, idempotency)
        made.looked = frozenset({"acme"})
        return made

    warm = plan()
    for make, way in failures:
        error, behind = failed(make, way)
        with behind:
            remembered = decided(error, warm)
            same, _ = failed(make, way)
            assert remembered == decided(same, plan())


def test_a_traceback_has_the_modules_of_its_functions():
    """Those of the caller, of the function, and of what that called."""
    assert comes_through(raised(TimeoutError()), {__name__})
    assert not comes_through(raised(TimeoutError()), {"http.client"})
    assert not comes_through(TimeoutError(), {__name__})


@pytest.mark.parametrize("make", [Own, lambda: OSError("broken"), KeyError])
def test_nobody_looks_behind_what_no_client_decides(make):
    """A failure that is not known to be worth repeating: its request would change nothing."""
    plan = Plan(RetryPolicy(name="p", retry_on=(Exception,)), "pay", 1)
    assert fast_decision(plan, make(), 1, 7, 0.0) > 0.0
    before, REGISTRY.behind = REGISTRY.behind, None
    try:
        assert fast_decision(plan, raised(make()), 1, 7, 0.0) > 0.0
    finally:
        REGISTRY.behind = before


def test_nothing_is_looked_for_behind_what_is_final_or_raised_directly():
    """Whoever raises it in the function that is called has called no client."""

    def function():
        raise TimeoutError

    try:
        function()
    except TimeoutError as error:
        direct = error
    assert is_direct(direct)
    assert not is_direct(raised(TimeoutError()))
    with Behind((table(POST), direct, True)):
        assert not kind_of(direct).unsafe
        assert not kind_of(raised(KeyError("order"))).table
        assert not kind_of(raised(TimeoutError()), 1).table


def test_without_the_tables_nobody_is_behind_an_error():
    """The registry alone knows no client."""
    assert Registry().behind(raised(TimeoutError())) is None


def test_without_a_client_it_is_an_error_as_any_other():
    """A function of one's own may be as deep as it likes."""
    with Behind(None):
        assert kind_of(raised(TimeoutError())).by_type


class Refused(Exception):
    pass


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (POST, "POST without an Idempotency-Key"),
        (KEYED, ""),
        (None, ""),
    ],
)
def test_a_call_that_began_with_a_post_is_not_repeated_after_its_redirect(first, expected):
    """Also if nothing was sent to the place that it leads to; and its class settles nothing."""
    name = f"{Refused.__module__}.Refused"
    row = Row(Kind.TRANSIENT, "no connection was made")
    found = Table("shop", {name: row}, packages=(Refused.__module__,), first=lambda _error: first)
    REGISTRY.register(found)
    rules = Rules()
    try:
        for _ in range(2):
            verdict = classify(raised(Refused()), rules)
            assert verdict.known.unsafe == expected
            assert verdict.is_ambiguous is bool(expected)
            assert verdict.retryable is not bool(expected)
        assert not rules.settled
    finally:
        REGISTRY.unregister("shop")


def test_a_search_for_the_first_request_that_fails_has_found_nothing():
    """The library may be another version than the table knows."""
    name = f"{Refused.__module__}.Refused"
    row = Row(Kind.TRANSIENT, "no connection was made")
    found = Table(
        "shop", {name: row}, packages=(Refused.__module__,), first=lambda error: error.missing
    )
    REGISTRY.register(found)
    try:
        assert classify(raised(Refused()), Rules()).retryable
    finally:
        REGISTRY.unregister("shop")
    assert isinstance(kind_of(Refused()), Known)


@pytest.mark.parametrize("senders", [None, frozenset({"acme"}), frozenset({__name__})])
@pytest.mark.parametrize("history", ["no response", "of another shape", [], ["POST"]], ids=str)
@pytest.mark.parametrize("is_ambiguous", [True, False])
def test_a_table_may_say_where_its_requests_are(senders, history, is_ambiguous):
    """Then nothing is asked about a failure that came through no function there."""
    asked = []
    name = f"{Refused.__module__}.Refused"
    row = Row(Kind.TRANSIENT, "broken", ambiguous=is_ambiguous)
    found = Table(
        "shop",
        {name: row},
        packages=(Refused.__module__,),
        request=lambda _error: asked.append("request"),
        first=lambda _error: asked.append("first"),
        senders=senders,
    )
    error = raised(Refused())
    response = object() if history == "of another shape" else SimpleNamespace(history=history)
    error.response = None if history == "no response" else response
    REGISTRY.register(found)
    try:
        assert classify(error, Rules()).retryable
    finally:
        REGISTRY.unregister("shop")
    is_sent = senders != {"acme"}
    assert ("request" in asked) is (is_ambiguous and is_sent)
    has_first = is_sent if history == "no response" else bool(history)
    assert ("first" in asked) is (has_first or senders is None)
