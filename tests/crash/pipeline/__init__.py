"""Pipelines killed at every write boundary."""
