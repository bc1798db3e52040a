"""What connects a circuit with the store through which it is shared.

The circuit reports each change, under its lock: a probe that was admitted asks for a permit, one
that has ended returns it with its outcome, and a circuit that has opened or recovered is brought to
the store at once. All of that is only posted here; a background thread carries it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from mainstay.core.circuit.breaker import CircuitState, Signal, Ticket, opened_at
from mainstay.core.circuit.permits import Outcome, Verdict, begun, settlement
from mainstay.drivers.call.guard import WAIT

C_contra = TypeVar("C_contra", contravariant=True)

if TYPE_CHECKING:
    from typing import Protocol

    from mainstay.core.circuit.breaker import Circuit
    from mainstay.core.circuit.commands import Command
    from mainstay.core.circuit.permits import Answer, Settlement
    from mainstay.drivers.call.guard import GuardTicket
    from mainstay.runtime.background import Job

    class Steps(Protocol[C_contra]):
        """The steps of the store that a link posts, for a circuit of one type."""

        longest_hold: float

        def ask(self, circuit: C_contra, token: str, opened: float) -> Job: ...
        def settle(
            self, circuit: C_contra, tokens: frozenset[str], ended: Settlement, at: float
        ) -> Job: ...
        def publish(self, circuit: C_contra) -> Job: ...
        def token(self, ticket: int) -> str: ...
        def count(self, result: str) -> None: ...


_ELSEWHERE = frozenset(
    signal.value for signal in (Signal.VOTED, Signal.RECOVERED_ELSEWHERE, Signal.RELAPSED_ELSEWHERE)
)
_SHORTEST_HOLD, _SPARE = 0.02, 1.0
"""Seconds between two looks at an answer that a call could not wait for, and how long it is good
for."""


class CircuitLink(Generic[C_contra]):
    """The permits and openings of one shared circuit."""

    __slots__ = ("_circuit", "_held", "_opened", "_opening", "_permits", "_spare", "_steps")

    def __init__(self, circuit: C_contra, steps: Steps[C_contra]) -> None:
        self._circuit = circuit
        self._steps = steps
        self._opened: tuple[int, float] | None = None
        """When the open period of a half-open generation began."""
        self._held: tuple[int, float] | None = None
        """Until when that generation asks for no permit, since another node has it."""
        self.begin()

    def begin(self) -> None:
        """Without a permit or a step under way, as in a forked child: those are its parent's."""
        self._permits: dict[int, tuple[str, Job]] = {}
        """The permit that each probe has asked for, until it has ended."""
        self._spare: tuple[str, Job] | None = None
        """A permit that was asked for by a call that could not wait for the answer."""
        self._opening: Job | None = None

    # --- what the circuit reports, under its lock ---------------------------------------------

    def changed(self, before: Circuit, after: Circuit) -> None:
        """Posts what a change means for the store."""
        if after.generation != before.generation and before.state is CircuitState.OPEN:
            self._opened = after.generation, before.since
        if before.probes or after.generation != before.generation:
            ended = settlement(before, after)
            if ended is not None:
                self._settle(ended, after.since)
        for ticket in begun(before, after) if after.probes else ():
            self._permits[ticket] = self._asked(ticket, after)
        if after.generation != before.generation and after.reason not in _ELSEWHERE:
            if after.state is CircuitState.OPEN:
                self._opening = self._steps.publish(self._circuit)
            elif after.reason == Signal.RECOVERED.value:  # the other nodes close with it
                self._steps.publish(self._circuit)

    def _settle(self, ended: Settlement, at: float) -> None:
        held = [self._permits.pop(ticket, None) for ticket in ended.tickets]
        tokens = frozenset(each[0] for each in held if each is not None)
        if tokens or ended.outcome is not Outcome.RELEASED:
            self._steps.settle(self._circuit, tokens, ended, at)

    def _asked(self, ticket: int, circuit: Circuit) -> tuple[str, Job]:
        spare, self._spare = self._spare, None
        if spare is not None and spare[1].age < _SPARE:
            return spare
        token = self._steps.token(ticket) if spare is None else spare[0]
        return token, self._steps.ask(self._circuit, token, self.opened(circuit, 0.0))

    # --- what a call waits for ----------------------------------------------------------------

    def pending(self, ticket: GuardTicket) -> Job | None:
        """The permit of a probe; without a ticket, the step that brings the opening."""
        if ticket is None:
            job = self._opening
            return None if job is None or job.is_done else job
        if isinstance(ticket, Ticket) and ticket.probe in self._permits:
            return self._permits[ticket.probe][1]
        return None

    def verdict(self, ticket: Ticket, now: float) -> Command | None:
        """What the circuit does before the probe begins; None if it may begin.

        If the store has not answered in time, each process probes by itself. A call that could not
        wait so long is refused, and the answer is kept for the next one.
        """
        permit = self._permits.get(ticket.probe)
        if permit is None:
            return None
        token, job = permit
        if not job.is_done and job.age < WAIT * 0.9:
            self._permits.pop(ticket.probe, None)
            self._spare = token, job
            return self._hold(ticket, _SHORTEST_HOLD, now)
        answer: Answer | None = job.answer if job.is_done else None
        if answer is None or answer.verdict is Verdict.GRANTED:
            self._steps.count("alone" if answer is None else "granted")
            return None
        self._steps.count("denied")
        self._permits.pop(ticket.probe, None)
        if answer.verdict is Verdict.RELAPSED:
            return "relapsed_elsewhere", ticket.generation, answer.seconds, now
        if answer.verdict is Verdict.RECOVERED:
            return "recovered_elsewhere", ticket.generation, now
        seconds = min(answer.seconds, self._steps.longest_hold)
        return self._hold(ticket, max(seconds, _SHORTEST_HOLD), now)

    def _hold(self, ticket: Ticket, seconds: float, now: float) -> Command:
        self._held = ticket.generation, now + seconds
        return "withdraw", ticket

    def held(self, circuit: Circuit, now: float) -> float:
        """Seconds for which the circuit asks for no permit; 0.0 if it may."""
        if self._held is None or self._held[0] != circuit.generation:
            return 0.0
        return max(0.0, self._held[1] - now)

    def opened(self, circuit: Circuit, by: float) -> float:
        """When the open period of the circuit began, on a clock that shows `by` seconds more."""
        if self._opened is not None and self._opened[0] == circuit.generation:
            return self._opened[1] + by
        return opened_at(circuit)

    @property
    def tokens(self) -> frozenset[str]:
        """The permits that its probes hold."""
        return frozenset(token for token, _ in list(self._permits.values()))
