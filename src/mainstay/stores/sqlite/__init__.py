"""SQLite: the store, its statements, its connections, its journal."""
