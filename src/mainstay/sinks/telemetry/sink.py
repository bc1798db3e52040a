"""Telemetry of pipelines: a record for every attempt, added up in a file.

The sink makes records in the calling thread, which alone knows what CPU time it has used, and
keeps a sum of them that does not grow. A thread of its own adds it to the file every second, and
retries for as long as the file cannot be written; no call waits for it.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.core.events.describe import reason_of
from mainstay.core.telemetry.energy import EnergyModel
from mainstay.core.telemetry.record import Telemetry, merged, summed, total_of, with_energy
from mainstay.ports import SinkWants, wants_of
from mainstay.runtime.background import detached_thread
from mainstay.runtime.fork import flush_at_exit, reset_in_child
from mainstay.runtime.reports.logs import logger
from mainstay.sinks.telemetry.cpu_meter import thread_time
from mainstay.sinks.telemetry.file import add_to_file
from mainstay.sinks.telemetry.records import Recorder

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Seconds
    from mainstay.core.telemetry.record import TelemetryRecord

_ROOM = 256
"""Records that wait to be added up."""
_LONGEST = 30.0
"""Seconds between two tries at a file that cannot be written."""
_log = logger()


class TelemetrySink:
    """Writes the telemetry that the pipeline document asks for, with energy and CO2 by a model.

    Several processes may write to one file. The figures of energy and CO2 are a model's: the file
    holds its method, parameters and scope beside them.

    Args:
        path: the file; folders are made.
        pipeline_id: which pipeline the calls belong to; operations are its stages.
        model: how energy is computed; its defaults are round assumptions.
        keep: how many of the latest records the file holds; the totals hold all of them.
        every: seconds between two writes.
        hears_successes: whether calls that succeed at the first attempt are counted too.
        cpu: what reads the CPU time of the calling thread, in seconds.

    >>> import tempfile
    >>> from mainstay import Engine
    >>> from mainstay.sinks.telemetry.file import read_telemetry
    >>> path = tempfile.mkdtemp() + "/focus-telemetry.json"
    >>> with Engine(sinks=[TelemetrySink(path, pipeline_id="etl_v1")]) as engine:
    ...     engine.call("poll", int, "7")
    7
    >>> record = read_telemetry(path).records[0]
    >>> record.pipeline_id, record.stage_name, record.attempt, record.outcome
    ('etl_v1', 'poll', 1, 'success')
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        pipeline_id: str,
        model: EnergyModel | None = None,
        keep: int = 1_000,
        every: Seconds = 1.0,
        hears_successes: bool = True,
        cpu: Callable[[], float] = thread_time,
    ) -> None:
        check = Checker("TelemetrySink")
        self.pipeline_id = check.name("pipeline_id", pipeline_id)
        self.keep = check.count("keep", keep, 100_000, 0)
        self._every = check.duration("every", every, 0.01, 3600.0)
        check.close()
        self.path = Path(path)
        self.is_named = True
        """Whether a user has named the path, which then may be a link, and of any owner."""
        self.model = EnergyModel() if model is None else model
        self.wants = SinkWants(successes=hears_successes, evidence=True)
        """An HTTP status is in the evidence, and nowhere else."""
        self._statement = self.model.statement()
        self._name = self._statement.name
        self._cpu = cpu
        self._reset()
        reset_in_child(self, TelemetrySink._reset)
        flush_at_exit(self, TelemetrySink.flush)

    def _reset(self) -> None:
        """Empties it, as for a forked child: its parent writes what it has received."""
        self._recorder = Recorder(self.pipeline_id, self._cpu)
        self._waiting: list[TelemetryRecord] = []
        self._sum = Telemetry()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_failing_now = False

    def __call__(self, event: Event) -> None:
        with self._lock:
            record = self._recorder.record_of(event)
            if record is None or not self._is_wanted(record):
                return
            self._waiting.append(with_energy(record, self.model, self._name))
            if len(self._waiting) >= _ROOM:
                self._add_up_locked()
            if self._thread is None:
                self._start_locked()

    def _is_wanted(self, record: TelemetryRecord) -> bool:
        """The successes of first attempts arrive also if only another sink wants them."""
        return record.attempt != 1 or record.outcome != "success" or wants_of(self).successes

    def _add_up_locked(self) -> None:
        records, self._waiting = self._waiting, []
        if records:
            totals = summed([total_of(record) for record in records])
            models = {self._name: self._statement}
            new = Telemetry(energy_models=models, totals=totals, records=records)
            self._sum = merged(self._sum, new, self.keep)

    def _start_locked(self) -> None:
        thread = detached_thread(self._run, "mainstay-telemetry")
        try:
            thread.start()
        except RuntimeError:  # at the interpreter's end: the last flush is still to come
            return
        self._thread = thread

    def _run(self) -> None:
        """Writes until there is nothing new; the next record starts another thread."""
        pause, idle = self._every, threading.Event()
        while True:
            idle.wait(pause)
            pause = self._every if self.flush() else min(_LONGEST, pause * 2)
            with self._lock:
                if not self._waiting and not self._sum.totals:
                    self._thread = None
                    return

    def flush(self) -> bool:
        """Adds what is new to the file; whether it is there.

        >>> import tempfile
        >>> TelemetrySink(tempfile.mkdtemp() + "/t.json", pipeline_id="etl").flush()
        True
        """
        with self._writing:
            with self._lock:
                self._add_up_locked()
                new, self._sum = self._sum, Telemetry()
            if not new.totals:
                return True
            try:
                add_to_file(self.path, new, self.keep, is_named=self.is_named)
            except Exception as error:
                with self._lock:
                    self._sum = merged(new, self._sum, self.keep)
                self._log_change(error)
                return False
            self._log_change(None)
            return True

    def _log_change(self, error: Exception | None) -> None:
        """Logs once that the file cannot be written, and once that it can again."""
        was_failing, self._is_failing_now = self._is_failing_now, error is not None
        if error is not None and not was_failing:
            text = reason_of(error)
            _log.warning("telemetry is kept in memory for now, as totals: %s", text)
        elif was_failing and error is None:
            _log.info("telemetry is written again to %s", self.path)
