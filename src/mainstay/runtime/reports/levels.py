"""How events of calls reach listeners that have levels: logs, and others with `is_enabled`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainstay.runtime.reports.logs import LEVELS, EventLog
from mainstay.runtime.reports.report_failure import report

if TYPE_CHECKING:
    from typing import Any

    from mainstay.runtime.reports.logs import Way

_NAMES = {number: name for name, number in LEVELS.items()}


def way_of(sink: Any) -> Way:
    """What to ask for a level, what takes an event, and who.

    A log that does nothing else is asked by its logger; another sink by the names of levels.

    >>> from mainstay.runtime.reports.logs import logger
    >>> asks, takes, log = way_of(EventLog(logger()))
    >>> asks(LEVELS["CRITICAL"])
    True
    """
    way = sink._way() if isinstance(sink, EventLog) else None  # noqa: SLF001 - of this folder
    return way or ((lambda level: is_wanted(sink, _NAMES[level])), sink, sink)


def is_threshold(way: Way) -> bool:
    """Whether one who does not want an event of some level wants none below it either."""
    return getattr(way[0], "__func__", None) is logging.Logger.isEnabledFor


def is_wanted(sink: Any, level: str) -> bool:
    """Whether a listener wants an event that is logged at that level; one without levels does.

    One that raises costs no call: the event is made, and shown to it.
    """
    try:
        return not hasattr(sink, "is_enabled") or bool(sink.is_enabled(level))
    except Exception as error:
        report(error, "a listener raised when it was asked about a level")
        return True
