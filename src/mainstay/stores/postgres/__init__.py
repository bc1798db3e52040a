"""PostgreSQL: the store, the SQL of a claim, its pool, its journal; `sql/` is the schema."""
