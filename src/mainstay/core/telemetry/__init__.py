"""Telemetry of pipeline stages: records, and the energy model with its parameters."""
