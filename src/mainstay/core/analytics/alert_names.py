"""What rules of alerts may name: configuration checks it without loading what evaluates rules."""

from __future__ import annotations

METRICS = (
    "retries_per_minute",
    "failure_rate",
    "exhausted_per_minute",
    "circuits_opened",
    "budget_denied",
    "lost_events",
)
GROUPS = ("operation", "retry_category", "tenant_id")
