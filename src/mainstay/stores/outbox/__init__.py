"""The outbox in SQL: its tables, adding in a caller's transaction, claims; `sql/` is the schema."""
