"""One byte string per value: canonical JSON, for keys and for fingerprints of arguments.

The same value gives the same bytes in every process and on every Python; two different values of
the types known here never do. What has no such form is refused, with the way to it by name: a key
made of `repr()` would hold an address, and every call would be a new one.

| value | text |
| --- | --- |
| None, bool, str, list, tuple | as in JSON; text as UTF-8, unescaped and not normalised |
| dict | an object, keys sorted; `$dict`, pairs sorted, if a key is no text or begins with `$` |
| int | its digits; `$int` in base 16 beyond 64 bits |
| float | the shortest digits that read back, always with `.` or `e`: 1.0 is not 1, -0.0 is 0.0 |
| set, frozenset | `$set`, sorted |
| datetime | `$instant` in µs since 1970 (UTC) if it has an offset, else `$datetime` |
| Decimal | `$decimal`: digits and exponent without trailing zeros, so 1.0 is 1.00; -0 is 0 |
| Enum member | `$enum`: class and name; class and number for a Flag |
| dataclass, NamedTuple, Struct, pydantic model | `$object`: class and fields |
| anything with `__mainstay_key__()` | `$key`: class and what the method returned |
| bytes, date, time, timedelta, UUID, Path | `$bytes`, `$date`, `$time`, `$timedelta`, … |

An object whose only key begins with `$` is always one of these, since no dict is written so. A
subclass of a plain type counts as that type. Classes count by module and name: a renamed class
makes new keys; our own count by names that stay when a module moves. Fields of a dataclass with
`compare=False` are left out, as they are from `==`.

1 and 1.0 are kept apart because what a function does with them may differ (`f"{x}"`), and because
a fingerprint that differs is seen, while a call taken for another is not.
"""

from __future__ import annotations

import hashlib
import math
from binascii import b2a_base64
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from enum import Enum, Flag

import msgspec

from mainstay.core.codec.introspect import (
    is_pydantic_2,
    key_name,
    mro_of,
    pydantic_fields,
    stored_fields,
)
from mainstay.core.codec.visitor import FIELD, ITEM, LEAST, MEMBER, MOST, ROOT, Walk

_sha256 = hashlib.sha256
# A digest without OpenSSL's set-up, if the build has it.
with suppress(ImportError):
    from _sha256 import sha256 as _sha256  # type: ignore[import-not-found,no-redef]  # Python 3.11
with suppress(ImportError):
    from _sha2 import sha256 as _sha256  # type: ignore[import-not-found,no-redef]  # since 3.12

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mainstay.core.base.types import UserValue
    from mainstay.core.codec.introspect import RecordKind
    from mainstay.core.codec.visitor import Encode


def canonical(value: object) -> bytes:
    """The bytes of a value, the same in every process.

    >>> canonical({"b": [1, 1.0, None], "a": "é"}).decode()
    '{"a":"é","b":[1,1.0,null]}'
    >>> canonical({2, 1}) == canonical(frozenset({1, 2})) != canonical([1, 2])
    True
    >>> canonical({"order": {"lock": object()}})
    Traceback (most recent call last):
    mainstay.errors.UsageError: order['lock']: an object cannot be part of a key. give key=...
    """
    if _is_simple(value, 4):
        try:
            return _simple(value)
        except UnicodeEncodeError:  # a lone surrogate: the walk names its path
            pass
    return Canonical().visit(ROOT, value).encode()


_simple = msgspec.json.Encoder(order="sorted").encode


_AS_IN_JSON = frozenset({str, bool, type(None)})


def _is_simple(value: UserValue, room: int) -> bool:
    """Whether msgspec writes it as the walk does: most arguments are so, and it is much faster.

    Floats are not: msgspec has another notation for large and small ones.
    """
    kind = type(value)
    if kind is int:
        return bool(LEAST <= value <= MOST)
    if kind in _AS_IN_JSON or not room:  # the walk refuses what is too deep, or without an end
        return kind in _AS_IN_JSON
    if kind is dict:
        for key, each in value.items():
            if type(key) is not str or key[:1] == "$":
                return False
            if type(each) in _AS_IN_JSON or (type(each) is int and LEAST <= each <= MOST):
                continue
            if not _is_simple(each, room - 1):
                return False
        return True
    return (kind is list or kind is tuple) and all(_is_simple(each, room - 1) for each in value)


def fingerprint(value: object) -> str:
    """The SHA-256 of a value's canonical bytes, in hexadecimal digits.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    >>> fingerprint(None)[:12]
    '74234e98afe7'
    """
    return _digest(canonical(value))


def named_fingerprint(arguments: dict[str, UserValue]) -> str:
    """The same for values by names of parameters, none of which begins with `$`.

    >>> named_fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    for each in arguments.values():
        kind = type(each)
        if kind in _AS_IN_JSON or (kind is int and LEAST <= each <= MOST):
            continue
        if not _is_simple(each, 3):
            return fingerprint(arguments)
    try:
        return _digest(_simple(arguments))
    except UnicodeEncodeError:
        return fingerprint(arguments)


def _digest(data: bytes) -> str:
    made = _sha256(data) if len(data) <= _SHORT else hashlib.sha256(data)
    return made.hexdigest()


_SHORT = 128
"""Bytes that Python's own SHA-256 has hashed before OpenSSL, the faster one, has begun."""


def _tagged(tag: str, text: str) -> str:
    return f'{{"${tag}":{text}}}'


def _quoted(tag: str, text: str) -> str:
    return _tagged(tag, f'"{text}"')


def _array(texts: Iterable[str]) -> str:
    return f"[{','.join(texts)}]"


def _object(walk: Walk[str], texts: Mapping[str, str]) -> str:
    return f"{{{','.join(f'{_text(walk, key)}:{texts[key]}' for key in sorted(texts))}}}"


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _text(walk: Walk[str], value: str) -> str:
    try:
        return _json(str.__str__(value))
    except UnicodeEncodeError as error:
        found = ord(value[error.start])
        walk.refuse(f"text with the lone surrogate U+{found:04X} {walk.verdict}")


def _integer(_: Walk[str], value: int) -> str:
    number = int.__index__(value)
    if LEAST <= number <= MOST:
        return int.__repr__(number)
    return _quoted("int", f"{number:x}")  # base 16: Python limits the digits of base 10


def _float(walk: Walk[str], value: float) -> str:
    if not math.isfinite(value):
        word = {"inf": "infinity", "-inf": "-infinity"}.get(float.__repr__(value), "NaN")
        walk.refuse(f"{word} {walk.verdict}")
    return float.__repr__(value) if value else "0.0"


def _bytes(_: Walk[str], value: bytes) -> str:
    return _quoted("bytes", b2a_base64(value, newline=False).decode())


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 -- what is added to it is in UTC
_MICROSECOND = timedelta(microseconds=1)


def _datetime(walk: Walk[str], value: datetime) -> str:
    offset = value.utcoffset()
    if offset is not None:  # counted, because UTC has no year 0 or 10000 for its ends
        since = value.replace(tzinfo=None) - _EPOCH - offset
        return _tagged("instant", str(since // _MICROSECOND))
    return _zoneless(walk, value, "datetime")


def _time(walk: Walk[str], value: time) -> str:
    if value.utcoffset() is not None:
        return _quoted("time", value.isoformat())
    return _zoneless(walk, value, "time")


def _zoneless(walk: Walk[str], value: datetime | time, tag: str) -> str:
    """Without an offset: no zone at all, or one that needs a date and is known by its key."""
    local = value.replace(tzinfo=None).isoformat()
    if value.tzinfo is None:
        return _quoted(tag, local)
    key = getattr(value.tzinfo, "key", None)
    if not isinstance(key, str):
        walk.refuse(f"a {tag} whose zone has neither offset nor name {walk.verdict}")
    return _tagged(tag, _array((f'"{local}"', _json(key))))


def _date(_: Walk[str], value: date) -> str:
    return _quoted("date", value.isoformat())


def _timedelta(_: Walk[str], value: timedelta) -> str:
    return _tagged("timedelta", str(value // _MICROSECOND))


def _decimal(walk: Walk[str], value: UserValue) -> str:
    if not value.is_finite():
        walk.refuse(f"the Decimal {value} {walk.verdict}")
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    if not kept:
        return _quoted("decimal", "0")
    return _quoted("decimal", f"{'-' * sign}{kept}e{exponent + len(text) - len(kept)}")


def _uuid(_: Walk[str], value: object) -> str:
    return _quoted("uuid", str(value))


def _path(walk: Walk[str], value: object) -> str:
    is_windows = any(base.__name__ == "PureWindowsPath" for base in mro_of(type(value)))
    return _tagged("windows_path" if is_windows else "path", _text(walk, str(value)))


def _list(walk: Walk[str], value: Iterable[object]) -> str:
    return _array(walk.items(value))


def _set(walk: Walk[str], value: Iterable[object]) -> str:
    return _tagged("set", _array(sorted(walk.members(value))))


def _dict(walk: Walk[str], value: dict[UserValue, object]) -> str:
    if not all(map(_is_plain_key, value)):
        pairs = [(walk.visit((MEMBER, k), k), walk.visit((ITEM, k), v)) for k, v in value.items()]
        return _tagged("dict", _array(map(_array, sorted(pairs))))
    return _object(walk, {str.__str__(k): walk.visit((ITEM, k), v) for k, v in value.items()})


def _is_plain_key(key: object) -> bool:
    """Whether it is text that cannot be a tag."""
    return isinstance(key, str) and not isinstance(key, Enum) and not str.startswith(key, "$")


def _enum(_: Walk[str], value: Enum) -> str:
    member = str(value.value) if isinstance(value, Flag) else _json(value.name)
    return _tagged("enum", _array((_json(key_name(type(value))), member)))


def _record(walk: Walk[str], value: object) -> str:
    return _named_fields(walk, value, stored_fields(value))


def _dataclass(walk: Walk[str], value: UserValue) -> str:
    import dataclasses  # loaded already, if there is a dataclass

    compared = (field.name for field in dataclasses.fields(value) if field.compare)
    return _named_fields(walk, value, compared)


def _model(walk: Walk[str], value: UserValue) -> str:
    """Fields and extra values; version 1 of pydantic keeps both in `__dict__`."""
    if not is_pydantic_2(type(value)):
        return _named_fields(walk, value, vars(value))
    extra = getattr(value, "__pydantic_extra__", None)
    return _named_fields(walk, value, [*(pydantic_fields(type(value)) or ()), *(extra or ())])


def _named_fields(walk: Walk[str], value: object, names: Iterable[str]) -> str:
    fields = walk.fields(value, names)
    return _tagged("object", _array((_json(key_name(type(value))), _object(walk, fields))))


def _own_key(walk: Walk[str], value: UserValue) -> str:
    text = walk.visit((FIELD, "__mainstay_key__()"), value.__mainstay_key__())
    return _tagged("key", _array((_json(key_name(type(value))), text)))


_SCALARS: dict[type, Encode[str]] = {
    type(None): lambda *_: "null",
    bool: lambda _, value: "true" if value else "false",
    str: _text,
    int: _integer,
    float: _float,
    bytes: _bytes,
    bytearray: _bytes,
    datetime: _datetime,
    date: _date,
    time: _time,
    timedelta: _timedelta,
}
_CONTAINERS: dict[type, Encode[str]] = {
    list: _list,
    tuple: _list,
    dict: _dict,
    set: _set,
    frozenset: _set,
}
_NAMED: dict[str, Encode[str]] = {  # by name: the core imports no uuid and no pathlib
    "decimal.Decimal": _decimal,
    "uuid.UUID": _uuid,
    "pathlib.PurePath": _path,
    "pathlib._local.PurePath": _path,  # Python 3.13
}
_RECORDS: dict[RecordKind, Encode[str]] = {
    "enum": _enum,
    "named_tuple": _record,
    "dataclass": _dataclass,
    "struct": _record,
    "model": _model,
}
_METHODS: dict[str, Encode[str]] = {"__mainstay_key__": _own_key}


class Canonical(Walk[str]):
    """Writes values as canonical JSON text."""

    __slots__ = ()

    verdict = "cannot be part of a key"
    hint = "give key=..."
    by_base = True
    methods = _METHODS
    scalars = _SCALARS
    containers = _CONTAINERS
    named = _NAMED
    records = _RECORDS
