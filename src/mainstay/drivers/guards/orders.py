"""An operator's orders to one circuit: what `CircuitBreaker` offers besides guarding calls."""

from __future__ import annotations

from mainstay.core.circuit.breaker import Signal


class Orders:
    """The orders, each a state that holds until another one."""

    __slots__ = ()

    def reset(self, reason: str = "") -> None:
        """Closes it and forgets all failures.

        >>> from mainstay import CircuitBreaker
        >>> breaker = CircuitBreaker("payments"); breaker.force_open(); breaker.reset()
        >>> breaker.state.name
        'CLOSED'
        """
        self.obey(Signal.RESET, reason)

    def force_open(self, reason: str = "") -> None:
        """Refuses every call until another order.

        >>> from mainstay import CircuitBreaker
        >>> breaker = CircuitBreaker("payments"); breaker.force_open("maintenance")
        >>> breaker.allow_request()
        False
        """
        self.obey(Signal.FORCE_OPEN, reason)

    def force_close(self, reason: str = "") -> None:
        """Lets every call through until another order.

        >>> from mainstay import CircuitBreaker
        >>> breaker = CircuitBreaker("payments"); breaker.force_close()
        >>> breaker.state.name
        'FORCED_CLOSED'
        """
        self.obey(Signal.FORCE_CLOSE, reason)

    def disable(self, reason: str = "") -> None:
        """As if it were not there, until another order.

        >>> from mainstay import CircuitBreaker
        >>> breaker = CircuitBreaker("payments"); breaker.disable()
        >>> breaker.state.name
        'DISABLED'
        """
        self.obey(Signal.DISABLE, reason)

    def observe(self, reason: str = "") -> None:
        """Counts and reports when it would open, but lets every call through.

        >>> from mainstay import CircuitBreaker
        >>> breaker = CircuitBreaker("payments"); breaker.observe()
        >>> breaker.state.name
        'METRICS_ONLY'
        """
        self.obey(Signal.OBSERVE, reason)

    def obey(self, signal: Signal, reason: str) -> None:
        """Follows an order that is given as a value, such as one that came through a store."""
        raise NotImplementedError
