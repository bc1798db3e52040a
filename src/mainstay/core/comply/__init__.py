"""Compliance of pipeline runs: rules over their telemetry, ledgers, records and audit events."""
