"""Telemetry of pipeline stages, measured and written to a file."""

from mainstay.sinks.telemetry.sink import TelemetrySink

__all__ = ["TelemetrySink"]
