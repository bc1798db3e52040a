"""Processes that are killed at every write boundary, and what must hold afterwards."""
