"""The definition of a saga: its steps, in their order, and what undoes each.

    Saga("transfer", [SagaStep("debit", debit, undo_debit), SagaStep("credit", credit)])

A list or a tuple among the steps is a group: its steps run at the same time. The shape of a
definition is a short text, `debit~ > (bill~ & ship~) > charge! > notify`: `~` has a compensation,
`!` is the pivot. A record holds the shape, so that a definition that has changed since is noticed,
and so that the record can be shown where the functions are not known.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mainstay.core.base.functions import is_async
from mainstay.core.base.validate import Checker
from mainstay.core.base.value import Value
from mainstay.core.retry.plan import IDEMPOTENCY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeAlias

    from mainstay.core.base.types import Fields, Seconds
    from mainstay.core.retry.policy import Policy

    Action: TypeAlias = Callable[..., Any]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}")
_NAMING = "1 to 100 letters, digits, or one of _ . : -, the first a letter, a digit or _"
_STEP = re.compile(r"([^~!]+)(~?)(!?)")
_MOST_STEPS = 1000
KEEP = 30 * 86_400.0
"""Seconds for which the record of a saga that has ended is kept."""


class SagaStep(Value):
    """One step of a saga: an action, and what undoes it.

    An action takes nothing, or one argument: the SagaContext, with the input, the results of
    earlier steps and a key that is the same for all attempts of the step.

    Args:
        name: unique in its saga.
        action: what is done; a function or an async function.
        compensate: what undoes it, likewise; None if nothing has to be undone. It may be called for
            an action that has had no effect: if its outcome is not known.
        pivot: once this step is done, the saga only goes forward.
        policy: the RetryPolicy of the action; by default that of the operation `saga.step`. Behind
            the pivot, a patient one.
        compensate_policy: the RetryPolicy of the compensation; by default a patient one.
        idempotency: "keyed" (the default) or "idempotent": after a crash in the middle of the
            action it runs again, with the same key. "unsafe": it does not; before the pivot the
            saga is compensated, behind it a person decides.

    >>> step = SagaStep("debit", action=print, compensate=print)
    >>> step.name, step.pivot
    ('debit', False)
    """

    __slots__ = (
        "action", "compensate", "compensate_policy", "idempotency", "name", "pivot", "policy",
    )  # fmt: skip
    name: str
    action: Action
    compensate: Action | None
    pivot: bool
    policy: Policy | None
    compensate_policy: Policy | None
    idempotency: str

    def __init__(
        self,
        name: str,
        action: Action,
        compensate: Action | None = None,
        *,
        pivot: bool = False,
        policy: Policy | None = None,
        compensate_policy: Policy | None = None,
        idempotency: str = "keyed",
    ) -> None:
        check = Checker(f"SagaStep {name!r}")
        _check_name(check, "name", name)
        if not callable(action):
            check.note("action", action, "a function")
        if compensate is not None and not callable(compensate):
            check.note("compensate", compensate, "a function, or None")
        idempotency = check.choice("idempotency", idempotency, IDEMPOTENCY)
        check.close()
        self._fill(
            name=name,
            action=action,
            compensate=compensate,
            pivot=bool(pivot),
            policy=policy,
            compensate_policy=compensate_policy,
            idempotency=idempotency,
        )

    @property
    def is_async(self) -> bool:
        """Whether the action or the compensation has to be awaited.

        >>> SagaStep("debit", print).is_async
        False
        """
        return is_async(self.action) or is_async(self.compensate)


class Saga(Value):
    """Steps that are all done, or undone: a definition, which many sagas follow.

    Args:
        name: what records call it.
        steps: SagaSteps in their order; a list or a tuple of SagaSteps is a group, whose steps run
            at the same time.
        version: of the definition. If you change the steps, count it up, and register both versions
            until no saga of the old one is open.
        deadline: seconds from the beginning after which no step is begun before the pivot: the saga
            is compensated.
        lease: seconds after which a process that does not renew its lease counts as gone, and any
            other may take over.
        max_recoveries: how often in a row a saga is taken over without progress, before its step
            counts as failed.
        keep: seconds for which the record of a saga that has ended is kept; None for ever.

    >>> saga = Saga("transfer", [SagaStep("debit", print, print), SagaStep("credit", print)])
    >>> saga.shape
    'debit~ > credit'
    >>> Saga("order", [[SagaStep("bill", print), SagaStep("ship", print)]]).groups
    ((0, 1),)
    """

    __slots__ = (
        "_is_async", "deadline", "groups", "keep", "lease", "max_recoveries", "name", "shape",
        "steps", "version",
    )  # fmt: skip
    name: str
    steps: tuple[SagaStep, ...]
    groups: tuple[tuple[int, ...], ...]
    version: int
    deadline: float | None
    lease: float
    max_recoveries: int
    keep: float | None
    shape: str
    _is_async: bool

    def __init__(
        self,
        name: str,
        steps: Iterable[SagaStep | Sequence[SagaStep]],
        *,
        version: int = 1,
        deadline: Seconds | None = None,
        lease: Seconds = 30.0,
        max_recoveries: int = 10,
        keep: Seconds | None = KEEP,
    ) -> None:
        check = Checker(f"Saga {name!r}")
        _check_name(check, "name", name)
        grouped = [_group(each, check) for each in steps]
        flat = [step for group in grouped for step in group]
        _check_steps(check, grouped, flat)
        fields = {
            "version": check.count("version", version, 1_000_000_000),
            "deadline": check.optional_seconds("deadline", deadline),
            "lease": check.duration("lease", lease, 0.05, 86_400.0),
            "max_recoveries": check.count("max_recoveries", max_recoveries, 1_000_000),
            "keep": check.optional_seconds("keep", keep),
        }
        check.close()
        groups, position = list[tuple[int, ...]](), 0
        for group in grouped:
            groups.append(tuple(range(position, position + len(group))))
            position += len(group)
        shape = " > ".join(map(_shape_of, grouped))
        is_async = any(step.is_async for step in flat)
        self._fill(name=name, steps=tuple(flat), groups=tuple(groups), shape=shape, **fields)
        self._fill(_is_async=is_async)

    @property
    def is_async(self) -> bool:
        """Whether a step has to be awaited: then `arun` runs it.

        >>> Saga("transfer", [SagaStep("debit", print)]).is_async
        False
        """
        return self._is_async

    def __reduce__(self) -> Any:
        grouped = [[self.steps[number] for number in group] for group in self.groups]
        options = {
            name: getattr(self, name)
            for name in ("version", "deadline", "lease", "max_recoveries", "keep")
        }
        return _rebuilt, (self.name, grouped, options)


def _rebuilt(name: str, grouped: list[list[SagaStep]], options: Fields) -> Saga:
    return Saga(name, grouped, **options)


def _group(given: SagaStep | Sequence[SagaStep], check: Checker) -> tuple[SagaStep, ...]:
    if isinstance(given, SagaStep):
        return (given,)
    if isinstance(given, list | tuple) and given and all(isinstance(s, SagaStep) for s in given):
        return tuple(given)
    check.note("steps", given, "SagaSteps, or lists of SagaSteps that are not empty")
    return ()


def _check_name(check: Checker, field: str, name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        check.note(field, name, _NAMING)


def _check_steps(check: Checker, grouped: list[tuple[SagaStep, ...]], flat: list[SagaStep]) -> None:
    if not grouped or len(flat) > _MOST_STEPS:
        check.note("steps", len(flat), f"1 to {_MOST_STEPS} SagaSteps")
    names = [step.name for step in flat]
    for name in sorted({name for name in names if names.count(name) > 1}):
        check.note("steps", name, "a name that no other step has")
    pivots = [step.name for step in flat if step.pivot]
    if len(pivots) > 1:
        check.note("pivot", pivots, "one step at most")
    elif pivots and any(len(group) > 1 and any(s.pivot for s in group) for group in grouped):
        check.note("pivot", pivots[0], "a step that is in no group")


def _shape_of(group: tuple[SagaStep, ...]) -> str:
    shown = [f"{s.name}{'~' * (s.compensate is not None)}{'!' * s.pivot}" for s in group]
    return shown[0] if len(shown) == 1 else f"({' & '.join(shown)})"


class Outline(Value):
    """What a shape holds: the steps of a saga whose functions need not be known.

    >>> outline = outline_of("debit~ > (bill~ & ship) > charge!")
    >>> outline.names, outline.groups
    (('debit', 'bill', 'ship', 'charge'), ((0,), (1, 2), (3,)))
    >>> outline.undoable, outline.pivot
    (frozenset({0, 1}), 3)
    """

    __slots__ = ("groups", "names", "pivot", "undoable")
    names: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    undoable: frozenset[int]
    pivot: int | None

    def __init__(
        self,
        names: tuple[str, ...],
        groups: tuple[tuple[int, ...], ...],
        undoable: frozenset[int],
        pivot: int | None,
    ) -> None:
        self._fill(names=names, groups=groups, undoable=undoable, pivot=pivot)


@lru_cache(maxsize=1000)
def outline_of(shape: str) -> Outline:
    """The steps of a shape.

    >>> outline_of("debit").names
    ('debit',)
    """
    names, groups, undoable, pivot = list[str](), list[tuple[int, ...]](), set[int](), None
    for text in shape.split(" > "):
        first = len(names)
        for part in text.strip("()").split(" & "):
            name, undo, is_pivot = _STEP.fullmatch(part).groups()  # type: ignore[union-attr]
            if undo:
                undoable.add(len(names))
            if is_pivot:
                pivot = len(names)
            names.append(name)
        groups.append(tuple(range(first, len(names))))
    return Outline(tuple(names), tuple(groups), frozenset(undoable), pivot)


def difference(recorded: str, defined: str) -> str:
    """How a definition differs from the one that a saga was begun with, in one sentence.

    >>> difference("debit~ > credit", "debit~ > charge")
    "part 2 was 'credit' and is 'charge'"
    >>> difference("debit~", "debit~ > credit")
    "part 2 is new: 'credit'"
    """
    before, after = recorded.split(" > "), defined.split(" > ")
    for number, (old, new) in enumerate(zip(before, after, strict=False), 1):
        if old != new:
            return f"part {number} was {old!r} and is {new!r}"
    if len(after) > len(before):
        return f"part {len(before) + 1} is new: {after[len(before)]!r}"
    return f"part {len(after) + 1} is gone: {before[len(after)]!r}"
