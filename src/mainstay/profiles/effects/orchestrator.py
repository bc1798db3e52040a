"""The orchestrator: owns the retries, the circuits and the events of the effects that it calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstay.config.effects.contract import read_orchestrator_contract
from mainstay.core.base.validate import Checker
from mainstay.core.effects.contract import MOST_RETRIES, OrchestratorContract, kind_fields
from mainstay.core.effects.settings import CIRCUIT_BREAKER, by_kind
from mainstay.core.effects.taxonomy import FINAL, RETRYABLE
from mainstay.core.effects.transport import transport_of
from mainstay.drivers.effects.call import EffectCall
from mainstay.drivers.effects.single_shot import ATTRIBUTE, Effect
from mainstay.drivers.policy import RetryPolicy
from mainstay.engine.engine import Engine
from mainstay.errors import UsageError
from mainstay.profiles import errors

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from typing import Self

    from mainstay.core.effects.result import EffectResult
    from mainstay.core.effects.transport import EnumInfraTransportType
    from mainstay.drivers.compensation import Compensation
    from mainstay.engine.operations import Operation
    from mainstay.profiles.effects.models import RetryConfig


class Orchestrator:
    """Calls effects, and calls them again as its contract allows.

    Args:
        contract: the path of an orchestrator's contract.yaml, or an OrchestratorContract; None
            for the document's parameter table.
        settings: models such as DatabaseRetryConfig, one for each kind: effects of that kind have
            its delays, timeouts and statuses, and its attempts as far as the contract allows.
        engine: runs the calls, with its own circuits; by default one is made, with a circuit for
            each name of an effect that opens for 60 s after 5 failures in a row.
        log_level: the level at which a scheduled retry is logged: a name, or `logging.INFO`. A
            policy of the engine's has its own.
        options: what else an Engine takes: `store`, `sinks`, `seed`, `breaker`, `budget`.

    If the engine maps an effect's name to a policy (`operationPolicies`), that policy wins over the
    parameter table; a contract, or settings of the effect's kind, win over the mapping.

    >>> from mainstay.profiles.effects import effect
    >>> @effect(kind="http")
    ... def fetch():
    ...     return "page"
    >>> with Orchestrator() as orchestrator:
    ...     orchestrator.execute(fetch).value
    'page'
    """

    def __init__(
        self,
        contract: OrchestratorContract | str | os.PathLike[str] | None = None,
        *,
        settings: RetryConfig | Iterable[RetryConfig] = (),
        engine: Engine | None = None,
        log_level: str | int = "WARNING",
        **options: Any,
    ) -> None:
        check = Checker("Orchestrator")
        check.instance("engine", engine, Engine)
        if engine is not None and options:
            check.note("options", sorted(options), "left out: the engine that is given has its own")
        self._policies: dict[EnumInfraTransportType, RetryPolicy] = {}
        self._settings = by_kind(check, settings)
        check.close()
        if contract is not None and not isinstance(contract, OrchestratorContract):
            contract = read_orchestrator_contract(contract)
        self._has_contract, self.log_level = contract is not None, log_level
        self._most = contract.most_attempts if contract else MOST_RETRIES + 1
        self.contract = contract or OrchestratorContract()
        self.policy("http")  # refuses a wrong log_level
        self._is_mine = engine is None
        self.engine = engine or Engine(**{"breaker": CIRCUIT_BREAKER, **options})

    def policy(self, kind: str) -> RetryPolicy:
        """The policy for effects of a kind.

        >>> Orchestrator(OrchestratorContract(max_retries=3)).policy("kafka").max_attempts
        4
        """
        found = self._settings.get(transport_of(kind).value)
        fields = kind_fields(found, self.contract, self._most)
        return RetryPolicy(name=kind, log_level=self.log_level, **fields)

    def execute(self, effect: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls an effect until it succeeds or no attempt is left; returns the last EffectResult.

        The result of an async effect is awaited: `await orchestrator.execute(...)`. Events carry
        the kind of the effect as their category and, if the effect takes a `correlation_id`, that.

        Args:
            effect: a function that is decorated with `@effect`.
            args: its arguments.
            kwargs: its arguments by name.

        >>> from mainstay.profiles.effects import effect
        >>> @effect(kind="vault")
        ... def read(path):
        ...     raise LookupError(path)
        >>> Orchestrator(sinks=[]).execute(read, "shop").error
        'shop'
        """
        found = getattr(effect, ATTRIBUTE, None)
        if not isinstance(found, Effect):
            raise UsageError(
                f"{effect!r} is no effect", hint='decorate the function: @effect(kind="database")'
            )
        call = EffectCall(self._operation(found), found, kwargs, _error_of)
        return call.run_async(effect, args) if found.is_async else call.run(effect, args)

    def compensation(
        self, effect: str, *, undo: Callable[..., object], **options: Any
    ) -> Compensation:
        """A block that, if it fails, undoes what was applied before it: `with` or `async with`.

        Args:
            effect: what events, errors and metrics call it.
            undo: undoes the part that was applied.
            options: the others of `engine.compensation`: `publish`, which publishes the
                compensating event, `key` and `on`.

        >>> with Orchestrator(sinks=[]) as orchestrator:
        ...     with orchestrator.compensation("create_user", undo=lambda: print("deleted")):
        ...         print("published")
        published
        """
        return self.engine.compensation(effect, undo=undo, **options)

    def _operation(self, effect: Effect) -> Operation:
        is_given = self._has_contract or effect.kind.value in self._settings
        policy = None if is_given else self.engine.policies.mapped(effect.name)
        if policy is None and (policy := self._policies.get(effect.kind)) is None:
            policy = self._policies[effect.kind] = self.policy(effect.kind.value)
        if effect.idempotency == "unsafe":
            policy = policy.replace(max_attempts=1)
        return self.engine.operation(effect.name, policy=policy, idempotency=effect.idempotency)

    def close(self) -> None:
        """Closes the engine, if it was made here.

        >>> Orchestrator().close()
        """
        if self._is_mine:
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _error_of(result: EffectResult) -> Exception | None:
    """The error of the taxonomy that a result names."""
    if result.error_type not in (*RETRYABLE, *FINAL):
        return None
    made: Exception = getattr(errors, result.error_type)(result.error or "")
    return made
