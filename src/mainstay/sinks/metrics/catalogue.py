"""Every metric with its labels: what there is to measure.

Names and labels of the four that begin with `effect_` are those of the effects specification; the
others begin with a prefix of the user's choice. docs/monitoring/ and the table of
docs/how-to/monitoring.md are made from this.
"""

from __future__ import annotations

from msgspec import Struct

DELAYS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
STEPS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)


class Metric(Struct, frozen=True):
    """One metric: its name, its kind, its labels, and its help text.

    >>> METRICS["effect_retry_total"].labels
    ('effect_type', 'attempt', 'outcome')
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str
    bounds: tuple[float, ...] = ()
    is_read: bool = False
    """Read when it is collected, not counted when an event happens."""


def _counted(name: str, labels: str, text: str, bounds: tuple[float, ...] = ()) -> Metric:
    return Metric(name, "histogram" if bounds else "counter", tuple(labels.split()), text, bounds)


def _read(name: str, kind: str, labels: str, text: str) -> Metric:
    return Metric(name, kind, tuple(labels.split()), text, (), is_read=True)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _counted(
            "effect_retry_total",
            "effect_type attempt outcome",
            "Retries that have ended, by the number of the attempt",
        ),
        _counted(
            "effect_retry_delay_seconds",
            "effect_type",
            "Waits before a retry, as scheduled",
            DELAYS,
        ),
        _counted(
            "effect_compensation_total", "effect_type outcome", "Compensations that have ended"
        ),
        _counted(
            "effect_partial_failure_total",
            "effect_type",
            "Effects of which only a part was applied",
        ),
        _counted("mainstay_calls_total", "operation outcome", "Calls that have ended"),
        _counted(
            "mainstay_retries_total",
            "operation category kind",
            "Retries scheduled, by the kind of the failure",
        ),
        _counted(
            "mainstay_failed_attempts_total",
            "operation kind",
            "Attempts that failed, by the kind of the failure",
        ),
        _counted(
            "mainstay_budget_denied_total",
            "operation",
            "Calls given up because a retry budget was spent",
        ),
        _counted(
            "mainstay_circuit_changes_total",
            "circuit state",
            "Changes of a circuit, by the state from then on",
        ),
        _counted("mainstay_hedges_total", "operation", "Hedges started"),
        _counted("mainstay_fallbacks_total", "operation", "Calls that a fallback answered for"),
        _counted("mainstay_hook_failures_total", "operation", "Hooks that raised"),
        _counted(
            "mainstay_outbox_total",
            "result",
            "Messages of the outbox: retry, dead, replayed, discarded, lost (a lease)",
        ),
        _counted("mainstay_alerts_total", "alert state", "Alerts that fired or cleared"),
        _counted(
            "mainstay_store_seconds", "store step outcome", "What a step of the store took", STEPS
        ),
        _read(
            "mainstay_success_ratio",
            "gauge",
            "operation",
            "Share of the calls of the last minutes that succeeded",
        ),
        _read(
            "mainstay_forks_total", "counter", "", "Forks of this process through Python's hooks"
        ),
        _read(
            "mainstay_fork_refusals_total",
            "counter",
            "",
            "Uses of a SQLite file that this forked process refused",
        ),
        _read(
            "mainstay_files_replaced_total",
            "counter",
            "",
            "SQLite files, of stores and logs, that were deleted or replaced while in use",
        ),
        _read(
            "mainstay_circuit_state",
            "gauge",
            "engine circuit",
            "0 while calls go through, 1 half open, 2 while they are refused",
        ),
        _read(
            "mainstay_circuit_refused_total",
            "counter",
            "engine circuit",
            "Calls that a circuit refused",
        ),
        _read(
            "mainstay_circuit_shared_total",
            "counter",
            "engine result",
            "Probes of shared circuits by their permit: granted, denied, alone (no answer);"
            " openings and recoveries: stored within 100 ms, late",
        ),
        _read(
            "mainstay_budget_left",
            "gauge",
            "engine budget",
            "Retries or tokens that a budget has left",
        ),
        _read(
            "mainstay_budget_limit",
            "gauge",
            "engine budget",
            "Retries or tokens that a budget allows at present",
        ),
        _read(
            "mainstay_idempotency_total",
            "counter",
            "engine result",
            "Keyed calls: hit, record, not_kept (a result), conflict, lost (a lease, and the"
            " outcome), unknown, expired (a lease that ran out while the call ran)",
        ),
        _read(
            "mainstay_purged_total",
            "counter",
            "engine",
            "Expired records that this process has purged from the store",
        ),
        _read("mainstay_sink_queued", "gauge", "engine sink", "Events that wait to be delivered"),
        _read(
            "mainstay_sink_delivered_total", "counter", "engine sink", "Events that were delivered"
        ),
        _read(
            "mainstay_sink_spilled_total",
            "counter",
            "engine sink",
            "Events that were put on disk for later",
        ),
        _read("mainstay_sink_lost_total", "counter", "engine sink", "Events that were lost"),
        _read(
            "mainstay_sink_held_total",
            "counter",
            "engine sink",
            "Waits of calls for a sink that could not keep up",
        ),
        _read(
            "mainstay_outbox_age_seconds",
            "gauge",
            "engine",
            "Age of the oldest message that is not published",
        ),
    )
}
"""Every metric by its name, as it is called with the prefix `mainstay`."""
