"""What happened, as a list of events with questions and assertions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mainstay.core.retry.events import (
    AttemptFailed,
    CallFailed,
    CallSucceeded,
    RetryAttempt,
    RetryExhausted,
)
from mainstay.runtime.overrides import PROCESS_OVERRIDES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mainstay.core.base.event import Event


class Trace:
    """A listener that remembers; give it as `listener=` or use `record()`.

    >>> from mainstay import Backoff, retry
    >>> from mainstay.testing import scripted
    >>> trace = Trace()
    >>> fetch = retry(on=OSError, backoff=Backoff.constant(0), listener=trace)(
    ...     scripted(ConnectionError("down"), "up"))
    >>> fetch()
    'up'
    >>> trace.assert_succeeded(attempts=2)
    """

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    @property
    def names(self) -> list[str]:
        """The events' names in order.

        >>> Trace().names
        []
        """
        return [event.event_type for event in self.events]

    @property
    def delays(self) -> list[float]:
        """The delays before each retry, in order."""
        return [e.delay_seconds for e in self.events if isinstance(e, RetryAttempt)]

    @property
    def failures(self) -> list[str]:
        """The exception types of the failed attempts, in order."""
        return [e.exception_type for e in self.events if isinstance(e, AttemptFailed)]

    def of(self, event_type: str) -> list[Event]:
        """The events of one name.

        >>> Trace().of("retry_attempt")
        []
        """
        return [event for event in self.events if event.event_type == event_type]

    def assert_succeeded(self, *, attempts: int | None = None) -> None:
        """Fails unless the last call succeeded, after this number of attempts."""
        self._assert_end(CallSucceeded, attempts, "succeed")

    def assert_gave_up(self, *, attempts: int | None = None) -> None:
        """Fails unless the last call was given up, after this number of attempts."""
        self._assert_end((RetryExhausted, CallFailed), attempts, "be given up")

    def assert_delays(self, expected: Sequence[float], *, tolerance: float = 1e-9) -> None:
        """Fails unless the delays were these.

        >>> Trace().assert_delays([])
        """
        found = self.delays
        close = len(found) == len(expected) and all(
            abs(a - b) <= tolerance for a, b in zip(found, expected, strict=True)
        )
        if not close:
            raise AssertionError(f"expected delays {list(expected)}, found {found}\n{self}")

    def _assert_end(
        self, wanted: type[Event] | tuple[type[Event], ...], attempts: int | None, word: str
    ) -> None:
        last = self.events[-1] if self.events else None
        if not isinstance(last, wanted):
            raise AssertionError(f"expected the call to {word}\n{self}")  # noqa: TRY004
        made = getattr(last, "total_attempts", None)
        if attempts is not None and made != attempts:
            raise AssertionError(f"expected {attempts} attempts, found {made}\n{self}")

    def __str__(self) -> str:
        return "\n".join(f"  {e.event_type}: {e.sentence()}" for e in self.events) or "  no event"


@contextmanager
def record() -> Iterator[Trace]:
    """Records every call inside that fails at least once, decorated anywhere, in any thread.

    A first attempt that succeeds is recorded only if the function has a listener of its own: the
    happy path knows of no listeners.

    >>> from mainstay import Backoff, RetryPolicy
    >>> from mainstay.testing import scripted
    >>> with record() as trace:
    ...     RetryPolicy(retry_on=OSError, backoff=Backoff.constant(0)).call(scripted(OSError, 1))
    1
    >>> trace.names
    ['attempt_failed', 'retry_attempt', 'call_succeeded']
    """
    trace = Trace()
    PROCESS_OVERRIDES.add_listener(trace)
    try:
        yield trace
    finally:
        PROCESS_OVERRIDES.remove_listener(trace)
