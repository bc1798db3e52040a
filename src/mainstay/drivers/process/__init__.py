"""Subprocesses under policy: start, capture, time out, end with their whole group."""
