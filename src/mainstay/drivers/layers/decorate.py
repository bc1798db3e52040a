"""What a fallback, a hedge and a bulkhead share: going around a function, and emitting events.

All three take a function of either colour and give one back that looks the same.
"""

from __future__ import annotations

from functools import wraps

from mainstay.core.base.attributes import add_note, attribute
from mainstay.core.base.functions import is_async
from mainstay.drivers.call.callables import check_decoratable
from mainstay.drivers.call.emit import emit
from mainstay.drivers.call.wrap import note_layer
from mainstay.errors import WrapError
from mainstay.runtime.context import CONTEXT
from mainstay.runtime.enclosing import aside, enclosures
from mainstay.runtime.reports.logs import LOGS
from mainstay.runtime.reports.tracebacks import leave_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import UserValue
    from mainstay.drivers.call.callables import Args, AsyncFunction, Function, Kwargs
    from mainstay.drivers.call.wrap import Layer
    from mainstay.ports import Sink


def put_around(
    function: UserValue,
    layer: Layer,
    plain: Callable[[Function, Args, Kwargs], UserValue],
    coloured: Callable[[AsyncFunction, Args, Kwargs], Awaitable[UserValue]],
) -> UserValue:
    """The function with one of the two around it; each is called with (function, args, kwargs).

    Methods of every sort are decorated inside out. `layer` is what decorates.
    """
    if isinstance(function, classmethod | staticmethod):
        return type(function)(put_around(function.__func__, layer, plain, coloured))
    if isinstance(function, property):
        raise WrapError("a property is not called", hint="put the decorator below @property")
    check_decoratable(function)
    around: Function
    if is_async(function):

        async def around(*args: UserValue, **kwargs: UserValue) -> UserValue:
            try:
                return await coloured(function, args, kwargs)
            except Exception as error:
                leave_out(error, 2)  # both of a layer
                raise
    else:

        def around(*args: UserValue, **kwargs: UserValue) -> UserValue:
            try:
                return plain(function, args, kwargs)
            except Exception as error:
                leave_out(error, 2)  # both of a layer
                raise

    decorated = wraps(function)(around)
    note_layer(decorated, function, layer)
    return decorated


def emit_aside(
    listeners: tuple[Sink, ...], event: Callable[..., Event], **fields: str | float | None
) -> None:
    """Emits an event beside the attempts, to the log if nothing else listens."""
    listeners = listeners or LOGS.listeners
    if not listeners:
        return
    here = CONTEXT.get()
    fields.update(tenant_id=here.tenant_id, correlation_id=here.correlation_id,
                  trace_id=here.trace_id, retry_category=here.category)  # fmt: skip
    outer = enclosures()
    if not outer:
        emit(event(**fields), listeners)
        return
    with aside(outer[0].plan, outer[0].end):  # what a listener calls keeps its retries
        emit(event(**fields), listeners)


def note_on(error: BaseException, note: str) -> None:
    """Leaves a note, once, on whatever takes one."""
    notes = attribute(error, "__notes__")
    if not isinstance(notes, list) or note not in notes:
        add_note(error, note)
