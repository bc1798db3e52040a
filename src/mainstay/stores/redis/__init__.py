"""Redis and Valkey: the store, its clients, its keys, its protocol."""
