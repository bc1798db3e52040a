"""The governance gate: asked before each call of a stage, the first as well as every retry.

What governance blocks is not called. What the gate lets through is written down before the call
(masking, a restricted data set), so that a re-run finds it, whatever becomes of this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.functions import discard, is_awaitable
from mainstay.core.pipeline.dataset import Admit
from mainstay.core.pipeline.governance import RESTRICTED, GovernanceRules, check
from mainstay.errors import GovernanceBlocked, GovernanceViolation, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from mainstay.core.base.types import Answer
    from mainstay.core.pipeline.definition import StageDefinition
    from mainstay.drivers.pipeline.context import StageContext
    from mainstay.drivers.pipeline.records import RunRecords

    Check = Callable[[str, StageContext], Any]
    Steps = Generator[tuple[str, Admit | None], Answer, None]


class Gate:
    """What governance allows: rules that are read anew, and a check of the user's own."""

    def __init__(self, rules: Callable[[], GovernanceRules], own: Check | None = None) -> None:
        self._rules = rules
        self._own = own
        self._last = rules()
        """As they were when they were last read: what ended is described by them."""

    @property
    def council(self) -> tuple[str, ...]:
        """The operators to whom conflicts go; of rules that cannot be read, the last that could."""
        return self._last.council

    def read(self) -> GovernanceRules:
        """The rules as they are now; raises if they cannot be read."""
        self._last = self._rules()
        return self._last

    def labels(self, datasets: tuple[str, ...]) -> tuple[str, ...]:
        """The CARE labels of data sets."""
        found = [label for each in datasets for label in self._last.of(each).care_labels]
        return tuple(dict.fromkeys(found))

    def ask(self, records: RunRecords, pass_: Pass) -> None:
        """Raises what forbids the call."""
        steps = self._steps(pass_)
        asked = _next(steps, None)
        while asked is not None:
            dataset, command = asked
            if command is not None:
                answer: Answer = records.dataset(dataset, command)
            else:
                answer = self._answer(dataset, pass_)
                if is_awaitable(answer):
                    discard(answer)
                    raise UsageError("the check of governance is async", hint="use arun()")
            asked = _next(steps, answer)

    async def aask(self, records: RunRecords, pass_: Pass) -> None:
        """The same, awaited."""
        steps = self._steps(pass_)
        asked = _next(steps, None)
        while asked is not None:
            dataset, command = asked
            if command is not None:
                answer: Answer = await records.adataset(dataset, command)
            else:
                answer = self._answer(dataset, pass_)
                answer = await answer if is_awaitable(answer) else answer
            asked = _next(steps, answer)

    def _answer(self, dataset: str, pass_: Pass) -> Answer:
        assert self._own is not None
        return self._own(dataset, pass_.context)

    def _steps(self, pass_: Pass) -> Steps:
        """The rules and the user's own check for each data set, then what the store knows.

        The store comes last: it remembers what a stage was given, and a check that refuses the
        call must not leave that behind.
        """
        rules, stage = self.read(), pass_.stage
        for dataset in pass_.datasets:
            check(rules.of(dataset), dataset, stage.care_labels, stage.masking)
            if self._own is not None:
                why = yield dataset, None
                if why is not None and why is not True and why != "":
                    text = "the check of governance refused it" if why is False else str(why)
                    raise GovernanceViolation(f"{dataset}: {text}")
        for dataset in pass_.datasets:
            is_restricted = rules.of(dataset).status == RESTRICTED
            why = yield dataset, Admit(pass_.place, pass_.call, is_restricted, stage.masking)
            if why:
                pass_.is_rerun = True
                is_masking = why.startswith("it is masked")
                raise (GovernanceViolation if is_masking else GovernanceBlocked)(
                    f"{dataset}: {why}"
                )
            pass_.is_given = pass_.is_given or is_restricted


def _next(steps: Steps, answer: Answer) -> tuple[str, Admit | None] | None:
    """What is asked next, or None; a StopIteration of the user's check does not end it."""
    try:
        return steps.send(answer)
    except StopIteration:
        return None


class Pass:
    """One attempt of a stage before the gate."""

    __slots__ = ("call", "context", "datasets", "is_given", "is_rerun", "place", "stage")

    def __init__(self, stage: StageDefinition, context: StageContext, place: str) -> None:
        self.stage = stage
        self.context = context
        self.datasets: tuple[str, ...] = ()
        """Those that were declared: what a function does to its context changes none of them."""
        self.place = place
        """The pipeline and the stage."""
        self.call = ""
        """This very attempt."""
        self.is_given = False
        """Whether the stage was given a restricted data set."""
        self.is_rerun = False
        """Whether what the store knows of an earlier call forbids this one."""
