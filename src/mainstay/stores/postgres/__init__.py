"""PostgreSQL: the store, its statements, its pool, its journal."""
