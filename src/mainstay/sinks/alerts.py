"""Live alerts: rules over a window, and notifications when one fires or clears.

A call only counts. A thread checks the rules, in real time and by the process's clock, and sends
the notifications: a slow callback or an unavailable store keeps no call waiting. A program that
wants no thread calls `check()`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import ref

from msgspec.structs import replace

import mainstay.runtime.clock as clock
from mainstay.core.analytics.alerts import AlertRule, Board
from mainstay.core.analytics.events import Alert, AlertFired
from mainstay.core.base.functions import is_async
from mainstay.core.base.timestamps import stamp
from mainstay.core.base.validate import Checker
from mainstay.core.inbox.items import Item
from mainstay.errors import UsageError
from mainstay.ports import SinkWants, methods_of
from mainstay.runtime.background import detached_thread
from mainstay.runtime.fork import make_lock, reset_in_child
from mainstay.runtime.reports.report_failure import report
from mainstay.sinks.logging import LoggingSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mainstay.core.base.types import Seconds

__all__ = ["AlertRule", "Alerts"]


class Alerts:
    """A sink that raises alerts.

    Args:
        rules: AlertRules.
        notify: called with AlertFired and AlertCleared; several as a list. Another sink will do.
        inbox: an inbox, such as `engine.inbox`, which gets an item for each alert that fires.
        logger: a logger or its name (fired is a WARNING, cleared is INFO); None for none.
        interval: seconds between two checks of the rules; None if `check()` is called instead.

    >>> received = []
    >>> rule = AlertRule("failing", "failure_rate", above=0.5, per="operation")
    >>> alerts = Alerts([rule], notify=received.append, interval=None)
    >>> with Engine(sinks=[alerts]) as engine:
    ...     _ = engine.run("parse", int, "x")
    >>> alert, = received
    >>> alert.alert, alert.operation, alert.value
    ('failing', 'parse', 1.0)
    """

    def __init__(
        self,
        rules: Iterable[AlertRule],
        *,
        notify: Callable[[Any], object] | Iterable[Callable[[Any], object]] = (),
        inbox: Any = None,
        logger: str | logging.Logger | None = "mainstay",
        interval: Seconds | None = 1.0,
    ) -> None:
        check = Checker("Alerts")
        self._listeners = _callables(check, notify)
        self._board = Board(_rules(check, rules))
        if interval is not None:
            interval = check.duration("interval", interval, 0.01, 3600.0)
        check.close()
        if logger is not None:
            self._listeners = (LoggingSink(logger), *self._listeners)
        self._inbox = inbox
        self._interval = interval
        self._buffers: list[tuple[Callable[[], dict[str, int]], list[int]]] = []
        self._lock = make_lock()
        self._waiting: deque[Alert] = deque()
        self._is_notifying = False
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        reset_in_child(self, Alerts._reset)

    def _reset(self) -> None:
        """In a forked child: its parent sends what waits; the next event starts a thread."""
        was_stopped, self._stopped = self._stopped.is_set(), threading.Event()
        if was_stopped:
            self._stopped.set()
        self._thread = None
        self._is_notifying = False
        self._waiting.clear()

    @property
    def wants(self) -> SinkWants:
        """Calls that succeed at the first attempt count if a rule reads the failure rate.

        >>> Alerts([AlertRule("storm", "retries_per_minute", above=60)]).wants.successes
        False
        """
        reads_rate = any(rule.metric == "failure_rate" for rule in self._board.rules)
        return SinkWants(successes=reads_rate)

    @property
    def firing(self) -> list[tuple[str, str]]:
        """The alerts that are on, as (rule, group).

        >>> Alerts([]).firing
        []
        """
        with self._lock:
            return self._board.firing()

    def __call__(self, event: Any) -> None:
        """Counts an event."""
        if isinstance(event, Alert):
            return
        now = clock.current.monotonic()
        with self._lock:
            self._board.add(event, now)
        if self._interval is not None and (self._thread is None or not self._thread.is_alive()):
            self._start(self._interval)

    def watch(self, *sinks: Any) -> None:
        """Counts what these sinks lose, for rules on `lost_events`: whatever has `stats()`.

        >>> class Full:
        ...     def stats(self): return {"lost": 3}
        >>> Alerts([]).watch(Full())
        """
        for sink in sinks:
            stats = methods_of(sink).stats
            if stats is None:
                raise UsageError(f"{sink!r} has no stats()", hint="watch sinks that have a buffer")
            self._buffers.append((stats, [stats().get("lost", 0)]))

    def check(self) -> list[Alert]:
        """Checks the rules now, and notifies of what has fired or cleared.

        >>> Alerts([]).check()
        []
        """
        now, losses = clock.current.monotonic(), self._losses()
        when = stamp(clock.current.wall())
        with self._lock:
            self._board.lost(losses, now)
            due: list[Alert] = [replace(each, timestamp=when) for each in self._board.due(now)]
            self._waiting.extend(due)
        self._notify_all()
        return due

    def flush(self) -> None:
        """Checks the rules once more; an engine that closes calls it.

        >>> Alerts([]).flush()
        """
        self.check()

    def close(self) -> None:
        """Ends the thread; `check()` still works.

        >>> Alerts([]).close()
        """
        self._stopped.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    def _losses(self) -> int:
        """How many events the watched sinks have lost since the last time."""
        found = 0
        for stats, before in self._buffers:
            with suppress(Exception):  # a sink that cannot count has its own log
                lost = stats().get("lost", 0)
                found, before[0] = found + max(0, lost - before[0]), lost
        return found

    def _notify_all(self) -> None:
        """Sends the waiting notifications, in order: one thread at a time, and under no lock."""
        while True:
            with self._lock:
                if self._is_notifying or not self._waiting:
                    return
                self._is_notifying = True
                event = self._waiting.popleft()
            try:
                self._notify(event)
            finally:
                self._is_notifying = False

    def _notify(self, event: Alert) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as error:
                message = "a listener raised on alert %s and was passed over"
                report(error, message, event.alert)
        if self._inbox is not None and isinstance(event, AlertFired):
            try:
                self._inbox.put(_item(event))
            except Exception as error:
                report(error, "alert %s could not be put into the inbox", event.alert)

    def _start(self, interval: float) -> None:
        with self._lock:
            if self._stopped.is_set() or (self._thread is not None and self._thread.is_alive()):
                return
            about = (ref(self), self._stopped, interval)
            self._thread = detached_thread(_look, "mainstay-alerts", *about)
            with suppress(RuntimeError):  # at the interpreter's end no thread can be started
                self._thread.start()


def _look(alerts: ref[Alerts], stopped: threading.Event, interval: float) -> None:
    """Checks the rules again and again, until the alerts are garbage-collected."""
    while not stopped.wait(interval):
        found = alerts()
        if found is None:
            return
        try:
            found.check()
        except Exception as error:
            report(error, "the alert rules could not be checked")
        del found


def _item(event: AlertFired) -> Item:
    return Item(
        kind="alert",
        subject=f"{event.alert}\0{event.group}",
        operation=event.operation or event.group or event.alert,
        text=event.sentence(),
        severity="high",
    )


def _rules(check: Checker, rules: Any) -> tuple[AlertRule, ...]:
    found: tuple[Any, ...] = tuple(rules)
    for rule in found:
        if not isinstance(rule, AlertRule):
            check.note("rules", rule, "AlertRules")
    names = [getattr(rule, "name", "") for rule in found]
    for name in sorted({name for name in names if names.count(name) > 1}):
        check.note("rules", name, "the name of one rule only")
    return found


def _callables(check: Checker, notify: Any) -> tuple[Callable[[Any], object], ...]:
    several = (notify,) if callable(notify) else tuple(notify)
    for each in several:
        if not callable(each):
            check.note("notify", each, "a function of one event")
        elif is_async(each):
            check.note("notify", each, "a plain function of one event: nothing awaits it")
    return several
