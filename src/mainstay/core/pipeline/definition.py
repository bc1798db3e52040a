"""A stage of a pipeline: what is called, after which others, and how safe repeating it is."""

from __future__ import annotations

import re

from mainstay.core.base.functions import is_async
from mainstay.core.base.validate import Checker
from mainstay.core.base.value import Value
from mainstay.core.pipeline.rules import check_idempotency, check_policy
from mainstay.core.pipeline.shape import ordered, shape_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeAlias

    from mainstay.core.retry.policy import Policy

    Function: TypeAlias = Callable[..., Any]
    Names: TypeAlias = "Iterable[str] | str"
    Datasets: TypeAlias = "Names | Callable[[Any], Iterable[str]]"
    Key: TypeAlias = "str | Callable[[Any], object]"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}")
NAMING = "1 to 100 letters, digits, or one of _ . : -, the first a letter, a digit or _"
KINDS = ("source", "transform", "sink")
_MOST_STAGES = 1000


class StageDefinition(Value):
    """One stage, checked; `mainstay.profiles.pipelines.Stage` has what its fields mean."""

    __slots__ = (
        "after", "care_labels", "connect", "datasets", "function", "idempotency", "idempotency_key",
        "kind", "masking", "name", "policy",
    )  # fmt: skip
    name: str
    function: Function
    after: tuple[str, ...]
    idempotency: str
    idempotency_key: Key | None
    policy: Policy
    datasets: tuple[str, ...] | Callable[[Any], Iterable[str]]
    care_labels: tuple[str, ...]
    masking: int | None
    kind: str | None
    connect: Callable[[], Any] | None

    def __init__(
        self,
        name: str,
        function: Function,
        *,
        after: Names,
        idempotency: str | None,
        idempotency_key: Key | None,
        policy: Policy,
        datasets: Datasets,
        care_labels: Names,
        masking: int | None,
        kind: str | None,
        connect: Callable[[], Any] | None,
    ) -> None:
        check = Checker(f"stage {name!r}")
        _check_name(check, "name", name)
        if not callable(function):
            check.note("function", function, "a function")
        if kind is not None:
            check.choice("kind", kind, KINDS)
        if masking is not None:
            check.count("masking", masking, 1_000_000, 0)
        befores = names_of(check, "after", after)
        labels = names_of(check, "care_labels", care_labels)
        data = datasets if callable(datasets) else names_of(check, "datasets", datasets)
        _check_kind(check, kind, befores)
        if connect is not None and idempotency != "outbox":
            check.note("connect", connect, 'None without idempotency="outbox"')
        if idempotency == "outbox" and not callable(connect):
            check.note(
                "connect", connect, 'a function that opens a connection, for an "outbox" stage'
            )
        check.close()
        has_key = idempotency_key is not None
        check_idempotency(name, idempotency, policy.max_attempts, has_key=has_key)
        check_policy(name, policy)
        self._fill(
            name=name,
            function=function,
            after=befores,
            idempotency=idempotency,
            idempotency_key=idempotency_key,
            policy=policy,
            datasets=data,
            care_labels=labels,
            masking=masking,
            kind=kind,
            connect=connect,
        )

    @property
    def is_async(self) -> bool:
        """Whether the function has to be awaited."""
        return is_async(self.function)


class PipelineDefinition(Value):
    """The stages of a pipeline, checked, in an order in which each comes after those it needs."""

    __slots__ = ("name", "shape", "stages")
    name: str
    stages: tuple[StageDefinition, ...]
    shape: str

    def __init__(self, name: str, stages: Sequence[StageDefinition]) -> None:
        check = Checker(f"pipeline {name!r}")
        _check_name(check, "pipeline_id", name)
        known = {stage.name: stage for stage in stages}
        if not 0 < len(stages) <= _MOST_STAGES:
            check.note("stages", len(stages), f"1 to {_MOST_STAGES} stages")
        for stage in stages:
            if known[stage.name] is not stage:
                check.note("stages", stage.name, "names that differ from each other")
            for each in stage.after:
                if each in known and known[each].kind == "sink":
                    check.note("after", each, f"no sink, for stage {stage.name}")
        check.close()
        befores = {stage.name: stage.after for stage in stages}
        order = ordered(f"pipeline {name!r}", befores)
        self._fill(name=name, stages=tuple(known[each] for each in order), shape=shape_of(befores))

    @property
    def is_async(self) -> bool:
        """Whether a stage has to be awaited."""
        return any(stage.is_async for stage in self.stages)

    @property
    def unsafe(self) -> tuple[str, ...]:
        """The stages that must not be begun twice."""
        return tuple(each.name for each in self.stages if each.idempotency == "unsafe")


def _check_kind(check: Checker, kind: str | None, after: tuple[str, ...]) -> None:
    if kind == "source" and after:
        check.note("after", after, "empty for a source")
    if kind in ("transform", "sink") and not after:
        check.note("after", after, f"at least one stage for a {kind}")


def _check_name(check: Checker, field: str, name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        check.note(field, name, NAMING)


def names_of(check: Checker, field: str, names: object) -> tuple[str, ...]:
    """Names given as one text or several; those of stages, if stages were given."""
    several = [names] if isinstance(names, str) or hasattr(names, "name") else names
    try:
        found = [getattr(each, "name", each) for each in several]  # type: ignore[attr-defined]
    except TypeError:
        found = [None]
    if not all(isinstance(each, str) and each for each in found):
        check.note(field, names, "names")
        return ()
    return tuple(found)
