"""Figures from a record: one pass over its events, in memory that does not grow with it.

Events come as (writer, bytes). A call is known by its writer and `call_id`; what it did is in the
event that ends it, so that between its events only the attempts and the waits so far are kept, and
of at most OPEN_CALLS calls. Names are ranked (top_k.py), delays sketched (sketch.py).

Rules:
- A call counts where it ended, with its waits; a range of time looks at the end.
- Calls whose first attempt succeeded are in a record only if successes were recorded or counted
  (`calls_counted`). Otherwise shares are of calls that met a failure.
- What is left open at the end is `unfinished`: under way, or cut off with its process.
- A keyed call that goes on after a crash counts the attempts before it: the calls that made these
  are not unfinished. One is known by its operation; of several, by the number of its last attempt.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from mainstay.core.analytics.aggregates import Figures, most_first, note
from mainstay.core.analytics.event_fields import Fact, read_fact
from mainstay.core.analytics.sketch import bucket_of
from mainstay.core.analytics.top_k import Ranking
from mainstay.core.base.sums import in_order
from mainstay.core.base.timestamps import sortable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

DIMENSIONS = ("operation", "category", "tenant")
OPEN_CALLS = 50_000
"""Calls that are followed at once; of more, the oldest are let go and counted."""
NAMES = 1024
"""Names that are kept per dimension, at least four for each that is shown."""
MOST_CIRCUITS = 256
MOST_CRASHED = 1000
"""Open calls, the oldest ones, among which the one is looked for that another goes on with."""


def stats(
    events: Iterable[tuple[str, bytes]],
    *,
    by: Sequence[str] = DIMENSIONS,
    top: int = 10,
    since: str = "",
    until: str = "",
) -> Stats:
    """The figures of a record.

    Args:
        events: the record, as pairs of writer and event.
        by: which tables to make.
        top: how many rows each table is to have.
        since: the first moment that counts, as `moments.sortable` writes it.
        until: the first moment that no longer counts.

    >>> lines = [
    ...     b'{"event_type":"attempt_failed","call_id":"a","attempt_number":1}',
    ...     b'{"event_type":"retry_attempt","call_id":"a","attempt_number":1,"delay_seconds":0.2}',
    ...     b'{"event_type":"call_succeeded","call_id":"a","total_attempts":2}',
    ... ]
    >>> total = stats((("w", line) for line in lines)).total
    >>> total.calls, total.attempts, total.recovery_rate, total.waited
    (1, 2, 1.0, 0.2)
    """
    found = Stats(by=by, top=top, since=since, until=until)
    for writer, data in events:
        found.add(writer, data)
    found.close()
    return found


class Stats:
    """Figures in the making: `add` every event, then `close`."""

    def __init__(
        self,
        *,
        by: Sequence[str] = DIMENSIONS,
        top: int = 10,
        since: str = "",
        until: str = "",
        open_calls: int = OPEN_CALLS,
        names: int = NAMES,
    ) -> None:
        self.top, self.since, self.until = top, since, until
        self.total = Figures()
        """All calls; there once it is closed."""
        size = max(names, 4 * top)
        self.tables = {each: Ranking(size, Figures) for each in by}
        self.circuits: dict[str, int] = {}
        """How often each circuit opened."""
        self.events = self.outside = self.undated = self.unreadable = self.forgotten = 0
        self.lost = 0
        """Records that the log lost, as it states: they are in no figure."""
        self.first = self.last = ""
        self._open: OrderedDict[tuple[str, str], _Open] = OrderedDict()  # gives its oldest at once
        self._open_calls = open_calls
        self._ranked = [(_PICKS[each], table) for each, table in self.tables.items()]

    def add(self, writer: str, data: bytes) -> None:
        """Counts one event; one that cannot be read is counted as that."""
        try:
            fact = read_fact(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.unreadable += 1
            return
        if self._is_in_range(fact.timestamp):
            self.events += 1
            handler = _HANDLERS.get(fact.event_type)
            if handler is not None:
                handler(self, writer, fact)

    def close(self) -> None:
        """Counts what is still open as unfinished, and the total."""
        for call in self._open.values():
            all_figures = self._figures_of(call)
            self._wait(call, all_figures)
            for figures in all_figures:
                figures.leave("unfinished", call.attempts, call.attempts)
        self._open.clear()
        for table in list(self.tables.values())[:1]:  # each of them holds every call
            for figures in (table.other, *table.rows.values()):
                self.total.merge(figures)

    def rows(self, by: str) -> tuple[list[tuple[str, Figures]], Figures | None]:
        """The rows of a table, the one with most attempts first, and what the rest come to."""
        table = self.tables[by]
        ranked = sorted(table.rows.items(), key=lambda row: (-row[1].attempts, row[0]))
        rest = ranked[self.top :]
        if not rest and not table.gone:
            return ranked, None
        other = Figures()
        for figures in (table.other, *(figures for _, figures in rest)):
            other.merge(figures)
        return ranked[: self.top], other

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            "events": self.events,
            "outside_range": self.outside,
            "without_time": self.undated,
            "unreadable": self.unreadable,
            "lost": self.lost,
            "calls_no_longer_followed": self.forgotten,
            "first": self.first or None,
            "last": self.last or None,
            "total": self.total.to_dict(),
            "circuits_opened": most_first(self.circuits),
            "by": {each: self._table(each) for each in self.tables},
        }

    def _table(self, by: str) -> dict[str, Any]:
        rows, other = self.rows(by)
        return {
            "rows": [{by: name, **figures.to_dict()} for name, figures in rows],
            "other": None if other is None else other.to_dict(),
            "names_kept": len(self.tables[by].rows),
            "is_exact": not self.tables[by].gone,
        }

    def _is_in_range(self, stamp: str) -> bool:
        at = stamp[:-1] if len(stamp) == 27 and stamp[26] == "Z" else sortable(stamp)
        if not at:
            self.undated += 1
            return not (self.since or self.until)
        if at < self.since or (self.until and at >= self.until):
            self.outside += 1
            return False
        if at > self.last:  # noqa: PLR1730  this runs for every event, and max() costs a call
            self.last = at
        if at < self.first or not self.first:
            self.first = at
        return True

    def _figures_of(self, fact: Fact | _Open) -> list[Figures]:
        """Where an event counts: in a row of each table."""
        return [table.row(pick(fact)) for pick, table in self._ranked] or [self.total]

    # --- what each event adds ---

    def attempt_failed(self, writer: str, fact: Fact) -> None:
        self._follow(writer, fact)

    def retry_attempt(self, writer: str, fact: Fact) -> None:
        call = self._follow(writer, fact)
        call.waits.append(fact.delay_seconds)
        if not fact.call_id:  # it cannot be distinguished from other calls
            self._wait(call, self._figures_of(call))

    def call_succeeded(self, writer: str, fact: Fact) -> None:
        self._end("recovered" if fact.total_attempts > 1 else "first_time", writer, fact)

    def retry_exhausted(self, writer: str, fact: Fact) -> None:
        self._end("exhausted", writer, fact)

    def call_failed(self, writer: str, fact: Fact) -> None:
        self._end("failed", writer, fact)

    def _end(self, how: str, writer: str, fact: Fact) -> None:
        self._goes_on(writer, fact)
        all_figures = self._figures_of(fact)
        waited = self._settle(writer, fact, all_figures)
        reason = fact.reason.partition(";")[0]
        for figures in all_figures:
            figures.end(how, fact.total_attempts, waited)
            if reason:
                note(figures.reasons, reason)

    def call_interrupted(self, writer: str, fact: Fact) -> None:
        self._goes_on(writer, fact)
        call = self._open.get((writer, fact.call_id))
        failed = 0 if call is None else call.attempts
        all_figures = self._figures_of(fact)
        self._settle(writer, fact, all_figures)
        for figures in all_figures:
            figures.leave("interrupted", max(fact.total_attempts, failed), failed)

    def call_refused(self, _writer: str, fact: Fact) -> None:
        for figures in self._figures_of(fact):
            figures.refused += 1
            note(figures.refusers, fact.by.rpartition(".")[2])

    def fallback_used(self, _writer: str, fact: Fact) -> None:
        for figures in self._figures_of(fact):
            figures.fallbacks += 1

    def calls_counted(self, _writer: str, fact: Fact) -> None:
        for figures in self._figures_of(fact):
            figures.counted += fact.calls
            figures.attempts += fact.calls

    def records_lost(self, _writer: str, fact: Fact) -> None:
        self.lost += fact.records

    def circuit_state_changed(self, _writer: str, fact: Fact) -> None:
        if fact.to_state == "open" != fact.from_state:
            note(self.circuits, fact.operation, most=MOST_CIRCUITS)

    # --- calls between their events ---

    def _follow(self, writer: str, fact: Fact) -> _Open:
        """The call of an event, as far as it is known, with this attempt of it."""
        key = (writer, fact.call_id)
        call = self._open.get(key)
        if call is None:
            self._goes_on(writer, fact)
            call = _Open(fact.operation, fact.retry_category, fact.tenant_id, [])
            if fact.call_id:
                self._make_room()
                self._open[key] = call
        if fact.attempt_number > call.attempts:  # noqa: PLR1730  as above
            call.attempts = fact.attempt_number
        return call

    def _goes_on(self, writer: str, fact: Fact) -> None:
        """Closes the call whose attempts this one counts as its own, if it is its first event."""
        before = fact.attempts_before
        if not before or (writer, fact.call_id) in self._open:
            return
        same = [
            (before - call.attempts, key)
            for key, call in islice(self._open.items(), MOST_CRASHED)
            if call.operation == fact.operation and call.attempts <= before
        ]
        if same:  # attempts that were cut off with their processes are not in the record
            call = self._open.pop(min(same, key=itemgetter(0))[1])
            self._wait(call, self._figures_of(call))

    def _make_room(self) -> None:
        """Lets the oldest call go if too many are followed; its waits count."""
        if len(self._open) >= self._open_calls:
            _, call = self._open.popitem(last=False)
            self._wait(call, self._figures_of(call))
            self.forgotten += 1

    def _settle(self, writer: str, fact: Fact, all_figures: list[Figures]) -> float:
        """The seconds that a call has waited, now that it is over."""
        call = self._open.pop((writer, fact.call_id), None)
        return 0.0 if call is None else self._wait(call, all_figures)

    def _wait(self, call: _Open, all_figures: list[Figures]) -> float:
        """Counts the waits of a call; returns their sum."""
        if not call.waits:
            return 0.0
        waited = in_order(call.waits)
        buckets = [bucket_of(delay) for delay in call.waits]
        for figures in all_figures:
            figures.waited += waited
            count = figures.delays.count
            for bucket in buckets:
                count(bucket)
        return waited


class _Open(msgspec.Struct, gc=False):
    """A call between its events."""

    operation: str
    retry_category: str | None
    tenant_id: str | None
    waits: list[float]
    attempts: int = 0


_PICKS: dict[str, Callable[[Fact | _Open], str]] = {
    "operation": lambda event: event.operation,
    "category": lambda event: event.retry_category or "",
    "tenant": lambda event: event.tenant_id or "",
}
_HANDLERS: dict[str, Callable[[Stats, str, Fact], None]] = {
    "attempt_failed": Stats.attempt_failed,
    "retry_attempt": Stats.retry_attempt,
    "call_succeeded": Stats.call_succeeded,
    "retry_exhausted": Stats.retry_exhausted,
    "call_failed": Stats.call_failed,
    "call_interrupted": Stats.call_interrupted,
    "call_refused": Stats.call_refused,
    "fallback_used": Stats.fallback_used,
    "calls_counted": Stats.calls_counted,
    "records_lost": Stats.records_lost,
    "circuit_state_changed": Stats.circuit_state_changed,
}
