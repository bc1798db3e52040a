"""The policy: one frozen value that defines how a call is retried.

Validation is in policy_fields.py, all problems at once; the form as plain data in
policy_codec.py.
The verbs (`call`, `attempts`, decorating) are added one floor up, in drivers/policy.py, where
something can wait and call.
"""

from __future__ import annotations

from mainstay.core.base.entropy import POWERS, SCALE, key_of, uniform
from mainstay.core.base.functions import is_async
from mainstay.core.base.validate import Checker
from mainstay.core.base.value import Value
from mainstay.core.retry.classify import Classification, Rules, classify
from mainstay.core.retry.policy_fields import (
    CHECKS,
    DEFAULTS,
    OTHER_NAMES,
    KindRule,
    nearest_field,
    own_names,
)
from mainstay.errors import PolicyError, Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Self

    from mainstay.core.base.types import Seconds, UserValue
    from mainstay.core.known.kind import Kind
    from mainstay.core.retry.backoff import Backoff, Jitter
    from mainstay.core.retry.classify import Rule
    from mainstay.core.retry.hooks import Hook

__all__ = ["KindRule", "Policy"]


class Policy(Value):
    """How a call is retried; see `mainstay.RetryPolicy` for the public face."""

    __slots__ = (
        "_explicit",
        "_is_elaborate",
        "_ramps",
        "_rules",
        "after_retry",
        "attempt_timeout",
        "backoff",
        "before_retry",
        "classify",
        "deadline",
        "jitter",
        "log_level",
        "max_attempts",
        "max_retry_after",
        "name",
        "nested",
        "never_retry_on",
        "on_exhausted",
        "per_kind",
        "respect_retry_after",
        "retry_if_result",
        "retry_on",
        "timeout_by",
        "wait_from",
    )
    name: str
    max_attempts: int
    backoff: Backoff
    jitter: Jitter
    retry_on: tuple[Rule, ...] | None
    never_retry_on: tuple[Rule, ...]
    classify: Mapping[Rule, Kind] | None
    per_kind: Mapping[Kind, KindRule] | None
    retry_if_result: Callable[[Any], object] | None
    on_exhausted: str
    wait_from: Callable[[Any], Seconds | None] | None
    attempt_timeout: float | None
    timeout_by: str
    deadline: float | None
    max_retry_after: float
    respect_retry_after: bool
    nested: str
    before_retry: Hook | None
    after_retry: Hook | None
    log_level: str
    _rules: Rules
    _explicit: tuple[str, ...]
    _is_elaborate: bool
    _ramps: Sequence[tuple[float, float, int]]

    def __init__(self, **fields: UserValue) -> None:
        check = Checker(f"{type(self).__name__} {fields.get('name', DEFAULTS['name'])!r}")
        fields = own_names(check, fields)
        for name in [each for each in fields if each not in DEFAULTS]:
            check.note(name, fields[name], f"left out; {nearest_field(name)}")
        values = {
            name: CHECKS[name](check, name, fields[name]) if name in fields else usual
            for name, usual in _USUAL.items()
        }
        check.close()
        self._fill(
            **values,
            _rules=Rules(values["retry_on"], values["never_retry_on"], values["classify"]),
            _explicit=tuple(fields),
            _is_elaborate=_is_elaborate(values),
            _ramps=_NOT_YET,
        )

    def replace(self, **fields: Any) -> Self:
        """The same policy with some fields changed.

        >>> from mainstay import RetryPolicy
        >>> RetryPolicy(name="api", max_attempts=5).replace(max_attempts=2).max_attempts
        2
        """
        changed = {OTHER_NAMES.get(name, name) for name in fields}
        kept = {name: getattr(self, name) for name in self._explicit if name not in changed}
        return type(self)(**kept, **fields)

    def __or__(self, other: Policy) -> Self:
        """`a | b`: the fields set explicitly in b win."""
        if not isinstance(other, Policy):
            return NotImplemented
        return self.replace(**{name: getattr(other, name) for name in other._explicit})

    @property
    def first_limit(self) -> float | None:
        """How long a first attempt may take."""
        timeout, deadline = self.attempt_timeout, self.deadline
        if timeout is None:
            return deadline
        return timeout if deadline is None else min(timeout, deadline)

    @property
    def is_demanding(self) -> bool:
        """Whether a call needs more than attempts and waits."""
        return self._is_elaborate or self.first_limit is not None

    def by_version(self, version: int) -> Self:
        """This policy, set to decide by that version of the rules; for one that was just made."""
        self._rules.version = version
        return self

    def classification(self, exception: BaseException) -> Classification:
        """What this policy makes of an exception: kind, reason, whether it is retried.

        >>> from mainstay import RetryPolicy
        >>> RetryPolicy(retry_on=OSError).classification(ConnectionError())
        Classification(transient, retryable, 'retry_on: OSError')
        """
        return classify(exception, self._rules)

    def delay(self, n: int, u: float, previous: float = 0.0, rule: KindRule | None = None) -> float:
        """The delay before retry n for u in [0, 1).

        >>> from mainstay import Backoff, Jitter, RetryPolicy
        >>> RetryPolicy(backoff=Backoff.constant(2.0), jitter=Jitter.full()).delay(1, u=0.5)
        1.0
        """
        if rule is None:
            if self._ramps is _NOT_YET:
                self._fill(_ramps=_first_ramps(self.backoff, self.jitter, self.max_attempts))
            backoff = self.backoff
            return self.jitter.spread(backoff.base(n), u, previous, backoff.part(n))
        backoff = rule.backoff or self.backoff
        return (rule.jitter or self.jitter).spread(backoff.base(n), u, previous, backoff.part(n))

    def delays(self, seed: int = 0) -> list[float]:
        """The exact delays that a seed gives to its first call.

        >>> from mainstay import Backoff, Jitter, RetryPolicy
        >>> RetryPolicy(max_attempts=4, backoff=Backoff.exponential(1.0),
        ...             jitter=Jitter.none()).delays(seed=7)
        [1.0, 2.0, 4.0]
        """
        key, previous, found = key_of(seed, 0), 0.0, []
        for n in range(1, self.max_attempts):
            previous = self.delay(n, uniform(key, n), previous)
            found.append(previous)
        return found

    def to_dict(self, *, defaults: bool = True) -> dict[str, Any]:
        """The policy as JSON can hold it; classes become their names.

        With `defaults=False` only what was set explicitly. A function has no text form: a policy
        that holds one is refused, and the error names the field.

        >>> from mainstay import RetryPolicy
        >>> RetryPolicy(name="api", retry_on=(ConnectionError,)).to_dict(defaults=False)
        {'name': 'api', 'retry_on': ['ConnectionError']}
        """
        from mainstay.core.retry.policy_codec import to_plain  # few programs need it

        check = Checker(f"{type(self).__name__} {self.name!r} as a dictionary")
        names = [n for n in DEFAULTS if defaults or n in self._explicit]
        plain = {name: to_plain(check, name, getattr(self, name)) for name in names}
        check.close()
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The policy of such a mapping.

        >>> from mainstay import RetryPolicy
        >>> RetryPolicy.from_dict({"name": "api", "max_attempts": 4}).max_attempts
        4
        """
        from mainstay.core.retry.policy_codec import from_plain

        if not hasattr(values, "items"):
            raise PolicyError(cls.__name__, [Problem("values", values, "a mapping of fields")])
        check = Checker(f"{cls.__name__} {values.get('name', DEFAULTS['name'])!r}")
        named = own_names(check, {str(name): value for name, value in values.items()})
        fields = {name: from_plain(check, name, value) for name, value in named.items()}
        try:
            policy = cls(**fields)
        except PolicyError as error:
            raise PolicyError(check.subject, [*check.problems, *error.problems]) from None
        check.close()
        return policy

    def __reduce__(self) -> tuple[Callable[..., Policy], tuple[type[Self], dict[str, UserValue]]]:
        return _rebuild, (type(self), {name: getattr(self, name) for name in self._explicit})


def _rebuild(cls: type[Policy], fields: dict[str, UserValue]) -> Policy:
    return cls(**fields)


_USUAL = {name: CHECKS[name](Checker("Policy"), name, value) for name, value in DEFAULTS.items()}
"""What a field is if it is not given: checked once, for all policies."""


def _is_elaborate(values: Mapping[str, UserValue]) -> bool:
    """Whether a failure always needs the flow: the user's own functions decide, or it refuses."""
    names = ("per_kind", "before_retry", "after_retry", "retry_if_result", "wait_from")
    is_special = values["backoff"].kind == "custom" or values["nested"] == "refuse"
    return is_special or any(values[name] is not None for name in names)


_RAMPS = 4
"""Most calls that are retried succeed by then; memory is not spent on the others."""
_NOT_YET: list[tuple[float, float, int]] = []
"""The ramps of a policy that no call has been retried under: of many, few ever are."""


def _first_ramps(
    backoff: Backoff, jitter: Jitter, attempts: int
) -> tuple[tuple[float, float, int], ...]:
    """The first delays as (low, step, power), so that a delay is low + step * (key * power).

    The same to the bit as low + span * uniform(key, n): scaling by a power of two is exact.
    """
    if backoff.kind == "custom" or not jitter.is_share:
        return ()  # a function of the user's is not called here
    ramps = [(jitter.ramp(backoff.base(n)), n) for n in range(1, min(attempts, _RAMPS + 1))]
    return tuple((low, span * SCALE, POWERS[n]) for (low, span), n in ramps)


def async_fields(policy: Policy) -> list[str]:
    """The fields of a policy that hold a predicate which is declared as async.

    >>> async def is_busy(error): ...
    >>> async_fields(Policy(retry_on=is_busy))
    ['retry_on']
    """
    if not policy._rules.functions and policy.retry_if_result is None:
        return []  # as of most
    names = ("retry_on", "never_retry_on", "classify") if policy._rules.functions else ()
    found = [name for name in names if any(map(is_async, getattr(policy, name) or ()))]
    if policy.retry_if_result is not None and is_async(policy.retry_if_result):
        found.append("retry_if_result")
    return found


def async_hooks(policy: Policy) -> list[str]:
    """The hooks of a policy that are declared as async.

    >>> async def log(info): ...
    >>> async_hooks(Policy(before_retry=log))
    ['before_retry']
    """
    if policy.before_retry is None and policy.after_retry is None:
        return []  # as of most
    return [name for name in ("before_retry", "after_retry") if is_async(getattr(policy, name))]
