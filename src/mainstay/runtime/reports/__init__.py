"""What a process reports: log records, failures of its own, tracebacks, events of a call."""
