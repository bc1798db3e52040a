"""The type of a decorated function: its own signature, and `mainstay` beside it.

Type checkers read it; at run time a decorated function is a plain function with that attribute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, overload

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

    from mainstay.core.retry.policy import Policy
    from mainstay.core.retry.policy_fields import PolicyFields
    from mainstay.drivers.call.callables import Function
    from mainstay.drivers.call.result import RetryStatistics

    P = ParamSpec("P")
    Q = ParamSpec("Q")
    R_co = TypeVar("R_co", covariant=True)
    S = TypeVar("S")
    T = TypeVar("T")
    F = TypeVar("F", bound=Function)
    H_co = TypeVar("H_co", covariant=True)
    ClassFunction = TypeVar("ClassFunction", bound=Callable[Concatenate[type[Any], ...], Any])
    """What `@classmethod` takes: mypy binds a function to its class, and no other callable."""
else:
    from typing import ParamSpec, TypeVar

    P, R_co = ParamSpec("P"), TypeVar("R_co", covariant=True)
    H_co = TypeVar("H_co", covariant=True)


class Handle(Protocol[P, R_co]):
    """What `fetch.mainstay` is; drivers/call/wrap.py has the class."""

    @property
    def policy(self) -> Policy:
        """The policy of the function."""

    @property
    def statistics(self) -> RetryStatistics:
        """What its failing calls came to, counted from the first look on."""

    def with_policy(
        self, policy: Policy | None = None, /, **fields: Unpack[PolicyFields]
    ) -> Decorated[P, R_co]:
        """The same function under another policy, or this one with some fields changed."""


class Decorated(Protocol[P, R_co]):
    """A function that is retried, with `mainstay` beside it.

    >>> from mainstay import retry
    >>> @retry(on=OSError, attempts=5)
    ... def fetch(url: str) -> str:
    ...     return url
    >>> fetch.mainstay.policy.max_attempts
    5
    """

    __name__: str
    __qualname__: str

    @property
    def __wrapped__(self) -> Callable[P, R_co]:
        """The function without its retries."""

    @property
    def mainstay(self) -> Handle[P, R_co]:
        """Its policy, its statistics, and the function under another policy."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Calls the function, and again if it fails as the policy allows."""

    @overload
    def __get__(self, instance: None, owner: type | None = None, /) -> Decorated[P, R_co]: ...
    @overload
    def __get__(
        self: Decorated[Concatenate[S, Q], T], instance: S, owner: type | None = None, /
    ) -> Bound[Q, T, Handle[Concatenate[S, Q], T]]: ...
    def __get__(self, instance: Any, owner: type | None = None, /) -> Any:
        """As a method: the same, bound to its object."""


class Bound(Protocol[P, R_co, H_co]):
    """A method that is retried, bound to its object."""

    __name__: str
    __qualname__: str

    @property
    def __self__(self) -> object:
        """The object."""

    @property
    def __func__(self) -> Callable[..., R_co]:
        """The function."""

    @property
    def mainstay(self) -> H_co:
        """That of the function: what `with_policy` gives takes the object, too."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Calls the method, and again if it fails as the policy allows."""


class Decorator(Protocol):
    """What `retry(...)` returns: it takes a function, or a classmethod or staticmethod."""

    @overload
    def __call__(self, function: ClassFunction, /) -> ClassFunction: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Decorated[P, T]: ...
    @overload
    def __call__(self, function: F, /) -> F: ...
    def __call__(self, function: Any, /) -> Any:
        """The function, retried."""
