"""PostgreSQL: the store, the SQL of a record's claim and update, its pool, its journal."""
