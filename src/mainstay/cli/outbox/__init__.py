"""`mainstay outbox`: status, list, relay, dead letters, purge, schema."""
