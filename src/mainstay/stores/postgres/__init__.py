"""PostgreSQL: the store, the SQL of keyed claims, its pool, its journal; `sql/` is the schema."""
