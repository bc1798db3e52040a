"""What a process has one of: clock, context, enclosing calls, file locks, failure reports."""
