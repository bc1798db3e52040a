"""Idempotency records: the reducer, the flow of a keyed call, fast replay."""
