"""Idempotency records: the reducer, the flow of a keyed call, the fast replay of a known outcome."""
