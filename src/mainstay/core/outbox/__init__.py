"""The outbox: messages added in a transaction, and what becomes of each after an attempt."""
