"""One byte string per value: canonical JSON, for keys and for fingerprints of arguments.

The same value gives the same bytes in every process and on every Python; two different values of
the types known here never do. What has no such form is refused, with the way to it by name: a key
made of `repr()` would hold an address, and every call would be a new one.

| value | text |
| --- | --- |
| None, bool, str, list, tuple | as in JSON; text as UTF-8, unescaped and not normalised |
| dict | an object, keys sorted; `$dict`, pairs sorted, where a key is no text or begins with `$` |
| int | its digits; `$int` in base 16 beyond 64 bits |
| float | the shortest digits that read back, always with `.` or `e`: 1.0 is not 1, -0.0 is 0.0 |
| set, frozenset | `$set`, sorted |
| datetime | `$instant` in µs since 1970 (UTC) where it has an offset, else `$datetime` |
| Decimal | `$decimal`: digits and exponent without trailing zeros, so 1.0 is 1.00; -0 is 0 |
| Enum member | `$enum`: class and name; class and number for a Flag |
| dataclass, NamedTuple, Struct, pydantic model | `$object`: class and fields |
| anything with `__mainstay_key__()` | `$key`: class and what the method returned |
| bytes, date, time, timedelta, UUID, Path | `$bytes`, `$date`, `$time`, `$timedelta`, … |

An object whose only key begins with `$` is always one of these, since no dict is written so. A
subclass of a plain type counts as that type. Classes count by module and name: whoever renames one
makes new keys; our own count by names that stay when they move. Fields of a dataclass with
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
from functools import partial

import msgspec

from mainstay.core.codec.introspect import (
    is_dataclass,
    is_named_tuple,
    is_pydantic,
    is_pydantic_2,
    is_struct,
    key_name,
    mro_of,
    pydantic_fields,
    static,
)
from mainstay.core.codec.visitor import FIELD, ITEM, LEAST, MEMBER, MOST, ROOT, Walk, refused
from mainstay.core.retry.kinds import qualified_name

_sha256 = hashlib.sha256
# A digest without OpenSSL's set-up, where the build has it.
with suppress(ImportError):
    from _sha256 import sha256 as _sha256  # type: ignore[import-not-found,no-redef]  # Python 3.11
with suppress(ImportError):
    from _sha2 import sha256 as _sha256  # type: ignore[import-not-found,no-redef]  # since 3.12

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any


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
        except UnicodeEncodeError:  # a lone surrogate: the walk says where
            pass
    text: str = _Writer().visit(ROOT, value)
    return text.encode()


_simple = msgspec.json.Encoder(order="sorted").encode


_SCALARS = frozenset({str, bool, type(None)})


def _is_simple(value: Any, room: int) -> bool:
    """Whether msgspec writes it as the walk does: most arguments are so, and it is much faster.

    Floats are not: msgspec has another notation for large and small ones.
    """
    kind = type(value)
    if kind is int:
        return bool(LEAST <= value <= MOST)
    if kind in _SCALARS or not room:  # what is deep, or without an end, is for the walk to say
        return kind in _SCALARS
    if kind is dict:
        for key, each in value.items():
            if type(key) is not str or key[:1] == "$":
                return False
            if type(each) in _SCALARS or (type(each) is int and LEAST <= each <= MOST):
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
    data = canonical(value)
    sha256 = _sha256 if len(data) <= _SHORT else hashlib.sha256
    return str(sha256(data).hexdigest())


_SHORT = 128
"""Bytes that Python's own SHA-256 has hashed before OpenSSL, the faster one, has begun."""


class _Writer(Walk):
    """Writes values as canonical JSON text."""

    __slots__ = ()

    verdict = "cannot be part of a key"
    hint = "give key=..."

    def encode(self, value: Any) -> str:
        plain = _PLAIN.get(type(value))
        return self.inside(value, _encoder_of(type(value))) if plain is None else plain(self, value)


def _encoder_of(cls: type) -> Callable[[Any, Any], str]:
    """How values of a class are written: by its own word, as a record, or as a base of it."""
    if static(cls, "__mainstay_key__") is not None:
        return _own_key
    if Enum in mro_of(cls):
        return _enum
    for is_one, names_of in _RECORDS:
        if is_one(cls):
            return partial(_record, names_of)
    for base in mro_of(cls):
        encoder = _CONTAINERS.get(base) or _PLAIN.get(base) or _NAMED.get(qualified_name(base))
        if encoder is not None:
            return encoder
    return refused


def _dataclass_names(value: Any) -> list[str]:
    import dataclasses  # loaded, where there is a dataclass

    return [field.name for field in dataclasses.fields(value) if field.compare]


def _pydantic_names(value: Any) -> list[str]:
    """Fields and extra values; version 1 keeps both in `__dict__`."""
    if not is_pydantic_2(type(value)):
        return list(vars(value))
    extra = getattr(value, "__pydantic_extra__", None)
    return [*(pydantic_fields(type(value)) or ()), *(extra or ())]


_RECORDS: tuple[tuple[Callable[[type], bool], Callable[[Any], Iterable[str]]], ...] = (
    (is_named_tuple, lambda value: value._fields),
    (is_dataclass, _dataclass_names),
    (is_struct, lambda value: value.__struct_fields__),
    (is_pydantic, _pydantic_names),
)


def _tagged(tag: str, text: str) -> str:
    return f'{{"${tag}":{text}}}'


def _quoted(tag: str, text: str) -> str:
    return _tagged(tag, f'"{text}"')


def _array(texts: Iterable[str]) -> str:
    return f"[{','.join(texts)}]"


def _object(walk: Walk, texts: Mapping[str, str]) -> str:
    return f"{{{','.join(f'{_text(walk, key)}:{texts[key]}' for key in sorted(texts))}}}"


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _constant(text: str) -> Callable[[Walk, object], str]:
    return lambda _, __: text


def _text(walk: Walk, value: str) -> str:
    try:
        return _json(str.__str__(value))
    except UnicodeEncodeError as error:
        found = ord(value[error.start])
        walk.refuse(f"text with the lone surrogate U+{found:04X} {walk.verdict}")


def _integer(_: Walk, value: int) -> str:
    number = int.__index__(value)
    if LEAST <= number <= MOST:
        return int.__repr__(number)
    return _quoted("int", f"{number:x}")  # base 16: Python limits the digits of base 10


def _float(walk: Walk, value: float) -> str:
    if not math.isfinite(value):
        word = {"inf": "infinity", "-inf": "-infinity"}.get(float.__repr__(value), "NaN")
        walk.refuse(f"{word} {walk.verdict}")
    return float.__repr__(value) if value else "0.0"


def _bytes(_: Walk, value: bytes) -> str:
    return _quoted("bytes", b2a_base64(value, newline=False).decode())


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 -- what is added to it is in UTC
_MICROSECOND = timedelta(microseconds=1)


def _datetime(walk: Walk, value: datetime) -> str:
    offset = value.utcoffset()
    if offset is not None:  # counted, because UTC has no year 0 or 10000 for its ends
        since = value.replace(tzinfo=None) - _EPOCH - offset
        return _tagged("instant", str(since // _MICROSECOND))
    return _zoneless(walk, value, "datetime")


def _time(walk: Walk, value: time) -> str:
    if value.utcoffset() is not None:
        return _quoted("time", value.isoformat())
    return _zoneless(walk, value, "time")


def _zoneless(walk: Walk, value: datetime | time, tag: str) -> str:
    """Without an offset: no zone at all, or one that needs a date and is known by its key."""
    local = value.replace(tzinfo=None).isoformat()
    if value.tzinfo is None:
        return _quoted(tag, local)
    key = getattr(value.tzinfo, "key", None)
    if not isinstance(key, str):
        walk.refuse(f"a {tag} whose zone has neither offset nor name {walk.verdict}")
    return _tagged(tag, _array((f'"{local}"', _json(key))))


def _date(_: Walk, value: date) -> str:
    return _quoted("date", value.isoformat())


def _timedelta(_: Walk, value: timedelta) -> str:
    return _tagged("timedelta", str(value // _MICROSECOND))


def _decimal(walk: Walk, value: Any) -> str:
    if not value.is_finite():
        walk.refuse(f"the Decimal {value} {walk.verdict}")
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    if not kept:
        return _quoted("decimal", "0")
    return _quoted("decimal", f"{'-' * sign}{kept}e{exponent + len(text) - len(kept)}")


def _uuid(_: Walk, value: object) -> str:
    return _quoted("uuid", str(value))


def _path(walk: Walk, value: object) -> str:
    is_windows = any(base.__name__ == "PureWindowsPath" for base in mro_of(type(value)))
    return _tagged("windows_path" if is_windows else "path", _text(walk, str(value)))


def _list(walk: Walk, value: Iterable[object]) -> str:
    return _array(walk.items(value))


def _set(walk: Walk, value: Iterable[object]) -> str:
    return _tagged("set", _array(sorted(walk.members(value))))


def _dict(walk: Walk, value: dict[Any, object]) -> str:
    if not all(map(_is_plain_key, value)):
        pairs = [(walk.visit((MEMBER, k), k), walk.visit((ITEM, k), v)) for k, v in value.items()]
        return _tagged("dict", _array(map(_array, sorted(pairs))))
    return _object(walk, {str.__str__(k): walk.visit((ITEM, k), v) for k, v in value.items()})


def _is_plain_key(key: object) -> bool:
    """Whether it is text that cannot be a tag."""
    return isinstance(key, str) and not isinstance(key, Enum) and not str.startswith(key, "$")


def _enum(_: Walk, value: Enum) -> str:
    member = str(value.value) if isinstance(value, Flag) else _json(value.name)
    return _tagged("enum", _array((_json(key_name(type(value))), member)))


def _record(names_of: Callable[[Any], Iterable[str]], walk: Walk, value: object) -> str:
    fields = walk.fields(value, names_of(value))
    return _tagged("object", _array((_json(key_name(type(value))), _object(walk, fields))))


def _own_key(walk: Walk, value: Any) -> str:
    text = walk.visit((FIELD, "__mainstay_key__()"), value.__mainstay_key__())
    return _tagged("key", _array((_json(key_name(type(value))), text)))


_PLAIN: dict[type, Callable[[Any, Any], str]] = {
    type(None): _constant("null"),
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
_CONTAINERS: dict[type, Callable[[Any, Any], str]] = {
    list: _list,
    tuple: _list,
    dict: _dict,
    set: _set,
    frozenset: _set,
}
_NAMED: dict[str, Callable[[Any, Any], str]] = {  # by name: the core imports no uuid and no pathlib
    "decimal.Decimal": _decimal,
    "uuid.UUID": _uuid,
    "pathlib.PurePath": _path,
    "pathlib._local.PurePath": _path,  # Python 3.13
}
