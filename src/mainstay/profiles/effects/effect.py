"""`@effect`: a function that talks to infrastructure once; and the taxonomy of its failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mainstay.profiles.errors as errors
from mainstay.config.effects.contract import read_effect_contract
from mainstay.core.base.validate import Checker
from mainstay.core.effects.taxonomy import FINAL, RETRYABLE, infra_name
from mainstay.core.effects.transport import ModelInfraErrorContext, transport_of
from mainstay.core.events.describe import describe
from mainstay.core.retry.retry_after import hint_of
from mainstay.drivers.effects.single_shot import Effect, single_shot

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable
    from typing import ParamSpec, Protocol, overload

    from mainstay.core.effects.result import EffectResult
    from mainstay.core.effects.transport import EnumInfraTransportType

    P = ParamSpec("P")

    class Decorating(Protocol):
        """What `effect` returns."""

        @overload
        def __call__(
            self, function: Callable[P, Awaitable[Any]], /
        ) -> Callable[P, Awaitable[EffectResult]]: ...
        @overload
        def __call__(self, function: Callable[P, Any], /) -> Callable[P, EffectResult]: ...


def effect(
    kind: EnumInfraTransportType | str,
    *,
    name: str | None = None,
    idempotency: str = "idempotent",
    contract: str | os.PathLike[str] | None = None,
) -> Decorating:
    """Decorates a function, sync or async, that runs once and returns an EffectResult.

    It raises nothing that the function raises, other than cancellation. A retry inside it is
    refused with NestedRetryError: an `Orchestrator` retries.

    Args:
        kind: what it talks to: "database", "kafka", "http", "vault", "consul" and the others of
            EnumInfraTransportType.
        name: what events, errors and its circuit are called; by default the function's name.
            Effects on one service share a name, and so a circuit.
        idempotency: "idempotent", or "unsafe": an orchestrator makes one attempt at it.
        contract: the effect's contract.yaml; a section on retries in it is a ConfigError.

    >>> @effect(kind="database")
    ... def count(table):
    ...     return {"users": 3}[table]
    >>> count("users").value, count("orders").error_type
    (3, 'KeyError')
    """
    transport = transport_of(kind)
    check = Checker("effect")
    if name is not None:
        check.name("name", name)
    check.choice("idempotency", idempotency, ("idempotent", "unsafe"))
    check.close()
    if contract is not None:
        read_effect_contract(contract)

    def decorate(function: Any, /) -> Any:
        return single_shot(function, Effect(function, transport, name, idempotency))

    return decorate


def is_retryable(error: Exception) -> bool:
    """Whether an error of the taxonomy is worth retrying; False for every other.

    `infra_error` gives the error of the taxonomy that the exception of a client library is.

    >>> from mainstay.profiles.effects import InfraTimeoutError
    >>> is_retryable(InfraTimeoutError("no answer")), is_retryable(ValueError())
    (True, False)
    """
    return not isinstance(error, _FINAL) and isinstance(error, _RETRYABLE)


_FINAL = tuple(getattr(errors, name) for name in FINAL)
_RETRYABLE = tuple(getattr(errors, name) for name in RETRYABLE)


def infra_error(error: Exception, context: ModelInfraErrorContext | None = None) -> Exception:
    """The error of the taxonomy that an exception is, raised from it; itself if it is none.

    Args:
        error: what a client library raised.
        context: where it happened.

    >>> infra_error(ConnectionRefusedError("port 5432")).__class__.__name__
    'InfraConnectionError'
    >>> infra_error(KeyError("id"))
    KeyError('id')
    """
    if isinstance(error, errors.InfraError):
        if error.context is None:
            error.context = context
        return error
    name = infra_name(error)
    if not name:
        return error
    made: errors.InfraError = getattr(errors, name)(describe(error)[1], context=context)
    hint = hint_of(error)
    if hint is not None and hint.seconds is not None:
        made.retry_after = hint.seconds  # type: ignore[attr-defined]
    made.__cause__ = error
    return made
