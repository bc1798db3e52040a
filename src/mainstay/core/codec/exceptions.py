"""Exceptions as what JSON has, and back: rebuilt if possible, else a StoredFailure.

They are made by the constructor of the builtin they derive from, so no code of their class runs. An
exception that cannot come back whole, because its class is gone or an argument is no data, comes
back as a StoredFailure with its class and text. Causes become notes.
"""

from __future__ import annotations

import builtins

from mainstay.core.base.attributes import attribute
from mainstay.core.codec.decode import read, read_list
from mainstay.core.codec.encode import recorded
from mainstay.core.codec.introspect import (
    a_type,
    find_class,
    members_of,
    mro_of,
    stored_name,
    type_name,
)
from mainstay.errors import StoredFailure, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypedDict

    from mainstay.core.base.types import Json

    class FailureRecord(TypedDict):
        """An exception as JSON has it."""

        type: list[str]
        text: Json
        notes: list[Json]
        args: list[Json]
        own: Json
        held: Json
        whole: bool


_MEMBERS: tuple[tuple[type[Exception], tuple[str, ...]], ...] = (
    (OSError, ("errno", "strerror", "filename", "filename2")),
    (ImportError, ("name", "path")),
    (NameError, ("name",)),
    (AttributeError, ("name",)),
)
"""What builtin exceptions hold besides `args` and `__dict__`."""

_MAX_CAUSES = 10
_LONGEST = 2000
"""Characters of the text of an exception that is too large."""


def record_failure(exception: Exception) -> FailureRecord:
    """An exception as JSON has it.

    >>> record_failure(KeyError("x"))["type"]
    ['builtins', 'KeyError']
    """
    cls = type(exception)
    if not isinstance(exception, Exception):
        raise UsageError(
            f"{a_type(cls)} cannot be recorded: it ends the program or the task, not the call",
            hint="let it pass",
        )
    text, is_shown = _shown(exception)
    args = [_salvaged(arg) for arg in exception.args]
    own = {name: value for name, value in vars(exception).items() if name != "__notes__"}
    held = {name: attribute(exception, name) for name in _member_names(cls)}
    parts = [_salvaged(own), _salvaged({n: v for n, v in held.items() if v is not None})]
    return {
        "type": list(stored_name(cls)),
        "text": recorded(text),
        "notes": [recorded(note) for note in _notes_of(exception)],
        "args": [plain for plain, _ in args],
        "own": parts[0][0],
        "held": parts[1][0],
        "whole": is_shown and not _has_slots(cls) and all(whole for _, whole in args + parts),
    }


def shortened_failure(exception: Exception) -> FailureRecord:
    """The class of an exception and the start of its text: a record that every store takes.

    >>> shortened_failure(KeyError("x"))["whole"]
    False
    """
    text = _shown(exception)[0]
    note = f"the exception was too large for the store: {len(text)} characters, and what it held"
    module, name = stored_name(type(exception))
    return {
        "type": [module[:_LONGEST], name[:_LONGEST]],
        "text": recorded(text[:_LONGEST]),
        "notes": [note],
        "args": [],
        "own": {},
        "held": {},
        "whole": False,
    }


def _salvaged(value: object) -> tuple[Json, bool]:
    """A value as it is recorded, and whether it is whole; else its repr."""
    try:
        return recorded(value), True
    except Exception:  # it cannot be recorded, or one of its properties raised
        return recorded(_shown(value, repr)[0]), False


def _shown(value: object, show: Callable[[object], str] = str) -> tuple[str, bool]:
    try:
        return str.__str__(show(value)), True
    except Exception:
        return f"{a_type(type(value))} that cannot be shown", False


def _notes_of(exception: BaseException) -> list[str]:
    notes = attribute(exception, "__notes__")
    texts = [_shown(note)[0] for note in notes] if isinstance(notes, list | tuple) else []
    cause = exception.__cause__
    for _ in range(_MAX_CAUSES):
        if cause is None:
            break
        texts.append(f"caused by {type_name(type(cause))}: {_shown(cause)[0]}")
        cause = cause.__cause__
    return texts


def _member_names(cls: type) -> list[str]:
    return [name for base, names in _MEMBERS if issubclass(cls, base) for name in names]


def _has_slots(cls: type) -> bool:
    """Whether a class keeps something outside `__dict__`."""
    return any(members_of(base).get("__slots__") for base in mro_of(cls))


def read_failure(record: FailureRecord) -> Exception:
    """The exception of such a record, or the StoredFailure that stands for it.

    >>> read_failure(record_failure(KeyError("x")))
    KeyError('x')
    """
    text = read(record["text"])
    try:
        error = _rebuilt(record, text)
    except Exception:  # the class is gone, or has changed
        error = None
    notes = [read(note) for note in record["notes"]]
    if error is None:
        module, name = record["type"]
        return StoredFailure(name if module == "builtins" else f"{module}.{name}", text, notes)
    for note in notes:
        BaseException.add_note(error, note)
    return error


def _rebuilt(record: FailureRecord, text: str) -> Exception | None:
    """The exception, or None if it would not be the one that was raised."""
    cls = find_class(*record["type"])
    if record["whole"] is not True or not issubclass(cls, Exception):
        return None
    base = _builtin_base(cls)
    args = read_list(record["args"])
    error: Exception = base.__new__(cls, *args)
    base.__init__(error, *args)  # type: ignore[misc]  # a builtin one, of the same layout
    for name, value in read(record["held"]).items():
        if name in _member_names(cls):
            object.__setattr__(error, name, value)
    vars(error).update(read(record["own"]))
    return error if type(error) is cls and str(error) == text else None


def _builtin_base(cls: type) -> type:
    """The builtin exception whose shape a class has: its constructor runs no code of the user's."""
    while not _is_builtin(cls):
        cls = _base_of(cls)
    return cls


def _is_builtin(cls: type) -> bool:
    return vars(builtins).get(cls.__name__) is cls


_base_of: Callable[[type], type] = vars(type)["__base__"].__get__
