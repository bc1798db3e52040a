"""Keeps the facts of a call that needs only attempts and waits, for listeners that take facts."""

from __future__ import annotations

import sys

import mainstay.runtime.clock as clock
from mainstay.errors import SinkError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from mainstay.drivers.call.site import Site
    from mainstay.runtime.reports.deferred_events import Facts

    R = TypeVar("R")


LONG = 1.0
"""Seconds from which on a wait is shown to other processes: runtime/waits.py."""
_loaded: list[Any] = []


def _load() -> None:
    """Loads what builds events, once: an import statement costs a failing call half a µs."""
    from mainstay.drivers.call.emit import plan_of
    from mainstay.runtime.reports.deferred_events import facts_of

    _loaded[:] = [facts_of, plan_of]


class Notes:
    """Taken while the call goes on; handed over once, however it ends."""

    __slots__ = ("_facts", "_handled", "_listeners", "_shown", "_starts", "_waits")

    def __init__(self, site: Site, key: int, started: float | None) -> None:
        if not _loaded:
            _load()
        facts_of, plan_of = _loaded
        self._listeners = site.listeners
        self._facts: Facts | None = facts_of(site, site.plan_id or plan_of(site), key, started)
        self._starts: float | None = None
        self._handled = id(sys.exception())
        self._waits, self._shown = site.waits, 0

    def failed(self, failure: BaseException, delay: float = 0.0) -> None:
        """An attempt has failed; the next one comes after the delay, if there is one."""
        assert self._facts is not None
        self._facts.failed(failure, self._starts)
        if delay >= LONG and self._waits is not None:
            facts = self._facts
            self._shown = self._waits.show(facts.plan, facts.made, failure, delay)

    def waited(self) -> None:
        """The next attempt starts now."""
        assert self._facts is not None
        self._starts = clock.current.monotonic()
        self._facts.made += 1
        if self._shown:
            self._end_wait()

    def _end_wait(self) -> None:
        assert self._waits is not None
        self._waits.end(self._shown)
        self._shown = 0

    def returned(self, value: R) -> R:
        """The call has succeeded."""
        assert self._facts is not None
        self._facts.ended = clock.current.monotonic()
        return value

    def end_here(self, failure: BaseException) -> tuple[float, float | None]:
        """Hands over to a Call; returns when the call and its last attempt began."""
        assert self._facts is not None
        began = self._facts.began
        try:
            self.close()
        except SinkError as refusal:
            refusal.__context__ = failure
            raise
        return began, self._starts

    def close(self) -> None:
        """Hands the facts over."""
        if self._shown:
            self._end_wait()
        facts, self._facts = self._facts, None
        if facts is None or not facts.attempts:
            return
        stop = sys.exception()
        if stop is not None and id(stop) != self._handled and not isinstance(stop, Exception):
            facts.by, facts.ended = type(stop).__name__, clock.current.monotonic()
        refusal: SinkError | None = None
        for listener in self._listeners:
            try:
                listener.take(facts)  # type: ignore[attr-defined]
            except SinkError as error:
                refusal = error  # as in emit: the others receive it all the same
            except Exception as error:
                from mainstay.runtime.reports.report_failure import report

                message = "a listener raised on the facts of %s and was passed over"
                report(error, message, facts.plan.operation, redact=facts.plan.redact)
        if refusal is not None:
            raise refusal
