"""Canonical JSON: one byte string per value, and none for what has no lasting form."""

import hashlib
import json
import math
import os
import pathlib
import subprocess
import sys
import threading
import uuid
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, localcontext
from enum import Enum, Flag, IntEnum
from typing import ClassVar, NamedTuple
from unittest import mock
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainstay.core.codec.canonical import Canonical, canonical, fingerprint, named_fingerprint
from mainstay.core.codec.visitor import ROOT
from mainstay.core.known.kind import Kind
from mainstay.errors import UsageError

HERE = __name__


class Colour(Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796 -- an alias, on purpose
    BLUE = 2


class Shade(Enum):
    RED = 1


class Number(IntEnum):
    ONE = 1


class Access(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Order:
    id: int
    items: list = field(default_factory=list)
    seen_at: object = field(default=None, compare=False)
    shop: ClassVar[str] = "eu"
    hint: InitVar[int] = 0


@dataclass(slots=True)
class Line:
    sku: str
    lock: object = None


class Point(NamedTuple):
    x: int
    y: int


Pair = namedtuple("Pair", "x y")  # noqa: PYI024 -- the older spelling must work too


class Parcel(msgspec.Struct):
    weight: float
    to: str = ""


class Empty(msgspec.Struct):
    pass


class Customer:
    def __init__(self, key):
        self.key = key

    def __mainstay_key__(self):
        return self.key


class Guest(Customer):
    pass


class StandInForPydantic2:
    """What pydantic 2 leaves on a model, without pydantic."""

    __pydantic_fields__ = {"name": None, "age": None}  # noqa: RUF012 -- as pydantic has it

    def __init__(self, name, age, extra=None):
        self.__dict__.update(name=name, age=age)
        object.__setattr__(self, "__pydantic_extra__", extra)

    def __getattr__(self, name):
        return self.__pydantic_extra__[name]

    def model_dump(self):
        raise AssertionError("a serialiser of the user's own must not make the key")


class StandInForEarlyPydantic2(StandInForPydantic2):
    """Before 2.10 the fields stood in `model_fields`."""

    __pydantic_fields__ = None
    model_fields = {"name": None, "age": None}  # noqa: RUF012 -- as pydantic has it


class StandInForPydantic1:
    """What pydantic 1 leaves on a model, without pydantic; extra values are in `__dict__`."""

    __fields__ = {"name": None, "age": None}  # noqa: RUF012 -- as pydantic has it
    __fields_set__ = frozenset({"name"})

    def __init__(self, **values):
        self.__dict__.update(values)


def text(value):
    return canonical(value).decode()


# --- the forms ------------------------------------------------------------------------------------

FORMS = [
    (None, "null"),
    (True, "true"),
    (False, "false"),
    (0, "0"),
    (-7, "-7"),
    (2**64 - 1, "18446744073709551615"),
    (2**64, '{"$int":"10000000000000000"}'),
    (-(2**63), "-9223372036854775808"),
    (-(2**63) - 1, '{"$int":"-8000000000000001"}'),
    (1.0, "1.0"),
    (-0.0, "0.0"),
    (0.1, "0.1"),
    (1e16, "1e+16"),
    (5e-324, "5e-324"),
    ("", '""'),
    ('é"\\\n\u2028😀', '"é\\"\\\\\\n\u2028😀"'),
    (b"", '{"$bytes":""}'),
    (b"\xff\x00", '{"$bytes":"/wA="}'),
    (bytearray(b"\xff\x00"), '{"$bytes":"/wA="}'),
    ([1, (2, [])], "[1,[2,[]]]"),
    ({"b": 1, "a": 2, "": 3}, '{"":3,"a":2,"b":1}'),
    ({"a b": 1, "a": 2}, '{"a":2,"a b":1}'),
    ({1: "x", "1": "y"}, '{"$dict":[["1","y"],[1,"x"]]}'),
    ({"$set": [], "a": 1}, '{"$dict":[["$set",[]],["a",1]]}'),
    ({}, "{}"),
    (set(), '{"$set":[]}'),
    ({10, 9, "9"}, '{"$set":["9",10,9]}'),
    (date(2024, 2, 29), '{"$date":"2024-02-29"}'),
    (datetime(2024, 1, 2, 3, 4, 5), '{"$datetime":"2024-01-02T03:04:05"}'),  # noqa: DTZ001
    (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), '{"$instant":0}'),
    (datetime(1970, 1, 1, 0, 0, 0, 7, tzinfo=UTC), '{"$instant":7}'),
    (time(3, 4), '{"$time":"03:04:00"}'),
    (time(3, 4, tzinfo=UTC), '{"$time":"03:04:00+00:00"}'),
    (time(3, 4, tzinfo=ZoneInfo("Europe/Berlin")), '{"$time":["03:04:00","Europe/Berlin"]}'),
    (timedelta(days=-1, microseconds=1), '{"$timedelta":-86399999999}'),
    (Decimal("-1.500"), '{"$decimal":"-15e-1"}'),
    (Decimal("1E+3"), '{"$decimal":"1e3"}'),
    (Decimal("-0.00"), '{"$decimal":"0"}'),
    (uuid.UUID(int=5), '{"$uuid":"00000000-0000-0000-0000-000000000005"}'),
    (pathlib.PurePosixPath("/a/é"), '{"$path":"/a/é"}'),
    (pathlib.PureWindowsPath("a/b"), '{"$windows_path":"a\\\\b"}'),
    (Colour.RED, f'{{"$enum":["{HERE}.Colour","RED"]}}'),
    (Colour.CRIMSON, f'{{"$enum":["{HERE}.Colour","RED"]}}'),
    (Kind.AUTH, '{"$enum":["mainstay.core.kinds.Kind","AUTH"]}'),
    (Number.ONE, f'{{"$enum":["{HERE}.Number","ONE"]}}'),
    (Access.READ | Access.WRITE, f'{{"$enum":["{HERE}.Access",3]}}'),
    (Order(7, ["a"], object()), f'{{"$object":["{HERE}.Order",{{"id":7,"items":["a"]}}]}}'),
    (Line("s"), f'{{"$object":["{HERE}.Line",{{"lock":null,"sku":"s"}}]}}'),
    (Point(1, 2), f'{{"$object":["{HERE}.Point",{{"x":1,"y":2}}]}}'),
    (Pair(1, 2), f'{{"$object":["{HERE}.Pair",{{"x":1,"y":2}}]}}'),
    (Parcel(1.5), f'{{"$object":["{HERE}.Parcel",{{"to":"","weight":1.5}}]}}'),
    (Empty(), f'{{"$object":["{HERE}.Empty",{{}}]}}'),
    (Customer(("eu", 7)), f'{{"$key":["{HERE}.Customer",["eu",7]]}}'),
    (Guest(1), f'{{"$key":["{HERE}.Guest",1]}}'),
]


@pytest.mark.parametrize(("value", "form"), FORMS, ids=[form for _, form in FORMS])
def test_a_value_has_the_bytes_it_has_always_had(value, form):
    """A change here makes every key in every store a new one."""
    assert canonical(value) == form.encode()


@pytest.mark.parametrize(("value", "form"), FORMS, ids=[form for _, form in FORMS])
def test_every_form_is_json(value, form):
    """Any JSON reader can show a key."""
    assert json.dumps(json.loads(canonical(value)), ensure_ascii=False) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
        (defaultdict(list, a=1), {"a": 1}),
        (type("Name", (str,), {})("ann"), "ann"),
        (type("Count", (int,), {})(2**70), 2**70),
        (type("Share", (float,), {})(0.5), 0.5),
        ({type("Name", (str,), {})("b"): 1, "a": 2}, {"a": 2, "b": 1}),
        (type("Id", (uuid.UUID,), {})(int=5), uuid.UUID(int=5)),
        (type("Moment", (datetime,), {})(2024, 1, 1), datetime(2024, 1, 1)),  # noqa: DTZ001
        (frozenset({1, 2}), {2, 1}),
        (pathlib.PosixPath("a"), pathlib.PurePosixPath("a")),
        (Decimal("1.0"), Decimal("1.00")),
    ],
)
def test_a_subclass_counts_as_the_plain_type(one, other):
    """What is equal to a plain value and is one, has its bytes."""
    assert canonical(one) == canonical(other)


def test_a_decimal_of_many_digits_is_not_rounded():
    """The precision of the moment has no say."""
    with localcontext(prec=2):
        assert text(Decimal("1.23456")) == '{"$decimal":"123456e-5"}'


def test_the_ends_of_time_have_a_form():
    """datetime.max is how many spell never, in zones for which UTC has no such year."""
    west, east = timezone(timedelta(hours=-5)), timezone(timedelta(hours=5))
    never = canonical(datetime.max.replace(tzinfo=west))
    assert never != canonical(datetime.max.replace(tzinfo=UTC))
    assert canonical(datetime.min.replace(tzinfo=east)) < never


def test_an_instant_is_one_in_every_zone_and_either_side_of_a_clock_change():
    """02:30 comes twice in Berlin's autumn; each is the instant it is."""
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2024, 10, 27, 2, 30, tzinfo=berlin)
    second = first.replace(fold=1)
    assert canonical(first) == canonical(datetime(2024, 10, 27, 0, 30, tzinfo=UTC))
    assert canonical(second) == canonical(datetime(2024, 10, 27, 1, 30, tzinfo=UTC))


def test_classes_of_one_name_and_value_differ():
    """Colour.RED is not Shade.RED, a Point is not a Pair, and neither is a dict."""
    assert canonical(Colour.RED) != canonical(Shade.RED)
    alike = [Point(1, 2), Pair(1, 2), (1, 2), {"x": 1, "y": 2}]
    assert len(set(map(canonical, alike))) == len(alike)


@pytest.mark.parametrize("cls", [StandInForPydantic2, StandInForEarlyPydantic2])
def test_a_stand_in_for_a_model_of_pydantic_2_is_its_fields(cls):
    """Fields and extra values by name; a model's own serialiser is not asked."""
    known = f'"age":null,"name":"ann"'  # noqa: F541 -- beside its likes
    assert text(cls("ann", None)) == f'{{"$object":["{HERE}.{cls.__name__}",{{{known}}}]}}'
    assert text(cls("ann", None, {"x": 1})).endswith(f'{{{known},"x":1}}]}}')


def test_a_stand_in_for_a_model_of_pydantic_1_is_its_fields():
    """Version 1 keeps fields and extra values in `__dict__`."""
    model = StandInForPydantic1(name="ann", age=3, x=1)
    assert text(model).endswith('{"age":3,"name":"ann","x":1}]}')


def test_a_real_pydantic_model_is_its_fields():
    """Nested models keep their class; extra values count, private attributes do not."""
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")

    class Item(pydantic.BaseModel):
        sku: str

    class Basket(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        items: list[Item]
        _cache: object = pydantic.PrivateAttr(default_factory=object)

    name = f"{HERE}.{Basket.__qualname__}"
    item = f'{{"$object":["{HERE}.{Item.__qualname__}",{{"sku":"s"}}]}}'
    basket = Basket(items=[Item(sku="s")], note="x")
    assert text(basket) == f'{{"$object":["{name}",{{"items":[{item}],"note":"x"}}]}}'


# --- laws -----------------------------------------------------------------------------------------

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(-1, 1))])
CONFUSABLE = st.sampled_from(
    [
        None, True, False, 0, 1, -1, 0.0, -0.0, 1.0, "", "0", "1", "null", "true", b"", b"1", "[]",
        Decimal(0), Decimal(1), Decimal("1.00"), Decimal("-0"), 10**30, 1e30, "AAE=", 2**64,
        date(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC),  # noqa: DTZ001
        datetime(2024, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "2024-01-01", time(0),
        time(0, tzinfo=UTC), timedelta(0), timedelta(days=1), uuid.UUID(int=1),
        str(uuid.UUID(int=1)), pathlib.PurePosixPath("1"), pathlib.PureWindowsPath("1"),
        Colour.RED, Colour.BLUE, Shade.RED, Number.ONE, "RED", Access.READ,
        Access.READ | Access.WRITE, Point(1, 0), Pair(1, 0), (1, 0), (), frozenset(),
        frozenset({1}), frozenset({"1"}),
    ]
)  # fmt: skip
SCALARS = (
    CONFUSABLE
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.datetimes(timezones=st.none() | ZONES)
    | st.timedeltas()
    | st.decimals(allow_nan=False, allow_infinity=False)
)
TAGS = st.sampled_from(["$set", "$dict", "$int", "$bytes", "$key", "$", "a", "b", ""])


def nested(inner):
    keys = st.recursive(
        CONFUSABLE | TAGS, lambda k: st.lists(k, max_size=2).map(tuple), max_leaves=2
    )
    return (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(TAGS, inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
        | st.sets(keys, max_size=3)
        | st.builds(Order, inner, st.lists(inner, max_size=2))
        | st.builds(Point, inner, inner)
        | st.builds(Parcel, inner)
        | st.builds(Customer, inner)
    )


VALUES = st.recursive(SCALARS, nested, max_leaves=6)


def shape(value):
    """What a value is, as Python compares it, with its sort beside it."""
    if isinstance(value, Enum):
        return type(value), value.value
    if isinstance(value, (Order, Parcel, Customer, Point, Pair)):
        return type(value), shape(parts(value))
    if isinstance(value, dict):
        return dict, frozenset((shape(k), shape(v)) for k, v in value.items())
    for kind, frozen in ((list, tuple), (tuple, tuple), (set, frozenset), (frozenset, frozenset)):
        if isinstance(value, kind):
            return frozen, frozen(map(shape, value))
    return type(value), getattr(value, "tzinfo", None) is None, value


def parts(value):
    if isinstance(value, Order):
        return [value.id, value.items]
    if isinstance(value, Parcel):
        return [value.weight, value.to]
    return [value.key] if isinstance(value, Customer) else list(value)


@given(one=VALUES, other=VALUES)
@example(one={"a": 1, "b": (2,)}, other={"b": [2], "a": 1})
@example(one={1: 0}, other={True: 0})
def test_bytes_are_equal_where_the_values_are_and_nowhere_else(one, other):
    """The law: one byte string per value, one value per byte string."""
    assert (canonical(one) == canonical(other)) == (shape(one) == shape(other))


@given(one=CONFUSABLE, other=CONFUSABLE)
def test_what_is_easily_confused_is_not(one, other):
    """The same law where it is most likely to break."""
    assert (canonical([one]) == canonical([other])) == (shape(one) == shape(other))


@given(value=VALUES)
@example(value=set())
@example(value={"$set": []})
def test_no_plain_value_imitates_a_tag(value):
    """What a reader makes of the bytes has other bytes, unless it is the value itself."""
    read = json.loads(canonical(value))
    assert (canonical(read) == canonical(value)) == (shape(read) == shape(value))


@given(value=st.dictionaries(TAGS | st.integers(), VALUES, max_size=5), order=st.randoms())
def test_the_order_of_a_dict_does_not_matter(value, order):
    """Two callers that fill a dict in different ways make one call."""
    items = list(value.items())
    order.shuffle(items)
    assert canonical(dict(items)) == canonical(value)
    assert fingerprint({"args": dict(items)}) == fingerprint({"args": value})


@given(
    value=st.text().filter(lambda t: t.isascii() or not any("\ud800" <= c <= "\udfff" for c in t))
)
def test_text_is_as_json_writes_it_without_escaping_more_than_it_must(value):
    """Text is UTF-8 as it is."""
    assert canonical(value) == json.dumps(value, ensure_ascii=False).encode()


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_reads_back_to_the_bit_except_for_the_sign_of_zero(value):
    """No digit is lost, and none is added."""
    read = json.loads(canonical(value))
    assert type(read) is float
    assert read.hex() == (value.hex() if value else (0.0).hex())


@given(VALUES)
def test_the_fast_way_writes_the_same_bytes_as_the_walk(value):
    """Most values take msgspec's way; a byte that differs would make every key a new one."""
    assert canonical(value) == Canonical().visit(ROOT, value).encode()


@given(st.dictionaries(st.sampled_from(["b", "a", "order"]), VALUES, max_size=3))
def test_arguments_by_name_have_the_fingerprint_of_any_dict(arguments):
    """Their names need no look; their values have the same."""
    assert named_fingerprint(arguments) == fingerprint(arguments)


@given(st.binary(max_size=300))
def test_a_fingerprint_is_the_same_whoever_computes_it(data):
    """Short texts and long ones are hashed by two libraries."""
    assert fingerprint(data) == hashlib.sha256(canonical(data)).hexdigest()


PROGRAM = """
import sys, uuid, pathlib
from datetime import datetime, timezone
from decimal import Decimal
from mainstay.core.codec.canonical import fingerprint
from mainstay.core.known.kind import Kind
print(fingerprint({
    "set": {"a", "b", "c", 1, 2.5, None, b"x", ("t", 1), Kind.AUTH, Decimal("1.10")},
    "frozen": frozenset(map(str, range(50))),
    ("k", 1): {uuid.UUID(int=9), pathlib.PurePosixPath("p")},
    "at": datetime(2024, 1, 1, tzinfo=timezone.utc),
}))
print(hash("a"))
"""


def test_another_process_with_other_hashes_makes_the_same_bytes():
    """The order of a set changes from process to process; its bytes do not."""
    runs = [in_process(seed).split() for seed in ("0", "1", "4242")]
    assert len({prints for prints, _ in runs}) == 1
    assert len({hashes for _, hashes in runs}) == 3


def in_process(seed):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ | {"PYTHONHASHSEED": seed},
    )
    return run.stdout


def test_a_fingerprint_is_the_sha_256_of_the_bytes():
    """Anyone can compute it again."""
    assert fingerprint({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


# --- refusals -------------------------------------------------------------------------------------


class Nameless(tzinfo):
    def utcoffset(self, dt):
        return None


class Endless:
    def __mainstay_key__(self):
        return [Endless()]


def ring(container=list):
    value = container()
    if isinstance(value, dict):
        value["self"] = value
    else:
        value.append(value)
    return value


def deep(levels):
    value = 0
    for _ in range(levels):
        value = [value]
    return value


def unset():
    line = Line.__new__(Line)
    line.sku = "s"
    return line


LOCK = threading.Lock()
LOCK_NAME = f"a {type(LOCK).__module__}.{type(LOCK).__qualname__}"
REFUSED = [
    ({"order": Order(7, [1, 2, Line("s", LOCK)])}, f"order.items[2].lock: {LOCK_NAME} cannot be"),
    (LOCK, f"value: {LOCK_NAME} cannot be part of a key"),
    ([0, object()], "value[1]: an object cannot be part of a key"),
    ({"a": {"b c": object()}}, "a['b c']: an object cannot be part of a key"),
    ({"a": {1: object()}}, "a[1]: an object cannot be part of a key"),
    ({"a": {(1,): object()}}, "a[a tuple]: an object cannot be part of a key"),
    ({"a": {Colour: 1}}, "a{an enum.EnumType}: an enum.EnumType cannot be part of a key"),
    ({"a": {int}}, "a{a type}: a type cannot be part of a key"),
    ({1: object()}, "value[1]: an object cannot be part of a key"),
    ({"f": len}, "f: a builtin_function_or_method cannot be part of a key"),
    ({"f": mock.Mock()}, "f: a unittest.mock.Mock cannot be part of a key"),
    ({"f": mock.MagicMock()}, "f: a unittest.mock.MagicMock cannot be part of a key"),
    ({"x": math.nan}, "x: NaN cannot be part of a key"),
    ({"x": math.inf}, "x: infinity cannot be part of a key"),
    ({"x": -math.inf}, "x: -infinity cannot be part of a key"),
    ({"x": Decimal("sNaN")}, "x: the Decimal sNaN cannot be part of a key"),
    ({"x": Decimal("-Infinity")}, "x: the Decimal -Infinity cannot be part of a key"),
    ({"x": "a\ud800"}, "x: text with the lone surrogate U+D800 cannot be part of a key"),
    ({"x": {"\udfff": 1}}, "x: text with the lone surrogate U+DFFF cannot be part of a key"),
    ({"x": ring()}, "x[0]: it holds itself, so it cannot be part of a key"),
    ({"x": ring(dict)}, "x['self']: it holds itself, so it cannot be part of a key"),
    (Customer(object()), "value.__mainstay_key__(): an object cannot be part of a key"),
    (Endless(), "nested more than 100 deep, it cannot be part of a key"),
    (deep(101), f"value{'[0]' * 101}: nested more than 100 deep, it cannot be part of a key"),
    ({"x": unset()}, f"x: a {HERE}.Line whose field lock is not set cannot be part of a key"),
    (time(1, tzinfo=Nameless()), "value: a time whose zone has neither offset nor name cannot be"),
    (datetime(2024, 1, 1, tzinfo=Nameless()), "value: a datetime whose zone has neither offset"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_has_no_form_is_refused_by_name_and_place(value, message):
    """The message says where it is, what it is and what to do."""
    with pytest.raises(UsageError) as caught:
        canonical(value)
    assert type(caught.value) is UsageError
    assert message in str(caught.value)
    assert caught.value.hint == "give key=..."
    assert str(caught.value).endswith(" part of a key. give key=...")


def test_a_hundred_levels_are_not_too_many():
    """The bound is where it says."""
    assert canonical(deep(100)) == b"[" * 100 + b"0" + b"]" * 100


def test_one_value_in_two_places_is_no_cycle():
    """Sharing is not a cycle."""
    shared = [1]
    assert text([shared, {"a": shared}, (shared, shared)]) == '[[1],{"a":[1]},[[1],[1]]]'


@pytest.mark.parametrize("arguments", [{"name": "\ud800"}, {"a": ["\udfff"], "b": 1}])
def test_half_a_character_is_refused_by_its_place(arguments):
    """UTF-8 has none; names of files have them."""
    for made in (fingerprint, named_fingerprint):
        with pytest.raises(UsageError, match="lone surrogate"):
            made(arguments)
