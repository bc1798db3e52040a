"""What a class is, found by its name and asked without running code of its own.

Nothing is imported, and no descriptor, metaclass or module `__getattr__` runs: a class is looked
up among the modules that are loaded, and read as it stands in its body. Only our own public classes
are looked up by a name that is not their module's (stored_names.py). pydantic and dataclasses are
recognised by what they leave on a class.
"""

from __future__ import annotations

import sys
from enum import Enum
from types import ModuleType

import msgspec

from mainstay.core.known.kind import qualified_name
from mainstay.errors import StoredValueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Literal, TypeAlias

    from mainstay.core.base.types import UserValue

    RecordKind: TypeAlias = Literal["enum", "named_tuple", "dataclass", "struct", "model"]


def stored_name(cls: type) -> tuple[str, str]:
    """The module and name by which a record refers to a class: of our own, a public one.

    >>> stored_name(ValueError)
    ('builtins', 'ValueError')
    """
    if cls.__module__.startswith("mainstay."):
        from mainstay.core.codec.stored_names import (
            public_name,  # when it is needed, which is seldom
        )

        return public_name(cls)
    return cls.__module__, cls.__qualname__


def key_name(cls: type) -> str:
    """The name by which a fingerprint refers to a class: of our own, one that never changes.

    >>> key_name(ValueError)
    'builtins.ValueError'
    """
    if cls.__module__.startswith("mainstay."):
        from mainstay.core.codec import stored_names

        return stored_names.key_name(cls)
    return qualified_name(cls)


def find_class(module: str, qualname: str) -> type:
    """A class of a module that is loaded, or one of ours by a name that was ever stored.

    No code of anyone else's runs, and nothing of theirs is imported.

    >>> find_class("builtins", "ValueError")
    <class 'ValueError'>
    """
    name = f"{module}.{qualname}"
    if module == "mainstay" or module.startswith("mainstay."):
        from mainstay.core.codec.stored_names import class_named

        ours = class_named(module, qualname)
        if type in mro_of(type(ours)):
            return ours  # type: ignore[no-any-return]
    holder = sys.modules.get(module)
    if ModuleType not in mro_of(type(holder)):
        raise StoredValueError(f"{name}: no module {module} is loaded here")
    members = object.__getattribute__(holder, "__dict__")  # a module may have a lazy __getattr__
    found: UserValue = None
    for part in qualname.split("."):
        found = members.get(part)
        if type not in mro_of(type(found)):
            raise StoredValueError(f"{name}: module {module} has no such class")
        members = members_of(found)
    cls: type = found
    return cls


def static(cls: type, name: str) -> UserValue:
    """A class's attribute as it stands in a class body, or None: no descriptor or metaclass runs.

    >>> static(bool, "real") is vars(int)["real"]
    True
    """
    for base in mro_of(cls):
        members = members_of(base)
        if name in members:
            return members[name]
    return None


mro_of: Callable[[type], tuple[type, ...]] = vars(type)["__mro__"].__get__
members_of: Callable[[type], Mapping[str, UserValue]] = vars(type)["__dict__"].__get__


def a_type(cls: type) -> str:
    """How messages name a class.

    >>> a_type(int), a_type(object), a_type(type(a_type))
    ('an int', 'an object', 'a function')
    """
    name = type_name(cls)
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def type_name(cls: type) -> str:
    """The name of a class with its module, except of a builtin."""
    return cls.__qualname__ if cls.__module__ == "builtins" else qualified_name(cls)


def record_kind(cls: type) -> RecordKind | None:
    """Which kind of record a class is: the first that it is; None for any other class.

    >>> record_kind(msgspec.Struct), record_kind(int)
    ('struct', None)
    """
    for kind, is_one in _RECORD_KINDS:
        if is_one(cls):
            return kind
    return None


def is_enum(cls: type) -> bool:
    """Whether a class is an Enum."""
    return Enum in mro_of(cls)


def is_named_tuple(cls: type) -> bool:
    """Whether a class was made by NamedTuple or namedtuple.

    >>> from typing import NamedTuple
    >>> is_named_tuple(NamedTuple("Point", [("x", int)])), is_named_tuple(tuple)
    (True, False)
    """
    return tuple in mro_of(cls) and isinstance(static(cls, "_fields"), tuple)


def is_dataclass(cls: type) -> bool:
    """Whether a class is a dataclass."""
    return isinstance(static(cls, "__dataclass_fields__"), dict)


def is_struct(cls: type) -> bool:
    """Whether a class is a msgspec Struct."""
    return msgspec.Struct in mro_of(cls)


def is_pydantic(cls: type) -> bool:
    """Whether a class is a pydantic model, of version 1 or 2."""
    return pydantic_fields(cls) is not None


def pydantic_fields(cls: type) -> dict[str, UserValue] | None:
    """The fields of a pydantic model's class, and None for any other; pydantic is not imported.

    Since 2.10 they stand in `__pydantic_fields__`, before that in `model_fields`, in version 1 in
    `__fields__`.
    """
    for fields, mark in _PYDANTIC:
        found = static(cls, fields)
        if isinstance(found, dict) and static(cls, mark) is not None:
            return found
    return None


_PYDANTIC = (
    ("__pydantic_fields__", "model_dump"),
    ("model_fields", "model_dump"),
    ("__fields__", "__fields_set__"),
)


_RECORD_KINDS: tuple[tuple[RecordKind, Callable[[type], bool]], ...] = (
    ("enum", is_enum),
    ("named_tuple", is_named_tuple),
    ("dataclass", is_dataclass),
    ("struct", is_struct),
    ("model", is_pydantic),
)


def is_pydantic_2(cls: type) -> bool:
    """Whether a pydantic model is one of version 2."""
    return static(cls, "model_dump") is not None


def private_names(cls: type) -> Iterable[str]:
    """The private attributes of a model of pydantic 1, which keeps them in slots."""
    return static(cls, "__private_attributes__") or ()


def field_names(cls: type) -> tuple[str, ...]:
    """The fields of a NamedTuple, a Struct or a dataclass."""
    if is_named_tuple(cls):
        return tuple(static(cls, "_fields"))
    if is_struct(cls):
        return tuple(cls.__struct_fields__)  # type: ignore[attr-defined]
    import dataclasses  # loaded already, if there is a dataclass

    return tuple(field.name for field in dataclasses.fields(cls))


def later_fields(cls: type) -> tuple[str, ...]:
    """The fields that a Struct of mainstay's has got since values of it were first stored.

    The class names them in `_LATER_FIELDS`. Where such a field is empty, as it is by default, the
    value is stored without it: records and fingerprints are those of the earlier version.
    """
    if not is_struct(cls) or not cls.__module__.startswith("mainstay."):
        return ()
    return tuple(static(cls, "_LATER_FIELDS") or ())


def stored_fields(value: object) -> tuple[str, ...]:
    """The fields of a value with which it is stored."""
    names, later = field_names(type(value)), later_fields(type(value))
    if not later:
        return names
    return tuple(name for name in names if name not in later or getattr(value, name))
