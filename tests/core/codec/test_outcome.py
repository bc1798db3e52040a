"""Recorded outcomes: what comes back is what was recorded, and nothing in a record runs."""

import json
import math
import pathlib
import sqlite3
import subprocess
import sys
import types
import uuid
from collections import OrderedDict
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, EnumMeta, Flag, IntEnum, StrEnum
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mainstay
from mainstay.core.codec import outcome as room
from mainstay.core.codec.canonical import fingerprint
from mainstay.core.codec.encode import Recorder
from mainstay.core.codec.introspect import find_class
from mainstay.core.codec.outcome import Failed, Succeeded, decode_outcome, encode_outcome
from mainstay.errors import StoredFailure, StoredValueError, UsageError

HERE = __name__
RAN = []
"""What code of a class was run by reading; nothing, unless a test says so."""


class Colour(Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796 -- an alias, on purpose
    BLUE = ("a", 1j)


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


class Access(Flag):
    READ = 1
    WRITE = 2
    ADMIN = 2**70


@dataclass
class Order:
    id: object
    items: object = ()
    total: object = field(default=None, compare=False)
    note: object = field(init=False, default="n")
    doubled: InitVar[int] = 0

    def __post_init__(self, doubled):
        RAN.append("Order")

    @cached_property
    def size(self):
        return 7


@dataclass(frozen=True, slots=True)
class Line:
    sku: object
    count: object = 1


class Point(NamedTuple):
    x: object
    y: object = 0


class Marked(Point):
    """A NamedTuple with a `__dict__`."""


class Parcel(msgspec.Struct):
    weight: object
    to: object = ""


class Sealed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    times: int

    def __post_init__(self):
        RAN.append("Sealed")
        msgspec.structs.force_setattr(self, "times", self.times + 1)


class Outer:
    @dataclass
    class Inner:
        """A class inside a class."""

        a: int


@dataclass
class Blob(dict):
    a: int = 1


class StandInForPydantic2:
    """What pydantic 2 leaves on a model, without pydantic."""

    __slots__ = (
        "__dict__",
        "__pydantic_extra__",
        "__pydantic_fields_set__",
        "__pydantic_private__",
    )
    __pydantic_fields__ = {"name": None, "age": None}  # noqa: RUF012 -- as pydantic has it

    def __init__(self, name, age=0, extra=None, private=None):
        RAN.append("StandInForPydantic2")
        object.__setattr__(self, "__dict__", {"name": name, "age": age})
        object.__setattr__(self, "__pydantic_fields_set__", {"name"})
        object.__setattr__(self, "__pydantic_extra__", extra)
        object.__setattr__(self, "__pydantic_private__", private)

    def __setattr__(self, name, value):
        raise AssertionError("a validator of the user's own must not run")

    def model_dump(self):
        raise AssertionError("a serialiser of the user's own must not run")


class StandInForPydantic1:
    """What pydantic 1 leaves on a model, without pydantic."""

    __slots__ = ("__dict__", "__fields_set__", "_private", "_unset")
    __fields__ = {"name": None, "age": None}  # noqa: RUF012 -- as pydantic has it
    __private_attributes__ = {"_private": None, "_unset": None}  # noqa: RUF012 -- the same

    def __init__(self, **values):
        object.__setattr__(self, "__dict__", values)
        object.__setattr__(self, "__fields_set__", {"name"})
        object.__setattr__(self, "_private", "p")

    def __setattr__(self, name, value):
        raise AssertionError("a validator of the user's own must not run")


def round_trip(value):
    read = decode_outcome(encode_outcome(Succeeded(value)))
    assert type(read) is Succeeded
    return read.value


def stored(value):
    """What stands in the record."""
    return json.loads(encode_outcome(Succeeded(value)))["value"]


def same(one, other):
    """Equal and of the same type, all the way down; to the bit for floats."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one.hex() == other.hex()
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, Decimal):
        return one.as_tuple() == other.as_tuple()
    return same_whole(one, other)


def same_whole(one, other):
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, set | frozenset):
        return same(sorted(one, key=order), sorted(other, key=order))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, Order | Line | Parcel):
        names = getattr(one, "__struct_fields__", None) or one.__dataclass_fields__
        names = [name for name in names if name != "doubled"]
        return all(same(getattr(one, n), getattr(other, n)) for n in names)
    if isinstance(one, datetime | time):
        return (one.replace(tzinfo=None), one.fold, str(one.tzinfo)) == (
            other.replace(tzinfo=None),
            other.fold,
            str(other.tzinfo),
        )
    return one == other


def order(value):
    return type(value).__name__, repr(value)


# --- values ---------------------------------------------------------------------------------------

EXACT = [
    None, True, False, 0, 1, -1, 2**53 + 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1,
    0.0, -0.0, 1.0, 0.1, 1e16, 5e-324, math.inf, -math.inf, math.nan,
    "", "é😀\n\0", "\ud800", "a\udfffb", b"", b"\xff\0", bytearray(b"x"), [], (), set(),
    frozenset(), {}, [[]], [()], {"a": []}, (1,), {"a": 1, "b": [None, "x", 1.5]},
    {1: "a", "1": "b", None: "c", (1, "x"): "d", frozenset({1}): "e"}, {True: 1}, {1.0: 1},
    {"$set": [1]}, {"$": {}}, {"$dict": []}, {"a": 1, "$b": 2}, {"v": 1, "value": 2}, {"\ud800": 1},
    {"b": 1, "a": 2}, date(2024, 2, 29), date.min, date.max,
    datetime.min, datetime.max,  # noqa: DTZ901
    datetime(2024, 1, 2, 3, 4, 5, 6, fold=1),  # noqa: DTZ001
    datetime(2024, 1, 2, tzinfo=UTC), datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
    datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=30, microseconds=1))),
    datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2024, 3, 31, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2024, 1, 2, tzinfo=ZoneInfo("UTC")),
    datetime(2024, 1, 2, tzinfo=ZoneInfo("Etc/GMT+5")), time(0), time(1, 2, 3, 4),
    time(1, tzinfo=UTC), time(1, fold=1, tzinfo=timezone(timedelta(1, -1))),
    time(1, tzinfo=ZoneInfo("Europe/Berlin")), timedelta(0), timedelta.min, timedelta.max,
    timedelta(-1, 5, 7), Decimal("1.00"), Decimal("-0"), Decimal("1E+9"), Decimal("NaN"),
    Decimal("sNaN123"), Decimal("-Infinity"), Decimal("1." + "3" * 60), uuid.UUID(int=5),
    Fraction(1, 3), Fraction(10**30, 7), 1 + 2j, complex(-0.0, math.inf), complex(math.nan, 0),
    pathlib.Path("/a/b"), pathlib.PurePosixPath("a"), pathlib.PureWindowsPath("c:/a"),
    pathlib.Path("a\udcff"), Colour.RED, Colour.CRIMSON, Colour.BLUE, Level.LOW, Word.YES,
    Access.READ, Access.READ | Access.WRITE, Access.ADMIN | Access.READ, Access(0), Order(1),
    Order([Line("s", {1, 2})], (Point(1, Parcel(2)),), b"t"), Line("s"), Point(1), Marked(1, 2),
    Parcel(1.5, "x"), [Colour.RED, {"a": (1, {2})}], {Colour.RED: Point(1, 2), Line(1): Line(2)},
    Outer.Inner(1),
]  # fmt: skip


@pytest.mark.parametrize("value", EXACT, ids=[type(value).__name__ for value in EXACT])
def test_a_value_comes_back_as_it_was(value):
    """Equal and of the same type; nothing is judged by its truth value."""
    assert same(round_trip(value), value)


@pytest.mark.parametrize("value", EXACT, ids=[type(value).__name__ for value in EXACT])
def test_a_value_comes_back_from_inside_other_values(value):
    """Depth and neighbours change nothing."""
    around = [0, {"a": (value, value)}, {"$a": value}, Order(value, [value])]
    assert same(round_trip(around), around)


def test_an_integer_of_any_size_comes_back():
    """Python limits how many digits it reads in base 10; records are not held to it."""
    for value in (1 << 20_000, -(1 << 20_000), [1, 1 << 20_000]):
        assert round_trip(value) == value


SCALARS = (
    st.sampled_from([v for v in EXACT if type(v).__hash__ is not None])
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]), max_size=5)
    | st.binary(max_size=5)
    | st.datetimes(timezones=st.none() | st.timezones() | st.just(UTC), allow_imaginary=True)
    | st.times(timezones=st.none() | st.just(UTC))
    | st.timedeltas()
    | st.decimals()
    | st.fractions()
    | st.complex_numbers()
)
HASHABLE = st.integers() | st.text(max_size=3) | st.booleans() | st.binary(max_size=2) | st.none()
KEYS = (
    HASHABLE | st.tuples(HASHABLE) | st.builds(Line, HASHABLE) | st.sampled_from(["$set", "$", "v"])
)


def nested(inner):
    return (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.sets(KEYS, max_size=3)
        | st.frozensets(KEYS, max_size=3)
        | st.builds(Order, inner, inner, inner)
        | st.builds(Line, inner, inner)
        | st.builds(Point, inner, inner)
        | st.builds(Parcel, inner, inner)
    )


VALUES = st.recursive(SCALARS, nested, max_leaves=8)


@given(value=VALUES)
@example(value=[1, 2**64, 1.5])
@example(value=[1, [math.nan]])
def test_every_value_comes_back_with_its_type(value):
    """The law of the codec."""
    assert same(round_trip(value), value)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text().filter(lambda t: not t.startswith("$")), inner)
    ),
)


@given(value=PLAIN)
def test_what_json_has_is_written_as_json(value):
    """Plain results can be read by anyone, without this library."""
    assert same(stored(value), value)


@given(data=PLAIN)
@example(data={"$set": []})
def test_no_dict_of_the_users_is_taken_for_a_tag(data):
    """Whatever stands in a record can itself be recorded."""
    assert same(round_trip(stored(data)), stored(data))
    tagged = stored([data, {1}, b"x", (Colour.RED,)])
    assert same(round_trip(tagged), tagged)


def test_ten_thousand_integers_are_looked_at_by_c(monkeypatch):
    """The walk asks for the types of a whole list at once, and msgspec writes the value itself."""
    value = {"rows": list(range(10_000)), "names": ["a"] * 9, "more": [["a", 1.5, None, True]] * 3}
    monkeypatch.setattr(Recorder, "visit", None)
    seen = []
    monkeypatch.setattr(room, "_encode", lambda plain: seen.append(plain) or b"{}")
    encode_outcome(Succeeded(value))
    assert seen[0]["value"] is value


@pytest.mark.parametrize(
    "value",
    [math.nan, [1.0, math.inf], 2**64, [-(2**63) - 1], {"a": (1,)}, {1: 2}, {"$a": 1}, ["\ud800"]],
    ids=repr,
)
def test_what_json_lacks_is_not_left_to_msgspec(value):
    """Left to itself it would write NaN as null and a tuple as a list, and say nothing."""
    assert not same(stored(value), value)


@pytest.mark.parametrize(
    ("value", "record"),
    [
        (None, b'{"v":1,"value":null}'),
        ({"id": 7}, b'{"v":1,"value":{"id":7}}'),
        (2**64, b'{"v":1,"value":{"$int":"10000000000000000"}}'),
        ((b"x",), b'{"v":1,"value":{"$tuple":[{"$bytes":"eA=="}]}}'),
        (math.nan, b'{"v":1,"value":{"$float":"nan"}}'),
        ("\ud800", b'{"v":1,"value":{"$str":"7aCA"}}'),
        ({1: 2}, b'{"v":1,"value":{"$dict":[[1,2]]}}'),
        (
            datetime(2024, 7, 1, tzinfo=ZoneInfo("Europe/Berlin")),
            b'{"v":1,"value":{"$datetime":["2024-07-01T00:00:00",0,7200000000,"Europe/Berlin"]}}',
        ),
        (time(1), b'{"v":1,"value":{"$time":["01:00:00",0,null,null]}}'),
        (timedelta(1, 2, 3), b'{"v":1,"value":{"$timedelta":[1,2,3]}}'),
        (pathlib.PurePosixPath("a"), b'{"v":1,"value":{"$path":["PurePosixPath","a"]}}'),
        (Fraction(1, 3), b'{"v":1,"value":{"$fraction":[1,3]}}'),
        (1j, b'{"v":1,"value":{"$complex":[0.0,1.0]}}'),
        (Colour.RED, f'{{"v":1,"value":{{"$enum":["{HERE}","Colour","RED"]}}}}'.encode()),
        (Access(3), f'{{"v":1,"value":{{"$enum":["{HERE}","Access",3]}}}}'.encode()),
        (
            Point(1, 2),
            f'{{"v":1,"value":{{"$object":["{HERE}","Point",{{"x":1,"y":2}}]}}}}'.encode(),
        ),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_records_look_as_they_always_did(value, record):
    """A record of today is read for ever; a change of the format needs a new version."""
    assert encode_outcome(Succeeded(value)) == record
    assert same(decode_outcome(record).value, value)


# --- objects --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def ran():
    RAN.clear()
    return RAN


def test_no_constructor_of_a_dataclass_runs(ran):
    """What `__post_init__` did has been done; fields come back as they were."""
    data = encode_outcome(Succeeded(Order(1)))
    ran.clear()
    read = decode_outcome(data).value
    assert (read, read.note, read.total) == (Order(1), "n", None)
    assert ran == ["Order"]  # by the line above, not by reading


def test_a_struct_comes_back_as_it_was_though_its_post_init_runs(ran):
    """No way leads around a Struct's `__post_init__`; what it changed once more is undone."""
    value = Sealed(times=1)
    assert value.times == 2
    ran.clear()
    assert round_trip(value).times == 2
    assert ran == ["Sealed"]


def test_a_cached_property_is_left_out():
    """It is computed again by whoever asks."""
    value = Order(1)
    assert value.size == 7
    read = round_trip(value)
    assert "size" not in vars(read)
    assert read.size == 7


def test_a_stand_in_for_a_model_of_pydantic_2_comes_back_whole(ran):
    """Fields, which of them were set, extra values and private attributes."""
    value = StandInForPydantic2("ann", Colour.RED, {"$x": (1,)}, {"_p": {2}})
    ran.clear()
    read = round_trip([value])[0]
    assert type(read) is StandInForPydantic2
    for part in StandInForPydantic2.__slots__:
        assert same(getattr(read, part), getattr(value, part))
    assert ran == []


def test_a_stand_in_for_a_model_of_pydantic_1_comes_back_whole():
    """Version 1 keeps extra values beside the fields, and private attributes in slots."""
    value = StandInForPydantic1(name="ann", age=(1,), extra=b"x")
    read = round_trip(value)
    assert type(read) is StandInForPydantic1
    assert same(vars(read), vars(value))
    assert (read.__fields_set__, read._private) == ({"name"}, "p")
    assert not hasattr(read, "_unset")


def test_real_pydantic_models_come_back_equal(monkeypatch):
    """Of version 2, and of version 1 as pydantic 2 still ships it."""
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")
    v1 = pytest.importorskip("pydantic.v1", reason="pydantic has no version 1 inside")

    class Item(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow", frozen=True)
        sku: str
        tags: set[str] = pydantic.Field(default_factory=set)
        _seen: tuple = pydantic.PrivateAttr(default=())

    class Old(v1.BaseModel):
        class Config:
            extra = "allow"

        sku: str
        count: int = 1
        _seen: tuple = v1.PrivateAttr(default=(1,))

    for cls in (Item, Old):
        cls.__qualname__ = cls.__name__
        monkeypatch.setattr(sys.modules[HERE], cls.__name__, cls, raising=False)
        value = cls(sku="s", extra=[1])
        value._seen = (2,)
        read = round_trip({"item": value})["item"]
        assert (type(read), read, read._seen) == (cls, value, (2,))
        told = read.model_dump if cls is Item else read.dict
        assert told(exclude_unset=True) == {"sku": "s", "extra": [1]}


def test_a_module_that_gives_classes_on_demand_is_not_asked(monkeypatch):
    """A lazy module would import what a record names."""
    asked = []
    lazy = types.ModuleType("lazy_of_test")
    lazy.__getattr__ = lambda name: asked.append(name) or Colour
    monkeypatch.setitem(sys.modules, "lazy_of_test", lazy)
    with pytest.raises(
        StoredValueError, match=r"^lazy_of_test\.X: module lazy_of_test has no such"
    ):
        find_class("lazy_of_test", "X")
    assert asked == []


# --- what cannot be recorded ----------------------------------------------------------------------


class Nameless(tzinfo):
    def utcoffset(self, dt):
        return None


class Text(str):
    __slots__ = ()


def ring():
    value = {}
    value["a"] = [value]
    return value


def deep(levels):
    value = 0
    for _ in range(levels):
        value = [value]
    return value


def local():
    @dataclass
    class Local:
        a: int = 1

    return Local()


def with_attribute(value):
    value.stray = 1
    return value


def unset():
    line = Line.__new__(Line)
    object.__setattr__(line, "sku", 1)
    return line


class Shadowed(Enum):
    A = 1


SHADOWED = Shadowed.A
Shadowed = None

HINT = "return plain data, a dataclass, a NamedTuple, a Struct or a pydantic model"
LOST = "since that name does not lead to its class again"
REFUSED = [
    (Line(1, sqlite3.connect), "result.count: a builtin_function_or_method cannot be recorded"),
    (object(), "result: an object cannot be recorded"),
    ({"a": [1, object()]}, "result['a'][1]: an object cannot be recorded"),
    ({1: {object()}}, "result[1]{an object}: an object cannot be recorded"),
    ({Text("a"): 1}, f"result{{a {HERE}.Text}}: a {HERE}.Text cannot be recorded"),
    (Text("a"), f"result: a {HERE}.Text cannot be recorded"),
    (OrderedDict(a=1), "result: a collections.OrderedDict cannot be recorded"),
    (range(3), "result: a range cannot be recorded"),
    (Colour, "result: an enum.EnumType cannot be recorded"),
    (ValueError("x"), "result: a ValueError cannot be recorded"),
    (ring(), "result['a'][0]: it holds itself, so it cannot be recorded"),
    (deep(101), f"result{'[0]' * 101}: nested more than 100 deep, it cannot be recorded"),
    (local(), f"result: a {HERE}.local.<locals>.Local cannot be recorded, {LOST}"),
    (SHADOWED, f"result: a {HERE}.Shadowed cannot be recorded, {LOST}"),
    (Blob(), f"result: a {HERE}.Blob, a dataclass on top of a builtin, cannot be recorded"),
    (with_attribute(Order(1)),
     f"result: a {HERE}.Order with the attribute stray, no field, cannot be recorded"),
    (with_attribute(Marked(1)),
     f"result: a {HERE}.Marked with the attribute stray, no field, cannot be recorded"),
    (unset(), f"result: a {HERE}.Line whose field count is not set cannot be recorded"),
    (time(1, tzinfo=Nameless()),
     "result: a datetime.time whose zone has no offset cannot be recorded"),
    (StandInForPydantic2("a", private={"_p": object()}),
     "result.private['_p']: an object cannot be recorded"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=[why[:60] for _, why in REFUSED])
def test_what_cannot_be_recorded_is_refused_by_name_and_place(value, message):
    """A result that would come back as something else is refused, and the message says where."""
    with pytest.raises(UsageError) as caught:
        encode_outcome(Succeeded(value))
    assert type(caught.value) is UsageError
    assert str(caught.value) == f"{message}. {HINT}"


def test_a_connection_is_refused_by_its_name():
    """The commonest mistake: a result that holds what it came from."""
    connection = sqlite3.connect(":memory:")
    with pytest.raises(UsageError, match=r"^result\.sku: a sqlite3\.Connection cannot be recorded"):
        encode_outcome(Succeeded(Line(connection)))
    connection.close()


def test_a_hundred_levels_are_not_too_many():
    """The bound is where it says, on both ways through the recorder."""
    assert same(round_trip(deep(100)), deep(100))
    assert same(round_trip([deep(99), (1,)]), [deep(99), (1,)])


# --- records that were changed --------------------------------------------------------------------


def value_record(**tag):
    return json.dumps({"v": 1, "value": {f"${name}": held for name, held in tag.items()}}).encode()


CHANGED = [
    (value_record(enum=["shop", "Colour", "RED"]), "shop.Colour: no module shop is loaded here"),
    (value_record(enum=[HERE, "Colours", "RED"]),
     f"{HERE}.Colours: module {HERE} has no such class"),
    (value_record(enum=[HERE, "Colour", "GREEN"]), f"{HERE}.Colour has no member GREEN"),
    (value_record(enum=[HERE, "Order", "RED"]), f"{HERE}.Order is no Enum"),
    (value_record(enum=[HERE, "Colour", 1]), f"{HERE}.Colour has no member 1"),
    (value_record(object=[HERE, "Outer.Inner.Most", {}]),
     f"{HERE}.Outer.Inner.Most: module {HERE} has no such class"),
    (value_record(object=[HERE, "Line", {"sku": 1, "colour": 2}]),
     f"{HERE}.Line has lost colour and got count since it was recorded"),
    (value_record(object=[HERE, "Point", {"x": 1}]),
     f"{HERE}.Point has got y since it was recorded"),
    (value_record(object=[HERE, "Parcel", {"weight": 1, "to": 2, "b": 3, "a": 4}]),
     f"{HERE}.Parcel has lost a, b since it was recorded"),
    (value_record(object=[HERE, "Outer", {}]),
     f"{HERE}.Outer is no dataclass, NamedTuple or Struct"),
    (value_record(model=[HERE, "Order", {}, {}]), f"{HERE}.Order is no pydantic model"),
    (value_record(model=[HERE, "StandInForPydantic2", {"name": 1}, {}]),
     f"{HERE}.StandInForPydantic2 has got age since it was recorded"),
    (value_record(model=[HERE, "StandInForPydantic1", {"name": 1, "age": 2},
                         {"set": [], "extra": {}, "private": {"__class__": 1}}]),
     f"{HERE}.StandInForPydantic1 has lost __class__ since it was recorded"),
    (value_record(path=["Popen", "x"]), "a path cannot be a Popen"),
    (value_record(time=["01:00:00", 0, None, "Mars/Base"]),
     "the time zone Mars/Base is not known here"),
    (value_record(time=["01:00:00", 0, None, "../x"]), "the time zone ../x is not known here"),
    (value_record(pickle="x"), "a recorded outcome has the unknown tag $pickle"),
    (value_record(set=[], tuple=[]), "a recorded outcome has the unknown tag $set"),
    (b'{"v":2,"value":1}', "a recorded outcome has version 2, not 1"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), CHANGED, ids=[why for _, why in CHANGED])
def test_what_cannot_be_read_back_says_what_is_missing(data, message):
    """A class that moved or lost a field is named; a value is never made up."""
    with pytest.raises(StoredValueError) as caught:
        decode_outcome(data)
    assert str(caught.value) == message


BROKEN = [
    b"", b"{", b"[]", b"1", b"null", b"{}", b'{"v":1}', b'{"v":1,"failed":{}}',
    b'{"v":1,"failed":5}',
    b'{"v":1,"failed":{"type":["builtins"],"text":"x","notes":[]}}', b"[" * 100_000, b"\xff",
    value_record(bytes="!"), value_record(bytes=5), value_record(int="zz"), value_record(set=[[]]),
    value_record(dict=[[[], 1]]), value_record(datetime=["x", 0, None, None]),
    value_record(enum=[]),
    value_record(datetime=["2024-01-01T00:00:00", 0, 10**12, None]), value_record(fraction=[1, 0]),
    value_record(enum=[["a"], "b", "c"]), value_record(uuid="x"),
    value_record(timedelta=[10**10, 0, 0]),
    value_record(complex=["__import__('os')", 1]), value_record(object=[HERE, "Line", 5]),
]  # fmt: skip


@pytest.mark.parametrize("data", BROKEN, ids=lambda data: data[:50].decode(errors="replace"))
def test_a_broken_record_is_one_kind_of_error(data):
    """Whatever was written to the store, reading it fails in one way."""
    with pytest.raises(StoredValueError, match=r"^a recorded outcome cannot be read: "):
        decode_outcome(data)


@given(data=PLAIN)
def test_any_json_is_read_or_refused(data):
    """No record makes reading fail in another way, or come back as something else than JSON."""
    for record in ({"v": 1, "value": data}, {"v": 1, "failed": data}, data):
        try:
            read = decode_outcome(json.dumps(record).encode())
        except StoredValueError:
            continue
        assert type(read) is (Failed if "failed" in record else Succeeded)
        assert isinstance(read, Failed) or read.value == data or data is record


def test_a_zone_that_is_gone_or_has_changed_leaves_the_offset():
    """The instant is kept, whatever this system knows of the zone."""
    for key in ("Mars/Base", "Europe/London", "../../etc/passwd", "no\0zone", ""):
        record = value_record(datetime=["2024-07-01T00:00:00", 0, 7200 * 10**6, key])
        read = decode_outcome(record).value
        assert read.isoformat() == "2024-07-01T00:00:00+02:00"
        assert type(read.tzinfo) is timezone


def test_a_zone_of_another_library_is_its_offset():
    """Other libraries have classes of their own; the instant is what counts."""

    class Elsewhere(Nameless):
        def utcoffset(self, dt):
            return timedelta(hours=2)

    value = datetime(2024, 1, 1, tzinfo=Elsewhere())
    assert round_trip(value) == value
    assert round_trip(value).tzinfo == timezone(timedelta(hours=2))


def test_a_path_is_read_where_pathlib_is_loaded(monkeypatch):
    """The core imports no pathlib; where nobody has, the message names it."""
    data = encode_outcome(Succeeded(pathlib.PurePosixPath("a")))
    monkeypatch.delitem(sys.modules, "pathlib")
    with pytest.raises(StoredValueError, match=r"no module pathlib is loaded here"):
        decode_outcome(data)


# --- records that were forged ---------------------------------------------------------------------


class Answering(type):
    """A metaclass that claims everything and writes down who asked."""

    def __getattr__(cls, name):
        RAN.append(name)
        return {}

    def __call__(cls, *args, **kwargs):
        RAN.append("called")

    def __instancecheck__(cls, instance):
        RAN.append("instance")
        return True

    def __subclasscheck__(cls, subclass):
        RAN.append("subclass")
        return True

    def mro(cls):
        return type.mro(cls)


class Impostor(metaclass=Answering):
    def __init_subclass__(cls):
        RAN.append("subclassed")


class OwnEnumMeta(EnumMeta):
    def __call__(cls, *args, **kwargs):
        if RAN is not None and "armed" in RAN:
            RAN.append("called")
        return super().__call__(*args, **kwargs)


class OwnFlag(Flag, metaclass=OwnEnumMeta):
    A = 1
    B = 2


class OwnStructMeta(type(msgspec.Struct)):
    def __call__(cls, *args, **kwargs):
        RAN.append("called")
        return super().__call__(*args, **kwargs)


class OwnStruct(msgspec.Struct, metaclass=OwnStructMeta):
    a: int


class Proxy:
    """Says that it is a class."""

    @property
    def __class__(self):
        RAN.append("asked")
        return type

    def __call__(self, *args, **kwargs):
        RAN.append("called")


proxy = Proxy()
TARGETS = [
    ("os", "system"), ("posix", "system"), ("builtins", "eval"), ("builtins", "exec"),
    ("builtins", "__import__"), ("builtins", "type"), ("builtins", "object"), ("builtins", "open"),
    ("subprocess", "Popen"), ("importlib", "import_module"), ("pickle", "loads"), ("sys", "exit"),
    ("functools", "partial"), ("types", "FunctionType"), ("os", "path.join"), ("sys", "modules.os"),
    ("os", "_Environ"), ("pathlib", "Path"), ("threading", "Thread"),
    ("builtins", "KeyboardInterrupt"),
    ("builtins", "SystemExit"), ("builtins", "BaseException"), ("builtins", "BaseExceptionGroup"),
    ("builtins", "GeneratorExit"), ("asyncio", "CancelledError"), ("", ""), ("os", ""), ("os", "."),
    (HERE, "Impostor"), (HERE, "proxy"), (HERE, "RAN.append"), (HERE, "Order.__init__"),
    (HERE, "Order.__class__"), ("this", "s"), ("antigravity", "x"),
]  # fmt: skip


def failure_record(where):
    record = {"type": where, "text": "x", "notes": ["n"], "args": ["x"], "own": {}, "held": {}}
    return json.dumps({"v": 1, "failed": record | {"whole": True}}).encode()


PAYLOADS = [
    lambda where: value_record(enum=[*where, "x"]),
    lambda where: value_record(enum=[*where, 1]),
    lambda where: value_record(object=[*where, {}]),
    lambda where: value_record(object=[*where, {"args": ["echo"]}]),
    lambda where: value_record(model=[*where, {}, {"set": [], "extra": {}, "private": {}}]),
    lambda where: value_record(path=[where[1], "echo"]),
]


@pytest.fixture
def armed(ran):
    """Nothing may run, and nothing may be imported."""
    decode_outcome(value_record(time=["01:00:00", 0, 0, "UTC"]))  # what is imported late, is now
    ran.clear()
    loaded = set(sys.modules)
    yield ran
    assert set(sys.modules) == loaded


@pytest.mark.parametrize("where", TARGETS, ids=".".join)
@pytest.mark.parametrize("payload", PAYLOADS, ids="enum flag object args model path".split())
def test_a_forged_value_runs_nothing(payload, where, armed):
    """Whoever can write the store can make reading fail, and nothing more."""
    data = payload(where)
    with pytest.raises(StoredValueError):
        decode_outcome(data)
    assert armed == []


@pytest.mark.parametrize("where", TARGETS, ids=".".join)
def test_a_forged_failure_runs_nothing(where, armed):
    """A class that is no Exception is never made; what stands for it only says its name."""
    read = decode_outcome(failure_record(where)).exception
    assert type(read) is StoredFailure
    assert read.__notes__ == ["n"]
    assert armed == []


AUDITED = """
import os, pickle, subprocess, sys, threading, importlib, asyncio, pathlib, zoneinfo, fractions
from mainstay.core.codec.outcome import decode_outcome
from mainstay.errors import StoredFailure, StoredValueError
seen = []
records = eval(sys.stdin.read())
names = ("import", "exec", "compile", "open", "os.system", "subprocess.Popen", "pickle.find_class")
sys.addaudithook(lambda event, args: seen.append((event, args)) if event in names else None)
for record in records:
    try:
        read = decode_outcome(record)
    except StoredValueError:
        continue
    assert type(read.exception) is StoredFailure, record
print(len(records), seen)
os.system("true")
assert seen, "the hook hears"
"""


def test_python_itself_sees_nothing_run_imported_or_opened_by_forged_records():
    """An audit hook hears of whatever is executed, however it was reached."""
    targets = [where for where in TARGETS if where[0] != HERE]
    records = [payload(where) for payload in PAYLOADS for where in targets]
    records += [failure_record(where) for where in targets]
    zones = ["../../etc/passwd", "/etc/passwd", "os.path/x", "a.b/c", "x\0", ""]
    records += [value_record(time=["01:00:00", 0, None, zone]) for zone in zones]
    run = subprocess.run(
        [sys.executable, "-c", AUDITED],
        input=repr(records),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.stderr, run.stdout) == ("", f"{len(records)} []\n")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (value_record(enum=[HERE, "OwnFlag", 3]), "OwnFlag"),
        (value_record(object=[HERE, "OwnStruct", {"a": 1}]), "OwnStruct"),
    ],
)
def test_a_class_with_a_call_of_its_own_is_not_called(data, name, armed):
    """A metaclass may do anything when its class is called."""
    armed.append("armed")
    message = f"{HERE}.{name} has a metaclass that makes its own"
    with pytest.raises(StoredValueError, match=f"^{message}$"):
        decode_outcome(data)
    assert armed == ["armed"]


# --- a class of ours that has got a field ---------------------------------------------------------


def test_a_field_that_came_later_leaves_records_and_fingerprints_as_they_were():
    """Where it is empty, the value is stored without it; what has none of it is read."""
    plain = mainstay.HealthReport("healthy", ())
    stored = encode_outcome(Succeeded(plain))
    assert b"counts" not in stored
    assert decode_outcome(stored).value == plain
    full = mainstay.HealthReport("healthy", (), {"not_kept": 1})
    assert decode_outcome(encode_outcome(Succeeded(full))).value == full
    assert fingerprint({"a": plain}) != fingerprint({"a": full})


class Grown(msgspec.Struct):
    """A class of the user's: what it names is its own."""

    a: int
    b: int = 0
    _LATER_FIELDS: ClassVar = ("b",)


def test_a_class_of_the_users_is_stored_with_all_fields():
    """A field more or less is a change that the user has to see."""
    stored = encode_outcome(Succeeded(Grown(1)))
    assert b'"b":0' in stored
    with pytest.raises(StoredValueError, match="has got b since it was recorded"):
        decode_outcome(stored.replace(b',"b":0', b""))
