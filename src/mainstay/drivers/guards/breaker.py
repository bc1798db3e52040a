"""The circuit breaker as users hold it: core/circuit/breaker.py with a clock, a lock and listeners.

The circuit is a frozen value in one attribute. A change holds the lock; a refusal only reads the
attribute. Listeners are notified after the lock is released. If the circuit is shared, its link
(drivers/guards/link.py) posts what a change means for the store; only the call that opens it, and a
probe, wait for that, for a tenth of a second at most.
"""

from __future__ import annotations

import sys
from os import getpid
from typing import TYPE_CHECKING
from weakref import ref

import mainstay.runtime.clock as clock
from mainstay.core.base.entropy import key_of
from mainstay.core.base.validate import Checker
from mainstay.core.circuit import breaker as core
from mainstay.core.circuit.breaker import Circuit, CircuitState, Refusal, Signal, Ticket
from mainstay.core.circuit.commands import apply, changed
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.circuit.snapshot import CircuitSnapshot, summary
from mainstay.core.circuit.window import begun
from mainstay.core.retry.effects import Stop
from mainstay.core.retry.policy import Policy
from mainstay.drivers.call.guard import (
    WAIT,
    Counted,
    Gate,
    Standing,
    Tally,
    label_of,
)
from mainstay.drivers.call.site import Site, getrandbits
from mainstay.drivers.call.wrap import wrap
from mainstay.drivers.guards.breaker_blocks import ALONG, Blocks, is_inside_block
from mainstay.drivers.guards.breaker_listeners import JudgedResult, Listening, judged
from mainstay.drivers.guards.orders import Orders
from mainstay.drivers.verbs import Verbs
from mainstay.errors import CircuitOpenError, UsageError
from mainstay.runtime.fork import PROCESS, make_lock, reset_in_child
from mainstay.runtime.reports.logs import LOGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar, Unpack

    from mainstay.core.base.types import UserValue
    from mainstay.core.circuit.commands import Command
    from mainstay.core.circuit.settings import BreakerFields
    from mainstay.drivers.call.callables import Function
    from mainstay.drivers.call.guard import GuardTicket, Witness
    from mainstay.drivers.guards.breaker_blocks import OpenBlocks
    from mainstay.drivers.guards.link import CircuitLink
    from mainstay.ports import Sink
    from mainstay.runtime.background import Job

    F = TypeVar("F", bound=Function)

_ONCE = Policy(name="once", max_attempts=1)
_OPEN = CircuitState.OPEN
_USUAL = BreakerSettings()
"""What circuits have that are given nothing else: frozen, so that they share it."""
now = clock.current.monotonic
clock.follow(globals())  # which keeps `now` up to date


class CircuitBreaker(Blocks, Listening, Orders, Verbs):
    """Stops calling what keeps failing, and finds out when it is well again.

    One object serves threads, asyncio and trio at once: as a decorator, as a context manager, in
    `retry(breaker=...)`, or by hand. While it is closed and nothing fails, it takes no lock.

    Args:
        name: what errors, events and reports call it.
        settings: when it opens and closes; or give the fields of BreakerSettings one by one.
        listener: called with every CircuitStateChanged; several as a list. Without one, changes are
            logged at INFO.
        seed: makes the jitter of open times reproducible.

    >>> breaker = CircuitBreaker("payments", failure_threshold=1, recovery_timeout=30.0)
    >>> @breaker
    ... def pay():
    ...     raise ConnectionError("down")
    >>> try:
    ...     pay()
    ... except ConnectionError:
    ...     breaker.state
    <CircuitState.OPEN: 'open'>
    """

    layer = "breaker"
    _fork_locks = ("_lock",)
    _refusal_type: type[CircuitOpenError] = CircuitOpenError
    """What a call is refused with; a front door may have a class of its own."""
    __slots__ = (
        "__weakref__", "_blocks", "_circuit", "_counted", "_failing", "_gates", "_link", "_lock",
        "_refusals", "_refused", "_site", "judges_results", "name", "rule", "settings",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        settings: BreakerSettings | None = None,
        *,
        listener: Sink | Iterable[Sink] | None = None,
        seed: int | None = None,
        **fields: Unpack[BreakerFields],
    ) -> None:
        check = Checker("CircuitBreaker")
        self.name = check.name("name", name)
        check.close()
        if settings is not None and not isinstance(settings, BreakerSettings):
            raise UsageError(f"settings = {settings!r} is no BreakerSettings")
        if settings is not None and fields:
            raise UsageError("give settings or their fields, not both", hint="settings.replace()")
        self.settings = settings or (BreakerSettings(**fields) if fields else _USUAL)
        self.rule: BreakerSettings = self.settings
        self._lock = make_lock(is_owned=True)
        key = getrandbits(52) | 1 if seed is None else key_of(seed, 0)
        now = clock.current.monotonic()
        evidence = begun(self.settings.window, now)
        self._circuit = Circuit(since=now, evidence=evidence, key=key)
        self._failing = False
        self._gates: list[ref[Gate]] = []
        self._counted = Counted()
        self._refusals = Tally()
        self._refused = self._refusals.count
        self._begin_listening(listener)
        self.judges_results = self.settings.failure_if_result is not None
        self._site: Site = None  # type: ignore[assignment]  # made when it is needed
        self._blocks: OpenBlocks = {}
        self._link: CircuitLink[CircuitBreaker] | None = None
        reset_in_child(self, CircuitBreaker._begin_in_child)

    def _begin_in_child(self) -> None:
        """Without the probes of its parent's calls, which end there and are recorded there."""
        self._unsent.clear()
        self._is_notifying = False
        if self._link is not None:
            self._link.begin()
        generation = self._circuit.generation
        for number, _ in self._circuit.probes:
            self.withdrawn(Ticket(generation, number), 0.0)

    # --- looking ---------------------------------------------------------------------------------

    @property
    def state(self) -> CircuitState:
        """The present state; an open circuit whose time is over is half open.

        >>> CircuitBreaker("payments").state.name
        'CLOSED'
        """
        return self._now().state

    @property
    def retry_after(self) -> float | None:
        """Seconds until asking again may help; None if only an operator can close it.

        >>> CircuitBreaker("payments").retry_after
        0.0
        """
        circuit = self._now()
        return core.retry_after(self.settings, circuit, clock.current.monotonic())

    def snapshot(self) -> CircuitSnapshot:
        """Everything there is to know about it, as a value.

        >>> CircuitBreaker("payments").snapshot().failure_count
        0
        """
        circuit, _ = self._change(lambda _, now: ("passed", now, self._take_counted()))
        now = clock.current.monotonic()
        return summary(self.name, self.settings, circuit, now, self._refusals.total())

    def _now(self) -> Circuit:
        """The circuit with the time that has passed counted in."""
        return self._change(lambda _, now: ("advance", now))[0]

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self.name!r} {self._circuit.state.value}>"

    # --- by hand ---------------------------------------------------------------------------------

    def allow_request(self) -> bool:
        """Whether a call may be made now; where it is a probe, its place is taken.

        >>> CircuitBreaker("payments").allow_request()
        True
        """
        answer: Ticket | Refusal | CircuitOpenError = self._admit(clock.current.monotonic())
        if not isinstance(answer, Ticket):
            self._report_call("refused")
        if self._link is None or not isinstance(answer, Ticket):
            return isinstance(answer, Ticket)
        if (job := self._link.pending(answer)) is not None:
            job.wait(WAIT)
            answer = self.confirm(answer, False, clock.current.monotonic())
        return isinstance(answer, Ticket)

    def record_success(self) -> None:
        """A call that was allowed has succeeded.

        >>> CircuitBreaker("payments").record_success()
        """
        self._record_by_hand(failed=False)

    def record_failure(self, failure: BaseException | None = None) -> None:
        """A call that was allowed has failed; an exception that does not count is not counted.

        >>> breaker = CircuitBreaker("payments", failure_threshold=1)
        >>> breaker.record_failure(); breaker.state.name
        'OPEN'
        """
        if failure is None or self.settings.counts(failure):
            self._record_by_hand(failed=True, failure=failure)
        else:
            self._change(lambda *_: ("forget",))
            self._report_call("ignored", failure)

    def _record_by_hand(self, *, failed: bool, failure: BaseException | None = None) -> None:
        self._change(lambda _, now: ("by_hand", now, failed), failure=failure)
        self._report_call("failed" if failed else "succeeded", failure)
        if (job := self.pending(None)) is not None:
            job.wait(WAIT)

    def __call__(self, function: F) -> F:
        """Decorates a function, sync or async: each call is recorded, or refused."""
        decorated: F = wrap(function, self._new_site())
        return decorated

    @property
    def _verb_site(self) -> Site:
        if self._site is None:
            self._site = self._new_site()
        return self._site

    def _new_site(self) -> Site:
        return Site(_ONCE, gate=Gate((self,)), logs=LOGS)

    def obey(self, signal: Signal, reason: str) -> None:
        """Follows an order that is given as a value, such as one that came through a store."""
        if reason:
            from mainstay.core.redact.redactor import REDACTOR

            reason = REDACTOR.text(reason)
        self._change(lambda _, now: ("order", signal, now, reason))

    # --- shared through a store -------------------------------------------------------------------

    def share(self, link: CircuitLink[CircuitBreaker]) -> None:
        """Lets a link bring to the store what changes from now on."""
        with self._lock:
            self._link = link
            self._look()

    @property
    def link(self) -> CircuitLink[CircuitBreaker] | None:
        """What brings its changes to a store, if it is shared."""
        return self._link

    def exported(self, by: float) -> Circuit:
        """The circuit as it is now, on a clock that shows `by` seconds more."""
        return core.moved_to(self.settings, self._now(), by)

    def inherit(self, circuit: Circuit, by: float) -> bool:
        """Takes over a circuit from a clock that shows `by` seconds more, unless it has its own.

        It has done so if it has the key of the other one.
        """
        after, _ = self._change(lambda _, now: ("inherit", circuit, by, now), is_own=False)
        return after.key == circuit.key

    def vote_open(self, seconds: float) -> None:
        """Opens for so long because most nodes have it open; probes then find out for this one."""
        self._change(lambda _, now: ("vote", seconds, now))

    def recover(self, generation: int) -> None:
        """Closes because another node's probe succeeded, if it is still in that generation."""
        self._change(lambda _, now: ("recovered_elsewhere", generation, now))

    def pending(self, ticket: GuardTicket) -> Job | None:
        """The permit that a probe has asked for; without a ticket, the step of an opening."""
        return None if self._link is None else self._link.pending(ticket)

    def confirm(
        self, ticket: GuardTicket, is_retry: bool, now: float, witness: Witness | None = None
    ) -> Ticket | CircuitOpenError:
        """The ticket of a probe, if there is a permit for it or no answer; else it is refused.

        If the other nodes know by now how the probe ended, the circuit follows them.
        """
        assert isinstance(ticket, Ticket)
        command = None if self._link is None else self._link.verdict(ticket, now)
        if command is None:
            return ticket
        self._change(lambda *_: command)
        return self.enter(is_retry, now, witness)

    # --- as a guard ------------------------------------------------------------------------------

    def attach(self, gate: Gate) -> None:
        """Guards one more site."""
        with self._lock:
            self._gates = [known for known in self._gates if known() is not None]
            self._gates.append(ref(gate))
            if self.settings.window is not None:
                self._counted.add(gate.tally)
        if self.settings.slow_after is not None:
            gate.time_calls(self.settings.slow_after)

    @property
    def is_failing(self) -> bool:
        """Whether calls must be announced: some may be refused, or a success matters."""
        return self._failing or bool(self._call_listeners)

    def standing(self) -> Standing:
        """Calls that are not announced belong to the present generation."""
        circuit = self._circuit
        is_open = circuit.state in (CircuitState.OPEN, CircuitState.FORCED_OPEN)
        refuse = self._refusal if is_open and not self._call_listeners else None
        waits = self._link is not None and (is_open or circuit.state is CircuitState.HALF_OPEN)
        ticket = Ticket(circuit.generation)
        return Standing(ticket, is_failing=self.is_failing, refuse=refuse, waits=waits)

    def _refusal(self) -> CircuitOpenError | None:
        """The error for a call if it is certainly open, without a lock; None if it may not be."""
        circuit = self._circuit
        if circuit.state is _OPEN:
            wait = circuit.since + circuit.open_seconds - (moment := now())
            if wait > 0.0 and moment >= circuit.since:
                self._refused()
                return self._refusal_type(self.name, _OPEN, wait, self._opened_by)
        elif circuit.state is CircuitState.FORCED_OPEN:
            self._refused()
            return self._refusal_type(self.name, circuit.state, None)
        return None

    def enter(
        self, is_retry: bool, now: float, witness: Witness | None = None
    ) -> Ticket | CircuitOpenError:
        """A ticket for an attempt that starts now, or the error it is refused with.

        A refusal is decided on the circuit as it was.
        """
        seen: list[Circuit] | None = None if witness is None else []
        answer = self._admit(now, seen)
        if isinstance(answer, Ticket):
            return answer
        if self._blocks and is_inside_block(self._blocks, sys._getframe(1)):
            return ALONG
        if witness is not None and seen:
            witness(label_of(self), [seen[0], now], answer.retry_after)
        if self._call_listeners:
            self._report_call("refused")
        state, wait = self._circuit.state, answer.retry_after
        return self._refusal_type(self.name, state, wait, self._opened_by)

    def _admit(self, now: float, seen: list[Circuit] | None = None) -> Ticket | Refusal:
        """Whether a call may be made; the circuit that this was decided on is put into `seen`."""
        if self._link is not None and (wait := self._link.held(self._circuit, now)) > 0.0:
            self._refused()
            return Refusal(wait)

        def step(circuit: Circuit, _: float) -> Command:
            if seen is not None:
                seen.append(circuit)
            return "admit", now

        _, answer = self._change(step)
        assert answer is not None
        if isinstance(answer, Refusal):
            self._refused()
        return answer

    def _take_counted(self) -> int:
        """The calls that its gates have counted since the last time, if it counts calls."""
        return 0 if self.settings.window is None else self._counted.take()

    def left(
        self, ticket: GuardTicket, failure: BaseException | None, seconds: float, now: float
    ) -> None:
        """Counts how an attempt has ended, if that is evidence for or against the other side."""
        if failure is not None and not self._counts(failure):
            if ticket is not None:
                self.withdrawn(ticket, now)
            if self._call_listeners and ticket is not ALONG:
                self._report_call("ignored", failure, seconds)
            return
        slow_after = self.settings.slow_after
        slow = slow_after is not None and seconds >= slow_after
        mine = ticket if isinstance(ticket, Ticket) else None

        def step(circuit: Circuit, _: float) -> Command:
            is_late = mine is not None and mine.generation != circuit.generation
            before = 0 if is_late else self._take_counted()
            return "record", mine, now, failure is not None, slow, before

        self._change(step, failure=failure)
        if self._call_listeners and ticket is not ALONG:
            self._report_call("succeeded" if failure is None else "failed", failure, seconds)

    def judge(self, value: UserValue) -> Exception | None:
        """The failure that a result counts as, by the settings; None if it is a success."""
        return judged(self.settings.failure_if_result, value)

    def _counts(self, failure: BaseException) -> bool:
        return isinstance(failure, JudgedResult) or self.settings.counts(failure)

    def withdrawn(self, ticket: GuardTicket, now: float) -> None:
        """Frees the place of an attempt that was not made, or cut off."""
        if isinstance(ticket, Ticket):
            self._change(lambda *_: ("withdraw", ticket))

    def consider(
        self,
        _failure: BaseException | None,
        delay: float,
        now: float,
        witness: Witness | None = None,
    ) -> float | Stop:
        """No call waits towards a circuit that will still be open then."""
        circuit = self._circuit
        allowed = core.is_worth_waiting(self.settings, circuit, delay, now)
        if witness is not None:
            witness(label_of(self), [circuit, now, delay], allowed)
        return delay if allowed else self._stop()

    def _stop(self) -> Stop:
        """Why a call is given up; made where it is needed, since few circuits ever are open."""
        return Stop(f"circuit {self.name!r} is open")

    # --- changing --------------------------------------------------------------------------------

    def _change(
        self,
        step: Callable[[Circuit, float], Command],
        *,
        is_own: bool = True,
        failure: BaseException | None = None,
    ) -> tuple[Circuit, Ticket | Refusal | None]:
        """The one place where it is changed; then gates, link and listeners are notified."""
        now = clock.current.monotonic()
        if self._link is not None and PROCESS.number != getpid():
            PROCESS.notice()  # not under the lock
        with self._lock:
            before = self._circuit
            command = step(before, now)
            after, answer = apply(self.settings, before, command)
            self._circuit = after
            if self._link is not None and is_own and after is not before:
                self._link.changed(before, after)
            failing = _is_failing(self.settings, after, now)
            is_news, self._failing = failing is not self._failing, failing
            if is_news or after.generation != before.generation:
                self._look()
            if after.generation != before.generation:
                self._counted.take()  # what was counted until now speaks of the state before
                event = changed(
                    self.name, self.settings, before, command, after, now, with_proof=self._proves
                )
                self._unsent.append(event)
        if after.generation != before.generation:
            self._keep_cause(after.state, failure)
        if self._unsent:
            self.send_events()
        return after, answer

    def _look(self) -> None:
        """Has its gates ask again; the lock is held."""
        for known in self._gates:
            gate = known()
            if gate is not None:
                gate.look()


def _is_failing(settings: BreakerSettings, circuit: Circuit, now: float) -> bool:
    """Whether calls must be announced: they may be refused, or a success changes something."""
    if circuit.state in (CircuitState.CLOSED, CircuitState.METRICS_ONLY):
        if settings.window is None:
            return circuit.failures > 0 or core.is_ramping(settings, circuit, now)
        pending = core.awaits_success(settings, circuit, now)
        return pending or core.is_ramping(settings, circuit, now)
    return circuit.state not in (CircuitState.FORCED_CLOSED, CircuitState.DISABLED)
