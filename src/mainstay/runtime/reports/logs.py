"""The logger `mainstay`: who writes to it, and whether anything would take a record.

A call without an engine is logged as an engine logs its calls. A failing call looks at two lists of
handlers for that, and builds no event if both are empty; `logging` is never loaded for it, since
without that module there is no handler. With no handler configured nothing is printed.

What an exception or an operation holds that ends a line or that a terminal obeys is shown as an
escape (`core/base/printable.py`): a message of ours is one line. A traceback has its own lines.

A handler may itself call what is retried: one that posts records to a server. What such a call
would log is left out, or each record would lead to more of them, without an end.
"""

from __future__ import annotations

import sys
from _thread import get_ident  # threading itself is not loaded for it

from mainstay.runtime.fork import make_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    from mainstay.core.base.event import Event

    Way: TypeAlias = tuple[Callable[[int], bool], Callable[[Event], object], object]

NAME = "mainstay"
LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
"""The numbers of logging's own levels."""
_NO_LEVEL = 1 << 30
QUIET: list[object] = []
"""What the logger `mainstay` has for handlers if the program has given it none."""


def logger(name: str = NAME) -> logging.Logger:
    """The logger of that name, of ours; what is written to it is not printed by default.

    >>> logger("mainstay.config").name
    'mainstay.config'
    """
    import logging

    with _LOCK:
        if not QUIET:
            handler = logging.lastResort if _PRINTS else None
            if handler is None:
                handler = logging.NullHandler()
                handler.setLevel(_NO_LEVEL)  # it is counted among the handlers, and never called
            logging.getLogger(NAME).addHandler(handler)
            QUIET.append(handler)
    found = logging.getLogger(name)
    if name == NAME or name.startswith(f"{NAME}."):
        found.addFilter(_on_one_line)
    return found


def _on_one_line(record: logging.LogRecord) -> bool:
    """Shows what a message of ours holds that ends a line, or that a terminal obeys."""
    if "mainstay" in record.__dict__:  # an event, whose text is so already
        return True
    try:
        text = record.getMessage()
    except Exception:  # a handler reports it
        return True
    if not text.isprintable():
        record.msg, record.args = "%s", (_shown(text),)
    return True


def _shown(text: str) -> str:
    from mainstay.core.base.printable import printable  # a command without an engine has no core

    return printable(text)


_LOCK = make_lock()
_PRINTS: list[bool] = []


def print_warnings() -> None:
    """Prints warnings and errors to stderr, in a program that is ours: the command line."""
    _PRINTS.append(True)


def write(put: Callable[..., None], *args: Any, **fields: Any) -> None:
    """Hands a record to the log, unless it is about a call of a handler that has one at hand.

    >>> write(lambda: write(print, "from inside a handler"))
    """
    me = get_ident()
    if me in _WRITING:
        return
    _WRITING.add(me)
    try:
        put(*args, **fields)
    finally:
        _WRITING.discard(me)


_WRITING: set[int] = set()
"""The threads in which handlers have a record of ours at hand."""


_FUNCTION = "write"
_LINE = write.__code__.co_firstlineno
"""Where records of events come from: always from here, so the stack is not searched for it."""


class EventLog:
    """Writes events to a logger; its child `security` takes those about permissions and control."""

    __slots__ = ("_is_in_use", "logger", "security")
    is_log = True
    """A call that has one among its listeners is not logged a second time."""
    _takes_all = False
    """Whether the class does more with an event than to log it."""
    _is_plain = True
    """Whether its logger decides alone which events it wants."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger
        self.security = logger.getChild("security")

    def __init_subclass__(cls) -> None:
        cls._takes_all = cls.__call__ is not EventLog.__call__
        cls._is_plain = not cls._takes_all and cls.is_enabled is EventLog.is_enabled

    def __setattr__(self, name: str, value: object) -> None:
        if name in _ASKED and getattr(self, "_is_in_use", False) and hasattr(self, name):
            from mainstay.errors import UsageError

            text = f"the {name} of a log that operations have used cannot be replaced"
            raise UsageError(text, hint="make another log, and operations with it")
        object.__setattr__(self, name, value)

    def __call__(self, event: Event) -> None:
        logger = self.security if event.is_security else self.logger
        if logger.isEnabledFor(LEVELS[event.logged_at]):
            self._put(event)

    def _put(self, event: Event) -> None:
        """Logs an event whose level is on."""
        level, logger = LEVELS[event.logged_at], self.security if event.is_security else self.logger
        message = _Message()
        message.log, message.event = self, event
        record = logger.makeRecord(
            logger.name, level, __file__, _LINE, message, (), None, _FUNCTION
        )
        if record.msg is message:  # a record that is made with an argument asks its class
            record.msg, record.args = "%s", (message,)
        record.mainstay = event.to_dict()
        if (me := get_ident()) not in _WRITING:  # as `write` does, without another frame
            _WRITING.add(me)
            try:
                logger.handle(record)
            finally:
                _WRITING.discard(me)

    def is_enabled(self, level: str) -> bool:
        """Whether an event of a call would be logged at that level: else it need not be made.

        A class that derives from this one and does more with an event than to log it receives all.
        """
        return self.logger.isEnabledFor(LEVELS[level]) or self._takes_all

    def _way(self) -> Way | None:
        """How events of calls reach it; None if it does more than this class, and is asked."""
        is_plain = self._is_plain and "is_enabled" not in getattr(self, "__dict__", ())
        self._is_in_use = True
        return (self.logger.isEnabledFor, self._put, self) if is_plain else None

    def text_of(self, event: Event) -> str:
        """The message of an event; a front door may have words of its own."""
        return event.sentence()


_ASKED = ("logger", "is_enabled")
"""What operations ask a log by: they hold it from their first use on."""


class _Message:
    """The text of an event, which is made when a handler writes it: many records are dropped.

    Everything else that is done with it, such as copying and pickling, is done with the text.
    """

    __slots__ = ("event", "log")
    event: Event  # set by who makes it: an __init__ is a frame for each record
    log: EventLog

    def __str__(self) -> str:
        text = self.log.text_of(self.event)
        return text if text.isprintable() else _shown(text)

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


class _NotLoaded:
    """In place of the root logger until something loads `logging`: no handler exists before."""

    __slots__ = ()

    @property
    def handlers(self) -> Sequence[object]:
        if "logging" not in sys.modules:
            return ()
        LOGS.load()
        return LOGS.root.handlers


class _Nowhere:
    """In place of a logger that is not there."""

    handlers = QUIET


def _is_quiet(handler: object) -> bool:
    """Whether a handler writes nothing: ours, and a program's own NullHandler."""
    return handler in QUIET or type(handler) is sys.modules["logging"].NullHandler


class Logs:
    """Where calls without an engine are logged.

    A failing call asks `root.handlers or own.handlers != QUIET` in its own frame, and `takes` only
    if that is so.
    """

    __slots__ = ("own", "root", "sink")

    def __init__(self) -> None:
        self.root: logging.Logger | _NotLoaded = _NotLoaded()
        self.own: logging.Logger | _Nowhere = _Nowhere()
        self.sink: EventLog | None = None

    def load(self) -> None:
        """Finds the loggers, once `logging` is loaded."""
        own = logger()
        self.sink = EventLog(own)
        self.own = own
        self.root = own.root

    def takes(self, level: str = "ERROR") -> bool:
        """Whether a record of that level would reach a handler of the program's own."""
        if not self.root.handlers and self.own.handlers == QUIET:
            return False
        if self.sink is None:
            self.load()
        own = self.own
        assert not isinstance(own, _Nowhere)
        found = [*own.handlers, *(self.root.handlers if own.propagate else ())]
        return own.isEnabledFor(LEVELS[level]) and not all(map(_is_quiet, found))

    @property
    def listeners(self) -> tuple[EventLog, ...]:
        """The log as listeners are given: none if it takes nothing."""
        return (self.sink,) if self.takes() and self.sink is not None else ()

    @property
    def ways(self) -> tuple[Way, ...]:
        """The same with what to ask for a level."""
        way = self.sink._way() if self.takes() and self.sink is not None else None  # noqa: SLF001 - of this module
        return () if way is None else (way,)


class _Silent(Logs):
    """In place of the log where an engine's sinks do the logging."""

    __slots__ = ()
    listeners = ways = ()

    def takes(self, _level: str = "ERROR") -> bool:
        return False


LOGS = Logs()
"""The log of calls without an engine."""
SILENT = _Silent()
