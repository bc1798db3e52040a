"""NATS JetStream: the store, its steps, its connection, its wire protocol."""
