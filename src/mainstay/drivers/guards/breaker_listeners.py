"""What listens to a circuit: its changes, its calls, and which failure opened it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.circuit.breaker import CircuitState
from mainstay.core.circuit.events import CircuitCall
from mainstay.drivers.call.emit import emit
from mainstay.drivers.call.listeners import listeners_of
from mainstay.ports import wants_of
from mainstay.runtime.reports.logs import LOGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from threading import Lock
    from typing import Any, Self

    from mainstay.core.base.types import UserValue
    from mainstay.core.circuit.breaker import Circuit
    from mainstay.core.circuit.events import CircuitStateChanged
    from mainstay.ports import Sink


class JudgedResult(Exception):
    """Stands for a result that counts as a failure."""


def judged(rule: Callable[[Any], object] | None, value: UserValue) -> Exception | None:
    """What a result counts as; a rule that raises has not judged it, and is reported."""
    try:
        is_failure = rule is not None and bool(rule(value))
    except Exception as error:
        from mainstay.runtime.reports.report_failure import report

        report(error, "failure_if_result raised on a %s", type(value).__name__)
        return None
    return JudgedResult("counted by failure_if_result") if is_failure else None


class Listening:
    """The listeners of a circuit; `CircuitBreaker` has the lock, the circuit and its gates."""

    __slots__ = ("_call_listeners", "_is_notifying", "_listeners", "_opened_by", "_unsent")
    if TYPE_CHECKING:
        name: str
        _circuit: Circuit
        _lock: Lock

        def _look(self) -> None: ...

    def _begin_listening(self, listener: Sink | Iterable[Sink] | None) -> None:
        self._listeners = list(listeners_of("CircuitBreaker", listener))
        self._call_listeners: tuple[Sink, ...] = ()
        """Those that receive every call, too."""
        self._unsent: list[CircuitStateChanged] = []
        self._is_notifying = False
        """Whether a thread notifies the listeners; changed under the lock of the circuit."""
        self._opened_by: str | None = None

    def listen(self, listener: Sink, *, calls: bool = False) -> None:
        """Notifies one more listener of every change from now on.

        Args:
            listener: called with every CircuitStateChanged.
            calls: also with a CircuitCall for every call: how it ended, or that it was refused.
                While there is such a listener, each call is recorded one by one, which takes
                longer.

        >>> from mainstay import CircuitBreaker
        >>> events, breaker = [], CircuitBreaker("payments")
        >>> breaker.listen(events.append); breaker.force_open()
        >>> events[0].to_state
        'forced_open'
        >>> breaker.listen(events.append, calls=True); breaker.allow_request()
        False
        >>> events[1].outcome
        'refused'
        """
        listeners_of("CircuitBreaker", (listener,))  # refuses what nothing could call or await
        with self._lock:
            if listener not in self._listeners:
                self._listeners.append(listener)
            if calls and listener not in self._call_listeners:
                self._call_listeners = (*self._call_listeners, listener)
                self._look()

    def unlisten(self, listener: Sink) -> None:
        """Notifies a listener no more; one that does not listen is passed over.

        >>> from mainstay import CircuitBreaker
        >>> events, breaker = [], CircuitBreaker("payments")
        >>> breaker.listen(events.append); breaker.unlisten(events.append)
        >>> breaker.force_open(); events
        []
        """
        with self._lock:
            self._listeners = [each for each in self._listeners if each != listener]
            calls = tuple(each for each in self._call_listeners if each != listener)
            if calls != self._call_listeners:
                self._call_listeners = calls
                self._look()

    def send_events(self) -> None:
        """Notifies the listeners of the changes that they have not received yet.

        One thread at a time sends, so that changes arrive in their order. A thread that comes
        meanwhile, or a listener that changes the circuit, leaves its event to it; none waits.
        """
        while self._unsent and self._may_notify():
            try:
                while self._unsent:
                    self._notify(self._unsent.pop(0))
            finally:
                self._is_notifying = False

    def _may_notify(self) -> bool:
        """Whether this thread is the one that notifies from now on."""
        with self._lock:
            if self._is_notifying:
                return False
            self._is_notifying = True
            return True

    def begin_with(self, begin: Callable[[Self], object]) -> None:
        """Changes a circuit that is new; what listeners receive of that waits for `send_events`."""
        self._is_notifying = True
        try:
            begin(self)
        finally:
            self._is_notifying = False

    @property
    def _proves(self) -> bool:
        return any(wants_of(each).evidence for each in self._listeners)

    def _notify(self, event: CircuitStateChanged) -> None:
        if self._listeners:
            emit(event, tuple(self._listeners))
        else:
            emit(event, LOGS.listeners)

    def _report_call(
        self, outcome: str, failure: BaseException | None = None, seconds: float | None = None
    ) -> None:
        """Emits how a call ended, to the listeners that asked for calls."""
        listeners = self._call_listeners
        if not listeners:
            return
        kind, message = _described(failure)
        event = CircuitCall(
            operation=self.name,
            outcome=outcome,
            state=self._circuit.state.value,
            duration_seconds=seconds,
            exception_type=kind,
            exception_message=message,
        )
        emit(event, listeners)

    def _keep_cause(self, state: CircuitState, failure: BaseException | None) -> None:
        """Keeps which failure opened the circuit, as text, until it is closed."""
        if state is CircuitState.OPEN:
            described = ": ".join(part for part in _described(failure) if part)
            self._opened_by = described or None
        elif state is not CircuitState.HALF_OPEN:
            self._opened_by = None


def _described(failure: BaseException | None) -> tuple[str, str]:
    """The type and the text of a failure, without secrets."""
    from mainstay.core.events.describe import describe  # not needed until something fails

    if failure is None:
        return "", ""
    if isinstance(failure, JudgedResult):
        return "", "a result that counts as a failure"
    return describe(failure)
