"""SQLite: the store, the SQL of keyed claims, its connections and journal; `sql/` is the schema."""
