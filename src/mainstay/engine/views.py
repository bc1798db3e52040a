"""What an engine consists of, to look at: inbox, operators, sinks, guards, circuits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstay.drivers.call.guard import Guard
    from mainstay.drivers.guards.breaker import CircuitBreaker
    from mainstay.drivers.guards.registry import CircuitRegistry
    from mainstay.drivers.idempotency.records import Records
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.drivers.inbox.operators import Operators
    from mainstay.ports import Sink


class EngineView:
    """The parts of an engine that other code reads."""

    records: Records
    circuits: CircuitRegistry
    _sinks: tuple[Sink, ...]
    _guards: tuple[Guard, ...]

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
