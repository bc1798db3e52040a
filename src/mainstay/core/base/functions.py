"""What is known of a function of the user's without calling it: is it async, what does it take?

Also whether what it returned must be awaited. Nothing here calls, imports or evaluates anything of
the user's: annotations stay as they are.
"""

from __future__ import annotations

import sys
from types import FunctionType, MethodType

from mainstay.core.base.attributes import attribute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from inspect import Parameter, Signature

    from mainstay.core.base.types import UserValue

# Flags of code objects, as inspect names them; inspect itself takes long to import.
_COROUTINE = 0x80
_ITERABLE_COROUTINE = 0x100
_GENERATOR, _ASYNC_GENERATOR = 0x20, 0x200
PLAIN = frozenset({bool, bytes, dict, float, int, list, str, tuple, type(None)})
"""What most functions return: nothing to await, and asking for an attribute that is missing takes
as long as ten lines."""


def is_async(function: UserValue) -> bool:
    """Whether calling it gives something to await.

    >>> async def fetch(): ...
    >>> is_async(fetch), is_async(len)
    (True, False)
    """
    return bool(flags_of(function) & (_COROUTINE | _ITERABLE_COROUTINE)) or _is_marked(function)


def is_awaitable(value: UserValue) -> bool:
    """Whether a value is something to await; a mock that has any attribute is not.

    >>> is_awaitable(True)
    False
    """
    kind = type(value)
    if kind in PLAIN:
        return False
    return hasattr(kind, "__await__") or bool(_generator_flags(value) & _ITERABLE_COROUTINE)


def is_generator(function: UserValue) -> bool:
    """Whether calling it runs nothing of it: it gives a generator.

    >>> def rows(): yield 1
    >>> is_generator(rows), is_generator(len)
    (True, False)
    """
    flags = flags_of(function)
    return bool(flags & (_GENERATOR | _ASYNC_GENERATOR)) and not flags & _ITERABLE_COROUTINE


def is_read_once(value: UserValue) -> bool:
    """Whether a value is gone once it was read: an iterator, such as a generator or an open file.

    >>> is_read_once(iter([1])), is_read_once([1])
    (True, False)
    """
    kind = type(value)
    is_plain = hasattr(kind, "__iter__") and hasattr(kind, "__next__")
    return is_plain or (hasattr(kind, "__aiter__") and hasattr(kind, "__anext__"))


def discard(awaitable: UserValue) -> None:
    """Drops what nothing will await, without Python's warning that it was never awaited."""
    close = attribute(awaitable, "close") or attribute(awaitable, "cancel")
    if close is not None:
        try:
            close()
        except Exception:  # what it raises changes nothing
            return


def flags_of(function: UserValue) -> int:
    """The flags of its code, or of the code of its `__call__`; 0 if there is none."""
    inner = unwrapped(function)
    code = getattr(inner, "__code__", None)
    if code is None and not isinstance(inner, type):
        code = getattr(getattr(type(inner), "__call__", None), "__code__", None)  # noqa: B004
    return int(getattr(code, "co_flags", 0))


def unwrapped(function: UserValue) -> UserValue:
    """The function inside partial objects and bound methods."""
    for _ in range(20):
        if isinstance(function, MethodType):
            function = function.__func__
        elif not isinstance(function, FunctionType) and _is_partial(function):
            function = function.func
        else:
            break
    return function


def signature_of(function: UserValue) -> Signature:
    """The signature, with annotations that are not evaluated.

    From Python 3.14 on they are evaluated when they are read, which fails for a name that is
    imported for type checkers only.

    >>> str(signature_of(lambda a, *, b=1: None))
    '(a, *, b=1)'
    """
    import inspect

    library = sys.modules.get("annotationlib")  # inspect has loaded it, if there is one
    how = {} if library is None else {"annotation_format": library.Format.FORWARDREF}
    return inspect.signature(function, **how)


def _generator_flags(value: UserValue) -> int:
    """Of a generator: a function under `types.coroutine` returns one, which can be awaited."""
    return int(getattr(getattr(value, "gi_code", None), "co_flags", 0))


def _is_partial(function: UserValue) -> bool:
    functools = sys.modules.get("functools")  # not imported: then there is no partial object
    return functools is not None and isinstance(function, functools.partial)


def _is_marked(function: UserValue) -> bool:
    """Functions that are marked as async: inspect.markcoroutinefunction, mock.AsyncMock."""
    inspect = sys.modules.get("inspect")
    try:
        return inspect is not None and bool(inspect.iscoroutinefunction(function))
    except Exception:  # it reads attributes of the object, and a property may raise
        return False


def takes_context(function: Callable[..., UserValue]) -> bool:
    """Whether an action takes an argument: it is then given the context.

    A default is a value that the function holds, unless the parameter is `ctx` or `context`.

    >>> takes_context(lambda: None), takes_context(lambda ctx: None), takes_context(lambda n=5: n)
    (False, True, False)
    """
    try:
        parameters = signature_of(function).parameters.values()
    except (TypeError, ValueError):  # a function of C without a signature
        return True
    return any(map(_takes_one, parameters))


def _takes_one(parameter: Parameter) -> bool:
    """Whether it takes a positional argument, and is no default that only holds a value."""
    if parameter.kind.name == "VAR_POSITIONAL":
        return True
    is_positional = parameter.kind.name in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")
    has_default = parameter.default is not parameter.empty
    return is_positional and (not has_default or parameter.name in ("ctx", "context"))
