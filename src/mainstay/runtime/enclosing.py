"""What encloses the current call, read off the stack when that is needed.

Every frame that makes first attempts runs in one namespace, FRAMES; walking up the stack and
comparing `f_globals` finds them. The happy path pays a local variable: the references to what it
holds count the wrappers under way, and if there is no other there is no walk. The walk is exact for
direct calls, generators and await chains. Retried attempts, blocks of `policy.attempts()` and
worker threads run in frames of other modules: those are entered in OPEN while they last.

A stack ends where a task or a thread begins. So an attempt that refuses retries inside also sets a
context variable, which tasks and `asyncio.to_thread` copy (`attempting`); no other attempt does.

A wrapper frame holds `ms_site`; one with a limit also `ms_started`, from which the end of its
first attempt follows. Context variables would cost the happy path 9 × a bare call.

What the wrapper holds is also a number, and the next one takes its place after every mark (see
core/retry/give_up.py). So each first attempt has the moment at which it began, and an outer retry
can compare the moment of a mark with it.
"""

from __future__ import annotations

import builtins
import sys
from contextlib import suppress
from contextvars import ContextVar

from mainstay.core.base.deadline import NEVER
from mainstay.core.retry.call import call_flow
from mainstay.core.retry.give_up import NO_MOMENT, arrivals
from mainstay.runtime.fork import make_rlock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextvars import Token
    from types import CodeType, FrameType
    from typing import Any

    from mainstay.core.retry.plan import Plan

FRAMES: dict[str, Any] = {
    "__name__": "mainstay.drivers.call.wrap",
    "__builtins__": builtins,
    "__tracebackhide__": True,  # pytest then leaves our frames out of its reports
}
OPEN: dict[FrameType, Enclosure] = {}


class _Root:
    """What all numbers refer to: references to it count the numbers that are still held."""

    __slots__ = ()


class _Active:
    """Held by every wrapper frame while it runs, so that references to it count them."""

    __slots__ = ("moment", "root")

    def __init__(self, moment: int) -> None:
        self.moment = moment
        self.root = _ROOT


_ROOT = _Root()
_numbering = make_rlock()  # a finaliser may come here while the lock is held
FRAMES["ms_active"] = _Active(0)


def _count_active() -> int:
    """How many wrapper frames there are, running or suspended; perhaps a few that are over.

    A wrapper pays nothing for being counted but a local variable. If references cannot be
    counted, or a wrapper has been under way since before the last mark, there are too many.
    """
    if OLDER and _has_older():
        return sys.maxsize
    return references(FRAMES["ms_active"]) - _AT_REST


def _has_older() -> bool:
    """Whether a number is still held that another one has replaced."""
    with _numbering:
        if references(_ROOT) <= _ROOT_AT_REST:
            OLDER.clear()
    return bool(OLDER)


references: Callable[[object], int] = getattr(sys, "getrefcount", lambda _: sys.maxsize)
_ROOT_AT_REST = references(_ROOT)
OLDER: list[int] = []
"""Not empty if a number was replaced, and may still be held."""
_AT_REST = 0
_AT_REST = _count_active() if hasattr(sys, "getrefcount") else 0
ALONE = _AT_REST + 1
"""The references if one wrapper is under way."""


def mark_moment(own: int = 0) -> int:
    """The moment of a mark that is made now: what begins from here on has a later one.

    `own` is how many references to the current number are the caller's own. If there is nothing
    else under way, no code could honour the mark: it has no moment, and nothing is numbered.
    """
    if not OPEN and not OLDER and references(FRAMES["ms_active"]) - _AT_REST <= own:
        return NO_MOMENT
    if not OPEN and _count_active() <= own:
        return NO_MOMENT
    with _numbering:
        moment: int = FRAMES["ms_active"].moment
        OLDER[:] = [moment]
        FRAMES["ms_active"] = _Active(moment + 1)
    return moment


arrivals.append(mark_moment)


class Enclosure:
    """A retry under way, seen from inside: whose, and until when what runs may last.

    `is_repeat` if it is not the first attempt: the next one up is then the same call, whose
    first attempt is over. `retries` is False for what runs beside the attempts, such as a hook:
    that is not repeated.
    """

    __slots__ = ("end", "frame", "is_repeat", "number", "plan", "retries")

    def __init__(
        self,
        plan: Plan,
        end: float,
        *,
        is_repeat: bool = False,
        retries: bool = True,
        frame: FrameType | None = None,
        number: int = 0,
    ) -> None:
        self.plan = plan
        self.end = end
        self.is_repeat = is_repeat
        self.retries = retries
        self.frame = frame
        self.number = number
        """Which attempt it is, if it is a block; frames of drivers have it (see COUNTING)."""

    @property
    def refuses(self) -> bool:
        """Whether it repeats what runs inside, and refuses that this is repeated there."""
        return self.retries and self.plan.policy.nested == "refuse"

    @property
    def name(self) -> str:
        """What the enclosing retry is called."""
        if self.plan.operation or self.frame is None:
            return self.plan.operation
        function = self.frame.f_locals.get("ms_function")
        return str(getattr(function, "__qualname__", "a call"))


def enclosures(depth: int = 1, own: int = 0) -> Sequence[Enclosure]:
    """The retries that enclose the frame `depth` levels up, innermost first.

    `own` is how many wrapper frames below that one are the caller's own.
    """
    if not (OPEN or OLDER) and references(FRAMES["ms_active"]) - _AT_REST <= own:
        return ()  # nothing else is under way, in any thread or task
    if OLDER and not OPEN and _count_active() <= own:
        return ()
    start = frame = sys._getframe(depth)
    namespace = FRAMES
    while not OPEN and frame.f_globals is not namespace:
        frame = frame.f_back  # type: ignore[assignment]
        if frame is None:
            return ()
    return _survey(start)


COUNTING: dict[CodeType, Callable[[FrameType], int]] = {}
"""How the number of the attempt is read off a frame of a driver that makes repeated attempts."""


def attempt_around() -> int:
    """The number of the innermost attempt that encloses the caller; 1 if nothing retries."""
    if not OPEN and _count_active() <= 0:
        return 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals is not FRAMES and not _starts_task(frame):
        read, block = COUNTING.get(frame.f_code), OPEN.get(frame)
        number = read(frame) if read is not None else 0 if block is None else block.number
        if number:
            return number
        frame = frame.f_back
    return 1


def is_bound() -> bool:
    """Whether what encloses the caller's caller, a wrapper, has an end or refuses a retry inside.

    Most calls that fail are alone: the drivers ask only if something else is under way.
    """
    for each in enclosures(4, own=1):
        if each.end != NEVER or each.refuses:
            return True
    return REFUSER.get() is not None  # of a task or a thread that was started inside


def _survey(frame: FrameType | None) -> list[Enclosure]:
    found: list[Enclosure] = []
    is_own = False
    drivers, blocks, deciding = FRAMES, OPEN, _DECIDING
    sending = SENDING[0] if SENDING else None
    while frame is not None:
        code = frame.f_code
        if frame.f_globals is drivers:
            here: Enclosure | None = _read(frame)
        elif code is sending:
            here = _beside(frame)
        else:
            here = blocks.get(frame) if blocks else None
        if here is not None:
            if not is_own:
                found.append(here)
            is_own = here.is_repeat  # then the next one up is the same call
        elif code is deciding:
            is_own = True  # a predicate runs while its call decides, not in an attempt of it
        elif code.co_name == "create_task" and _starts_task(frame):
            break  # an eager task's first step runs on the stack of the code that starts it
        frame = frame.f_back
    return found


def _starts_task(frame: FrameType) -> bool:
    if frame.f_code.co_name != "create_task":
        return False
    return str(frame.f_globals.get("__name__", "")).startswith("asyncio.")


_DECIDING = call_flow.__code__
SENDING: list[CodeType] = []
"""What sends events to listeners; drivers/call/emit.py is loaded if there are any."""


def _beside(frame: FrameType) -> Enclosure | None:
    """What a listener calls is beside the attempts, if the frame that sends to it has a site."""
    site = frame.f_locals["site"]
    return None if site is None else Enclosure(site, NEVER, is_repeat=True, retries=False)


class opened:  # noqa: N801 -- a context manager is used like a function
    """Enters the caller's own frame as one that makes an attempt."""

    __slots__ = ("_before", "_enclosure", "_frame")

    def __init__(self, plan: Plan, end: float = NEVER, *, is_repeat: bool = False) -> None:
        self._enclosure = Enclosure(plan, end, is_repeat=is_repeat)
        self._frame = sys._getframe(1)

    def __enter__(self) -> None:
        self._before = OPEN.get(self._frame)
        OPEN[self._frame] = self._enclosure

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            del OPEN[self._frame]
        else:
            OPEN[self._frame] = self._before
        del self._frame


class aside(opened):  # noqa: N801 -- a context manager is used like a function
    """Enters the caller's own frame as one that runs something beside the attempts."""

    __slots__ = ()

    def __init__(self, plan: Plan, end: float) -> None:
        self._enclosure = Enclosure(plan, end, is_repeat=True, retries=False)
        self._frame = sys._getframe(1)


class Refuser:
    """An attempt that refuses retries inside, as tasks and threads see it that it has started.

    One that has ended is marked so: what outlives it may retry.
    """

    __slots__ = ("is_over", "outer", "plan")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.outer = REFUSER.get()
        self.is_over = False


REFUSER: ContextVar[Refuser | None] = ContextVar("mainstay_refuser", default=None)


class refusing:  # noqa: N801 -- a context manager is used like a function
    """Refuses the retries of tasks and threads that start inside."""

    __slots__ = ("_refuser", "_token")
    _token: Token[Refuser | None]

    def __init__(self, plan: Plan) -> None:
        self._refuser = Refuser(plan)

    def __enter__(self) -> None:
        self._token = REFUSER.set(self._refuser)

    def __exit__(self, *_: object) -> None:
        self._refuser.is_over = True
        with suppress(ValueError):  # a coroutine that is closed from elsewhere is in no context
            REFUSER.reset(self._token)


class attempting(opened):  # noqa: N801 -- a context manager is used like a function
    """The same for an attempt itself: what it refuses, it refuses in tasks and threads too."""

    __slots__ = ("_refusing",)

    def __init__(self, plan: Plan, end: float = NEVER, *, is_repeat: bool = False) -> None:
        self._enclosure = Enclosure(plan, end, is_repeat=is_repeat)
        self._frame = sys._getframe(1)
        self._refusing = refusing(plan) if plan.policy.nested == "refuse" else None

    def __enter__(self) -> None:
        super().__enter__()
        if self._refusing is not None:
            self._refusing.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._refusing is not None:
            self._refusing.__exit__()
        super().__exit__()


def _read(frame: FrameType) -> Enclosure:
    variables = frame.f_locals
    plan: Plan = variables["ms_site"]
    started, end = variables.get("ms_started"), NEVER
    if started is not None:
        limit = plan.policy.first_limit
        end = NEVER if limit is None else started + limit
    return Enclosure(plan, end, frame=frame)


def enclosing_end() -> float:
    """The earliest end of the attempts that enclose the caller."""
    found = enclosures()
    return min([each.end for each in found]) if found else NEVER
