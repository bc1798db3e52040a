"""Values as what JSON has: for a record, from which decode.py makes them again.

What JSON has is written as JSON; everything else is an object with one key, a tag that begins with
`$`. A dict that would look like that is written as `$dict`. What would not come back with the same
type and value is refused, by name and place.
"""

from __future__ import annotations

import math
from binascii import b2a_base64
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag

from mainstay.core.base.types import Json
from mainstay.core.codec.bounds import MOST_BITS, is_long
from mainstay.core.codec.introspect import (
    a_type,
    field_names,
    find_class,
    is_pydantic_2,
    private_names,
    pydantic_fields,
    static,
    stored_fields,
    stored_name,
)
from mainstay.core.codec.visitor import FIELD, ITEM, LEAST, MEMBER, MOST, ROOT, Walk
from mainstay.core.known.kind import qualified_name
from mainstay.errors import StoredValueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.base.types import UserValue
    from mainstay.core.codec.introspect import RecordKind
    from mainstay.core.codec.visitor import Encode


def recorded(value: object) -> Json:
    """A value as JSON has it.

    >>> recorded({"id": 7, "tags": ("a", "b")})
    {'id': 7, 'tags': {'$tuple': ['a', 'b']}}
    """
    return Recorder().visit(ROOT, value)


# --- what JSON has --------------------------------------------------------------------------------

NESTED = frozenset({list, dict})
FREE = frozenset({type(None), bool, str})
_NATIVE = FREE | {int, float} | NESTED


def is_native(value: UserValue, room: int) -> bool:
    """Whether JSON has all of this, up to `room` levels deep."""
    kind = type(value)
    if kind in FREE:
        return True
    if kind is int:
        return bool(LEAST <= value <= MOST)
    if kind is float:
        return math.isfinite(value)
    if kind not in NESTED or room <= 0:  # what is too deep or without an end, the recorder names
        return False
    return (_is_native_list if kind is list else _is_native_dict)(value, room - 1)


def _is_native_list(values: list[UserValue], room: int) -> bool:
    """Checked in C if all values are of one type, as in most long lists."""
    kinds = set(map(type, values))
    if kinds <= FREE:
        return True
    if kinds == {int}:
        return bool(min(values) >= LEAST and max(values) <= MOST)
    return kinds <= _NATIVE and all(is_native(value, room) for value in values)


def _is_native_dict(values: dict[UserValue, UserValue], room: int) -> bool:
    for key, value in values.items():  # a loop, as most values are small
        if type(key) is not str or key[:1] == "$":  # a tag
            return False
        if type(value) not in FREE and not is_native(value, room):
            return False
    return True


def _is_plain_key(key: object) -> bool:
    """Whether it is text that cannot be a tag."""
    return type(key) is str and not key.startswith("$")


# --- values ---------------------------------------------------------------------------------------


def _constant(_: Walk[Json], value: bool | None) -> Json:
    return value


def _text(_: Walk[Json], value: str) -> Json:
    if _is_utf8(value):
        return value
    return {"$str": _base64(value.encode("utf-8", "surrogatepass"))}


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _integer(_: Walk[Json], value: int) -> Json:
    return value if LEAST <= value <= MOST else {"$int": f"{value:x}"}


def _float(_: Walk[Json], value: float) -> Json:
    return value if math.isfinite(value) else {"$float": repr(value)}


def _base64(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode()


def _zoned(tag: str) -> Encode[Json]:
    """Writes local time, fold, offset in µs and the key of the zone."""

    def write(walk: Walk[Json], value: datetime | time) -> Json:
        offset, zone = value.utcoffset(), value.tzinfo
        is_known = zone is not None and qualified_name(type(zone)) == "zoneinfo.ZoneInfo"
        key = zone.key if is_known else None  # type: ignore[union-attr]
        if zone is not None and offset is None and key is None:
            walk.refuse(f"{a_type(type(value))} whose zone has no offset {walk.verdict}")
        local = value.replace(tzinfo=None).isoformat()
        return {tag: [local, value.fold, None if offset is None else offset // _US, key]}

    return write


_US = timedelta(microseconds=1)

PATHS = ("PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath")


def _dict(walk: Walk[Json], value: dict[UserValue, UserValue]) -> Json:
    if all(map(_is_plain_key, value)) and _is_utf8("".join(value)):
        return {key: walk.visit((ITEM, key), held) for key, held in value.items()}
    return {
        "$dict": [
            [walk.visit((MEMBER, key), key), walk.visit((ITEM, key), held)]
            for key, held in value.items()
        ]
    }


# --- objects --------------------------------------------------------------------------------------


def _enum(walk: Walk[Json], value: Enum) -> Json:
    member = _integer(walk, value.value) if isinstance(value, Flag) else value.name
    return {"$enum": [*_name(walk, value), member]}


def _object(walk: Walk[Json], value: object) -> Json:
    cls = type(value)
    names = field_names(cls)
    for name in getattr(value, "__dict__", ()):
        if name not in names and static(cls, name) is None:  # what a class names is a cache
            walk.refuse(f"{a_type(cls)} with the attribute {name}, no field, {walk.verdict}")
    return {"$object": [*_name(walk, value), walk.fields(value, stored_fields(value))]}


def _dataclass(walk: Walk[Json], value: object) -> Json:
    try:
        object.__new__(type(value))
    except TypeError:  # what a builtin base holds is in no field
        walk.refuse(f"{a_type(type(value))}, a dataclass on top of a builtin, {walk.verdict}")
    return _object(walk, value)


def _model(walk: Walk[Json], value: UserValue) -> Json:
    """A pydantic model: fields, which of them were set, extra values, private attributes."""
    cls, held = type(value), vars(value)
    declared = pydantic_fields(cls) or {}
    if is_pydantic_2(cls):
        was_set, extra = value.__pydantic_fields_set__, value.__pydantic_extra__
        private = value.__pydantic_private__
    else:
        was_set = value.__fields_set__
        extra = {name: held[name] for name in held if name not in declared}
        private = {n: getattr(value, n) for n in private_names(cls) if hasattr(value, n)}
    parts = {"set": sorted(was_set), "extra": extra, "private": private}
    state = {part: walk.visit((FIELD, part), held) for part, held in parts.items()}
    return {"$model": [*_name(walk, value), walk.fields(value, declared), state]}


def _name(walk: Walk[Json], value: object) -> tuple[str, str]:
    """Module and name of a class, if it will be found by them."""
    cls = type(value)
    module, name = stored_name(cls)
    try:
        is_found = find_class(module, name) is cls
    except StoredValueError:
        is_found = False
    if not is_found:
        walk.refuse(
            f"{a_type(cls)} {walk.verdict}, since that name does not lead to its class again"
        )
    return module, name


# --- the tables -----------------------------------------------------------------------------------


_SCALARS: dict[type, Encode[Json]] = {
    type(None): _constant,
    bool: _constant,
    str: _text,
    int: _integer,
    float: _float,
    complex: lambda walk, v: {"$complex": [_float(walk, v.real), _float(walk, v.imag)]},
    bytes: lambda _, value: {"$bytes": _base64(value)},
    bytearray: lambda _, value: {"$bytearray": _base64(value)},
    date: lambda _, value: {"$date": value.isoformat()},
    datetime: _zoned("$datetime"),
    time: _zoned("$time"),
    timedelta: lambda _, v: {"$timedelta": [v.days, v.seconds, v.microseconds]},
    Decimal: lambda _, value: {"$decimal": str(value)},
}
_CONTAINERS: dict[type, Encode[Json]] = {
    list: lambda walk, value: walk.items(value),
    tuple: lambda walk, value: {"$tuple": walk.items(value)},
    set: lambda walk, value: {"$set": walk.members(value)},
    frozenset: lambda walk, value: {"$frozenset": walk.members(value)},
    dict: _dict,
}


def _parts(walk: Walk[Json], *parts: int) -> list[Json]:
    if any(map(is_long, parts)):
        walk.refuse(f"a Fraction with more than {MOST_BITS:,} bits {walk.verdict}")
    return [_integer(walk, part) for part in parts]


def _path(walk: Walk[Json], value: UserValue) -> Json:
    return {"$path": [type(value).__name__, _text(walk, str(value))]}


_NAMED: dict[str, Encode[Json]] = {
    "uuid.UUID": lambda _, value: {"$uuid": str(value)},
    "fractions.Fraction": lambda walk, v: {"$fraction": _parts(walk, v.numerator, v.denominator)},
    **{f"pathlib.{name}": _path for name in PATHS},
    **{f"pathlib._local.{name}": _path for name in PATHS},  # in Python 3.13
}
_RECORDS: dict[RecordKind, Encode[Json]] = {
    "enum": _enum,
    "named_tuple": _object,
    "dataclass": _dataclass,
    "struct": _object,
    "model": _model,
}


class Recorder(Walk[Json]):
    """Turns values into what JSON has, with tags."""

    __slots__ = ()

    root = "result"
    verdict = "cannot be recorded"
    hint = "return plain data, a dataclass, a NamedTuple, a Struct or a pydantic model"
    scalars = _SCALARS
    containers = _CONTAINERS
    named = _NAMED
    records = _RECORDS
