"""The shape of a pipeline: its stages and what each comes after, as text and as an order."""

from __future__ import annotations

from mainstay.errors import PolicyError, Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def shape_of(stages: Mapping[str, Iterable[str]]) -> str:
    """The text of a shape, the same for the same stages in the same order.

    >>> shape_of({"poll": [], "validate": ["poll"], "load": ["validate", "poll"]})
    'poll;validate<poll;load<poll,validate'
    """
    return ";".join(
        f"{name}<{','.join(sorted(before))}" if before else name
        for name, before in ((name, list(before)) for name, before in stages.items())
    )


def parents_of(shape: str) -> dict[str, tuple[str, ...]]:
    """The stages of such a text, each with those it comes after.

    >>> parents_of("poll;load<poll")
    {'poll': (), 'load': ('poll',)}
    """
    found = {}
    for part in shape.split(";"):
        name, _, before = part.partition("<")
        found[name] = tuple(before.split(",")) if before else ()
    return found


def ordered(subject: str, stages: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """The stages in an order in which each comes after those it needs: as declared, if possible.

    >>> ordered("etl", {"load": ["poll"], "poll": []})
    ('poll', 'load')
    >>> ordered("etl", {"a": ["b"], "b": ["a"]})
    Traceback (most recent call last):
    mainstay.errors.PolicyError: etl is not valid:
      - after = 'a, b': must be stages that do not come after each other in a circle
    """
    left = {name: set(before) for name, before in stages.items()}
    problems = [
        Problem("after", each, f"a stage of the pipeline, for stage {name}")
        for name, before in left.items()
        for each in sorted(before - left.keys())
    ]
    if problems:
        raise PolicyError(subject, problems)
    found: list[str] = []
    while left:
        name = next((each for each, before in left.items() if before <= set(found)), None)
        if name is None:
            circle = ", ".join(left)
            allowed = "stages that do not come after each other in a circle"
            raise PolicyError(subject, [Problem("after", circle, allowed)])
        found.append(name)
        del left[name]
    return tuple(found)


def changed(before: str, after: str, done: Iterable[str]) -> str:
    """Why a run of one shape cannot go on with another; empty if it can.

    Stages that are done must be there, and come after the same stages.

    >>> changed("poll;load<poll", "poll;check<poll;load<check", ["poll"])
    ''
    >>> changed("poll;load<poll", "fetch;load<fetch", ["poll"])
    'stage poll is done, and the pipeline has no such stage any more'
    """
    old, new = parents_of(before), parents_of(after)
    for name in done:
        if name not in new:
            return f"stage {name} is done, and the pipeline has no such stage any more"
        if set(old[name]) != set(new[name]):
            return f"stage {name} is done, and comes after other stages now"
    return ""
