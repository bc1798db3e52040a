"""Keeps the notes of a call that needs only attempts and waits, for its listeners.

Those that take facts receive them once, when the call ends; the others receive each event when it
happens, if they want it.
"""

from __future__ import annotations

import sys

import mainstay.runtime.clock as clock
from mainstay.errors import SinkError
from mainstay.runtime.reports.logs import LOGS, QUIET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from mainstay.drivers.call.emit import Emitter
    from mainstay.drivers.call.site import Site
    from mainstay.runtime.reports.deferred_events import Facts

    R = TypeVar("R")


LONG = 1.0
"""Seconds from which on a wait is shown to other processes: runtime/waits.py."""
_loaded: list[Any] = []


def _load() -> None:
    """Loads what builds events, once: an import statement costs a failing call half a µs."""
    from mainstay.drivers.call.emit import Emitter, plan_of, wanted
    from mainstay.runtime.reports.deferred_events import facts_of

    _loaded[:] = [facts_of, plan_of, wanted, Emitter]


def notes_of(site: Site, key: int, started: float | None) -> Notes | None:
    """The notes of a call that has failed; None if no listener wants any."""
    receivers, has_logs = site.receivers, site.has_logs
    if (LOGS.root.handlers or LOGS.own.handlers != QUIET) and (logs := site.logs.listeners):
        receivers, has_logs = (*receivers, *logs), True
    if not _loaded:
        _load()
    facts_of, plan_of, wanted, emitter_of = _loaded
    if has_logs:
        loudest = site.policy.log_level
        receivers = wanted(receivers, loudest if loudest == "CRITICAL" else "ERROR")
    if not (receivers or site.takers or site.waits):
        return None
    began = clock.current.monotonic() if started is None else started
    notes = Notes(site, began, is_clocked=started is not None)
    if site.takers:
        notes.facts = facts_of(site, site.plan_id or plan_of(site), key, began)
    if receivers:
        notes.emitter = emitter_of(site, receivers, has_logs, key, began)
    return notes


class Notes:
    """Taken while the call goes on: facts are handed over once, events are emitted at once."""

    __slots__ = (
        "_began",
        "_handled",
        "_is_clocked",
        "_made",
        "_shown",
        "_site",
        "_starts",
        "emitter",
        "facts",
    )  # fmt: skip

    def __init__(self, site: Site, began: float, *, is_clocked: bool) -> None:
        self._site, self._began, self._is_clocked = site, began, is_clocked
        self._made = 1
        self._starts: float | None = began if is_clocked else None
        self._handled = id(sys.exception())
        self._shown = 0
        self.facts: Facts | None = None
        self.emitter: Emitter | None = None

    def failed(self, failure: BaseException, delay: float = 0.0) -> None:
        """An attempt has failed; the next one comes after the delay, if there is one."""
        if self.facts is not None:
            self.facts.failed(failure, self._starts)
        if self.emitter is not None:
            self.emitter.failed(failure, self._made, self._starts, delay)
        if delay >= LONG and self._site.waits is not None:
            self._shown = self._site.waits.show(self._site, self._made, failure, delay)

    def waited(self) -> None:
        """The next attempt starts now."""
        self._starts = clock.current.monotonic()
        self._made += 1
        if self._shown:
            self._end_wait()

    def _end_wait(self) -> None:
        assert self._site.waits is not None
        self._site.waits.end(self._shown)
        self._shown = 0

    def returned(self, value: R) -> R:
        """The call has succeeded."""
        if self.facts is not None:
            self.facts.ended = clock.current.monotonic()
        if self.emitter is not None:
            emitter, self.emitter = self.emitter, None
            emitter.returned(self._made)
        return value

    def end_here(self, failure: BaseException) -> tuple[float | None, float | None]:
        """Hands over to a Call; returns when the call and its last attempt began."""
        self.emitter = None
        try:
            self.close()
        except SinkError as refusal:
            refusal.__context__ = failure
            raise
        if self._made == 1 and not self._is_clocked:
            return None, None
        return self._began, self._starts

    def close(self) -> None:
        """Hands the facts over; emits that the call was interrupted, if it was."""
        if self._shown:
            self._end_wait()
        stop, by = sys.exception(), ""
        if stop is not None and id(stop) != self._handled and not isinstance(stop, Exception):
            by = type(stop).__name__
        facts, self.facts = self.facts, None
        emitter, self.emitter = self.emitter, None
        if facts is not None and facts.attempts:
            facts.made = self._made
            if by:
                facts.by, facts.ended = by, clock.current.monotonic()
            self._hand_over(facts)
        if by and emitter is not None:
            emitter.cut_off(self._made, by)

    def _hand_over(self, facts: Facts) -> None:
        refusal: SinkError | None = None
        for listener in self._site.takers:
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
