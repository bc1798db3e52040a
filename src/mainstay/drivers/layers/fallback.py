"""A fallback: what answers for a call that failed, outermost."""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodType

from mainstay.core.base.functions import discard, is_async, is_awaitable
from mainstay.core.base.validate import Checker
from mainstay.core.events.describe import describe
from mainstay.core.known.kind import qualified_name
from mainstay.core.retry.events import FallbackUsed
from mainstay.core.retry.kinds import NEVER_RETRIED
from mainstay.core.retry.predicates import UNANSWERABLE
from mainstay.drivers.call.callables import name_of
from mainstay.drivers.call.listeners import check_listeners
from mainstay.drivers.call.wrap import REDACT, Decoration
from mainstay.drivers.layers.decorate import emit_aside, note_on, put_around
from mainstay.errors import CallCancelled, ResultRejected, UsageError, WrapError
from mainstay.runtime.overrides import PROCESS_OVERRIDES
from mainstay.runtime.reports.tracebacks import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import Any, TypeVar

    from mainstay.core.base.types import UserValue
    from mainstay.drivers.call.callables import Args, AsyncFunction, Function, Kwargs
    from mainstay.ports import Sink

    F = TypeVar("F", bound=Function)
    When = type[Exception] | Callable[[Exception], object]

_MISSING: Any = object()
_MARK = "__mainstay_fallback__"
"""Set on a function that has a fallback; decorators copy it, so that it shows through them."""
_RETURNS = "__mainstay_returns__"
"""Set on a function that raises ResultRejected only because it has a fallback."""


class Fallback:
    """Answers in place of a call that failed. One for a function, outermost.

    Cancellations and Ctrl+C pass through. Every use is reported to the listeners or, if there are
    none, logged as a warning: an answer that is not the real one must show.

    Args:
        value: what is returned. The very object, every time: give a function if each call needs
            a new list.
        function: called with the exception; what it returns is returned. It may be async if the
            decorated function is.
        on: the failures it answers: exception classes, predicates, or several of them. Others
            pass. Without it, every Exception. A predicate may be async if the decorated function
            is.
        listener: called with FallbackUsed; several as a list.

    >>> @Fallback(value=(), on=ConnectionError)
    ... def recommended(user):
    ...     raise ConnectionError("down")
    >>> recommended("ann")
    ()
    """

    __slots__ = ("_classes", "_listeners", "_predicates", "function", "value")

    def __init__(
        self,
        value: Any = _MISSING,
        function: Callable[[Exception], Any] = _MISSING,
        *,
        on: When | Iterable[When] | None = None,
        listener: Sink | Iterable[Sink] | None = None,
    ) -> None:
        check = Checker("Fallback")
        _check_answer(check, value, function)
        self._classes, self._predicates = _check_rules(check, on)
        self._listeners = check_listeners(check, listener)
        check.close()
        self.value = value
        self.function = None if function is _MISSING else function

    def __call__(self, function: F) -> F:
        """The function, with this in reserve."""
        inner = getattr(function, "__func__", function)
        if has_fallback(inner):
            raise UsageError(
                f"{name_of(inner)} has a fallback already",
                hint="one fallback for a function, outermost; what two would do, one function can",
            )
        if self.function is not None and is_async(self.function) and not is_async(inner):
            raise WrapError(
                f"{name_of(self.function)} is async, and {name_of(inner)} is not: a sync call"
                " cannot await its fallback",
                hint="give a plain function, or decorate an async one",
            )
        if not is_async(inner) and any(map(is_async, self._predicates)):
            raise WrapError(
                f"a predicate of the fallback is async, and {name_of(inner)} is not: a sync call"
                " cannot await it",
                hint="give a plain function, or decorate an async one",
            )
        handle = getattr(inner, "mainstay", None)
        if not isinstance(handle, Decoration) or not handle.is_of(inner):
            handle = None
        raising = function if handle is None else _raising(function, handle)
        decorated: F = put_around(raising, self, self._call, self._acall)
        made: Any = getattr(decorated, "__func__", decorated)
        setattr(made, _MARK, self)
        if handle is not None:  # the policy that was given, not the one that raises
            made.mainstay = handle.inside(self, made.__wrapped__)
        return decorated

    def _call(self, function: Function, args: Args, kwargs: Kwargs) -> UserValue:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if not self._answers(error):
                if _is_raised_for_this(function, error):
                    return error.result  # type: ignore[attr-defined]
                raise
            answer = self._ask(function, error)
            if self.function is not None and is_awaitable(answer):
                discard(answer)
                raise WrapError(
                    f"the fallback of {name_of(function)} gave a coroutine, which a sync call"
                    " cannot await",
                    hint="give a plain function",
                ) from error
            self._report_use(function, error)
            return answer

    async def _acall(self, function: AsyncFunction, args: Args, kwargs: Kwargs) -> UserValue:
        try:
            return await function(*args, **kwargs)
        except Exception as error:
            if not await self._aanswers(error):
                if _is_raised_for_this(function, error):
                    return error.result  # type: ignore[attr-defined]
                raise
            answer = self._ask(function, error)
            if self.function is not None and is_awaitable(answer):
                answer = await self._await(function, error, answer)
            self._report_use(function, error)
            return answer

    def _answers(self, error: Exception) -> bool:
        """Whether this failure is ours to answer."""
        known = self._answers_class(error)
        return any(_holds(each, error) for each in self._predicates) if known is None else known

    async def _aanswers(self, error: Exception) -> bool:
        """The same, with predicates that are awaited."""
        known = self._answers_class(error)
        if known is not None:
            return known
        for predicate in self._predicates:
            if await _aholds(predicate, error):
                return True
        return False

    def _answers_class(self, error: Exception) -> bool | None:
        """Whether it is by its class; None if the predicates decide."""
        if isinstance(error, CallCancelled) or _is_cancellation(error):
            return False
        return True if self._classes is None or isinstance(error, self._classes) else None

    def _ask(self, function: Function, error: Exception) -> UserValue:
        """The value, or what the fallback function returns for the failure."""
        if self.function is None:
            return self.value
        try:
            return self.function(error)
        except Exception as raised:
            _blame(function, error, raised)
            raise

    async def _await(
        self, function: Function, error: Exception, answer: Awaitable[UserValue]
    ) -> UserValue:
        try:
            return await answer
        except Exception as raised:
            _blame(function, error, raised)
            raise

    def _report_use(self, function: Function, error: Exception) -> None:
        """Records that the answer is not the real one; without the arguments of the call."""
        name, message = describe(error, getattr(function, REDACT, None))
        emit_aside(
            (*self._listeners, *PROCESS_OVERRIDES.listeners),
            FallbackUsed,
            operation=name_of(function),
            exception_type=name,
            exception_message=message,
        )

    def __repr__(self) -> str:
        if self.function is not None:
            return f"Fallback(function={name_of(self.function)})"
        return f"Fallback(value={self.value!r})"


def _raising(function: UserValue, handle: Decoration) -> UserValue:
    """The function such that it raises a result that no attempt improved, for the fallback."""
    policy = handle.policy
    if policy.retry_if_result is None or policy.on_exhausted == "raise":
        return function
    raising = handle.with_policy(on_exhausted="raise")
    setattr(raising, _RETURNS, True)
    return type(function)(raising) if hasattr(function, "__func__") else raising


def _is_raised_for_this(function: Function, error: Exception) -> bool:
    """Whether it is a result that is raised only for the fallback: it is returned otherwise."""
    return isinstance(error, ResultRejected) and hasattr(function, _RETURNS)


def has_fallback(function: Function) -> bool:
    """Whether a fallback answers for the function, perhaps beneath other decorators."""
    return getattr(function, _MARK, None) is not None


def _check_answer(check: Checker, value: UserValue, function: UserValue) -> None:
    if (value is _MISSING) is (function is _MISSING):
        given = None if value is _MISSING else (value, function)
        check.note("value, function", given, "one of the two: an answer, or what makes one")
    elif isinstance(value, FunctionType | MethodType | BuiltinFunctionType):
        check.note("value", value, "a value that is returned as it is; function= is called")
    if function is not _MISSING and (not callable(function) or isinstance(function, type)):
        check.note("function", function, "a function of the exception")


def _check_rules(
    check: Checker, on: When | Iterable[When] | None
) -> tuple[tuple[type[Exception], ...] | None, tuple[Callable[[Exception], object], ...]]:
    """The classes and the predicates apart; None for the classes if everything is meant."""
    if on is None:
        return None, ()
    rules = tuple(on) if isinstance(on, list | tuple | set | frozenset) else (on,)
    for rule in rules or (on,):
        is_class = isinstance(rule, type)
        if not callable(rule) or (is_class and not issubclass(rule, Exception)):
            check.note("on", rule, "an Exception class, a predicate, or several of them")
    classes = tuple(rule for rule in rules if isinstance(rule, type))
    return classes, tuple(rule for rule in rules if not isinstance(rule, type))


def _is_cancellation(error: Exception) -> bool:
    return any(qualified_name(base) in NEVER_RETRIED for base in type(error).__mro__)


def _holds(predicate: Callable[[Exception], object], error: Exception) -> bool:
    """A predicate that raises has not matched, and is reported."""
    try:
        answer = predicate(error)
        if is_awaitable(answer):
            discard(answer)
            raise TypeError(UNANSWERABLE)
        return bool(answer)
    except Exception as raised:
        return _reported(raised, error)


async def _aholds(predicate: Callable[[Exception], UserValue], error: Exception) -> bool:
    """The same, and awaits what it returned if that is something to await."""
    try:
        answer = predicate(error)
        return bool(await answer if is_awaitable(answer) else answer)
    except Exception as raised:
        return _reported(raised, error)


def _reported(raised: Exception, error: Exception) -> bool:
    from mainstay.runtime.reports.report_failure import report

    report(raised, "a predicate of a fallback raised on %s", type(error).__name__)
    return False


def _blame(function: Function, error: Exception, raised: Exception) -> None:
    """Chains what a fallback raised to the failure it was to answer."""
    if raised is error:
        return
    if raised.__cause__ is None:
        raised.__cause__ = error
    shorten(raised)
    note_on(raised, f"raised by the fallback of {name_of(function)}, see the cause")
