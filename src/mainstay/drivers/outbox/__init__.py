"""The outbox: adding in a transaction, the relay, dead letters, the inbox of consumers."""
