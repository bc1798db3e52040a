"""A recorded log as a stream that is filtered, counted and analysed.

A filter reads nothing; each use of the stream is one pass over the log, in memory that does not
grow with it. Figures of calls are made by core/analytics/stats.py.
"""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import mainstay.runtime.clock as clock
from mainstay.core.analytics.aggregates import note
from mainstay.core.analytics.event_fields import Fact, read_fact
from mainstay.core.analytics.rate import FIELDS, Rate, minutes_between
from mainstay.core.analytics.stats import DIMENSIONS, stats
from mainstay.core.audit.comparison import compare
from mainstay.core.base.event import Event
from mainstay.core.base.timestamps import parse_moment, sortable, written
from mainstay.core.codec.reader import UNREADABLE
from mainstay.core.events.codec import decode, encode
from mainstay.core.retry.policy import Policy
from mainstay.errors import MainstayWarning, UsageError
from mainstay.runtime.private_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from io import BufferedReader
    from typing import Any, TypeAlias

    Record: TypeAlias = tuple[str, bytes]
    Source: TypeAlias = (
        str | Path | Iterable[Event] | Iterable[Record] | Callable[[], Iterable[Record]]
    )
    Wanted: TypeAlias = str | Collection[str] | None
    Moment: TypeAlias = str | datetime | None

MOST_NAMES = 10_000
"""Names that `rate_per_minute(by=...)` counts apart; the rest are summed up as "other"."""
_LONGEST = 1 << 20
"""Bytes of a first line that are looked at."""


class AuditStream:
    """The events of a log, or those of them that a filter lets through.

    Args:
        source: where the log is: a URL or a path, as `mainstay.audit.read_log` takes it, or the
            path of a file with an event on each line; or events, in a list or anything else that
            can be gone through more than once.

    >>> from mainstay.events import CallSucceeded, RetryAttempt
    >>> stream = AuditStream([
    ...     RetryAttempt(operation="a", retry_category="RETRY_KV_GET", delay_seconds=0.1),
    ...     CallSucceeded(operation="a", retry_category="RETRY_KV_GET", total_attempts=2),
    ... ])
    >>> retries = stream.filter(event_type="retry_attempt")
    >>> len(retries), retries.rate_per_minute > 100
    (1, False)
    >>> [event.delay_seconds for event in retries.filter(operation="a")]
    [0.1]
    """

    def __init__(self, source: Source) -> None:
        self._open = _opener(source)
        self._wanted: tuple[tuple[str, frozenset[str]], ...] = ()
        self._since = self._until = ""

    def filter(
        self,
        *,
        event_type: Wanted = None,
        retry_category: Wanted = None,
        operation: Wanted = None,
        tenant_id: Wanted = None,
        since: Moment = None,
        until: Moment = None,
    ) -> AuditStream:
        """The same stream with less in it; nothing is read yet.

        Each of the first four is a name or several, of which one is enough; "" stands for events
        without one. Moments are datetimes, ISO 8601, or so long ago: "90s", "15m", "2h", "7d";
        `since` is the first that counts, `until` the first that no longer does.

        >>> from mainstay.events import RetryAttempt
        >>> stream = AuditStream([RetryAttempt(operation=name) for name in "abc"])
        >>> len(stream.filter(operation=("a", "b")).filter(operation="b"))
        1
        """
        given = (event_type, retry_category, operation, tenant_id)
        narrower = AuditStream(self._open)
        narrower._wanted = self._wanted + tuple(
            (field, _names(wanted))
            for field, wanted in zip(FIELDS, given, strict=True)
            if wanted is not None
        )
        narrower._since = max(self._since, _moment("since", since))
        ends = [end for end in (self._until, _moment("until", until)) if end]
        narrower._until = min(ends, default="")
        return narrower

    def __iter__(self) -> Iterator[Event]:
        """The events in order. One that this version cannot read is left out, with a warning."""
        strange = 0
        for _, data in self.records():
            try:
                yield decode(data)
            except msgspec.MsgspecError:
                strange += 1
        if strange:
            warnings.warn(
                f"{strange} recorded events could not be read and were left out;"
                " were they written by a later version?",
                MainstayWarning,
                stacklevel=2,
            )

    def __len__(self) -> int:
        """How many events there are: one pass, without making them."""
        return sum(1 for _ in self.records())

    def __bool__(self) -> bool:
        """Whether there is any: reads as far as the first."""
        return any(True for _ in self.records())

    def records(self, *, plans: bool = False) -> Iterator[Record]:
        """The events as they are written, each with the name of its writer.

        Args:
            plans: also the plans that proofs refer to, which the log declares once; the filter
                does not apply to them.

        >>> from mainstay.events import CallSucceeded
        >>> [data[:16] for _, data in AuditStream([CallSucceeded(call_id="7f")]).records()]
        [b'{"call_id":"7f",']
        """
        if not (self._wanted or self._since or self._until):
            yield from self._open()
            return
        for writer, data, fact in self._facts():
            if fact is None:
                is_wanted = not self._wanted
            elif plans and fact.event_type == "plan_declared":
                is_wanted = True
            else:
                is_wanted = self._is_in_range(fact.timestamp) and self._matches(fact)
            if is_wanted:
                yield writer, data

    @property
    def rate_per_minute(self) -> Rate:
        """Events per minute: compare it, make it a float, or call it for the rate by name.

        >>> from mainstay.events import RetryAttempt
        >>> stream = AuditStream([RetryAttempt(retry_category="RETRY_KV_GET")] * 3)
        >>> float(stream.rate_per_minute)
        3.0
        >>> stream.rate_per_minute(by="retry_category")
        {'RETRY_KV_GET': 3.0}
        """
        return Rate(self._counts)

    def stats(self, *, by: str | Sequence[str] = DIMENSIONS, top: int = 10) -> dict[str, Any]:
        """The figures that `mainstay audit stats --json` has, of the calls in this stream.

        Args:
            by: "operation", "category" and "tenant", or those of them that are wanted.
            top: how many rows each table has; the rest are summed up.

        >>> from mainstay.events import CallSucceeded, RetryExhausted
        >>> stream = AuditStream([
        ...     CallSucceeded(call_id="1", retry_category="RETRY_KV_GET", total_attempts=2),
        ...     RetryExhausted(call_id="2", retry_category="RETRY_KV_GET", total_attempts=3),
        ... ])
        >>> (row,) = stream.stats(by="category")["by"]["category"]["rows"]
        >>> row["category"], row["attempts"], row["success_rate"], row["mean_attempts"]
        ('RETRY_KV_GET', 5, 0.5, 2.5)
        """
        chosen = (by,) if isinstance(by, str) else tuple(by)
        for each in chosen:
            if each not in DIMENSIONS:
                raise UsageError(f"by={each!r}: there are {', '.join(DIMENSIONS)}")
        return stats(self.records(), by=chosen, top=top).to_dict()

    def whatif(
        self,
        policy: Policy | Mapping[str, Policy],
        *,
        assume: str = "rate",
        top: int = 10,
    ) -> dict[str, Any]:
        """The calls of this stream under another policy: what `mainstay audit whatif --json` has.

        Two passes over the log. If the new policy stops sooner than the recorded one, the outcome
        is exact; an attempt that was never made is assumed, and the result states how many were,
        and by what rule.

        Args:
            policy: the other policy, or one for each operation that is to have another.
            assume: "rate", as often as retried attempts succeeded in the record; "fail"; "succeed".
            top: how many operations to show; the rest are summed up.

        >>> import tempfile
        >>> from mainstay import Backoff, Engine, RetryPolicy
        >>> from mainstay.testing import scripted
        >>> log = tempfile.mkdtemp() + "/audit.jsonl"
        >>> policy = RetryPolicy(name="fetch", max_attempts=3, backoff=Backoff.constant(0))
        >>> with Engine(policies=[policy], sinks=[], audit=log) as engine:
        ...     _ = engine.run("fetch", scripted(ConnectionError, ConnectionError, "page"))
        >>> total = AuditStream(log).whatif(policy.replace(max_attempts=2))["total"]
        >>> total["recorded"]["succeeded"], total["new"]["succeeded"], total["attempts_saved"]
        (1, 0, 1)
        >>> total["assumed_outcomes"]
        0
        """

        def choose(operation: str, _: str) -> Policy | None:
            return policy if isinstance(policy, Policy) else policy.get(operation)

        read = partial(self.records, plans=True)
        return compare(read, choose, assume=assume, top=top)[0].to_dict()

    def _facts(self) -> Iterator[tuple[str, bytes, Fact | None]]:
        """Every event; without its fields where they cannot be read."""
        for writer, data in self._open():
            try:
                yield writer, data, read_fact(data)
            except UNREADABLE:
                yield writer, data, None

    def _is_in_range(self, stamp: str) -> bool:
        if not (self._since or self._until):
            return True
        at = sortable(stamp)
        return bool(at) and at >= self._since and not (self._until and at >= self._until)

    def _matches(self, fact: Fact) -> bool:
        return all((getattr(fact, field) or "") in names for field, names in self._wanted)

    def _counts(self, by: str) -> tuple[dict[str, int], float]:
        """How often each name comes, and over how many minutes."""
        counts: dict[str, int] = {}
        first = last = ""
        for _, _, fact in self._facts():
            if fact is None or not self._is_in_range(fact.timestamp):
                continue
            at = sortable(fact.timestamp)
            first = min(first or at, at or first)
            last = max(last, at)
            if self._matches(fact):
                note(counts, (getattr(fact, by) or "") if by else "", most=MOST_NAMES)
        return counts, minutes_between(self._since or first, self._until or last)


def _opener(source: Source) -> Callable[[], Iterable[Record]]:
    """What begins a new pass over the log."""
    if isinstance(source, str | Path):
        return lambda: read_records(source)
    if callable(source):
        return source
    if iter(source) is source:
        raise UsageError(
            f"{type(source).__name__} can be gone through only once",
            hint="give a list, the place of a log, or a function that begins anew",
        )
    return lambda: (("", encode(each)) if isinstance(each, Event) else each for each in source)


def read_records(where: str | Path) -> Iterator[Record]:
    """The events of an audit log, or of a file that has one on each line, with their writers."""
    if _is_plain(where):
        with _opened(where) as lines:
            yield from (("", line) for line in lines if line.strip())
        return
    from mainstay.audit import read_log

    for record in read_log(where):
        yield record.writer, record.body


def _is_plain(where: str | Path) -> bool:
    """Whether it is a file whose first line is an event."""
    if isinstance(where, str) and "://" in where:
        return False
    try:
        with _opened(where) as lines:
            return bool(read_fact(lines.readline(_LONGEST)).event_type)
    except (OSError, *UNREADABLE):
        return False


def _opened(where: str | Path) -> BufferedReader:
    """The file for reading; it is opened twice, so a pipe would lose its beginning."""
    return open(where, "rb", opener=open_regular)


def _names(wanted: str | Collection[str]) -> frozenset[str]:
    return frozenset((wanted,) if isinstance(wanted, str) else wanted)


def _moment(name: str, value: Moment) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return written(value)
    try:
        return written(parse_moment(value, datetime.fromtimestamp(clock.current.wall(), UTC)))
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
