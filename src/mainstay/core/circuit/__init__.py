"""Circuit breakers: states and transitions, windows, snapshots, circuits shared through a store."""
