"""Connections to NATS servers, for store, sink and publisher: client, requests and answers."""
