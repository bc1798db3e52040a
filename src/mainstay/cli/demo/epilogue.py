"""The part of the summary that is about the acts: circuits, orders, the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.cli.demo.place import AUDIT, STORE
from mainstay.cli.screen.console import fields, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from mainstay.cli.demo.traffic import Traffic


def sections(traffic: Traffic) -> Iterator[tuple[str, RenderableType]]:
    """A title and a body for each act that was played to its end."""
    yield "When the service was down for everybody", _circuits(traffic)
    yield "One order, charged by two calls with one key", _charged(traffic)
    yield "One order that needed a person", _resolved(traffic)
    yield "The audit log of all that", _proof(traffic)


def _circuits(traffic: Traffic) -> Table:
    seen = traffic.circuits
    rows = [
        (name, " → ".join(states), str(seen.refused[name])) for name, states in seen.states.items()
    ]
    return table(("operation", "its circuit", "refused without a request"), rows, left=2)


def _charged(traffic: Traffic) -> Table:
    charged = traffic.charged
    assert charged is not None
    call, service = traffic.script.twice.call, traffic.service
    charges, requests = service.charges.get(call, 0), service.requests.get(call, 0)
    first, second = charged.receipts
    replayed = "replayed, without a request" if charged.is_replayed else "charged"
    return fields(
        [
            ("first call", first),
            ("second call", f"{second}: {replayed}"),
            ("charged", f"{times(charges)}, in {requests} requests: the first one failed"),
        ]
    )


def _resolved(traffic: Traffic) -> Table:
    found = traffic.resolved
    assert found is not None
    charges = traffic.service.charges.get(traffic.script.stuck.call, 0)
    return fields(
        [
            ("raised", found.raised),
            ("could do", ", ".join(found.actions)),
            ("decided", f"{found.decision}, by {found.by}: {found.why}"),
            ("done", found.result),
            ("called again", f"{found.receipt}; charged {times(charges)}"),
            ("still waiting", f"{found.still_open} items"),
        ]
    )


def _proof(traffic: Traffic) -> Table:
    proof = traffic.proof
    assert proof is not None
    verdict, replay = proof.verdict, proof.replay
    written = "as they were written" if verdict.ok else f"and then: {verdict.problem}"
    again = (
        "every decision comes out as recorded"
        if replay.ok
        else "one comes out otherwise: mainstay audit replay tells which"
    )
    return fields(
        [
            ("verified", f"{verdict.records:,} records, {written}; {verdict.heads} heads agree"),
            ("replayed", f"{replay.calls:,} calls, {replay.decisions:,} decisions: {again}"),
        ]
    )


def times(number: int) -> str:
    """How often, in words where there is one."""
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")


def document(traffic: Traffic) -> dict[str, object]:
    """The same for programs."""
    return {
        "circuits": _circuits_document(traffic),
        "charge": _charge_document(traffic),
        "inbox": _inbox_document(traffic),
        "audit": _audit_document(traffic),
    }


def _circuits_document(traffic: Traffic) -> dict[str, object]:
    seen = traffic.circuits
    each = {
        name: {"states": states, "refused": seen.refused[name]}
        for name, states in seen.states.items()
    }
    return {"opened": seen.opened, "recovered": seen.recovered, "operations": each}


def _charge_document(traffic: Traffic) -> dict[str, object]:
    charged, service = traffic.charged, traffic.service
    assert charged is not None
    call = traffic.script.twice.call
    return {
        "order": charged.order,
        "calls": len(charged.receipts),
        "requests": service.requests.get(call, 0),
        "charged": service.charges.get(call, 0),
        "receipts": list(charged.receipts),
        "replayed": charged.is_replayed,
    }


def _inbox_document(traffic: Traffic) -> dict[str, object]:
    found = traffic.resolved
    assert found is not None
    call = traffic.script.stuck.call
    return {
        "order": found.order,
        "raised": found.raised,
        "actions": list(found.actions),
        "decision": found.decision,
        "by": found.by,
        "result": found.result,
        "charged": traffic.service.charges.get(call, 0),
        "still_open": found.still_open,
    }


def _audit_document(traffic: Traffic) -> dict[str, object]:
    proof = traffic.proof
    assert proof is not None
    return {
        "ok": proof.ok,
        "verified_records": proof.verdict.records,
        "replayed_calls": proof.replay.calls,
        "replayed_decisions": proof.replay.decisions,
        "unfinished_calls": proof.replay.unfinished,
        "unproved": sum(proof.replay.unproved.values()),
    }


def whereabouts(traffic: Traffic) -> Table:
    """What can be looked at where the folder is kept."""
    return fields(
        [
            (f"mainstay audit tail {traffic.folder / AUDIT}", "what happened, record by record"),
            (f"mainstay audit stats {traffic.folder / AUDIT}", "the same in figures"),
            (f"mainstay inbox --store sqlite:///{traffic.folder.absolute() / STORE}", "the inbox"),
        ]
    )
