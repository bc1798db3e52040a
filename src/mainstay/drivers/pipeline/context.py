"""What a stage is given: the run, the results before it, its key, its time, and bounded helpers."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mainstay.core.codec.outcome import Succeeded, decode_outcome
from mainstay.core.pipeline.state import NULL
from mainstay.deadline import remaining
from mainstay.errors import ResultNotKept, RetryForbidden, UsageError
from mainstay.runtime.context import carry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, TypeVar

    from mainstay.core.base.types import UserValue
    from mainstay.core.pipeline.state import RunRecord

    T = TypeVar("T")
    R = TypeVar("R")

_MOST = 1024
"""Calls at the same time that a stage may ask for."""


class StageContext:
    """What a stage is given if its function takes an argument.

    Attributes:
        pipeline_id: the pipeline.
        run_id: the run.
        stage_name: the stage.
        input: what the run was started with.
        results: what the stages before returned, by name.
        attempt: the number of this call in this process, from 1.
        idempotency_key: the same for every attempt of the stage: hand it to what you call.
        datasets: the ids of the data sets of the stage.
        connection: of an "outbox" stage: in the transaction that its record is part of.

    >>> import tempfile
    >>> from mainstay import Engine
    >>> from mainstay.profiles.pipelines import Pipeline, Stage
    >>> place = tempfile.mkdtemp()
    >>> with Engine(sinks=[]) as engine:
    ...     stage = Stage("poll", lambda ctx: (ctx.run_id, ctx.attempt), idempotency="idempotent")
    ...     pipeline = Pipeline("etl", [stage], engine=engine, ledgers=place,
    ...                         telemetry=place + "/t.json")
    ...     pipeline.run(run_id="r-1").results["poll"]
    ('r-1', 1)
    """

    def __init__(
        self,
        pipeline_id: str,
        run_id: str,
        stage_name: str,
        given: UserValue,
        results: StageResults,
    ) -> None:
        self.pipeline_id = pipeline_id
        self.run_id = run_id
        self.stage_name = stage_name
        self.input = given
        self.results: Mapping[str, Any] = results
        self.attempt = 0
        self.idempotency_key = f"{pipeline_id}/{run_id}/{stage_name}"
        self.datasets: tuple[str, ...] = ()
        self.connection: Any = None
        self._publish: Callable[..., str] | None = None
        self._widest: list[int] = []
        """The concurrency of each attempt that asked for some; of all attempts."""

    def of_attempt(self) -> StageContext:
        """The context of the next attempt: one that was given up keeps its own."""
        self.attempt += 1
        return copy(self)

    @property
    def timeout(self) -> float | None:
        """The seconds that are left of this attempt: the timeout of what it calls."""
        return remaining()

    def publish(self, topic: str, payload: UserValue, **fields: Any) -> str:
        """Adds a message to the outbox, in the transaction of an "outbox" stage; its id.

        An attempt that fails publishes nothing. The fields are those of `engine.outbox.add`.
        """
        if self._publish is None:
            raise UsageError(
                f"stage {self.stage_name} has no transaction to publish in",
                hint='declare it with idempotency="outbox" and connect=',
            )
        return self._publish(self.connection, topic=topic, payload=payload, **fields)

    def concurrency(self, wanted: int) -> int:
        """As many calls at once as this attempt asks for, if no earlier one asked for fewer.

        A retry with growing concurrency raises RetryForbidden.
        """
        if type(wanted) is not int or not 1 <= wanted <= _MOST:
            raise UsageError(f"concurrency = {wanted!r}: must be an integer from 1 to {_MOST}")
        if self._widest and wanted > self._widest[-1]:
            raise RetryForbidden(
                "growing-concurrency",
                f"attempt {self.attempt} of stage {self.stage_name} asks for {wanted} calls at"
                f" once, and an earlier one for {self._widest[-1]}",
            )
        self._widest.append(wanted)
        return wanted

    def map(
        self, function: Callable[[T], R], items: Iterable[T], *, concurrency: int = 4
    ) -> list[R]:
        """What a function returns for each item, several at once in threads, in order.

        The first failure is raised once those that have begun are over.
        """
        with ThreadPoolExecutor(self.concurrency(concurrency), "mainstay-stage") as pool:
            futures = [pool.submit(carry(function), item) for item in items]
            try:
                return [future.result() for future in futures]
            finally:
                for future in futures:
                    future.cancel()


class StageResults(Mapping[str, "UserValue"]):
    """What stages returned, decoded when it is read.

    A result that could not be kept raises ResultNotKept in a process that has resumed the run.
    """

    __slots__ = ("_only", "_record", "_values")

    def __init__(self, record: RunRecord, only: set[str] | None = None) -> None:
        self._record = record
        self._only = only
        self._values: dict[str, UserValue] = {}

    def of(self, names: set[str]) -> StageResults:
        """Those of some stages, as they are now."""
        found = StageResults(self._record, names)
        found._values = {name: each for name, each in self._values.items() if name in names}
        return found

    def add(self, name: str, value: UserValue) -> None:
        """Adds the result of a stage that this process has run."""
        self._values[name] = value

    def __getitem__(self, name: str) -> UserValue:
        if name not in self._values:
            kept = self._record.stages.get(name)
            is_other = self._only is not None and name not in self._only
            if kept is None or kept.status != "done" or is_other:
                raise KeyError(name)
            if bytes(kept.data) == bytes(NULL):
                at = datetime.fromtimestamp(kept.ended, UTC)
                raise ResultNotKept(
                    f"{self._record.pipeline}.{name}", self._record.run, at, kept.note
                )
            outcome = decode_outcome(bytes(kept.data))
            assert isinstance(outcome, Succeeded)
            self._values[name] = outcome.value
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        done = [name for name, each in self._record.stages.items() if each.status == "done"]
        found = dict.fromkeys([*done, *self._values])
        return iter([name for name in found if self._only is None or name in self._only])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"StageResults({', '.join(self)})"
