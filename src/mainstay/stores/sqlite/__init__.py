"""SQLite: the store, the SQL of a record's claim and update, its connections, its journal."""
