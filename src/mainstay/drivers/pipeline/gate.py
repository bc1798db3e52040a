"""The governance gate: asked before each call of a stage, the first as well as every retry.

What governance blocks is not called. What the gate lets through is written down before the call
(masking, a restricted data set), so that a re-run finds it, whatever becomes of this process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.functions import is_awaitable
from mainstay.core.pipeline.dataset import Admit
from mainstay.core.pipeline.governance import RESTRICTED, GovernanceRules, check
from mainstay.errors import GovernanceBlocked, GovernanceViolation, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from mainstay.core.pipeline.definition import StageDefinition
    from mainstay.drivers.pipeline.context import StageContext
    from mainstay.drivers.pipeline.records import RunRecords

    Check = Callable[[str, StageContext], Any]
    Steps = Generator[tuple[str, Admit | None], Any, None]


class Gate:
    """What governance allows: rules that are read anew, and a check of the user's own."""

    def __init__(self, rules: Callable[[], GovernanceRules], own: Check | None = None) -> None:
        self._rules = rules
        self._own = own

    @property
    def council(self) -> tuple[str, ...]:
        """The operators to whom conflicts go."""
        return self._rules().council

    def labels(self, datasets: tuple[str, ...]) -> tuple[str, ...]:
        """The CARE labels of data sets."""
        rules = self._rules()
        return tuple(dict.fromkeys([x for each in datasets for x in rules.of(each).care_labels]))

    def ask(self, records: RunRecords, pass_: Pass) -> None:
        """Raises what forbids the call."""
        steps = self._steps(pass_)
        try:
            dataset, command = next(steps)
            while True:
                if command is not None:
                    answer: Any = records.dataset(dataset, command)
                else:
                    answer = self._answer(dataset, pass_)
                    if is_awaitable(answer):
                        raise UsageError("the check of governance is async", hint="use arun()")
                dataset, command = steps.send(answer)
        except StopIteration:
            return

    async def aask(self, records: RunRecords, pass_: Pass) -> None:
        """The same, awaited."""
        steps = self._steps(pass_)
        try:
            dataset, command = next(steps)
            while True:
                if command is not None:
                    answer: Any = await records.adataset(dataset, command)
                else:
                    answer = self._answer(dataset, pass_)
                    answer = await answer if is_awaitable(answer) else answer
                dataset, command = steps.send(answer)
        except StopIteration:
            return

    def _answer(self, dataset: str, pass_: Pass) -> Any:
        assert self._own is not None
        return self._own(dataset, pass_.context)

    def _steps(self, pass_: Pass) -> Steps:
        """Each data set in turn: the rules, what the store knows, the user's own check."""
        rules, stage = self._rules(), pass_.stage
        for dataset in pass_.context.datasets:
            rule = rules.of(dataset)
            check(rule, dataset, stage.care_labels, stage.masking)
            is_restricted = rule.status == RESTRICTED
            command = Admit(pass_.place, pass_.call, is_restricted, stage.masking)
            why = yield dataset, command
            if why:
                pass_.is_rerun = True
                is_masking = why.startswith("it is masked")
                raise (GovernanceViolation if is_masking else GovernanceBlocked)(
                    f"{dataset}: {why}"
                )
            if self._own is not None:
                why = yield dataset, None
                if why is not None and why is not True and why != "":
                    text = "the check of governance refused it" if why is False else str(why)
                    raise GovernanceViolation(f"{dataset}: {text}")


class Pass:
    """One attempt of a stage before the gate."""

    __slots__ = ("call", "context", "is_rerun", "place", "stage")

    def __init__(self, stage: StageDefinition, context: StageContext, place: str) -> None:
        self.stage = stage
        self.context = context
        self.place = place
        """The pipeline and the stage."""
        self.call = ""
        """This very attempt."""
        self.is_rerun = False
        """Whether what the store knows of an earlier call forbids this one."""
