"""One per process: clock, context, enclosing calls, plan registry; deferred events, file locks."""
