"""Compensates a partial failure: what was done first is undone if what comes after it fails.

The undo runs, a compensating event is published, an item is put into the inbox, and the original
failure is raised, in this order and whatever fails on the way. Neither a deadline nor a
cancellation of the caller ends it. Nothing is recorded before: a process that is killed between the
two parts leaves the first one as it is. A saga does not.
"""

from __future__ import annotations

from contextlib import contextmanager
from os import urandom
from typing import TYPE_CHECKING

from msgspec import Struct

from mainstay.core.base.attributes import add_note
from mainstay.core.base.functions import discard, is_awaitable, takes_context
from mainstay.core.base.printable import text_of
from mainstay.core.codec.arguments import key_text
from mainstay.core.inbox.items import Item
from mainstay.core.saga.events import EffectCompensated, EffectPartiallyFailed
from mainstay.drivers.call.emit import emit
from mainstay.errors import UsageError
from mainstay.runtime.context import BOUND, CANCEL, CONTEXT, UNBOUND
from mainstay.runtime.loops import shielded
from mainstay.runtime.reports.report_failure import report

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Any, Self, TypeAlias

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import UserValue
    from mainstay.core.redact.redactor import Redactor
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.drivers.verbs import Verbs
    from mainstay.ports import Sink

    Handler: TypeAlias = Callable[..., object]
    """Takes a PartialFailure, or nothing."""

KIND = "partial_failure"


class PartialFailure(Struct, frozen=True):
    """What an undo and a compensating event are given, if they take an argument.

    >>> failure = PartialFailure("create_user", "u-1", OSError("no broker"))
    >>> failure.effect, str(failure.error), failure.is_undone
    ('create_user', 'no broker', True)
    """

    effect: str
    key: str
    error: BaseException
    """The original failure."""
    undo_error: BaseException | None = None
    """Why it could not be undone; the undo runs first."""

    @property
    def is_undone(self) -> bool:
        """Whether the undo has succeeded."""
        return self.undo_error is None


class CompensationParts(Struct, frozen=True):
    """What a compensation needs of its engine."""

    operate: Callable[..., Verbs]
    inbox: Inbox
    listeners: tuple[Sink, ...]
    redact: Redactor | None


class Compensation:
    """A block that is compensated if it fails: `with`, or `async with`."""

    def __init__(
        self,
        parts: CompensationParts,
        effect: str,
        undo: Handler,
        publish: Handler | None,
        key: object,
        on: type[BaseException] | tuple[type[BaseException], ...],
    ) -> None:
        for name, handler in (("undo", undo), ("publish", publish)):
            if handler is not None and not callable(handler):
                raise UsageError(
                    f"{name} = {handler!r}: must be a function", hint=f"{name}=lambda: …"
                )
        known = urandom(8).hex() if key is None else key_text(key)
        self.key = CONTEXT.get().correlation_id or known if key is None else known
        self._parts, self._effect = parts, effect
        self._undo, self._publish, self._on = undo, publish, on

    # --- blocks -----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if error is None or not isinstance(error, self._on):
            return
        self._began(error)
        failure = PartialFailure(self._effect, self.key, error)
        with _free_of_caller():
            undo_error = self._tried("undo", self._undo, failure)
            failure = PartialFailure(self._effect, self.key, error, undo_error)
            publish_error = self._tried("compensate", self._publish, failure)
            self._end(failure, publish_error, self._put(failure, publish_error))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: object, error: BaseException | None, _traceback: object
    ) -> None:
        if error is None or not isinstance(error, self._on):
            return
        self._began(error)
        failure = PartialFailure(self._effect, self.key, error)

        async def work() -> None:
            with _free_of_caller():
                undo_error = await self._atried("undo", self._undo, failure)
                after = PartialFailure(self._effect, self.key, error, undo_error)
                publish_error = await self._atried("compensate", self._publish, after)
                self._end(after, publish_error, await self._aput(after, publish_error))

        _, cancelled = await shielded(work)
        if cancelled is not None:
            raise cancelled

    # --- the undo and the event -------------------------------------------------------------------

    def _tried(self, what: str, handler: Handler | None, failure: PartialFailure) -> Any:
        """What a handler has failed with; None if it has not."""
        if handler is None:
            return None
        try:
            self._operation(what).call(_plain, handler, failure)
        except BaseException as error:
            return self._failed(what, error)
        return None

    async def _atried(self, what: str, handler: Handler | None, failure: PartialFailure) -> Any:
        if handler is None:
            return None
        try:
            await self._operation(what).acall(_awaited, handler, failure)
        except BaseException as error:
            return self._failed(what, error)
        return None

    def _operation(self, what: str) -> Verbs:
        return self._parts.operate(f"{self._effect}.{what}", idempotency="idempotent")

    def _failed(self, what: str, error: BaseException) -> BaseException:
        """Logs it for a person, also if the inbox cannot be reached."""
        text = "the undo" if what == "undo" else "the compensating event"
        message = "%s %s: %s failed, and needs a person"
        report(error, message, self._effect, self.key, text, redact=self._parts.redact)
        return error

    # --- what is reported -------------------------------------------------------------------------

    def _began(self, error: BaseException) -> None:
        self._emit(
            EffectPartiallyFailed(
                operation=self._effect,
                effect_key=self.key,
                exception_type=type(error).__name__,
                exception_message=text_of(error),
            )
        )

    def _put(self, failure: PartialFailure, publish_error: BaseException | None) -> str:
        try:
            return self._parts.inbox.put(_item(failure, publish_error)).id
        except Exception as error:
            return self._no_item(error)

    async def _aput(self, failure: PartialFailure, publish_error: BaseException | None) -> str:
        try:
            return (await self._parts.inbox.aput(_item(failure, publish_error))).id
        except Exception as error:
            return self._no_item(error)

    def _no_item(self, error: Exception) -> str:
        message = "%s %s: no item could be put into the inbox"
        report(error, message, self._effect, self.key, redact=self._parts.redact)
        return ""

    def _end(self, failure: PartialFailure, publish_error: Any, item: str) -> None:
        first = failure.undo_error or publish_error
        text = _text(failure, publish_error, has_event=self._publish is not None)
        add_note(failure.error, f"{text} (inbox item {item or 'could not be written'})")
        self._emit(
            EffectCompensated(
                operation=self._effect,
                effect_key=self.key,
                success=first is None,
                is_undone=failure.is_undone,
                is_published=self._publish is not None and publish_error is None,
                exception_type="" if first is None else type(first).__name__,
                exception_message="" if first is None else text_of(first),
                item=item,
            )
        )
        for error in (failure.undo_error, publish_error):
            if error is not None and not isinstance(error, Exception):
                raise error  # such as a Ctrl+C in the undo

    def _emit(self, event: Event) -> None:
        emit(event, self._parts.listeners, self._parts.redact)


def _item(failure: PartialFailure, publish_error: BaseException | None) -> Item:
    """Of those that were compensated there is one for each effect, which counts them."""
    is_whole = failure.is_undone and publish_error is None
    subject = failure.effect if is_whole else f"{failure.effect}/{failure.key}"
    reason = f"{type(failure.error).__name__}: {text_of(failure.error)}"
    text = _text(failure, publish_error, has_event=True)
    return Item(
        kind=KIND,
        subject=subject,
        operation=failure.effect,
        severity="low" if is_whole else "high" if failure.is_undone else "critical",
        text=f"{failure.effect} {failure.key}: failed in part ({reason}); {text}",
        data={"key": failure.key, "is_undone": failure.is_undone},
    )


def _text(failure: PartialFailure, publish_error: BaseException | None, *, has_event: bool) -> str:
    undone = "it was undone"
    if failure.undo_error is not None:
        undone = f"it could not be undone: {_named(failure.undo_error)}"
    if publish_error is not None:
        return f"{undone}; its compensating event was not published: {_named(publish_error)}"
    return f"{undone}, and compensated" if has_event and failure.is_undone else undone


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {text_of(error)}"


def _called(handler: Handler, failure: PartialFailure) -> UserValue:
    return handler(failure) if takes_context(handler) else handler()


def _plain(handler: Handler, failure: PartialFailure) -> None:
    value = _called(handler, failure)
    if is_awaitable(value):
        discard(value)
        raise UsageError(
            f"{failure.effect}: the undo or the event has to be awaited",
            hint="use `async with engine.compensation(...)`",
        )


async def _awaited(handler: Handler, failure: PartialFailure) -> None:
    value: Awaitable[object] = _called(handler, failure)
    if is_awaitable(value):
        await value


@contextmanager
def _free_of_caller() -> Iterator[None]:
    """Neither a deadline nor a cancel event of the caller's counts inside."""
    bound, cancel = BOUND.set(UNBOUND), CANCEL.set(None)
    try:
        yield
    finally:
        CANCEL.reset(cancel)
        BOUND.reset(bound)
