"""What it takes to compare the members of a set or the keys of a dict that consist of parts.

Members with equal hashes are compared with each other, and so are the members of two sets that are
compared: with sets in sets a record of a megabyte can take hours, though each set in it is small.
"""

from __future__ import annotations

from mainstay.core.codec.introspect import field_names, mro_of, pydantic_fields, record_kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.core.base.types import UserValue

_FREE = 20_000
"""Comparisons that are always allowed."""
_FOR_EACH = 200
"""Further ones for each part."""


def is_costly(members: Iterable[UserValue]) -> bool:
    """Whether to make a set of the members takes more than time in proportion to their parts.

    >>> is_costly([(1, 2), (1, 3)])
    False
    """
    groups = [group for group in _groups(members) if len(group) > 1]
    if not groups:
        return False
    parts = sum(_parts(each) for group in groups for each in group)
    return _to_find_all(groups) > _FREE + _FOR_EACH * parts


def _groups(members: Iterable[UserValue]) -> list[list[UserValue]]:
    """The members with equal hashes together."""
    found: dict[int, list[UserValue]] = {}
    for each in members:
        found.setdefault(hash(each), []).append(each)
    return list(found.values())


def _to_find_all(groups: Iterable[list[UserValue]]) -> int:
    """At most how many comparisons it takes to look for each member among those of its hash."""
    return sum(len(group) ** 2 * max(map(_to_compare, group)) for group in groups)


def _to_compare(value: UserValue) -> int:
    """At most how many comparisons it takes to compare a value with another of its hash."""
    kind = type(value)
    if kind in (set, frozenset):
        return 1 + _to_find_all(_groups(value))
    if kind is dict:
        return 1 + _to_find_all(_groups(value)) + sum(map(_to_compare, value.values()))
    return 1 + sum(map(_to_compare, _held(value)))


def _parts(value: UserValue) -> int:
    """How many values a value consists of."""
    if type(value) is dict:
        return 1 + len(value) + sum(map(_parts, value.values()))
    return 1 + sum(map(_parts, _held(value)))


def _held(value: UserValue) -> Iterable[UserValue]:
    """What a value that decode.py has made holds."""
    kind = type(value)
    if kind in (tuple, list, set, frozenset):
        return value  # type: ignore[no-any-return]
    if tuple in mro_of(kind):
        return tuple.__iter__(value)
    if pydantic_fields(kind) is not None:
        return object.__getattribute__(value, "__dict__").values()  # type: ignore[no-any-return]
    if record_kind(kind) in ("dataclass", "struct"):
        return [object.__getattribute__(value, name) for name in field_names(kind)]
    return ()
