"""Effects: one attempt at a function, which becomes a result."""
