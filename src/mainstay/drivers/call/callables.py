"""What was handed to us to be called: is it callable, is it async, what is its name?

What cannot be retried is refused here, with the way out.
"""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, CoroutineType, FunctionType, MethodType

from mainstay.core.base.functions import flags_of as _flags
from mainstay.core.base.functions import is_async
from mainstay.core.base.functions import unwrapped as _unwrapped
from mainstay.core.retry.policy import async_fields, async_hooks
from mainstay.errors import WrapError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any, TypeAlias, TypeVar

    from mainstay.core.base.types import UserValue
    from mainstay.core.retry.policy import Policy

    Args: TypeAlias = tuple[UserValue, ...]
    Kwargs: TypeAlias = dict[str, UserValue]
    Function: TypeAlias = Callable[..., UserValue]
    """A function of the user's, as it is called with Args and Kwargs."""
    AsyncFunction: TypeAlias = Callable[..., Awaitable[UserValue]]
    F = TypeVar("F", bound=Callable[..., Any])

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
    _refuse_context_managers(function)


def check_decoratable(function: UserValue) -> None:
    """Refuses what can be called but not decorated."""
    check_callable(function)
    if isinstance(function, type):
        raise WrapError(
            f"{function.__name__} is a class", hint="decorate its methods, or a function"
        )


def refuse_async_functions(policy: Policy, hint: str) -> None:
    """Refuses a policy whose predicates or hooks must be awaited, where nothing can await them."""
    _refuse_async(async_hooks(policy), policy, hint)
    _refuse_async(async_fields(policy), policy, hint)


def refuse_async_predicates(policy: Policy, hint: str) -> None:
    """The same for predicates alone: the block of an async call awaits its hooks."""
    _refuse_async(async_fields(policy), policy, hint)


def _refuse_async(fields: list[str], policy: Policy, hint: str) -> None:
    if fields:
        raise WrapError(
            f"{fields[0]} of policy {policy.name!r} is async, and this call cannot await it",
            hint=hint,
        )


SYNC_HINT = "give the policy a plain function, or retry an async one"


def refuse_unawaitable(function: UserValue, error: TypeError) -> None:
    """Explains the TypeError of a plain function that was awaited, or of something not callable."""
    check_callable(function)
    if not is_async(function) and "await" in str(error):  # each Python has its own words for it
        raise WrapError(
            f"{name_of(function)} is not async: what it returned cannot be awaited",
            hint="call a plain function with call() or run()",
        ) from error


def coroutine_function(function: F) -> F:
    """Declares a plain function that returns a coroutine to be a coroutine function.

    The flag states no more than what holds: that a call returns a coroutine. Code that asks
    `iscoroutinefunction` reads it, and a call takes one frame less than an `async def` around
    another. CPython makes a coroutine by an instruction of the code, and not by the flag.

    >>> import inspect
    >>> async def answer(): return 42
    >>> inspect.iscoroutinefunction(coroutine_function(lambda: answer()))
    True
    """
    plain: FunctionType = function  # type: ignore[assignment]
    code = plain.__code__
    flagged = code.replace(co_flags=code.co_flags | _COROUTINE)
    made = FunctionType(  # to give a function code of another sort is deprecated
        flagged, plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__
    )
    made.__kwdefaults__, made.__annotations__ = plain.__kwdefaults__, plain.__annotations__
    made.__qualname__, made.__doc__ = plain.__qualname__, plain.__doc__
    return made  # type: ignore[return-value]


def refuse_positional(
    given: tuple[UserValue, ...], decorator: str, needs: str, takes: str = ""
) -> None:
    """Explains a decorator without parentheses, and an argument without its keyword.

    Args:
        given: what was given by position.
        decorator: its name.
        needs: the keyword without which it cannot do, or nothing.
        takes: the keyword of a function; by default the same.
    """
    if not given:
        return
    first, needed = getattr(given[0], "__func__", given[0]), f"{needs}=..." if needs else ""
    if getattr(first, "__name__", "") == "<lambda>":  # nothing is decorated that has no name
        raise WrapError(
            f"{decorator} was given a lambda by position",
            hint=f"write {decorator}({takes or needs}=lambda ...)",
        )
    if isinstance(first, FunctionType | MethodType | BuiltinFunctionType):
        raise WrapError(
            f"{decorator} was given the function {name_of(first)} by position, as it is if the"
            " parentheses after the decorator are missing",
            hint=f"write @{decorator}({needed}), each argument with its keyword",
        )
    if isinstance(first, type) and not issubclass(first, BaseException):
        raise WrapError(
            f"{decorator} was given the class {first.__name__} by position, which is no exception",
            hint="decorate its methods, or a function",
        )
    if _is_work(first):
        raise WrapError(
            f"{decorator} was given {_shown_argument(first)} by position, as if it were decorated",
            hint=f"write {decorator}({needed})(function), each argument with its keyword",
        )
    shown = _shown_argument(first)
    raise WrapError(
        f"{decorator} was given {shown} by position",
        hint=f"write {decorator}({_keyword_for(first, needs)}={shown})",
    )


def _is_work(value: UserValue) -> bool:
    """Whether it is a partial object or the like: no class, policy or guard."""
    is_ours = hasattr(value, "max_attempts") or hasattr(value, "attach")
    return callable(value) and not isinstance(value, type) and not is_ours


def _shown_argument(value: UserValue) -> str:
    if isinstance(value, list | tuple):
        return f"({', '.join(_shown_argument(each) for each in value[:4])})"
    if isinstance(value, BaseException):  # a rule is a class
        return type(value).__name__
    shown = value.__name__ if isinstance(value, type) else repr(value)
    return shown if len(shown) <= 60 else "..."


def _keyword_for(value: UserValue, needs: str) -> str:
    """The keyword that was most likely meant."""
    if hasattr(value, "max_attempts"):
        return "policy"
    return "attempts" if type(value) is int else needs or "operation"


def _refuse_generators(function: UserValue) -> None:
    flags = _flags(function)
    if flags & _ASYNC_GENERATOR or (flags & _GENERATOR and not flags & _ITERABLE_COROUTINE):
        word = "an async generator" if flags & _ASYNC_GENERATOR else "a generator"
        raise WrapError(
            f"{name_of(function)} is {word} function: calling it runs nothing, the failures come "
            "later, while its values are taken, and what was yielded cannot be taken back",
            hint="retry the call that makes one value, or collect the values in a function",
        )


def _refuse_context_managers(function: UserValue) -> None:
    """Refuses what contextlib has made of a generator: the same in other clothes."""
    contextlib = sys.modules.get("contextlib")  # not imported: then there is none
    inner = _unwrapped(function)
    if contextlib is None or getattr(inner, "__globals__", None) is not vars(contextlib):
        return
    if _flags(getattr(inner, "__wrapped__", None)) & (_GENERATOR | _ASYNC_GENERATOR):
        raise WrapError(
            f"{name_of(function)} is a context manager: calling it runs nothing, the failures come"
            " later, in its with statement",
            hint="retry the function that opens the resource, or the block: for attempt in"
            " policy.attempts(): with attempt: ...",
        )


def context_managers() -> tuple[type, ...]:
    """What functions of contextlib return that have run nothing yet; none if it is not loaded."""
    contextlib = sys.modules.get("contextlib")
    names = ("_GeneratorContextManager", "_AsyncGeneratorContextManager")
    return tuple(vars(contextlib)[name] for name in names) if contextlib is not None else ()


def first_checked(function: Function, settle: Callable[[Function], object]) -> Function:
    """The function for its first call, which refuses a coroutine as the result.

    A lambda that calls an async function is not async itself: that shows when it is called. One
    look suffices: `settle` then puts the function itself in this one's place. A call that raises
    was no call of an async function, which raises when it is awaited.
    """
    code = getattr(_unwrapped(function), "__code__", None)
    if code is None or not (code.co_names or code.co_freevars):
        return function  # it calls nothing

    def first_call(*args: UserValue, **kwargs: UserValue) -> UserValue:
        try:
            value = function(*args, **kwargs)
        except Exception as error:
            settle(function)
            error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            raise
        if type(value) is CoroutineType:
            refuse_coroutine(function, value, "make it async, or pass the async function itself")
        settle(function)
        return value

    first_call.__qualname__ = name_of(function)
    return first_call


def refuse_coroutine(function: UserValue, value: UserValue, hint: str) -> None:
    """Refuses what a sync call has got of an async function."""
    value.close()  # or Python would also warn that it was never awaited
    what = "is async" if is_async(function) else "returned a coroutine"
    raise WrapError(
        f"{name_of(function)} {what}: calling it ran nothing, and what it raises when it is awaited"
        " cannot be retried",
        hint=hint,
    )
