"""What is done to a circuit, as values: so that a change can be recorded, and made again.

A command is a verb and its arguments, as plain as JSON. `apply` is the only way a driver changes a
circuit; replay calls it with what was recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mainstay.core.base.proof import RULE, Proof, stated
from mainstay.core.circuit import breaker as core
from mainstay.core.circuit.breaker import Circuit, CircuitState, Refusal, Signal, Ticket
from mainstay.core.circuit.events import CircuitStateChanged
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.circuit.window import Window
from mainstay.core.retry.past_rules import backoff_of, jitter_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.base.types import Fields

Command = tuple[Any, ...]


def apply(
    settings: BreakerSettings, circuit: Circuit, command: Command
) -> tuple[Circuit, Ticket | Refusal | None]:
    """The circuit after a command, and the answer if one was asked.

    >>> apply(BreakerSettings(), Circuit(), ("order", Signal.FORCE_OPEN, 0.0, ""))[0].state.value
    'forced_open'
    """
    verb, *arguments = command
    if verb == "admit":
        return core.admit(settings, circuit, *arguments)
    return _VERBS[verb](settings, circuit, *arguments), None


def _record(
    settings: BreakerSettings,
    circuit: Circuit,
    ticket: Ticket | None,
    now: float,
    failed: bool,
    slow: bool,
    before: int,
) -> Circuit:
    return core.record(settings, circuit, ticket, now, failed=failed, slow=slow, before=before)


def _passed(settings: BreakerSettings, circuit: Circuit, now: float, successes: int) -> Circuit:
    """Counts the time and the successes that have passed without a command."""
    if successes:
        circuit = core.record(settings, circuit, None, now, failed=False, before=successes - 1)
    return core.advance(settings, circuit, now)


def _by_hand(settings: BreakerSettings, circuit: Circuit, now: float, failed: bool) -> Circuit:
    """An outcome without a ticket: of the oldest probe, if there is one."""
    circuit = core.advance(settings, circuit, now)
    if circuit.state is CircuitState.HALF_OPEN and not circuit.probes:
        circuit, _ = core.admit(settings, circuit, now)
    oldest = circuit.probes[0][0] if circuit.probes else 0
    return core.record(settings, circuit, Ticket(circuit.generation, oldest), now, failed=failed)


def _withdraw(_settings: BreakerSettings, circuit: Circuit, ticket: Ticket) -> Circuit:
    return core.withdraw(circuit, ticket)


def _forget(_settings: BreakerSettings, circuit: Circuit) -> Circuit:
    """Frees the place of the oldest probe: its outcome does not count."""
    if not circuit.probes:
        return circuit
    return core.withdraw(circuit, Ticket(circuit.generation, circuit.probes[0][0]))


def _inherit(
    settings: BreakerSettings, mine: Circuit, other: Circuit, by: float, now: float
) -> Circuit:
    """Another's circuit from a clock that shows `by` seconds more, unless there is one already."""
    if mine.generation or mine.failures or mine.evidence.calls:
        return mine
    return core.advance(settings, core.moved_to(settings, other, -by), now)


_VERBS: dict[str, Callable[..., Circuit]] = {
    "advance": core.advance,
    "by_hand": _by_hand,
    "forget": _forget,
    "inherit": _inherit,
    "order": core.order,
    "passed": _passed,
    "record": _record,
    "recovered_elsewhere": core.recovered_elsewhere,
    "relapsed_elsewhere": core.relapsed_elsewhere,
    "vote": core.voted,
    "withdraw": _withdraw,
}
_ARGUMENTS: Fields = {
    "admit": tuple[float],
    "advance": tuple[float],
    "by_hand": tuple[float, bool],
    "inherit": tuple[Circuit, float, float],
    "order": tuple[Signal, float, str],
    "passed": tuple[float, int],
    "record": tuple[Ticket | None, float, bool, bool, int],
    "recovered_elsewhere": tuple[int, float],
    "relapsed_elsewhere": tuple[int, float, float],
    "vote": tuple[float, float],
    "withdraw": tuple[Ticket],
}


def changed(
    name: str,
    settings: BreakerSettings,
    before: Circuit,
    command: Command,
    after: Circuit,
    now: float,
    *,
    with_proof: bool = False,
) -> CircuitStateChanged:
    """The event of a change."""
    sums, weight = core.sums_of(settings, before, now), after.weight
    has_closed = weight > 0 and after.state is CircuitState.CLOSED
    return CircuitStateChanged(
        operation=name,
        from_state=before.state.value,
        to_state=after.state.value,
        reason=after.reason,
        failure_count=sums.failed or before.failures if has_closed or not weight else weight,
        success_count=weight if has_closed else before.successes,
        generation=after.generation,
        retry_after_seconds=core.retry_after(settings, after, now),
        proof=_proof(settings, before, command, now) if with_proof else msgspec.UNSET,
    )


def _proof(settings: BreakerSettings, before: Circuit, command: Command, now: float) -> Proof:
    plain: Fields = msgspec.to_builtins(before)
    rule = 1 if settings.recovery_jitter.is_share else RULE  # a share of a delay never changed
    return Proof(
        answers=[*stated(rule), now],
        settings=settings_to_plain(settings),
        before=plain,
        command=msgspec.to_builtins(list(command)),
    )


def changed_again(event: CircuitStateChanged) -> CircuitStateChanged | None:
    """The event of a recorded change, made anew from its proof; None if it has none."""
    proof = event.proved
    if proof is None or proof.settings is None or proof.command is None:
        return None
    settings = settings_from_plain(proof.settings, proof.rule)
    before = msgspec.convert(proof.before, Circuit)
    verb, *plain = proof.command
    arguments = msgspec.convert(plain, _ARGUMENTS[verb]) if plain else ()
    command = (verb, *arguments)
    after, _ = apply(settings, before, command)
    return changed(event.operation, settings, before, command, after, proof.answers[-1])


# --- settings as plain data -----------------------------------------------------------------------

_PLAIN = (
    "failure_threshold", "success_threshold", "half_open_probes", "probe_timeout", "failure_rate",
    "slow_after", "slow_rate", "min_calls", "ramp", "stable_after",
)  # fmt: skip


def settings_to_plain(settings: BreakerSettings) -> Fields:
    """What the machine goes by, as JSON holds it; which failures count is settled before.

    >>> settings_from_plain(settings_to_plain(BreakerSettings(ramp=5.0))).ramp
    5.0
    """
    window = settings.window
    return {
        **{name: getattr(settings, name) for name in _PLAIN},
        "recovery_timeout": settings.recovery_timeout.to_dict(),
        "recovery_jitter": settings.recovery_jitter.to_dict(),
        "window": None if window is None else [window.kind, window.size, window.buckets],
    }


def settings_from_plain(plain: Fields, rule: int = RULE) -> BreakerSettings:
    """The settings of such a mapping, as that version of the rules reads them."""
    window = plain["window"]
    return BreakerSettings(
        **{name: plain[name] for name in _PLAIN},
        recovery_timeout=backoff_of(plain["recovery_timeout"], rule),
        recovery_jitter=jitter_of(plain["recovery_jitter"], rule),
        window=None if window is None else Window(*window),
    )
