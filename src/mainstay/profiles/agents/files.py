"""Operations on files: locked and busy ones are retried, missing and forbidden ones are not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, overload

from mainstay.engine.registry import STANDARD
from mainstay.profiles.calls import calls_of
from mainstay.runtime.replace_file import replace_file
from mainstay.runtime.reports.tracebacks import leave_out, shorten

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ParamSpec, TypeVar

    from mainstay.drivers.policy import RetryPolicy
    from mainstay.engine.engine import Engine

    P = ParamSpec("P")
    R = TypeVar("R")

FILE = "file"
"""What the document's `operationPolicies` call the operations on files."""


@overload
def file_operation(
    function: Callable[..., R],
    /,
    *args: Any,
    engine: Engine,
    operation: str = ...,
    escalate: bool = ...,
    **kwargs: Any,
) -> R: ...
@overload
def file_operation(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
def file_operation(function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
    """Calls a function on files; locked and busy ones are tried again, under STANDARD.

    EAGAIN, EBUSY, ETXTBSY, stale handles and the sharing violations of Windows are retried; a file
    that is missing, forbidden or on a full disk is not. For another policy: `policy.call`.

    With `engine` it is called as an operation of that engine, under that operation's policy,
    circuit and budget, with the engine's log and audit. `operation` is the name, by default "file".
    A call that is given up becomes an item of the engine's inbox, unless `escalate` is False.

    Args:
        function: what is called.
        args: its arguments.
        kwargs: its arguments by name, and the three options above if one of them is an Engine.

    >>> file_operation(os.path.exists, "/")
    True
    """
    try:
        return _caller(kwargs).call(function, *args, **kwargs)  # type: ignore[no-any-return]
    except Exception as error:
        leave_out(error)
        raise


def _caller(kwargs: dict[str, Any]) -> Any:
    """What makes the attempts: the policy, or an operation of the engine that is given."""
    if "engine" not in kwargs:
        return STANDARD
    from mainstay.engine.engine import Engine

    if not isinstance(kwargs["engine"], Engine):  # a parameter of the function's own
        return STANDARD
    engine, name = kwargs.pop("engine"), kwargs.pop("operation", FILE)
    return engine.operation(name, escalate=kwargs.pop("escalate", True))


def read_file(
    path: str | os.PathLike[str],
    *,
    policy: RetryPolicy | None = None,
    engine: Engine | None = None,
    operation: str = FILE,
    escalate: bool = True,
) -> bytes:
    """The bytes of a file; tried again while it is locked or busy.

    With an engine it is an operation of that engine, as in `file_operation`. A policy that is given
    wins over the engine's; without both it is STANDARD. `operation` is its name in log and events.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(f"{folder}/note", b"hello")
    ...     read_file(f"{folder}/note")
    b'hello'
    """
    try:
        return calls_of(operation, policy, engine, escalate=escalate).call(Path(path).read_bytes)
    except OSError as error:
        shorten(error)
        raise


def write_file(
    path: str | os.PathLike[str],
    data: bytes,
    *,
    policy: RetryPolicy | None = None,
    engine: Engine | None = None,
    operation: str = FILE,
    escalate: bool = True,
) -> None:
    """Writes a file whole: a reader sees the old content or all of the new.

    With an engine it is an operation of that engine, as in `file_operation`. A policy that is given
    wins over the engine's; without both it is STANDARD. `operation` is its name in log and events.

    Each attempt writes a file beside it and puts it in place; what an attempt left is removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_file(f"{folder}/note", b"hello")
    ...     os.listdir(folder)
    ['note']
    """
    try:
        calls = calls_of(operation, policy, engine, escalate=escalate)
        calls.call(replace_file, Path(path), data)
    except OSError as error:
        shorten(error)
        raise
