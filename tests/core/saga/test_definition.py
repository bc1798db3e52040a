"""Definitions: what is refused, what a shape holds, and how a change of it is described."""

import pickle

import pytest

from mainstay.core.base.functions import takes_context
from mainstay.core.codec.outcome import encode_value
from mainstay.core.saga.context import Results, address_of, key_of, parts_of
from mainstay.core.saga.definition import Saga, SagaStep, difference, outline_of
from mainstay.core.saga.progress import NULL, Entry, Mark
from mainstay.errors import PolicyError, ResultNotKept


def step(name, undo=None, **options):
    return SagaStep(name, print, undo, **options)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: SagaStep("a b", print), "name = 'a b'"),
        (lambda: SagaStep(7, print), "name = 7"),
        (lambda: SagaStep("a", None), "action = None"),
        (lambda: SagaStep("a", print, 5), "compensate = 5"),
        (lambda: SagaStep("a", print, idempotency="no"), "idempotency = 'no'"),
        (lambda: Saga("a", []), "steps = 0"),
        (lambda: Saga("a", [[]]), "steps = []"),
        (lambda: Saga("a", [print]), "steps = <built-in function print>"),
        (lambda: Saga("a", [[print]]), "steps = [<built-in function print>]"),
        (lambda: Saga("a/b", [step("a")]), "name = 'a/b'"),
        (lambda: Saga("a", [step("a"), step("a")]), "a name that no other step has"),
        (lambda: Saga("a", [step("a", pivot=True), step("b", pivot=True)]), "one step at most"),
        (lambda: Saga("a", [[step("a", pivot=True), step("b")]]), "a step that is in no group"),
        (lambda: Saga("a", [step("a")], version=0), "version = 0"),
        (lambda: Saga("a", [step("a")], lease=0.0), "lease = 0.0"),
        (lambda: Saga("a", [step(f"s{n}") for n in range(1001)]), "steps = 1001"),
    ],
)
def test_wrong_definitions(made, text):
    """A definition with wrong values names the field and what is allowed."""
    with pytest.raises(PolicyError) as caught:
        made()
    assert text in str(caught.value)


def test_shape():
    """A shape holds names, groups, compensations and the pivot, and is read back."""
    saga = Saga(
        "order", [step("a", print), [step("b", print), step("c")], step("d", pivot=True), step("e")]
    )
    assert saga.shape == "a~ > (b~ & c) > d! > e"
    outline = outline_of(saga.shape)
    assert outline.names == ("a", "b", "c", "d", "e")
    assert outline.groups == saga.groups == ((0,), (1, 2), (3,), (4,))
    assert outline.undoable == {0, 1}
    assert outline.pivot == 3


def test_pickle():
    """A definition can be sent to another process."""
    saga = Saga("order", [step("a", print), [step("b"), step("c")]], version=3, deadline=5.0)
    again = pickle.loads(pickle.dumps(saga))
    assert again == saga
    assert again.shape == saga.shape


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("a > b", "a > c", "part 2 was 'b' and is 'c'"),
        ("a", "a > b~", "part 2 is new: 'b~'"),
        ("a > b", "a", "part 2 is gone: 'b'"),
        ("a > (b & c)", "a > b", "part 2 was '(b & c)' and is 'b'"),
    ],
)
def test_difference(before, after, text):
    """A changed definition is described by its first difference."""
    assert difference(before, after) == text


def with_star(*args):
    return args


def with_keyword(*, ctx):
    return ctx


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: 1, False),
        (lambda ctx: ctx, True),
        (lambda amount=5: amount, False),
        (lambda ctx=None: ctx, True),
        (lambda context=None: context, True),
        (with_star, True),
        (with_keyword, False),
        (dict, True),
    ],
)
def test_takes_context(function, expected):
    """An action that takes a positional argument gets the context; a default holds a value."""
    assert takes_context(function) is expected


def test_is_async():
    """A saga is async if an action or a compensation is."""

    async def wait():
        return None

    assert Saga("a", [step("a", wait)]).is_async
    assert Saga("a", [SagaStep("a", wait)]).is_async
    assert not Saga("a", [step("a", print)]).is_async


@pytest.mark.parametrize("tenant", [None, "acme", "a@b/c", ""])
@pytest.mark.parametrize("saga_id", ["t-1", "a/b", "@", " x "])
def test_addresses(tenant, saga_id):
    """An address holds name, id and tenant, whatever characters they have."""
    assert parts_of(address_of("transfer", saga_id, tenant)) == ("transfer", saga_id, tenant)


def test_keys_differ():
    """Each step of each saga has its key, and its compensation another."""
    places = [("a/1", "s", False), ("a/1", "s", True), ("a/2", "s", False), ("a/1", "t", False)]
    assert len({key_of(at, name, is_undo=undo) for at, name, undo in places}) == len(places)


def test_results():
    """Results are decoded when they are read; one that was not kept raises ResultNotKept."""
    log = (
        Entry(Mark.STEP_DONE, 0, data=encode_value({"id": (1, 2)})),
        Entry(Mark.STEP_FAILED, 1),
        Entry(Mark.STEP_DONE, 2, 5.0, data=NULL, note="too large"),
    )
    results = Results("transfer", "t-1", ("a", "b", "c", "d"), log)
    assert results["a"] == {"id": (1, 2)}
    assert list(results) == ["a", "c"]
    assert len(results) == 2
    with pytest.raises(ResultNotKept, match="too large"):
        results["c"]
    with pytest.raises(KeyError):
        results["b"]
    results.add("d", 5)
    assert results["d"] == 5
    assert repr(results) == "Results(a, c, d)"
