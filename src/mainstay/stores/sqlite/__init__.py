"""SQLite: the store, the SQL of a claim, its connections, its journal; `sql/` is the schema."""
