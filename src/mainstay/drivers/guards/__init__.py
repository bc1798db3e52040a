"""What admits or refuses a call: circuit breakers, budgets, limits, and their shared state."""
