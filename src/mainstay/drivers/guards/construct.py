"""Builds a guard from the arguments of its rule, so that these are declared and checked once.

The rule in core/limits declares the fields, their defaults and what is allowed; the guard takes the
same arguments, for people and for type checkers, and gets the rule.
"""

from __future__ import annotations

from functools import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Concatenate, ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")
    S = TypeVar("S")


def built_from(
    rule: Callable[P, R], *own: str
) -> Callable[[Callable[Concatenate[S, R, ...], None]], Callable[Concatenate[S, P], None]]:
    """Decorates the `__init__` of a guard that is called with the arguments of a rule.

    Args:
        rule: the rule's class; what it refuses, the guard refuses.
        own: keyword arguments that the rule only checks, and that the guard gets too.

    >>> class Rule:
    ...     def __init__(self, name, *, ratio=0.2):
    ...         self.name, self.ratio = name, ratio
    >>> class Budget:
    ...     @built_from(Rule)
    ...     def __init__(self, rule):
    ...         self.rule = rule
    >>> Budget("search").rule.ratio
    0.2
    """

    def decorate(
        begin: Callable[Concatenate[S, R, ...], None],
    ) -> Callable[Concatenate[S, P], None]:
        @wraps(begin)
        def built(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            begin(self, rule(*args, **kwargs), **{name: kwargs.get(name) for name in own})

        vars(built)["__wrapped__"] = vars(rule)["__init__"]  # whose signature inspect shows
        return built

    return decorate
