"""The document's RetryExecutor, on an engine with `agent/config.yml`.

Operations get a cancellation token: a `threading.Event`. What is given up becomes an item of the
inbox, in the store that `mainstay exec` uses, where `mainstay inbox` shows it.
"""

from __future__ import annotations

import threading
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mainstay.profiles.agents.files as files
import mainstay.profiles.agents.parts as parts
import mainstay.profiles.agents.tools as tools
from mainstay.core.base.functions import is_async
from mainstay.core.base.validate import Checker
from mainstay.drivers.guards.named import recorded
from mainstay.engine.engine import Engine
from mainstay.engine.registry import STANDARD
from mainstay.engine.user_store import user_engine
from mainstay.errors import CircuitOpenError, MainstayWarning
from mainstay.profiles.errors import CircuitOpenException
from mainstay.runtime.context import context
from mainstay.runtime.reports.tracebacks import leave_out
from mainstay.sinks.agent_log import AgentLog
from mainstay.sinks.logging import LoggingSink

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from typing import Self, TypeVar

    from mainstay.drivers.call.callables import Function
    from mainstay.drivers.call.result import RetryResult
    from mainstay.engine.operations import Operation
    from mainstay.profiles.agents.tools import ToolResult

    T = TypeVar("T")
    F = TypeVar("F", bound=Function)


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """How an executor is made.

    Args:
        config: the configuration; None for what is found: mainstay.yml, agent/config.yml.
        store: where circuits, keys and the inbox are, in place of the configuration's; if neither
            names one, that of `mainstay exec`.
        escalate: whether a call that is given up becomes an item of the inbox.
        seed: makes every delay reproducible.
        overrides: values before those of the file, such as "retry.policies.standard.maxAttempts=5".

    >>> RetryOptions(store="sqlite:///agent.db").escalate
    True
    """

    config: str | os.PathLike[str] | None = None
    store: str | None = None
    escalate: bool = True
    seed: int | None = None
    overrides: tuple[str, ...] = ()


class RetryExecutor:
    """Runs an agent's operations under the policy and the circuit of their type.

    Args:
        engine: runs them; by default one is made of the configuration and closed with this.
        registry: policies of your own in place of the engine's.
        circuit_breaker: circuits of your own beside the engine's.
        options: a RetryOptions, for the engine that is made.
        escalate: in place of the option's: what is given up becomes an item of the inbox.

    >>> with RetryExecutor(escalate=False) as executor:
    ...     executor.execute(lambda token: "page", "network")
    'page'
    """

    def __init__(
        self,
        engine: Engine | None = None,
        *,
        registry: parts.IPolicyRegistry | None = None,
        circuit_breaker: parts.ICircuitBreaker | None = None,
        options: RetryOptions | None = None,
        escalate: bool | None = None,
    ) -> None:
        check = Checker("RetryExecutor")
        check.instance("engine", engine, Engine)
        check.instance("registry", registry, parts.IPolicyRegistry)
        check.instance("circuit_breaker", circuit_breaker, parts.ICircuitBreaker)
        check.instance("options", options, RetryOptions)
        check.close()
        self.options = options or RetryOptions()
        self.escalate = self.options.escalate if escalate is None else escalate
        self.engine = _engine_of(self.options, self.escalate) if engine is None else engine
        self.registry, self._own_breaker, self._is_mine = registry, circuit_breaker, engine is None
        if self.escalate and "durable" not in self.engine.store.abilities:
            warnings.warn(
                f"what is given up is kept in {self.engine.store.url}, and lost with this process;"
                ' name a store (store="sqlite:///agent.db"), or give escalate=False',
                MainstayWarning, stacklevel=2,
            )  # fmt: skip

    @property
    def circuit_breaker(self) -> parts.ICircuitBreaker | None:
        """The circuits; None if none are configured.

        >>> RetryExecutor(escalate=False).circuit_breaker.is_open("network")
        False
        """
        if self._own_breaker is not None or not self.engine.circuits.is_used:
            return self._own_breaker
        return parts.CircuitBreaker(self.engine.circuits)

    def execute(
        self,
        operation: Callable[[threading.Event], T],
        operation_type: str,
        token: threading.Event | None = None,
        *,
        key: str | None = None,
    ) -> T:
        """Calls the operation with the token, and again if it fails as the policy allows.

        An async operation is awaited: `await executor.execute(...)`.

        Args:
            operation: a function of the token.
            operation_type: which policy and circuit: "network", "file", "permission".
            token: once set, no attempt begins and a wait ends at once, with CallCancelled.
            key: runs once under this key, also across restarts; later calls get its result.

        Raises:
            CircuitOpenException: the circuit of the type is open; the operation was not called.

        >>> RetryExecutor(escalate=False).execute(lambda token: token.is_set(), "file")
        False
        """
        if is_async(operation):
            return self.execute_async(operation, operation_type, token, key=key)  # type: ignore[arg-type,return-value]
        try:
            with self._under(operation_type, token) as given:
                work = self._attempt(operation, operation_type)
                return self._operation(operation_type, key).call(lambda: work(given))
        except Exception as error:
            leave_out(error)
            raise

    async def execute_async(
        self,
        operation: Callable[[threading.Event], Awaitable[T]],
        operation_type: str,
        token: threading.Event | None = None,
        *,
        key: str | None = None,
    ) -> T:
        """The same for an operation that is awaited.

        >>> import asyncio
        >>> async def fetch(token): return "page"
        >>> asyncio.run(RetryExecutor(escalate=False).execute_async(fetch, "network"))
        'page'
        """
        try:
            with self._under(operation_type, token) as given:
                work = self._attempt(operation, operation_type)
                return await self._operation(operation_type, key).acall(lambda: work(given))
        except Exception as error:
            leave_out(error)
            raise

    def run(
        self, operation: Callable[[threading.Event], T], operation_type: str,
        token: threading.Event | None = None,
    ) -> RetryResult[T]:  # fmt: skip
        """Like `execute`, but answers with a RetryResult and never raises for a failed call.

        >>> RetryExecutor(escalate=False).run(lambda token: 42, "network").attempts
        1
        """
        with self._under(operation_type, token) as given:
            work = self._attempt(operation, operation_type)
            return self._operation(operation_type, None).run(lambda: work(given))

    def run_tool(self, command: Sequence[str], **options: Any) -> ToolResult:
        """Runs a command as an operation of the engine; see `run_tool` of the door.

        >>> RetryExecutor(escalate=False).run_tool(["echo", "hello"], operation="file").attempts
        1
        """
        return tools.run_tool(command, engine=self.engine, escalate=self.escalate, **options)

    def read_file(self, path: str | os.PathLike[str]) -> bytes:
        """The bytes of a file, as an operation of the type "file".

        >>> len(RetryExecutor(escalate=False).read_file("/dev/null"))
        0
        """
        return files.read_file(path, engine=self.engine, escalate=self.escalate)

    def write_file(self, path: str | os.PathLike[str], data: bytes) -> None:
        """Writes a file whole, as an operation of the type "file".

        >>> import tempfile
        >>> RetryExecutor(escalate=False).write_file(tempfile.mkdtemp() + "/note", b"hello")
        """
        files.write_file(path, data, engine=self.engine, escalate=self.escalate)

    def close(self) -> None:
        """Closes the engine, if it was made here.

        >>> RetryExecutor(escalate=False).close()
        """
        if self._is_mine:
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _operation(self, name: str, key: str | None) -> Operation:
        policy = None if self.registry is None else self.registry.get_policy(name)
        if self._own_breaker is not None:
            policy = policy or self.engine.policies.of(name)
            refused = (*policy.never_retry_on, CircuitOpenException)
            policy = policy.replace(never_retry_on=refused)
        safe = None if key is None else "idempotent"  # as the document assumes of every retry
        return self.engine.operation(
            name, policy=policy, key=key, idempotency=safe, escalate=self.escalate
        )

    def _attempt(self, operation: F, name: str) -> F:
        own = self._own_breaker
        if own is None:
            return operation
        return recorded(operation, own, name, CircuitOpenException)  # type: ignore[return-value]

    @contextmanager
    def _under(self, name: str, given: threading.Event | None) -> Iterator[threading.Event]:
        """With a token, and the document's exception for a circuit that guards the type."""
        token = given or threading.Event()
        with context(cancel=token):
            try:
                yield token
            except CircuitOpenError as error:
                guards = {circuit.name for circuit in self.engine.circuits.of(name)}
                if isinstance(error, CircuitOpenException) or error.operation not in guards:
                    raise
                raise CircuitOpenException(name, *error.args[1:]) from error.__cause__


def _engine_of(options: RetryOptions, escalate: bool) -> Engine:
    """The engine of the configuration, or of the document's values if there is none."""

    def build(**given: Any) -> Engine:
        sinks = given.pop("sinks", (LoggingSink(),))
        own = [AgentLog(each.logger) if type(each) is LoggingSink else each for each in sinks]
        given = {"escalate": escalate, "seed": options.seed, **given, "sinks": own}
        return Engine(**({} if "policies" in given else _DOCUMENT), **given)

    return user_engine(build, options.config, store=options.store, overrides=options.overrides)


_DOCUMENT: dict[str, Any] = {
    "policies": (STANDARD, parts.AGGRESSIVE, parts.NO_RETRY), "breaker": parts.CIRCUIT_BREAKER,
    "operations": {"network": "aggressive", "file": "standard", "permission": "noRetry"},
}  # fmt: skip
"""What holds without a configuration."""
