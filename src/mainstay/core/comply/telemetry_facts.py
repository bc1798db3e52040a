"""From telemetry records to what rules ask: the calls, and whether the records add up.

A file holds the latest records and totals of all. Every record of a failure has a class, and the
totals count classes; every other record is a success, and the totals count those too. So the totals
state how many records there were, by stage, and a missing one shows.
"""

from __future__ import annotations

from mainstay.core.comply.evidence import Attempt, Call, TelemetryFile
from mainstay.core.telemetry.record import REST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.core.comply.evidence import At
    from mainstay.core.telemetry.record import StageTotals, TelemetryRecord


class TelemetryFacts:
    """Receives totals and records, in any order, of several files; and has the calls of them.

    >>> from mainstay.core.telemetry.record import first_try, total_of
    >>> facts, record = TelemetryFacts(), first_try("etl", "poll")
    >>> facts.begin("t.json", [total_of(record)], left_out=0)
    >>> facts.add(record)
    >>> facts.files[0].found == facts.files[0].stated, facts.calls
    (True, [])
    """

    def __init__(self) -> None:
        self.files: list[TelemetryFile] = []
        self._calls: dict[tuple[str, str, str, str], list[Attempt]] = {}
        self._next = 0

    def begin(self, path: str, totals: Iterable[StageTotals], left_out: int) -> None:
        """Another file, with its totals."""
        file = TelemetryFile(path=path, left_out=left_out)
        for total in totals:
            at = (total.pipeline_id, total.stage_name)
            _count(file.stated, at, total.successes + sum(total.error_classes.values()))
            _count(file.successes, at, total.successes)
        self.files.append(file)
        self._next = 0

    def add(self, record: TelemetryRecord) -> None:
        """The next record of that file."""
        file, index = self.files[-1], self._next
        self._next = index + 1
        _count(file.found, (record.pipeline_id, record.stage_name), 1)
        is_success = record.outcome == "success"
        if is_success and record.attempt <= 1 and not record.circuit_open:
            return
        alone = "" if record.sequence else f"{file.path}:{index}"
        key = (record.pipeline_id, record.stage_name, record.sequence, alone)
        self._calls.setdefault(key, []).append(
            Attempt(
                record.attempt,
                record.delay_ms / 1000.0,
                record.error_class or "",
                record.retryable,
                is_success,
                record.circuit_open,
                record.is_final,
                record.timestamp,
                file.path,
                index,
            )
        )

    @property
    def calls(self) -> list[Call]:
        """The calls that did not succeed at once."""
        return [
            Call(pipeline, stage, sequence, tuple(sorted(found, key=_order)))
            for (pipeline, stage, sequence, _), found in self._calls.items()
        ]


def is_summed_up(file: TelemetryFile) -> bool:
    """Whether the totals of a file are of more stages than it has room for."""
    return any(at[0] == REST for at in file.stated)


def _order(attempt: Attempt) -> tuple[int, bool]:
    return attempt.number, attempt.is_final


def _count(counts: dict[At, int], at: At, number: int) -> None:
    counts[at] = counts.get(at, 0) + number
