"""Redis and Valkey: the store, the Lua scripts of its steps, its clients, its protocol."""
