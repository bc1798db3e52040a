"""NATS JetStream: the store, its connection, its wire protocol."""
