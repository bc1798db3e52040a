"""The log of the agent document: what succeeded, is retried, or has failed permanently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.retry.events import CallSucceeded, GivenUp, RetryAttempt
from mainstay.sinks.logging import LoggingSink

if TYPE_CHECKING:
    from mainstay.core.base.event import Event


class AgentLog(LoggingSink):
    """The log in the document's words: what succeeded, is retried, or has failed permanently.

    >>> from mainstay.events import CallSucceeded
    >>> from mainstay.profiles.agents import AgentLog
    >>> AgentLog().text_of(CallSucceeded(operation="network", total_attempts=2))
    'Operation network succeeded on attempt 2'
    """

    def text_of(self, event: Event) -> str:
        """The message of an event; those that the document has no words for have their own."""
        name = event.operation
        if isinstance(event, CallSucceeded):
            return f"Operation {name} succeeded on attempt {event.total_attempts}"
        if isinstance(event, RetryAttempt):
            left = f"{event.attempt_number}/{event.max_attempts}"
            return f"Retry {left} for {name}, delay {event.delay_seconds * 1000:.0f}ms"
        if isinstance(event, GivenUp):
            return f"Operation {name} failed permanently after {event.total_attempts} attempts"
        return event.sentence()
