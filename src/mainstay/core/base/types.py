"""Types that every room of the core names: JSON data, fields by name, a value of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

UserValue: TypeAlias = Any
"""An argument, a result or a field of one: its type is the user's business."""

Answer: TypeAlias = Any
"""What a driver sends into a flow, or a record of it: its type follows from the effect before."""

Fields: TypeAlias = dict[str, Any]
"""Values by the names of the fields that they are for: the type of each follows from its name."""

if TYPE_CHECKING:
    from datetime import timedelta

    Seconds: TypeAlias = float | timedelta
    """A length of time as users give it; fields hold it as a float."""

    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
    """What JSON has, as Python values."""
else:
    Json = Any  # msgspec reads annotations, and has no type that refers to itself
