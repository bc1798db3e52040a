"""What tells calls apart: a compiled binder says the same as inspect, for ever."""

import functools
import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay import Engine, context
from mainstay.core.codec.arguments import bound_arguments
from mainstay.drivers.idempotency.keys import Keying, KeyOptions, binder_of

RECORDED = json.loads((Path(__file__).parent / "recorded/keyed_calls_v1.json").read_text())


def two(order, amount):
    pass


def full(a, /, b, *rest, c=3, d):
    pass


def held(a, held=(1, 2), *, lambda_=None, é="x"):  # noqa: PLC2401 -- as some write it
    pass


def greedy(a, **more):
    pass


class Shop:
    def buy(self, item, count=1):
        pass

    def odd(*self):
        pass


ORDERS = [
    (two, ("o-1", 500), {}),
    (two, (), {"amount": 500, "order": "o-1"}),
    (two, ('ö-"1"\\', -(2**63)), {}),
    (two, (None, 2**64 - 1), {}),
    (two, (True, 2**64), {}),
    (two, ("x" * 300, [1, {"b": 1, "a": ("y",)}]), {}),
    (two, (1.5, {"$set": 1}), {}),
    (full, (1, 2, 3, 4), {"d": "d"}),
    (held, (1,), {"é": None}),
    (greedy, (1,), {"x": 2}),
    (Shop.buy, (None, "tea"), {}),
]
CALLABLE = [call for call in ORDERS if call[0] is not greedy]


def keying(function, key=None, *, scope=None, is_kept=True):
    site = Engine(sinks=[])._site("charge", "keyed", None)
    return Keying(site, KeyOptions(key=key, scope=scope), function, is_kept=is_kept)


@pytest.mark.parametrize(("function", "args", "kwargs"), CALLABLE)
def test_a_compiled_binder_says_what_inspect_says(function, args, kwargs):
    """Names, order and types; defaults included, and without self."""
    bound = binder_of(function)(*args, **kwargs)
    expected = bound_arguments(function, args, kwargs)
    assert bound == expected
    assert list(bound) == list(expected)
    assert list(map(type, bound.values())) == list(map(type, expected.values()))


@given(
    args=st.lists(st.integers(), max_size=6),
    kwargs=st.dictionaries(st.sampled_from(["a", "b", "c", "d", "z"]), st.integers()),
)
def test_however_a_function_is_called_the_binder_agrees_or_refuses(args, kwargs):
    """Python binds a call where inspect does, to the same arguments, and nowhere else."""
    try:
        expected = bound_arguments(full, args, kwargs)
    except TypeError:
        with pytest.raises(TypeError):
            binder_of(full)(*args, **kwargs)
    else:
        assert binder_of(full)(*args, **kwargs) == expected


@pytest.mark.parametrize(
    "function",
    [greedy, Shop.odd, Shop().buy, functools.partial(two, 1), print, Shop],
    ids=["keywords", "first of many", "bound", "partial", "builtin", "class"],
)
def test_what_needs_more_than_pythons_own_binding_is_not_compiled(function):
    """Such calls are bound by inspect, as ever."""
    assert binder_of(function) is None


@pytest.mark.parametrize("is_kept", [True, False], ids=["compiled", "inspected"])
@pytest.mark.parametrize("number", range(len(ORDERS)))
def test_a_call_has_the_names_it_has_always_had(number, is_kept):
    """Key, fingerprint and address as an older version wrote them: its records still match."""
    function, args, kwargs = ORDERS[number]
    told = keying(function, is_kept=is_kept)
    for _ in range(3):  # the second time it is compiled
        assert list(told.identify(args, kwargs)) == RECORDED["calls"][number]


@pytest.mark.parametrize(("key", "scope", "tenant", "named"), RECORDED["keys"])
def test_a_key_has_the_address_it_has_always_had(key, scope, tenant, named):
    """With a scope, a tenant, or neither; and whatever has to be escaped."""
    told = keying(two, lambda order, amount: order, scope=scope)
    with context(tenant_id=tenant):
        for _ in range(2):
            assert list(told.identify((key, 5), {})) == named


def test_a_record_of_an_older_version_is_replayed(tmp_path):
    """What was written before this version was is a hit, and the function is not called."""
    with Engine(f"sqlite:///{tmp_path}/a.db", sinks=[]) as engine:

        @engine.idempotent(key=lambda order, amount: order, operation="charge")
        def charge(order, amount):
            raise AssertionError("called again")

        old = RECORDED["record"]
        with sqlite3.connect(tmp_path / "a.db") as raw:
            raw.execute(
                "INSERT INTO mainstay_kept (space, key, value, expires) VALUES (?, ?, ?, NULL)",
                ("records", old["address"], old["value"].encode()),
            )
        raw.close()
        assert charge("order-7", 500) == {"id": 7, "tags": ("a", "b")}
        assert engine.records.counts()["hit"] == 1


def test_wrong_arguments_are_told_as_ever():
    """Compiled or not, the message is inspect's, and follows from nothing."""
    told = keying(two)
    told.identify((1, 2), {})
    with pytest.raises(TypeError, match="missing a required argument: 'amount'") as caught:
        told.identify((1,), {})
    assert not isinstance(caught.value.__context__, TypeError)


def test_a_function_may_be_dressed_until_its_first_call():
    """Its signature is read with the first call, as it always was."""

    def dressed(*args, **kwargs):
        pass

    told = keying(dressed)
    dressed.__wrapped__ = two
    assert told.identify((1, 2), {})[1] == keying(two).identify((1, 2), {})[1]
    assert told.identify((1, 2), {})[1] == keying(two).identify((1, 2), {})[1]
