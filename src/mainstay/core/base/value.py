"""Frozen, slotted values without the import cost of dataclasses.

A subclass lists `__slots__` and calls `_fill()` once, at the end of its constructor, so that a
value exists whole or not at all. Slots that start with an underscore are caches: they take no
part in equality, hash, repr or copying.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, Self

    from mainstay.core.base.types import UserValue


_set = object.__setattr__


class Value:
    """Compared, hashed, shown and pickled by its fields; never changed."""

    __slots__ = ()

    def _fill(self, **fields: object) -> None:
        for name, value in fields.items():
            _set(self, name, value)

    @classmethod
    def _fields(cls) -> tuple[str, ...]:
        names = [n for c in reversed(cls.__mro__) for n in getattr(c, "__slots__", ())]
        return tuple(n for n in names if not n.startswith("_"))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"{type(self).__name__} is frozen: {name} cannot be set; make a new one instead"
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value) or self._fields() != other._fields():
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in self._fields())

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, n) for n in self._fields()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={getattr(self, n)!r}" for n in self._fields())
        return f"{type(self).__name__}({shown})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., Value], tuple[type[Self], dict[str, UserValue]]]:
        return _rebuild, (type(self), {n: getattr(self, n) for n in self._fields()})


def _rebuild(cls: type[Value], fields: dict[str, UserValue]) -> Value:
    return cls(**fields)
