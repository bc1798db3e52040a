"""Arguments by name and keys as text: what tells a call from another."""

import functools
import inspect
import math
import types
import uuid
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.codec import arguments as room
from mainstay.core.codec.arguments import bound_arguments, key_text
from mainstay.core.codec.canonical import fingerprint
from mainstay.errors import UsageError

HERE = __name__
TAGS = st.sampled_from(["$set", "$dict", "$int", "$bytes", "$key", "$", "a", "b", ""])


# --- keys -----------------------------------------------------------------------------------------


class NamedKey(str, Enum):  # noqa: UP042 -- as many still write it
    BLANK = " "


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("order-7", "order-7"),
        (" order 7 ", " order 7 "),
        ("é" * 512, "é" * 512),
        (type("Id", (str,), {"__str__": lambda _: "shown"})("real"), "real"),
        (7, "7"),
        (0, "0"),
        (0.5, "0.5"),
        (("eu", 7), '["eu",7]'),
        (uuid.UUID(int=5), '{"$uuid":"00000000-0000-0000-0000-000000000005"}'),
        (b"x", '{"$bytes":"eA=="}'),
        (NamedKey.BLANK, f'{{"$enum":["{HERE}.NamedKey","BLANK"]}}'),
        (["x" * 508], '["' + "x" * 508 + '"]'),
        (["x" * 509], fingerprint(["x" * 509])),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_key_is_its_text(key, expected):
    """Text stays as it is; anything else has its canonical form, or the fingerprint of it."""
    made = key_text(key)
    assert made == expected
    assert type(made) is str


HASH_IT = "hash it: hashlib.sha256(key.encode()).hexdigest()"
IDENTIFIES = "return what identifies this call"
NO_KEYS = [
    (None, f"a key cannot be None. {IDENTIFIES}"),
    (True, f"a key cannot be True. {IDENTIFIES}"),
    (False, f"a key cannot be False. {IDENTIFIES}"),
    ("", f"a key cannot be empty. {IDENTIFIES}"),
    (" \t\n", f"a key cannot be blank. {IDENTIFIES}"),
    (b"", f"a key cannot be empty. {IDENTIFIES}"),
    ((), f"a key cannot be empty. {IDENTIFIES}"),
    ({}, f"a key cannot be empty. {IDENTIFIES}"),
    (set(), f"a key cannot be empty. {IDENTIFIES}"),
    ("x" * 513, f"a key of 513 characters is too long: 512 at most. {HASH_IT}"),
    ("a\0b", "a key cannot hold a NUL character. leave it out, or hash the key"),
    ("a\udc80", "value: text with the lone surrogate U+DC80 cannot be part of a key. give key=..."),
    (math.nan, "value: NaN cannot be part of a key. give key=..."),
]  # fmt: skip


@pytest.mark.parametrize(("key", "message"), NO_KEYS, ids=[why for _, why in NO_KEYS])
def test_what_identifies_no_call_is_no_key(key, message):
    """An empty key would make every call the same one."""
    with pytest.raises(UsageError) as caught:
        key_text(key)
    assert str(caught.value) == message


# --- arguments ------------------------------------------------------------------------------------


def plain(a, b=2, *, c=3):
    pass


def greedy(a, /, *args, b=1, **more):
    pass


def selfish(self, a):
    pass


class Shop:
    def buy(self, item, count=1):
        pass

    def everything(*args):
        pass

    @classmethod
    def open(cls, at):
        pass

    @staticmethod
    def add(a, b):
        pass

    def __call__(self, item):
        pass


class Unhashable:
    __hash__ = None

    def __call__(self, a):
        pass


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


SHOP = Shop()
BOUND = [
    (plain, (1,), {}, {"a": 1, "b": 2, "c": 3}),
    (plain, (), {"c": 0, "a": 1}, {"a": 1, "b": 2, "c": 0}),
    (greedy, (1,), {}, {"a": 1, "args": [], "b": 1}),
    (greedy, (1, 2, 3), {"x": 4}, {"a": 1, "args": [2, 3], "b": 1, "x": 4}),
    (greedy, (1,), {"a": 2}, {"a": 1, "args": [], "b": 1, "**more": {"a": 2}}),
    (
        greedy,
        (1,),
        {"args": 2, "y": 3},
        {"a": 1, "args": [], "b": 1, "y": 3, "**more": {"args": 2}},
    ),
    (greedy, (1,), {"more": 2}, {"a": 1, "args": [], "b": 1, "more": 2}),
    (greedy, (1,), {"**more": 2}, {"a": 1, "args": [], "b": 1, "**more": {"**more": 2}}),
    (selfish, (1, 2), {}, {"self": 1, "a": 2}),
    (SHOP.buy, ("tea",), {}, {"item": "tea", "count": 1}),
    (Shop.buy, (SHOP, "tea"), {"count": 2}, {"item": "tea", "count": 2}),
    (Shop.buy, (), {"self": SHOP, "item": "tea"}, {"item": "tea", "count": 1}),
    (decorated(Shop.buy), (SHOP, "tea"), {}, {"item": "tea", "count": 1}),
    (SHOP.everything, (1, 2), {}, {"args": [1, 2]}),
    (Shop.open, (9,), {}, {"at": 9}),
    (Shop.open.__func__, (Shop, 9), {}, {"at": 9}),
    (Shop.add, (1, 2), {}, {"a": 1, "b": 2}),
    (SHOP, ("tea",), {}, {"item": "tea"}),
    (Unhashable(), (1,), {}, {"a": 1}),
    (functools.partial(plain, 1), (), {"b": 5}, {"a": 1, "b": 5, "c": 3}),
    (functools.partial(functools.partial(plain, 1, c=4), 2), (), {}, {"a": 1, "b": 2, "c": 4}),
    (functools.partial(plain, b=4), (1,), {"b": 5}, {"a": 1, "b": 5, "c": 3}),
    (functools.partial(SHOP.buy, count=3), ("tea",), {}, {"item": "tea", "count": 3}),
    (type("Shop", (), {"__call__": selfish})(), (5,), {}, {"a": 5}),
]


@pytest.mark.parametrize("again", [1, 2], ids=["first", "cached"])
@pytest.mark.parametrize(("function", "args", "kwargs", "expected"), BOUND)
def test_arguments_have_the_names_of_their_parameters(function, args, kwargs, expected, again):
    """However they were passed, defaults included, and without self; the first time and later."""
    bound = bound_arguments(function, args, kwargs)
    assert bound == expected
    assert list(map(type, bound.values())) == list(map(type, expected.values()))


def test_a_nested_function_with_a_parameter_called_self_keeps_it():
    """Only a class in the name makes a method; functions inside functions have none."""

    def local(self, a):
        pass

    assert bound_arguments(local, (1, 2), {}) == {"self": 1, "a": 2}


def test_self_is_kept_where_it_is_asked_for():
    """For those whose key depends on the object."""
    expected = {"self": SHOP, "item": "tea", "count": 1}
    assert bound_arguments(SHOP.buy, ("tea",), {}, skip_self=False) == expected
    assert bound_arguments(Shop.buy, (SHOP, "tea"), {}, skip_self=False) == expected


@pytest.fixture
def silent(monkeypatch):
    """A builtin without a signature, whichever this Python has."""

    def signature(function, **_):
        raise ValueError("no signature found for builtin")

    monkeypatch.setattr(inspect, "signature", signature)
    return types.SimpleNamespace.__repr__


def test_a_builtin_without_a_signature_is_bound_by_position(silent):
    """Positions are names, and a keyword that looks like one stands apart."""
    assert bound_arguments(silent, (3, 4), {"key": None}) == {"0": 3, "1": 4, "key": None}
    assert bound_arguments(silent, (3,), {"0": 4}) == {"0": 3, "**kwargs": {"0": 4}}
    method = types.MethodType(silent, "self")
    assert bound_arguments(method, (3,), {}) == {"0": 3}
    assert bound_arguments(method, (3,), {}, skip_self=False) == {"0": "self", "1": 3}


def test_wrong_arguments_are_a_type_error_as_of_the_call_itself():
    """The caller sees the mistake they made."""
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        bound_arguments(plain, (), {})
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        bound_arguments(plain, (1,), {"z": 1})


def test_a_function_is_inspected_once_and_not_kept_alive(monkeypatch):
    """The second call does not ask for the signature; a function that is gone leaves nothing."""
    asked = []
    real = inspect.signature

    def signature(function, **how):
        asked.append(function.__name__)
        return real(function, **how)

    monkeypatch.setattr(inspect, "signature", signature)

    def once(a):
        pass

    class Local:
        def method(self, a):
            pass

    before = len(room._shapes)
    for _ in range(3):
        bound_arguments(once, (1,), {})
        bound_arguments(Local().method, (1,), {})
    assert asked == ["once", "method"]
    assert len(room._shapes) == before + 2
    del once
    assert len(room._shapes) == before + 1


@given(args=st.lists(st.integers(), max_size=3), kwargs=st.dictionaries(TAGS, st.integers()))
def test_two_calls_that_differ_have_other_arguments(args, kwargs):
    """Nothing that was passed is lost or takes another's place."""

    def anything(*a, **b):
        pass

    bound = bound_arguments(anything, args, kwargs)
    clash = bound.pop("**b", {})
    assert bound.pop("a") == args
    assert bound | clash == kwargs
    assert set(clash) == {"a"} & set(kwargs)
