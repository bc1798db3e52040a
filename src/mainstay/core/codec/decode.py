"""Values made again of what encode.py wrote, with the same type and value, and no code from data.

No pickle: classes are looked up by name in modules that are loaded already, and only an Enum, a
dataclass, a NamedTuple, a Struct or a pydantic model will do. Fields are put back as they were,
past `__init__` and `__post_init__`, which need not be harmless. (A Struct cannot be made so: its
`__post_init__` runs, and the fields are set after it.)

What cannot come back raises StoredValueError; a record of another shape may raise anything, which
`outcome` turns into one.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import EnumMeta, Flag

import msgspec
from msgspec.structs import force_setattr

from mainstay.core.codec.bounds import flags, fraction, spread
from mainstay.core.codec.encode import NESTED, PATHS
from mainstay.core.codec.introspect import (
    field_names,
    find_class,
    is_enum,
    is_pydantic_2,
    later_fields,
    mro_of,
    private_names,
    pydantic_fields,
    record_kind,
    static,
)
from mainstay.core.known.kind import qualified_name
from mainstay.errors import StoredValueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstay.core.base.types import Json, UserValue
    from mainstay.core.codec.introspect import RecordKind

    _Zoned = tuple[str, int, int | None, str | None]
    """Local time, fold, offset in µs and the key of the zone."""


def read(plain: Json) -> UserValue:
    """The value of which encode.py made this.

    >>> read({"$tuple": [1, {"$set": [2]}]})
    (1, {2})
    """
    if type(plain) is list:
        return read_list(plain)
    if type(plain) is not dict:
        return plain
    tag = next(iter(plain), "")
    if not tag.startswith("$"):
        return {key: read(held) for key, held in plain.items()}
    reader = _READERS.get(tag)
    if reader is None or len(plain) != 1:
        raise StoredValueError(f"a recorded outcome has the unknown tag {tag}")
    return reader(plain[tag])


def read_list(values: list[Json]) -> list[UserValue]:
    """The values of a list, which may be that list itself."""
    if NESTED.isdisjoint(map(type, values)):
        return values
    return [read(value) for value in values]


def _read_zoned(cls: type[datetime | time]) -> Callable[[_Zoned], UserValue]:
    def read(plain: _Zoned) -> UserValue:
        text, fold, offset, key = plain
        local = cls.fromisoformat(text).replace(fold=fold)
        gap = None if offset is None else timedelta(microseconds=offset)
        zone = None if key is None else _zone(key)
        if zone is not None and local.replace(tzinfo=zone).utcoffset() == gap:
            return local.replace(tzinfo=zone)
        if gap is None and key is not None:
            raise StoredValueError(f"the time zone {key} is not known here")
        return local if gap is None else local.replace(tzinfo=timezone(gap))

    return read


def _zone(key: str) -> UserValue:
    """A time zone, or None if this system has none of that name.

    zoneinfo looks in the system's files and in the package tzdata, and takes nothing else for a
    zone; a key with other characters than zones have does not get that far.
    """
    from zoneinfo import ZoneInfo

    if not _ZONE_KEY.fullmatch(key):
        return None
    try:
        return ZoneInfo(key)
    except Exception:  # not found, not readable, not a zone: an error of its own each
        return None


_ZONE_KEY = re.compile("[A-Za-z0-9_+/-]+")


def _unbase64(plain: str) -> bytes:
    return a2b_base64(plain, strict_mode=True)


def _read_uuid(plain: str) -> UserValue:
    return find_class("uuid", "UUID")(plain)  # msgspec has loaded it


def _read_path(plain: list[Json]) -> UserValue:
    name, text = plain
    if name not in PATHS:
        raise StoredValueError(f"a path cannot be a {name}")
    return find_class("pathlib", name)(read(text))


def _read_dict(plain: list[list[Json]]) -> UserValue:
    keys = spread([read(key) for key, _ in plain])
    return dict(zip(keys, (read(held) for _, held in plain), strict=True))


_READERS: dict[str, Callable[..., UserValue]] = {
    "$str": lambda plain: _unbase64(plain).decode("utf-8", "surrogatepass"),
    "$int": lambda plain: int(plain, 16),
    "$float": float,
    "$complex": lambda plain: complex(*map(read, plain)),
    "$bytes": _unbase64,
    "$bytearray": lambda plain: bytearray(_unbase64(plain)),
    "$date": date.fromisoformat,
    "$datetime": _read_zoned(datetime),
    "$time": _read_zoned(time),
    "$timedelta": lambda plain: timedelta(plain[0], plain[1], plain[2]),
    "$decimal": Decimal,
    "$uuid": _read_uuid,
    "$fraction": lambda plain: fraction(*read_list(plain)),
    "$path": _read_path,
    "$tuple": lambda plain: tuple(read_list(plain)),
    "$set": lambda plain: set(spread(read_list(plain), is_set=True)),
    "$frozenset": lambda plain: frozenset(spread(read_list(plain), is_set=True)),
    "$dict": _read_dict,
    "$enum": lambda plain: _read_enum(*read_list(plain)),
    "$object": lambda plain: _read_object(*plain),
    "$model": lambda plain: _read_model(*plain),
}


# --- objects --------------------------------------------------------------------------------------


def _read_enum(module: str, qualname: str, member: str | int) -> UserValue:
    cls = find_class(module, qualname)
    if not is_enum(cls):
        raise StoredValueError(f"{module}.{qualname} is no Enum")
    if Flag in mro_of(cls) and type(member) is int:
        return _made(cls, EnumMeta, flags(member))
    members = static(cls, "_member_map_")
    if member not in members:
        raise StoredValueError(f"{module}.{qualname} has no member {member}")
    return members[member]


def _made(cls: type, meta: type, *args: object, **fields: object) -> UserValue:
    """An instance, if calling the class does what its kind does and nothing of its own."""
    if static(type(cls), "__call__") is not static(meta, "__call__"):
        raise StoredValueError(f"{qualified_name(cls)} has a metaclass that makes its own")
    return cls(*args, **fields)


def _read_object(module: str, qualname: str, plain: dict[str, Json]) -> UserValue:
    cls = find_class(module, qualname)
    build = _BUILDERS.get(record_kind(cls))
    if build is None:
        raise StoredValueError(f"{module}.{qualname} is no dataclass, NamedTuple or Struct")
    later = [name for name in later_fields(cls) if name not in plain]
    names = [name for name in field_names(cls) if name not in later]
    _check_fields(cls, plain, names)
    return build(cls, {name: read(plain[name]) for name in names})


def _check_fields(cls: type, recorded: Iterable[str], declared: Iterable[str]) -> None:
    gone, new = set(recorded) - set(declared), set(declared) - set(recorded)
    if gone or new:
        parts = [
            f"{word} {', '.join(sorted(n))}" for word, n in (("lost", gone), ("got", new)) if n
        ]
        raise StoredValueError(
            f"{qualified_name(cls)} has {' and '.join(parts)} since it was recorded"
        )


def _build_tuple(cls: type, fields: dict[str, UserValue]) -> UserValue:
    return tuple.__new__(cls, fields.values())


def _build_dataclass(cls: type, fields: dict[str, UserValue]) -> UserValue:
    built: object = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(built, name, value)
    return built


def _build_struct(cls: type, fields: dict[str, UserValue]) -> UserValue:
    built = _made(cls, type(msgspec.Struct), **fields)
    for name, value in fields.items():
        force_setattr(built, name, value)
    return built


_BUILDERS: dict[RecordKind | None, Callable[[type, dict[str, UserValue]], UserValue]] = {
    "named_tuple": _build_tuple,
    "dataclass": _build_dataclass,
    "struct": _build_struct,
}


def _read_model(
    module: str, qualname: str, plain: dict[str, Json], state: dict[str, Json]
) -> UserValue:
    cls = find_class(module, qualname)
    declared = pydantic_fields(cls)
    if declared is None:
        raise StoredValueError(f"{module}.{qualname} is no pydantic model")
    _check_fields(cls, plain, declared)
    fields = {name: read(plain[name]) for name in declared}
    was_set, extra, private = (read(state[part]) for part in ("set", "extra", "private"))
    names = set(spread(was_set, is_set=True))
    if is_pydantic_2(cls):
        parts = {
            "__dict__": fields,
            "__pydantic_fields_set__": names,
            "__pydantic_extra__": extra,
            "__pydantic_private__": private,
        }
    else:
        _check_fields(cls, private, [n for n in private_names(cls) if n in private])
        parts = {"__dict__": fields | extra, "__fields_set__": names, **private}
    return _build_dataclass(cls, parts)
