"""What a process has one of: the clock, the context, enclosing calls, file locks, failure reports."""
