"""A stage of a pipeline: what is called, after which others, and how safe repeating it is."""

from __future__ import annotations

import re
from string import Formatter

from mainstay.core.base.functions import is_async, is_generator
from mainstay.core.base.validate import Checker
from mainstay.core.base.value import Value
from mainstay.core.pipeline.governance import MOST_MASKING
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
_STAGE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_:-]{0,99}")
NAMING = "1 to 100 letters, digits, or one of _ . : -, the first a letter, a digit or _"
_STAGE_NAMING = (
    "1 to 100 letters, digits, or one of _ : -, the first a letter, a digit or _; no dot, which"
    " separates it from its pipeline"
)
KEY_FIELDS = ("run_id", "pipeline_id", "stage")
"""What is filled in in the text of a key."""
_LONGEST = 1000
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
        _check_function(check, name, function)
        if kind is not None:
            check.choice("kind", kind, KINDS)
        if masking is not None:
            check.count("masking", masking, MOST_MASKING, 0)
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
        _check_key(check, idempotency_key)
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


def _check_function(check: Checker, name: object, function: object) -> None:
    if not isinstance(name, str) or not _STAGE.fullmatch(name):
        check.note("name", name, _STAGE_NAMING)
    if not callable(function):
        check.note("function", function, "a function")
    elif is_generator(function):
        check.note("function", function, "no generator, of which a call runs nothing")


def _check_key(check: Checker, key: object) -> None:
    """The text of a key has only fields that are filled in."""
    if key is None or callable(key):
        return
    text = key if isinstance(key, str) else "{"
    allowed = "a text with no field but " + ", ".join(f"{{{name}}}" for name in KEY_FIELDS)
    try:
        fields = [part[1] for part in Formatter().parse(text) if part[1] is not None]
    except ValueError:
        fields = [""]
    if any(field not in KEY_FIELDS for field in fields):
        check.note("idempotency_key", key, allowed)


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
    if not all(map(is_name, found)):
        check.note(field, names, f"names: texts of 1 to {_LONGEST} characters that UTF-8 has")
        return ()
    return tuple(found)


def is_name(value: object) -> bool:
    r"""Whether it is a text that every store and file can hold.

    >>> is_name("d-7"), is_name(""), is_name("a\0b"), is_name("\udc80")
    (True, False, False, False)
    """
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or "\0" in value:
        return False
    return not any("\ud800" <= each <= "\udfff" for each in value)
