"""What an engine consists of: inbox, operators, sagas, sinks, guards, circuits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.engine.later import LaterParts

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from typing import Any

    from mainstay.core.inbox.items import Decision, Item
    from mainstay.core.retry.policy import Policy
    from mainstay.drivers.call.guard import Guard
    from mainstay.drivers.call.site import Entropy, Site
    from mainstay.drivers.compensation import Compensation
    from mainstay.drivers.guards.breaker import CircuitBreaker
    from mainstay.drivers.guards.shared import Sharing
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.drivers.inbox.operators import Operators
    from mainstay.drivers.pipeline.runs import PipelineRuns
    from mainstay.drivers.saga.sagas import Sagas
    from mainstay.engine.operations import Operation
    from mainstay.engine.outbox import Consumed, Outbox
    from mainstay.engine.registry import PolicyRegistry
    from mainstay.ports import Sink
    from mainstay.runtime.waits import Waits


class EngineView(LaterParts):
    """The parts of an engine that other code reads."""

    policies: PolicyRegistry
    _entropy: Entropy
    _is_closed = False
    _outbox: Outbox | None = None
    _outbox_place: str | None = None
    _guards: tuple[Guard, ...]
    _sharing: Sharing | None = None
    _waits: Waits | None = None
    _share_every: float | None
    operation: Callable[..., Operation]

    @property
    def inbox(self) -> Inbox:
        """The items that an operator must decide about.

        >>> list(Engine().inbox)
        []
        """
        return self.records.inbox

    @property
    def operators(self) -> Operators:
        """The operators of the inbox.

        >>> list(Engine().operators)
        []
        """
        return self.inbox.operators

    @property
    def sagas(self) -> Sagas:
        """The sagas: run, look at, cancel, recover.

        >>> list(Engine().sagas.open())
        []
        """
        return self._sagas

    def _make_sagas(self) -> Sagas:
        from mainstay.drivers.saga.parts import SagaParts
        from mainstay.drivers.saga.sagas import Sagas
        from mainstay.engine.saga_messages import SagaMessages

        parts = SagaParts(
            self.store, self.inbox, self.operation, self.policies.of,
            listeners=self._sinks, redact=self._redact, store_wait=self.records.store_wait,
            messages=SagaMessages(self.store, lambda: self.outbox),
        )  # fmt: skip
        return Sagas(parts)

    def compensation(
        self,
        effect: str,
        *,
        undo: Callable[..., object],
        publish: Callable[..., object] | None = None,
        key: object = None,
        on: type[BaseException] | tuple[type[BaseException], ...] = BaseException,
    ) -> Compensation:
        """A block that compensates a partial failure: `with`, or `async with`.

        Before the block a part was applied, such as a row that was inserted. If the block fails,
        the undo runs, the compensating event is published, the inbox has an item, and the original
        failure is raised: also if the undo or the publication fails, which is logged as well.
        Both have the retries of the operations `<effect>.undo` and `<effect>.compensate`. If the
        process may be killed in between, use a saga.

        Args:
            effect: the name of the operation.
            undo: undoes the part that was applied; it is given a PartialFailure if it takes an
                argument. In `async with` it may be async.
            publish: publishes the compensating event, or adds it to the outbox; the same.
            key: what the effect is about; by default the correlation id of the context.
            on: the exceptions that are compensated.

        >>> def publish(): raise ConnectionError("no broker")
        >>> engine = Engine(sinks=[])
        >>> try:
        ...     with engine.compensation("create_user", undo=lambda: print("deleted"), key="u-1"):
        ...         publish()
        ... except ConnectionError as error:
        ...     print(error, [item.kind for item in engine.inbox])
        deleted
        no broker ['partial_failure']
        """
        from mainstay.drivers.compensation import Compensation, CompensationParts

        parts = CompensationParts(self.operation, self.inbox, self._sinks, self._redact)
        return Compensation(parts, effect, undo, publish, key, on)

    @property
    def pipelines(self) -> PipelineRuns:
        """The runs of pipelines: look at them, and carry over what they ended with.

        >>> list(Engine().pipelines.all())
        []
        """
        return self._pipelines

    def _make_pipelines(self) -> PipelineRuns:
        from mainstay.engine.pipelines import runs_of

        return runs_of(self)

    def _close_views(self) -> None:
        """Closes what was made when it was first used."""
        if "_sagas" in self._made:
            self.sagas.close()
        if "_pipelines" in self._made:
            self.pipelines.close()

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """What receives the events.

        >>> Engine(sinks=[]).sinks
        ()
        """
        return self._sinks

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The budget and the other guards that may refuse, besides the circuits.

        >>> from mainstay import RetryBudget
        >>> [guard.name for guard in Engine(budget=RetryBudget("search")).guards]
        ['search']
        """
        return self._guards

    def breaker(self, name: str) -> CircuitBreaker:
        """The circuit of that name, or the narrowest that guards the operation of that name.

        >>> from mainstay import BreakerSettings
        >>> Engine(breaker=BreakerSettings()).breaker("payments").state.name
        'CLOSED'
        """
        return self.circuits[name]

    @property
    def outbox(self) -> Outbox:
        """Messages that are published if a transaction of your own commits.

        >>> import sqlite3
        >>> connection = sqlite3.connect(":memory:")
        >>> Engine().outbox.add(connection, topic="user.created.v1", payload={"id": 7}, id="8d0f")
        '8d0f'
        >>> connection.close()
        """
        found = self._outbox
        if found is None:
            from mainstay.engine.outbox import Outbox, OutboxWiring

            has_policy = OUTBOX in self.policies.operations or OUTBOX in self.policies
            wiring = OutboxWiring(
                store=self.store,
                inbox=self.inbox,
                listeners=self._sinks,
                redact=self._redact,
                entropy=self._entropy,
                policy=self.policies.of(OUTBOX) if has_policy else None,
                site=self._outbox_site,
            )
            found = self._outbox = Outbox(wiring, self._outbox_place)
        return found

    def consumed(self, connection: Any, consumer: str, message_id: str) -> Consumed:
        """Notes in the transaction of a connection that a consumer has a message.

        `with` it, or `async with` on an async connection: it yields whether this is the first time.
        If the effect is part of the same transaction, each message has it once.

        Args:
            connection: yours, to the database of the effect; as `outbox.add` takes it.
            consumer: the name of the consumer: each has every message once.
            message_id: the id of the message.

        >>> import sqlite3
        >>> connection = sqlite3.connect(":memory:")
        >>> for _ in range(2):
        ...     with connection, Engine().consumed(connection, "mailer", "8d0f") as fresh:
        ...         print(fresh)
        True
        False
        >>> connection.close()
        """
        return self.outbox.consumed(connection, consumer, message_id)

    def _start_outbox(self, place: str | None) -> None:
        """Opens the outbox if it has a database of its own."""
        self._outbox_place = place
        if place is not None:
            try:
                self._outbox = self.outbox
            except BaseException:
                self.close()
                raise

    def _settle_dead_letter(self, item: Item, decision: Decision) -> str | None:
        return self.outbox.settle(item, decision)

    def close(self) -> None:
        """Ends what is open."""
        raise NotImplementedError

    def _outbox_site(self, name: str, policy: Policy) -> Site:
        return self._site(name, "idempotent", None, policy, escalate=False)

    def _site(
        self,
        name: str,
        idempotency: str | None,
        cancel: threading.Event | None,
        policy: Policy | None = None,
        escalate: bool | None = None,
    ) -> Site:
        raise NotImplementedError


OUTBOX = "outbox"
"""The operation whose policy relays use."""
