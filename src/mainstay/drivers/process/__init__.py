"""Subprocesses under a policy: start, capture output, time out, end the process group."""
