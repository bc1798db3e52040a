"""Around a run: at its end its telemetry is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.runtime.reports.tracebacks import leave_out

if TYPE_CHECKING:
    from typing import Protocol

    class Telemetry(Protocol):
        """What a run adds its telemetry to."""

        def flush(self) -> object: ...


class Flushed:
    """A block that flushes; a failure leaves out its frame and that of what it called."""

    __slots__ = ("_telemetry",)

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception):
            leave_out(error, 2)
        self._telemetry.flush()
