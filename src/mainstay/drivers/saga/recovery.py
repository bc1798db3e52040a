"""Recovery: runs sagas to their end whose processes are gone, or that a person let go on.

Open sagas have entries, which are read page by page: memory does not grow with their number. A
saga that another process runs is left to it. One whose definition is not known here is left to a
process that knows it; if none has come for an hour, a person is asked.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.validate import Checker
from mainstay.core.inbox.items import Item, damaged_item
from mainstay.core.saga.commands import Found
from mainstay.core.saga.context import parts_of
from mainstay.core.saga.events import SagaStuck
from mainstay.core.saga.state import SagaState
from mainstay.drivers.idempotency.groups import Group
from mainstay.drivers.saga.escalation import item_of
from mainstay.drivers.saga.parts import KIND
from mainstay.drivers.saga.session import SagaRun
from mainstay.errors import StoredValueError, StoreUnavailable, UsageError
from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.context import is_in_event_loop
from mainstay.runtime.loops import is_cancellation, shielded
from mainstay.runtime.reports.report_failure import report

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from typing import Any

    from mainstay.core.base.types import Seconds
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.saga.flow import End
    from mainstay.core.saga.state import SagaRecord
    from mainstay.drivers.idempotency.groups import Workers
    from mainstay.drivers.saga.parts import SagaParts
    from mainstay.drivers.saga.runner import Runner

    Progress = Callable[["Recovery"], object]
    Ended = Callable[["Recovery"], None]
    """Counts how a saga has ended."""

_OPEN = (SagaState.RUNNING, SagaState.COMPENSATING)
UNCLAIMED = 3600.0
"""Seconds after which a saga whose definition no process knows is brought to a person."""
WORKERS = 8
"""Sagas that are recovered at the same time, unless it is set."""
_MOMENT, _LOOK = 0.02, 0.1
"""Seconds after which a saga counts as slow; and between two looks at whether to stop."""
_AT_LAST = 30.0
"""Seconds that the sagas at hand have when a watch is stopped; then others recover them."""
_ABOUT_TO_BEGIN = 60.0
"""Seconds for which an entry without a saga is left alone."""
_MOST_UNBEGUN = 10_000
_ENDS_ONE = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""What ends the run of a saga that is recovered. Anything else, such as the end of a process that a
test plays, ends the recovery as well."""


class Recovery:
    """What a recovery has come to, counted.

    Attributes:
        recovered: sagas that this process has taken over.
        succeeded, compensated, stuck: what became of those.
        busy: sagas that other processes run.
        unknown: sagas by name and version whose definition is not known here.
        failed: sagas that were not run to an end: their record is damaged, the store failed, or a
            step ended the run, as one that raises SystemExit does.

    >>> Recovery().to_dict()["recovered"]
    0
    """

    __slots__ = ("busy", "compensated", "failed", "recovered", "stuck", "succeeded", "unknown")

    def __init__(self) -> None:
        self.recovered = self.succeeded = self.compensated = self.stuck = 0
        self.busy = self.failed = 0
        self.unknown: dict[str, int] = {}

    def to_dict(self) -> dict[str, Any]:
        """The counts as JSON can hold them.

        >>> sorted(Recovery().to_dict())
        ['busy', 'compensated', 'failed', 'recovered', 'stuck', 'succeeded', 'unknown']
        """
        return {name: getattr(self, name) for name in self.__slots__}


def _sum(total: Recovery, latest: Recovery) -> None:
    for name in ("recovered", "succeeded", "compensated", "stuck"):
        setattr(total, name, getattr(total, name) + getattr(latest, name))


def _add(total: Recovery, latest: Recovery) -> None:
    """Adds the counts of a recovery; what is left over is what the latest has left over."""
    _sum(total, latest)
    total.busy, total.failed, total.unknown = latest.busy, latest.failed, latest.unknown


def _count(found: Recovery, end: End) -> None:
    """Counts how one that was recovered has ended."""
    found.recovered += 1
    if end.state is None:  # yet another process has it
        found.busy += 1
    elif end.state is SagaState.SUCCEEDED:
        found.succeeded += 1
    elif end.state is SagaState.STUCK:
        found.stuck += 1
    else:
        found.compensated += 1


def recover(
    runner: Runner,
    parts: SagaParts,
    pool: Workers,
    limit: int | None = None,
    progress: Progress | None = None,
    stop: threading.Event | None = None,
) -> Recovery:
    """Each open saga, in the threads of a pool; async ones in event loops of their own.

    With `stop`, those that have not ended when all were begun are counted by a later call, also if
    that finds none to begin; else it returns when all have ended.
    """
    found = Recovery()
    for address, entry in parts.records.entries():
        if not _has_room(pool, found, limit, progress, stop):
            break
        record = _record_to_take(parts, found, address, entry)
        if record is not None:
            _check_loop(parts, record)
            pool.start(partial(_recovered, runner, parts, address, record, entry))
    while pool.running and (done := pool.next(None if stop is None else 0.0)) is not None:
        _note(done, found, progress)
    return found


def _has_room(
    pool: Workers,
    found: Recovery,
    limit: int | None,
    progress: Progress | None,
    stop: threading.Event | None,
) -> bool:
    """Waits until another saga may be begun; whether one may.

    A further thread is used only if the sagas at hand take longer than a moment: on SQLite, which
    has one writer, quick ones are faster one after the other.
    """
    while pool.running and not (stop is not None and stop.is_set()):
        is_last = limit is not None and found.recovered + pool.running >= limit
        is_full = pool.is_full or is_last
        done = pool.next(_LOOK if is_full else _MOMENT)
        if done is not None:
            _note(done, found, progress)
        if not is_full or (done is not None and not is_last):
            break
    return (limit is None or found.recovered < limit) and not (stop is not None and stop.is_set())


def _note(done: Ended | BaseException | None, found: Recovery, progress: Progress | None) -> None:
    """Counts a saga that has ended."""
    if done is None:
        return
    if isinstance(done, BaseException):
        raise done
    done(found)
    if progress is not None:
        progress(found)


def _recovered(
    runner: Runner, parts: SagaParts, address: str, record: SagaRecord, entry: str
) -> Ended:
    """Takes a saga over and runs it; how it is counted."""
    try:
        run = runner.take(address, record, entry)
        if not isinstance(run, SagaRun):
            return partial(_count_not_taken, parts=parts, address=address, answer=run)
        return partial(_count, end=_completed(runner, run))
    except BaseException as error:
        if not _ends_one(error):
            raise
        return partial(_failed, parts=parts, address=address, error=error)


async def arecover(
    runner: Runner,
    parts: SagaParts,
    workers: int,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Recovery:
    """The same in tasks of an event loop; if it is cancelled, the sagas at hand are too."""
    found, group = Recovery(), Group()

    async def end_one() -> None:
        _note(await group.next(), found, progress)

    async def end_all() -> None:
        while group.running:
            await end_one()

    try:
        for address, entry in parts.records.entries():
            while group.running and (
                group.running >= workers
                or (limit is not None and found.recovered + group.running >= limit)
            ):
                await end_one()
            if limit is not None and found.recovered >= limit:
                break
            record = _record_to_take(parts, found, address, entry)
            if record is not None:
                group.start(partial(_arecovered, runner, parts, address, record, entry, group))
        await end_all()
    except BaseException:
        group.cancel()
        await shielded(end_all)
        raise
    return found


async def _arecovered(
    runner: Runner, parts: SagaParts, address: str, record: SagaRecord, entry: str, group: Group
) -> Ended:
    """The same; a Ctrl+C, which may come in any step, and the caller's cancellation end it."""
    try:
        run = await runner.atake(address, record, entry)
        if not isinstance(run, SagaRun):
            return partial(_count_not_taken, parts=parts, address=address, answer=run)
        return partial(_count, end=await runner.acompleted(run))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        is_own = _ends_one(error) and not (group.is_cancelled and is_cancellation(error))
        if not is_own:
            raise
        return partial(_failed, parts=parts, address=address, error=error)


def _ends_one(error: BaseException) -> bool:
    """Whether this ends the run of one saga, and no recovery; in a thread no signal raises it."""
    return isinstance(error, _ENDS_ONE) or type(error).__name__ == "CancelledError"


def checked_workers(workers: int) -> int:
    """How many sagas are recovered at the same time."""
    check = Checker("recover")
    found = check.count("workers", workers, 1000)
    check.close()
    return found


def resume(runner: Runner, parts: SagaParts, address: str) -> bool:
    """Runs one saga to its end, if it is to be had."""
    record, _ = parts.records.get(address)
    if record is None or record.state not in _OPEN:
        return False
    if (record.saga, record.version) in parts.definitions:
        _check_loop(parts, record)
    run = runner.take(address, record)
    if not isinstance(run, SagaRun):
        not_taken(parts, address, run)
        return False
    _completed(runner, run)
    return True


def _completed(runner: Runner, run: SagaRun) -> End:
    """Runs a saga to its end; an async one in an event loop of its own."""
    if not run.saga.is_async:
        run.may_await = True
        return runner.completed(run)
    import asyncio

    return asyncio.run(runner.acompleted(run))


def _check_loop(parts: SagaParts, record: SagaRecord) -> None:
    """Refuses an async saga if an event loop runs here, which would stand still meanwhile."""
    if parts.definitions[record.saga, record.version].is_async and is_in_event_loop():
        raise UsageError(
            f"the saga {record.saga} has steps that have to be awaited, and an event loop runs",
            hint="use `await engine.sagas.arecover()`",
        )


def _record_to_take(
    parts: SagaParts, found: Recovery, address: str, entry: str
) -> SagaRecord | None:
    """The record of a saga that may be taken over; one that cannot be read is reported."""
    try:
        return _to_take(parts, found, address, entry)
    except (StoreUnavailable, StoredValueError) as error:
        _failed(found, parts, address, error)
        return None


def _to_take(parts: SagaParts, found: Recovery, address: str, entry: str) -> SagaRecord | None:
    """The record of a saga that may be taken over; what is not, is counted or cleaned up."""
    record, now = parts.records.get(address)
    if record is None:  # its process ended before it was begun, or is about to begin it
        _forget(parts, address, entry, now)
        return None
    if record.state not in _OPEN:
        _finish(parts, address, entry, record)
        return None
    left = parts.records.lease_left(record, now)
    if left > 0.0:
        found.busy += 1
        return None
    if (record.saga, record.version) not in parts.definitions:
        name = f"{record.saga} version {record.version}"
        found.unknown[name] = found.unknown.get(name, 0) + 1
        if now - max(record.lease_until, record.began) > UNCLAIMED:
            parts.inbox.put(_unclaimed(record, address), is_new=False)
        return None
    return record


def _forget(parts: SagaParts, address: str, entry: str, now: float) -> None:
    """Removes the entry of a saga that was never begun, if it has been so for a while.

    The process that wrote it may be about to write the record: an entry is removed when it is
    found for the second time, after a while.
    """
    seen = parts.unbegun.setdefault((address, entry), now)
    if now - seen > _ABOUT_TO_BEGIN:
        del parts.unbegun[address, entry]
        parts.records.drop(address, entry)
    elif len(parts.unbegun) > _MOST_UNBEGUN:
        parts.unbegun.clear()


def _finish(parts: SagaParts, address: str, entry: str, record: SagaRecord) -> None:
    """Does what the process that ended a saga had left to do: the item, then the entry."""
    if record.state is SagaState.STUCK:
        parts.inbox.put(item_of(record, parts_of(address)[1], address), is_new=False)
    parts.records.drop(address, entry)


def _count_not_taken(found: Recovery, parts: SagaParts, address: str, answer: object) -> None:
    if not_taken(parts, address, answer):
        found.recovered += 1
        found.stuck += 1
    else:
        found.busy += 1


def not_taken(parts: SagaParts, address: str, answer: object) -> bool:
    """Another process was faster; or the definition has changed (True): a person decides."""
    if not isinstance(answer, Found) or answer.record.state is not SagaState.STUCK:
        return False
    parts.emit(_stuck(answer.record, address))
    _finish(parts, address, parts.records.entry_of(address), answer.record)
    return True


def _stuck(record: SagaRecord, address: str) -> SagaStuck:
    assert record.stuck is not None
    return SagaStuck(
        operation=record.saga,
        saga_id=parts_of(address)[1],
        phase=record.stuck.phase,
        text=record.stuck.text,
    )


def _unclaimed(record: SagaRecord, address: str) -> Item:
    return Item(
        kind=KIND,
        subject=address,
        operation=record.saga,
        text=f"{record.saga} {parts_of(address)[1]}: no process has taken it over, and version"
        f" {record.version} of its definition is not known where it is recovered: register it",
        data={"address": address, "phase": "unclaimed"},
    )


def _unreadable(name: str, saga_id: str, address: str, error: StoredValueError) -> Item:
    return Item(
        kind=KIND,
        subject=address,
        operation=name,
        text=f"{name} {saga_id}: what it was started with cannot be rebuilt where it is recovered"
        f" ({error.message}): restore the class, or recover it where the class is known",
        data={"address": address, "phase": "unclaimed"},
    )


def _failed(found: Recovery, parts: SagaParts, address: str, error: BaseException) -> None:
    """Reports a saga that could not be recovered: the others are."""
    found.failed += 1
    if isinstance(error, StoredValueError):
        name, saga_id, _ = parts_of(address)
        parts.inbox.put_damage(error, damaged_item(name, saga_id, address))
        if not error.is_damaged:
            parts.inbox.put(_unreadable(name, saga_id, address, error), is_new=False)
    report(error, "the saga %s could not be recovered", address, redact=parts.redact)


def watch(
    recover: Callable[..., Recovery],
    pool: Workers,
    stop: threading.Event,
    every: Seconds,
    progress: Progress | None,
    redact: Redactor | None = None,
) -> Recovery:
    """Recovers again and again until the event is set; a saga that hangs holds up no other."""
    check = Checker("watch")
    seconds = check.duration("every", every, 0.01, 86_400.0)
    check.close()
    total = Recovery()
    while not stop.is_set():
        try:
            _add(total, recover(pool, progress=progress, stop=stop))
        except StoreUnavailable as error:  # it may be back at the next look
            report(error, "sagas could not be recovered", redact=redact)
        if clock.current.sleep(seconds, stop):
            break
    last, end = Recovery(), SYSTEM.monotonic() + _AT_LAST
    while pool.running and SYSTEM.monotonic() < end:
        _note(pool.next(_LOOK), last, progress)
    _sum(total, last)
    return total
