"""Attempts as blocks of code: `for attempt in policy.attempts(): with attempt: ...`.

The same flow as everywhere; the loop's body is what is invoked. Works with `async for` too: the
block itself stays a plain `with`.
"""

from __future__ import annotations

import sys

from mainstay.core.base.deadline import NEVER
from mainstay.core.base.functions import discard, is_awaitable
from mainstay.core.retry.effects import Returned, Stop
from mainstay.core.retry.hooks import CallHook
from mainstay.drivers.call import sync
from mainstay.drivers.call.call import Call
from mainstay.drivers.call.callables import refuse_async_functions, refuse_async_predicates
from mainstay.errors import UsageError, WrapError
from mainstay.runtime.enclosing import FRAMES, OPEN, Enclosure, enclosures, refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Self

    from mainstay.core.base.types import Answer, UserValue
    from mainstay.core.retry.effects import Outcome
    from mainstay.drivers.call.aio import Backend, Scope
    from mainstay.drivers.call.site import Site


class Attempts:
    """The attempts of one block; iterate over it once, with `for` or `async for`.

    >>> from mainstay import Backoff, RetryPolicy
    >>> policy = RetryPolicy(retry_on=OSError, backoff=Backoff.constant(0))
    >>> for attempt in policy.attempts():
    ...     with attempt:
    ...         if attempt.number < 3:
    ...             raise ConnectionError("not yet")
    >>> attempt.number
    3
    """

    __slots__ = ("_backend", "_call", "_delay", "_hooks", "_is_done", "_is_open", "_site")

    def __init__(self, site: Site) -> None:
        self._site = site
        self._call: Call | None = None
        self._backend: Backend | None = None
        self._hooks: list[tuple[CallHook, UserValue]] = []
        self._delay = 0.0
        self._is_open = self._is_done = False

    def __iter__(self) -> Attempts:
        return self

    def __next__(self) -> Attempt:
        if not self._proceeds(sys._getframe(1), is_async=False):
            raise StopIteration
        assert self._call is not None
        try:
            is_first = not self._call.attempts and self._call.holds is None
            late = None if is_first else sync.wait(self._call, self._delay)
            late = late or self._call.admit()
            if self._call.pending is not None:
                late = late or sync.confirm(self._call)
        except BaseException as stop:
            self._interrupted(stop)
            raise
        if late is not None:
            self._end_late(late)
            raise StopIteration
        return self._next_attempt()

    def __aiter__(self) -> Attempts:
        return self

    async def __anext__(self) -> Attempt:
        from mainstay.drivers.call import aio

        while self._hooks and self._call is not None:
            await aio.await_hook(self._call, *self._hooks.pop(0))
        if not self._proceeds(sys._getframe(1), is_async=True):
            raise StopAsyncIteration
        assert self._call is not None
        self._backend = self._backend or aio.current_backend()
        try:
            is_first = not self._call.attempts and self._call.holds is None
            late = None if is_first else await aio.wait(self._call, self._delay)
            late = late or self._call.admit()
            if self._call.pending is not None:
                late = late or await aio.confirm(self._call)
        except BaseException as stop:
            self._interrupted(stop)
            raise
        if late is not None:
            self._end_late(late)
            raise StopAsyncIteration
        return self._next_attempt()

    def _end_late(self, late: Stop) -> None:
        """Another attempt came too late or was refused; a value that was not accepted stays."""
        end = self._settle(late)
        if isinstance(end, BaseException):
            try:
                raise end
            finally:
                del end  # or only the garbage collector could free it and this frame

    def _proceeds(self, frame: FrameType, *, is_async: bool) -> bool:
        if self._is_done:
            return False
        if self._is_open:
            raise UsageError(
                "the attempt before was not used", hint="put the work in `with attempt:`"
            )
        if self._call is None:
            refuse = refuse_async_predicates if is_async else refuse_async_functions
            refuse(self._site.policy, "a block cannot await: use acall()")
            name = self._site.operation or frame.f_code.co_name
            self._call = Call(self._site.named(name, is_new=True), None, enclosures(2))
            self._delay = float(next(self._call.flow))  # type: ignore[arg-type]
        return True

    def _next_attempt(self) -> Attempt:
        assert self._call is not None
        self._call.attempts += 1
        self._is_open = True
        return Attempt(self, self._call.attempts)

    def _settle(self, outcome: Outcome | Stop) -> BaseException | Returned | None:
        """Sends the flow how the block ended; returns the call's end, or None if it goes on."""
        call = self._call
        assert call is not None
        self._is_open = False
        call.failure = outcome if isinstance(outcome, BaseException) else None
        answer: Answer = outcome if isinstance(outcome, Stop) else call.ended(outcome)
        if call.pending is not None:
            sync.confirm(call)  # which does not wait in the thread of an event loop
        while True:
            effect = call.flow.send(answer)
            if type(effect) is float:
                self._delay = effect
                return None
            if isinstance(effect, BaseException | Returned):
                self._is_done = True
                if isinstance(effect, Returned):
                    call.returned(effect)
                else:
                    self._drop_hooks()
                call.release()
                return effect
            if type(effect) is CallHook:
                self._hook(effect)
                answer = None
            else:
                answer = call.answer(effect)

    def _interrupted(self, stop: BaseException) -> None:
        """The block was stopped by what is not for us to catch."""
        assert self._call is not None
        self._is_open, self._is_done = False, True
        if not isinstance(stop, Exception):  # a cancel event or a refusal has been emitted
            self._call.interrupted(stop)
        self._drop_hooks()
        self._call.release()

    def _drop_hooks(self) -> None:
        """An exception leaves the loop at once: what an async hook gave can not be awaited."""
        assert self._call is not None
        for effect, made in self._hooks:
            discard(made)
            error = WrapError(
                f"{effect.name} is async, and the block ended before it could be awaited",
                hint="give it a plain function, or use acall() in place of a block",
            )
            self._call.hook_failed(effect, error)
        self._hooks.clear()

    def _hook(self, effect: CallHook) -> None:
        """Calls a hook; what an async one gave is awaited before the next attempt."""
        assert self._call is not None
        if self._backend is None:
            sync.call_hook(self._call, effect)
            return
        try:
            made = effect.hook(effect.info)
        except Exception as error:
            self._call.hook_failed(effect, error)
            return
        if is_awaitable(made):
            self._hooks.append((effect, made))


_YIELDS = 0x20 | 0x200
"""The flags of a generator and of an async generator, as inspect names them."""


class Attempt:
    """One attempt as a block; an exception inside is retried by the policy.

    Attributes:
        number: counts from 1.

    >>> from mainstay import RetryPolicy
    >>> for attempt in RetryPolicy(retry_on=OSError, max_attempts=2).attempts():
    ...     with attempt:
    ...         attempt.is_last
    False
    """

    __slots__ = ("_attempts", "_frame", "_outer", "_refusing", "_result", "_scope", "number")

    def __init__(self, attempts: Attempts, number: int) -> None:
        self._attempts = attempts
        self.number = number
        self._result: UserValue = None
        self._frame: FrameType | None = None
        self._outer: Enclosure | None = None
        self._scope: Scope | None = None
        self._refusing: refusing | None = None

    @property
    def is_last(self) -> bool:
        """Whether the policy allows no attempt after this one."""
        return self.number >= self._attempts._site.policy.max_attempts

    def set_result(self, value: object) -> None:
        """What the block came to, for a policy with `retry_if_result`.

        >>> from mainstay import Backoff, RetryPolicy
        >>> policy = RetryPolicy(retry_if_result=lambda x: x < 2, backoff=Backoff.constant(0))
        >>> for attempt in policy.attempts():
        ...     with attempt:
        ...         attempt.set_result(attempt.number)
        >>> attempt.number
        2
        """
        self._result = value

    def __enter__(self) -> Self:
        call, backend = self._attempts._call, self._attempts._backend
        assert call is not None
        end, limit = call.bounds() if call.is_bounded else (NEVER, NEVER)
        if call.is_bounded and backend is not None:
            self._scope = backend.open_scope(end, limit)
        call.since = FRAMES["ms_active"].moment
        if call.followers:
            call.began()
        self._frame = sys._getframe(1)
        self._outer = OPEN.get(self._frame)  # blocks in one function may enclose each other
        OPEN[self._frame] = Enclosure(call.site, end, number=self.number)
        is_generator = self._frame.f_code.co_flags & _YIELDS  # whose context is its consumer's
        if call.site.policy.nested == "refuse" and not is_generator:
            self._refusing = refusing(call.site)
            self._refusing.__enter__()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        self._leave()
        try:
            outcome = self._close(error)
        except BaseException as stop:
            self._attempts._interrupted(stop)
            raise
        if outcome is None:
            end = self._attempts._settle(Returned(self._result))
            if isinstance(end, BaseException):
                raise end
            return False
        if not isinstance(outcome, Exception):
            self._attempts._interrupted(outcome)
            return False
        end = self._attempts._settle(outcome)
        if not isinstance(end, BaseException) or end is error:
            return not isinstance(end, BaseException)
        # Ours, or an earlier error: what cut this attempt is not its context.
        context = end.__context__
        try:
            raise end
        finally:
            end.__context__ = context
            del end, outcome, error, context

    def _leave(self) -> None:
        if self._frame is not None:
            OPEN.pop(self._frame, None)
            if self._outer is not None:
                OPEN[self._frame] = self._outer
            self._frame = self._outer = None
        if self._refusing is not None:
            self._refusing.__exit__()
            self._refusing = None

    def _close(self, error: BaseException | None) -> BaseException | None:
        """Leaves the attempt's bounds; if they cut it off, the timeout is the error."""
        if self._scope is None:
            return error
        if error is None:
            self._scope.ended()
            return None
        return self._scope.failed(error)
