"""What was handed to us to be called: is it callable, is it async, what is its name?

What cannot be retried is refused here, with the way out.
"""

from __future__ import annotations

import sys
from types import CoroutineType, FunctionType, MethodType

from mainstay.errors import WrapError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from mainstay.core.base.types import UserValue

    Args: TypeAlias = tuple[UserValue, ...]
    Kwargs: TypeAlias = dict[str, UserValue]
    Function: TypeAlias = Callable[..., UserValue]
    """A function of the user's, as it is called with Args and Kwargs."""
    AsyncFunction: TypeAlias = Callable[..., Awaitable[UserValue]]

# Flags of code objects, as inspect names them; inspect itself takes long to import.
_GENERATOR = 0x20
_COROUTINE = 0x80
_ITERABLE_COROUTINE = 0x100
_ASYNC_GENERATOR = 0x200


def name_of(function: UserValue) -> str:
    """What notes and events call the function."""
    inner = _unwrapped(function)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return str(name).replace("<locals>.", "")


def is_async(function: UserValue) -> bool:
    """Whether calling it gives something to await."""
    return bool(_flags(function) & (_COROUTINE | _ITERABLE_COROUTINE)) or _is_marked(function)


def check_callable(function: UserValue) -> None:
    """Refuses what cannot be called again and again."""
    if isinstance(function, CoroutineType):
        name = function.__qualname__
        function.close()  # or Python would also warn that it was never awaited
        raise WrapError(
            f"a coroutine object ({name}()) can be awaited once only, so it cannot be retried",
            hint=f"pass the function itself: {name}, with its arguments after it",
        )
    if hasattr(function, "__await__"):
        raise WrapError(
            f"{type(function).__name__} is an awaitable, which runs once only",
            hint="pass a function that makes a new one",
        )
    if not callable(function):
        raise WrapError(
            f"{function!r} cannot be called", hint="pass a function and its arguments apart"
        )
    _refuse_generators(function)


def check_decoratable(function: UserValue) -> None:
    """Refuses what can be called but not decorated."""
    check_callable(function)
    if isinstance(function, type):
        raise WrapError(
            f"{function.__name__} is a class", hint="decorate its methods, or a function"
        )


def refuse_unawaitable(function: UserValue, error: TypeError) -> None:
    """Explains the TypeError of a plain function that was awaited, or of something not callable."""
    check_callable(function)
    if not is_async(function) and "'await' expression" in str(error):
        raise WrapError(
            f"{name_of(function)} is not async: what it returned cannot be awaited",
            hint="call a plain function with call() or run()",
        ) from error


def _refuse_generators(function: UserValue) -> None:
    flags = _flags(function)
    if flags & _ASYNC_GENERATOR or (flags & _GENERATOR and not flags & _ITERABLE_COROUTINE):
        word = "an async generator" if flags & _ASYNC_GENERATOR else "a generator"
        raise WrapError(
            f"{name_of(function)} is {word} function: calling it runs nothing, the failures come "
            "later, while its values are taken, and what was yielded cannot be taken back",
            hint="retry the call that makes one value, or collect the values in a function",
        )


def _flags(function: UserValue) -> int:
    inner = _unwrapped(function)
    code = getattr(inner, "__code__", None)
    if code is None and not isinstance(inner, type):
        code = getattr(getattr(type(inner), "__call__", None), "__code__", None)  # noqa: B004
    return int(getattr(code, "co_flags", 0))


def _unwrapped(function: UserValue) -> UserValue:
    """The function inside partial objects and bound methods."""
    for _ in range(20):
        if isinstance(function, MethodType):
            function = function.__func__
        elif not isinstance(function, FunctionType) and _is_partial(function):
            function = function.func
        else:
            break
    return function


def _is_partial(function: UserValue) -> bool:
    functools = sys.modules.get("functools")  # not imported: then there is no partial object
    return functools is not None and isinstance(function, functools.partial)


def _is_marked(function: UserValue) -> bool:
    """Functions that are marked as async: inspect.markcoroutinefunction, mock.AsyncMock."""
    inspect = sys.modules.get("inspect")
    return inspect is not None and bool(inspect.iscoroutinefunction(function))
