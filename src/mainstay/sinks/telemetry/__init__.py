"""Telemetry of pipeline stages: measured per call, written to a file."""

from mainstay.sinks.telemetry.sink import TelemetrySink

__all__ = ["TelemetrySink"]
