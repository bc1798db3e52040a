"""Which policy an operation has: by its name, by a pattern, or the default."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from mainstay.drivers.policy import RetryPolicy
from mainstay.errors import PolicyNotFoundWarning, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STANDARD = RetryPolicy(name="standard")
"""The built-in policy: 3 attempts, 0.1 s doubled up to 5 s, plus or minus 10 %."""

_MAX_OPERATIONS = 10_000


class PolicyRegistry:
    """An engine's policies: by name, by operation, or one after the other.

    An operation finds its policy by its exact name, then by pattern in the order given, then a
    policy of the operation's own name, then the default.

    >>> from mainstay import RetryPolicy
    >>> registry = PolicyRegistry([RetryPolicy(name="fast")], {"db.*": "fast"})
    >>> registry.of("db.read").name, registry.names
    ('fast', ('standard', 'fast'))
    """

    __slots__ = ("_by_name", "_found", "_operations", "default")

    def __init__(
        self,
        policies: Iterable[RetryPolicy] = (),
        operations: Mapping[str, str] | None = None,
        default: str = "standard",
    ) -> None:
        self._by_name: dict[str, RetryPolicy] = {STANDARD.name: STANDARD}
        own: set[str] = set()
        for policy in _listed(policies):
            if policy.name in own:
                raise UsageError(f"two policies are named {policy.name!r}")
            own.add(policy.name)
            self._by_name[policy.name] = policy
        self._operations = dict(operations or {})
        for operation, name in (*self._operations.items(), ("default", default)):
            self._check_name(operation, name)
        self.default = self._by_name[default]
        self._found: dict[str, RetryPolicy] = {}

    def _check_name(self, operation: str, name: object) -> None:
        if isinstance(name, RetryPolicy):
            raise UsageError(
                f"{operation}: the name of a policy is expected, not the policy itself",
                hint=f"give {name.name!r} here, and the policy in policies=[...]",
            )
        if name not in self._by_name:
            known = ", ".join(self._by_name)
            raise UsageError(f"{operation}: no policy is named {name!r}", hint=f"known: {known}")

    def of(self, operation: str) -> RetryPolicy:
        """The policy an operation runs under.

        >>> PolicyRegistry().of("anything").name
        'standard'
        """
        found = self._found.get(operation)
        if found is None:
            if len(self._found) >= _MAX_OPERATIONS:
                self._found.clear()
            found = self._found[operation] = self._find(operation)
        return found

    def _find(self, operation: str) -> RetryPolicy:
        if not isinstance(operation, str) or not operation.strip():
            raise UsageError(f"operation = {operation!r}: must be a text that is not empty")
        name = self._operations.get(operation)
        if name is None:
            patterns = self._operations.items()
            matching = (n for pattern, n in patterns if fnmatchcase(operation, pattern))
            name = next(matching, None)
        if name is not None:
            return self._by_name[name]
        if operation not in self._by_name and self._operations:
            warnings.warn(
                f"operation {operation!r} is mapped to no policy and runs under"
                f" {self.default.name!r}",
                PolicyNotFoundWarning,
                stacklevel=6,
            )
        return self._by_name.get(operation, self.default)

    def mapped(self, operation: str) -> RetryPolicy | None:
        """The policy that an operation has by its name or a pattern; None if neither leads to one.

        >>> PolicyRegistry().mapped("anything") is None
        True
        """
        is_known = operation in self._by_name or any(
            fnmatchcase(operation, pattern) for pattern in self._operations
        )
        return self.of(operation) if is_known or operation in self._operations else None

    def __getitem__(self, name: str) -> RetryPolicy:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[RetryPolicy]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def names(self) -> tuple[str, ...]:
        """The policies' names, in the order they were given."""
        return tuple(self._by_name)

    @property
    def operations(self) -> dict[str, str]:
        """Which operations were mapped to which policy."""
        return dict(self._operations)


def _listed(policies: Iterable[RetryPolicy]) -> Iterator[RetryPolicy]:
    """The policies one by one; what is none, or no list of them, is refused."""
    hint = "give a list of them, such as policies=[RetryPolicy(name='network', max_attempts=5)]"
    if isinstance(policies, Mapping | str | RetryPolicy):
        kind = type(policies).__name__
        raise UsageError(f"policies: a list of RetryPolicy is expected, not a {kind}", hint=hint)
    for policy in policies:
        if not isinstance(policy, RetryPolicy):
            raise UsageError(f"policies: {policy!r} is no RetryPolicy", hint=hint)
        yield policy
